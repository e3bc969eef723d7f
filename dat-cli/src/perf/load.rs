//! The measured operations, and the check that their data arrives.
//!
//! Every operation has a slot of memory at its source and one at its destination. Each post is
//! preceded by a new number at the start of the source slot, which must be at the destination when
//! the operation completes. At the end, the whole of every slot is compared.

use std::collections::VecDeque;

use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::backend::HostBackend;
use dat_core::endpoint::{BatchOperation, BatchRequest};
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus, IaFields, MemoryPrivileges, ProviderFields};
use dat_core::id::{EpId, EvdId, RmrId, SrqId};
use dat_core::memory::LmrTriplet;
use dat_storage::Limits;

use super::measure::Measured;
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::host::{self, Ground, InProcess, Memory, Node, Registered, STAMP};

const NOTHING: CompletionFlags = CompletionFlags::empty();
/// Bytes that are generated or compared at a time.
const BLOCK: usize = 1 << 16;

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

/// Memory for the two sides of a load.
///
/// The next load uses it again, because registered memory is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Sides {
    near: Memory,
    far: Memory,
}

impl Sides {
    /// Allocates memory for `depth` slots of at most `size` bytes.
    pub(crate) fn new(size: usize, depth: usize) -> Self {
        Self {
            near: Memory::new(size * depth),
            far: Memory::new(size * depth),
        }
    }
}

/// A connection at its near end.
struct Stream {
    ep: EpId,
    /// Slots whose message is under way, oldest first.
    sent: VecDeque<usize>,
}

/// Operations on a pair of nodes; the near node posts.
pub(crate) struct Load<G: Ground = InProcess> {
    shape: Shape,
    /// RDMA Reads that may be under way on a connection.
    reads: i32,
    ground: G,
    near: Node<G::Backend>,
    far: Node<G::Backend>,
    streams: Vec<Stream>,
    /// The far ends of the streams, in the same order.
    far_eps: Vec<EpId>,
    near_memory: Registered,
    far_memory: Registered,
    shared: Option<SrqId>,
    windows: Vec<(RmrId, u32)>,
    /// The number of the operation in each slot.
    stamps: Vec<u64>,
    /// The receive buffer of each slot's last message.
    buffer_of_slot: Vec<usize>,
    /// The slot of each receive buffer's last message.
    slot_in_buffer: Vec<usize>,
    count: u64,
    /// 1 per slot while only one of its send and its receive has completed.
    half_complete: Vec<u8>,
}

/// Returns the sizes that a side of a load needs.
pub(crate) fn limits(depth: usize) -> Limits {
    Limits {
        local_regions: depth + 2,
        remote_regions: depth + 2,
        records: 4 * depth + 4,
        ..host::LIMITS
    }
}

impl Load {
    /// Opens two nodes, connects them and fills the source with data.
    pub(crate) fn open(shape: Shape, sides: Sides) -> Result<Self> {
        let network = host::at_once();
        let limits = limits(shape.depth);
        let near = Node::open(&network, "near", 1, &limits)?;
        let far = Node::open(&network, "far", 2, &limits)?;
        let queried = near.ia.ia_query(IaFields::empty(), ProviderFields::empty());
        let reads = queried.during("dat_ia_query")?.ia.max_rdma_read_per_ep_out;
        let reads = shape.depth.min(usize::try_from(reads).unwrap_or(0));
        Self::over(network, (near, far), shape, sides, reads)
    }
}

