//! The backend of an adapter: a port of a device, driven by the core.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, Extensions,
    ListenerKey, QueuePair, QueuePairKey, QueuePairRequest, RegionKeys, Registration, RequestKey,
    SharedReceiveQueueKey, SyncDirection, WindowKey,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::time::Instant;

use crate::attributes;
use crate::completion_queue::{QueueMarks, VerbsCompletionQueue};
use crate::completion_room::{self, Reservation, Reservations};
use crate::connection::{Announced, Listener, Request};
use crate::device::Port;
use crate::directory::Directory;
use crate::event_thread::{object_number, split_number};
use crate::generational_map::GenerationalMap;
use crate::hal::{
    Access, Batch, CompletionQueue, Domain, ReceiveList, Region, SharedReceiveQueue, Transport,
    WindowType,
};
use crate::objects::Objects;
use crate::options::VerbsOptions;
use crate::queue_pair::{Pair, State, slots};
use crate::receive_queue::{Failing, VerbsReceiveQueue, VerbsSharedReceiveQueue};
use crate::send_queue::VerbsSendQueue;
use crate::shared_device::Seat;
use crate::signal::{Signal, Source};
use crate::wait::{VerbsWait, VerbsWaits};

/// Number of the completion queue for completions without a dispatcher; others have 32 bits.
const UNREPORTED: usize = 1 << 32;
/// Completions that it holds between two polls, if the device allows.
const UNREPORTED_DEPTH: i32 = 4096;

/// A port of an RDMA device.
///
/// A drop ends its connections, and takes all memory from the device.
#[derive(Debug)]
pub struct VerbsBackend {
    pub(crate) listeners: GenerationalMap<Listener>,
    pub(crate) requests: GenerationalMap<Request>,
    /// Tails of private data whose heads are still to come.
    pub(crate) announced: VecDeque<Announced>,
    /// Number of pairs of requests that were named.
    pub(crate) names: u32,
    pub(crate) pairs: GenerationalMap<Pair>,
    pub(crate) shared_queues: GenerationalMap<SharedQueue>,
    queues: BTreeMap<u32, Queue>,
    unreported: Option<(Arc<CompletionQueue>, Batch)>,
    domains: GenerationalMap<Arc<Domain>>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) pending: VecDeque<ControlEvent>,
    pub(crate) options: VerbsOptions,
    pub(crate) port: Port,
    pub(crate) signal: Arc<Signal>,
    pub(crate) seat: Seat,
}

/// A completion queue of the adapter.
#[derive(Debug)]
pub(crate) struct Queue {
    /// First completion queue of the dispatcher.
    pub(crate) device: Arc<CompletionQueue>,
    pub(crate) marks: Arc<QueueMarks>,
}

/// A shared receive queue of the adapter.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) token: u64,
    pub(crate) device: Arc<SharedReceiveQueue>,
    /// Most buffers that it holds.
    pub(crate) depth: u32,
}

impl VerbsBackend {
    /// Opens a port by the name that [`devices`](crate::devices) gives it.
    ///
    /// The name is `rxe0`, or `mlx5_0:2` for the second port of a device with several.
    ///
    /// # Errors
    /// - `Device`: the port does not exist or cannot be opened.
    /// - `Address`: its network interface has no address.
    /// - `Resources`: no descriptors, threads or memory are left.
    ///
    /// Spec: IAO-01, IAQ-03
    pub fn open(name: &str, options: VerbsOptions) -> Result<Self, BackendError> {
        let (device, port) = Port::open(name, &options)?;
        let signal = Arc::new(Signal::new());
        let seat = device.enter(&signal)?;
        Ok(Self {
            listeners: GenerationalMap::default(),
            requests: GenerationalMap::default(),
            announced: VecDeque::new(),
            names: 0,
            pairs: GenerationalMap::default(),
            shared_queues: GenerationalMap::default(),
            queues: BTreeMap::new(),
            unreported: None,
            domains: GenerationalMap::default(),
            objects: Arc::default(),
            directory: Arc::new(Directory::new(device.leaves.clone())),
            pending: VecDeque::new(),
            options,
            port,
            signal,
            seat,
        })
    }

    /// Creates a sleeper on this device for one thread.
    ///
    /// # Errors
    /// `Resources`: no descriptors are left.
    ///
    /// Spec: EVW-01
    pub fn wait(&self) -> Result<VerbsWait, BackendError> {
        self.waits().wait()
    }

    /// Returns a factory of sleepers for threads that may come to [`wait`](Self::wait).
    #[must_use]
    pub fn waits(&self) -> VerbsWaits {
        VerbsWaits {
            sources: Arc::clone(&self.seat.sources),
        }
    }

