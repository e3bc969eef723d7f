//! Devices with sockets on the loop-back interface.

#![cfg(feature = "udp")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;

use backend_roce::{Attempt, Binding, Detail, Operation, PairState, PathChoice, RemoteRights};
use common::devices::{LENGTH, PATIENCE, Side};
use dat_core::backend::{BackendError, ControlEvent};
use dat_core::flags::DtoStatus;

/// Devices at one address, and at several of a host, have ports of their own.
///
/// Spec: ROCE-260, ROCE-261, ROCE-262
#[test]
fn devices_of_one_address_reach_each_other() {
    let address = Ipv4Addr::new(127, 88, 1, 1).into();
    let other = Ipv4Addr::new(127, 88, 1, 2).into();
    for peer in [address, other] {
        let (one, two) = (
            Side::open(address, PathChoice::Packets),
            Side::open(peer, PathChoice::Packets),
        );
        let ports = [one.qpn, two.qpn].map(|qpn| (qpn >> 11) + 57_344);
        assert!(ports.iter().all(|port| *port >= 61_000), "{ports:?}");
        assert!(peer != address || ports[0] != ports[1], "{ports:?}");
        one.attach(address, peer, two.qpn);
        two.attach(peer, address, one.qpn);
        one.send_to(&two);
        assert_eq!(one.device.counts().local.packets_sent, 0);
    }
}

/// Devices of one host use queues in memory if both have them.
///
/// Spec: ROCE-273
#[test]
fn devices_of_one_host_reach_each_other_through_queues() {
    use PathChoice::{Any, Local, Packets};
    let [own, peer] = [1, 2].map(|last| Ipv4Addr::new(127, 88, 2, last).into());
    for paths in [(Any, Any), (Local, Any), (Any, Packets), (Packets, Any)] {
        let (one, two) = (Side::open(own, paths.0), Side::open(peer, paths.1));
        // Each end may make a pair of queues, of which both take packets.
        std::thread::scope(|scope| {
            scope.spawn(|| one.attach(own, peer, two.qpn));
            scope.spawn(|| two.attach(peer, own, one.qpn));
        });
        one.send_to(&two);
        two.send_to(&one);
        let is_local = paths.0 != Packets && paths.1 != Packets;
        for side in [&one, &two] {
            let counts = side.device.counts();
            assert_eq!(counts.local.packets_sent > 0, is_local, "{paths:?}");
        }
    }
    let (one, two) = (Side::open(own, Local), Side::open(peer, Packets));
    let refused = one.try_attach(own, peer, two.qpn);
    assert_eq!(refused, Err(BackendError::Unreachable));
}

/// A message of several packets invalidates a key on both ways.
///
/// Spec: ROCE-127, ROCE-273, ROCE-277
#[test]
fn a_message_invalidates_a_key_through_sockets_and_queues() {
    let [own, peer] = [1, 2].map(|last| Ipv4Addr::new(127, 88, 5, last).into());
    for path in [PathChoice::Packets, PathChoice::Local] {
        let (one, two) = (Side::open(own, path), Side::open(peer, path));
        std::thread::scope(|scope| {
            scope.spawn(|| one.attach(own, peer, two.qpn));
            scope.spawn(|| two.attach(peer, own, one.qpn));
        });
        let made = two.device.create_type_2_window(two.domain);
        let (window, key) = made.expect("a window");
        let binding = Binding {
            window,
            region: two.segment.key,
            address: two.segment.address,
            length: 8,
            rights: RemoteRights::default(),
            is_zero_based: false,
        };
        two.post(Operation::Bind(binding, key), &[]);
        assert_eq!(two.wait().status, DtoStatus::Success);
        assert!(two.device.has_windows(two.segment.key));
        let posted = two.device.post_receive(two.qpn, 1, &[two.segment]);
        posted.expect("a receive");
        one.post(Operation::SendInvalidate(key), &[one.segment]);
        let (sent, received) = (one.wait(), two.wait());
        assert_eq!((sent.token, sent.status), (2, DtoStatus::Success));
        assert_eq!((received.token, received.status), (1, DtoStatus::Success));
        assert_eq!(received.length as usize, LENGTH);
        let told = (received.immediate, received.detail);
        assert_eq!(told, (Some(key), Detail::Invalidated));
        assert!(!two.device.has_windows(two.segment.key));
        let is_local = path == PathChoice::Local;
        assert_eq!(one.device.counts().local.packets_sent > 0, is_local);
    }
}

