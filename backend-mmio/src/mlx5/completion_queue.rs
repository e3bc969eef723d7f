//! Completion queues: entries with an owner bit that changes with every lap.

use core::sync::atomic::Ordering;

use dat_core::backend::{Armed, Completion, CompletionQueue, DeviceFailure, Peek};
use dat_core::flags::DtoStatus;

use super::allocator::{Allocation, Record};
use crate::defs::mlx5::{
    self as defs, ArmCommand, COMPLETION_UNITS, COUNTER, CompletionKind, CompletionTail, Syndrome,
    doorbell, register,
};
use crate::fault::DeviceFault;
use crate::platform::{DeviceUnit, DeviceWord, Hal, RegisterIo};
use crate::ring::maintenance::{after_write, after_writes};
use crate::ring::{
    CompletionQueueSlot, DeviceSlots, Location, NO_QUEUE, QueueCell, QueuePairSlot, RequestSlot,
    generation_index,
};

/// A completion queue.
#[derive(Debug)]
pub struct MmioCompletionQueue<'s, H, R> {
    pub(crate) hal: H,
    pub(crate) registers: R,
    pub(crate) allocation: Allocation,
    /// Memory of the current ring after a move; empty before.
    pub(crate) moved: Allocation,
    /// The entries; their number is a power of two.
    pub(crate) ring: &'s [Entry],
    pub(crate) record: &'s Record,
    pub(crate) tables: DeviceSlots<'s>,
    pub(crate) slot: &'s CompletionQueueSlot,
    /// Number of this queue in the core.
    pub(crate) name: u16,
    /// Number of this queue in the device.
    pub(crate) number: u32,
    /// Index of the next entry; wraps at 2^32.
    pub(crate) next: u32,
    /// Index of the queue pair that is flushed next, after a fault.
    pub(crate) flushing: usize,
    /// Queue of the success that the last `peek` returned, and its next index.
    pub(crate) seen: Option<(&'s QueueCell, u32)>,
}

/// A success at the head of a completion queue, checked against what is posted.
#[derive(Clone, Copy, Debug)]
struct Success<'s> {
    token: u64,
    /// Bytes received; `u32::MAX` for requests.
    length: u32,
    queue: &'s QueueCell,
    /// Index of the descriptor after it.
    tail: u32,
}

/// Tails that `peek` handles.
const REQUEST: u32 = CompletionTail::new(0, CompletionKind::REQUEST, false).in_turn(false);
const RECEIVE: u32 = CompletionTail::new(0, CompletionKind::RECEIVE, false).in_turn(false);

/// Token that no queue pair has.
const NO_QUEUE_PAIR: u64 = u64::MAX;

/// An entry of the ring.
pub(crate) type Entry = [DeviceUnit; COMPLETION_UNITS as usize];

/// Reads a word of an entry once; the index is one of those in [`defs::Completion`].
#[inline]
fn read(entry: &Entry, word: usize) -> u32 {
    let unit = entry.get(word / 4).and_then(|unit| unit.get(word % 4));
    unit.map_or(0, DeviceWord::load)
}

/// Result of examining the oldest entry.
enum Examined {
    /// A completion, taken from the queue.
    Completion(Completion),
    /// No completion; the next entry may have one.
    Stale,
}

impl<'s, H: Hal, R: RegisterIo> MmioCompletionQueue<'s, H, R> {
    /// Returns the number of entries.
    #[inline]
    pub(crate) fn entries(&self) -> u32 {
        self.ring.len() as u32
    }

