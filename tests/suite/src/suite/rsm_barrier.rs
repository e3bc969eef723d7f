//! Barriers and barrier modes.

use crate::fixture::RsmTestbed;
use dat_rsm::{BarrierId, BarrierMode, BarrierScope, ImportId, RsmError, VectorFlags};

use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, left, load, pattern, put, put_handle, set_mode,
};

const NONE: VectorFlags = VectorFlags::empty();

/// Spec: RSMMD-01, RSMMD-02, RSMMD-03, RSMIM-04
pub fn imports_begin_in_implicit_mode<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
    let other = nodes.import(0, 1, SEGMENT);
    let engine = nodes.engine(0);
    assert_eq!(engine.mode(import), Ok(BarrierMode::Implicit));
    set_mode(engine, import, BarrierMode::Explicit);
    assert_eq!(engine.mode(import), Ok(BarrierMode::Explicit));
    assert_eq!(engine.mode(other), Ok(BarrierMode::Implicit));
    assert_eq!(engine.mode(ImportId::NULL), Err(RsmError::BadSegmentHandle));
    assert_eq!(
        engine.set_mode(ImportId::NULL, BarrierMode::Implicit),
        Err(RsmError::BadSegmentHandle)
    );
    for number in 0..5 {
        let mode = BarrierMode::from_number(number);
        match number {
            0 => assert_eq!(mode, Ok(BarrierMode::Explicit)),
            1 => assert_eq!(mode, Ok(BarrierMode::Implicit)),
            _ => assert_eq!(mode, Err(RsmError::BadMode)),
        }
    }
}

/// Spec: RSMBR-01, RSMBR-02, RSMBR-03, RSMBR-04, RSMBR-10, RSMBR-11
pub fn a_barrier_is_made_opened_closed_and_destroyed<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    for bad in [ImportId::NULL, ImportId::from_handle(export.handle())] {
        assert_eq!(
            engine.init_barrier(bad, BarrierScope::Node),
            Err(RsmError::BadSegmentHandle)
        );
    }
    for scope in [
        BarrierScope::Segment,
        BarrierScope::Node,
        BarrierScope::SegmentThread,
        BarrierScope::NodeThread,
        BarrierScope::default(),
    ] {
        let barrier = engine.init_barrier(import, scope).expect("a barrier");
        assert_eq!(
            engine.close_barrier(barrier, wait),
            Err(RsmError::BarrierNotOpened)
        );
        assert_eq!(
            engine.order_barrier(barrier, wait),
            Err(RsmError::BarrierNotOpened)
        );
        assert_eq!(engine.open_barrier(barrier), Ok(()));
        assert_eq!(engine.open_barrier(barrier), Ok(()));
        assert_eq!(engine.order_barrier(barrier, wait), Ok(()));
        assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
        assert_eq!(
            engine.close_barrier(barrier, wait),
            Err(RsmError::BarrierNotOpened)
        );
        assert_eq!(engine.destroy_barrier(barrier), Ok(()));
        let freed = Err(RsmError::BarrierUninitialized);
        assert_eq!(engine.destroy_barrier(barrier), freed);
        assert_eq!(engine.open_barrier(barrier), freed);
        assert_eq!(engine.close_barrier(barrier, wait), freed);
        assert_eq!(engine.order_barrier(barrier, wait), freed);
        assert_eq!(engine.open_barrier(BarrierId::NULL), freed);
    }
    let barrier = nodes.barrier(0, import);
    engine.open_barrier(barrier).expect("open");
    engine
        .import_disconnect(import, wait)
        .expect("disconnected");
    assert_eq!(
        engine.open_barrier(barrier),
        Err(RsmError::BadSegmentHandle)
    );
    assert_eq!(
        engine.close_barrier(barrier, wait),
        Err(RsmError::BadSegmentHandle)
    );
    assert_eq!(engine.destroy_barrier(barrier), Ok(()));
}

