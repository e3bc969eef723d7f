//! Local memory handles.

use crate::fixture::{RsmTestbed, report_skip};
use dat_core::memory::Region;
use dat_rsm::{
    BarrierMode, ControllerId, HandleEntry, LocalAccess, LocalMemoryId, RsmError, VectorFlags,
};

use crate::fixture::nodes::{Nodes, PAGE, handle, load, pages_of, pattern, put_handle, set_mode};

const NONE: VectorFlags = VectorFlags::empty();

/// Spec: RSMLH-01, RSMLH-06, RSMPV-10
pub fn a_handle_is_used_again_and_its_content_is_live<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, source) = nodes.local(0, 64, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    for seed in 1..20 {
        crate::fixture::nodes::store(source, 0, &pattern(seed, 64));
        engine
            .putv(import, &[put_handle(local, 0, 128, 64)], NONE, wait)
            .expect("a vector");
        assert_eq!(load(&memory[128..192]), pattern(seed, 64));
    }
}

/// Spec: RSMLH-02, RSMLH-03, RSMLH-04, RSMLH-05
pub fn handles_of_any_address_and_length_may_overlap<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let block = pages_of(2);
    crate::fixture::nodes::store(block, 0, &pattern(8, 2 * PAGE));
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let controller = nodes.controller(0);
    for (start, length) in [
        (0, 1),
        (1, 1),
        (1, 4097),
        (4095, 2),
        (0, 2 * PAGE),
        (17, 100),
    ] {
        let region = Region::from_static(&block[start..start + length]);
        let local = engine.create_local_memory(controller, region, LocalAccess::ReadWrite);
        let local = local.expect("local memory");
        let moved = length.min(100) as u64;
        // At the very end of exactly this length.
        let entry = put_handle(local, length as u64 - moved, 0, moved);
        engine.putv(import, &[entry], NONE, wait).expect("a vector");
        let end = start + length;
        assert_eq!(
            load(&memory[..moved as usize]),
            load(&block[end - moved as usize..end])
        );
        let beyond = put_handle(local, length as u64 - moved, 0, moved + 1);
        crate::fixture::nodes::left(
            engine.putv(import, &[beyond], NONE, wait),
            RsmError::BadLength,
            1,
        );
    }
}

/// Spec: RSMLH-04, RSMLH-02
pub fn empty_and_too_long_memory_is_refused<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let engine = nodes.engine(0);
    let empty = || Region::from_static(&[]);
    let make =
        |controller, region| engine.create_local_memory(controller, region, LocalAccess::ReadWrite);
    assert_eq!(make(nodes.controller(0), empty()), Err(RsmError::BadLength));
    // The controller is checked first.
    let bad = [ControllerId::NULL, nodes.controller(1)];
    for controller in bad {
        assert_eq!(
            make(controller, empty()),
            Err(RsmError::BadControllerHandle)
        );
    }
    let limited = Nodes::with(bed, 1, |mut options| {
        options.limits.local_memory = 2;
        options
    });
    let engine = limited.engine(0);
    let made: Vec<_> = (0..3)
        .map(|_| {
            let region = Region::from_static(pages_of(1));
            engine.create_local_memory(limited.controller(0), region, LocalAccess::ReadWrite)
        })
        .collect();
    assert!(made[0].is_ok() && made[1].is_ok());
    assert_eq!(made[2], Err(RsmError::InsufficientResources));
}

/// Spec: RSMLH-10, RSMLH-11, RSMGEN-05
pub fn a_freed_handle_is_refused<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
    let (local, _) = nodes.local(0, 64, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let controller = nodes.controller(0);
    let bad = Err(RsmError::BadLocalMemoryHandle);
    assert_eq!(
        engine.free_local_memory(nodes.controller(1), local, wait),
        Err(RsmError::BadControllerHandle)
    );
    for wrong in [
        LocalMemoryId::NULL,
        LocalMemoryId::from_handle(import.handle()),
    ] {
        assert_eq!(engine.free_local_memory(controller, wrong, wait), bad);
    }
    assert_eq!(engine.free_local_memory(controller, local, wait), Ok(()));
    assert_eq!(engine.free_local_memory(controller, local, wait), bad);
    // The slot may be reused; the old handle stays invalid.
    let (fresh, _) = nodes.local(0, 64, 1);
    assert_ne!(fresh, local);
    assert_eq!(engine.free_local_memory(controller, local, wait), bad);
    assert_eq!(engine.free_local_memory(controller, fresh, wait), Ok(()));
}

