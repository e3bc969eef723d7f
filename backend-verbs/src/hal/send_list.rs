//! Send requests: filled in place, linked, handed over in one call.

use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{
    BackendError, ExtendedRequest, ExtendedSend, Rejected, RemoteRange, Segment, SendFlags,
    SendOperation, SendRequest,
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

/// Requests that are gathered before they have to be handed over.
const ROOM: usize = 64;

/// Requests between their filling and the device, and the queue pair they go to.
pub(crate) struct SendList {
    /// The device's function, or ours that refuses what comes behind a refused request.
    post: Post,
    queue_pair: NonNull<ibv_qp>,
    /// The places for requests, each with its segments; the device copies what it is given, so that they are filled
    /// from the first again after every call.
    first: NonNull<ibv_send_wr>,
    /// The place of the newest request that is committed and not handed over; null if there is none.
    newest: *mut ibv_send_wr,
    /// The place to be filled next, where nothing is committed or `go_behind` just went on.
    next: NonNull<ibv_send_wr>,
    /// Behind the last place.
    end: NonNull<ibv_send_wr>,
    /// Committed, handed over and refused, which nobody was told yet.
    refused: u32,
    /// Sends and Writes of fewer bytes carry them in the request: the device's function copies them.
    inline_below: u32,
    /// The request that the device names as the first refused one; null unless it did so just now.
    bad: *mut ibv_send_wr,
    /// Segments of a place.
    stride: NonZeroUsize,
    post_to_device: Post,
    /// As `post`, for windows of type 1; one that refuses all where the device has none.
    bind: Bind,
    bind_at_device: Bind,
    /// What closes a window of type 2, what opens it, and a write of no bytes, which keeps the place in the order where
    /// nothing is open and nothing is to be.
    binds: [NonNull<ibv_send_wr>; 3],
    /// The segments of all places.
    segments: NonNull<[ibv_sge]>,
    /// Keeps the queue pair; none where somebody else does.
    owner: Option<Arc<QueuePair>>,
}

// SAFETY: the pointers in it lead to what it owns or to the queue pair that it keeps, which any thread may use.
unsafe impl Send for SendList {}

impl core::fmt::Debug for SendList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("SendList")
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// The place of a request that is filled.
#[derive(Debug)]
pub(crate) struct SendPlace<'a> {
    list: &'a mut SendList,
    place: NonNull<ibv_send_wr>,
    segments: SegmentCursor,
}

impl SendPlace<'_> {
    /// Adds a segment to the request.
    #[inline(always)]
    pub(crate) fn segment(&mut self, segment: Segment) {
        self.segments.add(segment);
    }

    /// Completes the request.
    #[inline(always)]
    pub(crate) fn commit(self, request: &SendRequest) {
        let place = self.place;
        // SAFETY: `begin` made sure that the place is one of the list, and nothing refers to it but the request before.
        unsafe {
            let to = &mut *place.as_ptr();
            let (opcode, range, carries) = match request.operation {
                SendOperation::Send => (ibv_wr_opcode::IBV_WR_SEND, None, true),
                SendOperation::RdmaWrite(range) => {
                    (ibv_wr_opcode::IBV_WR_RDMA_WRITE, Some(range), true)
                }
                SendOperation::RdmaRead(range) => {
                    (ibv_wr_opcode::IBV_WR_RDMA_READ, Some(range), false)
                }
            };
            let carried = carries && request.length < self.list.inline_below;
            // A word of its own, shifted: cheaper than to choose between two.
            let inline = u32::from(carried) << INLINE.trailing_zeros();
            let flags = flags(request.flags) | inline;
            to.wr_id = request.token;
            to.num_sge = self.segments.count();
            to.opcode = opcode;
            to.send_flags = flags;
            if let Some(range) = range {
                to.wr.rdma = rdma_t {
                    remote_addr: range.address,
                    rkey: range.key,
                };
            }
            // Whoever hands over ends the list, whoever fills the next place leads there.
            self.list.newest = place.as_ptr();
        }
    }
}

impl SendList {
    /// Requests of up to `segments` segments for a queue pair that takes `depth` of them.
    pub(crate) fn new(
        owner: Arc<QueuePair>,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let context = owner.domain().context();
        let post = cancel::post(context).ok_or(BackendError::NotSupported)?;
        let bind = cancel::bind(context);
        let queue_pair = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        let mut list = Self::over(post, bind, queue_pair, Some(owner), depth, segments);
        list.inline_below = below(list.owner.as_ref().map_or(0, |owner| owner.inline()));
        Ok(list)
    }

