//! An open adapter for connections to other processes: one event dispatcher, one thread.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dat_core::ErrorKind;
use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_core::event::{Event, ThreadWait, Wait};
use dat_core::flags::{CompletionFlags, EvdFlags, IaFields, MemoryPrivileges, ProviderFields};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::RmrTriplet;
use dat_core::time::Instant;
use dat_storage::Limits;

use super::protocol::{MESSAGE, Message};
use crate::failure::{During, Failure, Result};
use crate::host::{self, Adapter, HostBackend, Memory, PAGE, Registered};
use crate::perf::Counters;

/// The way to wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The thread sleeps.
    Block,
    /// The thread polls, and yields after `looks` empty polls.
    Poll { looks: u32 },
}

/// Number of polls from one call of `progress`, which handles connection events, to the next.
const BETWEEN: u32 = 256;

/// An open adapter with a zone and one event dispatcher for all of its events.
pub(crate) struct OpenAdapter<B: HostBackend, W> {
    pub(crate) ia: Adapter<B>,
    pub(crate) zone: PzId,
    pub(crate) events: EvdId,
    pub(crate) limits: IaAttributes,
    wait: W,
    waiting: Waiting,
    looks: u32,
    /// Reader of the counts of the device.
    pub(crate) counters: Option<Arc<Counters>>,
}

impl<B: HostBackend, W: Wait> OpenAdapter<B, W> {
    /// Opens an adapter for `endpoints` endpoints and `room` requests and receives in total.
    pub(crate) fn open(
        backend: B,
        wait: W,
        waiting: Waiting,
        endpoints: usize,
        room: usize,
    ) -> Result<Self> {
        // Room for connection events, in addition to the completions.
        const OTHERS: usize = 64;
        let most = usize::try_from(backend.ia_attributes().max_evd_qlen).unwrap_or(0);
        let length = (room + OTHERS + 2 * endpoints).min(most.max(OTHERS));
        let room = length.saturating_sub(OTHERS);
        let ia = host::open(
            backend,
            &Limits {
                endpoints,
                connection_requests: endpoints,
                zones: endpoints + 2,
                local_regions: 2 * endpoints + 2,
                remote_regions: 2 * endpoints + 2,
                records: room,
                events: length + OTHERS,
                ..host::LIMITS
            },
        )?;
        let zone = ia.pz_create().during("dat_pz_create")?;
        let all = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let events = ia
            .evd_create(i32::try_from(length).unwrap_or(i32::MAX), None, all)
            .during("dat_evd_create")?;
        let limits = ia
            .ia_query(IaFields::all(), ProviderFields::empty())
            .during("dat_ia_query")?
            .ia;
        Ok(Self {
            ia,
            zone,
            events,
            limits,
            wait,
            waiting,
            looks: 0,
            counters: None,
        })
    }

    /// Waits for the next event; returns `None` at the timeout or after a signal.
    pub(crate) fn next_event(&mut self, longest: Duration) -> Result<Option<Event>> {
        let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let until = |now: Instant| Instant::from_micros(now.as_micros().saturating_add(longest));
        if longest == 0 {
            return self.look().map(Some).or_else(host::nothing);
        }
        match self.waiting {
            Waiting::Block => {
                let deadline = Some(until(self.wait.now()));
                let waited = self
                    .ia
                    .evd_wait_until(self.events, 1, deadline, &mut self.wait);
                match waited {
                    Ok(waited) => Ok(Some(waited.event)),
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::TimeoutExpired | ErrorKind::InterruptedCall
                        ) =>
                    {
                        Ok(None)
                    }
                    Err(error) => Err(Failure::operation("dat_evd_wait failed", error)),
                }
            }
            Waiting::Poll { looks } => {
                let mut deadline = None;
                let mut idle = 0_u32;
                loop {
                    match self.look() {
                        Ok(event) => return Ok(Some(event)),
                        Err(error) => host::nothing::<Event>(error)?,
                    };
                    idle += 1;
                    if idle >= looks {
                        idle = 0;
                        let now = ThreadWait::clock();
                        self.ia.progress(now);
                        if *deadline.get_or_insert_with(|| until(now)) <= now {
                            return host::dequeue(&self.ia, self.events);
                        }
                        thread::yield_now();
                    }
                }
            }
        }
    }

    /// Returns true if the thread polls instead of sleeping.
    #[inline]
    pub(crate) fn polls(&self) -> bool {
        matches!(self.waiting, Waiting::Poll { .. })
    }

    /// Polls the dispatcher; every [`BETWEEN`] polls it also handles connection events.
    pub(crate) fn look(&mut self) -> dat_core::Result<Event> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(BETWEEN) {
            self.ia.progress(ThreadWait::clock());
        }
        self.ia.evd_dequeue(self.events)
    }

    /// Creates an endpoint on the dispatcher.
    pub(crate) fn endpoint(&self, attributes: &EpAttributes) -> dat_core::Result<EpId> {
        let all = Some(self.events);
        self.ia
            .ep_create(Some(self.zone), all, all, all, Some(attributes))
    }

    /// Registers memory in the zone of all connections.
    pub(crate) fn register(
        &self,
        memory: Memory,
        privileges: MemoryPrivileges,
    ) -> dat_core::Result<Registered> {
        host::register(&self.ia, self.zone, memory, privileges)
    }
}

