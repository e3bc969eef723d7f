//! Operations between this process and a server, as a load to measure.

use std::collections::VecDeque;
use std::time::Instant;

use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_core::backend::HostBackend;
use dat_core::endpoint::{BatchOperation, BatchRequest};
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::load_bytes;
use dat_host::{Adapter, Events};

use super::connection::{Completions, Connection, Plan, ServerAddress, TICK, refused};
use super::data::{checksum, fill};
use super::host_adapter::{Core, Driven, core};
use super::patience::{Allowance, Patience};
use super::protocol::{Message, Refusal, Request, Work};
use super::registered::Registered;
use super::session::triplet;
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::host::{self, STAMP};
use crate::perf::Shape;
use crate::perf::measure::Measured;

const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// One send out of this many completes with an event.
const UNSIGNALLED: u64 = 8;
/// Calls of `take` between two keep-alive checks; the server cannot see RDMA operations.
const KEEPALIVE: u64 = 16;

/// Receives for messages.
const MESSAGES: usize = 4;

/// A load of operations on a connection to a server.
pub(crate) struct RemoteLoad<'a, B: HostBackend> {
    client: Connection<'a>,
    core: &'a Core<B>,
    /// Completions of the operations, and of the messages to the server.
    events: Events,
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
    /// The wait since the last completion.
    silent: Option<Patience>,
}

/// Returns the attributes of the endpoint for a load.
fn attributes(shape: Shape, limits: &IaAttributes) -> EpAttributes {
    let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
    let (depth, segments) = (shape.depth, count(shape.segments));
    EpAttributes {
        max_recv_dtos: match shape.operation {
            Operation::Send => count(depth),
            _ => count(MESSAGES),
        },
        max_request_dtos: count(2 * depth + 2 * UNSIGNALLED as usize),
        max_recv_iov: segments,
        max_request_iov: segments,
        max_rdma_read_iov: segments,
        max_rdma_write_iov: segments,
        max_rdma_read_out: match shape.operation {
            Operation::Read => count(depth).min(limits.max_rdma_read_per_ep_out),
            _ => 0,
        },
        ..EpAttributes::default_for(limits)
    }
}

