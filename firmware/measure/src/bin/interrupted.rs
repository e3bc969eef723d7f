//! An interrupt after each release of a lock, in each call.
//!
//! The critical section of the image pends an interrupt before it unmasks interrupts. Its handler
//! posts to an endpoint that no call touches, to one that the calls change and to a dispatcher; the
//! device completes the posts to the first one, and the handler dequeues their completions. The
//! image ends with success if each call does what it would do without, all posts to the first
//! endpoint are accepted and complete once, each other refusal is one of GEN-16, and no command to
//! the device was given with interrupts masked.
#![no_std]
#![no_main]

#[path = "../report.rs"]
mod report;
#[path = "../setup.rs"]
mod setup;
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
use core::sync::atomic::{AtomicU32, Ordering};

use backend_mmio::defs::mlx5::CompletionKind;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use critical_section::Mutex;
use dat_core::error::{Cause, ErrorKind};
use dat_core::event::Event;
use dat_core::flags::{CloseFlags, CompletionFlags, EpFields, EvdFlags, PspFlags};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::LmrTriplet;
use dat_core::time::Instant;
use dat_core::{Abi, Error, Ia, Result};
use mlx5_idle::Numbers;

use setup::{Adapter, ENDPOINT, SHARED_QUEUE, Storage};

/// Event slots: asynchronous, connection and consumer dispatchers, one of which is resized.
const EVENTS: usize = 32;

/// The adapter and the objects that the handler uses.
#[derive(Clone, Copy)]
struct Work {
    ia: &'static Adapter<'static>,
    /// No call touches it.
    own: EpId,
    numbers: Numbers,
    /// The calls change it.
    other: EpId,
    transfers: EvdId,
    software: EvdId,
    segment: LmrTriplet,
}

static WORK: Mutex<Cell<Option<Work>>> = Mutex::new(Cell::new(None));
/// Runs of the handler.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// Accepted sends and receives of the handler's own endpoint.
static SENT: AtomicU32 = AtomicU32::new(0);
static RECEIVED: AtomicU32 = AtomicU32::new(0);
/// Their completions that were dequeued.
static COMPLETED: AtomicU32 = AtomicU32::new(0);
/// Refusals that met a control call, and those that GEN-16 does not name.
static BUSY: AtomicU32 = AtomicU32::new(0);
static ODD: AtomicU32 = AtomicU32::new(0);
/// Cookie of the handler's posts to its own endpoint.
const COOKIE: u64 = 77;

fn count(counter: &AtomicU32) -> u32 {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + 1, Ordering::Relaxed);
    before
}

/// Counts the refusal of a call whose object an interrupted call may change.
fn note(made: Result<()>) {
    match made.map_err(|error| (error.kind(), error.cause())) {
        Ok(()) => {}
        Err((ErrorKind::InsufficientResources, Cause::Busy)) => {
            count(&BUSY);
        }
        Err((ErrorKind::InsufficientResources, Cause::QueueFull))
        | Err((ErrorKind::QueueFull, _))
        | Err((ErrorKind::InvalidState, _))
        | Err((ErrorKind::InvalidHandle, Cause::Stale)) => {}
        Err(_) => {
            count(&ODD);
        }
    }
}

/// Takes the completions of the handler's own posts.
fn dequeue(work: &Work) {
    while let Ok(event) = work.ia.evd_dequeue(work.transfers) {
        match event {
            Event::Dto(done) if done.cookie == COOKIE => count(&COMPLETED),
            _ => count(&ODD),
        };
    }
}

#[cortex_m_rt::exception]
fn PendSV() {
    masked::PENDS.store(false, Ordering::Relaxed);
    let work = critical_section::with(|section| WORK.borrow(section).get());
    if let Some(work) = work {
        count(&RUNS);
        let (flags, segments) = (CompletionFlags::empty(), [work.segment]);
        match work.ia.post_send(work.own, &segments, COOKIE, flags) {
            Ok(()) => {
                let index = count(&SENT) as u16;
                still::complete(work.numbers, CompletionKind::REQUEST, index, 0);
            }
            Err(error) => unless_full(error),
        }
        match work.ia.post_recv(work.own, &segments, COOKIE, flags) {
            Ok(()) => {
                // The slots of a receive queue are as many as its receives.
                let index = count(&RECEIVED) as u16;
                still::complete(work.numbers, CompletionKind::RECEIVE, index, 8);
            }
            Err(error) => unless_full(error),
        }
        note(work.ia.post_send(work.other, &segments, 1, flags));
        note(work.ia.post_recv(work.other, &segments, 1, flags));
        note(work.ia.evd_post_se(work.software, 1));
        note(work.ia.pz_create().and_then(|pz| work.ia.pz_free(pz)));
        dequeue(&work);
        work.ia.interrupt_handle().notify();
    }
    masked::PENDS.store(true, Ordering::Relaxed);
}

