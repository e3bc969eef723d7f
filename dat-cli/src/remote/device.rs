//! The commands on the kind of device that their arguments name.

use dat_devices::{ByAddress, DeviceAddress, Found, OpenErrorKind, Options, is_built_in};

use super::commands;
use super::transport::{is_anywhere, is_usable, no_device, not_opened, text};
use crate::arguments::{CopyArguments, PerfArguments, ServeArguments};
use crate::copy;
use crate::devices::{Device, Port, attributes, rdma_device};
use crate::failure::{Failure, FailureKind, Result};
use crate::interrupt::Signals;
use crate::limits;
use crate::output::Output;
use crate::rsm;
use crate::rsm::arguments::RsmCommand;

/// The remedy for a build without RDMA devices.
const BUILD: &str = "on Linux with the headers of rdma-core (Debian: libibverbs-dev librdmacm-dev \
    libclang-dev pkg-config), build with `cargo run --release --features verbs`";

/// The mock, whose adapters other processes do not reach.
pub(crate) const MOCK: &str = "mock";

/// Returns the scheme of a device: of its name, or of the first kind with a usable one.
///
/// Without free descriptors, RDMA devices cannot be seen; their failure names the limit.
fn scheme_of(name: Option<&str>) -> String {
    if let Some(name) = name {
        return DeviceAddress::from_argument(name).scheme().to_owned();
    }
    let is_it = |listed: &dat_devices::Listed| match &listed.found {
        Ok(found) => found.iter().any(is_usable) || limits::descriptors().is_some(),
        Err(error) => !matches!(error.kind(), OpenErrorKind::NotBuiltIn { .. }),
    };
    let first = dat_devices::devices().into_iter().find(is_it);
    first.map_or_else(String::new, |listed| listed.scheme.to_owned())
}

/// Returns the failure of a device that no backend of this build has.
fn missing(name: Option<&str>) -> Failure {
    let name = name.unwrap_or_default();
    if is_built_in("verbs") {
        return no_device(
            "",
            format!("cannot open the device {name}"),
            "the device does not exist, or this user has no permission to open it",
        );
    }
    Failure {
        kind: FailureKind::Usage,
        what: format!("{name} cannot be used: this build does not support RDMA devices"),
        why: "it was built without the feature `verbs`".into(),
        remedy: format!("use roce, which needs no device; for RDMA devices, {BUILD}"),
    }
}

/// Calls a generic function for the kind of device that a name selects.
macro_rules! on_device {
    ($name:expr, $($function:ident)::+($($argument:expr),*)) => {{
        let name: Option<&str> = $name;
        let scheme = scheme_of(name);
        dat_devices::backends! { [by_scheme] {
            scheme, name, [$($function)::+] ($($argument),*)
        } }
    }};
}

/// Calls a function for the backend of a scheme; not for the mock, which is the last one.
macro_rules! by_scheme {
    ({ $scheme:expr, $name:expr, $($call:tt)+ } Mock = $type:ty,) => {
        Err(missing($name))
    };
    ({ $scheme:expr, $name:expr, $($call:tt)+ } $first:ident = $type:ty, $($others:tt)+) => {
        if $scheme == <$type as ByAddress>::SCHEME {
            by_scheme! { @call $type, $($call)+ }
        } else {
            by_scheme! { { $scheme, $name, $($call)+ } $($others)+ }
        }
    };
    (@call $type:ty, [$($function:tt)+] $arguments:tt) => {
        $($function)+::<$type> $arguments
    };
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
    let name = arguments.device.named.name();
    on_device!(name, copy::on_device(arguments, signals, output))
}

/// Measures on a device.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`commands::perf`].
pub(crate) fn perf(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    let name = arguments.device.named.name();
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
    let name = arguments.named.name();
    on_device!(name, commands::serve(arguments, signals, output))
}

/// Runs a command of remote shared memory over a device.
///
/// # Errors
/// - Usage: this build does not support the device.
/// - Those of [`rsm::device::run`].
pub(crate) fn rsm(command: &RsmCommand, signals: &Signals, output: &mut Output) -> Result<bool> {
    on_device!(
        command.device().name(),
        rsm::device::run(command, signals, output)
    )
}

/// Returns all devices that reach other processes.
pub(crate) fn devices() -> Vec<Device> {
    let kinds = dat_devices::devices().into_iter().rev();
    let kinds = kinds.filter(|kind| kind.scheme != MOCK);
    let all = kinds.flat_map(|kind| kind.found.unwrap_or_default());
    all.map(describe).collect()
}

/// Describes a device, with its attributes if it can be opened.
fn describe(found: Found) -> Device {
    let scheme = found.address.scheme();
    let (name, address) = match is_anywhere(&found) {
        true => (scheme.to_owned(), DeviceAddress::new(scheme, "127.0.0.1")),
        false => (found.name.clone(), found.address.clone()),
    };
    let opened = attributes(&address, &Options::new());
    let failure = |error| not_opened(&address, &name, error).why;
    let addresses = found
        .addresses
        .iter()
        .filter_map(|own| own.socket_address());
    let port = Port {
        active: found.is_active,
        addresses: addresses.map(text).collect(),
        closed: opened.as_ref().err().map(failure),
    };
    let scheme = scheme.to_owned();
    rdma_device(scheme, name, found.description, port, opened.ok())
}

/// Returns the note that `dat devices` prints if no RDMA device is listed.
pub(crate) fn note() -> Option<String> {
    let kinds = dat_devices::devices().into_iter();
    let mut without = kinds.filter(|kind| !kind.found.as_ref().is_ok_and(|all| !all.is_empty()));
    let is_built_in = match without.next()?.found {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), OpenErrorKind::NotBuiltIn { .. }),
    };
    Some(match is_built_in {
        true => {
            let why = limits::descriptors();
            let why = why.map_or("this host has no RDMA device".into(), |reached| reached.why);
            format!("RDMA devices: {why}")
        }
        false => format!("this build does not support RDMA devices; {BUILD}"),
    })
}
