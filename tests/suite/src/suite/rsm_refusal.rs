//! Vectors that are refused, at once or at a later entry.

use crate::fixture::RsmTestbed;
use dat_rsm::{
    Handle, ImportId, LocalAccess, LocalMemoryId, Permission, PutEntry, RsmError, Source, Target,
    VectorFlags,
};

use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, left, load, pages_of, pattern, put, put_handle,
};
use dat_core::memory::Region;

const NONE: VectorFlags = VectorFlags::empty();

/// Spec: RSMPV-E01, RSMPV-08, RSMPV-58
pub fn an_empty_vector_is_refused<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    left(
        engine.putv(import, &[], NONE, wait),
        RsmError::BadScatterGather,
        0,
    );
    left(
        engine.getv(import, &mut [], NONE, wait),
        RsmError::BadScatterGather,
        0,
    );
}

/// Spec: RSMPV-E02, RSMGEN-05, RSMPV-58
pub fn only_a_live_import_takes_vectors<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (own, _) = nodes.export(0, 1, SEGMENT);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let freed = nodes.import(0, 1, SEGMENT);
    engine.import_disconnect(freed, wait).expect("disconnected");
    let entries = [put(&[1, 2], 0), put(&[3], 5)];
    for bad in [
        ImportId::NULL,
        freed,
        ImportId::from_handle(own.handle()),
        ImportId::from_handle(export.handle()),
        ImportId::from_handle(Handle::from_raw(u64::MAX)),
        ImportId::from_handle(Handle::from_raw(import.handle().to_raw() ^ 1)),
        ImportId::from_handle(Handle::from_raw(import.handle().to_raw() ^ 1 << 20)),
    ] {
        left(
            engine.putv(bad, &entries, NONE, wait),
            RsmError::BadSegmentHandle,
            2,
        );
        let mut byte = [0];
        let target = Target::Bytes(&mut byte);
        let mut get = [get_entry(target, 0, 0, 1)];
        left(
            engine.getv(bad, &mut get, NONE, wait),
            RsmError::BadSegmentHandle,
            1,
        );
    }
    // The handle is checked before the count.
    left(
        engine.putv(freed, &[], NONE, wait),
        RsmError::BadSegmentHandle,
        0,
    );
    // The handle of another process is invalid here.
    left(
        nodes
            .engine(1)
            .putv(import, &entries, NONE, &mut nodes.wait(1)),
        RsmError::BadSegmentHandle,
        2,
    );
}

/// Spec: RSMPV-E03, RSMCT-11
pub fn a_released_controller_has_its_own_error<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    engine
        .release_controller(nodes.controller(0), wait)
        .expect("released");
    let entries = [put(&[1], 0)];
    left(
        engine.putv(import, &entries, NONE, wait),
        RsmError::BadControllerHandle,
        1,
    );
    // The reopened controller has another handle.
    engine.get_controller(Some("rsm0")).expect("open again");
    left(
        engine.putv(import, &entries, NONE, wait),
        RsmError::BadControllerHandle,
        1,
    );
    assert_eq!(
        engine.put(import, 0, &[1], wait),
        Err(RsmError::BadSegmentHandle)
    );
    engine
        .import_disconnect(import, wait)
        .expect("disconnected all the same");
    assert!(load(memory).iter().all(|byte| *byte == 0));
}

/// Spec: RSMPV-E07, RSMPV-81, RSMPV-58
pub fn each_direction_needs_its_right<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (_, memory) = nodes.export(1, 1, SEGMENT);
    let reader = nodes
        .import_as(0, 1, SEGMENT, Permission::READ)
        .expect("a reader");
    let writer = nodes
        .import_as(0, 1, SEGMENT, Permission::WRITE)
        .expect("a writer");
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let entries = [put(&[7], 3), put(&[8], 9_999_999)];
    // The right is checked before the entries.
    left(
        engine.putv(reader, &entries, NONE, wait),
        RsmError::PermissionDenied,
        2,
    );
    engine
        .putv(writer, &entries[..1], NONE, wait)
        .expect("written");
    assert_eq!(load(memory)[3], 7);
    for (import, expected) in [(writer, Err(RsmError::PermissionDenied)), (reader, Ok(()))] {
        let mut byte = [0];
        let target = Target::Bytes(&mut byte);
        let mut get = [get_entry(target, 0, 3, 1)];
        let outcome = engine.getv(import, &mut get, NONE, wait);
        assert_eq!(outcome.map_err(|failure| failure.error), expected);
        assert_eq!(byte[0], if expected.is_ok() { 7 } else { 0 });
    }
}