/// Spec: RSMPV-40, RSMPV-41, RSMPV-43, RSMPV-45, RSMBR-05, RSMBR-08
pub fn in_explicit_mode_the_close_completes_all_transfers<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 4);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let barrier = nodes.barrier(0, import);
    set_mode(engine, import, BarrierMode::Explicit);
    let (local, source) = nodes.local(0, 4 * PAGE, 3);
    engine.open_barrier(barrier).expect("open");
    for page in 0..4 {
        let page = page * PAGE as u64;
        let entries: Vec<_> = (0..16)
            .map(|at| put_handle(local, page + at * 256, page + at * 256, 256))
            .collect();
        engine.putv(import, &entries, NONE, wait).expect("begun");
    }
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert!(load(memory) == load(source));
    // Reads are covered as well, and return the written bytes.
    let (target, bytes) = nodes.local(0, 4 * PAGE, 4);
    engine.open_barrier(barrier).expect("open");
    let mut entries = [get_entry(
        dat_rsm::Target::Handle(target),
        0,
        0,
        4 * PAGE as u64,
    )];
    engine
        .getv(import, &mut entries, NONE, wait)
        .expect("begun");
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert!(load(bytes) == load(source));
}

/// Spec: RSMPV-42, RSMPV-44, RSMPV-54, RSMPV-57
pub fn in_explicit_mode_bad_entries_are_still_refused_at_once<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let (local, _) = nodes.local(0, 64, 3);
    set_mode(engine, import, BarrierMode::Explicit);
    // Vectors in explicit mode are legal without an open barrier, too.
    for index in 0..4 {
        let mut entries = [
            put_handle(local, 0, 0, 16),
            put(&[1; 16], 16),
            put_handle(local, 0, 32, 16),
            put(&[2; 16], 48),
        ];
        entries[index].remote_offset = PAGE as u64 + 1;
        left(
            engine.putv(import, &entries, NONE, wait),
            RsmError::BadOffset,
            4 - index,
        );
    }
    let barrier = nodes.barrier(0, import);
    engine.open_barrier(barrier).expect("open");
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    let mut expected = [[0; 16]; 4];
    expected[0].copy_from_slice(&pattern(3, 16));
    expected[1] = [1; 16];
    expected[2].copy_from_slice(&pattern(3, 16));
    assert_eq!(load(&memory[..64]), expected.concat());
}

/// Spec: RSMBR-07
pub fn order_separates_writes_before_from_writes_after<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let barrier = nodes.barrier(0, import);
    set_mode(engine, import, BarrierMode::Explicit);
    let (local, _) = nodes.local(0, 256, 3);
    engine.open_barrier(barrier).expect("open");
    engine
        .putv(import, &[put_handle(local, 0, 0, 256)], NONE, wait)
        .expect("begun");
    assert_eq!(engine.order_barrier(barrier, wait), Ok(()));
    assert_eq!(
        load(&memory[..256]),
        pattern(3, 256),
        "done before anything later begins"
    );
    engine
        .putv(import, &[put_handle(local, 0, 256, 256)], NONE, wait)
        .expect("begun");
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert_eq!(load(&memory[256..512]), pattern(3, 256));
}

/// Spec: RSMPV-34, RSMPV-35, RSMMD-02
pub fn implicit_vectors_need_no_barrier_and_leave_open_ones_alone<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    engine
        .putv(import, &[put(&[1], 0)], NONE, wait)
        .expect("no barrier is needed");
    let barrier = nodes.barrier(0, import);
    engine.open_barrier(barrier).expect("open");
    let (local, _) = nodes.local(0, 64, 3);
    set_mode(engine, import, BarrierMode::Explicit);
    engine
        .putv(import, &[put_handle(local, 0, 64, 64)], NONE, wait)
        .expect("begun");
    set_mode(engine, import, BarrierMode::Implicit);
    engine
        .putv(import, &[put(&[2], 1)], NONE, wait)
        .expect("done");
    assert_eq!(load(&memory[..2]), [1, 2]);
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()), "still open");
    assert_eq!(load(&memory[64..128]), pattern(3, 64));
}
