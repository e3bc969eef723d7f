//! Connections between adapters of one host, whose packets go through queues in memory.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use backend_roce::PathChoice;
use common::end::{DEPTH, End, PATIENCE, SLOT, connect, exchange, is_success, poll_both};
use dat_core::backend::NotLocal;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{CloseFlags, CompletionFlags};

fn local_end(number: u8, polled: bool) -> End {
    End::open_on(number, polled, "", PathChoice::Local)
}

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

/// Returns the event that ends the connection of an end.
fn end_of(end: &End) -> ConnectionEventKind {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no event");
        if let Some(Event::Connection { kind, .. }) = end.look() {
            return kind;
        }
    }
}

/// Reads and writes of both ends make progress while both queues are full, and nothing is sent
/// twice.
///
/// Spec: ROCE-233, ROCE-234
#[test]
fn full_queues_both_ways_make_progress() {
    let none = CompletionFlags::empty();
    for (number, polled) in [(113, true), (115, false)] {
        let (left, right) = (local_end(number, polled), local_end(number + 1, polled));
        connect(&left, &right);
        let whole = SLOT * DEPTH as usize;
        let (mut posted, mut done, mut ended) = ([0_u64; 2], [0_u64; 2], 0);
        let until = Instant::now() + PATIENCE;
        while done.iter().any(|done| *done < 400) {
            assert!(Instant::now() < until, "{done:?} of {posted:?}");
            for (index, (near, far)) in [(&left, &right), (&right, &left)].into_iter().enumerate() {
                while posted[index] < 400 && posted[index] - done[index] < 8 {
                    let (local, remote) = (near.local(0, whole), far.remote(0, whole));
                    let (ia, ep, cookie) = (&near.ia, near.ep, posted[index]);
                    let post = match cookie % 2 {
                        0 => ia.post_rdma_read(ep, &local, cookie, &remote, none),
                        _ => ia.post_rdma_write(ep, &local, cookie, &remote, none),
                    };
                    post.expect("a post");
                    posted[index] += 1;
                }
            }
            for (index, end) in [&left, &right].into_iter().enumerate() {
                while let Some(event) = end.look() {
                    assert!(is_success(&event), "{event:?}");
                    done[index] += 1;
                }
            }
            // Messages of another connection find room in the full queue.
            if done[0] / 40 > ended {
                ended += 1;
                let (near, far) = (End::beside(&left), End::beside(&right));
                let point = common::end::connect_at(&near, &far, 21_000);
                let close = near.ia.ep_disconnect(near.ep, CloseFlags::Abrupt);
                close.expect("a disconnect");
                assert_eq!(end_of(&far), ConnectionEventKind::Disconnected);
                right.ia.psp_free(point).expect("an end of listening");
            }
        }
        assert!(ended > 5 && is_local(&left) && is_local(&right));
        let full = left.driver.counts().local.full + right.driver.counts().local.full;
        assert!(full > 0);
    }
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

/// Datagrams to connections of queues are dropped.
///
/// Spec: ROCE-231
#[test]
fn datagrams_do_not_reach_a_connection_of_queues() {
    let (left, right) = (local_end(119, true), local_end(120, true));
    connect(&left, &right);
    let target = right.address.socket_address().expect("an address");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let before = right.driver.counts();
    // To all queue pairs that there may be: the numbers are random, and the table is small.
    let mut packet = [0_u8; 16];
    packet[0] = 0x04;
    packet[2..4].copy_from_slice(&[0xFF, 0xFF]);
    for number in 0..64_u32 {
        packet[4..8].copy_from_slice(&number.to_be_bytes());
        sender.send_to(&packet, target).expect("a datagram");
    }
    let until = Instant::now() + PATIENCE;
    while right.driver.counts().dropped < before.dropped + 64 {
        assert!(Instant::now() < until, "{:?}", right.driver.counts());
        assert!(right.look().is_none());
    }
    let close = left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt);
    close.expect("a disconnect");
    assert_eq!(end_of(&right), ConnectionEventKind::Disconnected);
}

/// Set in a process that connects to the address that it names.
const ROLE: &str = "LOCAL_WAY_PEER";

/// A process that connects to an end of this one, and answers as its threads do.
struct Peer(Child);

