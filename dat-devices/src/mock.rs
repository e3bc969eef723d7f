//! Networks in this process.

use std::sync::{Mutex, PoisonError};

use backend_mock::{Fabric, FabricOptions, FabricThread, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_storage::forks::{self, PerProcess};

use crate::address::DeviceAddress;
use crate::by_address::{ByAddress, Found};
use crate::error::OpenError;
use crate::network::Network;
use crate::numbered::NumberedHost;
use crate::options::{Options, StartThread};

/// Form of a numbered device.
const FORM: &str =
    "a host number from 1 to 254, optionally followed by `extended` and `non-coherent`";

impl ByAddress for MockBackend {
    const SCHEME: &'static str = "mock";

    fn open(device: &str, options: &Options) -> Result<Self, OpenError> {
        forks::prepare().map_err(|error| OpenError::system(error, FORM))?;
        if options.numbered {
            return numbered(device, options.start_thread);
        }
        let network = options.network.clone();
        Ok(network.unwrap_or_else(Network::of_process).join(device))
    }

    fn addresses(_device: &str) -> Result<Vec<IaAddress>, OpenError> {
        Ok(Vec::new())
    }

    fn devices() -> Result<Vec<Found>, OpenError> {
        Ok(vec![Found {
            name: "mock0".into(),
            address: DeviceAddress::new(Self::SCHEME, ""),
            addresses: Vec::new(),
            is_active: true,
            description: "an in-process network".into(),
        }])
    }

    fn missing(device: &str) -> Option<String> {
        let words: Vec<&str> = device.split_whitespace().collect();
        let is_known = NumberedHost::parse(&words).is_some();
        (!is_known).then(|| format!("a mock device needs {FORM}"))
    }
}

/// The numbered fabric of this process with its thread. Both stay as long as the process.
struct Running {
    fabric: Fabric,
    _thread: FabricThread,
}

fn numbered(device: &str, start_thread: Option<StartThread>) -> Result<MockBackend, OpenError> {
    let words: Vec<&str> = device.split_whitespace().collect();
    let host = NumberedHost::parse(&words).ok_or_else(|| OpenError::malformed(FORM))?;
    let mut options = NodeOptions::new("mock", host.number.into());
    options.address = IaAddress::V4([127, 0, 0, host.number], 0);
    if host.is_extended {
        options = options.extended();
    }
    if !host.is_coherent {
        options = options.non_coherent();
    }
    Ok(fabric(start_thread)?.node(options))
}

fn fabric(start_thread: Option<StartThread>) -> Result<Fabric, OpenError> {
    static RUNNING: PerProcess<Mutex<Option<Running>>> = PerProcess::new();
    let running = RUNNING.this().lock();
    let mut running = running.unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = running.as_ref() {
        return Ok(running.fabric.clone());
    }
    let fabric = Fabric::new(FabricOptions {
        receiver_not_ready_retries: u32::MAX,
        ..FabricOptions::default()
    });
    let thread = match start_thread {
        Some(start) => fabric.drive_with(|drive| start(c"fabric", drive)),
        None => fabric.spawn_thread(),
    };
    let thread = thread.map_err(|error| OpenError::system(error, FORM))?;
    *running = Some(Running {
        fabric: fabric.clone(),
        _thread: thread,
    });
    Ok(fabric)
}
