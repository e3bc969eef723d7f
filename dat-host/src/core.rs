//! The shared state of an open adapter: its operations, endpoints and driver.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_core::backend::SyncDirection;
use dat_core::event::{
    AsyncEventKind, ConnectionEventKind, Event, REASON_PRIMARY, ThreadWait, Wait,
};
use dat_core::flags::{CloseFlags, DtoStatus, EvdFlags, HandleKind};
use dat_core::id::{CnoId, EpId, EvdId, SrqId};
use dat_core::memory::LmrTriplet;
use dat_core::time::Instant;
use dat_devices::Network;
use dat_storage::forks;

use crate::bell::Bell;
use crate::device::{Device, Notice};
use crate::error::Result;
use crate::events::EventQueue;
use crate::interface::{Inherited, Interface};
use crate::link::Link;
use crate::listener::Requests;
use crate::memory::Lent;
use crate::shared_receive::SharedBuffers;
use crate::table::{Effects, Key, Outcome, Owner, Table};
use crate::timer::{self, Armed};
use crate::trace::Span;

/// Completions that one look takes, so that a flood of them does not keep the driver.
const COMPLETIONS_OF_A_LOOK: usize = 256;
/// Time between two looks at a device that reports no events, in microseconds.
pub(crate) const POLL_MICROS: u64 = 1_000;
/// Events of an endpoint that may be queued at a time.
const EVENTS_OF_ENDPOINT: usize = 4;
/// Connection events that the dispatcher holds at first.
const CONNECTION_EVENTS: usize = 64;

/// Values of `Core::turn`: no thread dispatches; one does; it must look once more.
const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const AGAIN: u8 = 2;

/// An open adapter.
///
/// Objects that act (adapter, zone, endpoint, listener, shared receive queue) hold a [`Guard`]; the
/// last one closes the adapter. Memory and futures only keep this structure.
pub(crate) struct Core {
    /// Generation of the process that opened the adapter.
    process: usize,
    /// Only for [`interface`](Self::interface), which tells children of `fork` apart.
    interface: Box<dyn Interface>,
    device: Box<dyn Device>,
    acts_after_posts: bool,
    /// True if the device looks past the caches: exposed memory is synchronised.
    non_coherent: bool,
    /// Set if the device asked to act at a time.
    is_timed: AtomicBool,
    bell: Bell,
    bell_waker: Waker,
    notice: Arc<Notice>,
    /// True if events of the device ring the bell, as `notice` lets them from the first use on.
    rings: OnceLock<bool>,
    /// Names of peers in this process.
    pub(crate) network: Option<Network>,
    table: Table,
    /// Notification object that arms completion queues, and that nobody waits on.
    pub(crate) arming: CnoId,
    /// Dispatcher of completions of transfers and binds.
    pub(crate) completions: EvdId,
    /// Dispatcher of connection events.
    pub(crate) connections: EvdId,
    /// Number of endpoints that `connections` has room for, and that exist.
    room: Mutex<(usize, usize)>,
    /// Live endpoints by index.
    links: Mutex<Vec<Option<Arc<Link>>>>,
    /// Endpoints to free at the end of a dispatch.
    dropped: Mutex<Vec<Arc<Link>>>,
    listeners: Mutex<Vec<Weak<Requests>>>,
    /// Dispatchers of completions that the program takes.
    events: Mutex<Vec<Weak<EventQueue>>>,
    queues: Mutex<Vec<(SrqId, Weak<SharedBuffers>)>>,
    turn: AtomicU8,
    closed: AtomicBool,
    /// The thread that drives the adapter, if it has one.
    thread: Mutex<Option<ThreadId>>,
    /// Times at which the timer rings the bell.
    armed: Mutex<Armed>,
}

/// Events that [`Core::dispatch`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that come from the device's queue directly.
    Completions,
    All,
}

/// Result of [`Core::pass_once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// There were events; look once more.
    Active,
    /// There were none; look again at this time, or when the bell rings.
    Idle(Option<Instant>),
}

