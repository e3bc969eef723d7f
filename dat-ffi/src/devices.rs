//! Which device a name means.

use std::sync::{Mutex, PoisonError};

use backend_mock::{Fabric, FabricOptions, FabricThread, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::{Error, Result, Subtype};

use crate::adapter::{Device, Opened, Opening};
use crate::capacity::Capacity;

/// A device, as a line of `dat.conf` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// A host of the fabric in this process, by its number.
    Mock(u8),
    /// An RDMA device: its name or that of its network interface, or an address, with a port if one was given.
    Verbs(String),
}

impl Named {
    /// Reads the instance data of a line: `mock`, `mock 7`, `rxe0`, `mlx5_0 2`, `eth2 0`, `10.9.0.1`. If it is empty, the name of the
    /// line says it.
    pub(crate) fn parse(instance_data: &str, ia_name: &str) -> Self {
        let mut words = instance_data.split_whitespace();
        let device = words.next().unwrap_or(ia_name);
        let number = words.next();
        match (device, number.unwrap_or("1").parse()) {
            ("mock", Ok(host @ 1..=254)) => Self::Mock(host),
            _ => Self::Verbs(match number {
                // A port 0 is any.
                None | Some("0") => device.to_owned(),
                Some(port) => format!("{device}:{port}"),
            }),
        }
    }
}

impl Opening for Named {
    fn open(&self, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Device> {
        match self {
            Self::Mock(host) => mock(*host, capacity, async_evd_min_qlen),
            Self::Verbs(name) => verbs(name, capacity, async_evd_min_qlen),
        }
    }
}

/// The fabric of this process, with its thread. Both stay as long as the process.
struct Running {
    fabric: Fabric,
    _thread: FabricThread,
}

fn fabric() -> Result<Fabric> {
    static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = running.as_ref() {
        return Ok(running.fabric.clone());
    }
    let fabric = Fabric::new(FabricOptions::default());
    let thread = fabric
        .spawn_thread()
        .map_err(|_| Error::insufficient_resources(Subtype::NoSubtype))?;
    *running = Some(Running {
        fabric: fabric.clone(),
        _thread: thread,
    });
    Ok(fabric)
}

fn mock(host: u8, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Device> {
    let fabric = fabric()?;
    let options = NodeOptions {
        address: IaAddress::V4([127, 0, 0, host], 0),
        ..NodeOptions::new("mock", host.into())
    };
    let backend = fabric.node(options);
    Opened::open(backend, fabric, capacity, async_evd_min_qlen).map(Device::Mock)
}

#[cfg(feature = "verbs")]
fn verbs(name: &str, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Device> {
    use backend_verbs::{VerbsBackend, VerbsOptions};
    use dat_core::ErrorKind;
    use dat_core::backend::BackendError;

    let refused = |error| match error {
        BackendError::Resources => Error::insufficient_resources(Subtype::ResourceDevice),
        _ => Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered),
    };
    let name = backend_verbs::device_of(name).unwrap_or_else(|| name.to_owned());
    let backend = VerbsBackend::open(&name, VerbsOptions::default()).map_err(refused)?;
    let sleeper = backend.wait().map_err(refused)?;
    Opened::open(backend, Mutex::new(sleeper), capacity, async_evd_min_qlen).map(Device::Verbs)
}

#[cfg(not(feature = "verbs"))]
fn verbs(_name: &str, _capacity: &Capacity, _async_evd_min_qlen: i32) -> Result<Device> {
    Err(Error::new(
        dat_core::ErrorKind::ProviderNotFound,
        Subtype::NameNotRegistered,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_data_names_devices() {
        let verbs = |name: &str| Named::Verbs(name.to_owned());
        for (instance_data, name, expected) in [
            ("mock", "x", Named::Mock(1)),
            ("", "mock", Named::Mock(1)),
            ("mock 7", "x", Named::Mock(7)),
            ("mock 0", "x", verbs("mock")),
            ("mock 255", "x", verbs("mock:255")),
            ("", "rxe0", verbs("rxe0")),
            (" rxe0 ", "x", verbs("rxe0")),
            ("eth2 0", "x", verbs("eth2")),
            ("mlx5_0 2", "x", verbs("mlx5_0:2")),
        ] {
            assert_eq!(Named::parse(instance_data, name), expected);
        }
    }
}
