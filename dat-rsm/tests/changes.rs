//! Changes of a segment beside each other.

#[path = "fixture/engine.rs"]
mod engine;
#[path = "fixture/stopping.rs"]
mod stopping;

use core::sync::atomic::{AtomicU8, Ordering};
use core::task::Waker;

use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
use dat_core::event::{Wait, WakeReason};
use dat_core::memory::Region;
use dat_core::time::Instant;
use dat_rsm::{
    BarrierMode, ExportFlags, HandleEntry, LocalAccess, Options, Permission, Rsm, RsmError,
    VectorFlags,
};

use engine::{engine, engine_on, engine_with};
use stopping::{Stopping, beside};

const SEGMENT: u32 = 0x40_0000;
const PAGE: usize = 4096;
/// Places of a call at which it is stopped.
const PLACES: u32 = 40;

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
    let release = || exporter.release_controller(far, &mut MockWait::new(&fabric));
    let (released, ended) = beside(place, release, || {
        let ended = exporter.export_destroy(export, &mut MockWait::new(&fabric));
        // The importer has not heard of it.
        let call = importer.start_putv(import, &entry, VectorFlags::empty());
        let _posted = call.expect("a vector").poll();
        for _ in 0..100 {
            fabric.step();
        }
        (ended, memory[0].load(Ordering::Relaxed))
    });
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
    ended.is_some()
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

/// The engine is free while a segment is synchronised, and its id stays unique.
///
/// Spec: RSMPB-01, RSMPB-05, RSMEX-10, RSMNC-03
#[test]
fn publishing_does_not_hold_the_engine() {
    let mut changing = 0;
    for case in 0..3 {
        for place in 0..PLACES {
            let fabric = Fabric::new(FabricOptions::default());
            let device = fabric.node(NodeOptions::new("mock", 2).non_coherent());
            let (exporter, controller): (Exporter, _) = engine_on(device, Options::new(2, 2));
            let export = || {
                let region = Region::from_static(page());
                let export = exporter.export_create(controller, region, ExportFlags::empty());
                export.expect("a segment")
            };
            let (one, other) = (export(), export());
            let wait = &mut MockWait::new(&fabric);
            let publish = || exporter.export_publish(one, SEGMENT, &[]);
            let (published, meanwhile) = beside(place, publish, || match case {
                0 => exporter.export_publish(other, SEGMENT, &[]).map(|_| ()),
                1 => exporter.export_destroy(one, wait),
                _ => exporter.release_controller(controller, wait),
            });
            let Some(meanwhile) = meanwhile else {
                assert_eq!(published, Ok(SEGMENT));
                break;
            };
            match (case, published, meanwhile) {
                (0, Ok(_), Err(RsmError::SegmentIdInUse))
                | (0, Err(RsmError::SegmentIdInUse), Ok(()))
                | (1, Ok(_) | Err(RsmError::BadSegmentHandle), Ok(()))
                | (2, Ok(_) | Err(RsmError::BadSegmentHandle), Ok(())) => {}
                (1, Ok(_), Err(RsmError::InsufficientResources)) => changing += 1,
                other => panic!("at place {place}: {other:?}"),
            }
            if case == 1 && meanwhile.is_err() {
                // The segment is free for changes again.
                assert_eq!(exporter.export_unpublish(one, wait), Ok(()));
            }
        }
    }
    assert!(changing > 0, "the call holds the lock all the time");
}
