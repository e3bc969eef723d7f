//! Device that refuses one allocation: the refused call has no effect, and its repetition succeeds.

use std::cell::Cell;

use backend_mock::{Fabric, FabricOptions, Fault, FaultPlan, MockBackend, NodeOptions};
use dat_core::attributes::EpAttributes;
use dat_core::error::ErrorKind;
use dat_core::flags::{CloseFlags, EpFields, EvdFlags, MemoryPrivileges, PspFlags};
use dat_core::memory::{LmrMemory, LmrRequest, Region};
use dat_core::{Ia, Result, Storage};

use super::cramped::{Adapter, CheckResult, Failure, Lock, require, shared};
use super::growing::with_growing;
use super::interleavings::pages;
use super::{Outcome, Runner};

/// Limits of the storage.
pub(super) const ENDPOINTS: usize = 4;
pub(super) const DISPATCHERS: usize = 8;
pub(super) const EVENTS: usize = 38;
pub(super) const POSTS: usize = 18;
/// Length of the asynchronous dispatcher's queue.
const ASYNC_EVENTS: i32 = 2;

dat_core::define_storage! {
    /// Storage with little more room than the objects need.
    struct TightStorage for MockBackend, Lock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: DISPATCHERS,
        notification_objects: DISPATCHERS,
        endpoints: ENDPOINTS,
        shared_receive_queues: 1,
        public_service_points: ENDPOINTS,
        reserved_service_points: ENDPOINTS,
        connection_requests: ENDPOINTS,
        events: EVENTS,
        records: POSTS,
    }
}

/// Number of device calls to refuse in turn; more than the device gets.
const CALLS: u32 = 64;
/// Minimum number of refused calls.
const REFUSED: u32 = 16;

const ATTRIBUTES: EpAttributes = EpAttributes {
    max_message_size: 64,
    max_rdma_size: 64,
    max_recv_dtos: 2,
    max_request_dtos: 2,
    ..EpAttributes::DEFAULT
};

/// Counts refusals.
struct Retries(Cell<u32>);

impl Retries {
    fn refused(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Repeats a call that was refused for lack of resources.
    fn retry<T>(&self, call: impl Fn() -> Result<T>) -> core::result::Result<T, Failure> {
        match call() {
            Err(error) if error.kind() == ErrorKind::InsufficientResources => {
                self.refused();
                Ok(call()?)
            }
            outcome => Ok(outcome?),
        }
    }
}

impl Runner {
    /// Checks refusals by the device.
    ///
    /// Covers GEN-06, EVC-04, EVZ-03, EPC-08, EPM-05, SRC-06, SRZ-04 and IAC-03.
    pub(super) fn failed_allocations(&mut self) -> Outcome {
        let mut refused = 0;
        // Storage for two adapters: for the compiler, storage stays lent after a failed open.
        let (mut storage, mut other) =
            (Box::new(TightStorage::new()), Box::new(TightStorage::new()));
        for nth in 0..CALLS {
            refused += self.failed_allocation(nth, [storage.lend(), other.lend()])?;
        }
        self.expect_refusals(refused)
    }

    /// As `failed_allocations`, in storage that grows.
    pub(super) fn failed_allocations_in_growing(&mut self) -> Outcome {
        let mut refused = 0;
        for nth in 0..CALLS {
            refused += with_growing(|storage| {
                with_growing(|other| self.failed_allocation(nth, [storage, other]))
            })?;
        }
        self.expect_refusals(refused)
    }

    fn expect_refusals(&mut self, refused: u32) -> Outcome {
        let expected = format_args!("between {REFUSED} and {CALLS} refusals");
        self.expect((REFUSED..=CALLS).contains(&refused), expected, refused)
    }