impl<G: Ground> Load<G> {
    /// Connects two nodes and fills the source with data.
    ///
    /// `reads` is the number of RDMA Reads that may be under way at once.
    pub(crate) fn over(
        ground: G,
        (near, far): (Node<G::Backend>, Node<G::Backend>),
        shape: Shape,
        sides: Sides,
        reads: usize,
    ) -> Result<Self> {
        let Shape {
            operation,
            size,
            depth,
            ..
        } = shape;
        let register = |node: &Node<G::Backend>, memory: Memory| {
            let memory = memory.start(size * depth);
            node.register_in(node.zone, memory, MemoryPrivileges::ALL)
        };
        let near_memory = register(&near, sides.near)?;
        let far_memory = register(&far, sides.far)?;
        let shared = match operation {
            Operation::Srq => Some(
                far.ia
                    .srq_create(
                        far.zone,
                        &SrqAttributes {
                            max_recv_dtos: count(depth),
                            max_recv_iov: count(shape.segments),
                            low_watermark: 0,
                        },
                    )
                    .during("dat_srq_create")?,
            ),
            _ => None,
        };
        let mut load = Self {
            shape,
            reads: count(reads),
            streams: Vec::new(),
            far_eps: Vec::new(),
            near_memory,
            far_memory,
            shared,
            windows: Vec::new(),
            stamps: vec![0; depth],
            buffer_of_slot: (0..depth).collect(),
            slot_in_buffer: (0..depth).collect(),
            count: 0,
            half_complete: vec![0; depth],
            ground,
            near,
            far,
        };
        load.connect()?;
        load.fill();
        Ok(load)
    }

    fn connect(&mut self) -> Result<()> {
        let Shape {
            operation,
            size,
            depth,
            segments,
            ..
        } = self.shape;
        let attributes = EpAttributes {
            max_message_size: size as u64,
            max_rdma_size: size as u64,
            max_recv_dtos: count(depth),
            max_request_dtos: count(depth),
            max_recv_iov: count(segments),
            max_request_iov: count(segments),
            max_rdma_read_iov: count(segments),
            max_rdma_write_iov: count(segments),
            max_rdma_read_in: self.reads,
            max_rdma_read_out: self.reads,
            ..EpAttributes::DEFAULT
        };
        let streams = if operation == Operation::Srq { 2 } else { 1 };
        for _ in 0..streams {
            let near = self.near.endpoint(&attributes, None)?;
            let far = self.far.endpoint(&attributes, self.shared)?;
            host::connect(&self.ground, (&self.near, near), (&self.far, far))?;
            self.streams.push(Stream {
                ep: near,
                sent: VecDeque::new(),
            });
            self.far_eps.push(far);
        }
        if matches!(operation, Operation::Send | Operation::Srq) {
            for buffer in 0..depth {
                self.post_receive(0, buffer)?;
            }
        }
        if operation == Operation::Bind {
            for _ in 0..depth {
                let rmr = self
                    .near
                    .ia
                    .rmr_create(self.near.zone)
                    .during("dat_rmr_create")?;
                self.windows.push((rmr, 0));
            }
        }
        Ok(())
    }

    /// Fills every slot of the source with different data.
    fn fill(&mut self) {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let all = self.shape.size * self.shape.depth;
        let mut block = vec![0; BLOCK.min(all)];
        for start in (0..all).step_by(BLOCK) {
            let length = BLOCK.min(all - start);
            let block = block.get_mut(..length).unwrap_or_default();
            for byte in &mut *block {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state as u8;
            }
            self.source().memory.store(start, block);
        }
    }

    fn source(&self) -> &Registered {
        match self.shape.operation {
            Operation::Read | Operation::Bind => &self.far_memory,
            _ => &self.near_memory,
        }
    }

    fn destination(&self) -> &Registered {
        match self.shape.operation {
            Operation::Read | Operation::Bind => &self.near_memory,
            _ => &self.far_memory,
        }
    }

    /// Gives the next operation of a slot its own number.
    fn number(&mut self, slot: usize) {
        self.count += 1;
        if let Some(stamp) = self.stamps.get_mut(slot) {
            *stamp = self.count;
        }
        let (start, size) = (slot * self.shape.size, self.shape.size);
        self.source().memory.stamp(start, start + size, self.count);
    }

    fn segments(&self, memory: &Registered, slot: usize) -> Segments {
        let mut segments = Segments::default();
        let start = slot * self.shape.size;
        let length = self.shape.size / self.shape.segments;
        for number in 0..self.shape.segments {
            let from = number * length;
            let to = if number + 1 == self.shape.segments {
                self.shape.size
            } else {
                from + length
            };
            segments.push(memory.segment(start + from, to - from));
        }
        segments
    }

