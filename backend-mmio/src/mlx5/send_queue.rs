//! Send queues: descriptors of some blocks each in a ring of blocks.

use dat_core::backend::{
    BindRequest, Rejected, RemoteRange, Segment, SendFlags, SendOperation, SendQueue, SendRequest,
    WorkQueue, WorkSlot,
};
use dat_core::flags::MemoryPrivileges;

use super::allocator::{Allocation, Record};
use super::queue_pairs::PairParameters;
use super::receive_queue::data;
use super::window_slot::WindowSlot;
use crate::defs::mlx5::{
    BLOCK_UNITS, Control, ControlFlags, Data, InlineData, KeyUpdate, LONGEST_SEGMENT,
    LONGEST_WINDOW, Opcode, Opening, RemoteAddress, doorbell, register,
};
use crate::platform::{DeviceUnit, DeviceWord, Hal, RegisterIo, read_consumer};
use crate::ring::maintenance::{before_read, before_write};
use crate::ring::{DeviceState, QueueCell, QueuePairSlot, RequestSlot};

/// The send queue of a queue pair.
#[derive(Debug)]
pub struct MmioSendQueue<'s, H, R> {
    pub(crate) parameters: PairParameters,
    pub(crate) hal: H,
    pub(crate) registers: R,
    pub(crate) allocation: Allocation,
    pub(crate) ring: &'s [Block],
    pub(crate) record: &'s Record,
    /// One record per block.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) generation: &'s QueuePairSlot,
    pub(crate) windows: &'s [WindowSlot],
    pub(crate) state: &'s DeviceState,
    pub(crate) number: u32,
    /// Blocks of all committed descriptors; wraps at 2^32.
    pub(crate) head: u32,
    /// Cached index of the oldest pending descriptor.
    pub(crate) tail: u32,
    /// Register offset of the next doorbell.
    pub(crate) doorbell: u32,
    /// First 8 bytes of the last descriptor, in memory order; the doorbell repeats them.
    pub(crate) last: u64,
    /// Flags of the next descriptor, which may have to wait.
    pub(crate) flags: ControlFlags,
    /// Data of one segment that is shorter than this is sent inline; 0 unless the queue pair may
    /// read at posts.
    pub(crate) inline_below: u32,
    /// True if the doorbell takes a block.
    pub(crate) takes_blocks: bool,
    /// Index, modulo 2^16, of the block that goes to the doorbell whole if no other request rings
    /// with it; or `NO_BLOCK`.
    pub(crate) burst: u16,
}

/// Value of `burst` without a block.
pub(crate) const NO_BLOCK: u16 = u16::MAX;

/// A block of the ring; the number of blocks is a power of two.
pub(crate) type Block = [DeviceUnit; BLOCK_UNITS as usize];

/// Units before the segments of a descriptor with a remote address.
pub(crate) const BEFORE_SEGMENTS: u32 = 2;

/// Returns the number of blocks for `units` units.
#[inline]
pub(crate) const fn blocks_of_units(units: u32) -> u32 {
    units.div_ceil(BLOCK_UNITS)
}

/// Returns the number of blocks for a request of `segments` segments.
#[inline]
pub(crate) const fn blocks_of_request(segments: u32) -> u32 {
    blocks_of_units(BEFORE_SEGMENTS.saturating_add(segments))
}

