//! Service points and connection requests.

mod cr;
mod psp;
mod rsp;

pub use cr::CrSlot;
pub use psp::PspSlot;
pub use rsp::RspSlot;
