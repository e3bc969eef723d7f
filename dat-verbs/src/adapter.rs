//! The adapter of this process.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backend_roce::{RoceDevice, RoceOptions};
use dat_core::backend::ControlEvent;

use crate::errors::{Result, of_system};
use crate::gids::Interfaces;
use crate::settings::Settings;

/// Receives the events of one completion queue.
pub(crate) type Notify = Box<dyn Fn() + Send + Sync>;

/// The adapter, which all contexts of the process use.
pub(crate) struct Adapter {
    pub(crate) device: RoceDevice,
    /// Address that it was opened at, which may be a wildcard.
    pub(crate) address: SocketAddr,
    pub(crate) interfaces: Interfaces,
    /// Receivers of the events of completion queues, by number.
    queues: Arc<Mutex<HashMap<u32, Notify>>>,
}

/// The adapter, and the number of the process that opened it.
static PROCESS: Mutex<Option<(u32, Arc<Adapter>)>> = Mutex::new(None);

/// Returns the adapter, which the first call of a process opens.
///
/// A child of `fork` opens its own one; objects of its parent stay with that.
///
/// # Errors
/// Those of the system; `EINVAL` for settings that nobody can have.
pub(crate) fn adapter() -> Result<Arc<Adapter>> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let number = std::process::id();
    if let Some((of, adapter)) = &*process
        && *of == number
    {
        return Ok(Arc::clone(adapter));
    }
    let adapter = Arc::new(Adapter::open(Settings::read()?)?);
    // The parent's adapter is not to be closed here.
    core::mem::forget(process.replace((number, Arc::clone(&adapter))));
    Ok(adapter)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the receiver of a completion queue of its completions.
fn tell(receivers: &Mutex<HashMap<u32, Notify>>, queue: u32) {
    if let Some(notify) = lock(receivers).get(&queue) {
        notify();
    }
}

impl Adapter {
    /// Tells of completions of a queue, as the device does.
    #[cfg(test)]
    pub(crate) fn tell(&self, queue: u32) {
        tell(&self.queues, queue);
    }

    fn open(settings: Settings) -> Result<Self> {
        let mut options = RoceOptions::random().map_err(|error| of_system(&error))?;
        options.path = settings.path;
        let device = RoceDevice::open(settings.address.ip(), &options);
        let device = device.map_err(|error| of_system(&error))?;
        let queues = Arc::new(Mutex::new(HashMap::<u32, Notify>::new()));
        let receivers = Arc::clone(&queues);
        device.on_event(move |event| match event {
            ControlEvent::Completions { queue } | ControlEvent::SolicitedCompletions { queue } => {
                tell(&receivers, queue);
            }
            _ => {}
        });
        Ok(Self {
            device,
            address: settings.address,
            interfaces: Interfaces::of(settings.address),
            queues,
        })
    }

    /// Sets the receiver of the events of a completion queue, which makes no call on the adapter.
    pub(crate) fn on_completions(&self, queue: u32, notify: Notify) {
        lock(&self.queues).insert(queue, notify);
    }

    /// Removes the receiver; it does not run any more.
    pub(crate) fn forget_completions(&self, queue: u32) {
        lock(&self.queues).remove(&queue);
    }

    /// Returns true if the adapter serves an address of this host.
    ///
    /// Loop-back addresses are of every device, as in the kernel.
    pub(crate) fn serves(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let mut gids = self.interfaces.gids.iter();
        ip.is_loopback() || gids.any(|gid| gid.address == ip)
    }
}
