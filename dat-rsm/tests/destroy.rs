//! The end of a segment beside the end of its controller.

#[path = "fixture/engine.rs"]
mod engine;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::task::Waker;
use std::thread;

use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait};
use dat_core::event::{Wait, WakeReason};
use dat_core::memory::Region;
use dat_core::sync::{HostLock, RawLock};
use dat_core::time::Instant;
use dat_rsm::{
    BarrierMode, ExportFlags, HandleEntry, LocalAccess, Options, Permission, Rsm, RsmError,
    VectorFlags,
};

use engine::{engine, engine_with};

const SEGMENT: u32 = 0x40_0000;
const PAGE: usize = 4096;
/// Places of the controller's end at which it is stopped.
const PLACES: u32 = 40;

thread_local! {
    /// Locks that the thread takes before it stops; `None` is never.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// Locks that the thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}
static STOPPED: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);

/// A lock before which a chosen thread stops, while it holds no other.
struct Stopping(HostLock);

impl Stopping {
    fn stop_here() {
        if HELD.get() != 0 {
            return;
        }
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                STOPPED.store(true, Ordering::Release);
                while !GO_ON.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            left => LEFT.set(left.map(|left| left - 1)),
        }
    }
}

#[expect(unsafe_code, reason = "a lock for the engine's own places")]
// SAFETY: the host's lock does what the trait asks for.
unsafe impl RawLock for Stopping {
    const INIT: Self = Self(HostLock::INIT);

    type Control = Self;

    type State<'a> = ();

    unsafe fn acquire(&self) {
        Self::stop_here();
        HELD.set(HELD.get() + 1);
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.acquire() }
    }

    unsafe fn release(&self, (): ()) {
        HELD.set(HELD.get() - 1);
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.release(()) }
    }
}

type Exporter = Rsm<'static, MockBackend, Stopping>;

/// A wait during which the exporter goes on.
struct Together<'e> {
    own: MockWait,
    exporter: &'e Exporter,
}

impl Wait for Together<'_> {
    fn now(&mut self) -> Instant {
        self.own.now()
    }

    fn waker(&self) -> Waker {
        self.own.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if self.exporter.progress(self.own.now()) != 0 {
            return WakeReason::Woken;
        }
        self.own.wait(until)
    }
}

/// Leaks a page of zeros.
fn page() -> &'static [AtomicU8] {
    let bytes: &'static [AtomicU8] = Vec::leak((0..2 * PAGE).map(|_| AtomicU8::new(0)).collect());
    &bytes[bytes.as_ptr().align_offset(PAGE)..][..PAGE]
}

/// Ends a segment while the end of its controller stands still, and writes to it with an old key.
///
/// Returns true if the controller's end came that far.
fn end_beside(place: u32) -> bool {
    let fabric = Fabric::new(FabricOptions::default());
    let (importer, near) = engine(&fabric, 1);
    let options = Options {
        revocation_grace: 0,
        default_access: 0o666,
        ..Options::new(2, 2)
    };
    let (exporter, far): (Exporter, _) = engine_with(&fabric, options);
    let memory = page();
    let region = Region::from_static(memory);
    let export = exporter.export_create(far, region, ExportFlags::empty());
    let export = export.expect("a segment");
    let published = exporter.export_publish(export, SEGMENT, &[]);
    published.expect("published");
    let mut wait = Together {
        own: MockWait::new(&fabric),
        exporter: &exporter,
    };
    let all = Permission::all();
    let import = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
    let import = import.expect("connected");
    importer
        .set_mode(import, BarrierMode::Explicit)
        .expect("a mode");
    let source = page();
    source[0].store(9, Ordering::Relaxed);
    let local = importer
        .create_local_memory(near, Region::from_static(source), LocalAccess::ReadOnly)
        .expect("local memory");
    let entry = [HandleEntry {
        local,
        local_offset: 0,
        remote_offset: 0,
        length: 1,
    }];
    STOPPED.store(false, Ordering::Release);
    GO_ON.store(false, Ordering::Release);
    thread::scope(|scope| {
        let releases = scope.spawn(|| {
            LEFT.set(Some(place));
            let released = exporter.release_controller(far, &mut MockWait::new(&fabric));
            LEFT.set(None);
            released
        });
        while !STOPPED.load(Ordering::Acquire) && !releases.is_finished() {
            thread::yield_now();
        }
        let stopped = STOPPED.load(Ordering::Acquire);
        let ended = stopped.then(|| {
            let ended = exporter.export_destroy(export, &mut MockWait::new(&fabric));
            // The importer has not heard of it.
            let call = importer.start_putv(import, &entry, VectorFlags::empty());
            let _posted = call.expect("a vector").poll();
            for _ in 0..100 {
                fabric.step();
            }
            (ended, memory[0].load(Ordering::Relaxed))
        });
        GO_ON.store(true, Ordering::Release);
        let released = releases.join().expect("a thread");
        assert_eq!(released, Ok(()));
        match ended {
            // The memory is the caller's again.
            Some((Ok(()) | Err(RsmError::BadSegmentHandle), byte)) => {
                assert_eq!(byte, 0, "an old key opens it, at place {place}");
            }
            // The other thread is changing the segment.
            Some((Err(error), _)) => assert_eq!(error, RsmError::InsufficientResources),
            None => {}
        }
        stopped
    })
}

/// The handle leaves the table after the device has freed the keys.
///
/// So who does not find the segment any more can rely on the end of its keys.
///
/// Spec: RSMEX-10, RSMST-04, RSMCT-10, RSMGEN-02
#[test]
fn a_segment_that_is_gone_has_no_key_left() {
    let stopped = (0..PLACES).take_while(|place| end_beside(*place)).count();
    assert!(stopped > 3, "{stopped}");
}