/// A bad entry of any kind at any index ends the vector there.
///
/// The error, the residual count and the completed entries are exact, and the connection lives.
///
/// Spec: RSMPV-50, RSMPV-51, RSMPV-52, RSMPV-54, RSMPV-56, RSMPV-57, RSMPV-59, RSMPV-60, RSMPV-E01,
/// RSMPV-E04, RSMPV-E05, RSMPV-E06, RSMPV-09, RSMPV-12, RSMPV-61
pub fn a_bad_entry_ends_the_vector_at_its_index<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let (local, _) = nodes.local(0, 100, 1);
    let (freed, _) = nodes.local(0, 100, 1);
    let controller = nodes.controller(0);
    engine
        .free_local_memory(controller, freed, wait)
        .expect("freed");
    let (foreign, _) = nodes.local(1, 100, 1);
    let page = PAGE as u64;
    let bytes = pattern(5, 100);
    let all = |local: Source<'static>, a, b, c| PutEntry {
        local,
        local_offset: a,
        remote_offset: b,
        length: c,
    };
    let mut bad: Vec<(PutEntry<'_>, RsmError)> = vec![
        (put_handle(freed, 0, 0, 1), RsmError::BadScatterGather),
        (put_handle(foreign, 0, 0, 1), RsmError::BadScatterGather),
        (
            put_handle(LocalMemoryId::NULL, 0, 0, 1),
            RsmError::BadScatterGather,
        ),
        (
            put_handle(LocalMemoryId::from_handle(import.handle()), 0, 0, 1),
            RsmError::BadScatterGather,
        ),
    ];
    for (offset, remote, length, error) in [
        (101, 0, 0, RsmError::BadOffset),
        (u64::MAX, 0, 2, RsmError::BadOffset),
        (0, page + 1, 0, RsmError::BadOffset),
        (0, u64::MAX, 2, RsmError::BadOffset),
        // A bad offset at either end is reported before a bad length.
        (0, page + 1, 101, RsmError::BadOffset),
        (1, 0, 100, RsmError::BadLength),
        (100, 0, 1, RsmError::BadLength),
        (0, page, 1, RsmError::BadLength),
        (0, page - 5, 6, RsmError::BadLength),
        (50, 0, u64::MAX, RsmError::BadLength),
        (0, 5, u64::MAX - 2, RsmError::BadLength),
    ] {
        bad.push((all(Source::Handle(local), offset, remote, length), error));
        let immediate = PutEntry {
            local_offset: offset,
            remote_offset: remote,
            length,
            ..put(&bytes, 0)
        };
        bad.push((immediate, error));
    }
    let count = 5;
    for (entry, error) in &bad {
        for index in 0..count {
            for cell in memory {
                cell.store(0, core::sync::atomic::Ordering::Relaxed);
            }
            let good = [11, 22, 33, 44, 55];
            let mut entries: Vec<_> = good
                .iter()
                .enumerate()
                .map(|(at, byte)| put(core::slice::from_ref(byte), at as u64 * 10))
                .collect();
            entries[index] = *entry;
            let outcome = engine.putv(import, &entries, NONE, wait);
            left(outcome, *error, count - index);
            let remote = load(memory);
            for (at, byte) in good.iter().enumerate() {
                let expected = if at < index { *byte } else { 0 };
                assert_eq!(remote[at * 10], expected, "{entry:?} at {index}");
            }
            // The corrected rest completes on the same handle.
            entries[index] = put(&good[index..=index], index as u64 * 10);
            engine
                .putv(import, &entries[index..], NONE, wait)
                .expect("the connection lives");
            let remote = load(memory);
            assert!(
                good.iter()
                    .enumerate()
                    .all(|(at, byte)| remote[at * 10] == *byte)
            );
        }
    }
}

