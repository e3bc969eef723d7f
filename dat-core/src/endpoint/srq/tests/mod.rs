//! Tests of shared receive queues on the test device.

mod buffers;
mod lifecycle;
mod resize;
mod watermark;

use std::vec::Vec;

use crate::Cause;
use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes, SrqAttributes};
use crate::backend::{BackendError, Completion, ControlEvent, QueuePairKey, SharedReceiveQueueKey};
use crate::error::{ErrorKind, Result, Subtype};
use crate::event::{AsyncEventKind, Event, REASON_LOW_WATERMARK, REASON_PRIMARY};
use crate::flags::{DtoStatus, EndpointState, EvdFlags, MemoryPrivileges, SrqFields, SrqState};
use crate::id::{EpId, EvdId, PzId, SrqId};
use crate::memory::tests::{TestIa, refusal, region, segment, with_backend, with_ia};
use crate::memory::{LmrCreated, LmrTriplet};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend};
use crate::time::Instant;

const SIZE: SrqAttributes = SrqAttributes {
    max_recv_dtos: 10,
    max_recv_iov: 2,
    low_watermark: 0,
};

/// An endpoint on a shared queue, with its own receive dispatcher.
struct ConsumingEndpoint {
    ep: EpId,
    key: QueuePairKey,
    evd: EvdId,
}

impl ConsumingEndpoint {
    fn new(ia: &TestIa<'_>, backend: &TestBackend, pz: PzId, srq: SrqId) -> Self {
        let evd = ia.evd_create(2, None, EvdFlags::DTO).unwrap();
        let attributes = EpAttributes {
            max_request_dtos: 0,
            ..EpAttributes::DEFAULT
        };
        let ep = ia
            .ep_create_with_srq(Some(pz), Some(evd), None, None, srq, &attributes)
            .unwrap();
        let key = backend.pair(ep.handle().to_raw()).unwrap();
        Self { ep, key, evd }
    }
}

/// A shared queue with one endpoint and a region.
struct Setting<'a, 's> {
    ia: &'a TestIa<'s>,
    backend: &'a TestBackend,
    pz: PzId,
    lmr: LmrCreated,
    srq: SrqId,
    consuming_endpoint: ConsumingEndpoint,
}

impl Setting<'_, '_> {
    fn post(&self, cookie: u64) -> Result<()> {
        self.ia
            .srq_post_recv(self.srq, &[segment(&self.lmr, 0, 16)], cookie)
    }

    fn key(&self) -> SharedReceiveQueueKey {
        key_of(self.ia, self.srq)
    }

    /// Completes the buffer at `position` on an endpoint.
    fn arrive(&self, consuming_endpoint: &ConsumingEndpoint, position: usize) {
        assert!(self.backend.complete_shared(
            self.key(),
            position,
            consuming_endpoint.key,
            DtoStatus::Success,
            4
        ));
    }

    /// Queries the numbers of available and of outstanding buffers.
    fn counts(&self) -> (i32, i32) {
        let mask = SrqFields::AVAILABLE | SrqFields::OUTSTANDING;
        let param = self.ia.srq_query(self.srq, mask).unwrap();
        (param.available, param.outstanding)
    }

    /// Returns true if the event of the low watermark arrived; dequeues it.
    fn alarm(&self) -> bool {
        match self.ia.evd_dequeue(self.ia.async_evd()) {
            Ok(event) => {
                assert_eq!(
                    event,
                    Event::Async {
                        kind: AsyncEventKind::EpBroken,
                        handle: self.srq.handle(),
                        reason: REASON_LOW_WATERMARK,
                    }
                );
                assert_eq!((event.number(), REASON_LOW_WATERMARK), (0x8003, 2));
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::QueueEmpty);
                false
            }
        }
    }
}

fn key_of(ia: &TestIa<'_>, srq: SrqId) -> SharedReceiveQueueKey {
    ia.shared.shared_receive_queues.made()[srq.index()]
        .main
        .with(|queue| queue.key)
}

fn with_setting(test: impl FnOnce(Setting<'_, '_>)) {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let srq = ia.srq_create(pz, &SIZE).unwrap();
        test(Setting {
            ia,
            backend,
            pz,
            lmr: region(ia, pz, MemoryPrivileges::LOCAL_WRITE),
            srq,
            consuming_endpoint: ConsumingEndpoint::new(ia, backend, pz, srq),
        });
    });
}

const EXHAUSTED: (ErrorKind, Subtype) = (ErrorKind::InsufficientResources, Subtype::ResourceSrq);
