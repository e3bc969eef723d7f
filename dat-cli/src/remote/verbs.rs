//! RDMA devices of this host, over libibverbs.

use std::net::SocketAddr;

use backend_verbs::{VerbsBackend, VerbsDevice, VerbsOptions};
use dat_core::backend::BackendError;

use super::transport::{Carrier, Transport, is_same_ip, no_device};
use crate::devices::{Device, Port, rdma_device};
use crate::failure::{Failure, Result};
use crate::limits::{self, Reached};

/// RDMA devices.
pub(crate) enum Verbs {}

impl Transport for Verbs {
    type Backend = VerbsBackend;

    const NAME: &'static str = "verbs";
    const REMEDY: &'static str = "list devices with `dat devices`; without hardware, use \
    `--device roce`, or create a soft-RoCE device on a network interface (as root): `modprobe \
    rdma_rxe`, then `rdma link add rxe0 type rxe netdev eth0`; see docs/verbs.md";

    fn choose(name: Option<&str>, address: Option<SocketAddr>) -> Result<Carrier> {
        find(name, address).map(|device| carrier(&device))
    }

    fn open(device: &Carrier) -> Result<VerbsBackend> {
        let failed = |error| opening(&device.name, error);
        let options = VerbsOptions::default();
        limits::opens_device();
        VerbsBackend::open(&device.name, options).map_err(failed)
    }
}

fn carrier(device: &VerbsDevice) -> Carrier {
    Carrier {
        name: device.name.clone(),
        addresses: device.addresses.clone(),
    }
}

fn opening(name: &str, error: BackendError) -> Failure {
    let why = match error {
        BackendError::Address => "its network interface has no address",
        BackendError::Resources => "memory or threads are exhausted",
        BackendError::Descriptors => "no file descriptor is left",
        BackendError::Prohibited => "this user has no permission to open it",
        _ => "the device does not exist, or this user has no permission to open it",
    };
    let failure = without_device(format!("cannot open the device {name}"), why);
    match error {
        BackendError::Resources => failure.because(limits::locked_memory()),
        _ => failure,
    }
}

/// Builds the failure of a missing device, or of the descriptor limit that hides it.
///
/// Without free descriptors the libraries find no device at all.
fn without_device(what: String, why: &str) -> Failure {
    let failure = no_device::<Verbs>(what, why);
    match limits::descriptors() {
        None => failure,
        Some(Reached { why, remedy }) => Failure {
            why,
            remedy: remedy.into(),
            ..failure
        },
    }
}

/// A device is usable if its port is up and has an address.
fn is_usable(device: &VerbsDevice) -> bool {
    device.active && !device.addresses.is_empty()
}

/// Returns true if this host has a usable device.
pub(crate) fn is_there() -> bool {
    backend_verbs::devices().iter().any(is_usable)
}

/// Returns the device with this name, which may follow `verbs://`.
fn named<'d>(all: &'d [VerbsDevice], name: &str) -> Option<&'d VerbsDevice> {
    let name = name.strip_prefix("verbs://").unwrap_or(name);
    all.iter().find(|device| device.name == name)
}

/// Returns the named device, else the one with an address, else the first usable one.
fn find(name: Option<&str>, address: Option<SocketAddr>) -> Result<VerbsDevice> {
    let all = backend_verbs::devices();
    if let Some(name) = name {
        return named(&all, name).cloned().ok_or_else(|| {
            without_device(
                format!("cannot open the device {name}"),
                "the device does not exist, or this user has no permission to open it",
            )
        });
    }
    let has = |device: &&VerbsDevice| {
        device
            .addresses
            .iter()
            .filter_map(|own| own.socket_address())
            .any(|own| address.is_some_and(|address| is_same_ip(own, address)))
    };
    all.iter()
        .find(has)
        .or_else(|| all.iter().find(|device| is_usable(device)))
        .cloned()
        .ok_or_else(|| {
            without_device(
                "no usable RDMA device".into(),
                if all.is_empty() {
                    "this host has no RDMA device"
                } else {
                    "no RDMA device is up and has an address"
                },
            )
        })
}

/// Returns all ports of RDMA devices.
pub(crate) fn devices() -> Vec<Device> {
    backend_verbs::devices()
        .into_iter()
        .map(|device| {
            let opened = VerbsBackend::open(&device.name, VerbsOptions::default());
            let closed = opened
                .as_ref()
                .err()
                .map(|error| opening(&device.name, *error).why);
            let port = Port {
                active: device.active,
                addresses: carrier(&device).addresses(),
                closed,
            };
            let description = format!(
                "port {} of {}, {}",
                device.port, device.device, device.description
            );
            rdma_device(
                Verbs::NAME,
                device.name,
                description,
                port,
                opened.ok().as_ref(),
            )
        })
        .collect()
}

/// Returns the note that `dat devices` prints if no RDMA device is listed.
pub(crate) fn note() -> Option<String> {
    backend_verbs::devices().is_empty().then(|| {
        let why = limits::descriptors()
            .map_or("this host has no RDMA device".into(), |reached| reached.why);
        format!("RDMA devices: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RDMA device that has the name of RoCEv2 in software can be selected.
    #[test]
    fn a_device_is_named_with_or_without_its_kind() {
        let device = |name: &str| VerbsDevice {
            name: name.into(),
            device: name.into(),
            port: 1,
            active: true,
            addresses: Vec::new(),
            description: String::new(),
        };
        let all = ["rxe0", "roce", "mlx5_0:2"].map(device);
        for name in ["rxe0", "roce", "mlx5_0:2"] {
            let kind = format!("verbs://{name}");
            assert!(!crate::remote::roce::is_named(&kind));
            for name in [name, &kind] {
                let found = named(&all, name).unwrap();
                assert!(kind.ends_with(&found.name));
            }
        }
        assert_eq!(named(&all, "verbs://"), None);
        assert_eq!(named(&all, "roce://rxe0"), None);
    }
}
