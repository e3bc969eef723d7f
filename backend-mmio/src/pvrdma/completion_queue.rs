//! Completion queues: entries between a producer index and a consumer index.

use core::sync::atomic::Ordering;

use dat_core::backend::{Armed, Completion, CompletionQueue, DeviceFailure, SharedReceiveQueueKey};
use dat_core::flags::DtoStatus;

use super::pages::{PageRun, View};
use super::work_ring::{SHARED, name, shared_name};
use crate::defs::pvrdma::{
    ENTRY_BYTES, Entry, RECEIVED, RECEIVED_WRITE, doorbell, ring_state, status,
};
use crate::fault::DeviceFault;
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::after_write;
use crate::ring::{
    CompletionQueueSlot, DeviceSlots, Location, NO_QUEUE, QueuePairSlot, RequestSlot,
    encode_shared, generation_index,
};

/// A completion queue.
#[derive(Debug)]
pub struct PvrdmaCompletionQueue<'s, H, W> {
    pub(crate) hal: H,
    pub(crate) doorbells: W,
    pub(crate) page_run: PageRun,
    pub(crate) state: View<'s>,
    pub(crate) ring_entries: View<'s>,
    pub(crate) tables: DeviceSlots<'s>,
    pub(crate) slot: &'s CompletionQueueSlot,
    /// Number of the core.
    pub(crate) name: u16,
    /// Number of the device.
    pub(crate) number: u32,
    /// Number of entries, a power of two; index of the next one, which wraps at 2^32.
    pub(crate) entries: u32,
    pub(crate) next: u32,
    /// Index of the queue pair that is flushed next.
    pub(crate) flushing: usize,
}

/// Token that no queue pair has.
const NO_QUEUE_PAIR: u64 = u64::MAX;

/// Values of `armed`: for any completion; for a solicited one; for a solicited one after a receive
/// was reported as not solicited.
pub(crate) const ARMED: u32 = 1;
const ARMED_SOLICITED: u32 = 2;
pub(crate) const ARMED_DENIED: u32 = 3;
/// To be armed when the first queue pair completes here.
pub(crate) const DEFERRED: u32 = 4;

/// Result of examining the oldest entry.
enum Examined {
    /// A completion.
    Completion(Completion),
    /// An entry of a destroyed queue pair.
    Stale,
}

/// Arms a completion queue on the device.
///
/// Both bits together arm for any completion. QEMU's device ignores the second bit without the
/// first, so it ignores a queue armed only for solicited completions.
fn arm<H: Hal, W: RegisterWords>(doorbells: &W, number: u32, solicited_only: bool) {
    let which = if solicited_only {
        doorbell::ARM_SOLICITED
    } else {
        doorbell::ARM | doorbell::ARM_SOLICITED
    };
    H::to_register();
    doorbells.write(doorbell::COMPLETION_QUEUE, number | which);
}

/// Returns true if a queue pair completes on the queue.
fn completes_here(tables: &DeviceSlots<'_>, name: u16) -> bool {
    let mut live = tables.latest().filter(|generation| generation.is_live());
    live.any(|generation| {
        let cells = [&generation.requests, &generation.receives];
        cells.into_iter().any(|cell| cell.is_of(name))
    })
}

/// Returns true if a forgotten queue pair has pending requests that complete on the queue.
pub(crate) fn has_forgotten_work(tables: &DeviceSlots<'_>, name: u16) -> bool {
    let mut forgotten = tables
        .latest()
        .filter(|generation| is_forgotten(generation));
    forgotten.any(|generation| {
        let cells = [&generation.requests, &generation.receives];
        cells
            .into_iter()
            .any(|cell| cell.is_of(name) && cell.outstanding() != 0)
    })
}

/// Returns true if the driver completes the queue pair's requests: the device has forgotten it.
pub(crate) fn is_forgotten(generation: &QueuePairSlot) -> bool {
    generation.is_live() && generation.expected.load(Ordering::Acquire) == NO_QUEUE
}

