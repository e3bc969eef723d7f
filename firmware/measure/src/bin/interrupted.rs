//! An interrupt after each release of a lock, in each call.
//!
//! The critical section of the image pends an interrupt before it unmasks interrupts. Its handler
//! posts a send and a receive to two endpoints, dequeues and notifies. The image ends with success if
//! each call does what it would do without, each refusal in the handler is a documented one, and no
//! command to the device was given with interrupts masked.
#![no_std]
#![no_main]

#[path = "../report.rs"]
mod report;
#[path = "../still.rs"]
mod still;

/// The critical section, and the commands to the device in it.
mod masked {
    #![expect(
        unsafe_code,
        reason = "implements the critical section of a single processor; only in this module"
    )]

    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use cortex_m::interrupt;
    use cortex_m::peripheral::SCB;
    use cortex_m::register::primask;
    use critical_section::RawRestoreState;

    /// Set if the end of a section pends an interrupt.
    pub(crate) static PENDS: AtomicBool = AtomicBool::new(false);
    /// Commands to the device in sections.
    pub(crate) static COMMANDS: AtomicU32 = AtomicU32::new(0);

    struct Section;

    critical_section::set_impl!(Section);

    // SAFETY: no other context of the single processor runs while interrupts are masked, and no
    // context unmasks them before the outermost section ends.
    unsafe impl critical_section::Impl for Section {
        unsafe fn acquire() -> RawRestoreState {
            let is_outermost = primask::read().is_active();
            interrupt::disable();
            is_outermost
        }

        unsafe fn release(is_outermost: RawRestoreState) {
            if !is_outermost {
                return;
            }
            if PENDS.load(Ordering::Relaxed) {
                SCB::set_pendsv();
            }
            // SAFETY: interrupts were enabled before the outermost section.
            unsafe { interrupt::enable() }
        }
    }

    pub(crate) fn on_command() {
        if primask::read().is_inactive() {
            COMMANDS.store(COMMANDS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use backend_mmio::defs::mlx5::CompletionKind;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use critical_section::Mutex;
use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::endpoint::ConnectParam;
use dat_core::error::{Cause, ErrorKind};
use dat_core::event::Event;
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, EpFields, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::{ContextLock, CriticalSectionLock, SplitLock};
use dat_core::time::Instant;
use dat_core::{Abi, Error, Ia, Result};

use still::{Backend, DISPATCHERS, PAIRS, POSTS, REGIONS, SEGMENTS, SHARED, WINDOWS, ZONES};

/// Data calls mask interrupts, control calls do not.
type Lock = SplitLock<CriticalSectionLock, ContextLock>;
type Adapter = Ia<'static, Backend, Lock>;

dat_core::define_storage! {
    /// Storage of the core.
    struct Storage for Backend, Lock {
        endpoints: PAIRS,
        local_regions: REGIONS,
        remote_regions: WINDOWS,
        protection_zones: ZONES,
        event_dispatchers: DISPATCHERS,
        notification_objects: 1,
        shared_receive_queues: SHARED,
        public_service_points: 2,
        reserved_service_points: 1,
        connection_requests: 2,
        events: 16,
        records: PAIRS * 2 * POSTS + SHARED * POSTS,
    }
}

/// What the handler uses.
#[derive(Clone, Copy)]
struct Work {
    ia: &'static Adapter,
    endpoints: [EpId; 2],
    transfers: EvdId,
    segment: LmrTriplet,
}

static BUFFER: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
static WORK: Mutex<Cell<Option<Work>>> = Mutex::new(Cell::new(None));
/// Runs of the handler.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// Posts that it made.
static POSTED: AtomicU32 = AtomicU32::new(0);
/// Refusals that no documentation names.
static ODD: AtomicU32 = AtomicU32::new(0);

fn count(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn note(posted: Result<()>) {
    match posted.map_err(|error| (error.kind(), error.cause())) {
        Ok(()) => count(&POSTED),
        Err((ErrorKind::InsufficientResources, Cause::Busy | Cause::QueueFull))
        | Err((ErrorKind::InvalidState, _))
        | Err((ErrorKind::InvalidHandle, Cause::Stale))
        | Err((ErrorKind::PrivilegesViolation, Cause::StaleContext)) => {}
        Err(_) => count(&ODD),
    }
}

#[cortex_m_rt::exception]
fn PendSV() {
    masked::PENDS.store(false, Ordering::Relaxed);
    let work = critical_section::with(|section| WORK.borrow(section).get());
    if let Some(work) = work {
        count(&RUNS);
        for ep in work.endpoints {
            let flags = CompletionFlags::empty();
            note(work.ia.post_send(ep, &[work.segment], 1, flags));
            note(work.ia.post_recv(ep, &[work.segment], 1, flags));
        }
        // The device completes nothing on its own; a dequeue of nothing still polls.
        let _empty = work.ia.evd_dequeue(work.transfers);
        work.ia.interrupt_handle().notify();
    }
    masked::PENDS.store(true, Ordering::Relaxed);
}

/// Makes calls of all kinds while the handler interrupts each.
fn calls(ia: &'static Adapter) -> Result<()> {
    const NOW: Instant = Instant::ZERO;
    let pz = ia.pz_create()?;
    let connections = EvdFlags::CONNECTION | EvdFlags::CR;
    let connections = ia.evd_create(8, None, connections)?;
    let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let transfers = ia.evd_create(still::COMPLETIONS as i32 - 1, None, transfers)?;
    let lmr = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&BUFFER)),
        pz,
        privileges: MemoryPrivileges::ALL,
    })?;
    let segment = LmrTriplet {
        context: lmr.lmr_context,
        address: lmr.registered_address,
        length: 8,
    };
    let attributes = EpAttributes {
        max_recv_dtos: POSTS as i32,
        max_request_dtos: POSTS as i32,
        max_recv_iov: SEGMENTS as i32,
        max_request_iov: SEGMENTS as i32,
        max_rdma_read_iov: SEGMENTS as i32,
        max_rdma_write_iov: SEGMENTS as i32,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        ..EpAttributes::DEFAULT
    };
    let create = || {
        let (evd, connect) = (Some(transfers), Some(connections));
        ia.ep_create(Some(pz), evd, evd, connect, Some(&attributes))
    };
    let endpoints @ [ep, other] = [create()?, create()?];
    let peer = ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data: b"",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    let work = Work {
        ia,
        endpoints,
        transfers,
        segment,
    };
    critical_section::with(|section| WORK.borrow(section).set(Some(work)));
    masked::PENDS.store(true, Ordering::Relaxed);

    // Each call is interrupted from here on.
    let rmr = ia.rmr_create(pz)?;
    let srq = ia.srq_create(
        pz,
        &SrqAttributes {
            max_recv_dtos: POSTS as i32,
            max_recv_iov: 1,
            low_watermark: 0,
        },
    )?;
    ia.srq_post_recv(srq, &[segment], 7)?;
    let software = ia.evd_create(4, None, EvdFlags::SOFTWARE)?;
    ia.evd_post_se(software, 1)?;
    ia.evd_dequeue(software)?;
    let mut parameters = ia.ep_query(other, EpFields::all())?;
    parameters.attributes.max_request_dtos = 2;
    ia.ep_modify(other, EpFields::MAX_REQUEST_DTOS, &parameters)?;
    ia.ep_connect(other, &peer, NOW)?;
    while ia.progress(NOW) != 0 {}
    while ia.evd_dequeue(connections).is_ok() {}
    still::complete(CompletionKind::RECEIVE, 0, 8);
    let Ok(Event::Dto(_)) = ia.evd_dequeue(transfers) else {
        // The handler may have taken it.
        return finish(ia, other, ep, connections);
    };
    ia.ep_get_status(ep)?;
    ia.lmr_free(lmr.lmr)?;
    ia.rmr_free(rmr)?;
    ia.srq_free(srq)?;
    finish(ia, other, ep, connections)
}

