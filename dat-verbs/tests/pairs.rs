//! Queue pairs and connections as a program calls them: two of one process.

#![expect(unsafe_code, reason = "the library is called as from C")]

#[expect(
    non_camel_case_types,
    dead_code,
    unreachable_pub,
    non_snake_case,
    clippy::unreadable_literal,
    reason = "made from the headers of C"
)]
#[path = "../src/boundary/layout.rs"]
mod layout;
#[path = "../src/boundary/layout_checks.rs"]
mod layout_checks;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use layout::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a function of the library that cargo built for these tests.
fn symbol(name: &str) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let path = test.with_file_name("libdat_verbs.so");
        let path = CString::new(path.to_str().expect("a text")).expect("a text");
        // SAFETY: the name is a text.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "no {path:?}");
        library as usize
    });
    let name = CString::new(name).expect("a text");
    let library = std::ptr::with_exposed_provenance_mut(library);
    // SAFETY: the library stays open.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "no {name:?}");
    found
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name($($argument: $kind),*) -> $result {
            let address = symbol(stringify!($name));
            // SAFETY: the header declares the function with this type.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> $result>(
                    address,
                )
            };
            // SAFETY: the arguments are null, or what the manual says.
            unsafe { function($($argument),*) }
        }
    )*};
}

calls! {
    ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(list: *mut *mut ibv_device) -> ();
    ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    ibv_close_device(context: *mut ibv_context) -> c_int;
    ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    ibv_get_cq_event(
        channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, context: *mut *mut c_void
    ) -> c_int;
    ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) -> ();
    ibv_create_cq(
        context: *mut ibv_context, depth: c_int, cq_context: *mut c_void,
        channel: *mut ibv_comp_channel, vector: c_int
    ) -> *mut ibv_cq;
    ibv_resize_cq(cq: *mut ibv_cq, depth: c_int) -> c_int;
    ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    ibv_query_qp(
        qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr
    ) -> c_int;
    ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(event: *mut ibv_async_event) -> ();
    rdma_create_event_channel() -> *mut rdma_event_channel;
    rdma_destroy_event_channel(channel: *mut rdma_event_channel) -> ();
    rdma_create_id(
        channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void,
        space: rdma_port_space
    ) -> c_int;
    rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    rdma_bind_addr(id: *mut rdma_cm_id, own: *mut libc::sockaddr) -> c_int;
    rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    rdma_get_src_port(id: *mut rdma_cm_id) -> u16;
    rdma_resolve_addr(
        id: *mut rdma_cm_id, own: *mut libc::sockaddr, peer: *mut libc::sockaddr, timeout: c_int
    ) -> c_int;
    rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int;
    rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> c_int;
    rdma_destroy_qp(id: *mut rdma_cm_id) -> ();
    rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int;
    rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    rdma_get_cm_event(
        channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event
    ) -> c_int;
    rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
}

/// Returns the error number of this thread.
fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

const ACCESS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// A device with two queue pairs, a queue with a channel, and memory.
struct Bed {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    mr: *mut ibv_mr,
    bytes: &'static mut [u8],
    pairs: [*mut ibv_qp; 2],
}

fn open() -> *mut ibv_context {
    let mut count = 0;
    let list = ibv_get_device_list(&raw mut count);
    assert_eq!(count, 1);
    // SAFETY: the list has one device.
    let context = ibv_open_device(unsafe { *list });
    ibv_free_device_list(list);
    assert!(!context.is_null(), "errno {}", errno());
    context
}

