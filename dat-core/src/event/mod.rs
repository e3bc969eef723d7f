//! Events, event dispatchers and notification objects.

mod aftermath;
mod cno;
mod control;
mod event;
mod harvest;
mod queue;
mod slot;
mod wait;

pub(crate) use aftermath::Aftermath;
pub use cno::{CnoParam, CnoSlot, CnoWait, ProxyAgent};
pub use control::EvdParam;
pub use event::{
    AsyncEventKind, ConnectionEventKind, DtoCompletion, DtoOperation, Event, REASON_LOW_WATERMARK,
    REASON_PRIMARY, REASON_SOFT_HIGH_WATERMARK, RmrBindCompletion,
};
pub(crate) use queue::{EvdConfig, EvdQueue};
pub use queue::EvdSlot;
pub use slot::EventSlot;
pub use wait::{EvdWait, Expired, Wait, Waited, WakeReason};
