//! Creation and destruction of queue pairs.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, QueuePairKey, QueuePairRequest, SharedReceiveQueueKey};

use super::backend::{MmioBackend, bytes, checked, room};
use super::control::{Control, QueuePairSpec};
use super::defs::{
    BLOCK_UNITS, ControlFlags, DESCRIPTOR_UNITS, InlineData, KeyUpdate, QUEUE_ENTRIES, UNIT_BYTES,
};
use super::objects::{Held, Record, record};
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::{BEFORE_SEGMENTS, MmioSendQueue, NO_BLOCK, blocks_for, blocks_of};
use super::storage::{NO_QUEUE, QueuePairSlot, life_of, next_user_index, taken_from};
use crate::hal::{DeviceUnit, Hal};
use crate::registers::RegisterIo;
use crate::sideband::Sideband;

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
pub(crate) struct Asked {
    domain: u32,
    request_queue: Option<u16>,
    receive_queue: Option<u16>,
    /// Index of the shared receive queue plus 1, or 0.
    pub(super) shared: u32,
    requests: u16,
    receives: u16,
    segments: u16,
    pieces: u16,
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

impl Asked {
    pub(super) fn of(request: &QueuePairRequest) -> Self {
        let attributes = &request.attributes;
        let segments = attributes
            .max_request_iov
            .max(attributes.max_rdma_read_iov)
            .max(attributes.max_rdma_write_iov);
        Self {
            domain: request.domain.0 as u32,
            request_queue: request.request_queue,
            receive_queue: request.receive_queue,
            shared: taken_from(request.shared_receive_queue),
            requests: narrow(attributes.max_request_dtos),
            receives: narrow(attributes.max_recv_dtos),
            segments: narrow(segments),
            pieces: narrow(attributes.max_recv_iov),
            reads_in: narrow(attributes.max_rdma_read_in),
            reads_out: narrow(attributes.max_rdma_read_out),
            reads_at_post: request.may_read_at_post(),
        }
    }

    /// Returns the key of the shared receive queue, if any.
    fn shared_key(&self) -> Option<SharedReceiveQueueKey> {
        let place = self.shared.checked_sub(1)?;
        Some(SharedReceiveQueueKey(place as usize))
    }

    /// Returns the number of receives that must fit.
    pub(super) fn receives(&self) -> u32 {
        self.receives.into()
    }
}

/// A queue pair that the device has created, with the parts of its queues.
pub(super) struct Made<'s> {
    life: &'s QueuePairSlot,
    number: u32,
    user_index: u32,
    first_slot: usize,
    geometry: Geometry,
    doorbell: u32,
    takes_blocks: bool,
    held: Held,
    units: &'s [DeviceUnit],
    record: &'s Record,
}

impl<'s, C: Control, S: Sideband, R: RegisterIo, H: Hal> MmioBackend<'s, C, S, R, H> {
    pub(super) fn geometry(&self, asked: &Asked) -> Result<Geometry, BackendError> {
        let limits = self.control.limits();
        let [segments, pieces, requests, receives] =
            [asked.segments, asked.pieces, asked.requests, asked.receives].map(u32::from);
        let fits = segments <= self.segments()
            && pieces <= self.segments()
            && requests <= limits.work_requests
            && receives <= limits.work_requests;
        if !fits {
            return Err(BackendError::Resources);
        }
        let mut blocks = blocks_for(segments);
        if asked.reads_at_post && limits.inline != 0 {
            let inline = InlineData {
                length: limits.inline.min(MOST_INLINE),
            };
            blocks = blocks.max(blocks_of(inline.units().saturating_add(BEFORE_SEGMENTS)));
        }
        if limits.windows != 0 {
            blocks = blocks.max(blocks_of(u32::from(KeyUpdate::BIND_UNITS)));
        }
        let blocks = requests.checked_mul(blocks);
        let shares = asked.shared != 0;
        let receive_units = pieces.max(1).next_power_of_two();
        Ok(Geometry {
            receive_entries: if shares || receives == 0 {
                0
            } else {
                // The device requires a ring of at least one block.
                room(receives)?.max(BLOCK_UNITS / receive_units)
            },
            receive_units,
            send_blocks: room(blocks.ok_or(BackendError::Resources)?.max(1))?,
        })
    }