impl<'a, B: HostBackend> RemoteLoad<'a, B> {
    /// Connects, with new memory for the data, and for that of echoes.
    pub(crate) fn open(
        (adapter, drive): &'a mut Driven,
        server: ServerAddress<'_>,
        shape: Shape,
    ) -> Result<Self> {
        let adapter: &'a Adapter = adapter;
        let Shape {
            operation,
            size,
            depth,
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
        let core = core::<B>(adapter)?;
        let limits = adapter.query().during("dat_ia_query")?.ia;
        let zone = adapter.zone().during("dat_pz_create")?;
        let events = zone.events().during("dat_evd_create")?;
        let near = Registered::new(core, &zone, size * depth)?;
        // Reads start with zeroed memory, so that their data is seen to arrive.
        if operation != Operation::Read {
            fill(near.window.atomics(), 0x9E37_79B9);
        }
        let echoes = match operation {
            Operation::Send => Some(Registered::new(core, &zone, size * depth)?),
            _ => None,
        };
        let plan = Plan {
            request: Request {
                work,
                depth: narrow_depth,
                size: narrow_size,
            },
            attributes: attributes(shape, &limits),
            completions: match &echoes {
                Some(_) => Completions::All(&events),
                None => Completions::Requests(&events),
            },
        };
        let client = Connection::open(drive, zone, server, &plan, &|| Ok(()))?;
        let mut this = Self {
            client,
            core,
            events,
            shape,
            remote: Vec::new(),
            segments: slot_segments(&near, shape),
            near,
            echoes,
            sent: VecDeque::new(),
            stamps: vec![0; depth],
            came: vec![None; depth],
            count: 0,
            taken: 0,
            silent: None,
        };
        if this.echoes.is_some() {
            // The server sends nothing by itself, so they are in time.
            (0..depth).try_for_each(|buffer| this.receive(buffer))?;
        } else {
            let (granted, size) = (this.client.granted, size as u64);
            let slots = (0..depth as u64).map(|slot| granted.slice(slot * size..(slot + 1) * size));
            let slots: dat_host::Result<Vec<_>> = slots.map(|slot| slot.map(triplet)).collect();
            this.remote = slots.map_err(|_| refused(Refusal::Malformed))?;
        }
        Ok(this)
    }

    /// Ends the connection.
    pub(crate) fn close(self) {
        self.client.close();
    }

    /// Posts the receive of an echo.
    fn receive(&self, buffer: usize) -> Result<()> {
        let Some(echoes) = &self.echoes else {
            return Ok(());
        };
        let size = self.shape.size;
        let segments = [echoes.segment(buffer * size, size)];
        let (ep, cookie) = (self.client.endpoint.id(), buffer as u64);
        self.core
            .post_recv(ep, &segments, cookie, DEFAULT)
            .during("dat_ep_post_recv")
    }

    fn stamp(&self, memory: &Registered, slot: usize) -> [u8; STAMP] {
        let mut stamp = [0; STAMP];
        load_bytes(memory.slot(slot, self.shape.size), &mut stamp);
        stamp
    }

    /// Waits for an event that completes an operation; returns its slot.
    fn awaited(&mut self, wait: bool) -> Result<Option<usize>> {
        loop {
            let event = match wait {
                true => self
                    .client
                    .drive
                    .next_event(self.core, self.events.id(), TICK)?,
                false => host::dequeue(self.core, self.events.id())?,
            };
            match event {
                Some(event) => {
                    if let Some(slot) = self.completed(&event)? {
                        return Ok(Some(slot));
                    }
                }
                None => break,
            }
        }
        if wait {
            let begin = || Patience::begin(Instant::now());
            let silent = self.silent.get_or_insert_with(begin);
            self.client.tick(silent)?;
            if self.echoes.is_none() {
                self.client.keep_alive(Instant::now())?;
            }
        }
        Ok(None)
    }

    /// Returns the slot whose operation a completion ends; an echo ends a send.
    fn completed(&mut self, event: &Event) -> Result<Option<usize>> {
        let Event::Dto(done) = event else {
            return Ok(None);
        };
        if done.status != DtoStatus::Success {
            return Err(self.client.failed(done.status));
        }
        self.silent = None;
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
        let (Some(slot), Some(echoes)) = (self.sent.pop_front(), &self.echoes) else {
            return Err(wrong(
                "a reply arrived to a message that was not sent".into(),
            ));
        };
        let size = self.shape.size;
        let (expected, found) = (self.stamp(&self.near, slot), self.stamp(echoes, buffer));
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
        self.receive(buffer)?;
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

impl<B: HostBackend> Measured for RemoteLoad<'_, B> {
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
            host::stamp(self.near.slot(slot, self.shape.size), self.count);
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
        let (core, ep, cookie) = (self.core, self.client.endpoint.id(), slot as u64);
        match self.shape.operation {
            Operation::Write => core
                .post_rdma_write(ep, local, cookie, &self.remote[slot], DEFAULT)
                .during("dat_ep_post_rdma_write"),
            Operation::Read => core
                .post_rdma_read(ep, local, cookie, &self.remote[slot], DEFAULT)
                .during("dat_ep_post_rdma_read"),
            _ => {
                core.post_send(ep, local, cookie, send_flags(self.count))
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
                let (operation, flags) = match self.shape.operation {
                    Operation::Write => (BatchOperation::RdmaWrite(self.remote[slot]), DEFAULT),
                    Operation::Read => (BatchOperation::RdmaRead(self.remote[slot]), DEFAULT),
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
        self.core
            .post_batch(self.client.endpoint.id(), &requests)
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
        if !self.client.drive.polls() {
            return self.awaited(wait);
        }
        match self.core.evd_dequeue(self.events.id()) {
            // Polling usually finds these. Messages are not RDMA operations.
            Ok(Event::Dto(done))
                if done.status == DtoStatus::Success
                    && matches!(
                        done.operation,
                        DtoOperation::RdmaWrite | DtoOperation::RdmaRead
                    ) =>
            {
                self.silent = None;
                Ok(Some(done.cookie as usize))
            }
            Ok(event) => match self.completed(&event)? {
                None => self.awaited(wait),
                slot => Ok(slot),
            },
            Err(error) => {
                host::nothing::<Event>(error)?;
                if wait { self.awaited(true) } else { Ok(None) }
            }
        }
    }

    /// Compares the checksums of both sides, or all echoes that are still in their buffers.
    fn verify(&mut self) -> Result<()> {
        let different = |what: String| Failure::operation("data did not arrive", what);
        let Some(echoes) = &self.echoes else {
            self.client.send(&Message::Sum)?;
            let bytes = self.near.window.atomics().len() as u64;
            self.client.allowance = Allowance::for_work(bytes);
            let Message::SumIs { checksum: theirs } = self.client.message()? else {
                return Err(refused(Refusal::Malformed));
            };
            let ours = checksum(self.near.window.atomics());
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
                let (sent, back) = (self.near.slot(slot, size), echoes.slot(*buffer, size));
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
