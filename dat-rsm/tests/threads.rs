//! Several threads on one engine, over a fabric that has a thread of its own.

#[path = "fixture/engine.rs"]
mod engine;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::thread;

use backend_mock::{Fabric, FabricOptions, MockWait};
use dat_core::event::Wait;
use dat_core::memory::Region;
use dat_core::sync::{load_bytes, store_bytes};
use dat_rsm::{
    BarrierScope, ControllerId, ExportFlags, ExportId, LocalAccess, Permission, PutEntry, RsmError,
    SignalFlags, Source, VectorFlags,
};

use engine::{Engine, engine};

const SEGMENT: u32 = 0x40_0000;
const THREADS: usize = 4;
const PAGE: usize = 4096;

/// A segment with a page for each thread.
fn export(engine: &Engine, controller: ControllerId) -> (ExportId, &'static [AtomicU8]) {
    let bytes: &'static [AtomicU8] = Vec::leak(
        (0..(THREADS + 1) * PAGE)
            .map(|_| AtomicU8::new(0))
            .collect(),
    );
    let memory = &bytes[bytes.as_ptr().align_offset(PAGE)..][..THREADS * PAGE];
    let export = engine
        .export_create(
            controller,
            Region::from_static(memory),
            ExportFlags::empty(),
        )
        .expect("a segment");
    let nobody = dat_rsm::AccessEntry {
        node: 1,
        permission: 0o666,
    };
    engine
        .export_publish(export, SEGMENT, &[nobody])
        .expect("published");
    (export, memory)
}

/// Keeps an engine going until told to stop.
fn drive(engine: &Engine, fabric: &Fabric, stop: &AtomicBool) {
    let mut wait = MockWait::new(fabric);
    while !stop.load(Ordering::Acquire) {
        let now = wait.now();
        if engine.progress(now) == 0 {
            wait.wait(now.after(200));
        }
    }
}

/// Spec: RSMGEN-02, RSMPV-84, RSMIM-03
#[test]
fn threads_share_an_engine_and_even_a_connection() {
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (importer, near) = engine(&fabric, 1);
    let (exporter, far) = engine(&fabric, 2);
    let (_, memory) = export(&exporter, far);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| drive(&exporter, &fabric, &stop));
        let all = Permission::all();
        let shared = importer.import_connect(near, 2, SEGMENT, all, &mut MockWait::new(&fabric));
        let shared = shared.expect("connected");
        importer
            .init_barrier(shared, BarrierScope::Node)
            .expect("a barrier");
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (importer, fabric) = (&importer, &fabric);
                scope.spawn(move || {
                    let mut wait = MockWait::new(fabric);
                    // Half of them on the connection of all, half on one of their own.
                    let import = if number % 2 == 0 {
                        shared
                    } else {
                        let own = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
                        let own = own.expect("connected");
                        importer
                            .init_barrier(own, BarrierScope::Node)
                            .expect("a barrier");
                        own
                    };
                    let base = (number * PAGE) as u64;
                    for round in 0..40_u8 {
                        let bytes = [round + number as u8 * 50 + 1; PAGE];
                        let entries: Vec<_> = (0..8)
                            .map(|at| PutEntry {
                                local: Source::Bytes(&bytes),
                                local_offset: at * 512,
                                remote_offset: base + at * 512,
                                length: 512,
                            })
                            .collect();
                        importer
                            .putv(import, &entries, VectorFlags::empty(), &mut wait)
                            .expect("a vector");
                        let mut back = [0; PAGE];
                        importer
                            .get(import, base, &mut back, &mut wait)
                            .expect("got");
                        assert!(back == bytes, "thread {number}, round {round}");
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a worker");
        }
        stop.store(true, Ordering::Release);
    });
    for number in 0..THREADS {
        assert_eq!(
            memory[number * PAGE].load(Ordering::Relaxed),
            40 + number as u8 * 50
        );
    }
}

/// Spec: RSMSG-02, RSMSG-07, RSMGEN-02, RSMSG-08
#[test]
fn one_signal_ends_one_of_many_waits() {
    const SIGNALS: u32 = 60;
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (importer, near) = engine(&fabric, 1);
    let (exporter, far) = engine(&fabric, 2);
    let (segment, _) = export(&exporter, far);
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wait = MockWait::new(&fabric);
                    loop {
                        match exporter.signal_wait(segment, None, &mut wait) {
                            Ok(()) => taken.fetch_add(1, Ordering::AcqRel),
                            Err(error) => break error,
                        };
                    }
                })
            })
            .collect();
        let mut wait = MockWait::new(&fabric);
        let import = importer.import_connect(near, 2, SEGMENT, Permission::WRITE, &mut wait);
        let import = import.expect("connected");
        for _ in 0..SIGNALS {
            importer
                .signal_post(import, SignalFlags::empty(), &mut wait)
                .expect("a signal");
        }
        while taken.load(Ordering::Acquire) < SIGNALS {
            thread::yield_now();
        }
        // The end of the segment ends all waits.
        exporter
            .export_destroy(segment, &mut wait)
            .expect("destroyed");
        for waiter in waiters {
            assert_eq!(waiter.join().expect("a waiter"), RsmError::BadSegmentHandle);
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), SIGNALS);
}

