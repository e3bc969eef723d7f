//! Rings of words in plain memory, as a device would read and write them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, Peek, ReceiveRequest, Rejected,
    RemoteRange, Segment, SendOperation, SendQueue, SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::DtoStatus;

/// The number of segments of a request.
pub const SEGMENTS: usize = 14;

/// The number of descriptors of a ring; a power of two.
const DESCRIPTORS: u32 = 64;
/// The entries of a descriptor.
///
/// It has 256 bytes; the first 64 hold the header, the remote side and two segments.
const ENTRIES: usize = SEGMENTS + 2;

const COMPLETIONS: u32 = 256;

type Descriptors = [[Entry; ENTRIES]; DESCRIPTORS as usize];

/// 16 bytes of a descriptor.
///
/// The header holds token, length and operation; the remote side address and key; a segment
/// address, length and key.
struct Entry {
    wide: AtomicU64,
    narrow: [AtomicU32; 2],
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

/// The memory that host and device share.
pub struct Rings {
    send: Descriptors,
    send_doorbell: AtomicU32,
    receive: Descriptors,
    receive_doorbell: AtomicU32,
    completions: [[AtomicU64; 2]; COMPLETIONS as usize],
    completions_written: AtomicU32,
    completions_doorbell: AtomicU32,
    send_done: AtomicU32,
    receive_done: AtomicU32,
    queue_pair: AtomicU64,
    /// The bits above the length in the second word of a receive's completion.
    receive_kind: AtomicU64,
}

/// The second word of a request's completion.
const SENT: u64 = u32::MAX as u64;
/// Marks a receive whose buffer came from a shared receive queue.
const SHARED: u64 = 1 << 40;

impl Rings {
    /// Returns empty rings.
    pub const fn new() -> Self {
        Self {
            send: [const { [const { Entry::new() }; ENTRIES] }; DESCRIPTORS as usize],
            send_doorbell: AtomicU32::new(0),
            receive: [const { [const { Entry::new() }; ENTRIES] }; DESCRIPTORS as usize],
            receive_doorbell: AtomicU32::new(0),
            completions: [const { [const { AtomicU64::new(0) }; 2] }; COMPLETIONS as usize],
            completions_written: AtomicU32::new(0),
            completions_doorbell: AtomicU32::new(0),
            send_done: AtomicU32::new(0),
            receive_done: AtomicU32::new(0),
            queue_pair: AtomicU64::new(0),
            receive_kind: AtomicU64::new(0),
        }
    }

    /// Sets the queue pair that takes all receives.
    pub(crate) fn set_queue_pair(&self, token: u64) {
        self.queue_pair.store(token, Ordering::Relaxed);
    }

    /// Marks later receives as those of a shared receive queue.
    pub(crate) fn share_receives(&self) {
        self.receive_kind.store(SHARED, Ordering::Relaxed);
    }

    /// Completes all posted requests and receives, as the device would.
    pub fn complete_all(&self) {
        self.complete(&self.send, &self.send_doorbell, &self.send_done, SENT);
        let received = 8 | self.receive_kind.load(Ordering::Relaxed);
        let (doorbell, done) = (&self.receive_doorbell, &self.receive_done);
        self.complete(&self.receive, doorbell, done, received);
    }

    fn complete(&self, ring: &Descriptors, posted: &AtomicU32, done: &AtomicU32, rest: u64) {
        let posted = posted.load(Ordering::Acquire);
        let mut next = done.load(Ordering::Relaxed);
        while next != posted {
            if let Some([header, ..]) = ring.get((next % DESCRIPTORS) as usize) {
                self.write_completion(header.wide.load(Ordering::Relaxed), rest);
            }
            next = next.wrapping_add(1);
        }
        done.store(next, Ordering::Relaxed);
    }

    fn write_completion(&self, token: u64, rest: u64) {
        let written = self.completions_written.load(Ordering::Relaxed);
        if let Some([first, second]) = self.completions.get((written % COMPLETIONS) as usize) {
            first.store(token, Ordering::Relaxed);
            second.store(rest, Ordering::Relaxed);
        }
        self.completions_written
            .store(written.wrapping_add(1), Ordering::Release);
    }
}

impl Default for Rings {
    fn default() -> Self {
        Self::new()
    }
}

/// The producer's side of a descriptor ring.
struct Producer {
    descriptors: &'static Descriptors,
    doorbell: &'static AtomicU32,
    next: u32,
}

impl Producer {
    // The core posts at most the requests and segments that the queue pair was created for.
    #[inline]
    fn reserve(&mut self) -> Option<Descriptor<'_>> {
        let place = (self.next % DESCRIPTORS) as usize;
        let entries = self.descriptors.get(place)?;
        Some(Descriptor {
            entries,
            filled: 2,
            next: &mut self.next,
        })
    }

    #[inline]
    fn ring(&mut self) {
        self.doorbell.store(self.next, Ordering::Release);
    }
}

/// A descriptor under construction.
struct Descriptor<'a> {
    entries: &'static [Entry; ENTRIES],
    /// Entries that were written, the two before the segments included.
    filled: usize,
    next: &'a mut u32,
}

