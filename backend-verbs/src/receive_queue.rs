//! Receive queues, shared ones and those of one queue pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use crate::hal::{QueuePair, ReceiveList, ReceiveSlot};

/// The queue pair of a receive queue, which may be in error.
#[derive(Debug)]
pub(crate) struct Failing {
    pub(crate) pair: Arc<QueuePair>,
    pub(crate) failure: Arc<Failure>,
}

/// Number of posts to a receive queue; negative from the moment its queue pair is put in error.
///
/// Count and error share one number: either a post sees the error, or the change to error sees the
/// post.
#[derive(Debug, Default)]
pub(crate) struct Failure(AtomicI64);

impl Failure {
    /// Announces that the queue pair is about to be put in error.
    ///
    /// That flushes the receives posted before. Each later post flushes its own.
    pub(crate) fn announce(&self) {
        self.0.fetch_or(i64::MIN, Ordering::SeqCst);
    }

    /// Counts a post; returns true if it follows the announcement.
    #[inline]
    fn is_later(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) < 0
    }
}

impl Failing {
    /// Puts the queue pair in error once more, which flushes receives posted since.
    ///
    /// Some devices look for receives to flush only then: soft-RoCE takes a receive without a call
    /// of the kernel.
    #[cold]
    fn fail_again(&self) {
        self.pair.fail();
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct VerbsReceiveQueue {
    pub(crate) list: ReceiveList,
    /// `None` if the queue is shared: its receives are flushed with the queue pair that takes them.
    pub(crate) owner: Option<Failing>,
}

/// A shared receive queue.
pub type VerbsSharedReceiveQueue = VerbsReceiveQueue;

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub struct VerbsReceiveSlot<'a>(ReceiveSlot<'a>);

impl WorkSlot for VerbsReceiveSlot<'_> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline]
    fn commit(self, _length: u32) -> Result<(), Rejected> {
        self.0.commit();
        Ok(())
    }
}

impl WorkQueue for VerbsReceiveQueue {
    type Request = ReceiveRequest;
    type Slot<'a> = VerbsReceiveSlot<'a>;

    #[inline]
    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<VerbsReceiveSlot<'_>> {
        self.list
            .begin(request.token, segments)
            .map(VerbsReceiveSlot)
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        if self.list.hand_over() {
            self.note_posted();
            return Ok(());
        }
        self.note_posted();
        self.list.take_refused()
    }
}

impl VerbsReceiveQueue {
    /// Flushes what was just posted if the queue pair is in error.
    #[inline]
    fn note_posted(&self) {
        if let Some(owner) = &self.owner
            && owner.failure.is_later()
        {
            owner.fail_again();
        }
    }
}

#[cfg(test)]
mod tests;
