//! A fake device for tests of the data path: a function table on zeroed objects.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::{self, NonNull};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd,
    ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc, ibv_wr_opcode, rdma_event_channel,
};

use super::send_list::{INLINE, SIGNALLED};
use super::{
    AsyncEvent, AsyncEvents, CompletionChannel, CompletionQueue, Context, Domain, EventChannel,
    EventFd, ReceiveList, Region, SendList, WorkCompletion, pretend,
};

/// Asynchronous events of a device that does not exist.
#[derive(Debug)]
pub(crate) struct Events {
    fd: EventFd,
    queue: Mutex<VecDeque<AsyncEvent>>,
}

impl Events {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            fd: EventFd::new().expect("a descriptor"),
            queue: Mutex::default(),
        })
    }

    /// Reports an event.
    pub(crate) fn report(&self, event: AsyncEvent) {
        self.queue.lock().expect("no panic").push_back(event);
        self.fd.raise();
    }
}

impl AsyncEvents for Events {
    fn fd(&self) -> RawFd {
        self.fd.fd()
    }

    fn next(&self) -> Option<AsyncEvent> {
        self.queue.lock().expect("no panic").pop_front()
    }
}

/// Keeps one more reference for ever: a drop of the last one would call the libraries.
fn kept<T>(value: T) -> Arc<T> {
    let value = Arc::new(value);
    core::mem::forget(Arc::clone(&value));
    value
}

/// Makes a context on which nothing can be made.
pub(crate) fn context() -> Arc<Context> {
    let raw = Box::leak(zeroed::<ibv_context>());
    kept(Context::borrowed(NonNull::from(raw)))
}

/// Makes a connection channel whose descriptor is `fd`.
pub(crate) fn event_channel(fd: RawFd) -> Arc<EventChannel> {
    let raw = Box::leak(zeroed::<rdma_event_channel>());
    raw.fd = fd;
    kept(EventChannel::borrowed(NonNull::from(raw)))
}

/// Makes a completion channel whose descriptor is `fd`.
pub(crate) fn completion_channel(fd: RawFd) -> Arc<CompletionChannel> {
    let raw = Box::leak(zeroed::<ibv_comp_channel>());
    raw.fd = fd;
    kept(CompletionChannel::borrowed(NonNull::from(raw), context()))
}

/// A request as the device received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: u64,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    /// Address, length and key of each segment.
    pub(crate) segments: Vec<(u64, u32, u32)>,
    /// Address and key at the peer.
    pub(crate) remote: (u64, u32),
    /// Inline data.
    pub(crate) data: Option<Vec<u8>>,
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
    completions: VecDeque<WorkCompletion>,
    /// Number that polls return instead of completions.
    nonsense: Option<i32>,
    polls: usize,
    notifications: Vec<bool>,
    /// Completion that arrives at the moment of the next arming.
    slips_in: Option<WorkCompletion>,
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
    window: *mut ibv_mw,
    /// Key by which the device knows it.
    key: u32,
    /// Region that it opens.
    region: Option<*mut ibv_mr>,
}