impl Peer {
    fn start(right: &End) -> Self {
        let target = right.address.socket_address().expect("an address");
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "peer_process", "--nocapture"])
            .env(ROLE, target.to_string())
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        let until = Instant::now() + PATIENCE;
        while let Some(event) = loop_until(right, until) {
            match event {
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
        let mut lines = lines.lines().map(|line| line.expect("a line"));
        assert!(lines.any(|line| line.contains("connected")));
        Self(child)
    }

    fn signal(&self, signal: libc::c_int) {
        let id = libc::pid_t::try_from(self.0.id()).expect("an id");
        #[expect(unsafe_code, reason = "the subject of these tests")]
        // SAFETY: the process is a child that was not waited for.
        let code = unsafe { libc::kill(id, signal) };
        assert_eq!(code, 0);
        // The signal is on its way: each thread stops at its next interruption.
        while signal == libc::SIGSTOP && !common::process::is_stopped(self.0.id()) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn loop_until(end: &End, until: Instant) -> Option<Event> {
    loop {
        assert!(Instant::now() < until, "no event");
        if let Some(event) = end.look() {
            return Some(event);
        }
    }
}

/// The other process of the tests below: connects, and then only its thread does anything.
#[test]
fn peer_process() {
    let Ok(target) = std::env::var(ROLE) else {
        return;
    };
    let left = local_end(130, false);
    let none = CompletionFlags::empty();
    let received = left.ia.post_recv(left.ep, &left.local(1, SLOT), 2, none);
    received.expect("a receive");
    let param = common::end::param(target.parse().expect("an address"), common::end::QUALIFIER);
    let connected = left.ia.ep_connect(left.ep, &param, ThreadWait::clock());
    connected.expect("an attempt");
    let event = loop_until(&left, Instant::now() + PATIENCE);
    assert!(matches!(event, Some(Event::Connection { .. })), "{event:?}");
    println!("connected");
    // Until its parent has gone.
    let _ = std::io::read_to_string(std::io::stdin());
}

/// The death of a process breaks its connections at once, though no timer runs.
///
/// Spec: ROCE-236
#[test]
fn the_death_of_a_peer_breaks_its_connections() {
    for polled in [true, false] {
        let right = local_end(121 + u8::from(polled), polled);
        common::end::listen(&right, common::end::QUALIFIER);
        let peer = Peer::start(&right);
        let none = CompletionFlags::empty();
        let received = right.ia.post_recv(right.ep, &right.local(1, SLOT), 2, none);
        received.expect("a receive");
        peer.signal(libc::SIGKILL);
        let mut events = VecDeque::new();
        let until = Instant::now() + PATIENCE;
        while events.len() < 2 {
            events.extend(loop_until(&right, until));
        }
        let is_broken = |event: &Event| matches!(event, Event::Connection { kind, .. } if *kind == ConnectionEventKind::Broken);
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
    let right = local_end(123, false);
    common::end::listen(&right, common::end::QUALIFIER);
    let peer = Peer::start(&right);
    peer.signal(libc::SIGSTOP);
    let none = CompletionFlags::empty();
    let sent = right.ia.post_send(right.ep, &right.local(1, 8), 4, none);
    sent.expect("a post");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(right.look().is_none());
    peer.signal(libc::SIGCONT);
    let event = loop_until(&right, Instant::now() + PATIENCE);
    assert!(event.as_ref().is_some_and(is_success), "{event:?}");
    drop(peer);
    assert_eq!(end_of(&right), ConnectionEventKind::Broken);
}

/// Returns the numbers of descriptors, of mappings of queues and of threads of this process.
fn held() -> [usize; 3] {
    let entries = |path: &str| std::fs::read_dir(path).expect(path).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let queues = maps.lines().filter(|line| line.contains("dat-roce"));
    [
        entries("/proc/self/fd"),
        queues.count(),
        entries("/proc/self/task"),
    ]
}

/// Many connections come and go with few descriptors and mappings, and with none left.
///
/// Spec: ROCE-223
#[test]
fn connections_leave_nothing() {
    if std::env::var_os(ROLE).is_none() {
        // In a process of its own: other tests have descriptors, too.
        let program = std::env::current_exe().expect("this program");
        let status = Command::new(program)
            .args(["--exact", "connections_leave_nothing"])
            .env(ROLE, "alone")
            .status();
        assert!(status.expect("a process").success());
        return;
    }
    let round = |number: u8, polled: bool, count: u16| {
        let (left, right) = (local_end(number, polled), local_end(number + 1, polled));
        let opened = held();
        for _ in 0..count {
            let (near, far) = (End::beside(&left), End::beside(&right));
            let point = common::end::connect_at(&near, &far, 21_000);
            let close = near.ia.ep_disconnect(near.ep, CloseFlags::Abrupt);
            close.expect("a disconnect");
            assert_eq!(end_of(&far), ConnectionEventKind::Disconnected);
            right.ia.psp_free(point).expect("an end of listening");
            for end in [near, far] {
                end.ia.ep_free(end.ep).expect("an endpoint");
                end.ia.evd_free(end.evd).expect("a queue");
            }
        }
        let [descriptors, mappings, threads] = held();
        assert!(descriptors <= opened[0] + 4, "{opened:?} {descriptors}");
        assert!(mappings <= opened[1] + 2, "{opened:?} {mappings}");
        assert_eq!(threads, opened[2]);
    };
    round(124, true, 4);
    let before = held();
    round(124, true, 200);
    round(126, false, 200);
    assert_eq!(held(), before);
}