fn wanted(cq: *mut ibv_cq, srq: *mut ibv_srq) -> ibv_qp_init_attr {
    // SAFETY: numbers and pointers.
    let mut init: ibv_qp_init_attr = unsafe { zeroed() };
    (init.send_cq, init.recv_cq, init.srq) = (cq, cq, srq);
    init.cap = ibv_qp_cap {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
    init.qp_type = IBV_QPT_RC;
    init
}

impl Bed {
    fn new(srq: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq) -> Self {
        let context = open();
        let pd = ibv_alloc_pd(context);
        let channel = ibv_create_comp_channel(context);
        let cq = ibv_create_cq(context, 64, 0x77 as *mut c_void, channel, 0);
        let bytes = vec![0u8; 4096].leak();
        let mr = ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), 4096, ACCESS as c_int);
        assert!(!(pd.is_null() || channel.is_null() || cq.is_null() || mr.is_null()));
        let srq = srq(pd);
        let pairs = [0, 1].map(|_| {
            let pair = ibv_create_qp(pd, &mut wanted(cq, srq));
            assert!(!pair.is_null(), "errno {}", errno());
            pair
        });
        let bed = Self {
            context,
            pd,
            channel,
            cq,
            mr,
            bytes,
            pairs,
        };
        for (one, other) in [(0, 1), (1, 0)] {
            bed.connect(one, other);
        }
        bed
    }

    fn qpn(&self, pair: usize) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.pairs[pair]).qp_num }
    }

    fn connect(&self, own: usize, peer: usize) {
        for (attr, mask) in changes(self.context, self.qpn(peer)) {
            assert_eq!(
                ibv_modify_qp(self.pairs[own], &mut attr.clone(), mask as c_int),
                0
            );
        }
    }

    fn segment(&mut self, at: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.bytes.as_ptr() as u64 + at as u64,
            length,
            // SAFETY: a live region.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    /// Posts a request of the first queue pair.
    fn post(&mut self, opcode: ibv_wr_opcode, flags: c_uint, at: usize, length: u32) -> c_int {
        let mut segment = self.segment(at, length);
        // SAFETY: numbers and pointers.
        let mut request: ibv_send_wr = unsafe { zeroed() };
        request.wr_id = at as u64;
        request.sg_list = &raw mut segment;
        request.num_sge = 1;
        request.opcode = opcode;
        request.send_flags = flags;
        request.wr.rdma.remote_addr = self.bytes.as_ptr() as u64 + 2048;
        request.wr.rdma.rkey = segment.lkey;
        let mut bad = null_mut();
        // SAFETY: a live queue pair, and its device's function.
        unsafe {
            let post = (*self.context).ops.post_send.expect("a function");
            post(self.pairs[0], &raw mut request, &raw mut bad)
        }
    }

    /// Posts a receive of the second queue pair.
    fn receive(&mut self, at: usize, length: u32) -> c_int {
        let mut segment = self.segment(at, length);
        let mut receive = ibv_recv_wr {
            wr_id: at as u64,
            next: null_mut(),
            sg_list: &raw mut segment,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: a live queue pair, and its device's function.
        unsafe {
            let post = (*self.context).ops.post_recv.expect("a function");
            post(self.pairs[1], &raw mut receive, &raw mut bad)
        }
    }

    fn arm(&self) {
        // SAFETY: a live queue, and its device's function.
        let armed = unsafe { (*self.context).ops.req_notify_cq.expect("a function")(self.cq, 0) };
        assert_eq!(armed, 0);
    }

    fn poll(&self, count: usize) -> Vec<ibv_wc> {
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < end, "{} of {count} completions", all.len());
            // SAFETY: numbers.
            let mut some: [ibv_wc; 4] = unsafe { zeroed() };
            // SAFETY: a live queue, and its device's function.
            let taken = unsafe {
                let poll = (*self.context).ops.poll_cq.expect("a function");
                poll(self.cq, 4, some.as_mut_ptr())
            };
            assert!(taken >= 0);
            all.extend_from_slice(&some[..taken as usize]);
        }
        all
    }

    fn close(self) {
        for pair in self.pairs {
            assert_eq!(ibv_destroy_qp(pair), 0);
        }
        assert_eq!(ibv_dereg_mr(self.mr), 0);
        assert_eq!(ibv_destroy_cq(self.cq), 0);
        assert_eq!(ibv_destroy_comp_channel(self.channel), 0);
        assert_eq!(ibv_dealloc_pd(self.pd), 0);
        assert_eq!(ibv_close_device(self.context), 0);
    }
}

