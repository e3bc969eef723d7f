//! Transfers that fail, and connections that are restored under the same handle.

use core::cell::Cell;

use dat_core::memory::Region;
use dat_rsm::{
    BarrierMode, EntryStatus, ImportState, LocalAccess, Options, RsmError, Target, Unreached,
    VectorFlags,
};

use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, left, load, pages_of, pattern, put, put_handle, set_mode,
    store,
};
use crate::fixture::{FaultyRsmTestbed, RsmTestbed};

const NONE: VectorFlags = VectorFlags::empty();
/// Entries of the vectors below.
const COUNT: usize = 5;
/// More operations than a test starts before its last entry.
const OPERATIONS: u32 = 24;

/// Calls `run` once for each operation of the importer's device, which then fails.
fn each_failure<T: FaultyRsmTestbed>(bed: &T, mut run: impl FnMut(&Nodes<'_, T>)) {
    for nth in 0..OPERATIONS {
        let nodes = Nodes::two(bed);
        bed.fail_operation(2 * nth as u16, nth);
        run(&nodes);
    }
}

/// Spec: RSMPV-31, RSMPV-32, RSMPV-50, RSMPV-51, RSMPV-52, RSMPV-54, RSMPV-55, RSMPV-56, RSMPV-60,
/// RSMPV-71, RSMPV-E08, RSMBR-06
pub fn a_failed_entry_ends_the_vector_and_the_connection_comes_back<T: FaultyRsmTestbed>(bed: &T) {
    let mut seen = [0; COUNT + 1];
    each_failure(bed, |nodes| {
        let (export, import, memory) = nodes.segment(1);
        let (local, _) = nodes.local(0, 500, 3);
        let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
        let all: Vec<_> = (0..COUNT as u64)
            .map(|at| put_handle(local, at * 100, at * 300, 100))
            .collect();
        let source = pattern(3, 500);
        let there = |at: usize| load(&memory[at * 300..][..100]) == source[at * 100..][..100];
        let signals = || {
            nodes.run_to_idle();
            (0..)
                .take_while(|_| nodes.engine(1).signal_take(export).expect("a segment"))
                .count()
        };
        match engine.putv(import, &all, VectorFlags::IMPLICIT_SIGPOST, wait) {
            Ok(()) => {
                seen[0] += 1;
                assert_eq!(signals(), 1);
            }
            Err(failure) if failure.residual == 0 => {
                // The signal was the operation that failed.
                assert_eq!(failure.error, RsmError::RemoteNodeUnreachable);
                let reason = engine.unreached(nodes.controller(0), 2);
                assert_eq!(reason, Some(Unreached::Broken));
                assert!((0..COUNT).all(there));
            }
            Err(failure) => {
                assert_eq!(failure.error, RsmError::BarrierFailure, "{failure}");
                seen[failure.residual] += 1;
                let done = COUNT - failure.residual;
                for at in 0..COUNT {
                    let expected = match at.cmp(&done) {
                        core::cmp::Ordering::Less => EntryStatus::Completed,
                        core::cmp::Ordering::Equal => EntryStatus::Failed(failure.error),
                        core::cmp::Ordering::Greater => EntryStatus::NotCompleted,
                    };
                    assert_eq!(failure.status(at), expected);
                    assert!(at >= done || there(at), "{at} of {done}");
                }
                assert_eq!(signals(), 0);
                assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
                // The remaining entries complete on the same handle.
                engine
                    .putv(import, &all[done..], NONE, wait)
                    .expect("recovered");
            }
        }
        assert!((0..COUNT).all(there));
    });
    println!("residuals {seen:?}");
    assert!(
        seen.iter().all(|times| *times > 0),
        "every residual was met: {seen:?}"
    );
}

/// Spec: RSMPV-31, RSMPV-32, RSMPV-50, RSMPV-54, RSMPV-56, RSMPV-60, RSMPV-E08
pub fn a_failed_entry_ends_a_getv<T: FaultyRsmTestbed>(bed: &T) {
    let mut seen = [0; COUNT + 1];
    each_failure(bed, |nodes| {
        let (_, import, memory) = nodes.segment(1);
        store(memory, 0, &pattern(9, PAGE));
        let engine = nodes.engine(0);
        let mut bytes = [[0; 64]; COUNT];
        let mut entries: Vec<_> = bytes
            .iter_mut()
            .enumerate()
            .map(|(at, bytes)| get_entry(Target::Bytes(bytes), 0, at as u64 * 77, 64))
            .collect();
        let outcome = engine.getv(import, &mut entries, NONE, &mut nodes.wait(0));
        let residual = outcome.map_or_else(
            |failure| {
                assert_eq!(failure.error, RsmError::BarrierFailure);
                failure.residual
            },
            |()| 0,
        );
        seen[residual] += 1;
        if residual != 0 {
            let tail = &mut entries[COUNT - residual..];
            engine
                .getv(import, tail, NONE, &mut nodes.wait(0))
                .expect("recovered");
        }
        drop(entries);
        for (at, bytes) in bytes.iter().enumerate() {
            assert_eq!(bytes[..], pattern(9, PAGE)[at * 77..][..64], "entry {at}");
        }
    });
    println!("residuals {seen:?}");
    assert!(
        seen.iter().all(|times| *times > 0),
        "every residual was met: {seen:?}"
    );
}

/// Spec: RSMPV-22, RSMPV-40, RSMPV-42, RSMBR-05, RSMBR-06, RSMBR-09, RSMBR-04
pub fn in_explicit_mode_the_close_reports_failures<T: FaultyRsmTestbed>(bed: &T) {
    let (mut failed, mut fine) = (0, 0);
    each_failure(bed, |nodes| {
        let (_, import, memory) = nodes.segment(1);
        let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
        let (local, _) = nodes.local(0, 500, 3);
        let barrier = nodes.barrier(0, import);
        set_mode(engine, import, BarrierMode::Explicit);
        let all: Vec<_> = (0..COUNT as u64)
            .map(|at| put_handle(local, at * 100, at * 100, 100))
            .collect();
        engine.open_barrier(barrier).expect("open");
        // The call does not report the failure.
        engine.putv(import, &all, NONE, wait).expect("begun");
        match engine.close_barrier(barrier, wait) {
            Ok(()) => fine += 1,
            Err(error) => {
                assert_eq!(error, RsmError::BarrierFailure);
                failed += 1;
                // Repeats everything since the open.
                assert_eq!(
                    engine.close_barrier(barrier, wait),
                    Err(RsmError::BarrierNotOpened)
                );
                engine.open_barrier(barrier).expect("open");
                engine.putv(import, &all, NONE, wait).expect("begun");
                assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
            }
        }
        assert!(load(&memory[..500]) == pattern(3, 500));
    });
    assert!(
        failed > COUNT && fine > 0,
        "{failed} failed, {fine} did not"
    );
}

/// Spec: RSMBR-05, RSMBR-09
pub fn an_implicit_failure_in_a_span_fails_its_close_too<T: FaultyRsmTestbed>(bed: &T) {
    let mut failed = 0;
    each_failure(bed, |nodes| {
        let (_, import, _) = nodes.segment(1);
        let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
        let barrier = nodes.barrier(0, import);
        engine.open_barrier(barrier).expect("open");
        let outcome = engine.putv(import, &[put(&[1], 0), put(&[2], 1)], NONE, wait);
        let close = engine.close_barrier(barrier, wait);
        if outcome.is_err() {
            failed += 1;
            assert_eq!(close, Err(RsmError::BarrierFailure));
        }
    });
    assert!(failed > 0);
}

/// Spec: RSMPV-E09, RSMST-01, RSMST-03, RSMST-04, RSMIM-11, RSMBR-10, RSMPV-51
pub fn the_death_of_the_exporter_aborts_at_any_time<T: FaultyRsmTestbed>(bed: &T) {
    let mut aborted = 0;
    for sleeps in 0..30 {
        let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
        let engine = nodes.engine(0);
        let (local, _) = nodes.local(0, PAGE, 3);
        let barrier = nodes.barrier(0, import);
        engine.open_barrier(barrier).expect("open");
        let entries: Vec<_> = (0..16)
            .map(|at| put_handle(local, at * 8, at * 8, 8))
            .collect();
        let died = Cell::new(false);
        let mut wait = nodes.hooked(0, sleeps, || {
            bed.crash(2 * sleeps as u16 + 1);
            nodes.stop(1);
            died.set(true);
        });
        let outcome = engine.putv(import, &entries, NONE, &mut wait);
        drop(wait);
        if let Err(failure) = outcome {
            assert_eq!(
                failure.error,
                RsmError::ConnectionAborted,
                "after {sleeps}: {failure}"
            );
            assert!((1..=16).contains(&failure.residual));
            assert!(died.get());
            aborted += 1;
        }
        if !died.get() {
            bed.crash(2 * sleeps as u16 + 1);
            nodes.stop(1);
            left(
                engine.putv(import, &entries, NONE, &mut nodes.wait(0)),
                RsmError::ConnectionAborted,
                16,
            );
        }
        let wait = &mut nodes.wait(0);
        if outcome.is_err() {
            left(
                engine.putv(import, &entries, NONE, wait),
                RsmError::ConnectionAborted,
                16,
            );
            assert_eq!(engine.import_state(import), Ok(ImportState::Aborted));
            assert_eq!(
                engine.close_barrier(barrier, wait),
                Err(RsmError::ConnectionAborted)
            );
        }
        assert_eq!(engine.destroy_barrier(barrier), Ok(()));
        assert_eq!(engine.import_disconnect(import, wait), Ok(()));
        assert_eq!(
            engine.import_disconnect(import, wait),
            Err(RsmError::BadSegmentHandle)
        );
    }
    assert!(aborted > 0);
}

/// Probes detect a host that dies silently, also on an idle connection.
///
/// A live node answers probes although its process does nothing.
///
/// Spec: RSMST-01, RSMST-03
pub fn probes_find_a_dead_peer_of_an_idle_connection<T: FaultyRsmTestbed>(bed: &T) {
    const INTERVAL: u32 = 1_000_000;
    for (round, probe_interval) in [0, INTERVAL].into_iter().enumerate() {
        let nodes = Nodes::with(bed, 2, |options| Options {
            probe_interval,
            ..options
        });
        let (_, import, _) = nodes.segment(1);
        let engine = nodes.engine(0);
        nodes.stop(1);
        let pass = || {
            for _ in 0..10 {
                nodes.run_to_idle();
                let later = bed.now().after(INTERVAL).expect("a time");
                bed.advance(later);
            }
            nodes.run_to_idle();
            engine.import_state(import)
        };
        assert_eq!(pass(), Ok(ImportState::Connected), "{probe_interval}");
        bed.crash(2 * round as u16 + 1);
        let expected = match probe_interval {
            0 => ImportState::Connected,
            _ => ImportState::Aborted,
        };
        assert_eq!(pass(), Ok(expected), "{probe_interval}");
    }
}

/// Spec: RSMPV-E09, RSMST-01, RSMST-03, RSMIM-11, RSMBR-05, RSMGEN-04
pub fn an_exporter_that_begins_again_is_another_one<T: RsmTestbed>(bed: &T) {
    for explicit in [false, true] {
        for at_rest in [false, true] {
            let mut nodes = Nodes::two(bed);
            let (_, import, _) = nodes.segment(1);
            let (_, idle, _) = {
                let (export, memory) = nodes.export(1, 1, SEGMENT + 1);
                (export, nodes.import(0, 1, SEGMENT + 1), memory)
            };
            let (local, _) = nodes.local(0, PAGE, 3);
            let barrier = nodes.barrier(0, import);
            let engine = nodes.engine(0);
            engine.open_barrier(barrier).expect("open");
            let all: Vec<_> = (0..5)
                .map(|at| put_handle(local, at * 100, at * 100, 100))
                .collect();
            if explicit {
                set_mode(engine, import, BarrierMode::Explicit);
                let begun = engine.putv(import, &all, NONE, &mut nodes.wait(0));
                begun.expect("begun");
            }
            nodes.restart(1);
            // A new segment with the same id, length and qualifier.
            let (_, memory) = nodes.export(1, 1, SEGMENT);
            nodes.export(1, 1, SEGMENT + 1);
            if at_rest {
                nodes.run_to_idle();
            }
            let engine = nodes.engine(0);
            if explicit {
                assert_eq!(
                    engine.close_barrier(barrier, &mut nodes.wait(0)),
                    Err(RsmError::ConnectionAborted)
                );
            }
            left(
                engine.putv(import, &all, NONE, &mut nodes.wait(0)),
                RsmError::ConnectionAborted,
                5,
            );
            let fresh = nodes.import(0, 1, SEGMENT);
            for old in [import, idle] {
                assert_eq!(engine.import_state(old), Ok(ImportState::Aborted));
                left(
                    engine.putv(old, &all, NONE, &mut nodes.wait(0)),
                    RsmError::ConnectionAborted,
                    5,
                );
            }
            assert!(load(memory).iter().all(|byte| *byte == 0));
            engine
                .putv(fresh, &all, NONE, &mut nodes.wait(0))
                .expect("a vector");
            assert!(load(memory)[..500] == pattern(3, PAGE)[..500]);
            for old in [import, idle] {
                assert_eq!(engine.import_disconnect(old, &mut nodes.wait(0)), Ok(()));
            }
            // The importer restarts as well: its former incarnation is forgotten.
            nodes.restart(0);
            let again = nodes.import(0, 1, SEGMENT);
            nodes
                .engine(0)
                .putv(again, &[put(&[7], 9)], NONE, &mut nodes.wait(0))
                .expect("a vector");
            assert_eq!(load(memory)[9], 7);
        }
    }
}

/// Spec: RSMLH-01
pub fn memory_that_cannot_be_registered_has_no_handle<T: FaultyRsmTestbed>(bed: &T) {
    let mut refused = 0;
    for nth in 0..40 {
        let nodes = Nodes::with(bed, 1, |options| options);
        bed.fail_allocation(nth as u16, nth);
        let make = || {
            let region = Region::from_static(pages_of(1));
            let access = LocalAccess::ReadWrite;
            let engine = nodes.engine(0);
            engine.create_local_memory(nodes.controller(0), region, access)
        };
        if let Err(error) = make() {
            assert_eq!(error, RsmError::InsufficientMemory);
            refused += 1;
            make().expect("there is memory again");
        }
    }
    assert!(refused > 0);
}

/// Spec: RSMPV-E10, RSMPV-52
pub fn memory_that_cannot_be_registered_ends_the_vector<T: FaultyRsmTestbed>(bed: &T) {
    let mut refused = 0;
    for nth in 0..40 {
        let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
        let engine = nodes.engine(0);
        bed.fail_allocation(2 * nth as u16, nth);
        let bytes = [1, 2, 3];
        let entries: Vec<_> = (0..3).map(|at| put(&bytes[at..=at], at as u64)).collect();
        if let Err(failure) = engine.putv(import, &entries, NONE, &mut nodes.wait(0)) {
            assert_eq!(failure.error, RsmError::InsufficientResources);
            let done = 3 - failure.residual;
            assert_eq!(load(&memory[..done]), bytes[..done]);
            refused += 1;
            engine
                .putv(import, &entries[done..], NONE, &mut nodes.wait(0))
                .expect("the connection lives");
        }
        assert_eq!(load(&memory[..3]), bytes);
    }
    assert!(refused > 0);
}

/// Spec: RSMPV-E11, RSMPV-83
pub fn an_interrupted_vector_leaves_nothing_on_the_way<T: RsmTestbed>(bed: &T) {
    let mut interrupted = 0;
    for sleeps in 0..25 {
        let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
        store(memory, 1000, &pattern(2, 900));
        let engine = nodes.engine(0);
        let bytes = pattern(7, 900);
        let entries: Vec<_> = (0..9)
            .map(|at| put(&bytes[at * 100..][..100], at as u64 * 100))
            .collect();
        let outcome = engine.putv(
            import,
            &entries,
            NONE,
            &mut nodes.interrupted_after(0, sleeps),
        );
        let now = load(memory);
        let done = match outcome {
            Ok(()) => 9,
            Err(failure) => {
                assert_eq!(failure.error, RsmError::Interrupted);
                interrupted += 1;
                9 - failure.residual
            }
        };
        assert!(
            now[..done * 100] == bytes[..done * 100],
            "what counts as done is done"
        );
        nodes.run_to_idle();
        assert!(load(memory) == now, "nothing came late");
        let mut target = [0; 900];
        let mut entries: Vec<_> = target
            .chunks_mut(100)
            .enumerate()
            .map(|(at, bytes)| get_entry(Target::Bytes(bytes), 0, 1000 + at as u64 * 100, 100))
            .collect();
        let outcome = engine.getv(
            import,
            &mut entries,
            NONE,
            &mut nodes.interrupted_after(0, sleeps),
        );
        drop(entries);
        let now = target;
        let done = outcome.map_or_else(
            |failure| {
                assert_eq!(failure.error, RsmError::Interrupted);
                9 - failure.residual
            },
            |()| 9,
        );
        assert!(now[..done * 100] == pattern(2, 900)[..done * 100]);
        nodes.run_to_idle();
        assert!(target == now, "nothing came late");
        // The connection is still usable.
        engine
            .putv(import, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
            .expect("on again");
    }
    // On a device in real time the vector may end before it is interrupted.
    assert!(interrupted > 0 || !bed.is_stepped());
}

/// Spec: RSMPV-08, RSMPV-40, RSMPV-42, RSMBR-05
pub fn in_explicit_mode_a_failure_does_not_hold_up_immediate_entries<T: FaultyRsmTestbed>(bed: &T) {
    let mut failed = 0;
    each_failure(bed, |nodes| {
        let (_, import, memory) = nodes.segment(1);
        let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
        let barrier = nodes.barrier(0, import);
        set_mode(engine, import, BarrierMode::Explicit);
        let bytes = pattern(4, 4000);
        let all: Vec<_> = (0..40)
            .map(|at| put(&bytes[at * 100..][..100], at as u64 * 100))
            .collect();
        for _ in 0..2 {
            engine.open_barrier(barrier).expect("open");
            engine.putv(import, &all, NONE, wait).expect("begun");
            match engine.close_barrier(barrier, wait) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, RsmError::BarrierFailure),
            }
            failed += 1;
        }
        assert!(load(&memory[..4000]) == bytes);
    });
    assert!(failed > 0);
}

