//! Segments and connections to them: transfers, mappings, ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_host::rsm::{
    AccessEntry, BarrierMode, BarrierScope, Export, Permission, Put, RsmError, VectorFlags,
};
use dat_host::{Error, Foreign, Pages};
use futures::executor::block_on;

use super::common;
use super::pair::{Owner, Pair, access, counted, exchange, is_unmapped, node, reason, short};

#[test]
fn segments_are_put_got_and_signaled() {
    exchange(&Pair::new());
}

#[cfg(feature = "roce")]
#[test]
fn segments_are_put_got_and_signaled_over_udp() {
    let far = node(2).listen(7176).peer(1, "127.0.0.37:0");
    let near = node(1).peer(2, "127.0.0.38:7176");
    let far = far.open("roce://127.0.0.38").unwrap();
    exchange(&Pair::of(near.open("roce://127.0.0.37").unwrap(), far));
}

#[test]
fn calls_are_futures_that_go_on_without_their_program() {
    let pair = Pair::new();
    let Pair { export, import, .. } = &pair;
    block_on(async {
        // A signal that comes only after its wait began.
        let signaled = export.signaled().start();
        let puts = (0..16_u64).map(|number| import.put(number * 64, vec![number as u8; 64]));
        futures::future::try_join_all(puts.map(|put| put.start()))
            .await
            .unwrap();
        import.signal().await.unwrap();
        signaled.await.unwrap();
    });
    let mut row = [0; 64];
    export.load(15 * 64, &mut row).unwrap();
    assert_eq!(row, [15; 64]);
    // Its future is dropped; the put goes on, and owns its bytes.
    let bytes: Arc<[u8]> = Arc::from(vec![8; 4096]);
    drop(import.put(8192, Arc::clone(&bytes)).start());
    common::eventually("the put ends", || {
        let mut last = [0];
        export.load(8192 + 4095, &mut last).unwrap();
        last == [8] && Arc::strong_count(&bytes) == 1
    });
    // A call that is never made does nothing.
    drop(import.put(0, vec![255; 64]));
    assert_eq!(import.get(0, [1; 64]).wait().unwrap(), [0; 64]);
}

#[test]
fn barriers_complete_transfers_in_explicit_mode() {
    let pair = Pair::new();
    let Pair { export, import, .. } = &pair;
    let barrier = import.barrier(BarrierScope::Segment).unwrap();
    assert_eq!(reason(barrier.close().wait()), RsmError::BarrierNotOpened);
    import.set_mode(BarrierMode::Explicit).unwrap();
    barrier.open().unwrap();
    for number in 0..32_u64 {
        drop(import.put(number * 128, vec![3; 128]).wait().unwrap());
    }
    barrier.order().wait().unwrap();
    barrier.close().wait().unwrap();
    let mut bytes = vec![0; 32 * 128];
    export.load(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 3));
}

#[test]
fn a_mapping_bounds_puts() {
    let Pair { export, import, .. } = &Pair::new();
    if is_unmapped(import) {
        return;
    }
    import.map(Permission::all(), 4096, 4096).unwrap();
    import.put(4096, vec![5; 4096]).wait().unwrap();
    assert!(import.put(4095, [5; 2]).wait().is_err());
    let again = import.map(Permission::all(), 0, 4096);
    assert_eq!(reason(again), RsmError::SegmentAlreadyMapped);
    import.unmap().unwrap();
    assert_eq!(reason(import.unmap()), RsmError::SegmentNotMapped);
    import.put(4095, [5; 2]).wait().unwrap();
    let mut byte = [0];
    export.load(4095, &mut byte).unwrap();
    assert_eq!(byte, [5]);
}

#[test]
fn a_mapped_connection_ends() {
    let network = common::network();
    let far = node(2).listen(7).peer(1, "near:0").network(&network);
    let near = node(1).peer(2, "far:7").network(&network);
    let far = far.open("mock://far").unwrap();
    let near = near.open("mock://near").unwrap();
    let export = far.export(Pages::anonymous(4096).unwrap()).unwrap();
    let id = export.publish(0, &access(0o666)).unwrap();
    if is_unmapped(&near.import(2, id, Permission::all()).wait().unwrap()) {
        return;
    }
    let mapped = || {
        let import = near.import(2, id, Permission::all()).wait()?;
        import.map(Permission::all(), 0, 4096)?;
        Ok::<_, Error>(import)
    };
    mapped().unwrap().disconnect().wait().unwrap();
    // More than the node has room for at a time; each is dropped.
    for _ in 0..1100 {
        common::eventually("there is room", || mapped().is_ok());
    }
}

#[test]
fn a_disconnect_ends_one_connection() {
    let pair = Pair::new();
    let id = pair.export.unpublish().wait();
    id.unwrap();
    let id = pair.export.publish(0, &access(0o666)).unwrap();
    let connect = || pair.near.import(2, id, Permission::all()).wait().unwrap();
    let (first, second, third) = (connect(), connect(), connect());
    block_on(async { first.disconnect().await }).unwrap();
    second.disconnect().wait().unwrap();
    third.put(0, [1; 8]).wait().unwrap();
    // A disconnect by a call that is never made.
    drop(third.disconnect());
    connect().put(0, [1; 8]).wait().unwrap();
}

