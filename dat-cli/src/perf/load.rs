//! The measured operations, and the check that their data arrives.
//!
//! Every operation has a slot of memory at its source and one at its destination. Each post is
//! preceded by a new number at the start of the source slot, which must be at the destination when
//! the operation completes. At the end, the whole of every slot is compared.
//!
//! Adapters, connections and memory are those of `dat-host`. Posts and polls are the core's own
//! calls, because a future for each operation would cost more than the operation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use dat_core::backend::HostBackend;
use dat_core::endpoint::{BatchOperation, BatchRequest};
use dat_core::event::{DtoCompletion, DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, RmrId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::load_bytes;
use dat_host::Events;

use super::inbox::Inbox;
use super::peer::{Here, Peer, Server};
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::remote::connection::{TICK, refused};
use crate::remote::data::checksum;
use crate::remote::host_adapter::{Core, dequeue};
use crate::remote::patience::{Allowance, Patience};
use crate::remote::protocol::{Message, Refusal};
use crate::remote::registered::Registered;

pub(super) const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// One send to a server out of this many completes with an event.
pub(super) const UNSIGNALLED: usize = 8;
/// Calls of `take` between two looks whether the server must be told that this client is there.
///
/// It cannot see RDMA operations.
const KEEPALIVE: u64 = 16;
/// Length in bytes of the number that marks the data of an operation.
const STAMP: usize = 4;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) operation: Operation,
    /// Bytes per operation.
    pub(crate) size: usize,
    /// Operations under way at once.
    pub(crate) depth: usize,
    /// Local segments per operation.
    pub(crate) segments: usize,
    /// Operations that are posted together.
    pub(crate) batch: usize,
}

impl Shape {
    /// Returns the bytes of all slots of one side.
    pub(super) const fn bytes(self) -> usize {
        self.size * self.depth
    }
}

/// Operations that this end of a connection posts.
///
/// Each slot has one operation under way at a time.
pub(crate) struct Load<'a, B: HostBackend> {
    pub(super) shape: Shape,
    pub(super) core: &'a Core<B>,
    /// The endpoints that post; messages take them in turns.
    pub(super) endpoints: Vec<EpId>,
    /// Completions at this end.
    pub(super) events: Events,
    pub(super) peer: Peer<'a, B>,
    /// Memory of this end.
    pub(super) near: Registered,
    /// Memory of the other end in this process, or of the replies of a server.
    pub(super) far: Option<Registered>,
    /// The segments of all slots; `remote` has their remote memory.
    pub(super) segments: Vec<LmrTriplet>,
    pub(super) remote: Vec<RmrTriplet>,
    /// The remote region of each slot and the context of its last bind.
    pub(super) windows: Vec<(RmrId, u32)>,
    /// Where messages arrive.
    pub(super) inbox: Option<Inbox<'a, B>>,
    /// Slots whose message is under way, oldest first, for each endpoint.
    pub(super) sent: Vec<VecDeque<usize>>,
    /// True for a slot of which only one of its send and its receive has completed.
    pub(super) half_done: Vec<bool>,
    /// Number of the last operation.
    pub(super) count: u64,
    /// The wait since the last completion.
    pub(super) silent: Option<Patience>,
}

