//! Send requests, filled in place, linked, and posted in one call.

use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{
    BackendError, BindRequest, ExtendedRequest, ExtendedSend, Rejected, RemoteRange, Segment,
    SendFlags, SendOperation, SendRequest,
};
use rdma_sys::{
    atomic_t, bind_mw_t, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp, ibv_send_flags,
    ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t,
};

use super::cancel;
use super::segments::{NO_SEGMENT, SegmentCursor};
use super::{Access, QueuePair, Region, Window};

pub(super) type Post =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;
pub(super) type Bind = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> i32;

/// Most requests that are gathered before a post.
const ROOM: usize = 64;

/// Requests that are filled but not posted, and their queue pair.
pub(crate) struct SendList {
    /// The device's function; after a refusal, one that refuses all later requests.
    post: Post,
    queue_pair: NonNull<ibv_qp>,
    /// Slots of requests, each with its segments.
    ///
    /// The device copies each list, so that every post starts again at the first slot.
    first: NonNull<ibv_send_wr>,
    /// Newest request that is committed and not posted; null if there is none.
    newest: *mut ibv_send_wr,
    /// Slot to fill next, if nothing is committed or after `link_next`.
    next: NonNull<ibv_send_wr>,
    /// End of the slots.
    end: NonNull<ibv_send_wr>,
    /// Number of refused requests that were not reported yet.
    refused: u32,
    /// Sends and Writes of fewer bytes go inline: the device's function copies their data.
    inline_below: u32,
    /// First request that the device refused in the last post; null once it was read.
    bad: *mut ibv_send_wr,
    /// Segments of a slot.
    stride: NonZeroUsize,
    post_to_device: Post,
    /// As `post`, for type 1 windows; refuses all if the device has none.
    bind: Bind,
    bind_at_device: Bind,
    /// Three requests: close a type 2 window, open one, and write no bytes.
    ///
    /// The write keeps the order if nothing is open and nothing is to be opened.
    binds: [NonNull<ibv_send_wr>; 3],
    /// Segments of all slots.
    segments: NonNull<[ibv_sge]>,
    /// Owner of the queue pair.
    _owner: Arc<QueuePair>,
}

// SAFETY: the pointers in it lead to its own memory or to the queue pair that it keeps, which any
// thread may use.
unsafe impl Send for SendList {}

impl core::fmt::Debug for SendList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("SendList")
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// Slot of a request that lacks its segments.
#[derive(Debug)]
pub(crate) struct SendSlot<'a> {
    list: &'a mut SendList,
    slot: NonNull<ibv_send_wr>,
    segments: SegmentCursor,
    /// Requests of fewer bytes go inline.
    inline_below: u32,
}

impl SendSlot<'_> {
    /// Adds a segment to the request.
    #[inline(always)]
    pub(crate) fn segment(&mut self, segment: Segment) {
        self.segments.add(segment);
    }

    /// Commits the request, which moves `length` bytes.
    #[inline(always)]
    pub(crate) fn commit(self, length: u32) {
        // SAFETY: `begin` returned a slot of the list, and only the request before it refers to it.
        let to = unsafe { &mut *self.slot.as_ptr() };
        to.num_sge = self.segments.count();
        if length < self.inline_below {
            to.send_flags |= INLINE;
        }
        // A post ends the list here; `link_next` links the next slot.
        self.list.newest = self.slot.as_ptr();
    }
}

