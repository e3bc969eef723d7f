//! Segments that the exporter takes back by invalidating their keys.

use core::cell::Cell;

use dat_core::memory::Region;
use dat_rsm::{BarrierMode, ExportFlags, ImportState, Options, Permission, RsmError, VectorFlags};

use crate::fixture::RsmTestbed;
use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, handle, left, load, pages_of, pattern, put, put_handle,
    set_mode, store,
};

const NONE: VectorFlags = VectorFlags::empty();

/// Grace periods for importers: some time, and none.
const GRACES: [u32; 2] = [100_000, 0];

fn with_grace(grace: u32) -> impl Fn(Options) -> Options {
    move |options| Options {
        revocation_grace: grace,
        ..options
    }
}

/// Ways to end a segment.
#[derive(Clone, Copy, Debug)]
enum End {
    Unpublish,
    Destroy,
    Release,
}

/// A segment can be taken back at any moment of a vector.
///
/// The importer learns of it, no call waits for ever, and only the exporter uses the memory from
/// then on.
///
/// Spec: RSMST-01, RSMST-03, RSMST-04, RSMPB-20, RSMEX-10, RSMPV-E09, RSMPV-51, RSMCT-10, RSMBR-05
pub fn a_segment_is_cut_off_in_the_middle_of_a_vector<T: RsmTestbed>(bed: &T) {
    // On a device in real time a vector must move more to be cut off, and each round takes time.
    let (rounds, pages, size) = if bed.is_stepped() {
        (25, 1, 100)
    } else {
        (4, 160, 4 * PAGE)
    };
    for end in [End::Unpublish, End::Destroy, End::Release] {
        for grace in GRACES {
            let mut aborted = 0;
            for sleeps in 0..rounds {
                let nodes = Nodes::with(bed, 2, with_grace(grace));
                let (export, import, memory) = nodes.segment(pages);
                let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
                let (local, _) = nodes.local(0, pages * PAGE, 3);
                let barrier = nodes.barrier(0, import);
                engine.open_barrier(barrier).expect("open");
                let entries: Vec<_> = (0..40)
                    .map(|at| (at * size, size as u64))
                    .map(|(at, size)| put_handle(local, at as u64, at as u64, size))
                    .collect();
                let freed = Cell::new(false);
                let take_back = || {
                    let wait = &mut nodes.wait(1);
                    match end {
                        End::Unpublish => exporter.export_unpublish(export, wait),
                        End::Destroy => exporter.export_destroy(export, wait),
                        End::Release => exporter.release_controller(nodes.controller(1), wait),
                    }
                    .expect("taken back");
                    // Nothing may overwrite these bytes.
                    store(memory, 0, &vec![0xEE; pages * PAGE]);
                    freed.set(true);
                };
                let mut wait = nodes.hooked(0, sleeps, take_back);
                let outcome =
                    engine.putv(import, &entries, VectorFlags::IMPLICIT_SIGPOST, &mut wait);
                drop(wait);
                match outcome {
                    Ok(()) if freed.get() => {}
                    Ok(()) => take_back(),
                    Err(failure) => {
                        assert_eq!(
                            failure.error,
                            RsmError::ConnectionAborted,
                            "{end:?} after {sleeps}, grace {grace}: {failure}"
                        );
                        aborted += 1;
                    }
                }
                nodes.run_to_idle();
                assert!(
                    load(memory).iter().all(|byte| *byte == 0xEE),
                    "{end:?} after {sleeps}, grace {grace}"
                );
                let wait = &mut nodes.wait(0);
                left(
                    engine.putv(import, &entries, NONE, wait),
                    RsmError::ConnectionAborted,
                    40,
                );
                assert_eq!(engine.import_state(import), Ok(ImportState::Aborted));
                assert_eq!(
                    engine.close_barrier(barrier, wait),
                    Err(RsmError::ConnectionAborted)
                );
                assert_eq!(engine.destroy_barrier(barrier), Ok(()));
                assert_eq!(engine.import_disconnect(import, wait), Ok(()));
            }
            println!("{end:?} with grace {grace}: {aborted} of {rounds} cut off");
            assert!(
                aborted > 0 || !bed.is_stepped(),
                "{end:?} with grace {grace}"
            );
        }
    }
}

