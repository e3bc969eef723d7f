//! Two connected endpoints, each on an adapter of a network of its own.
#![allow(dead_code, unreachable_pub, reason = "each test target uses some")]

pub mod silent;

use std::time::Duration;

use backend_mock::{FabricOptions, NodeOptions};
use dat_host::{Adapter, Endpoint, Network, Options, Result, SharedReceive, Zone};

/// Longest time that anything may take, unless the test waits for it on purpose.
///
/// Only a failure takes that long.
pub const SOON: Duration = Duration::from_secs(60);

/// True in the target that repeats the tests on hosts whose devices look past the caches.
pub const NON_COHERENT: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"non_coherent");

/// Makes a network of the hosts of this target.
pub fn network() -> Network {
    network_with(Network::options())
}

/// As `network`, with other options.
pub fn network_with(options: FabricOptions) -> Network {
    let network = Network::new(options);
    match NON_COHERENT {
        true => network.non_coherent(),
        false => network,
    }
}

/// Returns the options of a host of this target.
pub fn host(name: &'static str, number: u64) -> NodeOptions {
    let options = NodeOptions::new(name, number);
    match NON_COHERENT {
        true => options.non_coherent(),
        false => options,
    }
}

/// Two adapters in one network, with a zone each.
pub struct Pair {
    pub network: Network,
    pub near: Zone,
    pub far: Zone,
    pub near_adapter: Adapter,
    pub far_adapter: Adapter,
}

impl Pair {
    pub fn new() -> Self {
        Self::with(Network::options())
    }

    pub fn with(options: FabricOptions) -> Self {
        let network = network_with(options);
        let open = |address| Options::new().network(&network).open(address).unwrap();
        let (near_adapter, far_adapter) = (open("mock://near"), open("mock://far"));
        Self {
            near: near_adapter.zone().unwrap(),
            far: far_adapter.zone().unwrap(),
            network,
            near_adapter,
            far_adapter,
        }
    }

    /// Connects an endpoint of the near adapter with one of the far adapter.
    pub fn connect(&self) -> (Endpoint, Endpoint) {
        connect(&self.near, &self.far, None).unwrap()
    }
}

/// Connects two zones; the far endpoint receives from `queue`.
pub fn connect(
    near: &Zone,
    far: &Zone,
    queue: Option<&SharedReceive>,
) -> Result<(Endpoint, Endpoint)> {
    let listener = far.listen_with(None, 4)?;
    let connecting = near.connect((far.address()?, listener.qualifier())).start();
    let mut accepting = listener.next().wait()?.accept();
    if let Some(queue) = queue {
        accepting = accepting.receive(queue);
    }
    let accepted = accepting.wait()?;
    Ok((connecting.wait()?, accepted))
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not soon.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    eventually_with(what, condition);
}

/// As `eventually`, for a condition that changes things.
///
/// # Panics
/// If the condition does not hold soon.
pub fn eventually_with(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + SOON;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
