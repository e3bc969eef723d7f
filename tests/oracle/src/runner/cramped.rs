//! Adapter with little storage: its refusals, and that they have no effect.

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_mock::{Fabric, FabricOptions, Fault, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::endpoint::{BatchOperation, BatchReceive, BatchRequest};
use dat_core::error::{Cause, ErrorKind};
use dat_core::flags::{
    CloseFlags, CompletionFlags, EpFields, EvdFields, EvdFlags, MemoryPrivileges,
};
use dat_core::id::{CnoId, EpId, EvdId, Handle, PzId, RmrId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::{NoLock, RawLock, SlotMemory, SpinLock, SplitLock};
use dat_core::{Error, Ia, RecordSlot, Result, Storage};

use super::{Outcome, Runner};

/// Lock of these adapters; all calls are made on one thread.
pub(super) type Lock = SplitLock<NoLock, NoLock>;

dat_core::define_storage! {
    /// Storage for two endpoints and five dispatchers with twelve events; records are separate.
    struct Cramped for MockBackend, Lock {
        protection_zones: 2,
        local_regions: 2,
        remote_regions: 2,
        event_dispatchers: 5,
        notification_objects: 5,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 12,
        records: 0,
    }
}

/// Storage for records.
type Posts = SlotMemory<RecordSlot, 12>;
pub(super) type Adapter<'s> = Ia<'s, MockBackend, Lock>;

dat_core::define_storage! {
    /// Uninitialised storage of the same size, lent once.
    uninit struct RawStorage for MockBackend, SpinLock {
        protection_zones: 2,
        local_regions: 2,
        remote_regions: 2,
        event_dispatchers: 5,
        notification_objects: 5,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 12,
        records: 12,
    }
}

/// Address of the leaked storage, so that leak checkers find it.
static RAW_STORAGE: AtomicUsize = AtomicUsize::new(0);

/// Returns the uninitialised storage to the first caller.
fn raw_storage() -> Option<&'static mut RawStorage> {
    const TAKEN: usize = 1;
    RAW_STORAGE
        .compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed)
        .ok()?;
    let raw: &'static mut RawStorage = Box::leak(Box::default());
    RAW_STORAGE.store((&raw const *raw).expose_provenance(), Ordering::Relaxed);
    Some(raw)
}

/// Depth of each work queue.
const POSTS: i32 = 4;
const ATTRIBUTES: EpAttributes = EpAttributes {
    max_message_size: 64,
    max_rdma_size: 96,
    max_recv_dtos: POSTS,
    max_request_dtos: POSTS,
    ..EpAttributes::DEFAULT
};