impl<B: HostBackend> Load<'_, B> {
    /// Returns the number of operations under way at once.
    pub(super) const fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Returns the bytes per operation.
    pub(super) const fn size(&self) -> usize {
        self.shape.size
    }

    /// Returns the number of operations that are posted together.
    pub(super) const fn batch(&self) -> usize {
        self.shape.batch
    }

    /// Returns true if the operation itself moves data.
    pub(super) fn moves_data(&self) -> bool {
        self.shape.operation != Operation::Bind
    }

    /// Gives the next operation of a slot its own number.
    #[inline]
    pub(super) fn prepare(&mut self, slot: usize) {
        self.count += 1;
        let source = match self.shape.operation {
            // The memory of a server keeps its content.
            Operation::Read | Operation::Bind => self.far.as_ref(),
            _ => Some(&self.near),
        };
        if let Some(source) = source {
            stamp(source.slot(slot, self.shape.size), self.count);
        }
    }

    /// Returns the segments of a slot.
    #[inline]
    fn segments(&self, slot: usize) -> &[LmrTriplet] {
        let first = slot * self.shape.segments;
        let segments = self.segments.get(first..first + self.shape.segments);
        segments.unwrap_or_default()
    }

    /// Returns the flags of the send with this number.
    ///
    /// Most completions of sends to a server are suppressed: its echo proves more.
    fn send_flags(&self, number: u64) -> CompletionFlags {
        match self.peer {
            Peer::Server(_) if !number.is_multiple_of(UNSIGNALLED as u64) => {
                CompletionFlags::SUPPRESS
            }
            _ => DEFAULT,
        }
    }

    /// Posts the operation of a slot.
    #[inline]
    pub(super) fn post(&mut self, slot: usize) -> Result<()> {
        let (core, ep, cookie) = (self.core, self.endpoints[0], slot as u64);
        let local = self.segments(slot);
        match self.shape.operation {
            Operation::Write => core
                .post_rdma_write(ep, local, cookie, &self.remote[slot], DEFAULT)
                .during("dat_ep_post_rdma_write"),
            Operation::Read => core
                .post_rdma_read(ep, local, cookie, &self.remote[slot], DEFAULT)
                .during("dat_ep_post_rdma_read"),
            Operation::Send | Operation::Srq => {
                let stream = slot % self.endpoints.len();
                let flags = self.send_flags(self.count);
                core.post_send(self.endpoints[stream], local, cookie, flags)
                    .during("dat_ep_post_send")?;
                self.sent[stream].push_back(slot);
                Ok(())
            }
            Operation::Bind => {
                let segment = self.near.segment(slot * self.shape.size, self.shape.size);
                let privileges = MemoryPrivileges::REMOTE_WRITE;
                let (rmr, context) = &mut self.windows[slot];
                *context = core
                    .rmr_bind(*rmr, &segment, privileges, ep, cookie, DEFAULT)
                    .during("dat_rmr_bind")?;
                Ok(())
            }
        }
    }

    /// Posts the operations of several slots together, on the first endpoint.
    pub(super) fn post_together(&mut self, slots: &[usize]) -> Result<()> {
        let first = self.count + 1 - slots.len() as u64;
        let requests = slots.iter().zip(first..).map(|(&slot, number)| {
            let (operation, flags) = match self.shape.operation {
                Operation::Write => (BatchOperation::RdmaWrite(self.remote[slot]), DEFAULT),
                Operation::Read => (BatchOperation::RdmaRead(self.remote[slot]), DEFAULT),
                _ => (BatchOperation::Send, self.send_flags(number)),
            };
            BatchRequest {
                operation,
                segments: self.segments(slot),
                cookie: slot as u64,
                flags,
            }
        });
        let requests: Vec<BatchRequest<'_>> = requests.collect();
        self.core
            .post_batch(self.endpoints[0], &requests)
            .map_err(|refused| Failure::operation("a post of a batch failed", refused))?;
        if self.shape.operation == Operation::Send {
            self.sent[0].extend(slots);
        }
        Ok(())
    }

    /// Takes a completed operation, if any; with `wait`, it may sleep until one completes.
    #[inline]
    pub(super) fn take(&mut self, wait: bool) -> Result<Option<usize>> {
        match &mut self.peer {
            Peer::Here(_) => self.take_here(),
            Peer::Server(server) => {
                server.taken = server.taken.wrapping_add(1);
                if server.taken.is_multiple_of(KEEPALIVE) {
                    server.keep_alive()?;
                }
                self.take_from_server(wait)
            }
        }
    }

    #[inline]
    fn take_from_server(&mut self, wait: bool) -> Result<Option<usize>> {
        loop {
            let (core, events) = (self.core, self.events.id());
            let event = match (dequeue(core, events)?, &mut self.peer) {
                (None, Peer::Server(server)) if wait => {
                    server.client.drive.next_event(core, events, TICK)?
                }
                (found, _) => found,
            };
            let Some(event) = event else {
                break;
            };
            if let Some(slot) = self.completed(&event)? {
                return Ok(Some(slot));
            }
        }
        if let Peer::Server(server) = &mut self.peer
            && wait
        {
            let begin = || Patience::begin(Instant::now());
            server.client.tick(self.silent.get_or_insert_with(begin))?;
            server.keep_alive()?;
        }
        Ok(None)
    }

    /// Looks once at each end, which both belong to this thread.
    fn take_here(&mut self) -> Result<Option<usize>> {
        if let Some(slot) = self.take_message()?
            && let Some(slot) = self.half_done(slot)
        {
            return Ok(Some(slot));
        }
        if let Some(event) = dequeue(self.core, self.events.id())? {
            return self.completed(&event);
        }
        if let Peer::Here(here) = &mut self.peer {
            here.look_again(&mut self.silent)?;
        }
        Ok(None)
    }

    /// Takes a message that has arrived at the other end in this process; returns its slot.
    fn take_message(&mut self) -> Result<Option<usize>> {
        let (Peer::Here(here), Some(inbox)) = (&mut self.peer, &mut self.inbox) else {
            return Ok(None);
        };
        match inbox {
            Inbox::Buffers(_) => match dequeue(here.core, here.events.id())? {
                Some(Event::Dto(done)) if done.status == DtoStatus::Success => {
                    self.received(&done).map(Some)
                }
                Some(event) => Err(failed(&event)),
                None => Ok(None),
            },
            Inbox::Queue(queue) => {
                let mut next = queue.next(&here.endpoints)?;
                if next.is_none() {
                    // The driver hands out all messages that have come.
                    here.drive.pass();
                    next = queue.next(&here.endpoints)?;
                }
                let Some((stream, message)) = next else {
                    return Ok(None);
                };
                let (found, length) = (first_bytes(&message), message.len());
                let slot = self.sent[stream].pop_front().ok_or_else(not_sent)?;
                queue.keep(slot, message);
                self.check(slot, found, length)?;
                self.silent = None;
                Ok(Some(slot))
            }
        }
    }

    /// Checks that a received message is the next expected one; returns its slot.
    fn received(&mut self, done: &DtoCompletion) -> Result<usize> {
        let (Some(Inbox::Buffers(buffers)), Some(memory)) = (&mut self.inbox, &self.far) else {
            return Err(not_sent());
        };
        let buffer = done.cookie as usize;
        let slot = self.sent[0].pop_front().ok_or_else(not_sent)?;
        let found = stamp_of(memory.slot(buffer, self.shape.size));
        buffers.keep(slot, buffer);
        let length = usize::try_from(done.transferred_length).unwrap_or(usize::MAX);
        self.check(slot, found, length)?;
        self.silent = None;
        self.post_receive(buffer)?;
        Ok(slot)
    }

    /// Posts the receive of a buffer.
    pub(super) fn post_receive(&self, buffer: usize) -> Result<()> {
        let (Some(Inbox::Buffers(buffers)), Some(memory)) = (&self.inbox, &self.far) else {
            return Ok(());
        };
        let size = self.shape.size;
        let segments = [memory.segment(buffer * size, size)];
        buffers
            .core
            .post_recv(buffers.ep, &segments, buffer as u64, DEFAULT)
            .during("dat_ep_post_recv")
    }

    /// Returns the slot whose operation an event ends, if it ends one.
    #[inline]
    fn completed(&mut self, event: &Event) -> Result<Option<usize>> {
        let (status, cookie) = match event {
            Event::Dto(done) => (done.status, done.cookie),
            Event::RmrBind(done) => (done.status, done.cookie),
            _ => return Ok(None),
        };
        if status != DtoStatus::Success {
            return Err(match &mut self.peer {
                Peer::Server(server) => server.client.failed(status),
                Peer::Here(_) => failed(event),
            });
        }
        self.silent = None;
        let slot = cookie as usize;
        let Event::Dto(done) = event else {
            return Ok(Some(slot));
        };
        match (done.operation, &self.peer) {
            (DtoOperation::Receive, _) => self.received(done).map(Some),
            (DtoOperation::Send, Peer::Server(_)) => Ok(None),
            (DtoOperation::Send, Peer::Here(_)) => Ok(self.half_done(slot)),
            (_, Peer::Server(_)) => Ok(Some(slot)),
            (_, Peer::Here(_)) => {
                let size = self.shape.size;
                let far = self.far.as_ref().map(|far| far.slot(slot, size));
                self.check(slot, stamp_of(far.unwrap_or_default()), size)?;
                Ok(Some(slot))
            }
        }
    }

    /// Returns the slot if both halves of its operation are done.
    fn half_done(&mut self, slot: usize) -> Option<usize> {
        let half = self.half_done.get_mut(slot)?;
        *half = !*half;
        (!*half).then_some(slot)
    }

    /// Checks the length and the number of data that have arrived from or in a slot.
    #[inline]
    fn check(&self, slot: usize, found: [u8; STAMP], length: usize) -> Result<()> {
        let (size, expected) = (
            self.shape.size,
            stamp_of(self.near.slot(slot, self.shape.size)),
        );
        if (found, length) == (expected, size) {
            return Ok(());
        }
        Err(not_arrived(format!(
            "the operation completed, but {length} bytes of slot {slot} begin with {found:02x?}, \
            expected {size} bytes and {expected:02x?}"
        )))
    }

    /// Compares the data of every slot.
    pub(super) fn verify(&mut self) -> Result<()> {
        let size = self.shape.size;
        match (&mut self.peer, &self.inbox, &self.far) {
            (_, Some(inbox), far) => {
                let is_same = |slot: &usize| inbox.has(*slot, self.near.slot(*slot, size), far);
                let mut slots = 0..self.shape.depth;
                match slots.find(|slot| !is_same(slot)) {
                    None => Ok(()),
                    Some(slot) => Err(not_arrived(format!("the message of slot {slot} differs"))),
                }
            }
            (Peer::Here(here), None, Some(far)) => (0..self.shape.depth).try_for_each(|slot| {
                if let Some((_, context)) = self.windows.get(slot) {
                    here.write_through(*context, (&self.near, slot * size), far, size)?;
                }
                match checksum(self.near.slot(slot, size)) == checksum(far.slot(slot, size)) {
                    true => Ok(()),
                    false => Err(not_arrived(format!("slot {slot} differs at the two ends"))),
                }
            }),
            (Peer::Server(server), None, _) => server.compare(&self.near),
            (Peer::Here(_), None, None) => Ok(()),
        }
    }

    /// Ends the connection.
    pub(crate) fn close(self) {
        // Memory that a remote region is bound to would stay.
        for (rmr, _) in &self.windows {
            // Fails only if the adapter is closed, which frees it too.
            let _ = self.core.rmr_free(*rmr);
        }
        if let Peer::Server(server) = self.peer {
            server.client.close();
        }
    }
}

