//! Schemes of addresses: those of the registry, and those of backends from outside.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use dat_core::backend::{BackendError, HostBackend};
use dat_devices::{Cause, DeviceAddress, Network, OpenError, OpenErrorKind, SCHEMES, Visitor};
use dat_storage::Limits;

use super::adapter::open_backend;
use crate::error::{Error, Result};
use crate::flight::Guard;
#[cfg(feature = "rsm")]
use crate::rsm::{Node, Opening};

/// Schemes that a process can register.
const MOST: usize = 64;

/// A scheme that the program registered.
type Entry = (&'static str, Box<dyn Scheme>);

/// Registered schemes. A slot is filled once, so that a child of `fork` finds its parent's.
static REGISTERED: [OnceLock<Entry>; MOST] = [const { OnceLock::new() }; MOST];

/// A factory of any backend.
pub(crate) trait Scheme: Send + Sync {
    /// Opens an adapter on a device.
    fn adapter(&self, device: &str, limits: &Limits) -> Result<Arc<Guard>>;

    /// Opens a node on a device.
    #[cfg(feature = "rsm")]
    fn node(&self, device: &str, opening: Opening) -> Result<Node>;
}

struct Factory<B, F>(F, PhantomData<fn() -> B>);

impl<B, F> Scheme for Factory<B, F>
where
    B: HostBackend,
    F: Fn(&str) -> Result<B> + Send + Sync,
{
    fn adapter(&self, device: &str, limits: &Limits) -> Result<Arc<Guard>> {
        let backend = (self.0)(device)?;
        let driver = backend.driver();
        open_backend(limits, backend, driver, None)
    }

    #[cfg(feature = "rsm")]
    fn node(&self, device: &str, opening: Opening) -> Result<Node> {
        let backend = (self.0)(device)?;
        let driver = backend.driver();
        opening.open_backend(backend, driver)
    }
}

/// Lets addresses `SCHEME://DEVICE` open a backend from outside of this crate.
///
/// `factory` opens a device by its name. Peers are `HOST:PORT`, or an address and a qualifier.
/// A registered scheme stays as long as the process, and its children of `fork` have it, too.
///
/// # Errors
/// [`Malformed`](Error::Malformed): the scheme is one of this crate, or is registered; or 64 are.
pub fn register<B, F>(scheme: &'static str, factory: F) -> Result<()>
where
    B: HostBackend,
    F: Fn(&str) -> Result<B> + Send + Sync + 'static,
{
    if SCHEMES.contains(&scheme) {
        return Err(Error::Malformed("a scheme that this crate does not have"));
    }
    let mut entry: Entry = (scheme, Box::new(Factory(factory, PhantomData)));
    for slot in &REGISTERED {
        match slot.set(entry) {
            Ok(()) => return Ok(()),
            Err(_) if slot.get().is_some_and(|(known, _)| *known == scheme) => break,
            Err(refused) => entry = refused,
        }
    }
    Err(Error::Malformed("a scheme that is not registered yet"))
}

/// Returns the factory of a scheme that the program registered.
pub(crate) fn registered(scheme: &str) -> Option<&'static dyn Scheme> {
    let mut entries = REGISTERED.iter().map_while(OnceLock::get);
    let (_, factory) = entries.find(|(known, _)| *known == scheme)?;
    Some(&**factory)
}

/// Parses the address of a device.
///
/// # Errors
/// [`Error::Malformed`]: it has another form.
pub(crate) fn parse(address: &str) -> Result<DeviceAddress> {
    DeviceAddress::parse(address).map_err(|error| failed("", error))
}

/// Opens a device of the registry; `visit` gets the network that names its peers, if one does.
///
/// # Errors
/// Those of [`Options::open`](crate::Options::open) before the adapter; and those of the visitor.
pub(crate) fn open<V, R>(
    address: &DeviceAddress,
    network: Option<Network>,
    visit: impl FnOnce(Option<Network>) -> V,
) -> Result<R>
where
    V: Visitor<Output = Result<R>>,
{
    let is_named = address.scheme() == "mock";
    let network = is_named.then(|| network.unwrap_or_else(Network::of_process));
    let mut options = dat_devices::Options::new();
    options.network.clone_from(&network);
    dat_devices::open(address, &options, visit(network))
        .map_err(|error| failed(address.device(), error))?
}

fn failed(device: &str, error: OpenError) -> Error {
    let device = |cause| Error::Device {
        name: device.to_owned(),
        cause,
    };
    match error.into_parts() {
        (OpenErrorKind::Malformed(form), _) => Error::Malformed(form),
        (OpenErrorKind::NotBuiltIn { scheme, feature }, _) => Error::NotBuiltIn { scheme, feature },
        (_, Cause::System(error)) => Error::System(error),
        (_, Cause::Backend(cause)) => device(cause),
        _ => device(BackendError::Device),
    }
}
