//! The firmware: static storage, an interrupt handler, a poll loop that sleeps.
//!
//! Needs no `std` and no heap.

use core::cell::Cell;
use core::sync::atomic::AtomicU8;
use core::task::Waker;

use critical_section::Mutex;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event, Wait, WakeReason};
use dat_core::flags::{CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::{ContextLock, CriticalSectionLock, SplitLock};
use dat_core::time::Instant;
use dat_core::{Ia, InterruptHandle, Result};
use static_cell::StaticCell;

/// Driver of the adapter, an implementation of `dat_core::backend::Backend`; here the mock.
pub(crate) type Driver = backend_mock::MockBackend;
type FirmwareIa = Ia<'static, Driver, Lock>;
/// Data calls mask interrupts, control calls do not.
type Lock = SplitLock<CriticalSectionLock, ContextLock>;

dat_core::define_storage! {
    /// Storage of the adapter; one dispatcher is the adapter's own.
    struct Storage for Driver, Lock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 2,
        notification_objects: 2,
        endpoints: 1,
        shared_receive_queues: 0,
        public_service_points: 1,
        reserved_service_points: 1,
        connection_requests: 1,
        events: 20,
        records: 32,
    }
}

static STORAGE: StaticCell<Storage> = StaticCell::new();
static ADAPTER: StaticCell<FirmwareIa> = StaticCell::new();
static BUFFER: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
static ATTENTION: Mutex<Cell<Option<InterruptHandle<'static>>>> = Mutex::new(Cell::new(None));

/// Handles the adapter's interrupt: records it and ends the sleep.
pub(crate) fn adapter_interrupt() {
    if let Some(attention) = critical_section::with(|section| ATTENTION.borrow(section).get()) {
        attention.notify();
    }
}

/// Clock and sleep of the board.
pub(crate) trait Board {
    /// Returns the microseconds since power-on.
    fn micros(&mut self) -> u64;
    /// Sleeps until an interrupt is pending, even a masked one, or until a time.
    ///
    /// `until` is in microseconds since power-on.
    fn sleep(&mut self, until: Option<u64>);
}

/// Clock and sleep of the poll loop.
struct Sleeper<'a, B> {
    ia: &'static FirmwareIa,
    board: &'a mut B,
}

impl<B: Board> Wait for Sleeper<'_, B> {
    fn now(&mut self) -> Instant {
        Instant::from_micros(self.board.micros())
    }

    fn waker(&self) -> Waker {
        // There is one thread, and `wait` checks for interrupts itself.
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        // With interrupts masked, none comes between the check and the sleep.
        critical_section::with(|_| {
            if self.ia.take_interrupts() == 0 {
                self.board.sleep(until.map(Instant::as_micros));
            }
        });
        WakeReason::Woken
    }
}

/// Accepts a connection, and answers each message with an empty one.
///
/// Returns the number of answers once the connection has ended.
pub(crate) fn serve(driver: Driver, board: &mut impl Board) -> Result<u32> {
    let storage = STORAGE.init_with(Storage::new);
    let opened = Ia::open(driver, storage.lend(), 4).map_err(|refused| refused.error)?;
    let ia: &'static FirmwareIa = ADAPTER.init(opened);
    critical_section::with(|section| ATTENTION.borrow(section).set(Some(ia.interrupt_handle())));

    let pz = ia.pz_create()?;
    let evd = ia.evd_create(16, None, EvdFlags::DEFAULT)?;
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let region = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&BUFFER)),
        pz,
        privileges: MemoryPrivileges::LOCAL_WRITE,
    })?;
    let buffer = LmrTriplet {
        context: region.lmr_context,
        address: region.registered_address,
        length: region.registered_size,
    };
    // The receive is posted before the peer can send.
    let receive = || ia.post_recv(ep, &[buffer], 0, CompletionFlags::empty());
    receive()?;
    ia.psp_create(7, evd, PspFlags::Consumer)?;

    let mut answered = 0;
    let mut sleeper = Sleeper { ia, board };
    loop {
        // `None` waits without a deadline. The call also does the adapter's timed work, such as
        // time-outs.
        match ia.evd_wait_until(evd, 1, None, &mut sleeper)?.event {
            Event::ConnectionRequest { cr, .. } => ia.cr_accept(cr, Some(ep), &[])?,
            Event::Dto(done)
                if done.operation == DtoOperation::Receive && done.status == DtoStatus::Success =>
            {
                receive()?;
                ia.post_send(ep, &[], 0, CompletionFlags::SUPPRESS)?;
                answered += 1;
            }
            Event::Connection {
                kind: ConnectionEventKind::Disconnected | ConnectionEventKind::Broken,
                ..
            } => return Ok(answered),
            // The established connection, and the completions flushed at its end.
            _ => {}
        }
    }
}