/// Returns the attributes and masks that lead from RESET to RTS.
fn changes(context: *mut ibv_context, peer: u32) -> [(ibv_qp_attr, c_uint); 3] {
    // SAFETY: numbers.
    let mut init: ibv_qp_attr = unsafe { zeroed() };
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = ACCESS;
    let mut receive = init;
    receive.qp_state = IBV_QPS_RTR;
    receive.path_mtu = IBV_MTU_1024;
    receive.dest_qp_num = peer;
    receive.rq_psn = 77;
    receive.max_dest_rd_atomic = 1;
    receive.min_rnr_timer = 12;
    receive.ah_attr.is_global = 1;
    receive.ah_attr.port_num = 1;
    assert_eq!(
        ibv_query_gid(context, 1, 0, &raw mut receive.ah_attr.grh.dgid),
        0
    );
    let mut send = init;
    send.qp_state = IBV_QPS_RTS;
    send.sq_psn = 77;
    send.max_rd_atomic = 1;
    (send.timeout, send.retry_cnt, send.rnr_retry) = (14, 7, 7);
    [
        (
            init,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        ),
        (
            receive,
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
        ),
        (
            send,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
        ),
    ]
}

fn no_srq(_: *mut ibv_pd) -> *mut ibv_srq {
    null_mut()
}

#[test]
fn messages_and_writes_complete_as_on_a_device() {
    let mut bed = Bed::new(no_srq);
    bed.bytes[..8].copy_from_slice(b"a letter");
    assert_eq!(bed.receive(1024, 64), 0);
    assert_eq!(bed.post(IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8), 0);
    let mut done = bed.poll(2);
    done.sort_by_key(|done| done.wr_id);
    let told = |done: &ibv_wc| (done.wr_id, done.status, done.opcode, done.vendor_err);
    assert_eq!(told(&done[0]), (0, IBV_WC_SUCCESS, IBV_WC_SEND, 0));
    assert_eq!(told(&done[1]), (1024, IBV_WC_SUCCESS, IBV_WC_RECV, 0));
    assert_eq!((done[1].byte_len, done[1].qp_num), (8, bed.qpn(1)));
    assert_eq!(&bed.bytes[1024..1032], b"a letter");
    // Not signalled: only the second one completes.
    assert_eq!(bed.post(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 0, 8), 0);
    assert_eq!(bed.post(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 100, 8), 0);
    let done = bed.poll(1);
    assert_eq!(told(&done[0]), (100, IBV_WC_SUCCESS, IBV_WC_RDMA_READ, 0));
    assert_eq!(&bed.bytes[2048..2056], b"a letter");
    assert_eq!(&bed.bytes[100..108], b"a letter");
    bed.close();
}

/// The channel's descriptor tells of a completion; a queue waits for the events that were taken.
#[test]
fn a_channel_tells_of_completions() {
    let mut bed = Bed::new(no_srq);
    bed.arm();
    assert_eq!(bed.post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8), 0);
    let mut poll = libc::pollfd {
        // SAFETY: a live channel.
        fd: unsafe { (*bed.channel).fd },
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry is valid.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 60_000) }, 1);
    let (mut cq, mut context) = (null_mut(), null_mut());
    assert_eq!(
        ibv_get_cq_event(bed.channel, &raw mut cq, &raw mut context),
        0
    );
    assert_eq!((cq, context as usize), (bed.cq, 0x77));
    assert_eq!(bed.poll(1).len(), 1);
    ibv_ack_cq_events(cq, 1);
    bed.close();
}

