//! The firmware: static storage, an interrupt handler, a poll loop that sleeps. Nothing in this file needs `std` or a heap.

use core::cell::Cell;
use core::sync::atomic::AtomicU8;
use core::task::Waker;

use critical_section::Mutex;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event, Wait, WakeReason};
use dat_core::flags::{CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::CriticalSectionLock;
use dat_core::time::Instant;
use dat_core::{Ia, IaStorage, InterruptHandle, Result};
use static_cell::StaticCell;

/// The driver of the adapter: whatever implements `dat_core::backend::Backend`. Here the mock takes its place.
pub(crate) type Driver = backend_mock::MockBackend;
type Adapter = Ia<'static, Driver, CriticalSectionLock>;

/// 1 endpoint, 2 event dispatchers (1 is the adapter's own), no shared receive queue, 1 region, 20 events, 32 posts.
type Storage = IaStorage<Driver, CriticalSectionLock, 1, 2, 0, 1, 20, 32>;

static STORAGE: StaticCell<Storage> = StaticCell::new();
static ADAPTER: StaticCell<Adapter> = StaticCell::new();
static BUFFER: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
static ATTENTION: Mutex<Cell<Option<InterruptHandle<'static>>>> = Mutex::new(Cell::new(None));

/// The handler of the adapter's interrupt. It notes that there is something to do and ends the sleep, no more.
pub(crate) fn adapter_interrupt() {
    if let Some(attention) = critical_section::with(|section| ATTENTION.borrow(section).get()) {
        attention.notify();
    }
}

/// What the board has.
pub(crate) trait Board {
    /// Microseconds since it was switched on.
    fn micros(&mut self) -> u64;
    /// Sleeps until an interrupt is pending, masked or not, or this many microseconds after it was switched on.
    fn sleep(&mut self, until: Option<u64>);
}

/// How the poll loop sleeps.
struct Sleeper<'a, B> {
    ia: &'static Adapter,
    board: &'a mut B,
}

impl<B: Board> Wait for Sleeper<'_, B> {
    fn now(&mut self) -> Instant {
        Instant::from_micros(self.board.micros())
    }

    fn waker(&self) -> Waker {
        // There is one thread, and `wait` looks for interrupts itself.
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        // With interrupts masked, none comes between the look and the sleep.
        critical_section::with(|_| {
            if self.ia.take_interrupts() == 0 {
                self.board.sleep(until.map(Instant::as_micros));
            }
        });
        WakeReason::Woken
    }
}

/// Accepts a connection, and answers each message with an empty one. Returns how many there were when the peer is gone.
pub(crate) fn serve(driver: Driver, board: &mut impl Board) -> Result<u32> {
    let storage = STORAGE.init_with(Storage::new);
    let opened = Ia::open(driver, storage.lend(), 4).map_err(|refused| refused.error)?;
    let ia: &'static Adapter = ADAPTER.init(opened);
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
    // A receive is there before anybody may send.
    let receive = || ia.post_recv(ep, &[buffer], 0, CompletionFlags::empty());
    receive()?;
    ia.psp_create(7, evd, PspFlags::Consumer)?;

    let mut answered = 0;
    let mut sleeper = Sleeper { ia, board };
    loop {
        // `None`: without a deadline. What the adapter has to do meanwhile, such as time-outs, is done inside.
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
            // That the connection stands, and what is flushed when it ends.
            _ => {}
        }
    }
}
