//! RDMA devices of this host, over libibverbs.

use backend_verbs::{VerbsBackend, VerbsOptions};

use crate::error::{Error, Result};
use crate::ringing::Ringing;

/// Opens a device by the name of its port, such as `rxe0` or `mlx5_0:2`.
///
/// # Errors
/// [`Error::Device`]: there is no such port, or it cannot be opened.
pub(crate) fn open(name: &str) -> Result<(VerbsBackend, Ringing)> {
    let failed = |cause| Error::Device {
        name: name.to_owned(),
        cause,
    };
    // For ever: a sender waits for a receive, as on the networks of this process.
    let mut options = VerbsOptions::default();
    options.not_ready_retries = 7;
    let backend = VerbsBackend::open(name, options).map_err(failed)?;
    let device = Ringing::default();
    backend.on_event(device.ring()).map_err(failed)?;
    Ok((backend, device))
}
