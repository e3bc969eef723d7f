//! Remote shared memory: segments, vectors, barriers and signals, blocking and as futures.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use backend_mock::Fabric;
use common::SOON;
use common::silent::Silent;
use dat_host::rsm::{
    AccessEntry, BarrierMode, BarrierScope, Export, FailedVector, Get, Import, LocalMemory, Node,
    Opening, Permission, Put, RsmError, Unreached, VectorFlags,
};
use dat_host::{Error, Foreign, IaAddress, Network, Options, Pages, Result};
use futures::executor::block_on;

/// A node that waits for the answers of busy peers.
fn node(number: u32) -> Opening {
    Node::new(number).connect_timeout(SOON)
}

/// Two nodes, a segment of 64 KiB and a connection to it.
struct Pair {
    near: Node,
    far: Node,
    export: Export<Pages>,
    import: Import,
}

impl Pair {
    fn new() -> Self {
        let network = common::network();
        let far = node(2).listen(7).peer(1, "near:0").network(&network);
        let near = node(1).peer(2, "far:7").network(&network);
        Self::of(
            near.open("mock://near").unwrap(),
            far.open("mock://far").unwrap(),
        )
    }

    fn of(near: Node, far: Node) -> Self {
        let export = far.export(Pages::anonymous(1 << 16).unwrap()).unwrap();
        let id = export.publish(0, &access(0o666)).unwrap();
        let import = near.import(2, id, Permission::all()).wait().unwrap();
        Self {
            near,
            far,
            export,
            import,
        }
    }
}

fn access(permission: u32) -> [AccessEntry; 1] {
    [AccessEntry {
        node: 1,
        permission,
    }]
}

fn reason<T: std::fmt::Debug>(failed: Result<T>) -> RsmError {
    let error = failed.unwrap_err();
    error.rsm().unwrap_or_else(|| panic!("{error}"))
}

fn exchange(pair: &Pair) {
    let Pair { export, import, .. } = pair;
    assert_eq!((import.length().unwrap(), export.len()), (1 << 16, 1 << 16));
    let bytes = import.put(100, b"hello".to_vec()).wait().unwrap();
    let mut read = [0; 5];
    export.load(100, &mut read).unwrap();
    assert_eq!(read[..], bytes[..]);
    export.store(200, b"answer").unwrap();
    assert_eq!(import.get(200, [0; 6]).wait().unwrap(), *b"answer");

    let puts = (0..20_u64).map(|number| Put {
        memory: vec![number as u8; 500],
        offset: number * 1000,
    });
    let puts = import.putv(puts.collect(), VectorFlags::IMPLICIT_SIGPOST);
    assert_eq!(puts.wait().unwrap()[7].memory, [7; 500]);
    export.signaled().wait().unwrap();
    assert!(!export.try_signaled().unwrap(), "one signal for the vector");
    let gets = (0..20_u64).map(|number| Get {
        memory: vec![0; 500],
        offset: number * 1000,
    });
    let gets = import
        .getv(gets.collect(), VectorFlags::empty())
        .wait()
        .unwrap();
    for (number, get) in gets.iter().enumerate() {
        assert_eq!(get.memory, vec![number as u8; 500]);
    }
    export.signal().wait().unwrap();
    import.signaled().wait().unwrap();
}

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

/// The vector of four parts of local memory, each of `BLOCK` bytes, from or to every second block.
const BLOCK: usize = 3000;

fn puts<M: dat_host::Stable>(local: &LocalMemory<M>) -> Vec<Put<dat_host::rsm::LocalSlice>> {
    let put = |index: usize| Put {
        memory: local.slice(index * BLOCK..(index + 1) * BLOCK).unwrap(),
        offset: (2 * index * BLOCK) as u64,
    };
    (0..4).map(put).collect()
}

fn gets<M: dat_host::Stable>(local: &LocalMemory<M>) -> Vec<Get<dat_host::rsm::LocalSlice>> {
    let get = |put: Put<_>| Get {
        memory: put.memory,
        offset: put.offset,
    };
    puts(local).into_iter().map(get).collect()
}