/// Spec: RSMPV-50, RSMPV-54, RSMPV-57, RSMPV-E05, RSMPV-E06, RSMPV-15, RSMPV-E04, RSMLH-05
pub fn a_bad_entry_ends_a_getv_at_its_index<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    crate::fixture::nodes::store(memory, 0, &pattern(3, PAGE));
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let read_only = engine
        .create_local_memory(
            nodes.controller(0),
            Region::from_static(&pages_of(1)[..100]),
            LocalAccess::ReadOnly,
        )
        .expect("local memory");
    for index in 0..3 {
        for (remote_offset, length, error) in [
            (PAGE as u64 + 1, 1, RsmError::BadOffset),
            (PAGE as u64, 1, RsmError::BadLength),
            (0, 2, RsmError::BadLength),
        ] {
            let mut bytes = [[0]; 3];
            let mut entries: Vec<_> = bytes
                .iter_mut()
                .map(|byte| get_entry(Target::Bytes(byte), 0, 17, 1))
                .collect();
            entries[index].remote_offset = remote_offset;
            entries[index].length = length;
            left(
                engine.getv(import, &mut entries, NONE, wait),
                error,
                3 - index,
            );
            let expected = pattern(3, PAGE)[17];
            for (at, byte) in bytes.iter().enumerate() {
                assert_eq!(byte[0], if at < index { expected } else { 0 });
            }
        }
    }
    // Read-only memory is a source but no target.
    let mut entries = [get_entry(Target::Handle(read_only), 0, 0, 1)];
    left(
        engine.getv(import, &mut entries, NONE, wait),
        RsmError::BadAddress,
        1,
    );
    engine
        .putv(import, &[put_handle(read_only, 0, 0, 100)], NONE, wait)
        .expect("a source");
    assert!(load(memory)[..100].iter().all(|byte| *byte == 0));
}

/// Spec: RSMPV-61
pub fn empty_entries_are_done_without_moving_anything<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, _) = nodes.local(0, 100, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let entries = [
        put_handle(local, 100, PAGE as u64, 0),
        put(&[], 0),
        put(&[9], 4),
        put(&[], PAGE as u64),
    ];
    engine.putv(import, &entries, NONE, wait).expect("done");
    let mut expected = vec![0; PAGE];
    expected[4] = 9;
    assert!(load(memory) == expected);
    engine
        .putv(import, &entries[..2], NONE, wait)
        .expect("nothing but empty entries");
}

/// Spec: RSMPV-13
pub fn a_handle_of_another_controller_is_refused<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with_controllers(bed, 2, &["rsm0", "rsm1"], |options| options);
    let (_, import, _) = nodes.segment(1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let other = engine
        .get_controller(Some("rsm1"))
        .expect("another controller");
    let local = engine
        .create_local_memory(
            other,
            Region::from_static(&pages_of(1)[..10]),
            LocalAccess::ReadWrite,
        )
        .expect("local memory");
    let entries = [put(&[1], 0), put_handle(local, 0, 1, 1)];
    left(
        engine.putv(import, &entries, NONE, wait),
        RsmError::BadScatterGather,
        1,
    );
}

/// Handles of one engine are invalid in another, also in the same process.
///
/// Spec: RSMGEN-03, RSMGEN-05
pub fn handles_of_another_engine_are_refused<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, _) = nodes.local(0, PAGE, 5);
    let barrier = nodes.barrier(0, import);
    let controller = nodes.controller(0);
    // The other engine has as many objects, in the same slots.
    nodes.export(0, 1, SEGMENT);
    let own = nodes.import(1, 0, SEGMENT);
    nodes.local(1, PAGE, 6);
    nodes.barrier(1, own);
    let (other, wait) = (nodes.engine(1), &mut nodes.wait(1));
    let bad = RsmError::BadSegmentHandle;
    assert_eq!(other.import_length(import), Err(bad));
    assert_eq!(other.import_disconnect(import, wait), Err(bad));
    left(other.putv(import, &[put(&[1], 0)], NONE, wait), bad, 1);
    left(
        other.putv(own, &[put_handle(local, 0, 0, 1)], NONE, wait),
        RsmError::BadScatterGather,
        1,
    );
    assert_eq!(
        other.open_barrier(barrier),
        Err(RsmError::BarrierUninitialized)
    );
    assert_eq!(
        other.controller_attributes(controller).map(|_| ()),
        Err(RsmError::BadControllerHandle)
    );
    assert_eq!(
        other.free_local_memory(controller, local, wait),
        Err(RsmError::BadControllerHandle)
    );
    assert_eq!(
        other.free_local_memory(nodes.controller(1), local, wait),
        Err(RsmError::BadLocalMemoryHandle)
    );
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    assert_eq!(engine.export_unpublish(export, wait), Err(bad));
    assert_eq!(engine.export_destroy(export, wait), Err(bad));
    // The refused calls had no effect.
    engine
        .putv(import, &[put_handle(local, 0, 0, 9)], NONE, wait)
        .expect("a vector");
    assert!(load(memory)[..9] == pattern(5, 9));
}

