//! Send requests: filled in place, linked, handed over in one call.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, Rejected, Segment, SendFlags, SendOperation, SendRequest};
use rdma_sys::{
    bind_mw_t, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wr_opcode, imm_data_invalidated_rkey_union_t, rdma_t,
};

use super::{Access, QueuePair, Region, Window};

type Post = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;
type Bind = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> i32;

/// Requests that are gathered before they have to be handed over.
const ROOM: usize = 64;

/// Requests between their filling and the device, and the queue pair they go to.
pub(crate) struct SendList {
    post: Post,
    bind: Option<Bind>,
    queue_pair: NonNull<ibv_qp>,
    /// Keeps the queue pair; none where somebody else does.
    _owner: Option<Arc<QueuePair>>,
    requests: Box<[ibv_send_wr]>,
    /// `stride` segments for each request.
    segments: Box<[ibv_sge]>,
    stride: usize,
    /// The place that is filled, and how many of its segments are.
    place: usize,
    filled: usize,
    /// Committed and not handed over: so many, ending before `place`.
    pending: usize,
    /// Committed, handed over and refused, which nobody was told yet.
    refused: u32,
}

// SAFETY: the pointers in it lead into itself or to the queue pair that it keeps, which any thread may use.
unsafe impl Send for SendList {}