    /// Sets a function that is called whenever `progress` has something to do.
    ///
    /// This is a connection or device event, or a completion of an armed queue. The function runs
    /// on the device's thread, or inside a call of the adapter. It may wake a thread that calls
    /// `progress` until the adapter is quiet (`Ia::is_quiet`), and must not call the adapter
    /// itself.
    ///
    /// # Errors
    /// `Resources`: no memory or descriptors are left.
    pub fn on_event(&self, call: impl Fn() + Send + Sync + 'static) -> Result<(), BackendError> {
        self.signal.call(Box::new(call));
        self.seat.sources.tell_all()
    }

    /// Returns the number that events of an object carry, from its key.
    pub(crate) fn object_number(&self, key: usize) -> usize {
        object_number(self.seat.sources.number(), key)
    }

    fn new_completion_queue(
        &self,
        number: usize,
        depth: i32,
    ) -> Result<Arc<CompletionQueue>, BackendError> {
        let channel = self.seat.sources.completions()?;
        let queue = CompletionQueue::new(channel, self.object_number(number), depth)?;
        Ok(Arc::new(queue))
    }

    pub(crate) fn window_type(&self) -> Option<WindowType> {
        let limits = &self.port.limits;
        if limits.windows <= 0 {
            return None;
        }
        let has = (limits.windows_type_1, limits.windows_type_2);
        self.options.windows.of_device(has)
    }

    /// Returns the most completions of `requests` requests.
    pub(crate) fn completions_of(&self, requests: u32) -> u32 {
        slots(requests, self.window_type(), self.port.limits.completions)
    }

    pub(crate) fn domain(&self, key: DomainKey) -> Result<&Arc<Domain>, BackendError> {
        self.domains.get(key.0).ok_or(BackendError::State)
    }

    /// Returns the completion queue of a reservation; without one, that of unreported completions.
    pub(crate) fn queue_of(
        &mut self,
        reservation: Option<&Reservation>,
    ) -> Result<Arc<CompletionQueue>, BackendError> {
        if let Some(reservation) = reservation {
            return Ok(Arc::clone(reservation.queue()));
        }
        if let Some((queue, _)) = &self.unreported {
            return Ok(Arc::clone(queue));
        }
        let depth = self.port.limits.completions.clamp(1, UNREPORTED_DEPTH);
        let queue = self.new_completion_queue(UNREPORTED, depth)?;
        self.unreported = Some((Arc::clone(&queue), Batch::new()));
        Ok(queue)
    }

    /// Reserves room for completions of a queue pair; `None` without a dispatcher.
    ///
    /// A dispatcher without the room gets a further completion queue. `replaced` are the
    /// reservations of the queue pair that the new one replaces.
    ///
    /// # Errors
    /// - `State`: there is no queue with this number.
    /// - `Resources`: no completion queue of the device has this room, or none is left.
    pub(crate) fn reserve(
        &mut self,
        number: Option<u32>,
        completions: u32,
        replaced: &Reservations,
    ) -> Result<Option<Reservation>, BackendError> {
        let Some(number) = number else {
            return Ok(None);
        };
        let queue = self.queues.get(&number).ok_or(BackendError::State)?;
        if let Some(found) = Reservation::find(&queue.device, completions, replaced) {
            return Ok(Some(found));
        }
        if completions > self.most_completions() {
            return Err(BackendError::Resources);
        }
        // Twice as long as the last one, so that there are few.
        let twice = completion_room::last(&queue.device)
            .depth()
            .saturating_mul(2);
        let depth = completions.max(twice.min(self.most_completions()));
        let added = self.new_completion_queue(number as usize, signed(depth)?)?;
        completion_room::append(&queue.device, &added);
        queue.marks.arm_added(&added);
        Ok(Some(Reservation::new(&added, completions)))
    }

    /// Reserves completions for all buffers of a shared receive queue at each queue pair that uses
    /// it.
    ///
    /// # Errors
    /// `Resources`: a completion queue cannot be made long enough. Some reservations are changed.
    fn reserve_shared(
        &mut self,
        key: SharedReceiveQueueKey,
        depth: u32,
    ) -> Result<(), BackendError> {
        let most = self.most_completions();
        for (_, pair) in self.pairs.iter_mut() {
            if pair.request.shared_receive_queue == Some(key)
                && let Some(receives) = &mut pair.reservations.receives
            {
                receives.resize(depth, |queue, needed| match needed <= most {
                    true => enlarge(queue, needed),
                    false => Err(BackendError::Resources),
                })?;
            }
        }
        Ok(())
    }