impl SendList {
    /// Makes a list for a queue pair with `depth` requests of up to `segments` segments.
    pub(crate) fn new(
        owner: Arc<QueuePair>,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let context = owner.domain().context();
        let post = cancel::post(context).ok_or(BackendError::NotSupported)?;
        let bind = cancel::bind(context).unwrap_or(refuse_bind);
        let queue_pair = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        let room = (depth as usize).clamp(1, ROOM);
        // At least one, so that a request always has a first segment.
        let stride = NonZeroUsize::new(segments as usize).unwrap_or(NonZeroUsize::MIN);
        let segments = leak(vec![NO_SEGMENT; room.saturating_mul(stride.get())]);
        let slots = (0..room).map(|slot| ibv_send_wr {
            sg_list: segments
                .cast::<ibv_sge>()
                .as_ptr()
                .wrapping_add(slot.wrapping_mul(stride.get())),
            ..blank()
        });
        let first = leak(slots.collect()).cast::<ibv_send_wr>();
        Ok(Self {
            post,
            queue_pair,
            first,
            newest: ptr::null_mut(),
            next: first,
            // SAFETY: there are `room` slots.
            end: unsafe { first.add(room) },
            refused: 0,
            inline_below: below(owner.inline()),
            bad: ptr::null_mut(),
            stride,
            post_to_device: post,
            bind,
            bind_at_device: bind,
            binds: [
                ibv_wr_opcode::IBV_WR_LOCAL_INV,
                ibv_wr_opcode::IBV_WR_BIND_MW,
                ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            ]
            .map(|opcode| NonNull::from(Box::leak(Box::new(ibv_send_wr { opcode, ..blank() })))),
            segments,
            _owner: owner,
        })
    }

    fn room(&self) -> usize {
        // SAFETY: both point into the same allocation, and `end` follows `first`.
        unsafe { self.end.offset_from_unsigned(self.first) }
    }

