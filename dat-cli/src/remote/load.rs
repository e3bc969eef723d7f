//! Operations between this process and a server, as a load to measure.

use std::collections::VecDeque;
use std::time::Instant;

use dat_core::endpoint::{BatchOperation, BatchRequest};
use dat_core::event::{DtoCompletion, DtoOperation, Event, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::memory::{LmrTriplet, RmrTriplet};

use super::client::{Arrival, Client, Plan, ServerAddress, refused};
use super::open_adapter::{OpenAdapter, checksum, fill, part_of};
use super::protocol::{Message, Refusal, Request, Work};
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::host::{self, HostBackend, Memory, Registered, STAMP};
use crate::perf::Shape;
use crate::perf::measure::Measured;

const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// One send out of this many completes with an event.
const UNSIGNALLED: u64 = 8;
/// Calls of `take` between two keep-alive checks; the server cannot see RDMA operations.
const KEEPALIVE: u64 = 16;

/// A load of operations on a connection to a server.
pub(crate) struct RemoteLoad<'a, B: HostBackend, W> {
    client: Client<'a, B, W>,
    shape: Shape,
    /// Local memory: the data to write or send, or the target of reads.
    near: Registered,
    /// The segments of each slot; `remote` has their remote memory.
    segments: Vec<LmrTriplet>,
    remote: Vec<RmrTriplet>,
    /// The buffers of the echoes.
    echoes: Option<Registered>,
    /// Slots whose echo is expected, oldest first.
    sent: VecDeque<usize>,
    /// The number of the last operation of each slot.
    ///
    /// `came` has the buffer of the slot's last echo, and the operation's number at that time.
    stamps: Vec<u64>,
    came: Vec<Option<(usize, u64)>>,
    count: u64,
    /// Number of calls of `take`.
    taken: u64,
}

impl<'a, B: HostBackend, W: Wait> RemoteLoad<'a, B, W> {
    /// Connects; `memory` holds the data to send first, then the buffers of the echoes.
    pub(crate) fn open(
        adapter: &'a mut OpenAdapter<B, W>,
        server: ServerAddress<'_>,
        shape: Shape,
        memory: Memory,
    ) -> Result<Self> {
        let Shape {
            operation,
            size,
            depth,
            segments,
            ..
        } = shape;
        let work = match operation {
            Operation::Write => Work::Write,
            Operation::Read => Work::Read,
            Operation::Send => Work::Echo,
            Operation::Bind | Operation::Srq => {
                return Err(Failure::usage(
                    format!("{} cannot be measured against a server", operation.name()),
                    "with --connect, only write, read and send can be measured",
                    "remove --connect",
                ));
            }
        };
        let (Ok(narrow_depth), Ok(narrow_size)) = (u16::try_from(depth), u32::try_from(size))
        else {
            return Err(refused(Refusal::TooLarge));
        };
        let all = size * depth;
        let near_memory = memory.part(0, all);
        let near = adapter
            .register(near_memory, MemoryPrivileges::ALL)
            .during("dat_lmr_create")?;
        let echoes = match operation {
            Operation::Send => Some(
                adapter
                    .register(memory.part(all, all), MemoryPrivileges::ALL)
                    .during("dat_lmr_create")?,
            ),
            _ => None,
        };
        match operation {
            // Reads start with zeroed memory, so that their data is seen to arrive.
            Operation::Read => zero(near_memory),
            _ => fill(near_memory, 0x9E37_79B9),
        }
        let message_receives = if echoes.is_some() { 0 } else { 4 };
        let reads = match operation {
            Operation::Read => i32::try_from(depth)
                .unwrap_or(i32::MAX)
                .min(adapter.limits.max_rdma_read_per_ep_out),
            _ => 0,
        };
        let plan = Plan {
            request: Request {
                work,
                depth: narrow_depth,
                size: narrow_size,
            },
            receives: depth + message_receives,
            message_receives,
            requests: 2 * depth + 2 * UNSIGNALLED as usize,
            segments,
            reads,
        };
        let client = Client::connect(adapter, server, plan, |adapter, ep| {
            let Some(echoes) = &echoes else {
                return Ok(());
            };
            for buffer in 0..depth {
                let segments = [echoes.segment(buffer * size, size)];
                adapter
                    .ia
                    .post_recv(ep, &segments, buffer as u64, CompletionFlags::empty())
                    .during("dat_ep_post_recv")?;
            }
            Ok(())
        })?;
        let remote = (0..depth)
            .map(|slot| part_of(&client.granted, slot * size, size))
            .collect();
        Ok(Self {
            client,
            shape,
            remote,
            near,
            segments: slot_segments(&near, shape),
            echoes,
            sent: VecDeque::new(),
            stamps: vec![0; depth],
            came: vec![None; depth],
            count: 0,
            taken: 0,
        })
    }

