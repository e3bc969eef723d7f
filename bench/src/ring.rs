//! Rings of words in plain memory, as a device would read and write them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, ReceiveRequest, Rejected,
    Segment, SendFlags, SendOperation, SendQueue, SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::DtoStatus;

/// Descriptors of a ring; a power of two.
const DESCRIPTORS: u32 = 64;
/// Words of a descriptor: 128 bytes, of which the first 64 hold the header and two segments.
const WORDS: usize = 16;
const HEADER_WORDS: usize = 4;
const MAX_SEGMENTS: usize = (WORDS - HEADER_WORDS) / 2;
const COMPLETIONS: u32 = 256;

type Descriptors = [[AtomicU64; WORDS]; DESCRIPTORS as usize];

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
}

impl Rings {
    /// Rings with nothing in them.
    pub const fn new() -> Self {
        Self {
            send: [const { [const { AtomicU64::new(0) }; WORDS] }; DESCRIPTORS as usize],
            send_doorbell: AtomicU32::new(0),
            receive: [const { [const { AtomicU64::new(0) }; WORDS] }; DESCRIPTORS as usize],
            receive_doorbell: AtomicU32::new(0),
            completions: [const { [const { AtomicU64::new(0) }; 2] }; COMPLETIONS as usize],
            completions_written: AtomicU32::new(0),
            completions_doorbell: AtomicU32::new(0),
            send_done: AtomicU32::new(0),
            receive_done: AtomicU32::new(0),
            queue_pair: AtomicU64::new(0),
        }
    }

    /// The queue pair that takes all receives.
    pub(crate) fn set_queue_pair(&self, token: u64) {
        self.queue_pair.store(token, Ordering::Relaxed);
    }

    /// The device's part: completes everything that was posted.
    pub fn complete_all(&self) {
        self.complete(&self.send, &self.send_doorbell, &self.send_done, 0);
        self.complete(&self.receive, &self.receive_doorbell, &self.receive_done, 8);
    }

    fn complete(&self, ring: &Descriptors, posted: &AtomicU32, done: &AtomicU32, length: u32) {
        let posted = posted.load(Ordering::Acquire);
        let mut next = done.load(Ordering::Relaxed);
        while next != posted {
            if let Some([token, ..]) = ring.get((next % DESCRIPTORS) as usize) {
                self.write_completion(token.load(Ordering::Relaxed), length);
            }
            next = next.wrapping_add(1);
        }
        done.store(next, Ordering::Relaxed);
    }

    fn write_completion(&self, token: u64, length: u32) {
        let written = self.completions_written.load(Ordering::Relaxed);
        if let Some([first, second]) = self.completions.get((written % COMPLETIONS) as usize) {
            first.store(token, Ordering::Relaxed);
            second.store(u64::from(length), Ordering::Relaxed);
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

/// The producer's side of a ring of descriptors.
struct Producer {
    descriptors: &'static Descriptors,
    doorbell: &'static AtomicU32,
    done: &'static AtomicU32,
    next: u32,
}

impl Producer {
    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<Descriptor<'_>> {
        if segments > MAX_SEGMENTS
            || self.next.wrapping_sub(self.done.load(Ordering::Relaxed)) >= DESCRIPTORS
        {
            return None;
        }
        Some(Descriptor {
            words: self.descriptors.get((self.next % DESCRIPTORS) as usize)?,
            next: &mut self.next,
            cursor: HEADER_WORDS,
        })
    }

    #[inline(always)]
    fn ring(&mut self) {
        self.doorbell.store(self.next, Ordering::Release);
    }
}

/// A descriptor that is being written.
pub struct Descriptor<'a> {
    words: &'static [AtomicU64; WORDS],
    next: &'a mut u32,
    cursor: usize,
}

impl Descriptor<'_> {
    #[inline(always)]
    fn put(&mut self, position: usize, value: u64) {
        if let Some(word) = self.words.get(position) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        self.put(self.cursor, segment.address);
        self.put(
            self.cursor.wrapping_add(1),
            u64::from(segment.length) | u64::from(segment.key) << 32,
        );
        self.cursor = self.cursor.wrapping_add(2);
    }
}

