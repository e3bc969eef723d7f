//! Shared receive queues, except posting.

use std::rc::Rc;

use dat_core::backend::Backend;
use dat_core::event::{AsyncEventKind, Event, REASON_LOW_WATERMARK, REASON_PRIMARY};
use dat_core::flags::{
    DtoStatus, IaFields, MemoryPrivileges, ProviderFields, SrqFields, SrqState, VALUE_UNKNOWN,
};
use dat_core::id::{PzId, SrqId};
use dat_core::sync::RawLock;
use dat_core::{Error, ErrorKind, Ia};

use crate::fixture::errors::{BAD_PZ, BAD_SRQ, PZ_IN_USE, SRQ_FULL, SRQ_IN_USE};
use crate::fixture::{
    Adapter, FaultyTestbed, Memory, Net, Party, PartyOptions, Testbed, granted, refused,
    srq_attributes,
};

/// Creates an adapter with a shared receive queue of this size.
#[track_caller]
fn queue<T: Testbed>(net: &Net<'_, T>, max_recv_dtos: i32) -> (Rc<Adapter<T>>, PzId, SrqId) {
    let ia = net.adapter();
    let zone = granted(ia.pz_create());
    let srq = granted(ia.srq_create(zone, &srq_attributes(max_recv_dtos, 2, 0)));
    (ia, zone, srq)
}

/// Connects an endpoint on the queue to its own peer.
#[track_caller]
fn member<T: Testbed>(
    net: &Net<'_, T>,
    ia: &Rc<Adapter<T>>,
    zone: PzId,
    srq: SrqId,
) -> (Party<T>, Party<T>) {
    let options = PartyOptions::default();
    let receiver = Party::sharing(ia, zone, srq, None, &options);
    let peer = Party::new(&net.adapter(), &options);
    net.connect(&peer, &receiver);
    (receiver, peer)
}

#[track_caller]
fn counts<B: Backend, L: RawLock>(ia: &Ia<'_, B, L>, srq: SrqId) -> (i32, i32) {
    let param = granted(ia.srq_query(srq, SrqFields::all()));
    (param.available, param.outstanding)
}

/// Returns the asynchronous event of a low watermark.
fn low_watermark_event(srq: SrqId) -> Event {
    Event::Async {
        kind: AsyncEventKind::EpBroken,
        handle: srq.handle(),
        reason: REASON_LOW_WATERMARK,
    }
}

/// A new queue is operational, empty, in its zone and large enough.
///
/// Spec: SRC-01, SRY-01, GEN-08
pub fn query_describes_a_new_shared_queue<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let param = granted(ia.srq_query(srq, SrqFields::all()));
    assert_eq!((param.ia, param.pz), (ia.handle(), zone));
    assert_eq!(param.state, SrqState::Operational);
    assert!(param.max_recv_dtos >= 10 && param.max_recv_iov >= 2);
    assert_eq!(param.low_watermark, 0);
    assert_eq!((param.available, param.outstanding), (0, 0));
    for bit in 8..32 {
        refused(
            ia.srq_query(srq, SrqFields::from_bits_retain(1 << bit)),
            Error::invalid_argument(2),
        );
    }
    granted(ia.srq_query(srq, SrqFields::empty()));
}

