//! Service points and connection requests.

mod cr;
mod incoming;
mod psp;
mod rsp;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod two_peers;

pub use cr::{CrParam, CrSlot};
pub(crate) use incoming::Incoming;
pub use psp::{PspParam, PspSlot};
pub use rsp::{RspParam, RspSlot};
