//! The backend: an adapter for the core.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, Extensions,
    ListenerKey, NotLocal, QueuePair, QueuePairKey, QueuePairRequest, ReceiveInfo, RegionKeys,
    Registration, RequestKey, SharedReceiveQueueKey, SyncDirection, WindowKey,
};
use dat_core::time::Instant;
use dat_queues::{Owner, PairLimits, PairSetup, SharedReceives, State, Watermarks, room, within};

use crate::adapter::{Adapter, Completions, PORTS, Pair, SEGMENTS, Slab, port_of};
use crate::attributes;
use crate::counts::{AdapterCounts, ConnectionCounts};
use crate::options::RoceOptions;
use crate::port::{ClaimError, Port, canonical};
use crate::queues::{RoceCompletionQueue, RoceExecutor, RoceReceiveQueue, RoceSendQueue};
use crate::shared::Shared;
use crate::wait::RoceWait;

/// An adapter that speaks RoCEv2 over a port for datagrams.
///
/// Dropping it ends its connections and removes its regions.
pub struct RoceBackend {
    shared: Arc<Shared>,
    /// The next port to claim for a service point, or for QPNs of a device.
    next_port: u16,
    /// The thread that serves the adapter.
    #[cfg(feature = "udp")]
    service: Option<crate::udp::Service>,
}

impl RoceBackend {
    /// Makes an adapter over `port` that has no thread.
    ///
    /// Polls of completion queues take the packets that have come. Timers run in `progress`, whose
    /// argument is the time.
    ///
    /// # Panics
    /// If there is no memory for the tables of the adapter.
    pub fn over(port: impl Port + 'static, options: RoceOptions) -> Self {
        let backend = Self::new(Box::new(port), options, None, None);
        backend.expect("memory for the tables of an adapter")
    }

    /// Makes an adapter; `None` if there is no memory for its tables.
    pub(crate) fn new(
        port: Box<dyn Port>,
        options: RoceOptions,
        clock: Option<fn() -> Instant>,
        generation: Option<usize>,
    ) -> Option<Self> {
        let adapter = Adapter::new(options, port.address(), port.run_packets())?;
        Some(Self {
            shared: Arc::new(Shared::new(adapter, port, clock, generation)?),
            next_port: *PORTS.start(),
            #[cfg(feature = "udp")]
            service: None,
        })
    }

    /// Returns a handle for a queue.
    pub(crate) fn executor(&self) -> RoceExecutor {
        RoceExecutor(Arc::clone(&self.shared))
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(feature = "udp")]
    pub(crate) fn set_service(&mut self, service: crate::udp::Service) {
        self.service = Some(service);
    }

    /// Returns a wait of a caller on this adapter, which must have a thread.
    #[must_use]
    pub fn wait(&self) -> RoceWait {
        RoceWait::new(&self.shared)
    }

    /// Returns the counts of the adapter.
    #[must_use]
    pub fn counts(&self) -> AdapterCounts {
        self.shared.counts()
    }

    /// Returns a handle that moves the packets of the adapter without the core.
    #[must_use]
    pub fn driver(&self) -> RoceDriver {
        RoceDriver(Arc::clone(&self.shared))
    }

    /// Calls `on_event` after events that `progress` has to handle; only the first call counts.
    ///
    /// It is called without the lock of the adapter, by the thread of the adapter or by one that
    /// makes a call or sleeps in a [`RoceWait`]. It must neither wait for another call on the
    /// adapter nor drop the adapter.
    pub fn on_event(&self, on_event: impl Fn() + Send + Sync + 'static) {
        self.shared.set_on_event(Box::new(on_event));
    }
}

/// Moves the packets of an adapter that has no thread, makes waits, and tells its counts.
#[derive(Clone)]
pub struct RoceDriver(Arc<Shared>);

impl RoceDriver {
    pub(crate) fn set_on_event(&self, on_event: Box<dyn Fn() + Send + Sync>) {
        self.0.set_on_event(on_event);
    }

    pub(crate) fn before_sleep(&self) -> bool {
        self.0.before_wait()
    }

    /// Does what is due by `now`.
    pub fn drive(&self, now: Instant) {
        self.0.drive_at(now);
    }