/// The fake device.
pub(crate) struct Device {
    queue_pair: Box<ibv_qp>,
    completion_queue: Box<ibv_cq>,
    state: Box<RefCell<State>>,
    /// Domain of regions and windows. A drop of it would call libibverbs.
    domain: ManuallyDrop<Arc<Domain>>,
    _protection: Box<ibv_pd>,
    context: Box<ibv_context>,
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: used only for C structures, for which zero is valid.
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
        context.ops.alloc_mw = Some(make_window);
        context.ops.dealloc_mw = Some(free_window);
        let mut protection = zeroed::<ibv_pd>();
        protection.context = &raw mut *context;
        // A field without another use leads to the device.
        context.abi_compat = ptr::from_ref(&*state).cast_mut().cast();
        let domain = Domain::borrowed(
            NonNull::from(&mut *protection),
            Arc::new(Context::borrowed(NonNull::from(&mut *context))),
        );
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
            domain: ManuallyDrop::new(Arc::new(domain)),
            _protection: protection,
            context,
        }
    }

    /// Makes a region, which must be released before the device.
    pub(crate) fn region(&self) -> Region {
        let mut region = zeroed::<ibv_mr>();
        region.context = self.queue_pair.context;
        let raw = NonNull::from(Box::leak(region));
        Region::borrowed(raw, Arc::clone(&self.domain), deregister)
    }

    /// Returns the domain of regions and windows.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Makes another domain of the same device.
    pub(crate) fn another_domain(&self) -> Arc<Domain> {
        let mut protection = zeroed::<ibv_pd>();
        protection.context = ptr::from_ref(&*self.context).cast_mut();
        let raw = NonNull::from(Box::leak(protection));
        let context = NonNull::from(&*self.context);
        // Keeps a reference for ever: a drop of the last one would call libibverbs.
        let domain = Arc::new(Domain::borrowed(raw, Arc::new(Context::borrowed(context))));
        core::mem::forget(Arc::clone(&domain));
        domain
    }

    /// Limits the number of windows to `most`.
    pub(crate) fn have_windows(&self, most: usize) {
        self.state.borrow_mut().most_windows = Some(most);
    }

    /// Starts to execute and complete requests about windows.
    ///
    /// After the next `after` requests, if that is set, one fails.
    pub(crate) fn work(&self, after: Option<usize>) {
        let mut state = self.state.borrow_mut();
        state.works = true;
        state.failed = false;
        state.fails_after = after;
    }

    /// Starts to flush posts, as a queue pair in error does.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().failed = true;
    }

    /// Returns true if a peer can access memory by this key.
    pub(crate) fn opens(&self, key: u32) -> bool {
        let state = self.state.borrow();
        let mut windows = state.windows.iter();
        windows.any(|opened| opened.key == key && opened.region.is_some())
    }

    /// Returns the number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.state.borrow().windows.len()
    }

    fn pair(&self) -> NonNull<ibv_qp> {
        NonNull::from(&*self.queue_pair)
    }

    /// Makes a send list on its queue pair.
    pub(crate) fn send_list(&self, depth: u32, segments: u32) -> SendList {
        self.carrying_list(depth, segments, 0)
    }

    /// As `send_list`, with `inline` bytes of inline data.
    pub(crate) fn carrying_list(&self, depth: u32, segments: u32, inline: u32) -> SendList {
        SendList::borrowed(post_send, Some(bind), self.pair(), depth, segments, inline)
    }

    /// Makes a receive list on its queue pair.
    pub(crate) fn receive_list(&self, depth: u32, segments: u32) -> ReceiveList {
        ReceiveList::borrowed(post_receive, self.pair(), depth, segments)
    }

    /// Returns its completion queue.
    pub(crate) fn completion_queue(&self) -> Arc<CompletionQueue> {
        let raw = NonNull::from(&*self.completion_queue);
        Arc::new(CompletionQueue::borrowed(raw, poll, notify))
    }

    /// Takes the requests posted since the last call; returns the number of calls with them.
    pub(crate) fn take_requests(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state.borrow_mut();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.requests))
    }

    /// Takes the receives posted since the last call; returns the number of calls with them.
    pub(crate) fn take_receives(&self) -> (usize, Vec<Posted>) {
        let mut state = self.state.borrow_mut();
        let calls = core::mem::take(&mut state.calls);
        (calls, core::mem::take(&mut state.receives))
    }

    /// Takes flags and rights of the binds posted since the last call.
    ///
    /// A close has no rights.
    pub(crate) fn take_binds(&self) -> Vec<(u32, u32)> {
        core::mem::take(&mut self.state.borrow_mut().binds)
    }

    /// Accepts `room` more posts and refuses the rest.
    pub(crate) fn refuse_after(&self, room: usize) {
        self.state.borrow_mut().room = Some(room);
    }

    /// Accepts all posts again.
    pub(crate) fn refuse_nothing(&self) {
        self.state.borrow_mut().room = None;
    }

    /// Accepts requests with up to `bytes` of inline data and refuses longer ones.
    pub(crate) fn take_inline(&self, bytes: usize) {
        self.state.borrow_mut().takes_inline = Some(bytes);
    }

    /// Names, on a refusal, a request that it never got.
    pub(crate) fn forge_refused(&self) {
        self.state.borrow_mut().forges_refused = true;
    }

    /// Queues a completion.
    pub(crate) fn complete(&self, completion: WorkCompletion) {
        self.state.borrow_mut().completions.push_back(completion);
    }

    /// Returns `number` from polls instead of completions.
    pub(crate) fn answer(&self, number: i32) {
        self.state.borrow_mut().nonsense = Some(number);
    }

    /// Queues a completion at the next arming.
    pub(crate) fn slip_in(&self, completion: WorkCompletion) {
        self.state.borrow_mut().slips_in = Some(completion);
    }

    /// Returns the number of polls.
    pub(crate) fn polls(&self) -> usize {
        self.state.borrow().polls
    }

    /// Returns, for each arming, true if it was for solicited completions only.
    pub(crate) fn notifications(&self) -> Vec<bool> {
        self.state.borrow().notifications.clone()
    }
}

