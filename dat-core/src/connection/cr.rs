//! Connection requests.

use crate::attributes::IaAddress;
use crate::backend::{PrivateData, RequestKey};
use crate::id::{CrId, EpId};

/// Place for one connection request; behind the control lock.
#[derive(Debug)]
pub struct CrSlot {
    pub(crate) id: CrId,
    pub(crate) generation: u32,
    pub(crate) request: RequestKey,
    pub(crate) remote: Option<IaAddress>,
    pub(crate) local: Option<IaAddress>,
    pub(crate) remote_port: u64,
    pub(crate) qualifier: u64,
    pub(crate) private_data: PrivateData,
    /// The endpoint its service point brought along.
    pub(crate) ep: Option<EpId>,
    pub(crate) context: u64,
}

impl CrSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: CrId::NULL,
        generation: 0,
        request: RequestKey(0),
        remote: None,
        local: None,
        remote_port: 0,
        qualifier: 0,
        private_data: PrivateData::new(),
        ep: None,
        context: 0,
    };
}