    #[cfg(test)]
    pub(super) fn borrowed(
        post: Post,
        bind: Option<Bind>,
        queue_pair: NonNull<ibv_qp>,
        depth: u32,
        segments: u32,
        inline: u32,
    ) -> Self {
        let mut list = Self::over(post, bind, queue_pair, None, depth, segments);
        list.inline_below = below(inline);
        list
    }

    fn over(
        post: Post,
        bind: Option<Bind>,
        queue_pair: NonNull<ibv_qp>,
        owner: Option<Arc<QueuePair>>,
        depth: u32,
        segments: u32,
    ) -> Self {
        let room = (depth as usize).clamp(1, ROOM);
        // One at least, as devices have it: then there is always room for one.
        let stride = NonZeroUsize::new(segments as usize).unwrap_or(NonZeroUsize::MIN);
        let segments = leak(vec![NO_SEGMENT; room.saturating_mul(stride.get())]);
        let places = (0..room).map(|place| ibv_send_wr {
            sg_list: segments
                .cast::<ibv_sge>()
                .as_ptr()
                .wrapping_add(place.wrapping_mul(stride.get())),
            ..blank()
        });
        let first = leak(places.collect()).cast::<ibv_send_wr>();
        let bind = bind.unwrap_or(refuse_bind);
        Self {
            post,
            queue_pair,
            first,
            newest: ptr::null_mut(),
            next: first,
            // SAFETY: so many were made.
            end: unsafe { first.add(room) },
            refused: 0,
            inline_below: 0,
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
            owner,
        }
    }

    fn room(&self) -> usize {
        // SAFETY: both lead to the same allocation, `end` behind `first`.
        unsafe { self.end.offset_from_unsigned(self.first) }
    }