    /// Starts a request of up to `segments` segments; `None` if they are too many.
    #[inline(always)]
    pub(crate) fn begin(&mut self, request: &SendRequest, segments: usize) -> Option<SendSlot<'_>> {
        if segments > self.stride.get() {
            return None;
        }
        if !self.newest.is_null() {
            self.link_next();
        }
        let slot = self.next;
        // SAFETY: a slot of the list, and at most the request before it refers to it.
        let to = unsafe { &mut *slot.as_ptr() };
        let (opcode, range, inline_below) = match request.operation {
            SendOperation::Send => (ibv_wr_opcode::IBV_WR_SEND, None, self.inline_below),
            SendOperation::RdmaWrite(range) => (
                ibv_wr_opcode::IBV_WR_RDMA_WRITE,
                Some(range),
                self.inline_below,
            ),
            SendOperation::RdmaRead(range) => (ibv_wr_opcode::IBV_WR_RDMA_READ, Some(range), 0),
        };
        to.wr_id = request.token;
        to.opcode = opcode;
        to.send_flags = flags(request.flags);
        if let Some(range) = range {
            to.wr.rdma = rdma_t {
                remote_addr: range.address,
                rkey: range.key,
            };
        }
        // SAFETY: the slot has `stride` segments, and only the filling slot refers to them.
        let segments = unsafe { SegmentCursor::new(NonNull::new_unchecked(to.sg_list), segments) };
        Some(SendSlot {
            list: self,
            slot,
            segments,
            inline_below,
        })
    }

    /// Moves to the slot after the newest committed request and links it.
    ///
    /// After the last slot, posts everything and moves to the first.
    #[cold]
    fn link_next(&mut self) {
        // SAFETY: the newest is a slot of the list, so this is another slot or their end.
        let slot = unsafe { NonNull::new_unchecked(self.newest.add(1)) };
        if slot == self.end {
            self.post_all();
            return;
        }
        // SAFETY: as above.
        unsafe { (*self.newest).next = slot.as_ptr() };
        self.next = slot;
    }

    /// Posts the committed requests.
    ///
    /// # Errors
    /// The number of the newest requests that were refused.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Result<(), u32> {
        if !self.newest.is_null() && self.post_all() {
            return Ok(());
        }
        self.take_refused()
    }

    /// Returns the refusals since the last call, and lifts the block of later posts.
    #[cold]
    fn take_refused(&mut self) -> Result<(), u32> {
        self.post = self.post_to_device;
        self.bind = self.bind_at_device;
        match core::mem::take(&mut self.refused) {
            0 => Ok(()),
            refused => Err(refused),
        }
    }

    /// Posts the committed requests, before a request that is posted by another call.
    #[inline(always)]
    fn post_committed(&mut self) {
        if !self.newest.is_null() {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        self.post_all();
    }

    /// Posts the committed requests, at least one; returns false if one was refused.
    #[inline(always)]
    fn post_all(&mut self) -> bool {
        // SAFETY: the queue pair lives. The slots are linked up to the last committed one, and have
        // their segments. Nothing else refers to either until the call returns; by then the device
        // has copied them.
        let answer = unsafe {
            (*self.newest).next = ptr::null_mut();
            self.newest = ptr::null_mut();
            self.next = self.first;
            (self.post)(
                self.queue_pair.as_ptr(),
                self.first.as_ptr(),
                &raw mut self.bad,
            )
        };
        answer == 0 || self.repeat()
    }

    /// Retries without inline data from the refused request on, if that one has any.
    ///
    /// Counts all from the then refused request on as refused. Returns true if the device accepted
    /// everything.
    #[cold]
    fn repeat(&mut self) -> bool {
        let mut bad = core::mem::replace(&mut self.bad, ptr::null_mut());
        // SAFETY: the list was just posted, and its links are unchanged.
        if self.refused == 0 && unsafe { carry_nothing_from(self.first.as_ptr(), bad) } {
            let from = bad;
            // SAFETY: as in the first post: the same requests with their segments.
            let answer = unsafe { (self.post)(self.queue_pair.as_ptr(), from, &raw mut bad) };
            if answer == 0 || bad != from {
                // The device granted more inline data than it accepts.
                self.inline_below = 0;
            }
            if answer == 0 {
                return true;
            }
        }
        self.refuse_from(bad);
        false
    }

    /// Counts the last post's requests from `bad` on as refused.
    ///
    /// Blocks later ones to keep the order.
    #[cold]
    fn refuse_from(&mut self, bad: *mut ibv_send_wr) {
        // SAFETY: the list was just posted, and its links are unchanged.
        let refused = unsafe { newest_from(self.first.as_ptr(), bad) };
        self.refused = self.refused.saturating_add(refused);
        self.post = refuse_all;
        self.bind = refuse_bind;
    }

    /// Posts an extended operation on its own.
    ///
    /// # Errors
    /// The device refused it, or it has more segments than a request.
    pub(crate) fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        self.post_committed();
        let mut sges = [NO_SEGMENT; MOST_SEGMENTS];
        if segments.len() > sges.len().min(self.stride.get()) {
            return Err(Rejected);
        }
        for (to, segment) in sges.iter_mut().zip(segments) {
            *to = ibv_sge {
                addr: segment.address,
                length: segment.length,
                lkey: segment.key,
            };
        }
        let mut wanted = ibv_send_wr {
            wr_id: request.token,
            sg_list: sges.as_mut_ptr(),
            num_sge: segments.len() as i32,
            send_flags: flags(request.flags),
            ..blank()
        };
        match request.operation {
            ExtendedSend::WriteImmediate { remote, immediate } => {
                wanted.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                wanted.imm_data_invalidated_rkey_union.imm_data = immediate;
                wanted.wr.rdma = rdma_t {
                    remote_addr: remote.address,
                    rkey: remote.key,
                };
            }
            ExtendedSend::FetchAndAdd { remote, add } => {
                wanted.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
                wanted.wr.atomic = atomic(remote, add, 0);
            }
            ExtendedSend::CompareAndSwap {
                remote,
                compare,
                swap,
            } => {
                wanted.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
                wanted.wr.atomic = atomic(remote, compare, swap);
            }
        }
        // SAFETY: the queue pair lives, and the request with its segments until the call returns.
        let answer =
            unsafe { (self.post)(self.queue_pair.as_ptr(), &raw mut wanted, &raw mut self.bad) };
        self.bad = ptr::null_mut();
        if answer == 0 { Ok(()) } else { Err(Rejected) }
    }

    /// Binds a type 1 window, and returns its new key; length 0 unbinds it.
    pub(crate) fn bind_by_call(
        &mut self,
        window: &Window,
        request: &BindRequest,
        region: &Region,
    ) -> Result<u32, Rejected> {
        self.post_committed();
        let mut bind = ibv_mw_bind {
            wr_id: request.token,
            send_flags: bind_flags(request),
            bind_info: bind_info(request, region),
        };
        // SAFETY: queue pair, window and region live. The caller holds the window's lock.
        let answer = unsafe { (self.bind)(self.queue_pair.as_ptr(), window.raw(), &raw mut bind) };
        if answer != 0 {
            return Err(Rejected);
        }
        Ok(window.remote_key())
    }

    /// Binds a type 2 window to a new key.
    ///
    /// First closes the window if `old` is its open key. Without `opened`, only closes it.
    ///
    /// # Errors
    /// The window is not bound; the error says if it was closed.
    pub(crate) fn bind_by_request(
        &mut self,
        window: &mut Window,
        old: Option<u32>,
        request: &BindRequest,
        opened: Option<(&Region, u32)>,
    ) -> Result<(), NotBound> {
        self.post_committed();
        // SAFETY: made by `over`, and nothing else refers to them: the device copied the earlier
        // posts.
        let [close, open, nothing] = self.binds.map(|mut bind| unsafe { bind.as_mut() });
        let (token, flags) = (request.token, bind_flags(request));
        // The request that signals a completion.
        let last: *mut ibv_send_wr = match (old, opened) {
            (None, None) => prepare(nothing, token, flags),
            (Some(old), None) => {
                close.next = ptr::null_mut();
                close.imm_data_invalidated_rkey_union.invalidated_rkey = old;
                prepare(close, token, flags)
            }
            (_, Some((region, key))) => {
                open.bind_mw_tso_union.bind_mw = bind_mw_t {
                    mw: window.raw(),
                    rkey: key,
                    bind_info: bind_info(request, region),
                };
                prepare(open, token, flags)
            }
        };
        let first: *mut ibv_send_wr = match (old, opened) {
            (Some(old), Some(_)) => {
                // If the close fails, both requests complete, the close first, and the core ignores
                // the second completion as unknown.
                close.next = last;
                close.imm_data_invalidated_rkey_union.invalidated_rkey = old;
                prepare(close, token, flags & !SIGNALLED)
            }
            _ => last,
        };
        // SAFETY: queue pair, window and region live, and the requests until the call returns.
        let answer = unsafe { (self.post)(self.queue_pair.as_ptr(), first, &raw mut self.bad) };
        if answer != 0 {
            let bad = core::mem::replace(&mut self.bad, ptr::null_mut());
            return Err(if first != last && bad == last {
                NotBound::Closed
            } else {
                NotBound::Unchanged
            });
        }
        if let Some((_, key)) = opened {
            window.set_remote_key(key);
        }
        Ok(())
    }
}