/// Arms a queue whose arming was deferred until a queue pair completes on it.
pub(crate) fn attach<H: Hal, W: RegisterWords>(
    slot: &CompletionQueueSlot,
    doorbells: &W,
    solicited_only: bool,
) {
    if slot.armed.load(Ordering::Relaxed) == DEFERRED {
        let armed = if solicited_only {
            ARMED_SOLICITED
        } else {
            ARMED
        };
        slot.armed.store(armed, Ordering::Relaxed);
        let number = slot.number.load(Ordering::Relaxed);
        arm::<H, W>(doorbells, number, solicited_only);
    }
}

impl<'s, H: Hal, W: RegisterWords> PvrdmaCompletionQueue<'s, H, W> {
    const fn index_mask(&self) -> u32 {
        self.entries.wrapping_mul(2).wrapping_sub(1)
    }

    /// Returns the number of entries written and not taken.
    #[inline]
    fn waiting(&self) -> Result<u32, DeviceFault> {
        let producer = self.state.load(ring_state::RECEIVE);
        let waiting = producer.wrapping_sub(self.next) & self.index_mask();
        if producer == u32::MAX {
            Err(DeviceFault::AllOnes)
        } else if producer > self.index_mask() || waiting > self.entries {
            Err(DeviceFault::PhaseJump)
        } else {
            Ok(waiting)
        }
    }

