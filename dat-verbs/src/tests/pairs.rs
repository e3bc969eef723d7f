//! Events of queue pairs.

use core::ptr::null_mut;

use nix::errno::Errno;
use rustix::fs::{OFlags, fcntl_setfl};

use super::{Opened, refusal};
use crate::boundary::layout::{
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPT_RC, ibv_async_event,
    ibv_qp_attr, ibv_qp_init_attr, ibv_srq_init_attr,
};
use crate::boundary::{Address, Handle, In, Out, element_of, zeroed};
use crate::completion::{ibv_create_cq, ibv_destroy_cq};
use crate::memory::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::opening::{ibv_ack_async_event, ibv_get_async_event};
use crate::transfer::{
    Pair, ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp,
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
    let own = context.0.get().expect("a context");
    fcntl_setfl(&*own.async_events, OFlags::NONBLOCK).expect("flags");
    let take = || {
        let mut event: ibv_async_event = zeroed();
        match ibv_get_async_event(context.0, Out::at(&raw mut event)) {
            0 => Ok(event),
            failed => Err(refusal(failed)),
        }
    };
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
    let event = take().expect("an event");
    assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert!(element_of::<Pair>(&event) == pairs[0]);
    ibv_ack_async_event(In::at(&raw const event));
    assert_eq!(take().err(), Some(Errno::EAGAIN), "one of each");
    for pair in pairs {
        assert_eq!(ibv_destroy_qp(pair), 0);
    }
    assert_eq!(ibv_destroy_srq(shared), 0);
    assert_eq!(ibv_destroy_cq(queue), 0);
    assert_eq!(ibv_dealloc_pd(domain), 0);
}