/// Failure of a check.
pub(super) enum Failure {
    /// A call was refused that must succeed.
    Refused(Error),
    /// The condition at this location is false.
    Untrue(&'static Location<'static>),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

pub(super) type CheckResult = core::result::Result<(), Failure>;

#[track_caller]
pub(super) fn require(holds: bool) -> CheckResult {
    if holds {
        Ok(())
    } else {
        Err(Failure::Untrue(Location::caller()))
    }
}

/// Returns the reason of a refusal.
pub(super) fn why<T>(outcome: Result<T>) -> Option<(ErrorKind, Cause)> {
    outcome.err().map(|error| (error.kind(), error.cause()))
}

/// Requires that the call was refused with an error of this kind.
#[track_caller]
pub(super) fn require_refused<T>(kind: ErrorKind, outcome: Result<T>) -> CheckResult {
    require(why(outcome).is_some_and(|(refused, _)| refused == kind))
}

pub(super) const fn exhausted(cause: Cause) -> Option<(ErrorKind, Cause)> {
    Some((ErrorKind::InsufficientResources, cause))
}

/// Returns true if the text contains the error's text.
fn names_error(text: &str, error: Error) -> bool {
    text.contains(&error.to_string()) || text.contains(&format!("{error:?}"))
}

pub(super) const fn shared(max_recv_dtos: i32) -> SrqAttributes {
    SrqAttributes {
        max_recv_dtos,
        max_recv_iov: 1,
        low_watermark: 0,
    }
}

impl Runner {
    /// Checks refusals for lack of storage (GEN-06, IAO-02, EVC-04, EVZ-03, EPC-08, EPM-05,
    /// IAC-03).
    pub(super) fn cramped(&mut self) -> Outcome {
        let fabric = Fabric::new(FabricOptions::default());
        let options = NodeOptions {
            receive_information: false,
            ..NodeOptions::new("cramped", 1)
        };
        let mut storage = Box::new(Cramped::new());
        let mut posts = Box::new(Posts::default());
        let Err(refused) = Ia::open(fabric.node(options), storage.lend(), 13) else {
            return self.mismatch("no room for the first dispatcher (IAO-02)", "an adapter");
        };
        let texts = [refused.to_string(), format!("{refused:?}")];
        self.expect(
            refused.error.kind() == ErrorKind::InsufficientResources
                && texts.iter().all(|text| names_error(text, refused.error)),
            "a refusal for want of resources that says so (IAO-02)",
            texts,
        )?;
        let lent = Storage {
            records: posts.fill(|| RecordSlot::EMPTY).as_mut_slice().into(),
            ..storage.lend()
        };
        let text = format!("{:?}", lent.records);
        self.expect(text.contains("12"), "a table of twelve posts", text)?;
        // The refusal returned the backend.
        let ia = match Ia::open(refused.backend, lent, 4) {
            Ok(ia) => ia,
            Err(refused) => return self.mismatch("an adapter", refused.error),
        };
        let found = fill(&ia)
            .and_then(|()| use_bad_handles(&ia))
            .and_then(|()| refuse_allocations(&ia, &fabric))
            .map_err(Failure::into_text);
        self.expect(
            found.is_ok(),
            "an adapter that refuses what it has no room for, and does the rest (GEN-06)",
            found,
        )?;
        let ia = match ia.close(CloseFlags::Graceful) {
            Ok(_) => return self.mismatch("an adapter in use (IAC-03)", "closed"),
            Err(refused) => {
                let texts = [refused.to_string(), format!("{refused:?}")];
                self.expect(
                    refused.error.kind() == ErrorKind::InvalidState
                        && texts.iter().all(|text| names_error(text, refused.error)),
                    "a refusal for its state that says so (IAC-03)",
                    texts,
                )?;
                refused.ia
            }
        };
        let closed = ia.close(CloseFlags::Abrupt).map(drop);
        self.expect(closed.is_ok(), "closed", closed.err())?;
        self.storage_in_place()?;
        self.failed_allocations()?;
        self.growing()?;
        self.interleavings()
    }

    /// Checks an adapter whose storage is initialised in place when it is lent.
    ///
    /// After a graceful close nothing is left.
    fn storage_in_place(&mut self) -> Outcome {
        let Some(raw) = raw_storage() else {
            return Ok(());
        };
        let fabric = Fabric::new(FabricOptions::default());
        let node = fabric.node(NodeOptions::new("bare", 1));
        let ia = match Ia::open(node, raw.lend(), 4) {
            Ok(ia) => ia,
            Err(refused) => return self.mismatch("an adapter", refused.error),
        };
        let found = use_bad_handles(&ia).map_err(Failure::into_text);
        self.expect(found.is_ok(), "an adapter like others", found)?;
        let closed = ia.close(CloseFlags::Graceful).map(drop);
        self.expect(closed.is_ok(), "closed (IAC-03)", closed.err())
    }
}

impl Failure {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Untrue(location) => format!("not so at {location}"),
        }
    }
}