impl<'s, H: Hal, R: RegisterIo> MmioSendQueue<'s, H, R> {
    pub(crate) fn cell(&self) -> &'s QueueCell {
        &self.generation.requests
    }

    /// Returns the position of a block in the ring.
    #[inline]
    fn block_index(&self, index: u32) -> usize {
        index as usize & self.ring.len().wrapping_sub(1)
    }

    /// Returns the index and the memory of the first free block; call it after `has_room`.
    #[inline]
    fn first_block(&self) -> Option<(usize, &'s Block)> {
        let block_index = self.block_index(self.head);
        Some((block_index, self.ring.get(block_index)?))
    }

    /// Returns a unit by its index from the first free block on.
    fn unit(&self, unit_index: u32) -> Option<&'s DeviceUnit> {
        let block = self.head.wrapping_add(unit_index / BLOCK_UNITS);
        let block = self.ring.get(self.block_index(block))?;
        block.get((unit_index % BLOCK_UNITS) as usize)
    }

    fn fill(&self, unit_index: u32, words: [u32; 4]) {
        if let Some(unit) = self.unit(unit_index) {
            unit.put(words);
        }
    }

    /// Writes a whole block by its index from the first free one on.
    #[inline(always)]
    fn fill_block(&self, block: u32, [a, b, c, d]: [[u32; 4]; BLOCK_UNITS as usize]) {
        let index = self.block_index(self.head.wrapping_add(block));
        if let Some([first, second, third, fourth]) = self.ring.get(index) {
            first.put(a);
            second.put(b);
            third.put(c);
            fourth.put(d);
        }
    }

    /// Returns the slot of a block by its index from the first free one on.
    fn slot(&self, block: u32) -> Option<&'s RequestSlot> {
        self.slots
            .get(self.block_index(self.head.wrapping_add(block)))
    }

    /// Forgets the buffers of a descriptor that was not posted, in the next `blocks` slots.
    #[cold]
    fn forget_ranges(&self, blocks: u32) {
        for slot in (0..blocks).filter_map(|block| self.slot(block)) {
            slot.forget_ranges();
        }
    }

    #[inline]
    fn has_room(&mut self, blocks: u32) -> bool {
        self.has_known_room(blocks) || self.has_room_after_reload(blocks)
    }

    /// Returns true if the ring has room for `blocks` blocks, by the cached tail.
    #[inline]
    fn has_known_room(&self, blocks: u32) -> bool {
        let used = self.head.wrapping_sub(self.tail);
        used.wrapping_add(blocks) as usize <= self.ring.len()
    }

    /// As `has_room`, after a reload of the tail.
    #[cold]
    fn has_room_after_reload(&mut self, blocks: u32) -> bool {
        self.tail = self.cell().tail();
        self.has_known_room(blocks)
    }

    /// Writes the control unit into the first block, records the descriptor and advances the head.
    #[inline]
    fn publish(&mut self, (block_index, block): (usize, &Block), token: u64, control: Control) {
        let words = control.encode();
        let [unit, ..] = block;
        unit.put(words);
        let [first, second, ..] = words;
        self.last = (u64::from(first) << 32 | u64::from(second)).to_be();
        let blocks = blocks_of_units(u32::from(control.units));
        if let Some(slot) = self.slots.get(block_index) {
            slot.put(token, blocks);
        }
        let head = self.head.wrapping_add(blocks);
        self.head = head;
        self.generation.requests.set_head(head);
    }

    /// Returns the flags of the next descriptor and resets them for the one after it.
    #[inline]
    fn take_flags(&mut self, flags: SendFlags) -> ControlFlags {
        let flags = if flags.contains(SendFlags::FENCE) {
            ControlFlags::COMPLETE.with(ControlFlags::FENCE)
        } else {
            self.flags
        };
        self.flags = ControlFlags::COMPLETE;
        flags
    }

    #[inline]
    fn ring_doorbell(&mut self) {
        if self.state.is_faulty() {
            return;
        }
        if self.burst != NO_BLOCK {
            self.ring_with_block();
            return;
        }
        H::to_device();
        self.record[doorbell::SEND].store(self.head & 0xFFFF);
        if self.takes_blocks {
            H::to_gathered_register();
        } else {
            H::to_register();
        }
        let doorbell = self.doorbell;
        self.registers.write(doorbell, u64::from_be(self.last));
        if self.takes_blocks {
            H::flush_register();
        }
        self.doorbell = doorbell ^ register::SEND_STRIDE;
    }

    /// Rings with the whole descriptor if it is the only one since the last doorbell; else rings as
    /// usual.
    #[inline(never)]
    fn ring_with_block(&mut self) {
        let burst = core::mem::replace(&mut self.burst, NO_BLOCK);
        // The record contains the head at the last doorbell.
        let last_told = self.record[doorbell::SEND].load();
        let is_only = u32::from(burst) == last_told && burst.wrapping_add(1) == self.head as u16;
        let block = self
            .ring
            .get(self.block_index(burst.into()))
            .filter(|_| is_only);
        let Some(block) = block else {
            self.ring_doorbell();
            return;
        };
        H::to_device();
        self.record[doorbell::SEND].store(self.head & 0xFFFF);
        let mut words = block.iter().flatten().map(DeviceWord::load);
        let mut word = || u64::from(words.next().unwrap_or(0));
        let block = core::array::from_fn(|_| word() << 32 | word());
        H::to_gathered_register();
        self.registers.copy(self.doorbell, block);
        H::flush_register();
        self.doorbell ^= register::SEND_STRIDE;
    }

    /// Posts a request of one segment with its data in the descriptor, if there is room for that.
    ///
    /// Overwrites the segment in the slot.
    ///
    /// `before` units precede the data. The core has checked the segment, and holds the lock of the
    /// endpoint until the request is posted.
    #[inline(never)]
    fn post_inline(
        &mut self,
        segment: Segment,
        opcode: Opcode,
        before: u32,
        (token, flags): (u64, ControlFlags),
    ) -> bool {
        let Segment {
            address, length, ..
        } = segment;
        let inline = InlineData { length };
        let units = before.saturating_add(inline.units());
        let blocks = blocks_of_units(units);
        let Some(block) = self.first_block().filter(|_| self.has_room(blocks)) else {
            return false;
        };
        // The header word, then words of data.
        let mut header = Some(inline.encode());
        let mut read = 0;
        let mut word = || {
            header.take().unwrap_or_else(|| {
                let (from, left) = (
                    address.wrapping_add(read),
                    u64::from(length).saturating_sub(read),
                );
                read = read.wrapping_add(4);
                #[expect(
                    unsafe_code,
                    reason = "the core lets these queues read posted segments"
                )]
                // SAFETY: `inline_below` is 0 unless the core guarantees that the queue's segments
                // lie in regions that stay registered until the request was posted. This is within
                // a commit.
                unsafe {
                    read_consumer(from, left.min(4) as u32)
                }
            })
        };
        for unit_index in before..units {
            let words = core::array::from_fn(|_| word());
            self.fill(unit_index, words);
        }
        let index = self.head;
        let control = Control {
            index: index as u16,
            opcode,
            queue_pair: self.number,
            units: units as u8,
            flags,
            immediate: 0,
        };
        self.publish(block, token, control);
        // Index `NO_BLOCK` uses the normal doorbell.
        self.burst = if self.takes_blocks && blocks == 1 {
            index as u16
        } else {
            NO_BLOCK
        };
        true
    }
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub struct MmioSendSlot<'a, 's, H, R> {
    queue: &'a mut MmioSendQueue<'s, H, R>,
    /// The position of the descriptor's first block in the ring, and the block.
    first: (usize, &'s Block),
    token: u64,
    opcode: Opcode,
    flags: SendFlags,
    /// Units that precede the segments.
    before: u32,
    /// Units written so far.
    units: u32,
    /// The last segment.
    last: Segment,
    /// The bitwise or of all lengths.
    lengths: u32,
}

impl<H: Hal, R: RegisterIo> MmioSendSlot<'_, '_, H, R> {
    /// Maintains the caches for the next segment.
    #[cold]
    fn maintain(&self, segment: Segment) {
        let hal = &self.queue.hal;
        if self.opcode == Opcode::RDMA_READ {
            let slot = self.queue.slot(self.units / BLOCK_UNITS);
            before_write(hal, slot, self.units % BLOCK_UNITS, segment);
        } else {
            before_read(hal, segment);
        }
    }
}

impl<H: Hal, R: RegisterIo> WorkSlot for MmioSendSlot<'_, '_, H, R> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        if !self.queue.hal.is_coherent() {
            self.maintain(segment);
        }
        let words = data(segment).encode();
        let (_, block) = self.first;
        match block.get(self.units as usize) {
            Some(unit) => unit.put(words),
            None => self.queue.fill(self.units, words),
        }
        self.units = self.units.wrapping_add(1);
        self.lengths |= segment.length;
        self.last = segment;
    }

    #[inline]
    fn commit(self, _length: u32) -> Result<(), Rejected> {
        let Self {
            queue,
            first,
            token,
            opcode,
            before,
            units,
            ..
        } = self;
        if self.lengths > LONGEST_SEGMENT {
            return Err(Rejected);
        }
        let mut flags = queue.take_flags(self.flags);
        if self.flags.contains(SendFlags::SOLICITED) {
            flags = flags.with(ControlFlags::SOLICITED);
        }
        if self.lengths < queue.inline_below
            && units == before.wrapping_add(1)
            && opcode != Opcode::RDMA_READ
            && queue.post_inline(self.last, opcode, before, (token, flags))
        {
            return Ok(());
        }
        let control = Control {
            index: queue.head as u16,
            opcode,
            queue_pair: queue.number,
            units: units as u8,
            flags,
            immediate: 0,
        };
        queue.publish(first, token, control);
        Ok(())
    }
}

