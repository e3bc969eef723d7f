//! Mappings, on a backend that gives access to peer memory.

use dat_rsm::{ImportId, Permission, RsmError, Target, VectorFlags};

use crate::fixture::RsmTestbed;
use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, load, pattern, put, put_handle, store,
};

const ALL: Permission = Permission::all();
const BYTES: u64 = PAGE as u64;

/// Spec: RSMMP-01, RSMCT-20
pub fn controllers_report_if_segments_can_be_mapped<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let engine = nodes.engine(0);
    let attributes = engine.controller_attributes(nodes.controller(0));
    let (_, import, _) = nodes.segment(1);
    let expected = if attributes.expect("attributes").mapping {
        Ok(())
    } else {
        Err(RsmError::MapFailed)
    };
    assert_eq!(engine.import_map(import, ALL, 0, BYTES), expected);
}

/// Spec: RSMMP-01, RSMMP-03, RSMMP-10, RSMIM-10, RSMPV-80
pub fn a_mapping_is_loaded_from_and_stored_to<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 3);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    store(memory, 0, &pattern(4, 3 * PAGE));
    let mut bytes = [0; 100];
    let unmapped = Err(RsmError::SegmentNotMapped);
    assert_eq!(engine.map_load(import, 0, &mut bytes), unmapped);
    assert_eq!(engine.map_store(import, 0, &bytes), unmapped);
    assert_eq!(engine.import_unmap(import), unmapped);
    // The middle page.
    assert_eq!(engine.import_map(import, ALL, BYTES, BYTES), Ok(()));
    assert_eq!(
        engine.import_map(import, ALL, BYTES, BYTES),
        Err(RsmError::SegmentAlreadyMapped)
    );
    assert_eq!(engine.map_load(import, 7, &mut bytes), Ok(()));
    assert_eq!(bytes[..], pattern(4, 3 * PAGE)[PAGE + 7..][..100]);
    assert_eq!(engine.map_store(import, BYTES - 2, &[1, 2]), Ok(()));
    assert_eq!(load(&memory[2 * PAGE - 2..2 * PAGE]), [1, 2]);
    assert_eq!(engine.map_store(import, BYTES, &[]), Ok(()));
    assert_eq!(
        engine.map_store(import, BYTES - 1, &[1, 2]),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.map_load(import, BYTES + 1, &mut []),
        Err(RsmError::BadOffset)
    );
    // Single accesses must stay inside the mapping; vectors may reach all of the segment.
    let _barrier = nodes.barrier(0, import);
    assert_eq!(engine.put(import, BYTES, &[9], wait), Ok(()));
    assert_eq!(engine.put(import, 0, &[9], wait), Err(RsmError::BadOffset));
    assert_eq!(
        engine.put(import, 2 * BYTES - 1, &[9, 9], wait),
        Err(RsmError::BadOffset)
    );
    assert_eq!(
        engine.get(import, 2 * BYTES, &mut [0], wait),
        Err(RsmError::BadOffset)
    );
    engine
        .putv(import, &[put(&[8], 0)], VectorFlags::empty(), wait)
        .expect("a vector");
    assert_eq!(
        (load(&memory[..1]), load(&memory[PAGE..=PAGE])),
        (vec![8], vec![9])
    );
    assert_eq!(
        engine.import_disconnect(import, wait),
        Err(RsmError::SegmentStillMapped)
    );
    assert_eq!(engine.import_unmap(import), Ok(()));
    assert_eq!(engine.import_unmap(import), unmapped);
    assert_eq!(engine.put(import, 0, &[7], wait), Ok(()));
    assert_eq!(engine.import_disconnect(import, wait), Ok(()));
    assert_eq!(engine.import_unmap(import), Err(RsmError::BadSegmentHandle));
}

