//! RDMA devices of this host, over libibverbs.

use backend_verbs::{LongQualifiers, OpenDevices, VerbsBackend, VerbsOptions};
use dat_core::attributes::IaAddress;
use dat_core::backend::BackendError;
use dat_storage::forks::{self, PerProcess};

use crate::address::DeviceAddress;
use crate::by_address::{ByAddress, Found};
use crate::error::OpenError;
use crate::options::Options;

/// Form of the device in an address.
const FORM: &str = "`verbs://NAME`";

impl ByAddress for VerbsBackend {
    const SCHEME: &'static str = "verbs";

    fn open(device: &str, options: &Options) -> Result<Self, OpenError> {
        static OPEN: PerProcess<OpenDevices> = PerProcess::new();
        forks::prepare().map_err(|error| OpenError::system(error, FORM))?;
        let mut verbs = VerbsOptions::default();
        verbs.devices = OPEN.this();
        verbs.not_ready_retries = options.not_ready_retries();
        if options.shortened_qualifiers {
            verbs.long_qualifiers = LongQualifiers::Shortened;
        }
        if let Some(start) = options.start_thread {
            verbs.start_thread = start;
        }
        Ok(Self::open(&port_of(device), verbs)?)
    }

    fn addresses(device: &str) -> Result<Vec<IaAddress>, OpenError> {
        let name = port_of(device);
        let mut ports = backend_verbs::find_devices()?.into_iter();
        let port = ports.find(|port| port.name == name);
        Ok(port.ok_or(BackendError::Device)?.addresses)
    }

    fn devices() -> Result<Vec<Found>, OpenError> {
        let ports = backend_verbs::find_devices()?.into_iter();
        let found = ports.map(|port| Found {
            address: DeviceAddress::new(Self::SCHEME, &port.name),
            description: format!(
                "port {} of {}, {}",
                port.port, port.device, port.description
            ),
            name: port.name,
            addresses: port.addresses,
            is_active: port.active,
        });
        Ok(found.collect())
    }

    fn missing(device: &str) -> Option<String> {
        let found = Self::devices().unwrap_or_default().into_iter();
        let ports: Vec<String> = found.map(|port| port.name).collect();
        if is_known(device, &ports) {
            return None;
        }
        let there = match ports.is_empty() {
            true => "the host has none".to_owned(),
            false => format!("the host has {}", ports.join(", ")),
        };
        Some(format!(
            "`{device}` is not an RDMA device of this host, nor the network interface or address \
            of one; {there}"
        ))
    }
}

/// Returns the port that a name stands for: its own, or that of an interface or address.
fn port_of(name: &str) -> String {
    let known = backend_verbs::device_of(name).or_else(|| {
        // An interface or an address determines the port by itself.
        let (interface, _port) = name.rsplit_once(':')?;
        backend_verbs::device_of(interface)
    });
    known.unwrap_or_else(|| name.to_owned())
}

/// Returns true if a name is that of a port, or leads to one.
fn is_known(name: &str, ports: &[String]) -> bool {
    // A device with one port is listed without the port's number.
    let (device, port) = name.rsplit_once(':').unwrap_or((name, "1"));
    let is_meant = |known: &String| {
        let (other, number) = known.rsplit_once(':').unwrap_or((known, "1"));
        (device, port) == (other, number)
    };
    ports.iter().any(is_meant) || leads_to_one(name) || leads_to_one(device)
}

/// Returns true for an interface or an address, which determines the port by itself.
fn leads_to_one(name: &str) -> bool {
    // `device_of` returns names of devices unchanged, with any port.
    backend_verbs::device_of(name).is_some_and(|port| port != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_known_by_device_and_number() {
        let ports = ["rxe0".to_owned(), "mlx5_0:1".into(), "mlx5_0:2".into()];
        for (name, expected) in [
            ("rxe0", true),
            ("rxe0:1", true),
            ("rxe0:2", false),
            ("mlx5_0", true),
            ("mlx5_0:2", true),
            ("mlx5_0:3", false),
            ("mlx5_1", false),
        ] {
            assert_eq!(is_known(name, &ports), expected, "{name}");
        }
    }
}
