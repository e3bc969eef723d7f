//! Both ends of a set-up on one thread, and peers that do not keep to it.

mod strangers;

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU16, Ordering};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::string::String;
use std::vec;
use std::vec::Vec;

use dat_core::time::Instant;

use super::super::{Known, Label, LocalPair, PAYLOAD_MAX};
use super::*;

const LABEL: Label = Label {
    segment: 12,
    kind: 7,
    source_port: 4791,
    destination_port: 5000,
};

const ZERO: Instant = Instant::ZERO;
const LATE: Instant = Instant::from_micros(DEADLINE);

/// The pairs of an adapter of a test, which has room for more as the field says.
///
/// The last number counts the sockets to watch.
#[derive(Default)]
struct Table(Vec<LocalPair>, Room, usize);

/// The room of an adapter for a pair.
#[derive(Default, PartialEq, Eq)]
enum Room {
    #[default]
    Much,
    /// There is none.
    None,
    /// There is none any more once the pair is made.
    Lost,
}

impl Pairs for Table {
    fn knows(&mut self, adapter: &Known) -> bool {
        self.0.iter().for_each(LocalPair::attend);
        self.0.retain(|pair| !pair.is_over());
        self.0
            .iter()
            .any(|pair| pair.naming().peer_adapter == *adapter)
    }

    fn has_room(&self) -> bool {
        self.1 != Room::None
    }

    fn add(&mut self, pair: LocalPair) -> Option<BorrowedFd<'_>> {
        if self.1 == Room::Lost {
            return None;
        }
        self.0.push(pair);
        self.0.last().map(LocalPair::as_fd)
    }

    fn watch(&mut self, _: BorrowedFd<'_>) -> bool {
        self.2 += 1;
        self.1 != Room::Lost
    }
}

/// An adapter that listens, at an address that no other test has.
struct Adapter {
    identity: Identity,
    address: SocketAddr,
    listener: Listener,
    pairs: Table,
}

/// Returns a UDP port for the names of a test; nothing listens for UDP.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other processes run tests of this kind, too.
    let first = 1024 + (std::process::id() % 500) as u16 * 128;
    first + NEXT.fetch_add(1, Ordering::Relaxed) % 128
}

impl Adapter {
    fn at(ip: &str) -> Self {
        let address = SocketAddr::new(ip.parse().unwrap(), free_port());
        let mut listener = Listener::new().unwrap();
        listener.add(address).unwrap();
        Self {
            identity: Identity::new(
                std::process::id()
                    .to_ne_bytes()
                    .repeat(4)
                    .try_into()
                    .unwrap(),
            ),
            address,
            listener,
            pairs: Table::default(),
        }
    }

    /// Returns the adapter as others of this process know it.
    fn known(&self) -> Known {
        known(&self.identity)
    }

    fn accept(&mut self, now: Instant) {
        self.listener.accept(&self.identity, now, &mut self.pairs);
    }

    /// Returns the target at another address of this adapter.
    fn target(&self, ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), self.address.port())
    }
}

/// Returns an adapter of this process as others know it.
fn known(identity: &Identity) -> Known {
    Known {
        name: identity.adapter,
        process: std::process::id().cast_signed(),
    }
}

/// The identity of an adapter that dials.
fn dialler() -> (Identity, SocketAddr) {
    (Identity::new([7; 16]), "127.0.0.9:4791".parse().unwrap())
}

/// Makes a pair with an adapter; returns both ends.
fn made(adapter: &mut Adapter, target: SocketAddr) -> [LocalPair; 2] {
    let (identity, own) = dialler();
    let mut dial = Dial::new(&identity, own, target, First::Offer, ZERO).unwrap();
    assert!(matches!(dial.poll(ZERO), Dialled::Pending));
    adapter.accept(ZERO);
    let Dialled::Made(pair) = dial.poll(ZERO) else {
        panic!("no pair");
    };
    [pair, adapter.pairs.0.pop().unwrap()]
}

