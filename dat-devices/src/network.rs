//! Networks of mock adapters in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use backend_mock::{Fabric, FabricOptions, FabricThread, Limits, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_storage::forks::{self, PerProcess};

use crate::options::StartThread;

/// A network in this process, of adapters that are named instead of numbered.
///
/// `mock://a` opens the adapter `a` of the process's own network. A network of its own isolates a
/// test, and gives access to its fabric: options, faults, time. The driver of an adapter also
/// performs the actions of the network that are due, by the clock. Clones are the same network.
///
/// ```
/// use dat_devices::Network;
///
/// let network = Network::new(Network::options());
/// assert_ne!(network.address("near"), network.address("far"));
/// ```
#[derive(Clone)]
pub struct Network(Arc<Members>);

struct Members {
    fabric: Fabric,
    /// Node numbers by name, from 1.
    numbers: Mutex<HashMap<String, u64>>,
    /// True if hosts of new names are coherent.
    is_coherent: AtomicBool,
    /// Performs the actions in place of the adapters.
    _thread: Option<FabricThread>,
}

impl Network {
    /// Creates a network without adapters.
    pub fn new(options: FabricOptions) -> Self {
        Self::of(Fabric::new(options), None)
    }

    /// Creates a network whose actions a thread of its own performs, until its last clone is gone.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn with_thread(options: FabricOptions, start: StartThread) -> io::Result<Self> {
        let fabric = Fabric::new(options);
        let thread = fabric.drive_with(|drive| start(c"fabric", drive))?;
        Ok(Self::of(fabric, Some(thread)))
    }

    fn of(fabric: Fabric, thread: Option<FabricThread>) -> Self {
        Self(Arc::new(Members {
            fabric,
            numbers: Mutex::default(),
            is_coherent: AtomicBool::new(true),
            _thread: thread,
        }))
    }

    /// Lets the devices of hosts that are opened from now on look past the caches.
    ///
    /// Such an adapter has `lmr_sync_req`. A program that forgets to synchronise memory that a peer
    /// writes sees old bytes there, every time.
    #[must_use]
    pub fn non_coherent(self) -> Self {
        self.0.is_coherent.store(false, Ordering::Relaxed);
        self
    }

    /// Returns the options of the process's own network.
    ///
    /// It has no latency, and a sender waits for a receive buffer without limit, as RDMA devices
    /// are usually configured.
    pub fn options() -> FabricOptions {
        FabricOptions {
            receiver_not_ready_interval: 200,
            receiver_not_ready_retries: u32::MAX,
            ..FabricOptions::immediate()
        }
    }

    /// Returns the network of `mock://` addresses.
    pub fn of_process() -> Self {
        #[derive(Debug)]
        struct Own(Network);
        impl Default for Own {
            fn default() -> Self {
                Self(Network::new(Network::options()))
            }
        }
        static NETWORK: PerProcess<Own> = PerProcess::new();
        // Without memory for the handler, opening an adapter is refused.
        let _refused = forks::prepare();
        NETWORK.this().0.clone()
    }

    /// Returns the fabric, to inject faults.
    pub fn fabric(&self) -> &Fabric {
        &self.0.fabric
    }

    /// Returns the address of a name, which need not be open.
    pub fn address(&self, name: &str) -> IaAddress {
        let mut numbers = lock(&self.0.numbers);
        let next = numbers.len() as u64 + 1;
        IaAddress::Node(*numbers.entry(name.to_owned()).or_insert(next))
    }

    /// Adds an adapter.
    pub(crate) fn join(&self, name: &str) -> MockBackend {
        let options = NodeOptions {
            address: self.address(name),
            coherent: self.0.is_coherent.load(Ordering::Relaxed),
            limits: Limits {
                // The queue of the listener limits the requests that wait.
                backlog: u32::MAX,
                ..Limits::default()
            },
            ..NodeOptions::new("mock", 0)
        };
        self.0.fabric.node(options)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
