//! Tests of the pairs of an adapter without its sockets.

use core::net::Ipv4Addr;
use core::sync::atomic::AtomicU8;

use super::*;

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

/// Makes a pair with the adapter that listens at an address; returns its number.
fn pair(one: &Neighbours, other: &Neighbours) -> LocalNumber {
    other.listen(other.bound.port());
    let number = one.dial(one.bound.ip(), other.bound).unwrap();
    one.dialled(number);
    other.attend();
    one.poll_dials(&mut one.setup(), None);
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
    let number = one.dial(one.bound.ip(), peer).unwrap();
    // The peer is gone before the adapter knows of the set-up.
    drop(listener);
    one.dialled(number);
    assert!(!one.is_setting_up());
    assert!(one.is_used(), "there is an event");
    let event = one.event();
    assert!(matches!(event, Some(LocalEvent::Failed(failed, _)) if failed == number));
    assert!(one.event().is_none() && !one.is_used());
}
