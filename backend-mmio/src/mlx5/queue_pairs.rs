//! Creation and destruction of queue pairs.

use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, QueuePairKey, QueuePairRequest, SharedReceiveQueueKey};

use super::allocator::{Allocation, Record, record};
use super::backend::{MmioBackend, bytes, checked, ring_size};
use super::control::{Control, QueuePairSpec};
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::{
    BEFORE_SEGMENTS, MmioSendQueue, NO_BLOCK, blocks_of_request, blocks_of_units,
};
use crate::cm::ConnectionManager;
use crate::defs::mlx5::{
    BLOCK_UNITS, ControlFlags, DESCRIPTOR_UNITS, InlineData, KeyUpdate, QUEUE_ENTRIES, UNIT_BYTES,
};
use crate::platform::{DeviceUnit, Hal, RegisterIo};
use crate::ring::maintenance::{after_end, is_maintained};
use crate::ring::{
    QueuePairSlot, completion_name, encode_shared, generation_index, next_user_index,
};

/// Most bytes of inline data in a descriptor.
const MOST_INLINE: u32 = (DESCRIPTOR_UNITS - BEFORE_SEGMENTS) * UNIT_BYTES - 4;

/// Layout of the rings of a queue pair in its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    receive_entries: u32,
    pub(super) receive_units: u32,
    send_blocks: u32,
}

impl Geometry {
    /// Returns the units of the receive ring, rounded up to a whole block.
    ///
    /// The send ring starts at the next block.
    const fn receive_ring(self) -> u32 {
        self.receive_entries
            .saturating_mul(self.receive_units)
            .next_multiple_of(BLOCK_UNITS)
    }

    const fn send_ring(self) -> u32 {
        self.send_blocks.saturating_mul(BLOCK_UNITS)
    }

    const fn slots(self) -> u32 {
        self.receive_entries.saturating_add(self.send_blocks)
    }
}

/// Parameters of a queue pair, kept to create its replacement.
///
/// Every endpoint holds a copy, so the fields are narrow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairParameters {
    domain: u32,
    request_queue: Option<u16>,
    receive_queue: Option<u16>,
    /// Index of the shared receive queue plus 1, or 0.
    pub(super) shared: u32,
    requests: u16,
    receives: u16,
    segments: u16,
    receive_segments: u16,
    reads_in: u16,
    reads_out: u16,
    reads_at_post: bool,
}

/// Narrows a count, which the core checked to be non-negative.
///
/// A count that does not fit saturates; it then still exceeds every queue size of the device.
fn narrow(count: i32) -> u16 {
    const { assert!(QUEUE_ENTRIES < u16::MAX as u32) };
    u16::try_from(checked(count)).unwrap_or(u16::MAX)
}

impl PairParameters {
    pub(super) fn of(request: &QueuePairRequest) -> Self {
        let attributes = &request.attributes;
        let segments = attributes
            .max_request_iov
            .max(attributes.max_rdma_read_iov)
            .max(attributes.max_rdma_write_iov);
        Self {
            domain: request.domain.0 as u32,
            request_queue: request.request_queue.and_then(completion_name),
            receive_queue: request.receive_queue.and_then(completion_name),
            shared: encode_shared(request.shared_receive_queue),
            requests: narrow(attributes.max_request_dtos),
            receives: narrow(attributes.max_recv_dtos),
            segments: narrow(segments),
            receive_segments: narrow(attributes.max_recv_iov),
            reads_in: narrow(attributes.max_rdma_read_in),
            reads_out: narrow(attributes.max_rdma_read_out),
            reads_at_post: request.may_read_at_post(),
        }
    }

    /// Returns the key of the shared receive queue, if any.
    fn shared_key(&self) -> Option<SharedReceiveQueueKey> {
        let index = self.shared.checked_sub(1)?;
        Some(SharedReceiveQueueKey(index as usize))
    }

    /// Returns the number of receives that must fit.
    pub(super) fn receives(&self) -> u32 {
        self.receives.into()
    }
}

/// A queue pair that the device has created, with the parts of its queues.
pub(super) struct NewPair<'s> {
    generation: &'s QueuePairSlot,
    number: u32,
    user_index: u32,
    first_slot: usize,
    geometry: Geometry,
    doorbell: u32,
    takes_blocks: bool,
    allocation: Allocation,
    units: &'s [DeviceUnit],
    record: &'s Record,
}

