//! RoCEv2 in software, which needs no device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use backend_roce::{RoceBackend, RoceOptions, parse_address};
use dat_core::attributes::IaAddress;

use super::transport::{Carrier, Transport, no_device, text};
use crate::devices::{Device, Port, rdma_device};
use crate::failure::{Failure, FailureKind, Result};

/// The name of the device, which may be followed by `://` and an address of this host.
pub(crate) const DEVICE: &str = "roce";

/// Silence of a peer after which its connection is probed, so that a peer that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Returns true if a name is one of these devices.
pub(crate) fn is_named(name: &str) -> bool {
    name == DEVICE || name.starts_with("roce://")
}

/// RoCEv2 in software.
pub(crate) enum Roce {}

impl Transport for Roce {
    type Backend = RoceBackend;

    const NAME: &'static str = "roce";
    const REMEDY: &'static str = "name an IP address of this host, such as `roce://127.0.0.1`; \
    `dat devices` lists them";

    fn choose(name: Option<&str>, address: Option<SocketAddr>) -> Result<Carrier> {
        let named = name.and_then(|name| name.strip_prefix("roce://"));
        let address = match named {
            Some(text) => {
                let what = format!("cannot open the device roce://{text}");
                let parsed = parse_address(text).map_err(|error| Failure {
                    kind: FailureKind::Usage,
                    ..no_device::<Self>(what.clone(), &error.to_string())
                })?;
                if parsed.keep_alive.is_some() {
                    return Err(Failure::usage(
                        what,
                        "this program has its own time of keep-alives, 10 s",
                        "remove keep-alive from the address",
                    ));
                }
                parsed.socket
            }
            None => address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()),
        };
        Ok(Carrier {
            name: named.map_or_else(
                || format!("roce://{}", text(address)),
                |named| format!("roce://{named}"),
            ),
            addresses: vec![IaAddress::from(address)],
        })
    }

    fn open(device: &Carrier) -> Result<RoceBackend> {
        let failed = |error: io::Error| {
            let what = format!("cannot open the device {}", device.name);
            match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    no_device::<Self>(what, "this host does not have the address")
                }
                _ => Failure::system(what, &error),
            }
        };
        let address = device.addresses.iter().find_map(|own| own.socket_address());
        let address = address.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        let mut options = RoceOptions::random().map_err(failed)?;
        options.keep_alive = Some(KEEP_ALIVE);
        // The default device has no options in its name.
        let named = device.name.strip_prefix("roce://");
        if let Some(Ok(named)) = named.map(parse_address) {
            named.apply_to(&mut options);
        }
        RoceBackend::open(address, options).map_err(failed)
    }
}

/// Returns one device for all addresses of this host.
pub(crate) fn devices() -> Vec<Device> {
    let loopback = Roce::choose(None, None);
    let opened = loopback.and_then(|device| Roce::open(&device));
    let closed = opened
        .as_ref()
        .err()
        .map(|failure: &Failure| failure.why.clone());
    let addresses = backend_roce::addresses();
    let port = Port {
        active: true,
        addresses: addresses.iter().map(IpAddr::to_string).collect(),
        closed,
    };
    let description = "RDMA over UDP between any two processes, without a device; \
    `roce://ADDRESS` selects an address"
        .into();
    let backend = opened.as_ref().ok();
    vec![rdma_device(
        Roce::NAME,
        DEVICE.into(),
        description,
        port,
        backend,
    )]
}
