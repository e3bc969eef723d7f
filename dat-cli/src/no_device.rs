//! RDMA devices in a build without the feature `verbs`.

use crate::arguments::{CopyArguments, DeviceArguments, PerfArguments, ServeArguments};
use crate::devices::Device;
use crate::failure::{Failure, FailureKind, Result};
use crate::interrupt::Signals;
use crate::model::DEVICE;
use crate::output::Output;
use crate::rsm::arguments::RsmCommand;

/// The remedy for a build without devices.
pub(crate) const REMEDY: &str = "on Linux with the headers of rdma-core (Debian: libibverbs-dev \
librdmacm-dev libclang-dev pkg-config), build with `cargo run --release --features verbs`";

fn missing() -> Failure {
    Failure {
        kind: FailureKind::Usage,
        what: "this build does not support RDMA devices".into(),
        why: "it was built without the feature `verbs`".into(),
        remedy: REMEDY.into(),
    }
}

/// Returns the failure of `missing` for a command that also accepts the model device.
fn missing_among(device: &DeviceArguments) -> Failure {
    let Some(name) = &device.device else {
        return missing();
    };
    Failure {
        what: format!("{name} cannot be used: this build does not support RDMA devices"),
        remedy: format!(
            "use {DEVICE}, a simulated device in this process; for RDMA devices, {REMEDY}"
        ),
        ..missing()
    }
}

/// Refuses a copy over a device.
///
/// # Errors
/// - Usage: always.
pub(crate) fn copy(arguments: &CopyArguments, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing_among(&arguments.device))
}

/// Refuses a measurement on a device.
///
/// # Errors
/// - Usage: always.
pub(crate) fn perf(arguments: &PerfArguments, _: &mut Output) -> Result<bool> {
    Err(missing_among(&arguments.device))
}

/// Refuses to serve.
///
/// # Errors
/// - Usage: always.
pub(crate) fn serve(_: &ServeArguments, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing())
}

/// Refuses remote shared memory over a device.
///
/// # Errors
/// - Usage: always.
pub(crate) fn rsm(_: &RsmCommand, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing())
}

/// Returns an empty list.
pub(crate) fn devices() -> Vec<Device> {
    Vec::new()
}

/// Returns the note that `dat devices` prints in place of RDMA devices.
pub(crate) fn note() -> Option<String> {
    Some(format!(
        "this build does not support RDMA devices; {REMEDY}"
    ))
}