/// Counts a refusal of the handler's own endpoint, unless its queue is full.
fn unless_full(error: Error) {
    if error.cause() != Cause::QueueFull {
        count(&ODD);
    }
}

/// Connects the newest endpoint.
fn connect(ia: &Adapter<'_>, ep: EpId, connections: EvdId) -> Result<()> {
    let psp = ia.psp_create(7, connections, PspFlags::Consumer)?;
    ia.progress(Instant::ZERO);
    ia.cr_accept(setup::request(ia, connections)?, Some(ep), b"")?;
    ia.progress(Instant::ZERO);
    ia.evd_dequeue(connections)?;
    ia.psp_free(psp)
}

/// Makes calls of all kinds while the handler interrupts each.
fn calls(ia: &'static Adapter<'static>) -> Result<()> {
    let pz = ia.pz_create()?;
    let connections = ia.evd_create(8, None, EvdFlags::CONNECTION | EvdFlags::CR)?;
    let software = ia.evd_create(4, None, EvdFlags::SOFTWARE)?;
    let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let transfers = ia.evd_create(still::COMPLETIONS as i32 - 1, None, transfers)?;
    let segment = setup::segment(&ia.lmr_create(&setup::region(pz))?);
    let create = || {
        let (evd, connect) = (Some(transfers), Some(connections));
        ia.ep_create(Some(pz), evd, evd, connect, Some(&ENDPOINT))
    };
    let (other, own) = (create()?, create()?);
    connect(ia, own, connections)?;
    let work = Work {
        ia,
        own,
        numbers: still::newest(),
        other,
        transfers,
        software,
        segment,
    };
    critical_section::with(|section| WORK.borrow(section).set(Some(work)));
    masked::PENDS.store(true, Ordering::Relaxed);

    // Each call is interrupted from here on.
    let rmr = ia.rmr_create(pz)?;
    let more = ia.lmr_create(&setup::region(pz))?;
    let srq = ia.srq_create(pz, &SHARED_QUEUE)?;
    ia.srq_post_recv(srq, &[segment], 7)?;
    ia.srq_set_lw(srq, 1)?;
    ia.srq_resize(srq, 3)?;
    ia.evd_dequeue(software)?;
    ia.evd_resize(software, 8)?;
    let mut parameters = ia.ep_query(other, EpFields::all())?;
    parameters.attributes.max_request_dtos = 2;
    ia.ep_modify(other, EpFields::MAX_REQUEST_DTOS, &parameters)?;
    ia.ep_connect(other, &setup::peer(b""), Instant::ZERO)?;
    while ia.progress(Instant::ZERO) != 0 {}
    while ia.evd_dequeue(connections).is_ok() {}
    ia.ep_get_status(other)?;
    let psp = ia.psp_create(8, connections, PspFlags::Consumer)?;
    ia.progress(Instant::ZERO);
    ia.psp_free(psp)?;
    ia.ep_disconnect(other, CloseFlags::Abrupt)?;
    while ia.progress(Instant::ZERO) != 0 {}
    ia.ep_reset(other)?;
    ia.ep_free(other)?;
    ia.lmr_free(more.lmr)?;
    ia.rmr_free(rmr)?;
    ia.srq_free(srq)?;
    ia.evd_free(software)?;
    masked::PENDS.store(false, Ordering::Relaxed);

    while ia.take_interrupts() != 0 {
        ia.progress(Instant::ZERO);
    }
    dequeue(&work);
    let report = |name, counter: &AtomicU32| {
        let count = counter.load(Ordering::Relaxed);
        report::line("count", name, count);
        count
    };
    let (runs, busy) = (report("runs", &RUNS), report("busy", &BUSY));
    let posted = report("sends", &SENT) + report("receives", &RECEIVED);
    let completed = report("completions", &COMPLETED);
    let odd = report("undocumented_refusals", &ODD);
    let commands = report("masked_commands", &masked::COMMANDS);
    let is_good = runs > 100 && busy != 0 && odd == 0 && commands == 0;
    if !is_good || posted < runs || posted != completed {
        return Err(Error::internal(Cause::EndpointState));
    }
    ia.ep_free(own)
}

#[cortex_m_rt::entry]
fn main() -> ! {
    // The attribute turns each of them into an exclusive reference.
    static mut STORAGE: Storage = Storage::new();
    static mut LENT: still::Lent = still::Lent::new();
    static mut OCCUPANCY: still::Occupancy = still::Occupancy::new();
    static mut ADAPTER: Option<Adapter<'static>> = None;
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
