//! Completion queues, queue pairs, and their posts.

use core::ffi::c_void;
use core::ptr;
use std::collections::VecDeque;

use rdma_sys::{
    ibv_comp_channel, ibv_cq, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_state, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_wc, ibv_wr_opcode,
};

use super::counting::Owned;
use super::requests::{Found, INLINE, SIGNALLED, data, hand_out, segments, take_each};
use super::{Context, Object, State, destroy, pick, raise, state};

const LOCAL_WRITE: u32 = 1;
const BINDABLE: u32 = 16;
/// The operation code of a receive in completions.
const RECEIVED: u32 = 128;
/// The operation code of a bind in completions.
const BOUND: u32 = 5;
const FLUSHED: u32 = 5;
/// The most bytes of an inline request.
const CARRIED: u32 = 64;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) order: u64,
    pub(super) channel: usize,
    fd: i32,
    depth: usize,
    /// `Some` if armed; true for solicited completions only.
    armed: Option<bool>,
    found: VecDeque<Found>,
    /// The nonsense answer to the next poll.
    answer: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    token: u64,
    opcode: u32,
    length: u64,
    signalled: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) order: u64,
    pub(super) domain: usize,
    depth: u32,
    segments: u32,
    receives: VecDeque<Posted>,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) order: u64,
    pub(super) domain: usize,
    send_queue: usize,
    receive_queue: usize,
    shared: usize,
    requests: usize,
    receives: usize,
    request_segments: i32,
    receive_segments: i32,
    pub(super) number: u32,
    state: u32,
    sent: VecDeque<Posted>,
    received: VecDeque<Posted>,
}

impl Pair {
    pub(super) fn uses(&self, address: usize) -> bool {
        [
            self.domain,
            self.send_queue,
            self.receive_queue,
            self.shared,
        ]
        .contains(&address)
    }
}

impl State {
    /// Puts a completion on its queue; returns the descriptor if the queue must notify.
    fn complete(&mut self, queue: usize, found: Found) -> Option<i32> {
        let forged = self.forged;
        let known = self.queue(queue);
        known.found.push_back(found);
        assert!(
            forged || known.found.len() <= known.depth,
            "a completion queue overruns"
        );
        let fd = known.fd;
        known.armed.take()?;
        self.notified.push_back(queue);
        Some(fd)
    }

    /// Completes all requests of a queue pair as flushed.
    fn flush(&mut self, address: usize) -> Vec<i32> {
        if self.keeps {
            return Vec::new();
        }
        let pair = self.pair(address);
        let (number, queues) = (pair.number, [pair.send_queue, pair.receive_queue]);
        let posted = [
            std::mem::take(&mut pair.sent),
            std::mem::take(&mut pair.received),
        ];
        let mut notified = Vec::new();
        for (posted, queue) in posted.into_iter().zip(queues) {
            for one in posted {
                let found = Found {
                    token: one.token,
                    status: FLUSHED,
                    opcode: u32::MAX,
                    length: 0,
                    pair: number,
                };
                notified.extend(self.complete(queue, found));
            }
        }
        notified
    }

    /// Checks that the segments of a request are registered with these rights; returns their
    /// length.
    ///
    /// # Safety
    /// There are `count` segments.
    unsafe fn check(
        &self,
        domain: usize,
        (first, count, most): (*const ibv_sge, i32, i32),
        inline: bool,
        access: u32,
    ) -> u64 {
        assert!((0..=most).contains(&count), "{count} of {most} segments");
        let mut length = 0;
        // SAFETY: as the caller promised.
        for (start, bytes, key) in unsafe { segments(first, count) } {
            length += u64::from(bytes);
            let regions = self.objects.values().filter_map(|object| match object {
                Object::Region(region) => Some(region),
                _ => None,
            });
            let is_inside = |region: &super::Region| {
                start >= region.address
                    && start
                        .checked_add(bytes.into())
                        .is_some_and(|end| end <= region.address + region.length)
            };
            let mut meant =
                regions.filter(|region| inline || region.key == key && region.domain == domain);
            let found = meant.any(|region| is_inside(region) && region.access & access == access);
            assert!(
                found,
                "an unregistered segment: {start:#x} of {bytes} by {key}"
            );
        }
        length
    }
}

