//! Datagrams between devices of one host: through queues in memory, or by sockets.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use backend_roce::local::{Dial, Dialled, First, Identity, LocalPair};
use backend_roce::{LocalCounts, PathChoice, RoceOptions};
use common::between::Taken;
use common::devices::Side;
use common::process::{Other, ready, until, wait_for_the_end};
use dat_core::backend::Segment;
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;
use rustix::process::Signal;

/// Bytes of a network header.
const HEADER: usize = 40;

/// Port of a test that is an adapter itself, and a QPN that names it.
const PORT: u16 = 61_100;
const QPN: u32 = (PORT as u32 - 57_344) << 11;

/// Variable of the other process.
const ROLE: &str = "DATAGRAM_ROLE";

/// Address of its device, the secret that chooses its port, and its QPN.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 89, 5, 9));
const SECRET: [u8; 16] = [7; 16];
const NAME: u32 = (61_000 + 0x0707 - 57_344) << 11;

/// A device with a queue pair for datagrams, and its address.
struct End(Side, IpAddr);

impl End {
    fn open(network: u8, host: u8, path: PathChoice) -> Self {
        let mut options = RoceOptions::random().expect("random bytes");
        options.path = path;
        Self::open_with(Ipv4Addr::new(127, 89, network, host).into(), options)
    }

    fn open_with(address: IpAddr, options: RoceOptions) -> Self {
        Self::of(Side::open_with(address, &options), address)
    }

    fn of(side: Side, address: IpAddr) -> Self {
        side.device.receive_datagrams(side.qpn, 1).expect("ready");
        side.device.send_datagrams(side.qpn).expect("ready");
        Self(side, address)
    }

    fn name(&self) -> (IpAddr, u32) {
        (self.1, self.0.qpn)
    }

    /// Sends a datagram with a byte, which completes.
    fn send(&self, to: (IpAddr, u32), byte: u8, length: u32) {
        self.0.bytes[0].store(byte, Ordering::Relaxed);
        let segment = Segment {
            length,
            ..self.0.segment
        };
        self.0.post_datagram(self.1, to, &[segment]);
        let sent = self.0.wait();
        assert_eq!((sent.token, sent.status), (2, DtoStatus::Success));
    }

    fn post_receive(&self) {
        let part = Segment {
            address: self.0.segment.address + 8192,
            length: 8192,
            ..self.0.segment
        };
        let posted = self.0.device.post_receive(self.0.qpn, 1, &[part]);
        posted.expect("a receive");
    }

    /// Returns the byte of a datagram that came from another end.
    fn take(&self, from: (IpAddr, u32)) -> u8 {
        let came = self.0.wait();
        assert_eq!((came.token, came.status), (1, DtoStatus::Success));
        assert_eq!(came.source, Some(from.1));
        let byte = |at: usize| self.0.bytes[8192 + at].load(Ordering::Relaxed);
        let ip = |at| IpAddr::from([0usize, 1, 2, 3].map(|index| byte(at + index)));
        assert_eq!((ip(32), ip(36)), (from.0, self.1));
        byte(HEADER)
    }

    /// Sends a datagram to another end, which takes it.
    fn send_to(&self, to: &Self, byte: u8) {
        to.post_receive();
        self.send(to.name(), byte, 2000);
        assert_eq!(to.take(self.name()), byte);
    }

    fn counts(&self) -> LocalCounts {
        self.0.device.counts().local
    }

    /// Sends datagrams to another end until one goes through queues.
    fn find(&self, to: (IpAddr, u32)) {
        let before = self.counts().packets_sent;
        until(|| {
            self.send(to, 1, 8);
            (self.counts().packets_sent > before).then_some(())
        });
    }

    /// As [`find`](Self::find), to one that takes them.
    fn meet(&self, to: &Self) {
        until(|| {
            self.send_to(to, 1);
            (self.counts().packets_sent > 0).then_some(())
        });
    }
}

/// The first datagrams may go by sockets; an answer finds the queues.
///
/// Spec: ROCE-280, ROCE-282
#[test]
fn datagrams_go_through_queues_once_there_are_some() {
    use PathChoice::{Any, Local, Packets};
    for (own, peer) in [(Any, Any), (Any, Local), (Local, Any)] {
        let [one, two] = [(1, own), (2, peer)].map(|(host, path)| End::open(1, host, path));
        if peer == Local {
            // It takes none by sockets.
            one.find(two.name());
        }
        one.meet(&two);
        for byte in 0..100 {
            two.send_to(&one, byte);
            one.send_to(&two, byte);
        }
        assert_eq!(two.counts().packets_sent, 100);
        assert!(one.counts().packets_sent > 100);
        assert_eq!([one.counts().pairs, two.counts().pairs], [1, 1]);
    }
    for (own, peer) in [(Any, Packets), (Packets, Any)] {
        let [one, two] = [(1, own), (2, peer)].map(|(host, path)| End::open(1, host, path));
        for byte in 0..10 {
            one.send_to(&two, byte);
            two.send_to(&one, byte);
        }
        assert_eq!(one.counts(), LocalCounts::default());
    }
}

