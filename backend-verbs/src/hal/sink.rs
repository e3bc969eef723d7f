//! A fake device that accepts everything, and completes on demand, at the least cost.
//!
//! So the cost of its callers can be counted, with and without the layers above verbs.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    bind_mw_t, ibv_bind_mw, ibv_context, ibv_cq, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info,
    ibv_mw_type, ibv_pd, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wr_opcode, rdma_t,
};

use super::completion_queue::BATCH;
use super::send_list::{INLINE, SIGNALLED};
use super::{
    CompletionQueue, Context, Domain, QueuePair, Region, SharedReceiveQueue, Window, WindowType,
    WorkCompletion, pretend,
};

/// Posts that it remembers; a power of two.
const ROOM: u32 = 256;

/// Bytes of inline data that its requests can carry.
const GRANTED: u32 = 64;

/// Number of its queue pair.
pub(crate) const NUMBER: u32 = 17;

/// Posted sends and receives that are not polled, oldest first.
struct Posted {
    tokens: [AtomicU64; ROOM as usize],
    posted: AtomicU32,
    /// Position up to which posts are done and can be polled.
    done: AtomicU32,
    polled: AtomicU32,
    /// Function that is shown inline data.
    reader: Option<fn(&[u8])>,
    /// Forged completions, which polls return.
    forged: Mutex<VecDeque<WorkCompletion>>,
}

impl Posted {
    #[inline]
    fn push(&self, token: u64) {
        let posted = self.posted.load(Ordering::Relaxed);
        if let Some(slot) = self.tokens.get((posted % ROOM) as usize) {
            slot.store(token, Ordering::Relaxed);
        }
        self.posted.store(posted.wrapping_add(1), Ordering::Relaxed);
    }
}

/// Special behaviour of a device.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Plain,
    /// Shows inline data to a function.
    Reading(fn(&[u8])),
    /// Returns only forged completions from polls.
    Forging,
}

fn forged(posted: &Posted) -> MutexGuard<'_, VecDeque<WorkCompletion>> {
    posted.forged.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device; it and the objects made from it live until the process ends.
pub(crate) struct Device {
    kind: Kind,
    posted: &'static Posted,
    queue_pair: NonNull<ibv_qp>,
    shared: NonNull<ibv_srq>,
    completion_queue: NonNull<ibv_cq>,
    domain: Arc<Domain>,
    /// Function that is called instead of a call of verbs.
    nothing: Nothing,
}

/// A function of three addresses, like all posts and binds of verbs.
type Nothing = extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;

extern "C" fn nothing(_queue: *mut c_void, _what: *mut c_void, _more: *mut c_void) -> i32 {
    0
}

// SAFETY: the targets of its pointers are never freed, and only the calls of verbs change them,
// which any thread may make.
unsafe impl Send for Device {}
// SAFETY: as above; the queue of posted requests consists of atomic words and a mutex.
unsafe impl Sync for Device {}

/// Allocates a C structure of zeros that is never freed.
///
/// # Safety
/// Zero is a valid value of `T`.
unsafe fn zeroed<T>() -> &'static mut T {
    // SAFETY: the caller promises it.
    Box::leak(Box::new(unsafe {
        MaybeUninit::<T>::zeroed().assume_init()
    }))
}

