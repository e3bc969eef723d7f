//! Receives, filled in place, linked, and posted in one call.

use core::any::Any;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, Segment};
use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::segments::SegmentCursor;
use super::send_list::{free, leak};
use super::{QueuePair, SharedReceiveQueue};

type PostToPair = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;
type PostShared =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// Most receives of a shared queue that are gathered before a post.
const ROOM: usize = 64;

/// Segment count of a slot that was never posted.
const UNFILLED: i32 = -1;

/// A device's function that posts to a queue of any kind, by its address.
type Post = unsafe extern "C" fn(*mut c_void, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// Queue that receives are posted to, with its function.
#[derive(Clone, Copy, Debug)]
struct Target {
    post: Post,
    queue: NonNull<c_void>,
}

impl Target {
    fn queue_pair(post: PostToPair, queue: NonNull<ibv_qp>) -> Self {
        Self {
            // SAFETY: all data pointers are passed alike, and the function only gets its own
            // `queue`.
            post: unsafe { core::mem::transmute::<PostToPair, Post>(post) },
            queue: queue.cast(),
        }
    }

    fn shared(post: PostShared, queue: NonNull<ibv_srq>) -> Self {
        Self {
            // SAFETY: as above.
            post: unsafe { core::mem::transmute::<PostShared, Post>(post) },
            queue: queue.cast(),
        }
    }
}

/// Slot of a receive, followed in memory by its segments.
///
/// `num_sge` is the number of posted segments.
#[repr(C)]
struct Slot {
    receive: ibv_recv_wr,
    /// Slot that is filled after this one; after the last one, the first.
    following: NonNull<Slot>,
}

impl Slot {
    /// Returns the slot's segments, which are part of it.
    ///
    /// # Safety
    /// `place` is a slot of a list.
    #[inline]
    unsafe fn segments(slot: NonNull<Self>) -> NonNull<ibv_sge> {
        // SAFETY: the segments follow in the same allocation.
        unsafe { slot.add(1).cast() }
    }
}

/// Words of a slot without its segments, and of a segment.
const SLOT_WORDS: usize = size_of::<Slot>() / size_of::<u64>();
const SEGMENT_WORDS: usize = size_of::<ibv_sge>() / size_of::<u64>();

// So both sizes are multiples of a word.
const _: () =
    assert!(align_of::<Slot>() == align_of::<u64>() && align_of::<ibv_sge>() == align_of::<u64>());

/// Owner that keeps the target queue alive.
type Keeper = Arc<dyn Any + Send + Sync>;

/// Receives that are filled but not posted, and the slots of posted ones.
pub(crate) struct ReceiveList {
    /// The queue; after a refusal, its function is one that refuses all later receives.
    target: Target,
    /// Newest receive that is committed and not posted.
    newest: Option<NonNull<Slot>>,
    /// Oldest receive that is committed and not posted; equal to `next` if there is none.
    start: NonNull<Slot>,
    /// Slot to fill next; after the last slot was filled and posted, the first.
    next: NonNull<Slot>,
    /// First and last slot.
    first: NonNull<Slot>,
    last: NonNull<Slot>,
    /// Memory of all slots with their segments.
    slots: NonNull<[u64]>,
    refused: u32,
    /// First receive that the device refused in the last post; null once it was read.
    bad: *mut ibv_recv_wr,
    /// Segments of a slot.
    stride: NonZeroUsize,
    post_to_device: Post,
    _keeper: Keeper,
}

// SAFETY: the pointers in it lead to its own memory or to the queue that it keeps, which any thread
// may use.
unsafe impl Send for ReceiveList {}

impl core::fmt::Debug for ReceiveList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("ReceiveList")
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// Slot of a receive that lacks its segments.
#[derive(Debug)]
pub(crate) struct ReceiveSlot<'a> {
    list: &'a mut ReceiveList,
    slot: NonNull<Slot>,
    segments: SegmentCursor,
}

impl ReceiveSlot<'_> {
    /// Adds a segment to the receive.
    #[inline]
    pub(crate) fn segment(&mut self, segment: Segment) {
        self.segments.add(segment);
    }

    /// Commits the receive.
    #[inline]
    pub(crate) fn commit(self) {
        // SAFETY: `begin` returned a free slot of the list; only the receive before it refers to
        // it.
        let to = unsafe { &mut *self.slot.as_ptr() };
        to.receive.num_sge = self.segments.count();
        // A post ends the list here; `link_next` links the next slot.
        self.list.newest = Some(self.slot);
        self.list.next = to.following;
    }
}

