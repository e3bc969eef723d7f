//! Making queue pairs, and taking them away.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::backend::{
    BackendError, QueuePair, QueuePairKey, QueuePairRequest, SharedReceiveQueueKey,
};

use super::backend::{MmioBackend, bytes, checked, room};
use super::control::{Control, QueuePairSpec};
use super::defs::{BLOCK_UNITS, ControlFlags, DESCRIPTOR_UNITS, InlineData, KeyUpdate, UNIT_BYTES};
use super::objects::record;
use super::receive_queue::MmioReceiveQueue;
use super::send_queue::{BEFORE_SEGMENTS, MmioSendQueue, NO_BLOCK, blocks_for, blocks_of};
use super::storage::{NO_QUEUE, QueuePairSlot, life_of, next_user_index, taken_from};
use crate::hal::{DeviceUnit, Hal};
use crate::registers::RegisterIo;
use crate::sideband::Sideband;

/// Bytes of data that a descriptor has room for.
const MOST_INLINE: u32 = (DESCRIPTOR_UNITS - BEFORE_SEGMENTS) * UNIT_BYTES - 4;

/// How the rings of a queue pair are cut out of its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    receive_entries: u32,
    pub(super) receive_units: u32,
    send_blocks: u32,
}

impl Geometry {
    /// Units of the receive queue; the send queue begins with a block.
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

/// What a queue pair was asked to be, as far as it is needed to make another one like it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    token: u64,
    domain: u32,
    request_queue: Option<u16>,
    receive_queue: Option<u16>,
    pub(super) shared_receive_queue: Option<SharedReceiveQueueKey>,
    requests: u32,
    pub(super) receives: u32,
    segments: u32,
    pieces: u32,
    reads_in: u32,
    reads_out: u32,
    reads_at_post: bool,
}

impl Asked {
    pub(super) fn of(request: &QueuePairRequest) -> Self {
        let attributes = &request.attributes;
        let segments = attributes
            .max_request_iov
            .max(attributes.max_rdma_read_iov)
            .max(attributes.max_rdma_write_iov);
        Self {
            token: request.token,
            domain: request.domain.0 as u32,
            request_queue: request.request_queue,
            receive_queue: request.receive_queue,
            shared_receive_queue: request.shared_receive_queue,
            requests: checked(attributes.max_request_dtos),
            receives: checked(attributes.max_recv_dtos),
            segments: checked(segments),
            pieces: checked(attributes.max_recv_iov),
            reads_in: checked(attributes.max_rdma_read_in),
            reads_out: checked(attributes.max_rdma_read_out),
            reads_at_post: request.may_read_at_post(),
        }
    }
}

/// Where a queue pair belongs that was made.
pub(super) struct Place<'s> {
    life: &'s QueuePairSlot,
    number: u32,
    user_index: u32,
    first_slot: usize,
    geometry: Geometry,
}

/// The queues of a queue pair.
pub(super) type Queues<'s, R, H> = QueuePair<MmioSendQueue<'s, H, R>, MmioReceiveQueue<'s, H>>;

impl<'s, C: Control, S: Sideband, R: RegisterIo, H: Hal> MmioBackend<'s, C, S, R, H> {
    pub(super) fn geometry(&self, asked: &Asked) -> Result<Geometry, BackendError> {
        let limits = self.control.limits();
        let Asked {
            segments,
            pieces,
            requests,
            receives,
            ..
        } = *asked;
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
        let shares = asked.shared_receive_queue.is_some();
        Ok(Geometry {
            receive_entries: if shares || receives == 0 {
                0
            } else {
                room(receives)?
            },
            receive_units: pieces.max(1).next_power_of_two(),
            send_blocks: room(blocks.ok_or(BackendError::Resources)?.max(1))?,
        })
    }

