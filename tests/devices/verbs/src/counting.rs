//! The device that accepts everything, and completes on demand, at the least cost.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rdma_sys::{
    bind_mw_t, ibv_alloc_pd, ibv_bind_mw, ibv_context, ibv_context_ops, ibv_cq,
    ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_mr, ibv_mw,
    ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_open_device, ibv_pd, ibv_poll_cq,
    ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_qp, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr, ibv_wc, ibv_wr_opcode, rdma_t,
};

use super::requests::{Found, SIGNALLED};
use super::script::{Script, next_key, opened, script};
use super::{devices, zeroed};

/// Posts that it remembers; a power of two.
const ROOM: u32 = 256;

/// Completions of a poll.
const BATCH: usize = 16;

/// Number of the queue pair in its completions.
const NUMBER: u32 = 17;

/// Posted sends and receives that are not polled, oldest first.
#[derive(Debug)]
pub(super) struct Posts {
    tokens: [AtomicU64; ROOM as usize],
    posted: AtomicU32,
    /// Position up to which posts are done and can be polled.
    done: AtomicU32,
    polled: AtomicU32,
}

impl Posts {
    pub(super) const fn new() -> Self {
        Self {
            tokens: [const { AtomicU64::new(0) }; ROOM as usize],
            posted: AtomicU32::new(0),
            done: AtomicU32::new(0),
            polled: AtomicU32::new(0),
        }
    }

    #[inline]
    fn push(&self, token: u64) {
        let posted = self.posted.load(Ordering::Relaxed);
        if let Some(slot) = self.tokens.get((posted % ROOM) as usize) {
            slot.store(token, Ordering::Relaxed);
        }
        self.posted.store(posted.wrapping_add(1), Ordering::Relaxed);
    }

    /// Marks all posts as done.
    pub(super) fn complete_all(&self) {
        let posted = self.posted.load(Ordering::Relaxed);
        self.done.store(posted, Ordering::Relaxed);
    }
}

/// An object of verbs, and behind it what its device shares with it, as in the libraries of
/// devices.
#[repr(C)]
pub(super) struct Owned<T> {
    object: T,
    posts: *const Posts,
}

impl<T> Owned<T> {
    /// Makes an object of an open device, all zero.
    ///
    /// # Safety
    /// The context is open.
    pub(super) unsafe fn make(context: *mut ibv_context) -> *mut T {
        let made = zeroed::<Self>();
        // SAFETY: just made; the context keeps its script.
        unsafe { (*made).posts = &raw const (*script(context)).posts };
        made.cast()
    }

    /// Returns the posts of an object's device.
    ///
    /// # Safety
    /// `make` made the object, and it lives.
    #[inline]
    unsafe fn posts<'a>(object: *mut T) -> &'a Posts {
        // SAFETY: as the caller promised; the device outlives its objects.
        unsafe { &*(*object.cast::<Self>()).posts }
    }
}

/// Replaces the operations of a new context by those of this device.
pub(super) fn take_over(operations: &mut ibv_context_ops) {
    operations.post_send = Some(post_send);
    operations.post_recv = Some(post_receive);
    operations.post_srq_recv = Some(post_shared);
    operations.poll_cq = Some(poll);
    operations.req_notify_cq = Some(notify);
    operations.bind_mw = Some(bind);
}

/// An open device that counts, with one object of each kind, for calls of verbs without a backend.
///
/// It lives until the process ends. The queues come before the function, as arguments of a call do:
/// so a call that does nothing moves no words.
#[repr(C)]
pub struct Counted {
    queue_pair: *mut ibv_qp,
    shared: *mut ibv_srq,
    /// Function that is called instead of a call of verbs.
    nothing: Nothing,
    completion_queue: *mut ibv_cq,
    domain: *mut ibv_pd,
    script: Arc<Script>,
}

impl core::fmt::Debug for Counted {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Counted").finish_non_exhaustive()
    }
}

/// A function of three addresses, like all posts and binds of verbs.
type Nothing = extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;

extern "C" fn nothing(_queue: *mut c_void, _what: *mut c_void, _more: *mut c_void) -> i32 {
    0
}

// SAFETY: the targets of its pointers are never freed, and only the calls of verbs change them,
// which any thread may make.
unsafe impl Send for Counted {}
// SAFETY: as above.
unsafe impl Sync for Counted {}

