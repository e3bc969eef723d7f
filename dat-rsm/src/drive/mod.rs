//! Progress of an engine, and the calls that wait for it.

mod progress;
pub(crate) mod wait;
mod watch;
