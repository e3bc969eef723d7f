//! How connections of queues in memory end, by adapters and by processes, and what they leave.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use backend_roce::PathChoice;
use common::end::{
    DEPTH, End, PATIENCE, QUALIFIER, SLOT, attempt, connect, connect_at, end_of, is_success,
    listen, local_end, next, param, poll_both,
};
use common::process::{Held, Other, is_alone, ready, wait_for_the_end};
use dat_core::backend::NotLocal;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{CloseFlags, CompletionFlags};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Set in another process to the address that it connects to.
const TARGET: &str = "LOCAL_ENDS_TARGET";

/// Returns a time for adapters without threads.
fn later(begin: dat_core::time::Instant, seconds: u64) -> dat_core::time::Instant {
    dat_core::time::Instant::from_micros(begin.as_micros() + seconds * 1_000_000)
}

fn target() -> Option<SocketAddr> {
    Some(env::var(TARGET).ok()?.parse().expect("an address"))
}

/// Starts a process that runs a part below, and connects to an adapter of this one.
fn process(part: &str, right: &End) -> Other {
    let target = right.address.socket_address().expect("an address");
    let mut command = Other::command(part);
    let other = Other::start(command.env(TARGET, target.to_string()));
    other.expect("a process")
}

/// Starts a process that connects to an end, and answers as its threads do.
fn peer(right: &End) -> Other {
    listen(right, QUALIFIER);
    let mut other = process("peer_process", right);
    loop {
        match next(right) {
            Event::ConnectionRequest { cr, .. } => {
                let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
                accepted.expect("an acceptance");
            }
            Event::Connection { kind, .. } => {
                assert_eq!(kind, ConnectionEventKind::Established);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    other.is_ready();
    other
}

/// Waits for the connection that an end has begun.
fn is_established(end: &End) {
    let event = next(end);
    let is_established =
        matches!(event, Event::Connection { kind, .. } if kind == ConnectionEventKind::Established);
    assert!(is_established, "{event:?} {:?}", end.driver.not_local());
}

/// The part of a peer that connects once; in a usual run there is none.
#[test]
fn peer_process() {
    let Some(target) = target() else {
        return;
    };
    let left = local_end(130, false);
    let received = left.ia.post_recv(left.ep, &left.local(1, SLOT), 2, NONE);
    received.expect("a receive");
    let param = param(target, QUALIFIER);
    let connected = left.ia.ep_connect(left.ep, &param, ThreadWait::clock());
    connected.expect("an attempt");
    is_established(&left);
    ready();
    wait_for_the_end();
}

/// The death of a process breaks its connections at once, though no timer runs.
///
/// Spec: ROCE-236
#[test]
fn the_death_of_a_peer_breaks_its_connections() {
    for polled in [true, false] {
        let right = local_end(121 + u8::from(polled), polled);
        let peer = peer(&right);
        let received = right.ia.post_recv(right.ep, &right.local(1, SLOT), 2, NONE);
        received.expect("a receive");
        peer.signal(Signal::KILL);
        let events = [next(&right), next(&right)];
        let is_broken = |event: &Event| {
            matches!(event, Event::Connection { kind, .. }
                if *kind == ConnectionEventKind::Broken)
        };
        assert!(events.iter().any(is_broken), "{events:?}");
        assert_eq!(right.driver.counts().local.pairs, 0);
    }
}

/// A request to a stopped peer waits longer than sockets repeat it, and succeeds once the peer goes
/// on.
///
/// Spec: ROCE-237
#[test]
fn a_stopped_peer_breaks_nothing() {
    let right = local_end(123, true);
    let peer = peer(&right);
    peer.signal(Signal::STOP);
    let sent = right.ia.post_send(right.ep, &right.local(1, 8), 4, NONE);
    sent.expect("a post");
    let begin = ThreadWait::clock();
    for seconds in 0..3600 {
        assert_eq!(right.look_at(later(begin, seconds)), None);
    }
    peer.signal(Signal::CONT);
    let event = next(&right);
    assert!(is_success(&event), "{event:?}");
    assert_eq!(right.driver.counts().requester.retransmits, 0);
    drop(peer);
    assert_eq!(end_of(&right), ConnectionEventKind::Broken);
}

/// Spec: ROCE-237
#[test]
#[ignore = "the long form: takes a minute"]
fn a_peer_that_is_stopped_for_a_minute_breaks_nothing() {
    let right = local_end(124, false);
    let peer = peer(&right);
    peer.signal(Signal::STOP);
    let sent = right.ia.post_send(right.ep, &right.local(1, 8), 4, NONE);
    sent.expect("a post");
    thread::sleep(Duration::from_secs(60));
    assert_eq!(right.look(), None);
    peer.signal(Signal::CONT);
    let event = next(&right);
    assert!(is_success(&event), "{event:?}");
    assert_eq!(right.driver.counts().requester.retransmits, 0);
}

/// The repetitions of an acceptance are not used up while its peer is stopped.
///
/// Spec: ROCE-291
#[test]
fn an_acceptance_waits_for_a_stopped_peer() {
    let right = local_end(149, true);
    listen(&right, QUALIFIER);
    let mut peer = process("peer_process", &right);
    let Event::ConnectionRequest { cr, .. } = next(&right) else {
        panic!("no request");
    };
    peer.signal(Signal::STOP);
    let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
    accepted.expect("an acceptance");
    let begin = ThreadWait::clock();
    let sent = || right.driver.counts().local.packets_sent;
    let before = sent();
    for seconds in 0..60 {
        assert_eq!(right.look_at(later(begin, seconds)), None, "{seconds} s");
    }
    assert_eq!(sent(), before, "the REP lies in the queue");
    peer.signal(Signal::CONT);
    is_established(&right);
    peer.is_ready();
}

/// A peer that answers keep-alive stays, and one that does not is given up, after as long as all
/// repetitions would take.
///
/// Spec: ROCE-53, ROCE-237
#[test]
fn keep_alive_finds_a_peer_that_does_not_answer() {
    let left = local_end(125, true);
    let right = End::open_on(126, true, "?keep-alive=1", PathChoice::Local);
    connect(&left, &right);
    let sent = || right.driver.counts().local.packets_sent;
    let before = sent();
    let begin = ThreadWait::clock();
    let at = |seconds| later(begin, seconds);
    for seconds in 0..300 {
        assert_eq!(right.look_at(at(seconds)), None);
        assert_eq!(left.look_at(at(seconds)), None);
    }
    assert!(sent() - before > 100, "{} probes", sent() - before);
    let before = sent();
    let broken = (300..3000).find(|seconds| right.look_at(at(*seconds)).is_some());
    // Seven times 17 s, and the rest of the period.
    let silent = broken.expect("the end") - 300;
    assert!((60..600).contains(&silent), "{silent} s");
    let packets = sent() - before;
    assert_eq!(packets, 2, "the probe, once, and the end of the connection");
    assert_eq!(right.driver.counts().requester.retransmits, 0);
}

/// Time in which both ends were stopped is no silence of the peer.
///
/// Spec: ROCE-53, ROCE-237
#[test]
fn a_stop_of_both_ends_is_no_silence() {
    let left = local_end(133, true);
    let right = End::open_on(134, true, "?keep-alive=1", PathChoice::Local);
    connect(&left, &right);
    let received = left.ia.post_recv(left.ep, &left.local(1, SLOT), 2, NONE);
    received.expect("a receive");
    let sent = right.ia.post_send(right.ep, &right.local(1, 8), 4, NONE);
    sent.expect("a post");
    // This end is the first one to look.
    assert_eq!(right.look_at(later(ThreadWait::clock(), 3600)), None);
    poll_both([&left, &right], 2, |_, event| is_success(&event));
}

/// Without keep-alive, nothing ends the connection to a peer that does nothing.
///
/// Spec: ROCE-237
#[test]
fn without_keep_alive_a_silent_peer_stays() {
    let (left, right) = (local_end(127, true), local_end(128, true));
    connect(&left, &right);
    let before = right.driver.counts().packets_sent;
    let begin = ThreadWait::clock();
    for minutes in 0..600 {
        assert_eq!(right.look_at(later(begin, 60 * minutes)), None);
    }
    assert_eq!(right.driver.counts().packets_sent, before);
}

/// The end of an adapter is an orderly end of its connections.
///
/// Spec: ROCE-236
#[test]
fn an_orderly_end_is_no_break() {
    for polled in [true, false] {
        for _ in 0..10 {
            let (left, right) = (local_end(111, polled), local_end(112, polled));
            connect(&left, &right);
            drop(left);
            assert_eq!(end_of(&right), ConnectionEventKind::Disconnected);
        }
    }
}

/// The end of an adapter comes after all that it has written, though its queue is full.
///
/// Spec: ROCE-233, ROCE-236
#[test]
fn the_end_behind_a_full_queue_is_orderly() {
    for polled in [true, false] {
        let (left, right) = (local_end(107, polled), local_end(108, true));
        connect(&left, &right);
        let whole = SLOT * DEPTH as usize;
        for cookie in 0..8 {
            let (local, remote) = (left.local(0, whole), right.remote(0, whole));
            let posted = left
                .ia
                .post_rdma_write(left.ep, &local, cookie, &remote, NONE);
            posted.expect("a post");
        }
        let until = Instant::now() + PATIENCE;
        while left.driver.counts().local.full == 0 {
            assert!(Instant::now() < until, "the queue has room");
            assert_eq!(left.look(), None);
        }
        drop(left);
        assert_eq!(end_of(&right), ConnectionEventKind::Disconnected);
    }
}

/// All addresses of an adapter, and all of its ports, lead to one pair, in both directions.
///
/// Spec: ROCE-217, ROCE-221
#[test]
fn all_addresses_of_an_adapter_lead_to_one_pair() {
    let left = local_end(109, true);
    let right = End::open_at(Ipv4Addr::UNSPECIFIED, "", |options| {
        (options.polled, options.path) = (true, PathChoice::Local);
    });
    // Ports of all addresses, of which no other process of these tests has one.
    let first = 22_000 + u64::from(std::process::id() % 1000) * 2;
    let qualifiers = [first, first + 1];
    let points = qualifiers.map(|qualifier| listen(&right, qualifier));
    for host in 1..4 {
        for qualifier in qualifiers {
            let near = End::beside(&left);
            let target = SocketAddr::from(([127, 0, 0, host], 0));
            let param = param(target, qualifier);
            let begun = near.ia.ep_connect(near.ep, &param, ThreadWait::clock());
            begun.expect("an attempt");
            let far = End::beside(&right);
            let until = Instant::now() + PATIENCE;
            let mut made = 0;
            while made < 2 {
                assert!(Instant::now() < until, "{host} {qualifier}");
                if let Some(Event::ConnectionRequest { cr, .. }) = right.look() {
                    let accepted = right.ia.cr_accept(cr, Some(far.ep), &[]);
                    accepted.expect("an acceptance");
                }
                for end in [&near, &far] {
                    made += usize::from(end.look().is_some());
                }
            }
        }
    }
    for point in points {
        right.ia.psp_free(point).expect("an end of listening");
    }
    connect(&End::beside(&right), &End::beside(&left));
    for end in [&left, &right] {
        let counts = end.driver.counts().local;
        assert_eq!((counts.pairs, counts.connections), (1, 7));
    }
}

/// An adapter that is closed, and that something of the program still holds, has no pair.
///
/// Spec: ROCE-224, ROCE-236
#[test]
fn a_closed_adapter_has_no_pair() {
    for polled in [true, false] {
        let (left, right) = (local_end(113, polled), local_end(114, polled));
        connect(&left, &right);
        let End { ia, driver, .. } = right;
        drop(ia);
        assert_eq!(driver.counts().local.pairs, 0);
        assert_eq!(end_of(&left), ConnectionEventKind::Disconnected);
        let until = Instant::now() + PATIENCE;
        while left.driver.counts().local.pairs > 0 {
            assert!(Instant::now() < until, "the pair goes on");
            assert_eq!(left.look(), None);
        }
        // An adapter that begins again is another one.
        let again = local_end(115, polled);
        connect(&End::beside(&left), &again);
        driver.drive(ThreadWait::clock());
        assert_eq!(driver.counts().local.pairs, 0);
    }
}

/// Makes new memory fail, as long as other files of the process stay short.
fn prohibit_memory() {
    let limit = Rlimit {
        current: Some(400 << 10),
        ..getrlimit(Resource::Fsize)
    };
    setrlimit(Resource::Fsize, limit).expect("a limit");
}

/// A connect makes memory only where there is no pair, and somebody who takes one.
///
/// Spec: ROCE-219, ROCE-221, ROCE-251
#[test]
fn a_connect_without_a_new_pair_makes_no_memory() {
    if !is_alone("a_connect_without_a_new_pair_makes_no_memory") {
        return;
    }
    for (number, polled) in [(116, true), (118, false)] {
        let (left, right) = (local_end(number, polled), local_end(number + 1, polled));
        connect(&left, &right);
        let before = Held::now();
        let limit = getrlimit(Resource::Fsize);
        prohibit_memory();
        let mut ends = Vec::new();
        for qualifier in 20_200..20_230 {
            let (near, far) = (End::beside(&left), End::beside(&right));
            let point = connect_at(&near, &far, qualifier);
            right.ia.psp_free(point).expect("an end of listening");
            ends.push((near, far));
        }
        // The other way round, and where nobody listens.
        let (near, far) = (End::beside(&right), End::beside(&left));
        connect_at(&near, &far, 20_231);
        let stranger = local_end(120, polled);
        attempt(&stranger, &right, 20_232).expect("an attempt");
        assert_eq!(end_of(&stranger), ConnectionEventKind::NonPeerRejected);
        assert_eq!(stranger.driver.not_local(), Some(NotLocal::Nobody));
        assert_eq!(Held::now().queues, before.queues);
        // The limit works: a first pair needs memory.
        let end = End::beside(&stranger);
        attempt(&end, &right, QUALIFIER).expect("an attempt");
        assert_eq!(end_of(&end), ConnectionEventKind::Unreachable);
        assert_eq!(stranger.driver.not_local(), Some(NotLocal::Memory));
        setrlimit(Resource::Fsize, limit).expect("a limit");
        let (near, far) = (End::beside(&stranger), End::beside(&right));
        connect_at(&near, &far, 20_233);
    }
}

/// A thousand connections come, are used and go, with few descriptors and mappings, and with none
/// left.
///
/// Spec: ROCE-223
#[test]
fn connections_leave_nothing() {
    if !is_alone("connections_leave_nothing") {
        return;
    }
    let round = |number: u8, polled: bool, count: u16| {
        let (left, right) = (local_end(number, polled), local_end(number + 1, polled));
        let opened = Held::now();
        for index in 0..count {
            let (near, far) = (End::beside(&left), End::beside(&right));
            let point = connect_at(&near, &far, 21_000);
            right.ia.psp_free(point).expect("an end of listening");
            let (local, remote) = (near.local(0, 8), far.remote(0, 8));
            let posted = near.ia.post_rdma_write(near.ep, &local, 0, &remote, NONE);
            posted.expect("a post");
            poll_both([&near, &far], 1, |_, event| is_success(&event));
            let (from, to) = if index % 2 == 0 {
                (near, far)
            } else {
                (far, near)
            };
            match index % 3 {
                0 => {
                    let close = from.ia.ep_disconnect(from.ep, CloseFlags::Abrupt);
                    close.expect("a disconnect");
                    assert_eq!(end_of(&to), ConnectionEventKind::Disconnected);
                    from.free();
                }
                1 => {
                    let close = from.ia.ep_disconnect(from.ep, CloseFlags::Graceful);
                    close.expect("a disconnect");
                    assert_eq!(end_of(&from), ConnectionEventKind::Disconnected);
                    assert_eq!(end_of(&to), ConnectionEventKind::Disconnected);
                    from.free();
                }
                _ => {
                    from.free();
                    assert_eq!(end_of(&to), ConnectionEventKind::Disconnected);
                }
            }
            to.free();
        }
        let now = Held::now();
        assert!(
            now.descriptors <= opened.descriptors + 4,
            "{opened:?} {now:?}"
        );
        assert!(now.queues <= opened.queues + 2, "{opened:?} {now:?}");
        assert_eq!(now.threads, opened.threads);
    };
    round(101, true, 4);
    let before = Held::now();
    round(101, true, 500);
    round(103, false, 500);
    // The system may take its time for the end of a thread.
    let until = Instant::now() + PATIENCE;
    while Held::now() != before {
        assert!(Instant::now() < until, "{:?} of {before:?}", Held::now());
        thread::yield_now();
    }
}

/// The part of a peer that makes, uses and ends connections until it is killed.
#[test]
fn restless_process() {
    let Some(target) = target() else {
        return;
    };
    let left = local_end(129, false);
    for index in 0.. {
        let end = End::beside(&left);
        let param = param(target, QUALIFIER);
        let connected = end.ia.ep_connect(end.ep, &param, ThreadWait::clock());
        connected.expect("an attempt");
        is_established(&end);
        let sent = end.ia.post_send(end.ep, &end.local(0, 100), 3, NONE);
        sent.expect("a post");
        assert!(is_success(&next(&end)));
        if index % 2 == 0 {
            let close = end.ia.ep_disconnect(end.ep, CloseFlags::Abrupt);
            close.expect("a disconnect");
        }
        end.free();
    }
}

/// Serves what `restless_process` asks for; returns the number of events.
fn serve(right: &End, ends: &mut Vec<End>) -> usize {
    let mut seen = 0;
    while let Some(event) = right.look() {
        seen += 1;
        let Event::ConnectionRequest { cr, .. } = event else {
            panic!("{event:?}");
        };
        let end = End::beside(right);
        let received = end.ia.post_recv(end.ep, &end.local(0, 100), 1, NONE);
        received.expect("a receive");
        // The peer may be dead.
        match right.ia.cr_accept(cr, Some(end.ep), &[]) {
            Ok(()) => ends.push(end),
            Err(_) => end.free(),
        }
    }
    let mut index = 0;
    while let Some(end) = ends.get(index) {
        let event = end.look();
        seen += usize::from(event.is_some());
        let is_over = matches!(event, Some(Event::Connection { kind, .. })
            if kind != ConnectionEventKind::Established);
        match is_over {
            true => ends.swap_remove(index).free(),
            false => index += 1,
        }
    }
    seen
}

/// A peer may be killed at any step of making, using and ending connections.
///
/// Spec: ROCE-216, ROCE-223, ROCE-236
#[test]
fn a_peer_killed_at_any_step_leaves_nothing() {
    if !is_alone("a_peer_killed_at_any_step_leaves_nothing") {
        return;
    }
    for polled in [true, false] {
        let right = local_end(105 + u8::from(polled), polled);
        listen(&right, QUALIFIER);
        let before = Held::now();
        for step in 0..10 {
            let other = process("restless_process", &right);
            let mut ends = Vec::new();
            let mut seen = 0;
            let until = Instant::now() + PATIENCE;
            while seen < step {
                assert!(Instant::now() < until, "{seen} of {step} events");
                seen += serve(&right, &mut ends);
            }
            other.kill();
            while right.driver.counts().local.pairs > 0 || !ends.is_empty() || Held::now() != before
            {
                let now = Held::now();
                assert!(Instant::now() < until, "{step}: {now:?} of {before:?}");
                serve(&right, &mut ends);
            }
        }
    }
}
