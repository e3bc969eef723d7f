//! Tests of the pairs of an adapter without its sockets.

use core::net::Ipv4Addr;
use core::sync::atomic::AtomicU8;

use std::fs::File;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixStream;

use super::*;
use crate::local::{Bell, Memory, Naming, Role};

/// Returns an address that no other test has.
fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = 20 + NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::new(Ipv4Addr::new(127, number, high, low).into(), 4791)
}

/// Makes the pairs of an adapter that looks by itself.
fn neighbours(name: u8) -> Neighbours {
    Neighbours::new([name; 16], address(), None, false).unwrap()
}

/// Makes the pairs of an adapter that the system reports to.
fn reported() -> Neighbours {
    let pollers = [(); 2].map(|()| Arc::new(Poller::new().unwrap()));
    Neighbours::new([3; 16], address(), Some(pollers), false).unwrap()
}

/// A pair whose doorbell the system does not report would be a silent one: there is none.
///
/// Spec: ROCE-215, ROCE-220
#[test]
fn a_pair_without_reports_is_not_opened() {
    let one = reported();
    let (memory, _) = Memory::create().unwrap();
    let naming = Naming {
        number: 1,
        peer_number: 1,
        peer_adapter: Known {
            name: [4; 16],
            process: 1,
        },
        own: one.bound,
        peer: one.bound,
    };
    // No poller takes a file.
    let file = File::open("/proc/self/exe").unwrap();
    let pair = LocalPair::new(naming, Role::Listener, memory, Bell::new(file.into()));
    let opened = one.open(&mut one.setup().news, pair);
    assert_eq!(opened.err(), Some(NotLocal::Memory));
    assert!(!one.is_used() && one.event().is_none());
    assert!(!one.watch_setup(File::open("/proc/self/exe").unwrap().as_fd()));
}

/// The system reports what comes on a connection that has asked nothing yet. So nobody looks at it
/// before it is given up.
///
/// Spec: ROCE-220
#[test]
fn a_silent_connection_costs_no_looks() {
    let [watched, polled] = [reported(), neighbours(5)];
    for one in [&watched, &polled] {
        one.listen(one.bound.port()).expect("other ways");
        let _stranger = stranger(one.bound);
        let begin = ThreadWait::clock().as_micros();
        one.attend(Gone::None);
        let look = one.next_look().unwrap().as_micros();
        assert_eq!(look >= begin + PATIENCE, one.pollers.is_some());
        one.close();
        assert_eq!(one.next_look(), None);
    }
}

/// Connects to the adapter at an address, and says nothing.
fn stranger(address: SocketAddr) -> UnixStream {
    let name = std::format!("dat-roce/{}/{}", address.ip(), address.port());
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    UnixStream::connect_addr(&name).unwrap()
}

/// Makes a pair with the adapter that listens at an address; returns its number.
fn pair(one: &Neighbours, other: &Neighbours) -> LocalNumber {
    other.listen(other.bound.port()).expect("other ways");
    let number = one.dial(one.bound.ip(), other.bound, false).unwrap();
    one.dialled(number);
    other.attend(Gone::Any);
    one.attend(Gone::None);
    let mut events = core::iter::from_fn(|| one.event());
    let known = events.find_map(|event| match event {
        LocalEvent::Known { asked, pair } if asked == number => Some(pair),
        _ => None,
    });
    known.unwrap()
}

/// An answer that the adapters know each other leads to the pair with the process that gave it.
///
/// Spec: ROCE-221
#[test]
fn a_pair_is_known_by_the_process_of_the_peer() {
    let [one, other] = [1, 2].map(neighbours);
    let number = pair(&one, &other);
    let mut known = Known {
        name: other.identity.adapter,
        process: std::process::id().cast_signed(),
    };
    assert_eq!(one.known(&known), Some(number));
    known.process = 1;
    assert_eq!(one.known(&known), None);
}

/// The outcome of an adapter's first set-up is an event, though there is nothing else by then.
///
/// Spec: ROCE-230
#[test]
fn the_outcome_of_the_first_set_up_is_told() {
    let (one, peer) = (neighbours(1), address());
    let mut listener = Listener::new().unwrap();
    listener.add(peer).unwrap();
    assert!(!one.is_used());
    let number = one.dial(one.bound.ip(), peer, false).unwrap();
    // The peer is gone before the adapter knows of the set-up.
    drop(listener);
    one.dialled(number);
    assert_eq!(one.next_look(), None);
    assert!(one.is_used(), "there is an event");
    let event = one.event();
    assert!(matches!(event, Some(LocalEvent::Failed(failed, _)) if failed == number));
    assert!(one.event().is_none() && !one.is_used());
}
