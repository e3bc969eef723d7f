//! The device that records requests, and does what its script tells.

use core::mem::offset_of;
use core::ptr;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    ibv_context, ibv_context_ops, ibv_cq, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, ibv_wr_opcode,
};

use super::counting::Posts;
use super::requests::{Found, INLINE, SIGNALLED, data, hand_out, segments, take_each};
use super::{Object, make_readable, zeroed};

/// Status of a completion: flushed, and a failed bind.
const FLUSHED: u32 = 5;
const BIND_FAILED: u32 = 6;

/// A request as the device received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// The number by which the completion names it.
    pub token: u64,
    /// The operation code.
    pub opcode: u32,
    /// The flags of the request.
    pub flags: u32,
    /// Address, length and key of each segment.
    pub segments: Vec<(u64, u32, u32)>,
    /// Address and key at the peer.
    pub remote: (u64, u32),
    /// Inline data.
    pub data: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    requests: Vec<Posted>,
    receives: Vec<Posted>,
    /// Flags and rights of the requests that opened or closed windows.
    binds: Vec<(u32, u32)>,
    /// Number of requests and receives that it still accepts.
    room: Option<usize>,
    /// Most bytes of inline data that it accepts, whatever it granted.
    takes_inline: Option<usize>,
    /// Set if it names a refused request that is not in the list.
    forges_refused: bool,
    completions: VecDeque<Found>,
    /// Number that polls return instead of completions.
    nonsense: Option<i32>,
    polls: usize,
    notifications: Vec<bool>,
    /// Completion that arrives at the moment of the next arming.
    slips_in: Option<Found>,
    /// Windows of the device.
    ///
    /// Each key has the lowest index that was free when the window was made, as on many devices.
    windows: Vec<Opened>,
    /// Most windows that it can have.
    most_windows: Option<usize>,
    /// Set if it executes and completes requests about windows.
    works: bool,
    /// Set once its queue pair is in error, so that it executes no more requests.
    failed: bool,
    /// Number of window requests that it executes before one fails.
    fails_after: Option<usize>,
}

/// A window of the device.
#[derive(Debug)]
struct Opened {
    window: usize,
    /// Key by which the device knows it.
    key: u32,
    /// Region that it opens.
    region: Option<usize>,
}

/// Answers of an open device, and the requests that it got. All of its objects share them.
#[derive(Debug)]
pub struct Script {
    context: usize,
    /// Set on the device that checks requests, which follows no script.
    pub(super) is_strict: bool,
    pub(super) posts: Posts,
    state: Mutex<State>,
}

thread_local! {
    static OPENED: RefCell<Option<Arc<Script>>> = const { RefCell::new(None) };
}

/// Returns the script of the device that this thread opened last.
///
/// # Panics
/// It opened none.
pub fn opened() -> Arc<Script> {
    OPENED.with_borrow(Clone::clone).expect("an open device")
}

/// Makes the script of a new context, which must keep it.
pub(super) fn of(context: *mut ibv_context, is_strict: bool) -> Arc<Script> {
    let script = Arc::new(Script {
        context: context as usize,
        is_strict,
        posts: Posts::new(),
        state: Mutex::default(),
    });
    // A field without another use leads to the script.
    // SAFETY: the caller has just made the context.
    unsafe { (*context).abi_compat = Arc::as_ptr(&script).cast_mut().cast() };
    OPENED.set(Some(Arc::clone(&script)));
    script
}

/// Replaces the operations of a new context by those of this device.
pub(super) fn take_over(operations: &mut ibv_context_ops) {
    operations.post_send = Some(post_send);
    operations.post_recv = Some(post_receive);
    operations.post_srq_recv = Some(post_shared);
    operations.poll_cq = Some(poll);
    operations.req_notify_cq = Some(notify);
    operations.alloc_mw = Some(make_window);
    operations.dealloc_mw = Some(free_window);
    operations.bind_mw = Some(bind);
}

/// An element of an event: its number is where completion queues, queue pairs and shared receive
/// queues have theirs.
pub(super) type Element = [usize; 3];