/// Spec: RSMST-03, RSMPB-20
pub fn an_aborted_connection_does_not_come_back_with_the_id<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
    exporter
        .export_unpublish(export, &mut nodes.wait(1))
        .expect("unpublished");
    assert_eq!(exporter.export_publish(export, SEGMENT, &[]), Ok(SEGMENT));
    nodes.run_to_idle();
    let wait = &mut nodes.wait(0);
    left(
        engine.putv(import, &[put(&[1], 0)], NONE, wait),
        RsmError::ConnectionAborted,
        1,
    );
    // A new connection is independent of the aborted one.
    let again = nodes.import(0, 1, SEGMENT);
    engine
        .putv(again, &[put(&[2], 0)], NONE, wait)
        .expect("a vector");
    assert_eq!(load(memory)[0], 2);
    left(
        engine.putv(import, &[put(&[1], 0)], NONE, wait),
        RsmError::ConnectionAborted,
        1,
    );
}

/// The end of a segment by its key does not affect others on the link.
///
/// The key breaks the link, which carries the connections of all segments.
///
/// Spec: RSMST-04, RSMPV-84
pub fn the_end_of_one_segment_is_not_the_end_of_another<T: RsmTestbed>(bed: &T) {
    for grace in GRACES {
        for sleeps in 0..12 {
            let nodes = Nodes::with(bed, 2, with_grace(grace));
            let (doomed, victim, _) = nodes.segment(1);
            let (_, memory) = nodes.export(1, 1, SEGMENT + 1);
            let survivor = nodes.import(0, 1, SEGMENT + 1);
            let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
            let (local, source) = nodes.local(0, PAGE, 3);
            // Requests for the doomed segment are queued on the link before those for the other
            // one.
            set_mode(engine, victim, BarrierMode::Explicit);
            let entries: Vec<_> = (0..16).map(|at| put_handle(local, at, at, 1)).collect();
            engine
                .putv(victim, &entries, NONE, &mut nodes.wait(0))
                .expect("begun");
            let mut wait = nodes.hooked(0, sleeps, || {
                exporter
                    .export_destroy(doomed, &mut nodes.wait(1))
                    .expect("destroyed");
            });
            let entries: Vec<_> = (0..32)
                .map(|at| put_handle(local, at * 128, at * 128, 128))
                .collect();
            engine
                .putv(survivor, &entries, NONE, &mut wait)
                .expect("a vector of another segment");
            assert!(load(memory) == load(source));
        }
    }
}

/// Acknowledged entries do not count if the segment ends before the call does.
///
/// Spec: RSMST-01, RSMPV-51, RSMPV-52, RSMPV-54, RSMPV-E09
pub fn acknowledged_entries_of_an_aborted_vector_do_not_count<T: RsmTestbed>(bed: &T) {
    const COUNT: usize = 16;
    for puts in [true, false] {
        let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
        let engine = nodes.engine(0);
        let (local, _) = nodes.local(0, PAGE, 3);
        let entries: Vec<_> = (0..COUNT as u64)
            .map(|at| handle(local, at * 10, at * 20, 10))
            .collect();
        let started = match puts {
            true => engine.start_putv(import, &entries, NONE),
            false => engine.start_getv(import, &entries, NONE),
        };
        let mut call = started.expect("a vector");
        assert_eq!(call.poll(), None);
        nodes.until("all entries", || {
            if call.completed() == COUNT {
                return Some(());
            }
            assert_eq!(call.poll(), None);
            None
        });
        nodes
            .engine(1)
            .export_unpublish(export, &mut nodes.wait(1))
            .expect("unpublished");
        nodes.run_to_idle();
        let outcome = nodes.until("the end", || call.poll());
        left(outcome, RsmError::ConnectionAborted, COUNT);
    }
}

/// A rebind that fails leaves the old memory bound.
///
/// The device has room for no more regions, or for one where two are needed.
///
/// Spec: RSMEX-20, RSMEX-23
pub fn a_rebind_that_fails_leaves_the_old_memory_bound<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let flags = ExportFlags::ALLOW_REBIND;
    let (export, old) = nodes.export_with(1, 1, SEGMENT, flags, &[]);
    let import = nodes.import(0, 1, SEGMENT);
    let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
    let (local, _) = nodes.local(0, 8, 1);
    let spare = pages_of(1);
    let controller = nodes.controller(1);
    let mut taken = Vec::new();
    let full = RsmError::InsufficientResources;
    loop {
        let region = Region::from_static(&spare[..8]);
        let access = dat_rsm::LocalAccess::ReadWrite;
        match exporter.create_local_memory(controller, region, access) {
            Ok(made) => taken.push(made),
            Err(error) => break assert_eq!(error, full),
        }
    }
    let fresh = pages_of(1);
    for (round, byte) in (1..=2_u8).enumerate() {
        let wait = &mut nodes.wait(1);
        let outcome = exporter.export_rebind(export, Region::from_static(fresh), wait);
        assert_eq!(outcome, Err(full), "{round} places");
        store(old, 0, &[0; 8]);
        let entries = [put_handle(local, 0, 0, 8)];
        let outcome = engine.putv(import, &entries, NONE, &mut nodes.wait(0));
        assert_eq!(outcome, Ok(()), "{byte}");
        assert_eq!(load(&old[..8]), pattern(1, 8));
        assert!(load(fresh).iter().all(|byte| *byte == 0));
        let last = taken.pop().expect("local memory");
        exporter
            .free_local_memory(controller, last, wait)
            .expect("freed");
    }
    // With room for both the rebind succeeds.
    exporter
        .export_rebind(export, Region::from_static(fresh), &mut nodes.wait(1))
        .expect("rebound");
    nodes.run_to_idle();
    let entries = [put_handle(local, 0, 0, 8)];
    let outcome = engine.putv(import, &entries, NONE, &mut nodes.wait(0));
    assert_eq!(outcome, Ok(()));
    assert_eq!(load(&fresh[..8]), pattern(1, 8));
}

