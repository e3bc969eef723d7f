//! Measures each call once.

use core::task::Waker;

use backend_mmio::defs::mlx5::CompletionKind;
use cortex_m::register::msp;
use dat_core::backend::Backend as DatBackend;
use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{
    BatchOperation, BatchReceive, BatchRequest, EndpointSlot, Extended, SrqSlot,
};
use dat_core::error::Cause;
use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
use dat_core::flags::{
    CloseFlags, CnoFields, CompletionFlags, CrFields, EpFields, EvdFields, EvdFlags, IaFields,
    LmrFields, MemoryPrivileges, ProviderFields, PspFields, PspFlags, PzFields, QualityOfService,
    RmrFields, RspFields, SrqFields, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrSlot, LmrTriplet, PzSlot, RmrSlot, RmrTriplet};
use dat_core::time::Instant;
use dat_core::{Error, Ia, RecordSlot, Result};

use crate::setup::{
    self, Adapter, ENDPOINT, Lock, NOTIFICATIONS, PUBLIC, RECORDS, REQUESTS, RESERVED,
    SHARED_QUEUE, Storage, request,
};
use crate::still::{
    self, Backend, COMPLETIONS, DISPATCHERS, Lent, Occupancy, PAIRS, REGIONS, SHARED, WINDOWS,
    ZONES,
};
use crate::{EVENTS, clock, masked, report, stack};

type Evd = EvdSlot<<Backend as DatBackend>::CompletionQueue, Lock>;
type Endpoint =
    EndpointSlot<<Backend as DatBackend>::SendQueue, <Backend as DatBackend>::ReceiveQueue, Lock>;
type Srq = SrqSlot<<Backend as DatBackend>::SharedReceiveQueue, Lock>;

const NOTHING: CompletionFlags = CompletionFlags::empty();
const NOW: Instant = Instant::ZERO;

/// Makes a call, and prints what it costs.
///
/// Those are its stack use, its number of instructions, the highest number of them with interrupts
/// masked at a time, and its commands to the device with interrupts masked.
fn measured<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let top = stack::paint(msp::read());
    masked::start();
    let before = clock::now();
    let result = run(call);
    let after = clock::now();
    print(name, top, clock::between(before, after));
    result
}

/// Prints the costs of a call.
#[inline(never)]
fn print(name: &str, top: u32, instructions: u32) {
    let (longest, commands) = masked::end();
    report::line("stack", name, stack::used(top));
    report::line("instructions", name, instructions);
    report::line("masked", name, longest);
    report::line("commands", name, commands);
}

/// Gives the call its own frame: its stack use includes compiler temporaries.
#[inline(never)]
fn run<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Writes a completion of the newest queue pair.
fn complete(kind: CompletionKind, index: u16, length: u32) {
    still::complete(still::newest(), kind, index, length);
}

/// Expects a refusal; returns an error if the call succeeded.
fn refused<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(Error::internal(Cause::EndpointState)),
        Err(_) => Ok(()),
    }
}

