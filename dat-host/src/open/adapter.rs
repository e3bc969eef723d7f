//! Opening an adapter.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use dat_core::attributes::IaAddress;
use dat_core::backend::{Backend, Count, HostBackend, HostDriver};
use dat_core::id::Handle;
use dat_core::sync::HostLock;
use dat_core::{Ia, IaParam};
use dat_devices::{Network, Visitor};
use dat_storage::{Limits, OwnedIa, forks};

use super::schemes;
use crate::connection::Zone;
#[cfg(feature = "fd")]
use crate::drive::DescriptorDriver;
use crate::drive::{self, Driver};
use crate::error::{Error, Result};
use crate::flight::{AdapterState, Guard, Interface};

/// Length of the queue of asynchronous events.
pub(crate) const ASYNC_EVENTS: i32 = 64;

/// An open adapter (IA). Clones are the same adapter.
///
/// It stays open until the last of these is dropped: adapters, zones, endpoints, listeners, shared
/// receive queues, requests, connection attempts, accepts. Then connections end, and operations end
/// with [`Error::Closed`]. Regions, windows, messages and other futures do
/// not keep it open. All of them may be dropped in any order, on any thread.
///
/// ```
/// use dat_host::Adapter;
///
/// # fn main() -> dat_host::Result<()> {
/// let adapter = Adapter::open("mock://a")?;
/// let zone = adapter.zone()?;
/// assert!(Adapter::open("nonsense://a").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Adapter(Arc<Guard>);

impl Adapter {
    /// Opens the adapter of an address, `SCHEME://DEVICE`, driven by a thread of its own.
    ///
    /// - `mock://NAME`: an adapter in the process's own [`Network`].
    /// - `roce://IP`, with the feature `roce`: RoCEv2 in software at an address of this host.
    /// - `verbs://NAME`, with the feature `verbs`: a port of an RDMA device, by its own name, by
    ///   that of its network interface, or by an IP address.
    /// - Schemes that the program [registered](crate::register).
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(address: &str) -> Result<Self> {
        Options::new().open(address)
    }

    /// Opens an adapter on a backend, driven by a thread of its own.
    ///
    /// [`register`](crate::register) lets addresses open it.
    ///
    /// # Errors
    /// Those of [`Options::open_backend`].
    pub fn from_backend<B: HostBackend>(backend: B) -> Result<Self> {
        let driver = backend.driver();
        Options::new().open_backend(backend, driver)
    }

    /// Creates a protection zone.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INSUFFICIENT_RESOURCES: the limits or the device are
    /// exhausted; INVALID_HANDLE: the adapter is closed.
    pub fn zone(&self) -> Result<Zone> {
        Zone::new(&self.0)
    }

    pub(crate) fn state(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }

    fn interface(&self) -> &dyn Interface {
        self.state().interface()
    }

    /// Returns the address at which peers reach the adapter.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INVALID_HANDLE: the adapter is closed.
    pub fn address(&self) -> Result<IaAddress> {
        self.0.adapter().address()
    }

    /// Returns the attributes of the adapter and of its provider.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INVALID_HANDLE: the adapter is closed.
    pub fn query(&self) -> Result<IaParam> {
        Ok(self.interface().query()?)
    }

    /// Returns the handle of the adapter in the core.
    pub fn id(&self) -> Handle {
        self.interface().handle()
    }

    /// Returns the number of operations that are in flight, or whose end nobody has taken.
    ///
    /// Buffers of shared receive queues count while they are posted. In a child of `fork` there are
    /// none.
    pub fn in_flight(&self) -> usize {
        let state = self.0.adapter();
        match state.is_inherited() {
            true => 0,
            false => state.table().len(),
        }
    }

    /// Returns the counts that the device has, each since the adapter was opened.
    pub fn counts(&self) -> Vec<(Count, u64)> {
        let state = self.state();
        match state.is_inherited() {
            true => Vec::new(),
            false => state.device().counts(),
        }
    }

    /// Returns the error of a send that the system refused since the last call, if any.
    ///
    /// A transport that repeats what is not sent shows such a refusal only as a silent peer.
    pub fn refused_send(&self) -> Option<std::io::Error> {
        match self.state().is_inherited() {
            true => None,
            false => self.state().device().refused_send(),
        }
    }