    /// Returns a wait of a caller on the adapter, which must have a thread.
    #[must_use]
    pub fn wait(&self) -> RoceWait {
        RoceWait::new(&self.0)
    }

    /// Returns the counts of the adapter.
    #[must_use]
    pub fn counts(&self) -> AdapterCounts {
        self.0.counts()
    }

    /// Returns the counts of each connection that has not ended.
    #[must_use]
    pub fn connection_counts(&self) -> Vec<ConnectionCounts> {
        self.0
            .enter(|adapter| adapter.connection_counts().collect())
    }

    /// Returns the error of a send that the system refused since the last call, if any.
    ///
    /// The transport repeats a datagram that is not sent, so that a refusal of all of them is seen
    /// as a peer that does not answer.
    #[must_use]
    pub fn refused_send(&self) -> Option<std::io::Error> {
        let number = self.0.port().refused_send();
        number.map(std::io::Error::from_raw_os_error)
    }

    /// Returns why the last attempt, or service point, that had to use local queues could not,
    /// once.
    #[must_use]
    pub fn not_local(&self) -> Option<NotLocal> {
        self.0.enter(|adapter| adapter.not_local.take())
    }

    /// Returns true if requests or messages wait for an answer of a peer.
    ///
    /// A peer whose consumer has yet to decide about a connection request does not count.
    #[must_use]
    pub fn waits_for_peers(&self) -> bool {
        self.0.enter(|adapter| adapter.waits_for_peers())
    }

    /// Returns when [`drive`](Self::drive) has work to do if no packet comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.enter(|adapter| adapter.deadline())
    }
}

/// Makes room for the next object of a table.
fn reserve<T>(table: &mut Slab<T>) -> Result<(), BackendError> {
    let has_room = table.has_room();
    has_room.then_some(()).ok_or(BackendError::Resources)
}

impl Adapter {
    /// Makes room for the transport of a queue pair that is not connected.
    fn reserve_transport(&mut self, key: usize) -> Result<(), BackendError> {
        let has_room = self.pair_in(key, State::Unconnected)?.reserve_transport();
        has_room.then_some(()).ok_or(BackendError::Resources)
    }

    /// Checks the objects and sizes that a request for a queue pair names.
    fn check_queue_pair(&mut self, request: &QueuePairRequest) -> Result<(), BackendError> {
        let queues = [request.request_queue, request.receive_queue];
        let mut queues = queues.into_iter().flatten();
        let known = queues.all(|number| self.completion_queue(number).is_some())
            && request
                .shared_receive_queue
                .is_none_or(|key| self.shared_receives.contains(key.0));
        if !known {
            return Err(BackendError::State);
        }
        let limits = PairLimits {
            work_requests: attributes::WORK_REQUESTS,
            segments: SEGMENTS as u32,
            reads: attributes::READS,
        };
        limits.check(&request.attributes)
    }
}

#[expect(unsafe_code, reason = "the device of this backend is its own code")]
// SAFETY: registered memory is touched only through spans of `Memories`, each found by key, domain,
// privilege and range under the lock of the adapter. `deregister` and the drop of the backend
// remove the memory under that lock. A request is complete only when the transport never sends its
// data again (ROCE-90), and a queue pair that is reset or destroyed has no transport any more.
unsafe impl Backend for RoceBackend {
    type CompletionQueue = RoceCompletionQueue;
    type SendQueue = RoceSendQueue;
    type ReceiveQueue = RoceReceiveQueue;
    type SharedReceiveQueue = RoceReceiveQueue;

    fn ia_attributes(&self) -> IaAttributes {
        self.shared.enter(|adapter| attributes::adapter(adapter))
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        attributes::provider()
    }