fn exchange_local_memory(pair: &Pair) {
    let Pair {
        near,
        export,
        import,
        ..
    } = pair;
    let none = VectorFlags::empty();
    let (from, to) = ([7_u8; 4 * BLOCK], vec![0_u8; 4 * BLOCK]);
    let from = near.local_memory(from.to_vec()).unwrap();
    let to = near.local_memory(to.into_boxed_slice()).unwrap();
    assert_eq!(from.len(), 4 * BLOCK);
    let mut all = [0; 4 * BLOCK];
    export.store(0, &[0; 8 * BLOCK]).unwrap();
    for mode in [BarrierMode::Implicit, BarrierMode::Explicit] {
        let number = 1 + mode as u8;
        from.store(0, &[number; 4 * BLOCK]).unwrap();
        let barrier = import.barrier(BarrierScope::Segment).unwrap();
        import.set_mode(mode).unwrap();
        let explicit = mode == BarrierMode::Explicit;
        let span = |act: &dyn Fn()| {
            if explicit {
                barrier.open().unwrap();
            }
            act();
            if explicit {
                barrier.close().wait().unwrap();
            }
        };
        span(&|| drop(import.putv(puts(&from), none).wait().unwrap()));
        let mut row = [0; BLOCK];
        for block in 0..4 {
            export.load(2 * block * BLOCK, &mut row).unwrap();
            assert!(row == [number; BLOCK]);
            export.load((2 * block + 1) * BLOCK, &mut row).unwrap();
            assert!(row == [0; BLOCK], "between the blocks");
        }
        to.store(0, &[0; 4 * BLOCK]).unwrap();
        span(&|| drop(import.getv(gets(&to), none).wait().unwrap()));
        to.load(0, &mut all).unwrap();
        assert!(all == [number; 4 * BLOCK]);
    }
    import.set_mode(BarrierMode::Implicit).unwrap();
    assert!(*to.free().wait().unwrap() == all);
    assert!(block_on(async { from.free().await }).unwrap() == all);
}

#[test]
fn vectors_use_local_memory_in_place() {
    exchange_local_memory(&Pair::new());
}

#[cfg(feature = "roce")]
#[test]
fn vectors_use_local_memory_in_place_over_udp() {
    let far = node(2).listen(7177).peer(1, "127.0.0.39:0");
    let near = node(1).peer(2, "127.0.0.40:7177");
    let far = far.open("roce://127.0.0.40").unwrap();
    exchange_local_memory(&Pair::of(near.open("roce://127.0.0.39").unwrap(), far));
}

#[test]
fn local_memory_is_refused_where_it_is_not_the_nodes() {
    let pair = Pair::new();
    let import = &pair.import;
    let none = VectorFlags::empty();
    let refused = |failed: FailedVector<Put<_>>| {
        assert_eq!((failed.entries.len(), failed.error.residual), (1, 1));
        failed.error.error
    };
    let put = |memory| vec![Put { memory, offset: 0 }];
    let local = pair.near.local_memory(vec![1_u8; 64]).unwrap();
    assert!(matches!(
        local.slice(32..65),
        Err(Error::OutOfRange { end: 65, .. })
    ));
    let slice = local.slice(8..16).unwrap();
    assert_eq!((slice.len(), slice.is_empty()), (8, false));
    import.putv(put(slice), none).wait().unwrap();
    local.free().wait().unwrap();
    let failed = import.putv(put(slice), none).wait().unwrap_err();
    assert_eq!(refused(failed), RsmError::BadScatterGather);
    let foreign = pair.far.local_memory(vec![1_u8; 64]).unwrap();
    let slice = foreign.slice(..).unwrap();
    let failed = import.putv(put(slice), none).wait().unwrap_err();
    assert_eq!(refused(failed), RsmError::BadScatterGather);
    let empty = pair.near.local_memory(Vec::new()).unwrap_err();
    assert_eq!(reason(Err::<(), _>(empty.error)), RsmError::BadLength);
}

