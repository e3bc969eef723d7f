//! Adapters with sockets and without a thread: polls move their packets.
#![cfg(feature = "udp")]

mod common;

use std::time::Instant;

use common::end::{DEPTH, End, PATIENCE, SLOT, connect, exchange, is_success, poll_both};
use dat_core::event::{Event, ThreadWait};
use dat_core::flags::CompletionFlags;

/// Two adapters without threads serve each other on one thread of the program.
#[test]
fn polled_adapters_move_data() {
    let (left, right) = (End::open(0, true), End::open(1, true));
    connect(&left, &right);
    exchange(&left, &right);
    for end in [&left, &right] {
        let counts = end.driver.counts();
        assert_eq!((counts.bad_icrc, counts.dropped), (0, 0), "{counts:?}");
    }
}

/// A polled adapter and one with a thread serve each other.
#[test]
fn a_polled_adapter_meets_one_with_a_thread() {
    let (left, right) = (End::open(2, true), End::open(3, false));
    connect(&left, &right);
    exchange(&left, &right);
}

/// The smaller limit of two addresses is the path MTU, in both directions of connecting.
///
/// Spec: ROCE-62, ROCE-155, ROCE-177, ROCE-182
#[test]
fn the_smaller_path_mtu_of_two_addresses_is_used() {
    let none = CompletionFlags::empty();
    for (number, (near, far, mtu)) in (10..).step_by(2).zip([
        ("?mtu=2048", "?mtu=512", 512),
        ("?mtu=256", "?keep-alive=60&mtu=4096", 256),
        ("?mtu=1024", "", 1024),
        ("", "?mtu=2048", 2048),
        ("", "", 4096),
    ]) {
        let left = End::open_with(number, true, near);
        let right = End::open_with(number + 1, true, far);
        connect(&left, &right);
        for (from, to) in [(&left, &right), (&right, &left)] {
            let packets = || from.driver.counts().requester.packets;
            let before = packets();
            let (local, remote) = (from.local(0, SLOT), to.remote(0, SLOT));
            let posted = from.ia.post_rdma_write(from.ep, &local, 1, &remote, none);
            posted.expect("a post");
            poll_both([from, to], 1, |_, event| is_success(&event));
            let packets = packets() - before;
            assert_eq!(packets, SLOT.div_ceil(mtu) as u64, "{near} {far}");
        }
    }
}

/// The end of a polled adapter ends its connections.
#[test]
fn the_peer_of_a_polled_adapter_learns_of_its_end() {
    let (left, right) = (End::open(4, true), End::open(5, true));
    connect(&left, &right);
    drop(left);
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "no event");
        if let Some(Event::Connection { .. }) = right.look() {
            return;
        }
    }
}

/// A request of a consumer that takes no completions leaves at once, though some are there.
///
/// Spec: ROCE-185
#[test]
fn a_consumer_that_takes_nothing_is_not_waited_for() {
    let (left, right) = (End::open(8, true), End::open(9, true));
    connect(&left, &right);
    let none = CompletionFlags::empty();
    let post = |cookie| {
        let (local, remote) = (left.local(0, 8), right.remote(0, 8));
        let posted = left
            .ia
            .post_rdma_write(left.ep, &local, cookie, &remote, none);
        posted.expect("a post");
    };
    let end = Instant::now() + PATIENCE;
    for cookie in 0..5 {
        let sent = left.driver.counts().packets_sent;
        post(cookie);
        assert_eq!(left.driver.counts().packets_sent, sent + 1, "{cookie}");
        // Until the write is acknowledged, so that its completion is there.
        let answered = left.driver.counts().packets;
        while left.driver.counts().packets == answered {
            assert!(Instant::now() < end, "no acknowledgement");
            assert!(right.look().is_none());
            left.ia.progress(ThreadWait::clock());
        }
    }
    for cookie in 0..5 {
        let event = left.look();
        let taken = matches!(event, Some(Event::Dto(done)) if done.cookie == cookie);
        assert!(taken, "{event:?}");
    }
}

/// Short writes that are under way together share datagrams, which the peer gets in runs.
///
/// Spec: ROCE-57, ROCE-184, ROCE-185
#[test]
fn a_stream_of_short_writes_gathers() {
    let (left, right) = (End::open(6, true), End::open(7, true));
    connect(&left, &right);
    let none = CompletionFlags::empty();
    let (writes, mut posted, mut done) = (2_000, 0, 0);
    let before = right.driver.counts();
    // Time stands still, so that no request leaves because it waited for too long.
    let still = ThreadWait::clock();
    let end = Instant::now() + PATIENCE;
    while done < writes {
        while posted < writes && posted - done < DEPTH as u64 {
            let (local, remote) = (left.local(0, 8), right.remote(0, 8));
            let post = left
                .ia
                .post_rdma_write(left.ep, &local, posted, &remote, none);
            post.expect("a post");
            posted += 1;
        }
        assert!(Instant::now() < end, "{done} of {writes} writes");
        assert!(right.look_at(still).is_none());
        if let Some(event) = left.look_at(still) {
            assert!(is_success(&event), "{event:?}");
            done += 1;
        }
    }
    let after = right.driver.counts();
    let (requests, answers) = (
        after.packets - before.packets,
        after.packets_sent - before.packets_sent,
    );
    assert!(requests >= writes, "{requests}");
    // One acknowledgement answers a run.
    assert!(answers * 8 < writes, "{answers} answers to {writes} writes");
}
