//! The functions of the library as a program calls them, and a device to call them on.

#![allow(dead_code, reason = "each test has its own need of them")]

#[expect(
    non_camel_case_types,
    dead_code,
    unreachable_pub,
    non_snake_case,
    clippy::unreadable_literal,
    reason = "made from the headers of C"
)]
#[path = "../../src/boundary/layout.rs"]
mod layout;
#[path = "../../src/boundary/layout_checks.rs"]
mod layout_checks;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) use layout::*;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a function of the library that cargo built for these tests.
pub(crate) fn symbol(name: &str) -> *mut c_void {
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
        pub(crate) fn $name($($argument: $kind),*) -> $result {
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
    ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
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
pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) const ACCESS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// A device with two queue pairs, a queue with a channel, and memory.
pub(crate) struct Bed {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) mr: *mut ibv_mr,
    pub(crate) bytes: &'static mut [u8],
    pub(crate) pairs: [*mut ibv_qp; 2],
}

pub(crate) fn open() -> *mut ibv_context {
    let mut count = 0;
    let list = ibv_get_device_list(&raw mut count);
    assert_eq!(count, 1);
    // SAFETY: the list has one device.
    let context = ibv_open_device(unsafe { *list });
    ibv_free_device_list(list);
    assert!(!context.is_null(), "errno {}", errno());
    context
}

pub(crate) fn wanted(cq: *mut ibv_cq, srq: *mut ibv_srq) -> ibv_qp_init_attr {
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
    pub(crate) fn new(srq: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq) -> Self {
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

    pub(crate) fn qpn(&self, pair: usize) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.pairs[pair]).qp_num }
    }

    pub(crate) fn connect(&self, own: usize, peer: usize) {
        for (attr, mask) in changes(self.context, self.qpn(peer)) {
            assert_eq!(
                ibv_modify_qp(self.pairs[own], &mut attr.clone(), mask as c_int),
                0
            );
        }
    }

    pub(crate) fn segment(&mut self, at: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.bytes.as_ptr() as u64 + at as u64,
            length,
            // SAFETY: a live region.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    /// Posts a request of the first queue pair.
    pub(crate) fn post(
        &mut self,
        opcode: ibv_wr_opcode,
        flags: c_uint,
        at: usize,
        length: u32,
    ) -> c_int {
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
    pub(crate) fn receive(&mut self, at: usize, length: u32) -> c_int {
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

    pub(crate) fn arm(&self) {
        // SAFETY: a live queue, and its device's function.
        let armed = unsafe { (*self.context).ops.req_notify_cq.expect("a function")(self.cq, 0) };
        assert_eq!(armed, 0);
    }

    pub(crate) fn poll(&self, count: usize) -> Vec<ibv_wc> {
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

    pub(crate) fn close(self) {
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
pub(crate) fn changes(context: *mut ibv_context, peer: u32) -> [(ibv_qp_attr, c_uint); 3] {
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

pub(crate) fn no_srq(_: *mut ibv_pd) -> *mut ibv_srq {
    null_mut()
}

/// Returns the address of the loop-back interface with a port; it lives as long as the test.
pub(crate) fn loopback(port: u16) -> *mut libc::sockaddr {
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

pub(crate) fn new_id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    let made = rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_TCP);
    assert_eq!(made, 0, "errno {}", errno());
    id
}

pub(crate) fn param(data: &[u8]) -> rdma_conn_param {
    // SAFETY: numbers and pointers.
    let mut param: rdma_conn_param = unsafe { zeroed() };
    param.private_data = data.as_ptr().cast();
    param.private_data_len = data.len() as u8;
    (param.responder_resources, param.initiator_depth) = (3, 2);
    (param.retry_count, param.rnr_retry_count) = (7, 7);
    param
}
