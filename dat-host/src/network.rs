//! Networks of mock adapters in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use backend_mock::{Fabric, FabricOptions, Limits, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::time::Instant;
use dat_storage::forks::PerProcess;

use crate::bell::{Bell, WeakBell};
use crate::device::{Activity, Device};

/// Microseconds within which a driver waits for the next action by polling.
const SPIN: u64 = 50;

/// A network in this process, of adapters that are named instead of numbered.
///
/// `mock://a` opens the adapter `a` of the process's own network. A network of its own isolates a
/// test, and gives access to its fabric: options, faults, time. The driver of an adapter also
/// performs the actions of the network that are due, by the clock. Clones are the same network.
///
/// ```
/// use dat_host::{Network, Options};
///
/// # fn main() -> dat_host::Result<()> {
/// let network = Network::new(Network::options());
/// let near = Options::new().network(&network).open("mock://near")?;
/// let far = Options::new().network(&network).open("mock://far")?;
/// assert_ne!(near.address()?, far.address()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Network(Arc<Members>);

struct Members {
    fabric: Fabric,
    /// Node numbers by name, from 1.
    numbers: Mutex<HashMap<String, u64>>,
    bells: Mutex<Vec<WeakBell>>,
    /// True if hosts of new names are coherent.
    is_coherent: AtomicBool,
}

impl Network {
    /// Creates a network without adapters.
    pub fn new(options: FabricOptions) -> Self {
        Self(Arc::new(Members {
            fabric: Fabric::new(options),
            numbers: Mutex::default(),
            bells: Mutex::default(),
            is_coherent: AtomicBool::new(true),
        }))
    }

    /// Lets the devices of hosts that are opened from now on look past the caches.
    ///
    /// Such an adapter has `lmr_sync_req`. A program that forgets a call of
    /// [`Adapter::sync_rdma_write`](crate::Adapter::sync_rdma_write) sees old bytes there, every
    /// time.
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
    pub(crate) fn of_process() -> Self {
        #[derive(Debug)]
        struct Own(Network);
        impl Default for Own {
            fn default() -> Self {
                Self(Network::new(Network::options()))
            }
        }
        static NETWORK: PerProcess<Own> = PerProcess::new();
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

    /// Adds an adapter; returns its backend and the device to open it with.
    pub(crate) fn join(&self, name: &str) -> (MockBackend, NetworkDevice) {
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
        let device = NetworkDevice {
            network: self.clone(),
            bell: OnceLock::new(),
        };
        (self.0.fabric.node(options), device)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// The part of an adapter in its network.
pub(crate) struct NetworkDevice {
    network: Network,
    bell: OnceLock<Bell>,
}

impl Device for NetworkDevice {
    fn attach(&self, bell: &Bell) {
        let mut bells = lock(&self.network.0.bells);
        // Bells keep their indices, since `wake_others` may be counting them.
        match bells.iter_mut().find(|bell| bell.is_gone()) {
            Some(slot) => *slot = bell.downgrade(),
            None => bells.push(bell.downgrade()),
        }
        drop(bells);
        // Attached once, by the adapter that owns the device.
        let _ = self.bell.set(bell.clone());
    }

    /// Performs the actions of the network; rings the bells of the others if there were any.
    fn act(&self, now: Instant) -> Activity {
        let members = &self.network.0;
        let acted = members.fabric.run_until(now) != 0;
        if acted {
            self.wake_others();
        }
        let next = members.fabric.next_due();
        let is_near =
            next.is_some_and(|next| next.as_micros() <= now.as_micros().saturating_add(SPIN));
        Activity {
            acted: acted || is_near,
            next,
        }
    }

    fn acts_after_posts(&self) -> bool {
        true
    }
}

impl NetworkDevice {
    fn wake_others(&self) {
        let mut index = 0;
        loop {
            // Ringing runs wakers, so the list is not locked meanwhile.
            let bell = {
                let bells = lock(&self.network.0.bells);
                bells.get(index).cloned()
            };
            let Some(bell) = bell else {
                return;
            };
            index += 1;
            if !self.bell.get().is_some_and(|own| own.is(&bell)) {
                bell.ring();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
