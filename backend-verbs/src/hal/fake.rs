//! A device that is not there: a table of functions of our own behind zeroed objects, to drive the data path with.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use rdma_sys::{
    ibv_context, ibv_cq, ibv_mw, ibv_mw_bind, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc,
    ibv_wr_opcode,
};

use super::send_list::INLINE;
use super::{CompletionQueue, ReceiveList, SendList, WorkCompletion};

/// A request as the device got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: u64,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    /// Address, length, key.
    pub(crate) segments: Vec<(u64, u32, u32)>,
    /// Address and key at the peer.
    pub(crate) remote: (u64, u32),
    /// What it carried.
    pub(crate) data: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    requests: Vec<Posted>,
    receives: Vec<Posted>,
    /// Requests and receives that are still taken.
    room: Option<usize>,
    /// Bytes that it takes in requests; whatever was said.
    takes_inline: Option<usize>,
    /// Names a refused request that is none of the list.
    lies_about_refused: bool,
    completions: VecDeque<WorkCompletion>,
    /// What polls answer instead of completions.
    nonsense: Option<i32>,
    polls: usize,
    notifications: Vec<bool>,
    /// Completes this at the moment it is armed.
    slips_in: Option<WorkCompletion>,
}

/// The device.
pub(crate) struct Device {
    queue_pair: Box<ibv_qp>,
    completion_queue: Box<ibv_cq>,
    state: Box<RefCell<State>>,
    _context: Box<ibv_context>,
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: used for structures of C alone, for all of which zero is a value.
    unsafe { Box::new(MaybeUninit::<T>::zeroed().assume_init()) }
}

impl Device {
    pub(crate) fn new() -> Self {
        let state = Box::<RefCell<State>>::default();
        let mut context = zeroed::<ibv_context>();
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_receive);
        context.ops.poll_cq = Some(poll);
        context.ops.req_notify_cq = Some(notify);
        let mut queue_pair = zeroed::<ibv_qp>();
        queue_pair.context = &raw mut *context;
        queue_pair.qp_context = ptr::from_ref(&*state).cast_mut().cast();
        queue_pair.qp_num = 17;
        let mut completion_queue = zeroed::<ibv_cq>();
        completion_queue.context = &raw mut *context;
        completion_queue.cq_context = ptr::from_ref(&*state).cast_mut().cast();
        Self {
            queue_pair,
            completion_queue,
            state,
            _context: context,
        }
    }

    fn pair(&self) -> NonNull<ibv_qp> {
        NonNull::from(&*self.queue_pair)
    }

    /// A send list on its one queue pair.
    pub(crate) fn send_list(&self, depth: u32, segments: u32) -> SendList {
        self.carrying_list(depth, segments, 0)
    }

    /// As `send_list`; requests carry so many bytes.
    pub(crate) fn carrying_list(&self, depth: u32, segments: u32, inline: u32) -> SendList {
        SendList::borrowed(post_send, Some(bind), self.pair(), depth, segments, inline)
    }

    /// A receive list on its one queue pair.
    pub(crate) fn receive_list(&self, depth: u32, segments: u32) -> ReceiveList {
        ReceiveList::borrowed(post_receive, self.pair(), depth, segments)
    }

    /// Its one completion queue.
    pub(crate) fn completion_queue(&self) -> Arc<CompletionQueue> {
        let raw = NonNull::from(&*self.completion_queue);
        Arc::new(CompletionQueue::borrowed(raw, poll, notify))
    }

    /// The requests that were posted since the last call, and in how many calls.
    pub(crate) fn take_requests(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state.borrow_mut();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.requests))
    }

    /// The receives that were posted since the last call, and in how many calls.
    pub(crate) fn take_receives(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state.borrow_mut();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.receives))
    }

    /// Takes so many more and refuses the rest.
    pub(crate) fn refuse_after(&self, room: usize) {
        self.state.borrow_mut().room = Some(room);
    }

    /// Takes everything again.
    pub(crate) fn refuse_nothing(&self) {
        self.state.borrow_mut().room = None;
    }

    /// Takes so many bytes in a request and refuses those with more.
    pub(crate) fn take_inline(&self, bytes: usize) {
        self.state.borrow_mut().takes_inline = Some(bytes);
    }

    /// Names a refused request that it never got.
    pub(crate) fn lie_about_refused(&self) {
        self.state.borrow_mut().lies_about_refused = true;
    }

    /// Has a completion for whoever polls.
    pub(crate) fn complete(&self, completion: WorkCompletion) {
        self.state.borrow_mut().completions.push_back(completion);
    }

    /// Answers polls with a number instead of completions.
    pub(crate) fn answer(&self, number: i32) {
        self.state.borrow_mut().nonsense = Some(number);
    }

    /// Completes this when it is armed next.
    pub(crate) fn slip_in(&self, completion: WorkCompletion) {
        self.state.borrow_mut().slips_in = Some(completion);
    }

    /// How often it was polled.
    pub(crate) fn polls(&self) -> usize {
        self.state.borrow().polls
    }

    /// How it was armed: for solicited completions only?
    pub(crate) fn notifications(&self) -> Vec<bool> {
        self.state.borrow().notifications.clone()
    }
}

