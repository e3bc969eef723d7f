//! The backend of an mlx5 device.

use core::sync::atomic::Ordering;

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, ListenerKey,
    QueuePair, QueuePairKey, QueuePairRequest, RegionKeys, Registration, RequestKey,
    SharedReceiveQueueKey, SyncDirection, WindowKey,
};
use dat_core::time::Instant;

use super::allocator::{Allocated, Allocation, Allocator, record};
use super::completion_queue::{Entry, MmioCompletionQueue};
use super::control::{CompletionQueueSpec, Control, DeviceEvent, SharedReceiveQueueSpec};
use super::queue_pairs::PairParameters;
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::{MmioSendQueue, blocks_of_request, blocks_of_units};
use super::shared_receive_queue::MmioSharedReceiveQueue;
use super::storage::Storage;
use super::window_slot::WindowSlot;
use crate::attributes::{self, Limits};
use crate::cm::ConnectionManager;
use crate::common_calls::{common_calls, with_token};
use crate::defs::mlx5::{
    COMPLETION_UNITS, Completion, CompletionTail, DESCRIPTOR_UNITS, KeyUpdate, LONGEST_SEGMENT,
    QUEUE_ENTRIES, UNIT_BYTES,
};
use crate::fault::DeviceFault;
use crate::platform::{DmaMemory, DmaView, Hal, RegisterIo};
use crate::ring::maintenance::{is_maintained, most_segments};
use crate::ring::{DeviceSlots, NO_QUEUE, QUEUE_PAIRS, QueuePairSlot};

/// Segments of the longest descriptor.
const SEGMENTS: u32 = DESCRIPTOR_UNITS - 2;

/// Most events of destroyed objects that one call of `poll_control` skips.
const ROUNDS: usize = 64;

/// Parts of a device that a platform supplies.
#[derive(Debug)]
pub struct Parts<'s, C, S, R, H> {
    /// The control interface.
    pub control: C,
    /// The connection manager.
    pub cm: S,
    /// The doorbell registers.
    pub registers: R,
    /// The platform's barriers.
    pub hal: H,
    /// Minimum capacity of each shared receive queue, in buffers.
    ///
    /// The device cannot enlarge a queue, so a queue grows only within its capacity. Every shared
    /// receive queue takes this capacity from `memory` and from [`Storage::requests`]. If less is
    /// left, a queue gets room for the requested size only and does not grow.
    pub shared_buffers: u32,
    /// Memory shared with the device.
    pub memory: DmaMemory<'s>,
}

/// An adapter with the mlx5 data path.
#[derive(Debug)]
pub struct MmioBackend<'s, C, S, R, H> {
    pub(super) control: C,
    pub(crate) cm: S,
    pub(super) registers: R,
    pub(super) hal: H,
    pub(super) allocator: Allocator<'s>,
    pub(crate) tables: DeviceSlots<'s>,
    pub(super) windows: &'s [WindowSlot],
    shared_buffers: u32,
    /// Index at which the search for a free queue pair starts.
    ///
    /// A freed slot is thereby reused as late as possible.
    next_pair: usize,
    /// Count of windows made ahead; 0 until a window is given back.
    windows_made: u32,
    /// Set if the next call polls the connection manager first.
    cm_first: bool,
    /// Set if more events may be pending than the last call handled.
    more: bool,
}

