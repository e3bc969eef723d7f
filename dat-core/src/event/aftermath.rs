//! What remains to be done once the locks of a call are released.

use core::task::Waker;

use super::ProxyAgent;
use crate::backend::DeviceFailure;
use crate::id::EvdId;

/// Wake-ups, notifications and overflows that a call caused under its locks.
///
/// A call touches few dispatchers under one lock; what does not fit here is a missed wake-up, so
/// callers of `is_full` stop early and go on in another round.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    pub(crate) wakers: heapless::Vec<Waker, 8>,
    /// Index of a notification object and the dispatcher that fired.
    pub(crate) notifications: heapless::Vec<(u16, EvdId), 8>,
    pub(crate) overflowed: heapless::Vec<EvdId, 4>,
    /// Dispatchers whose completion queue failed.
    pub(crate) failed: heapless::Vec<(EvdId, DeviceFailure), 4>,
    /// Agents of notification objects that have no dispatcher any more (CNW-05).
    pub(crate) released: heapless::Vec<ProxyAgent, 4>,
}

impl Aftermath {
    pub(crate) fn wake(&mut self, waker: Waker) {
        // A waker that finds no room is woken at once: early is harmless, never is not.
        if let Err(waker) = self.wakers.push(waker) {
            waker.wake();
        }
    }

    pub(crate) fn notify(&mut self, cno: u16, evd: EvdId) {
        if self.notifications.iter().any(|&(known, _)| known == cno) {
            return;
        }
        // A call feeds at most three dispatchers of one endpoint and the asynchronous one.
        let _fits = self.notifications.push((cno, evd));
    }

    pub(crate) fn failure(&mut self, evd: EvdId, failure: DeviceFailure) {
        let _fits = self.failed.push((evd, failure));
    }

    pub(crate) fn release(&mut self, agent: ProxyAgent) {
        // A call frees one dispatcher or notification object.
        let _fits = self.released.push(agent);
    }

    pub(crate) fn overflow(&mut self, evd: EvdId) {
        let _fits = self.overflowed.push(evd);
    }
}