/// A send queue drains on both ways.
///
/// Spec: ROCE-273, ROCE-278
#[test]
fn a_send_queue_drains_through_sockets_and_queues() {
    let [own, peer] = [1, 2].map(|last| Ipv4Addr::new(127, 88, 6, last).into());
    for path in [PathChoice::Packets, PathChoice::Local] {
        let (one, two) = (Side::open(own, path), Side::open(peer, path));
        std::thread::scope(|scope| {
            scope.spawn(|| one.attach(own, peer, two.qpn));
            scope.spawn(|| two.attach(peer, own, one.qpn));
        });
        let (sender, events) = mpsc::channel();
        one.device.on_event(move |event| {
            // Later ones interest nobody.
            let _sent = sender.send(event);
        });
        // It finds no receive, and is repeated.
        one.send();
        assert_eq!(one.device.drain(one.qpn, true), Ok(()));
        assert_eq!(one.device.has_drained(one.qpn), Some(false));
        one.send();
        for _ in 0..2 {
            let posted = two.device.post_receive(two.qpn, 1, &[two.segment]);
            posted.expect("a receive");
        }
        let event = events.recv_timeout(PATIENCE).expect("an event");
        let queue_pair = one.qpn.into();
        assert_eq!(event, ControlEvent::Answered { queue_pair });
        assert_eq!(one.device.has_drained(one.qpn), Some(true));
        assert_eq!(one.wait().status, DtoStatus::Success);
        assert_eq!(one.device.resume(one.qpn), Ok(()));
        assert_eq!(one.wait().status, DtoStatus::Success);
        for _ in 0..2 {
            assert_eq!(two.wait().status, DtoStatus::Success);
        }
    }
}

/// A device that ends leaves its peers' requests without an answer.
///
/// Spec: ROCE-273
#[test]
fn requests_fail_once_the_queues_end() {
    let [own, peer] = [1, 2].map(|last| Ipv4Addr::new(127, 88, 3, last).into());
    for has_request in [true, false] {
        let (one, two) = (
            Side::open(own, PathChoice::Local),
            Side::open(peer, PathChoice::Local),
        );
        one.attach(own, peer, two.qpn);
        two.attach(peer, own, one.qpn);
        one.send_to(&two);
        if has_request {
            // It finds no receive, and is repeated for ever.
            one.send();
        }
        drop(two);
        if !has_request {
            one.send();
        }
        assert_eq!(one.wait().status, DtoStatus::Transport, "{has_request}");
        assert_eq!(one.device.pair_state(one.qpn), Ok(PairState::Failed));
    }
}

/// A connection of rdma_cm has the QPN of its queue pair, which is new.
///
/// Spec: ROCE-272
#[test]
fn a_numbered_pair_is_connected_by_rdma_cm() {
    let [own, peer] = [1, 2].map(|last| Ipv4Addr::new(127, 88, 4, last).into());
    let (one, two) = (
        Side::open(own, PathChoice::Packets),
        Side::open(peer, PathChoice::Packets),
    );
    let (sender, events) = mpsc::channel();
    for side in [&one, &two] {
        let sender = sender.clone();
        let tell = move |event| {
            // Later ones interest nobody.
            let _sent = sender.send(event);
        };
        side.device.on_event(tell);
    }
    let next = || loop {
        let event = events.recv_timeout(PATIENCE).expect("an event");
        if !matches!(event, ControlEvent::Answered { .. }) {
            return event;
        }
    };
    let port = 20_472;
    two.device.listen(1, port, None).expect("a listener");
    let at = SocketAddr::new(peer, port);
    let with = Attempt {
        own_port: 20_471,
        depths: (1, 1),
        retries: 7,
        not_ready_retries: 7,
        keeps_pair: false,
    };
    let connect = || one.device.connect(one.qpn, at, b"hello", &with);
    assert_eq!(connect(), Ok(()));
    let ControlEvent::ConnectionRequest { request, .. } = next() else {
        panic!("no request");
    };
    let terms = two.device.request_terms(request).expect("a request");
    assert_eq!((terms.peer_qpn, terms.asks_from), (one.qpn, 20_471));
    assert_eq!(terms.depths, (1, 1));
    let accepted = two.device.accept(request, two.qpn, b"", &with);
    assert_eq!(accepted, Ok(()));
    let mut established = [0; 2].map(|_| match next() {
        ControlEvent::Established { queue_pair, .. } => queue_pair,
        event => panic!("{event:?}"),
    });
    established.sort_unstable();
    let mut qpns = [one.qpn, two.qpn].map(u64::from);
    qpns.sort_unstable();
    assert_eq!(established, qpns);
    assert_eq!(connect(), Err(BackendError::State), "it is not new");
    one.send_to(&two);
    two.send_to(&one);
}
