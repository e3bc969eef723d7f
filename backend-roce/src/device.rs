//! The adapter as a device of verbs: queue pairs that are attached by their attributes.
//!
//! A face beside the one for the core. It does not check who posts what, as the core does: keys,
//! ranges and rights of local segments are checked when a request is carried out, those of remote
//! ones by the peer's responder.

mod connections;
mod drains;
#[cfg(feature = "udp")]
mod finish;
mod posts;
mod windows;

pub use posts::{Bind, Binding, Data, Operation, Post, PostError, Posts};

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_core::backend::{
    Backend as _, BackendError, ControlEvent, DeviceFailure, DomainKey, QueuePairKey,
    QueuePairRequest, RegionKeys, Registration, Segment, SharedReceiveQueueKey,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::memory::Region;
use dat_core::sync::Turns;
use dat_queues::{Detail, Opcode, Owner, Receive, State};

#[cfg(feature = "udp")]
pub(crate) use crate::adapter::PORTS;
use crate::adapter::{
    Adapter, Pair, PrivateForm, ReceiveAttributes, RemoteRights, SEGMENTS, SendAttributes,
};
use crate::attributes;
use crate::backend::{RoceBackend, RoceDriver};
use crate::counts::AdapterCounts;
use crate::options::RoceOptions;
use crate::port::{LocalNumber, Port};
use crate::proto::packet::NakCode;
#[cfg(feature = "udp")]
use crate::proto::packet::UDP_PORT;
use crate::queues::{RoceCompletionQueue, RoceReceiveQueue};
use crate::shared::Shared;
use posts::taken;

/// Most bytes of a request whose data is copied when it is posted.
pub const INLINE_MAX: u32 = 1024;

/// An adapter as a device of verbs.
///
/// Calls may come from any thread. Dropping it ends its queue pairs and removes its regions.
pub struct RoceDevice {
    backend: Mutex<RoceBackend>,
    shared: Arc<Shared>,
    /// Number of the next completion queue.
    next_queue: AtomicU32,
}

/// Access to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionAccess {
    /// Receives, Reads and atomics of this side may write.
    pub local_write: bool,
    /// Access of peers.
    pub remote: RemoteRights,
    /// Address of the first byte in requests; that of the memory if there is none.
    pub address: Option<u64>,
}

impl RegionAccess {
    fn registration(&self, domain: DomainKey, region: &Region) -> Registration {
        let mut privileges = MemoryPrivileges::LOCAL_READ;
        privileges.set(MemoryPrivileges::LOCAL_WRITE, self.local_write);
        privileges.set(MemoryPrivileges::REMOTE_READ, self.remote.read);
        privileges.set(MemoryPrivileges::REMOTE_WRITE, self.remote.write);
        Registration::new(domain, region, privileges)
    }

    /// Returns the address of the first byte in requests.
    fn address_of(&self, region: &Region) -> u64 {
        self.address.unwrap_or(region.address())
    }
}

