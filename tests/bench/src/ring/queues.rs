//! The data path: work queues and completion queues as rings of words in shared memory.
//!
//! The driver fills descriptors, stores doorbells and reads completions.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, Peek, ReceiveRequest, Rejected,
    RemoteRange, Segment, SendOperation, SendQueue, SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::DtoStatus;

/// The number of segments of a request.
pub const SEGMENTS: usize = 14;
/// The number of descriptors of a ring; a power of two.
pub const DESCRIPTORS: u32 = 64;
/// The number of entries of a completion ring; a power of two.
pub const COMPLETIONS: u32 = 1024;

/// The entries of a descriptor.
///
/// It has 256 bytes; the first 64 hold the header, the remote side and two segments.
const ENTRIES: usize = SEGMENTS + 2;

/// 16 bytes of a descriptor.
///
/// The header holds token, length and number of entries; the second entry remote address, remote
/// key and operation; a segment address, length and key.
pub(super) struct Entry {
    pub(super) wide: AtomicU64,
    pub(super) narrow: [AtomicU32; 2],
}

impl Entry {
    const fn new() -> Self {
        Self {
            wide: AtomicU64::new(0),
            narrow: [const { AtomicU32::new(0) }; 2],
        }
    }

    #[inline]
    fn put(&self, wide: u64, first: u32, second: u32) {
        let [low, high] = &self.narrow;
        self.wide.store(wide, Ordering::Relaxed);
        low.store(first, Ordering::Relaxed);
        high.store(second, Ordering::Relaxed);
    }
}

/// A work request as the device reads it.
pub struct Descriptor(pub(super) [Entry; ENTRIES]);

impl Descriptor {
    /// Writes header and remote side; `operation` has 16 bits.
    #[inline]
    fn begin(&self, token: u64, remote: Option<RemoteRange>, operation: u32) {
        let [header, to, ..] = &self.0;
        header.wide.store(token, Ordering::Relaxed);
        if let Some(range) = remote {
            to.wide.store(range.address, Ordering::Relaxed);
        }
        let [key, kind] = &to.narrow;
        key.store(remote.map_or(0, |range| range.key), Ordering::Relaxed);
        kind.store(operation, Ordering::Relaxed);
    }
}

/// A ring of descriptors, and its two positions.
pub struct Ring {
    pub(super) descriptors: [Descriptor; DESCRIPTORS as usize],
    /// Number of descriptors that the driver has posted: the doorbell.
    pub(super) posted: AtomicU32,
    /// Number of descriptors that the device has taken.
    pub(super) taken: AtomicU32,
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Ring {
    /// Returns an empty ring.
    pub(crate) const fn new() -> Self {
        Self {
            descriptors: [const { Descriptor([const { Entry::new() }; ENTRIES]) };
                DESCRIPTORS as usize],
            posted: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }
}

/// A descriptor that the driver fills; dropping it leaves no trace.
pub struct Slot<'a> {
    descriptor: &'a Descriptor,
    /// Number of entries that are filled, the two before the segments included.
    filled: usize,
    next: &'a mut u32,
}

impl Slot<'_> {
    #[inline]
    fn put(&mut self, segment: Segment) {
        if let Some(entry) = self.descriptor.0.get(self.filled % ENTRIES) {
            entry.put(segment.address, segment.length, segment.key);
        }
        self.filled = self.filled.wrapping_add(1);
    }

    #[inline]
    fn publish(self, length: u32) {
        let [header, ..] = &self.descriptor.0;
        let [bytes, filled] = &header.narrow;
        bytes.store(length, Ordering::Relaxed);
        filled.store(self.filled as u32, Ordering::Relaxed);
        *self.next = self.next.wrapping_add(1);
    }
}

impl WorkSlot for Slot<'_> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.put(segment);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        self.publish(length);
        Ok(())
    }
}

pub(super) const SEND: u32 = 1;
pub(super) const WRITE: u32 = 2;
pub(super) const READ: u32 = 3;

/// A send or receive queue, on a ring in memory of its own or in a `static`.
pub struct RingQueue<R, M = Arc<Ring>> {
    ring: M,
    /// Number of descriptors that are filled.
    next: u32,
    requests: PhantomData<fn(&R)>,
}

/// A send queue.
pub type RingSends = RingQueue<SendRequest>;
/// A receive queue, shared or of one queue pair.
pub type RingReceives = RingQueue<ReceiveRequest>;

impl<R, M: Deref<Target = Ring>> RingQueue<R, M> {
    /// Returns the queue on a ring.
    pub fn new(ring: M) -> Self {
        Self {
            next: ring.posted.load(Ordering::Relaxed),
            ring,
            requests: PhantomData,
        }
    }
}

/// A request that a descriptor can describe.
pub trait Describe {
    /// Writes all that is known before the segments.
    fn describe(&self, descriptor: &Descriptor);
}

impl Describe for SendRequest {
    #[inline]
    fn describe(&self, descriptor: &Descriptor) {
        let (opcode, remote) = match self.operation {
            SendOperation::Send => (SEND, None),
            SendOperation::RdmaWrite(range) => (WRITE, Some(range)),
            SendOperation::RdmaRead(range) => (READ, Some(range)),
        };
        let operation = opcode | u32::from(self.flags.bits()) << 8;
        descriptor.begin(self.token, remote, operation);
    }
}

