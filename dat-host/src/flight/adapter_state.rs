//! The shared state of an open adapter: its operations, endpoints and driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_core::backend::SyncDirection;
use dat_core::event::{ThreadWait, Wait};
use dat_core::flags::{DtoStatus, EvdFlags};
use dat_core::id::{CnoId, EpId, EvdId, SrqId};
use dat_core::memory::LmrTriplet;
use dat_core::sync::Turns;
use dat_core::time::Instant;
use dat_devices::Network;
use dat_storage::forks;

use super::dispatch::Scope;
use super::interface::{Inherited, Interface};
use super::lent::Lent;
use super::objects::{BufferQueue, EndpointEvents, Offers};
use super::table::{Effects, Key, Outcome, Owner, Table};
use super::trace::Span;
use crate::error::Result;
use crate::lock::lock;
use crate::wake::{Armed, Device, DriverWakers, Notice};

/// Events of an endpoint that may be queued at a time.
const EVENTS_OF_ENDPOINT: usize = 4;
/// Connection events that the dispatcher holds at first.
const CONNECTION_EVENTS: usize = 64;

/// An open adapter.
///
/// Objects that act (adapter, zone, endpoint, listener, shared receive queue) hold a [`Guard`]; the
/// last one closes the adapter. Memory and futures only keep this structure.
pub(crate) struct AdapterState {
    /// Generation of the process that opened the adapter.
    process: usize,
    /// Only for [`interface`](Self::interface), which tells children of `fork` apart.
    interface: Box<dyn Interface>,
    pub(super) device: Box<dyn Device>,
    acts_after_posts: bool,
    /// True if the device looks past the caches: exposed memory is synchronised.
    non_coherent: bool,
    /// Set if the device asked to act at a time.
    pub(super) is_timed: AtomicBool,
    pub(super) drivers: DriverWakers,
    pub(super) drivers_waker: Waker,
    pub(super) notice: Arc<Notice>,
    /// True if events of the device wake the drivers, as `notice` lets them from the first use on.
    pub(super) reports_events: OnceLock<bool>,
    /// Names of peers in this process.
    pub(crate) network: Option<Network>,
    pub(super) table: Table,
    /// Notification object that arms completion queues, and that nobody waits on.
    pub(crate) arming: CnoId,
    /// Dispatcher of completions of transfers and binds.
    pub(crate) completions: EvdId,
    /// Dispatcher of connection events.
    pub(crate) connections: EvdId,
    /// Number of endpoints that `connections` has room for, and that exist.
    room: Mutex<(usize, usize)>,
    /// Live endpoints by index.
    pub(super) endpoints: Mutex<Vec<Option<Arc<dyn EndpointEvents>>>>,
    /// Endpoints to free at the end of a dispatch.
    dropped: Mutex<Vec<Arc<dyn EndpointEvents>>>,
    /// Listeners, and dispatchers of completions that the program takes.
    pub(super) offers: Mutex<Vec<Weak<dyn Offers>>>,
    pub(super) queues: Mutex<Vec<(SrqId, Weak<dyn BufferQueue>)>>,
    /// Turns of the threads that dispatch.
    pub(super) turns: Turns,
    closed: AtomicBool,
    /// The thread that drives the adapter, if it has one.
    thread: Mutex<Option<ThreadId>>,
    /// Times at which the timer wakes the drivers.
    pub(super) armed: Mutex<Armed>,
}

/// Keeps an adapter open.
pub(crate) struct Guard(Arc<AdapterState>);

impl Guard {
    pub(crate) fn new(adapter: Arc<AdapterState>) -> Arc<Self> {
        Arc::new(Self(adapter))
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        &self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.is_inherited() {
            // Never freed: threads of the parent may have been changing it.
            std::mem::forget(Arc::clone(&self.0));
        }
        self.0.close();
    }
}

impl AdapterState {
    /// Creates the dispatchers of a new adapter.
    pub(crate) fn new(
        interface: Box<dyn Interface>,
        device: Box<dyn Device>,
        network: Option<Network>,
    ) -> Result<Arc<Self>> {
        // Only a dispatcher with a notification object arms its completion queue. Nobody waits on
        // this object.
        let arming = interface.cno_create(None)?;
        let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let completions = interface.evd_create(1, Some(arming), completions)?;
        let connections =
            interface.evd_create(CONNECTION_EVENTS as i32, None, EvdFlags::CONNECTION)?;
        let non_coherent = interface.query()?.provider.lmr_sync_req;
        let drivers = DriverWakers::new();
        Ok(Arc::new(Self {
            process: forks::generation(),
            acts_after_posts: device.acts_after_posts(),
            non_coherent,
            is_timed: AtomicBool::new(false),
            interface,
            device,
            drivers_waker: drivers.waker(),
            notice: Notice::new(&drivers),
            reports_events: OnceLock::new(),
            drivers,
            network,
            table: Table::new(),
            arming,
            completions,
            connections,
            room: Mutex::new((CONNECTION_EVENTS / EVENTS_OF_ENDPOINT, 0)),
            endpoints: Mutex::default(),
            dropped: Mutex::default(),
            offers: Mutex::default(),
            queues: Mutex::default(),
            turns: Turns::new(),
            closed: AtomicBool::new(false),
            thread: Mutex::new(None),
            armed: Mutex::default(),
        }))
    }

