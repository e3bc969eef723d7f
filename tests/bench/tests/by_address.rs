//! A backend from outside of `dat-host`, opened by address.

use dat_bench::{RingBackend, Wire};
use dat_core::attributes::IaAddress;
use dat_host::{Access, Adapter, Error, Options, register};

/// Registers the devices of a wire, under a scheme of their own.
fn register_ring(scheme: &'static str) -> dat_host::Result<()> {
    let wire = Wire::new();
    register(scheme, move |name| match name {
        "device" => Ok(wire.device()),
        _ => Err(Error::Malformed("`SCHEME://device`")),
    })
}

#[test]
fn a_registered_scheme_opens_adapters() {
    register_ring("ring").unwrap();
    let (near, far) = (
        Adapter::open("ring://device").unwrap(),
        Adapter::open("ring://device").unwrap(),
    );
    assert_eq!(far.address().unwrap(), IaAddress::Node(2));
    let (zone, other) = (near.zone().unwrap(), far.zone().unwrap());
    let listener = other.listen(7).unwrap();
    let connecting = zone.connect((IaAddress::Node(2), 7)).start();
    let accepted = listener.next().wait().unwrap().accept().wait().unwrap();
    let endpoint = connecting.wait().unwrap();
    let receive = accepted.recv(other.buffer(8).unwrap());
    endpoint
        .send(zone.copy(b"message").unwrap())
        .wait()
        .unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"message");
    // The device has no windows.
    let region = zone.region(vec![0_u8; 64]).unwrap();
    assert!(
        region
            .expose(.., Access::all())
            .to(&endpoint)
            .wait()
            .is_err()
    );
    assert!(near.counts().is_empty() && near.refused_send().is_none());
}

#[test]
fn a_registered_scheme_opens_adapters_that_a_program_drives() {
    register_ring("rings").unwrap();
    let (adapter, driver) = Options::new().open_driven("rings://device").unwrap();
    let zone = adapter.zone().unwrap();
    let listener = zone.listen(7).unwrap();
    driver.run_until(async {
        let connecting = zone.connect((IaAddress::Node(1), 7)).start();
        let accepted = listener.next().await.unwrap().accept().await.unwrap();
        let endpoint = connecting.await.unwrap();
        let receive = accepted.recv(zone.buffer(8).unwrap());
        endpoint.send(zone.copy(b"driven").unwrap()).await.unwrap();
        assert_eq!(&receive.await.unwrap().memory[..], b"driven");
    });
}

#[test]
fn a_scheme_is_registered_once() {
    register_ring("once").unwrap();
    for known in ["once", "mock", "roce", "verbs"] {
        let refused = register(known, |_| Ok(Wire::new().device()));
        assert!(matches!(refused, Err(Error::Malformed(_))), "{known}");
    }
    let unknown = Adapter::open("once://other").unwrap_err();
    assert!(matches!(unknown, Error::Malformed(_)), "{unknown}");
    let missing = Adapter::open("nobody://device").unwrap_err();
    assert!(matches!(missing, Error::NotBuiltIn { feature: None, .. }));
}

#[test]
fn a_backend_opens_without_an_address() {
    let backend: RingBackend = Wire::new().device();
    assert!(Adapter::from_backend(backend).unwrap().zone().is_ok());
}
