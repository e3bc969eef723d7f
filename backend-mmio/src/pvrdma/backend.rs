//! The backend of a paravirtual device.

use core::sync::atomic::Ordering;

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, ListenerKey,
    QueuePair, QueuePairKey, QueuePairRequest, RegionKeys, Registration, RequestKey,
    SharedReceiveQueueKey, SyncDirection,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::time::Instant;

use super::command_channel::Failure;
use super::completion_queue::PvrdmaCompletionQueue;
use super::device::{OpenFailure, PvrdmaDevice, READS, Report};
use super::drain_except::MOST_KEPT;
use super::pages::{PageRun, Pages, View, pages_for};
use super::platform::{Mapping, PairState, Parts, RegionSlot, Storage};
use super::receive_queue::PvrdmaReceiveQueue;
use super::send_queue::PvrdmaSendQueue;
use super::shared_receive_queue::PvrdmaSharedReceiveQueue;
use super::slot_allocator::{SlotAllocator, SlotRun};
use super::work_ring::{Ring, shared_name};
use crate::attributes::{self, Limits};
use crate::cm::{Peer, PeerResolver};
use crate::common_calls::common_calls;
use crate::defs::pvrdma::{
    BASIC, CreateCompletionQueue, CreateDomain, CreateRegion, CreateSharedReceiveQueue,
    CreatedRegion, ENTRY_BYTES, ModifySharedReceiveQueue, PAGE, Receive, SHARED_LIMIT, Words,
    access, command, receive_stride, ring_state,
};
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::{after_write, is_maintained, most_segments};
use crate::ring::{
    DeviceSlots, Location, NO_QUEUE, QUEUE_PAIRS, QueuePairSlot, RequestSlot, completion_name,
};

/// Most events of destroyed objects that one call of `poll_control` skips.
const ROUNDS: usize = 64;

/// Entries of the largest ring that the attributes offer.
const OFFERED_ENTRIES: u32 = 1 << 15;

/// A paravirtual adapter.
#[derive(Debug)]
pub struct PvrdmaBackend<'s, W: RegisterWords, M, S, H> {
    name: &'static str,
    /// The device; dropped, and thereby reset, before everything that it uses.
    pub(super) device: PvrdmaDevice<'s, W, H>,
    pub(super) doorbells: W,
    mapping: M,
    pub(crate) cm: S,
    pub(super) hal: H,
    segments: u32,
    completions: u32,
    shared_buffers: u32,
    pub(super) flushes: bool,
    pub(super) pages: Pages<'s>,
    pub(super) slots: SlotAllocator<'s>,
    pub(crate) tables: DeviceSlots<'s>,
    pub(super) pair_states: &'s mut [PairState],
    regions: &'s mut [RegionSlot],
    /// Device number of a completion queue that is never polled.
    ///
    /// It serves work queues without dispatcher.
    unused_queue: u32,
    /// Reports taken ahead, the oldest first.
    pub(super) kept: [Option<Report>; MOST_KEPT],
    /// Index at which the search for a free queue pair starts.
    ///
    /// A freed slot is thereby reused as late as possible.
    next_pair: usize,
    /// Set if the next call polls the connection manager first.
    pub(super) cm_first: bool,
    /// Set if more events may be pending than the last call handled.
    more: bool,
}