impl<'s, C: Control, S: ConnectionManager, R: RegisterIo, H: Hal> MmioBackend<'s, C, S, R, H> {
    pub(super) fn geometry(&self, parameters: &PairParameters) -> Result<Geometry, BackendError> {
        if !is_maintained(&self.hal) {
            return Err(BackendError::NotSupported);
        }
        let limits = self.control.limits();
        let [segments, receive_segments, requests, receives] = [
            parameters.segments,
            parameters.receive_segments,
            parameters.requests,
            parameters.receives,
        ]
        .map(u32::from);
        let fits = segments <= self.segments()
            && receive_segments <= self.segments()
            && requests <= limits.work_requests
            && receives <= limits.work_requests;
        if !fits {
            return Err(BackendError::Resources);
        }
        let mut blocks = blocks_of_request(segments);
        if parameters.reads_at_post && limits.inline != 0 {
            let inline = InlineData {
                length: limits.inline.min(MOST_INLINE),
            };
            blocks = blocks.max(blocks_of_units(
                inline.units().saturating_add(BEFORE_SEGMENTS),
            ));
        }
        if limits.windows != 0 {
            blocks = blocks.max(blocks_of_units(u32::from(KeyUpdate::BIND_UNITS)));
        }
        let blocks = requests.checked_mul(blocks);
        let shares = parameters.shared != 0;
        let receive_units = receive_segments.max(1).next_power_of_two();
        Ok(Geometry {
            receive_entries: if shares || receives == 0 {
                0
            } else {
                // The device requires a ring of at least one block.
                ring_size(receives)?.max(BLOCK_UNITS / receive_units)
            },
            receive_units,
            send_blocks: ring_size(blocks.ok_or(BackendError::Resources)?.max(1))?,
        })
    }

