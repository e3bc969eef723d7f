//! The segments of a work request while they are filled in.

use core::ptr::NonNull;

use dat_core::backend::Segment;
use rdma_sys::ibv_sge;

pub(super) const NO_SEGMENT: ibv_sge = ibv_sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

/// The next segment of a request, and how many there may still be.
#[derive(Debug)]
pub(super) struct SegmentCursor {
    next: NonNull<ibv_sge>,
    left: usize,
    /// So many there may be at all.
    room: usize,
}

impl SegmentCursor {
    /// Begins with the first of `room` segments.
    ///
    /// # Safety
    /// So many are there, and nothing else refers to them as long as the cursor does.
    #[inline(always)]
    pub(super) unsafe fn new(first: NonNull<ibv_sge>, room: usize) -> Self {
        Self {
            next: first,
            left: room,
            room,
        }
    }

    /// Adds a segment, if there is room for it.
    #[inline(always)]
    pub(super) fn add(&mut self, segment: Segment) {
        let Some(left) = self.left.checked_sub(1) else {
            return;
        };
        self.left = left;
        // SAFETY: one of those that `new` was told of, which is not filled yet.
        unsafe {
            self.next.write(ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            });
            self.next = self.next.add(1);
        }
    }

    /// How many were added, as work requests count them.
    #[inline(always)]
    pub(super) fn count(&self) -> i32 {
        self.room.wrapping_sub(self.left) as i32
    }
}
