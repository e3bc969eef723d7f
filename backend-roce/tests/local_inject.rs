//! Packets of a connection of queues that come through another pair, or as datagrams, with the same
//! bytes.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::net::UdpSocket;

use backend_roce::local::LocalPair;
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::Bth;
use common::between::{Between, Taken, is_established, pair_with};
use common::end::{end_of, is_success, next};
use common::process::until;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{CloseFlags, CompletionFlags};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Gives the second end a packet that it drops: nothing comes of it.
fn drops(between: &Between, give: impl FnOnce()) {
    let right = &between.right;
    let before = right.driver.counts();
    give();
    let after = until(|| {
        assert_eq!(right.look(), None);
        let counts = right.driver.counts();
        (counts.packets > before.packets).then_some(counts)
    });
    assert_eq!(after.dropped, before.dropped + 1);
    assert_eq!(after.bad_icrc, before.bad_icrc);
    assert_eq!(after.responder, before.responder);
    assert_eq!(after.requester, before.requester);
    assert_eq!(after.packets_sent, before.packets_sent);
}

/// Gives the second end a record that it drops, by some pair.
fn give(between: &Between, record: &Taken, pair: &LocalPair) {
    drops(between, || record.put(pair));
    assert!(Taken::from(pair).is_none(), "an answer");
}

/// Gives the second end a packet that it drops, by UDP with the ICRC that its connection asks for.
fn send(between: &Between, Taken(label, bytes): &Taken) {
    assert_eq!(label.segment, bytes.len(), "one packet");
    let ends = between.far.naming();
    let flow = Flow::between(ends.own, ends.peer).expect("one family");
    let mut packet = bytes.clone();
    flow.seal(0, &mut packet).expect("a packet");
    drops(between, || {
        let socket = UdpSocket::bind((ends.own.ip(), 0)).expect("a socket");
        socket.send_to(&packet, ends.peer).expect("a datagram");
    });
}

/// Packets of a connection reach it through its own pair only, also word for word: messages of
/// connection management, requests and acknowledgements. By UDP, too, they are dropped.
///
/// Spec: ROCE-212, ROCE-231
#[test]
fn packets_of_one_pair_reach_its_connections_on_no_other_way() {
    let between = Between::new(1);
    let other = pair_with(&between.right, 2, between.near.naming().peer);
    let Between {
        left, right, far, ..
    } = &between;
    let inject = |record: &Taken| give(&between, record, &other);
    let send = |record: &Taken| send(&between, record);

    let request = between.next();
    // A message has no payload behind the first line.
    give(&between, &request.split(Bth::LENGTH + 8), far);
    request.put(far);
    // The same request again is an answer's matter in its own pair only.
    let ready = between.accept(|| inject(&request));
    inject(&ready);
    send(&ready);
    ready.put(far);
    is_established(&next(right));

    // A request of the first end.
    left.fill(7);
    let (local, remote) = (left.local(0, 100), right.remote(0, 100));
    let posted = left.ia.post_rdma_write(left.ep, &local, 1, &remote, NONE);
    posted.expect("a post");
    let write = between.next();
    let split = write.split(Bth::LENGTH + 16);
    inject(&write);
    send(&write);
    inject(&split);
    assert!(right.holds(1, 100, 1), "nothing is written");
    // It does what the whole one would do.
    split.put(far);
    until(|| {
        assert_eq!(right.look(), None);
        right.holds(1, 100, 7).then_some(())
    });
    between.complete();

    // The acknowledgement of a request of the second end.
    let (local, remote) = (right.local(1, 100), left.remote(1, 100));
    let posted = right.ia.post_rdma_write(right.ep, &local, 1, &remote, NONE);
    posted.expect("a post");
    until(|| {
        assert_eq!(right.look(), None);
        between.back();
        assert_eq!(left.look(), None);
        left.holds(1, 100, 7).then_some(())
    });
    let acknowledgement = between.next();
    inject(&acknowledgement);
    send(&acknowledgement);
    acknowledgement.put(far);
    assert!(is_success(&next(right)));

    // The end of the connection.
    let close = left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt);
    close.expect("a disconnect");
    let end = until(|| {
        let _ = left.look();
        Taken::from(&between.near)
    });
    inject(&end);
    send(&end);
    end.put(far);
    assert_eq!(end_of(right), ConnectionEventKind::Disconnected);
}
