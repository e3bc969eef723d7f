//! What remains to be done once the locks of a call are released.

use core::mem::ManuallyDrop;
use core::task::Waker;

use super::ProxyAgent;
use crate::backend::DeviceFailure;
use crate::id::EvdId;

/// Wake-ups, notifications, failures and overflows that a call caused under its locks.
///
/// A call touches few dispatchers, and frees one dispatcher or notification object. What finds no room here stays with the dispatcher, as what it owes;
/// `owing` says that some dispatcher owes something, and `Ia::settle` asks them all.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    /// Of a dispatcher's waiter, and of all waiters of a notification object that loses its last one.
    /// `Ia::settle` takes them out; nothing else has to look whether there are any left.
    pub(crate) wakers: ManuallyDrop<heapless::Vec<Waker, { room(12, 4) }>>,
    /// Index of a notification object and the dispatcher that fired.
    pub(crate) notifications: heapless::Vec<(u16, EvdId), { room(8, 2) }>,
    pub(crate) overflowed: heapless::Vec<EvdId, { room(4, 2) }>,
    /// Dispatchers whose completion queue failed.
    pub(crate) failed: heapless::Vec<(EvdId, DeviceFailure), { room(4, 1) }>,
    /// Agents of notification objects that have no dispatcher any more (CNW-05).
    pub(crate) released: heapless::Vec<ProxyAgent, { room(4, 1) }>,
    pub(crate) owing: bool,
}

/// So many, or so many with the feature `compact`.
const fn room(most: usize, few: usize) -> usize {
    if cfg!(feature = "compact") { few } else { most }
}

/// What a dispatcher has to report, because no call had room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed(u8);

impl Owed {
    pub(crate) const NOTHING: Self = Self(0);
    /// Its notification object is to be triggered.
    pub(crate) const NOTIFICATION: Self = Self(1);
    /// It overflowed.
    pub(crate) const OVERFLOW: Self = Self(2);
    /// Its completion queue failed.
    pub(crate) const FAILURE: Self = Self(4);

    pub(crate) const fn contains(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }
}

impl Aftermath {
    pub(crate) fn wake(&mut self, waker: Waker) {
        // A waker that finds no room is woken at once: early is harmless, never is not.
        if let Err(waker) = self.wakers.push(waker) {
            waker.wake();
        }
    }

    /// The dispatcher fired.
    pub(super) fn notify(&mut self, cno: u16, evd: EvdId, owed: &mut Owed) {
        if self.notifications.contains(&(cno, evd)) {
            return;
        }
        if self.notifications.push((cno, evd)).is_err() {
            self.owe(owed, Owed::NOTIFICATION);
        }
    }

    /// The completion queue of a dispatcher failed.
    pub(super) fn failure(&mut self, evd: EvdId, failure: DeviceFailure, owed: &mut Owed) {
        if self.failed.push((evd, failure)).is_err() {
            self.owe(owed, Owed::FAILURE);
        }
    }

    /// An event found no room in a dispatcher.
    pub(super) fn overflow(&mut self, evd: EvdId, owed: &mut Owed) {
        if self.overflowed.push(evd).is_err() {
            self.owe(owed, Owed::OVERFLOW);
        }
    }

    #[cold]
    fn owe(&mut self, owed: &mut Owed, what: Owed) {
        owed.0 |= what.0;
        self.owing = true;
    }

    pub(crate) fn release(&mut self, agent: ProxyAgent) {
        // A call frees one dispatcher or notification object.
        let _fits = self.released.push(agent);
    }
}
