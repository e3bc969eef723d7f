//! Messages whose completions come late or never, and receives that the device does not take.

#[path = "fixture/engine.rs"]
mod engine;

use core::sync::atomic::AtomicU8;
use core::task::Waker;

use backend_mock::{Fabric, FabricOptions, Fault, MockWait};
use dat_core::event::{Wait, WakeReason};
use dat_core::memory::Region;
use dat_core::time::Instant;
use dat_rsm::{AccessEntry, ExportFlags, ExportId, ImportId, ImportState, Permission, SignalFlags};

use engine::{Engine, engine};

const SEGMENT: u32 = 0x40_0000;
const PAGE: usize = 4096;
/// The importer's adapter, and its queue of messages.
const ADAPTER: u16 = 0;
const MESSAGES: u32 = 3;
/// Microseconds.
const MILLISECOND: u32 = 1_000;

/// Somebody who waits, while the other engine goes on.
struct Together<'e> {
    own: MockWait,
    other: &'e Engine,
}

impl Wait for Together<'_> {
    fn now(&mut self) -> Instant {
        self.own.now()
    }

    fn waker(&self) -> Waker {
        self.own.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if self.other.progress(self.own.now()) != 0 {
            return WakeReason::Woken;
        }
        let soon = self.own.now().after(10);
        self.own.wait(until.min(soon).or(soon))
    }
}

/// An importer, connected to a segment.
struct Pair {
    fabric: Fabric,
    importer: Engine,
    exporter: Engine,
    import: ImportId,
    export: ExportId,
}

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(FabricOptions::default());
        let (importer, near) = engine(&fabric, 1);
        let (exporter, far) = engine(&fabric, 2);
        let bytes: &'static [AtomicU8] =
            Vec::leak((0..2 * PAGE).map(|_| AtomicU8::new(0)).collect());
        let memory = &bytes[bytes.as_ptr().align_offset(PAGE)..][..PAGE];
        let memory = Region::from_static(memory);
        let export = exporter.export_create(far, memory, ExportFlags::empty());
        let export = export.expect("a segment");
        let everybody = AccessEntry {
            node: 1,
            permission: 0o666,
        };
        exporter
            .export_publish(export, SEGMENT, &[everybody])
            .expect("published");
        let mut wait = Together {
            own: MockWait::new(&fabric),
            other: &exporter,
        };
        let all = Permission::all();
        let import = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
        let import = import.expect("connected");
        let pair = Self {
            fabric,
            importer,
            exporter,
            import,
            export,
        };
        pair.run(MILLISECOND);
        pair
    }

    /// Lets so many microseconds go by.
    fn run(&self, time: u32) {
        let end = self.fabric.now().after(time).expect("a time");
        loop {
            let now = self.fabric.now();
            if self.importer.progress(now) + self.exporter.progress(now) != 0 {
                continue;
            }
            if now >= end {
                return;
            }
            let due = [
                self.fabric.next_due(),
                self.importer.next_deadline(),
                self.exporter.next_deadline(),
            ];
            let next = due.into_iter().flatten().min().unwrap_or(end);
            let next = next.max(now.after(1).expect("a time"));
            self.fabric.run_until(next.min(end));
        }
    }

    /// The exporter signals all importers.
    fn signal(&self) {
        let mut wait = MockWait::new(&self.fabric);
        let posted = self
            .exporter
            .signal_post(self.export, SignalFlags::empty(), &mut wait);
        posted.expect("posted");
    }

    /// Takes all signals that have come.
    fn taken(&self) -> usize {
        let take = || self.importer.signal_take(self.import).expect("connected");
        core::iter::repeat_with(take)
            .take_while(|taken| *taken)
            .count()
    }

    fn is_connected(&self) -> bool {
        self.importer.import_state(self.import) == Ok(ImportState::Connected)
    }

    /// The device of the importer refuses the next posts.
    fn refuse(&self, posts: u32) {
        for nth in 0..posts {
            let adapter = ADAPTER;
            let refused = Fault::RefusePost { adapter, nth };
            self.fabric.inject_from_now(refused);
        }
    }
}

/// A message that the device never completes delays later ones by 50 milliseconds. Then its link is
/// made anew.
///
/// Spec: RSMBR-09, RSMSG-05
#[test]
fn a_link_that_misses_a_message_reconnects() {
    let pair = Pair::new();
    pair.fabric.inject_from_now(Fault::DropCompletion {
        adapter: ADAPTER,
        queue: MESSAGES,
        nth: 0,
    });
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.fabric.happened().len(), 1);
    assert_eq!(pair.taken(), 0);
    // Nobody knows of it before another one comes.
    pair.run(100 * MILLISECOND);
    pair.signal();
    pair.run(MILLISECOND);
    for _ in 0..3 {
        pair.run(16 * MILLISECOND);
        assert_eq!(pair.taken(), 0, "the second signal before the first");
    }
    pair.signal();
    pair.run(MILLISECOND / 2);
    assert_eq!(pair.taken(), 0, "the link is over too early");
    pair.run(10 * MILLISECOND);
    assert!(pair.is_connected());
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}

/// What comes late comes in its order, and its link stays.
///
/// Spec: RSMSG-05
#[test]
fn a_late_message_is_awaited() {
    let pair = Pair::new();
    pair.fabric.inject_from_now(Fault::DelayCompletion {
        adapter: ADAPTER,
        queue: MESSAGES,
        nth: 0,
        by: 40 * MILLISECOND,
    });
    for _ in 0..5 {
        pair.signal();
    }
    pair.run(30 * MILLISECOND);
    assert_eq!(pair.taken(), 0);
    pair.run(20 * MILLISECOND);
    assert_eq!(pair.taken(), 5);
    pair.run(100 * MILLISECOND);
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}

/// More messages than there are places, while the device takes few of these back: none is lost.
///
/// Spec: RSMSG-05
#[test]
fn refused_receives_are_posted_again() {
    for refused in [1, 3, 20] {
        let pair = Pair::new();
        pair.refuse(refused);
        let mut taken = 0;
        for _ in 0..40 {
            pair.signal();
            pair.run(20);
            let due = pair.importer.next_deadline();
            let soon = pair.fabric.now().after(MILLISECOND);
            let all = pair.fabric.happened().len() == refused as usize;
            assert!(
                all || (due.is_some() && due <= soon),
                "nobody looks: {due:?}"
            );
            taken += pair.taken();
        }
        pair.run(30 * MILLISECOND);
        taken += pair.taken();
        assert_eq!(taken, 40, "{refused}");
        assert_eq!(pair.fabric.happened().len(), refused as usize);
    }
}

/// A device that takes no receive for longer than 50 milliseconds has its link made anew.
///
/// Spec: RSMBR-09
#[test]
fn a_link_without_receives_reconnects() {
    let pair = Pair::new();
    pair.refuse(80);
    pair.signal();
    pair.run(48 * MILLISECOND);
    assert_eq!(pair.taken(), 1);
    let refused = pair.fabric.happened().len();
    assert!((45..52).contains(&refused), "{refused} posts in 48 ms");
    pair.run(100 * MILLISECOND);
    assert!(pair.is_connected());
    assert_eq!(pair.fabric.happened().len(), 80);
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}
