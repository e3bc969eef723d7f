//! The two ends of a copy, and the protocol between them.
//!
//! Both ends have `depth` slots of `segments` chunks. The sender fills a slot, writes it into the
//! same slot of the receiver with one RDMA Write, and posts a Send with a header after it. When the
//! header is received, the data is placed (LSW-22). The receiver empties the slot and returns it
//! with an empty message, a credit. A header with length 0 ends the transfer.

use std::time::{Duration, Instant};

use backend_mock::{Fabric, NodeOptions};
use dat_core::attributes::EpAttributes;
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::LmrTriplet;
use dat_storage::Limits;

use super::plain::Plain;
use crate::failure::{During, Failure, Result};
use crate::host::{self, Node, Registered};

/// Length of a header, which holds the length of the data in little-endian order.
const HEADER: usize = 8;
/// Maximum polling rounds without progress; on the mock, one or two rounds bring some.
const PATIENCE: u32 = 100_000;
/// Maximum bytes read or written at a time, few enough to stay in a cache.
const STAGING: usize = 1 << 18;
/// Minimum number of pairs of a transfer and a plain copy.
const LEAST_PAIRS: usize = 9;

/// The shape of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Number of slots.
    pub(crate) depth: usize,
    /// Segments per slot.
    pub(crate) segments: usize,
    /// Bytes per segment.
    pub(crate) chunk: usize,
}

impl Geometry {
    /// Returns the bytes per slot.
    pub(crate) const fn slot(self) -> usize {
        self.segments * self.chunk
    }

    /// Returns the bytes of all slots.
    pub(crate) const fn bytes(self) -> u64 {
        (self.depth * self.slot()) as u64
    }
}

struct End {
    node: Node,
    ep: EpId,
    slots: Registered,
    headers: Registered,
}

impl End {
    fn open(
        network: &Fabric,
        options: NodeOptions,
        geometry: Geometry,
        slot_privileges: MemoryPrivileges,
    ) -> Result<Self> {
        let Geometry {
            depth, segments, ..
        } = geometry;
        // Room for a write and a header per slot, for credits, and for completions not polled yet.
        let requests = 4 * depth + 4;
        let limits = Limits {
            records: 2 * requests,
            ..host::LIMITS
        };
        let node = Node::open(network, options, &limits)?;
        let ep = node.endpoint(
            &EpAttributes {
                max_request_dtos: requests as i32,
                max_recv_dtos: depth as i32 + 1,
                max_request_iov: segments as i32,
                max_rdma_write_iov: segments as i32,
                ..EpAttributes::DEFAULT
            },
            None,
        )?;
        let slots = node.register(depth * geometry.slot(), slot_privileges)?;
        let headers = node.register(
            (depth + 1) * HEADER,
            MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
        )?;
        Ok(Self {
            node,
            ep,
            slots,
            headers,
        })
    }

    /// Takes a completion, if any; a failed one ends the transfer.
    fn completion(&self, evd: EvdId) -> Result<Option<(u64, u64)>> {
        match host::dequeue(&self.node.ia, evd)? {
            None => Ok(None),
            Some(Event::Dto(done)) if done.status == DtoStatus::Success => {
                Ok(Some((done.cookie, done.transferred_length)))
            }
            Some(event) => Err(Failure::operation(
                "the transfer failed",
                match event {
                    Event::Dto(done) => format!("an operation completed as {:?}", done.status),
                    other => format!("{other:?}"),
                },
            )),
        }
    }
}

/// A connected pair of ends.
pub(crate) struct Link {
    geometry: Geometry,
    sender: End,
    receiver: End,
    staging: Vec<u8>,
    plain: Plain,
    busy: Duration,
    /// The part of `busy` that belongs to complete pairs.
    paired: Duration,
    writes: u64,
    segments: u64,
}

impl Link {
    /// Opens two adapters and connects them.
    pub(crate) fn open(network: &Fabric, geometry: Geometry) -> Result<Self> {
        let sender = End::open(
            network,
            NodeOptions::new("sender", 1),
            geometry,
            MemoryPrivileges::LOCAL_READ,
        )?;
        let receiver = End::open(
            network,
            NodeOptions::new("receiver", 2),
            geometry,
            MemoryPrivileges::LOCAL_READ
                | MemoryPrivileges::LOCAL_WRITE
                | MemoryPrivileges::REMOTE_WRITE,
        )?;
        for number in 0..=geometry.depth {
            let segments = [receiver.headers.segment(number * HEADER, HEADER)];
            receiver
                .node
                .ia
                .post_recv(
                    receiver.ep,
                    &segments,
                    number as u64,
                    CompletionFlags::empty(),
                )
                .during("dat_ep_post_recv")?;
        }
        for number in 0..geometry.depth {
            sender
                .node
                .ia
                .post_recv(sender.ep, &[], number as u64, CompletionFlags::empty())
                .during("dat_ep_post_recv")?;
        }
        host::connect(
            network,
            (&sender.node, sender.ep),
            (&receiver.node, receiver.ep),
        )?;
        Ok(Self {
            geometry,
            sender,
            receiver,
            // Nonzero, so that the pages are mapped.
            staging: vec![0xFF; geometry.slot().min(STAGING)],
            plain: Plain::new(geometry),
            busy: Duration::ZERO,
            paired: Duration::ZERO,
            writes: 0,
            segments: 0,
        })
    }