/// Bad sizes, zones and an initial low watermark are refused without effect.
///
/// Bad sizes are below 1 or above the limits of the adapter.
///
/// Spec: SRC-02, SRC-03, SRC-06, GEN-03, GEN-06, GEN-07, GEN-11
pub fn bad_shared_queues_are_refused<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let fields = IaFields::MAX_RECV_PER_SRQ | IaFields::MAX_IOV_SEGMENTS_PER_DTO;
    let limits = granted(ia.ia_query(fields, ProviderFields::empty())).ia;
    for bad in [
        srq_attributes(0, 1, 0),
        srq_attributes(-1, 1, 0),
        srq_attributes(i32::MIN, 1, 0),
        srq_attributes(1, 0, 0),
        srq_attributes(1, -1, 0),
        srq_attributes(limits.max_recv_per_srq.saturating_add(1), 1, 0),
        srq_attributes(1, limits.max_iov_segments_per_dto.saturating_add(1), 0),
        srq_attributes(4, 1, 1),
        srq_attributes(4, 1, -1),
    ] {
        refused(ia.srq_create(zone, &bad), Error::invalid_argument(3));
    }
    let freed = granted(ia.pz_create());
    granted(ia.pz_free(freed));
    for bad in [
        PzId::NULL,
        freed,
        granted(net.adapter().pz_create()),
        PzId::from_handle(ia.handle()),
    ] {
        refused(ia.srq_create(bad, &srq_attributes(4, 1, 0)), BAD_PZ);
    }
    granted(ia.pz_free(zone));
}

/// Exhausted storage refuses queues; a freed queue makes room for one.
///
/// The error is INSUFFICIENT_RESOURCES.
///
/// Spec: SRC-06, SRF-02
pub fn shared_queues_are_finite<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let mut made = Vec::new();
    let error = loop {
        match ia.srq_create(zone, &srq_attributes(1, 1, 0)) {
            Ok(srq) => made.push(srq),
            Err(error) => break error,
        }
        assert!(made.len() < 1000);
    };
    assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
    let freed = made.pop().expect("a queue");
    granted(ia.srq_free(freed));
    let again = granted(ia.srq_create(zone, &srq_attributes(1, 1, 0)));
    assert_ne!(again, freed);
    refused(ia.srq_query(freed, SrqFields::all()), BAD_SRQ);
}

/// A queue can be freed only without endpoints, and then releases zone and regions.
///
/// Its buffers are dropped without completions.
///
/// Spec: SRF-01, SRF-02, PZF-02, EPX-03, GEN-03, GEN-15, E23
pub fn shared_queue_is_held_by_its_endpoints<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let memory = Memory::register(&ia, zone, 64, MemoryPrivileges::ALL);
    refused(ia.pz_free(zone), PZ_IN_USE);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..3 {
        granted(ia.srq_post_recv(srq, &[memory.segment(0, 8)], cookie));
    }
    refused(ia.srq_free(srq), SRQ_IN_USE);
    net.disconnect(&receiver, &peer);
    refused(ia.srq_free(srq), SRQ_IN_USE);
    granted(ia.ep_reset(receiver.ep));
    refused(ia.srq_free(srq), SRQ_IN_USE);
    assert_eq!(counts(&ia, srq), (3, 3));
    granted(ia.ep_free(receiver.ep));
    granted(ia.srq_free(srq));
    net.silent(&ia, receiver.receive);
    granted(ia.lmr_free(memory.lmr));
    granted(ia.lmr_free(receiver.memory.lmr));
    granted(ia.pz_free(zone));
    for bad in [
        SrqId::NULL,
        srq,
        SrqId::from_handle(ia.handle()),
        queue(&net, 1).2,
    ] {
        refused(ia.srq_free(bad), BAD_SRQ);
        refused(ia.srq_query(bad, SrqFields::all()), BAD_SRQ);
        refused(ia.srq_resize(bad, 4), BAD_SRQ);
        refused(ia.srq_set_lw(bad, 1), BAD_SRQ);
    }
}