    /// Creates a queue pair on the device for an index.
    ///
    /// Does not touch the current queue pair of the index.
    #[inline(never)]
    pub(super) fn make(&mut self, place: usize, asked: &Asked) -> Result<Made<'s>, BackendError> {
        self.tables.alive()?;
        let last = self.life(QueuePairKey(place)).ok_or(BackendError::State)?;
        let geometry = self.geometry(asked)?;
        let request_queue = self.completion_number(asked.request_queue)?;
        let receive_queue = self.completion_number(asked.receive_queue)?;
        let shared = match asked.shared_key() {
            Some(key) => Some(self.tables.shared_number(key)?),
            None => None,
        };
        let rings = geometry.receive_ring().saturating_add(geometry.send_ring());
        let units = rings.saturating_add(1) as usize;
        let taken = self.supply.take(units, geometry.slots() as usize)?;
        let user_index = next_user_index(last.user_index.load(Ordering::Relaxed), place);
        let life = self.tables.lives.get(life_of(user_index));
        let life = life.ok_or(BackendError::State)?;
        let spec = QueuePairSpec {
            domain: asked.domain,
            user_index,
            request_queue,
            receive_queue,
            shared_receive_queue: shared,
            ring: taken.memory.bus(),
            receive_entries: geometry.receive_entries,
            receive_units: geometry.receive_units,
            send_blocks: geometry.send_blocks,
            record: taken.memory.bus().saturating_add(bytes(rings)),
            reads_in: asked.reads_in.into(),
            reads_out: asked.reads_out.into(),
        };
        H::to_register();
        let record = record(&taken.memory, rings as usize)?;
        let made = match self.control.create_queue_pair(&spec) {
            Ok(made) => made,
            Err(error) => {
                self.supply.give_back(taken.held);
                return Err(error);
            }
        };
        Ok(Made {
            life,
            number: made.number,
            user_index,
            first_slot: taken.first_slot,
            geometry,
            doorbell: made.doorbell,
            takes_blocks: made.takes_blocks,
            held: taken.held,
            units: taken.memory.units(),
            record,
        })
    }

    /// Creates a queue pair at a free index, with its queues in their final location.
    ///
    /// The queues are large, and each copy would take its own stack.
    #[inline(never)]
    pub(super) fn make_at(
        &mut self,
        place: usize,
        request: &QueuePairRequest,
        send: &mut Option<MmioSendQueue<'s, H, R>>,
        receive: &mut Option<MmioReceiveQueue<'s, H>>,
    ) -> Result<QueuePairKey, BackendError> {
        let asked = Asked::of(request);
        let mut made = self.make(place, &asked);
        let made = made.as_mut().map_err(|error| *error)?;
        self.put_receive_queue(&asked, made, receive);
        self.settle(&asked, made, request.token);
        self.put_send_queue(&asked, made, send);
        Ok(QueuePairKey(place))
    }

    /// Creates the send queue in its final location.
    ///
    /// Out of line: inlined, its stack frame would add to that of the queue pair's creation.
    #[inline(never)]
    fn put_send_queue(
        &self,
        asked: &Asked,
        made: &mut Made<'s>,
        send: &mut Option<MmioSendQueue<'s, H, R>>,
    ) {
        *send = Some(self.send_queue(asked, made));
    }

    /// As `put_send_queue`, replacing a queue whose memory is freed.
    #[inline(never)]
    fn exchange_send_queue(
        &mut self,
        asked: &Asked,
        made: &mut Made<'s>,
        send: &mut MmioSendQueue<'s, H, R>,
    ) {
        let held = core::mem::take(&mut send.held);
        *send = self.send_queue(asked, made);
        self.supply.give_back(held);
    }

    /// Replaces a queue pair and frees the memory of the old one.
    ///
    /// Receives from index `carried` on are copied to the new queue; the caller has checked that
    /// they fit.
    #[inline(never)]
    pub(super) fn make_again(
        &mut self,
        key: QueuePairKey,
        asked: &Asked,
        send: &mut MmioSendQueue<'s, H, R>,
        receive: Option<&mut MmioReceiveQueue<'s, H>>,
        carried: Option<u32>,
    ) -> Result<(), BackendError> {
        let mut made = self.make(key.0, asked);
        let made = made.as_mut().map_err(|error| *error)?;
        let token = send.life.token.load();
        self.retire(key);
        self.settle(asked, made, token);
        if let Some(receive) = receive {
            self.exchange_receive_queue(asked, made, receive, carried);
        }
        self.exchange_send_queue(asked, made, send);
        Ok(())
    }

    /// Replaces a receive queue by that of a newly created queue pair.
    #[inline(never)]
    fn exchange_receive_queue(
        &self,
        asked: &Asked,
        made: &Made<'s>,
        receive: &mut MmioReceiveQueue<'s, H>,
        carried: Option<u32>,
    ) {
        let mut new = None;
        self.put_receive_queue(asked, made, &mut new);
        if let Some(mut new) = new {
            if let Some(tail) = carried {
                let _fits = new.take_over(receive, tail);
            }
            *receive = new;
        }
    }

    /// Creates the receive queue of a queue pair, unless it uses a shared one.
    #[inline(never)]
    fn put_receive_queue(
        &self,
        asked: &Asked,
        made: &Made<'s>,
        receive: &mut Option<MmioReceiveQueue<'s, H>>,
    ) {
        let Geometry {
            receive_entries,
            receive_units,
            ..
        } = made.geometry;
        if asked.shared != 0 {
            *receive = None;
            return;
        }
        let ring = made.units.get(..made.geometry.receive_ring() as usize);
        let slots = self.supply.slots();
        let slots = slots.get(made.first_slot..).unwrap_or_default();
        let slots = slots.get(..receive_entries as usize);
        *receive = Some(MmioReceiveQueue {
            hal: PhantomData,
            ring: ring.unwrap_or_default(),
            record: made.record,
            slots: slots.unwrap_or_default(),
            life: made.life,
            places: receive_entries,
            units: receive_units,
            head: 0,
            tail: 0,
        });
    }

    /// Creates the send queue of a queue pair.
    #[inline(always)]
    fn send_queue(&self, asked: &Asked, made: &mut Made<'s>) -> MmioSendQueue<'s, H, R> {
        let geometry = made.geometry;
        let rest = made.units.get(geometry.receive_ring() as usize..);
        let ring = rest
            .unwrap_or_default()
            .get(..geometry.send_ring() as usize);
        let (ring, _) = ring.unwrap_or_default().as_chunks();
        let first = made
            .first_slot
            .saturating_add(geometry.receive_entries as usize);
        let slots = self.supply.slots().get(first..).unwrap_or_default();
        let slots = slots.get(..geometry.send_blocks as usize);
        let inline_below = if asked.reads_at_post {
            match self.control.limits().inline {
                0 => 0,
                most => most.min(MOST_INLINE).saturating_add(1),
            }
        } else {
            0
        };
        MmioSendQueue {
            asked: *asked,
            hal: PhantomData,
            registers: self.registers.clone(),
            held: core::mem::take(&mut made.held),
            ring,
            record: made.record,
            slots: slots.unwrap_or_default(),
            life: made.life,
            windows: self.tables.windows,
            state: self.tables.state,
            number: made.number,
            head: 0,
            tail: 0,
            doorbell: made.doorbell,
            last: 0,
            flags: ControlFlags::COMPLETE,
            inline_below,
            takes_blocks: made.takes_blocks,
            burst: NO_BLOCK,
        }
    }

    /// Publishes a new queue pair in its slot.
    fn settle(&self, asked: &Asked, made: &Made<'_>, token: u64) {
        let Made {
            life,
            number,
            user_index,
            first_slot: receives,
            geometry,
            ..
        } = *made;
        let sends = receives.saturating_add(geometry.receive_entries as usize);
        life.receives
            .begin(receives, geometry.receive_entries, asked.receive_queue);
        life.requests
            .begin(sends, geometry.send_blocks, asked.request_queue);
        life.token.store(token);
        life.shared.store(asked.shared, Ordering::Relaxed);
        self.tables.expect(life, user_index);
        life.number.store(number, Ordering::Release);
    }

    /// Destroys a queue pair on the device; its completions may still be queued.
    pub(super) fn retire(&mut self, key: QueuePairKey) {
        let Some(life) = self.life(key).filter(|life| life.lives()) else {
            return;
        };
        let number = life.number.load(Ordering::Relaxed);
        self.tables.owe_all(life);
        // Late completions are recorded before a poller can see that the queue pair is gone. The
        // device call may take long, so it follows.
        life.number.store(NO_QUEUE, Ordering::Release);
        self.control.destroy_queue_pair(number);
        self.sideband.forget(number);
    }
}
