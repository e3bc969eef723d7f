//! The backend of a paravirtual device.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, ListenerKey,
    QueuePair, QueuePairKey, QueuePairRequest, ReceiveInfo, RegionKeys, Registration, RequestKey,
    SharedReceiveQueueKey, SyncDirection,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::time::Instant;

use super::channel::Failure;
use super::completion_queue::PvrdmaCompletionQueue;
use super::defs::{
    BASIC, CreateCompletionQueue, CreateDomain, CreateRegion, CreateSharedReceiveQueue,
    CreatedRegion, ENTRY_BYTES, ModifySharedReceiveQueue, PAGE, Receive, SHARED_LIMIT, Words,
    access, command, receive_stride, ring_state,
};
use super::device::{Device, OpenFailure, READS, Report};
use super::pages::{Held, Pages, View, pages_for};
use super::platform::{Mapping, PairState, Parts, RegionSlot, Rendezvous, Storage};
use super::receive_queue::PvrdmaReceiveQueue;
use super::ring::{Ring, shared_name};
use super::send_queue::PvrdmaSendQueue;
use super::shared_receive::PvrdmaSharedReceiveQueue;
use super::sift::KEPT;
use super::slots::{HeldSlots, Slots};
use crate::calls::common_calls;
use crate::hal::Hal;
use crate::mlx5::storage::{
    NO_QUEUE, QUEUE_PAIRS, QueuePairSlot, RequestSlot, Tables, Whereabouts,
};
use crate::mlx5::{Limits, attributes};
use crate::sideband::Peer;
use crate::words::RegisterWords;

/// Most events of destroyed objects that one call of `poll_control` skips.
const ROUNDS: usize = 64;

/// A paravirtual adapter.
#[derive(Debug)]
pub struct PvrdmaBackend<'s, W: RegisterWords, M, S, H> {
    name: &'static str,
    /// The device; dropped, and thereby reset, before everything that it uses.
    pub(super) device: Device<'s, W, H>,
    pub(super) doorbells: W,
    mapping: M,
    pub(crate) sideband: S,
    hal: H,
    segments: u32,
    completions: u32,
    shared_buffers: u32,
    pub(super) flushes: bool,
    pub(super) pages: Pages<'s>,
    pub(super) slots: Slots<'s>,
    pub(crate) tables: Tables<'s>,
    pub(super) pair_states: &'s mut [PairState],
    regions: &'s mut [RegionSlot],
    /// Device number of a completion queue that is never polled.
    ///
    /// It serves work queues without dispatcher.
    nowhere: u32,
    /// Reports taken ahead, the oldest first.
    pub(super) kept: [Option<Report>; KEPT],
    /// Index at which the search for a free queue pair starts.
    ///
    /// A freed slot is thereby reused as late as possible.
    next_pair: usize,
    /// Set if the next call polls the connection manager first.
    pub(super) sideband_first: bool,
    /// Set if more events may be pending than the last call handled.
    more: bool,
}

