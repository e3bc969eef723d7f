//! Devices that all adapters of a process share.

use std::collections::BTreeMap;
use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dat_core::backend::BackendError;

use crate::directory::Leaves;
use crate::event_thread::{EventThread, Watch};
use crate::hal::{Context, ListedDevice};
use crate::options::StartThread;
use crate::signal::Signal;
use crate::sources::Sources;

/// Devices that are open; adapters that are opened through one of these share them.
///
/// An adapter that is open and idle has no file descriptor of its own. A device has four, and one
/// thread, until the last adapter of it is dropped.
///
/// [`VerbsOptions`](crate::VerbsOptions) names one for the whole process. A child of `fork` opens
/// devices of its own: it does not have the thread of its parent's.
#[derive(Debug, Default)]
pub struct OpenDevices {
    /// Devices by process and identity.
    devices: Mutex<BTreeMap<(u32, usize), Weak<SharedDevice>>>,
}

impl OpenDevices {
    /// Makes one without open devices.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            devices: Mutex::new(BTreeMap::new()),
        }
    }

    /// Returns the open device with this name, or opens it.
    ///
    /// A device that has failed is opened anew.
    pub(crate) fn open(
        &self,
        name: &str,
        start_thread: StartThread,
    ) -> Result<Arc<SharedDevice>, BackendError> {
        let listed = ListedDevice::find(name)?;
        self.share(listed.identity(), || {
            SharedDevice::new(listed.open()?, start_thread)
        })
    }

    fn share(
        &self,
        identity: usize,
        open: impl FnOnce() -> Result<SharedDevice, BackendError>,
    ) -> Result<Arc<SharedDevice>, BackendError> {
        // Held during `open`, so that two adapters do not both open the device.
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (process::id(), identity);
        let known = devices.get(&key).and_then(Weak::upgrade);
        if let Some(device) = known.filter(|device| !device.watch().has_failed()) {
            return Ok(device);
        }
        devices.retain(|_, device| device.strong_count() != 0);
        let device = Arc::new(open()?);
        devices.insert(key, Arc::downgrade(&device));
        Ok(device)
    }
}

/// The devices of `VerbsOptions::default`.
pub(crate) static OF_PROCESS: OpenDevices = OpenDevices::new();

/// An open device with its thread.
#[derive(Debug)]
pub(crate) struct SharedDevice {
    thread: EventThread,
    /// Entries of the device's queue pairs, whose numbers are unique on it.
    pub(crate) leaves: Leaves,
    pub(crate) context: Arc<Context>,
}

impl SharedDevice {
    fn new(context: Context, start_thread: StartThread) -> Result<Self, BackendError> {
        context.do_not_block()?;
        let context = Arc::new(context);
        Ok(Self {
            thread: EventThread::start(start_thread, context.clone())?,
            leaves: Leaves::default(),
            context,
        })
    }

    pub(crate) fn watch(&self) -> &Watch {
        self.thread.watch()
    }

    /// Enters an adapter.
    ///
    /// # Errors
    /// `Resources`: too many adapters of the device are open.
    pub(crate) fn enter(self: &Arc<Self>, signal: &Arc<Signal>) -> Result<Seat, BackendError> {
        Ok(Seat {
            sources: self.thread.watch().enter(signal, &self.context)?,
            device: Arc::clone(self),
        })
    }
}

/// Place of an adapter among those of its device, which it leaves when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) sources: Arc<Sources>,
    pub(crate) device: Arc<SharedDevice>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.sources.end();
        self.device.watch().leave(self.sources.number());
    }
}

#[cfg(test)]
mod tests;