/// Converts a count, which the core checked to be non-negative.
pub(super) fn checked(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

/// Returns the number of ring slots for `entries` entries, a power of two.
pub(super) fn ring_size(entries: u32) -> Result<u32, BackendError> {
    entries
        .checked_next_power_of_two()
        .filter(|ring_size| *ring_size <= QUEUE_ENTRIES)
        .ok_or(BackendError::Resources)
}

pub(super) fn bytes(units: u32) -> u64 {
    u64::from(units).saturating_mul(u64::from(UNIT_BYTES))
}

impl<'s, C: Control, S: ConnectionManager, R: RegisterIo, H: Hal> MmioBackend<'s, C, S, R, H> {
    /// Creates the driver of a device.
    pub fn new(parts: Parts<'s, C, S, R, H>, storage: Storage<'s>) -> Self {
        let Storage {
            state,
            queue_pairs,
            completion_queues,
            shared_receive_queues,
            requests,
            requests_taken,
            windows,
            memory_taken,
        } = storage;
        let (queue_pairs, requests): (&'s [_], &'s [_]) = (queue_pairs, requests);
        let generations = queue_pairs.get(..2 * QUEUE_PAIRS).unwrap_or(queue_pairs);
        let tables = DeviceSlots {
            state: state.0,
            generations,
            completion_queues,
            shared_receive_queues,
            requests,
        };
        tables.clear();
        windows.iter().for_each(WindowSlot::end);
        Self {
            control: parts.control,
            cm: parts.cm,
            registers: parts.registers,
            hal: parts.hal,
            allocator: Allocator::new(parts.memory, memory_taken, requests, requests_taken),
            tables,
            windows,
            shared_buffers: parts.shared_buffers,
            next_pair: 0,
            windows_made: 0,
            cm_first: true,
            more: false,
        }
    }

    /// Returns the latest generation of a queue pair.
    pub(super) fn generation(&self, key: QueuePairKey) -> Option<&'s QueuePairSlot> {
        self.tables.latest_at(key.0)
    }

    /// Returns the device number of a queue pair.
    pub(crate) fn number(&self, key: QueuePairKey) -> Result<u32, BackendError> {
        self.generation(key)
            .map(|generation| generation.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// Returns the core's token of the queue pair with a device number.
    fn token(&self, number: u32) -> Option<u64> {
        let mut known = self.tables.latest().filter(|generation| {
            generation.is_live() && generation.number.load(Ordering::Relaxed) == number
        });
        known.next().map(|generation| generation.token.load())
    }

    pub(super) fn completion_number(&self, name: Option<u16>) -> Result<Option<u32>, BackendError> {
        let Some(name) = name else {
            return Ok(None);
        };
        self.tables.completion_number(name).map(Some)
    }

    /// Returns the ring size for `depth` completions and the entry that reports a move.
    fn completion_entries(&self, depth: u32) -> Result<u32, BackendError> {
        if depth > self.control.limits().completions {
            return Err(BackendError::Resources);
        }
        ring_size(depth.saturating_add(1))
    }

    /// Returns the most buffers of a shared receive queue.
    fn most_shared_buffers(&self) -> u32 {
        self.control.limits().shared_buffers.min(QUEUE_ENTRIES - 1)
    }

    pub(super) fn segments(&self) -> u32 {
        most_segments(&self.hal, self.control.limits().segments.min(SEGMENTS))
    }

    /// Returns the device's limits, reduced to what descriptors and slots permit.
    fn offered(&self) -> Limits {
        let limits = self.control.limits();
        // `blocks` is the smallest reservation of a request, which may be a bind.
        let blocks = if limits.windows == 0 {
            blocks_of_request(1)
        } else {
            blocks_of_units(u32::from(KeyUpdate::BIND_UNITS))
        };
        let slots = u32::try_from(self.windows.len()).unwrap_or(u32::MAX);
        Limits {
            segments: self.segments(),
            work_requests: limits.work_requests.min(QUEUE_ENTRIES / blocks.max(1)),
            // One entry is reserved for a move.
            completions: limits.completions.min(QUEUE_ENTRIES - 1),
            // One slot is never posted.
            shared_buffers: self.most_shared_buffers(),
            // One window is left for the renewal of another.
            windows: match limits.windows.min(slots) {
                windows @ (0 | 1) => windows,
                windows => windows - 1,
            },
            // A transfer may consist of one segment.
            transfer: limits.transfer.min(u64::from(LONGEST_SEGMENT)),
            ..limits
        }
    }

    /// Takes memory and slots for a shared receive queue of `buffers` buffers.
    ///
    /// Returns the number of slots, the units of the ring, and the supply taken.
    fn allocate_shared(
        &mut self,
        buffers: u32,
        units: u32,
    ) -> Result<(u32, u32, Allocated<'s>), BackendError> {
        let entries = ring_size(buffers.saturating_add(1))?;
        let ring = entries.checked_mul(units).ok_or(BackendError::Resources)?;
        let units = ring.saturating_add(1) as usize;
        let allocated = self.allocator.take(units, entries as usize)?;
        Ok((entries, ring, allocated))
    }

    /// Replaces the queue pair number in a connection event by the core's token.
    ///
    /// Drops events of the connection manager's own queue pairs.
    fn convert_connection_event(&self, event: ControlEvent) -> Option<ControlEvent> {
        let of = |number| (!self.cm.owns(number)).then(|| self.token(number));
        with_token(event, |number| of(number).flatten())
    }

    /// Converts a device event to an event of the core.
    fn convert_device_event(&mut self, event: DeviceEvent) -> Option<ControlEvent> {
        Some(match event {
            DeviceEvent::Completions(number) => {
                let (queue, slot) = self.tables.completion_queue(number)?;
                let serial = slot.serial.load(Ordering::Relaxed);
                slot.serial.store(serial.wrapping_add(1), Ordering::Relaxed);
                slot.armed.store(0, Ordering::Relaxed);
                ControlEvent::Completions {
                    queue: queue.into(),
                }
            }
            DeviceEvent::SharedReceiveLimit(number) => ControlEvent::SharedReceiveLimit {
                queue: self.tables.shared_token(number)?,
            },
            DeviceEvent::SharedReceiveFailed(number) => ControlEvent::SharedReceiveFailed {
                queue: self.tables.shared_token(number)?,
            },
            DeviceEvent::QueuePairFailed(number) => {
                self.cm.failed(number);
                if self.cm.owns(number) {
                    return None;
                }
                ControlEvent::Broken {
                    queue_pair: self.token(number)?,
                }
            }
            DeviceEvent::CompletionsLost(number) => {
                self.tables.overran(number);
                return None;
            }
            DeviceEvent::Failed => {
                self.tables.fault(DeviceFault::Reported);
                return None;
            }
        })
    }

    /// Returns the index of a free window, and takes it.
    ///
    /// A device may reissue an index at once. So after the first window was given back, each call
    /// creates windows ahead in all free slots and takes one of the earliest batch.
    fn take_window(&mut self, domain: u32) -> Result<usize, BackendError> {
        if self.windows_made != 0 {
            let free = self.windows.iter().filter(|window| window.is_free());
            let mut number = self
                .windows_made
                .saturating_add(free.clone().count() as u32);
            self.windows_made = number;
            for window in free {
                let Ok(key) = self.control.create_window(domain) else {
                    break;
                };
                // The first index of a batch may be the one given back last, so it is taken last.
                window.begin(key, domain, self.hal.random(), number);
                number = number.saturating_sub(1);
            }
        }
        let windows = self.windows.iter().enumerate();
        let created = windows.filter_map(|(index, window)| match window.made_ahead() {
            Some((of, number)) if of == domain => Some((number, index)),
            _ => None,
        });
        let index = match created.min() {
            Some((_, index)) => index,
            None => self.make_window(domain)?,
        };
        if let Some(window) = self.windows.get(index) {
            window.take();
        }
        Ok(index)
    }

    /// Creates a window when none was made ahead in the domain.
    ///
    /// Gives back windows made ahead in other domains if necessary.
    fn make_window(&mut self, domain: u32) -> Result<usize, BackendError> {
        if !self.windows.iter().any(WindowSlot::is_free) {
            self.give_back_ahead(|_| true);
        }
        let mut windows = self.windows.iter().enumerate();
        let (index, window) = windows
            .find(|(_, window)| window.is_free())
            .ok_or(BackendError::Resources)?;
        let key = match self.control.create_window(domain) {
            Err(_) if self.give_back_ahead(|_| true) => self.control.create_window(domain)?,
            created => created?,
        };
        window.begin(key, domain, self.hal.random(), 0);
        Ok(index)
    }

    /// Gives back the windows made ahead in matching domains; returns true if any.
    fn give_back_ahead(&mut self, of: impl Fn(u32) -> bool) -> bool {
        let mut found = false;
        for window in self.windows {
            if window.made_ahead().is_some_and(|(domain, _)| of(domain)) {
                self.give_back(window);
                found = true;
            }
        }
        found
    }

    fn give_back(&mut self, window: &WindowSlot) {
        self.control
            .destroy_window(window.key.load(Ordering::Relaxed));
        window.end();
        self.windows_made = self.windows_made.max(1);
    }

    /// Returns the next event of the connection manager or the device.
    ///
    /// The inner `None` stands for an event of an object that does not exist. The two sources are
    /// polled first in turn, so that neither delays the other.
    fn next_event(&mut self, now: Instant) -> Option<Option<ControlEvent>> {
        let cm_first = self.cm_first;
        self.cm_first = !cm_first;
        [cm_first, !cm_first].into_iter().find_map(|cm| {
            if cm {
                let event = self.cm.poll(now)?;
                Some(self.convert_connection_event(event))
            } else {
                let event = self.control.poll(now)?;
                Some(self.convert_device_event(event))
            }
        })
    }

    /// Handles a device that the driver gave up on.
    ///
    /// Halts the device and reports the failure once; then reports armed queues with flushed
    /// requests.
    fn after_fault(&mut self) -> Option<ControlEvent> {
        if !self.tables.state.is_halted() {
            self.control.halt();
            self.tables.state.set_halted();
            return Some(ControlEvent::DeviceFailed);
        }
        self.tables.fire_armed(|name| self.tables.has_flushed(name))
    }
}

#[expect(unsafe_code, reason = "the device follows the contract of `Control`")]
// SAFETY: this driver accesses no consumer memory, except as `READS_AT_POST` permits: it writes
// addresses and keys into descriptors. The device acts on them as `Control` guarantees, and so do
// the calls that are forwarded to it.
unsafe impl<'s, C: Control, S: ConnectionManager, R: RegisterIo, H: Hal> Backend
    for MmioBackend<'s, C, S, R, H>
{
    type CompletionQueue = MmioCompletionQueue<'s, H, R>;
    type SendQueue = MmioSendQueue<'s, H, R>;
    type ReceiveQueue = MmioReceiveQueue<'s, H>;
    type SharedReceiveQueue = MmioSharedReceiveQueue<'s, H>;

    /// Applies to devices with inline data.
    const READS_AT_POST: bool = true;
    const EXTENDS: bool = false;

    fn ia_attributes(&self) -> IaAttributes {
        let address = self.cm.address();
        attributes::adapter("mlx5 data path", &self.offered(), &self.tables, address)
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let private_data = self.cm.private_data_limit();
        attributes::provider(&self.control.limits(), private_data, self.hal.is_coherent())
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.tables.alive()?;
        let number = self.control.create_domain()?;
        Ok(DomainKey(number as usize))
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        self.give_back_ahead(|of| of == domain.0 as u32);
        self.control.destroy_domain(domain.0 as u32);
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.tables.alive()?;
        self.control.register(registration)
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.control.deregister(region);
    }

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.tables.alive()?;
        if self.control.limits().windows == 0 {
            return Err(BackendError::NotSupported);
        }
        self.take_window(domain.0 as u32).map(WindowKey)
    }

    fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        // After a flushed bind, the device's key differs from the driver's.
        let window = self.windows.get(window.0);
        window.is_some_and(|window| missed || window.is_spent(true))
    }

    fn destroy_window(&mut self, window: WindowKey) {
        if let Some(window) = self.windows.get(window.0) {
            self.give_back(window);
        }
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError> {
        self.tables.alive()?;
        let (name, slot) = self.tables.free_completion_queue(number)?;
        let entries = self.completion_entries(depth)?;
        let allocated = self
            .allocator
            .take(ring_units(entries).saturating_add(1), 0)?;
        let ring = initial(&allocated.memory, entries);
        let record = record(&allocated.memory, ring_units(entries))?;
        let spec = CompletionQueueSpec {
            ring: allocated.memory.bus(),
            entries,
            record: allocated
                .memory
                .bus()
                .saturating_add(bytes(entries.saturating_mul(COMPLETION_UNITS))),
        };
        H::to_register();
        let number = match self.control.create_completion_queue(&spec) {
            Ok(number) => number,
            Err(error) => {
                self.allocator.give_back(allocated.allocation);
                return Err(error);
            }
        };
        slot.begin(number);
        Ok(MmioCompletionQueue {
            hal: self.hal.clone(),
            registers: self.registers.clone(),
            record,
            allocation: allocated.allocation,
            moved: Allocation::default(),
            ring,
            tables: self.tables,
            slot,
            name,
            number,
            next: 0,
            flushing: 0,
            seen: None,
        })
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut Self::CompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        self.tables.alive()?;
        if depth < queue.entries() {
            return Ok(());
        }
        let entries = self.completion_entries(depth)?;
        // The record stays in the memory of the first ring, so the queue keeps that memory.
        let allocated = self.allocator.take(ring_units(entries), 0)?;
        let ring = initial(&allocated.memory, entries);
        H::to_register();
        let moved =
            self.control
                .move_completion_queue(queue.number, allocated.memory.bus(), entries);
        if let Err(error) = moved {
            self.allocator.give_back(allocated.allocation);
            return Err(error);
        }
        let old = core::mem::replace(&mut queue.moved, allocated.allocation);
        self.allocator.give_back(old);
        queue.move_to(ring).map_err(|fault| {
            self.tables.fault(fault);
            BackendError::Device
        })
    }

    fn destroy_completion_queue(&mut self, queue: Self::CompletionQueue) {
        self.control.destroy_completion_queue(queue.number);
        queue.slot.number.store(NO_QUEUE, Ordering::Relaxed);
        self.allocator.give_back(queue.allocation);
        self.allocator.give_back(queue.moved);
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        self.tables.alive()?;
        let limit = self.most_shared_buffers();
        if !is_maintained(&self.hal) {
            return Err(BackendError::NotSupported);
        }
        if depth > limit || segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let (key, shared) = self.tables.free_shared()?;
        // The device requires at least two units per slot.
        let units = segments.saturating_add(1).next_power_of_two().max(2);
        // The extra capacity is optional: use it only if there is room.
        let preferred = depth.max(self.shared_buffers.min(limit));
        let (entries, ring, allocated) = self
            .allocate_shared(preferred, units)
            .or_else(|_| self.allocate_shared(depth, units))?;
        shared
            .first
            .store(allocated.first_slot as u32, Ordering::Relaxed);
        shared.entries.store(entries, Ordering::Relaxed);
        let mut queue = MmioSharedReceiveQueue {
            hal: self.hal.clone(),
            ring: allocated.memory.units(),
            record: record(&allocated.memory, ring as usize)?,
            slots: self.allocator.slots(),
            allocation: allocated.allocation,
            shared,
            entries,
            units,
            next: 0,
            last: 0,
            posted: 0,
        };
        queue.begin();
        H::to_register();
        let created = self
            .control
            .create_shared_receive_queue(&SharedReceiveQueueSpec {
                domain: domain.0 as u32,
                ring: allocated.memory.bus(),
                entries,
                units,
                record: allocated.memory.bus().saturating_add(bytes(ring)),
            });
        match created {
            Ok(number) => {
                shared.token.store(token);
                shared.number.store(number, Ordering::Relaxed);
                Ok((SharedReceiveQueueKey(key), queue))
            }
            Err(error) => {
                self.allocator.give_back(queue.allocation);
                Err(error)
            }
        }
    }

    fn resize_shared_receive_queue(
        &mut self,
        _key: SharedReceiveQueueKey,
        queue: &mut Self::SharedReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        // The device cannot enlarge a queue; growth within the ring needs no command.
        if depth < queue.entries && depth <= self.most_shared_buffers() {
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
        let number = self.tables.shared_number(key)?;
        self.control.arm_shared_receive_limit(number, limit)
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: Self::SharedReceiveQueue,
    ) {
        if let Ok(number) = self.tables.shared_number(key) {
            self.control.destroy_shared_receive_queue(number);
            queue.end();
            queue.shared.number.store(NO_QUEUE, Ordering::Relaxed);
            // The users of the queue are gone; their late completions must not affect the next
            // queue.
            self.tables.forget_shared(key);
        }
        self.allocator.give_back(queue.allocation);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError> {
        let (mut send, mut receive) = (None, None);
        let key = self.create_queue_pair_at(request, &mut send, &mut receive)?;
        // `create_queue_pair_at` sets it on success.
        let send = send.ok_or(BackendError::Device)?;
        Ok(QueuePair { key, send, receive })
    }

    fn create_queue_pair_at(
        &mut self,
        request: &QueuePairRequest,
        send: &mut Option<Self::SendQueue>,
        receive: &mut Option<Self::ReceiveQueue>,
    ) -> Result<QueuePairKey, BackendError> {
        let pairs = self.tables.generations.len() / 2;
        let index = (0..pairs)
            .filter_map(|step| self.next_pair.saturating_add(step).checked_rem(pairs))
            .find(|index| self.number(QueuePairKey(*index)).is_err())
            .ok_or(BackendError::Resources)?;
        self.next_pair = index.saturating_add(1);
        self.create_pair_at(index, request, send, receive)
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let parameters = PairParameters::of(request);
        if send.parameters.shared != parameters.shared {
            return Err(BackendError::NotSupported);
        }
        let tail = send.generation.receives.tail();
        let geometry = self.geometry(&parameters)?;
        let fits = receive.as_ref().is_none_or(|receive| {
            let count = receive.head.wrapping_sub(tail);
            let ring_size = count <= parameters.receives();
            count == 0 || ring_size && receive.units <= geometry.receive_units
        });
        if !fits {
            return Err(BackendError::State);
        }
        self.recreate_pair(key, &parameters, send, receive, Some(tail))
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError> {
        let parameters = send.parameters;
        self.recreate_pair(key, &parameters, send, receive, None)
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: Self::SendQueue,
        _receive: Option<Self::ReceiveQueue>,
    ) {
        self.retire(key);
        self.allocator.give_back(send.allocation);
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
        self.cm.accept(request, number, private_data)
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        if let Ok(number) = self.number(key) {
            self.cm.disconnect(number, mode);
        }
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        self.more = false;
        for _ in 0..ROUNDS {
            if self.tables.is_faulty() {
                return self.after_fault();
            }
            // Skip events of objects that do not exist.
            if let Some(event) = self.next_event(now)? {
                return Some(event);
            }
        }
        // A peer can cause events of destroyed objects, so many of them are not a fault.
        self.more = true;
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let to_halt = self.tables.is_faulty() && !self.tables.state.is_halted();
        if self.more || to_halt {
            return Some(Instant::ZERO);
        }
        self.cm.next_deadline()
    }
}

fn ring_units(entries: u32) -> usize {
    entries.saturating_mul(COMPLETION_UNITS) as usize
}

/// Returns a ring of completions in which none is written.
fn initial<'s>(memory: &DmaView<'s>, entries: u32) -> &'s [Entry] {
    let ring = memory.units().get(..ring_units(entries));
    let (ring, _) = ring.unwrap_or_default().as_chunks();
    for entry in ring {
        if let Some(tail) = entry.iter().flatten().nth(Completion::TAIL) {
            tail.store(CompletionTail::INITIAL.0);
        }
    }
    ring
}