/// Prints the sizes of the storage's parts.
fn sizes() {
    let size = |kind, name, bytes: usize| report::line(kind, name, bytes as u32);
    size("object", "Ia", size_of::<Ia<'_, Backend, Lock>>());
    size("storage", "PzSlot", ZONES * size_of::<PzSlot>());
    size("storage", "LmrSlot", REGIONS * size_of::<LmrSlot>());
    size("storage", "RmrSlot", WINDOWS * size_of::<RmrSlot<Lock>>());
    size("storage", "EvdSlot", DISPATCHERS * size_of::<Evd>());
    size(
        "storage",
        "CnoSlot",
        NOTIFICATIONS * size_of::<CnoSlot<Lock>>(),
    );
    size("storage", "EndpointSlot", PAIRS * size_of::<Endpoint>());
    size("storage", "SrqSlot", SHARED * size_of::<Srq>());
    let public = PUBLIC * size_of::<PspSlot>();
    let reserved = RESERVED * size_of::<RspSlot>();
    size("storage", "PspSlot,RspSlot", public + reserved);
    let requests = REQUESTS * size_of::<CrSlot>();
    size("storage", "CrSlot", requests);
    size("storage", "EventSlot", EVENTS * size_of::<EventSlot>());
    size("storage", "RecordSlot", RECORDS * size_of::<RecordSlot>());
    size(
        "storage",
        "driver",
        size_of::<Lent>() + size_of::<Occupancy>(),
    );
}

/// Objects that a connection needs.
struct Objects {
    ep: EpId,
    /// Unconnected.
    sharing: EpId,
    connections: EvdId,
    transfers: EvdId,
    segment: LmrTriplet,
    remote: RmrTriplet,
}

/// Measures the calls for which the first connection had no room, and its failure.
fn second_connection(ia: &Adapter<'_>, objects: &Objects) -> Result<()> {
    let Objects {
        ep,
        sharing,
        connections,
        transfers,
        segment,
        remote,
    } = *objects;
    let flags = PspFlags::Consumer;
    let (psp, qualifier) = measured("psp_create_any", || ia.psp_create_any(connections, flags))?;
    ia.progress(NOW);
    let cr = request(ia, connections)?;
    measured("cr_handoff", || ia.cr_handoff(cr, qualifier))?;
    ia.cr_accept(request(ia, connections)?, Some(ep), b"")?;
    ia.progress(NOW);
    ia.evd_dequeue(connections)?;
    // Segments of one kind each.
    let one = &[segment];
    measured("post_send_one", || ia.post_send(ep, one, 1, NOTHING))?;
    measured("post_rdma_write_one", || {
        ia.post_rdma_write(ep, one, 2, &remote, NOTHING)
    })?;
    let small = RmrTriplet {
        length: 8,
        ..remote
    };
    measured("post_rdma_read_one", || {
        ia.post_rdma_read(ep, one, 3, &small, NOTHING)
    })?;
    // This layout has none.
    let operation = Extended::FetchAndAdd { add: 1 };
    refused(measured("post_extended_refused", || {
        ia.post_extended(ep, operation, one, 4, &small, NOTHING)
    }))?;
    measured("post_recv_one", || ia.post_recv(ep, one, 5, NOTHING))?;
    let receive = BatchReceive {
        segments: one,
        cookie: 6,
        flags: NOTHING,
    };
    let receives = [receive; 2];
    measured("post_recv_batch", || ia.post_recv_batch(ep, &receives))
        .map_err(|refused| refused.error)?;
    for index in 0..3 {
        complete(CompletionKind::REQUEST, index, 0);
        ia.evd_dequeue(transfers)?;
    }
    // Requests without an event, before one with an event.
    let request = BatchRequest {
        operation: BatchOperation::Send,
        segments: one,
        cookie: 7,
        flags: CompletionFlags::SUPPRESS,
    };
    let requests = [request; 3];
    measured("post_batch", || ia.post_batch(ep, &requests)).map_err(|refused| refused.error)?;
    for index in 3..6 {
        complete(CompletionKind::REQUEST, index, 0);
    }
    complete(CompletionKind::RECEIVE, 0, 8);
    measured("evd_dequeue_after_suppressed", || {
        ia.evd_dequeue(transfers).map(drop)
    })?;
    let mut wait = measured("evd_wait", || ia.evd_wait(transfers, 1))?;
    let waits = measured("evd_wait_poll", || wait.poll(Waker::noop()).is_pending());
    complete(CompletionKind::RECEIVE, 1, 8);
    let ended = measured("evd_wait_poll_ready", || {
        wait.poll(Waker::noop()).is_ready()
    });
    if !waits || !ended {
        return Err(Error::internal(Cause::EndpointState));
    }
    drop(wait);
    complete(CompletionKind::RECEIVE, 2, 8);
    let wait = ia.evd_wait(transfers, 2)?;
    if measured("evd_wait_expire", || wait.expire()).is_ok() {
        return Err(Error::internal(Cause::EndpointState));
    }
    // The wait has polled it.
    measured("evd_dequeue_queued", || ia.evd_dequeue(transfers).map(drop))?;
    measured("next_deadline", || ia.next_deadline());
    measured("interrupt_notify", || ia.interrupt_handle().notify());
    // The provider has no high watermarks.
    refused(measured("ep_set_watermark", || {
        ia.ep_set_watermark(ep, 1, 1)
    }))?;
    let quality = QualityOfService::BEST_EFFORT;
    measured("ep_dup_connect", || {
        ia.ep_dup_connect(sharing, ep, TIMEOUT_INFINITE, b"", quality, NOW)
    })?;
    // A request fails; `progress` then breaks the connection.
    ia.post_send(ep, one, 8, NOTHING)?;
    complete(CompletionKind::FAILED_REQUEST, 6, 0);
    measured("evd_dequeue_failed", || ia.evd_dequeue(transfers).map(drop))?;
    measured("progress_broken", || ia.progress(NOW));
    ia.evd_dequeue(connections)?;
    ia.ep_disconnect(sharing, CloseFlags::Abrupt)?;
    for ep in [ep, sharing] {
        while ia.progress(NOW) != 0 {}
        while ia.evd_dequeue(connections).is_ok() {}
        ia.ep_reset(ep)?;
    }
    ia.psp_free(psp)
}

/// Measures all calls.
pub(crate) fn all(
    storage: &'static mut Storage,
    lent: &'static mut Lent,
    occupancy: &'static mut Occupancy,
) -> Result<()> {
    sizes();
    clock::start();
    measured("nothing", || ());
    let backend = still::backend(lent, occupancy);
    let ia = measured("ia_open", || Ia::open(backend, storage.lend(), 4));
    let ia = ia.map_err(|refused| refused.error)?;
    let none = EvdFlags::empty();
    refused(measured("evd_create_refused", || {
        ia.evd_create(4, None, none)
    }))?;
    let pz = measured("pz_create", || ia.pz_create())?;
    let cno = measured("cno_create", || ia.cno_create(None))?;
    let connections = EvdFlags::CONNECTION | EvdFlags::CR;
    let connections = measured("evd_create", || ia.evd_create(8, None, connections))?;
    let software = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE)?;
    let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let transfers = ia.evd_create(COMPLETIONS as i32 - 1, None, transfers)?;
    let region = setup::region(pz);
    let lmr = measured("lmr_create", || ia.lmr_create(&region))?;
    let rmr = measured("rmr_create", || ia.rmr_create(pz))?;
    let srq = measured("srq_create", || ia.srq_create(pz, &SHARED_QUEUE))?;
    let (zone, evd, connect) = (Some(pz), Some(transfers), Some(connections));
    let sharing = measured("ep_create_with_srq", || {
        ia.ep_create_with_srq(zone, evd, evd, connect, srq, &ENDPOINT)
    })?;
    let ep = measured("ep_create", || {
        ia.ep_create(zone, evd, evd, connect, Some(&ENDPOINT))
    })?;
    let segment = setup::segment(&lmr);
    let remote = RmrTriplet {
        context: lmr.rmr_context,
        address: segment.address,
        length: 64,
    };
    let segments = [segment, segment];

    // Passive connection.
    let psp = measured("psp_create", || {
        ia.psp_create(7, connections, PspFlags::Consumer)
    })?;
    measured("progress_request", || ia.progress(NOW));
    let cr = measured("evd_dequeue_request", || request(&ia, connections))?;
    measured("cr_query", || ia.cr_query(cr, CrFields::all()).map(drop))?;
    measured("cr_accept", || ia.cr_accept(cr, Some(ep), b"welcome"))?;
    measured("progress_established", || ia.progress(NOW));
    measured("evd_dequeue_connection", || {
        ia.evd_dequeue(connections).map(drop)
    })?;

    // Transfers.
    measured("post_recv", || ia.post_recv(ep, &segments, 1, NOTHING))?;
    measured("post_send", || ia.post_send(ep, &segments, 2, NOTHING))?;
    let write = |segments: &[LmrTriplet]| ia.post_rdma_write(ep, segments, 3, &remote, NOTHING);
    measured("post_rdma_write", || write(&segments))?;
    let long = LmrTriplet {
        length: 65,
        ..segment
    };
    refused(measured("post_rdma_write_refused", || write(&[long])))?;
    let small = RmrTriplet {
        length: 16,
        ..remote
    };
    measured("post_rdma_read", || {
        ia.post_rdma_read(ep, &segments, 4, &small, NOTHING)
    })?;
    measured("rmr_bind", || {
        let opens = MemoryPrivileges::REMOTE_WRITE;
        ia.rmr_bind(rmr, &segment, opens, ep, 5, NOTHING).map(drop)
    })?;
    refused(measured("post_send_full", || {
        ia.post_send(ep, &[], 6, NOTHING)
    }))?;
    measured("srq_post_recv", || ia.srq_post_recv(srq, &[segment], 7))?;
    complete(CompletionKind::RECEIVE, 0, 8);
    measured("evd_dequeue_receive", || {
        ia.evd_dequeue(transfers).map(drop)
    })?;
    complete(CompletionKind::REQUEST, 0, 0);
    measured("evd_dequeue_sent", || ia.evd_dequeue(transfers).map(drop))?;
    refused(measured("evd_dequeue_empty", || ia.evd_dequeue(transfers)))?;
    for index in 1..3 {
        complete(CompletionKind::REQUEST, index, 0);
        ia.evd_dequeue(transfers)?;
    }
    complete(CompletionKind::REQUEST, 3, 0);
    measured("evd_dequeue_bound", || ia.evd_dequeue(transfers).map(drop))?;
    measured("lmr_sync", || {
        ia.lmr_sync_rdma_read(&segments)?;
        ia.lmr_sync_rdma_write(&segments)
    })?;
    measured("evd_post_se", || ia.evd_post_se(software, 8))?;
    measured("evd_dequeue_software", || {
        ia.evd_dequeue(software).map(drop)
    })?;

    // Queries.
    let (ia_fields, provider_fields) = (IaFields::all(), ProviderFields::all());
    measured("ia_query", || {
        ia.ia_query(ia_fields, provider_fields).map(drop)
    })?;
    measured("pz_query", || ia.pz_query(pz, PzFields::all()).map(drop))?;
    measured("cno_query", || {
        ia.cno_query(cno, CnoFields::all()).map(drop)
    })?;
    measured("evd_query", || {
        ia.evd_query(transfers, EvdFields::all()).map(drop)
    })?;
    measured("lmr_query", || {
        ia.lmr_query(lmr.lmr, LmrFields::all()).map(drop)
    })?;
    measured("rmr_query", || {
        ia.rmr_query(rmr, RmrFields::all()).map(drop)
    })?;
    measured("psp_query", || {
        ia.psp_query(psp, PspFields::all()).map(drop)
    })?;
    measured("ep_query", || ia.ep_query(ep, EpFields::all()).map(drop))?;
    measured("ep_get_status", || ia.ep_get_status(ep).map(drop))?;
    let counts = SrqFields::all() - SrqFields::AVAILABLE - SrqFields::OUTSTANDING;
    measured("srq_query", || ia.srq_query(srq, counts).map(drop))?;

    // Changes.
    let mut parameters = ia.ep_query(sharing, EpFields::all())?;
    let nothing = EpFields::empty();
    measured("ep_modify", || ia.ep_modify(sharing, nothing, &parameters))?;
    parameters.attributes.max_request_dtos = 2;
    let length = EpFields::MAX_REQUEST_DTOS;
    measured("ep_modify_queue", || {
        ia.ep_modify(sharing, length, &parameters)
    })?;
    refused(measured("evd_resize", || ia.evd_resize(transfers, 63)))?;
    measured("evd_modify_cno", || ia.evd_modify_cno(software, None))?;
    measured("evd_disable", || ia.evd_disable(software))?;
    measured("evd_enable", || ia.evd_enable(software))?;

    // Disconnect, and an active connection.
    let close = CloseFlags::Abrupt;
    measured("ep_disconnect", || ia.ep_disconnect(ep, close))?;
    measured("progress_disconnected", || ia.progress(NOW));
    measured("evd_dequeue_connection", || {
        ia.evd_dequeue(connections).map(drop)
    })?;
    measured("ep_reset", || ia.ep_reset(ep))?;
    let rsp = measured("rsp_create", || ia.rsp_create(9, Some(ep), connections))?;
    measured("rsp_query", || {
        ia.rsp_query(rsp, RspFields::all()).map(drop)
    })?;
    measured("rsp_free", || ia.rsp_free(rsp))?;
    let objects = Objects {
        ep,
        sharing,
        connections,
        transfers,
        segment,
        remote,
    };
    second_connection(&ia, &objects)?;
    let param = setup::peer(b"hello");
    measured("ep_connect", || ia.ep_connect(sharing, &param, NOW))?;

    measured("psp_free", || ia.psp_free(psp))?;

    // Request at a service point whose endpoints the provider creates.
    let psp = ia.psp_create(8, connections, PspFlags::Provider)?;
    measured("progress_request_provider", || ia.progress(NOW));
    let cr = request(&ia, connections)?;
    measured("cr_reject", || ia.cr_reject(cr, b"no"))?;
    ia.psp_free(psp)?;

    // Shared receive queues.
    measured("srq_set_lw", || ia.srq_set_lw(srq, 1))?;
    measured("srq_resize", || ia.srq_resize(srq, 3))?;

    // Destruction.
    measured("ep_free", || ia.ep_free(ep))?;
    ia.ep_free(sharing)?;
    measured("srq_free", || ia.srq_free(srq))?;
    measured("rmr_free", || ia.rmr_free(rmr))?;
    measured("lmr_free", || ia.lmr_free(lmr.lmr))?;
    measured("evd_free", || ia.evd_free(software))?;
    measured("cno_free", || ia.cno_free(cno))?;
    measured("ia_close", || ia.shut(close).map(drop))
}
