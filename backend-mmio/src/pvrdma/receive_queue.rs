//! Receive queues of one queue pair.

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::work_ring::WorkRing;
use crate::defs::pvrdma::{Receive, doorbell};
use crate::platform::{Hal, RegisterWords};

/// The receive queue of a queue pair.
#[derive(Debug)]
pub struct PvrdmaReceiveQueue<'s, H, W> {
    pub(crate) work: WorkRing<'s, H, W>,
}

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub struct PvrdmaReceiveSlot<'a, 's, H, W> {
    work: &'a mut WorkRing<'s, H, W>,
    token: u64,
    segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkSlot for PvrdmaReceiveSlot<'_, '_, H, W> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        if !self.work.hal.is_coherent() {
            self.work.before_write(self.segments, segment);
        }
        self.work.ring.put_segment(self.segments, segment);
        self.segments = self.segments.wrapping_add(1);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        let header = Receive {
            token: self.work.next_name(),
            segments: self.segments,
            length,
        };
        self.work.post(&header, self.token, length);
        Ok(())
    }
}

impl<'s, H: Hal, W: RegisterWords> WorkQueue for PvrdmaReceiveQueue<'s, H, W> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = PvrdmaReceiveSlot<'a, 's, H, W>
    where
        Self: 'a;

    #[inline]
    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<PvrdmaReceiveSlot<'_, 's, H, W>> {
        if !self.work.has_room(segments) {
            return None;
        }
        self.work.forget_ranges();
        Some(PvrdmaReceiveSlot {
            work: &mut self.work,
            token: request.token,
            segments: 0,
        })
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.work.ring_doorbell(doorbell::RECEIVE);
        Ok(())
    }
}
