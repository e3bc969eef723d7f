//! Opening and listing devices.

#![cfg_attr(
    not(any(feature = "mock", feature = "roce", feature = "verbs")),
    expect(unused_variables, reason = "no backend uses them")
)]

use dat_core::attributes::IaAddress;
use dat_core::backend::HostBackend;

use crate::address::DeviceAddress;
use crate::error::OpenError;
use crate::list::SCHEMES;
use crate::options::Options;

/// A backend whose devices are opened by address.
pub trait ByAddress: HostBackend {
    /// The scheme of its addresses.
    const SCHEME: &'static str;

    /// Opens a device; an empty name stands for the usual one.
    ///
    /// # Errors
    /// Those of [`open`].
    fn open(device: &str, options: &Options) -> Result<Self, OpenError>;

    /// Returns the addresses of this host that a device has, with their scopes; opens nothing.
    ///
    /// # Errors
    /// `Malformed`, `NoSuchDevice`, `AddressNotThere`: as [`open`].
    fn addresses(device: &str) -> Result<Vec<IaAddress>, OpenError>;

    /// Lists the devices of this host.
    ///
    /// # Errors
    /// `Descriptors`, `Resources`: the host may have more devices than are found.
    fn devices() -> Result<Vec<Found>, OpenError>;

    /// Explains why the host has no device of a name; `None` if it may have one.
    fn missing(device: &str) -> Option<String>;
}

/// A device of this host.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name of the device among those of all backends, as in `dat.conf`.
    pub name: String,
    /// The address that opens it.
    pub address: DeviceAddress,
    /// Addresses of this host that it has, with their scopes.
    pub addresses: Vec<IaAddress>,
    /// True unless its port is down.
    pub is_active: bool,
    /// Description for people.
    pub description: String,
}

/// The devices of one backend, or the reason why none can be had.
#[derive(Debug)]
pub struct Listed {
    /// The scheme of the backend.
    pub scheme: &'static str,
    /// Its devices.
    pub found: Result<Vec<Found>, OpenError>,
}

/// A caller's use of a backend, generic over its type.
pub trait Visitor {
    /// The result.
    type Output;

    /// Takes an open device, and the driver of its backend.
    fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Self::Output;
}

/// Evaluates an expression for the type of the backend with a scheme; `None` if there is none.
macro_rules! by_scheme {
    ({ $scheme:expr, $backend:ident => $result:expr } $($name:ident = $type:ty,)*) => {
        match $scheme {
            $(<$type as ByAddress>::SCHEME => {
                type $backend = $type;
                Some($result)
            })*
            _ => None,
        }
    };
}

/// Opens a device, and calls `visitor` with its backend.
///
/// # Errors
/// - `Malformed`: the name of the device has another form than its backend's.
/// - `NotBuiltIn`: the scheme is unknown, or needs a feature.
/// - `NoSuchDevice`, `AddressNotThere`, `InUse`, `Permission`, `Resources`, `Descriptors`,
///   `System`: it cannot be opened.
pub fn open<V: Visitor>(
    address: &DeviceAddress,
    options: &Options,
    visitor: V,
) -> Result<V::Output, OpenError> {
    let (scheme, device) = (address.scheme(), address.device());
    let opened: Option<V::Output> = crate::backends! { [by_scheme] { scheme, B => {
        let backend = <B as ByAddress>::open(device, options)?;
        let driver = HostBackend::driver(&backend);
        visitor.visit(backend, driver)
    } } };
    opened.ok_or_else(|| OpenError::not_built_in(scheme, &SCHEMES))
}

/// Returns true if this build has the backend of a scheme.
pub fn is_built_in(scheme: &str) -> bool {
    crate::backends! { [by_scheme] { scheme, B => B::SCHEME } }.is_some()
}

/// Lists the devices of this host: RDMA devices, then those in software.
pub fn devices() -> Vec<Listed> {
    let listed = |scheme: &&'static str| {
        let found = crate::backends! { [by_scheme] { *scheme, B => <B as ByAddress>::devices() } };
        let missing = || Err(OpenError::not_built_in(scheme, &SCHEMES));
        Listed {
            scheme,
            found: found.unwrap_or_else(missing),
        }
    };
    SCHEMES.iter().rev().map(listed).collect()
}

/// Explains why the host has no device of a name; `None` if it may have one, and if no backend of
/// this build has the scheme.
pub fn missing(address: &DeviceAddress) -> Option<String> {
    let (scheme, device) = (address.scheme(), address.device());
    crate::backends! { [by_scheme] { scheme, B => <B as ByAddress>::missing(device) } }.flatten()
}