#[test]
fn dropped_local_memory_returns_once_and_outlives_no_node() {
    let pair = Pair::new();
    let drops = Arc::new(AtomicUsize::new(0));
    drop(pair.near.local_memory(counted(&drops)).unwrap());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 1
    });
    // A call that is never made, and one after the node is closed.
    drop(pair.near.local_memory(counted(&drops)).unwrap().free());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 2
    });
    let local = pair.near.local_memory(counted(&drops)).unwrap();
    pair.near.clone().close().wait().unwrap();
    assert!(local.free().wait().is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 2, "the engine may use it");
    drop(pair);
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 3
    });
}

/// Returns true after the check that memory of a host that is not coherent cannot be mapped.
fn is_unmapped(import: &Import) -> bool {
    if common::NON_COHERENT {
        let refused = import.map(Permission::all(), 0, 4096);
        assert_eq!(reason(refused), RsmError::MapFailed);
    }
    common::NON_COHERENT
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
fn nodes_poll_a_device_that_does_not_ring() {
    let fabric = Fabric::new(Network::options());
    let open = |number, peer, qualifier, listens| {
        let address = IaAddress::Node(peer);
        let opening = node(number).listen(listens);
        let opening = opening.peer(peer as u32, (address, qualifier));
        let backend = fabric.node(common::host("silent", u64::from(number)));
        opening.open_backend(backend, Silent::on(&fabric)).unwrap()
    };
    let (near, far) = (open(1, 2, 7, 0), open(2, 1, 0, 7));
    let pair = Pair::of(near, far);
    exchange(&pair);
    pair.near.close().wait().unwrap();
}

#[test]
fn a_node_that_polls_has_no_thread_of_its_own() {
    let network = common::network();
    let looks = Arc::new(AtomicUsize::new(0));
    let far = node(2).listen(7).peer(1, "near:0").network(&network);
    let near = node(1).peer(2, "far:7").network(&network);
    let counted = Arc::clone(&looks);
    let near = near.poll(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    });
    let far = far.open("mock://far").unwrap();
    let pair = Pair::of(near.open("mock://near").unwrap(), far);
    exchange(&pair);
    exchange_local_memory(&pair);
    // Nothing comes, so that the call has to poll.
    let short = Duration::from_millis(5);
    assert!(!pair.import.signaled_within(short).wait().unwrap());
    let after = looks.load(Ordering::SeqCst);
    assert!(after > 0, "the calls polled");
    thread::sleep(Duration::from_millis(50));
    assert_eq!(looks.load(Ordering::SeqCst), after, "nothing polls now");
    // The exporter learns of its end.
    drop((pair.near, pair.import));
    pair.export.destroy().wait().unwrap();
}

#[test]
fn waits_for_signals_end_in_time_and_by_the_program() {
    let network = common::network();
    let ends = Arc::new(AtomicBool::new(false));
    let far = node(2).listen(7).peer(1, "near:0").network(&network);
    let near = node(1).peer(2, "far:7").network(&network);
    let asked = Arc::clone(&ends);
    let near = near.interrupt(move || asked.load(Ordering::SeqCst));
    let far = far.open("mock://far").unwrap();
    let pair = Pair::of(near.open("mock://near").unwrap(), far);
    let short = Duration::from_millis(20);
    assert!(!pair.import.signaled_within(short).wait().unwrap());
    assert!(!pair.export.signaled_within(short).wait().unwrap());
    pair.import.signal().wait().unwrap();
    assert!(pair.export.signaled_within(SOON).wait().unwrap());
    assert!(!pair.export.signaled_within(Duration::ZERO).wait().unwrap());
    let waits = pair.import.signaled().start();
    ends.store(true, Ordering::SeqCst);
    assert_eq!(reason(block_on(waits)), RsmError::Interrupted);
    // Calls that free an object go on.
    let local = pair.near.local_memory(vec![7_u8; 64]).unwrap();
    assert_eq!(local.free().wait().unwrap(), [7; 64]);
    pair.import.disconnect().wait().unwrap();
    pair.near.close().wait().unwrap();
    pair.export.destroy().wait().unwrap();
}