/// Fills in token and flags of a request of a bind.
#[inline]
fn prepare(to: &mut ibv_send_wr, token: u64, flags: u32) -> *mut ibv_send_wr {
    to.wr_id = token;
    to.send_flags = flags;
    to
}

/// Returns the flags of a bind, which knows only the fence.
#[inline]
fn bind_flags(request: &BindRequest) -> u32 {
    flags(request.flags & SendFlags::FENCE)
}

/// Returns region, range and rights of a bind.
#[inline]
fn bind_info(request: &BindRequest, region: &Region) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: region.raw(),
        addr: request.address,
        length: request.length,
        mw_access_flags: Access::of_window(request.privileges).0,
    }
}

/// Most segments of an extended operation; the core posts no more.
const MOST_SEGMENTS: usize = 32;

fn atomic(remote: RemoteRange, compare_add: u64, swap: u64) -> atomic_t {
    atomic_t {
        remote_addr: remote.address,
        compare_add,
        swap,
        rkey: remote.key,
    }
}

/// Flag of a request with inline data.
pub(super) const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

/// Returns the smallest length that exceeds `room` bytes of inline data.
///
/// Returns 0 without room, so that no request goes inline.
fn below(room: u32) -> u32 {
    if room == 0 { 0 } else { room.saturating_add(1) }
}