    fn extensions(&self) -> Extensions {
        Extensions::all()
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            room(adapter.domains.len(), attributes::DOMAINS)?;
            reserve(&mut adapter.domains)?;
            Ok(DomainKey(adapter.domains.insert(())))
        })
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        self.shared
            .enter(|adapter| adapter.domains.remove(domain.0));
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.shared.check_process()?;
        self.shared
            .enter(|adapter| adapter.memories.register(registration))
            .ok_or(BackendError::Resources)
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.shared
            .enter(|adapter| adapter.memories.deregister(region));
    }

    fn sync(&mut self, _direction: SyncDirection, _address: u64, _length: u64) {
        // Orders earlier stores of other threads before this call, and their later loads after it
        // (LSW-31); the processor moves the data.
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            let limit = u32::try_from(adapter.memories.capacity()).unwrap_or(u32::MAX);
            room(adapter.memories.windows(), limit)?;
            let window = adapter.memories.create_window(domain);
            window.map(WindowKey).ok_or(BackendError::Resources)
        })
    }

    fn destroy_window(&mut self, window: WindowKey) {
        self.shared
            .enter(|adapter| adapter.memories.destroy_window(window.0));
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<RoceCompletionQueue, BackendError> {
        self.shared.check_process()?;
        let ready = Arc::new(AtomicUsize::new(0));
        self.shared.enter(|adapter| {
            room(
                adapter.completion_queues.count(),
                attributes::COMPLETION_QUEUES,
            )?;
            within(depth, attributes::COMPLETIONS)?;
            let queue = Completions::new(depth, Arc::clone(&ready));
            adapter.add_completion_queue(number, queue.ok_or(BackendError::Resources)?)
        })?;
        Ok(RoceCompletionQueue::new(self.executor(), number, ready))
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut RoceCompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            let queue = adapter.completion_queue(queue.number());
            let queue = queue.ok_or(BackendError::State)?;
            within(depth, attributes::COMPLETIONS)?;
            if !queue.ring.reserve(depth) {
                return Err(BackendError::Resources);
            }
            queue.ring.resize(depth);
            Ok(())
        })
    }

    fn destroy_completion_queue(&mut self, queue: RoceCompletionQueue) {
        self.shared
            .enter(|adapter| adapter.remove_completion_queue(queue.number()));
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, RoceReceiveQueue), BackendError> {
        self.shared.check_process()?;
        let key = self.shared.enter(|adapter| {
            room(adapter.shared_receives.len(), attributes::SHARED_QUEUES)?;
            within(depth, attributes::SHARED_RECEIVES)?;
            within(segments, SEGMENTS as u32)?;
            reserve(&mut adapter.shared_receives)?;
            if !adapter.has_room_for_events() {
                return Err(BackendError::Resources);
            }
            let mut queue = SharedReceives::new(token, domain);
            if !queue.reserve(depth as usize) {
                return Err(BackendError::Resources);
            }
            Ok(adapter.shared_receives.insert(queue))
        })?;
        let queue = RoceReceiveQueue::new(self.executor(), Owner::Shared(key), depth as usize);
        Ok((SharedReceiveQueueKey(key), queue))
    }

    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: &mut RoceReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            let state = adapter.shared_receives.get_mut(key.0);
            let state = state.ok_or(BackendError::State)?;
            within(depth, attributes::SHARED_RECEIVES)?;
            if state.outstanding() + queue.committed() > depth as usize {
                return Err(BackendError::State);
            }
            let has_room = state.reserve(depth as usize);
            has_room.then_some(()).ok_or(BackendError::Resources)
        })?;
        queue.set_depth(depth as usize);
        Ok(())
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            let state = adapter.shared_receives.get_mut(key.0);
            let state = state.ok_or(BackendError::State)?;
            state.arm(limit);
            let token = state.token;
            let withdrawn = adapter.withdraw(|event| {
                matches!(*event, ControlEvent::SharedReceiveLimit { queue } if queue == token)
            });
            adapter.check_limit(key.0);
            Ok(withdrawn)
        })
    }

    fn shared_receive_available(&self, key: SharedReceiveQueueKey) -> Option<u32> {
        self.shared
            .enter(|adapter| Some(adapter.shared_receives.get(key.0)?.available() as u32))
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: RoceReceiveQueue,
    ) {
        self.shared.enter(|adapter| {
            if let Some(removed) = adapter.shared_receives.remove(key.0) {
                adapter.withdraw(|event| {
                    matches!(*event, ControlEvent::SharedReceiveLimit { queue }
                        if queue == removed.token)
                });
            }
        });
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<RoceSendQueue, RoceReceiveQueue>, BackendError> {
        self.shared.check_process()?;
        let setup = PairSetup::new(request);
        let key = self.shared.enter(|adapter| {
            adapter.check_queue_pair(request)?;
            let limit = u32::try_from(adapter.options.connections).unwrap_or(u32::MAX);
            room(adapter.pairs.len(), limit)?;
            if !(adapter.reserve_pair() && adapter.completion_queues.reserve_user(&setup)) {
                return Err(BackendError::Resources);
            }
            let pair = Pair::new(request).ok_or(BackendError::Resources)?;
            let key = adapter.pairs.insert(pair);
            adapter.use_completion_queues(key, true);
            Ok(key)
        })?;
        let send = RoceSendQueue::new(self.executor(), key, setup.request_depth);
        let receive = setup
            .shared
            .is_none()
            .then(|| RoceReceiveQueue::new(self.executor(), Owner::Pair(key), setup.receive_depth));
        Ok(QueuePair {
            key: QueuePairKey(key),
            send,
            receive,
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut RoceSendQueue,
        receive: Option<&mut RoceReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        let setup = PairSetup::new(request);
        self.shared.enter(|adapter| {
            adapter.check_queue_pair(request)?;
            let pair = adapter.pairs.get_mut(key.0).ok_or(BackendError::State)?;
            let shrinks = pair.setup.shared.is_none() && setup.receive_depth < pair.receives.len();
            if pair.state != State::Unconnected || shrinks {
                return Err(BackendError::State);
            }
            if pair.setup.shared != setup.shared {
                return Err(BackendError::NotSupported);
            }
            if !(pair.reserve(&setup) && adapter.completion_queues.reserve_user(&setup)) {
                return Err(BackendError::Resources);
            }
            adapter.use_completion_queues(key.0, false);
            if let Some(pair) = adapter.pairs.get_mut(key.0) {
                pair.setup = setup;
            }
            adapter.use_completion_queues(key.0, true);
            Ok(())
        })?;
        send.set_depth(setup.request_depth);
        if let Some(receive) = receive {
            receive.set_depth(setup.receive_depth);
        }
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut RoceSendQueue,
        receive: Option<&mut RoceReceiveQueue>,
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        let was_in_error = self.shared.enter(|adapter| adapter.reset(key.0));
        was_in_error.then_some(()).ok_or(BackendError::State)?;
        self.shared.send_pending();
        send.clear();
        if let Some(receive) = receive {
            receive.clear();
        }
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: RoceSendQueue,
        _receive: Option<RoceReceiveQueue>,
    ) {
        self.shared.enter(|adapter| adapter.destroy_pair(key.0));
        self.shared.send_pending();
    }

    fn set_high_watermarks(
        &mut self,
        key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        self.shared.enter(|adapter| {
            let pair = adapter.pairs.get_mut(key.0).ok_or(BackendError::State)?;
            pair.watermarks = Watermarks { soft, hard };
            let held = u32::from(pair.current.is_some());
            adapter.check_watermarks(key.0, held);
            Ok(())
        })?;
        self.shared.send_pending();
        Ok(())
    }

    fn receive_info(&self, key: QueuePairKey) -> ReceiveInfo {
        let held = self.shared.enter(|adapter| {
            let pair = adapter.pairs.get(key.0);
            pair.map(|pair| u32::from(pair.current.is_some()))
        });
        ReceiveInfo {
            allocated: held,
            // Messages of a connection arrive in order.
            span: held,
        }
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.listen_at(token, qualifier, None)
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.shared
            .enter(|adapter| adapter.stop_listening(listener.0));
        self.shared.send_pending();
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        self.shared.check_process()?;
        let peer = request.address.socket_address();
        let peer = canonical(peer.ok_or(BackendError::Address)?);
        let port = self.shared.port();
        let route = port.route(peer)?;
        let local = self.shared.dial(route.source, peer, request.qualifier)?;
        let port = self.shared.enter(|adapter| {
            adapter.reserve_transport(key.0)?;
            let ways = (route, local);
            adapter.connect(key.0, ways, peer, request.qualifier, request.private_data)?;
            Ok(adapter.address.port())
        });
        if let Ok(Some(local)) = local {
            self.shared.dialled(local);
        }
        let port = port?;
        self.shared.send_pending();
        Ok(port.into())
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        let id = u32::try_from(request.0).map_err(|_| BackendError::State)?;
        self.shared.enter(|adapter| {
            adapter.reserve_transport(key.0)?;
            adapter.accept(id, key.0, private_data)
        })?;
        self.shared.send_pending();
        Ok(())
    }

    fn is_proven(&self, request: RequestKey) -> bool {
        let id = u32::try_from(request.0).ok();
        self.shared
            .enter(|adapter| id.is_some_and(|id| adapter.is_proven(id)))
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        if let Ok(id) = u32::try_from(request.0) {
            self.shared
                .enter(|adapter| adapter.reject(id, by_consumer, private_data));
            self.shared.send_pending();
        }
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        let broken = mode == DisconnectMode::Broken;
        // Requests whose acknowledgement has come are no longer under way.
        self.shared.catch_up();
        self.shared
            .enter(|adapter| adapter.disconnect(key.0, broken));
        self.shared.send_pending();
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        self.shared.next_event(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.shared.is_threaded() {
            return None;
        }
        let look = self.shared.next_look();
        self.shared.enter(|adapter| {
            let now = adapter.has_output().then_some(adapter.now);
            now.or_else(|| adapter.deadline().into_iter().chain(look).min())
        })
    }
}

impl RoceBackend {
    /// Listens, at one address of the adapter or at all.
    pub(crate) fn listen_at(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
        address: Option<IpAddr>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.shared.check_process()?;
        let (qualifier, claimed) = match qualifier {
            Some(qualifier) => (qualifier, self.claim(qualifier)?),
            None => (self.claim_another()?.into(), true),
        };
        let key = self
            .shared
            .enter(|adapter| adapter.listen(token, qualifier, address));
        if key.is_err() && claimed {
            self.shared.port().release(port_of(qualifier));
        }
        Ok((ListenerKey(key?), qualifier))
    }

    /// Claims the port of a qualifier; returns false if the adapter has it already.
    fn claim(&self, qualifier: u64) -> Result<bool, BackendError> {
        let port = port_of(qualifier);
        if self.shared.enter(|adapter| adapter.has_port(port)) {
            return Ok(false);
        }
        match self.shared.port().claim(port) {
            Ok(()) => Ok(true),
            Err(refused) => Err(self.unclaimed(refused)),
        }
    }

    /// Returns the reason for a port that is not claimed.
    fn unclaimed(&self, refused: ClaimError) -> BackendError {
        if let ClaimError::NotLocal(reason) = refused {
            self.shared
                .enter(|adapter| adapter.not_local = Some(reason));
        }
        match refused {
            ClaimError::Descriptors | ClaimError::NotLocal(NotLocal::Descriptors) => {
                BackendError::Descriptors
            }
            ClaimError::Prohibited => BackendError::Prohibited,
            ClaimError::InUse | ClaimError::NotLocal(NotLocal::Taken) => {
                BackendError::QualifierInUse
            }
            ClaimError::Refused | ClaimError::NotLocal(_) => BackendError::Resources,
        }
    }

    /// Claims a port that the adapter does not have.
    pub(crate) fn claim_another(&mut self) -> Result<u16, BackendError> {
        for _ in PORTS {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(*PORTS.start());
            if self.shared.enter(|adapter| adapter.has_port(port)) {
                continue;
            }
            match self.shared.port().claim(port) {
                Ok(()) => return Ok(port),
                Err(ClaimError::InUse | ClaimError::NotLocal(NotLocal::Taken)) => {}
                Err(refused) => return Err(self.unclaimed(refused)),
            }
        }
        Err(BackendError::QualifierUnavailable)
    }
}

impl Drop for RoceBackend {
    /// Ends the adapter; in a child of `fork`, leaves the parent's as it is.
    fn drop(&mut self) {
        self.shared.enter(Adapter::close);
        self.shared.send_pending();
        #[cfg(feature = "udp")]
        if let Some(service) = self.service.take() {
            if self.shared.is_forked() {
                // The thread is the parent's.
                core::mem::forget(service);
                return;
            }
            // The thread gives the ports back when it ends.
            if service.is_current() {
                return;
            }
            self.shared.leave_port();
            drop(service);
        }
        self.shared.end();
    }
}