    /// Checks the refusal by the nth call of the device; returns the number of refused calls.
    fn failed_allocation<'s>(
        &mut self,
        nth: u32,
        [storage, other]: [Storage<'s, MockBackend, Lock>; 2],
    ) -> Outcome<u32> {
        let retries = Retries(Cell::new(0));
        let fault = Fault::AllocationFailure { adapter: 0, nth };
        let fabric = Fabric::new(FabricOptions {
            faults: FaultPlan {
                faults: vec![fault],
            },
            ..FabricOptions::default()
        });
        let node = fabric.node(NodeOptions::new("scarce", 1));
        let ia = match Ia::open(node, storage, ASYNC_EVENTS) {
            Ok(ia) => ia,
            Err(first) => {
                retries.refused();
                match Ia::open(first.backend, other, ASYNC_EVENTS) {
                    Ok(ia) => ia,
                    Err(again) => return self.mismatch("an adapter", again.error),
                }
            }
        };
        let found = create_all(&ia, &retries).map_err(Failure::into_text);
        self.expect(
            found.is_ok(),
            format_args!("nothing left of a refusal by call {nth} of the device (GEN-06)"),
            found,
        )?;
        let closed = ia.close(CloseFlags::Graceful).map(drop);
        self.expect(closed.is_ok(), "closed (IAC-03)", closed.err())?;
        Ok(retries.0.get())
    }
}

/// Creates, changes and frees one of each object, then checks that the storage is empty.
fn create_all(ia: &Adapter<'_>, retries: &Retries) -> CheckResult {
    let bare = ia.ep_create(None, None, None, None, None)?;
    let held = ia.ep_recv_query(bare)?;
    require((held.allocated, held.span) == (0, 0))?;
    ia.ep_free(bare)?;
    let pz = retries.retry(|| ia.pz_create())?;
    let cno = retries.retry(|| ia.cno_create(None))?;
    let evd = |length, flags| retries.retry(|| ia.evd_create(length, Some(cno), flags));
    let requests = evd(6, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
    // Just long enough: a longer shared receive queue requires both to grow.
    let receives = evd(4, EvdFlags::DTO)?;
    let others = evd(2, EvdFlags::DTO)?;
    let connections = evd(2, EvdFlags::CONNECTION | EvdFlags::CR)?;
    let request = LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(pages()[0])),
        pz,
        privileges: MemoryPrivileges::ALL,
    };
    let lmr = retries.retry(|| ia.lmr_create(&request))?.lmr;
    let rmr = retries.retry(|| ia.rmr_create(pz))?;
    let srq = retries.retry(|| ia.srq_create(pz, &shared(2)))?;
    let psp = retries.retry(|| ia.psp_create(7, connections, PspFlags::Consumer))?;
    let own = retries.retry(|| {
        ia.ep_create(
            Some(pz),
            Some(receives),
            Some(requests),
            Some(connections),
            Some(&ATTRIBUTES),
        )
    })?;
    let attributes = EpAttributes {
        srq_soft_hw: 1,
        ..ATTRIBUTES
    };
    // Two endpoints of the shared receive queue, whose completions go to different dispatchers.
    let make_consumer = |evd| {
        retries.retry(|| {
            let receive = Some(evd);
            ia.ep_create_with_srq(Some(pz), receive, Some(requests), None, srq, &attributes)
        })
    };
    let consumers = [make_consumer(receives)?, make_consumer(others)?];
    retries.retry(|| ia.srq_resize(srq, 4))?;
    let before = ia.ep_query(consumers[0], EpFields::all())?;
    let mut wanted = before;
    wanted.attributes.srq_soft_hw = 2;
    wanted.attributes.max_request_dtos = 3;
    let both = EpFields::SRQ_SOFT_HW | EpFields::MAX_REQUEST_DTOS;
    if let Err(error) = ia.ep_modify(consumers[0], both, &wanted) {
        require(error.kind() == ErrorKind::InsufficientResources)?;
        retries.refused();
        let now = ia.ep_query(consumers[0], EpFields::all())?;
        require(now.attributes == before.attributes)?;
        ia.ep_modify(consumers[0], both, &wanted)?;
    }
    let after = ia.ep_query(consumers[0], EpFields::all())?.attributes;
    require((after.srq_soft_hw, after.max_request_dtos) == (2, 3))?;
    retries.retry(|| ia.evd_resize(others, 8))?;
    retries.retry(|| ia.ep_reset(own))?;
    for ep in consumers {
        ia.ep_free(ep)?;
    }
    ia.ep_free(own)?;
    ia.psp_free(psp)?;
    ia.srq_free(srq)?;
    ia.rmr_free(rmr)?;
    ia.lmr_free(lmr)?;
    for evd in [requests, receives, others, connections] {
        ia.evd_free(evd)?;
    }
    ia.cno_free(cno)?;
    ia.pz_free(pz)?;
    fill(ia, retries)
}

/// Checks that all storage is free.
///
/// That is events and dispatchers except the asynchronous dispatcher's, notification objects,
/// records, remote regions and endpoints.
fn fill(ia: &Adapter<'_>, retries: &Retries) -> CheckResult {
    let software = |length| retries.retry(|| ia.evd_create(length, None, EvdFlags::SOFTWARE));
    let pz = retries.retry(|| ia.pz_create())?;
    ia.evd_free(software(EVENTS as i32 - ASYNC_EVENTS)?)?;
    let mut evds = Vec::new();
    let mut cnos = Vec::new();
    for _ in 1..DISPATCHERS {
        evds.push(software(1)?);
    }
    for _ in 0..DISPATCHERS {
        cnos.push(retries.retry(|| ia.cno_create(None))?);
    }
    let srq = retries.retry(|| ia.srq_create(pz, &shared(POSTS as i32)))?;
    let rmr = retries.retry(|| ia.rmr_create(pz))?;
    let mut endpoints = Vec::new();
    for _ in 0..ENDPOINTS {
        endpoints.push(retries.retry(|| ia.ep_create(Some(pz), None, None, None, None))?);
    }
    for ep in endpoints {
        ia.ep_free(ep)?;
    }
    ia.rmr_free(rmr)?;
    ia.srq_free(srq)?;
    for evd in evds {
        ia.evd_free(evd)?;
    }
    for cno in cnos {
        ia.cno_free(cno)?;
    }
    Ok(ia.pz_free(pz)?)
}