    /// Returns the calls of the adapter; in a child of `fork`, calls that are refused.
    #[inline]
    pub(crate) fn interface(&self) -> &dyn Interface {
        match self.is_inherited() {
            true => &Inherited,
            false => &*self.interface,
        }
    }

    /// Returns true if a parent of this process opened the adapter.
    ///
    /// Its locks may be held for ever, so none is taken. What is pending ends as by a close.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != forks::generation()
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || self.is_inherited()
    }

    /// Makes a thread the one that drives the adapter; other threads only wait for it.
    pub(crate) fn driven_by(&self, thread: ThreadId) {
        if self.is_inherited() {
            return;
        }
        *lock(&self.thread) = Some(thread);
    }

    /// Returns true if no thread drives the adapter, or the current one does.
    pub(crate) fn is_undriven(&self) -> bool {
        if self.is_inherited() {
            return false;
        }
        let driving = *lock(&self.thread);
        driving.is_none_or(|driving| driving == thread::current().id())
    }

    /// Returns the device's own sleeper for a thread that drives the adapter, if it has one.
    pub(crate) fn device_wait(&self) -> Option<Box<dyn Wait + Send>> {
        match self.is_inherited() {
            true => None,
            false => self.device.wait(),
        }
    }

    /// Returns the time of the adapter, on the clock of its device.
    pub(crate) fn now(&self) -> Instant {
        match self.is_inherited() {
            true => ThreadWait::clock(),
            false => self.device.now(),
        }
    }

    /// Returns how long it is until a time.
    pub(crate) fn until(&self, time: Instant) -> Duration {
        Duration::from_micros(time.as_micros().saturating_sub(self.now().as_micros()))
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    pub(crate) fn address(&self) -> Result<IaAddress> {
        Ok(self.interface().limits()?.ia_address)
    }

    // Exposed memory.

    /// Synchronises a segment that peers access, where the device needs it.
    #[inline]
    pub(crate) fn synchronise(&self, direction: SyncDirection, segment: LmrTriplet) {
        if self.non_coherent {
            // Fails only if the adapter is closed, which ended the access of peers.
            let _ = self.call_sync(direction, &[segment]);
        }
    }

    /// Synchronises a segment that peers are about to access.
    pub(crate) fn synchronise_both(&self, segment: LmrTriplet) {
        self.synchronise(SyncDirection::RdmaRead, segment);
        self.synchronise(SyncDirection::RdmaWrite, segment);
    }

    /// Makes the core's call, which checks the segments in any case.
    #[cold]
    pub(crate) fn call_sync(
        &self,
        direction: SyncDirection,
        segments: &[LmrTriplet],
    ) -> dat_core::Result<()> {
        match direction {
            SyncDirection::RdmaRead => self.interface().lmr_sync_rdma_read(segments),
            SyncDirection::RdmaWrite => self.interface().lmr_sync_rdma_write(segments),
        }
    }

    // Operations.

    /// Posts an operation that owns `memory`, with its key as the cookie.
    ///
    /// # Errors
    /// That of `post`; returns the memory.
    #[inline]
    pub(crate) fn post(
        &self,
        owner: Owner,
        memory: Lent,
        span: Span,
        post: impl FnOnce(&dyn Interface, u64) -> dat_core::Result<()>,
    ) -> std::result::Result<Key, (dat_core::Error, Option<Lent>)> {
        if self.is_inherited() {
            return Err((Inherited::error(), Some(memory)));
        }
        let key = self.table.insert(owner, memory, span);
        match post(self.interface(), key.to_cookie()) {
            Ok(()) => {
                if self.acts_after_posts {
                    self.drivers.wake_all();
                }
                Ok(key)
            }
            Err(error) => Err((error, self.table.refuse(key, error))),
        }
    }

    /// Tells the driver of a call after which the device may have to act.
    pub(crate) fn called(&self) {
        if self.acts_after_posts && !self.is_inherited() {
            self.drivers.wake_all();
        }
    }

    /// Wakes the driver for an event that the core made in a call.
    pub(crate) fn wake_driver(&self) {
        if !self.is_inherited() {
            self.drivers.wake_all();
        }
    }

    // Objects.

    /// Makes room for the connection events of one endpoint more.
    ///
    /// # Errors
    /// Those of `evd_resize`.
    pub(crate) fn make_room(&self) -> dat_core::Result<()> {
        if self.is_inherited() {
            return Err(Inherited::error());
        }
        let mut room = lock(&self.room);
        if room.1 == room.0 {
            let most = i32::try_from(room.0 * 2 * EVENTS_OF_ENDPOINT).unwrap_or(i32::MAX);
            self.interface().evd_resize(self.connections, most)?;
            room.0 *= 2;
        }
        room.1 += 1;
        Ok(())
    }

    /// Undoes `add_endpoint`.
    pub(crate) fn give_room_back(&self) {
        if !self.is_inherited() {
            lock(&self.room).1 -= 1;
        }
    }

    pub(crate) fn add_endpoint(&self, endpoint: Arc<dyn EndpointEvents>) {
        let mut endpoints = lock(&self.endpoints);
        let index = endpoint.id().handle().index();
        if index >= endpoints.len() {
            endpoints.resize(index + 1, None);
        }
        endpoints[index] = Some(endpoint);
    }

    pub(super) fn endpoint(&self, ep: EpId) -> Option<Arc<dyn EndpointEvents>> {
        let endpoints = lock(&self.endpoints);
        let endpoint = endpoints.get(ep.handle().index())?.as_ref()?;
        (endpoint.id() == ep).then(|| Arc::clone(endpoint))
    }

    /// Frees an endpoint at the end of a dispatch.
    ///
    /// The thread of the adapter dispatches, if there is one: a drop is then short and runs no
    /// wakers.
    pub(crate) fn drop_endpoint(&self, endpoint: Arc<dyn EndpointEvents>) {
        if self.is_inherited() {
            return;
        }
        lock(&self.dropped).push(endpoint);
        // A close after this test takes the endpoint out of the list.
        if self.is_undriven() || self.is_closed() {
            self.dispatch(Scope::All);
        } else {
            self.drivers.wake_all();
        }
    }

    /// Frees the dropped endpoints; their completions have been taken.
    pub(super) fn free_dropped(&self) {
        loop {
            let Some(endpoint) = lock(&self.dropped).pop() else {
                return;
            };
            // Buffers of a shared queue that the endpoint consumed have no other way back.
            self.take_completions(usize::MAX);
            // Fails only if the adapter is closed.
            let freed = self.interface().ep_free(endpoint.id());
            {
                let mut endpoints = lock(&self.endpoints);
                if let Some(slot) = endpoints.get_mut(endpoint.id().handle().index())
                    && slot
                        .as_ref()
                        .is_some_and(|known| known.id() == endpoint.id())
                {
                    *slot = None;
                }
            }
            if freed.is_ok() {
                self.give_room_back();
            }
            let outcome = Outcome::Completed(DtoStatus::Flushed, 0);
            let owner = Some(Owner::Endpoint(endpoint.id()));
            self.table.end_all(owner, outcome, Effects::run);
            endpoint.end();
            self.called();
        }
    }

    /// Adds an object to the list, in which all keep their indices: a loop may be counting them.
    pub(crate) fn add_offers(&self, offers: Weak<dyn Offers>) {
        let mut all = lock(&self.offers);
        let gone = all.iter_mut().find(|known| known.strong_count() == 0);
        match gone {
            Some(slot) => *slot = offers,
            None => all.push(offers),
        }
    }

    pub(crate) fn add_queue(&self, id: SrqId, queue: Weak<dyn BufferQueue>) {
        let mut queues = lock(&self.queues);
        queues.retain(|(_, queue)| queue.strong_count() != 0);
        queues.push((id, queue));
    }

    /// Closes the adapter: ends connections, operations and drivers.
    ///
    /// Waits for no completion and no thread.
    pub(crate) fn close(&self) {
        if self.is_inherited() || self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // From its return on, neither device nor peer accesses the memory of operations.
        self.interface().shut();
        self.table.end_all(None, Outcome::Closed, Effects::run);
        let endpoints = std::mem::take(&mut *lock(&self.endpoints));
        let dropped = std::mem::take(&mut *lock(&self.dropped));
        for endpoint in endpoints.into_iter().flatten().chain(dropped) {
            endpoint.end();
        }
        self.offer();
        self.called();
        self.drivers.wake_all();
        // Lets peers in this process see the end of the connections.
        self.device.act(self.now());
    }
}

impl Drop for AdapterState {
    fn drop(&mut self) {
        self.close();
    }
}