    /// Creates a queue pair on the device for an index.
    ///
    /// Does not touch the current queue pair of the index.
    #[inline(never)]
    pub(super) fn create_pair(
        &mut self,
        index: usize,
        parameters: &PairParameters,
    ) -> Result<NewPair<'s>, BackendError> {
        self.tables.alive()?;
        let last = self
            .generation(QueuePairKey(index))
            .ok_or(BackendError::State)?;
        let geometry = self.geometry(parameters)?;
        let request_queue = self.completion_number(parameters.request_queue)?;
        let receive_queue = self.completion_number(parameters.receive_queue)?;
        let shared = match parameters.shared_key() {
            Some(key) => Some(self.tables.shared_number(key)?),
            None => None,
        };
        let rings = geometry.receive_ring().saturating_add(geometry.send_ring());
        let units = rings.saturating_add(1) as usize;
        let allocated = self.allocator.take(units, geometry.slots() as usize)?;
        let user_index = next_user_index(last.user_index.load(Ordering::Relaxed), index);
        let generation = self.tables.generations.get(generation_index(user_index));
        let generation = generation.ok_or(BackendError::State)?;
        let spec = QueuePairSpec {
            domain: parameters.domain,
            user_index,
            request_queue,
            receive_queue,
            shared_receive_queue: shared,
            ring: allocated.memory.bus(),
            receive_entries: geometry.receive_entries,
            receive_units: geometry.receive_units,
            send_blocks: geometry.send_blocks,
            record: allocated.memory.bus().saturating_add(bytes(rings)),
            reads_in: parameters.reads_in.into(),
            reads_out: parameters.reads_out.into(),
        };
        H::to_register();
        let record = record(&allocated.memory, rings as usize)?;
        let created = match self.control.create_queue_pair(&spec) {
            Ok(created) => created,
            Err(error) => {
                self.allocator.give_back(allocated.allocation);
                return Err(error);
            }
        };
        Ok(NewPair {
            generation,
            number: created.number,
            user_index,
            first_slot: allocated.first_slot,
            geometry,
            doorbell: created.doorbell,
            takes_blocks: created.takes_blocks,
            allocation: allocated.allocation,
            units: allocated.memory.units(),
            record,
        })
    }

    /// Creates a queue pair at a free index, with its queues in their final location.
    ///
    /// The queues are large, and each copy would take its own stack.
    #[inline(never)]
    pub(super) fn create_pair_at(
        &mut self,
        index: usize,
        request: &QueuePairRequest,
        send: &mut Option<MmioSendQueue<'s, H, R>>,
        receive: &mut Option<MmioReceiveQueue<'s, H>>,
    ) -> Result<QueuePairKey, BackendError> {
        let parameters = PairParameters::of(request);
        let mut created = self.create_pair(index, &parameters);
        let created = created.as_mut().map_err(|error| *error)?;
        self.put_receive_queue(&parameters, created, receive);
        self.publish_pair(&parameters, created, request.token);
        self.put_send_queue(&parameters, created, send);
        Ok(QueuePairKey(index))
    }

    /// Creates the send queue in its final location.
    ///
    /// Out of line: inlined, its stack frame would add to that of the queue pair's creation.
    #[inline(never)]
    fn put_send_queue(
        &self,
        parameters: &PairParameters,
        created: &mut NewPair<'s>,
        send: &mut Option<MmioSendQueue<'s, H, R>>,
    ) {
        *send = Some(self.send_queue(parameters, created));
    }

    /// As `put_send_queue`, replacing a queue whose memory is freed.
    #[inline(never)]
    fn exchange_send_queue(
        &mut self,
        parameters: &PairParameters,
        created: &mut NewPair<'s>,
        send: &mut MmioSendQueue<'s, H, R>,
    ) {
        let allocation = core::mem::take(&mut send.allocation);
        *send = self.send_queue(parameters, created);
        self.allocator.give_back(allocation);
    }

    /// Replaces a queue pair and frees the memory of the old one.
    ///
    /// Receives from index `kept_from` on are copied to the new queue; the caller has checked that
    /// they fit.
    #[inline(never)]
    pub(super) fn recreate_pair(
        &mut self,
        key: QueuePairKey,
        parameters: &PairParameters,
        send: &mut MmioSendQueue<'s, H, R>,
        receive: Option<&mut MmioReceiveQueue<'s, H>>,
        kept_from: Option<u32>,
    ) -> Result<(), BackendError> {
        let mut created = self.create_pair(key.0, parameters);
        let created = created.as_mut().map_err(|error| *error)?;
        let token = send.generation.token.load();
        self.retire(key);
        self.publish_pair(parameters, created, token);
        if let Some(receive) = receive {
            self.exchange_receive_queue(parameters, created, receive, kept_from);
        }
        self.exchange_send_queue(parameters, created, send);
        Ok(())
    }

    /// Replaces a receive queue by that of a newly created queue pair.
    #[inline(never)]
    fn exchange_receive_queue(
        &self,
        parameters: &PairParameters,
        created: &NewPair<'s>,
        receive: &mut MmioReceiveQueue<'s, H>,
        kept_from: Option<u32>,
    ) {
        let mut new = None;
        self.put_receive_queue(parameters, created, &mut new);
        if let Some(mut new) = new {
            if let Some(tail) = kept_from {
                let _fits = new.take_over(receive, tail);
            }
            *receive = new;
        }
    }

    /// Creates the receive queue of a queue pair, unless it uses a shared one.
    #[inline(never)]
    fn put_receive_queue(
        &self,
        parameters: &PairParameters,
        created: &NewPair<'s>,
        receive: &mut Option<MmioReceiveQueue<'s, H>>,
    ) {
        let Geometry {
            receive_entries,
            receive_units,
            ..
        } = created.geometry;
        if parameters.shared != 0 {
            *receive = None;
            return;
        }
        let ring = created
            .units
            .get(..created.geometry.receive_ring() as usize);
        let slots = self.allocator.slots();
        let slots = slots.get(created.first_slot..).unwrap_or_default();
        let slots = slots.get(..receive_entries as usize);
        *receive = Some(MmioReceiveQueue {
            hal: self.hal.clone(),
            ring: ring.unwrap_or_default(),
            record: created.record,
            slots: slots.unwrap_or_default(),
            generation: created.generation,
            entries: receive_entries,
            units: receive_units,
            head: 0,
            tail: 0,
        });
    }

    /// Creates the send queue of a queue pair.
    #[inline]
    fn send_queue(
        &self,
        parameters: &PairParameters,
        created: &mut NewPair<'s>,
    ) -> MmioSendQueue<'s, H, R> {
        let geometry = created.geometry;
        let rest = created.units.get(geometry.receive_ring() as usize..);
        let ring = rest
            .unwrap_or_default()
            .get(..geometry.send_ring() as usize);
        let (ring, _) = ring.unwrap_or_default().as_chunks();
        let first = created
            .first_slot
            .saturating_add(geometry.receive_entries as usize);
        let slots = self.allocator.slots().get(first..).unwrap_or_default();
        let slots = slots.get(..geometry.send_blocks as usize);
        let inline_below = if parameters.reads_at_post {
            match self.control.limits().inline {
                0 => 0,
                most => most.min(MOST_INLINE).saturating_add(1),
            }
        } else {
            0
        };
        MmioSendQueue {
            parameters: *parameters,
            hal: self.hal.clone(),
            registers: self.registers.clone(),
            allocation: core::mem::take(&mut created.allocation),
            ring,
            record: created.record,
            slots: slots.unwrap_or_default(),
            generation: created.generation,
            windows: self.windows,
            state: self.tables.state,
            number: created.number,
            head: 0,
            tail: 0,
            doorbell: created.doorbell,
            last: 0,
            flags: ControlFlags::COMPLETE,
            inline_below,
            takes_blocks: created.takes_blocks,
            burst: NO_BLOCK,
        }
    }

    /// Publishes a new queue pair in its slot.
    fn publish_pair(&self, parameters: &PairParameters, created: &NewPair<'_>, token: u64) {
        let NewPair {
            generation,
            number,
            user_index,
            first_slot: receives,
            geometry,
            ..
        } = *created;
        let sends = receives.saturating_add(geometry.receive_entries as usize);
        generation
            .receives
            .begin(receives, geometry.receive_entries, parameters.receive_queue);
        generation
            .requests
            .begin(sends, geometry.send_blocks, parameters.request_queue);
        generation.token.store(token);
        generation
            .shared
            .store(parameters.shared, Ordering::Relaxed);
        self.tables.expect(generation, user_index);
        generation.number.store(number, Ordering::Release);
    }

    /// Destroys a queue pair on the device; its completions may still be queued.
    pub(super) fn retire(&mut self, key: QueuePairKey) {
        let Some(generation) = self
            .generation(key)
            .filter(|generation| generation.is_live())
        else {
            return;
        };
        let number = self.tables.retire(generation);
        self.control.destroy_queue_pair(number);
        for queue in [&generation.requests, &generation.receives] {
            after_end(&self.hal, queue, self.tables.requests);
        }
        self.cm.forget(number);
    }
}
