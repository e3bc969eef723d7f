//! Completion queues: entries between two indices, which the device and the driver move.

use core::marker::PhantomData;
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
use crate::ring::{
    CompletionQueueSlot, Location, NO_QUEUE, QueuePairSlot, RequestSlot, Tables, encode_shared,
    generation_index,
};

/// A completion queue.
#[derive(Debug)]
pub struct PvrdmaCompletionQueue<'s, H, W> {
    pub(crate) hal: PhantomData<fn() -> H>,
    pub(crate) doorbells: W,
    pub(crate) page_run: PageRun,
    pub(crate) state: View<'s>,
    pub(crate) ring_entries: View<'s>,
    pub(crate) tables: Tables<'s>,
    pub(crate) slot: &'s CompletionQueueSlot,
    /// The core's number.
    pub(crate) name: u16,
    /// The device's number.
    pub(crate) number: u32,
    /// Entries, a power of two; and the index of the next one, which runs freely.
    pub(crate) entries: u32,
    pub(crate) next: u32,
    /// The place of the queue pair that is flushed next, once the device is given up.
    pub(crate) flushing: usize,
}

/// A token that no queue pair has.
const NO_QUEUE_PAIR: u64 = u64::MAX;

/// What a queue is armed for: any completion, a solicited one; and the latter after a receive was said not to be one.
pub(crate) const ARMED: u32 = 1;
const ARMED_SOLICITED: u32 = 2;
pub(crate) const ARMED_DENIED: u32 = 3;
/// It is to be armed when the first queue pair completes here.
pub(crate) const DEFERRED: u32 = 4;

/// What an entry was of.
enum Examined {
    /// A completion.
    Completion(Completion),
    /// Something that is gone.
    Stale,
}

/// Has the device tell of the next completion of a queue. Both bits ask for any: QEMU's device reads the second one only beside
/// the first, so that it ignores a queue that is armed for solicited completions alone.
fn arm<H: Hal, W: RegisterWords>(doorbells: &W, number: u32, solicited_only: bool) {
    let which = if solicited_only {
        doorbell::ARM_SOLICITED
    } else {
        doorbell::ARM | doorbell::ARM_SOLICITED
    };
    H::to_register();
    doorbells.write(doorbell::COMPLETION_QUEUE, number | which);
}

/// Whether there is a queue pair that completes on a queue.
fn completes_here(tables: &Tables<'_>, name: u16) -> bool {
    let mut live = tables.latest().filter(|generation| generation.is_live());
    live.any(|generation| {
        let cells = [&generation.requests, &generation.receives];
        cells.into_iter().any(|cell| cell.is_of(name))
    })
}

/// Whether a queue pair that the device forgot has left something that completes on a queue.
pub(crate) fn has_forgotten_work(tables: &Tables<'_>, name: u16) -> bool {
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

/// Whether the driver completes what is posted on a queue pair, because the device does not know it any more.
pub(crate) fn is_forgotten(generation: &QueuePairSlot) -> bool {
    generation.is_live() && generation.expected.load(Ordering::Acquire) == NO_QUEUE
}

/// A queue pair is going to complete on a queue; arms it if that was put off.
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

    /// How many entries the device has written that nobody took.
    #[inline(always)]
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

    /// Copies the oldest entry out, once.
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

    /// Whether a receive that was just taken has to be called solicited. The device does not say; but while it is armed for
    /// solicited completions alone, it tells of one by a notice.
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

    /// The queue pair that took a buffer from a shared queue: the one of today that the device gives this number, else the one that it
    /// forgot, if only one had the number.
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

    /// Takes the oldest entry, after it was checked against what is posted.
    fn examine(&mut self) -> Result<Option<Examined>, DeviceFault> {
        if self.waiting()? == 0 {
            // A device may write completions only when it is asked to.
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
            // What one of before took from another queue is none of this one's.
            let shared_index = encode_shared(Some(SharedReceiveQueueKey(shared_key(entry.token))));
            self.consuming_pair(entry.queue_pair, shared_index)
        } else {
            let user_index = (entry.token >> 32) as u32;
            let generation = self.tables.generations.get(generation_index(user_index));
            let generation = generation.ok_or(DeviceFault::UnknownQueuePair)?;
            // In the opposite order of a beginning: a number of today has no name of yesterday.
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
            // It took a buffer and is no message; no peer that speaks of DAT does it.
            status::SUCCESS if entry.opcode == RECEIVED_WRITE => DtoStatus::BadResponse,
            status => outcome(status),
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
            // All is read before the place may be posted again.
            let token = slot.token();
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

    /// An entry of something else than the oldest descriptor. It may have been under way when the device was told to forget the
    /// queue pair, and the driver may have completed it since.
    fn late_entry(&mut self, generation: &QueuePairSlot) -> Result<Option<Examined>, DeviceFault> {
        if !is_forgotten(generation) || !self.slot.take_stale() {
            return Err(DeviceFault::WrongIndex);
        }
        self.advance();
        Ok(Some(Examined::Stale))
    }

    /// The slot of a buffer of a shared queue, if it is with the device.
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

    /// An entry of a queue pair that is gone. The core is told of a buffer that it had taken from a shared queue as of
    /// nobody's.
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
        slot.set_location(Location::Returned);
        Ok(Examined::Completion(Completion {
            token,
            status: DtoStatus::Flushed,
            length: 0,
            queue_pair: NO_QUEUE_PAIR,
            solicited: false,
        }))
    }

    /// The next completion of what is posted on queue pairs that the device has nothing to do with any more, because it was given up or
    /// forgot them: all are flushed.
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

/// The shared queue that the name of a buffer tells of.
const fn shared_key(token: u64) -> usize {
    (token >> 32) as usize & 0xFFFF
}

/// What the device calls an end.
fn outcome(status: u32) -> DtoStatus {
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
        // FATAL, GENERAL, or added by a later version: a failure of this queue pair, whatever it means.
        _ => DtoStatus::LocalEndpoint,
    }
}

impl<H: Hal, W: RegisterWords> CompletionQueue for PvrdmaCompletionQueue<'_, H, W> {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        for _ in 0..=self.entries {
            if self.tables.is_faulty() {
                // Until the device is halted it may still use what is posted.
                let halted = self.tables.state.is_halted();
                return Ok(if halted { self.flush() } else { None });
            }
            match self.examine() {
                Ok(Some(Examined::Completion(completion))) => return Ok(Some(completion)),
                Ok(Some(Examined::Stale)) => {}
                Ok(None) => return Ok(self.flush()),
                // Not a failure of this queue: what is posted completes, and the next `poll_control` tells the core.
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
            // Before the device is halted nothing is there; whoever halts it tells the queues that are armed.
            let halted = self.tables.state.is_halted();
            return if halted && self.tables.has_flushed(self.name) {
                Armed::Missed
            } else {
                Armed::Armed
            };
        }
        if !completes_here(&self.tables, self.name) {
            // Nothing completes before there is a queue pair, and it is not known yet which completions count; a device that is
            // armed for all of them cannot be told to wait for solicited ones.
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
        // Of what was there the device tells nothing.
        self.slot.armed.store(ARMED, Ordering::Relaxed);
        Armed::Missed
    }
}
