//! An adapter of any backend, and the handles that its endpoints share.

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_storage::{Limits, OwnedIa};

use crate::world::{BYTES, register};

/// Events of each dispatcher.
const EVENTS: i32 = 64;

pub(crate) struct Bed<B: Backend + 'static> {
    pub(crate) ia: OwnedIa<B, HostLock>,
    pub(crate) pz: PzId,
    pub(crate) data: EvdId,
    pub(crate) connections: EvdId,
    lmr: LmrCreated,
}

impl<B: Backend + 'static> Bed<B> {
    pub(crate) fn open(backend: B) -> Self {
        let ia = OwnedIa::<_, HostLock>::open(backend, &Limits::default(), 8).expect("opens");
        let pz = ia.pz_create().expect("a zone");
        let evd = |kinds| ia.evd_create(EVENTS, None, kinds).expect("a dispatcher");
        let data = evd(EvdFlags::DTO);
        let connections = evd(EvdFlags::CONNECTION | EvdFlags::CR);
        let lmr = register(&ia, pz, MemoryPrivileges::ALL).expect("a region");
        Self {
            ia,
            pz,
            data,
            connections,
            lmr,
        }
    }

    /// Creates an endpoint with one request and one receive.
    pub(crate) fn endpoint(&self) -> EpId {
        let attributes = EpAttributes {
            max_recv_dtos: 1,
            max_request_dtos: 1,
            ..EpAttributes::DEFAULT
        };
        let (data, connections) = (Some(self.data), Some(self.connections));
        let ep = self
            .ia
            .ep_create(Some(self.pz), data, data, connections, Some(&attributes));
        ep.expect("an endpoint")
    }

    /// Begins to connect an endpoint.
    pub(crate) fn connect(&self, ep: EpId, address: IaAddress, qualifier: u64) {
        let param = ConnectParam {
            address,
            qualifier,
            timeout: 60_000_000,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        let begun = self.ia.ep_connect(ep, &param, Instant::ZERO);
        begun.expect("the endpoint can connect");
    }

    /// Returns the region as the segment of a post.
    pub(crate) fn segment(&self) -> [LmrTriplet; 1] {
        [LmrTriplet {
            context: self.lmr.lmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }]
    }

    /// Returns the region as the target of a peer.
    pub(crate) fn target(&self) -> RmrTriplet {
        RmrTriplet {
            context: self.lmr.rmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }
    }
}