impl<'s, H: Hal, R: RegisterIo> WorkQueue for MmioSendQueue<'s, H, R> {
    type Request = SendRequest;
    type Slot<'a>
        = MmioSendSlot<'a, 's, H, R>
    where
        Self: 'a;

    #[inline]
    fn reserve(
        &mut self,
        request: &SendRequest,
        segments: usize,
    ) -> Option<MmioSendSlot<'_, 's, H, R>> {
        if !self.has_room(blocks_of_request(segments as u32)) {
            return None;
        }
        if !self.hal.is_coherent() {
            self.forget_ranges(blocks_of_request(segments as u32));
        }
        let first = self.first_block()?;
        let (opcode, remote) = match request.operation {
            SendOperation::RdmaWrite(range) => (Opcode::RDMA_WRITE, Some(range)),
            SendOperation::RdmaRead(range) => (Opcode::RDMA_READ, Some(range)),
            SendOperation::Send => (Opcode::SEND, None),
        };
        let before = match remote {
            Some(RemoteRange { address, key }) => {
                let (_, [_, unit, ..]) = first;
                unit.put(RemoteAddress { address, key }.encode());
                BEFORE_SEGMENTS
            }
            None => 1,
        };
        Some(MmioSendSlot {
            queue: self,
            first,
            token: request.token,
            opcode,
            flags: request.flags,
            before,
            units: before,
            last: Segment {
                address: 0,
                length: 0,
                key: 0,
            },
            lengths: 0,
        })
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.ring_doorbell();
        Ok(())
    }
}