/// Sends a record through a pair in both directions.
fn talk(pair: &[LocalPair; 2]) {
    let mut buffer = vec![0; PAYLOAD_MAX];
    for [from, to] in [[0, 1], [1, 0]].map(|ends| ends.map(|end: usize| &pair[end])) {
        assert!(from.write(LABEL, b"Hello, other end"));
        assert_eq!(to.read(&mut buffer).unwrap().label, LABEL);
        assert_eq!(&buffer[..16], b"Hello, other end");
    }
}

/// Returns the reason why there is no pair.
fn refusal(dial: &mut Dial, now: Instant) -> String {
    match dial.poll(now) {
        Dialled::Failed(refusal) => std::format!("{refusal}"),
        other => panic!("{other:?}"),
    }
}

/// Spec: ROCE-217, ROCE-219, ROCE-221
#[test]
fn two_adapters_make_a_pair_on_one_thread() {
    let mut adapter = Adapter::at("127.0.0.1");
    let target = adapter.address;
    let pair = made(&mut adapter, target);
    talk(&pair);
    let [ours, theirs] = pair.each_ref().map(LocalPair::naming);
    assert_eq!((ours.own, ours.peer), (theirs.peer, theirs.own));
    assert_eq!(
        (ours.number, ours.peer_number),
        (theirs.peer_number, theirs.number)
    );
    assert_eq!(ours.peer_adapter, adapter.known());
    // A later pair has other numbers, also after the end of this one.
    let again = made(&mut adapter, target);
    assert_ne!(again[1].number(), pair[1].number());
}

/// Spec: ROCE-217
#[test]
fn names_lead_to_the_adapters_that_have_an_address() {
    let one = Adapter::at("127.0.0.1");
    let (identity, own) = dialler();
    let other = Dial::new(&identity, own, one.target("127.0.0.2"), First::Offer, ZERO);
    assert!(matches!(other, Err(Refusal::Nobody)));
    for (wildcard, targets) in [
        ("0.0.0.0", &["127.0.0.1", "127.0.0.2"][..]),
        ("::", &["127.0.0.3", "::1", "::ffff:127.0.0.4"][..]),
    ] {
        let mut adapter = Adapter::at(wildcard);
        for target in targets {
            let target = adapter.target(target);
            talk(&made(&mut adapter, target));
        }
        // Another host's, though it has the port of this one.
        for foreign in ["192.0.2.1", "2001:db8::1"] {
            let dial = Dial::new(&identity, own, adapter.target(foreign), First::Offer, ZERO);
            assert!(matches!(dial, Err(Refusal::Elsewhere)), "{foreign}");
        }
    }
}

/// Spec: ROCE-217
#[test]
fn each_port_leads_to_the_adapter_until_it_is_released() {
    let mut adapter = Adapter::at("127.0.0.1");
    let second = SocketAddr::new(adapter.address.ip(), free_port());
    adapter.listener.add(second).unwrap();
    assert!(
        adapter.listener.add(second).is_err(),
        "a name has one owner"
    );
    talk(&made(&mut adapter, second));
    adapter.listener.remove(second.port());
    let (identity, own) = dialler();
    let dial = Dial::new(&identity, own, second, First::Offer, ZERO);
    assert!(matches!(dial, Err(Refusal::Nobody)));
    adapter.listener.add(second).unwrap();
    talk(&made(&mut adapter, second));
}

/// Spec: ROCE-221
#[test]
fn adapters_with_a_pair_make_no_other_until_it_is_over() {
    let mut adapter = Adapter::at("127.0.0.1");
    let target = adapter.address;
    let [ours, theirs] = made(&mut adapter, target);
    adapter.pairs.0.push(theirs);
    let (identity, own) = dialler();
    let mut dial = Dial::new(&identity, own, target, First::Offer, ZERO).unwrap();
    adapter.accept(ZERO);
    let Dialled::Known(other) = dial.poll(ZERO) else {
        panic!("a second pair");
    };
    assert_eq!(other, adapter.known());
    drop(ours);
    let again = made(&mut adapter, target);
    talk(&again);
    assert!(adapter.pairs.0.is_empty());
}

