//! Send queues that drain (SQD).

use dat_core::backend::ControlEvent;
use nix::errno::Errno;

use super::posts::Bed;
use crate::boundary::layout::{
    IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CUR_STATE,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_STATE,
    IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD, IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, IBV_WR_SEND, ibv_qp_attr, ibv_qp_init_attr, ibv_send_wr,
};
use crate::boundary::{In, Out, element_of, zeroed};
use crate::opening::ibv_ack_async_event;
use crate::transfer::{Pair, ibv_modify_qp, ibv_query_qp};

impl Bed {
    fn modify(&self, c: &ibv_qp_attr, mask: u32) -> i32 {
        ibv_modify_qp(
            self.pair,
            In::at(core::ptr::from_ref(c)),
            mask.cast_signed(),
        )
    }

    fn enter(&self, state: u32) -> i32 {
        let mut c: ibv_qp_attr = zeroed();
        c.qp_state = state;
        self.modify(&c, IBV_QP_STATE)
    }

    /// Drains the send queue, and asks for the event.
    fn drain(&self) -> i32 {
        let mut c: ibv_qp_attr = zeroed();
        (c.qp_state, c.en_sqd_async_notify) = (IBV_QPS_SQD, 1);
        self.modify(&c, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)
    }

    /// Drains the send queue while a message that finds no receive is under way.
    ///
    /// Another thread may have taken it to send, and not have begun.
    fn drain_amid(&self, token: u64) {
        self.send_empty(token);
        assert_eq!(self.drain(), 0);
        while self.query().sq_draining == 0 {
            self.take_drained();
            assert_eq!(self.enter(IBV_QPS_RTS), 0);
            assert_eq!(self.drain(), 0);
        }
    }