    /// Returns the most completions that a completion queue of the device holds.
    fn most_completions(&self) -> u32 {
        count(self.port.limits.completions).max(1)
    }

    pub(crate) fn known_queue(&self, number: Option<u32>) -> Option<&Queue> {
        self.queues.get(&number?)
    }

    pub(crate) fn completion_queue_failed(&mut self, number: usize) {
        let known = u32::try_from(number).ok();
        if let Some(number) = known
            && let Some(queue) = self.queues.get(&number)
        {
            queue.marks.overrun.store(true, Ordering::Release);
            self.pending
                .push_back(ControlEvent::Completions { queue: number });
        }
    }

    fn forget_limit_event(&mut self, token: u64) {
        self.pending.retain(
            |event| !matches!(event, ControlEvent::SharedReceiveLimit { queue } if *queue == token),
        );
    }

    fn take_in_completions(&mut self) -> Option<ControlEvent> {
        if !self.signal.expects_completions() {
            return None;
        }
        // Notifications of destroyed queues count for nothing.
        for _ in 0..=self.queues.len() {
            let (_, number) = split_number(self.seat.sources.made_completions()?.next()?);
            let number = u32::try_from(number).ok();
            if let Some(number) = number
                && let Some(queue) = self.queues.get(&number)
            {
                if queue.marks.armed.swap(false, Ordering::AcqRel) {
                    self.signal.disarmed();
                }
                self.signal.expect_more_completions();
                return Some(if queue.marks.notified() {
                    ControlEvent::SolicitedCompletions { queue: number }
                } else {
                    ControlEvent::Completions { queue: number }
                });
            }
        }
        // There may be more notifications, which are not reported again.
        self.signal.remind();
        None
    }
}

/// Converts a count that the core checked not to be negative.
pub(crate) fn count(checked: i32) -> u32 {
    u32::try_from(checked).unwrap_or(0)
}

/// Converts a count for C; at least 1.
fn signed(count: u32) -> Result<i32, BackendError> {
    i32::try_from(count.max(1)).map_err(|_| BackendError::Resources)
}

/// Makes a completion queue at least `depth` completions long.
fn enlarge(queue: &CompletionQueue, depth: u32) -> Result<(), BackendError> {
    queue.resize(signed(depth)?).map_err(|error| match error {
        // A device without the call has no room for more.
        BackendError::NotSupported => BackendError::Resources,
        other => other,
    })
}

#[expect(unsafe_code, reason = "the devices of this backend enforce their keys")]
// SAFETY: memory enters only by `ibv_reg_mr`, with its rights, and leaves by `ibv_dereg_mr` before
// `deregister` or the drop of the table of regions returns, or the process ends. Devices check
// every access against it, except for inline data of requests. Only queue pairs that may read at
// posts have inline data, and the crate itself touches no registered memory.
unsafe impl Backend for VerbsBackend {
    type CompletionQueue = VerbsCompletionQueue;
    type SendQueue = VerbsSendQueue;
    type ReceiveQueue = VerbsReceiveQueue;
    type SharedReceiveQueue = VerbsSharedReceiveQueue;

    const EVENT_DRIVEN: bool = true;
    /// Short Sends and Writes carry their data inline, if the device allows.
    const READS_AT_POST: bool = true;

    fn ia_attributes(&self) -> IaAttributes {
        attributes::adapter(&self.port)
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        attributes::provider(&self.port)
    }

    fn extensions(&self) -> Extensions {
        let limits = &self.port.limits;
        let mut extensions = Extensions::empty();
        if limits.transport == Transport::InfiniBand {
            extensions |= Extensions::WRITE_IMMEDIATE;
        }
        if limits.atomics {
            extensions |= Extensions::FETCH_AND_ADD | Extensions::COMPARE_AND_SWAP;
        }
        extensions
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        let domain = Arc::new(Domain::new(&self.seat.device.context)?);
        self.domains
            .insert(domain)
            .map(DomainKey)
            .ok_or(BackendError::Resources)
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        if let Some(domain) = self.domains.remove(domain.0) {
            self.objects.forget_domain(&domain);
        }
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        let domain = self.domain(registration.domain())?;
        let privileges = registration.privileges();
        let access = Access::of_region(
            privileges,
            self.window_type().is_some(),
            self.port.limits.atomics,
        );
        let region = Region::register(domain, registration, access)?;
        let (local, remote) = (region.local_key(), region.remote_key());
        let opens =
            privileges.intersects(MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE);
        let object = self
            .objects
            .insert_region(region)
            .ok_or(BackendError::Resources)?;
        Ok(RegionKeys {
            object,
            local,
            remote: if opens { remote } else { 0 },
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.objects.deregister(region.object);
    }

    /// Issues a fence, which is enough: host devices are cache coherent.
    fn sync(&mut self, _direction: SyncDirection, _address: u64, _length: u64) {
        fence(Ordering::SeqCst);
    }

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        let kind = self.window_type().ok_or(BackendError::NotSupported)?;
        let window = self.objects.make_window(self.domain(domain)?, kind)?;
        self.objects
            .insert_window(window)
            .map(WindowKey)
            .ok_or(BackendError::Resources)
    }

    fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        self.objects.needs_renewal(window.0, missed)
    }

