//! Helpers of tests with several threads.

use super::*;
use crate::backend::{ControlEvent, PrivateData};
use crate::endpoint::ConnectParam;
use crate::flags::{ConnectFlags, QualityOfService, TIMEOUT_INFINITE};
use crate::sync::HostLock;
use crate::time::Instant;

/// Creates a zone and a connected endpoint in it, for four requests and no receives.
pub(super) fn connected(ia: &Ia<'_, TestBackend, HostLock>, device: &TestBackend) -> (PzId, EpId) {
    let pz = ia.pz_create().unwrap();
    let evd = ia
        .evd_create(4, None, EvdFlags::DTO | EvdFlags::RMR_BIND)
        .unwrap();
    let attributes = EpAttributes {
        max_recv_dtos: 0,
        max_request_dtos: 4,
        ..EpAttributes::DEFAULT
    };
    let ep = ia
        .ep_create(Some(pz), None, Some(evd), None, Some(&attributes))
        .unwrap();
    let peer = ConnectParam {
        address: crate::testing::fixture::PEER,
        qualifier: 1,
        timeout: TIMEOUT_INFINITE,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    ia.ep_connect(ep, &peer, Instant::ZERO).unwrap();
    device.push_control(ControlEvent::Established {
        queue_pair: ep.handle().to_raw(),
        private_data: PrivateData::new(),
    });
    ia.progress(Instant::ZERO);
    (pz, ep)
}
