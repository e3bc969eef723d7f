//! Accesses to single buffers and items.

use crate::fixture::RsmTestbed;
use dat_rsm::{BarrierMode, ImportId, Permission, RsmError};

use crate::fixture::nodes::{Nodes, PAGE, SEGMENT, load, pattern, set_mode};

/// Spec: RSMGP-01, RSMGP-05, RSMGP-07, RSMBR-03
pub fn put_bytes_come_back_by_get<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 2);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let bytes = pattern(3, 5000);
    let mut back = vec![0; 5000];
    // Implicit mode needs a barrier, explicit mode does not.
    let uninitialized = Err(RsmError::BarrierUninitialized);
    assert_eq!(engine.put(import, 77, &bytes, wait), uninitialized);
    assert_eq!(engine.get(import, 77, &mut back, wait), uninitialized);
    assert!(load(memory).iter().all(|byte| *byte == 0));
    set_mode(engine, import, BarrierMode::Explicit);
    assert_eq!(engine.put(import, 0, &[5], wait), Ok(()));
    set_mode(engine, import, BarrierMode::Implicit);
    let barrier = nodes.barrier(0, import);
    let spare = nodes.barrier(0, import);
    assert_eq!(engine.put(import, 77, &bytes, wait), Ok(()));
    assert!(load(&memory[77..5077]) == bytes);
    assert_eq!(engine.get(import, 77, &mut back, wait), Ok(()));
    assert!(back == bytes);
    assert_eq!(engine.put(import, 2 * PAGE as u64, &[], wait), Ok(()));
    engine.destroy_barrier(barrier).expect("destroyed");
    assert_eq!(engine.put(import, 0, &[6], wait), Ok(()), "one is left");
    engine.destroy_barrier(spare).expect("destroyed");
    assert_eq!(engine.put(import, 0, &[7], wait), uninitialized);
    assert_eq!(load(&memory[..1]), [6]);
}

/// Spec: RSMGP-05, RSMGP-07, RSMGP-08
pub fn single_accesses_are_refused_in_order<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (export, _) = nodes.export(1, 1, SEGMENT);
    let reader = nodes
        .import_as(0, 1, SEGMENT, Permission::READ)
        .expect("a reader");
    let writer = nodes
        .import_as(0, 1, SEGMENT, Permission::WRITE)
        .expect("a writer");
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let page = PAGE as u64;
    let bad = ImportId::NULL;
    assert_eq!(
        engine.put(bad, 0, &[1], wait),
        Err(RsmError::BadSegmentHandle)
    );
    assert_eq!(
        engine.put_items(bad, 1, &[1_u16], wait),
        Err(RsmError::BadSegmentHandle)
    );
    // The order is: alignment, rights, offsets, lengths, barrier.
    assert_eq!(
        engine.put_items(reader, page + 1, &[1_u16], wait),
        Err(RsmError::BadMemoryAlignment)
    );
    assert_eq!(
        engine.put_items(reader, page * 2, &[1_u16], wait),
        Err(RsmError::PermissionDenied)
    );
    assert_eq!(
        engine.put(reader, page * 2, &[1], wait),
        Err(RsmError::PermissionDenied)
    );
    assert_eq!(
        engine.get(writer, page * 2, &mut [1], wait),
        Err(RsmError::PermissionDenied)
    );
    assert_eq!(
        engine.put(writer, page + 1, &[1; 9], wait),
        Err(RsmError::BadOffset)
    );
    assert_eq!(
        engine.put_items(writer, page * 2, &[1_u16], wait),
        Err(RsmError::BadOffset)
    );
    assert_eq!(
        engine.put(writer, page - 1, &[1; 2], wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.put(writer, page, &[1], wait),
        Err(RsmError::BadLength)
    );
    let nothing: &[u64] = &[];
    assert_eq!(
        engine.put_items(writer, page + 8, nothing, wait),
        Err(RsmError::BadOffset)
    );
    assert_eq!(
        engine.put_items(writer, page - 8, &[1_u64; 2], wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.get_items(reader, page - 8, &mut [1_u64; 2], wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(
        engine.put(writer, 0, &[1], wait),
        Err(RsmError::BarrierUninitialized)
    );
    let barrier = nodes.barrier(0, writer);
    assert_eq!(
        engine.put_items(writer, page - 8, &[1_u64; 2], wait),
        Err(RsmError::BadLength)
    );
    assert_eq!(engine.put(writer, 0, &[1], wait), Ok(()));
    nodes
        .engine(1)
        .export_unpublish(export, &mut nodes.wait(1))
        .expect("unpublished");
    nodes.run_to_idle();
    assert_eq!(
        engine.put(writer, page + 1, &[1], wait),
        Err(RsmError::ConnectionAborted)
    );
    assert_eq!(
        engine.put_items(writer, 1, &[1_u16], wait),
        Err(RsmError::BadMemoryAlignment)
    );
    assert_eq!(engine.destroy_barrier(barrier), Ok(()));
}

/// Spec: RSMGP-01, RSMGP-02, RSMGP-03
pub fn items_of_every_size_come_back_by_get<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 2);
    let _barrier = nodes.barrier(0, import);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    macro_rules! check {
        ($($number:ty)*) => {$({
            // More items than fit into one transfer.
            let items: Vec<$number> = (0..700_u64)
                .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 3) as $number)
                .collect();
            engine.put_items(import, 16, &items, wait).expect("put");
            let bytes: Vec<u8> = items.iter().flat_map(|item| item.to_ne_bytes()).collect();
            assert!(load(&memory[16..16 + bytes.len()]) == bytes);
            let mut back = vec![0; items.len()];
            engine.get_items(import, 16, &mut back, wait).expect("got");
            assert!(back == items);
        })*};
    }
    check!(u8 u16 u32 u64);
    for offset in 1..8 {
        let aligned = |size: u64| offset % size == 0;
        let expected = |size| {
            if aligned(size) {
                Ok(())
            } else {
                Err(RsmError::BadMemoryAlignment)
            }
        };
        assert_eq!(engine.put_items(import, offset, &[1_u8], wait), Ok(()));
        assert_eq!(
            engine.put_items(import, offset, &[1_u16], wait),
            expected(2)
        );
        assert_eq!(
            engine.put_items(import, offset, &[1_u32], wait),
            expected(4)
        );
        assert_eq!(
            engine.get_items(import, offset, &mut [1_u64], wait),
            expected(8)
        );
    }
}