    /// Makes a queue pair for a place, without touching what is there, and says where it belongs; or for one where nothing is,
    /// and puts it there.
    #[inline(never)]
    pub(super) fn make(
        &mut self,
        place: usize,
        asked: &Asked,
        belongs: Option<&mut Option<Place<'s>>>,
    ) -> Result<Queues<'s, R, H>, BackendError> {
        self.tables.alive()?;
        let last = self.life(QueuePairKey(place)).ok_or(BackendError::State)?;
        let geometry = self.geometry(asked)?;
        let request_queue = self.completion_number(asked.request_queue)?;
        let receive_queue = self.completion_number(asked.receive_queue)?;
        let shared_key = asked.shared_receive_queue;
        let shared = match shared_key {
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
            reads_in: asked.reads_in,
            reads_out: asked.reads_out,
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
        let all: &'s [DeviceUnit] = taken.memory.units();
        let (receive_ring, rest) = all
            .split_at_checked(geometry.receive_ring() as usize)
            .unwrap_or_default();
        let send_ring = rest.get(..geometry.send_ring() as usize);
        let (send_ring, _) = send_ring.unwrap_or_default().as_chunks();
        let slots = self.supply.slots();
        let slots = slots.get(taken.first_slot..).unwrap_or_default();
        let (receive_slots, slots) = slots
            .split_at_checked(geometry.receive_entries as usize)
            .unwrap_or_default();
        let send_slots = slots.get(..geometry.send_blocks as usize);
        let inline_below = if asked.reads_at_post {
            match self.control.limits().inline {
                0 => 0,
                most => most.min(MOST_INLINE).saturating_add(1),
            }
        } else {
            0
        };
        let mut receive = shared_key.is_none().then_some(MmioReceiveQueue {
            hal: PhantomData,
            ring: receive_ring,
            record,
            slots: receive_slots,
            life,
            places: geometry.receive_entries,
            units: geometry.receive_units,
            ended: false,
            head: 0,
            tail: 0,
        });
        if let Some(receive) = &mut receive {
            receive.end_places();
        }
        let new = Place {
            life,
            number: made.number,
            user_index,
            first_slot: taken.first_slot,
            geometry,
        };
        match belongs {
            Some(belongs) => *belongs = Some(new),
            None => self.settle(asked, &new),
        }
        Ok(QueuePair {
            key: QueuePairKey(place),
            send: MmioSendQueue {
                asked: *asked,
                hal: PhantomData,
                registers: self.registers.clone(),
                held: taken.held,
                ring: send_ring,
                record,
                slots: send_slots.unwrap_or_default(),
                life,
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
            },
            receive,
        })
    }

    /// Makes a queue pair in the place of another one, whose memory is free then. Receives from an index on are carried over, if one
    /// is given; they fit, as the caller has seen.
    #[inline(never)]
    pub(super) fn make_again(
        &mut self,
        key: QueuePairKey,
        asked: &Asked,
        send: &mut MmioSendQueue<'s, H, R>,
        receive: Option<&mut MmioReceiveQueue<'s, H>>,
        carried: Option<u32>,
    ) -> Result<(), BackendError> {
        let mut belongs = None;
        // Exchanged where they are: queues are long, and each copy takes its stack.
        let mut made = self.make(key.0, asked, Some(&mut belongs));
        let made = made.as_mut().map_err(|error| *error)?;
        self.retire(key);
        if let Some(belongs) = &belongs {
            self.settle(asked, belongs);
        }
        if let (Some(old), Some(new)) = (receive, &mut made.receive) {
            if let Some(tail) = carried {
                let _fits = new.take_over(old, tail);
            }
            core::mem::swap(old, new);
        }
        core::mem::swap(send, &mut made.send);
        self.supply.give_back(core::mem::take(&mut made.send.held));
        Ok(())
    }

    /// Puts a queue pair in its place.
    fn settle(&self, asked: &Asked, belongs: &Place<'_>) {
        let Place {
            life,
            number,
            user_index,
            first_slot: receives,
            geometry,
        } = *belongs;
        let sends = receives.saturating_add(geometry.receive_entries as usize);
        life.receives
            .begin(receives, geometry.receive_entries, asked.receive_queue);
        life.requests
            .begin(sends, geometry.send_blocks, asked.request_queue);
        life.token.store(asked.token);
        let shared = taken_from(asked.shared_receive_queue);
        life.shared.store(shared, Ordering::Relaxed);
        self.tables.expect(life, user_index);
        life.number.store(number, Ordering::Release);
    }

    /// The device is done with a queue pair; completions of it may still be there.
    pub(super) fn retire(&mut self, key: QueuePairKey) {
        let Some(life) = self.life(key).filter(|life| life.lives()) else {
            return;
        };
        let number = life.number.load(Ordering::Relaxed);
        self.tables.owe_all(life);
        // What may come is owed before anybody can miss the queue pair, and the device, which may take long, goes last.
        life.number.store(NO_QUEUE, Ordering::Release);
        self.control.destroy_queue_pair(number);
        self.sideband.forget(number);
    }
}