/// A failed queue reports its failure once, gives no more buffers and still takes posts.
///
/// Its buffers are freed with it.
///
/// Spec: SRQR-22, SRQR-42, SRC-04, SRF-02, SRY-01
pub fn failed_shared_queue_keeps_its_buffers<T: FaultyTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..3 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    bed.fail_shared_queue(0, 1);
    peer.send_from(&[], 1);
    assert_eq!(net.success(&peer, 1).ep, peer.ep);
    assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    peer.send_from(&[], 2);
    assert_ne!(net.request_completion(&peer).status, DtoStatus::Success);
    let failure = Event::Async {
        kind: AsyncEventKind::EpBroken,
        handle: srq.handle(),
        reason: REASON_PRIMARY,
    };
    assert_eq!(net.event(&ia, ia.async_evd()), failure);
    net.silent(&ia, ia.async_evd());
    let state = || granted(ia.srq_query(srq, SrqFields::STATE)).state;
    assert_eq!(state(), SrqState::Error);
    granted(ia.srq_post_recv(srq, &[], 3));
    assert_eq!(counts(&ia, srq), (3, 3));
    net.run_to_idle();
    net.silent(&ia, receiver.receive);
    assert_eq!(state(), SrqState::Error);
    granted(ia.ep_free(receiver.ep));
    granted(ia.srq_free(srq));
    let next = granted(ia.srq_create(zone, &srq_attributes(4, 1, 0)));
    let param = granted(ia.srq_query(next, SrqFields::STATE));
    assert_eq!(param.state, SrqState::Operational);
}

/// The counts follow the manual page: posted (3, 3), arrived (2, 3), dequeued (2, 2).
///
/// Spec: SRY-02
pub fn shared_queue_counts_follow_the_buffers<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..3 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    assert_eq!(counts(&ia, srq), (3, 3));
    peer.send_from(&[], 1);
    net.success(&peer, 1);
    net.run_to_idle();
    assert_eq!(counts(&ia, srq), (2, 3));
    assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    assert_eq!(counts(&ia, srq), (2, 2));
}

/// An unsupported count is reported as unknown, a supported one never is.
///
/// Spec: SRY-03, IAQ-10
pub fn shared_queue_counts_are_known_as_announced<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, _, srq) = queue(&net, 10);
    let announced = granted(ia.ia_query(IaFields::empty(), ProviderFields::SRQ_INFO_SUPPORTED))
        .provider
        .srq_info_supported;
    let (available, outstanding) = counts(&ia, srq);
    if announced == 0 {
        assert_eq!(available, VALUE_UNKNOWN);
    } else {
        assert!(available >= 0 && outstanding >= 0);
    }
}

/// A larger queue takes more buffers, a smaller one fewer; no buffer is lost.
///
/// Spec: SRZ-01, SRZ-03, SRZ-04
pub fn resized_shared_queue_keeps_its_buffers<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 4);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..4 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    granted(ia.srq_resize(srq, 12));
    let size = granted(ia.srq_query(srq, SrqFields::all())).max_recv_dtos;
    assert!(size >= 12);
    for cookie in 4..size as u64 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    let full = SRQ_FULL;
    refused(ia.srq_post_recv(srq, &[], 99), full);
    for _ in 0..size - 3 {
        peer.send_from(&[], 1);
        net.success(&peer, 1);
        assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    }
    assert_eq!(counts(&ia, srq), (3, 3));
    granted(ia.srq_resize(srq, 3));
    let size = granted(ia.srq_query(srq, SrqFields::all())).max_recv_dtos;
    assert!(size >= 3);
    for _ in 3..size {
        granted(ia.srq_post_recv(srq, &[], 1));
    }
    refused(ia.srq_post_recv(srq, &[], 99), full);
    for _ in 0..size {
        peer.send_from(&[], 1);
        net.success(&peer, 1);
        assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    }
    granted(ia.srq_resize(srq, 4));
    granted(ia.srq_post_recv(srq, &[], 1));
}

