//! Connections between adapters of one host, whose packets go through queues in memory.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::{Duration, Instant};

use backend_roce::PathChoice;
use common::end::{
    DEPTH, End, PATIENCE, SLOT, attempt, connect, end_of, exchange, is_success, listen, local_end,
    poll_both,
};
use dat_core::ErrorKind;
use dat_core::backend::NotLocal;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{CloseFlags, CompletionFlags, PspFlags};

/// Returns true if all packets of an end went through queues, and none was sent twice.
fn is_local(end: &End) -> bool {
    let counts = end.driver.counts();
    let connections = end.driver.connection_counts();
    assert_eq!((counts.dropped, counts.requester.retransmits), (0, 0));
    assert_eq!(counts.local.packets, counts.packets);
    assert_eq!(counts.local.packets_sent, counts.packets_sent);
    counts.local.pairs == 1 && connections.iter().all(|connection| connection.is_local)
}

/// Adapters with and without threads serve each other, all by queues, and count what goes there.
///
/// Spec: ROCE-230, ROCE-232, ROCE-235, ROCE-253
#[test]
fn data_moves_through_queues() {
    for (number, polled) in [(0, [true, true]), (2, [true, false]), (4, [false, false])] {
        let left = local_end(100 + number, polled[0]);
        let right = local_end(101 + number, polled[1]);
        connect(&left, &right);
        exchange(&left, &right);
        assert!(is_local(&left) && is_local(&right));
    }
}

/// Connections in both directions share one pair.
///
/// Spec: ROCE-230
#[test]
fn connections_of_two_adapters_share_a_pair() {
    let (left, right) = (local_end(106, true), local_end(107, true));
    connect(&left, &right);
    let back = End::beside(&right);
    let ahead = End::beside(&left);
    common::end::connect_at(&back, &ahead, 20_190);
    exchange(&left, &right);
    exchange(&ahead, &back);
    assert!(is_local(&left) && is_local(&right));
}

/// An adapter of packets and one of any way meet by packets; one that takes queues only is refused,
/// and tells why once.
///
/// Spec: ROCE-230, ROCE-251, ROCE-252
#[test]
fn packets_are_the_way_to_others() {
    let left = End::open_on(108, true, "", PathChoice::Packets);
    let right = End::open_on(109, true, "", PathChoice::Any);
    connect(&left, &right);
    exchange(&left, &right);
    for end in [&left, &right] {
        assert_eq!(end.driver.counts().local.packets, 0);
        assert!(
            end.driver
                .connection_counts()
                .iter()
                .all(|one| !one.is_local)
        );
    }
    let third = local_end(110, true);
    common::end::attempt(&third, &left, 20_191).expect("an attempt");
    assert_eq!(end_of(&third), ConnectionEventKind::NonPeerRejected);
    assert_eq!(third.driver.not_local(), Some(NotLocal::Nobody));
    assert_eq!(third.driver.not_local(), None);
}

/// An adapter that takes queues only tells packets so, unless nobody listens there.
///
/// Spec: ROCE-251, ROCE-252
#[test]
fn a_peer_that_takes_queues_only_says_so() {
    for (number, polled) in [(137, true), (139, false)] {
        let (left, right) = (
            End::open_on(number, polled, "", PathChoice::Packets),
            End::open_on(number + 1, false, "", PathChoice::Local),
        );
        listen(&right, 20_197);
        for (qualifier, reason) in [(20_198, None), (20_197, Some(NotLocal::Required))] {
            let end = End::beside(&left);
            attempt(&end, &right, qualifier).expect("an attempt");
            assert_eq!(end_of(&end), ConnectionEventKind::NonPeerRejected);
            assert_eq!(left.driver.not_local(), reason);
            assert_eq!(left.driver.not_local(), None);
        }
        // An attempt that ends in another way leaves no reason of an earlier one.
        let (again, other) = (End::beside(&left), End::beside(&left));
        attempt(&again, &right, 20_197).expect("an attempt");
        assert_eq!(end_of(&again), ConnectionEventKind::NonPeerRejected);
        attempt(&other, &right, 20_198).expect("an attempt");
        assert_eq!(end_of(&other), ConnectionEventKind::NonPeerRejected);
        assert_eq!(left.driver.not_local(), None);
    }
}

