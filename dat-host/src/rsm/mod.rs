//! Remote shared memory (RSM) with owned memory, futures and blocking calls.
//!
//! A [`Node`] exports memory as a segment, and imports segments of other nodes. Puts and gets move
//! single ranges or vectors of them; barriers order and complete them; signals wake the other side.
//! Vectors of a [`LocalMemory`], which is registered once, register and copy nothing.
//! Each call is a future and has a blocking `wait`. It owns its memory until it ends.
//!
//! ```
//! use dat_host::Pages;
//! use dat_host::rsm::{AccessEntry, Node, Permission};
//!
//! # fn main() -> dat_host::Result<()> {
//! // The numbers of the nodes are agreed on, as are their peers.
//! let far = Node::new(2).listen(7174).peer(1, "near:0").open("mock://far")?;
//! let near = Node::new(1).peer(2, "far:7174");
//! # let near = near.connect_timeout(std::time::Duration::from_secs(60));
//! let near = near.open("mock://near")?;
//!
//! let export = far.export(Pages::anonymous(4096)?)?;
//! let access = [AccessEntry { node: 1, permission: 0o666 }];
//! let id = export.publish(0, &access)?;
//!
//! let import = near.import(2, id, Permission::all()).wait()?;
//! import.put(100, b"hello".to_vec()).wait()?;
//! import.signal().wait()?;
//! export.signaled().wait()?;
//!
//! let mut bytes = [0; 5];
//! export.load(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! let pages = export.destroy().wait()?;
//! assert_eq!(&pages[100..105], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! The example `shared_memory_processes` has the two nodes in two processes.
//!
//! # The end
//! An exporter that ends destroys its segment, which tells the importers, and then
//! [closes](Node::close) its node. An importer disconnects and closes. A process that ends without
//! is noticed when a peer next uses the connection, or by a [probe](Opening::probe_interval).
//!
//! # Threads
//! A node has a thread that answers its peers. Calls that are awaited have threads of the node,
//! one for each call that is under way; `wait` uses the current one. A node that
//! [polls](Opening::poll) has no thread of its own, for programs with one thread.

mod call;
mod engine;
mod entry;
mod export;
mod held;
mod import;
mod local;

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use dat_core::backend::{Backend, Count, HostBackend, HostDriver};
use dat_core::flags::{EvdFlags, IaFields, ProviderFields, PspFlags};
use dat_core::sync::HostLock;
use dat_core::{Ia, attributes::IaAddress};
use dat_devices::{Network, Visitor};
use dat_rsm::{ControllerConfig, ControllerId, NodeEntry, Options, Rsm};
use dat_storage::{Limits, Reservation, forks};

pub use self::call::{Call, Running};
pub use self::entry::{FailedVector, Get, GetMemory, Moved, Put, PutMemory};
pub use self::export::Export;
pub use self::import::{Barrier, Import};
pub use self::local::{LocalMemory, LocalSlice};
pub use dat_rsm::{
    AccessEntry, AccessFault, BarrierMode, BarrierScope, Credentials, NodeId, Permission, RsmError,
    SegmentId, Unreached, VectorError, VectorFlags,
};

use self::call::{Job, Pool};
use self::engine::{Engine, Hook, Inherited, Interrupt, Owned, Sleep, Sleepers};
use crate::connection::Peer;
use crate::error::{Error, Failed, Result};
use crate::lock::lock;
use crate::memory::Stable;
use crate::open::{ASYNC_EVENTS, schemes};
use crate::wake::DriverWakers;

/// Name of the controller of each node.
const CONTROLLER: &str = "dat0";

/// Options for opening a [`Node`]; made by [`Node::new`].
#[derive(Clone)]
#[must_use = "nothing happens until it is opened"]
pub struct Opening {
    options: Options,
    limits: Limits,
    network: Option<Network>,
    qualifier: u64,
    peers: Vec<(NodeId, Peer)>,
    idle: Option<Hook<()>>,
    interrupts: Option<Hook<bool>>,
}

impl Opening {
    /// Listens on a connection qualifier, to export segments.
    pub const fn listen(mut self, qualifier: u64) -> Self {
        self.qualifier = qualifier;
        self
    }