    /// Returns the entry of an index.
    #[inline]
    fn entry(&self, index: u32) -> Option<&'s Entry> {
        self.ring
            .get(index as usize & self.ring.len().wrapping_sub(1))
    }

    /// Returns the owner bit of an index.
    #[inline]
    fn lap(&self, index: u32) -> bool {
        index as usize & self.ring.len() != 0
    }

    /// Returns an entry and its tail if the device wrote it in this lap.
    fn written(&self, index: u32) -> Option<(&'s Entry, CompletionTail)> {
        let entry = self.entry(index)?;
        let tail = CompletionTail(read(entry, defs::Completion::TAIL));
        if tail.kind() == CompletionKind::NONE {
            return (tail == CompletionTail::ALL_ONES).then_some((entry, tail));
        }
        (tail.lap() == self.lap(index)).then_some((entry, tail))
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        let next = self.next.wrapping_add(1);
        self.next = next;
        self.record[doorbell::CONSUMER].store(next & COUNTER);
    }

    /// Returns true if the next entry, or the one after it, was written, or the device is faulty.
    #[inline(never)]
    fn is_unclear(&self) -> bool {
        let written = |index| self.written(index).is_some();
        self.tables.is_faulty() || written(self.next) || written(self.next.wrapping_add(1))
    }

    /// Checks a plain success against what is posted, reading it once.
    ///
    /// Returns token, length, the work queue and the index after its descriptor. `None` if anything
    /// is wrong with it or if it is of a shared queue.
    #[inline]
    fn check<const RECEIVED: bool>(
        &self,
        entry: &Entry,
        tail: CompletionTail,
    ) -> Option<Success<'s>> {
        H::from_device();
        let user_index = read(entry, defs::Completion::USER_INDEX) & COUNTER;
        let number = read(entry, defs::Completion::QUEUE_PAIR) & COUNTER;
        let generation = self.tables.generations.get(generation_index(user_index))?;
        // `number` is read before `expected`: creation writes them in the other order, so a current
        // number comes with a current user index. Nothing matches once the generation ended
        // (`number`) or the device was given up (`expected`): both then exceed 24 bits.
        let known = generation.number.load(Ordering::Acquire) == number
            && generation.expected.load(Ordering::Relaxed) == user_index;
        if !known {
            return None;
        }
        // `receives` is empty for queue pairs on a shared receive queue.
        let queue = if RECEIVED {
            &generation.receives
        } else {
            &generation.requests
        };
        if !queue.is_of(self.name) {
            return None;
        }
        let index = queue.oldest_index()?;
        if index as u16 != tail.index() {
            return None;
        }
        let slot = queue.slot(self.tables.requests, index)?;
        let extent = slot.extent();
        let (length, step) = if RECEIVED {
            (read(entry, defs::Completion::LENGTH), 1)
        } else {
            (u32::MAX, extent)
        };
        if RECEIVED && length > extent {
            return None;
        }
        Some(Success {
            token: slot.token(),
            length,
            queue,
            tail: index.wrapping_add(step),
        })
    }

    /// Takes the oldest entry of any kind, which it reads again.
    #[inline(always)]
    fn examine(&mut self) -> Result<Option<Examined>, DeviceFault> {
        let Some((entry, tail)) = self.written(self.next) else {
            if self.written(self.next.wrapping_add(1)).is_none() {
                return Ok(None);
            }
            // The device may have written both entries meanwhile.
            H::from_device();
            return match self.written(self.next) {
                // The next call examines it.
                Some(_) => Ok(Some(Examined::Stale)),
                None => Err(DeviceFault::PhaseJump),
            };
        };
        if tail == CompletionTail::ALL_ONES {
            return Err(DeviceFault::AllOnes);
        }
        if !tail.is_plain() {
            return Err(DeviceFault::UnknownKind);
        }
        H::from_device();
        let entry = defs::Completion::of(|word| read(entry, word));
        let generation = self
            .tables
            .generations
            .get(generation_index(entry.user_index));
        let generation = generation.ok_or(DeviceFault::UnknownQueuePair)?;
        // Read in the opposite order of a creation. A poller that sees the end of the queue pair
        // also sees the expected stale completions.
        let number = generation.number.load(Ordering::Acquire);
        let known = generation.user_index.load(Ordering::Acquire) == entry.user_index;
        if number == NO_QUEUE || !known {
            return self
                .stale_completion(known.then_some(generation), tail)
                .map(Some);
        }
        if number != entry.queue_pair {
            return Err(DeviceFault::UnknownQueuePair);
        }
        let received = match tail.kind() {
            CompletionKind::REQUEST | CompletionKind::FAILED_REQUEST => false,
            kind if kind.is_of_receive() => true,
            _ => return Err(DeviceFault::UnknownKind),
        };
        let message = tail.kind().is_message();
        let status = match tail.kind() {
            CompletionKind::REQUEST => DtoStatus::Success,
            _ if message => DtoStatus::Success,
            // Not a message, although it took a buffer. DAT peers do not send it.
            CompletionKind::WRITE_IMMEDIATE => DtoStatus::BadResponse,
            _ => status(entry.syndrome),
        };
        let queue = if received {
            &generation.receives
        } else {
            &generation.requests
        };
        if !queue.is_of(self.name) {
            return Err(DeviceFault::WrongQueue);
        }
        let shared = if received {
            generation.shared.load(Ordering::Relaxed)
        } else {
            0
        };
        // Only messages report the length in the buffer.
        let length = if message { entry.length } else { 0 };
        let token = if shared == 0 {
            self.take_oldest(queue, tail.index(), received.then_some(length))?
        } else {
            self.take_shared(shared, tail.index(), length)?
        };
        let queue_pair = generation.token.load();
        self.advance();
        Ok(Some(Examined::Completion(Completion {
            token,
            status,
            length,
            queue_pair,
            solicited: tail.solicited(),
        })))
    }

    /// Takes the oldest request of a queue, which has this index; returns its token.
    ///
    /// `received` is the length of a receive.
    #[inline(always)]
    fn take_oldest(
        &self,
        queue: &QueueCell,
        index: u16,
        received: Option<u32>,
    ) -> Result<u64, DeviceFault> {
        let oldest = queue.oldest(self.tables.requests);
        let (oldest, slot) = oldest.ok_or(DeviceFault::WrongIndex)?;
        if oldest as u16 != index {
            return Err(DeviceFault::WrongIndex);
        }
        // Read everything before the slot may be posted again.
        let (token, extent) = (slot.token(), slot.extent());
        if received.is_some_and(|length| length > extent) {
            return Err(DeviceFault::ImpossibleLength);
        }
        let step = if received.is_some() { 1 } else { extent };
        after_writes(&self.hal, queue, self.tables.requests, oldest, step);
        queue.set_tail(oldest.wrapping_add(step));
        Ok(token)
    }

    /// Takes the buffer of a shared queue with this index; returns its token.
    fn take_shared(&self, shared: u32, index: u16, length: u32) -> Result<u64, DeviceFault> {
        let slot = self.shared_slot(shared, index);
        let slot = slot.ok_or(DeviceFault::WrongIndex)?;
        if length > slot.extent() {
            return Err(DeviceFault::ImpossibleLength);
        }
        let token = slot.token();
        after_write(&self.hal, slot);
        slot.set_location(Location::Returned);
        Ok(token)
    }

    /// Returns the slot of a buffer of a shared queue if the device holds it.
    fn shared_slot(&self, shared: u32, slot_index: u16) -> Option<&'s RequestSlot> {
        let queue = shared.checked_sub(1)?;
        let queue = self.tables.shared_receive_queues.get(queue as usize)?;
        let slot_index = u32::from(slot_index);
        if slot_index >= queue.entries.load(Ordering::Relaxed) {
            return None;
        }
        let slot = queue.first.load(Ordering::Relaxed).wrapping_add(slot_index);
        let slot = self.tables.requests.get(slot as usize)?;
        slot.is_at(Location::Posted).then_some(slot)
    }

    /// Takes an entry of a destroyed queue pair.
    ///
    /// Returns a buffer that it took from a shared queue as a completion without queue pair, so
    /// that the core frees it.
    fn stale_completion(
        &mut self,
        generation: Option<&QueuePairSlot>,
        tail: CompletionTail,
    ) -> Result<Examined, DeviceFault> {
        if !self.slot.take_stale() {
            return Err(DeviceFault::UnknownQueuePair);
        }
        self.advance();
        let received = tail.kind().is_of_receive();
        let taken = generation.filter(|_| received).and_then(|generation| {
            let slot = self.shared_slot(generation.shared.load(Ordering::Relaxed), tail.index())?;
            let token = slot.token();
            after_write(&self.hal, slot);
            slot.set_location(Location::Returned);
            Some(token)
        });
        Ok(match taken {
            Some(token) => Examined::Completion(Completion {
                token,
                status: DtoStatus::Flushed,
                length: 0,
                queue_pair: NO_QUEUE_PAIR,
                solicited: false,
            }),
            None => Examined::Stale,
        })
    }

    /// Returns the next flushed completion of requests posted before or after a fault.
    #[cold]
    fn flush(&mut self) -> Option<Completion> {
        for _ in 0..=self.tables.generations.len() {
            let Some(generation) = self.tables.latest_at(self.flushing) else {
                self.flushing = 0;
                continue;
            };
            if generation.is_live() {
                let queue_pair = generation.token.load();
                for (queue, blocks) in [(&generation.requests, true), (&generation.receives, false)]
                {
                    let oldest = queue.oldest(self.tables.requests);
                    let Some((index, slot)) = oldest.filter(|_| queue.is_of(self.name)) else {
                        continue;
                    };
                    let (token, extent) = (slot.token(), slot.extent());
                    let step = if blocks { extent } else { 1 };
                    after_writes(&self.hal, queue, self.tables.requests, index, step);
                    queue.set_tail(index.wrapping_add(step));
                    return Some(Completion {
                        token,
                        status: DtoStatus::Flushed,
                        length: 0,
                        queue_pair,
                        solicited: false,
                    });
                }
            }
            self.flushing = self.flushing.wrapping_add(1);
        }
        None
    }

    /// Copies the remaining entries to another ring, up to the entry of kind `MOVED`.
    ///
    /// That entry has an index of its own, so the copies move by one.
    pub(crate) fn move_to(&mut self, ring: &'s [Entry]) -> Result<(), DeviceFault> {
        let entries = ring.len() as u32;
        let mut moved = 0_u32;
        loop {
            let index = self.next.wrapping_add(moved);
            let written = self.written(index).filter(|_| moved < self.entries());
            let (from, tail) = written.ok_or(DeviceFault::WrongIndex)?;
            if tail.kind() == CompletionKind::MOVED {
                break;
            }
            if tail == CompletionTail::ALL_ONES {
                return Err(DeviceFault::AllOnes);
            }
            H::from_device();
            let index = index.wrapping_add(1);
            let tail = tail.in_lap(index & entries != 0);
            let to = ring.get((index & entries.wrapping_sub(1)) as usize);
            let words = to.into_iter().flatten().flatten();
            for (word, slot_index) in words.zip(0..) {
                word.store(if slot_index == defs::Completion::TAIL {
                    tail.0
                } else {
                    read(from, slot_index)
                });
            }
            moved = moved.wrapping_add(1);
        }
        self.ring = ring;
        self.advance();
        Ok(())
    }
}

