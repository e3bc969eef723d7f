//! The two ends of a copy and what they say to each other.
//!
//! Both ends have `depth` slots of `segments` chunks. The sender fills a slot, writes it into the same slot of the receiver
//! with one RDMA Write, and posts a Send with a header behind it: when that is received, the data is placed (LSW-22). The
//! receiver empties the slot and sends it back with an empty message, a credit. A header of length 0 ends the transfer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use backend_mock::{Fabric, NodeOptions};
use dat_core::attributes::EpAttributes;
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::LmrTriplet;

use super::plain::Plain;
use crate::failure::{During, Failure, Result};
use crate::host::{self, Capacity, Node, Registered};

/// A header: the length of the data, little-endian.
const HEADER: usize = 8;
/// Rounds of polling in which nothing comes before the transfer is given up; with the mock one or two bring something.
const PATIENCE: u32 = 100_000;
/// The most that is read or written at once: little enough to stay in a cache on its way.
const STAGING: usize = 1 << 18;
/// Pairs of a transfer and a plain copy of the same that are wanted, if there is enough to copy; and the least.
const PAIRS: u64 = 64;
const LEAST_PAIRS: usize = 9;

/// The shape of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Slots.
    pub(crate) depth: usize,
    /// Segments per slot.
    pub(crate) segments: usize,
    /// Bytes per segment.
    pub(crate) chunk: usize,
}

impl Geometry {
    /// Bytes per slot.
    pub(crate) const fn slot(self) -> usize {
        self.segments * self.chunk
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
        fabric: &Fabric,
        options: NodeOptions,
        geometry: Geometry,
        slot_privileges: MemoryPrivileges,
    ) -> Result<Self> {
        let Geometry {
            depth, segments, ..
        } = geometry;
        // Room for a header behind each write, for credits, and for what is completed but not yet polled.
        let requests = 4 * depth + 4;
        let capacity = Capacity {
            endpoints: 1,
            regions: 2,
            records: 2 * requests,
        };
        let node = Node::open(fabric, options, capacity)?;
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

    /// Takes a completion, if there is one; one that failed ends the transfer.
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
    /// The part of `busy` that is in pairs.
    paired: Duration,
    writes: u64,
    segments: u64,
}

impl Link {
    /// Opens two adapters and connects them.
    pub(crate) fn open(fabric: &Fabric, geometry: Geometry) -> Result<Self> {
        let sender = End::open(
            fabric,
            NodeOptions::new("sender", 1),
            geometry,
            MemoryPrivileges::LOCAL_READ,
        )?;
        let receiver = End::open(
            fabric,
            NodeOptions::new("receiver", 2),
            geometry,
            MemoryPrivileges::LOCAL_READ
                | MemoryPrivileges::LOCAL_WRITE
                | MemoryPrivileges::REMOTE_WRITE,
        )?;
        for number in 0..=geometry.depth {
            let place = [receiver.headers.piece(number * HEADER, HEADER)];
            receiver
                .node
                .ia
                .post_recv(receiver.ep, &place, number as u64, CompletionFlags::empty())
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
            fabric,
            (&sender.node, sender.ep),
            (&receiver.node, receiver.ep),
        )?;
        Ok(Self {
            geometry,
            sender,
            receiver,
            // Filled, so that the pages are there.
            staging: vec![0xFF; geometry.slot().min(STAGING)],
            plain: Plain::new(geometry),
            busy: Duration::ZERO,
            paired: Duration::ZERO,
            writes: 0,
            segments: 0,
        })
    }

    /// Time spent in the calls of the interface during the transfer.
    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    /// RDMA Writes posted.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Segments posted with them.
    pub(crate) fn segments(&self) -> u64 {
        self.segments
    }

    /// The plain copies of what was moved.
    pub(crate) fn plain(&self) -> &Plain {
        &self.plain
    }

    /// Moves all that `read` fills buffers with (less than a buffer = the end) to `write`; returns the number of bytes.
    ///
    /// About `expected` bytes will come.
    pub(crate) fn transfer(
        &mut self,
        expected: u64,
        mut read: impl FnMut(&mut [u8]) -> Result<usize>,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let depth = self.geometry.depth;
        let mut free: VecDeque<usize> = (0..depth).collect();
        let (mut next_full, mut next_free) = (0, 0);
        let mut ended = false;
        let mut total = 0;
        let mut idle = 0;
        // Between two pairs nothing is under way, so that each has the whole of its writes.
        let per_pair = (expected / self.geometry.slot() as u64 / PAIRS).max(depth as u64);
        let mut left_of_pair = per_pair;
        // Of the slots under way, in turn.
        let mut lengths = VecDeque::with_capacity(depth);
        let (mut turn, mut copied) = (false, false);
        loop {
            while !ended
                && left_of_pair > 0
                && let Some(slot) = free.pop_front()
            {
                left_of_pair -= 1;
                let length = self.fill(slot, &mut read)?;
                ended = length == 0;
                lengths.push_back(length);
                self.timed(|link| link.post(slot, length))?;
            }
            // Every other slot goes the plain way first, so that neither way has the caches always to its favor.
            if let (true, false, Some(length)) = (turn, copied, lengths.front()) {
                self.plain.copy(next_full, *length);
                copied = true;
            }
            idle += 1;
            let (credit, header) = self.timed(|link| link.poll())?;
            if credit {
                // Slots are used in turn, so credits are for them in turn.
                free.push_back(next_free);
                next_free = (next_free + 1) % depth;
                idle = 0;
                if left_of_pair == 0 && free.len() == depth {
                    self.pair();
                    left_of_pair = per_pair;
                }
            }
            if let Some(length) = header {
                if length == 0 {
                    self.pair();
                    return Ok(total);
                }
                if !copied {
                    self.plain.copy(next_full, length);
                }
                lengths.pop_front();
                (turn, copied) = (!turn, false);
                self.empty(next_full, length, &mut write)?;
                total += length as u64;
                self.timed(|link| link.post_credit())?;
                next_full = (next_full + 1) % depth;
                idle = 0;
            }
            check_patience(idle)?;
        }
    }