/// A close reads writes back from immediate entries and from handles alike.
///
/// The read-back is one more operation that can fail.
///
/// Spec: RSMPV-12, RSMPV-21, RSMPV-40, RSMBR-05
pub fn a_close_reads_back_writes_of_every_kind<T: FaultyRsmTestbed>(bed: &T) {
    let mut failed = [0; 2];
    for (kind, failed) in failed.iter_mut().enumerate() {
        for nth in 0..OPERATIONS {
            let nodes = Nodes::two(bed);
            bed.fail_operation(2 * (kind as u16 * OPERATIONS as u16 + nth as u16), nth);
            let (_, import, _) = nodes.segment(1);
            let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
            let (local, _) = nodes.local(0, 8, 3);
            let barrier = nodes.barrier(0, import);
            set_mode(engine, import, BarrierMode::Explicit);
            engine.open_barrier(barrier).expect("open");
            let entry = match kind {
                0 => put_handle(local, 0, 0, 8),
                _ => put(&[1; 8], 0),
            };
            engine.putv(import, &[entry], NONE, wait).expect("begun");
            *failed += usize::from(engine.close_barrier(barrier, wait).is_err());
        }
    }
    assert_eq!(failed, [2, 2], "a write and a read-back each");
}

/// Spec: RSMBR-06, RSMST-03, RSMIM-03
pub fn many_connections_come_back_together<T: FaultyRsmTestbed>(bed: &T) {
    const MANY: usize = 400;
    let (nodes, (_, first, _)) = Nodes::with_segment(bed, 1);
    let imports: Vec<_> = (0..MANY)
        .map(|_| nodes.import(0, 1, crate::fixture::nodes::SEGMENT))
        .collect();
    let engine = nodes.engine(0);
    bed.fail_operation(0, 2500);
    let broken = (0..2000).any(|_| {
        engine
            .putv(first, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
            .is_err()
    });
    assert!(broken);
    nodes.run_to_idle();
    for import in imports.into_iter().chain([first]) {
        assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
        engine
            .putv(import, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
            .expect("on again");
    }
}