/// Spec: RSMEX-20, RSMEX-21, RSMEX-22
pub fn rebound_segments_keep_their_importers<T: RsmTestbed>(bed: &T) {
    for grace in GRACES {
        for sleeps in 0..25 {
            let nodes = Nodes::with(bed, 2, with_grace(grace));
            let flags = ExportFlags::ALLOW_REBIND;
            let (export, old) = nodes.export_with(1, 1, SEGMENT, flags, &[]);
            let import = nodes.import(0, 1, SEGMENT);
            let reader = nodes
                .import_as(0, 1, SEGMENT, Permission::READ)
                .expect("a reader");
            let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
            let fresh = pages_of(1);
            let rebound = Cell::new(false);
            let rebind = || {
                exporter
                    .export_rebind(export, Region::from_static(fresh), &mut nodes.wait(1))
                    .expect("rebound");
                store(old, 0, &[0xEE; PAGE]);
                rebound.set(true);
            };
            let mut wait = nodes.hooked(0, sleeps, rebind);
            let bytes = pattern(5, 3200);
            let entries: Vec<_> = (0..32)
                .map(|at| put(&bytes[at * 100..][..100], at as u64 * 100))
                .collect();
            engine
                .putv(import, &entries, NONE, &mut wait)
                .expect("a vector");
            drop(wait);
            if !rebound.get() {
                rebind();
            }
            nodes.run_to_idle();
            assert!(
                load(old).iter().all(|byte| *byte == 0xEE),
                "old memory is left alone"
            );
            // Later accesses go to the new memory.
            let wait = &mut nodes.wait(0);
            engine.putv(import, &entries, NONE, wait).expect("a vector");
            assert!(load(&fresh[..3200]) == bytes);
            let mut back = [0; 100];
            let mut entries = [get_entry(dat_rsm::Target::Bytes(&mut back), 0, 100, 100)];
            engine
                .getv(reader, &mut entries, NONE, wait)
                .expect("a vector");
            assert_eq!(back[..], bytes[100..200]);
        }
    }
}

/// Spec: RSMEX-03, RSMEX-20, RSMEX-22, RSMEX-23
pub fn rebinding_is_refused_in_order<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (fixed, _) = nodes.export(1, 1, SEGMENT);
    let (export, old) = nodes.export_with(1, 1, SEGMENT + 1, ExportFlags::ALLOW_REBIND, &[]);
    let import = nodes.import(0, 1, SEGMENT + 1);
    let (engine, wait) = (nodes.engine(1), &mut nodes.wait(1));
    let fresh = pages_of(2);
    let region = |from: usize, length: usize| Region::from_static(&fresh[from..from + length]);
    let null = dat_rsm::ExportId::NULL;
    assert_eq!(
        engine.export_rebind(null, region(1, 1), wait),
        Err(RsmError::BadSegmentHandle)
    );
    assert_eq!(
        engine.export_rebind(fixed, region(1, 1), wait),
        Err(RsmError::RebindNotAllowed)
    );
    assert_eq!(
        engine.export_rebind(export, region(1, 1), wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.export_rebind(export, region(0, 2 * PAGE), wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.export_rebind(export, region(1, PAGE), wait),
        Err(RsmError::BadAddress)
    );
    // The same memory is no change.
    assert_eq!(
        engine.export_rebind(export, Region::from_static(old), wait),
        Ok(())
    );
    nodes
        .engine(0)
        .putv(import, &[put(&[3], 0)], NONE, &mut nodes.wait(0))
        .expect("the old binding stands");
    assert_eq!(load(old)[0], 3);
}