    /// Copies the oldest entry, reading it once.
    fn entry(&self) -> Entry {
        H::from_device();
        let slot_index = self.next & self.entries.wrapping_sub(1);
        self.ring_entries.get(slot_index.wrapping_mul(ENTRY_BYTES))
    }

    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        let consumer = ring_state::RECEIVE.wrapping_add(ring_state::CONSUMER);
        self.state.store(consumer, self.next & self.index_mask());
    }

    /// Returns true if the receive just taken must be reported as solicited.
    ///
    /// The device does not tell. While armed only for solicited completions, it sends a notice.
    fn may_be_solicited(&self) -> bool {
        let armed = &self.slot.armed;
        match armed.load(Ordering::Relaxed) {
            ARMED_SOLICITED | ARMED_DENIED => {
                armed.store(ARMED_DENIED, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }

    /// Returns the queue pair that took a buffer from a shared queue.
    ///
    /// It is the current one with the device number, else the only forgotten one with it.
    fn consuming_pair(&self, number: u64, shared_index: u32) -> Option<&'s QueuePairSlot> {
        let known = || {
            self.tables.latest().filter(move |generation| {
                let numbered = u64::from(generation.number.load(Ordering::Acquire)) == number;
                numbered
                    && generation.is_live()
                    && generation.shared.load(Ordering::Relaxed) == shared_index
            })
        };
        let today = known().find(|generation| !is_forgotten(generation));
        today.or_else(|| {
            let mut forgotten = known();
            let only = forgotten.next();
            only.filter(|_| forgotten.next().is_none())
        })
    }

    /// Takes the oldest entry after checking it against the posted requests.
    fn examine(&mut self) -> Result<Option<Examined>, DeviceFault> {
        if self.waiting()? == 0 {
            // Some devices write completions only when polled.
            H::to_register();
            let poll = self.number | doorbell::POLL;
            self.doorbells.write(doorbell::COMPLETION_QUEUE, poll);
            if self.waiting()? == 0 {
                return Ok(None);
            }
        }
        let entry = self.entry();
        let received = entry.opcode & RECEIVED != 0;
        let shared = entry.token & SHARED != 0;
        let generation = if shared {
            // A former queue pair with this number may have used another shared queue.
            let shared_index = encode_shared(Some(SharedReceiveQueueKey(shared_key(entry.token))));
            self.consuming_pair(entry.queue_pair, shared_index)
        } else {
            let user_index = (entry.token >> 32) as u32;
            let generation = self.tables.generations.get(generation_index(user_index));
            let generation = generation.ok_or(DeviceFault::UnknownQueuePair)?;
            // Read in the opposite order of a creation: a current number comes with a current name.
            let number = generation.number.load(Ordering::Acquire);
            let known = generation.user_index.load(Ordering::Acquire) == user_index;
            if number != NO_QUEUE && known && u64::from(number) != entry.queue_pair {
                return Err(DeviceFault::UnknownQueuePair);
            }
            Some(generation).filter(|_| number != NO_QUEUE && known)
        };
        let Some(generation) = generation else {
            return self.stale_completion(&entry).map(Some);
        };
        let status = match entry.status {
            // Not a message, although it took a buffer. DAT peers do not send it.
            status::SUCCESS if entry.opcode == RECEIVED_WRITE => DtoStatus::BadResponse,
            status => dto_status(status),
        };
        let queue = if received {
            &generation.receives
        } else {
            &generation.requests
        };
        if !queue.is_of(self.name) {
            return Err(DeviceFault::WrongQueue);
        }
        let success = status == DtoStatus::Success;
        let length = if received && success { entry.length } else { 0 };
        let token = if shared {
            let slot = self.shared_slot(entry.token).filter(|_| received);
            let slot = slot.ok_or(DeviceFault::WrongIndex)?;
            if length > slot.extent() {
                return Err(DeviceFault::ImpossibleLength);
            }
            let token = slot.token();
            after_write(&self.hal, slot);
            slot.set_location(Location::Returned);
            token
        } else {
            let Some((index, slot)) = queue.oldest(self.tables.requests) else {
                return self.late_entry(generation);
            };
            let user_index = generation.user_index.load(Ordering::Relaxed);
            if entry.token != name(user_index, index) {
                return self.late_entry(generation);
            }
            if length > slot.extent() {
                return Err(DeviceFault::ImpossibleLength);
            }
            // Read everything before the slot may be posted again.
            let token = slot.token();
            after_write(&self.hal, slot);
            queue.set_tail(index.wrapping_add(1));
            token
        };
        self.advance();
        Ok(Some(Examined::Completion(Completion {
            token,
            status,
            length,
            queue_pair: generation.token.load(),
            solicited: received && self.may_be_solicited(),
        })))
    }

    /// Takes an entry that does not belong to the oldest descriptor.
    ///
    /// It may have been under way when the driver destroyed the queue pair on the device and
    /// completed the descriptor itself.
    fn late_entry(&mut self, generation: &QueuePairSlot) -> Result<Option<Examined>, DeviceFault> {
        if !is_forgotten(generation) || !self.slot.take_stale() {
            return Err(DeviceFault::WrongIndex);
        }
        self.advance();
        Ok(Some(Examined::Stale))
    }

    /// Returns the slot of a buffer of a shared queue if the device holds it.
    fn shared_slot(&self, token: u64) -> Option<&'s RequestSlot> {
        let key = shared_key(token);
        let queue = self.tables.shared_receive_queues.get(key)?;
        let slot_index = token as u32;
        let generation = queue.generation.load(Ordering::Relaxed);
        let named = shared_name(generation, u16::try_from(key).ok()?, slot_index) == token;
        let exists = queue.number.load(Ordering::Relaxed) != NO_QUEUE;
        if !named || !exists || slot_index >= queue.entries.load(Ordering::Relaxed) {
            return None;
        }
        let first = queue.first.load(Ordering::Relaxed);
        let slot = self
            .tables
            .requests
            .get(first.wrapping_add(slot_index) as usize)?;
        slot.is_at(Location::Posted).then_some(slot)
    }

    /// Takes an entry of a destroyed queue pair.
    ///
    /// Returns a buffer that it took from a shared queue as a completion without queue pair.
    fn stale_completion(&mut self, entry: &Entry) -> Result<Examined, DeviceFault> {
        if !self.slot.take_stale() {
            return Err(DeviceFault::UnknownQueuePair);
        }
        self.advance();
        let shared = entry.token & SHARED != 0 && entry.opcode & RECEIVED != 0;
        let slot = shared.then(|| self.shared_slot(entry.token)).flatten();
        let Some(slot) = slot else {
            return Ok(Examined::Stale);
        };
        let token = slot.token();
        after_write(&self.hal, slot);
        slot.set_location(Location::Returned);
        Ok(Examined::Completion(Completion {
            token,
            status: DtoStatus::Flushed,
            length: 0,
            queue_pair: NO_QUEUE_PAIR,
            solicited: false,
        }))
    }

    /// Returns the next flushed completion of forgotten queue pairs, or of all after a fault.
    #[cold]
    fn flush(&mut self) -> Option<Completion> {
        for _ in 0..=self.tables.generations.len() {
            let Some(generation) = self.tables.latest_at(self.flushing) else {
                self.flushing = 0;
                continue;
            };
            let live = is_forgotten(generation);
            for queue in [&generation.requests, &generation.receives] {
                let here = queue.is_of(self.name);
                let oldest = queue.oldest(self.tables.requests);
                if let Some((index, slot)) = oldest.filter(|_| live && here) {
                    let token = slot.token();
                    after_write(&self.hal, slot);
                    queue.set_tail(index.wrapping_add(1));
                    return Some(Completion {
                        token,
                        status: DtoStatus::Flushed,
                        length: 0,
                        queue_pair: generation.token.load(),
                        solicited: false,
                    });
                }
            }
            self.flushing = self.flushing.wrapping_add(1);
        }
        None
    }
}