/// Ends the connection, and frees what the handler posts to.
fn finish(ia: &'static Adapter, other: EpId, ep: EpId, connections: EvdId) -> Result<()> {
    let psp = ia.psp_create(7, connections, PspFlags::Consumer)?;
    ia.progress(Instant::ZERO);
    ia.psp_free(psp)?;
    ia.ep_disconnect(other, CloseFlags::Abrupt)?;
    while ia.progress(Instant::ZERO) != 0 {}
    ia.ep_reset(other)?;
    ia.ep_free(other)?;
    ia.ep_free(ep)?;
    masked::PENDS.store(false, Ordering::Relaxed);
    let count = |name, counter: &AtomicU32| {
        let count = counter.load(Ordering::Relaxed);
        report::line("count", name, count);
        count
    };
    let (runs, posted) = (count("runs", &RUNS), count("posts", &POSTED));
    let odd = count("undocumented_refusals", &ODD);
    let commands = count("masked_commands", &masked::COMMANDS);
    if runs < 100 || posted == 0 || odd != 0 || commands != 0 {
        return Err(Error::internal(Cause::EndpointState));
    }
    Ok(())
}

#[cortex_m_rt::entry]
fn main() -> ! {
    // The attribute turns each of them into an exclusive reference.
    static mut STORAGE: Storage = Storage::new();
    static mut LENT: still::Lent = still::Lent::new();
    static mut OCCUPANCY: still::Occupancy = still::Occupancy::new();
    static mut ADAPTER: Option<Adapter> = None;
    let backend = still::backend(LENT, OCCUPANCY);
    let end = match Ia::open(backend, STORAGE.lend(), 4) {
        Ok(ia) => calls(ADAPTER.insert(ia)),
        Err(refused) => Err(refused.error),
    };
    let end = match end {
        Ok(()) => EXIT_SUCCESS,
        Err(error) => {
            masked::PENDS.store(false, Ordering::Relaxed);
            report::line("failed", "code", error.code(Abi::V1_2));
            report::line("failed", "cause", error.cause() as u32);
            EXIT_FAILURE
        }
    };
    loop {
        debug::exit(end);
    }
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        debug::exit(EXIT_FAILURE);
    }
}
