//! Devices whose backend calls a function when it has events.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::bell::Bell;
use crate::device::Device;

/// A device that rings the bell of its adapter from a thread of its backend.
///
/// Without a [`ring`](Self::ring), the adapter polls once in a millisecond.
///
/// ```no_run
/// use backend_roce::{RoceBackend, RoceOptions};
/// use dat_host::{Adapter, Error, Ringing};
///
/// # fn main() -> dat_host::Result<()> {
/// let mut options = RoceOptions::random().map_err(Error::System)?;
/// options.keep_alive = Some(std::time::Duration::from_secs(10));
/// let address = ([127, 0, 0, 1], 0).into();
/// let backend = RoceBackend::open(address, options).map_err(Error::System)?;
/// let device = Ringing::default();
/// backend.on_event(device.ring());
/// let adapter = Adapter::from_backend(backend, device)?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Ringing(Arc<OnceLock<Bell>>);

impl Ringing {
    /// Returns the function that the backend is to call when it has events.
    ///
    /// Calls before the adapter is open do nothing.
    pub fn ring(&self) -> impl Fn() + Send + Sync + 'static {
        let bell = Arc::clone(&self.0);
        move || {
            if let Some(bell) = bell.get() {
                bell.ring();
            }
        }
    }
}

impl Device for Ringing {
    fn attach(&self, bell: &Bell) {
        // Attached once, by the adapter that owns the device.
        let _ = self.0.set(bell.clone());
    }

    fn rings(&self) -> bool {
        // The functions that ring hold the other references.
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for Ringing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ringing").finish_non_exhaustive()
    }
}