fn notify_descriptors(descriptors: impl IntoIterator<Item = i32>) {
    descriptors.into_iter().for_each(raise);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    depth: i32,
    number: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: i32,
) -> *mut ibv_cq {
    let mut state = state();
    state.is(channel as usize, |object| {
        matches!(object, Object::Channel { .. })
    });
    assert!(depth > 0);
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the context is open.
    let queue = unsafe { Owned::<ibv_cq>::make(context) };
    // SAFETY: just made, on a channel that lives.
    let fd = unsafe {
        (*queue).context = context;
        (*queue).channel = channel;
        (*queue).cq_context = number;
        (*queue).cqe = depth;
        (*channel).fd
    };
    let order = state.count();
    let known = Queue {
        order,
        channel: channel as usize,
        fd,
        depth: depth as usize,
        armed: None,
        found: VecDeque::new(),
        answer: None,
    };
    state.insert(queue as usize, Object::Queue(known));
    queue
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(queue: *mut ibv_cq, depth: i32) -> i32 {
    let mut state = state();
    if let Some(error) = state.refuses() {
        return error;
    }
    state.queue(queue as usize).depth = depth as usize;
    // SAFETY: it lives, as was just checked.
    unsafe { (*queue).cqe = depth };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> i32 {
    let mut state = state();
    state.notified.retain(|known| *known != queue as usize);
    // SAFETY: made by `ibv_create_cq`.
    unsafe { destroy(&mut state, queue.cast::<Owned<ibv_cq>>()) };
    0
}

pub(super) unsafe extern "C" fn notify(queue: *mut ibv_cq, solicited: i32) -> i32 {
    let mut state = state();
    if let Some(error) = state.refuses() {
        return error;
    }
    state.queue(queue as usize).armed = Some(solicited != 0);
    0
}

pub(super) unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    let mut state = state();
    let known = state.queue(queue as usize);
    if let Some(answer) = known.answer.take() {
        let order = known.order;
        state.nonsense.push(order);
        return answer;
    }
    // SAFETY: there is room for `room` entries.
    unsafe { hand_out(&mut known.found, room, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(
    domain: *mut ibv_pd,
    plan: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let mut state = state();
    state.is(domain as usize, |object| {
        matches!(object, Object::Domain { .. })
    });
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the context is open.
    let shared = unsafe { Owned::<ibv_srq>::make((*domain).context) };
    // SAFETY: just made, of a domain that lives, from a valid plan.
    let (depth, segments) = unsafe {
        (*shared).context = (*domain).context;
        (*shared).pd = domain;
        (*shared).srq_context = (*plan).srq_context;
        ((*plan).attr.max_wr, (*plan).attr.max_sge)
    };
    let order = state.count();
    let known = Shared {
        order,
        domain: domain as usize,
        depth,
        segments,
        receives: VecDeque::new(),
    };
    state.insert(shared as usize, Object::Shared(known));
    shared
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    shared: *mut ibv_srq,
    wanted: *mut ibv_srq_attr,
    mask: i32,
) -> i32 {
    let mut state = state();
    if let Some(error) = state.refuses() {
        return error;
    }
    let known = state.shared(shared as usize);
    if mask & 1 != 0 {
        // SAFETY: the attributes are valid.
        known.depth = unsafe { (*wanted).max_wr };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(shared: *mut ibv_srq) -> i32 {
    // SAFETY: made by `ibv_create_srq`.
    unsafe { destroy(&mut state(), shared.cast::<Owned<ibv_srq>>()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    plan: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let mut state = state();
    state.is(domain as usize, |object| {
        matches!(object, Object::Domain { .. })
    });
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    let order = state.count();
    let number = state.oddities.number.unwrap_or(order as u32 & 0xFF_FFFF);
    // SAFETY: the context is open.
    let pair = unsafe { Owned::<ibv_qp>::make((*domain).context) };
    // SAFETY: just made, of a domain that lives, from a valid plan.
    let known = unsafe {
        let plan = &mut *plan;
        for queue in [plan.send_cq, plan.recv_cq] {
            state.queue(queue as usize);
        }
        plan.cap.max_inline_data = plan.cap.max_inline_data.min(CARRIED);
        (*pair).context = (*domain).context;
        (*pair).pd = domain;
        (*pair).qp_context = plan.qp_context;
        (*pair).qp_num = number;
        Pair {
            order,
            domain: domain as usize,
            send_queue: plan.send_cq as usize,
            receive_queue: plan.recv_cq as usize,
            shared: plan.srq as usize,
            requests: plan.cap.max_send_wr as usize,
            receives: plan.cap.max_recv_wr as usize,
            request_segments: plan.cap.max_send_sge as i32,
            receive_segments: plan.cap.max_recv_sge as i32,
            number,
            state: ibv_qp_state::IBV_QPS_RESET,
            sent: VecDeque::new(),
            received: VecDeque::new(),
        }
    };
    state.insert(pair as usize, Object::Pair(known));
    pair
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(pair: *mut ibv_qp, wanted: *mut ibv_qp_attr, _mask: i32) -> i32 {
    let notified = {
        let mut state = state();
        if let Some(error) = state.refuses() {
            state.pair(pair as usize);
            return error;
        }
        // SAFETY: the attributes are valid.
        let wanted = unsafe { (*wanted).qp_state };
        state.pair(pair as usize).state = wanted;
        if wanted == ibv_qp_state::IBV_QPS_ERR {
            state.flush(pair as usize)
        } else {
            Vec::new()
        }
    };
    notify_descriptors(notified);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: i32,
    _plan: *mut ibv_qp_init_attr,
) -> i32 {
    let mut state = state();
    let now = state.pair(pair as usize).state;
    if let Some(error) = state.refuses() {
        return error;
    }
    // SAFETY: there is room for the answer.
    unsafe { (*attributes).qp_state = now };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(pair: *mut ibv_qp) -> i32 {
    let mut state = state();
    // SAFETY: made by `ibv_create_qp`.
    let Object::Pair(known) = (unsafe { destroy(&mut state, pair.cast::<Owned<ibv_qp>>()) }) else {
        panic!("destroyed as a queue pair");
    };
    // Completions of it that were not polled are removed too, as in the libraries of devices.
    for queue in [known.send_queue, known.receive_queue] {
        let found = &mut state.queue(queue).found;
        found.retain(|found| found.pair != known.number);
    }
    0
}

/// Posts the requests of a list until one is refused.
///
/// # Safety
/// The list is valid, and there is room for the refused one.
unsafe fn post_each<R>(
    pair: Option<usize>,
    (first, next): (*mut R, fn(&R) -> *mut R),
    bad: *mut *mut R,
    post: impl Fn(&mut State, &R),
) -> i32 {
    let notified = {
        let mut state = state();
        let take = |request: &R| match state.refuses() {
            Some(error) => Err(error),
            None => {
                post(&mut state, request);
                Ok(())
            }
        };
        // SAFETY: as the caller promised.
        let refused = unsafe { take_each((first, next), bad, take) };
        if refused != 0 {
            return refused;
        }
        pair.map_or_else(Vec::new, |pair| flushed_if_failed(&mut state, pair))
    };
    notify_descriptors(notified);
    0
}

/// Checks that a queue has room for one more request.
///
/// A forged completion has freed a slot of the consumer, so more posts are possible after one.
fn check_room(forged: bool, posted: usize, room: usize) {
    assert!(forged || posted < room, "a full queue");
}

pub(super) unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    let address = pair as usize;
    let post = |state: &mut State, request: &ibv_send_wr| {
        let forged = state.forged;
        let known = state.pair(address);
        check_room(forged, known.sent.len(), known.requests);
        let (domain, most) = (known.domain, known.request_segments);
        let inline = request.send_flags & INLINE != 0;
        let access = match request.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_READ => LOCAL_WRITE,
            _ => 0,
        };
        let segments = (request.sg_list.cast_const(), request.num_sge, most);
        // SAFETY: the request has them.
        let length = unsafe { state.check(domain, segments, inline, access) };
        if inline {
            assert!(length <= u64::from(CARRIED), "a request carries {length}");
            // SAFETY: registered memory, as was just checked.
            drop(unsafe { data(request) });
        }
        if request.opcode == ibv_wr_opcode::IBV_WR_BIND_MW {
            // SAFETY: the operation code selects the field of the union.
            let bind = unsafe { request.bind_mw_tso_union.bind_mw };
            check_bind(state, domain, bind.mw, &bind.bind_info);
        }
        let opcode = match request.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => 1,
            ibv_wr_opcode::IBV_WR_RDMA_READ => 2,
            ibv_wr_opcode::IBV_WR_BIND_MW => BOUND,
            ibv_wr_opcode::IBV_WR_LOCAL_INV => 6,
            _ => 0,
        };
        state.pair(address).sent.push_back(Posted {
            token: request.wr_id,
            opcode,
            length,
            signalled: request.send_flags & SIGNALLED != 0,
        });
    };
    // SAFETY: the caller passes a valid list.
    unsafe { post_each(Some(address), (first, |request| request.next), bad, post) }
}

fn flushed_if_failed(state: &mut State, pair: usize) -> Vec<i32> {
    if state.pair(pair).state == ibv_qp_state::IBV_QPS_ERR {
        state.flush(pair)
    } else {
        Vec::new()
    }
}

fn check_bind(
    state: &State,
    domain: usize,
    window: *mut ibv_mw,
    wanted: &rdma_sys::ibv_mw_bind_info,
) {
    state.is(
        window as usize,
        |object| matches!(object, Object::Window { domain: of } if *of == domain),
    );
    if wanted.length == 0 {
        return;
    }
    let Some(Object::Region(region)) = state.objects.get(&(wanted.mr as usize)) else {
        panic!("a window is opened to what is no region");
    };
    let inside = wanted.addr >= region.address
        && wanted.addr + wanted.length <= region.address + region.length;
    assert!(
        inside && region.domain == domain && region.access & BINDABLE != 0,
        "a window is opened to {:#x} of {} in {region:?}",
        wanted.addr,
        wanted.length
    );
}

pub(super) unsafe extern "C" fn bind_window(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    wanted: *mut ibv_mw_bind,
) -> i32 {
    let notified = {
        let mut state = state();
        if let Some(error) = state.refuses() {
            return error;
        }
        let domain = state.pair(pair as usize).domain;
        // SAFETY: queue pair, window and attributes are valid.
        let token = unsafe {
            check_bind(&state, domain, window, &(*wanted).bind_info);
            (*window).rkey = (*window).rkey & !0xFF | (*window).rkey.wrapping_add(1) & 0xFF;
            (*wanted).wr_id
        };
        let forged = state.forged;
        let known = state.pair(pair as usize);
        check_room(forged, known.sent.len(), known.requests);
        known.sent.push_back(Posted {
            token,
            opcode: BOUND,
            length: 0,
            signalled: true,
        });
        flushed_if_failed(&mut state, pair as usize)
    };
    notify_descriptors(notified);
    0
}

/// Checks a receive of a domain with at most `most` segments.
fn received(state: &State, receive: &ibv_recv_wr, domain: usize, most: i32) -> Posted {
    let segments = (receive.sg_list.cast_const(), receive.num_sge, most);
    Posted {
        token: receive.wr_id,
        opcode: RECEIVED,
        // SAFETY: the receive has them.
        length: unsafe { state.check(domain, segments, false, LOCAL_WRITE) },
        signalled: true,
    }
}

pub(super) unsafe extern "C" fn post_receive(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    let address = pair as usize;
    let post = |state: &mut State, receive: &ibv_recv_wr| {
        let forged = state.forged;
        let known = state.pair(address);
        check_room(forged, known.received.len(), known.receives);
        let (domain, most) = (known.domain, known.receive_segments);
        let posted = received(state, receive, domain, most);
        state.pair(address).received.push_back(posted);
    };
    // SAFETY: the caller passes a valid list.
    unsafe { post_each(Some(address), (first, |receive| receive.next), bad, post) }
}

pub(super) unsafe extern "C" fn post_shared(
    shared: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> i32 {
    let address = shared as usize;
    let post = |state: &mut State, receive: &ibv_recv_wr| {
        let forged = state.forged;
        let known = state.shared(address);
        check_room(forged, known.receives.len(), known.depth as usize);
        let (domain, most) = (known.domain, known.segments as i32);
        let posted = received(state, receive, domain, most);
        state.shared(address).receives.push_back(posted);
    };
    // SAFETY: the caller passes a valid list.
    unsafe { post_each(None, (first, |receive| receive.next), bad, post) }
}

/// Completes a queue pair's oldest requests or receives as carried out, at most `count`.
pub fn carry_out(which: usize, receives: bool, count: usize, length: u32) {
    let mut notified = Vec::new();
    {
        let mut state = state();
        let Some(address) = pick(&state.pairs(), which) else {
            return;
        };
        for _ in 0..count {
            let pair = state.pair(address);
            let (number, shared) = (pair.number, pair.shared);
            let (queue, next) = if receives {
                let own = pair.received.pop_front();
                let queue = pair.receive_queue;
                let taken = own.or_else(|| match state.objects.get_mut(&shared) {
                    Some(Object::Shared(shared)) => shared.receives.pop_front(),
                    _ => None,
                });
                (queue, taken)
            } else {
                (pair.send_queue, pair.sent.pop_front())
            };
            let Some(next) = next else {
                break;
            };
            if next.signalled {
                let found = Found {
                    token: next.token,
                    status: 0,
                    opcode: next.opcode,
                    length: u64::from(length).min(next.length) as u32,
                    pair: number,
                };
                notified.extend(state.complete(queue, found));
            }
        }
    }
    notify_descriptors(notified);
}

/// Returns the tokens of the outstanding requests, and the numbers of their queue pairs.
pub fn outstanding() -> Vec<(u64, u32)> {
    let state = state();
    let mut all = Vec::new();
    for object in state.objects.values() {
        match object {
            Object::Pair(pair) => {
                let posted = pair.sent.iter().chain(&pair.received);
                all.extend(posted.map(|posted| (posted.token, pair.number)));
            }
            Object::Shared(shared) => {
                all.extend(shared.receives.iter().map(|posted| (posted.token, 0)));
            }
            _ => {}
        }
    }
    all.sort_unstable();
    all
}

/// Adds a forged completion to a queue.
pub fn forge(which: usize, found: Found) {
    let notified = {
        let mut state = state();
        state.forged = true;
        pick(&state.queues(), which).and_then(|queue| state.complete(queue, found))
    };
    notify_descriptors(notified);
}

/// Answers the next poll of a queue with a number.
pub fn answer(which: usize, number: i32) {
    let mut state = state();
    if let Some(queue) = pick(&state.queues(), which) {
        state.queue(queue).answer = Some(number);
    }
}

/// Notifies for a queue without a completion.
pub fn notify_of_nothing(which: usize) {
    let fd = {
        let mut state = state();
        let Some(queue) = pick(&state.queues(), which) else {
            return;
        };
        state.notified.push_back(queue);
        state.queue(queue).fd
    };
    raise(fd);
}

/// Flushes failed queue pairs from here on, including those that failed before.
pub(super) fn flush_all() {
    let mut notified = Vec::new();
    {
        let mut state = state();
        state.keeps = false;
        state.refusals = (0, 0);
        for pair in state.pairs() {
            notified.extend(flushed_if_failed(&mut state, pair));
        }
    }
    notify_descriptors(notified);
}