/// Converts a count, which the core checked to be non-negative.
pub(super) fn checked(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

impl<'s, W: RegisterWords, M: Mapping, S: Rendezvous, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    /// Starts a device: reads its version, shares a region, and sets its port address.
    ///
    /// # Errors
    /// [`OpenFailure`] names the failed step; the device was reset if it had started.
    pub fn open(parts: Parts<'s, W, M, S, H>, storage: Storage<'s>) -> Result<Self, OpenFailure> {
        let lives: &'s [QueuePairSlot] = storage.queue_pairs;
        let requests: &'s [RequestSlot] = storage.requests;
        let most = QUEUE_PAIRS
            .min(storage.pair_states.len())
            .min(lives.len() / 2);
        let tables = Tables {
            state: storage.state.0,
            lives: lives.get(..most.saturating_mul(2)).unwrap_or_default(),
            completion_queues: storage.completion_queues,
            shared_receive_queues: storage.shared_receive_queues,
            requests,
            windows: &[],
        };
        tables.clear();
        for region in storage.regions.iter_mut() {
            *region = RegionSlot::EMPTY;
        }
        let mut pages = Pages::new(parts.memory, storage.pages_taken);
        let device = Device::open(
            parts.registers,
            parts.doorbell_page,
            parts.address,
            &mut pages,
            parts.messages.map(|lent| lent.0),
        )?;
        let mut backend = Self {
            name: parts.name,
            device,
            doorbells: parts.doorbells,
            mapping: parts.mapping,
            sideband: parts.sideband,
            hal: parts.hal,
            segments: parts.segments,
            completions: parts.completions,
            shared_buffers: parts.shared_buffers,
            flushes: parts.flushes,
            pages,
            slots: Slots::new(requests, storage.requests_taken),
            tables,
            pair_states: storage.pair_states,
            regions: storage.regions,
            nowhere: 0,
            kept: [None; KEPT],
            next_pair: 0,
            sideband_first: true,
            more: false,
        };
        let (directory, _, _) = backend
            .pages
            .take_ring(2)
            .map_err(|_| OpenFailure::Memory)?;
        let nowhere = backend.device.make(
            command::CREATE_COMPLETION_QUEUE,
            &CreateCompletionQueue {
                directory,
                context: backend.device.context,
                entries: PAGE as u32 / ENTRY_BYTES,
                pages: 2,
                reserved: 0,
            },
        );
        let failed = OpenFailure::Command(command::CREATE_COMPLETION_QUEUE);
        backend.nowhere = nowhere.map_err(|_| failed)?;
        Ok(backend)
    }

    fn answered<T>(&self, answer: Result<T, Failure>) -> Result<T, BackendError> {
        answer.map_err(|failure| {
            if failure != Failure::Refused {
                self.tables.fault(failure.into());
            }
            failure.into()
        })
    }

    pub(super) fn ask<Q: Words, A: Words>(
        &mut self,
        number: u32,
        question: &Q,
    ) -> Result<A, BackendError> {
        let answer = self.device.ask(number, question);
        self.answered(answer)
    }

    fn create<Q: Words>(&mut self, number: u32, what: &Q) -> Result<u32, BackendError> {
        let made = self.device.make(number, what);
        self.answered(made)
    }

    /// Destroys an object, which the device does not use after the return.
    pub(super) fn destroy(&mut self, number: u32, handle: u32) {
        if let Err(failure) = self.device.destroy(number, handle) {
            self.tables.fault(failure.into());
        }
    }

    pub(super) fn bring(
        &mut self,
        number: u32,
        to: u32,
        peer: Option<Peer>,
    ) -> Result<(), BackendError> {
        let brought = self.device.bring(number, to, peer);
        self.answered(brought)
    }

    /// Returns the latest generation of a queue pair.
    pub(super) fn life(&self, key: QueuePairKey) -> Option<&'s QueuePairSlot> {
        self.tables.latest_at(key.0)
    }

    /// Returns the device number of a queue pair, unless the device has forgotten it.
    pub(crate) fn number(&self, key: QueuePairKey) -> Result<u32, BackendError> {
        self.life(key)
            .map(|life| life.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE && !self.was_let_go(key))
            .ok_or(BackendError::State)
    }

    /// Returns the core's token of the queue pair with a device number.
    pub(super) fn token(&self, number: u32) -> Option<u64> {
        let life = self.tables.latest_at(self.place(number)?)?;
        Some(life.token.load())
    }

    /// Returns the device number of a completion queue, or `nowhere` without a queue.
    pub(super) fn completion_number(&self, name: Option<u16>) -> Result<u32, BackendError> {
        let Some(name) = name else {
            return Ok(self.nowhere);
        };
        self.tables.completion_number(name)
    }

    pub(super) fn segments(&self) -> u32 {
        self.device.capabilities.segments.min(self.segments)
    }

    /// Returns the number of ring slots for `descriptors` descriptors, a power of two.
    pub(super) fn room(&self, descriptors: u32) -> Result<u32, BackendError> {
        descriptors
            .max(1)
            .checked_next_power_of_two()
            .filter(|room| *room <= self.device.capabilities.work_requests)
            .ok_or(BackendError::Resources)
    }

    /// Takes memory and slots for a shared receive queue of `buffers` buffers.
    fn shared_room(&mut self, buffers: u32, stride: u32) -> Result<SharedRoom<'s>, BackendError> {
        let limit = self.limits().shared_buffers;
        let entries = buffers
            .max(1)
            .checked_next_power_of_two()
            .filter(|entries| *entries <= limit)
            .ok_or(BackendError::Resources)?;
        let pages = pages_for(u64::from(entries).saturating_mul(u64::from(stride)));
        let pages = pages.saturating_add(1);
        let slots = self.slots.take(entries)?;
        match self.pages.take_ring(pages) {
            Ok(ring) => Ok(SharedRoom {
                entries,
                pages,
                slots,
                ring,
            }),
            Err(error) => {
                self.slots.give_back(slots.2);
                Err(error)
            }
        }
    }

    fn limits(&self) -> Limits {
        let has = &self.device.capabilities;
        // Ring sizes are powers of two.
        let down = |count: u32| count.checked_ilog2().map_or(0, |bits| 1 << bits);
        Limits {
            name: self.name,
            domains: has.domains,
            regions: has.regions.min(self.regions.len() as u32),
            windows: 0,
            completion_queues: has.completion_queues.saturating_sub(1),
            completions: down(has.completions),
            queue_pairs: has.queue_pairs,
            work_requests: down(has.work_requests),
            segments: self.segments(),
            shared_receive_queues: has.shared_receive_queues,
            shared_buffers: down(has.shared_buffers),
            rdma_reads: READS,
            transfer: 1 << 31,
            inline: 0,
        }
    }
}

