//! Devices by address.

use dat_core::attributes::IaAddress;
use dat_core::backend::{HostBackend, HostDriver as _};
use dat_devices::{
    Cause, DeviceAddress, Network, OpenError, OpenErrorKind, Options, Visitor, devices, missing,
    open,
};

/// Returns the address of a device, and whether its driver makes waits.
struct Address;

impl Visitor for Address {
    type Output = (IaAddress, bool);

    fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Self::Output {
        (backend.ia_attributes().ia_address, driver.wait().is_ok())
    }
}

fn opened(address: &str, options: &Options) -> Result<(IaAddress, bool), OpenError> {
    open(&DeviceAddress::parse(address)?, options, Address)
}

#[test]
fn names_are_those_of_a_network() {
    let network = Network::new(Network::options());
    let mut options = Options::new();
    options.network = Some(network.clone());
    let (near, waits) = opened("mock://near", &options).unwrap();
    assert_eq!(near, network.address("near"));
    assert!(!waits, "nothing happens there without the adapters");
    assert_ne!(opened("mock://far", &options).unwrap().0, near);
}

#[test]
fn numbered_hosts_share_a_fabric_with_a_thread() {
    let mut options = Options::new();
    options.numbered = true;
    let (address, waits) = opened("mock://7 extended", &options).unwrap();
    assert_eq!(address, IaAddress::V4([127, 0, 0, 7], 0));
    assert!(waits);
    let conf = DeviceAddress::from_configuration("mock 8", "x");
    assert!(open(&conf, &options, Address).is_ok());
    let error = opened("mock://seven", &options).unwrap_err();
    assert!(matches!(error.kind(), OpenErrorKind::Malformed(_)));
}

#[test]
fn a_failure_has_its_kind_and_the_number_of_the_system() {
    let first = open(
        &DeviceAddress::new("roce", "127.0.0.61"),
        &Options::new(),
        Holds,
    );
    let (_held, port) = first.unwrap();
    let error = opened(&format!("roce://127.0.0.61?udp={port}"), &Options::new()).unwrap_err();
    assert_eq!(*error.kind(), OpenErrorKind::InUse, "{error}");
    let Cause::System(system) = error.cause() else {
        panic!("{error:?}");
    };
    assert!(system.to_string().contains(&port.to_string()), "{system}");
    for (address, kind) in [
        ("roce://192.0.2.77", OpenErrorKind::AddressNotThere),
        ("roce://no-such-interface", OpenErrorKind::AddressNotThere),
    ] {
        let error = opened(address, &Options::new()).unwrap_err();
        assert_eq!(*error.kind(), kind, "{address}: {error}");
    }
    for malformed in ["roce", "roce://", "roce://127.0.0.1?udp=x"] {
        let error = opened(malformed, &Options::new()).unwrap_err();
        assert!(
            matches!(error.kind(), OpenErrorKind::Malformed(_)),
            "{malformed}: {error}"
        );
    }
    let error = opened("other://x", &Options::new()).unwrap_err();
    let unknown = OpenErrorKind::NotBuiltIn {
        scheme: "other".into(),
        feature: None,
    };
    assert_eq!(*error.kind(), unknown);
}

/// Keeps a device open, with the port of its sockets.
struct Holds;

impl Visitor for Holds {
    type Output = (Box<dyn std::any::Any>, u16);

    fn visit<B: HostBackend>(self, backend: B, _driver: B::Driver) -> Self::Output {
        let address = backend.ia_attributes().ia_address.socket_address();
        let port = address.expect("a socket").port();
        (Box::new(backend), port)
    }
}

#[test]
fn devices_are_listed_or_have_a_reason() {
    let all = devices();
    let schemes: Vec<&str> = all.iter().map(|one| one.scheme).collect();
    assert_eq!(schemes, ["verbs", "roce", "mock"]);
    for one in &all {
        match &one.found {
            Ok(found) => {
                for device in found {
                    assert_eq!(device.address.scheme(), one.scheme);
                    assert_eq!(missing(&device.address), None, "{}", device.name);
                }
            }
            Err(error) if cfg!(feature = "verbs") => assert_eq!(one.scheme, "verbs", "{error}"),
            Err(error) => {
                let lacking = OpenErrorKind::NotBuiltIn {
                    scheme: "verbs".into(),
                    feature: Some("verbs"),
                };
                assert_eq!(*error.kind(), lacking);
            }
        }
    }
    assert!(missing(&DeviceAddress::new("roce", "no-such-interface")).is_some());
    assert!(missing(&DeviceAddress::new("mock", "7 more")).is_some());
}