/// A wrong key fails the request, and the peer's queue pair tells of it.
#[test]
fn a_refused_access_is_an_asynchronous_event_of_the_peer() {
    let mut bed = Bed::new(no_srq);
    let remote = ibv_dereg_mr(bed.mr);
    assert_eq!(remote, 0);
    let bytes = bed.bytes.as_mut_ptr().cast();
    bed.mr = ibv_reg_mr(bed.pd, bytes, 4096, IBV_ACCESS_LOCAL_WRITE as c_int);
    assert_eq!(bed.post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8), 0);
    assert_eq!(bed.poll(1)[0].status, IBV_WC_REM_ACCESS_ERR);
    // SAFETY: numbers and pointers.
    let mut event: ibv_async_event = unsafe { zeroed() };
    assert_eq!(ibv_get_async_event(bed.context, &raw mut event), 0);
    assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    // SAFETY: this event names a queue pair.
    assert_eq!(unsafe { event.element.qp }, bed.pairs[1]);
    ibv_ack_async_event(&raw mut event);
    // SAFETY: numbers and pointers.
    let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { zeroed() };
    let state = IBV_QP_STATE as c_int;
    assert_eq!(
        ibv_query_qp(bed.pairs[0], &raw mut attr, state, &raw mut init),
        0
    );
    assert_eq!(attr.qp_state, IBV_QPS_ERR);
    // What is posted now is flushed.
    assert_eq!(bed.post(IBV_WR_SEND, 0, 0, 8), 0);
    assert_eq!(bed.poll(1)[0].status, IBV_WC_WR_FLUSH_ERR);
    bed.close();
}

