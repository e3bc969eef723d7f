//! Tests of zones, regions, binds and synchronisation on the test device.

mod bind;
mod bind_refusals;
mod bind_renewals;
#[cfg(feature = "std")]
mod bind_threads;
mod lookup;
#[cfg(feature = "std")]
mod posts;
mod region;
mod remote;
mod slot;
mod sync;
#[cfg(feature = "std")]
mod threads;
mod zone;

use std::vec::Vec;

use super::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, zone_seal};
use crate::attributes::EpAttributes;
use crate::backend::{Backend, Completion, QueuePairKey, QueuePairRequest};
use crate::endpoint::{Endpoint, Limit, RequestLimits, WorkRing};
use crate::error::{Error, ErrorKind, Result, Subtype};
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, EndpointState, EvdFlags, MemoryPrivileges};
use crate::id::{EpId, EvdId, PzId};
use crate::record::{self, Owner};
use crate::sync::NoLock;
use crate::testing::{TestBackend, TestStorage};
use crate::{Cause, Ia};

pub(crate) type TestIa<'s> = Ia<'s, TestBackend, NoLock>;

/// Address of the regions of most tests.
pub(crate) const BASE: usize = 0x1_0000;
/// Length of these regions in bytes.
pub(crate) const LENGTH: usize = 0x1000;

/// Runs a test on a new adapter.
pub(crate) fn with_ia(test: impl FnOnce(&TestIa<'_>, &TestBackend)) {
    let backend = TestBackend::default();
    with_backend(&backend, |ia| test(ia, &backend));
}

/// As `with_ia`, on the test's own device.
pub(crate) fn with_backend(backend: &TestBackend, test: impl FnOnce(&TestIa<'_>)) {
    let mut storage = TestStorage::new();
    let ia = Ia::open(backend.clone(), storage.lend(), 8).expect("an adapter opens");
    test(&ia);
}

/// Returns kind, subtype and cause of an error.
pub(crate) fn refusal<T: core::fmt::Debug>(outcome: Result<T>) -> (ErrorKind, Subtype, Cause) {
    let error: Error = outcome.expect_err("the call must be refused");
    (error.kind(), error.subtype(), error.cause())
}

/// Registers `BASE..BASE + LENGTH`.
pub(crate) fn region(ia: &TestIa<'_>, pz: PzId, privileges: MemoryPrivileges) -> LmrCreated {
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(BASE, LENGTH)),
        pz,
        privileges,
    })
    .expect("a region is made")
}

/// Returns a segment of a region.
pub(crate) fn segment(lmr: &LmrCreated, offset: u64, length: u64) -> LmrTriplet {
    LmrTriplet {
        context: lmr.lmr_context,
        address: lmr.registered_address.wrapping_add(offset),
        length,
    }
}

/// An endpoint that is written to its slot directly, without a connection.
pub(crate) struct TestEndpoint {
    pub(crate) ep: EpId,
    pub(crate) key: QueuePairKey,
    pub(crate) evd: EvdId,
}

impl TestEndpoint {
    /// Creates a connected endpoint with its own request dispatcher, for 8 requests.
    pub(crate) fn new(ia: &TestIa<'_>, index: u32, pz: PzId) -> Self {
        Self::with_flags(ia, index, pz, CompletionFlags::empty())
    }

