//! Receives: filled in place, linked, handed over in one call.

use core::any::Any;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, Segment};
use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::segments::{NO_SEGMENT, SegmentCursor};
use super::send_list::{free, leak};
use super::{QueuePair, SharedReceiveQueue};

type PostToPair = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;
type PostShared =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// Receives of a shared queue that are gathered before they have to be handed over.
const ROOM: usize = 64;

/// In the place of the count of segments where none was handed over yet.
const UNFILLED: i32 = -1;

/// A function of a device that posts to whatever queue, by the address of that.
type Post = unsafe extern "C" fn(*mut c_void, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// Where receives go.
#[derive(Clone, Copy, Debug)]
struct Target {
    post: Post,
    queue: NonNull<c_void>,
}

impl Target {
    fn queue_pair(post: PostToPair, queue: NonNull<ibv_qp>) -> Self {
        Self {
            // SAFETY: pointers to whatever are passed in the same way, and it gets its own `queue` alone.
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

/// The place of a receive, with its segments right behind it.
///
/// `next` of the receive is null but while it is in a list; `num_sge` says how many segments it was handed over with.
#[repr(C)]
struct Place {
    receive: ibv_recv_wr,
    /// The place that is filled after this one: the first again after the last.
    following: NonNull<Place>,
}

impl Place {
    /// Where its segments are, which are part of it.
    ///
    /// # Safety
    /// It is a place of a list.
    #[inline(always)]
    unsafe fn segments(place: NonNull<Self>) -> NonNull<ibv_sge> {
        // SAFETY: they come behind, in the same allocation.
        unsafe { place.add(1).cast() }
    }
}

/// Words of a place without its segments, and of a segment.
const PLACE_WORDS: usize = size_of::<Place>() / size_of::<u64>();
const SEGMENT_WORDS: usize = size_of::<ibv_sge>() / size_of::<u64>();

// So the sizes of both are multiples of a word.
const _: () =
    assert!(align_of::<Place>() == align_of::<u64>() && align_of::<ibv_sge>() == align_of::<u64>());

/// A receive of one segment.
#[repr(C)]
struct One {
    receive: ibv_recv_wr,
    segment: ibv_sge,
}

impl One {
    /// One that stays until it is made a box again.
    fn new() -> NonNull<Self> {
        let one = NonNull::from(Box::leak(Box::new(Self {
            receive: blank(),
            segment: NO_SEGMENT,
        })));
        // SAFETY: it was just made.
        unsafe {
            let to = one.as_ptr();
            (*to).receive.sg_list = &raw mut (*to).segment;
            (*to).receive.num_sge = 1;
        }
        one
    }
}

/// What keeps the place where they go.
type Keeper = Arc<dyn Any + Send + Sync>;

/// Receives between their filling and the device.
pub(crate) struct ReceiveList {
    /// Where they go, or a function of ours that refuses what comes behind a refused receive.
    target: Target,
    /// The newest receive that is committed and not handed over, if there is one.
    newest: Option<NonNull<Place>>,
    /// The oldest one, if there is one.
    start: NonNull<Place>,
    /// The place to be filled next; once the last one is filled and handed over the first comes again.
    next: NonNull<Place>,
    /// The places for receives, each with its segments.
    first: NonNull<Place>,
    last: NonNull<Place>,
    /// All of them.
    places: NonNull<[u64]>,
    refused: u32,
    /// The request that the device refused when it last refused one and nobody had looked yet, else null.
    bad: *mut ibv_recv_wr,
    /// Segments of a place.
    stride: NonZeroUsize,
    post_to_device: Post,
    /// The place of one receive that is posted at once, and its segment.
    one: NonNull<One>,
    _keeper: Option<Keeper>,
}

// SAFETY: the pointers in it lead to what it owns or to the queue that it keeps, which any thread may use.
unsafe impl Send for ReceiveList {}

impl core::fmt::Debug for ReceiveList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("ReceiveList")
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// The place of a receive that is filled.
#[derive(Debug)]
pub(crate) struct ReceivePlace<'a> {
    list: &'a mut ReceiveList,
    place: NonNull<Place>,
    segments: SegmentCursor,
}

impl ReceivePlace<'_> {
    /// Adds a segment to the receive.
    #[inline(always)]
    pub(crate) fn segment(&mut self, segment: Segment) {
        self.segments.add(segment);
    }

    /// Completes the receive.
    #[inline(always)]
    pub(crate) fn commit(self, token: u64) {
        let place = self.place;
        // SAFETY: `begin` made sure that the place is one of the list and free; nothing refers to it but the receive
        // before, which becomes that of a list here.
        let following = unsafe {
            let to = &mut *place.as_ptr();
            to.receive.wr_id = token;
            to.receive.num_sge = self.segments.count();
            match self.list.newest {
                None => self.list.start = place,
                Some(before) => (*before.as_ptr()).receive.next = place.as_ptr().cast(),
            }
            to.following
        };
        self.list.newest = Some(place);
        self.list.next = following;
        if following == self.list.first {
            self.list.turn();
        }
    }
}

impl ReceiveList {
    /// Receives of up to `segments` segments for a queue pair that takes `depth` of them.
    ///
    /// All of them keep their places until more than `depth` were handed over, so that they can be handed to
    /// another queue pair as long as none was used. There is one place more: what is filled there and dropped, since
    /// there is no room for it, touches none of them.
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
            Some(owner),
            places_of_queue_pair(depth),
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
        let target = Target::shared(post.0, raw);
        let room = (depth as usize).clamp(1, ROOM);
        Ok(Self::over(target, Some(owner), room, segments))
    }

    #[cfg(test)]
    pub(super) fn borrowed(
        post: PostToPair,
        queue_pair: NonNull<ibv_qp>,
        depth: u32,
        segments: u32,
    ) -> Self {
        Self::over(
            Target::queue_pair(post, queue_pair),
            None,
            places_of_queue_pair(depth),
            segments,
        )
    }

    fn over(target: Target, keeper: Option<Keeper>, room: usize, segments: u32) -> Self {
        // One at least, as devices have it: then there is always room for one.
        let stride = NonZeroUsize::new(segments as usize).unwrap_or(NonZeroUsize::MIN);
        let words = words_of_place(stride);
        let places = leak(vec![0_u64; room.saturating_mul(words)]);
        let start = places.cast::<u64>();
        // SAFETY: so many are there.
        let place =
            |number: usize| unsafe { start.add(number.wrapping_mul(words)) }.cast::<Place>();
        let first = place(0);
        for number in 0..room {
            let behind = number.wrapping_add(1);
            let following = if behind == room { first } else { place(behind) };
            // SAFETY: the place is there, with its segments, and nothing refers to it yet. Segments are words, which are
            // zero.
            unsafe {
                place(number).write(Place {
                    receive: ibv_recv_wr {
                        sg_list: Place::segments(place(number)).as_ptr(),
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
            last: place(room.wrapping_sub(1)),
            places,
            refused: 0,
            bad: ptr::null_mut(),
            stride,
            post_to_device: target.post,
            one: One::new(),
            _keeper: keeper,
        }
    }

    fn room(&self) -> usize {
        self.places.len() / words_of_place(self.stride)
    }

    /// How many places are before this one.
    fn number_of(&self, place: NonNull<Place>) -> usize {
        let bytes = place.addr().get().wrapping_sub(self.first.addr().get());
        bytes / (words_of_place(self.stride) * size_of::<u64>())
    }

    /// The place that is filled before this one.
    fn before(&self, place: NonNull<Place>) -> NonNull<Place> {
        if place == self.first {
            return self.last;
        }
        // SAFETY: a place of the list that is not the first.
        unsafe { place.cast::<u64>().sub(words_of_place(self.stride)) }.cast()
    }

    /// The place of a receive of so many segments; `None` if it is too long.
    #[inline(always)]
    pub(crate) fn begin(&mut self, segments: usize) -> Option<ReceivePlace<'_>> {
        if segments > self.stride.get() {
            return None;
        }
        let place = self.next;
        // SAFETY: a place of the list. It has `stride` segments, and only the place that is filled refers to them.
        let segments = unsafe { SegmentCursor::new(Place::segments(place), segments) };
        Some(ReceivePlace {
            list: self,
            place,
            segments,
        })
    }

    /// The last place is filled: hands over, before the first is filled again.
    #[cold]
    fn turn(&mut self) {
        self.post_all();
    }

    /// Hands over what was committed.
    ///
    /// # Errors
    /// How many of the newest were refused.
    pub(crate) fn ring(&mut self) -> Result<(), u32> {
        if self.hand_over() {
            return Ok(());
        }
        self.settle()
    }

    /// Hands over what was committed. False: there was nothing, or it was refused; then `settle` tells.
    #[inline(always)]
    pub(crate) fn hand_over(&mut self) -> bool {
        self.newest.is_some() && self.post_all()
    }

    /// Tells of what was refused since the last time.
    #[cold]
    pub(crate) fn settle(&mut self) -> Result<(), u32> {
        self.target.post = self.post_to_device;
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
        let kept = if self.came_round() {
            self.room()
        } else {
            self.number_of(self.next)
        };
        if kept > other.room() {
            return Err(BackendError::State);
        }
        let mut place = self.first;
        for _ in 0..kept {
            // SAFETY: a place of the list, which was filled with so many segments and handed over.
            let (token, segments) = unsafe {
                let Place { receive, following } = &*place.as_ptr();
                let count = usize::try_from(receive.num_sge).unwrap_or(0);
                let segments = core::slice::from_raw_parts(Place::segments(place).as_ptr(), count);
                place = *following;
                (receive.wr_id, segments)
            };
            let mut copy = other.begin(segments.len()).ok_or(BackendError::State)?;
            for segment in segments {
                copy.segment(Segment {
                    address: segment.addr,
                    length: segment.length,
                    key: segment.lkey,
                });
            }
            copy.commit(token);
        }
        other.ring().map_err(|_| BackendError::State)
    }

    /// Posts a receive of one segment that need not be kept; nothing else is committed. False: it was refused.
    #[inline(always)]
    pub(crate) fn post_one(&mut self, segment: Segment, token: u64) -> bool {
        let one = self.one.as_ptr();
        // SAFETY: the queue lives. Nothing else refers to the place until the call returns; by then the device has
        // copied it.
        let answer = unsafe {
            (*one).receive.wr_id = token;
            (*one).segment = ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            };
            (self.post_to_device)(
                self.target.queue.as_ptr(),
                &raw mut (*one).receive,
                &raw mut self.bad,
            )
        };
        if answer != 0 {
            self.bad = ptr::null_mut();
        }
        answer == 0
    }

    /// Posts a receive of one segment from its place, which keeps it; nothing else is committed. False: it was refused,
    /// and `retreat` is to be called.
    #[inline(always)]
    pub(crate) fn post_kept(&mut self, segment: Segment, token: u64) -> bool {
        let place = self.next;
        // SAFETY: the queue lives. The place is one of the list, with one segment at least, and nothing else refers to
        // either until the call returns; by then the device has copied them.
        let answer = unsafe {
            let to = place.as_ptr();
            self.next = (*to).following;
            Place::segments(place).write(ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            });
            (*to).receive.wr_id = token;
            (*to).receive.num_sge = 1;
            (self.post_to_device)(
                self.target.queue.as_ptr(),
                &raw mut (*to).receive,
                &raw mut self.bad,
            )
        };
        answer == 0
    }

    /// Takes back the receive that `post_kept` posted last and the device refused.
    pub(crate) fn retreat(&mut self) {
        self.bad = ptr::null_mut();
        self.next = self.before(self.next);
        // SAFETY: a place of the list.
        unsafe { (*self.next.as_ptr()).receive.num_sge = UNFILLED };
    }

    /// Whether the last place was filled and handed over.
    fn came_round(&self) -> bool {
        // SAFETY: a place of the list.
        unsafe { (*self.last.as_ptr()).receive.num_sge != UNFILLED }
    }

    /// Posts what was committed, of which there is something. False: some of it was refused.
    #[inline(always)]
    fn post_all(&mut self) -> bool {
        self.newest = None;
        // SAFETY: the queue lives. The places are linked from `start` up to the last committed one, and have their
        // segments. Nothing else refers to either until the call returns; by then the device has copied them.
        let answer = unsafe {
            (self.target.post)(
                self.target.queue.as_ptr(),
                self.start.as_ptr().cast(),
                &raw mut self.bad,
            )
        };
        if answer != 0 {
            self.refuse();
        }
        self.unlink();
        answer == 0
    }

    /// Undoes the links of what was just posted.
    #[inline(always)]
    fn unlink(&mut self) {
        let mut receive = self.start.as_ptr().cast::<ibv_recv_wr>();
        loop {
            // SAFETY: one of the list, which ends with null.
            let next = unsafe { core::mem::replace(&mut (*receive).next, ptr::null_mut()) };
            if next.is_null() {
                break;
            }
            receive = next;
        }
    }

    /// Counts as refused what was just posted, all of it from `bad` on, and what comes behind.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self) {
        let bad = core::mem::replace(&mut self.bad, ptr::null_mut());
        let mut place = self.start;
        // Their places are filled again, so that what is kept for others to repeat stays without gaps.
        self.next = place;
        let mut refused = 0_u32;
        loop {
            // SAFETY: one of the list, which ends with null.
            let (receive, next) = unsafe {
                let to = place.as_ptr();
                (&raw mut (*to).receive, (*to).receive.next)
            };
            if receive == bad {
                (self.next, refused) = (place, 0);
            }
            refused = refused.wrapping_add(1);
            let Some(next) = NonNull::new(next.cast()) else {
                break;
            };
            place = next;
        }
        // SAFETY: one of the list, which was refused as all behind the first that was.
        unsafe { (*place.as_ptr()).receive.num_sge = UNFILLED };
        self.refused = self.refused.saturating_add(refused);
        self.target.post = refuse_all;
    }
}

/// Words of a place with so many segments.
fn words_of_place(segments: NonZeroUsize) -> usize {
    PLACE_WORDS.saturating_add(segments.get().saturating_mul(SEGMENT_WORDS))
}

/// Places for the receives that a queue pair may have, and for one to be filled.
fn places_of_queue_pair(depth: u32) -> usize {
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
        // SAFETY: made by `over`, with so many places, and dropped once.
        unsafe {
            free(self.places);
            drop(Box::from_raw(self.one.as_ptr()));
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

fn blank() -> ibv_recv_wr {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