/// Parameters of a new queue pair.
#[derive(Clone, Copy)]
pub struct PairOptions<'a> {
    /// Protection domain.
    pub domain: DomainKey,
    /// Completion queue of requests.
    pub sends: &'a DeviceQueue,
    /// Completion queue of receives.
    pub receives: &'a DeviceQueue,
    /// Shared receive queue that it takes from.
    pub shared: Option<SharedReceiveQueueKey>,
    /// Most requests.
    pub send_depth: u32,
    /// Most receives.
    pub receive_depth: u32,
    /// Most bytes of a request whose data is copied when it is posted.
    pub inline: u32,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState {
    /// New or reset.
    Unattached,
    /// Ready to receive.
    Receiving,
    /// Ready to send.
    Sending,
    /// Failed: what is posted is flushed.
    Failed,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCompletion {
    /// Token of the request or receive.
    pub token: u64,
    /// Status.
    pub status: DtoStatus,
    /// Operation that completed.
    pub opcode: Opcode,
    /// Bytes of a receive, a Read or an atomic.
    pub length: u32,
    /// QPN of this side.
    pub qpn: u32,
    /// Immediate data, or the key that the message has invalidated.
    pub immediate: Option<u32>,
    /// QPN of the sender of a datagram.
    pub source: Option<u32>,
    /// With `RemoteResponder`, the peer may have failed for reasons of its own, such as memory of a
    /// receive that is not there. A datagram may have come over IPv4, a message may have
    /// invalidated a key.
    pub detail: Detail,
}

/// A completion queue.
pub struct DeviceQueue(RoceCompletionQueue);

/// The least numbers that queues have in turn, so that one rests before it is used again.
const LEAST_NUMBERS: usize = 128;

impl DeviceQueue {
    /// Returns its number, which events name.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Arms the queue: its next completion raises an event, even if others wait now.
    pub fn arm(&self, solicited_only: bool) {
        self.0.arm_for_next(solicited_only);
    }
}

impl Adapter {
    /// Returns the key of an attached queue pair.
    fn attached(&self, qpn: u32) -> Result<usize, BackendError> {
        self.numbered_pair(qpn).ok_or(BackendError::State)
    }
}

impl RoceDevice {
    /// Makes a device over `port`, whose UDP port a QPN can name, without a thread.
    ///
    /// Polls take the packets that have come; timers run in [`RoceDriver::drive`].
    ///
    /// # Panics
    /// If there is no memory for the tables of the adapter.
    pub fn over(port: impl Port + 'static, options: RoceOptions) -> Self {
        Self::of(RoceBackend::over(port, options)).expect("memory for the ports of a device")
    }

    pub(crate) fn of(backend: RoceBackend) -> Option<Self> {
        let shared = Arc::clone(backend.shared());
        let is_added = shared.enter(|adapter| {
            adapter.private_form = PrivateForm::Plain;
            adapter.number_port(adapter.address.port())
        });
        is_added.then(|| Self {
            backend: Mutex::new(backend),
            shared,
            next_queue: AtomicU32::new(0),
        })
    }

    /// Claims port 4791, if that is free (ROCE-261).
    #[cfg(feature = "udp")]
    pub(crate) fn claim_common_port(&self) {
        if self.shared.port().claim(UDP_PORT).is_ok() {
            self.shared.enter(|adapter| adapter.hold_port(UDP_PORT));
        }
    }

    fn backend(&self) -> MutexGuard<'_, RoceBackend> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads something of the adapter, as a function for events may.
    fn look<T>(&self, read: impl FnOnce(&Adapter) -> Option<T>) -> Option<T> {
        if self.shared.is_forked() {
            return None;
        }
        self.shared.enter_briefly(|adapter| read(adapter))
    }

    /// Acts on a queue pair, by its key in the adapter.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    fn with_pair<T>(
        &self,
        qpn: u32,
        act: impl FnOnce(&mut Adapter, usize) -> T,
    ) -> Result<T, BackendError> {
        self.shared.enter(|adapter| {
            let key = adapter.attached(qpn)?;
            Ok(act(adapter, key))
        })
    }

    /// Reads something of a queue pair, as a function for events may.
    fn look_at_pair<T>(
        &self,
        qpn: u32,
        read: impl FnOnce(&Adapter, &Pair) -> Option<T>,
    ) -> Option<T> {
        self.look(|adapter| read(adapter, adapter.pairs.get(adapter.attached(qpn).ok()?)?))
    }

    /// Returns the attributes of the adapter, as the core has them.
    #[must_use]
    pub fn attributes(&self) -> IaAttributes {
        self.shared.enter(|adapter| attributes::adapter(adapter))
    }

    /// Returns a handle that moves the packets of the device and tells its counts.
    #[must_use]
    pub fn driver(&self) -> RoceDriver {
        self.backend().driver()
    }

    /// Returns the counts of the adapter.
    #[must_use]
    pub fn counts(&self) -> AdapterCounts {
        self.shared.enter(|adapter| adapter.counts())
    }

    /// Calls `act` with the events of the device in order, without its lock; only the first call
    /// counts.
    ///
    /// [`ControlEvent::Answered`] is of a queue pair that connects, or that has drained. `act` must
    /// neither wait for another call on the device nor drop it.
    pub fn on_event(&self, act: impl Fn(ControlEvent) + Send + Sync + 'static) {
        let shared = Arc::downgrade(&self.shared);
        // One thread delivers at a time: no event overtakes another.
        let turns = Turns::new();
        self.shared.set_on_event(Box::new(move || {
            let mut turn = turns.take();
            while let Some(own) = turn {
                while let Some(shared) = shared.upgrade()
                    && let Some(event) = shared.enter_briefly(Adapter::next_event)
                {
                    act(event);
                }
                turn = own.end();
            }
        }));
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// `Resources`: there are too many, or there is no memory. `State`: in a child of `fork`, as
    /// of all calls.
    pub fn create_domain(&self) -> Result<DomainKey, BackendError> {
        self.backend().create_domain()
    }

    /// Removes a protection domain.
    pub fn destroy_domain(&self, domain: DomainKey) {
        self.backend().destroy_domain(domain);
    }

    /// Registers memory; returns its key, for local and for remote access.
    ///
    /// # Errors
    /// `Resources`: there are too many regions, or there is no memory.
    pub fn register(
        &self,
        domain: DomainKey,
        region: &Region,
        access: RegionAccess,
    ) -> Result<u32, BackendError> {
        self.shared.check_process()?;
        let registration = access.registration(domain, region);
        let keys = self.shared.enter(|adapter| {
            let memories = &mut adapter.memories;
            memories.register_at(
                &registration,
                access.address_of(region),
                access.remote.atomic,
            )
        });
        Ok(keys.ok_or(BackendError::Resources)?.local)
    }

    /// Gives a region other memory, access or another domain; it keeps its key.
    ///
    /// The former memory is not used any more.
    ///
    /// # Errors
    /// `State`: there is no such region, or a window is bound to it.
    pub fn reregister(
        &self,
        key: u32,
        domain: DomainKey,
        region: &Region,
        access: RegionAccess,
    ) -> Result<(), BackendError> {
        let registration = access.registration(domain, region);
        let is_there = self.shared.enter(|adapter| {
            let (address, atomics) = (access.address_of(region), access.remote.atomic);
            adapter
                .memories
                .replace(key, &registration, address, atomics)
        });
        is_there.then_some(()).ok_or(BackendError::State)
    }

    /// Removes a region.
    pub fn deregister(&self, key: u32) {
        let keys = RegionKeys {
            object: 0,
            local: key,
            remote: key,
        };
        self.backend().deregister(keys);
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// `Resources`: it is too large, there are too many, or there is no memory.
    pub fn create_queue(&self, depth: u32) -> Result<DeviceQueue, BackendError> {
        let mut backend = self.backend();
        // The adapter has a table by number. With the lock held, half of these numbers stay free.
        let count = self
            .shared
            .enter(|adapter| adapter.completion_queues.count());
        let numbers = (2 * count).next_power_of_two().max(LEAST_NUMBERS);
        loop {
            let next = self.next_queue.fetch_add(1, Ordering::Relaxed);
            let number = next % numbers as u32;
            match backend.create_completion_queue(number, depth) {
                Err(BackendError::State) if !self.shared.is_forked() => {}
                made => return made.map(DeviceQueue),
            }
        }
    }

    /// Changes the depth of a completion queue.
    ///
    /// # Errors
    /// - `Resources`: it is too large, or there is no memory.
    /// - `State`: more completions wait.
    pub fn resize_queue(&self, queue: &mut DeviceQueue, depth: u32) -> Result<(), BackendError> {
        if queue.0.ready() > depth as usize {
            return Err(BackendError::State);
        }
        self.backend().resize_completion_queue(&mut queue.0, depth)
    }

    /// Returns true if completions of a queue are lost.
    ///
    /// The queue raises an event then, armed or not.
    #[must_use]
    pub fn has_overrun(&self, number: u32) -> bool {
        self.look(|adapter| adapter.has_overrun(number).then_some(()))
            .is_some()
    }

    /// Removes a completion queue, which no queue pair uses.
    pub fn destroy_queue(&self, queue: DeviceQueue) {
        self.backend().destroy_completion_queue(queue.0);
    }

    /// Takes at most `most` completions in order; returns how many.
    ///
    /// A poll that finds none takes a datagram, if one has come.
    ///
    /// # Errors
    /// The queue failed, and all of its completions are taken.
    pub fn poll(
        &self,
        queue: &DeviceQueue,
        most: usize,
        mut each: impl FnMut(DeviceCompletion),
    ) -> Result<usize, DeviceFailure> {
        let mut take = || {
            queue.0.take(most, |entry| {
                each(DeviceCompletion {
                    token: entry.completion.token,
                    status: entry.completion.status,
                    opcode: entry.opcode,
                    length: entry.completion.length,
                    // The token of the queue pair.
                    qpn: entry.completion.queue_pair as u32,
                    immediate: entry.immediate,
                    source: Some(entry.source).filter(|qpn| *qpn != 0),
                    detail: entry.detail,
                });
            })
        };
        let taken = take()?;
        if taken > 0 || !self.shared.poll_sockets() {
            return Ok(taken);
        }
        take()
    }

    /// Makes a shared receive queue; `token` names it in its events.
    ///
    /// # Errors
    /// `Resources`: it is too large, there are too many, or there is no memory.
    pub fn create_shared_queue(
        &self,
        token: u64,
        domain: DomainKey,
        depth: u32,
    ) -> Result<SharedReceiveQueueKey, BackendError> {
        let mut backend = self.backend();
        let made = backend.create_shared_receive_queue(token, domain, depth, SEGMENTS as u32);
        made.map(|(key, _)| key)
    }

    /// Changes the depth of a shared receive queue.
    ///
    /// # Errors
    /// - `Resources`: it is too large, or there is no memory.
    /// - `State`: it has more receives, or there is no such queue.
    pub fn resize_shared_queue(
        &self,
        queue: SharedReceiveQueueKey,
        depth: u32,
    ) -> Result<(), BackendError> {
        let mut backend = self.backend();
        let mut handle = RoceReceiveQueue::new(backend.executor(), Owner::Shared(queue.0), 0);
        backend.resize_shared_receive_queue(queue, &mut handle, depth)
    }

    /// Arms the limit of a shared receive queue: with fewer receives, it raises an event once.
    ///
    /// # Errors
    /// `State`: there is no such queue.
    pub fn arm_limit(&self, queue: SharedReceiveQueueKey, limit: u32) -> Result<(), BackendError> {
        let armed = self.backend().arm_shared_receive_limit(queue, limit);
        armed.map(|_withdrawn| ())
    }

    /// Removes a shared receive queue, which no queue pair uses.
    pub fn destroy_shared_queue(&self, queue: SharedReceiveQueueKey) {
        let handle = RoceReceiveQueue::new(self.backend().executor(), Owner::Shared(queue.0), 0);
        self.backend().destroy_shared_receive_queue(queue, handle);
    }

    /// Makes a queue pair; returns its QPN, which names the port of the device.
    ///
    /// # Errors
    /// - `Resources`: a size is above its limit, there are too many, no port or number is left, or
    ///   there is no memory.
    /// - `State`: there is no such queue.
    pub fn create_pair(&self, options: &PairOptions<'_>) -> Result<u32, BackendError> {
        if options.inline > INLINE_MAX {
            return Err(BackendError::Resources);
        }
        let size = |size: u32| i32::try_from(size).map_err(|_| BackendError::Resources);
        let attributes = EpAttributes {
            max_request_dtos: size(options.send_depth)?,
            max_recv_dtos: size(options.receive_depth)?,
            ..EpAttributes::DEFAULT
        };
        let mut request = QueuePairRequest::new(0, options.domain, attributes);
        request.request_queue = Some(options.sends.number());
        request.receive_queue = Some(options.receives.number());
        request.shared_receive_queue = options.shared;
        let mut backend = self.backend();
        let QueuePairKey(key) = backend.create_queue_pair(&request)?.key;
        let inline = options.inline as usize;
        let has_room = self.shared.enter(|adapter| {
            let pair = adapter.pairs.get_mut(key);
            pair.is_some_and(|pair| pair.reserve_inline(inline))
        });
        let number = has_room.then(|| self.number_pair(&mut backend, key));
        let number = number.flatten();
        if number.is_none() {
            self.shared.enter(|adapter| adapter.destroy_pair(key));
        }
        number.ok_or(BackendError::Resources)
    }

    /// Gives a queue pair a QPN; claims another port if those of the device have none left.
    fn number_pair(&self, backend: &mut RoceBackend, key: usize) -> Option<u32> {
        let number = |adapter: &mut Adapter| adapter.number_pair(key);
        if let Some(qpn) = self.shared.enter(number) {
            return Some(qpn);
        }
        let port = backend.claim_another().ok()?;
        if !self.shared.enter(|adapter| adapter.number_port(port)) {
            self.shared.port().release(port);
            return None;
        }
        self.shared.enter(number)
    }

    /// Returns the state of a queue pair.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn pair_state(&self, qpn: u32) -> Result<PairState, BackendError> {
        let state = self.with_pair(qpn, |adapter, key| Some(adapter.pairs.get(key)?.state))?;
        Ok(match state.ok_or(BackendError::State)? {
            State::Unconnected => PairState::Unattached,
            State::Connecting | State::Accepting => PairState::Receiving,
            State::Connected => PairState::Sending,
            State::Error => PairState::Failed,
        })
    }

    /// Returns the refusal by which the responder of a queue pair has failed, if it did.
    #[must_use]
    pub fn fault(&self, qpn: u32) -> Option<NakCode> {
        self.look_at_pair(qpn, |_, pair| pair.transport.as_ref()?.fault())
    }

    /// Returns true if completions of a queue pair are lost: a queue of it has failed.
    #[must_use]
    pub fn loses_completions(&self, qpn: u32) -> bool {
        let loses = self.look_at_pair(qpn, |adapter, pair| {
            let mut queues = pair.setup.completion_queues();
            Some(queues.any(|number| adapter.has_overrun(number)))
        });
        loses == Some(true)
    }

    /// Makes a queue pair ready to receive (RTR).
    ///
    /// # Errors
    /// - `State`: it is in another state than [`PairState::Unattached`].
    /// - `Address`: the addresses are of different families.
    /// - `Unreachable`: queues in memory are the only way, and the peer has none.
    /// - `Resources`: there is no memory.
    pub fn ready_to_receive(&self, qpn: u32, with: &ReceiveAttributes) -> Result<(), BackendError> {
        let local = self.queues_to(with)?;
        self.with_pair(qpn, |adapter, key| adapter.attach(key, with, local))?
    }

    /// Returns the pair of queues to a peer of this host; waits until it is made (ROCE-273).
    fn queues_to(&self, with: &ReceiveAttributes) -> Result<Option<LocalNumber>, BackendError> {
        let (peer, is_ours) = with.peer();
        // A queue pair of the same adapter needs no queues.
        let is_own = peer.ip() == with.local;
        let has_port = || self.shared.enter(|adapter| adapter.has_port(peer.port()));
        if !is_ours || is_own && has_port() {
            return Ok(None);
        }
        self.shared.queues_to(with.local, peer)
    }

    /// Makes a queue pair ready to send (RTS).
    ///
    /// # Errors
    /// `State`: it is in another state than [`PairState::Receiving`].
    pub fn ready_to_send(&self, qpn: u32, with: &SendAttributes) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.start_requests(key, with))?
    }

    /// Makes a queue pair for datagrams ready to receive: those that name this key (Q_Key).
    ///
    /// # Errors
    /// - `State`: it is in another state than [`PairState::Unattached`].
    /// - `Resources`: there is no memory.
    pub fn receive_datagrams(&self, qpn: u32, own: u32) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.attach_datagrams(key, own))?
    }

    /// Makes a queue pair for datagrams ready to send.
    ///
    /// # Errors
    /// `State`: it is in another state than [`PairState::Receiving`], or is none for datagrams.
    pub fn send_datagrams(&self, qpn: u32) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.start_datagrams(key))?
    }

    /// Changes the key of a queue pair for datagrams.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn set_datagram_key(&self, qpn: u32, own: u32) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.set_datagram_key(key, own))
    }

    /// Changes the rights of the peer of a queue pair.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn set_rights(&self, qpn: u32, rights: RemoteRights) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.set_rights(key, rights))
    }

    /// Changes the code of the time after which the peer repeats what found no receive.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn set_not_ready_timer(&self, qpn: u32, code: u8) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.set_not_ready_timer(key, code))
    }

    /// Puts a queue pair in error: what is posted is flushed.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn fail_pair(&self, qpn: u32) -> Result<(), BackendError> {
        self.change_pair(qpn, Adapter::fail_pair)
    }

    /// Makes a queue pair as it was when it was new; what was posted has no completions.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn reset_pair(&self, qpn: u32) -> Result<(), BackendError> {
        self.change_pair(qpn, Adapter::clear_attached)
    }

    /// Removes a queue pair. Acknowledgements that it owes leave first.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn destroy_pair(&self, qpn: u32) -> Result<(), BackendError> {
        self.change_pair(qpn, Adapter::destroy_pair)
    }

    fn change_pair(
        &self,
        qpn: u32,
        change: impl FnOnce(&mut Adapter, usize),
    ) -> Result<(), BackendError> {
        self.shared.check_process()?;
        self.shared.enter_and_send(|adapter| {
            let key = adapter.attached(qpn)?;
            change(adapter, key);
            Ok(())
        })
    }

    /// Lets `posts` post requests to a queue pair, under one lock; they leave afterwards.
    ///
    /// # Errors
    /// [`PostError::State`]: the queue pair takes none; `posts` is not called.
    pub fn post<R>(
        &self,
        qpn: u32,
        posts: impl FnOnce(&mut Posts<'_>) -> R,
    ) -> Result<R, PostError> {
        self.shared.enter_and_send(|adapter| {
            let key = adapter.attached(qpn).map_err(|_| PostError::State)?;
            let is_behind = adapter.begin_posts(key).ok_or(PostError::State)?;
            let result = posts(&mut Posts { adapter, key });
            adapter.end_device_posts(key, is_behind);
            Ok(result)
        })
    }

    /// Posts a receive to a queue pair.
    ///
    /// # Errors
    /// It is not taken, for one of the reasons of [`PostError`].
    pub fn post_receive(
        &self,
        qpn: u32,
        token: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        let segments = taken(segments)?;
        self.shared.enter_and_send(|adapter| {
            let key = adapter.attached(qpn).map_err(|_| PostError::State)?;
            let pair = adapter.pairs.get(key).ok_or(PostError::State)?;
            if pair.setup.shared.is_some() {
                return Err(PostError::Invalid);
            }
            if Pair::receives_outstanding(pair) >= pair.setup.receive_depth {
                return Err(PostError::Full);
            }
            let receive = Receive { token, segments };
            adapter.post_receives(Owner::Pair(key), core::iter::once(receive));
            Ok(())
        })
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// It is not taken, for one of the reasons of [`PostError`].
    pub fn post_shared(
        &self,
        queue: SharedReceiveQueueKey,
        token: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        let segments = taken(segments)?;
        self.shared.enter(|adapter| {
            let state = adapter.shared_receives.get(queue.0);
            if state.ok_or(PostError::State)?.is_full() {
                return Err(PostError::Full);
            }
            let receive = Receive { token, segments };
            adapter.post_receives(Owner::Shared(queue.0), core::iter::once(receive));
            Ok(())
        })
    }
}