/// Registered memory for the messages of a connection.
///
/// The buffers of all receives come first, then those of all sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageBuffers {
    memory: Registered,
    receives: usize,
}

impl MessageBuffers {
    /// Returns the bytes that this many messages need.
    pub(crate) const fn bytes(receives: usize, sends: usize) -> usize {
        ((receives + sends) * MESSAGE).next_multiple_of(PAGE)
    }

    pub(crate) fn register<B: HostBackend, W: Wait>(
        adapter: &OpenAdapter<B, W>,
        memory: Memory,
        receives: usize,
    ) -> dat_core::Result<Self> {
        let privileges = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        Ok(Self {
            memory: adapter.register(memory, privileges)?,
            receives,
        })
    }

    pub(crate) fn registered(&self) -> &Registered {
        &self.memory
    }

    /// Posts the receive of a buffer.
    pub(crate) fn receive<B: HostBackend>(
        &self,
        ia: &Adapter<B>,
        ep: EpId,
        number: usize,
        cookie: u64,
    ) -> dat_core::Result<()> {
        let segments = [self.memory.segment(number * MESSAGE, MESSAGE)];
        ia.post_recv(ep, &segments, cookie, CompletionFlags::empty())
    }

    /// Decodes the message that a receive got.
    pub(crate) fn read(&self, number: usize, length: u64) -> Option<Message> {
        let mut bytes = [0; MESSAGE];
        let length = usize::try_from(length).ok()?;
        let bytes = bytes.get_mut(..length)?;
        self.memory.memory.load(number * MESSAGE, bytes);
        Message::decode(bytes)
    }

    /// Sends a message from a send buffer.
    ///
    /// The buffer must stay unused until the message has arrived.
    pub(crate) fn send<B: HostBackend>(
        &self,
        ia: &Adapter<B>,
        ep: EpId,
        number: usize,
        message: &Message,
        cookie: u64,
    ) -> dat_core::Result<()> {
        let bytes = message.encode();
        let offset = (self.receives + number) * MESSAGE;
        self.memory.memory.store(offset, &bytes);
        let segments = [self.memory.segment(offset, bytes.len())];
        ia.post_send(ep, &segments, cookie, CompletionFlags::empty())
    }
}

/// Returns a part of the memory that a peer granted.
pub(crate) fn part_of(granted: &RmrTriplet, offset: usize, length: usize) -> RmrTriplet {
    RmrTriplet {
        context: granted.context,
        address: granted.address.wrapping_add(offset as u64),
        length: length as u64,
    }
}

/// Fills memory with pseudorandom bytes, determined by the seed.
pub(crate) fn fill(memory: Memory, seed: u64) {
    const BLOCK: usize = 1 << 16;
    let mut state = seed | 1;
    let mut block = vec![0_u8; BLOCK];
    let length = memory.length();
    for offset in (0..length).step_by(BLOCK) {
        fill_block(&mut state, &mut block);
        let count = BLOCK.min(length - offset);
        memory.store(offset, block.get(..count).unwrap_or_default());
    }
}

/// Fills a block with pseudorandom bytes; `state` is not 0.
pub(crate) fn fill_block(state: &mut u64, block: &mut [u8]) {
    for word in block.chunks_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        for (to, from) in word.iter_mut().zip(state.to_le_bytes()) {
            *to = from;
        }
    }
}

/// Computes the checksum of memory.
pub(crate) fn checksum(memory: Memory) -> u128 {
    const BLOCK: usize = 1 << 18;
    let mut hash = twox_hash::XxHash3_128::new();
    let mut block = vec![0; BLOCK.min(memory.length())];
    let length = memory.length();
    for offset in (0..length).step_by(BLOCK) {
        let count = BLOCK.min(length - offset);
        let bytes = block.get_mut(..count).unwrap_or_default();
        memory.load(offset, bytes);
        hash.write(bytes);
    }
    hash.finish_128()
}