    /// Ends the connection.
    pub(crate) fn close(self) -> Result<()> {
        let memory: Vec<Registered> = std::iter::once(self.near).chain(self.echoes).collect();
        self.client.close(&memory)
    }

    fn stamp(&self, memory: &Registered, slot: usize) -> [u8; STAMP] {
        let mut stamp = [0; STAMP];
        let length = STAMP.min(self.shape.size);
        let part = stamp.get_mut(..length).unwrap_or_default();
        memory.memory.load(slot * self.shape.size, part);
        stamp
    }

    /// Returns the slot whose operation an event completes, if any.
    fn came(&mut self, event: &Event, wait: bool) -> Result<Option<usize>> {
        match self.client.arrived(event)? {
            Some(Arrival::Done(done)) => match self.completed(&done)? {
                None => self.awaited(wait),
                slot => Ok(slot),
            },
            _ => Ok(None),
        }
    }

    /// Waits for an event that completes an operation; returns its slot.
    fn awaited(&mut self, wait: bool) -> Result<Option<usize>> {
        while let Some(Arrival::Done(done)) = self.client.arrival(wait, &|| Ok(()))? {
            if let Some(slot) = self.completed(&done)? {
                return Ok(Some(slot));
            }
        }
        if wait && self.echoes.is_none() {
            self.client.keep_alive(Instant::now())?;
        }
        Ok(None)
    }

    /// Returns the slot whose operation a completion ends; an echo ends a send.
    fn completed(&mut self, done: &DtoCompletion) -> Result<Option<usize>> {
        match done.operation {
            DtoOperation::Send => Ok(None),
            DtoOperation::Receive => self
                .echo(done.cookie as usize, done.transferred_length)
                .map(Some),
            _ => Ok(Some(done.cookie as usize)),
        }
    }

    /// Checks that an echo is the next expected one, and returns its slot.
    fn echo(&mut self, buffer: usize, length: u64) -> Result<usize> {
        let wrong = |why: String| Failure::operation("data did not arrive", why);
        let (Some(slot), Some(echoes)) = (self.sent.pop_front(), self.echoes) else {
            return Err(wrong(
                "a reply arrived to a message that was not sent".into(),
            ));
        };
        let size = self.shape.size;
        let (expected, found) = (self.stamp(&self.near, slot), self.stamp(&echoes, buffer));
        if length != size as u64 || expected != found {
            return Err(wrong(format!(
                "a reply of {length} bytes begins with {found:02x?}, expected {expected:02x?}"
            )));
        }
        let stamp = self.stamps.get(slot).copied().unwrap_or(0);
        for came in self.came.iter_mut() {
            came.take_if(|(other, _)| *other == buffer);
        }
        if let Some(came) = self.came.get_mut(slot) {
            *came = Some((buffer, stamp));
        }
        let segments = [echoes.segment(buffer * size, size)];
        self.client
            .adapter
            .ia
            .post_recv(
                self.client.ep,
                &segments,
                buffer as u64,
                CompletionFlags::empty(),
            )
            .during("dat_ep_post_recv")?;
        Ok(slot)
    }
}

/// Returns the flags of the send with this number.
///
/// Most completions are suppressed, because an echo proves more than a completed send.
fn send_flags(number: u64) -> CompletionFlags {
    if number.is_multiple_of(UNSIGNALLED) {
        DEFAULT
    } else {
        CompletionFlags::SUPPRESS
    }
}

/// Returns the segments of all slots.
///
/// The segments of a slot have equal lengths; the last one takes the rest as well.
fn slot_segments(near: &Registered, shape: Shape) -> Vec<LmrTriplet> {
    let Shape { size, segments, .. } = shape;
    let length = size / segments;
    let segment = |number| {
        let (slot, segment) = (number / segments, number % segments);
        let from = segment * length;
        let to = if segment + 1 == segments {
            size
        } else {
            from + length
        };
        near.segment(slot * size + from, to - from)
    };
    (0..shape.depth * segments).map(segment).collect()
}

fn zero(memory: Memory) {
    const BLOCK: usize = 1 << 16;
    let zeros = vec![0; BLOCK];
    for offset in (0..memory.length()).step_by(BLOCK) {
        memory.store(offset, &zeros);
    }
}