    /// As `new`, with these request completion flags.
    pub(crate) fn with_flags(
        ia: &TestIa<'_>,
        index: u32,
        pz: PzId,
        flags: CompletionFlags,
    ) -> Self {
        let evd = ia
            .evd_create(8, None, EvdFlags::DTO | EvdFlags::RMR_BIND)
            .expect("a dispatcher is made");
        let ep = EpId::new(ia.shared.instance, 1, index.into());
        let attributes = EpAttributes {
            max_request_dtos: 8,
            max_recv_dtos: 0,
            request_completion_flags: flags,
            ..EpAttributes::DEFAULT
        };
        let key = ia.control.with(|control| {
            let zone = ia.retain_zone(control, pz).expect("the zone lives");
            let domain = control.zone(pz).expect("the zone lives").domain;
            let pair = control
                .backend()
                .expect("open")
                .create_queue_pair(&QueuePairRequest {
                    request_queue: Some(evd.index() as u32),
                    ..QueuePairRequest::new(ep.handle().to_raw(), domain, attributes)
                })
                .expect("a queue pair is made");
            let base = record::allocate(&ia.shared.records, Owner::Requests(ep), 8)
                .expect("records are free");
            let slot = &ia.shared.endpoints.made()[index as usize];
            slot.handle.store(ep.handle().to_raw());
            slot.main.with(|endpoint| {
                let mut refused = CompletionFlags::all().complement();
                refused |= CompletionFlags::from_bits_retain(!0xF);
                if flags != CompletionFlags::UNSIGNALLED {
                    refused |= CompletionFlags::UNSIGNALLED;
                }
                *endpoint = Endpoint {
                    id: ep,
                    generation: 1,
                    zone: Some(zone),
                    zone_seal: zone_seal(zone),
                    refused_flags: refused,
                    limits: RequestLimits {
                        send_segments: 4,
                        send_size: Limit::new(u32::MAX),
                        ..RequestLimits::NONE
                    },
                    ring: WorkRing::new(base, 8),
                    send: Some(pair.send),
                    request_evd: Some(evd.slot()),
                    queue_pair: Some(pair.key),
                    attributes,
                    ..Endpoint::EMPTY
                };
                endpoint.state = EndpointState::Connected;
                endpoint.refresh_postable();
            });
            pair.key
        });
        Self { ep, key, evd }
    }

    /// Sets the endpoint's state.
    pub(crate) fn enter(&self, ia: &TestIa<'_>, state: EndpointState) {
        ia.shared.endpoints.made()[self.ep.index()]
            .main
            .with(|endpoint| {
                endpoint.state = state;
                endpoint.refresh_postable();
            });
    }

    /// Destroys the endpoint without completions, as a free does.
    pub(crate) fn destroy(self, ia: &TestIa<'_>) {
        let index = self.ep.index();
        ia.control.with(|control| {
            let old = ia.shared.endpoints.made()[index]
                .main
                .with(|endpoint| core::mem::replace(endpoint, Endpoint::EMPTY));
            ia.shared.endpoints.made()[index].handle.store(0);
            if let (Some(send), Some(key)) = (old.send, old.queue_pair) {
                control
                    .backend()
                    .expect("open")
                    .destroy_queue_pair(key, send, None);
            }
            ia.abandon_binds(old.ring.records(&ia.shared.records));
            record::give_back_all(&ia.shared.records, old.reach, Owner::Requests(self.ep));
            ia.release_zone(control, old.zone.expect("it had a zone"));
        });
    }

    /// Completes the oldest request and dequeues its event, if it has one.
    pub(crate) fn complete(
        &self,
        ia: &TestIa<'_>,
        backend: &TestBackend,
        status: DtoStatus,
    ) -> Option<Event> {
        assert!(backend.complete_request(self.key, status), "nothing posted");
        self.next_event(ia)
    }

    /// Dequeues the next event of the request dispatcher.
    pub(crate) fn next_event(&self, ia: &TestIa<'_>) -> Option<Event> {
        ia.shared.event_dispatchers.made()[self.evd.index()]
            .queue
            .with(|queue| queue.dequeue(self.evd, &ia.shared, &mut None))
            .ok()
    }
}

/// Returns all valid sets of privileges.
pub(crate) fn privilege_sets() -> Vec<MemoryPrivileges> {
    (0..=0x33).filter_map(MemoryPrivileges::from_bits).collect()
}

/// Returns a completion with a token, without a post.
pub(crate) fn stray(token: u64) -> Completion {
    Completion {
        token,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: 0,
        solicited: false,
    }
}