    /// The place of a request of so many segments; `None` if it is too long.
    #[inline(always)]
    pub(crate) fn begin(&mut self, segments: usize) -> Option<SendPlace<'_>> {
        if segments > self.stride.get() {
            return None;
        }
        if !self.newest.is_null() {
            self.go_behind();
        }
        let place = self.next;
        // SAFETY: a place of the list. It has `stride` segments, and only the place that is filled refers to them.
        let segments = unsafe {
            SegmentCursor::new(NonNull::new_unchecked((*place.as_ptr()).sg_list), segments)
        };
        Some(SendPlace {
            list: self,
            place,
            segments,
        })
    }

    /// Goes on to the place behind the newest committed request, which is made to lead there, or to the first, once all
    /// are filled and handed over.
    #[cold]
    fn go_behind(&mut self) {
        // SAFETY: the newest is a place of the list, so that this is another one or their end.
        let place = unsafe { NonNull::new_unchecked(self.newest.add(1)) };
        if place == self.end {
            self.post_all();
            return;
        }
        // SAFETY: as above.
        unsafe { (*self.newest).next = place.as_ptr() };
        self.next = place;
    }

    /// Hands over what was committed.
    ///
    /// # Errors
    /// How many of the newest were refused.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Result<(), u32> {
        if !self.newest.is_null() && self.post_all() {
            return Ok(());
        }
        self.settle()
    }

    /// Tells of what was refused since the last time.
    #[cold]
    fn settle(&mut self) -> Result<(), u32> {
        self.post = self.post_to_device;
        self.bind = self.bind_at_device;
        match core::mem::take(&mut self.refused) {
            0 => Ok(()),
            refused => Err(refused),
        }
    }

    /// Hands over what was committed, behind which a bind is to come: after a refusal that goes nowhere either.
    #[inline(always)]
    fn clear(&mut self) {
        if !self.newest.is_null() {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        self.post_all();
    }

    /// Posts what was committed, of which there is something. False: some of it was refused.
    #[inline(always)]
    fn post_all(&mut self) -> bool {
        // SAFETY: the queue pair lives. The places are linked up to the last committed one, and have their segments.
        // Nothing else refers to either until the call returns; by then the device has copied them.
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

    /// Posts from the refused request on once more with no data in the requests, if it is that what the device does
    /// not take; what it does not take then either is refused. True: it took everything.
    #[cold]
    fn repeat(&mut self) -> bool {
        let mut bad = core::mem::replace(&mut self.bad, ptr::null_mut());
        // SAFETY: the list was just posted, and is linked as it was.
        if self.refused == 0 && unsafe { carry_nothing_from(self.first.as_ptr(), bad) } {
            let from = bad;
            // SAFETY: as when it was posted first: the same requests with their segments.
            let answer = unsafe { (self.post)(self.queue_pair.as_ptr(), from, &raw mut bad) };
            if answer == 0 || bad != from {
                // It promised room for more than it takes.
                self.inline_below = 0;
            }
            if answer == 0 {
                return true;
            }
        }
        self.refuse_from(bad);
        false
    }

    /// Counts as refused what was posted from `bad` on, and what comes behind it, or the order would be lost.
    #[cold]
    fn refuse_from(&mut self, bad: *mut ibv_send_wr) {
        // SAFETY: it was just posted, and is linked as it was.
        let refused = unsafe { newest_from(self.first.as_ptr(), bad) };
        self.refused = self.refused.saturating_add(refused);
        self.post = refuse_all;
        self.bind = refuse_bind;
    }

    /// Posts an operation beyond the interface, alone.
    ///
    /// # Errors
    /// The device refused it, or there are more segments than a request has.
    pub(crate) fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        pieces: &[Segment],
    ) -> Result<(), Rejected> {
        self.clear();
        let mut segments = [NO_SEGMENT; MOST_SEGMENTS];
        if pieces.len() > segments.len().min(self.stride.get()) {
            return Err(Rejected);
        }
        for (to, piece) in segments.iter_mut().zip(pieces) {
            *to = ibv_sge {
                addr: piece.address,
                length: piece.length,
                lkey: piece.key,
            };
        }
        let mut wanted = ibv_send_wr {
            wr_id: request.token,
            sg_list: segments.as_mut_ptr(),
            num_sge: pieces.len() as i32,
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

    /// Binds a window of type 1, which gives it another key; an opening of no length unbinds it.
    pub(crate) fn bind_by_call(
        &mut self,
        window: &Window,
        opening: &mut Opening,
        region: &Region,
    ) -> Result<u32, Rejected> {
        opening.0.bind_info.mr = region.raw();
        // SAFETY: the region lives.
        unsafe { self.call(window, &mut opening.0) }
    }

    /// Binds a window of type 1 with these arguments.
    ///
    /// # Safety
    /// They name a region that lives.
    #[inline(always)]
    pub(super) unsafe fn call(
        &mut self,
        window: &Window,
        bind: &mut ibv_mw_bind,
    ) -> Result<u32, Rejected> {
        self.clear();
        // SAFETY: queue pair and window live, and the region, as the caller says; it holds the lock of the window.
        let answer = unsafe { (self.bind)(self.queue_pair.as_ptr(), window.raw(), bind) };
        if answer != 0 {
            return Err(Rejected);
        }
        Ok(window.remote_key())
    }

    /// Posts requests that bind a window of type 2, of which `open` opens it.
    ///
    /// # Errors
    /// What the device refused; it is not bound.
    ///
    /// # Safety
    /// They are linked and live, and so do the window and the region that they name.
    #[inline(always)]
    pub(super) unsafe fn post_bind(
        &mut self,
        first: *mut ibv_send_wr,
        open: *mut ibv_send_wr,
    ) -> Result<(), NotBound> {
        self.clear();
        // SAFETY: the queue pair lives, and the rest as the caller says.
        let answer = unsafe { (self.post)(self.queue_pair.as_ptr(), first, &raw mut self.bad) };
        if answer == 0 {
            return Ok(());
        }
        let bad = core::mem::replace(&mut self.bad, ptr::null_mut());
        Err(if first != open && bad == open {
            NotBound::Closed
        } else {
            NotBound::Unchanged
        })
    }

    /// Binds a window of type 2 to a new key, closing what was open by `old` first; without an opening it only
    /// closes.
    ///
    /// # Errors
    /// What the device refused; it is not bound.
    pub(crate) fn bind_by_request(
        &mut self,
        window: &mut Window,
        old: Option<u32>,
        opening: &Opening,
        opened: Option<(&Region, u32)>,
    ) -> Result<(), NotBound> {
        // SAFETY: all were made by `over`, and nothing else refers to them: the device copied what they were before.
        let [close, open, nothing] = self.binds.map(|mut bind| unsafe { bind.as_mut() });
        let (token, flags) = (opening.0.wr_id, opening.0.send_flags);
        let first: *mut ibv_send_wr = match (old, opened) {
            (None, None) => {
                nothing.wr_id = token;
                nothing.send_flags = flags;
                nothing
            }
            (Some(old), None) => {
                close.wr_id = token;
                close.send_flags = flags;
                close.next = ptr::null_mut();
                close.imm_data_invalidated_rkey_union.invalidated_rkey = old;
                close
            }
            (old, Some((region, key))) => {
                open.wr_id = token;
                open.send_flags = flags;
                open.bind_mw_tso_union.bind_mw = bind_mw_t {
                    mw: window.raw(),
                    rkey: key,
                    bind_info: ibv_mw_bind_info {
                        mr: region.raw(),
                        ..opening.0.bind_info
                    },
                };
                if let Some(old) = old {
                    close.wr_id = token;
                    // One completion for both, that of the bind; if the close fails both complete, that first, and the
                    // core takes the second for none of its own.
                    close.send_flags = flags & !SIGNALLED;
                    close.next = open;
                    close.imm_data_invalidated_rkey_union.invalidated_rkey = old;
                    close
                } else {
                    open
                }
            }
        };
        // SAFETY: window and region live, and the requests until the call returns.
        unsafe { self.post_bind(first, self.binds[1].as_ptr())? };
        if let Some((_, key)) = opened {
            window.set_remote_key(key);
        }
        Ok(())
    }
}

/// Segments of an operation beyond the interface; the core asks for no more.
const MOST_SEGMENTS: usize = 32;

fn atomic(remote: RemoteRange, compare_add: u64, swap: u64) -> atomic_t {
    atomic_t {
        remote_addr: remote.address,
        compare_add,
        swap,
        rkey: remote.key,
    }
}

/// The flag of requests that carry their data.
pub(super) const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

/// The least length that requests cannot carry where they have room for so many bytes, or none at all.
fn below(room: u32) -> u32 {
    if room == 0 { 0 } else { room.saturating_add(1) }
}

/// The flag of requests that complete.
pub(super) const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

/// What became of a window that was not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBound {
    /// It is as before.
    Unchanged,
    /// The device took the request to close it, and refused the one behind.
    Closed,
}

/// What a window is to open, but for the region.
///
/// It is filled in before window and region are looked up, so that few values are alive at a time.
pub(crate) struct Opening(ibv_mw_bind);

impl Opening {
    #[inline(always)]
    pub(crate) fn new(
        token: u64,
        fence: SendFlags,
        address: u64,
        length: u64,
        access: Access,
    ) -> Self {
        Self(ibv_mw_bind {
            wr_id: token,
            send_flags: flags(fence),
            bind_info: ibv_mw_bind_info {
                mr: ptr::null_mut(),
                addr: address,
                length,
                mw_access_flags: access.0,
            },
        })
    }

    /// Of another address.
    pub(crate) fn at(mut self, address: u64) -> Self {
        self.0.bind_info.addr = address;
        self
    }
}

/// Every request is signalled: the core wants one completion for each.
#[inline(always)]
pub(super) fn flags(asked: SendFlags) -> u32 {
    const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
    const SOLICITED: u32 = ibv_send_flags::IBV_SEND_SOLICITED.0;
    SIGNALLED
        | moved(asked, SendFlags::FENCE, FENCE)
        | moved(asked, SendFlags::SOLICITED, SOLICITED)
}

/// `to` if `flag`, both of one bit, is among those asked for, else nothing: without a branch.
#[inline(always)]
fn moved(asked: SendFlags, flag: SendFlags, to: u32) -> u32 {
    let bit = u32::from((asked & flag).bits());
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

/// Has no request of a list carry its data from `bad` on; false, and nothing changed, if `bad` does not carry any or is
/// none of the list.
///
/// # Safety
/// `first` begins a list of requests, of which nobody else makes use.
#[cold]
unsafe fn carry_nothing_from(first: *mut ibv_send_wr, bad: *mut ibv_send_wr) -> bool {
    let mut request = first;
    while !request.is_null() && request != bad {
        // SAFETY: one of the list.
        request = unsafe { (*request).next };
    }
    // SAFETY: one of the list, or null.
    if request.is_null() || unsafe { (*request).send_flags } & INLINE == 0 {
        return false;
    }
    while !request.is_null() {
        // SAFETY: one of the list.
        unsafe {
            (*request).send_flags &= !INLINE;
            request = (*request).next;
        }
    }
    true
}

/// How many requests of a list follow `bad`, itself included: all if it is none of them.
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
        // SAFETY: one of the list.
        request = unsafe { (*request).next };
    }
    count.wrapping_sub(before)
}

pub(super) fn blank() -> ibv_send_wr {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// What is reached by pointers alone until `free` takes it back.
pub(super) fn leak<T>(values: Vec<T>) -> NonNull<[T]> {
    NonNull::from(Box::leak(values.into_boxed_slice()))
}

/// # Safety
/// `values` came from `leak`, and nothing refers to them any more.
pub(super) unsafe fn free<T>(values: NonNull<[T]>) {
    // SAFETY: as the caller promised.
    drop(unsafe { Box::from_raw(values.as_ptr()) });
}

impl Drop for SendList {
    fn drop(&mut self) {
        // SAFETY: made by `over`, with so many places, and dropped once.
        unsafe {
            free(NonNull::slice_from_raw_parts(self.first, self.room()));
            free(self.segments);
            for bind in self.binds {
                drop(Box::from_raw(bind.as_ptr()));
            }
        }
    }
}