impl Counted {
    /// Opens the device.
    ///
    /// # Panics
    /// No descriptors are left.
    #[must_use]
    pub fn open() -> &'static Self {
        let [.., device] = devices();
        // SAFETY: the functions of this crate take the objects that they made, which are never
        // destroyed; plans of zeros are valid.
        let made = unsafe {
            let context = ibv_open_device(device);
            let domain = ibv_alloc_pd(context);
            let channel = ibv_create_comp_channel(context);
            let completion_queue = ibv_create_cq(context, ROOM as i32, ptr::null_mut(), channel, 0);
            let mut plan = MaybeUninit::<ibv_qp_init_attr>::zeroed().assume_init();
            (plan.send_cq, plan.recv_cq) = (completion_queue, completion_queue);
            Self {
                script: opened(),
                queue_pair: ibv_create_qp(domain, &raw mut plan),
                shared: ibv_create_srq(domain, zeroed::<ibv_srq_init_attr>()),
                completion_queue,
                domain,
                nothing,
            }
        };
        Box::leak(Box::new(made))
    }

    /// Completes all posts.
    pub fn complete_all(&self) {
        self.script.complete_all();
    }

    /// Calls `ibv_post_send`.
    #[inline]
    pub fn post_send(&self, request: &mut Request) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is never freed, nor is the request with its parts.
        unsafe { ibv_post_send(self.queue_pair, request.first, &raw mut bad) }
    }

    /// Passes the arguments of `post_send` to an empty function.
    #[inline]
    pub fn call_like_post_send(&self, request: &mut Request) -> i32 {
        let mut bad = ptr::null_mut::<ibv_send_wr>();
        (self.nothing)(
            self.queue_pair.cast(),
            request.first.cast(),
            (&raw mut bad).cast(),
        )
    }

    /// Passes the arguments of `post_receive` to an empty function.
    #[inline]
    pub fn call_like_post_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut::<ibv_recv_wr>();
        (self.nothing)(
            self.queue_pair.cast(),
            receive.0.cast(),
            (&raw mut bad).cast(),
        )
    }

    /// Passes the arguments of `post_shared_receive` to an empty function.
    #[inline]
    pub fn call_like_post_shared_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut::<ibv_recv_wr>();
        (self.nothing)(self.shared.cast(), receive.0.cast(), (&raw mut bad).cast())
    }

    /// Passes the arguments of `bind` to an empty function.
    #[inline]
    pub fn call_like_bind(&self, bind: &mut Bind) -> i32 {
        (self.nothing)(
            self.queue_pair.cast(),
            bind.window.cast(),
            (&raw mut bind.wanted).cast(),
        )
    }

    /// Calls `ibv_post_recv`.
    #[inline]
    pub fn post_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: as for `post_send`.
        unsafe { ibv_post_recv(self.queue_pair, receive.0, &raw mut bad) }
    }

    /// Calls `ibv_post_srq_recv`.
    #[inline]
    pub fn post_shared_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: as for `post_send`.
        unsafe { ibv_post_srq_recv(self.shared, receive.0, &raw mut bad) }
    }

    /// Calls `ibv_poll_cq`.
    #[inline]
    pub fn poll(&self, room: &mut Room) -> i32 {
        // SAFETY: the queue is never freed, and there is room for a batch.
        unsafe {
            ibv_poll_cq(
                self.completion_queue,
                BATCH as i32,
                room.0.as_mut_ptr().cast(),
            )
        }
    }

    /// Calls `ibv_bind_mw`.
    #[inline]
    pub fn bind(&self, bind: &mut Bind) -> i32 {
        // SAFETY: queue pair, window and region are never freed.
        unsafe { ibv_bind_mw(self.queue_pair, bind.window, &raw mut bind.wanted) }
    }

    /// Makes a Write with `segments` segments.
    #[must_use]
    pub fn write_request(&self, segments: u32) -> Request {
        let mut request = blank_request(ibv_wr_opcode::IBV_WR_RDMA_WRITE);
        request.sg_list = self.segments(segments);
        request.num_sge = segments as i32;
        request.wr.rdma = rdma_t {
            remote_addr: 4096,
            rkey: 1,
        };
        Request {
            first: Box::leak(Box::new(request)),
        }
    }

    /// Makes the requests that close a type 2 window and open it again.
    #[must_use]
    pub fn rebind_request(&self) -> Request {
        let mut open = blank_request(ibv_wr_opcode::IBV_WR_BIND_MW);
        let bind = self.bind_of(ibv_mw_type::IBV_MW_TYPE_2);
        open.bind_mw_tso_union.bind_mw = bind_mw_t {
            mw: bind.window,
            rkey: 2,
            bind_info: bind.wanted.bind_info,
        };
        let mut close = blank_request(ibv_wr_opcode::IBV_WR_LOCAL_INV);
        close.send_flags = 0;
        close.next = Box::leak(Box::new(open));
        Request {
            first: Box::leak(Box::new(close)),
        }
    }

    /// Makes a receive with `segments` segments.
    #[must_use]
    pub fn receive_request(&self, segments: u32) -> Receive {
        let made = zeroed::<ibv_recv_wr>();
        // SAFETY: just made, and never freed.
        let receive = unsafe { &mut *made };
        receive.wr_id = 1;
        receive.sg_list = self.segments(segments);
        receive.num_sge = segments as i32;
        Receive(made)
    }

    /// Makes a bind of a window of type 1.
    #[must_use]
    pub fn bind_request(&self) -> Bind {
        self.bind_of(ibv_mw_type::IBV_MW_TYPE_1)
    }

    fn bind_of(&self, kind: ibv_mw_type::Type) -> Bind {
        // SAFETY: the domain is never destroyed.
        let window = unsafe {
            (*(*self.domain).context)
                .ops
                .alloc_mw
                .map(|make| make(self.domain, kind))
        };
        Bind {
            window: window.expect("it makes windows"),
            wanted: ibv_mw_bind {
                wr_id: 1,
                send_flags: SIGNALLED,
                bind_info: ibv_mw_bind_info {
                    mr: zeroed::<ibv_mr>(),
                    addr: 4096,
                    length: 4096,
                    mw_access_flags: 2,
                },
            },
        }
    }

    fn segments(&self, count: u32) -> *mut ibv_sge {
        let segment = |number| ibv_sge {
            addr: 4096 * u64::from(number),
            length: 4096,
            lkey: 1,
        };
        let segments: Vec<ibv_sge> = (0..count).map(segment).collect();
        segments.leak().as_mut_ptr()
    }
}