/// Spec: RSMLH-11
pub fn a_handle_of_another_controller_is_not_freed<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with_controllers(bed, 2, &["rsm0", "rsm1"], |options| options);
    let (local, _) = nodes.local(0, 64, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let other = engine
        .get_controller(Some("rsm1"))
        .expect("another controller");
    assert_eq!(
        engine.free_local_memory(other, local, wait),
        Err(RsmError::BadLocalMemoryHandle)
    );
    assert_eq!(
        engine.free_local_memory(nodes.controller(0), local, wait),
        Ok(())
    );
}

/// Spec: RSMPV-14, RSMLH-10
pub fn freeing_waits_for_the_vectors_that_use_the_handle<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, source) = nodes.local(0, 1024, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    set_mode(engine, import, BarrierMode::Explicit);
    let barrier = nodes.barrier(0, import);
    engine.open_barrier(barrier).expect("open");
    let entries: Vec<_> = (0..8)
        .map(|at| put_handle(local, at * 128, at * 128, 128))
        .collect();
    engine.putv(import, &entries, NONE, wait).expect("begun");
    engine
        .free_local_memory(nodes.controller(0), local, wait)
        .expect("freed after the vector");
    // The vector completed.
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert!(load(&memory[..1024]) == load(source));
    // An interruption leaves the handle valid.
    let (local, _) = nodes.local(0, 1024, 2);
    engine
        .putv(import, &[put_handle(local, 0, 0, 1024)], NONE, wait)
        .expect("begun");
    let mut impatient = nodes.interrupted_after(0, 0);
    let outcome = engine.free_local_memory(nodes.controller(0), local, &mut impatient);
    if outcome.is_ok() && !bed.is_stepped() {
        let reason = "the vector ended before the interruption";
        report_skip("freeing_waits_for_the_vectors_that_use_the_handle", reason);
        return;
    }
    assert_eq!(outcome, Err(RsmError::Interrupted));
    assert_eq!(
        engine.free_local_memory(nodes.controller(0), local, wait),
        Ok(())
    );
}

/// Spec: RSMLH-01, RSMLH-10
pub fn borrowed_memory_is_registered_for_a_closure<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let engine = nodes.engine(0);
    let controller = nodes.controller(0);
    let mut bytes = pattern(6, 200);
    let id = engine
        .with_local_memory(controller, &mut bytes, |local| {
            assert_eq!((local.len(), local.is_empty()), (200, false));
            let wait = &mut nodes.wait(0);
            engine.putv(import, &[put_handle(local.id(), 50, 0, 100)], NONE, wait)?;
            Ok(local.id())
        })
        .expect("done");
    assert_eq!(load(&memory[..100]), pattern(6, 200)[50..150]);
    assert_eq!(
        engine.free_local_memory(controller, id, &mut nodes.wait(0)),
        Err(RsmError::BadLocalMemoryHandle)
    );
    let failed: Result<(), _> =
        engine.with_local_memory(controller, &mut bytes, |_| Err(RsmError::BadMode));
    assert_eq!(failed, Err(RsmError::BadMode));
}