/// Memory and slots of a shared receive queue.
struct SharedRoom<'s> {
    entries: u32,
    pages: u32,
    slots: (usize, &'s [RequestSlot], HeldSlots),
    ring: (u64, View<'s>, Held),
}

fn rights(privileges: MemoryPrivileges) -> u32 {
    let mut rights = 0;
    if privileges.contains(MemoryPrivileges::LOCAL_WRITE) {
        rights |= access::LOCAL_WRITE;
    }
    if privileges.contains(MemoryPrivileges::REMOTE_READ) {
        rights |= access::REMOTE_READ;
    }
    if privileges.contains(MemoryPrivileges::REMOTE_WRITE) {
        // Devices require the local right with the remote one.
        rights |= access::REMOTE_WRITE | access::LOCAL_WRITE;
    }
    rights
}

#[expect(unsafe_code, reason = "the device follows the contract of `Mapping`")]
// SAFETY: this driver accesses no consumer memory: it writes addresses and keys into descriptors
// and page lists. The device acts on them as `Mapping` guarantees. A device that fails to destroy a
// region is reset before the call returns.
unsafe impl<'s, W: RegisterWords, M: Mapping, S: Rendezvous, H: Hal> Backend
    for PvrdmaBackend<'s, W, M, S, H>
{
    type CompletionQueue = PvrdmaCompletionQueue<'s, H, W>;
    type SendQueue = PvrdmaSendQueue<'s, H, W>;
    type ReceiveQueue = PvrdmaReceiveQueue<'s, H, W>;
    type SharedReceiveQueue = PvrdmaSharedReceiveQueue<'s, H, W>;

    fn ia_attributes(&self) -> IaAttributes {
        let address = self.sideband.address();
        IaAttributes {
            vendor_name: "pvrdma",
            ..attributes::adapter(&self.limits(), &self.tables, address)
        }
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let private_data = self.sideband.private_data_limit();
        attributes::provider(&self.limits(), private_data, self.hal.is_coherent())
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.tables.alive()?;
        let context = self.device.context;
        let domain = CreateDomain {
            context,
            reserved: 0,
        };
        let handle = self.create(command::CREATE_DOMAIN, &domain)?;
        Ok(DomainKey(handle as usize))
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        self.destroy(command::DESTROY_DOMAIN, domain.0 as u32);
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.tables.alive()?;
        let place = self.regions.iter().position(|slot| slot.made.is_none());
        let place = place.ok_or(BackendError::Resources)?;
        let (base, length) = (registration.base(), registration.length());
        let begins_at = base.addr() % PAGE as usize;
        let bytes = (begins_at as u64).saturating_add(length as u64);
        let count = pages_for(bytes);
        let Self { pages, mapping, .. } = self;
        let first = base.cast_const().wrapping_sub(begins_at);
        let (directory, held) = pages.take_directory(count, |page| {
            mapping.page(first.wrapping_add(page as usize * PAGE as usize))
        })?;
        let privileges = registration.privileges();
        let region = CreateRegion {
            start: base.addr() as u64,
            length: length as u64,
            directory,
            domain: registration.domain().0 as u32,
            access: rights(privileges),
            flags: 0,
            pages: count,
        };
        let created: CreatedRegion = match self.ask(command::CREATE_REGION, &region) {
            Ok(created) => created,
            Err(error) => {
                self.pages.give_back(held);
                return Err(error);
            }
        };
        if let Some(slot) = self.regions.get_mut(place) {
            slot.made = Some((created.handle, held));
        }
        let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        Ok(RegionKeys {
            object: place,
            local: created.local,
            remote: if privileges.intersects(remote) {
                created.remote
            } else {
                0
            },
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        let slot = self.regions.get_mut(region.object);
        if let Some((handle, held)) = slot.and_then(|slot| slot.made.take()) {
            self.destroy(command::DESTROY_REGION, handle);
            self.pages.give_back(held);
        }
    }

    fn create_completion_queue(
        &mut self,
        name: u16,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError> {
        self.tables.alive()?;
        let slot = self.tables.free_completion_queue(name)?;
        let entries = depth
            .max(self.completions.min(self.device.capabilities.completions))
            .max(1)
            .checked_next_power_of_two()
            .filter(|entries| *entries <= self.device.capabilities.completions)
            .ok_or(BackendError::Resources)?;
        let bytes = u64::from(entries).saturating_mul(u64::from(ENTRY_BYTES));
        let pages = pages_for(bytes).saturating_add(1);
        let (directory, ring, held) = self.pages.take_ring(pages)?;
        let queue = CreateCompletionQueue {
            directory,
            context: self.device.context,
            entries,
            pages,
            reserved: 0,
        };
        let number = match self.create(command::CREATE_COMPLETION_QUEUE, &queue) {
            Ok(number) => number,
            Err(error) => {
                self.pages.give_back(held);
                return Err(error);
            }
        };
        slot.begin(number);
        Ok(PvrdmaCompletionQueue {
            hal: PhantomData,
            doorbells: self.doorbells.clone(),
            held,
            state: ring,
            entries_at: ring.at_page(1),
            tables: self.tables,
            slot,
            name,
            number,
            entries,
            next: 0,
            flushing: 0,
        })
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut Self::CompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        // Some devices lack the command to enlarge a queue; a smaller size needs no command.
        if depth <= queue.entries {
            Ok(())
        } else {
            Err(BackendError::Resources)
        }
    }

    fn destroy_completion_queue(&mut self, queue: Self::CompletionQueue) {
        self.destroy(command::DESTROY_COMPLETION_QUEUE, queue.number);
        queue.slot.number.store(NO_QUEUE, Ordering::Relaxed);
        self.pages.give_back(queue.held);
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        self.tables.alive()?;
        let segments = segments.max(1);
        let limit = self.limits().shared_buffers;
        if depth > limit || segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let (key, shared) = self.tables.free_shared()?;
        let place = u16::try_from(key).map_err(|_| BackendError::Resources)?;
        let stride = receive_stride(segments);
        // The extra capacity is optional: use it only if there is room.
        let wanted = depth.max(self.shared_buffers.min(limit));
        let room = self
            .shared_room(wanted, stride)
            .or_else(|_| self.shared_room(depth, stride))?;
        let SharedRoom {
            entries,
            pages,
            slots: (first, slots, held_slots),
            ring: (directory, ring, held),
        } = room;
        let question = CreateSharedReceiveQueue {
            directory,
            domain: domain.0 as u32,
            pages,
            entries,
            segments,
            limit: 0,
            reserved: 0,
            kind: BASIC,
            padding: 0,
        };
        let number = match self.create(command::CREATE_SHARED_RECEIVE_QUEUE, &question) {
            Ok(number) => number,
            Err(error) => {
                self.slots.give_back(held_slots);
                self.pages.give_back(held);
                return Err(error);
            }
        };
        for slot in slots {
            slot.now(Whereabouts::Free);
        }
        let life = shared.life.load(Ordering::Relaxed).wrapping_add(1);
        shared.life.store(life, Ordering::Relaxed);
        shared.first.store(first as u32, Ordering::Relaxed);
        shared.places.store(entries, Ordering::Relaxed);
        shared.token.store(token);
        shared.number.store(number, Ordering::Relaxed);
        let queue = PvrdmaSharedReceiveQueue {
            hal: PhantomData,
            doorbells: self.doorbells.clone(),
            held,
            held_slots,
            ring: Ring {
                state: ring,
                producer: ring_state::RECEIVE,
                descriptors: ring.at_page(1),
                stride,
                header: Receive::WORDS as u32 * 4,
                entries,
                head: 0,
            },
            slots,
            shared,
            name: shared_name(life, place, 0),
            state: self.tables.state,
            segments,
            next: 0,
        };
        Ok((SharedReceiveQueueKey(key), queue))
    }

    fn resize_shared_receive_queue(
        &mut self,
        _key: SharedReceiveQueueKey,
        queue: &mut Self::SharedReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        // The device cannot enlarge a queue; growth within the ring needs no command.
        if depth <= queue.ring.entries {
            Ok(())
        } else {
            Err(BackendError::Resources)
        }
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        self.tables.alive()?;
        let handle = self.tables.shared_number(key)?;
        let withdrawn = self.withdraw(handle);
        self.tables.alive()?;
        let change = ModifySharedReceiveQueue {
            handle,
            mask: SHARED_LIMIT,
            sizes: [0; 2],
            limit,
            reserved: 0,
        };
        let [] = self.ask::<_, [u32; 0]>(command::MODIFY_SHARED_RECEIVE_QUEUE, &change)?;
        Ok(withdrawn)
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: Self::SharedReceiveQueue,
    ) {
        if let Ok(number) = self.tables.shared_number(key) {
            self.destroy(command::DESTROY_SHARED_RECEIVE_QUEUE, number);
            queue.shared.number.store(NO_QUEUE, Ordering::Relaxed);
            // The users of the queue are gone; their late completions must not affect the next
            // queue.
            self.tables.forget_shared(key);
        }
        self.pages.give_back(queue.held);
        self.slots.give_back(queue.held_slots);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError> {
        let places = self.tables.lives.len() / 2;
        let place = (0..places)
            .filter_map(|step| self.next_pair.saturating_add(step).checked_rem(places))
            .find(|place| {
                let life = self.life(QueuePairKey(*place));
                life.is_some_and(|life| !life.lives())
            })
            .ok_or(BackendError::Resources)?;
        let made = self.make(place, request)?;
        let key = QueuePairKey(place);
        self.settle(key, &made);
        self.next_pair = place.saturating_add(1);
        Ok(QueuePair {
            key,
            send: made.send,
            receive: made.receive,
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        if send.request.shared_receive_queue != request.shared_receive_queue {
            return Err(BackendError::NotSupported);
        }
        // The driver cannot move receives to another queue pair.
        if send.work.life.receives.outstanding() != 0 {
            return Err(BackendError::State);
        }
        let made = self.make(key.0, request)?;
        self.retire(key);
        self.settle(key, &made);
        self.replace(send, receive, made);
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError> {
        let request = send.request;
        let made = self.make(key.0, &request)?;
        self.retire(key);
        self.settle(key, &made);
        self.replace(send, receive, made);
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: Self::SendQueue,
        _receive: Option<Self::ReceiveQueue>,
    ) {
        self.retire(key);
        self.give_back(&send);
    }

    common_calls!();

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        self.tables.alive()?;
        let number = self.number(key)?;
        if let Some(peer) = self.sideband.asking(request) {
            self.make_ready(number, Some(peer))?;
        }
        self.sideband.accept(request, number, private_data)
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        if let Ok(number) = self.number(key) {
            self.sideband.disconnect(number, mode);
            self.make_failed(number);
        }
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        self.more = false;
        for _ in 0..ROUNDS {
            if self.tables.is_faulty() {
                return self.after_fault();
            }
            // Skip events of objects that do not exist.
            match self.next_event(now) {
                Some(Some(event)) => return Some(event),
                Some(None) => {}
                None => return self.flushed_for_device(),
            }
        }
        // A peer can cause events of destroyed objects, so many of them are not a fault.
        self.more = true;
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let faulty = self.tables.is_faulty();
        let to_halt = faulty && !self.tables.state.is_halted();
        let told = !faulty && self.device.has_told();
        let kept = self.kept.iter().any(Option::is_some);
        if self.more || to_halt || told || kept || self.is_waited_for() {
            return Some(Instant::ZERO);
        }
        self.sideband.next_deadline()
    }
}
