//! Shared receive queues.

use portable_atomic::{AtomicU32, Ordering};

use crate::backend::SharedReceiveQueueKey;
use crate::flags::SrqState;
use crate::id::SrqId;
use crate::record::{NO_RECORD, RecordSlot};
use crate::sync::{Mutex, RawLock};

/// Place for one shared receive queue.
pub struct SrqSlot<Q, L> {
    /// Records that came back, in any order: head of a list that completers push to.
    pub(crate) returned: AtomicU32,
    /// Buffers whose receive completed.
    pub(crate) completed: AtomicU32,
    /// Buffers whose completion was dequeued.
    pub(crate) reaped: AtomicU32,
    pub(crate) main: Mutex<L, SharedReceives<Q>>,
}

impl<Q, L: RawLock> SrqSlot<Q, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        returned: AtomicU32::new(NO_RECORD),
        completed: AtomicU32::new(0),
        reaped: AtomicU32::new(0),
        main: Mutex::new(SharedReceives::EMPTY),
    };
}

/// A shared receive queue behind its lock.
#[derive(Debug)]
pub(crate) struct SharedReceives<Q> {
    pub(crate) id: SrqId,
    pub(crate) zone_tag: u32,
    pub(crate) max_segments: u32,
    /// Buffers the consumer may have outstanding; as many records are its own.
    pub(crate) max_receives: u32,
    /// Free records at hand: head of a list that only the holder of the lock touches.
    pub(crate) free_first: u32,
    /// Buffers ever posted.
    pub(crate) posted: u32,
    pub(crate) queue: Option<Q>,

    pub(crate) generation: u32,
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) state: SrqState,
    pub(crate) zone: u16,
    pub(crate) low_watermark: u32,
    /// Endpoints that take from it.
    pub(crate) endpoints: u32,
    pub(crate) context: u64,
}

impl<Q> SharedReceives<Q> {
    pub(crate) const EMPTY: Self = Self {
        id: SrqId::NULL,
        zone_tag: 0,
        max_segments: 0,
        max_receives: 0,
        free_first: NO_RECORD,
        posted: 0,
        queue: None,
        generation: 0,
        key: SharedReceiveQueueKey(0),
        state: SrqState::Operational,
        zone: 0,
        low_watermark: 0,
        endpoints: 0,
        context: 0,
    };
}

impl<Q> SharedReceives<Q> {
    /// The first free record, which stays on the list; takes in what came back if none is at hand.
    #[inline]
    pub(crate) fn free_record<'r, L>(
        &mut self,
        slot: &SrqSlot<Q, L>,
        records: &'r [RecordSlot],
    ) -> Option<(u32, &'r RecordSlot)> {
        if self.free_first == NO_RECORD {
            self.free_first = slot.returned.swap(NO_RECORD, Ordering::Acquire);
        }
        let record = records.get(self.free_first as usize)?;
        Some((self.free_first, record))
    }
}