/// A call without a free call slot moves nothing; it works once another call has ended.
///
/// Spec: RSMPV-52, RSMPV-58, RSMPV-E10
pub fn a_call_too_many_moves_nothing<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 2, |mut options| {
        options.limits.calls = 1;
        options
    });
    let (_, import, memory) = nodes.segment(1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let (local, _) = nodes.local(0, 8, 3);
    let other = [crate::fixture::nodes::handle(local, 0, 0, 8)];
    let call = engine.start_putv(import, &other, NONE).expect("a vector");
    let full = RsmError::InsufficientResources;
    left(
        engine.putv(import, &[put(&[1], 9), put(&[2], 10)], NONE, wait),
        full,
        2,
    );
    let mut bytes = [7; 2];
    let mut get = [get_entry(Target::Bytes(&mut bytes), 0, 0, 2)];
    left(engine.getv(import, &mut get, NONE, wait), full, 1);
    assert_eq!(bytes, [7; 2]);
    drop(call);
    nodes.run_to_idle();
    assert_eq!(load(&memory[9..11]), [0; 2]);
    let outcome = engine.putv(import, &[put(&[1], 9), put(&[2], 10)], NONE, wait);
    assert_eq!(outcome, Ok(()));
    assert_eq!(load(&memory[9..11]), [1, 2]);
}

/// Without memory a call ends at its first transfer, after all faults of arguments.
///
/// Spec: RSMGEN-12, RSMPV-52, RSMPV-57, RSMPV-58, RSMPV-E10, RSMGP-05
pub fn a_call_without_memory_moves_nothing<T: RsmTestbed>(bed: &T) {
    let mut nodes = Nodes::two(bed);
    let (_, import, memory) = nodes.segment(1);
    let reader = nodes.import(0, 1, SEGMENT);
    nodes.nodes[0].engine.ask_for_memory(|| false);
    let (engine, mut wait) = (nodes.engine(0), nodes.wait(0));
    let (local, _) = nodes.local(0, 8, 3);
    let (none, beyond) = (RsmError::InsufficientResources, PAGE as u64 + 1);
    let good = [put(&[1], 9), put_handle(local, 0, 10, 2)];
    for (entries, error, residual) in [
        (&good[..], none, 2),
        (&good[1..], none, 1),
        (&[put(&[], 0), good[0], put(&[1], beyond)], none, 2),
        (&[put(&[1], beyond), good[0]], RsmError::BadOffset, 2),
        (&[put(&[], 0), put(&[1], beyond)], RsmError::BadOffset, 1),
        (&[], RsmError::BadScatterGather, 0),
    ] {
        let outcome = engine.putv(import, entries, NONE, &mut wait);
        left(outcome, error, residual);
    }
    let mut bytes = [7; 2];
    let mut get = [get_entry(Target::Bytes(&mut bytes), 0, 0, 2)];
    left(engine.getv(reader, &mut get, NONE, &mut wait), none, 1);
    assert_eq!(bytes, [7; 2]);
    drop(wait);
    nodes.run_to_idle();
    assert_eq!(load(&memory[9..12]), [0; 3]);
    nodes.nodes[0].engine.ask_for_memory(|| true);
    let outcome = nodes
        .engine(0)
        .putv(import, &good, NONE, &mut nodes.wait(0));
    assert_eq!(outcome, Ok(()));
    assert_eq!(load(&memory[9..10]), [1]);
}
