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
use super::objects::{Supply, record};
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::MmioSendQueue;
use super::shared_receive::MmioSharedReceiveQueue;
use super::storage::{CompletionQueueSlot, NO_QUEUE, QUEUE_PAIRS, QueuePairSlot, Storage, Tables};
use crate::fault::DeviceFault;
use crate::hal::{DmaMemory, Hal};
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
    /// Memory that it shares.
    pub memory: DmaMemory<'s>,
}

/// An adapter with the mlx5 data path.
#[derive(Debug)]
pub struct MmioBackend<'s, C, S, R, H> {
    pub(super) control: C,
    sideband: S,
    pub(super) registers: R,
    hal: H,
    pub(super) supply: Supply<'s>,
    pub(super) tables: Tables<'s>,
    /// Where the search for a free queue pair begins: places rest as long as can be.
    next_pair: usize,
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
        let queue_pairs = queue_pairs.get(..QUEUE_PAIRS).unwrap_or(queue_pairs);
        Self {
            control: parts.control,
            sideband: parts.sideband,
            registers: parts.registers,
            hal: parts.hal,
            supply: Supply::new(parts.memory, memory_taken, requests, requests_taken),
            tables: Tables {
                state,
                queue_pairs,
                completion_queues,
                shared_receive_queues,
                requests,
                windows,
            },
            next_pair: 0,
            sideband_first: true,
            more: false,
        }
    }

    pub(super) fn alive(&self) -> Result<(), BackendError> {
        if self.tables.is_faulty() {
            return Err(BackendError::Device);
        }
        Ok(())
    }

    pub(super) fn pair(&self, key: QueuePairKey) -> Option<&'s QueuePairSlot> {
        self.tables.queue_pairs.get(key.0)
    }

    /// What the device calls a queue pair.
    fn number(&self, key: QueuePairKey) -> Result<u32, BackendError> {
        self.pair(key)
            .map(|pair| pair.number.load(Ordering::Relaxed))
            .filter(|number| *number != 0)
            .ok_or(BackendError::State)
    }

    /// The core's token of the queue pair that the device gives this number.
    fn token(&self, number: u32) -> Option<u64> {
        let pairs = self.tables.queue_pairs.iter();
        let mut known =
            pairs.filter(|pair| number != 0 && pair.number.load(Ordering::Relaxed) == number);
        known.next().map(|pair| pair.token.load())
    }

    pub(super) fn completion_number(&self, name: Option<u16>) -> Result<Option<u32>, BackendError> {
        let Some(name) = name else {
            return Ok(None);
        };
        self.tables
            .completion_queues
            .get(usize::from(name))
            .map(|slot| slot.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .map(Some)
            .ok_or(BackendError::State)
    }

    pub(super) fn segments(&self) -> u32 {
        self.control.limits().segments.min(SEGMENTS)
    }

    pub(super) fn shared_number(&self, key: SharedReceiveQueueKey) -> Result<u32, BackendError> {
        self.tables
            .shared_receive_queues
            .get(key.0)
            .map(|slot| slot.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// The core's token of a shared receive queue.
    fn shared_token(&self, number: u32) -> Option<u64> {
        let queues = self.tables.shared_receive_queues.iter();
        let mut known = queues.filter(|slot| slot.number.load(Ordering::Relaxed) == number);
        known.next().map(|slot| slot.token.load())
    }

    /// An event of the sideband, with the core's token in the place of the number.
    fn named(&self, event: ControlEvent) -> Option<ControlEvent> {
        Some(match event {
            ControlEvent::Answered { queue_pair } => ControlEvent::Answered {
                queue_pair: self.token(queue_pair as u32)?,
            },
            ControlEvent::Established {
                queue_pair,
                private_data,
            } => ControlEvent::Established {
                queue_pair: self.token(queue_pair as u32)?,
                private_data,
            },
            ControlEvent::ConnectFailed {
                queue_pair,
                failure,
            } => ControlEvent::ConnectFailed {
                queue_pair: self.token(queue_pair as u32)?,
                failure,
            },
            ControlEvent::Disconnected { queue_pair } => ControlEvent::Disconnected {
                queue_pair: self.token(queue_pair as u32)?,
            },
            ControlEvent::Broken { queue_pair } => ControlEvent::Broken {
                queue_pair: self.token(queue_pair as u32)?,
            },
            request @ ControlEvent::ConnectionRequest { .. } => request,
            // Nothing that a sideband speaks of.
            _ => return None,
        })
    }

    /// What the device reports, in the core's words.
    fn reported(&self, event: DeviceEvent) -> Option<ControlEvent> {
        Some(match event {
            DeviceEvent::Completions(number) => {
                let queues = self.tables.completion_queues.iter();
                let (queue, slot) = (0..)
                    .zip(queues)
                    .find(|(_, slot)| slot.number.load(Ordering::Relaxed) == number)?;
                let serial = slot.serial.load(Ordering::Relaxed);
                slot.serial.store(serial.wrapping_add(1), Ordering::Relaxed);
                slot.armed.store(0, Ordering::Relaxed);
                ControlEvent::Completions { queue }
            }
            DeviceEvent::SharedReceiveLimit(number) => ControlEvent::SharedReceiveLimit {
                queue: self.shared_token(number)?,
            },
            DeviceEvent::SharedReceiveFailed(number) => ControlEvent::SharedReceiveFailed {
                queue: self.shared_token(number)?,
            },
            DeviceEvent::QueuePairFailed(number) => ControlEvent::Broken {
                queue_pair: self.token(number)?,
            },
            DeviceEvent::Failed => {
                self.tables.fault(DeviceFault::Reported);
                return None;
            }
        })
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
                    self.sideband.poll(now).map(|event| self.named(event))
                } else {
                    self.control.poll(now).map(|event| self.reported(event))
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
        let waits = |slot: &CompletionQueueSlot| slot.armed.load(Ordering::Relaxed) != 0;
        let queues = (0_u16..).zip(self.tables.completion_queues);
        let mut flushed =
            queues.filter(|(name, slot)| waits(slot) && self.tables.has_flushed(u32::from(*name)));
        let (queue, slot) = flushed.next()?;
        slot.armed.store(0, Ordering::Relaxed);
        Some(ControlEvent::Completions { queue })
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

    fn ia_attributes(&self) -> IaAttributes {
        let limits = Limits {
            segments: self.segments(),
            ..self.control.limits()
        };
        attributes::adapter(&limits, &self.tables, self.sideband.address())
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let private_data = self.sideband.private_data_limit();
        attributes::provider(&self.control.limits(), private_data, H::COHERENT)
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.alive()?;
        let number = self.control.create_domain()?;
        Ok(DomainKey(number as usize))
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        self.control.destroy_domain(domain.0 as u32);
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.alive()?;
        self.control.register(registration)
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.control.deregister(region);
    }

    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64) {
        self.hal.synchronise(direction, address, length);
    }

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.alive()?;
        if self.control.limits().windows == 0 {
            return Err(BackendError::NotSupported);
        }
        let mut windows = self.tables.windows.iter();
        let free = windows.position(|window| window.key.load(Ordering::Relaxed) == 0);
        let place = free.ok_or(BackendError::Resources)?;
        let window = self.tables.windows.get(place);
        let window = window.ok_or(BackendError::Resources)?;
        let key = self.control.create_window(domain.0 as u32)?;
        window.key.store(key, Ordering::Relaxed);
        Ok(WindowKey(place))
    }

    fn destroy_window(&mut self, window: WindowKey) {
        if let Some(window) = self.tables.windows.get(window.0) {
            self.control
                .destroy_window(window.key.load(Ordering::Relaxed));
            window.key.store(0, Ordering::Relaxed);
        }
    }

    fn create_completion_queue(
        &mut self,
        name: u16,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError> {
        self.alive()?;
        let slot = self.tables.completion_queues.get(usize::from(name));
        let slot = slot.ok_or(BackendError::Resources)?;
        if slot.number.load(Ordering::Relaxed) != NO_QUEUE {
            return Err(BackendError::State);
        }
        // One more than asked for: the entry that says that the queue moved.
        let entries = room(depth.saturating_add(1))?;
        let taken = self.supply.take(ring_units(entries).saturating_add(1), 0)?;
        let ring = initial(&taken.memory, entries);
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
            record: record(&taken.memory, ring_units(entries)),
            held: taken.held,
            moved: None,
            ring,
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
        self.alive()?;
        if depth < queue.entries {
            return Ok(());
        }
        let entries = room(depth.saturating_add(1))?;
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
        queue.move_to(ring, entries).map_err(|fault| {
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

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        self.alive()?;
        let limits = self.control.limits();
        if depth > limits.shared_buffers || segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let mut slots = self.tables.shared_receive_queues.iter().enumerate();
        let free = slots.find(|(_, slot)| slot.number.load(Ordering::Relaxed) == NO_QUEUE);
        let (key, shared) = free.ok_or(BackendError::Resources)?;
        let places = room(depth.saturating_add(1))?;
        let units = segments.saturating_add(1).next_power_of_two();
        let ring = places.checked_mul(units).ok_or(BackendError::Resources)?;
        let room = ring.saturating_add(1) as usize;
        let taken = self.supply.take(room, places as usize)?;
        shared
            .first
            .store(taken.first_slot as u32, Ordering::Relaxed);
        shared.places.store(places, Ordering::Relaxed);
        let mut queue = MmioSharedReceiveQueue {
            hal: PhantomData,
            ring: taken.memory.units(),
            record: record(&taken.memory, ring as usize),
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
        // The device has no command for more, and less needs none.
        if depth < queue.places {
            Ok(())
        } else {
            Err(BackendError::NotSupported)
        }
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        self.alive()?;
        let number = self.shared_number(key)?;
        self.control.arm_shared_receive_limit(number, limit)
    }

    fn shared_receive_available(&self, _key: SharedReceiveQueueKey) -> Option<u32> {
        None
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: Self::SharedReceiveQueue,
    ) {
        if let Ok(number) = self.shared_number(key) {
            self.control.destroy_shared_receive_queue(number);
            queue.shared.number.store(NO_QUEUE, Ordering::Relaxed);
        }
        self.supply.give_back(queue.held);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError> {
        let places = self.tables.queue_pairs.len();
        let place = (0..places)
            .filter_map(|step| self.next_pair.saturating_add(step).checked_rem(places))
            .find(|place| self.number(QueuePairKey(*place)).is_err())
            .ok_or(BackendError::Resources)?;
        let made = self.make(place, request)?;
        self.settle(&made);
        self.next_pair = place.saturating_add(1);
        Ok(QueuePair {
            key: QueuePairKey(place),
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
        let tail = send.pair.receives.tail();
        let geometry = self.geometry(request)?;
        let fits = receive.as_ref().is_none_or(|receive| {
            let count = receive.head.wrapping_sub(tail);
            let room = count <= checked(request.attributes.max_recv_dtos);
            count == 0 || room && receive.units <= geometry.receive_units
        });
        if !fits {
            return Err(BackendError::State);
        }
        let made = self.make(key.0, request)?;
        self.retire(key);
        self.settle(&made);
        if let (Some(old), Some(mut new)) = (receive, made.receive) {
            // It fits, as was seen above.
            let _fits = new.take_over(old, tail);
            *old = new;
        }
        self.replace(send, made.send);
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
        self.settle(&made);
        if let (Some(old), Some(new)) = (receive, made.receive) {
            *old = new;
        }
        self.replace(send, made.send);
        Ok(())
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

    fn set_high_watermarks(
        &mut self,
        _key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        // The device does not watch; there is nothing to do where nothing is wanted.
        match (soft, hard) {
            (None, None) => Ok(()),
            _ => Err(BackendError::NotSupported),
        }
    }

    fn receive_info(&self, _key: QueuePairKey) -> ReceiveInfo {
        ReceiveInfo::default()
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.alive()?;
        self.sideband.listen(token, qualifier)
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.sideband.stop_listening(listener);
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        self.alive()?;
        let number = self.number(key)?;
        self.sideband.connect(number, request)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        self.alive()?;
        let number = self.number(key)?;
        self.sideband.accept(request, number, private_data)
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        self.sideband.reject(request, by_consumer, private_data);
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
fn initial<'s>(memory: &DmaMemory<'s>, entries: u32) -> &'s [Entry] {
    let ring = memory.units().get(..ring_units(entries));
    let (ring, _) = ring.unwrap_or_default().as_chunks();
    for entry in ring {
        if let Some(tail) = entry.iter().flatten().nth(Completion::TAIL) {
            tail.store(CompletionTail::INITIAL.0);
        }
    }
    ring
}