    /// Posts the operation of a slot.
    fn post_slot(&mut self, slot: usize) -> Result<()> {
        let cookie = slot as u64;
        let size = self.shape.size;
        match self.shape.operation {
            Operation::Write => self
                .near
                .ia
                .post_rdma_write(
                    self.stream(0),
                    self.segments(&self.near_memory, slot).as_slice(),
                    cookie,
                    &self.far_memory.remote(slot * size, size),
                    NOTHING,
                )
                .during("dat_ep_post_rdma_write"),
            Operation::Read => self
                .near
                .ia
                .post_rdma_read(
                    self.stream(0),
                    self.segments(&self.near_memory, slot).as_slice(),
                    cookie,
                    &self.far_memory.remote(slot * size, size),
                    NOTHING,
                )
                .during("dat_ep_post_rdma_read"),
            Operation::Send | Operation::Srq => {
                let number = slot % self.streams.len();
                let local = self.segments(&self.near_memory, slot);
                let result = self
                    .near
                    .ia
                    .post_send(self.stream(number), local.as_slice(), cookie, NOTHING)
                    .during("dat_ep_post_send");
                if let Some(stream) = self.streams.get_mut(number) {
                    stream.sent.push_back(slot);
                }
                result
            }
            Operation::Bind => {
                let segment = self.near_memory.segment(slot * size, size);
                let ep = self.stream(0);
                let Some((rmr, context)) = self.windows.get_mut(slot) else {
                    return Ok(());
                };
                *context = self
                    .near
                    .ia
                    .rmr_bind(
                        *rmr,
                        &segment,
                        MemoryPrivileges::REMOTE_WRITE,
                        ep,
                        cookie,
                        NOTHING,
                    )
                    .during("dat_rmr_bind")?;
                Ok(())
            }
        }
    }

    fn stream(&self, number: usize) -> EpId {
        self.streams
            .get(number)
            .map_or(EpId::NULL, |stream| stream.ep)
    }

    fn post_receive(&self, stream: usize, buffer: usize) -> Result<()> {
        let segments = self.segments(&self.far_memory, buffer);
        match (self.shared, self.far_eps.get(stream)) {
            (Some(srq), _) => self
                .far
                .ia
                .srq_post_recv(srq, segments.as_slice(), buffer as u64)
                .during("dat_srq_post_recv"),
            (None, Some(ep)) => self
                .far
                .ia
                .post_recv(*ep, segments.as_slice(), buffer as u64, NOTHING)
                .during("dat_ep_post_recv"),
            (None, None) => Ok(()),
        }
    }

    /// Takes a completed operation, if any.
    fn take_done(&mut self) -> Result<Option<usize>> {
        match self.shape.operation {
            Operation::Write | Operation::Read => {
                let Some((_, slot)) = completion(&self.near, self.near.requests)? else {
                    return Ok(None);
                };
                self.check_stamp(slot, slot)?;
                Ok(Some(slot))
            }
            Operation::Bind => {
                Ok(completion(&self.near, self.near.requests)?.map(|(_, slot)| slot))
            }
            Operation::Send | Operation::Srq => self.take_message(),
        }
    }

    /// Takes a message that is received and whose send has completed, if any.
    fn take_message(&mut self) -> Result<Option<usize>> {
        if let Some((ep, buffer)) = completion(&self.far, self.far.receives)? {
            let number = self
                .far_eps
                .iter()
                .position(|far| Some(*far) == ep)
                .unwrap_or(0);
            let sent = self
                .streams
                .get_mut(number)
                .and_then(|stream| stream.sent.pop_front());
            let slot = sent.ok_or_else(|| {
                Failure::operation("checking failed", "a message arrived that was not sent")
            })?;
            self.check_stamp(slot, buffer)?;
            if let Some(arrived) = self.buffer_of_slot.get_mut(slot) {
                *arrived = buffer;
            }
            if let Some(slot_in_buffer) = self.slot_in_buffer.get_mut(buffer) {
                *slot_in_buffer = slot;
            }
            self.post_receive(number, buffer)?;
            if let Some(slot) = self.half_done(slot) {
                return Ok(Some(slot));
            }
        }
        match completion(&self.near, self.near.requests)? {
            Some((_, slot)) => Ok(self.half_done(slot)),
            None => Ok(None),
        }
    }

