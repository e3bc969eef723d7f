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