    /// Adds a node to the ones that this node knows: `HOST:PORT`, or address and qualifier.
    ///
    /// Exporter and importer must know each other. The qualifier of a node that only imports is 0.
    /// Of a name with several addresses, the first one of the adapter's family is taken.
    pub fn peer(mut self, node: NodeId, peer: impl Into<Peer>) -> Self {
        self.peers.push((node, peer.into()));
        self
    }

    /// Sets user and group of this process, which access lists distinguish; both are 0 without.
    pub const fn credentials(mut self, credentials: Credentials) -> Self {
        self.options.credentials = credentials;
        self
    }

    /// Sets the sizes that the tables of the adapter start with; they grow.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Limits the time for which a new import is tried again where nothing listens, instead of the
    /// whole time until a node answers.
    ///
    /// An exporter that starts within that time, or has room for another request again, is found.
    pub fn listener_timeout(mut self, timeout: Duration) -> Self {
        self.options.listener_timeout = u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX);
        self
    }

    /// Probes the peers on idle connections once in `interval`, to notice one that is gone.
    ///
    /// From 1 microsecond to 71 minutes; without, an idle connection sends nothing.
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.options.probe_interval = u32::try_from(interval.as_micros()).unwrap_or(u32::MAX);
        self
    }

    /// Limits the time until a node answers, instead of 2 seconds; for slow hosts and networks.
    ///
    /// Whatever a node owes has this age limit: a connection, an answer, the end of a transfer. So
    /// it must be longer than the transport needs to replace a lost packet.
    ///
    /// From 1 microsecond to 71 minutes. Importers may come back for twice that time after their
    /// connection broke.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX);
        self
    }

    /// Lets the calls of the node poll instead of sleeping; `idle` runs after each look that finds
    /// nothing, and may yield the processor; it must not make calls of the node.
    ///
    /// The node then has no thread of its own: it answers its peers during its calls only.
    pub fn poll(mut self, idle: impl Fn() + Send + Sync + 'static) -> Self {
        self.idle = Some(Arc::new(idle));
        self.options.polled = true;
        self
    }

    /// Lets the program end the calls that wait: with INTERRUPTED, once `ends` returns true.
    ///
    /// A call that sleeps asks five times a second. Calls that free an object go on, so that
    /// nothing is left behind. `ends` must not make calls of the node. For programs that a signal
    /// may end; the crate catches none.
    pub fn interrupt(mut self, ends: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.interrupts = Some(Arc::new(ends));
        self
    }

    /// Opens `mock://` addresses in a network other than the process's own.
    pub fn network(mut self, network: &Network) -> Self {
        self.network = Some(network.clone());
        self
    }

    /// Opens the node on the adapter of an address, as [`Adapter::open`](crate::Adapter::open).
    ///
    /// # Errors
    /// - Those of [`Options::open`](crate::Options::open).
    /// - [`Malformed`](Error::Malformed), [`System`](Error::System): a peer is not `HOST:PORT`, or
    ///   its name cannot be resolved.
    /// - [`DuplicateNode`](Error::DuplicateNode): two peers have the same number, or one has that
    ///   of this node.
    /// - [`Refused`](Error::Refused) CONN_QUAL_IN_USE: another service listens on the qualifier.
    /// - [`NotLocal`](Error::NotLocal): peers of this host would not find it, and the adapter takes
    ///   no others (`path=local`).
    /// - [`SharedMemory`](Error::SharedMemory): the engine cannot open its controller.
    pub fn open(mut self, address: &str) -> Result<Node> {
        let address = schemes::parse(address)?;
        match schemes::registered(address.scheme()) {
            Some(scheme) => scheme.node(address.device(), self),
            None => {
                let network = self.network.take();
                schemes::open(&address, network, |network| Opens(self, network))
            }
        }
    }

    /// Opens the node on a backend, as
    /// [`Options::open_backend`](crate::Options::open_backend).
    ///
    /// # Errors
    /// Those of [`open`](Self::open) after the backend.
    pub fn open_backend<B: HostBackend>(self, backend: B, driver: impl HostDriver) -> Result<Node> {
        self.open_on(backend, driver, None)
    }

    fn open_on<B: HostBackend>(
        self,
        backend: B,
        driver: impl HostDriver,
        network: Option<&Network>,
    ) -> Result<Node> {
        let names = network.map(|network| |name: &str| network.address(name));
        let names = names
            .as_ref()
            .map(|names| names as &dyn Fn(&str) -> IaAddress);
        let entry = |node, address, qualifier| NodeEntry {
            node,
            controller: CONTROLLER,
            address,
            qualifier,
        };
        let mut peers: Vec<(NodeId, Vec<(IaAddress, u64)>)> = Vec::new();
        for (node, peer) in &self.peers {
            if *node == self.options.node || peers.iter().any(|(known, _)| known == node) {
                return Err(Error::DuplicateNode(*node));
            }
            peers.push((*node, peer.resolve(names)?));
        }
        let wakers = DriverWakers::new();
        let reports_events = self.idle.is_none() && driver.wake_on_events(wakers.waker());
        let reservation = Reservation::new(&self.limits)?;
        #[expect(unsafe_code)]
        // SAFETY: only the adapter gets the storage. It is dropped before the reservation: by a
        // return from this function, since it is made later, or as the first field of `Owned`. Its
        // methods lend nothing that lives longer than a reference to it.
        let storage = unsafe { reservation.lend_unbounded() };
        let ia = Ia::<B, HostLock>::open(backend, storage, ASYNC_EVENTS)
            .map_err(|refused| refused.error)?;
        if self.qualifier != 0 {
            check_free(&ia, self.qualifier)
                .map_err(|error| driver.not_local().map_or(error.into(), Error::NotLocal))?;
        }
        let param = ia.ia_query(IaFields::empty(), ProviderFields::empty())?;
        let own = param.ia.ia_address;
        // A node has one address: the first one of the adapter's family.
        let of_family = |(address, _): &&(IaAddress, u64)| {
            std::mem::discriminant(address) == std::mem::discriminant(&own)
        };
        let mut nodes: Vec<NodeEntry> = Vec::new();
        for (node, addresses) in peers {
            let usable = addresses.iter().find(of_family).or(addresses.first());
            nodes.extend(usable.map(|(address, qualifier)| entry(node, *address, *qualifier)));
        }
        nodes.push(entry(self.options.node, own, self.qualifier));
        let config = ControllerConfig {
            name: CONTROLLER,
            ia,
            qualifier: self.qualifier,
            nodes,
        };
        forks::prepare().map_err(Error::System)?;
        let rsm = Rsm::new(self.options, vec![config])?;
        let controller = rsm.get_controller(Some(CONTROLLER))?;
        let site = Arc::new(Site {
            non_coherent: param.provider.lmr_sync_req,
            own_engine: Box::new(Owned {
                rsm,
                _reservation: reservation,
            }),
            controller,
            page: self.options.page_size,
            peers: self.peers,
            sleepers: Arc::new(Sleepers {
                device: Box::new(driver),
                wakers,
                reports_events,
                idle: self.idle,
                interrupts: self.interrupts,
                process: forks::generation(),
            }),
            pool: Arc::default(),
            kept: Mutex::default(),
            service: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        if site.sleepers.idle.is_none() {
            let served = Arc::clone(&site);
            let service = thread::Builder::new()
                .name("dat-host rsm".into())
                .spawn(move || serve(&served))
                .map_err(Error::System)?;
            *lock(&site.service) = Some(service);
        }
        Ok(Node(Arc::new(Guard(site))))
    }
}

/// Opens a node on the backend of a device.
struct Opens(Opening, Option<Network>);

impl Visitor for Opens {
    type Output = Result<Node>;

    fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Result<Node> {
        self.0.open_on(backend, driver, self.1.as_ref())
    }
}

/// Checks that no other service listens on a qualifier, for which the engine has no error.
fn check_free<B: Backend>(ia: &Ia<'_, B, HostLock>, qualifier: u64) -> dat_core::Result<()> {
    let arrivals = ia.evd_create(1, None, EvdFlags::CR)?;
    let listens = ia.psp_create(qualifier, arrivals, PspFlags::Consumer);
    if let Ok(psp) = listens {
        ia.psp_free(psp)?;
    }
    ia.evd_free(arrivals)?;
    listens.map(drop)
}

/// Answers peers until the controller is released, which the end of the node does.
fn serve(site: &Site) {
    let mut sleep = Sleep::new(&site.sleepers, Interrupt::Never);
    while site.engine().serve(site.controller, &mut sleep).is_err() {}
}

/// A node of remote shared memory: an engine on an adapter of its own.
///
/// Clones are the same node. It closes when the last node, export, import, barrier and local memory
/// is dropped; calls that are under way then end with an error.
#[derive(Clone)]
pub struct Node(Arc<Guard>);

/// Keeps a node open.
pub(super) struct Guard(Arc<Site>);

impl Drop for Guard {
    /// Closes the node on a thread of its own, since that waits for the peers.
    fn drop(&mut self) {
        let site = Arc::clone(&self.0);
        if site.sleepers.is_inherited() {
            // A child of `fork` leaves the device to its parent.
            mem::forget(site);
            return;
        }
        if site.is_closed.load(Ordering::Acquire) {
            return;
        }
        // Without a thread the node stays open until the process ends.
        self.0.submit(Box::new(move || {
            // Fails only if it is closed already.
            let _ = site.close();
        }));
    }
}

/// The engine of a node, which its threads and calls share.
pub(super) struct Site {
    /// Dropped first: a dropped engine touches no memory.
    own_engine: Box<dyn Engine>,
    controller: ControllerId,
    /// True if the device looks past the caches.
    non_coherent: bool,
    /// The page size in bytes.
    page: u64,
    /// The other nodes, as the program gave them.
    peers: Vec<(NodeId, Peer)>,
    sleepers: Arc<Sleepers>,
    pool: Arc<Pool>,
    /// Memory of segments and local memory that could not be freed.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    /// The thread that answers the peers.
    service: Mutex<Option<JoinHandle<()>>>,
    is_closed: AtomicBool,
}

impl Site {
    /// Returns the engine, or in a child of `fork` one that refuses all calls.
    fn engine(&self) -> &dyn Engine {
        match self.sleepers.is_inherited() {
            true => &Inherited,
            false => &*self.own_engine,
        }
    }

    /// Makes a call on a thread of the node; drops it if there is none.
    ///
    /// In a child of `fork`, where the call is refused at once, on the current thread.
    fn submit(&self, job: Job) {
        if self.sleepers.is_inherited() {
            job();
        } else {
            let _ = self.pool.submit(job);
        }
    }

    /// Releases the controller: frees all objects, and tells the peers.
    ///
    /// If this call closed the node, its thread has ended: with the last reference to the node, the
    /// adapter and its ports are free.
    fn close(&self) -> Result<(), RsmError> {
        let mut sleep = Sleep::new(&self.sleepers, Interrupt::Never);
        self.engine()
            .release_controller(self.controller, &mut sleep)?;
        self.is_closed.store(true, Ordering::Release);
        let service = lock(&self.service).take();
        if let Some(service) = service {
            // Fails if it panicked, which it has reported.
            let _ = service.join();
        }
        Ok(())
    }

    /// Returns the error of a call to a node, with the reason if the node was not reached.
    fn error_of(&self, node: NodeId, error: RsmError) -> Error {
        if error != RsmError::RemoteNodeUnreachable {
            return error.into();
        }
        if let Some(reason) = self.sleepers.device.not_local() {
            return Error::NotLocal(reason);
        }
        let reason = self.engine().unreached(self.controller, node);
        let peer = self.peers.iter().find(|(known, _)| *known == node);
        Error::NodeUnreachable {
            node,
            peer: peer.map(|(_, peer)| peer.clone()),
            // The engine has no reason any more if the node was closed meanwhile.
            reason: reason.unwrap_or(Unreached::Failed),
        }
    }

    /// Returns the error of a call with memory, with the first of its `parameters` that is not
    /// aligned if that is the reason.
    fn error_of_memory(&self, error: RsmError, parameters: &[(&'static str, u64)]) -> Error {
        let unaligned = parameters
            .iter()
            .find(|(_, value)| !value.is_multiple_of(self.page));
        match (error, unaligned) {
            (RsmError::BadMemoryAlignment, Some(&(parameter, value))) => Error::Unaligned {
                parameter,
                value,
                multiple: self.page,
            },
            _ => error.into(),
        }
    }

    /// Keeps memory until the engine is gone.
    fn keep(&self, memory: Box<dyn Any + Send>) {
        if self.sleepers.is_inherited() {
            mem::forget(memory);
            return;
        }
        lock(&self.kept).push(memory);
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("options", &self.options)
            .field("qualifier", &self.qualifier)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Begins a node with this number, which its peers know.
    #[expect(clippy::new_ret_no_self, reason = "an address completes it")]
    pub fn new(node: NodeId) -> Opening {
        let begin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let begin = begin.map_or(0, |time| time.as_nanos() as u64);
        let incarnation = begin ^ u64::from(std::process::id()).rotate_left(32);
        Opening {
            options: Options::new(node, incarnation),
            limits: Limits::default(),
            network: None,
            qualifier: 0,
            peers: Vec::new(),
            idle: None,
            interrupts: None,
        }
    }

    /// Makes a segment of the memory of `value`; [`publish`](Export::publish) lets peers connect.
    ///
    /// Address and length must be multiples of 4096 bytes, as those of [`Pages`](crate::Pages) are.
    ///
    /// # Errors
    /// Returns the value, with [`Unaligned`](Error::Unaligned): address or length is no multiple of
    /// 4096; or [`SharedMemory`](Error::SharedMemory)
    /// - BAD_LENGTH: the memory is empty, or too long for the device.
    /// - INSUFFICIENT_RESOURCES: tables or the device are exhausted.
    pub fn export<M: Stable>(&self, value: M) -> Result<Export<M>, Failed<M>> {
        Export::new(&self.0, value)
    }

    /// Registers the memory of `value` for entries of vectors.
    ///
    /// Its address and its length are arbitrary.
    ///
    /// # Errors
    /// Returns the value, with [`SharedMemory`](Error::SharedMemory)
    /// - BAD_LENGTH: the memory is empty, or too long for the device.
    /// - INSUFFICIENT_RESOURCES: tables or the device are exhausted.
    pub fn local_memory<M: Stable>(&self, value: M) -> Result<LocalMemory<M>, Failed<M>> {
        LocalMemory::new(&self.0, value)
    }

    /// Returns the counts that the device has, each since the node was opened.
    pub fn counts(&self) -> Vec<(Count, u64)> {
        let sleepers = &self.0.0.sleepers;
        match sleepers.is_inherited() {
            true => Vec::new(),
            false => sleepers.device.counts(),
        }
    }

    /// Closes the node, and waits until its peers know.
    ///
    /// Dropping the node does not wait, so a process that ends then may leave its peers waiting.
    /// Segments and connections of the node end; calls that are under way get an error. The address
    /// and the qualifier are free for another node once the objects of this one are dropped, too.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory) BAD_CTLR_HNDL: it is closed already.
    pub fn close(self) -> Call<Result<()>> {
        let site = Arc::clone(&self.0.0);
        Call::freeing(&site, move |site, _| {
            let closed = site.close();
            // Not before, since the end of the last node closes it, too.
            drop(self);
            Ok(closed?)
        })
    }

    /// Connects to a segment of a node, with the rights that its exporter must have granted.
    ///
    /// # Errors
    /// [`NodeUnreachable`](Error::NodeUnreachable), with the reason: the node is unknown, does not
    /// listen, does not know this node, or does not answer. [`SharedMemory`](Error::SharedMemory)
    /// - SEG_NOT_PUBLISHED, SEG_NOT_PUBLISHED_TO_NODE, PERM_DENIED: the exporter refuses.
    /// - CONN_ABORTED: the node was closed during the call.
    /// - INSUFFICIENT_RESOURCES: tables are exhausted, here or at the exporter.
    pub fn import(
        &self,
        node: NodeId,
        segment: SegmentId,
        permission: Permission,
    ) -> Call<Result<Import>> {
        Import::connect(&self.0, node, segment, permission)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}