/// A service point that peers of this host would not find is refused if they are the only ones.
///
/// Spec: ROCE-217, ROCE-251
#[test]
fn a_service_point_that_no_one_finds_is_refused() {
    let left = End::open_on(141, true, "", PathChoice::Local);
    let address = left.address.socket_address().expect("an address").ip();
    let name = |port: u16| {
        let name = format!("dat-roce/{address}/{port}");
        let name = SocketAddr::from_abstract_name(name).expect("a name");
        UnixListener::bind_addr(&name).expect("a socket")
    };
    let thief = name(20_199);
    let refused = left.ia.psp_create(20_199, left.evd, PspFlags::Consumer);
    let refused = refused.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ConnQualInUse));
    assert_eq!(left.driver.not_local(), Some(NotLocal::Taken));
    drop(thief);
    let point = listen(&left, 20_199);
    left.ia.psp_free(point).expect("an end of listening");
    // Others have packets.
    let _thief = name(20_199);
    let right = End::open_on(141, true, "?udp=20200", PathChoice::Any);
    listen(&right, 20_199);
    assert_eq!(right.driver.not_local(), None);
}

/// Attempts that a program begins at once have queues, though nobody looks for a while, and the
/// peer has little time.
///
/// Spec: ROCE-220, ROCE-221
#[test]
fn attempts_that_are_begun_at_once_have_queues() {
    for (number, polled) in [(123, true), (125, false)] {
        let left = End::open_on(number, true, "", PathChoice::Any);
        let right = End::open_on(number + 1, polled, "", PathChoice::Any);
        let qualifiers = [20_193, 20_194, 20_195, 20_196];
        for qualifier in qualifiers {
            listen(&right, qualifier);
        }
        let near: Vec<End> = (0..200).map(|_| End::beside(&left)).collect();
        let mut far: Vec<End> = Vec::new();
        for (end, qualifier) in near.iter().zip(qualifiers.into_iter().cycle()) {
            attempt(end, &right, qualifier).expect("an attempt");
        }
        // Longer than a dialler waits.
        thread::sleep(Duration::from_millis(1100));
        let until = Instant::now() + PATIENCE;
        let mut made = 0;
        while made < near.len() {
            assert!(Instant::now() < until, "{made} connections");
            for end in &near {
                match end.look() {
                    Some(Event::Connection { kind, .. }) => {
                        assert_eq!(kind, ConnectionEventKind::Established);
                        made += 1;
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            // Other work of the peer.
            thread::sleep(Duration::from_millis(60));
            while let Some(Event::ConnectionRequest { cr, .. }) = right.look() {
                let end = End::beside(&right);
                let accepted = right.ia.cr_accept(cr, Some(end.ep), &[]);
                accepted.expect("an acceptance");
                far.push(end);
            }
        }
        assert!(is_local(&left) && is_local(&right));
        assert_eq!(left.driver.counts().local.connections, 200);
    }
}

/// Posts reads and writes of `length` bytes at both ends by turns, `most` at a time, until each has
/// done `count`; calls `each` in between with the number of those of the first end.
fn read_and_write(
    [left, right]: [&End; 2],
    (count, most, length): (u64, u64, usize),
    mut each: impl FnMut(u64),
) {
    let none = CompletionFlags::empty();
    let full = || [left, right].map(|end| end.driver.counts().local.full);
    let before = full();
    let (mut posted, mut done) = ([0_u64; 2], [0_u64; 2]);
    let mut moved = Instant::now();
    while done.iter().any(|done| *done < count) {
        assert!(moved.elapsed() < PATIENCE, "{done:?} of {posted:?}");
        for (index, (near, far)) in [(left, right), (right, left)].into_iter().enumerate() {
            while posted[index] < count && posted[index] - done[index] < most {
                let (local, remote) = (near.local(0, length), far.remote(0, length));
                let (ia, ep, cookie) = (&near.ia, near.ep, posted[index]);
                let post = match cookie % 2 {
                    0 => ia.post_rdma_read(ep, &local, cookie, &remote, none),
                    _ => ia.post_rdma_write(ep, &local, cookie, &remote, none),
                };
                post.expect("a post");
                posted[index] += 1;
            }
        }
        for (index, end) in [left, right].into_iter().enumerate() {
            while let Some(event) = end.look() {
                assert!(is_success(&event), "{event:?}");
                done[index] += 1;
                moved = Instant::now();
            }
        }
        each(done[0]);
    }
    let [one, other] = full();
    assert!(
        one > before[0] && other > before[1],
        "both queues were full"
    );
}

/// Reads and writes of both ends make progress while both queues are full, and nothing is sent
/// twice.
///
/// Spec: ROCE-233, ROCE-234
#[test]
fn full_queues_both_ways_make_progress() {
    for (number, polled) in [(113, true), (115, false)] {
        let (left, right) = (local_end(number, polled), local_end(number + 1, polled));
        connect(&left, &right);
        let mut ended = 0;
        let work = (200, 8, SLOT * DEPTH as usize);
        read_and_write([&left, &right], work, |done| {
            // Messages of another connection find room in the full queue.
            if done / 20 > ended {
                ended += 1;
                let (near, far) = (End::beside(&left), End::beside(&right));
                let point = common::end::connect_at(&near, &far, 21_000);
                let close = near.ia.ep_disconnect(near.ep, CloseFlags::Abrupt);
                close.expect("a disconnect");
                assert_eq!(end_of(&far), ConnectionEventKind::Disconnected);
                right.ia.psp_free(point).expect("an end of listening");
            }
        });
        assert!(ended > 5 && is_local(&left) && is_local(&right));
    }
}

/// Four reads and the writes around them have more bytes than a queue.
const SEVERAL: usize = 4 * SLOT;

/// Spec: ROCE-233, ROCE-234, ROCE-237
#[test]
fn full_queues_both_ways_lose_no_operation() {
    let (left, right) = (local_end(119, true), local_end(120, false));
    connect(&left, &right);
    read_and_write([&left, &right], (1_000, 16, SEVERAL), |_| {});
    assert!(is_local(&left) && is_local(&right));
}

/// `cargo test --release -p backend-roce --features udp --test local_way -- --ignored`
///
/// Spec: ROCE-233, ROCE-234, ROCE-237
#[test]
#[ignore = "the long form: ten million operations"]
fn full_queues_lose_none_of_ten_million_operations() {
    let (left, right) = (local_end(121, true), local_end(122, false));
    connect(&left, &right);
    read_and_write([&left, &right], (5_000_000, 16, SEVERAL), |_| {});
    assert!(is_local(&left) && is_local(&right));
}

/// A message without a receive waits; another connection of the same pair goes on.
///
/// Spec: ROCE-234, ROCE-79
#[test]
fn a_message_without_a_receive_stops_no_other_connection() {
    let none = CompletionFlags::empty();
    let (left, right) = (local_end(117, true), local_end(118, true));
    connect(&left, &right);
    let (near, far) = (End::beside(&left), End::beside(&right));
    common::end::connect_at(&near, &far, 20_192);
    let sent = near.ia.post_send(near.ep, &near.local(0, 500), 1, none);
    sent.expect("a post");
    exchange(&left, &right);
    assert!(right.driver.counts().responder.not_ready > 0);
    let received = far.ia.post_recv(far.ep, &far.local(1, SLOT), 2, none);
    received.expect("a receive");
    poll_both([&near, &far], 2, |_, event| is_success(&event));
}

/// A full pair of queues keeps no endpoint that is reset from its next connection.
///
/// Spec: ROCE-234
#[test]
fn a_full_pair_keeps_no_endpoint_from_its_next_connection() {
    let (left, full, next) = (
        local_end(141, true),
        local_end(142, true),
        local_end(143, true),
    );
    connect(&left, &full);
    // Nobody reads these.
    let (memory, target) = (left.local(0, SLOT), full.remote(0, SLOT));
    for number in 0..DEPTH as u64 {
        let none = CompletionFlags::empty();
        let posted = left
            .ia
            .post_rdma_write(left.ep, &memory, number, &target, none);
        posted.expect("a post");
    }
    assert!(left.driver.counts().local.full > 0);
    let close = left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt);
    close.expect("a disconnect");
    assert_eq!(end_of(&left), ConnectionEventKind::Disconnected);
    while left.look().is_some() {}
    left.ia.ep_reset(left.ep).expect("a reset");
    connect(&left, &next);
    exchange(&left, &next);
}
