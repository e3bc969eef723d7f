//! The commands on the kind of device that their arguments name.

use super::commands;
#[cfg(not(feature = "verbs"))]
use super::no_verbs as verbs;
use super::roce::{self, Roce};
#[cfg(feature = "verbs")]
use super::verbs::{self, Verbs};
use crate::arguments::{CopyArguments, PerfArguments, ServeArguments};
use crate::copy;
use crate::devices::Device;
use crate::failure::Result;
use crate::interrupt::Signals;
use crate::output::Output;
use crate::rsm;
use crate::rsm::arguments::RsmCommand;

/// Returns true if the device is RoCEv2 in software: by its name, or because there is no other.
///
/// Without free descriptors, RDMA devices cannot be seen; their failure names the limit. An RDMA
/// device that has such a name is `verbs://NAME`.
#[cfg(feature = "verbs")]
fn is_roce(name: Option<&str>) -> bool {
    let without_name = || !verbs::is_there() && crate::limits::descriptors().is_none();
    name.map_or_else(without_name, roce::is_named)
}

/// Calls a generic function for the kind of device that a name selects.
macro_rules! on_device {
    ($name:expr, $($function:ident)::+($($argument:expr),*)) => {{
        let name: Option<&str> = $name;
        #[cfg(feature = "verbs")]
        if is_roce(name) {
            $($function)::+::<Roce>($($argument),*)
        } else {
            $($function)::+::<Verbs>($($argument),*)
        }
        #[cfg(not(feature = "verbs"))]
        match name {
            Some(name) if !roce::is_named(name) => Err(verbs::missing(name)),
            _ => $($function)::+::<Roce>($($argument),*),
        }
    }};
}

/// Copies a file over a device.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`copy::on_device`].
pub(crate) fn copy(
    arguments: &CopyArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let name = arguments.device.device.as_deref();
    on_device!(name, copy::on_device(arguments, signals, output))
}

/// Measures on a device.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`commands::perf`].
pub(crate) fn perf(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    let name = arguments.device.device.as_deref();
    on_device!(name, commands::perf(arguments, output))
}

/// Serves until a signal comes.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`commands::serve`].
pub(crate) fn serve(
    arguments: &ServeArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let name = arguments.device.as_deref();
    on_device!(name, commands::serve(arguments, signals, output))
}

/// Runs a command of remote shared memory over a device.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`rsm::device::run`].
pub(crate) fn rsm(command: &RsmCommand, signals: &Signals, output: &mut Output) -> Result<bool> {
    on_device!(command.device(), rsm::device::run(command, signals, output))
}

/// Returns all devices that reach other processes.
pub(crate) fn devices() -> Vec<Device> {
    let mut all = roce::devices();
    all.extend(verbs::devices());
    all
}

/// Returns the note that `dat devices` prints in place of RDMA devices.
pub(crate) fn note() -> Option<String> {
    verbs::note()
}