#[test]
fn a_shared_queue_tells_of_its_limit() {
    let mut own = null_mut();
    let bed = Bed::new(|pd| {
        let mut init = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr {
                max_wr: 4,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        own = ibv_create_srq(pd, &raw mut init);
        own
    });
    let mut limit = ibv_srq_attr {
        max_wr: 0,
        max_sge: 0,
        srq_limit: 1,
    };
    let mask = IBV_SRQ_LIMIT as c_int;
    assert_eq!(ibv_modify_srq(own, &raw mut limit, mask), 0);
    // SAFETY: numbers and pointers.
    let mut event: ibv_async_event = unsafe { zeroed() };
    assert_eq!(ibv_get_async_event(bed.context, &raw mut event), 0);
    assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    ibv_ack_async_event(&raw mut event);
    assert_eq!(
        ibv_modify_srq(own, &raw mut limit, IBV_SRQ_MAX_WR as c_int),
        libc::EINVAL
    );
    assert_eq!(ibv_destroy_srq(own), libc::EBUSY);
    let (pd, pairs) = (bed.pd, bed.pairs);
    for pair in pairs {
        assert_eq!(ibv_destroy_qp(pair), 0);
    }
    assert_eq!(ibv_destroy_srq(own), 0);
    assert_eq!(ibv_dealloc_pd(pd), libc::EBUSY);
}

#[test]
fn misuse_is_refused_as_the_manual_says() {
    let mut bed = Bed::new(no_srq);
    // In use.
    assert_eq!(ibv_destroy_cq(bed.cq), libc::EBUSY);
    assert_eq!(ibv_dealloc_pd(bed.pd), libc::EBUSY);
    assert_eq!(ibv_destroy_comp_channel(bed.channel), libc::EBUSY);
    // Null, and another kind of object.
    assert_eq!(ibv_destroy_qp(null_mut()), libc::EINVAL);
    assert_eq!(ibv_destroy_cq(bed.pairs[0].cast()), libc::EINVAL);
    assert_eq!(ibv_modify_qp(bed.pairs[0], null_mut(), 0), libc::EINVAL);
    assert!(ibv_alloc_pd(null_mut()).is_null());
    assert_eq!(errno(), libc::EINVAL);
    // Memory that is not there, and rights without that of this side.
    let hole = 0x1000 as *mut c_void;
    assert!(ibv_reg_mr(bed.pd, hole, 4096, 0).is_null());
    assert_eq!(errno(), libc::EFAULT);
    let bytes = bed.bytes.as_mut_ptr().cast();
    assert!(ibv_reg_mr(bed.pd, bytes, 8, IBV_ACCESS_REMOTE_WRITE as c_int).is_null());
    assert_eq!(errno(), libc::EINVAL);
    // Sizes above the limits.
    let mut init = wanted(bed.cq, null_mut());
    init.cap.max_send_wr = 1 << 20;
    assert!(ibv_create_qp(bed.pd, &raw mut init).is_null());
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(ibv_resize_cq(bed.cq, 0), libc::EINVAL);
    assert_eq!(ibv_resize_cq(bed.cq, 128), 0);
    // A queue pair that was made without them has no `ibv_wr_*`.
    assert!(ibv_qp_to_qp_ex(bed.pairs[0]).is_null());
    // Posts in a wrong state, and with too many bytes inline.
    assert_eq!(bed.post(IBV_WR_SEND, IBV_SEND_INLINE, 0, 65), libc::EINVAL);
    let fresh = ibv_create_qp(bed.pd, &mut wanted(bed.cq, null_mut()));
    let connected = std::mem::replace(&mut bed.pairs[0], fresh);
    assert_eq!(bed.post(IBV_WR_SEND, 0, 0, 8), libc::EINVAL);
    let [(init, mask), (mut receive, receive_mask), _] = changes(bed.context, 1);
    let modify = |attr: &mut ibv_qp_attr, mask: c_uint| ibv_modify_qp(fresh, attr, mask as c_int);
    assert_eq!(modify(&mut receive, receive_mask), libc::EINVAL);
    assert_eq!(modify(&mut init.clone(), mask & !IBV_QP_PORT), libc::EINVAL);
    let mut other_port = init;
    other_port.port_num = 2;
    assert_eq!(modify(&mut other_port, mask), libc::EINVAL);
    assert_eq!(modify(&mut init.clone(), mask), 0);
    receive.ah_attr.is_global = 0;
    assert_eq!(modify(&mut receive, receive_mask), libc::EINVAL);
    receive.ah_attr.is_global = 1;
    receive.ah_attr.grh.sgid_index = 99;
    assert_eq!(modify(&mut receive, receive_mask), libc::EINVAL);
    bed.pairs[0] = connected;
    // Twice.
    assert_eq!(ibv_destroy_qp(fresh), 0);
    assert_eq!(ibv_destroy_qp(fresh), libc::EINVAL);
    let mr = bed.mr;
    bed.close();
    assert_eq!(ibv_dereg_mr(mr), libc::EINVAL);
}

#[test]
fn limits_are_told_and_met() {
    let context = open();
    // SAFETY: numbers.
    let mut attr: ibv_device_attr = unsafe { zeroed() };
    assert_eq!(ibv_query_device(context, &raw mut attr), 0);
    let depth = attr.max_cqe;
    let cq = ibv_create_cq(context, depth + 1, null_mut(), null_mut(), 0);
    assert!(cq.is_null());
    let cq = ibv_create_cq(context, 16, null_mut(), null_mut(), 0);
    let pd = ibv_alloc_pd(context);
    let mut init = wanted(cq, null_mut());
    init.cap.max_send_wr = attr.max_qp_wr as u32;
    init.cap.max_send_sge = attr.max_sge as u32;
    let pair = ibv_create_qp(pd, &raw mut init);
    assert!(!pair.is_null());
    assert_eq!(ibv_destroy_qp(pair), 0);
    assert_eq!(ibv_destroy_cq(cq), 0);
    assert_eq!(ibv_dealloc_pd(pd), 0);
    assert_eq!(ibv_close_device(context), 0);
    assert_eq!(ibv_close_device(context), -1);
}

/// Returns the address of the loop-back interface with a port; it lives as long as the test.
fn loopback(port: u16) -> *mut libc::sockaddr {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    (&raw mut *Box::leak(Box::new(address))).cast()
}

/// Two ends of rdma_cm: one that listens, and one that connects.
struct Ends {
    channels: [*mut rdma_event_channel; 2],
    listener: *mut rdma_cm_id,
    client: *mut rdma_cm_id,
}

fn new_id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    let made = rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_TCP);
    assert_eq!(made, 0, "errno {}", errno());
    id
}