const _: () = {
    assert!(offset_of!(ibv_cq, cq_context) == 16);
    assert!(offset_of!(ibv_qp, qp_context) == 8 && offset_of!(ibv_srq, srq_context) == 8);
};

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event of this kind about an object that was made with this number.
    ///
    /// No such object need exist. A device that was closed reports nothing.
    pub fn report(&self, kind: u32, number: usize) {
        let mut state = super::state();
        if !state.objects.contains_key(&self.context) {
            return;
        }
        let element = zeroed::<Element>();
        // SAFETY: just made.
        unsafe { *element = [0, number, number] };
        state.elements.push(element as usize);
        state
            .asynchronous
            .push_back((self.context, kind, element as usize));
        // SAFETY: it is open.
        make_readable(unsafe { (*(self.context as *mut ibv_context)).async_fd });
    }

    /// Limits the number of windows to `most`.
    pub fn have_windows(&self, most: usize) {
        self.state().most_windows = Some(most);
    }

    /// Starts to execute and complete requests about windows.
    ///
    /// After the next `after` requests, if that is set, one fails.
    pub fn work(&self, after: Option<usize>) {
        let mut state = self.state();
        state.works = true;
        state.failed = false;
        state.fails_after = after;
    }

    /// Starts to flush posts, as a queue pair in error does.
    pub fn flush(&self) {
        self.state().failed = true;
    }

    /// Returns true if a peer can access memory by this key.
    pub fn opens(&self, key: u32) -> bool {
        let state = self.state();
        let mut windows = state.windows.iter();
        windows.any(|opened| opened.key == key && opened.region.is_some())
    }

    /// Returns the number of windows.
    pub fn windows(&self) -> usize {
        self.state().windows.len()
    }

    /// Takes the requests posted since the last call; returns the number of calls with them.
    pub fn take_requests(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.requests))
    }

    /// Takes the receives posted since the last call; returns the number of calls with them.
    pub fn take_receives(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.receives))
    }

    /// Takes flags and rights of the binds posted since the last call.
    ///
    /// A close has no rights.
    pub fn take_binds(&self) -> Vec<(u32, u32)> {
        core::mem::take(&mut self.state().binds)
    }

    /// Accepts `room` more posts and refuses the rest.
    pub fn refuse_after(&self, room: usize) {
        self.state().room = Some(room);
    }

    /// Accepts all posts again.
    pub fn refuse_nothing(&self) {
        self.state().room = None;
    }

    /// Accepts requests with up to `bytes` of inline data and refuses longer ones.
    pub fn take_inline(&self, bytes: usize) {
        self.state().takes_inline = Some(bytes);
    }

    /// Names, on a refusal, a request that it never got.
    pub fn forge_refused(&self) {
        self.state().forges_refused = true;
    }

    /// Queues a completion.
    pub fn complete(&self, completion: Found) {
        self.state().completions.push_back(completion);
    }

    /// Returns `number` from polls instead of completions.
    pub fn answer(&self, number: i32) {
        self.state().nonsense = Some(number);
    }

    /// Queues a completion at the next arming.
    pub fn slip_in(&self, completion: Found) {
        self.state().slips_in = Some(completion);
    }

    /// Returns the number of polls.
    pub fn polls(&self) -> usize {
        self.state().polls
    }

    /// Returns, for each arming, true if it was for solicited completions only.
    pub fn notifications(&self) -> Vec<bool> {
        self.state().notifications.clone()
    }

    /// Returns the numbers of its queue pairs.
    pub fn pairs(&self) -> Vec<u32> {
        let state = super::state();
        let is_own = |domain: &usize| {
            let known = state.objects.get(domain);
            matches!(known, Some(Object::Domain { context }) if *context == self.context)
        };
        let pairs = state.objects.values().filter_map(|object| match object {
            Object::Pair(pair) if is_own(&pair.domain) => Some(pair.number),
            _ => None,
        });
        pairs.collect()
    }

    /// Completes all posts of a device that counts.
    pub fn complete_all(&self) {
        self.posts.complete_all();
    }
}

impl State {
    /// Takes one of the places for posts.
    ///
    /// # Errors
    /// None is left.
    fn take_place(&mut self) -> Result<(), i32> {
        if self.room == Some(0) {
            return Err(libc::ENOMEM);
        }
        self.room = self.room.map(|room| room - 1);
        Ok(())
    }

