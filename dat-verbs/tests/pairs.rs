//! Queue pairs and connections as a program calls them: two of one process.

#![expect(unsafe_code, reason = "the library is called as from C")]

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;

use common::*;

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

/// Makes a queue pair for datagrams with `ibv_wr_*`, and leads it to RTS.
fn datagram_pair(bed: &Bed) -> *mut ibv_qp {
    // SAFETY: numbers and pointers.
    let mut init: ibv_qp_init_attr_ex = unsafe { zeroed() };
    let plain = wanted(bed.cq, null_mut());
    (init.send_cq, init.recv_cq) = (plain.send_cq, plain.recv_cq);
    (init.cap, init.qp_type) = (plain.cap, IBV_QPT_UD);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = bed.pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND.into();
    let front = std::mem::offset_of!(verbs_context, context);
    // SAFETY: the context is part of an extended one, and the function is its device's.
    let pair = unsafe {
        let extended = bed.context.byte_sub(front).cast::<verbs_context>();
        (*extended).create_qp_ex.expect("a function")(bed.context, &raw mut init)
    };
    assert!(!pair.is_null(), "errno {}", errno());
    let change = |state, mask| {
        // SAFETY: numbers and pointers.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        (attr.qp_state, attr.port_num) = (state, 1);
        assert_eq!(ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
    };
    let first = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    change(IBV_QPS_INIT, first);
    change(IBV_QPS_RTR, IBV_QP_STATE);
    change(IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN);
    pair
}

/// A datagram is as long as a packet of every interface, by both ways to post it.
#[test]
fn a_long_datagram_is_refused() {
    let mut bed = Bed::new(no_srq);
    let pair = datagram_pair(&bed);
    // SAFETY: numbers.
    let mut port: ibv_port_attr = unsafe { zeroed() };
    assert_eq!(ibv_query_port(bed.context, 1, &raw mut port), 0);
    let mtu = 128_u32 << port.active_mtu;
    let [_, (mut receives, _), _] = changes(bed.context, 0);
    let address = ibv_create_ah(bed.pd, &raw mut receives.ah_attr);
    assert!(!address.is_null(), "errno {}", errno());
    let half = mtu / 2;
    let extended = ibv_qp_to_qp_ex(pair);
    for (length, expected) in [(half, 0), (half + 1, libc::EINVAL)] {
        let mut segments = [bed.segment(0, half), bed.segment(half as usize, length)];
        // SAFETY: numbers and pointers.
        let mut request: ibv_send_wr = unsafe { zeroed() };
        (request.sg_list, request.num_sge) = (segments.as_mut_ptr(), 2);
        (request.opcode, request.wr.ud.ah) = (IBV_WR_SEND, address);
        // SAFETY: a live queue pair.
        request.wr.ud.remote_qpn = unsafe { (*pair).qp_num };
        let mut bad = null_mut();
        // SAFETY: a live queue pair, and its device's functions.
        let posted = unsafe {
            let post = (*bed.context).ops.post_send.expect("a function");
            let posted = post(pair, &raw mut request, &raw mut bad);
            let qp = &*extended;
            qp.wr_start.expect("a function")(extended);
            qp.wr_send.expect("a function")(extended);
            qp.wr_set_ud_addr.expect("a function")(extended, address, (*pair).qp_num, 0);
            for part in &segments {
                let set = qp.wr_set_sge.expect("a function");
                set(extended, part.lkey, part.addr, part.length);
            }
            [posted, qp.wr_complete.expect("a function")(extended)]
        };
        assert_eq!(posted, [expected; 2], "{length}");
    }
    assert_eq!(ibv_destroy_ah(address), 0);
    assert_eq!(ibv_destroy_qp(pair), 0);
    bed.close();
}

/// Two ends of rdma_cm: one that listens, and one that connects.
struct Ends {
    channels: [*mut rdma_event_channel; 2],
    listener: *mut rdma_cm_id,
    client: *mut rdma_cm_id,
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
        let pair = unsafe { (*id).qp };
        // SAFETY: as above.
        assert_eq!(unsafe { (*pair).state }, IBV_QPS_RTS);
        for state in [IBV_QPS_SQD, IBV_QPS_RTS] {
            // SAFETY: numbers and pointers.
            let mut attr: ibv_qp_attr = unsafe { zeroed() };
            attr.qp_state = state;
            let mask = IBV_QP_STATE as c_int;
            assert_eq!(ibv_modify_qp(pair, &raw mut attr, mask), 0, "{state}");
        }
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

fn query(pair: *mut ibv_qp) -> ibv_qp_attr {
    // SAFETY: numbers and pointers.
    let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { zeroed() };
    let queried = ibv_query_qp(pair, &raw mut attr, -1, &raw mut init);
    assert_eq!(queried, 0);
    attr
}

/// Those that rdma_cm has agreed on, on both sides.
///
/// Spec: ROCE-278
#[test]
fn a_connection_keeps_its_attributes_while_another_changes() {
    let mut bed = Bed::new(no_srq);
    let ends = Ends::new();
    rdma_destroy_qp(ends.client);
    let make = |id| {
        assert_eq!(
            rdma_create_qp(id, bed.pd, &mut wanted(bed.cq, null_mut())),
            0
        )
    };
    make(ends.client);
    let server = ends.connect(b"hello");
    make(server);
    assert_eq!(rdma_accept(server, &mut param(b"")), 0);
    for side in [0, 1] {
        assert_eq!(ends.next(side).0, RDMA_CM_EVENT_ESTABLISHED);
    }
    for id in [ends.client, server] {
        // SAFETY: a live id with a queue pair.
        let pair = unsafe { (*id).qp };
        let before = query(pair);
        assert_eq!((before.max_dest_rd_atomic, before.max_rd_atomic), (3, 2));
        assert_eq!((before.retry_cnt, before.rnr_retry), (7, 7));
        assert_eq!((before.qp_access_flags, before.port_num), (ACCESS, 1));
        for (state, mask) in [
            (IBV_QPS_SQD, IBV_QP_STATE),
            (IBV_QPS_SQD, IBV_QP_TIMEOUT),
            (IBV_QPS_RTS, IBV_QP_STATE),
        ] {
            // SAFETY: numbers and pointers.
            let mut attr: ibv_qp_attr = unsafe { zeroed() };
            (attr.qp_state, attr.timeout) = (state, 9);
            assert_eq!(ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        }
        let after = query(pair);
        assert_eq!((after.timeout, after.max_rd_atomic), (9, 2));
    }
    for id in [ends.client, server] {
        // SAFETY: a live id with a queue pair.
        let own = std::mem::replace(&mut bed.pairs[0], unsafe { (*id).qp });
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            assert_eq!(bed.post(opcode, IBV_SEND_SIGNALED, 0, 8), 0);
            assert_eq!(bed.poll(1)[0].status, IBV_WC_SUCCESS, "{opcode}");
        }
        bed.pairs[0] = own;
    }
    rdma_destroy_qp(server);
    assert_eq!(rdma_destroy_id(server), 0);
    ends.close();
    bed.close();
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