/// Spec: RSMMP-03, RSMMP-04, RSMGP-01, RSMGP-05, RSMBR-05
pub fn puts_and_gets_through_a_mapping_overtake_nothing<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 2);
    let engine = nodes.engine(0);
    let (local, source) = nodes.local(0, PAGE, 1);
    let barrier = nodes.barrier(0, import);
    let (one, two) = (pattern(5, PAGE), pattern(6, PAGE));
    let mut back = vec![0; PAGE];
    // An access without a transfer does not wait: this wait would end the call.
    let hasty = || nodes.interrupted_after(0, 0);
    // The backend has access to the memory, so that no mapping of the caller is needed.
    assert_eq!(engine.put(import, 9, &two[9..], &mut hasty()), Ok(()));
    assert!(load(&memory[9..PAGE]) == two[9..]);
    assert_eq!(engine.get(import, 9, &mut back[9..], &mut hasty()), Ok(()));
    assert!(back[9..] == two[9..]);
    // A mapping of the caller does not interfere.
    assert_eq!(
        engine.import_map(import, Permission::READ, 0, BYTES),
        Ok(())
    );
    store(memory, 0, &one);
    assert_eq!(engine.get(import, 0, &mut back, &mut hasty()), Ok(()));
    assert!(back == one);
    // This mapping is read-only; the connection may still write.
    let wait = &mut nodes.wait(0);
    assert_eq!(engine.put(import, 0, &two, wait), Ok(()));
    assert!(load(&memory[..PAGE]) == two);
    assert_eq!(engine.import_unmap(import), Ok(()));
    assert_eq!(engine.import_map(import, ALL, 0, BYTES), Ok(()));
    assert_eq!(engine.put(import, 0, &one, &mut hasty()), Ok(()));
    assert!(load(&memory[..PAGE]) == one);
    assert_eq!(engine.put(import, 7, &[], wait), Ok(()));
    // After a vector in flight it is a transfer, and the later one wins.
    let explicit = dat_rsm::BarrierMode::Explicit;
    assert_eq!(engine.set_mode(import, explicit), Ok(()));
    assert_eq!(engine.open_barrier(barrier), Ok(()));
    let entries = [put_handle(local, 0, 0, BYTES)];
    engine
        .putv(import, &entries, VectorFlags::empty(), wait)
        .expect("a vector");
    assert_eq!(engine.put(import, 0, &two[..100], wait), Ok(()));
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert!(load(&memory[..100]) == two[..100]);
    assert!(load(&memory[100..PAGE]) == load(source)[100..]);
    // Once the segment is gone no byte moves, and the caller gets an error.
    assert_eq!(
        nodes.engine(1).export_destroy(export, &mut nodes.wait(1)),
        Ok(())
    );
    let aborted = Err(RsmError::ConnectionAborted);
    assert_eq!(engine.put(import, 0, &one, wait), aborted);
    assert_eq!(engine.get(import, 0, &mut back, wait), aborted);
    assert!(load(&memory[..100]) == two[..100]);
    nodes.run_to_idle();
}

/// Spec: RSMMP-01, RSMMP-05
pub fn mappings_are_refused_in_order<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (export, _) = nodes.export(1, 2, SEGMENT);
    let reader = nodes
        .import_as(0, 1, SEGMENT, Permission::READ)
        .expect("a reader");
    let engine = nodes.engine(0);
    let read = Permission::READ;
    let map = |permission, offset, length| engine.import_map(reader, permission, offset, length);
    assert_eq!(
        engine.import_map(ImportId::NULL, read, 0, 1),
        Err(RsmError::BadSegmentHandle)
    );
    for permission in [
        ALL,
        Permission::WRITE,
        Permission::empty(),
        Permission::from_bits_retain(0o700),
    ] {
        assert_eq!(map(permission, 0, 0), Err(RsmError::BadPermissions));
    }
    assert_eq!(map(read, 9 * BYTES, 0), Err(RsmError::BadLength));
    assert_eq!(map(read, 2 * BYTES, 1), Err(RsmError::BadOffset));
    assert_eq!(map(read, 1, 2 * BYTES), Err(RsmError::BadLength));
    assert_eq!(map(read, 1, u64::MAX), Err(RsmError::BadLength));
    assert_eq!(map(read, 1, 1), Err(RsmError::BadMemoryAlignment));
    assert_eq!(map(read, BYTES, 10), Ok(()));
    assert_eq!(
        engine.map_store(reader, 0, &[1]),
        Err(RsmError::PermissionDenied)
    );
    assert_eq!(engine.map_load(reader, 0, &mut [1]), Ok(()));
    engine.import_unmap(reader).expect("unmapped");
    nodes
        .engine(1)
        .export_unpublish(export, &mut nodes.wait(1))
        .expect("unpublished");
    nodes.run_to_idle();
    assert_eq!(map(read, 1, 1), Err(RsmError::BadMemoryAlignment));
    assert_eq!(map(read, 0, 1), Err(RsmError::ConnectionAborted));
}