impl Pass {
    /// Returns how long a thread may sleep: without limit if the outer value has no inner one.
    pub(crate) fn pause(self, core: &Core) -> Option<Option<Duration>> {
        match self {
            Self::Active => None,
            Self::Idle(next) => Some(next.map(|next| core.until(next))),
        }
    }
}

/// Keeps an adapter open.
pub(crate) struct Guard(Arc<Core>);

impl Guard {
    pub(crate) fn new(core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self(core))
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
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

impl Core {
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
        let bell = Bell::new();
        Ok(Arc::new(Self {
            process: forks::generation(),
            acts_after_posts: device.acts_after_posts(),
            non_coherent,
            is_timed: AtomicBool::new(false),
            interface,
            device,
            bell_waker: bell.waker(),
            notice: Notice::new(&bell),
            rings: OnceLock::new(),
            bell,
            network,
            table: Table::new(),
            arming,
            completions,
            connections,
            room: Mutex::new((CONNECTION_EVENTS / EVENTS_OF_ENDPOINT, 0)),
            links: Mutex::default(),
            dropped: Mutex::default(),
            listeners: Mutex::default(),
            events: Mutex::default(),
            queues: Mutex::default(),
            turn: AtomicU8::new(IDLE),
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
                    self.bell.ring();
                }
                Ok(key)
            }
            Err(error) => Err((error, self.table.refuse(key, error))),
        }
    }

    /// Tells the driver of a call after which the device may have to act.
    pub(crate) fn called(&self) {
        if self.acts_after_posts && !self.is_inherited() {
            self.bell.ring();
        }
    }

    /// Wakes the driver for an event that the core made in a call.
    pub(crate) fn wake_driver(&self) {
        if !self.is_inherited() {
            self.bell.ring();
        }
    }

    // Driving.

    /// Registers a sleeper; call `pass` once more before sleeping.
    pub(crate) fn enlist(&self, waker: &Waker) {
        if self.is_inherited() {
            return;
        }
        self.bell.add(waker);
        self.interface().register_progress_waker(&self.bell_waker);
    }

    /// As `pass_once`, for a driver that then sleeps until the bell is rung.
    pub(crate) fn pass(&self) -> Pass {
        if self.is_inherited() {
            return Pass::Idle(None);
        }
        // Before the look for events, so that a later event rings.
        let notice = || {
            self.device
                .wake_on_events(Waker::from(Arc::clone(&self.notice)))
        };
        let rings = *self.rings.get_or_init(notice);
        match self.pass_once() {
            Pass::Idle(next) if !rings => {
                let poll = Instant::from_micros(self.now().as_micros() + POLL_MICROS);
                Pass::Idle(Some(next.map_or(poll, |next| next.min(poll))))
            }
            pass => pass,
        }
    }