/// The exporter may end on the last signal.
fn signal_the_end(listening: &str, open: impl Fn(bool) -> Node) {
    for number in 0..20 {
        let (near, far) = (open(false), open(true));
        let export = far.export(Pages::anonymous(4096).unwrap()).unwrap();
        let id = export.publish(0, &access(0o666)).unwrap();
        let import = near.import(2, id, Permission::all()).wait().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                export.signaled().wait().unwrap();
                let pages = export.destroy().wait().unwrap();
                assert_eq!(pages[..8], [7; 8]);
                far.close().wait().unwrap();
            });
            let put = Put {
                memory: [7_u8; 8],
                offset: 0,
            };
            match number % 2 {
                0 => {
                    import.put(0, [7_u8; 8]).wait().unwrap();
                    import.signal().wait().expect(listening);
                }
                _ => {
                    let put = import.putv(vec![put], VectorFlags::IMPLICIT_SIGPOST);
                    drop(put.wait().expect(listening));
                }
            }
        });
        // The import may be aborted by now.
        let _ = import.disconnect().wait();
        near.close().wait().unwrap();
    }
}

#[test]
fn the_last_signal_has_arrived() {
    let network = common::network();
    signal_the_end("mock", |listens| {
        let opening = match listens {
            true => node(2).listen(7).peer(1, "near:0").network(&network),
            false => node(1).peer(2, "far:7").network(&network),
        };
        let name = if listens { "far" } else { "near" };
        opening.open(&format!("mock://{name}")).unwrap()
    });
}

#[cfg(feature = "roce")]
#[test]
fn the_last_signal_has_arrived_over_udp() {
    signal_the_end("roce", |listens| {
        let opening = match listens {
            true => node(2).listen(7178).peer(1, "127.0.0.41:0"),
            false => node(1).peer(2, "127.0.0.42:7178"),
        };
        let address = if listens { "127.0.0.42" } else { "127.0.0.41" };
        opening.open(&format!("roce://{address}")).unwrap()
    });
}