/// Requests more than the storage holds, and then as much as is left.
fn fill(ia: &Adapter<'_>) -> CheckResult {
    let pz = ia.pz_create()?;
    let cno = ia.cno_create(None)?;
    let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let no_events = exhausted(Cause::EventSlotsExhausted);
    // Only dispatchers of other events take slots for them.
    ia.evd_free(ia.evd_create(9, Some(cno), transfers)?)?;
    let transfers = transfers | EvdFlags::SOFTWARE;
    require(why(ia.evd_create(9, Some(cno), transfers)) == no_events)?;
    let requests = ia.evd_create(4, Some(cno), transfers)?;
    let receives = ia.evd_create(2, None, transfers)?;
    require(why(ia.evd_resize(receives, 9)) == no_events)?;
    ia.evd_resize(receives, 1)?;
    let make = |max_request_dtos, max_recv_dtos| {
        let attributes = EpAttributes {
            max_request_dtos,
            max_recv_dtos,
            ..ATTRIBUTES
        };
        let (receives, requests) = (Some(receives), Some(requests));
        ia.ep_create(Some(pz), receives, requests, None, Some(&attributes))
    };
    let no_records = exhausted(Cause::RecordsExhausted);
    let ep = make(POSTS, POSTS)?;
    // There are enough records for its requests, but not for its receives.
    require(why(make(POSTS, POSTS)) == no_records)?;
    // The provider does not report the receives of an endpoint.
    require_refused(ErrorKind::ModelNotSupported, ia.ep_recv_query(ep))?;
    let bare = ia.ep_create(None, None, None, None, None)?;
    require_refused(ErrorKind::ModelNotSupported, ia.ep_recv_query(bare))?;
    ia.ep_free(bare)?;
    let before = ia.ep_query(ep, EpFields::all())?;
    let both = EpFields::MAX_REQUEST_DTOS | EpFields::MAX_RECV_DTOS;
    let modify = |requests, receives| {
        let mut wanted = before;
        wanted.attributes.max_request_dtos = requests;
        wanted.attributes.max_recv_dtos = receives;
        ia.ep_modify(ep, both, &wanted)
    };
    for (more_requests, more_receives) in [(10, POSTS), (3, 10), (POSTS, 10)] {
        require(why(modify(more_requests, more_receives)) == no_records)?;
        require(ia.ep_query(ep, EpFields::all())?.attributes == before.attributes)?;
    }
    require(why(ia.srq_create(pz, &shared(5))) == no_records)?;
    let srq = ia.srq_create(pz, &shared(2))?;
    require(why(ia.srq_resize(srq, 5)) == no_records)?;
    ia.srq_resize(srq, 4)?;
    ia.srq_free(srq)?;
    let second = make(2, 2)?;
    ia.ep_free(second)?;
    // A posted receive keeps its record while its queue shrinks; the other records are free at
    // once.
    ia.post_recv(ep, &[], 1, CompletionFlags::empty())?;
    let mut otherwise = before;
    otherwise.attributes.recv_completion_flags = CompletionFlags::SUPPRESS;
    let flags = ia.ep_modify(ep, EpFields::RECV_COMPLETION_FLAGS, &otherwise);
    require_refused(ErrorKind::InvalidState, flags)?;
    modify(POSTS, 3)?;
    let third = make(1, 1)?;
    ia.ep_free(third)?;
    ia.ep_free(ep)?;
    ia.evd_free(receives)?;
    ia.evd_free(requests)?;
    ia.cno_free(cno)?;
    Ok(ia.pz_free(pz)?)
}

/// Returns a handle with an index beyond any storage used here.
fn beyond(handle: Handle) -> Handle {
    Handle::from_raw(handle.to_raw() | 0xFFFF)
}

