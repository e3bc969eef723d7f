//! Public service points.

use crate::backend::ListenerKey;
use crate::flags::PspFlags;
use crate::id::PspId;

/// Place for one public service point; behind the control lock.
#[derive(Debug)]
pub struct PspSlot {
    pub(crate) id: PspId,
    pub(crate) generation: u32,
    pub(crate) qualifier: u64,
    pub(crate) evd: u16,
    pub(crate) flags: PspFlags,
    pub(crate) listener: ListenerKey,
    pub(crate) context: u64,
}

impl PspSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: PspId::NULL,
        generation: 0,
        qualifier: 0,
        evd: 0,
        flags: PspFlags::Consumer,
        listener: ListenerKey(0),
        context: 0,
    };
}