    fn query(&self) -> ibv_qp_attr {
        let (mut c, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
        let (to, init) = (Out::at(&raw mut c), Out::at(&raw mut init));
        assert_eq!(ibv_query_qp(self.pair, to, 0, init), 0);
        c
    }

    /// Sends a message without bytes.
    fn send_empty(&self, token: u64) {
        let mut request: ibv_send_wr = zeroed();
        (request.wr_id, request.opcode) = (token, IBV_WR_SEND);
        request.send_flags = IBV_SEND_SIGNALED;
        assert_eq!(self.send(request).0, 0);
    }

    /// Takes an event, which tells that the queue pair has drained.
    fn take_drained(&self) {
        let event = self.context.awaited();
        assert_eq!(event.event_type, IBV_EVENT_SQ_DRAINED);
        assert!(element_of::<Pair>(&event) == self.pair);
        ibv_ack_async_event(In::at(&raw const event));
    }
}

/// Takes a completion of a request and one of a receive; returns the tokens, the lesser one first.
fn tokens(bed: &Bed) -> [u64; 2] {
    let mut tokens = [(); 2].map(|()| {
        let wc = bed.complete();
        assert_eq!(wc.status, IBV_WC_SUCCESS);
        wc.wr_id
    });
    tokens.sort_unstable();
    tokens
}

/// Spec: ROCE-278
#[test]
fn requests_wait_until_the_queue_pair_sends_again() {
    let bed = Bed::new();
    assert_eq!(bed.drain(), 0);
    bed.take_drained();
    let c = bed.query();
    assert_eq!((c.qp_state, c.sq_draining), (IBV_QPS_SQD, 0));
    assert_eq!(bed.drain(), libc::EINVAL, "it drains already");
    assert_eq!(bed.receive(1), 0);
    bed.send_empty(2);
    for _ in 0..1_000 {
        assert!(bed.poll().is_none());
    }
    let mut c: ibv_qp_attr = zeroed();
    (c.qp_state, c.cur_qp_state) = (IBV_QPS_RTS, IBV_QPS_SQD);
    assert_eq!(bed.modify(&c, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    assert_eq!(tokens(&bed), [1, 2]);
    // Without the wish there is no event.
    assert_eq!(bed.enter(IBV_QPS_SQD), 0);
    assert_eq!(bed.enter(IBV_QPS_RTS), 0);
    assert_eq!(bed.context.event().err(), Some(Errno::EAGAIN));
    bed.close();
}

/// Spec: ROCE-278
#[test]
fn a_request_under_way_is_completed_first() {
    let bed = Bed::new();
    bed.drain_amid(2);
    let c = bed.query();
    assert_eq!((c.qp_state, c.sq_draining), (IBV_QPS_SQD, 1));
    for state in [IBV_QPS_RTS, IBV_QPS_SQD] {
        assert_eq!(bed.enter(state), libc::EINVAL, "{state}");
    }
    bed.send_empty(4);
    assert_eq!(bed.receive(1), 0);
    bed.take_drained();
    assert_eq!(tokens(&bed), [1, 2]);
    assert_eq!(bed.query().sq_draining, 0);
    assert_eq!(bed.enter(IBV_QPS_RTS), 0);
    assert_eq!(bed.receive(3), 0);
    assert_eq!(tokens(&bed), [3, 4]);
    bed.close();
}

/// Spec: ROCE-278
#[test]
fn attributes_change_as_the_manual_says() {
    let bed = Bed::new();
    let before = bed.query();
    let patience = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    let takes = patience
        | IBV_QP_MAX_QP_RD_ATOMIC
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_AV
        | IBV_QP_ACCESS_FLAGS
        | IBV_QP_MIN_RNR_TIMER;
    let mut c = before;
    (c.timeout, c.retry_cnt, c.rnr_retry) = (9, 3, 2);
    (c.max_rd_atomic, c.min_rnr_timer) = (2, 20);
    assert_eq!(bed.modify(&c, takes), libc::EINVAL, "in RTS");
    assert_eq!(bed.enter(IBV_QPS_SQD), 0);
    assert_eq!(bed.modify(&c, takes | IBV_QP_PATH_MTU), libc::EINVAL);
    assert_eq!(bed.modify(&c, takes), 0);
    let after = bed.query();
    assert_eq!((after.timeout, after.retry_cnt, after.rnr_retry), (9, 3, 2));
    assert_eq!((after.max_rd_atomic, after.min_rnr_timer), (2, 20));
    c.max_dest_rd_atomic += 1;
    let refused = bed.modify(&c, IBV_QP_MAX_DEST_RD_ATOMIC);
    assert_eq!(refused, libc::EOPNOTSUPP);
    c.max_dest_rd_atomic = before.max_dest_rd_atomic;
    // ::ffff:127.47.0.9
    c.ah_attr.grh.dgid.raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 47, 0, 9];
    assert_eq!(bed.modify(&c, IBV_QP_AV), libc::EOPNOTSUPP);
    assert_eq!(bed.enter(IBV_QPS_RTS), 0);
    assert_eq!(bed.receive(1), 0);
    bed.send_empty(2);
    assert_eq!(tokens(&bed), [1, 2]);
    bed.close();
}

/// Spec: ROCE-278
#[test]
fn a_queue_pair_that_drains_fails_and_is_reset_as_others_are() {
    let bed = Bed::new();
    bed.drain_amid(1);
    bed.send_empty(2);
    assert_eq!(bed.enter(IBV_QPS_ERR), 0);
    for token in [1, 2] {
        let wc = bed.complete();
        assert_eq!((wc.wr_id, wc.status), (token, IBV_WC_WR_FLUSH_ERR));
    }
    assert_eq!(bed.enter(IBV_QPS_RESET), 0);
    assert_eq!(bed.query().sq_draining, 0);
    bed.lead(bed.pair, bed.pair, IBV_QPS_RTS);
    assert_eq!(bed.receive(3), 0);
    bed.send_empty(4);
    assert_eq!(tokens(&bed), [3, 4]);
    // A packet from before the reset may arrive after it.
    if let Ok(event) = bed.context.event() {
        assert_eq!(event.event_type, IBV_EVENT_COMM_EST);
        ibv_ack_async_event(In::at(&raw const event));
    }
    bed.close();
}

/// The thread that was to tell of it may have been late.
///
/// Spec: ROCE-278
#[test]
fn the_end_of_an_earlier_drain_is_not_told_of_the_next() {
    let bed = Bed::new();
    bed.drain_amid(2);
    let qpn = bed.pair.read().expect("a queue pair").qp_base.qp_num;
    let queue_pair = qpn.into();
    let adapter = crate::adapter::adapter().expect("an adapter");
    adapter.tell(&ControlEvent::Answered { queue_pair });
    assert_eq!(bed.context.event().err(), Some(Errno::EAGAIN));
    assert_eq!(bed.receive(1), 0);
    bed.take_drained();
    assert_eq!(tokens(&bed), [1, 2]);
    bed.close();
}
