//! Adapters with sockets: the ports that they take.
#![cfg(feature = "udp")]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use backend_roce::{RoceBackend, RoceOptions, addresses};
use dat_core::backend::{Backend as _, BackendError};

/// An address of the loop-back interface that no other test uses.
fn address(number: u8, port: u16) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, 32 + number, high, low).into(), port)
}

fn open(address: SocketAddr) -> std::io::Result<RoceBackend> {
    let mut options = RoceOptions::random()?;
    options.connections = 64;
    options.keys = 256;
    RoceBackend::open(address, options)
}

fn port(adapter: &RoceBackend) -> u16 {
    let address = adapter.ia_attributes().ia_address.socket_address();
    address.expect("an IP address").port()
}

/// The first adapter of an address has the port of RoCE, others have another one.
///
/// Spec: ROCE-55
#[test]
fn a_port_has_one_owner() {
    let first = open(address(0, 0)).expect("an adapter");
    assert_eq!(port(&first), 4791);
    let second = open(address(0, 0)).expect("an adapter");
    assert_ne!(port(&second), 4791);
    let third = open(address(0, 20_001)).expect("an adapter");
    assert_eq!(port(&third), 20_001);
    let error = open(address(0, 4791)).err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    for word in ["4791", "soft-RoCE", "another process", "choose a port"] {
        assert!(text.contains(word), "{text}");
    }
    drop(first);
    assert_eq!(port(&open(address(0, 4791)).expect("an adapter")), 4791);
}

#[test]
fn addresses_are_those_of_the_host() {
    let foreign = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 0);
    let error = open(foreign).err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert!(addresses().contains(&Ipv4Addr::LOCALHOST.into()));
    for own in addresses() {
        open(SocketAddr::new(own, 0)).unwrap_or_else(|error| panic!("{own}: {error}"));
    }
}

/// The kernel grants a service point its port; an earlier owner keeps it.
///
/// Spec: ROCE-44
#[test]
fn a_claim_is_the_kernels() {
    let stranger = UdpSocket::bind(address(1, 20_002)).expect("a socket");
    let mut adapter = open(address(1, 0)).expect("an adapter");
    let refused = adapter.listen(1, Some(20_002));
    assert_eq!(refused.err(), Some(BackendError::QualifierInUse));
    drop(stranger);
    let (listener, _) = adapter.listen(1, Some(20_002)).expect("a service point");
    assert!(UdpSocket::bind(address(1, 20_002)).is_err());
    adapter.stop_listening(listener);
    UdpSocket::bind(address(1, 20_002)).expect("the port is free again");
    let (_, chosen) = adapter.listen(2, None).expect("a service point");
    assert!(chosen >= 61_000, "{chosen}");
}
