//! The calls of an adapter as a whole: open, progress, query, close.

mod close;
mod deferred;
mod direct;
mod handles;
mod in_place;
mod interrupt;
mod objects_left;
mod open;
mod progress;
mod query;
#[cfg(test)]
mod tests;

pub use close::CloseError;
pub use in_place::First;
pub use interrupt::InterruptHandle;
pub use objects_left::ObjectsLeft;
pub use open::OpenError;
pub use query::IaParam;