    fn destroy_window(&mut self, window: WindowKey) {
        self.objects.remove_window(window.0);
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<VerbsCompletionQueue, BackendError> {
        if self.queues.contains_key(&number) {
            return Err(BackendError::State);
        }
        let depth = signed(self.completions_of(depth))?;
        let device = self.new_completion_queue(number as usize, depth)?;
        let marks = Arc::<QueueMarks>::default();
        self.queues.insert(
            number,
            Queue {
                device: Arc::clone(&device),
                marks: Arc::clone(&marks),
            },
        );
        Ok(VerbsCompletionQueue {
            device,
            turn: None,
            batch: Batch::new(),
            marks,
            directory: Arc::clone(&self.directory),
            signal: Arc::clone(&self.signal),
        })
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut VerbsCompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let depth = self.completions_of(depth);
        if queue.device.depth() >= depth {
            return Ok(());
        }
        enlarge(&queue.device, depth)
    }

    /// Enlarges the first completion queue, unless the device has no queue for so many.
    ///
    /// Then queue pairs for which no completion queue has room get a further one.
    fn reserve_completions(
        &mut self,
        queue: &mut VerbsCompletionQueue,
        completions: u32,
    ) -> Result<(), BackendError> {
        if self.completions_of(completions) > self.most_completions() {
            return Ok(());
        }
        self.resize_completion_queue(queue, completions)
    }

    fn destroy_completion_queue(&mut self, queue: VerbsCompletionQueue) {
        let known = self.queues.iter().find_map(|(&number, known)| {
            Arc::ptr_eq(&known.device, &queue.device).then_some(number)
        });
        if let Some(number) = known {
            self.queues.remove(&number);
            self.pending.retain(
                |event| !matches!(event, ControlEvent::Completions { queue } if *queue == number),
            );
        }
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, VerbsSharedReceiveQueue), BackendError> {
        let key = self
            .shared_queues
            .next_key()
            .ok_or(BackendError::Resources)?;
        let domain = self.domain(domain)?;
        let post = domain.shared_post()?;
        let device = SharedReceiveQueue::new(
            domain,
            self.object_number(key),
            depth.max(1),
            segments.max(1),
        )?;
        let device = Arc::new(device);
        let list = ReceiveList::for_shared(Arc::clone(&device), post, depth, segments)?;
        self.shared_queues.insert(SharedQueue {
            token,
            device,
            depth,
        });
        Ok((
            SharedReceiveQueueKey(key),
            VerbsReceiveQueue { list, owner: None },
        ))
    }

    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: &mut VerbsSharedReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let queue = self.shared_queues.get(key.0).ok_or(BackendError::State)?;
        let (device, old) = (Arc::clone(&queue.device), queue.depth);
        let resized = self
            .reserve_shared(key, depth)
            .and_then(|()| device.resize(depth.max(1)));
        match (&resized, self.shared_queues.get_mut(key.0)) {
            (Ok(()), Some(queue)) => queue.depth = depth,
            // The room before: part of it may be what was refused.
            _ => self.reserve_shared(key, old)?,
        }
        resized
    }