    /// Closes the adapter at once, although objects of it are left.
    ///
    /// Later calls fail with INVALID_HANDLE or [`Error::Closed`].
    pub fn close(&self) {
        self.0.adapter().close();
    }

    /// Returns the core's adapter, if its backend is a `B`, for calls that this crate lacks.
    ///
    /// # Safety
    /// The core would post any region that is named, and give any event to the first caller. On
    /// objects that this crate made, make only calls that query. In particular, name no region or
    /// buffer of it in a post, a bind or another registration, and take no events of its
    /// dispatchers.
    ///
    /// Two exceptions let a program post and take completions without the cost of futures:
    /// - Post requests at an endpoint that was made with [`Events`](crate::Events), and receives if
    ///   it has the events of these, too. Cookies are below 2^32: they name no operation of this
    ///   crate. Segments are of a [`ZoneWindow`](crate::ZoneWindow), or of a region that this crate
    ///   did not make.
    /// - Take events of [`Events::id`](crate::Events::id). An operation of this crate whose event
    ///   is taken so ends with its endpoint.
    #[expect(unsafe_code)]
    // UNSAFETY: regions of this crate lend slices, which the core's safe posts do not know of.
    pub unsafe fn ia<B: Backend + 'static>(&self) -> Option<&Ia<'static, B, HostLock>> {
        let interface: &dyn Any = self.interface();
        interface
            .downcast_ref::<OwnedIa<B, HostLock>>()
            .map(|ia| &**ia)
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("id", &self.id()).finish()
    }
}

/// Options for opening an adapter.
///
/// ```
/// use dat_host::{Limits, Options};
///
/// # fn main() -> dat_host::Result<()> {
/// let limits = Limits { endpoints: 1000, ..Limits::default() };
/// let (adapter, driver) = Options::new().limits(limits).open_driven("mock://a")?;
/// // Spawn `driver` on an executor. Blocking waits need nobody.
/// # let _ = (adapter, driver);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    limits: Limits,
    network: Option<Network>,
}

impl Options {
    /// Returns default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the sizes that the tables of the adapter start with; they grow.
    ///
    /// No object of a kind whose limit is 0 can be made. The adapter itself needs three
    /// dispatchers, a notification object and 128 events.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens `mock://` addresses in a network other than the process's own.
    #[must_use]
    pub fn network(mut self, network: &Network) -> Self {
        self.network = Some(network.clone());
        self
    }

    /// Opens the adapter of an address, driven by a thread of its own.
    ///
    /// # Errors
    /// - [`Malformed`](crate::Error::Malformed): the address is not `SCHEME://DEVICE`, or the
    ///   device of a `roce://` has another form than an address.
    /// - [`NotBuiltIn`](crate::Error::NotBuiltIn): the scheme is unknown, or needs a feature.
    /// - [`Device`](crate::Error::Device): there is no such device, or it cannot be opened.
    /// - [`Refused`](crate::Error::Refused) INSUFFICIENT_RESOURCES: there is no address space for
    ///   the limits, or a limit is too low for the adapter itself.
    /// - [`System`](crate::Error::System): the thread cannot be started, the host has no such
    ///   address or interface, or the UDP port is taken.
    pub fn open(self, address: &str) -> Result<Adapter> {
        let guard = self.open_undriven(address)?;
        drive::spawn(guard.adapter())?;
        Ok(Adapter(guard))
    }