impl ReceiveList {
    /// Makes a list for a queue pair with `depth` receives of up to `segments` segments.
    ///
    /// A posted receive stays in its slot until more than `depth` were posted. So all can be posted
    /// to another queue pair as long as none was used. There is one slot more for a receive that is
    /// filled in and dropped because the queue is full.
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
        let target = Target::queue_pair(post, raw);
        Ok(Self::over(
            target,
            owner,
            slots_of_queue_pair(depth),
            segments,
        ))
    }

    /// Makes a list for a shared queue.
    pub(crate) fn for_shared(
        owner: Arc<SharedReceiveQueue>,
        post: SharedPost,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let raw = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        let target = Target::shared(post.0, raw);
        let room = (depth as usize).clamp(1, ROOM);
        Ok(Self::over(target, owner, room, segments))
    }

    fn over(target: Target, keeper: Keeper, room: usize, segments: u32) -> Self {
        // At least one, so that a receive always has a first segment.
        let stride = NonZeroUsize::new(segments as usize).unwrap_or(NonZeroUsize::MIN);
        let words = words_of_slot(stride);
        let slots = leak(vec![0_u64; room.saturating_mul(words)]);
        let start = slots.cast::<u64>();
        // SAFETY: there are `room` slots of `words` words.
        let slot = |number: usize| unsafe { start.add(number.wrapping_mul(words)) }.cast::<Slot>();
        let first = slot(0);
        for number in 0..room {
            let behind = number.wrapping_add(1);
            let following = if behind == room { first } else { slot(behind) };
            // SAFETY: the slot lies in the memory, with its segments, and nothing refers to it yet.
            // The words of the segments are zero, which is valid.
            unsafe {
                slot(number).write(Slot {
                    receive: ibv_recv_wr {
                        sg_list: Slot::segments(slot(number)).as_ptr(),
                        num_sge: UNFILLED,
                        ..blank()
                    },
                    following,
                });
            }
        }
        Self {
            target,
            newest: None,
            start: first,
            next: first,
            first,
            last: slot(room.wrapping_sub(1)),
            slots,
            refused: 0,
            bad: ptr::null_mut(),
            stride,
            post_to_device: target.post,
            _keeper: keeper,
        }
    }

    fn room(&self) -> usize {
        self.slots.len() / words_of_slot(self.stride)
    }

    /// Returns the index of a slot.
    fn number_of(&self, slot: NonNull<Slot>) -> usize {
        let bytes = slot.addr().get().wrapping_sub(self.first.addr().get());
        bytes / (words_of_slot(self.stride) * size_of::<u64>())
    }

    /// Starts a receive of up to `segments` segments; `None` if they are too many.
    #[inline]
    pub(crate) fn begin(&mut self, token: u64, segments: usize) -> Option<ReceiveSlot<'_>> {
        if segments > self.stride.get() {
            return None;
        }
        if let Some(newest) = self.newest {
            self.link_next(newest);
        }
        let slot = self.next;
        // SAFETY: a slot of the list. It has `stride` segments, and only the filling slot refers to
        // them.
        let segments = unsafe {
            (*slot.as_ptr()).receive.wr_id = token;
            SegmentCursor::new(Slot::segments(slot), segments)
        };
        Some(ReceiveSlot {
            list: self,
            slot,
            segments,
        })
    }

    /// Links the next slot after the newest committed receive.
    ///
    /// After the last slot, posts everything, so that a list does not wrap.
    #[cold]
    fn link_next(&mut self, newest: NonNull<Slot>) {
        if self.next == self.first {
            self.post_all(newest);
            return;
        }
        // SAFETY: both are slots of the list.
        unsafe { (*newest.as_ptr()).receive.next = self.next.as_ptr().cast() };
    }

    /// Posts the committed receives; returns false if there are none, or if one was refused.
    ///
    /// After false, call [`take_refused`](Self::take_refused).
    #[inline]
    pub(crate) fn hand_over(&mut self) -> bool {
        self.newest.is_some_and(|newest| self.post_all(newest))
    }

    /// Returns the refusals since the last call, and lifts the block of later posts.
    #[cold]
    pub(crate) fn take_refused(&mut self) -> Result<(), u32> {
        self.target.post = self.post_to_device;
        match core::mem::take(&mut self.refused) {
            0 => Ok(()),
            refused => Err(refused),
        }
    }

    /// Posts all receives that were ever posted to another list, in order.
    ///
    /// The caller has made sure that none was used.
    ///
    /// # Errors
    /// The other list has no room for them, or its queue refuses them.
    pub(crate) fn repeat_on(&self, other: &mut Self) -> Result<(), BackendError> {
        let kept = if self.came_round() {
            self.room()
        } else {
            self.number_of(self.next)
        };
        if kept > other.room() {
            return Err(BackendError::State);
        }
        let mut slot = self.first;
        for _ in 0..kept {
            // SAFETY: a slot of the list, which was posted with `num_sge` segments.
            let (token, segments) = unsafe {
                let Slot { receive, following } = &*slot.as_ptr();
                let count = usize::try_from(receive.num_sge).unwrap_or(0);
                let segments = core::slice::from_raw_parts(Slot::segments(slot).as_ptr(), count);
                slot = *following;
                (receive.wr_id, segments)
            };
            let mut copy = other
                .begin(token, segments.len())
                .ok_or(BackendError::State)?;
            for segment in segments {
                copy.segment(Segment {
                    address: segment.addr,
                    length: segment.length,
                    key: segment.lkey,
                });
            }
            copy.commit();
        }
        other.hand_over();
        other.take_refused().map_err(|_| BackendError::State)
    }

    /// Returns true if the last slot was filled and posted.
    fn came_round(&self) -> bool {
        // SAFETY: a slot of the list.
        unsafe { (*self.last.as_ptr()).receive.num_sge != UNFILLED }
    }

    /// Posts the committed receives up to the newest; returns false if one was refused.
    #[inline]
    fn post_all(&mut self, newest: NonNull<Slot>) -> bool {
        self.newest = None;
        let start = core::mem::replace(&mut self.start, self.next);
        // SAFETY: the queue lives. The slots are linked from `start` to the last committed one, and
        // have their segments. Nothing else refers to either until the call returns; by then the
        // device has copied them.
        let answer = unsafe {
            (*newest.as_ptr()).receive.next = ptr::null_mut();
            (self.target.post)(
                self.target.queue.as_ptr(),
                start.as_ptr().cast(),
                &raw mut self.bad,
            )
        };
        if answer != 0 {
            self.refuse(start);
        }
        answer == 0
    }

    /// Counts receives of the last post, a list from `start`, as refused; blocks later ones.
    ///
    /// Those from `bad` on count, or all if `bad` is not in the list.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, start: NonNull<Slot>) {
        let bad = core::mem::replace(&mut self.bad, ptr::null_mut());
        let mut slot = start;
        // Refused slots are filled again, so that the receives kept for `repeat_on` have no gaps.
        self.next = slot;
        let mut refused = 0_u32;
        loop {
            // SAFETY: a receive of the list, which ends with null.
            let (receive, next) = unsafe {
                let to = slot.as_ptr();
                (&raw mut (*to).receive, (*to).receive.next)
            };
            if receive == bad {
                (self.next, refused) = (slot, 0);
            }
            refused = refused.wrapping_add(1);
            let Some(next) = NonNull::new(next.cast()) else {
                break;
            };
            slot = next;
        }
        // SAFETY: the last receive of the list, which was refused.
        unsafe { (*slot.as_ptr()).receive.num_sge = UNFILLED };
        self.start = self.next;
        self.refused = self.refused.saturating_add(refused);
        self.target.post = refuse_all;
    }
}

/// Returns the number of words of a slot with `segments` segments.
fn words_of_slot(segments: NonZeroUsize) -> usize {
    SLOT_WORDS.saturating_add(segments.get().saturating_mul(SEGMENT_WORDS))
}

/// Returns the number of slots for a queue pair: one more than its receives.
fn slots_of_queue_pair(depth: u32) -> usize {
    (depth as usize).saturating_add(1)
}

unsafe extern "C" fn refuse_all(
    _queue: *mut c_void,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called as the device's function would be.
    unsafe { *bad = first };
    libc::ENOMEM
}

impl Drop for ReceiveList {
    fn drop(&mut self) {
        // SAFETY: made by `over`, and dropped once.
        unsafe { free(self.slots) };
    }
}

/// A device's function for posts to a shared queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedPost(PostShared);

impl super::Domain {
    /// Returns the device's function for posts to a shared queue.
    pub(crate) fn shared_post(&self) -> Result<SharedPost, BackendError> {
        self.operations()
            .post_srq_recv
            .map(SharedPost)
            .ok_or(BackendError::NotSupported)
    }
}

fn blank() -> ibv_recv_wr {
    // SAFETY: integers and pointers, for which zero is valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