impl Descriptor<'_> {
    /// What is known before the segments; `what` has 16 bits.
    #[inline]
    fn begin(&mut self, token: u64, remote: Option<RemoteRange>, what: u32) {
        let [header, to, ..] = self.entries;
        header.wide.store(token, Ordering::Relaxed);
        if let Some(range) = remote {
            to.wide.store(range.address, Ordering::Relaxed);
        }
        let [key, kind] = &to.narrow;
        key.store(remote.map_or(0, |range| range.key), Ordering::Relaxed);
        kind.store(what, Ordering::Relaxed);
    }

    #[inline]
    fn segment(&mut self, segment: Segment) {
        if let Some(entry) = self.entries.get(self.filled % ENTRIES) {
            entry.put(segment.address, segment.length, segment.key);
        }
        self.filled = self.filled.wrapping_add(1);
    }

    /// Takes the descriptor into the ring.
    #[inline]
    fn publish(self, length: u32) {
        let [header, ..] = self.entries;
        let [bytes, filled] = &header.narrow;
        bytes.store(length, Ordering::Relaxed);
        filled.store(self.filled as u32, Ordering::Relaxed);
        *self.next = self.next.wrapping_add(1);
    }
}

/// The send ring.
pub struct RingSends(Producer);

impl RingSends {
    pub(crate) fn new(rings: &'static Rings) -> Self {
        Self(Producer {
            descriptors: &rings.send,
            doorbell: &rings.send_doorbell,
            next: 0,
        })
    }
}

/// A slot of the send ring.
pub struct SendPlace<'a>(Descriptor<'a>);

impl WorkSlot for SendPlace<'_> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        self.0.publish(length);
        Ok(())
    }
}

impl WorkQueue for RingSends {
    type Request = SendRequest;
    type Slot<'a> = SendPlace<'a>;

    #[inline]
    fn reserve(&mut self, request: &SendRequest, _segments: usize) -> Option<SendPlace<'_>> {
        let mut place = self.0.reserve()?;
        let (opcode, remote) = match request.operation {
            SendOperation::Send => (1, None),
            SendOperation::RdmaWrite(range) => (2, Some(range)),
            SendOperation::RdmaRead(range) => (3, Some(range)),
        };
        let what = opcode | u32::from(request.flags.bits()) << 8;
        place.begin(request.token, remote, what);
        Some(SendPlace(place))
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.0.ring();
        Ok(())
    }
}

impl SendQueue for RingSends {
    #[inline]
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let key = request.token as u32 | 1 << 31;
        let Some(mut place) = self.0.reserve() else {
            return Err(Rejected);
        };
        place.segment(Segment {
            address: request.address,
            length: request.length as u32,
            key: request.region.local,
        });
        let window = RemoteRange {
            address: request.window.0 as u64,
            key,
        };
        let what = 4 | u32::from(request.privileges.bits() as u16) << 8;
        place.begin(request.token, Some(window), what);
        place.publish(0);
        self.0.ring();
        Ok(key)
    }
}

/// The receive ring.
pub struct RingReceives(Producer);

impl RingReceives {
    pub(crate) fn new(rings: &'static Rings) -> Self {
        Self(Producer {
            descriptors: &rings.receive,
            doorbell: &rings.receive_doorbell,
            next: 0,
        })
    }
}

/// A slot of the receive ring.
pub struct ReceivePlace<'a>(Descriptor<'a>);

impl WorkSlot for ReceivePlace<'_> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        self.0.publish(length);
        Ok(())
    }
}

impl WorkQueue for RingReceives {
    type Request = ReceiveRequest;
    type Slot<'a> = ReceivePlace<'a>;

    #[inline]
    fn reserve(&mut self, request: &ReceiveRequest, _segments: usize) -> Option<ReceivePlace<'_>> {
        let place = self.0.reserve()?;
        let [header, ..] = place.entries;
        header.wide.store(request.token, Ordering::Relaxed);
        Some(ReceivePlace(place))
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.0.ring();
        Ok(())
    }
}

/// The completion ring.
pub struct RingCompletions {
    words: &'static [[AtomicU64; 2]; COMPLETIONS as usize],
    written: &'static AtomicU32,
    doorbell: &'static AtomicU32,
    queue_pair: &'static AtomicU64,
    next: u32,
}

impl RingCompletions {
    pub(crate) fn new(rings: &'static Rings) -> Self {
        Self {
            words: &rings.completions,
            written: &rings.completions_written,
            doorbell: &rings.completions_doorbell,
            queue_pair: &rings.queue_pair,
            next: rings.completions_written.load(Ordering::Relaxed),
        }
    }
}

impl RingCompletions {
    /// Returns the token and second word of the next completion without taking it.
    #[inline]
    fn first(&self) -> Option<(u64, u64)> {
        if self.next == self.written.load(Ordering::Acquire) {
            return None;
        }
        let [first, second] = self.words.get((self.next % COMPLETIONS) as usize)?;
        Some((
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        ))
    }

    #[inline]
    fn drop_first(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.doorbell.store(self.next, Ordering::Release);
    }
}

/// Returns the status from the second word of a completion.
#[inline]
fn status(rest: u64) -> u32 {
    (rest >> 32) as u32 & 0xFF
}

impl CompletionQueue for RingCompletions {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        let Some((token, rest)) = self.first() else {
            return Ok(None);
        };
        self.drop_first();
        Ok(Some(Completion {
            token,
            status: DtoStatus::from_value(status(rest)).ok_or(DeviceFailure::Broken)?,
            length: rest as u32,
            queue_pair: self.queue_pair.load(Ordering::Relaxed),
            solicited: false,
        }))
    }

    #[inline]
    fn peek(&mut self) -> Peek {
        match self.first() {
            None => Peek::Empty,
            // A status or a mark, which `poll` handles.
            Some((_, rest)) if rest >> 32 != 0 => Peek::Other,
            Some((token, rest)) => Peek::Success {
                token,
                length: rest as u32,
            },
        }
    }

    #[inline]
    fn skip(&mut self) {
        self.drop_first();
    }

    fn arm(&mut self, _solicited_only: bool) -> Armed {
        if self.next == self.written.load(Ordering::Acquire) {
            Armed::Armed
        } else {
            Armed::Missed
        }
    }
}
