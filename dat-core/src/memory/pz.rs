//! Protection zones.

use crate::backend::DomainKey;
use crate::id::PzId;

/// Place for one protection zone; behind the control lock.
#[derive(Debug)]
pub struct PzSlot {
    pub(crate) id: PzId,
    pub(crate) generation: u32,
    pub(crate) domain: DomainKey,
    /// Regions, endpoints and shared receive queues in the zone.
    pub(crate) users: u32,
    pub(crate) context: u64,
}

impl PzSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: PzId::NULL,
        generation: 0,
        domain: DomainKey(0),
        users: 0,
        context: 0,
    };
}
