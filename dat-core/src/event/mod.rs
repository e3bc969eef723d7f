//! Events, event dispatchers and notification objects.

mod agent_calls;
mod completion;
mod deferred;
#[expect(clippy::module_inception, reason = "the object kind of the folder")]
mod event;
#[cfg(all(feature = "std", target_os = "linux"))]
mod own_sleep;
mod queue;
mod ring;
#[cfg(feature = "std")]
mod sleepers;
mod slot;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(feature = "std")]
mod thread_wait;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod control;

mod dequeue;

mod wait;

mod cno;

mod cno_wait;

pub use crate::contain::contain_panic;
pub use crate::operation::{DtoOperation, ExtendedOperation};
pub(crate) use agent_calls::DueObjects;
pub use cno::{CnoParam, CnoSlot, ProxyAgent};
pub use cno_wait::CnoWait;
pub use control::EvdParam;
pub(crate) use deferred::{Deferred, Pending};
pub use event::{
    AsyncEventKind, ConnectionEventKind, DtoCompletion, Event, ExtendedCompletion,
    REASON_LOW_WATERMARK, REASON_PRIMARY, REASON_SOFT_HIGH_WATERMARK, RmrBindCompletion,
};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use own_sleep::{OnEvent, OwnSleep};
pub use queue::EvdSlot;
pub(crate) use queue::{ARMING_ROUNDS, EvdConfig, EvdQueue, Head, ReadyWalk};
#[cfg(feature = "std")]
pub use sleepers::Sleepers;
pub use slot::EventSlot;
pub(crate) use stream::{Look, OwnWait};
#[cfg(feature = "std")]
pub use thread_wait::ThreadWait;
pub use wait::{EvdWait, Expired, Wait, Waited, WakeReason};