    /// Returns the time spent in calls of the interface during the transfer.
    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns the number of RDMA Writes posted.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the number of segments of the RDMA Writes.
    pub(crate) fn segments(&self) -> u64 {
        self.segments
    }

    /// Returns the plain copies of the transferred data.
    pub(crate) fn plain(&self) -> &Plain {
        &self.plain
    }

    /// Moves data from `read` to `write`; returns the number of bytes.
    ///
    /// `read` must fill its buffer, except at the end of the data. Each round fills all slots, has
    /// all of them under way at once, and empties all. The transfer and the plain copies of a round
    /// thus find the memory in the same state, and their times form a pair.
    pub(crate) fn transfer(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> Result<usize>,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut total = 0;
        let mut lengths = Vec::with_capacity(self.geometry.depth);
        for round in 0u64.. {
            lengths.clear();
            for slot in 0..self.geometry.depth {
                let length = self.fill(slot, round, &mut read)?;
                if length == 0 {
                    break;
                }
                lengths.push(length);
            }
            self.move_round(&lengths, round)?;
            for (slot, length) in lengths.iter().enumerate() {
                self.empty(slot, *length, &mut write)?;
                total += *length as u64;
            }
            self.give_back(lengths.len())?;
            if lengths.len() < self.geometry.depth {
                break;
            }
        }
        self.timed(|link| link.post(0, 0))?;
        self.timed(|link| link.poll_until(|_, arrived| arrived == [0]))?;
        Ok(total)
    }

    /// Moves slots by transfer and by plain copies; the order alternates between rounds.
    fn move_round(&mut self, lengths: &[usize], round: u64) -> Result<()> {
        let plain_first = round % 2 == 1;
        for plain in [plain_first, !plain_first] {
            if plain {
                for (slot, length) in lengths.iter().enumerate() {
                    self.plain.copy(slot, *length);
                }
            } else {
                self.timed(|link| {
                    for (slot, length) in lengths.iter().enumerate() {
                        link.post(slot, *length)?;
                    }
                    link.poll_until(|_, arrived| arrived == lengths)
                })?;
            }
        }
        Ok(())
    }

    /// Returns slots to the sender, which completes a pair.
    fn give_back(&mut self, count: usize) -> Result<()> {
        self.timed(|link| {
            for _ in 0..count {
                link.post_credit()?;
            }
            link.poll_until(|credits, _| credits == count)
        })?;
        self.plain.pair(self.busy.saturating_sub(self.paired));
        self.paired = self.busy;
        Ok(())
    }

    /// Transfers the first slot again until there are enough pairs for the ratio.
    pub(crate) fn repeat(&mut self, length: usize) -> Result<()> {
        let length = length.min(self.geometry.slot());
        let (busy, writes, segments) = (self.busy, self.writes, self.segments);
        for round in self.plain.pairs()..LEAST_PAIRS {
            self.move_round(&[length], round as u64)?;
            self.give_back(1)?;
        }
        // The report covers the transfer only, without these repetitions.
        (self.busy, self.paired) = (busy, busy);
        (self.writes, self.segments) = (writes, segments);
        Ok(())
    }

