//! Segments of a work request that is being filled in.

use core::ptr::NonNull;

use dat_core::backend::Segment;
use rdma_sys::ibv_sge;

pub(super) const NO_SEGMENT: ibv_sge = ibv_sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

/// Cursor over the segments of a request: the next one, and the number left.
#[derive(Debug)]
pub(super) struct SegmentCursor {
    next: NonNull<ibv_sge>,
    left: usize,
    /// Number of segments at the start.
    room: usize,
}

impl SegmentCursor {
    /// Starts at the first of `room` segments.
    ///
    /// # Safety
    /// `first` points to `room` segments, and nothing else refers to them while the cursor lives.
    #[inline]
    pub(super) unsafe fn new(first: NonNull<ibv_sge>, room: usize) -> Self {
        Self {
            next: first,
            left: room,
            room,
        }
    }

    /// Adds a segment if there is room.
    #[inline]
    pub(super) fn add(&mut self, segment: Segment) {
        let Some(left) = self.left.checked_sub(1) else {
            return;
        };
        self.left = left;
        // SAFETY: one of the segments that the caller of `new` vouched for, and not filled yet.
        unsafe {
            self.next.write(ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            });
            self.next = self.next.add(1);
        }
    }

    /// Returns the number of added segments, in the type of a work request.
    #[inline]
    pub(super) fn count(&self) -> i32 {
        self.room.wrapping_sub(self.left) as i32
    }
}
