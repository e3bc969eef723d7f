//! Events of queue pairs.

use core::ptr::null_mut;

use nix::errno::Errno;

use super::Opened;
use super::posts::Bed;
use crate::boundary::layout::{
    IBV_EVENT_COMM_EST, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_QPT_RC, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_LOC_PROT_ERR,
    IBV_WC_REM_OP_ERR, IBV_WC_SUCCESS, IBV_WR_SEND, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq_init_attr,
};
use crate::boundary::{Address, Handle, In, Out, element_of, zeroed};
use crate::completion::{ibv_create_cq, ibv_destroy_cq};
use crate::memory::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::opening::ibv_ack_async_event;
use crate::transfer::{
    Pair, ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp, post_recv,
    post_send,
};

pub(crate) fn fail(pair: Handle<Pair>) {
    let mut attributes: ibv_qp_attr = zeroed();
    attributes.qp_state = IBV_QPS_ERR;
    let mask = IBV_QP_STATE.cast_signed();
    assert_eq!(ibv_modify_qp(pair, In::at(&raw const attributes), mask), 0);
}

#[test]
fn a_failed_queue_pair_tells_of_its_last_receive_of_a_shared_queue() {
    let context = Opened::new();
    let domain = ibv_alloc_pd(context.0);
    let queue = ibv_create_cq(context.0, 8, Address(null_mut()), Handle::NULL, 0);
    let mut init: ibv_srq_init_attr = zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (4, 1);
    let shared = ibv_create_srq(domain, In::at(&raw const init));
    let pairs = [shared.pointer(), null_mut()].map(|srq| {
        let mut wanted: ibv_qp_init_attr = zeroed();
        (wanted.send_cq, wanted.recv_cq) = (queue.pointer(), queue.pointer());
        (wanted.srq, wanted.qp_type) = (srq, IBV_QPT_RC);
        ibv_create_qp(domain, Out::at(&raw mut wanted))
    });
    for pair in [pairs[0], pairs[0], pairs[1]] {
        fail(pair);
    }
    let event = context.event().expect("an event");
    assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert!(element_of::<Pair>(&event) == pairs[0]);
    ibv_ack_async_event(In::at(&raw const event));
    assert_eq!(context.event().err(), Some(Errno::EAGAIN), "one of each");
    for pair in pairs {
        assert_eq!(ibv_destroy_qp(pair), 0);
    }
    assert_eq!(ibv_destroy_srq(shared), 0);
    assert_eq!(ibv_destroy_cq(queue), 0);
    assert_eq!(ibv_dealloc_pd(domain), 0);
}

/// The peer begins before this side may send; later, completions tell of errors, and no event does.
#[test]
fn a_queue_pair_tells_once_that_its_peer_has_begun() {
    let bed = Bed::new();
    let [one, other] = [(); 2].map(|()| bed.make_pair());
    bed.lead(one, other, IBV_QPS_RTS);
    bed.lead(other, one, IBV_QPS_RTR);
    let mut segment: ibv_sge = zeroed();
    segment.length = 8;
    for count in [0, 0, 1] {
        // The last one has no region.
        let mut receive: ibv_recv_wr = zeroed();
        let mut bad = null_mut();
        (receive.sg_list, receive.num_sge) = (&raw mut segment, count);
        let posted = post_recv(other.pointer(), &raw mut receive, &raw mut bad);
        assert_eq!(posted, 0);
    }
    let mut statuses = Vec::new();
    let bytes = [7_u8; 8];
    for count in [0, 0, 1] {
        let mut data: ibv_sge = zeroed();
        (data.addr, data.length) = (bytes.as_ptr() as u64, 8);
        let mut request: ibv_send_wr = zeroed();
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        (request.sg_list, request.num_sge) = (&raw mut data, count);
        let mut bad = null_mut();
        let posted = post_send(one.pointer(), &raw mut request, &raw mut bad);
        assert_eq!(posted, 0);
        statuses.extend([(); 2].map(|()| bed.complete().status));
    }
    statuses.sort_unstable();
    let failures = [IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR];
    assert_eq!(statuses[..4], [IBV_WC_SUCCESS; 4]);
    assert_eq!(statuses[4..], failures);
    let event = bed.context.awaited();
    assert_eq!(event.event_type, IBV_EVENT_COMM_EST);
    assert!(element_of::<Pair>(&event) == other);
    ibv_ack_async_event(In::at(&raw const event));
    assert_eq!(bed.context.event().err(), Some(Errno::EAGAIN));
    for pair in [one, other] {
        assert_eq!(ibv_destroy_qp(pair), 0);
    }
    bed.close();
}