impl core::fmt::Debug for SendList {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("SendList")
            .field("room", &self.requests.len())
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl SendList {
    /// Requests of up to `segments` segments for a queue pair that takes `depth` of them.
    pub(crate) fn new(
        owner: Arc<QueuePair>,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let operations = owner.domain().operations();
        let post = operations.post_send.ok_or(BackendError::NotSupported)?;
        let bind = operations.bind_mw;
        let queue_pair = NonNull::new(owner.raw()).ok_or(BackendError::Device)?;
        Ok(Self::over(
            post,
            bind,
            queue_pair,
            Some(owner),
            depth,
            segments,
        ))
    }

    #[cfg(test)]
    pub(super) fn borrowed(
        post: Post,
        bind: Option<Bind>,
        queue_pair: NonNull<ibv_qp>,
        depth: u32,
        segments: u32,
    ) -> Self {
        Self::over(post, bind, queue_pair, None, depth, segments)
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
        let stride = segments as usize;
        Self {
            post,
            bind,
            queue_pair,
            _owner: owner,
            requests: std::iter::repeat_with(blank).take(room).collect(),
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
        }
    }

    /// Makes room for a request of so many segments; false if it is too long.
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

    /// Adds a segment to the request that was begun.
    #[inline]
    pub(crate) fn segment(&mut self, segment: Segment) {
        if self.filled >= self.stride {
            return;
        }
        // At most room times stride, which is the length.
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

    /// Completes the request that was begun.
    #[inline]
    pub(crate) fn commit(&mut self, request: &SendRequest) -> Result<(), Rejected> {
        let Some(to) = self.requests.get_mut(self.place) else {
            return Err(Rejected);
        };
        to.wr_id = request.token;
        // No more than `stride`.
        to.num_sge = self.filled as i32;
        to.send_flags = flags(request.flags);
        match request.operation {
            SendOperation::Send => to.opcode = ibv_wr_opcode::IBV_WR_SEND,
            SendOperation::RdmaWrite(range) => {
                to.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                to.wr.rdma = rdma_t {
                    remote_addr: range.address,
                    rkey: range.key,
                };
            }
            SendOperation::RdmaRead(range) => {
                to.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                to.wr.rdma = rdma_t {
                    remote_addr: range.address,
                    rkey: range.key,
                };
            }
        }
        self.place = self.after(self.place);
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

    #[inline]
    fn after(&self, place: usize) -> usize {
        let next = place.wrapping_add(1);
        if next == self.requests.len() { 0 } else { next }
    }

    #[inline]
    fn hand_over(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        if pending == 0 {
            return;
        }
        if self.refused != 0 {
            // What comes behind a refused request is refused too, or the order would be lost.
            self.refused = self.refused.saturating_add(pending as u32);
            return;
        }
        let room = self.requests.len();
        // `pending` is at most `room`, `place` below it.
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
            let mut last: *mut ibv_send_wr = ptr::null_mut();
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
            if (self.post)(self.queue_pair.as_ptr(), first, &raw mut bad) != 0 {
                self.refused = newest_from(first, bad, pending);
            }
        }
    }

    /// Binds a window of type 1, which gives it another key; an opening of no length unbinds it.
    pub(crate) fn bind_by_call(
        &mut self,
        window: &Window,
        opening: &Opening<'_>,
        token: u64,
        fence: SendFlags,
    ) -> Result<u32, Rejected> {
        self.hand_over();
        let Some(bind) = self.bind.filter(|_| self.refused == 0) else {
            return Err(Rejected);
        };
        let mut wanted = ibv_mw_bind {
            wr_id: token,
            send_flags: flags(fence),
            bind_info: info(opening),
        };
        // SAFETY: queue pair, window and region live; the caller holds the lock of the window.
        let answer = unsafe { bind(self.queue_pair.as_ptr(), window.raw(), &raw mut wanted) };
        if answer != 0 {
            return Err(Rejected);
        }
        Ok(window.remote_key())
    }

    /// Binds a window of type 2 to a new key, closing what was open by `old` first; without an opening it only
    /// closes.
    pub(crate) fn bind_by_request(
        &mut self,
        window: &Window,
        old: Option<u32>,
        opening: Option<(&Opening<'_>, u32)>,
        token: u64,
        fence: SendFlags,
    ) -> Result<(), Rejected> {
        self.hand_over();
        if self.refused != 0 {
            return Err(Rejected);
        }
        let mut close = blank();
        close.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
        close.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t {
            invalidated_rkey: old.unwrap_or(0),
        };
        close.send_flags = flags(fence);
        close.wr_id = token;
        let mut open = blank();
        open.wr_id = token;
        open.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
        open.send_flags = flags(fence);
        if let Some((opening, key)) = opening {
            open.bind_mw_tso_union.bind_mw = bind_mw_t {
                mw: window.raw(),
                rkey: key,
                bind_info: info(opening),
            };
        }
        let first = match (old, opening) {
            (Some(_), Some(_)) => {
                // One completion for both: that of the bind, or of the close if it fails.
                close.send_flags &= !ibv_send_flags::IBV_SEND_SIGNALED.0;
                close.wr_id = QUIET;
                close.next = &raw mut open;
                &raw mut close
            }
            (Some(_), None) => &raw mut close,
            (None, Some(_)) => &raw mut open,
            (None, None) => {
                // Nothing is open and nothing is to be: a write of no bytes keeps the place in the order.
                open.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                &raw mut open
            }
        };
        let mut bad = ptr::null_mut();
        // SAFETY: queue pair, window and region live, and both requests until the call returns.
        let answer = unsafe { (self.post)(self.queue_pair.as_ptr(), first, &raw mut bad) };
        if answer == 0 { Ok(()) } else { Err(Rejected) }
    }
}

/// The flag of requests that complete.
#[cfg(feature = "fake")]
pub(super) const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

/// The token of requests that nobody is to hear of.
pub(crate) const QUIET: u64 = u64::MAX;

/// What a window is to open.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) region: &'a Region,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
}

fn info(opening: &Opening<'_>) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: opening.region.raw(),
        addr: opening.address,
        length: opening.length,
        mw_access_flags: opening.access.0,
    }
}

/// Every request is signalled: the core wants one completion for each.
#[inline]
fn flags(asked: SendFlags) -> u32 {
    let mut flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
    if asked.contains(SendFlags::FENCE) {
        flags |= ibv_send_flags::IBV_SEND_FENCE.0;
    }
    if asked.contains(SendFlags::SOLICITED) {
        flags |= ibv_send_flags::IBV_SEND_SOLICITED.0;
    }
    flags
}

/// How many of a list of `count` requests follow `bad`, itself included: all if it is none of them.
///
/// # Safety
/// `first` begins a list of `count` requests.
#[cold]
unsafe fn newest_from(first: *mut ibv_send_wr, bad: *mut ibv_send_wr, count: usize) -> u32 {
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

fn blank() -> ibv_send_wr {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
