//! Remote memory regions.

use crate::backend::WindowKey;
use crate::id::RmrId;

/// Place for one remote memory region; behind the control lock.
#[derive(Debug)]
pub struct RmrSlot {
    pub(crate) id: RmrId,
    pub(crate) generation: u32,
    pub(crate) zone: u16,
    pub(crate) window: WindowKey,
    pub(crate) context: u64,
}

impl RmrSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: RmrId::NULL,
        generation: 0,
        zone: 0,
        window: WindowKey(0),
        context: 0,
    };
}
