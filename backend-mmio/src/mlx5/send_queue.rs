//! Send queues: descriptors of some blocks each in a ring of blocks.

use core::sync::atomic::Ordering;

use dat_core::backend::{
    BindRequest, QueuePairRequest, Rejected, Segment, SendFlags, SendOperation, SendQueue,
    SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::MemoryPrivileges;

use super::defs::{
    BLOCK_UNITS, Control, ControlFlags, Data, KeyUpdate, LONGEST_PIECE, LONGEST_WINDOW, Opcode,
    Opening, RemoteAddress, doorbell, register,
};
use super::objects::Held;
use super::storage::{QueueCell, QueuePairSlot, RequestSlot, State, WindowSlot};
use crate::hal::{DeviceWord, Hal, Unit};
use crate::registers::RegisterIo;

/// The send queue of a queue pair.
#[derive(Debug)]
pub struct MmioSendQueue<'s, H, R> {
    pub(crate) request: QueuePairRequest,
    pub(crate) hal: core::marker::PhantomData<fn() -> H>,
    pub(crate) registers: R,
    pub(crate) held: Held,
    pub(crate) ring: &'s [Unit],
    pub(crate) record: &'s [DeviceWord],
    /// One for each block.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) pair: &'s QueuePairSlot,
    pub(crate) windows: &'s [WindowSlot],
    pub(crate) state: &'s State,
    pub(crate) number: u32,
    /// Blocks of the ring, and of the descriptors that were committed; the latter runs freely.
    pub(crate) blocks: u32,
    pub(crate) head: u32,
    /// Where the oldest descriptor was when it was last looked for.
    pub(crate) tail: u32,
    /// Where the next doorbell goes.
    pub(crate) doorbell: u32,
    /// The beginning of the last descriptor, which the doorbell repeats.
    pub(crate) last: u64,
    /// What the next descriptor has to wait for.
    pub(crate) fence: ControlFlags,
}

/// Units in front of the segments of a descriptor that has a remote side.
const BEFORE_SEGMENTS: u32 = 2;

/// Blocks for so many units.
#[inline(always)]
pub(crate) const fn blocks_of(units: u32) -> u32 {
    units.div_ceil(BLOCK_UNITS)
}

/// Blocks for a request of so many segments.
#[inline(always)]
pub(crate) const fn blocks_for(segments: u32) -> u32 {
    blocks_of(BEFORE_SEGMENTS.saturating_add(segments))
}

#[inline(always)]
fn put(unit: &Unit, words: [u32; 4]) {
    for (word, value) in unit.iter().zip(words) {
        word.store(value);
    }
}

impl<'s, H: Hal, R: RegisterIo> MmioSendQueue<'s, H, R> {
    pub(crate) fn cell(&self) -> &'s QueueCell {
        &self.pair.requests
    }

    /// A unit, counted from the first free block; the ring goes round.
    #[inline(always)]
    fn unit(&self, place: u32) -> Option<&'s Unit> {
        let first = self.head.wrapping_mul(BLOCK_UNITS);
        let units = self.blocks.wrapping_mul(BLOCK_UNITS);
        let index = first.wrapping_add(place) & units.wrapping_sub(1);
        self.ring.get(index as usize)
    }

    #[inline(always)]
    fn fill(&self, place: u32, words: [u32; 4]) {
        if let Some(unit) = self.unit(place) {
            put(unit, words);
        }
    }

    #[inline(always)]
    fn has_room(&mut self, blocks: u32) -> bool {
        let used = self.head.wrapping_sub(self.tail).wrapping_add(blocks);
        if used <= self.blocks {
            return true;
        }
        self.tail = self.cell().tail();
        self.head.wrapping_sub(self.tail).wrapping_add(blocks) <= self.blocks
    }

    /// Writes the control unit, and takes the descriptor into the ring.
    #[inline(always)]
    fn publish(&mut self, token: u64, control: Control) {
        let words = control.encode();
        self.fill(0, words);
        let [first, second, ..] = words;
        self.last = u64::from(first) << 32 | u64::from(second);
        let blocks = blocks_of(u32::from(control.units));
        let place = self.head & self.blocks.wrapping_sub(1);
        if let Some(slot) = self.slots.get(place as usize) {
            slot.put(token, blocks);
        }
        self.head = self.head.wrapping_add(blocks);
        self.cell().set_head(self.head);
    }

    /// What the next descriptor waits for.
    #[inline(always)]
    fn flags(&mut self, flags: SendFlags) -> ControlFlags {
        let fence = if flags.contains(SendFlags::FENCE) {
            ControlFlags::FENCE
        } else {
            self.fence
        };
        self.fence = ControlFlags(0);
        ControlFlags::COMPLETE.with(fence)
    }

    #[inline(always)]
    fn tell_device(&mut self) {
        if self.state.is_faulty() {
            return;
        }
        H::to_device();
        if let Some(word) = self.record.get(doorbell::SEND) {
            word.store(self.head & 0xFFFF);
        }
        H::to_register();
        self.registers.write(self.doorbell, self.last);
        self.doorbell ^= register::SEND_STRIDE;
    }
}

