//! Effects that a call defers until its locks are released.

use core::mem::ManuallyDrop;
use core::task::Waker;

use super::ProxyAgent;
use crate::backend::DeviceFailure;
use crate::contain::contain_panic;
use crate::id::{EvdId, Index};

/// Wake-ups, notifications, failures and overflows that a call caused under its locks.
///
/// A call touches few dispatchers, and frees one dispatcher or notification object. Entries beyond
/// the capacity are kept in their dispatcher's `pending`; `any_pending` is then set, and
/// `Ia::run_deferred` checks all dispatchers.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Wakers of waiters to wake.
    ///
    /// A dispatcher has one waiter; a notification object that loses its last dispatcher releases
    /// all of its waiters. `Ia::run_deferred` empties the list, so it needs no drop.
    pub(crate) wakers: ManuallyDrop<heapless::Vec<Waker, { room(12, 4) }>>,
    /// Indices of notification objects, with the dispatchers that fired.
    pub(crate) notifications: heapless::Vec<(Index, EvdId), { room(8, 2) }>,
    pub(crate) overflowed: heapless::Vec<EvdId, { room(4, 2) }>,
    /// Dispatchers whose completion queue failed.
    pub(crate) failed: heapless::Vec<(EvdId, DeviceFailure), { room(4, 1) }>,
    /// Notification object without a dispatcher, whose agent is due (CNW-05).
    pub(crate) agents: Option<Index>,
    /// Agents of a destroyed notification object.
    pub(crate) released: heapless::Vec<ProxyAgent, 2>,
    pub(crate) any_pending: bool,
}

/// Returns the capacity: `few` with the feature `compact`, otherwise `most`.
const fn room(most: usize, few: usize) -> usize {
    if cfg!(feature = "compact") { few } else { most }
}

/// Effects that a dispatcher keeps because no `Deferred` had room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending(u8);

impl Pending {
    pub(crate) const NOTHING: Self = Self(0);
    /// A trigger of the dispatcher's notification object.
    pub(crate) const NOTIFICATION: Self = Self(1);
    /// An overflow of the dispatcher.
    pub(crate) const OVERFLOW: Self = Self(2);
    /// A failure of the dispatcher's completion queue.
    pub(crate) const FAILURE: Self = Self(4);
    /// A look at the completion queue, which was not armed.
    pub(crate) const LOOK: Self = Self(8);
    /// A look at a dispatcher that refused a call while it was parked.
    pub(crate) const REFUSED: Self = Self(16);

    pub(crate) const fn add(&mut self, what: Self) {
        self.0 |= what.0;
    }

    pub(crate) const fn contains(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }
}

impl Deferred {
    pub(crate) fn wake(&mut self, waker: Waker) {
        // A waker without room is woken at once: an early wake-up is harmless, a lost one is not.
        if let Err(waker) = self.wakers.push(waker) {
            contain_panic(|| waker.wake());
        }
    }

    /// Adds a notification by dispatcher `evd`.
    pub(super) fn notify(&mut self, cno: Index, evd: EvdId, pending: &mut Pending) {
        if self.notifications.contains(&(cno, evd)) {
            return;
        }
        if self.notifications.push((cno, evd)).is_err() {
            self.keep_pending(pending, Pending::NOTIFICATION);
        }
    }

    /// Adds a failure of a dispatcher's completion queue.
    pub(super) fn failure(&mut self, evd: EvdId, failure: DeviceFailure, pending: &mut Pending) {
        if self.failed.push((evd, failure)).is_err() {
            self.keep_pending(pending, Pending::FAILURE);
        }
    }

    /// Adds an overflow of a dispatcher.
    pub(super) fn overflow(&mut self, evd: EvdId, pending: &mut Pending) {
        if self.overflowed.push(evd).is_err() {
            self.keep_pending(pending, Pending::OVERFLOW);
        }
    }

    #[cold]
    pub(super) fn keep_pending(&mut self, pending: &mut Pending, what: Pending) {
        pending.add(what);
        self.any_pending = true;
    }

    pub(crate) fn release(&mut self, agent: ProxyAgent) {
        // Cannot fail: an object has two calls at most, and they are made before the next is freed.
        let _fits = self.released.push(agent);
    }
}
