//! A device as the core drives it.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, ListenerKey,
    QueuePair, QueuePairKey, QueuePairRequest, ReceiveInfo, RegionKeys, Registration, RequestKey,
    SharedReceiveQueueKey, SyncDirection, WindowKey,
};
use dat_core::time::Instant;

use super::attributes;
use super::completion_queue::{Entry, MmioCompletionQueue};
use super::control::{CompletionQueueSpec, Control, DeviceEvent, Limits, SharedReceiveQueueSpec};
use super::defs::{
    COMPLETION_UNITS, Completion, CompletionTail, DESCRIPTOR_UNITS, QUEUE_ENTRIES, UNIT_BYTES,
};
use super::objects::{Supply, Taken, record};
use super::pairs::Asked;
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::MmioSendQueue;
use super::shared_receive::MmioSharedReceiveQueue;
use super::storage::{NO_QUEUE, QUEUE_PAIRS, QueuePairSlot, Storage, Tables, WindowSlot};
use crate::calls::{common_calls, renamed};
use crate::fault::DeviceFault;
use crate::hal::{DmaMemory, DmaView, Hal};
use crate::registers::RegisterIo;
use crate::sideband::Sideband;

/// Segments of the longest descriptor.
const SEGMENTS: u32 = DESCRIPTOR_UNITS - 2;

/// Events of things that are gone which one call of `poll_control` passes over.
const ROUNDS: usize = 64;

/// What a platform brings together to make a device.
#[derive(Debug)]
pub struct Parts<'s, C, S, R, H> {
    /// Its control path.
    pub control: C,
    /// Its channel for connections.
    pub sideband: S,
    /// Its doorbells.
    pub registers: R,
    /// The platform.
    pub hal: H,
    /// Buffers that every shared receive queue has room for at least: the device makes none larger, so that they grow within that room
    /// alone. It counts once for each of them in memory and in [`Storage::requests`]; one that there is not so much left for has room for
    /// what it was asked for, and does not grow.
    pub shared_buffers: u32,
    /// Memory that it shares.
    pub memory: DmaMemory<'s>,
}

/// An adapter with the mlx5 data path.
#[derive(Debug)]
pub struct MmioBackend<'s, C, S, R, H> {
    pub(super) control: C,
    pub(crate) sideband: S,
    pub(super) registers: R,
    hal: H,
    pub(super) supply: Supply<'s>,
    pub(crate) tables: Tables<'s>,
    shared_buffers: u32,
    /// Where the search for a free queue pair begins: places rest as long as can be.
    next_pair: usize,
    /// Windows made ahead so far; 0 as long as none was given back.
    windows_made: u32,
    /// Whether the sideband is asked first.
    sideband_first: bool,
    /// Whether there may be more events than the last call looked at.
    more: bool,
}

