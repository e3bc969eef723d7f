//! Reserved service points.

use crate::backend::ListenerKey;
use crate::id::{EpId, RspId};

/// Place for one reserved service point; behind the control lock.
#[derive(Debug)]
pub struct RspSlot {
    pub(crate) id: RspId,
    pub(crate) generation: u32,
    pub(crate) qualifier: u64,
    pub(crate) evd: u16,
    /// The endpoint tied to it; `None`: the provider makes one.
    pub(crate) ep: Option<EpId>,
    pub(crate) listener: ListenerKey,
    pub(crate) context: u64,
}

impl RspSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: RspId::NULL,
        generation: 0,
        qualifier: 0,
        evd: 0,
        ep: None,
        listener: ListenerKey(0),
        context: 0,
    };
}
