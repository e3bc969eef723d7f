//! RDMA devices, in a build without them.

use crate::arguments::{CopyArguments, DeviceArguments, PerfArguments, ServeArguments};
use crate::devices::Device;
use crate::failure::{Failure, FailureKind, Result};
use crate::interrupt::Signals;
use crate::model::DEVICE;
use crate::output::Output;
use crate::rsm::arguments::RsmCommand;

/// What devices need.
pub(crate) const REMEDY: &str = "on Linux with rdma-core's headers (Debian: libibverbs-dev librdmacm-dev libclang-dev pkg-config), build with `cargo run --release --features verbs`";

fn missing() -> Failure {
    Failure {
        kind: FailureKind::Usage,
        what: "there are no RDMA devices in this build".into(),
        why: "it was built without the feature `verbs`".into(),
        remedy: REMEDY.into(),
    }
}

/// As `missing`, where a device may be named that is none of RDMA.
fn missing_among(device: &DeviceArguments) -> Failure {
    let Some(name) = &device.device else {
        return missing();
    };
    Failure {
        what: format!("{name} cannot be used: there are no RDMA devices in this build"),
        remedy: format!(
            "name {DEVICE}, which is a model of a device in this process; for others, {REMEDY}"
        ),
        ..missing()
    }
}

/// Copying over a device.
///
/// # Errors
/// Usage: always.
pub(crate) fn copy(arguments: &CopyArguments, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing_among(&arguments.device))
}

/// Measuring on a device.
///
/// # Errors
/// Usage: always.
pub(crate) fn perf(arguments: &PerfArguments, _: &mut Output) -> Result<bool> {
    Err(missing_among(&arguments.device))
}

/// Serving.
///
/// # Errors
/// Usage: always.
pub(crate) fn serve(_: &ServeArguments, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing())
}

/// Remote shared memory.
///
/// # Errors
/// Usage: always.
pub(crate) fn rsm(_: &RsmCommand, _: &Signals, _: &mut Output) -> Result<bool> {
    Err(missing())
}

/// None.
pub(crate) fn devices() -> Vec<Device> {
    Vec::new()
}

/// What is said where devices would be listed.
pub(crate) fn note() -> Option<String> {
    Some(format!("RDMA devices are not in this build; {REMEDY}"))
}