impl Server<'_> {
    /// Compares the checksums of both sides.
    fn compare(&mut self, near: &Registered) -> Result<()> {
        let client = &mut self.client;
        client.send(&Message::Sum)?;
        client.allowance = Allowance::for_work(near.window.atomics().len() as u64);
        let Message::SumIs { checksum: theirs } = client.message()? else {
            return Err(refused(Refusal::Malformed));
        };
        let ours = checksum(near.window.atomics());
        match ours == theirs {
            true => Ok(()),
            false => Err(not_arrived(format!(
                "the server's memory has the checksum {theirs:032x}, the local memory {ours:032x}"
            ))),
        }
    }
}

impl<B: HostBackend> Here<'_, B> {
    /// Writes from this end into a window that was bound.
    fn write_through(
        &mut self,
        context: u32,
        (near, at): (&Registered, usize),
        far: &Registered,
        size: usize,
    ) -> Result<()> {
        let remote = RmrTriplet {
            context,
            address: near.segment(at, size).address,
            length: size as u64,
        };
        let (ep, local) = (self.endpoints[0].id(), [far.segment(at, size)]);
        self.core
            .post_rdma_write(ep, &local, 0, &remote, DEFAULT)
            .during("dat_ep_post_rdma_write")?;
        let events = self.events.id();
        match self
            .drive
            .next_event(self.core, events, Patience::SILENCE)?
        {
            Some(Event::Dto(done)) if done.status == DtoStatus::Success => Ok(()),
            event => Err(Failure::operation(
                "a bound window did not grant access to its memory",
                format!("{event:?}"),
            )),
        }
    }
}