/// A reserved place of a send queue.
#[derive(Debug)]
pub struct MmioSendSlot<'a, 's, H, R> {
    queue: &'a mut MmioSendQueue<'s, H, R>,
    segments: u32,
    /// All lengths laid over each other: a bit is in it that is in one of them.
    lengths: u32,
}

impl<H: Hal, R: RegisterIo> WorkSlot for MmioSendSlot<'_, '_, H, R> {
    type Request = SendRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        let data = Data {
            length: segment.length,
            key: segment.key,
            address: segment.address,
        };
        self.queue
            .fill(BEFORE_SEGMENTS.wrapping_add(self.segments), data.encode());
        self.segments = self.segments.wrapping_add(1);
        self.lengths |= segment.length;
    }

    #[inline(always)]
    fn commit(self, request: &SendRequest) -> Result<(), Rejected> {
        let Self {
            queue,
            segments,
            lengths,
        } = self;
        if lengths > LONGEST_PIECE {
            return Err(Rejected);
        }
        let mut flags = queue.flags(request.flags);
        if request.flags.contains(SendFlags::SOLICITED) {
            flags = flags.with(ControlFlags::SOLICITED);
        }
        let (opcode, before) = match request.operation {
            SendOperation::RdmaWrite(range) => {
                let (address, key) = (range.address, range.key);
                queue.fill(1, RemoteAddress { address, key }.encode());
                (Opcode::RDMA_WRITE, BEFORE_SEGMENTS)
            }
            SendOperation::RdmaRead(range) => {
                let (address, key) = (range.address, range.key);
                queue.fill(1, RemoteAddress { address, key }.encode());
                (Opcode::RDMA_READ, BEFORE_SEGMENTS)
            }
            SendOperation::Send => {
                // There is no remote side, so the segments move up.
                for place in 1..=segments {
                    if let (Some(to), Some(from)) =
                        (queue.unit(place), queue.unit(place.wrapping_add(1)))
                    {
                        for (to, from) in to.iter().zip(from) {
                            to.store(from.load());
                        }
                    }
                }
                (Opcode::SEND, 1)
            }
        };
        let control = Control {
            index: queue.head as u16,
            opcode,
            queue_pair: queue.number,
            units: before.wrapping_add(segments) as u8,
            flags,
            immediate: 0,
        };
        queue.publish(request.token, control);
        Ok(())
    }
}

impl<'s, H: Hal, R: RegisterIo> WorkQueue for MmioSendQueue<'s, H, R> {
    type Request = SendRequest;
    type Slot<'a>
        = MmioSendSlot<'a, 's, H, R>
    where
        Self: 'a;

    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<MmioSendSlot<'_, 's, H, R>> {
        if !self.has_room(blocks_for(segments as u32)) {
            return None;
        }
        Some(MmioSendSlot {
            queue: self,
            segments: 0,
            lengths: 0,
        })
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        self.tell_device();
        Ok(())
    }
}

impl<H: Hal, R: RegisterIo> SendQueue for MmioSendQueue<'_, H, R> {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        if request.length > LONGEST_WINDOW {
            return Err(Rejected);
        }
        let window = self.windows.get(request.window.0).ok_or(Rejected)?;
        let old = window.key.load(Ordering::Relaxed);
        let variant = (old as u8).wrapping_add(1);
        let new = old & !0xFF | u32::from(variant);
        let privileges = request.privileges;
        let opens = (request.length != 0).then(|| Opening {
            address: request.address,
            length: request.length,
            remote_read: privileges.contains(MemoryPrivileges::REMOTE_READ),
            remote_write: privileges.contains(MemoryPrivileges::REMOTE_WRITE),
        });
        let units = match opens {
            Some(_) => KeyUpdate::BIND_UNITS,
            None => KeyUpdate::UNBIND_UNITS,
        };
        if !self.has_room(blocks_of(u32::from(units))) {
            return Err(Rejected);
        }
        for (place, words) in (1..).zip(KeyUpdate { variant, opens }.encode()) {
            self.fill(place, words);
        }
        if let Some(opens) = opens {
            // Padded to a whole block.
            let memory = Data {
                length: u32::try_from(opens.length).unwrap_or(0),
                key: request.region.local,
                address: opens.address,
            };
            let none = [[0; 4]; 3];
            let pieces = core::iter::once(memory.encode()).chain(none);
            for (place, words) in (1 + KeyUpdate::UNITS as u32..).zip(pieces) {
                self.fill(place, words);
            }
        }
        let control = Control {
            index: self.head as u16,
            opcode: Opcode::UPDATE_KEY,
            queue_pair: self.number,
            units,
            flags: self.flags(request.flags),
            immediate: old,
        };
        self.publish(request.token, control);
        self.fence = ControlFlags::SMALL_FENCE;
        window.key.store(new, Ordering::Relaxed);
        self.tell_device();
        Ok(new)
    }
}