/// A controller that is released under calls that transfer and wait leaves nothing behind in the
/// adapter: it may be opened again as often as one likes.
///
/// Spec: RSMCT-10, RSMCT-11, RSMSG-08
#[test]
fn a_controller_is_released_under_calls() {
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (engine, mut controller) = engine(&fabric, 1);
    for round in 0..20 {
        let (segment, _) = export(&engine, controller);
        let all = Permission::all();
        let import =
            engine.import_connect(controller, 1, SEGMENT, all, &mut MockWait::new(&fabric));
        let import = import.expect("connected");
        let moved = AtomicU32::new(0);
        thread::scope(|scope| {
            let waiter =
                scope.spawn(|| engine.signal_wait(segment, None, &mut MockWait::new(&fabric)));
            let mover = scope.spawn(|| {
                let (bytes, mut wait) = ([1; PAGE], MockWait::new(&fabric));
                let entry = PutEntry {
                    local: Source::Bytes(&bytes),
                    local_offset: 0,
                    remote_offset: 0,
                    length: PAGE as u64,
                };
                loop {
                    let flags = VectorFlags::empty();
                    if let Err(failure) = engine.putv(import, &[entry; 16], flags, &mut wait) {
                        return failure.error;
                    }
                    moved.fetch_add(1, Ordering::AcqRel);
                }
            });
            while moved.load(Ordering::Acquire) < 3 {
                thread::yield_now();
            }
            let mut wait = MockWait::new(&fabric);
            engine
                .release_controller(controller, &mut wait)
                .expect("released");
            let waited = waiter.join().expect("a waiter");
            assert_eq!(waited, Err(RsmError::BadSegmentHandle));
            let moved = mover.join().expect("a mover");
            let ends = [RsmError::ConnectionAborted, RsmError::BadControllerHandle];
            assert!(ends.contains(&moved), "{moved:?}");
        });
        let gone = engine.import_disconnect(import, &mut MockWait::new(&fabric));
        gone.expect("disconnected");
        let opened = engine.get_controller(Some("rsm0"));
        controller = opened.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

/// A thread that does nothing else serves importers until the controller is released, and looks
/// whenever something changed.
///
/// Spec: RSMGP-01, RSMGEN-02, RSMCT-10
#[test]
fn a_thread_serves_until_the_controller_is_released() {
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (importer, near) = engine(&fabric, 1);
    let (exporter, far) = engine(&fabric, 2);
    let (segment, memory) = export(&exporter, far);
    let seen = AtomicU32::new(0);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut wait = MockWait::new(&fabric);
            exporter.serve(far, &mut wait, || {
                let pending = exporter.signal_pending(segment) == Ok(true);
                seen.fetch_or(u32::from(pending), Ordering::AcqRel);
            })
        });
        let mut wait = MockWait::new(&fabric);
        let import = importer.import_connect(near, 2, SEGMENT, Permission::all(), &mut wait);
        let import = import.expect("connected");
        importer
            .init_barrier(import, BarrierScope::Node)
            .expect("a barrier");
        let bytes: Vec<AtomicU8> = (0..100).map(AtomicU8::new).collect();
        let put = importer.put_shared(import, 7, &bytes, &mut wait);
        put.expect("put");
        assert_eq!(memory[7 + 99].load(Ordering::Relaxed), 99);
        let back: Vec<AtomicU8> = (0..100).map(|_| AtomicU8::new(0)).collect();
        let got = importer.get_shared(import, 7, &back, &mut wait);
        got.expect("got");
        assert!((0..100).all(|at| back[at].load(Ordering::Relaxed) == at as u8));
        let address = importer.import_address(import).expect("an address");
        assert_eq!(address, memory.as_ptr().addr() as u64);
        importer
            .signal_post(import, SignalFlags::empty(), &mut wait)
            .expect("a signal");
        while seen.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        exporter
            .release_controller(far, &mut wait)
            .expect("released");
        server.join().expect("a thread").expect("served");
    });
    let mut wait = MockWait::new(&fabric);
    assert_eq!(exporter.serve(far, &mut wait, || {}), Ok(()));
    assert!(exporter.gave_out(far) && !exporter.gave_out(near));
}