    /// Takes a request.
    ///
    /// # Safety
    /// `request` is a valid request of verbs.
    unsafe fn take(&mut self, request: &ibv_send_wr, pair: u32) -> Result<(), i32> {
        self.take_place()?;
        // SAFETY: the operation code says which field of the union is valid.
        let remote = unsafe {
            match request.opcode {
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
                | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    (request.wr.atomic.remote_addr, request.wr.atomic.rkey)
                }
                ibv_wr_opcode::IBV_WR_RDMA_WRITE
                | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
                | ibv_wr_opcode::IBV_WR_RDMA_READ => {
                    (request.wr.rdma.remote_addr, request.wr.rdma.rkey)
                }
                ibv_wr_opcode::IBV_WR_LOCAL_INV => {
                    self.binds.push((request.send_flags, 0));
                    (0, request.imm_data_invalidated_rkey_union.invalidated_rkey)
                }
                ibv_wr_opcode::IBV_WR_BIND_MW => {
                    let bind = request.bind_mw_tso_union.bind_mw;
                    let rights = bind.bind_info.mw_access_flags;
                    self.binds.push((request.send_flags, rights));
                    (bind.bind_info.addr, bind.rkey)
                }
                _ => (0, 0),
            }
        };
        // SAFETY: the caller promises the request, with its segments.
        let (segments, data) = unsafe {
            let carries = request.send_flags & INLINE != 0;
            let segments = segments(request.sg_list, request.num_sge);
            (segments, carries.then(|| data(request)))
        };
        if let (Some(data), Some(most)) = (&data, self.takes_inline)
            && data.len() > most
        {
            return Err(libc::EINVAL);
        }
        self.requests.push(Posted {
            token: request.wr_id,
            opcode: request.opcode,
            flags: request.send_flags,
            segments,
            remote,
            data,
        });
        // SAFETY: as the caller promised.
        unsafe { self.carry_out(request, pair) };
        Ok(())
    }

    /// Executes a request about a window, as soft-RoCE does.
    ///
    /// # Safety
    /// `request` is a valid request of verbs.
    unsafe fn carry_out(&mut self, request: &ibv_send_wr, pair: u32) {
        if !self.works {
            return;
        }
        let due = self.fails_after == Some(0);
        self.fails_after = self.fails_after.map(|left| left.saturating_sub(1));
        // SAFETY: the operation code says which field of the union is valid.
        let done = unsafe {
            match request.opcode {
                _ if due || self.failed => None,
                ibv_wr_opcode::IBV_WR_LOCAL_INV => {
                    let key = request.imm_data_invalidated_rkey_union.invalidated_rkey;
                    self.windows
                        .iter_mut()
                        .find(|opened| opened.key == key && opened.region.is_some())
                        .map(|opened| opened.region = None)
                }
                ibv_wr_opcode::IBV_WR_BIND_MW => {
                    let bind = request.bind_mw_tso_union.bind_mw;
                    // The device names the window by the key that the owner stored.
                    let named = (*bind.mw).rkey;
                    self.windows
                        .iter_mut()
                        .find(|opened| opened.window == bind.mw as usize)
                        .filter(|opened| opened.key == named && opened.region.is_none())
                        .filter(|opened| (opened.key ^ bind.rkey) & 0xFF != 0)
                        .filter(|_| bind.bind_info.length != 0)
                        .map(|opened| {
                            opened.key = opened.key & !0xFF | bind.rkey & 0xFF;
                            opened.region = Some(bind.bind_info.mr as usize);
                        })
                }
                _ => Some(()),
            }
        };
        let signalled = request.send_flags & SIGNALLED != 0;
        self.finish(request.wr_id, done.is_some(), signalled, pair);
    }

    /// Completes a request; a failed one leaves the queue pair in error.
    fn finish(&mut self, token: u64, done: bool, signalled: bool, pair: u32) {
        let status = match done {
            _ if self.failed => FLUSHED,
            true => 0,
            false => BIND_FAILED,
        };
        self.failed |= status != 0;
        if status != 0 || signalled {
            self.completions.push_back(Found {
                token,
                status,
                opcode: 0,
                length: 0,
                pair,
            });
        }
    }
}

/// Returns the state of a context.
///
/// # Safety
/// The context is open.
unsafe fn state<'a>(context: *mut ibv_context) -> MutexGuard<'a, State> {
    // SAFETY: `of` stored the script, which the context keeps.
    unsafe { (*script(context)).state() }
}

/// Returns the script of a context.
///
/// # Safety
/// The context is open.
pub(super) unsafe fn script(context: *mut ibv_context) -> *const Script {
    // SAFETY: as the caller promised.
    unsafe { (*context).abi_compat.cast_const().cast() }
}

unsafe extern "C" fn make_window(domain: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    // SAFETY: called with a domain that lives.
    unsafe {
        let mut state = state((*domain).context);
        if state.most_windows == Some(state.windows.len()) {
            return ptr::null_mut();
        }
        let is_free = |index: &u32| state.windows.iter().all(|one| one.key >> 8 != *index);
        let key = (1..).find(is_free).expect("an index") << 8;
        let window = zeroed::<ibv_mw>();
        ((*window).context, (*window).pd) = ((*domain).context, domain);
        ((*window).type_, (*window).rkey) = (kind, key);
        state.windows.push(Opened {
            window: window as usize,
            key,
            region: None,
        });
        window
    }
}