impl<B: HostBackend, W: Wait> Measured for RemoteLoad<'_, B, W> {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    fn size(&self) -> usize {
        self.shape.size
    }

    fn moves_data(&self) -> bool {
        true
    }

    #[inline]
    fn prepare(&mut self, slot: usize) {
        self.count += 1;
        if self.shape.operation == Operation::Send
            && let Some(stamp) = self.stamps.get_mut(slot)
        {
            *stamp = self.count;
        }
        if self.shape.operation != Operation::Read {
            let (start, size) = (slot * self.shape.size, self.shape.size);
            let near = self.near.memory;
            near.stamp(start, start + size, self.count);
        }
    }

    #[inline]
    fn post(&mut self, slot: usize) -> Result<()> {
        let segments = self.shape.segments;
        let first = slot * segments;
        let local = self
            .segments
            .get(first..first + segments)
            .unwrap_or_default();
        let remote = &self.remote[slot];
        let (ia, ep, cookie) = (&self.client.adapter.ia, self.client.ep, slot as u64);
        match self.shape.operation {
            Operation::Write => ia
                .post_rdma_write(ep, local, cookie, remote, DEFAULT)
                .during("dat_ep_post_rdma_write"),
            Operation::Read => ia
                .post_rdma_read(ep, local, cookie, remote, DEFAULT)
                .during("dat_ep_post_rdma_read"),
            _ => {
                ia.post_send(ep, local, cookie, send_flags(self.count))
                    .during("dat_ep_post_send")?;
                self.sent.push_back(slot);
                Ok(())
            }
        }
    }

    fn batch(&self) -> usize {
        self.shape.batch
    }

    fn post_together(&mut self, slots: &[usize]) -> Result<()> {
        let segments = self.shape.segments;
        let first = self.count + 1 - slots.len() as u64;
        let requests: Vec<BatchRequest<'_>> = slots
            .iter()
            .zip(first..)
            .map(|(&slot, number)| {
                let from = slot * segments;
                let remote = self.remote[slot];
                let (operation, flags) = match self.shape.operation {
                    Operation::Write => (BatchOperation::RdmaWrite(remote), DEFAULT),
                    Operation::Read => (BatchOperation::RdmaRead(remote), DEFAULT),
                    _ => (BatchOperation::Send, send_flags(number)),
                };
                BatchRequest {
                    operation,
                    segments: self.segments.get(from..from + segments).unwrap_or_default(),
                    cookie: slot as u64,
                    flags,
                }
            })
            .collect();
        self.client
            .adapter
            .ia
            .post_batch(self.client.ep, &requests)
            .map_err(|refused| Failure::operation("a post of a batch failed", refused))?;
        if self.shape.operation == Operation::Send {
            self.sent.extend(slots);
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, wait: bool) -> Result<Option<usize>> {
        self.taken = self.taken.wrapping_add(1);
        if self.taken.is_multiple_of(KEEPALIVE) && self.echoes.is_none() {
            self.client.keep_alive(Instant::now())?;
        }
        if !self.client.adapter.polls() {
            return self.awaited(wait);
        }
        match self.client.adapter.look() {
            // Polling usually finds these. Messages are not RDMA operations.
            Ok(Event::Dto(done))
                if done.status == DtoStatus::Success
                    && matches!(
                        done.operation,
                        DtoOperation::RdmaWrite | DtoOperation::RdmaRead
                    ) =>
            {
                self.client.note_activity();
                Ok(Some(done.cookie as usize))
            }
            Ok(event) => self.came(&event, wait),
            Err(error) => {
                host::nothing::<Event>(error)?;
                if wait { self.awaited(true) } else { Ok(None) }
            }
        }
    }

    /// Compares the checksums of both sides, or all echoes that are still in their buffers.
    fn verify(&mut self) -> Result<()> {
        let different = |what: String| Failure::operation("data did not arrive", what);
        let Some(echoes) = self.echoes else {
            let segments = self.shape.depth;
            self.client.send(segments, &Message::Sum)?;
            let Message::SumIs { checksum: theirs } = self.client.message(&|| Ok(()))? else {
                return Err(refused(Refusal::Malformed));
            };
            let ours = checksum(self.near.memory);
            if ours == theirs {
                return Ok(());
            }
            return Err(different(format!(
                "the server's memory has the checksum {theirs:032x}, the local memory {ours:032x}"
            )));
        };
        let size = self.shape.size;
        for (slot, came) in self.came.iter().enumerate() {
            if let (Some((buffer, stamp)), Some(last)) = (came, self.stamps.get(slot))
                && stamp == last
            {
                let sent = self.near.memory.part(slot * size, size);
                let back = echoes.memory.part(buffer * size, size);
                if checksum(sent) != checksum(back) {
                    return Err(different(format!("the reply to slot {slot} differs")));
                }
            }
        }
        Ok(())
    }

    /// Returns true: the client has its own time limit for a silent server.
    fn gives_up(&self) -> bool {
        true
    }
}