impl State {
    /// Executes a request about a window, as soft-RoCE does.
    ///
    /// # Safety
    /// `request` is a valid request of verbs.
    unsafe fn carry_out(&mut self, request: &ibv_send_wr) {
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
                        .find(|opened| opened.window == bind.mw)
                        .filter(|opened| opened.key == named && opened.region.is_none())
                        .filter(|opened| (opened.key ^ bind.rkey) & 0xFF != 0)
                        .filter(|_| bind.bind_info.length != 0)
                        .map(|opened| {
                            opened.key = opened.key & !0xFF | bind.rkey & 0xFF;
                            opened.region = Some(bind.bind_info.mr);
                        })
                }
                _ => Some(()),
            }
        };
        let status = match (self.failed, done) {
            (true, _) => 5,
            (false, Some(())) => 0,
            (false, None) => 6,
        };
        self.failed |= status != 0;
        if status != 0 || request.send_flags & SIGNALLED != 0 {
            self.completions.push_back(WorkCompletion {
                token: request.wr_id,
                status,
                opcode: 0,
                length: 0,
                queue_pair: 17,
            });
        }
    }
}

unsafe extern "C" fn make_window(domain: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    // SAFETY: called with the domain of a device that lives.
    unsafe {
        let mut state = state((*(*domain).context).abi_compat).borrow_mut();
        let mut window = zeroed::<ibv_mw>();
        if state.most_windows == Some(state.windows.len()) {
            return ptr::null_mut();
        }
        let is_free = |index: &u32| state.windows.iter().all(|one| one.key >> 8 != *index);
        let key = (1..).find(is_free).expect("an index") << 8;
        (window.context, window.type_, window.rkey) = ((*domain).context, kind, key);
        let window = Box::into_raw(window);
        let region = None;
        state.windows.push(Opened {
            window,
            key,
            region,
        });
        window
    }
}

unsafe extern "C" fn free_window(window: *mut ibv_mw) -> i32 {
    // SAFETY: called once with a window of `make_window`.
    unsafe {
        let mut state = state((*(*window).context).abi_compat).borrow_mut();
        state.windows.retain(|opened| opened.window != window);
        drop(Box::from_raw(window));
    }
    0
}

/// Refuses a region with an open window.
unsafe extern "C" fn deregister(region: *mut ibv_mr) -> i32 {
    // SAFETY: called with a region of `Device::region`, and not again after a success.
    unsafe {
        let state = state((*(*region).context).abi_compat).borrow();
        let open = |opened: &Opened| opened.region == Some(region);
        if state.windows.iter().any(open) {
            return libc::EBUSY;
        }
        drop(Box::from_raw(region));
    }
    0
}