    /// Opens the adapter of an address, driven by a future.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_driven(self, address: &str) -> Result<(Adapter, Driver)> {
        let guard = self.open_undriven(address)?;
        let driver = Driver::new(guard.adapter());
        Ok((Adapter(guard), driver))
    }

    /// Opens the adapter of an address, driven by a file descriptor.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`System`](crate::Error::System): no descriptor is left.
    #[cfg(feature = "fd")]
    pub fn open_descriptor(self, address: &str) -> Result<(Adapter, DescriptorDriver)> {
        let guard = self.open_undriven(address)?;
        let driver = DescriptorDriver::new(guard.adapter())?;
        Ok((Adapter(guard), driver))
    }

    /// Opens the adapter of an address, driven by a task of the current tokio runtime.
    ///
    /// The adapter has no thread of its own. The task ends when the adapter is closed; the end of
    /// the runtime closes the adapter. Blocking waits drive the adapter, too.
    ///
    /// ```
    /// use dat_host::{Options, Result};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<()> {
    ///     let zone = Options::new().open_tokio("mock://task")?.zone()?;
    ///     let listener = zone.listen(7174)?;
    ///     let (client, request) = tokio::join!(
    ///         async { zone.connect("task:7174").await },
    ///         async { listener.next().await?.accept().await },
    ///     );
    ///     # (client?, request?);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`open_descriptor`](Self::open_descriptor), and
    /// [`System`](crate::Error::System): the caller is not in a tokio runtime.
    ///
    /// # Panics
    /// In its task, if the runtime has no I/O (`enable_io`); the adapter is then closed.
    #[cfg(feature = "tokio")]
    pub fn open_tokio(self, address: &str) -> Result<Adapter> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|outside| Error::System(std::io::Error::other(outside)))?;
        let (adapter, driver) = self.open_descriptor(address)?;
        runtime.spawn(driver.run_tokio());
        Ok(adapter)
    }

    /// Opens an adapter on any backend, driven by a thread of its own.
    ///
    /// `driver` is [`HostBackend::driver`], or [`Polled`](crate::Polled) for a backend that reports
    /// no events.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INSUFFICIENT_RESOURCES, [`System`](crate::Error::System):
    /// as [`open`](Self::open).
    pub fn open_backend<B: Backend + 'static>(
        self,
        backend: B,
        driver: impl HostDriver,
    ) -> Result<Adapter>
    where
        OwnedIa<B, HostLock>: Send + Sync,
    {
        let guard = open_backend(&self.limits, backend, driver, None)?;
        drive::spawn(guard.adapter())?;
        Ok(Adapter(guard))
    }

    /// Opens an adapter on any backend, driven by a future.
    ///
    /// # Errors
    /// Those of [`open_backend`](Self::open_backend).
    pub fn open_backend_driven<B: Backend + 'static>(
        self,
        backend: B,
        driver: impl HostDriver,
    ) -> Result<(Adapter, Driver)>
    where
        OwnedIa<B, HostLock>: Send + Sync,
    {
        let guard = open_backend(&self.limits, backend, driver, None)?;
        let driver = Driver::new(guard.adapter());
        Ok((Adapter(guard), driver))
    }

    /// Opens an adapter on any backend, driven by a file descriptor.
    ///
    /// # Errors
    /// Those of [`open_backend`](Self::open_backend), and [`System`](crate::Error::System): no
    /// descriptor is left.
    #[cfg(feature = "fd")]
    pub fn open_backend_descriptor<B: Backend + 'static>(
        self,
        backend: B,
        driver: impl HostDriver,
    ) -> Result<(Adapter, DescriptorDriver)>
    where
        OwnedIa<B, HostLock>: Send + Sync,
    {
        let guard = open_backend(&self.limits, backend, driver, None)?;
        let driver = DescriptorDriver::new(guard.adapter())?;
        Ok((Adapter(guard), driver))
    }

    fn open_undriven(self, address: &str) -> Result<Arc<Guard>> {
        let address = schemes::parse(address)?;
        let limits = &self.limits;
        match schemes::registered(address.scheme()) {
            Some(scheme) => scheme.adapter(address.device(), limits),
            None => schemes::open(&address, self.network, |network| Opens { limits, network }),
        }
    }
}

/// Opens an adapter without a driver on the backend of a device.
struct Opens<'l> {
    limits: &'l Limits,
    network: Option<Network>,
}

impl Visitor for Opens<'_> {
    type Output = Result<Arc<Guard>>;

    fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Self::Output {
        open_backend(self.limits, backend, driver, self.network)
    }
}

/// Opens an adapter without a driver.
pub(crate) fn open_backend<B: Backend + 'static>(
    limits: &Limits,
    backend: B,
    driver: impl HostDriver,
    network: Option<Network>,
) -> Result<Arc<Guard>>
where
    OwnedIa<B, HostLock>: Send + Sync,
{
    forks::prepare().map_err(Error::System)?;
    let ia = OwnedIa::<B, HostLock>::open(backend, limits, ASYNC_EVENTS)
        .map_err(|refused| refused.error)?;
    let state = AdapterState::new(Box::new(ia), Box::new(driver), network)?;
    Ok(Guard::new(state))
}
