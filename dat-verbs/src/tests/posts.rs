//! Requests and receives that a program posts: what is refused.

use core::ptr::null_mut;
use std::time::{Duration, Instant};

use super::Opened;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_MTU_1024, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_QPT_RC, IBV_WR_ATOMIC_WRITE, IBV_WR_DRIVER1, IBV_WR_SEND, IBV_WR_TSO,
    ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq_attr,
    ibv_srq_init_attr, ibv_wc,
};
use crate::boundary::{Address, Handle, In, Out, zeroed};
use crate::completion::{Channel, Queue, ibv_create_cq, ibv_destroy_cq, poll_cq};
use crate::memory::{Domain, ibv_alloc_pd, ibv_dealloc_pd};
use crate::query::ibv_query_gid;
use crate::transfer::{
    Pair, ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp, post_recv,
    post_send, post_srq_recv,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A queue pair that is its own peer.
pub(crate) struct Bed {
    pub(super) context: Opened,
    pub(super) domain: Handle<Domain>,
    pub(super) queue: Handle<Queue>,
    pub(crate) pair: Handle<Pair>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::of(Opened::new(), 16, Handle::NULL)
    }

    /// Makes a completion queue of `depth` with a channel, and the queue pair.
    pub(super) fn of(context: Opened, depth: i32, channel: Handle<Channel>) -> Self {
        let domain = ibv_alloc_pd(context.0);
        let queue = ibv_create_cq(context.0, depth, Address(null_mut()), channel, 0);
        let mut bed = Self {
            context,
            domain,
            queue,
            pair: Handle::NULL,
        };
        bed.pair = bed.make_pair();
        bed.lead(bed.pair, bed.pair, IBV_QPS_RTS);
        bed
    }

    pub(super) fn make_pair(&self) -> Handle<Pair> {
        let mut wanted: ibv_qp_init_attr = zeroed();
        (wanted.send_cq, wanted.recv_cq) = (self.queue.pointer(), self.queue.pointer());
        wanted.qp_type = IBV_QPT_RC;
        (wanted.cap.max_send_wr, wanted.cap.max_recv_wr) = (4, 4);
        (wanted.cap.max_send_sge, wanted.cap.max_recv_sge) = (2, 2);
        let pair = ibv_create_qp(self.domain, Out::at(&raw mut wanted));
        assert!(!pair.is_null());
        pair
    }

    /// Leads a queue pair to a state: INIT, RTR or RTS.
    pub(super) fn lead(&self, pair: Handle<Pair>, peer: Handle<Pair>, last: ibv_qp_state) {
        let mut c: ibv_qp_attr = zeroed();
        c.port_num = 1;
        c.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        c.path_mtu = IBV_MTU_1024;
        c.dest_qp_num = peer.read().expect("a pair").qp_base.qp_num;
        (c.max_rd_atomic, c.max_dest_rd_atomic) = (1, 1);
        (c.min_rnr_timer, c.timeout, c.retry_cnt, c.rnr_retry) = (12, 14, 7, 7);
        (c.ah_attr.is_global, c.ah_attr.port_num) = (1, 1);
        let gid = Out::at((&raw mut c.ah_attr.grh.dgid).cast());
        assert_eq!(ibv_query_gid(self.context.0, 1, 0, gid), 0);
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        let receive = IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        let send = IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        for (state, mask) in [
            (IBV_QPS_INIT, init),
            (IBV_QPS_RTR, receive),
            (IBV_QPS_RTS, send),
        ]
        .into_iter()
        .filter(|(state, _)| *state <= last)
        {
            c.qp_state = state;
            let mask = (mask | IBV_QP_STATE).cast_signed();
            let with = In::at(&raw const c);
            assert_eq!(ibv_modify_qp(pair, with, mask), 0, "{state}");
        }
    }

    /// Posts a request; returns the result, and true if that names the request.
    pub(super) fn send(&self, mut request: ibv_send_wr) -> (i32, bool) {
        let mut bad = null_mut();
        let posted = post_send(self.pair.pointer(), &raw mut request, &raw mut bad);
        (posted, bad == &raw mut request)
    }

    /// Posts a receive without room; returns the result.
    pub(super) fn receive(&self, token: u64) -> i32 {
        let mut receive: ibv_recv_wr = zeroed();
        receive.wr_id = token;
        let mut bad = null_mut();
        post_recv(self.pair.pointer(), &raw mut receive, &raw mut bad)
    }

    /// Takes a completion, if there is one.
    pub(super) fn poll(&self) -> Option<ibv_wc> {
        let mut wc: ibv_wc = zeroed();
        (poll_cq(self.queue.pointer(), 1, &raw mut wc) == 1).then_some(wc)
    }

    /// Waits for a completion.
    pub(super) fn complete(&self) -> ibv_wc {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(Instant::now() < end, "no completion");
        }
    }

    pub(crate) fn close(self) {
        assert_eq!(ibv_destroy_qp(self.pair), 0);
        assert_eq!(ibv_destroy_cq(self.queue), 0);
        assert_eq!(ibv_dealloc_pd(self.domain), 0);
    }
}

/// The list is not read: it has one segment.
#[test]
fn a_wrong_number_of_segments_is_refused() {
    let bed = Bed::new();
    let mut init: ibv_srq_init_attr = zeroed();
    init.attr = ibv_srq_attr {
        max_wr: 4,
        max_sge: 2,
        srq_limit: 0,
    };
    let shared = ibv_create_srq(bed.domain, In::at(&raw const init));
    let mut segment: ibv_sge = zeroed();
    let one = &raw mut segment;
    let refused = (libc::EINVAL, true);
    for (list, count) in [
        (one, 3),
        (one, 1_000_000),
        (one, i32::MAX),
        (one, -1),
        (null_mut(), 1),
    ] {
        let mut request: ibv_send_wr = zeroed();
        request.opcode = IBV_WR_SEND;
        (request.sg_list, request.num_sge) = (list, count);
        assert_eq!(bed.send(request), refused, "{count}");
        let mut receive: ibv_recv_wr = zeroed();
        (receive.sg_list, receive.num_sge) = (list, count);
        let first = &raw mut receive;
        let mut bad = null_mut();
        let posted = post_recv(bed.pair.pointer(), first, &raw mut bad);
        assert_eq!((posted, bad == first), refused, "{count}");
        bad = null_mut();
        let posted = post_srq_recv(shared.pointer(), first, &raw mut bad);
        assert_eq!((posted, bad == first), refused, "{count}");
    }
    // None at no address are none.
    assert_eq!(bed.receive(1), 0);
    assert_eq!(ibv_destroy_srq(shared), 0);
    bed.close();
}

#[test]
fn an_operation_that_is_not_supported_is_told() {
    let bed = Bed::new();
    let send = |opcode| {
        let mut request: ibv_send_wr = zeroed();
        request.opcode = opcode;
        bed.send(request)
    };
    for opcode in [IBV_WR_TSO, IBV_WR_DRIVER1, IBV_WR_ATOMIC_WRITE] {
        assert_eq!(send(opcode), (libc::EOPNOTSUPP, true), "{opcode}");
    }
    assert_eq!(send(99), (libc::EINVAL, true));
    bed.close();
}

/// As in a child of fork, whose adapter is another one.
#[test]
fn a_queue_pair_that_its_adapter_does_not_have_ends() {
    let bed = Bed::new();
    let own = bed.pair.get().expect("a pair");
    assert!(own.adapter.device.destroy_pair(own.qpn).is_ok());
    bed.close();
}
