//! An open adapter: the backend and the tables of all objects.

mod control;
mod driver;
mod tag;
mod watch;

pub(crate) use control::Control;
pub(crate) use driver::Driver;
pub(crate) use tag::InstanceTag;
pub(crate) use watch::Watch;

use crate::backend::Backend;
use crate::id::EvdId;
use crate::shared::Shared;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker};
use crate::sync::{Mutex, RawLock};

/// Maximum control events per call, which bounds its time.
pub(crate) const EVENTS_PER_CALL: usize = 64;

/// An open interface adapter; owns its backend and all objects created from it.
///
/// All calls take `&self`. With a lock that is `Sync` and a backend that is `Send`, any thread may
/// make them. Dropping the adapter closes it abruptly.
pub struct Ia<'s, B: Backend, L: RawLock> {
    pub(crate) control: Mutex<L::Control, Control<'s, B>>,
    pub(crate) shared: Shared<'s, B, L>,
    pub(crate) async_evd: EvdId,
    /// Interrupts since the last `take_interrupts`.
    pub(crate) interrupts: AtomicU32,
    /// Waker of a consumer that drives `progress`.
    pub(crate) progress_waker: AtomicWaker,
    /// Selection of the blocking wait that drives `progress`.
    pub(crate) driver: Driver,
    /// Set once the failure of the device is reported.
    pub(crate) catastrophe: AtomicBool,
    /// Set if the end of a connection with shared receives also raises an asynchronous event.
    pub(crate) tells_shared_ends: AtomicBool,
    /// Keeps other open adapters from `shared.instance`.
    pub(crate) tag: InstanceTag,
}