/// The state behind a context pointer that `Device::new` set.
///
/// # Safety
/// The device lives.
unsafe fn state<'a>(context: *mut core::ffi::c_void) -> &'a RefCell<State> {
    // SAFETY: `Device::new` put it there, and the device lives.
    unsafe { &*context.cast::<RefCell<State>>() }
}

unsafe extern "C" fn post_send(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device that lives, and a list as verbs has it.
    unsafe {
        let mut state = state((*queue_pair).qp_context).borrow_mut();
        state.calls += 1;
        let mut next = first;
        while !next.is_null() {
            if state.room == Some(0) {
                *bad = if state.lies_about_refused {
                    ptr::dangling_mut()
                } else {
                    next
                };
                return libc::ENOMEM;
            }
            state.room = state.room.map(|room| room - 1);
            let request = &*next;
            let remote = match request.opcode {
                ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_READ => {
                    (request.wr.rdma.remote_addr, request.wr.rdma.rkey)
                }
                ibv_wr_opcode::IBV_WR_LOCAL_INV => {
                    (0, request.imm_data_invalidated_rkey_union.invalidated_rkey)
                }
                ibv_wr_opcode::IBV_WR_BIND_MW => {
                    let bind = request.bind_mw_tso_union.bind_mw;
                    (bind.bind_info.addr, bind.rkey)
                }
                _ => (0, 0),
            };
            let segments = segments(request.sg_list, request.num_sge);
            let carries = request.send_flags & INLINE != 0;
            let data = carries.then(|| bytes(&segments));
            if let (Some(data), Some(most)) = (&data, state.takes_inline)
                && data.len() > most
            {
                *bad = next;
                return libc::EINVAL;
            }
            let posted = Posted {
                token: request.wr_id,
                opcode: request.opcode,
                flags: request.send_flags,
                segments,
                remote,
                data,
            };
            state.requests.push(posted);
            next = request.next;
        }
    }
    0
}

unsafe extern "C" fn post_receive(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device that lives, and a list as verbs has it.
    unsafe {
        let mut state = state((*queue_pair).qp_context).borrow_mut();
        state.calls += 1;
        let mut next = first;
        while !next.is_null() {
            if state.room == Some(0) {
                *bad = next;
                return libc::ENOMEM;
            }
            state.room = state.room.map(|room| room - 1);
            let request = &*next;
            let posted = Posted {
                token: request.wr_id,
                opcode: 0,
                flags: 0,
                segments: segments(request.sg_list, request.num_sge),
                remote: (0, 0),
                data: None,
            };
            state.receives.push(posted);
            next = request.next;
        }
    }
    0
}

/// # Safety
/// So many segments are there.
unsafe fn segments(first: *const rdma_sys::ibv_sge, count: i32) -> Vec<(u64, u32, u32)> {
    (0..usize::try_from(count).expect("a count"))
        .map(|at| {
            // SAFETY: one of the segments.
            let segment = unsafe { &*first.add(at) };
            (segment.addr, segment.length, segment.lkey)
        })
        .collect()
}

/// # Safety
/// The segments are memory.
unsafe fn bytes(segments: &[(u64, u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(address, length, _) in segments {
        let first = ptr::with_exposed_provenance::<u8>(address as usize);
        for offset in 0..length as usize {
            // SAFETY: as the caller promised.
            bytes.push(unsafe { first.add(offset).read_volatile() });
        }
    }
    bytes
}

unsafe extern "C" fn bind(_: *mut ibv_qp, window: *mut ibv_mw, _: *mut ibv_mw_bind) -> i32 {
    // SAFETY: a window as verbs has it.
    unsafe { (*window).rkey += 1 };
    0
}

unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with the queue of a device that lives, and room for so many.
    unsafe {
        let mut state = state((*queue).cq_context).borrow_mut();
        state.polls += 1;
        if let Some(number) = state.nonsense {
            return number;
        }
        let mut count = 0;
        while count < room
            && let Some(completion) = state.completions.pop_front()
        {
            let to = &mut *into.add(count as usize);
            to.wr_id = completion.token;
            to.status = completion.status;
            to.opcode = completion.opcode;
            to.byte_len = completion.length;
            to.qp_num = completion.queue_pair;
            count += 1;
        }
        count
    }
}

unsafe extern "C" fn notify(queue: *mut ibv_cq, solicited_only: i32) -> i32 {
    // SAFETY: called with the queue of a device that lives.
    let mut state = unsafe { state((*queue).cq_context) }.borrow_mut();
    state.notifications.push(solicited_only != 0);
    if let Some(completion) = state.slips_in.take() {
        state.completions.push_back(completion);
    }
    0
}