/// Work requests that are ready to post.
#[derive(Debug)]
pub struct Request {
    first: *mut ibv_send_wr,
}

/// A receive that is ready to post.
#[derive(Debug)]
pub struct Receive(*mut ibv_recv_wr);

/// A bind that is ready to post.
pub struct Bind {
    window: *mut ibv_mw,
    wanted: ibv_mw_bind,
}

impl core::fmt::Debug for Bind {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Bind").finish_non_exhaustive()
    }
}

/// Room for a batch of completions.
#[derive(Debug)]
pub struct Room([MaybeUninit<ibv_wc>; BATCH]);

impl Room {
    /// Returns room without completions.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "an empty room is no useful default"
    )]
    pub fn new() -> Self {
        Self([const { MaybeUninit::zeroed() }; BATCH])
    }
}

fn blank_request(opcode: u32) -> ibv_send_wr {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.wr_id = 1;
    request.opcode = opcode;
    request.send_flags = SIGNALLED;
    request
}

/// Accepts a list without a look at the segments.
///
/// So the number of segments does not change the cost.
unsafe extern "C" fn post_send(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    _bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device, and a valid list of verbs.
    unsafe {
        let posted = Owned::posts(queue_pair);
        let mut next = first;
        while !next.is_null() {
            if (*next).send_flags & SIGNALLED != 0 {
                posted.push((*next).wr_id);
            }
            next = (*next).next;
        }
    }
    0
}

/// Remembers the receives of a list.
///
/// # Safety
/// `first` begins a valid list of verbs.
#[inline]
unsafe fn take_receives(posted: &Posts, first: *mut ibv_recv_wr) -> i32 {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a receive of the list.
        unsafe {
            posted.push((*next).wr_id);
            next = (*next).next;
        }
    }
    0
}

unsafe extern "C" fn post_receive(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device, and a valid list of verbs.
    unsafe { take_receives(Owned::posts(queue_pair), first) }
}

unsafe extern "C" fn post_shared(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with the queue of a device, and a valid list of verbs.
    unsafe { take_receives(Owned::posts(queue), first) }
}

unsafe extern "C" fn bind(
    queue_pair: *mut ibv_qp,
    window: *mut ibv_mw,
    wanted: *mut ibv_mw_bind,
) -> i32 {
    // SAFETY: called with the queue pair of a device, its window, and a valid bind of verbs.
    unsafe {
        Owned::posts(queue_pair).push((*wanted).wr_id);
        (*window).rkey = next_key((*window).rkey);
    }
    0
}

unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with the queue of a device, and room for `room` entries.
    unsafe {
        let posted = Owned::posts(queue);
        let done = posted.done.load(Ordering::Relaxed);
        let mut next = posted.polled.load(Ordering::Relaxed);
        let mut count = 0;
        while count < room && next != done {
            let token = posted.tokens.get((next % ROOM) as usize);
            let completion = Found {
                token: token.map_or(0, |token| token.load(Ordering::Relaxed)),
                status: 0,
                opcode: 1,
                length: 0,
                pair: NUMBER,
            };
            completion.write(into.add(count as usize));
            next = next.wrapping_add(1);
            count += 1;
        }
        posted.polled.store(next, Ordering::Relaxed);
        count
    }
}

unsafe extern "C" fn notify(_queue: *mut ibv_cq, _solicited_only: i32) -> i32 {
    0
}
