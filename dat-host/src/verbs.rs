//! RDMA devices of this host, over libibverbs.

use std::sync::{Arc, OnceLock};

use backend_verbs::{VerbsBackend, VerbsOptions};

use crate::bell::Bell;
use crate::device::Device;
use crate::error::{Error, Result};

/// A device whose backend has a thread that reports its events.
pub(crate) struct VerbsDevice {
    bell: Arc<OnceLock<Bell>>,
}

impl Device for VerbsDevice {
    fn attach(&self, bell: &Bell) {
        // Attached once, by the adapter that owns the device.
        let _ = self.bell.set(bell.clone());
    }
}

/// Opens a device by the name of its port, such as `rxe0` or `mlx5_0:2`.
///
/// # Errors
/// [`Error::Device`]: there is no such port, or it cannot be opened.
pub(crate) fn open(name: &str) -> Result<(VerbsBackend, VerbsDevice)> {
    let failed = |cause| Error::Device {
        name: name.to_owned(),
        cause,
    };
    let backend = VerbsBackend::open(name, VerbsOptions::default()).map_err(failed)?;
    let bell = Arc::<OnceLock<Bell>>::default();
    let rung = Arc::clone(&bell);
    let ring = move || {
        if let Some(bell) = rung.get() {
            bell.ring();
        }
    };
    backend.on_event(ring).map_err(failed)?;
    Ok((backend, VerbsDevice { bell }))
}