    /// Arms the low watermark.
    ///
    /// Disarms first: after that, the event of the earlier arming is pending, or never comes.
    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        let queue = self.shared_queues.get(key.0).ok_or(BackendError::State)?;
        let (token, device) = (queue.token, Arc::clone(&queue.device));
        device.arm(0)?;
        self.seat.sources.take_in_device();
        self.signal.set_ready(Source::Device);
        while self.take_in_device() {}
        device.arm(limit)?;
        let before = self.pending.len();
        self.forget_limit_event(token);
        Ok(self.pending.len() != before)
    }

    /// Returns `None`: verbs does not report the count.
    fn shared_receive_available(&self, _key: SharedReceiveQueueKey) -> Option<u32> {
        None
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: VerbsSharedReceiveQueue,
    ) {
        drop(queue);
        if let Some(SharedQueue { token, .. }) = self.shared_queues.remove(key.0) {
            self.forget_limit_event(token);
        }
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<VerbsSendQueue, VerbsReceiveQueue>, BackendError> {
        let key = self.pairs.next_key().ok_or(BackendError::Resources)?;
        let (device, reservations) = self.make_pair(key, request, &Reservations::default())?;
        let lists = self.send_list(&device, request).and_then(|send| {
            let own = request.shared_receive_queue.is_none();
            let receive = own.then(|| self.receive_list(&device, request));
            Ok((send, receive.transpose()?))
        });
        let (send, receive) = lists.inspect_err(|_| self.forget_pair(request, device.number()))?;
        let pair = Pair::new(request, Arc::clone(&device), reservations);
        let failure = Arc::clone(&pair.failure);
        self.pairs.insert(pair);
        Ok(QueuePair {
            key: QueuePairKey(key),
            send: VerbsSendQueue {
                list: send,
                number: device.number(),
                objects: Arc::clone(&self.objects),
            },
            receive: receive.map(|list| VerbsReceiveQueue {
                list,
                owner: Some(Failing {
                    pair: device,
                    failure,
                }),
            }),
        })
    }

    /// Creates another queue pair, and posts the receives on it again.
    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut VerbsSendQueue,
        receive: Option<&mut VerbsReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let pair = self.pairs.get(key.0).ok_or(BackendError::State)?;
        if pair.state != State::Unconnected {
            return Err(BackendError::State);
        }
        if pair.request.shared_receive_queue != request.shared_receive_queue {
            return Err(BackendError::NotSupported);
        }
        self.replace(key, send, receive, request, true)
    }

    /// Creates another queue pair.
    ///
    /// Peers refuse the number of a connection that has just ended.
    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut VerbsSendQueue,
        receive: Option<&mut VerbsReceiveQueue>,
    ) -> Result<(), BackendError> {
        let pair = self.pairs.get(key.0).ok_or(BackendError::State)?;
        if pair.state != State::Ended {
            return Err(BackendError::State);
        }
        let (request, token) = (pair.request, pair.token());
        self.replace(key, send, receive, &request, false)?;
        self.forget_connection_events(token);
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: VerbsSendQueue,
        receive: Option<VerbsReceiveQueue>,
    ) {
        if let Some(mut pair) = self.pairs.remove(key.0) {
            self.give_up(&mut pair);
        }
        drop((send, receive));
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.start_listening(token, qualifier)
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.listeners.remove(listener.0);
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        self.start_connection(key, request)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        self.accept_request(request, key, private_data)
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        self.refuse_request(request, by_consumer, private_data);
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        self.end_connection(key, mode);
    }

    fn poll_control(&mut self, _now: Instant) -> Option<ControlEvent> {
        self.signal.calm();
        if let Some((queue, batch)) = &mut self.unreported {
            // Takes the buffers of shared queues that endpoints without a receive dispatcher
            // consumed. The failures there concern queue pairs, which report them elsewhere;
            // nonsense concerns the whole device.
            if queue.fill(batch).is_err() {
                let _news = self.directory.note_nonsense();
            }
        }
        if let Some(event) = self.take_in_completions() {
            return Some(event);
        }
        // A call is short: one event of each source at a time. Each may cause events for the core,
        // or none.
        for _ in 0..EVENTS_PER_POLL {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            self.take_in_notes();
            let taken = self.take_in_device() | self.take_in_connections();
            if !taken && self.pending.is_empty() {
                return None;
            }
        }
        let event = self.pending.pop_front();
        if event.is_none() {
            // There may be more events, which are not reported again; the next sleeper polls.
            self.signal.remind();
        }
        event
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.unreported.is_none()
            && self.pending.is_empty()
            && self.signal.is_quiet()
            && !self.directory.has_changes()
    }

    /// Returns `None`: devices and kernel have their own timers.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

/// Most rounds of library events in one poll.
const EVENTS_PER_POLL: usize = 16;

impl Drop for VerbsBackend {
    fn drop(&mut self) {
        self.listeners.clear();
        self.requests.clear();
        for (_, pair) in self.pairs.iter_mut() {
            pair.give_up(&self.directory);
            // Other adapters of the device share the entries.
            self.directory.leave(pair.number());
        }
        self.pairs.clear();
        self.objects.clear();
    }
}
