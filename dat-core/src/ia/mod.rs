//! The interface adapter, which owns all other objects.

mod adapter;
mod close;
mod control;
mod deferred;
mod direct;
mod driver;
mod handles;
mod in_place;
mod interrupt;
mod objects_left;
mod progress;
mod query;
mod tag;
#[cfg(test)]
mod tests;
mod watch;

pub use adapter::{Ia, OpenError};
pub use close::CloseError;
pub(crate) use control::Control;
pub use in_place::First;
pub use interrupt::InterruptHandle;
pub use objects_left::ObjectsLeft;
pub(crate) use progress::EVENTS_PER_CALL;
pub use query::IaParam;