    fn timed<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = act(self);
        self.busy += begin.elapsed();
        result
    }

    /// Fills a slot of the sender from the file.
    fn fill(
        &mut self,
        slot: usize,
        round: u64,
        read: &mut impl FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let size = self.geometry.slot();
        let mut filled = 0;
        while filled < size {
            let wanted = self.staging.len().min(size - filled);
            let staging = self.staging.get_mut(..wanted).unwrap_or_default();
            let count = read(staging)?;
            let data = staging.get(..count).unwrap_or_default();
            let offset = slot * size + filled;
            if round.is_multiple_of(2) {
                self.plain.fill(offset, data);
                self.sender.slots.memory.store(offset, data);
            } else {
                self.sender.slots.memory.store(offset, data);
                self.plain.fill(offset, data);
            }
            filled += count;
            if count < wanted {
                break;
            }
        }
        Ok(filled)
    }

    /// Empties a slot of the receiver into the file.
    fn empty(
        &mut self,
        slot: usize,
        length: usize,
        write: &mut impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = self.geometry.slot();
        let mut emptied = 0;
        while emptied < length {
            let count = self.staging.len().min(length - emptied);
            let data = self.staging.get_mut(..count).unwrap_or_default();
            let offset = slot * size + emptied;
            self.plain.empty(offset, data);
            self.receiver.slots.memory.load(offset, data);
            write(data)?;
            emptied += count;
        }
        Ok(())
    }

    /// Posts the write of a slot, unless it is empty, and then its header.
    fn post(&mut self, slot: usize, length: usize) -> Result<()> {
        let start = slot * self.geometry.slot();
        let sender = &self.sender;
        if length > 0 {
            let segments: Vec<LmrTriplet> = (0..length)
                .step_by(self.geometry.chunk)
                .map(|at| {
                    let count = self.geometry.chunk.min(length - at);
                    sender.slots.segment(start + at, count)
                })
                .collect();
            let remote = self.receiver.slots.remote(start, length);
            sender
                .node
                .ia
                .post_rdma_write(
                    sender.ep,
                    &segments,
                    slot as u64,
                    &remote,
                    CompletionFlags::SUPPRESS,
                )
                .during("dat_ep_post_rdma_write")?;
            self.writes += 1;
            self.segments += segments.len() as u64;
        }
        sender
            .headers
            .memory
            .store(slot * HEADER, &(length as u64).to_le_bytes());
        let header = [sender.headers.segment(slot * HEADER, HEADER)];
        sender
            .node
            .ia
            .post_send(sender.ep, &header, slot as u64, CompletionFlags::empty())
            .during("dat_ep_post_send")
    }

    /// Polls until `enough` accepts the number of credits and the lengths in the headers.
    fn poll_until(&self, enough: impl Fn(usize, &[usize]) -> bool) -> Result<()> {
        let (mut credits, mut arrived) = (0, Vec::with_capacity(self.geometry.depth));
        let mut idle = 0;
        while !enough(credits, &arrived) {
            let before = (credits, arrived.len());
            self.take_sender_completions()?;
            let result = self.take_credit().and_then(|credit| {
                credits += usize::from(credit);
                arrived.extend(self.take_header()?);
                Ok(())
            });
            if result.is_err() {
                // Receives are flushed when a request fails; the failed request is the better
                // report.
                self.take_sender_completions()?;
            }
            result?;
            let found = before != (credits, arrived.len());
            idle = if found { 0 } else { idle + 1 };
            if idle > PATIENCE {
                return Err(Failure::operation(
                    "the transfer stalled",
                    "outstanding operations do not complete",
                ));
            }
        }
        Ok(())
    }

    /// Takes the completions of the sends of both ends; only failures have an effect.
    fn take_sender_completions(&self) -> Result<()> {
        for end in [&self.sender, &self.receiver] {
            while end.completion(end.node.requests)?.is_some() {}
        }
        Ok(())
    }

    /// Takes a credit; returns true if one came.
    fn take_credit(&self) -> Result<bool> {
        let sender = &self.sender;
        let Some((cookie, _)) = sender.completion(sender.node.receives)? else {
            return Ok(false);
        };
        sender
            .node
            .ia
            .post_recv(sender.ep, &[], cookie, CompletionFlags::empty())
            .during("dat_ep_post_recv")?;
        Ok(true)
    }

    /// Takes the next header, if one came; returns the length in it.
    fn take_header(&self) -> Result<Option<usize>> {
        let receiver = &self.receiver;
        let Some((cookie, _)) = receiver.completion(receiver.node.receives)? else {
            return Ok(None);
        };
        let offset = cookie as usize * HEADER;
        let mut header = [0; HEADER];
        receiver.headers.memory.load(offset, &mut header);
        let segments = [receiver.headers.segment(offset, HEADER)];
        receiver
            .node
            .ia
            .post_recv(receiver.ep, &segments, cookie, CompletionFlags::empty())
            .during("dat_ep_post_recv")?;
        let length = u64::from_le_bytes(header);
        usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.geometry.slot())
            .map(Some)
            .ok_or_else(|| {
                Failure::operation(
                    "the transfer failed",
                    format!(
                        "a message header announces {length} bytes, more than its buffer holds"
                    ),
                )
            })
    }

    /// Tells the sender that a slot is empty again.
    fn post_credit(&self) -> Result<()> {
        let receiver = &self.receiver;
        receiver
            .node
            .ia
            .post_send(receiver.ep, &[], 0, CompletionFlags::empty())
            .during("dat_ep_post_send")
    }
}