/// Spec: RSMST-02, RSMST-01, RSMMP-10, RSMBR-05, RSMPB-20
pub fn a_mapping_survives_its_segment_without_reaching_it<T: RsmTestbed>(bed: &T) {
    for known in [false, true] {
        let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
        let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
        engine.import_map(import, ALL, 0, BYTES).expect("mapped");
        let barrier = nodes.barrier(0, import);
        engine.open_barrier(barrier).expect("open");
        engine.map_store(import, 0, &[5]).expect("stored");
        assert_eq!(engine.close_barrier(barrier, &mut nodes.wait(0)), Ok(()));
        engine.open_barrier(barrier).expect("open");
        // The importer may learn of it only when it next polls its messages.
        if !known {
            nodes.stop(0);
        }
        exporter
            .export_unpublish(export, &mut nodes.wait(1))
            .expect("unpublished");
        store(memory, 0, &[0xEE; PAGE]);
        let mut bytes = [1; 4];
        assert_eq!(engine.map_store(import, 0, &[7; 4]), Ok(()));
        assert_eq!(engine.map_load(import, 0, &mut bytes), Ok(()));
        assert!(load(memory).iter().all(|byte| *byte == 0xEE));
        assert_ne!(bytes, [0xEE; 4], "what is the exporter's again is not seen");
        nodes.resume(0);
        let close = engine.close_barrier(barrier, &mut nodes.wait(0));
        if known {
            assert_eq!(close, Err(RsmError::ConnectionAborted));
        } else {
            assert!(close.is_err(), "{close:?}");
        }
        assert_eq!(engine.map_store(import, 0, &[7; 4]), Ok(()));
        assert_eq!(engine.import_unmap(import), Ok(()));
        assert_eq!(engine.import_disconnect(import, &mut nodes.wait(0)), Ok(()));
    }
}

/// Accesses need only their own right and leave no mapping.
///
/// Spec: RSMGP-06, RSMMP-04, RSMPV-E13, RSMPV-81
pub fn accesses_map_nothing_by_themselves<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (_, memory) = nodes.export(1, 1, SEGMENT);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let attributes = engine.controller_attributes(nodes.controller(0));
    let mapped = if attributes.expect("attributes").mapping {
        Ok(())
    } else {
        Err(RsmError::MapFailed)
    };
    for right in [Permission::WRITE, Permission::READ] {
        let import = nodes.import_as(0, 1, SEGMENT, right).expect("connected");
        let barrier = nodes.barrier(0, import);
        let flags = VectorFlags::empty();
        if right == Permission::WRITE {
            assert_eq!(engine.put(import, 0, &[1], wait), Ok(()));
            assert_eq!(engine.put_items(import, 8, &[2_u64], wait), Ok(()));
            assert_eq!(engine.putv(import, &[put(&[3], 1)], flags, wait), Ok(()));
            assert_eq!(load(&memory[..2]), [1, 3]);
        } else {
            let (mut one, mut items, mut other) = ([0], [0_u64], [0]);
            assert_eq!(engine.get(import, 0, &mut one, wait), Ok(()));
            assert_eq!(engine.get_items(import, 8, &mut items, wait), Ok(()));
            let mut entries = [get_entry(Target::Bytes(&mut other), 0, 1, 1)];
            assert_eq!(engine.getv(import, &mut entries, flags, wait), Ok(()));
            assert_eq!((one, items, other), ([1], [2], [3]));
        }
        assert_eq!(
            engine.import_unmap(import),
            Err(RsmError::SegmentNotMapped),
            "{right:?}"
        );
        assert_eq!(engine.import_map(import, right, 0, BYTES), mapped);
        if mapped.is_ok() {
            assert_eq!(engine.import_unmap(import), Ok(()));
        }
        assert_eq!(engine.destroy_barrier(barrier), Ok(()));
        assert_eq!(engine.import_disconnect(import, wait), Ok(()));
    }
}