/// Spec: ROCE-219
#[test]
fn an_adapter_without_room_refuses_a_pair() {
    let mut adapter = Adapter::at("127.0.0.1");
    adapter.pairs.1 = Room::None;
    let (identity, own) = dialler();
    let mut dial = Dial::new(&identity, own, adapter.address, First::Offer, ZERO).unwrap();
    adapter.accept(ZERO);
    assert_eq!(refusal(&mut dial, ZERO), "the peer refused it");
    // Nor does it say that it has taken one that it cannot keep.
    adapter.pairs.1 = Room::Lost;
    let mut dial = Dial::new(&identity, own, adapter.address, First::Offer, ZERO).unwrap();
    adapter.accept(ZERO);
    assert_eq!(refusal(&mut dial, ZERO), "the peer closed its socket");
    adapter.pairs.1 = Room::Much;
    let target = adapter.address;
    talk(&made(&mut adapter, target));
}

/// Spec: ROCE-220
#[test]
fn silence_ends_a_set_up_at_either_end() {
    let mut adapter = Adapter::at("127.0.0.1");
    let (identity, own) = dialler();
    let mut dial = Dial::new(&identity, own, adapter.address, First::Offer, ZERO).unwrap();
    assert!(matches!(dial.poll(ZERO), Dialled::Pending));
    assert_eq!(refusal(&mut dial, LATE), "the peer was silent");
    drop(dial);
    // The listener, which was late, finds the question of a peer that is gone.
    adapter.accept(ZERO);
    adapter.pairs.0.iter().for_each(LocalPair::attend);
    assert!(adapter.pairs.0.iter().all(LocalPair::is_over));
}

/// An end that may have a pair asks before it makes memory; one set-up at a time makes the pair.
///
/// Spec: ROCE-219, ROCE-220, ROCE-221
#[test]
fn the_memory_of_a_dialler_that_asks_first_comes_once_it_is_wanted() {
    let mut adapter = Adapter::at("127.0.0.1");
    let name = adapter.known();
    let (identity, own) = dialler();
    let target = adapter.address;
    let ask = || Dial::new(&identity, own, target, First::Question, ZERO).unwrap();
    let (mut first, mut second) = (ask(), ask());
    let at = |part| Instant::from_micros(DEADLINE / 10 * part);
    assert!(matches!(first.poll(at(4)), Dialled::Pending));
    adapter.accept(at(5));
    assert!(adapter.pairs.0.is_empty());
    assert!(!first.makes(&name));
    assert!(matches!(second.poll(at(6)), Dialled::Known(known) if known == name));
    assert!(matches!(first.poll(at(6)), Dialled::Pending));
    assert!(first.makes(&name));
    assert!(!first.makes(&known(&identity)));
    // Each message has its own time.
    assert!(matches!(first.poll(at(15)), Dialled::Pending));
    adapter.accept(at(14));
    let Dialled::Made(pair) = first.poll(at(15)) else {
        panic!("no pair");
    };
    talk(&[pair, adapter.pairs.0.pop().unwrap()]);
    assert!(adapter.listener.deadline().is_none());
    // One that has asked, and goes, leaves the place to another one.
    let mut third = ask();
    adapter.accept(at(20));
    drop(first);
    assert!(matches!(third.poll(at(20)), Dialled::Pending));
    drop(third);
    adapter.accept(at(20));
    for pair in adapter.pairs.0.drain(..) {
        pair.attend();
        assert!(pair.is_over());
    }
    let mut fourth = ask();
    adapter.accept(at(21));
    assert!(matches!(fourth.poll(at(21)), Dialled::Pending));
    assert!(fourth.makes(&name));
    adapter.accept(at(32));
    assert!(matches!(fourth.poll(at(32)), Dialled::Made(_)));
}