    /// Notes that a thread is about to sleep on the device, or that it is awake.
    pub(crate) fn note_sleep(&self, sleeps: bool) {
        self.notice.sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Removes a sleeper that does not sleep again.
    pub(crate) fn forget(&self, waker: &Waker) {
        if !self.is_inherited() {
            self.bell.remove(waker);
        }
    }

    /// Looks for events of the device once and runs their effects.
    pub(crate) fn pass_once(&self) -> Pass {
        if self.is_inherited() {
            return Pass::Idle(None);
        }
        let now = self.now();
        let activity = self.device.act(now);
        self.is_timed
            .store(activity.next.is_some(), Ordering::Relaxed);
        // Before `progress`, which would copy the completions into the queue of the dispatcher.
        let completed = self.dispatch(Scope::Completions);
        let progressed = self.interface().progress(now) != 0;
        let dispatched = self.dispatch(Scope::All);
        if activity.acted || completed || progressed || dispatched {
            return Pass::Active;
        }
        Pass::Idle(first(self.interface().next_deadline(), activity.next))
    }

    /// As `pass_once`, after a sleep in the device's own sleeper that neither the bell nor a
    /// deadline ended.
    ///
    /// The sleeper marks what it finds. So a quiet device has nothing but completions, and asking
    /// it or the clock would take a system call.
    pub(crate) fn pass_after_sleep(&self) -> Pass {
        let is_quiet = match self.interface().is_quiet() {
            Some(is_quiet) if !self.is_timed.load(Ordering::Relaxed) => is_quiet,
            _ => return self.pass_once(),
        };
        let completed = self.dispatch(Scope::Completions);
        let progressed = !is_quiet && self.interface().progress(Instant::ZERO) != 0 && {
            self.dispatch(Scope::All);
            true
        };
        match completed || progressed {
            true => Pass::Active,
            false => Pass::Idle(self.interface().next_deadline()),
        }
    }

    /// Lets the timer ring the bell at the time of the next pass, for drivers that are futures.
    pub(crate) fn arm_timer(&self, next: Instant) {
        let now = self.now();
        let mut armed = lock(&self.armed);
        if armed.is_rung_by(next, now) {
            return;
        }
        let pause = next.as_micros().saturating_sub(now.as_micros());
        let at = std::time::Instant::now() + Duration::from_micros(pause);
        if timer::ring_at(&self.bell, at).is_ok() {
            armed.add(next);
        } else {
            // Without a thread for the timer, the driver polls.
            drop(armed);
            self.bell.ring();
        }
    }

    // Events.

    /// Takes the events of the adapter's dispatchers; returns false if there are none.
    ///
    /// One thread at a time does so, so events of an endpoint stay in order. A call meanwhile, also
    /// one from a waker, makes it look once more, for all events.
    pub(crate) fn dispatch(&self, mut scope: Scope) -> bool {
        if self.is_inherited() {
            return false;
        }
        loop {
            let before =
                self.turn
                    .compare_exchange(IDLE, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
            match before {
                Ok(_) => break,
                Err(AGAIN) => return false,
                Err(_) => {
                    let marked = self.turn.compare_exchange(
                        RUNNING,
                        AGAIN,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    if marked.is_ok() {
                        return false;
                    }
                }
            }
        }
        let mut turn = Turn(&self.turn);
        let mut found = false;
        loop {
            let taken = self.take_completions(COMPLETIONS_OF_A_LOOK);
            found |= taken != 0;
            if scope == Scope::All {
                found |= self.take_connection_events();
                found |= self.take_async_events();
                self.offer_requests();
                self.offer_events();
                self.free_dropped();
            }
            turn = match turn.end() {
                Some(turn) => turn,
                None => {
                    if taken == COMPLETIONS_OF_A_LOOK {
                        // This thread may not be the driver.
                        self.bell.ring();
                    }
                    return found;
                }
            };
            scope = Scope::All;
        }
    }

    /// Takes at most so many completions; returns their number.
    fn take_completions(&self, most: usize) -> usize {
        let interface = self.interface();
        for taken in 0..most {
            match interface.evd_dequeue(self.completions) {
                Ok(event) => self.settle(&event),
                Err(_) => return taken,
            }
        }
        most
    }

    /// Ends the operation of a completion.
    // A call would cost as much as its work, for each completion.
    #[inline(always)]
    pub(crate) fn settle(&self, event: &Event) {
        match event {
            Event::Dto(done) => {
                let length = usize::try_from(done.transferred_length).unwrap_or(0);
                let outcome = Outcome::Completed(done.status, length);
                let effects = self.table.complete(done.cookie, outcome);
                match effects {
                    Effects {
                        memory: Some(memory),
                        queue: Some(queue),
                        ..
                    } => self.received((done.ep, queue), memory, done.status, length),
                    effects => effects.run(),
                }
            }
            Event::RmrBind(done) => {
                let outcome = Outcome::Completed(done.status, 0);
                self.table.complete(done.cookie, outcome).run();
            }
            _ => {}
        }
    }

    /// Delivers a message to the endpoint that took a buffer of a shared receive queue.
    fn received(&self, (ep, queue): (EpId, SrqId), memory: Lent, status: DtoStatus, length: usize) {
        let known = lock(&self.queues)
            .iter()
            .find(|(srq, _)| *srq == queue)
            .and_then(|(_, buffers)| buffers.upgrade());
        let Some(queue) = known else {
            return;
        };
        match self.link(ep) {
            Some(link) if status == DtoStatus::Success => {
                link.add_message(queue.message(memory.into_slot(), length));
            }
            _ => queue.post(memory.into_slot()),
        }
    }

    fn take_connection_events(&self) -> bool {
        let mut found = false;
        while let Ok(event) = self.interface().evd_dequeue(self.connections) {
            found = true;
            if let Event::Connection { kind, ep, .. } = event
                && let Some(link) = self.link(ep)
            {
                if kind != ConnectionEventKind::Established {
                    // Messages that arrived before the end come first.
                    self.take_completions(usize::MAX);
                }
                link.changed(kind);
            }
        }
        found
    }

    fn take_async_events(&self) -> bool {
        let mut found = false;
        let evd = self.interface().async_evd();
        while let Ok(event) = self.interface().evd_dequeue(evd) {
            found = true;
            let Event::Async {
                kind,
                handle,
                reason,
            } = event
            else {
                continue;
            };
            match kind {
                // Events are lost, so operations might wait for ever.
                AsyncEventKind::IaCatastrophic | AsyncEventKind::EvdOverflow => self.close(),
                AsyncEventKind::EpBroken
                    if handle.kind() == Some(HandleKind::Srq) && reason == REASON_PRIMARY =>
                {
                    self.disconnect_users(SrqId::from_handle(handle));
                }
                _ => {}
            }
        }
        found
    }

    /// Disconnects the endpoints of a shared receive queue that failed: they receive no more.
    fn disconnect_users(&self, queue: SrqId) {
        let users: Vec<EpId> = lock(&self.links)
            .iter()
            .flatten()
            .filter(|link| link.queue() == Some(queue))
            .map(|link| link.id())
            .collect();
        for ep in users {
            // Fails if there is no connection.
            let _ = self.interface().ep_disconnect(ep, CloseFlags::Abrupt);
        }
        self.called();
    }

    /// Wakes listeners for which requests have arrived.
    fn offer_requests(&self) {
        let mut index = 0;
        loop {
            let listener = lock(&self.listeners).get(index).map(Weak::upgrade);
            match listener {
                None => return,
                Some(Some(listener)) => listener.offer(),
                Some(None) => {}
            }
            index += 1;
        }
    }

    /// Wakes programs for which completions have arrived that they take by themselves.
    fn offer_events(&self) {
        let mut index = 0;
        loop {
            let events = lock(&self.events).get(index).map(Weak::upgrade);
            match events {
                None => return,
                Some(Some(events)) => events.offer(),
                Some(None) => {}
            }
            index += 1;
        }
    }

    // Objects.

    /// Makes room for the connection events of one endpoint more.
    ///
    /// # Errors
    /// Those of `evd_resize`.
    pub(crate) fn add_endpoint(&self) -> dat_core::Result<()> {
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
    pub(crate) fn remove_endpoint(&self) {
        if !self.is_inherited() {
            lock(&self.room).1 -= 1;
        }
    }

    pub(crate) fn add_link(&self, link: &Arc<Link>) {
        let mut links = lock(&self.links);
        let index = link.id().handle().index();
        if index >= links.len() {
            links.resize(index + 1, None);
        }
        links[index] = Some(Arc::clone(link));
    }

    fn link(&self, ep: EpId) -> Option<Arc<Link>> {
        let links = lock(&self.links);
        let link = links.get(ep.handle().index())?.as_ref()?;
        (link.id() == ep).then(|| Arc::clone(link))
    }

    /// Frees an endpoint at the end of a dispatch.
    ///
    /// The thread of the adapter dispatches, if there is one: a drop is then short and runs no
    /// wakers.
    pub(crate) fn drop_link(&self, link: &Arc<Link>) {
        if self.is_inherited() {
            return;
        }
        lock(&self.dropped).push(Arc::clone(link));
        // A close after this test takes the endpoint out of the list.
        if self.is_undriven() || self.is_closed() {
            self.dispatch(Scope::All);
        } else {
            self.bell.ring();
        }
    }

    /// Frees the dropped endpoints; their completions have been taken.
    fn free_dropped(&self) {
        loop {
            let Some(link) = lock(&self.dropped).pop() else {
                return;
            };
            // Buffers of a shared queue that the endpoint consumed have no other way back.
            self.take_completions(usize::MAX);
            // Fails only if the adapter is closed.
            let freed = self.interface().ep_free(link.id());
            {
                let mut links = lock(&self.links);
                if let Some(slot) = links.get_mut(link.id().handle().index())
                    && slot.as_ref().is_some_and(|known| known.id() == link.id())
                {
                    *slot = None;
                }
            }
            if freed.is_ok() {
                self.remove_endpoint();
            }
            let outcome = Outcome::Completed(DtoStatus::Flushed, 0);
            let owner = Some(Owner::Endpoint(link.id()));
            self.table.end_all(owner, outcome, Effects::run);
            link.end();
            self.called();
        }
    }

    pub(crate) fn add_listener(&self, listener: &Arc<Requests>) {
        add_weak(&mut lock(&self.listeners), listener);
    }

    pub(crate) fn add_events(&self, events: &Arc<EventQueue>) {
        add_weak(&mut lock(&self.events), events);
    }

    pub(crate) fn add_queue(&self, queue: &Arc<SharedBuffers>) {
        let mut queues = lock(&self.queues);
        queues.retain(|(_, queue)| queue.strong_count() != 0);
        queues.push((queue.id(), Arc::downgrade(queue)));
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
        let links = std::mem::take(&mut *lock(&self.links));
        let dropped = std::mem::take(&mut *lock(&self.dropped));
        for link in links.into_iter().flatten().chain(dropped) {
            link.end();
        }
        self.offer_requests();
        self.offer_events();
        self.called();
        self.bell.ring();
        // Lets peers in this process see the end of the connections.
        self.device.act(self.now());
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

/// The turn of the thread that dispatches.
struct Turn<'a>(&'a AtomicU8);

impl Turn<'_> {
    /// Ends the turn; returns it if another call asked to look once more.
    fn end(self) -> Option<Self> {
        if self
            .0
            .compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            // Another thread may have the turn already.
            std::mem::forget(self);
            return None;
        }
        self.0.store(RUNNING, Ordering::SeqCst);
        Some(self)
    }
}

impl Drop for Turn<'_> {
    /// Ends the turn if a waker panicked.
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }
}

/// Returns the earlier one of two times, if there are any.
pub(crate) fn first(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Adds a reference to a list in which all keep their indices, since a loop may be counting them.
fn add_weak<T>(list: &mut Vec<Weak<T>>, object: &Arc<T>) {
    let gone = list.iter_mut().find(|known| known.strong_count() == 0);
    match gone {
        Some(slot) => *slot = Arc::downgrade(object),
        None => list.push(Arc::downgrade(object)),
    }
}

/// Locks a mutex; a panic of a holder leaves valid values.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_a_panic_and_goes_on_if_it_must() {
        let state = AtomicU8::new(RUNNING);
        let unwound = std::panic::catch_unwind(|| {
            let _turn = Turn(&state);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(unwound.is_err());
        assert_eq!(state.load(Ordering::SeqCst), IDLE);
        state.store(AGAIN, Ordering::SeqCst);
        let turn = Turn(&state).end();
        assert!(turn.is_some());
        assert_eq!(state.load(Ordering::SeqCst), RUNNING);
    }
}