impl Ends {
    /// Makes both, with a client that is about to connect.
    fn new() -> Self {
        let channels = [rdma_create_event_channel(), rdma_create_event_channel()];
        let ids = channels.map(new_id);
        let ends = Self {
            channels,
            listener: ids[0],
            client: ids[1],
        };
        assert_eq!(rdma_bind_addr(ends.listener, loopback(0)), 0);
        assert_eq!(rdma_listen(ends.listener, 4), 0);
        let port = u16::from_be(rdma_get_src_port(ends.listener));
        assert_ne!(port, 0);
        let peer = loopback(port);
        assert_eq!(rdma_resolve_addr(ends.client, null_mut(), peer, 1000), 0);
        assert_eq!(ends.next(1).0, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(ends.client, 1000), 0);
        assert_eq!(ends.next(1).0, RDMA_CM_EVENT_ROUTE_RESOLVED);
        let made = rdma_create_qp(ends.client, null_mut(), &mut wanted(null_mut(), null_mut()));
        assert_eq!(made, 0, "errno {}", errno());
        ends
    }

    /// Waits for the next event of a side, and acknowledges it: its kind, id and private data.
    fn next(
        &self,
        side: usize,
    ) -> (
        rdma_cm_event_type,
        *mut rdma_cm_id,
        Vec<u8>,
        rdma_conn_param,
    ) {
        let mut event = null_mut();
        assert_eq!(rdma_get_cm_event(self.channels[side], &raw mut event), 0);
        // SAFETY: a live event; that of a connection has these parameters.
        let (kind, id, param) = unsafe { ((*event).event, (*event).id, (*event).param.conn) };
        let length = usize::from(param.private_data_len);
        let data = if length == 0 {
            Vec::new()
        } else {
            // SAFETY: the event says how long its data is.
            unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), length) }.to_vec()
        };
        assert_eq!(rdma_ack_cm_event(event), 0);
        assert_eq!(rdma_ack_cm_event(event), -1, "twice");
        (kind, id, data, param)
    }

    fn connect(&self, data: &[u8]) -> *mut rdma_cm_id {
        assert_eq!(
            rdma_connect(self.client, &mut param(data)),
            0,
            "errno {}",
            errno()
        );
        let (kind, id, came, depths) = self.next(0);
        assert_eq!(kind, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(&came[..data.len()], data);
        // As the receiver has them.
        assert_eq!((depths.responder_resources, depths.initiator_depth), (2, 3));
        id
    }

    fn close(self) {
        rdma_destroy_qp(self.client);
        for id in [self.client, self.listener] {
            assert_eq!(rdma_destroy_id(id), 0, "errno {}", errno());
            assert_eq!(rdma_destroy_id(id), -1);
        }
        for channel in self.channels {
            rdma_destroy_event_channel(channel);
        }
    }
}

fn param(data: &[u8]) -> rdma_conn_param {
    // SAFETY: numbers and pointers.
    let mut param: rdma_conn_param = unsafe { zeroed() };
    param.private_data = data.as_ptr().cast();
    param.private_data_len = data.len() as u8;
    (param.responder_resources, param.initiator_depth) = (3, 2);
    (param.retry_count, param.rnr_retry_count) = (7, 7);
    param
}