    /// After a transfer: moves the first slot again, until there are enough pairs to tell the ratio.
    pub(crate) fn repeat(&mut self, length: usize) -> Result<()> {
        let length = length.min(self.geometry.slot());
        let (busy, writes, segments) = (self.busy, self.writes, self.segments);
        for _ in self.plain.pairs()..LEAST_PAIRS {
            self.timed(|link| link.post(0, length))?;
            let mut idle = 0;
            while self.timed(|link| link.poll())?.1.is_none() {
                idle += 1;
                check_patience(idle)?;
            }
            self.plain.copy(0, length);
            self.timed(|link| link.post_credit())?;
            self.pair();
        }
        // What was reported of the transfer stays that of the transfer.
        (self.busy, self.paired) = (busy, busy);
        (self.writes, self.segments) = (writes, segments);
        Ok(())
    }

    fn pair(&mut self) {
        self.plain.pair(self.busy.saturating_sub(self.paired));
        self.paired = self.busy;
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
            if slot.is_multiple_of(2) {
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

    /// Posts the write of a slot, unless it is empty, and the header behind it.
    fn post(&mut self, slot: usize, length: usize) -> Result<()> {
        let start = slot * self.geometry.slot();
        let sender = &self.sender;
        if length > 0 {
            let pieces: Vec<LmrTriplet> = (0..length)
                .step_by(self.geometry.chunk)
                .map(|at| {
                    let count = self.geometry.chunk.min(length - at);
                    sender.slots.piece(start + at, count)
                })
                .collect();
            let remote = self.receiver.slots.remote(start, length);
            sender
                .node
                .ia
                .post_rdma_write(
                    sender.ep,
                    &pieces,
                    slot as u64,
                    &remote,
                    CompletionFlags::SUPPRESS,
                )
                .during("dat_ep_post_rdma_write")?;
            self.writes += 1;
            self.segments += pieces.len() as u64;
        }
        sender
            .headers
            .memory
            .store(slot * HEADER, &(length as u64).to_le_bytes());
        let header = [sender.headers.piece(slot * HEADER, HEADER)];
        sender
            .node
            .ia
            .post_send(sender.ep, &header, slot as u64, CompletionFlags::empty())
            .during("dat_ep_post_send")
    }

    /// Polls once for everything; returns whether a credit came, and the length in the next header, if one came.
    fn poll(&self) -> Result<(bool, Option<usize>)> {
        self.take_sender_completions()?;
        let arrived = self
            .take_credit()
            .and_then(|credit| Ok((credit, self.take_header()?)));
        if arrived.is_err() {
            // Receives are flushed because a request failed; that is what to tell, if it is known by now.
            self.take_sender_completions()?;
        }
        arrived
    }

    /// The completions of sends of both ends: nothing follows from them unless they failed.
    fn take_sender_completions(&self) -> Result<()> {
        for end in [&self.sender, &self.receiver] {
            while end.completion(end.node.requests)?.is_some() {}
        }
        Ok(())
    }

    /// Whether a credit came.
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

    /// The length in the next header, if one came.
    fn take_header(&self) -> Result<Option<usize>> {
        let receiver = &self.receiver;
        let Some((cookie, _)) = receiver.completion(receiver.node.receives)? else {
            return Ok(None);
        };
        let offset = cookie as usize * HEADER;
        let mut header = [0; HEADER];
        receiver.headers.memory.load(offset, &mut header);
        let place = [receiver.headers.piece(offset, HEADER)];
        receiver
            .node
            .ia
            .post_recv(receiver.ep, &place, cookie, CompletionFlags::empty())
            .during("dat_ep_post_recv")?;
        let length = u64::from_le_bytes(header);
        usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.geometry.slot())
            .map(Some)
            .ok_or_else(|| {
                Failure::operation(
                    "the transfer failed",
                    format!("a header announces {length} bytes"),
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

/// Fails if nothing came for too many rounds.
fn check_patience(idle: u32) -> Result<()> {
    if idle > PATIENCE {
        return Err(Failure::operation(
            "the transfer stands still",
            "nothing completes any more",
        ));
    }
    Ok(())
}