/// A count that the core checked not to be negative.
pub(super) fn checked(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

/// Room for so many of something in a ring, which has a power of two.
pub(super) fn room(entries: u32) -> Result<u32, BackendError> {
    entries
        .checked_next_power_of_two()
        .filter(|room| *room <= QUEUE_ENTRIES)
        .ok_or(BackendError::Resources)
}

pub(super) fn bytes(units: u32) -> u64 {
    u64::from(units).saturating_mul(u64::from(UNIT_BYTES))
}

impl<'s, C: Control, S: Sideband, R: RegisterIo, H: Hal> MmioBackend<'s, C, S, R, H> {
    /// Brings a device into operation.
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
        let lives = queue_pairs.get(..2 * QUEUE_PAIRS).unwrap_or(queue_pairs);
        let tables = Tables {
            state: state.0,
            lives,
            completion_queues,
            shared_receive_queues,
            requests,
            windows,
        };
        tables.clear();
        Self {
            control: parts.control,
            sideband: parts.sideband,
            registers: parts.registers,
            hal: parts.hal,
            supply: Supply::new(parts.memory, memory_taken, requests, requests_taken),
            tables,
            shared_buffers: parts.shared_buffers,
            next_pair: 0,
            windows_made: 0,
            sideband_first: true,
            more: false,
        }
    }

    /// The last life of a queue pair.
    pub(super) fn life(&self, key: QueuePairKey) -> Option<&'s QueuePairSlot> {
        self.tables.latest_at(key.0)
    }

    /// What the device calls a queue pair.
    pub(crate) fn number(&self, key: QueuePairKey) -> Result<u32, BackendError> {
        self.life(key)
            .map(|life| life.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// The core's token of the queue pair that the device gives this number.
    fn token(&self, number: u32) -> Option<u64> {
        let mut known = self
            .tables
            .latest()
            .filter(|life| life.lives() && life.number.load(Ordering::Relaxed) == number);
        known.next().map(|life| life.token.load())
    }

    pub(super) fn completion_number(&self, name: Option<u16>) -> Result<Option<u32>, BackendError> {
        let Some(name) = name else {
            return Ok(None);
        };
        self.tables.completion_number(name).map(Some)
    }

    /// Entries of a ring for so many completions, and one more: the entry that says that the queue moved.
    fn completion_entries(&self, depth: u32) -> Result<u32, BackendError> {
        if depth > self.control.limits().completions {
            return Err(BackendError::Resources);
        }
        room(depth.saturating_add(1))
    }

    /// The most buffers of a shared receive queue.
    fn most_shared_buffers(&self) -> u32 {
        self.control.limits().shared_buffers.min(QUEUE_ENTRIES - 1)
    }

    pub(super) fn segments(&self) -> u32 {
        self.control.limits().segments.min(SEGMENTS)
    }

    /// Takes what a shared receive queue of so many buffers needs: its places, the units of its ring, and both.
    fn shared_room(
        &mut self,
        buffers: u32,
        units: u32,
    ) -> Result<(u32, u32, Taken<'s>), BackendError> {
        let places = room(buffers.saturating_add(1))?;
        let ring = places.checked_mul(units).ok_or(BackendError::Resources)?;
        let room = ring.saturating_add(1) as usize;
        let taken = self.supply.take(room, places as usize)?;
        Ok((places, ring, taken))
    }

    /// An event of the sideband, with the core's token in the place of the number.
    fn named(&self, event: ControlEvent) -> Option<ControlEvent> {
        let of = |number| (!self.sideband.owns(number)).then(|| self.token(number));
        renamed(event, |number| of(number).flatten())
    }

    /// What the device reports, in the core's words.
    fn reported(&mut self, event: DeviceEvent) -> Option<ControlEvent> {
        Some(match event {
            DeviceEvent::Completions(number) => {
                let (queue, slot) = self.tables.completion_queue(number)?;
                let serial = slot.serial.load(Ordering::Relaxed);
                slot.serial.store(serial.wrapping_add(1), Ordering::Relaxed);
                slot.armed.store(0, Ordering::Relaxed);
                ControlEvent::Completions { queue }
            }
            DeviceEvent::SharedReceiveLimit(number) => ControlEvent::SharedReceiveLimit {
                queue: self.tables.shared_token(number)?,
            },
            DeviceEvent::SharedReceiveFailed(number) => ControlEvent::SharedReceiveFailed {
                queue: self.tables.shared_token(number)?,
            },
            DeviceEvent::QueuePairFailed(number) => {
                self.sideband.failed(number);
                if self.sideband.owns(number) {
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

    /// The place of a window that nobody has. Once one was given back, others are made ahead wherever there is room, and the
    /// one that was made first is taken: a device may give an index again at once.
    #[inline(never)]
    fn take_window(&mut self, domain: u32) -> Result<usize, BackendError> {
        if self.windows_made != 0 {
            let free = self.tables.windows.iter().filter(|window| window.is_free());
            let mut number = self
                .windows_made
                .saturating_add(free.clone().count() as u32);
            self.windows_made = number;
            for window in free {
                let Ok(key) = self.control.create_window(domain) else {
                    break;
                };
                // What the device gives first may be what it got back last.
                window.begin(key, domain, self.hal.random(), number);
                number = number.saturating_sub(1);
            }
        }
        let windows = self.tables.windows.iter().enumerate();
        let made = windows.filter_map(|(place, window)| match window.made_ahead() {
            Some((of, number)) if of == domain => Some((number, place)),
            _ => None,
        });
        let place = match made.min() {
            Some((_, place)) => place,
            None => self.make_window(domain)?,
        };
        if let Some(window) = self.tables.windows.get(place) {
            window.take();
        }
        Ok(place)
    }

    /// Has the device make a window for which none was made ahead. Those of other domains give way.
    fn make_window(&mut self, domain: u32) -> Result<usize, BackendError> {
        if !self.tables.windows.iter().any(WindowSlot::is_free) {
            self.give_back_ahead(|_| true);
        }
        let mut windows = self.tables.windows.iter().enumerate();
        let (place, window) = windows
            .find(|(_, window)| window.is_free())
            .ok_or(BackendError::Resources)?;
        let key = match self.control.create_window(domain) {
            Err(_) if self.give_back_ahead(|_| true) => self.control.create_window(domain)?,
            made => made?,
        };
        window.begin(key, domain, self.hal.random(), 0);
        Ok(place)
    }

    /// Gives back the windows made ahead in these domains; whether there were any.
    fn give_back_ahead(&mut self, of: impl Fn(u32) -> bool) -> bool {
        let mut found = false;
        for window in self.tables.windows {
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

    /// What the sideband or the device has to tell, if anything, and if of an object that is there. They take turns, so that
    /// neither keeps the other waiting.
    fn next_event(&mut self, now: Instant) -> Option<Option<ControlEvent>> {
        let sideband_first = self.sideband_first;
        self.sideband_first = !sideband_first;
        [sideband_first, !sideband_first]
            .into_iter()
            .find_map(|sideband| {
                if sideband {
                    let event = self.sideband.poll(now)?;
                    Some(self.named(event))
                } else {
                    let event = self.control.poll(now)?;
                    Some(self.reported(event))
                }
            })
    }

    /// Of a device that was given up: that it was, once; and then what the driver flushed.
    fn after_fault(&mut self) -> Option<ControlEvent> {
        if !self.tables.state.is_halted() {
            self.control.halt();
            self.tables.state.set_halted();
            return Some(ControlEvent::DeviceFailed);
        }
        self.tables
            .tell_waiting(|name| self.tables.has_flushed(name))
    }
}

#[expect(
    unsafe_code,
    reason = "the device keeps to what its control path promises"
)]
// SAFETY: this driver touches no consumer memory: it writes addresses and keys into descriptors. The device acts on them as
// `Control` promises, and so do the calls that are handed on to it.
unsafe impl<'s, C: Control, S: Sideband, R: RegisterIo, H: Hal> Backend
    for MmioBackend<'s, C, S, R, H>
{
    type CompletionQueue = MmioCompletionQueue<'s, H, R>;
    type SendQueue = MmioSendQueue<'s, H, R>;
    type ReceiveQueue = MmioReceiveQueue<'s, H>;
    type SharedReceiveQueue = MmioSharedReceiveQueue<'s, H>;

    /// Where the device takes data in descriptors.
    const READS_AT_POST: bool = true;

    fn ia_attributes(&self) -> IaAttributes {
        let limits = Limits {
            segments: self.segments(),
            ..self.control.limits()
        };
        attributes::adapter(&limits, &self.tables, self.sideband.address())
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let private_data = self.sideband.private_data_limit();
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
        // After a bind that was flushed the device has another key than was counted.
        let window = self.tables.windows.get(window.0);
        window.is_some_and(|window| missed || window.is_spent(true))
    }

    fn destroy_window(&mut self, window: WindowKey) {
        if let Some(window) = self.tables.windows.get(window.0) {
            self.give_back(window);
        }
    }

    #[inline(never)]
    fn create_completion_queue(
        &mut self,
        name: u16,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError> {
        self.tables.alive()?;
        let slot = self.tables.free_completion_queue(name)?;
        let entries = self.completion_entries(depth)?;
        let taken = self.supply.take(ring_units(entries).saturating_add(1), 0)?;
        let ring = initial(&taken.memory, entries);
        let record = record(&taken.memory, ring_units(entries))?;
        let spec = CompletionQueueSpec {
            ring: taken.memory.bus(),
            entries,
            record: taken
                .memory
                .bus()
                .saturating_add(bytes(entries.saturating_mul(COMPLETION_UNITS))),
        };
        H::to_register();
        let number = match self.control.create_completion_queue(&spec) {
            Ok(number) => number,
            Err(error) => {
                self.supply.give_back(taken.held);
                return Err(error);
            }
        };
        slot.begin(number);
        Ok(MmioCompletionQueue {
            hal: PhantomData,
            registers: self.registers.clone(),
            record,
            held: taken.held,
            moved: None,
            ring,
            tables: self.tables,
            slot,
            name,
            number,
            next: 0,
            flushing: 0,
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
        // The record stays where it is, in the memory of the first ring, so that goes on being held.
        let taken = self.supply.take(ring_units(entries), 0)?;
        let ring = initial(&taken.memory, entries);
        H::to_register();
        let moved = self
            .control
            .move_completion_queue(queue.number, taken.memory.bus(), entries);
        if let Err(error) = moved {
            self.supply.give_back(taken.held);
            return Err(error);
        }
        if let Some(old) = queue.moved.replace(taken.held) {
            self.supply.give_back(old);
        }
        queue.move_to(ring).map_err(|fault| {
            self.tables.fault(fault);
            BackendError::Device
        })
    }

    fn destroy_completion_queue(&mut self, queue: Self::CompletionQueue) {
        self.control.destroy_completion_queue(queue.number);
        queue.slot.number.store(NO_QUEUE, Ordering::Relaxed);
        self.supply.give_back(queue.held);
        if let Some(moved) = queue.moved {
            self.supply.give_back(moved);
        }
    }

    #[inline(never)]
    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        self.tables.alive()?;
        let limit = self.most_shared_buffers();
        if depth > limit || segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let (key, shared) = self.tables.free_shared()?;
        // The device has no place of less than two units.
        let units = segments.saturating_add(1).next_power_of_two().max(2);
        // Room to grow only if there is as much.
        let wanted = depth.max(self.shared_buffers.min(limit));
        let (places, ring, taken) = self
            .shared_room(wanted, units)
            .or_else(|_| self.shared_room(depth, units))?;
        shared
            .first
            .store(taken.first_slot as u32, Ordering::Relaxed);
        shared.places.store(places, Ordering::Relaxed);
        let mut queue = MmioSharedReceiveQueue {
            hal: PhantomData,
            ring: taken.memory.units(),
            record: record(&taken.memory, ring as usize)?,
            slots: self.supply.slots(),
            held: taken.held,
            shared,
            places,
            units,
            next: 0,
            last: 0,
            posted: 0,
        };
        queue.begin();
        H::to_register();
        let made = self
            .control
            .create_shared_receive_queue(&SharedReceiveQueueSpec {
                domain: domain.0 as u32,
                ring: taken.memory.bus(),
                entries: places,
                units,
                record: taken.memory.bus().saturating_add(bytes(ring)),
            });
        match made {
            Ok(number) => {
                shared.token.store(token);
                shared.number.store(number, Ordering::Relaxed);
                Ok((SharedReceiveQueueKey(key), queue))
            }
            Err(error) => {
                self.supply.give_back(queue.held);
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
        // The device has no command for more, and what there is room for needs none.
        if depth < queue.places && depth <= self.most_shared_buffers() {
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
            queue.shared.number.store(NO_QUEUE, Ordering::Relaxed);
            // Who took from it is gone, and what they left behind is none of the next queue's.
            self.tables.forget_shared(key);
        }
        self.supply.give_back(queue.held);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError> {
        let (mut send, mut receive) = (None, None);
        let key = self.create_queue_pair_at(request, &mut send, &mut receive)?;
        // It is there after a success.
        let send = send.ok_or(BackendError::Device)?;
        Ok(QueuePair { key, send, receive })
    }

    fn create_queue_pair_at(
        &mut self,
        request: &QueuePairRequest,
        send: &mut Option<Self::SendQueue>,
        receive: &mut Option<Self::ReceiveQueue>,
    ) -> Result<QueuePairKey, BackendError> {
        let places = self.tables.lives.len() / 2;
        let place = (0..places)
            .filter_map(|step| self.next_pair.saturating_add(step).checked_rem(places))
            .find(|place| self.number(QueuePairKey(*place)).is_err())
            .ok_or(BackendError::Resources)?;
        self.next_pair = place.saturating_add(1);
        self.make_at(place, request, send, receive)
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let asked = Asked::of(request);
        if send.asked.shared != asked.shared {
            return Err(BackendError::NotSupported);
        }
        let tail = send.life.receives.tail();
        let geometry = self.geometry(&asked)?;
        let fits = receive.as_ref().is_none_or(|receive| {
            let count = receive.head.wrapping_sub(tail);
            let room = count <= asked.receives();
            count == 0 || room && receive.units <= geometry.receive_units
        });
        if !fits {
            return Err(BackendError::State);
        }
        self.make_again(key, &asked, send, receive, Some(tail))
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError> {
        let asked = send.asked;
        self.make_again(key, &asked, send, receive, None)
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: Self::SendQueue,
        _receive: Option<Self::ReceiveQueue>,
    ) {
        self.retire(key);
        self.supply.give_back(send.held);
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
        self.sideband.accept(request, number, private_data)
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        if let Ok(number) = self.number(key) {
            self.sideband.disconnect(number, mode);
        }
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        self.more = false;
        for _ in 0..ROUNDS {
            if self.tables.is_faulty() {
                return self.after_fault();
            }
            // Those of what is gone are passed over.
            if let Some(event) = self.next_event(now)? {
                return Some(event);
            }
        }
        // A peer can cause events of what is gone, so that many of them are no fault.
        self.more = true;
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let to_halt = self.tables.is_faulty() && !self.tables.state.is_halted();
        if self.more || to_halt {
            return Some(Instant::ZERO);
        }
        self.sideband.next_deadline()
    }
}

fn ring_units(entries: u32) -> usize {
    entries.saturating_mul(COMPLETION_UNITS) as usize
}

/// A ring of completions none of which was written.
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
