//! Pending requests, and the calls that wait for them.

use dat_core::flags::DtoStatus;

use crate::age::Watch;
use crate::id::{Handle, ImportId, LocalMemoryId, NodeId};

/// Most pending entries of a call.
pub(crate) const WINDOW: usize = 16;

/// A question to an exporter that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) link: Handle,
    pub(crate) import: ImportId,
    /// Number of the last transfer that the answer shows to be visible, if it was asked after.
    pub(crate) covers: Option<u64>,
    /// Number of the message among those of the link.
    pub(crate) queued: u64,
    /// Number of requests of the link up to this one, once it is posted.
    pub(crate) posted: Option<u64>,
    pub(crate) watch: Watch,
}

/// Owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An entry of a call that waits for it.
    Entry {
        flight: Handle,
        index: u32,
        /// True for the last request of the entry.
        last: bool,
    },
    /// The read that shows that writes are visible.
    ReadBack {
        flight: Handle,
        /// Number of the last transfer of the connection that it covers.
        covers: u64,
    },
    /// An entry that only a barrier waits for.
    Span,
    /// A read that shows that the peer is alive.
    Probe,
    /// A message in a send slot.
    Message { slot: u8 },
}

/// A pending request; its handle is the cookie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) link: Handle,
    /// Connection of the request; null for messages without one.
    pub(crate) import: Handle,
    /// Local memory that the request keeps from being freed.
    pub(crate) local: Option<LocalMemoryId>,
    /// Flight to notify of the end of a message; null for none.
    pub(crate) flight: Handle,
    /// Bytes that it transfers; 0 for messages.
    pub(crate) bytes: u64,
}

/// State of the read-back or of the signal of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not requested.
    Idle,
    /// Pending.
    Posted,
    /// Succeeded.
    Done,
    /// Failed.
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
    /// Node that it waits for.
    pub(crate) node: NodeId,
    /// Number of leading entries that are done.
    pub(crate) done: u32,
    /// Done entries from `done` on, as bits.
    ahead: u32,
    /// Pending requests.
    pub(crate) pending: u32,
    /// The failed entry with the lowest index.
    pub(crate) failure: Option<Failure>,
    /// Lowest index of the failed entries that only a barrier reports.
    written_off: Option<u32>,
    /// State of the read-back, of the question to the exporter, or of the signal.
    pub(crate) step: Step,
    /// Question that the exporter has not answered.
    pub(crate) question: Option<Question>,
    /// Connection of a call that its caller may forget; null for others.
    ///
    /// The flight is removed together with the connection.
    pub(crate) import: Handle,
    /// Link that has no room for the signal; null for none.
    pub(crate) starved: Handle,
    /// Looks since the signal waits for room, on any link.
    pub(crate) looks: u32,
}

impl Flight {
    pub(crate) const fn new(node: NodeId) -> Self {
        Self {
            node,
            done: 0,
            ahead: 0,
            pending: 0,
            failure: None,
            written_off: None,
            step: Step::Idle,
            question: None,
            import: Handle::NULL,
            starved: Handle::NULL,
            looks: 0,
        }
    }

    /// Notes whether the link has room for the signal.
    pub(crate) fn has_room(&mut self, link: Handle, room: bool) {
        if room {
            self.starved = Handle::NULL;
            self.looks = 0;
        } else {
            self.starved = link;
        }
    }

    /// Resets the state of all entries from `done` on, which are then moved again.
    pub(crate) fn rewind(&mut self) {
        self.ahead = 0;
        self.failure = None;
        self.step = Step::Idle;
        self.question = None;
    }

    /// Counts all entries before `next` as ended, even failed ones.
    pub(crate) fn write_off(&mut self, next: u32) {
        self.done = next;
        self.ahead = 0;
        let failed = self.failure.take().map(|failure| failure.index);
        self.written_off = self.written_off.or(failed);
    }

    /// Returns the number of leading entries that are not known to have failed.
    pub(crate) fn intact(&self) -> u32 {
        self.written_off.unwrap_or(self.done)
    }

    /// Marks an entry that needs no request as done.
    pub(crate) fn skip(&mut self, index: u32) {
        self.mark(index);
    }

    fn mark(&mut self, index: u32) {
        let Some(distance) = index
            .checked_sub(self.done)
            .filter(|distance| *distance < 32)
        else {
            return;
        };
        self.ahead |= 1 << distance;
        let leading = self.ahead.trailing_ones();
        self.done = self.done.wrapping_add(leading);
        self.ahead = self.ahead.checked_shr(leading).unwrap_or(0);
    }

    /// Handles the end of an entry's request.
    pub(crate) fn ended(&mut self, index: u32, last: bool, status: DtoStatus) {
        self.pending = self.pending.saturating_sub(1);
        match status {
            DtoStatus::Success if last => {
                // A failed earlier part fails the whole entry.
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

    /// Handles the end of the read-back or of the signal.
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
        let mut flight = Flight::new(1);
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
        let mut flight = Flight::new(1);
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

    /// Spec: RSMPV-42, RSMPV-54
    #[test]
    fn an_entry_that_was_written_off_stays_the_first_failed_one() {
        let mut flight = Flight::new(1);
        flight.pending = 3;
        flight.ended(0, true, DtoStatus::Success);
        flight.ended(1, true, DtoStatus::RemoteAccess);
        assert_eq!(flight.intact(), 1);
        flight.write_off(3);
        flight.ended(3, true, DtoStatus::Success);
        assert_eq!((flight.done, flight.intact()), (4, 1));
        flight.ended(4, true, DtoStatus::Transport);
        flight.write_off(5);
        assert_eq!((flight.done, flight.intact()), (5, 1));
    }

    /// Spec: RSMPV-55
    #[test]
    fn an_entry_with_a_failed_part_is_not_done() {
        let mut flight = Flight::new(1);
        flight.pending = 2;
        flight.ended(0, false, DtoStatus::Transport);
        flight.ended(0, true, DtoStatus::Success);
        assert_eq!(flight.done, 0);
    }
}