#[test]
fn rdma_cm_connects_and_both_sides_learn_of_the_end() {
    let ends = Ends::new();
    let server = ends.connect(b"hello");
    let made = rdma_create_qp(server, null_mut(), &mut wanted(null_mut(), null_mut()));
    assert_eq!(made, 0, "errno {}", errno());
    assert_eq!(rdma_accept(server, &mut param(b"welcome")), 0);
    let (kind, id, data, _) = ends.next(1);
    assert_eq!((kind, id), (RDMA_CM_EVENT_ESTABLISHED, ends.client));
    assert_eq!(&data[..7], b"welcome");
    assert_eq!(ends.next(0).0, RDMA_CM_EVENT_ESTABLISHED);
    for id in [ends.client, server] {
        // SAFETY: a live id with a queue pair.
        assert_eq!(unsafe { (*(*id).qp).state }, IBV_QPS_RTS);
    }
    assert_eq!(rdma_disconnect(ends.client), 0);
    assert_eq!(ends.next(1).0, RDMA_CM_EVENT_DISCONNECTED);
    assert_eq!(ends.next(0).0, RDMA_CM_EVENT_DISCONNECTED);
    // The peer was first.
    assert_eq!(rdma_disconnect(server), 0);
    rdma_destroy_qp(server);
    assert_eq!(rdma_destroy_id(server), 0);
    ends.close();
}

#[test]
fn rdma_cm_tells_of_a_rejection_and_refuses_misuse() {
    let ends = Ends::new();
    // Before it has a queue pair, and without a request.
    assert_eq!(rdma_accept(ends.client, null_mut()), -1);
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(rdma_connect(ends.listener, null_mut()), -1);
    let mut id = null_mut();
    let made = rdma_create_id(ends.channels[0], &raw mut id, null_mut(), RDMA_PS_UDP);
    assert_eq!((made, errno()), (-1, libc::EOPNOTSUPP));
    // The port is taken.
    let other = new_id(ends.channels[0]);
    let port = u16::from_be(rdma_get_src_port(ends.listener));
    assert_eq!(rdma_bind_addr(other, loopback(port)), -1);
    assert_eq!(errno(), libc::EADDRINUSE, "it has a listener");
    assert_eq!(rdma_destroy_id(other), 0);
    let server = ends.connect(b"hello");
    assert_eq!(rdma_reject(server, b"no".as_ptr().cast(), 2), 0);
    assert_eq!(rdma_reject(server, b"no".as_ptr().cast(), 2), -1, "once");
    let (kind, _, data, _) = ends.next(1);
    assert_eq!(kind, RDMA_CM_EVENT_REJECTED);
    assert_eq!(&data[..2], b"no");
    assert_eq!(rdma_destroy_id(server), 0);
    ends.close();
}

#[test]
fn windows_are_of_regions_that_allow_them() {
    let bed = Bed::new(no_srq);
    // SAFETY: a live context.
    let ops = unsafe { (*bed.context).ops };
    // SAFETY: a live domain, and its device's function.
    let window = |kind| unsafe { ops.alloc_mw.expect("a function")(bed.pd, kind) };
    assert!(window(3).is_null());
    assert_eq!(errno(), libc::EINVAL);
    let one = window(IBV_MW_TYPE_1);
    assert!(!one.is_null());
    // SAFETY: numbers and pointers.
    let mut bind: ibv_mw_bind = unsafe { zeroed() };
    bind.bind_info.mr = bed.mr;
    bind.bind_info.addr = bed.bytes.as_ptr() as u64;
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    // SAFETY: live objects, and their device's function.
    let mut post = |length| unsafe {
        bind.bind_info.length = length;
        ops.bind_mw.expect("a function")(bed.pairs[0], one, &raw mut bind)
    };
    assert_eq!(post(8), libc::EINVAL);
    // No bytes are of no region.
    assert_eq!(post(0), 0);
    // SAFETY: a live window, and its device's function.
    let end = || unsafe { ops.dealloc_mw.expect("a function")(one) };
    assert_eq!(ibv_dealloc_pd(bed.pd), libc::EBUSY);
    assert_eq!(end(), 0);
    assert_eq!(end(), libc::EINVAL);
    bed.close();
}