impl<H: Hal, R: RegisterIo> SendQueue for MmioSendQueue<'_, H, R> {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        if request.length > LONGEST_WINDOW {
            return Err(Rejected);
        }
        let window = self.windows.get(request.window.0).ok_or(Rejected)?;
        // An unbind needs no new key: it opens nothing.
        if request.length != 0 && window.is_spent(request.is_only) {
            return Err(Rejected);
        }
        let [old, new] = window.next_key();
        let [variant, ..] = new.to_le_bytes();
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
        if !self.has_room(blocks_of_units(u32::from(units))) {
            return Err(Rejected);
        }
        if !self.hal.is_coherent() {
            self.forget_ranges(blocks_of_units(u32::from(units)));
        }
        let block = self.first_block().ok_or(Rejected)?;
        // Whole blocks, without a loop over units: the caller may have interrupts masked.
        let (_, [_, second, third, fourth]) = block;
        let [a, b, c, rest @ ..] = KeyUpdate { variant, opens }.encode();
        second.put(a);
        third.put(b);
        fourth.put(c);
        self.fill_block(1, rest);
        if let Some(opens) = opens {
            let memory = Data {
                length: u32::try_from(opens.length).unwrap_or(0),
                key: request.region.local,
                address: opens.address,
            };
            // Padded to a whole block.
            self.fill_block(2, [memory.encode(), [0; 4], [0; 4], [0; 4]]);
        }
        let control = Control {
            index: self.head as u16,
            opcode: Opcode::UPDATE_KEY,
            queue_pair: self.number,
            units,
            flags: self.take_flags(request.flags),
            immediate: old,
        };
        self.publish(block, request.token, control);
        self.flags = ControlFlags::COMPLETE.with(ControlFlags::SMALL_FENCE);
        window.bound(new);
        self.ring_doorbell();
        Ok(new)
    }
}