/// Returns the shared queue in the name of a buffer.
const fn shared_key(token: u64) -> usize {
    (token >> 32) as usize & 0xFFFF
}

/// Converts a completion status.
fn dto_status(status: u32) -> DtoStatus {
    match status {
        status::SUCCESS => DtoStatus::Success,
        status::LOCAL_LENGTH => DtoStatus::LocalLength,
        status::LOCAL_OPERATION => DtoStatus::LocalEndpoint,
        status::LOCAL_PROTECTION | status::LOCAL_ACCESS => DtoStatus::LocalProtection,
        status::FLUSHED => DtoStatus::Flushed,
        status::BAD_RESPONSE => DtoStatus::BadResponse,
        status::REMOTE_ACCESS => DtoStatus::RemoteAccess,
        status::REMOTE_INVALID | status::REMOTE_OPERATION | status::REMOTE_ABORTED => {
            DtoStatus::RemoteResponder
        }
        status::RETRIES => DtoStatus::Transport,
        status::NOT_READY => DtoStatus::ReceiverNotReady,
        // FATAL, GENERAL, or added by a later version: a failure of this queue pair.
        _ => DtoStatus::LocalEndpoint,
    }
}

impl<H: Hal, W: RegisterWords> CompletionQueue for PvrdmaCompletionQueue<'_, H, W> {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        for _ in 0..=self.entries {
            if self.tables.is_faulty() {
                // Until it is halted the device may still use posted requests.
                let halted = self.tables.state.is_halted();
                return Ok(if halted { self.flush() } else { None });
            }
            match self.examine() {
                Ok(Some(Examined::Completion(completion))) => return Ok(Some(completion)),
                Ok(Some(Examined::Stale)) => {}
                Ok(None) => return Ok(self.flush()),
                // Not a failure of this queue: posted requests complete, and the next
                // `poll_control` reports the fault.
                Err(fault) => self.tables.fault(fault),
            }
        }
        Ok(None)
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        self.slot.armed.store(
            if solicited_only {
                ARMED_SOLICITED
            } else {
                ARMED
            },
            Ordering::Relaxed,
        );
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
        if !completes_here(&self.tables, self.name) {
            // Nothing completes without a queue pair, and only its attributes tell which
            // completions count. A device armed for all cannot be changed to wait for solicited
            // ones.
            self.slot.armed.store(DEFERRED, Ordering::Relaxed);
            return Armed::Armed;
        }
        arm::<H, W>(&self.doorbells, self.number, solicited_only);
        H::store_before_load();
        match self.waiting() {
            Ok(0) if !has_forgotten_work(&self.tables, self.name) => return Armed::Armed,
            Ok(_) => {}
            Err(fault) => self.tables.fault(fault),
        }
        // The device sends no notice for completions that were there before.
        self.slot.armed.store(ARMED, Ordering::Relaxed);
        Armed::Missed
    }
}