/// Flag of a request that signals a completion.
pub(super) const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

/// State of a window that was not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBound {
    /// The window is as before.
    Unchanged,
    /// The device took the request that closes it, and refused the one that binds it.
    Closed,
}

/// Returns the flags of a request.
///
/// Every request is signalled: the core wants one completion for each.
#[inline(always)]
fn flags(requested: SendFlags) -> u32 {
    const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
    const SOLICITED: u32 = ibv_send_flags::IBV_SEND_SOLICITED.0;
    SIGNALLED
        | move_flag(requested, SendFlags::FENCE, FENCE)
        | move_flag(requested, SendFlags::SOLICITED, SOLICITED)
}

/// Returns `to` if `asked` has `flag`, else 0, without a branch; both are single bits.
#[inline(always)]
fn move_flag(requested: SendFlags, flag: SendFlags, to: u32) -> u32 {
    let bit = u32::from((requested & flag).bits());
    bit >> flag.bits().trailing_zeros() << to.trailing_zeros()
}

unsafe extern "C" fn refuse_all(
    _queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called as the device's function would be.
    unsafe { *bad = first };
    libc::ENOMEM
}

unsafe extern "C" fn refuse_bind(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> i32 {
    libc::ENOMEM
}

/// Clears the inline flag of all requests from `bad` on.
///
/// Returns false and changes nothing if `bad` is not inline or not in the list.
///
/// # Safety
/// `first` begins a list of requests that nothing else uses.
#[cold]
unsafe fn carry_nothing_from(first: *mut ibv_send_wr, bad: *mut ibv_send_wr) -> bool {
    let mut request = first;
    while !request.is_null() && request != bad {
        // SAFETY: a request of the list.
        request = unsafe { (*request).next };
    }
    // SAFETY: a request of the list, or null.
    if request.is_null() || unsafe { (*request).send_flags } & INLINE == 0 {
        return false;
    }
    while !request.is_null() {
        // SAFETY: a request of the list.
        unsafe {
            (*request).send_flags &= !INLINE;
            request = (*request).next;
        }
    }
    true
}

/// Returns the number of requests from `bad` on, or of all without `bad`.
///
/// # Safety
/// `first` begins a list of requests.
#[cold]
unsafe fn newest_from(first: *mut ibv_send_wr, bad: *mut ibv_send_wr) -> u32 {
    let (mut count, mut before) = (0_u32, 0);
    let mut request = first;
    while !request.is_null() {
        if request == bad {
            before = count;
        }
        count = count.wrapping_add(1);
        // SAFETY: a request of the list.
        request = unsafe { (*request).next };
    }
    count.wrapping_sub(before)
}

fn blank() -> ibv_send_wr {
    // SAFETY: integers and pointers, for which zero is valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Leaks values, which are reached only by pointers until `free` takes them back.
pub(super) fn leak<T>(values: Vec<T>) -> NonNull<[T]> {
    NonNull::from(Box::leak(values.into_boxed_slice()))
}

/// Frees leaked values.
///
/// # Safety
/// `values` came from `leak`, and nothing refers to them.
pub(super) unsafe fn free<T>(values: NonNull<[T]>) {
    // SAFETY: the caller promises it.
    drop(unsafe { Box::from_raw(values.as_ptr()) });
}

impl Drop for SendList {
    fn drop(&mut self) {
        // SAFETY: made by `over`, and dropped once.
        unsafe {
            free(NonNull::slice_from_raw_parts(self.first, self.room()));
            free(self.segments);
            for bind in self.binds {
                drop(Box::from_raw(bind.as_ptr()));
            }
        }
    }
}
