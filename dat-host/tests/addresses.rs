//! Adapters of `roce://` at one address, at all addresses, and by an interface's name.
#![cfg(feature = "roce")]

use std::net::SocketAddr;

use dat_core::event::ConnectionEventKind;
use dat_core::{Cause, ErrorKind, Subtype};
use dat_host::{Access, Adapter, Error, Listener, RemoteSlice, Result, Zone};

/// Connection qualifiers of this test program; others use other ones.
///
/// They are ports that the system does not choose for clients.
fn qualifier(number: u64) -> u64 {
    20_000 + u64::from(std::process::id() % 600) * 16 + number
}

/// Serves one client: sends it the window of a text, and waits until it has left.
fn serve_one(zone: &Zone, listener: &Listener, text: &[u8]) -> Result<()> {
    let client = listener.next().wait()?.accept().wait()?;
    let region = zone.region(text.to_vec())?;
    let window = region.expose(.., Access::READ).to(&client).wait()?;
    client
        .send(zone.copy(&window.remote().to_bytes())?)
        .wait()?;
    client.ended().wait();
    Ok(())
}

/// Reads the text of a server.
fn ask(adapter: &Adapter, peer: &str) -> Result<Vec<u8>> {
    let zone = adapter.zone()?;
    let server = zone.connect(peer).wait()?;
    let told = server.recv(zone.buffer(RemoteSlice::ENCODED)?).wait()?;
    let remote = RemoteSlice::from_bytes(&told.memory)?;
    let length = usize::try_from(remote.len()).expect("a short text");
    let bytes = server.read(remote, zone.buffer(length)?).wait()?;
    Ok(bytes.to_vec())
}

/// Serves at one address, and asks from another one at each of `peers`, through shared memory and
/// over packets.
fn exchange(at: &str, from: &str, number: u64, peers: &[&str]) {
    for path in ["local", "packets"] {
        let [at, from] = [at, from].map(|address| format!("{address}?path={path}"));
        exchange_one(&at, &from, number, peers);
    }
}

fn exchange_one(at: &str, from: &str, number: u64, peers: &[&str]) {
    let qualifier = qualifier(number);
    let server = Adapter::open(at).expect("a server's adapter");
    let zone = server.zone().expect("a zone");
    let listener = zone.listen(qualifier).expect("a service point");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            for _ in peers {
                serve_one(&zone, &listener, at.as_bytes())?;
            }
            Ok::<_, Error>(())
        });
        let client = Adapter::open(from).expect("a client's adapter");
        for peer in peers {
            let text = ask(&client, &format!("{peer}:{qualifier}"));
            assert_eq!(text.expect(peer), at.as_bytes(), "{at} asked at {peer}");
        }
        served.join().expect("no panic").expect("served");
    });
}

/// An adapter with all addresses is reached at each, and answers from the one that was asked.
///
/// Spec: ROCE-42
#[test]
fn a_wildcard_is_reached_at_each_address() {
    let peers = ["127.0.0.1", "127.0.0.9", "127.1.2.3"];
    exchange("roce://0.0.0.0", "roce://127.0.0.1", 0, &peers);
    exchange("roce://0.0.0.0", "roce://0.0.0.0", 1, &peers);
}

/// A wildcard asks from the address from which the system reaches the peer.
///
/// Spec: ROCE-42
#[test]
fn a_wildcard_asks_from_an_address_of_its_own() {
    exchange("roce://127.0.0.7", "roce://0.0.0.0", 2, &["127.0.0.7"]);
}

/// The wildcard of IPv6 has the addresses of both families.
///
/// Spec: ROCE-42
#[test]
fn the_wildcard_of_ipv6_has_both_families() {
    let peers = ["127.0.0.1", "[::1]", "127.0.0.9"];
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        // A host without IPv6 refuses the adapter by the address.
        let refused = Adapter::open("roce://::");
        assert!(matches!(refused, Err(Error::System(_))), "{refused:?}");
        return;
    }
    exchange("roce://::", "roce://::", 3, &peers);
    exchange("roce://::", "roce://[::1]", 4, &["[::1]"]);
    exchange("roce://::", "roce://127.0.0.1", 5, &["127.0.0.5"]);
}

/// A qualifier is taken for a wildcard and for an address of it, in both orders.
///
/// Spec: ROCE-44
#[test]
fn a_wildcard_and_an_address_exclude_each_other() {
    for (number, [first, second]) in [
        ["roce://0.0.0.0", "roce://127.0.0.1"],
        ["roce://127.0.0.1", "roce://0.0.0.0"],
    ]
    .into_iter()
    .enumerate()
    {
        let qualifier = qualifier(6 + number as u64);
        let (first, second) = (Adapter::open(first), Adapter::open(second));
        let zones = [first, second].map(|adapter| adapter.expect("an adapter").zone());
        let [first, second] = zones.map(|zone| zone.expect("a zone"));
        let kept = first.listen(qualifier).expect("a service point");
        let refused = second.listen(qualifier).expect_err("the port is taken");
        assert!(refused.to_string().contains("in use"), "{refused}");
        drop(kept);
    }
}