/// Without another way, a datagram waits for queues, and is lost if there are none to be had.
///
/// Spec: ROCE-283
#[test]
fn datagrams_without_another_way_wait_or_are_lost() {
    let [one, two] = [1, 2].map(|host| End::open(2, host, PathChoice::Local));
    for byte in 0..10 {
        one.send_to(&two, byte);
        two.send_to(&one, byte);
    }
    for end in [&one, &two] {
        let counts = end.0.device.counts();
        assert_eq!((counts.packets_sent, counts.local.packets_sent), (10, 10));
    }
    let other = End::open(2, 3, PathChoice::Packets);
    one.send(other.name(), 1, 8);
    let kernel = (other.1, 17);
    one.send(kernel, 1, 8);
    assert_eq!(one.0.device.counts().dropped, 2);
    assert_eq!(one.0.device.counts().packets_sent, 10);
    other.send(one.name(), 1, 8);
    until(|| (one.0.device.counts().dropped == 3).then_some(()));
    // Those of one adapter need no queues.
    one.send_to(&one, 5);
    one.send_to(&two, 6);
}

/// Adapters that have all addresses meet between two of them. Between others, datagrams go by
/// sockets, so that receivers are told the right ones.
///
/// Spec: ROCE-280, ROCE-282
#[test]
fn adapters_of_all_addresses_meet_between_two() {
    let at = |host| Ipv4Addr::new(127, 89, 6, host).into();
    let open = |host| {
        let side = Side::open(Ipv4Addr::UNSPECIFIED.into(), PathChoice::Any);
        End::of(side, at(host))
    };
    let [mut one, mut two] = [1, 2].map(open);
    one.meet(&two);
    two.send_to(&one, 2);
    assert_eq!(two.counts().packets_sent, 1);
    let before = [one.counts(), two.counts()];
    (one.1, two.1) = (at(3), at(4));
    for byte in 0..10 {
        one.send_to(&two, byte);
        two.send_to(&one, byte);
    }
    assert_eq!([one.counts(), two.counts()], before);
}

/// Makes a pair with an end, as an adapter at another address.
fn pair_with(end: &End, own: SocketAddr) -> LocalPair {
    let port = (end.0.qpn >> 11) + 57_344;
    let target = SocketAddr::new(end.1, port as u16);
    let identity = Identity::new([9; 16]);
    let dial = Dial::new(&identity, own, target, First::Offer, Instant::ZERO);
    let mut dial = dial.expect("an adapter");
    until(|| match dial.poll(Instant::ZERO) {
        Dialled::Pending => None,
        Dialled::Made(pair) => Some(pair),
        other => panic!("{other:?}"),
    })
}

/// A peer that does not read holds back nobody: what has no room goes by the socket.
///
/// Spec: ROCE-281
#[test]
fn a_full_queue_holds_back_no_other_receiver() {
    let [one, two] = [1, 2].map(|host| End::open(3, host, PathChoice::Any));
    let peer = IpAddr::from([127, 89, 3, 3]);
    let pair = pair_with(&one, SocketAddr::new(peer, PORT));
    one.meet(&two);
    let sent = |end: &End| end.0.device.counts().packets_sent;
    let before = (sent(&one), one.counts());
    for byte in 0..200 {
        one.send((peer, QPN), byte, 4096);
        one.send_to(&two, byte);
    }
    let counts = one.counts();
    assert_eq!(sent(&one), before.0 + 400);
    let in_queue = counts.packets_sent - before.1.packets_sent - 200;
    assert!((50..64).contains(&in_queue), "{in_queue}");
    assert_eq!(counts.full, 200 - in_queue);
    let mut records = 0;
    while Taken::from(&pair).is_some() {
        records += 1;
    }
    assert_eq!(records, in_queue);
    one.send((peer, QPN), 7, 8);
    assert!(Taken::from(&pair).is_some(), "there is room again");
}

/// A peer of the same user names itself by the addresses of its pair.
///
/// Spec: ROCE-282
#[test]
fn a_datagram_has_the_addresses_of_its_pair_and_all_of_its_bytes() {
    let one = End::open(4, 1, PathChoice::Any);
    let peer = IpAddr::from([127, 89, 4, 2]);
    let pair = pair_with(&one, SocketAddr::new(peer, PORT));
    one.send((peer, QPN), 8, 2000);
    let mut record = Taken::from(&pair).expect("a datagram");
    // The receiver of the BTH.
    record.1[5..8].copy_from_slice(&one.0.qpn.to_be_bytes()[1..]);
    one.post_receive();
    // Its payload would be that of another packet.
    record.split(12 + 8).put(&pair);
    until(|| (one.0.device.counts().dropped == 1).then_some(()));
    record.put(&pair);
    assert_eq!(one.take((peer, one.0.qpn)), 8);
}

/// Process of the next test that tells of the first packet through queues.
#[test]
fn peer() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let end = End::open_with(ADDRESS, RoceOptions::new(SECRET));
    assert_eq!(end.name(), (ADDRESS, NAME));
    ready();
    until(|| (end.counts().packets > 0).then_some(()));
    ready();
    wait_for_the_end();
}

/// A process that is stopped and killed holds back nobody. Another one in its place, at the same
/// port, gets queues again.
///
/// Spec: ROCE-280, ROCE-281
#[test]
fn a_peer_that_is_stopped_and_killed_is_met_again() {
    let start = || {
        let mut other = Other::start(Other::command("peer").env(ROLE, "1"));
        let other = other.as_mut().map(|other| other.is_ready()).and(other);
        other.expect("a process")
    };
    let [one, two] = [1, 2].map(|host| End::open(5, host, PathChoice::Any));
    one.meet(&two);
    for _ in 0..2 {
        let mut other = start();
        one.find((ADDRESS, NAME));
        other.is_ready();
        other.signal(Signal::STOP);
        for byte in 0..200 {
            one.send((ADDRESS, NAME), byte, 4096);
            one.send_to(&two, byte);
        }
        assert!(one.counts().full > 0);
        other.kill();
        until(|| {
            one.send((ADDRESS, NAME), 1, 8);
            (one.counts().pairs == 1).then_some(())
        });
    }
}