/// The send ring.
pub struct RingSends(Producer);

impl RingSends {
    pub(crate) fn new(rings: &'static Rings) -> Self {
        Self(Producer {
            descriptors: &rings.send,
            doorbell: &rings.send_doorbell,
            done: &rings.send_done,
            next: 0,
        })
    }
}

/// A place in the send ring.
pub struct SendPlace<'a>(Descriptor<'a>);

impl WorkSlot for SendPlace<'_> {
    type Request = SendRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline(always)]
    fn commit(mut self, request: &SendRequest) -> Result<(), Rejected> {
        let (opcode, remote) = match request.operation {
            SendOperation::Send => (1, None),
            SendOperation::RdmaWrite(range) => (2, Some(range)),
            SendOperation::RdmaRead(range) => (3, Some(range)),
        };
        let segments = self.0.cursor as u64;
        self.0.put(0, request.token);
        self.0.put(
            1,
            u64::from(request.length)
                | opcode << 32
                | u64::from(request.flags.bits()) << 40
                | segments << 48,
        );
        if let Some(range) = remote {
            self.0.put(2, range.address);
            self.0.put(3, u64::from(range.key));
        }
        *self.0.next = self.0.next.wrapping_add(1);
        Ok(())
    }
}

impl WorkQueue for RingSends {
    type Request = SendRequest;
    type Slot<'a> = SendPlace<'a>;

    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<SendPlace<'_>> {
        self.0.reserve(segments).map(SendPlace)
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        self.0.ring();
        Ok(())
    }
}

impl SendQueue for RingSends {
    #[inline(always)]
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let key = request.token as u32 | 1 << 31;
        let Some(mut place) = self.0.reserve(1).map(SendPlace) else {
            return Err(Rejected);
        };
        place.segment(Segment {
            address: request.address,
            length: request.length as u32,
            key: request.region.local,
        });
        place.0.put(2, request.window.0 as u64);
        place.0.put(
            3,
            u64::from(key) | u64::from(request.privileges.bits()) << 32,
        );
        place.commit(&SendRequest {
            token: request.token,
            operation: SendOperation::Send,
            length: 0,
            flags: SendFlags::FENCE,
        })?;
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
            done: &rings.receive_done,
            next: 0,
        })
    }
}

/// A place in the receive ring.
pub struct ReceivePlace<'a>(Descriptor<'a>);

impl WorkSlot for ReceivePlace<'_> {
    type Request = ReceiveRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline(always)]
    fn commit(mut self, request: &ReceiveRequest) -> Result<(), Rejected> {
        let segments = self.0.cursor as u64;
        self.0.put(0, request.token);
        self.0.put(1, segments << 48);
        *self.0.next = self.0.next.wrapping_add(1);
        Ok(())
    }
}

impl WorkQueue for RingReceives {
    type Request = ReceiveRequest;
    type Slot<'a> = ReceivePlace<'a>;

    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<ReceivePlace<'_>> {
        self.0.reserve(segments).map(ReceivePlace)
    }

    #[inline(always)]
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

impl CompletionQueue for RingCompletions {
    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        if self.next == self.written.load(Ordering::Acquire) {
            return Ok(None);
        }
        let Some([first, second]) = self.words.get((self.next % COMPLETIONS) as usize) else {
            return Err(DeviceFailure::Broken);
        };
        let (token, rest) = (
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        );
        self.next = self.next.wrapping_add(1);
        self.doorbell.store(self.next, Ordering::Release);
        let Some(status) = DtoStatus::from_value((rest >> 32) as u32 & 0xFF) else {
            return Err(DeviceFailure::Broken);
        };
        Ok(Some(Completion {
            token,
            status,
            length: rest as u32,
            queue_pair: self.queue_pair.load(Ordering::Relaxed),
            solicited: false,
        }))
    }

    fn arm(&mut self, _solicited_only: bool) -> Armed {
        if self.next == self.written.load(Ordering::Acquire) {
            Armed::Armed
        } else {
            Armed::Missed
        }
    }
}