#[test]
fn an_unaligned_parameter_is_named() {
    let pair = Pair::new();
    let refused = pair.far.export(short()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "shared memory: length 0x64 is not a multiple of 0x1000"
    );
    assert_eq!(
        reason(Err::<(), _>(refused.error)),
        RsmError::BadMemoryAlignment
    );
    let refused = pair.import.map(Permission::all(), 100, 100).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Unaligned {
                parameter: "offset",
                value: 100,
                multiple: 4096
            }
        ),
        "{refused}"
    );
    if !is_unmapped(&pair.import) {
        pair.import.map(Permission::all(), 4096, 100).unwrap();
    }
}

#[test]
fn a_bad_entry_of_an_access_list_is_named() {
    let pair = Pair::new();
    let export = pair.far.export(Pages::anonymous(4096).unwrap()).unwrap();
    let entry = |node, permission| AccessEntry { node, permission };
    for (list, words) in [
        (
            &[entry(1, 0o666), entry(9, 0o444)][..],
            "access list: entry 2: node 9 is not in the list of nodes",
        ),
        (
            &[entry(1, 0o777)],
            "access list: entry 1: permission 0o777 has bits outside of 0o666",
        ),
        (
            &[entry(1, 0o666); 3],
            "access list: 3 entries, but only 2 nodes",
        ),
    ] {
        let error = export.publish(0, list).unwrap_err();
        assert!(error.to_string().ends_with(words), "{error}");
        assert_eq!(error.rsm(), Some(RsmError::BadAccessList));
    }
    // Each other error stays what it is, and good lists are accepted.
    let reserved = export.publish(1, &access(0o666));
    assert_eq!(reason(reserved), RsmError::ReservedSegmentId);
    let both = [entry(1, 0o666), entry(2, 0)];
    assert!(export.publish(0, &both).unwrap() >= 0x8000_0000);
}

#[test]
fn refused_calls_return_their_memory() {
    let pair = Pair::new();
    let failed = pair.import.put(1 << 16, vec![1; 8]).wait().unwrap_err();
    assert_eq!(failed.memory, [1; 8]);
    let puts = [0, 1 << 20].map(|offset| Put {
        memory: vec![2; 8],
        offset,
    });
    let failed = pair.import.putv(puts.into(), VectorFlags::empty()).wait();
    let failed = failed.unwrap_err();
    assert_eq!((failed.entries.len(), failed.error.residual), (2, 1));
    let words = "vector of node 2: entry 2 of 2: offset out of range";
    assert_eq!(failed.to_string(), words);
    let error = Error::from(failed);
    assert_eq!(error.to_string(), format!("shared memory: {words}"));
    assert_eq!(error.rsm(), Some(RsmError::BadOffset));
    let gets = pair
        .import
        .getv::<Vec<u8>>(Vec::new(), VectorFlags::empty());
    assert_eq!(
        gets.wait().unwrap_err().error.error,
        RsmError::BadScatterGather
    );
    assert!(pair.export.load(1 << 16, &mut [0]).is_err());
    assert!(pair.export.store(usize::MAX, &[0]).is_err());
    assert_eq!(
        reason(pair.export.publish(0, &[])),
        RsmError::SegmentAlreadyPublished
    );

    let refused = pair.far.export(vec![0_u8; 100]).unwrap_err();
    assert_eq!(refused.memory, [0; 100]);
    // For reads only, and not at all.
    let export = pair.far.export(Pages::anonymous(4096).unwrap()).unwrap();
    let id = export.publish(0, &access(0o444)).unwrap();
    let all = pair.near.import(2, id, Permission::all()).wait();
    assert_eq!(reason(all), RsmError::PermissionDenied);
    let import = pair.near.import(2, id, Permission::READ).wait().unwrap();
    let denied = import.put(0, [1]).wait().unwrap_err().error;
    assert_eq!(reason(Err::<(), _>(denied)), RsmError::PermissionDenied);
    assert!(pair.near.import(3, id, Permission::READ).wait().is_err());
    let open = node(9).peer(1, "no port").open("mock://peers");
    assert!(matches!(open, Err(Error::Malformed(_))));
    assert!(matches!(
        node(9).open("other://x"),
        Err(Error::NotBuiltIn { .. })
    ));
}

#[test]
fn a_destroyed_or_dropped_segment_returns_its_memory_once() {
    let pair = Pair::new();
    let drops = Arc::new(AtomicUsize::new(0));
    let publish = |export: &Export<Foreign<Owner>>| {
        let id = export.publish(0, &access(0o666)).unwrap();
        pair.near.import(2, id, Permission::all()).wait().unwrap()
    };
    let export = pair.far.export(counted(&drops)).unwrap();
    let import = publish(&export);
    let memory = export.destroy().wait().unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(memory);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let failed = import.put(0, [1; 8]).wait().unwrap_err();
    assert_eq!(
        reason(Err::<(), _>(failed.error)),
        RsmError::ConnectionAborted
    );

    // Dropped, or destroyed by a call that is never made.
    let export = pair.far.export(counted(&drops)).unwrap();
    let _import = publish(&export);
    drop(export);
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 2
    });
    let export = pair.far.export(counted(&drops)).unwrap();
    let import = publish(&export);
    drop(export.destroy());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 3
    });
    assert!(import.get(0, [1; 8]).wait().is_err());
}