unsafe extern "C" fn free_window(window: *mut ibv_mw) -> i32 {
    // SAFETY: called once with a window of `make_window`.
    unsafe {
        let mut state = state((*window).context);
        state
            .windows
            .retain(|opened| opened.window != window as usize);
        super::free(window);
    }
    0
}

/// Returns true if a window is open on a region.
///
/// # Safety
/// The region lives.
pub(super) unsafe fn is_open(region: *mut ibv_mr) -> bool {
    // SAFETY: as the caller promised.
    let state = unsafe { state((*region).context) };
    let mut windows = state.windows.iter();
    windows.any(|opened| opened.region == Some(region as usize))
}

unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called with a queue pair that lives, and a valid list of verbs.
    unsafe {
        let mut state = state((*pair).context);
        state.calls += 1;
        let take = |request: &ibv_send_wr| state.take(request, (*pair).qp_num);
        let refused = take_each((first, |request| request.next), bad, take);
        if refused == libc::ENOMEM && state.forges_refused {
            *bad = ptr::dangling_mut();
        }
        refused
    }
}

/// Takes a list of receives.
///
/// # Safety
/// The context is open, the list is valid, and there is room for the refused one.
unsafe fn take_receives(
    context: *mut ibv_context,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: as the caller promised.
    unsafe {
        let mut state = state(context);
        state.calls += 1;
        let take = |receive: &ibv_recv_wr| {
            state.take_place()?;
            state.receives.push(Posted {
                token: receive.wr_id,
                segments: segments(receive.sg_list, receive.num_sge),
                ..Posted::default()
            });
            Ok(())
        };
        take_each((first, |receive| receive.next), bad, take)
    }
}

unsafe extern "C" fn post_receive(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with a queue pair that lives, and a valid list of verbs.
    unsafe { take_receives((*pair).context, first, bad) }
}

unsafe extern "C" fn post_shared(
    shared: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with a queue that lives, and a valid list of verbs.
    unsafe { take_receives((*shared).context, first, bad) }
}

/// Returns the next key of a window; only the lowest byte counts.
pub(super) fn next_key(key: u32) -> u32 {
    key & !0xFF | key.wrapping_add(1) & 0xFF
}

/// Binds at once, under another key; length 0 closes the window.
unsafe extern "C" fn bind(pair: *mut ibv_qp, window: *mut ibv_mw, wanted: *mut ibv_mw_bind) -> i32 {
    // SAFETY: called with a window of `make_window`, and a valid bind of verbs.
    unsafe {
        let mut state = state((*window).context);
        if state.room == Some(0) {
            return libc::ENOMEM;
        }
        // The window is named by the key of the last bind, successful or not.
        let named = (*window).rkey;
        (*window).rkey = next_key(named);
        let (token, info) = ((*wanted).wr_id, &(*wanted).bind_info);
        let region = (info.length != 0).then_some(info.mr as usize);
        let rights = region.map_or(0, |_| info.mw_access_flags);
        state.binds.push(((*wanted).send_flags, rights));
        state.requests.push(Posted {
            token,
            opcode: ibv_wr_opcode::IBV_WR_BIND_MW,
            ..Posted::default()
        });
        if !state.works {
            return 0;
        }
        let flushes = state.failed;
        let mut windows = state.windows.iter_mut();
        let meant = windows.find(|one| one.window == window as usize && one.key == named);
        let done = meant.filter(|_| !flushes).map(|opened| {
            opened.key = next_key(named);
            opened.region = region;
        });
        let done = done.is_some();
        state.finish(token, done, true, (*pair).qp_num);
    }
    0
}

unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with a queue that lives, and room for `room` entries.
    unsafe {
        let mut state = state((*queue).context);
        state.polls += 1;
        match state.nonsense {
            Some(number) => number,
            None => hand_out(&mut state.completions, room, into),
        }
    }
}

unsafe extern "C" fn notify(queue: *mut ibv_cq, solicited_only: i32) -> i32 {
    // SAFETY: called with a queue that lives.
    let mut state = unsafe { state((*queue).context) };
    state.notifications.push(solicited_only != 0);
    if let Some(completion) = state.slips_in.take() {
        state.completions.push_back(completion);
    }
    0
}