/// Converts the syndrome of a failure.
fn status(syndrome: Syndrome) -> DtoStatus {
    match syndrome {
        Syndrome::LOCAL_LENGTH => DtoStatus::LocalLength,
        Syndrome::LOCAL_OPERATION => DtoStatus::LocalEndpoint,
        Syndrome::LOCAL_PROTECTION | Syndrome::LOCAL_ACCESS => DtoStatus::LocalProtection,
        Syndrome::FLUSHED => DtoStatus::Flushed,
        Syndrome::BIND => DtoStatus::RmrOperationFailed,
        Syndrome::BAD_RESPONSE => DtoStatus::BadResponse,
        Syndrome::REMOTE_ACCESS => DtoStatus::RemoteAccess,
        Syndrome::REMOTE_INVALID | Syndrome::REMOTE_OPERATION | Syndrome::REMOTE_ABORTED => {
            DtoStatus::RemoteResponder
        }
        Syndrome::RETRIES => DtoStatus::Transport,
        Syndrome::NOT_READY => DtoStatus::ReceiverNotReady,
        // New devices add syndromes. Each is a failure of this queue pair.
        _ => DtoStatus::LocalEndpoint,
    }
}

impl<H: Hal, R: RegisterIo> CompletionQueue for MmioCompletionQueue<'_, H, R> {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        for _ in 0..self.entries().wrapping_add(1) {
            if self.tables.is_faulty() {
                // Until it is halted the device may still use posted requests.
                let halted = self.tables.state.is_halted();
                return Ok(if halted { self.flush() } else { None });
            }
            match self.examine() {
                Ok(Some(Examined::Completion(completion))) => return Ok(Some(completion)),
                Ok(Some(Examined::Stale)) => {}
                Ok(None) => return Ok(None),
                // Not a failure of this queue: posted requests complete, and the next
                // `poll_control` reports the fault.
                Err(fault) => self.tables.fault(fault),
            }
        }
        Ok(None)
    }

    #[inline]
    fn peek(&mut self) -> Peek {
        if !self.hal.is_coherent() {
            // `poll` maintains the caches.
            return Peek::Other;
        }
        let Some(entry) = self.entry(self.next) else {
            return Peek::Empty;
        };
        let tail = CompletionTail(read(entry, defs::Completion::TAIL));
        let success = match tail.in_turn(self.lap(self.next)) {
            REQUEST => self.check::<false>(entry, tail),
            RECEIVE => self.check::<true>(entry, tail),
            _ if self.is_unclear() => None,
            _ => return Peek::Empty,
        };
        self.seen = success.map(|success| (success.queue, success.tail));
        match success {
            Some(Success { token, length, .. }) => Peek::Success { token, length },
            None => Peek::Other,
        }
    }

    #[inline]
    fn skip(&mut self) {
        if let Some((queue, tail)) = self.seen.take() {
            queue.set_tail(tail);
            self.advance();
        }
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        self.slot.armed.store(1, Ordering::Relaxed);
        if self.tables.is_faulty() {
            H::store_before_load();
            // Nothing is flushed before the halt; the halt reports armed queues.
            let halted = self.tables.state.is_halted();
            return if halted && self.tables.has_flushed(self.name) {
                Armed::Missed
            } else {
                Armed::Armed
            };
        }
        let command = ArmCommand {
            serial: self.slot.serial.load(Ordering::Relaxed),
            solicited_only,
            consumer: self.next,
        };
        let word = command.encode();
        self.record[doorbell::ARM].store(word);
        H::to_register();
        let value = u64::from(word) << 32 | u64::from(self.number);
        self.registers.write(register::COMPLETION_QUEUE, value);
        H::store_before_load();
        if self.written(self.next).is_some() {
            Armed::Missed
        } else {
            Armed::Armed
        }
    }
}
