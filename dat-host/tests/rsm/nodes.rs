//! Opening and closing nodes; peers that are not reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use backend_mock::Fabric;
use dat_host::rsm::{Opening, Permission, RsmError, Unreached};
use dat_host::{Error, IaAddress, Network, Options};
use futures::executor::block_on;

use super::common;
use super::common::silent::Silent;
use super::pair::{Pair, counted, exchange, exchange_local_memory, node};

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

/// A program that is no exporter has the qualifier; or an exporter ends.
#[test]
fn another_program_rejects_a_node() {
    let network = common::network();
    let program = Options::new().network(&network).open("mock://program");
    let listener = program.unwrap().zone().unwrap().listen(7).unwrap();
    let near = node(1).peer(2, "program:7").network(&network);
    let near = near.open("mock://near").unwrap();
    for (answer, expected, words) in [
        (&b"no"[..], Unreached::NoExporter, "is no exporter"),
        (b"", Unreached::Rejected, "it rejects the connection"),
    ] {
        let call = near.import(2, 1, Permission::READ).start();
        listener.next().wait().unwrap().reject(answer).unwrap();
        let error = block_on(call).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let Error::NodeUnreachable { node, reason, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!((node, reason), (2, expected));
    }
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