fn not_arrived(why: String) -> Failure {
    Failure::operation("data did not arrive", why)
}

fn not_sent() -> Failure {
    not_arrived("a message arrived that was not sent".into())
}

fn failed(event: &Event) -> Failure {
    Failure::operation("an operation failed", format!("{event:?}"))
}

/// Stores the lowest [`STAMP`] bytes of a number at the start of memory, as far as they fit.
#[inline]
fn stamp(memory: &[AtomicU8], number: u64) {
    let bytes = number.to_le_bytes();
    // With enough room the length is a constant, and the loop is unrolled.
    if let Some(stamp) = memory.first_chunk::<STAMP>() {
        for (to, byte) in stamp.iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
    } else {
        for (to, byte) in memory.iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
    }
}

/// Returns the number at the start of memory, with zeros for what does not fit.
#[inline]
fn stamp_of(memory: &[AtomicU8]) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    load_bytes(memory, &mut stamp);
    stamp
}

/// Returns the number at the start of a message, with zeros for what does not fit.
fn first_bytes(bytes: &[u8]) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    for (to, byte) in stamp.iter_mut().zip(bytes) {
        *to = *byte;
    }
    stamp
}

#[cfg(test)]
mod tests {
    use dat_devices::{FabricOptions, MockBackend, Network};

