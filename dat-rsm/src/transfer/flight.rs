//! Requests on the way, and the calls that wait for them.

use dat_core::flags::DtoStatus;

use crate::id::{Handle, LocalMemoryId};

/// Entries of one call that are on the way at the same time.
pub(crate) const WINDOW: usize = 16;

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An entry of a call that waits for it.
    Entry {
        flight: Handle,
        index: u32,
        /// Whether this ends the entry, and is not a part of it with more behind.
        last: bool,
    },
    /// The read that shows that writes are visible.
    Flush {
        flight: Handle,
        /// The transfers of the connection up to this one.
        covers: u64,
    },
    /// An entry that nobody waits for but a barrier.
    Span,
    /// A read that shows that the peer is there.
    Probe,
    /// A message in this place.
    Message { slot: u8 },
}

/// A request on the way; its handle is the cookie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) link: Handle,
    /// The connection it belongs to; null for messages that belong to none.
    pub(crate) import: Handle,
    /// What it keeps from being freed.
    pub(crate) local: Option<LocalMemoryId>,
    /// Whether the call wants to know of the end of a message.
    pub(crate) told: Handle,
}

/// How the flush of a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not asked for.
    Idle,
    /// On the way.
    Posted,
    /// It succeeded.
    Done,
    /// It failed.
    Failed(DtoStatus),
}

/// A failed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) index: u32,
    pub(crate) status: DtoStatus,
}

/// A call that transfers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// Entries that are done, all before the first that is not.
    pub(crate) done: u32,
    /// Which of the entries from `done` on are done.
    ahead: u32,
    /// Requests on the way.
    pub(crate) pending: u32,
    /// The failed entry with the lowest index.
    pub(crate) failure: Option<Failure>,
    /// The flush, or the signal.
    pub(crate) step: Step,
    /// The connection of a call that its caller may forget: it goes with it. Null for others.
    pub(crate) import: Handle,
}

impl Flight {
    pub(crate) const fn new() -> Self {
        Self {
            done: 0,
            ahead: 0,
            pending: 0,
            failure: None,
            step: Step::Idle,
            import: Handle::NULL,
        }
    }

    /// Everything after `done` is to be done again.
    pub(crate) fn rewind(&mut self) {
        self.ahead = 0;
        self.failure = None;
        self.step = Step::Idle;
    }

    /// Entries before `next` are over, however they went.
    pub(crate) fn write_off(&mut self, next: u32) {
        self.done = next;
        self.ahead = 0;
        self.failure = None;
    }

    /// An entry that needs no request is done.
    pub(crate) fn skip(&mut self, index: u32) {
        self.mark(index);
    }

    fn mark(&mut self, index: u32) {
        let Some(place) = index.checked_sub(self.done).filter(|place| *place < 32) else {
            return;
        };
        self.ahead |= 1 << place;
        let leading = self.ahead.trailing_ones();
        self.done = self.done.wrapping_add(leading);
        self.ahead = self.ahead.checked_shr(leading).unwrap_or(0);
    }

    /// A request of an entry ended.
    pub(crate) fn ended(&mut self, index: u32, last: bool, status: DtoStatus) {
        self.pending = self.pending.saturating_sub(1);
        match status {
            DtoStatus::Success if last => {
                // A part that failed before it fails the whole.
                if self.failure.is_none_or(|failure| failure.index != index) {
                    self.mark(index);
                }
            }
            DtoStatus::Success => {}
            status => {
                if self.failure.is_none_or(|failure| index < failure.index) {
                    self.failure = Some(Failure { index, status });
                }
            }
        }
    }

    /// The flush or the signal ended.
    pub(crate) fn stepped(&mut self, status: DtoStatus) {
        self.pending = self.pending.saturating_sub(1);
        self.step = match status {
            DtoStatus::Success => Step::Done,
            status => Step::Failed(status),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMPV-31, RSMPV-54
    #[test]
    fn only_leading_entries_count_as_done() {
        let mut flight = Flight::new();
        flight.pending = 4;
        flight.ended(2, true, DtoStatus::Success);
        flight.ended(1, true, DtoStatus::Success);
        assert_eq!(flight.done, 0);
        flight.ended(0, true, DtoStatus::Success);
        assert_eq!((flight.done, flight.pending), (3, 1));
        flight.skip(3);
        assert_eq!(flight.done, 4);
    }

    /// Spec: RSMPV-51, RSMPV-54
    #[test]
    fn the_lowest_failure_counts() {
        let mut flight = Flight::new();
        flight.pending = 3;
        flight.ended(2, true, DtoStatus::Flushed);
        flight.ended(1, true, DtoStatus::RemoteAccess);
        flight.ended(0, true, DtoStatus::Success);
        assert_eq!(flight.done, 1);
        let failure = Failure {
            index: 1,
            status: DtoStatus::RemoteAccess,
        };
        assert_eq!(flight.failure, Some(failure));
        flight.rewind();
        assert_eq!((flight.done, flight.failure), (1, None));
    }

    /// Spec: RSMPV-55
    #[test]
    fn an_entry_with_a_failed_part_is_not_done() {
        let mut flight = Flight::new();
        flight.pending = 2;
        flight.ended(0, false, DtoStatus::Transport);
        flight.ended(0, true, DtoStatus::Success);
        assert_eq!(flight.done, 0);
    }
}