/// Spec: RSMPV-20, RSMPV-21, RSMPV-08
pub fn a_vector_may_be_polled_and_longer_than_sixteen<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, source) = nodes.local(0, PAGE, 1);
    let engine = nodes.engine(0);
    let entries: Vec<HandleEntry> = (0..100)
        .map(|at| handle(local, 40 * at, 40 * (99 - at), 40))
        .collect();
    let mut call = engine.start_putv(import, &entries, NONE).expect("begun");
    let mut before = 0;
    nodes.until("the end of the vector", || {
        let outcome = call.poll();
        let completed = call.completed();
        assert!(completed >= before);
        before = completed;
        outcome.map(|outcome| outcome.expect("a vector"))
    });
    drop(call);
    let (source, remote) = (load(source), load(memory));
    for at in 0..100 {
        let (from, to) = (40 * at, 40 * (99 - at));
        assert_eq!(source[from..from + 40], remote[to..to + 40]);
    }
    let (target, bytes) = nodes.local(0, PAGE, 2);
    let entries = [handle(target, 0, 0, PAGE as u64)];
    let mut call = engine.start_getv(import, &entries, NONE).expect("begun");
    nodes
        .until("the end of the vector", || call.poll())
        .expect("a vector");
    assert!(load(bytes) == remote);
}

/// Spec: RSMPV-14, RSMPV-08
pub fn freeing_waits_for_entries_that_are_not_begun<T: RsmTestbed>(bed: &T) {
    let mut interrupted = 0;
    for sleeps in 0..20 {
        let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
        let engine = nodes.engine(0);
        let controller = nodes.controller(0);
        let (first, _) = nodes.local(0, PAGE, 1);
        let (last, _) = nodes.local(0, PAGE, 1);
        // More entries than can be in flight; those of the second handle start last.
        let entries: Vec<_> = (0..40)
            .map(|at| put_handle(if at < 36 { first } else { last }, at * 50, at * 50, 50))
            .collect();
        let mut wait = nodes.hooked(0, sleeps, || {
            let impatient = &mut nodes.interrupted_after(0, 3);
            let freed = engine.free_local_memory(controller, last, impatient);
            // The vector does not progress here, so that the wait can only be interrupted.
            assert_eq!(freed, Err(RsmError::Interrupted));
            interrupted += 1;
        });
        let outcome = engine.putv(import, &entries, NONE, &mut wait);
        drop(wait);
        outcome.expect("the handle is there to the end of the vector");
        assert!(load(memory)[..2000] == pattern(1, PAGE)[..2000]);
        let wait = &mut nodes.wait(0);
        assert_eq!(engine.free_local_memory(controller, last, wait), Ok(()));
        crate::fixture::nodes::left(
            engine.putv(import, &entries, NONE, wait),
            RsmError::BadScatterGather,
            4,
        );
    }
    // On a device in real time the entries may end before the first sleep.
    assert!(interrupted > 0 || !bed.is_stepped());
}

/// Spec: RSMPV-14, RSMIM-10, RSMPV-21
pub fn nonblocking_vectors_delay_no_other<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 2, |mut options| {
        options.limits.calls = 6;
        options
    });
    let (_, mut import, memory) = nodes.segment(1);
    let engine = nodes.engine(0);
    let controller = nodes.controller(0);
    for round in 0..4 {
        let (local, _) = nodes.local(0, PAGE, round);
        let entries: Vec<HandleEntry> = (0..40).map(|at| handle(local, at, at, 1)).collect();
        let begin = || {
            let mut call = engine.start_putv(import, &entries, NONE).expect("begun");
            assert_eq!(call.poll(), None);
            call
        };
        core::mem::forget(begin());
        let mut held = begin();
        core::mem::forget(begin());
        let full = engine.start_putv(import, &entries, NONE).map(drop);
        crate::fixture::nodes::left(full, RsmError::InsufficientResources, 40);
        let wait = &mut nodes.wait(0);
        if round % 2 == 0 {
            assert_eq!(engine.free_local_memory(controller, local, wait), Ok(()));
        }
        assert_eq!(engine.import_disconnect(import, wait), Ok(()));
        if round % 2 == 1 {
            assert_eq!(engine.free_local_memory(controller, local, wait), Ok(()));
        }
        let before = load(memory);
        let ended = held.poll().expect("it ended");
        crate::fixture::nodes::left(ended, RsmError::BadSegmentHandle, 40);
        nodes.run_to_idle();
        assert!(load(memory) == before, "nothing came late");
        drop(held);
        import = nodes.import(0, 1, crate::fixture::nodes::SEGMENT);
    }
}