#[test]
fn a_qualifier_has_one_node() {
    let network = common::network();
    let open = || {
        let opening = node(2).listen(7).peer(1, "near:0");
        opening.network(&network).open("mock://far")
    };
    let first = open().unwrap();
    let Err(Error::Refused(error)) = open() else {
        panic!("the qualifier is taken");
    };
    assert_eq!(error.kind(), dat_core::ErrorKind::ConnQualInUse);
    first.close().wait().unwrap();
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
fn an_unreachable_node_has_its_reason() {
    let network = common::network();
    let open = |opening: Opening, address| opening.network(&network).open(address).unwrap();
    // It listens, but nobody makes its calls.
    let silent = node(3).listen(7).peer(1, "near:0").poll(|| {});
    let _nodes = [
        open(node(2).peer(1, "near:0"), "mock://deaf"),
        open(silent, "mock://silent"),
        open(node(4).listen(7).peer(9, "near:0"), "mock://proud"),
    ];
    let near = node(1).peer(4, "proud:7").peer(5, "nowhere:7");
    let impatient = node(8).peer(2, "deaf:7").peer(3, "silent:7");
    let impatient = impatient.peer(5, "nowhere:7");
    let impatient = impatient.connect_timeout(Duration::from_secs(1));
    let impatient = open(impatient, "mock://impatient");
    let near = open(near, "mock://near");
    for (number, expected, words) in [
        (
            2,
            Unreached::NoListener,
            "node 2 at deaf:7 is unreachable: no exporter listens",
        ),
        (
            3,
            Unreached::TimedOut,
            "node 3 at silent:7 is unreachable: it does not answer",
        ),
        (
            4,
            Unreached::NotAllowed,
            "node 4 at proud:7 is unreachable: it does not know this node",
        ),
        (
            5,
            Unreached::NoHost,
            "node 5 at nowhere:7 is unreachable: its host",
        ),
        (
            6,
            Unreached::Unknown,
            "node 6 is unreachable: it is not in the list",
        ),
    ] {
        // A node without a listener may come, and a silent one may answer, within the limit.
        let asks = match number {
            2 | 3 => &impatient,
            _ => &near,
        };
        let error = asks.import(number, 1, Permission::READ).wait();
        let error = error.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.rsm(), Some(RsmError::RemoteNodeUnreachable));
        let Error::NodeUnreachable {
            node: named,
            reason,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((named, reason), (number, expected));
    }
    // Each of several calls at a time has its own reason.
    let both = [2, 5].map(|number| impatient.import(number, 1, Permission::READ).start());
    for (call, expected) in both
        .into_iter()
        .zip([Unreached::NoListener, Unreached::NoHost])
    {
        let error = block_on(call).unwrap_err();
        let Error::NodeUnreachable { reason, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(reason, expected);
    }
}

/// A program that is no exporter has the qualifier.
#[test]
fn another_program_rejects_a_node() {
    let network = common::network();
    let program = Options::new().network(&network).open("mock://program");
    let listener = program.unwrap().zone().unwrap().listen(7).unwrap();
    let near = node(1).peer(2, "program:7").network(&network);
    let near = near.open("mock://near").unwrap();
    let call = near.import(2, 1, Permission::READ).start();
    listener.next().wait().unwrap().reject(b"no").unwrap();
    let error = block_on(call).unwrap_err();
    assert!(matches!(
        error,
        Error::NodeUnreachable {
            node: 2,
            reason: Unreached::Rejected,
            ..
        }
    ));
    assert!(error.to_string().contains("it rejects the connection"));
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
fn a_node_is_a_peer_once() {
    for (own, peers) in [(1, [2, 2]), (2, [1, 2])] {
        let opening = node(own).peer(peers[0], "one:7").peer(peers[1], "two:7");
        let error = opening.open("mock://twice").unwrap_err();
        assert!(matches!(error, Error::DuplicateNode(2)), "{error:?}");
        assert!(error.to_string().contains("node 2"), "{error}");
    }
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

/// A value that counts its drops, and says where its memory is.
struct Owner(
    #[expect(dead_code, reason = "keeps the memory")] Pages,
    Arc<AtomicUsize>,
);

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(drops: &Arc<AtomicUsize>) -> Foreign<Owner> {
    counted_bytes(drops, 4096)
}

/// Memory at the begin of a page, with a length that is no multiple of one.
fn short() -> Foreign<Owner> {
    counted_bytes(&Arc::default(), 100)
}

/// The first `length` bytes of a page.
#[expect(unsafe_code, reason = "an owner that counts its drops")]
fn counted_bytes(drops: &Arc<AtomicUsize>, length: usize) -> Foreign<Owner> {
    let mut pages = Pages::anonymous(4096).unwrap();
    assert!(length <= pages.len());
    let base = std::ptr::NonNull::from(&mut *pages).cast();
    // SAFETY: the owner keeps the pages, and nothing else uses them.
    unsafe { Foreign::new(Owner(pages, Arc::clone(drops)), base, length) }
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

#[test]
fn a_node_closes_with_its_last_object_and_ends_calls() {
    let Pair {
        near,
        far,
        export,
        import,
    } = Pair::new();
    let drops = Arc::new(AtomicUsize::new(0));
    let second = far.export(counted(&drops)).unwrap();
    let signaled = import.signaled().start();
    drop((near, import));
    let ended = block_on(signaled);
    assert!(ended.is_err(), "the node closed");
    // The exporter goes on.
    export.store(0, &[1]).unwrap();
    let signaled = export.signaled().start();
    drop(far);
    drop(export);
    drop(second);
    assert!(block_on(signaled).is_err());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 1
    });
}