impl Describe for ReceiveRequest {
    #[inline]
    fn describe(&self, descriptor: &Descriptor) {
        let [header, ..] = &descriptor.0;
        header.wide.store(self.token, Ordering::Relaxed);
    }
}

impl<R: Describe, M: Deref<Target = Ring>> WorkQueue for RingQueue<R, M> {
    type Request = R;
    type Slot<'a>
        = Slot<'a>
    where
        Self: 'a;

    // The core posts at most the requests and segments that the queue was created for.
    #[inline]
    fn reserve(&mut self, request: &R, _segments: usize) -> Option<Slot<'_>> {
        let index = (self.next % DESCRIPTORS) as usize;
        let descriptor = self.ring.descriptors.get(index)?;
        request.describe(descriptor);
        Some(Slot {
            descriptor,
            filled: 2,
            next: &mut self.next,
        })
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.ring.posted.store(self.next, Ordering::Release);
        Ok(())
    }
}

impl<M: Deref<Target = Ring>> SendQueue for RingQueue<SendRequest, M> {
    fn bind(&mut self, _request: &BindRequest) -> Result<u32, Rejected> {
        Err(Rejected)
    }
}

/// A ring of completions; the device writes, the driver reads.
pub struct CompletionRing {
    /// Token; length, status and marks; token of the queue pair.
    pub(super) entries: [[AtomicU64; 3]; COMPLETIONS as usize],
    pub(super) written: AtomicU32,
    /// Number of completions that the driver has read: its doorbell.
    read: AtomicU32,
    pub(super) armed: AtomicU32,
    pub(super) number: u32,
}

/// Length of a request's completion.
pub(super) const NO_LENGTH: u32 = u32::MAX;
/// Marks a receive whose buffer came from a shared receive queue.
pub(super) const SHARED: u64 = 1 << 40;
/// Marks a receive that the peer asked to be solicited.
pub(super) const SOLICITED: u64 = 1 << 41;

/// Values of the arming word.
pub(super) const DISARMED: u32 = 0;
pub(super) const ARMED_FOR_SOLICITED: u32 = 1;
pub(super) const ARMED_FOR_ALL: u32 = 2;

impl CompletionRing {
    /// Returns the empty ring of completion queue `number`.
    pub const fn new(number: u32) -> Self {
        Self {
            entries: [const { [const { AtomicU64::new(0) }; 3] }; COMPLETIONS as usize],
            written: AtomicU32::new(0),
            read: AtomicU32::new(0),
            armed: AtomicU32::new(DISARMED),
            number,
        }
    }
}

/// A completion queue.
pub struct RingCompletions {
    ring: Arc<CompletionRing>,
    next: u32,
}

impl RingCompletions {
    /// Returns the completion queue on a ring.
    pub fn new(ring: &Arc<CompletionRing>) -> Self {
        Self {
            ring: Arc::clone(ring),
            next: ring.written.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of the queue.
    pub fn number(&self) -> u32 {
        self.ring.number
    }

    /// Returns the next completion without taking it.
    #[inline]
    fn head(&self) -> Option<&[AtomicU64; 3]> {
        if self.next == self.ring.written.load(Ordering::Acquire) {
            return None;
        }
        self.ring.entries.get((self.next % COMPLETIONS) as usize)
    }

    #[inline]
    fn take_head(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.ring.read.store(self.next, Ordering::Release);
    }
}

impl CompletionQueue for RingCompletions {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        let Some(head) = self.head() else {
            return Ok(None);
        };
        let [token, rest, queue_pair] = head.each_ref().map(|word| word.load(Ordering::Relaxed));
        // An unknown status is not taken: each further poll fails, too.
        let status =
            DtoStatus::from_value((rest >> 32) as u32 & 0xFF).ok_or(DeviceFailure::Broken)?;
        self.take_head();
        Ok(Some(Completion {
            token,
            status,
            length: rest as u32,
            queue_pair,
            solicited: rest & SOLICITED != 0,
        }))
    }

    #[inline]
    fn peek(&mut self) -> Peek {
        let Some([token, rest, _]) = self.head() else {
            return Peek::Empty;
        };
        let rest = rest.load(Ordering::Relaxed);
        // A status or a mark, which `poll` handles.
        if rest >> 32 != 0 {
            return Peek::Other;
        }
        Peek::Success {
            token: token.load(Ordering::Relaxed),
            length: rest as u32,
        }
    }

    #[inline]
    fn skip(&mut self) {
        self.take_head();
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        let armed = if solicited_only {
            ARMED_FOR_SOLICITED
        } else {
            ARMED_FOR_ALL
        };
        self.ring.armed.store(armed, Ordering::SeqCst);
        // The device may have written a completion before it saw the arming.
        if self.next == self.ring.written.load(Ordering::SeqCst) {
            Armed::Armed
        } else {
            Armed::Missed
        }
    }
}