/// An adapter at the loop-back interface has no route to other hosts, and says so.
#[test]
fn an_address_without_a_route_is_refused_with_the_cause() {
    let adapter = Adapter::open("roce://127.0.0.1").expect("an adapter");
    let zone = adapter.zone().expect("a zone");
    let refused = zone.connect("192.0.2.1:7174").wait();
    let refused = refused.expect_err("no route");
    let cause = refused.core().map(|error| (error.subtype(), error.cause()));
    let no_route = (Subtype::InvalidAddressUnreachable, Cause::NoRoute);
    assert_eq!(cause, Some(no_route), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("loop-back"), "{text}");
    assert!(!text.contains("family"), "{text}");
}

/// The name of an interface stands for its address; another word is refused with the cause.
#[test]
fn an_interface_is_an_address() {
    exchange("roce://lo", "roce://lo", 8, &["127.0.0.1"]);
    let refused = Adapter::open("roce://no-such-interface").expect_err("no interface");
    assert!(
        refused.to_string().contains("no-such-interface"),
        "{refused}"
    );
    let refused = Adapter::open("roce://fe80::1").expect_err("no scope");
    assert!(matches!(refused, Error::Malformed(_)), "{refused}");
}

/// A link-local address works with its interface.
///
/// Spec: ROCE-188
#[test]
fn a_link_local_address_has_an_interface() {
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let link_local = interfaces.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, scope, _, interface] = words[..] else {
            return None;
        };
        let address = u128::from_str_radix(address, 16).ok()?;
        let address = std::net::Ipv6Addr::from_bits(address);
        (scope == "20").then(|| (address, interface.to_owned()))
    });
    let Some((address, interface)) = link_local else {
        // A host without one refuses the interface by its name.
        let refused = Adapter::open("roce://fe80::1%none").expect_err("no interface");
        assert!(refused.to_string().contains("none"), "{refused}");
        return;
    };
    let device = format!("roce://{address}%{interface}");
    exchange(&device, &device, 9, &[&format!("[{address}]")]);
    // A wildcard has no interface of its own: the peer's address names it.
    let peer = format!("[{address}%{interface}]");
    exchange("roce://::", "roce://::", 10, &[&peer]);
}

/// A peer with several addresses is reached at the one where it listens.
#[test]
fn a_peer_is_tried_at_each_of_its_addresses() {
    let qualifier = qualifier(11);
    let port = u16::try_from(qualifier).expect("a port");
    let server = Adapter::open("roce://127.0.0.11").expect("a server's adapter");
    let zone = server.zone().expect("a zone");
    let listener = zone.listen(qualifier).expect("a service point");
    let client = Adapter::open("roce://127.0.0.12").expect("a client's adapter");
    let client = client.zone().expect("a zone");
    let at = |text: &str| SocketAddr::new(text.parse().expect("an address"), port);
    // Nobody listens at the first one; the adapter has no way to the second one.
    let (nobody, other_family, there) = (at("127.0.0.13"), at("::1"), at("127.0.0.11"));
    for addresses in [
        &[there][..],
        &[there, nobody],
        &[nobody, there],
        &[other_family, there],
        &[nobody, other_family, there],
    ] {
        std::thread::scope(|scope| {
            let served = scope.spawn(|| listener.next().wait()?.accept().wait());
            let connected = client.connect(addresses).wait();
            assert!(connected.is_ok(), "{addresses:?}: {connected:?}");
            let served = served.join().expect("no panic");
            assert!(served.is_ok(), "{addresses:?}: {served:?}");
        });
    }
    // The endpoint is not used up by an address of another family.
    std::thread::scope(|scope| {
        let served = scope.spawn(|| listener.next().wait()?.accept().wait());
        let endpoint = client.endpoint(None).expect("an endpoint");
        let connecting = client.connect(&[other_family, there][..]);
        let connected = connecting.start_on(endpoint).wait();
        assert!(connected.is_ok(), "{connected:?}");
        assert!(served.join().expect("no panic").is_ok());
    });
    let refused = client.connect(&[other_family, nobody][..]).wait();
    let nobody_listens = Error::Connection(ConnectionEventKind::NonPeerRejected).to_string();
    assert_eq!(
        refused.expect_err("nobody listens").to_string(),
        nobody_listens
    );
    let refused = client.connect(&[other_family, other_family][..]).wait();
    let refused = refused
        .expect_err("no way")
        .core()
        .map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::InvalidAddress));
}

/// A service that rejects has answered: no other address is asked.
#[test]
fn a_peer_that_rejects_is_not_asked_elsewhere() {
    let qualifier = qualifier(12);
    let port = u16::try_from(qualifier).expect("a port");
    let server = Adapter::open("roce://0.0.0.0").expect("a server's adapter");
    let zone = server.zone().expect("a zone");
    let listener = zone.listen(qualifier).expect("a service point");
    let client = Adapter::open("roce://127.0.0.14").expect("a client's adapter");
    let client = client.zone().expect("a zone");
    let addresses = [[127, 0, 0, 15], [127, 0, 0, 16]].map(|ip| SocketAddr::from((ip, port)));
    std::thread::scope(|scope| {
        let rejecting = scope.spawn(|| listener.next().wait()?.reject(b"no"));
        let rejected = client.connect(&addresses[..]).wait();
        assert!(matches!(rejected, Err(Error::Rejected(_))), "{rejected:?}");
        rejecting.join().expect("no panic").expect("rejected");
        let next = listener.next().wait_timeout(std::time::Duration::ZERO);
        assert!(next.is_err(), "there is no second request");
    });
}