    /// Returns the slot if both halves of its operation are done.
    fn half_done(&mut self, slot: usize) -> Option<usize> {
        let half_complete = self.half_complete.get_mut(slot)?;
        *half_complete = (*half_complete + 1) % 2;
        (*half_complete == 0).then_some(slot)
    }

    fn check_stamp(&self, slot: usize, buffer: usize) -> Result<()> {
        let length = STAMP.min(self.shape.size);
        let mut found = [0; STAMP];
        self.destination().memory.load(
            buffer * self.shape.size,
            found.get_mut(..length).unwrap_or_default(),
        );
        let stamp = self.stamps.get(slot).copied().unwrap_or(0);
        let mut expected = [0; STAMP];
        if let (Some(to), Some(from)) = (
            expected.get_mut(..length),
            stamp.to_le_bytes().get(..length),
        ) {
            to.copy_from_slice(from);
        }
        if found == expected {
            return Ok(());
        }
        Err(Failure::operation(
            "data did not arrive",
            format!(
                "the operation completed, but slot {buffer} contains {found:02x?}, expected {expected:02x?}"
            ),
        ))
    }

    /// Compares the data of every slot that was used.
    fn verify_all(&mut self) -> Result<()> {
        if self.shape.operation == Operation::Bind {
            return self.verify_windows();
        }
        for slot in 0..self.shape.depth {
            let buffer = self.buffer_of_slot.get(slot).copied().unwrap_or(slot);
            // A buffer that was reused since no longer holds the data of this slot.
            if self.slot_in_buffer.get(buffer) == Some(&slot) {
                self.compare(slot, buffer)?;
            }
        }
        Ok(())
    }