/// A queue cannot shrink below its outstanding buffers or its low watermark.
///
/// Bad sizes are refused.
///
/// Spec: SRZ-02, SRZ-04, GEN-06, GEN-07
pub fn shared_queue_does_not_shrink_below_its_use<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 8);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..5 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    peer.send_from(&[], 1);
    net.success(&peer, 1);
    net.run_to_idle();
    let before = granted(ia.srq_query(srq, SrqFields::all()));
    let unchanged = || {
        assert_eq!(granted(ia.srq_query(srq, SrqFields::all())), before);
    };
    let error = ia.srq_resize(srq, 4).expect_err("five are outstanding");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    unchanged();
    let limits = granted(ia.ia_query(IaFields::MAX_RECV_PER_SRQ, ProviderFields::empty())).ia;
    for bad in [0, -1, i32::MIN, limits.max_recv_per_srq.saturating_add(1)] {
        refused(ia.srq_resize(srq, bad), Error::invalid_argument(2));
        unchanged();
    }
    granted(ia.srq_resize(srq, 5));
    net.receive_completion(&receiver);
    granted(ia.srq_set_lw(srq, 4));
    for _ in 0..4 {
        peer.send_from(&[], 1);
        net.success(&peer, 1);
        net.receive_completion(&receiver);
    }
    let error = ia.srq_resize(srq, 3).expect_err("the watermark is 4");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
}

/// The low watermark raises one event per setting, when a buffer is taken below it.
///
/// Spec: SRL-01..03
pub fn low_watermark_fires_once_per_setting<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..6 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    let message = || {
        peer.send_from(&[], 1);
        net.success(&peer, 1);
        net.receive_completion(&receiver);
    };
    granted(ia.srq_set_lw(srq, 4));
    assert_eq!(
        granted(ia.srq_query(srq, SrqFields::LOW_WATERMARK)).low_watermark,
        4
    );
    net.silent(&ia, ia.async_evd());
    message();
    message();
    net.silent(&ia, ia.async_evd());
    message();
    let event = net.event(&ia, ia.async_evd());
    assert_eq!(event, low_watermark_event(srq));
    assert_eq!(event.number(), 0x8003);
    message();
    // A post does not arm it again.
    for cookie in 0..6 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    for _ in 0..6 {
        message();
    }
    net.silent(&ia, ia.async_evd());
    for cookie in 0..2 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    granted(ia.srq_set_lw(srq, 4));
    net.silent(&ia, ia.async_evd());
    message();
    assert_eq!(net.event(&ia, ia.async_evd()), low_watermark_event(srq));
    net.silent(&ia, ia.async_evd());
}

/// Setting the watermark raises the event at once if fewer buffers are available.
///
/// Spec: SRL-02, SRL-04
pub fn low_watermark_fires_at_once_if_passed<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let (_taker, _peer) = member(&net, &ia, zone, srq);
    for cookie in 0..3 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    for (watermark, fires) in [(3, false), (2, false), (4, true), (10, true), (3, false)] {
        granted(ia.srq_set_lw(srq, watermark));
        if fires {
            assert_eq!(net.event(&ia, ia.async_evd()), low_watermark_event(srq));
        }
        net.silent(&ia, ia.async_evd());
    }
}

/// 0 turns the watermark off; negative and too large values are refused without effect.
///
/// Spec: SRL-05, GEN-06, GEN-07
pub fn bad_low_watermarks_are_refused<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (ia, zone, srq) = queue(&net, 10);
    let (receiver, peer) = member(&net, &ia, zone, srq);
    for cookie in 0..3 {
        granted(ia.srq_post_recv(srq, &[], cookie));
    }
    granted(ia.srq_set_lw(srq, 3));
    let size = granted(ia.srq_query(srq, SrqFields::all())).max_recv_dtos;
    for bad in [-1, i32::MIN, size + 1, i32::MAX] {
        refused(ia.srq_set_lw(srq, bad), Error::invalid_argument(2));
        assert_eq!(
            granted(ia.srq_query(srq, SrqFields::LOW_WATERMARK)).low_watermark,
            3
        );
    }
    net.silent(&ia, ia.async_evd());
    granted(ia.srq_set_lw(srq, 0));
    for _ in 0..3 {
        peer.send_from(&[], 1);
        net.success(&peer, 1);
        net.receive_completion(&receiver);
    }
    net.silent(&ia, ia.async_evd());
}