    use super::*;
    use crate::failure::FailureKind;
    use crate::remote::host_adapter::{Drive, Waiting};
    use crate::remote::transport::Carrier;

    /// Runs `act` with a load between two adapters of the mock.
    fn with_load(shape: Shape, act: impl FnOnce(&mut Load<'_, MockBackend>)) {
        let device = Carrier::mock(FabricOptions {
            poll_steps: true,
            ..Network::options()
        });
        let (other, waiting) = (device.other_end(), Waiting::Poll { looks: 1 });
        let mut near = Drive::open(&device, waiting).unwrap();
        let mut far = Drive::open(&other, waiting).unwrap();
        let mut load = Load::here(&mut near, &mut far, other.addresses[0], 1, shape).unwrap();
        act(&mut load);
        load.close();
    }

    fn done(load: &mut Load<'_, MockBackend>, slot: usize) {
        load.prepare(slot);
        load.post(slot).unwrap();
        let taken = (0..1000).find_map(|_| load.take(false).transpose());
        assert_eq!(taken, Some(Ok(slot)));
    }

    /// A measurement whose data does not arrive fails.
    #[test]
    fn missing_data_is_detected() {
        for operation in [
            Operation::Write,
            Operation::Read,
            Operation::Send,
            Operation::Srq,
        ] {
            for (size, segments) in [(1, 1), (7, 3), (100, 2)] {
                let shape = Shape {
                    operation,
                    size,
                    depth: 2,
                    segments,
                    batch: 1,
                };
                with_load(shape, |load| {
                    done(load, 0);
                    done(load, 1);
                    assert_eq!(load.verify(), Ok(()), "{shape:?}");
                    let number = stamp_of(load.near.slot(1, size));
                    assert_eq!(load.check(1, number, size), Ok(()));
                    assert!(load.check(0, number, size).is_err(), "{shape:?}");
                    assert!(load.check(1, number, size - 1).is_err(), "{shape:?}");
                    let last = &load.near.window.atomics()[2 * size - 1];
                    last.fetch_xor(1, Ordering::Relaxed);
                    let failure = load.verify().unwrap_err();
                    assert_eq!(failure.kind, FailureKind::Operation, "{shape:?}");
                });
            }
        }
    }

    /// A measurement with a stale window context fails.
    #[test]
    fn a_stale_window_context_is_detected() {
        let shape = Shape {
            operation: Operation::Bind,
            size: 64,
            depth: 1,
            segments: 1,
            batch: 1,
        };
        with_load(shape, |load| {
            done(load, 0);
            let old = load.windows[0].1;
            assert_eq!(load.verify(), Ok(()));
            done(load, 0);
            load.windows[0].1 = old;
            assert!(load.verify().is_err());
        });
    }
}