/// Converts a count, which the core checked to be non-negative.
pub(super) fn checked(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

impl<'s, W: RegisterWords, M: Mapping, S: PeerResolver, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    /// Starts a device: reads its version, shares a region, and sets its port address.
    ///
    /// # Errors
    /// [`OpenFailure`] names the failed step; the device was reset if it had started.
    pub fn open(parts: Parts<'s, W, M, S, H>, storage: Storage<'s>) -> Result<Self, OpenFailure> {
        let generations: &'s [QueuePairSlot] = storage.queue_pairs;
        let requests: &'s [RequestSlot] = storage.requests;
        let most = QUEUE_PAIRS
            .min(storage.pair_states.len())
            .min(generations.len() / 2);
        let tables = DeviceSlots {
            state: storage.state.0,
            generations: generations
                .get(..most.saturating_mul(2))
                .unwrap_or_default(),
            completion_queues: storage.completion_queues,
            shared_receive_queues: storage.shared_receive_queues,
            requests,
        };
        tables.clear();
        for region in storage.regions.iter_mut() {
            *region = RegionSlot::EMPTY;
        }
        let mut pages = Pages::new(parts.memory, storage.pages_taken);
        let device = PvrdmaDevice::open(
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
            cm: parts.cm,
            hal: parts.hal,
            segments: parts.segments,
            completions: parts.completions,
            shared_buffers: parts.shared_buffers,
            flushes: parts.flushes,
            pages,
            slots: SlotAllocator::new(requests, storage.requests_taken),
            tables,
            pair_states: storage.pair_states,
            regions: storage.regions,
            unused_queue: 0,
            kept: [None; MOST_KEPT],
            next_pair: 0,
            cm_first: true,
            more: false,
        };
        let (directory, _, _) = backend
            .pages
            .take_ring(2)
            .map_err(|_| OpenFailure::Memory)?;
        let unused_queue = backend.device.create(
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
        backend.unused_queue = unused_queue.map_err(|_| failed)?;
        Ok(backend)
    }

    fn record_failure<T>(&self, answer: Result<T, Failure>) -> Result<T, BackendError> {
        answer.map_err(|failure| {
            if failure != Failure::Refused {
                self.tables.fault(failure.into());
            }
            failure.into()
        })
    }

    pub(super) fn execute<Q: Words, A: Words>(
        &mut self,
        number: u32,
        command: &Q,
    ) -> Result<A, BackendError> {
        let answer = self.device.execute(number, command);
        self.record_failure(answer)
    }

    fn create<Q: Words>(&mut self, number: u32, command: &Q) -> Result<u32, BackendError> {
        let created = self.device.create(number, command);
        self.record_failure(created)
    }

    /// Destroys an object, which the device does not use after the return.
    pub(super) fn destroy(&mut self, number: u32, handle: u32) {
        if let Err(failure) = self.device.destroy(number, handle) {
            self.tables.fault(failure.into());
        }
    }

    pub(super) fn modify_pair(
        &mut self,
        number: u32,
        to: u32,
        peer: Option<Peer>,
    ) -> Result<(), BackendError> {
        let modified = self.device.modify_pair(number, to, peer);
        self.record_failure(modified)
    }

    /// Returns the latest generation of a queue pair.
    pub(super) fn generation(&self, key: QueuePairKey) -> Option<&'s QueuePairSlot> {
        self.tables.latest_at(key.0)
    }

    /// Returns the device number of a queue pair, unless the device has forgotten it.
    pub(crate) fn number(&self, key: QueuePairKey) -> Result<u32, BackendError> {
        self.generation(key)
            .map(|generation| generation.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE && !self.was_destroyed_early(key))
            .ok_or(BackendError::State)
    }

    /// Returns the core's token of the queue pair with a device number.
    pub(super) fn token(&self, number: u32) -> Option<u64> {
        let generation = self.tables.latest_at(self.index(number)?)?;
        Some(generation.token.load())
    }

    /// Returns the device number of a completion queue, or `unused_queue` without a queue.
    pub(super) fn completion_number(&self, number: Option<u32>) -> Result<u32, BackendError> {
        let Some(number) = number else {
            return Ok(self.unused_queue);
        };
        let name = completion_name(number).ok_or(BackendError::State)?;
        self.tables.completion_number(name)
    }

    pub(super) fn segments(&self) -> u32 {
        let segments = self.device.capabilities.segments.min(self.segments);
        most_segments(&self.hal, segments)
    }

    /// Returns the number of ring slots for `descriptors` descriptors, a power of two.
    pub(super) fn ring_size(&self, descriptors: u32) -> Result<u32, BackendError> {
        descriptors
            .max(1)
            .checked_next_power_of_two()
            .filter(|size| *size <= self.device.capabilities.work_requests.min(OFFERED_ENTRIES))
            .ok_or(BackendError::Resources)
    }

    /// Takes memory and slots for a shared receive queue of `buffers` buffers.
    fn allocate_shared(
        &mut self,
        buffers: u32,
        stride: u32,
    ) -> Result<SharedAllocation<'s>, BackendError> {
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
            Ok(ring) => Ok(SharedAllocation {
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
            transfer: (1 << 31) - 1,
            inline: 0,
        }
    }
}