/// Uses handles of each kind whose index is beyond the storage.
fn use_bad_handles<L: RawLock>(ia: &Ia<'_, MockBackend, L>) -> CheckResult {
    #[track_caller]
    fn bad<T>(outcome: Result<T>) -> CheckResult {
        require_refused(ErrorKind::InvalidHandle, outcome)
    }
    let flags = CompletionFlags::empty();
    let (pz, cno) = (ia.pz_create()?, ia.cno_create(None)?);
    let evd = ia.evd_create(2, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), None, Some(&ATTRIBUTES))?;
    let rmr = ia.rmr_create(pz)?;
    let srq = ia.srq_create(pz, &shared(2))?;
    let handles = [
        pz.handle(),
        cno.handle(),
        evd.handle(),
        ep.handle(),
        rmr.handle(),
        srq.handle(),
    ];
    for handle in handles {
        bad(ia.get_handle_type(beyond(handle)))?;
        bad(ia.set_consumer_context(beyond(handle), 1))?;
    }
    let no_evd = EvdId::from_handle(beyond(evd.handle()));
    require_refused(ErrorKind::QueueEmpty, ia.evd_dequeue(evd))?;
    bad(ia.evd_dequeue(no_evd))?;
    bad(ia.evd_wait(no_evd, 1).map(drop))?;
    require(ia.evd_wait_now(no_evd, 1).is_none())?;
    bad(ia.evd_query(no_evd, EvdFields::all()))?;
    bad(ia.evd_free(no_evd))?;
    let nothing = LmrTriplet {
        context: u32::MAX,
        address: 0,
        length: 8,
    };
    let remote = RmrTriplet {
        context: 1,
        address: 0,
        length: 8,
    };
    let no_ep = EpId::from_handle(beyond(ep.handle()));
    let no_srq = SrqId::from_handle(beyond(srq.handle()));
    for segments in [&[][..], &[nothing], &[nothing; 2]] {
        bad(ia.post_send(no_ep, segments, 1, flags))?;
        bad(ia.post_rdma_write(no_ep, segments, 1, &remote, flags))?;
        bad(ia.post_rdma_read(no_ep, segments, 1, &remote, flags))?;
        bad(ia.post_recv(no_ep, segments, 1, flags))?;
        bad(ia.srq_post_recv(no_srq, segments, 1))?;
    }
    let request = BatchRequest {
        operation: BatchOperation::Send,
        segments: &[],
        cookie: 1,
        flags,
    };
    let receive = BatchReceive {
        segments: &[],
        cookie: 1,
        flags,
    };
    bad(ia
        .post_batch(no_ep, &[request])
        .map_err(|refused| refused.error))?;
    bad(ia
        .post_recv_batch(no_ep, &[receive])
        .map_err(|refused| refused.error))?;
    let rights = MemoryPrivileges::REMOTE_READ;
    let no_rmr = RmrId::from_handle(beyond(rmr.handle()));
    for (rmr, ep) in [(rmr, no_ep), (no_rmr, ep), (no_rmr, no_ep)] {
        bad(ia.rmr_bind(rmr, &nothing, rights, ep, 1, flags))?;
    }
    bad(ia.ep_get_status(no_ep))?;
    bad(ia.ep_reset(no_ep))?;
    bad(ia.ep_free(no_ep))?;
    bad(ia.srq_free(no_srq))?;
    bad(ia.rmr_free(no_rmr))?;
    bad(ia.cno_free(CnoId::from_handle(beyond(cno.handle()))))?;
    bad(ia.pz_free(PzId::from_handle(beyond(pz.handle()))))?;
    // A word that is no handle of any adapter is printed as malformed.
    require(format!("{:?}", Handle::from_raw(u64::MAX)).starts_with("malformed"))?;
    ia.srq_free(srq)?;
    ia.rmr_free(rmr)?;
    ia.ep_free(ep)?;
    ia.evd_free(evd)?;
    ia.cno_free(cno)?;
    Ok(ia.pz_free(pz)?)
}

/// Lets the device refuse all allocations, and checks that refused calls have no effect.
fn refuse_allocations(ia: &Adapter<'_>, fabric: &Fabric) -> CheckResult {
    let evd = ia.evd_create(2, None, EvdFlags::DTO)?;
    for nth in 0..500 {
        fabric.inject(Fault::AllocationFailure { adapter: 0, nth });
    }
    let before = ia.evd_query(evd, EvdFields::all())?;
    require_refused(ErrorKind::InsufficientResources, ia.evd_resize(evd, 4))?;
    require(ia.evd_query(evd, EvdFields::all())?.qlen == before.qlen)
}