/// Returns the state that a context pointer leads to.
///
/// # Safety
/// `Device::new` set the pointer, and the device lives.
unsafe fn state<'a>(context: *mut core::ffi::c_void) -> &'a RefCell<State> {
    // SAFETY: the caller promises it.
    unsafe { &*context.cast::<RefCell<State>>() }
}

unsafe extern "C" fn post_send(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device that lives, and a valid list of verbs.
    unsafe {
        let mut state = state((*queue_pair).qp_context).borrow_mut();
        state.calls += 1;
        let mut next = first;
        while !next.is_null() {
            if state.room == Some(0) {
                *bad = if state.forges_refused {
                    ptr::dangling_mut()
                } else {
                    next
                };
                return libc::ENOMEM;
            }
            state.room = state.room.map(|room| room - 1);
            let request = &*next;
            let remote = match request.opcode {
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
            let data = carries.then(|| pretend::data(request));
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
            match request.opcode {
                ibv_wr_opcode::IBV_WR_LOCAL_INV => state.binds.push((request.send_flags, 0)),
                ibv_wr_opcode::IBV_WR_BIND_MW => {
                    let rights = request.bind_mw_tso_union.bind_mw.bind_info.mw_access_flags;
                    state.binds.push((request.send_flags, rights));
                }
                _ => {}
            }
            state.requests.push(posted);
            state.carry_out(request);
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
    // SAFETY: called with the queue pair of a device that lives, and a valid list of verbs.
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

/// Copies the segments of a request.
///
/// # Safety
/// `first` points to `count` segments.
unsafe fn segments(first: *const rdma_sys::ibv_sge, count: i32) -> Vec<(u64, u32, u32)> {
    (0..usize::try_from(count).expect("a count"))
        .map(|at| {
            // SAFETY: one of the segments.
            let segment = unsafe { &*first.add(at) };
            (segment.addr, segment.length, segment.lkey)
        })
        .collect()
}

/// Binds at once, under another key; length 0 closes the window.
unsafe extern "C" fn bind(_: *mut ibv_qp, window: *mut ibv_mw, wanted: *mut ibv_mw_bind) -> i32 {
    // SAFETY: called with a window of `make_window`, and a valid bind of verbs.
    unsafe {
        let mut state = state((*(*window).context).abi_compat).borrow_mut();
        if state.room == Some(0) {
            return libc::ENOMEM;
        }
        // The window is named by the key of the last bind, successful or not; only the lowest byte
        // counts.
        let named = (*window).rkey;
        (*window).rkey = (*window).rkey & !0xFF | (*window).rkey.wrapping_add(1) & 0xFF;
        let info = &(*wanted).bind_info;
        let rights = if info.length == 0 {
            0
        } else {
            info.mw_access_flags
        };
        state.binds.push(((*wanted).send_flags, rights));
        let is_flushed = state.failed;
        let mut windows = state.windows.iter_mut();
        let opened = windows.find(|one| one.window == window && one.key == named);
        let status = match opened {
            _ if is_flushed => 5,
            None => 6,
            Some(opened) => {
                opened.key = (*window).rkey;
                opened.region = (info.length != 0).then_some(info.mr);
                0
            }
        };
        state.failed |= status != 0;
        state.completions.push_back(WorkCompletion {
            token: (*wanted).wr_id,
            status,
            opcode: 0,
            length: 0,
            queue_pair: 17,
        });
    }
    0
}

unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with the queue of a device that lives, and room for `room` entries.
    unsafe {
        let mut state = state((*queue).cq_context).borrow_mut();
        state.polls += 1;
        if let Some(number) = state.nonsense {
            return number;
        }
        pretend::answer(&mut state.completions, room, into)
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
