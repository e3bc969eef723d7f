//! Slots for shared receive queues.

use core::sync::atomic::AtomicU32;

use dat_core::sync::Word64;

use super::queue_cell::NO_QUEUE;

/// Slot for one shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveSlot {
    /// Device number; `NO_QUEUE` if the slot is free.
    pub(crate) number: AtomicU32,
    pub(crate) token: Word64,
    pub(crate) first: AtomicU32,
    /// Number of slots.
    pub(crate) entries: AtomicU32,
    /// Generation of the slot, for drivers that name buffers by it.
    pub(crate) generation: AtomicU32,
}

impl SharedReceiveSlot {
    /// A slot without shared receive queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        first: AtomicU32::new(0),
        entries: AtomicU32::new(0),
        generation: AtomicU32::new(0),
    };
}