/// An exporter that looks on sees no item in halves, and neither does an importer that reads what
/// the exporter stores.
///
/// Spec: RSMGP-04
#[test]
fn items_arrive_atomically() {
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (importer, near) = engine(&fabric, 1);
    let (exporter, far) = engine(&fabric, 2);
    let (_, memory) = export(&exporter, far);
    let (written, stored) = (&memory[8..48], &memory[PAGE + 8..PAGE + 48]);
    let sizes = importer.controller_attributes(near);
    assert_eq!(sizes.expect("attributes").direct_access_sizes, 0xF);
    let is_atomic = |item: u64| item == 0 || item == u64::MAX;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| drive(&exporter, &fabric, &stop));
        scope.spawn(|| {
            let mut round = 0_u8;
            while !stop.load(Ordering::Acquire) {
                round = round.wrapping_add(1);
                for item in written.chunks_exact(8) {
                    let mut bytes = [0; 8];
                    load_bytes(item, &mut bytes);
                    assert!(is_atomic(u64::from_ne_bytes(bytes)), "{bytes:?}");
                }
                for item in stored.chunks_exact(8) {
                    store_bytes(item, &[0_u8.wrapping_sub(round & 1); 8]);
                }
            }
        });
        let mut wait = MockWait::new(&fabric);
        let all = Permission::all();
        let import = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
        let import = import.expect("connected");
        importer
            .init_barrier(import, BarrierScope::Node)
            .expect("a barrier");
        for round in 0..400_u64 {
            let items = [0_u64.wrapping_sub(round & 1); 5];
            importer
                .put_items(import, 8, &items, &mut wait)
                .expect("items");
            let mut items = [1_u64; 5];
            importer
                .get_items(import, (PAGE + 8) as u64, &mut items, &mut wait)
                .expect("items");
            assert!(items.into_iter().all(is_atomic), "{items:x?}");
        }
        stop.store(true, Ordering::Release);
    });
}

/// A vector that found its handle keeps it to its last entry, whoever frees it meanwhile.
///
/// Spec: RSMPV-14, RSMGEN-02
#[test]
fn a_handle_is_freed_between_vectors() {
    let fabric = Fabric::new(FabricOptions::default());
    let _stepper = fabric.spawn_thread().expect("a thread");
    let (importer, near) = engine(&fabric, 1);
    let (exporter, far) = engine(&fabric, 2);
    export(&exporter, far);
    let source: &'static [AtomicU8] = Vec::leak((0..PAGE).map(|_| AtomicU8::new(1)).collect());
    let stop = AtomicBool::new(false);
    let mut moved = 0;
    thread::scope(|scope| {
        scope.spawn(|| drive(&exporter, &fabric, &stop));
        let mut wait = MockWait::new(&fabric);
        let all = Permission::all();
        let import = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
        let import = import.expect("connected");
        for _ in 0..40 {
            let local = importer
                .create_local_memory(near, Region::from_static(source), LocalAccess::ReadOnly)
                .expect("local memory");
            let entries: Vec<_> = (0..50)
                .map(|at| PutEntry {
                    local: Source::Handle(local),
                    local_offset: at * 64,
                    remote_offset: at * 64,
                    length: 64,
                })
                .collect();
            let begun = AtomicBool::new(false);
            let freed = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !begun.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    let mut wait = MockWait::new(&fabric);
                    let outcome = importer.free_local_memory(near, local, &mut wait);
                    freed.store(true, Ordering::Release);
                    outcome.expect("freed");
                });
                // Those that come too late come all the time, and are not waited for.
                let vectors = || {
                    let mut wait = MockWait::new(&fabric);
                    let (mut whole, mut refused) = (0, 0);
                    while refused == 0 || !freed.load(Ordering::Acquire) {
                        let outcome =
                            importer.putv(import, &entries, VectorFlags::empty(), &mut wait);
                        begun.store(true, Ordering::Release);
                        let Err(failure) = outcome else {
                            assert_eq!(refused, 0, "freed, and there again");
                            whole += 1;
                            continue;
                        };
                        // Not one entry of a vector that came too late, all of the others.
                        let bad = RsmError::BadScatterGather;
                        assert_eq!((failure.error, failure.residual), (bad, 50));
                        refused += 1;
                    }
                    whole
                };
                let others = [scope.spawn(vectors), scope.spawn(vectors)];
                for other in others {
                    moved += other.join().expect("a thread");
                }
            });
        }
        stop.store(true, Ordering::Release);
    });
    assert!(moved >= 40, "the first vector of each round: {moved}");
}
