//! The calls of an adapter as a whole: open, progress, query, close.

mod deferred;
mod direct;
mod in_place;
mod parking;
#[cfg(test)]
mod tests;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod progress;

mod interrupt;

mod query;

mod objects_left;

mod close;

pub use close::CloseError;
pub use in_place::First;
pub use interrupt::InterruptHandle;
pub use objects_left::ObjectsLeft;
pub use query::IaParam;