impl Device {
    /// Makes a device of a kind.
    pub(crate) fn new(kind: Kind) -> Self {
        let posted: &'static Posted = Box::leak(Box::new(Posted {
            tokens: [const { AtomicU64::new(0) }; ROOM as usize],
            posted: AtomicU32::new(0),
            done: AtomicU32::new(0),
            polled: AtomicU32::new(0),
            reader: match kind {
                Kind::Reading(reader) => Some(reader),
                Kind::Plain | Kind::Forging => None,
            },
            forged: Mutex::default(),
        }));
        let state = ptr::from_ref(posted).cast_mut().cast();
        // SAFETY: integers, pointers and optional functions, for which zero is valid.
        let (context, domain, queue_pair, shared, queue) = unsafe {
            (
                zeroed::<ibv_context>(),
                zeroed::<ibv_pd>(),
                zeroed::<ibv_qp>(),
                zeroed::<ibv_srq>(),
                zeroed::<ibv_cq>(),
            )
        };
        context.ops.post_send = Some(match kind {
            Kind::Reading(_) => post_send_reading,
            Kind::Plain | Kind::Forging => post_send,
        });
        context.ops.post_recv = Some(post_receive);
        context.ops.post_srq_recv = Some(post_shared);
        context.ops.poll_cq = Some(poll_function(kind));
        context.ops.req_notify_cq = Some(notify);
        context.ops.alloc_mw = Some(make_window);
        context.ops.dealloc_mw = Some(free_window);
        context.ops.bind_mw = Some(bind);
        let context = NonNull::from(context);
        domain.context = context.as_ptr();
        queue_pair.context = context.as_ptr();
        queue_pair.qp_context = state;
        queue_pair.qp_num = NUMBER;
        shared.context = context.as_ptr();
        shared.srq_context = state;
        queue.context = context.as_ptr();
        queue.cq_context = state;
        let domain = Arc::new(Domain::borrowed(
            NonNull::from(domain),
            Arc::new(Context::borrowed(context)),
        ));
        // Keeps a reference for ever: closing them would call libibverbs.
        core::mem::forget(Arc::clone(&domain));
        Self {
            kind,
            posted,
            queue_pair: NonNull::from(queue_pair),
            shared: NonNull::from(shared),
            completion_queue: NonNull::from(queue),
            domain,
            nothing,
        }
    }

    /// Returns its queue pair.
    pub(crate) fn queue_pair(&self) -> Arc<QueuePair> {
        let queues = [self.completion_queue(), self.completion_queue()];
        let domain = Arc::clone(&self.domain);
        let pair = QueuePair::borrowed(self.queue_pair, domain, queues, GRANTED);
        stay(Arc::new(pair))
    }

    /// Returns its completion queue.
    pub(crate) fn completion_queue(&self) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue::borrowed(
            self.completion_queue,
            poll_function(self.kind),
            notify,
        ))
    }

    /// Returns its shared receive queue.
    pub(crate) fn shared_receive_queue(&self) -> Arc<SharedReceiveQueue> {
        stay(Arc::new(SharedReceiveQueue::borrowed(
            self.shared,
            Arc::clone(&self.domain),
        )))
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Makes a region whose local and remote key are `key`.
    pub(crate) fn region(&self, key: u32) -> Region {
        // SAFETY: integers and pointers, for which zero is valid.
        let raw = unsafe { zeroed::<ibv_mr>() };
        raw.lkey = key;
        raw.rkey = key;
        Region::borrowed(NonNull::from(raw), Arc::clone(&self.domain), deregister)
    }

    /// Marks all posts as done.
    pub(crate) fn complete_all(&self) {
        let posted = self.posted.posted.load(Ordering::Relaxed);
        self.posted.done.store(posted, Ordering::Relaxed);
    }

    /// Returns the tokens of the remembered posts, newest first.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        let posted = self.posted.posted.load(Ordering::Relaxed);
        let newest = (1..=posted.min(ROOM)).map(|back| posted.wrapping_sub(back) % ROOM);
        newest
            .filter_map(|slot| self.posted.tokens.get(slot as usize))
            .map(|token| token.load(Ordering::Relaxed))
            .collect()
    }

    /// Queues a forged completion.
    pub(crate) fn forge(&self, completion: WorkCompletion) {
        forged(self.posted).push_back(completion);
    }

    /// Calls `ibv_post_send`.
    #[inline]
    pub(crate) fn post_send(&self, request: &mut Request) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is never freed, nor is the request with its parts.
        unsafe { ibv_post_send(self.queue_pair.as_ptr(), request.first, &raw mut bad) }
    }

    /// Passes the arguments of `post_send` to an empty function.
    #[inline]
    pub(crate) fn call_like_post_send(&self, request: &mut Request) -> i32 {
        let mut bad = ptr::null_mut::<ibv_send_wr>();
        (self.nothing)(
            self.queue_pair.as_ptr().cast(),
            request.first.cast(),
            (&raw mut bad).cast(),
        )
    }

    /// Passes the arguments of `post_receive` to an empty function.
    #[inline]
    pub(crate) fn call_like_post_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut::<ibv_recv_wr>();
        (self.nothing)(
            self.queue_pair.as_ptr().cast(),
            receive.0.cast(),
            (&raw mut bad).cast(),
        )
    }

    /// Passes the arguments of `post_shared_receive` to an empty function.
    #[inline]
    pub(crate) fn call_like_post_shared_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut::<ibv_recv_wr>();
        (self.nothing)(
            self.shared.as_ptr().cast(),
            receive.0.cast(),
            (&raw mut bad).cast(),
        )
    }

    /// Passes the arguments of `bind` to an empty function.
    #[inline]
    pub(crate) fn call_like_bind(&self, bind: &mut Bind) -> i32 {
        (self.nothing)(
            self.queue_pair.as_ptr().cast(),
            bind.window.cast(),
            (&raw mut bind.wanted).cast(),
        )
    }

    /// Calls `ibv_post_recv`.
    #[inline]
    pub(crate) fn post_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: as for `post_send`.
        unsafe { ibv_post_recv(self.queue_pair.as_ptr(), receive.0, &raw mut bad) }
    }

    /// Calls `ibv_post_srq_recv`.
    #[inline]
    pub(crate) fn post_shared_receive(&self, receive: &mut Receive) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: as for `post_send`.
        unsafe { ibv_post_srq_recv(self.shared.as_ptr(), receive.0, &raw mut bad) }
    }

    /// Calls `ibv_poll_cq`.
    #[inline]
    pub(crate) fn poll(&self, room: &mut Room) -> i32 {
        // SAFETY: the queue is never freed, and there is room for a batch.
        unsafe {
            ibv_poll_cq(
                self.completion_queue.as_ptr(),
                BATCH as i32,
                room.0.as_mut_ptr().cast(),
            )
        }
    }

    /// Calls `ibv_bind_mw`.
    #[inline]
    pub(crate) fn bind(&self, bind: &mut Bind) -> i32 {
        // SAFETY: queue pair, window and region are never freed.
        unsafe { ibv_bind_mw(self.queue_pair.as_ptr(), bind.window, &raw mut bind.wanted) }
    }

    /// Makes a Write with `segments` segments.
    pub(crate) fn request(&self, segments: u32) -> Request {
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
    pub(crate) fn rebind(&self) -> Request {
        let mut open = blank_request(ibv_wr_opcode::IBV_WR_BIND_MW);
        let bind = self.bind_request(WindowType::Two);
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
    pub(crate) fn receive(&self, segments: u32) -> Receive {
        // SAFETY: integers and pointers, for which zero is valid.
        let receive = unsafe { zeroed::<ibv_recv_wr>() };
        receive.wr_id = 1;
        receive.sg_list = self.segments(segments);
        receive.num_sge = segments as i32;
        Receive(receive)
    }

    /// Makes a bind of a window of this type.
    pub(crate) fn bind_request(&self, kind: WindowType) -> Bind {
        let window = Window::new(&self.domain, kind).expect("it makes windows");
        // SAFETY: integers and pointers, for which zero is valid.
        let region = unsafe { zeroed::<ibv_mr>() };
        Bind {
            window: window.raw(),
            wanted: ibv_mw_bind {
                wr_id: 1,
                send_flags: SIGNALLED,
                bind_info: ibv_mw_bind_info {
                    mr: region,
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

/// Keeps one more reference for ever.
///
/// A drop of the last one would make libibverbs free an object that it never made.
fn stay<T>(value: Arc<T>) -> Arc<T> {
    core::mem::forget(Arc::clone(&value));
    value
}

/// Work requests that are ready to post.
pub struct Request {
    first: *mut ibv_send_wr,
}

/// A receive that is ready to post.
pub struct Receive(*mut ibv_recv_wr);

/// A bind that is ready to post.
pub struct Bind {
    window: *mut ibv_mw,
    wanted: ibv_mw_bind,
}

/// Room for a batch of completions.
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

/// Returns the posts that a context pointer leads to.
///
/// # Safety
/// `Device::new` set the pointer.
#[inline]
unsafe fn posted(context: *mut c_void) -> &'static Posted {
    // SAFETY: `Device::new` stores a reference that is valid for ever.
    unsafe { &*context.cast::<Posted>() }
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
        let posted = posted((*queue_pair).qp_context);
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

/// As `post_send`, but first reads the inline data of the requests.
unsafe extern "C" fn post_send_reading(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: called with the queue pair of a device, and a valid list of verbs.
    unsafe {
        let posted = posted((*queue_pair).qp_context);
        let mut next = first;
        while !next.is_null() {
            if let (Some(reader), true) = (posted.reader, (*next).send_flags & INLINE != 0) {
                reader(&pretend::data(&*next));
            }
            next = (*next).next;
        }
        post_send(queue_pair, first, bad)
    }
}

/// Remembers the receives of a list.
///
/// # Safety
/// `first` begins a valid list of verbs.
#[inline]
unsafe fn take_receives(posted: &Posted, first: *mut ibv_recv_wr) -> i32 {
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
    unsafe { take_receives(posted((*queue_pair).qp_context), first) }
}

unsafe extern "C" fn post_shared(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: called with the queue of a device, and a valid list of verbs.
    unsafe { take_receives(posted((*queue).srq_context), first) }
}

unsafe extern "C" fn bind(
    queue_pair: *mut ibv_qp,
    window: *mut ibv_mw,
    wanted: *mut ibv_mw_bind,
) -> i32 {
    // SAFETY: called with the queue pair of a device, its window, and a valid bind of verbs.
    unsafe {
        posted((*queue_pair).qp_context).push((*wanted).wr_id);
        // Only the lowest byte counts.
        (*window).rkey = (*window).rkey & !0xFF | (*window).rkey.wrapping_add(1) & 0xFF;
    }
    0
}

unsafe extern "C" fn deregister(_region: *mut ibv_mr) -> i32 {
    0
}

/// Windows of all devices, by the address of the context and the index.
///
/// A new window gets the lowest free index.
static WINDOWS: Mutex<BTreeSet<(usize, u32)>> = Mutex::new(BTreeSet::new());

fn windows() -> MutexGuard<'static, BTreeSet<(usize, u32)>> {
    WINDOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn free_window(window: *mut ibv_mw) -> i32 {
    // SAFETY: called with a window of `make_window`, which lives until the process ends.
    let (context, key) = unsafe { ((*window).context, (*window).rkey) };
    windows().remove(&(context.addr(), key >> 8));
    0
}

unsafe extern "C" fn make_window(domain: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    // SAFETY: integers and pointers, for which zero is valid; called with the domain of a device.
    unsafe {
        let window = zeroed::<ibv_mw>();
        window.context = (*domain).context;
        window.pd = domain;
        window.type_ = kind;
        let mut windows = windows();
        let context = (*domain).context.addr();
        let index = (1..).find(|index| windows.insert((context, *index)));
        window.rkey = index.unwrap_or_default() << 8;
        window
    }
}

unsafe extern "C" fn poll(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with the queue of a device, and room for `room` entries.
    unsafe {
        let posted = posted((*queue).cq_context);
        let done = posted.done.load(Ordering::Relaxed);
        let mut next = posted.polled.load(Ordering::Relaxed);
        let mut count = 0;
        while count < room && next != done {
            let token = posted.tokens.get((next % ROOM) as usize);
            let completion = WorkCompletion {
                token: token.map_or(0, |token| token.load(Ordering::Relaxed)),
                status: 0,
                opcode: 1,
                length: 0,
                queue_pair: NUMBER,
            };
            pretend::write(&mut *into.add(count as usize), &completion);
            next = next.wrapping_add(1);
            count += 1;
        }
        posted.polled.store(next, Ordering::Relaxed);
        count
    }
}

/// As `poll`, but returns only forged completions.
unsafe extern "C" fn poll_forging(queue: *mut ibv_cq, room: i32, into: *mut ibv_wc) -> i32 {
    // SAFETY: called with the queue of a device, and room for `room` entries.
    unsafe {
        let mut forged = forged(posted((*queue).cq_context));
        pretend::answer(&mut forged, room, into)
    }
}

/// Returns the poll function of a kind of device.
fn poll_function(kind: Kind) -> unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32 {
    match kind {
        Kind::Plain | Kind::Reading(_) => poll,
        Kind::Forging => poll_forging,
    }
}

unsafe extern "C" fn notify(_queue: *mut ibv_cq, _solicited_only: i32) -> i32 {
    0
}
