//! Receives: filled in place, linked, handed over in one call.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, Rejected, Segment};
use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::{QueuePair, SharedReceiveQueue};

type PostToPair = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;
type PostShared =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// Receives of a shared queue that are gathered before they have to be handed over.
const ROOM: usize = 64;

/// Where receives go.
#[derive(Clone, Copy, Debug)]
enum Target {
    QueuePair(PostToPair, NonNull<ibv_qp>),
    Shared(PostShared, NonNull<ibv_srq>),
}

/// What keeps the place where they go.
#[derive(Debug)]
enum Keeper {
    QueuePair(#[expect(dead_code, reason = "held, not read")] Arc<QueuePair>),
    Shared(#[expect(dead_code, reason = "held, not read")] Arc<SharedReceiveQueue>),
}

/// Receives between their filling and the device.
pub(crate) struct ReceiveList {
    target: Target,
    _keeper: Option<Keeper>,
    requests: Box<[ibv_recv_wr]>,
    segments: Box<[ibv_sge]>,
    stride: usize,
    place: usize,
    filled: usize,
    pending: usize,
    refused: u32,
    /// Receives handed over since the list was made, as far as they are still in their places.
    kept: usize,
}

// SAFETY: the pointers in it lead into itself or to the queue that it keeps, which any thread may use.
unsafe impl Send for ReceiveList {}

impl core::fmt::Debug for ReceiveList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("ReceiveList")
            .field("room", &self.requests.len())
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl ReceiveList {
    /// Receives of up to `segments` segments for a queue pair that takes `depth` of them.
    ///
    /// All of them keep their places until more than `depth` were handed over, so that they can be handed to
    /// another queue pair as long as none was used.
    pub(crate) fn for_queue_pair(
        owner: Arc<QueuePair>,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let post = owner
            .domain()
            .operations()
            .post_recv
            .ok_or(BackendError::NotSupported)?;
        let raw = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        let target = Target::QueuePair(post, raw);
        let room = (depth as usize).max(1);
        Ok(Self::over(
            target,
            Some(Keeper::QueuePair(owner)),
            room,
            segments,
        ))
    }

    /// Receives for a shared queue.
    pub(crate) fn for_shared(
        owner: Arc<SharedReceiveQueue>,
        post: SharedPost,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let raw = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        let target = Target::Shared(post.0, raw);
        let room = (depth as usize).clamp(1, ROOM);
        Ok(Self::over(
            target,
            Some(Keeper::Shared(owner)),
            room,
            segments,
        ))
    }

    #[cfg(test)]
    pub(super) fn borrowed(
        post: PostToPair,
        queue_pair: NonNull<ibv_qp>,
        depth: u32,
        segments: u32,
    ) -> Self {
        Self::over(
            Target::QueuePair(post, queue_pair),
            None,
            (depth as usize).max(1),
            segments,
        )
    }

    fn over(target: Target, keeper: Option<Keeper>, room: usize, segments: u32) -> Self {
        let stride = segments as usize;
        Self {
            target,
            _keeper: keeper,
            requests: vec![blank(); room].into(),
            segments: vec![
                ibv_sge {
                    addr: 0,
                    length: 0,
                    lkey: 0
                };
                room.saturating_mul(stride)
            ]
            .into(),
            stride,
            place: 0,
            filled: 0,
            pending: 0,
            refused: 0,
            kept: 0,
        }
    }

    /// Makes room for a receive of so many segments; false if it is too long.
    #[inline]
    pub(crate) fn begin(&mut self, segments: usize) -> bool {
        if segments > self.stride {
            return false;
        }
        if self.pending == self.requests.len() {
            self.hand_over();
        }
        self.filled = 0;
        true
    }

    /// Adds a segment to the receive that was begun.
    #[inline]
    pub(crate) fn segment(&mut self, segment: Segment) {
        if self.filled >= self.stride {
            return;
        }
        let at = self
            .place
            .wrapping_mul(self.stride)
            .wrapping_add(self.filled);
        if let Some(to) = self.segments.get_mut(at) {
            *to = ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            };
            self.filled = self.filled.wrapping_add(1);
        }
    }

    /// Completes the receive that was begun.
    #[inline]
    pub(crate) fn commit(&mut self, token: u64) -> Result<(), Rejected> {
        let Some(to) = self.requests.get_mut(self.place) else {
            return Err(Rejected);
        };
        to.wr_id = token;
        // No more than `stride`.
        to.num_sge = self.filled as i32;
        let next = self.place.wrapping_add(1);
        self.place = if next == self.requests.len() { 0 } else { next };
        self.pending = self.pending.wrapping_add(1);
        Ok(())
    }

    /// Hands over what was committed.
    ///
    /// # Errors
    /// How many of the newest were refused.
    #[inline]
    pub(crate) fn ring(&mut self) -> Result<(), u32> {
        self.hand_over();
        match core::mem::take(&mut self.refused) {
            0 => Ok(()),
            refused => Err(refused),
        }
    }

    /// Hands all receives that were ever handed over to another list, in order. None of them was used.
    ///
    /// # Errors
    /// The other list has no room for them, or its queue does not take them.
    pub(crate) fn repeat_on(&self, other: &mut Self) -> Result<(), BackendError> {
        for (request, segments) in self.requests.iter().take(self.kept).zip(
            (0..self.kept)
                .map(|place| self.segments.iter().skip(place.saturating_mul(self.stride))),
        ) {
            let count = usize::try_from(request.num_sge).unwrap_or(0);
            if other.pending == other.requests.len() || !other.begin(count) {
                return Err(BackendError::State);
            }
            for segment in segments.take(count) {
                other.segment(Segment {
                    address: segment.addr,
                    length: segment.length,
                    key: segment.lkey,
                });
            }
            other
                .commit(request.wr_id)
                .map_err(|Rejected| BackendError::State)?;
        }
        other.ring().map_err(|_| BackendError::State)
    }

    #[inline]
    fn hand_over(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        if pending == 0 {
            return;
        }
        if self.refused != 0 {
            self.refused = self.refused.saturating_add(pending as u32);
            return;
        }
        let room = self.requests.len();
        let mut place = self.place.wrapping_add(room).wrapping_sub(pending);
        if place >= room {
            place = place.wrapping_sub(room);
        }
        let requests = self.requests.as_mut_ptr();
        let segments = self.segments.as_mut_ptr();
        // SAFETY: `place` stays below `room`, the number of requests, each of which has `stride` segments.
        // Nothing else refers to either until the call returns; by then the device has copied them.
        unsafe {
            let first = requests.add(place);
            let mut last: *mut ibv_recv_wr = ptr::null_mut();
            for _ in 0..pending {
                let request = requests.add(place);
                (*request).sg_list = segments.add(place.wrapping_mul(self.stride));
                (*request).next = ptr::null_mut();
                if !last.is_null() {
                    (*last).next = request;
                }
                last = request;
                place = if place.wrapping_add(1) == room {
                    0
                } else {
                    place.wrapping_add(1)
                };
            }
            let mut bad = ptr::null_mut();
            let answer = match &self.target {
                Target::QueuePair(post, queue) => post(queue.as_ptr(), first, &raw mut bad),
                Target::Shared(post, queue) => post(queue.as_ptr(), first, &raw mut bad),
            };
            if answer != 0 {
                self.refused = newest_from(first, bad, pending);
            }
        }
        let refused = self.refused as usize;
        self.kept = self
            .kept
            .saturating_add(pending.saturating_sub(refused))
            .min(room);
        if refused != 0 && self.kept < room {
            // Their places are filled again, so that what is kept stays without gaps.
            self.place = self.kept;
        }
    }
}

/// How receives are posted to a shared queue of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedPost(PostShared);

impl super::Domain {
    /// How receives are posted to a shared queue of this device.
    pub(crate) fn shared_post(&self) -> Result<SharedPost, BackendError> {
        self.operations()
            .post_srq_recv
            .map(SharedPost)
            .ok_or(BackendError::NotSupported)
    }
}

/// How many of a list of `count` receives follow `bad`, itself included: all if it is none of them.
///
/// # Safety
/// `first` begins a list of `count` receives.
#[cold]
unsafe fn newest_from(first: *mut ibv_recv_wr, bad: *mut ibv_recv_wr, count: usize) -> u32 {
    let mut request = first;
    for before in 0..count {
        if request == bad || request.is_null() {
            return count.wrapping_sub(before) as u32;
        }
        // SAFETY: one of the list.
        request = unsafe { (*request).next };
    }
    count as u32
}

fn blank() -> ibv_recv_wr {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
