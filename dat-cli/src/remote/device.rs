//! The kinds of devices of this build.

use dat_devices::{ByAddress, DeviceAddress, Listed, OpenErrorKind, is_built_in};

use super::transport::{is_usable, no_device};
use crate::failure::{Failure, FailureKind, Result};
use crate::limits;

/// The remedy for a build without RDMA devices.
pub(crate) const BUILD: &str = "on Linux with the headers of rdma-core (Debian: libibverbs-dev librdmacm-dev \
    libclang-dev pkg-config), build with `cargo run --release --features verbs`";

/// The mock, whose adapters other processes do not reach.
pub(crate) const MOCK: &str = "mock";

/// Evaluates an expression for the backend of a scheme, whose type gets a name; `None` if this
/// build has none.
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

/// Returns the scheme of a device that other processes reach: of its name, or of the first kind
/// with a usable one.
///
/// Without free descriptors, RDMA devices cannot be seen; their failure names the limit.
///
/// # Errors
/// - Usage: this build does not support the device.
pub(crate) fn scheme_of(name: Option<&str>) -> Result<&'static str> {
    let is_it = |listed: &Listed| match &listed.found {
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