    fn compare(&self, from: usize, to: usize) -> Result<()> {
        let size = self.shape.size;
        let (mut sent, mut arrived) = (vec![0; BLOCK.min(size)], vec![0; BLOCK.min(size)]);
        for start in (0..size).step_by(BLOCK) {
            let length = BLOCK.min(size - start);
            let sent = sent.get_mut(..length).unwrap_or_default();
            let arrived = arrived.get_mut(..length).unwrap_or_default();
            self.source().memory.load(from * size + start, sent);
            self.destination().memory.load(to * size + start, arrived);
            if let Some(at) = sent.iter().zip(&*arrived).position(|(a, b)| a != b) {
                return Err(Failure::operation(
                    "data did not arrive",
                    format!(
                        "slot {to} differs from the sent data at byte {}",
                        start + at
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Writes from the far node through every window that was bound.
    fn verify_windows(&mut self) -> Result<()> {
        let size = self.shape.size;
        let Some(ep) = self.far_eps.first().copied() else {
            return Ok(());
        };
        for (slot, (_, context)) in self.windows.iter().enumerate() {
            if self.stamps.get(slot) == Some(&0) {
                continue;
            }
            let remote = self.near_memory.remote_through(*context, slot * size, size);
            let local = self.segments(&self.far_memory, slot);
            self.far
                .ia
                .post_rdma_write(ep, local.as_slice(), slot as u64, &remote, NOTHING)
                .during("dat_ep_post_rdma_write")?;
            match host::wait(&self.ground, &self.far, &[&self.near], self.far.requests)? {
                Event::Dto(done) if done.status == DtoStatus::Success => {
                    self.compare(slot, slot)?
                }
                event => {
                    return Err(Failure::operation(
                        "a bound window did not grant access to its memory",
                        format!("{event:?}"),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<G: Ground> Measured for Load<G> {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    fn size(&self) -> usize {
        self.shape.size
    }

    fn moves_data(&self) -> bool {
        self.shape.operation != Operation::Bind
    }

    fn prepare(&mut self, slot: usize) {
        self.number(slot);
    }

    fn post(&mut self, slot: usize) -> Result<()> {
        self.post_slot(slot)
    }

    fn batch(&self) -> usize {
        self.shape.batch
    }

    /// Posts the operations of several slots on the first stream.
    fn post_together(&mut self, slots: &[usize]) -> Result<()> {
        let size = self.shape.size;
        let segment_lists: Vec<Segments> = slots
            .iter()
            .map(|&slot| self.segments(&self.near_memory, slot))
            .collect();
        let requests: Vec<BatchRequest<'_>> = slots
            .iter()
            .zip(&segment_lists)
            .map(|(&slot, local)| BatchRequest {
                operation: match self.shape.operation {
                    Operation::Write => {
                        BatchOperation::RdmaWrite(self.far_memory.remote(slot * size, size))
                    }
                    Operation::Read => {
                        BatchOperation::RdmaRead(self.far_memory.remote(slot * size, size))
                    }
                    _ => BatchOperation::Send,
                },
                segments: local.as_slice(),
                cookie: slot as u64,
                flags: NOTHING,
            })
            .collect();
        self.near
            .ia
            .post_batch(self.stream(0), &requests)
            .map_err(|refused| Failure::operation("a post of a batch failed", refused))?;
        if let (Operation::Send, Some(stream)) = (self.shape.operation, self.streams.first_mut()) {
            stream.sent.extend(slots);
        }
        Ok(())
    }

    /// A poll steps the mock; on a device, one thread polls both ends.
    fn take(&mut self, _: bool) -> Result<Option<usize>> {
        let done = self.take_done()?;
        self.ground.looked(done.is_some())?;
        Ok(done)
    }

    fn verify(&mut self) -> Result<()> {
        self.verify_all()
    }

    fn gives_up(&self) -> bool {
        self.ground.gives_up()
    }
}

/// Converts a count to the interface's type; the counts here are small.
fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Takes a completion, if any; returns the endpoint of a transfer and the cookie.
fn completion<B: HostBackend>(node: &Node<B>, evd: EvdId) -> Result<Option<(Option<EpId>, usize)>> {
    match host::dequeue(&node.ia, evd)? {
        None => Ok(None),
        Some(Event::Dto(done)) if done.status == DtoStatus::Success => {
            Ok(Some((Some(done.ep), done.cookie as usize)))
        }
        Some(Event::RmrBind(done)) if done.status == DtoStatus::Success => {
            Ok(Some((None, done.cookie as usize)))
        }
        Some(event) => Err(Failure::operation(
            "an operation failed",
            format!("{event:?}"),
        )),
    }
}

/// Up to 32 segments, without the heap.
#[derive(Default)]
struct Segments {
    segments: [LmrTriplet; 32],
    count: usize,
}

impl Segments {
    fn push(&mut self, segment: LmrTriplet) {
        if let Some(slot) = self.segments.get_mut(self.count) {
            *slot = segment;
            self.count += 1;
        }
    }

    fn as_slice(&self) -> &[LmrTriplet] {
        self.segments.get(..self.count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn done(load: &mut Load, slot: usize) {
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
                let sides = Sides::new(shape.size, shape.depth);
                let mut load = Load::open(shape, sides).unwrap();
                done(&mut load, 0);
                done(&mut load, 1);
                assert_eq!(load.verify(), Ok(()), "{shape:?}");
                let buffer = load.buffer_of_slot[1];
                let offset = (buffer + 1) * size - 1;
                let mut byte = [0];
                load.destination().memory.load(offset, &mut byte);
                load.destination().memory.store(offset, &[byte[0] ^ 1]);
                let failure = load.verify().unwrap_err();
                assert_eq!(failure.kind, FailureKind::Operation, "{shape:?}");
                assert!(
                    load.check_stamp(1, load.buffer_of_slot[0]).is_err(),
                    "{shape:?}"
                );
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
        let sides = Sides::new(shape.size, shape.depth);
        let mut load = Load::open(shape, sides).unwrap();
        done(&mut load, 0);
        let old = load.windows[0].1;
        assert_eq!(load.verify(), Ok(()));
        done(&mut load, 0);
        load.windows[0].1 = old;
        assert!(load.verify().is_err());
    }
}
