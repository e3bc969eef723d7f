//! The kinds of devices of this build, and the devices that they have.

use dat_devices::{ByAddress, DeviceAddress, Found, OpenErrorKind, Options, is_built_in};

use super::transport::{is_anywhere, is_usable, no_device, not_opened, text};
use crate::devices::{Device, Port, attributes, rdma_device};
use crate::failure::{Failure, FailureKind, Result};
use crate::limits;

/// The remedy for a build without RDMA devices.
const BUILD: &str = "on Linux with the headers of rdma-core (Debian: libibverbs-dev librdmacm-dev \
    libclang-dev pkg-config), build with `cargo run --release --features verbs`";

/// The mock, whose adapters other processes do not reach.
pub(crate) const MOCK: &str = "mock";

/// Evaluates an expression for the backend of a scheme, whose type gets a name; `None` if this build
/// has none.
macro_rules! with_backend {
    ($scheme:expr, $backend:ident => $result:expr) => {
        dat_devices::backends! { [$crate::remote::device::by_scheme] {
            $scheme, $backend => $result
        } }
    };
}

macro_rules! by_scheme {
    ({ $scheme:expr, $backend:ident => $result:expr } $($name:ident = $type:ty,)*) => {
        match $scheme {
            $(<$type as dat_devices::ByAddress>::SCHEME => {
                type $backend = $type;
                Some($result)
            })*
            _ => None,
        }
    };
}

pub(crate) use {by_scheme, with_backend};

/// Returns the scheme of a device that other processes reach: of its name, or of the first kind with
/// a usable one.
///
/// Without free descriptors, RDMA devices cannot be seen; their failure names the limit.
///
/// # Errors
/// - Usage: this build does not support the device.
pub(crate) fn scheme_of(name: Option<&str>) -> Result<&'static str> {
    let is_it = |listed: &dat_devices::Listed| match &listed.found {
        Ok(found) => found.iter().any(is_usable) || limits::descriptors().is_some(),
        Err(error) => !matches!(error.kind(), OpenErrorKind::NotBuiltIn { .. }),
    };
    let scheme = match name {
        Some(name) => {
            let address = DeviceAddress::from_argument(name);
            with_backend!(address.scheme(), B => B::SCHEME)
        }
        None => {
            let first = dat_devices::devices().into_iter().find(is_it);
            first.map(|listed| listed.scheme)
        }
    };
    let scheme = scheme.filter(|scheme| *scheme != MOCK);
    scheme.ok_or_else(|| missing(name.unwrap_or_default()))
}

/// Returns the failure of a device that no backend of this build has.
fn missing(name: &str) -> Failure {
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