/// Memory and slots of a shared receive queue.
struct SharedAllocation<'s> {
    entries: u32,
    pages: u32,
    slots: (usize, &'s [RequestSlot], SlotRun),
    ring: (u64, View<'s>, PageRun),
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
unsafe impl<'s, W: RegisterWords, M: Mapping, S: PeerResolver, H: Hal> Backend
    for PvrdmaBackend<'s, W, M, S, H>
{
    type CompletionQueue = PvrdmaCompletionQueue<'s, H, W>;
    type SendQueue = PvrdmaSendQueue<'s, H, W>;
    type ReceiveQueue = PvrdmaReceiveQueue<'s, H, W>;
    type SharedReceiveQueue = PvrdmaSharedReceiveQueue<'s, H, W>;

    const EXTENDS: bool = false;

    fn ia_attributes(&self) -> IaAttributes {
        let address = self.cm.address();
        let limits = self.limits();
        let offered = Limits {
            work_requests: limits.work_requests.min(OFFERED_ENTRIES),
            completions: limits.completions.min(OFFERED_ENTRIES - 1),
            shared_buffers: limits.shared_buffers.min(OFFERED_ENTRIES - 1),
            ..limits
        };
        attributes::adapter("pvrdma", &offered, &self.tables, address)
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let private_data = self.cm.private_data_limit();
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
        let index = self.regions.iter().position(|slot| slot.region.is_none());
        let index = index.ok_or(BackendError::Resources)?;
        let (base, length) = (registration.base(), registration.length());
        let begins_at = base.addr() % PAGE as usize;
        let bytes = (begins_at as u64).saturating_add(length as u64);
        let count = pages_for(bytes);
        let Self { pages, mapping, .. } = self;
        let first = base.cast_const().wrapping_sub(begins_at);
        let (directory, page_run) = pages.take_directory(count, |page| {
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
        let created: CreatedRegion = match self.execute(command::CREATE_REGION, &region) {
            Ok(created) => created,
            Err(error) => {
                self.pages.give_back(page_run);
                return Err(error);
            }
        };
        if let Some(slot) = self.regions.get_mut(index) {
            slot.region = Some((created.handle, page_run));
        }
        let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        Ok(RegionKeys {
            object: index,
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
        if let Some((handle, page_run)) = slot.and_then(|slot| slot.region.take()) {
            self.destroy(command::DESTROY_REGION, handle);
            self.pages.give_back(page_run);
        }
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError> {
        self.tables.alive()?;
        let (name, slot) = self.tables.free_completion_queue(number)?;
        let entries = depth
            .max(self.completions.min(self.device.capabilities.completions))
            .max(1)
            .checked_next_power_of_two()
            .filter(|entries| *entries <= self.device.capabilities.completions)
            .ok_or(BackendError::Resources)?;
        let bytes = u64::from(entries).saturating_mul(u64::from(ENTRY_BYTES));
        let pages = pages_for(bytes).saturating_add(1);
        let (directory, ring, page_run) = self.pages.take_ring(pages)?;
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
                self.pages.give_back(page_run);
                return Err(error);
            }
        };
        slot.begin(number);
        Ok(PvrdmaCompletionQueue {
            hal: self.hal.clone(),
            doorbells: self.doorbells.clone(),
            page_run,
            state: ring,
            ring_entries: ring.at_page(1),
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
        self.pages.give_back(queue.page_run);
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        self.tables.alive()?;
        if !is_maintained(&self.hal) {
            return Err(BackendError::NotSupported);
        }
        let segments = segments.max(1);
        let limit = self.limits().shared_buffers;
        if depth > limit || segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let (key, shared) = self.tables.free_shared()?;
        let index = u16::try_from(key).map_err(|_| BackendError::Resources)?;
        let stride = receive_stride(segments);
        // The extra capacity is optional: use it only if there is room.
        let preferred = depth.max(self.shared_buffers.min(limit));
        let ring_size = self
            .allocate_shared(preferred, stride)
            .or_else(|_| self.allocate_shared(depth, stride))?;
        let SharedAllocation {
            entries,
            pages,
            slots: (first, slots, slot_run),
            ring: (directory, ring, page_run),
        } = ring_size;
        let command = CreateSharedReceiveQueue {
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
        let number = match self.create(command::CREATE_SHARED_RECEIVE_QUEUE, &command) {
            Ok(number) => number,
            Err(error) => {
                self.slots.give_back(slot_run);
                self.pages.give_back(page_run);
                return Err(error);
            }
        };
        for slot in slots {
            slot.set_location(Location::Free);
        }
        let generation = shared.generation.load(Ordering::Relaxed).wrapping_add(1);
        shared.generation.store(generation, Ordering::Relaxed);
        shared.first.store(first as u32, Ordering::Relaxed);
        shared.entries.store(entries, Ordering::Relaxed);
        shared.token.store(token);
        shared.number.store(number, Ordering::Relaxed);
        let queue = PvrdmaSharedReceiveQueue {
            hal: self.hal.clone(),
            doorbells: self.doorbells.clone(),
            page_run,
            slot_run,
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
            name: shared_name(generation, index, 0),
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
        let drained = self.drain_limit_events(handle);
        self.tables.alive()?;
        let change = ModifySharedReceiveQueue {
            handle,
            mask: SHARED_LIMIT,
            sizes: [0; 2],
            limit,
            reserved: 0,
        };
        let [] = self.execute::<_, [u32; 0]>(command::MODIFY_SHARED_RECEIVE_QUEUE, &change)?;
        Ok(drained)
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: Self::SharedReceiveQueue,
    ) {
        if let Ok(number) = self.tables.shared_number(key) {
            self.destroy(command::DESTROY_SHARED_RECEIVE_QUEUE, number);
            for slot in queue.slots {
                after_write(&self.hal, slot);
            }
            queue.shared.number.store(NO_QUEUE, Ordering::Relaxed);
            // The users of the queue are gone; their late completions must not affect the next
            // queue.
            self.tables.forget_shared(key);
        }
        self.pages.give_back(queue.page_run);
        self.slots.give_back(queue.slot_run);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError> {
        let pairs = self.tables.generations.len() / 2;
        let index = (0..pairs)
            .filter_map(|step| self.next_pair.saturating_add(step).checked_rem(pairs))
            .find(|index| {
                let generation = self.generation(QueuePairKey(*index));
                generation.is_some_and(|generation| !generation.is_live())
            })
            .ok_or(BackendError::Resources)?;
        let created = self.create_pair(index, request)?;
        let key = QueuePairKey(index);
        self.publish_pair(key, &created);
        self.next_pair = index.saturating_add(1);
        Ok(QueuePair {
            key,
            send: created.send,
            receive: created.receive,
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
        if send.work.generation.receives.outstanding() != 0 {
            return Err(BackendError::State);
        }
        let created = self.create_pair(key.0, request)?;
        self.retire(key);
        self.publish_pair(key, &created);
        self.replace(send, receive, created);
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError> {
        let request = send.request;
        let created = self.create_pair(key.0, &request)?;
        self.retire(key);
        self.publish_pair(key, &created);
        self.replace(send, receive, created);
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
        if let Some(peer) = self.cm.requester(request) {
            self.make_ready(number, Some(peer))?;
        }
        self.cm.accept(request, number, private_data)
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        if let Ok(number) = self.number(key) {
            self.cm.disconnect(number, mode);
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
                None => return self.take_flush_event(),
            }
        }
        // A peer can cause events of destroyed objects, so many of them are not a fault.
        self.more = true;
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let faulty = self.tables.is_faulty();
        let to_halt = faulty && !self.tables.state.is_halted();
        let announced = !faulty && self.device.has_announced();
        let kept = self.kept.iter().any(Option::is_some);
        if self.more || to_halt || announced || kept || self.has_armed_flush() {
            return Some(Instant::ZERO);
        }
        self.cm.next_deadline()
    }
}
