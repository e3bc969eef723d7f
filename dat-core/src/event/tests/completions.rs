use core::task::Poll;
use std::vec::Vec;

use super::{TestIa, code, drain};
use crate::attributes::{EpAttributes, IaAddress, SrqAttributes};
use crate::backend::{
    Completion, ControlEvent, DeviceFailure, DisconnectMode, PrivateData, QueuePairKey,
};
use crate::endpoint::ConnectParam;
use crate::error::{ErrorKind, Result, Subtype};
use crate::event::{AsyncEventKind, ConnectionEventKind, DtoOperation, Event, Waited};
use crate::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFields, EvdFlags, EvdState, QualityOfService,
};
use crate::id::{CnoId, EpId, EvdId, PzId, SrqId};
use crate::testing::{Call, TestBackend, TestStorage, WakeCount, open};
use crate::time::Instant;

const NOW: Instant = Instant::ZERO;

/// A connected endpoint and the device's queue pair under it.
struct Connected {
    ep: EpId,
    key: QueuePairKey,
    connect: EvdId,
}

/// 16 requests and 16 receives, on dispatchers of the test's choice.
fn connected(
    ia: &TestIa<'_>,
    device: &TestBackend,
    receive: Option<EvdId>,
    request: Option<EvdId>,
    attributes: &EpAttributes,
) -> Connected {
    let pz = ia.pz_create().unwrap();
    connected_on(ia, device, (pz, None), receive, request, attributes)
}

/// As `connected`, in a zone of the test's choice, and with a shared receive queue.
fn connected_on(
    ia: &TestIa<'_>,
    device: &TestBackend,
    (pz, srq): (PzId, Option<SrqId>),
    receive: Option<EvdId>,
    request: Option<EvdId>,
    attributes: &EpAttributes,
) -> Connected {
    let connect = ia.evd_create(4, None, EvdFlags::CONNECTION).unwrap();
    let attributes = EpAttributes {
        max_recv_dtos: if receive.is_some() && srq.is_none() {
            16
        } else {
            0
        },
        max_request_dtos: if request.is_some() { 16 } else { 0 },
        ..*attributes
    };
    let ep = match srq {
        None => ia.ep_create(Some(pz), receive, request, Some(connect), Some(&attributes)),
        Some(srq) => {
            ia.ep_create_with_srq(Some(pz), receive, request, Some(connect), srq, &attributes)
        }
    }
    .unwrap();
    let param = ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 7,
        timeout: 1000,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    ia.ep_connect(ep, &param, NOW).unwrap();
    let token = ep.handle().to_raw();
    device.push_control(ControlEvent::Established {
        queue_pair: token,
        private_data: PrivateData::new(),
    });
    progress(ia);
    assert_eq!(
        ia.evd_dequeue(connect).unwrap().number(),
        ConnectionEventKind::Established as u32
    );
    let key = device.pair(token).unwrap();
    Connected { ep, key, connect }
}

fn progress(ia: &TestIa<'_>) {
    while ia.progress(NOW) != 0 {}
}

fn send(ia: &TestIa<'_>, ep: EpId, cookie: u64) {
    ia.post_send(ep, &[], cookie, CompletionFlags::empty())
        .unwrap();
}

fn succeed(device: &TestBackend, key: QueuePairKey) {
    assert!(device.complete_request(key, DtoStatus::Success));
}

/// The cookie of a completion, or the value of a software event.
#[track_caller]
fn tag(event: Event) -> u64 {
    match event {
        Event::Dto(completion) => completion.cookie,
        Event::Software { pointer } => pointer,
        other => panic!("{other:?}"),
    }
}

fn tags(ia: &TestIa<'_>, evd: EvdId) -> Vec<u64> {
    core::iter::from_fn(|| ia.evd_dequeue(evd).ok())
        .map(tag)
        .collect()
}

#[track_caller]
fn ready(poll: Poll<Result<Waited>>) -> (u64, u32) {
    match poll {
        Poll::Ready(Ok(waited)) => (tag(waited.event), waited.more),
        other => panic!("{other:?}"),
    }
}

fn number(evd: EvdId) -> u16 {
    evd.handle().index() as u16
}

fn cno_fired(ia: &TestIa<'_>, cno: CnoId) -> bool {
    let (_, waker) = WakeCount::new();
    ia.cno_wait(cno).unwrap().poll(&waker).is_ready()
}

const SHARED: EvdFlags = EvdFlags::DTO
    .union(EvdFlags::RMR_BIND)
    .union(EvdFlags::SOFTWARE);

/// Spec: EVW-09, EVG-03, DTO-03, DTO-11
#[test]
fn completions_and_other_events_come_in_the_order_they_were_taken_in() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(4, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 1..=6 {
        send(&ia, peer.ep, cookie);
    }
    succeed(&device, peer.key);
    succeed(&device, peer.key);
    ia.evd_post_se(evd, 101).unwrap();
    succeed(&device, peer.key);
    ia.evd_post_se(evd, 102).unwrap();
    ia.evd_post_se(evd, 103).unwrap();
    succeed(&device, peer.key);
    // More completions than the queue has places for other events do not crowd these out.
    ia.evd_post_se(evd, 104).unwrap();
    assert_eq!(
        ia.evd_post_se(evd, 105).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    succeed(&device, peer.key);
    succeed(&device, peer.key);
    let first = ia.evd_dequeue(evd).unwrap();
    let Event::Dto(completion) = first else {
        panic!("{first:?}")
    };
    assert_eq!(
        (completion.ep, completion.status, completion.operation),
        (peer.ep, DtoStatus::Success, DtoOperation::Send)
    );
    assert_eq!(tag(first), 1);
    assert_eq!(tags(&ia, evd), [2, 101, 3, 102, 103, 4, 104, 5, 6]);
}

/// Spec: EVW-09
#[test]
fn freeing_an_endpoint_takes_only_its_own_completions() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let one = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let two = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for step in 0..4 {
        send(&ia, one.ep, step);
        send(&ia, two.ep, 10 + step);
        succeed(&device, one.key);
        succeed(&device, two.key);
        ia.evd_post_se(evd, 100 + step).unwrap();
    }
    // Of the first endpoint one completion is gone already, and one is still at the device.
    assert_eq!(tag(ia.evd_dequeue(evd).unwrap()), 0);
    send(&ia, one.ep, 4);
    succeed(&device, one.key);
    ia.ep_free(one.ep).unwrap();
    ia.evd_post_se(evd, 104).unwrap();
    assert_eq!(tags(&ia, evd), [10, 100, 11, 101, 12, 102, 13, 103, 104]);
    // The records are free for others, and the order still holds.
    let three = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    send(&ia, three.ep, 20);
    succeed(&device, three.key);
    ia.evd_post_se(evd, 105).unwrap();
    send(&ia, two.ep, 14);
    succeed(&device, two.key);
    assert_eq!(tags(&ia, evd), [20, 105, 14]);
    // An endpoint is the stream that keeps the dispatcher (EVF-02).
    assert_eq!(
        code(ia.evd_free(evd).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdInUse)
    );
    ia.ep_free(two.ep).unwrap();
    ia.ep_free(three.ep).unwrap();
    ia.evd_free(evd).unwrap();
}

/// Spec: EVW-01, EVW-07
#[test]
fn completions_count_towards_the_threshold_wherever_they_are() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let (wakes, waker) = WakeCount::new();
    for cookie in 1..=4 {
        send(&ia, peer.ep, cookie);
    }
    let mut wait = ia.evd_wait(evd, 3).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(number(evd)), Some(false));
    for _ in 0..2 {
        succeed(&device, peer.key);
        progress(&ia);
        assert_eq!(wakes.take(), 0);
        // Not there yet, so the device is to tell of the next one as well.
        assert_eq!(device.armed(number(evd)), Some(false));
        assert!(wait.poll(&waker).is_pending());
    }
    ia.evd_post_se(evd, 101).unwrap();
    assert_eq!(wakes.take(), 1);
    succeed(&device, peer.key);
    assert_eq!(ready(wait.poll(&waker)), (1, 3));
    assert_eq!(tags(&ia, evd), [2, 101, 3]);
}

/// Spec: EVW-01, EVW-09
#[test]
fn a_completion_that_slips_in_while_arming_is_not_slept_over() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let (_, waker) = WakeCount::new();
    send(&ia, peer.ep, 1);
    let token = device.posted(peer.key).0[0].work.token();
    let completion = Completion {
        token,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: peer.ep.handle().to_raw(),
        solicited: false,
    };
    device.slip_in(number(evd), completion);
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert_eq!(ready(wait.poll(&waker)), (1, 0));
    drop(wait);
}

/// Spec: EVW-01
#[test]
fn a_device_too_busy_to_be_armed_keeps_the_waiter_awake() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let (wakes, waker) = WakeCount::new();
    for _ in 0..20 {
        device.slip_in(
            number(evd),
            Completion {
                token: u64::MAX,
                status: DtoStatus::Success,
                length: 0,
                queue_pair: 0,
                solicited: false,
            },
        );
    }
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!((wakes.take(), device.armed(number(evd))), (1, None));
    assert!(wait.poll(&waker).is_pending());
    assert_eq!((wakes.take(), device.armed(number(evd))), (0, Some(false)));
}

/// Spec: CNW-01, CNW-02, EVN-01
#[test]
fn completions_trigger_the_notification_object() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let arrive = |cookie| {
        send(&ia, peer.ep, cookie);
        succeed(&device, peer.key);
        progress(&ia);
    };
    for cookie in 1..=3 {
        arrive(cookie);
        assert!(cno_fired(&ia, cno));
        assert!(!cno_fired(&ia, cno));
    }
    assert_eq!(tags(&ia, evd), [1, 2, 3]);
    // Taken before the notice was looked at: there is nothing left to be told of.
    send(&ia, peer.ep, 4);
    succeed(&device, peer.key);
    assert_eq!(tags(&ia, evd), [4]);
    progress(&ia);
    assert!(!cno_fired(&ia, cno));
    // Disabled, the device tells once more and is not armed again.
    ia.evd_disable(evd).unwrap();
    arrive(5);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(device.armed(number(evd)), None);
    // Enabled, it is: the completion of the meantime may trigger or not, later ones must.
    ia.evd_enable(evd).unwrap();
    assert_eq!(device.armed(number(evd)), Some(false));
    arrive(6);
    assert!(cno_fired(&ia, cno));
    // A direct waiter keeps them to itself, and leaves the object as it was.
    assert_eq!(tags(&ia, evd), [5, 6]);
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    arrive(7);
    assert_eq!(wakes.take(), 1);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(ready(wait.poll(&waker)), (7, 0));
    arrive(8);
    assert!(cno_fired(&ia, cno));
    // Detached and attached again.
    ia.evd_modify_cno(evd, None).unwrap();
    arrive(9);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(tags(&ia, evd), [8, 9]);
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    arrive(10);
    assert!(cno_fired(&ia, cno));
}

/// Spec: EVW-03, EVW-11, EVQ-02, DTO-04
#[test]
fn unsignalled_completions_wake_nobody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), SHARED).unwrap();
    let attributes = EpAttributes {
        request_completion_flags: CompletionFlags::UNSIGNALLED,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, None, Some(evd), &attributes);
    let param = ia.evd_query(evd, EvdFields::STATE).unwrap();
    assert_eq!(param.state.configuration(), EvdState::CONFIG_NOTIFY);
    assert_eq!(
        code(ia.evd_wait(evd, 2).unwrap_err()),
        (
            ErrorKind::InvalidState,
            Subtype::InvalidStateEvdConfigNotify
        )
    );
    let quiet = |cookie, status| {
        ia.post_send(peer.ep, &[], cookie, CompletionFlags::UNSIGNALLED)
            .unwrap();
        assert!(device.complete_request(peer.key, status));
        progress(&ia);
    };
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    quiet(1, DtoStatus::Success);
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    send(&ia, peer.ep, 2);
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!(wakes.take(), 1);
    // The unsignalled one is returned with the others, in its place.
    assert_eq!(ready(wait.poll(&waker)), (1, 1));
    drop(wait);
    // What is there when a wait begins is returned at once.
    assert_eq!(ready(ia.evd_wait(evd, 1).unwrap().poll(&waker)), (2, 0));
    quiet(3, DtoStatus::Success);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(ready(ia.evd_wait(evd, 1).unwrap().poll(&waker)), (3, 0));
    // A failure is always a notification.
    quiet(4, DtoStatus::RemoteAccess);
    assert!(cno_fired(&ia, cno));
}

/// Spec: EVW-03, EVW-11, EVQ-02, EPC-06, DTO-04
#[test]
fn solicited_dispatchers_hear_of_solicited_receives_only() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    assert_eq!(
        code(ia.evd_wait(evd, 2).unwrap_err()),
        (
            ErrorKind::InvalidState,
            Subtype::InvalidStateEvdConfigSolicited
        )
    );
    for cookie in 1..=4 {
        ia.post_recv(peer.ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(number(evd)), Some(true));
    device.complete_receive(peer.key, DtoStatus::Success, 0, false);
    progress(&ia);
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    device.complete_receive(peer.key, DtoStatus::Success, 0, true);
    progress(&ia);
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(wait.poll(&waker)), (1, 1));
    drop(wait);
    assert_eq!(tags(&ia, evd), [2]);

    // Armed for these, and then there are no such streams any more: the next ones hear of all.
    let cno = ia.cno_create(None).unwrap();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    drop(wait);
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    assert_eq!(device.armed(number(evd)), Some(true));
    ia.ep_free(peer.ep).unwrap();
    assert_eq!(device.armed(number(evd)), Some(false));
    let peer = connected(&ia, &device, Some(evd), None, &EpAttributes::DEFAULT);
    ia.post_recv(peer.ep, &[], 9, CompletionFlags::empty())
        .unwrap();
    device.complete_receive(peer.key, DtoStatus::Success, 0, false);
    progress(&ia);
    assert!(cno_fired(&ia, cno));
}

/// Spec: DTO-04, EVG-01
#[test]
fn suppressed_successes_make_no_event_and_failures_do() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 1..=3 {
        ia.post_send(peer.ep, &[], cookie, CompletionFlags::SUPPRESS)
            .unwrap();
    }
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!(wakes.take(), 0);
    drop(wait);
    succeed(&device, peer.key);
    assert_eq!(
        ia.evd_dequeue(evd).unwrap_err().kind(),
        ErrorKind::QueueEmpty
    );
    device.break_pair(peer.key);
    assert_eq!(tags(&ia, evd), [3]);
}

/// Spec: DTO-12, EVW-09
#[test]
fn a_failed_completion_breaks_the_connection_once() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let (_, waker) = WakeCount::new();
    for waiting in [false, true] {
        let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
        for cookie in 1..=3 {
            send(&ia, peer.ep, cookie);
        }
        let _before = device.take_calls();
        assert!(device.complete_request(peer.key, DtoStatus::RemoteAccess));
        if waiting {
            let mut wait = ia.evd_wait(evd, 1).unwrap();
            assert_eq!(ready(wait.poll(&waker)), (1, 0));
        } else {
            assert_eq!(tag(ia.evd_dequeue(evd).unwrap()), 1);
        }
        assert_eq!(
            device.take_calls(),
            [Call::Disconnect(peer.key, DisconnectMode::Broken)]
        );
        assert_eq!(
            drain(&ia, peer.connect),
            [ConnectionEventKind::Broken as u64]
        );
        // The rest is flushed, which is no new failure.
        assert_eq!(tags(&ia, evd), [2, 3]);
        assert_eq!(device.take_calls(), []);
        assert_eq!(drain(&ia, peer.connect), []);
    }
}

/// Spec: DTO-13, EVW-10
#[test]
fn a_failed_completion_queue_is_reported_once_and_drained() {
    for (failure, kind) in [
        (
            DeviceFailure::CompletionQueueOverrun,
            AsyncEventKind::EvdOverflow,
        ),
        (DeviceFailure::Broken, AsyncEventKind::IaCatastrophic),
    ] {
        for found_by_wait in [false, true] {
            let device = TestBackend::default();
            let mut storage = TestStorage::new();
            let ia = open(&mut storage, &device);
            let evd = ia.evd_create(8, None, SHARED).unwrap();
            let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
            let (wakes, waker) = WakeCount::new();
            for cookie in 1..=3 {
                send(&ia, peer.ep, cookie);
                succeed(&device, peer.key);
            }
            if found_by_wait {
                let mut wait = ia.evd_wait(evd, 4).unwrap();
                assert!(wait.poll(&waker).is_pending());
                device.fail_queue(number(evd), failure);
                progress(&ia);
                assert_eq!(wakes.take(), 1);
                match wait.poll(&waker) {
                    Poll::Ready(Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidState);
                    }
                    other => panic!("{other:?}"),
                }
                drop(wait);
                let mut wait = ia.evd_wait(evd, 1).unwrap();
                assert_eq!(ready(wait.poll(&waker)), (1, 2));
                drop(wait);
                assert_eq!(tags(&ia, evd), [2, 3]);
            } else {
                device.fail_queue(number(evd), failure);
                assert_eq!(tags(&ia, evd), [1, 2, 3]);
            }
            assert_eq!(drain(&ia, ia.async_evd()), [kind as u64]);
            for _ in 0..2 {
                let mut wait = ia.evd_wait(evd, 1).unwrap();
                match wait.poll(&waker) {
                    Poll::Ready(Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidState);
                    }
                    other => panic!("{other:?}"),
                }
                assert_eq!(
                    ia.evd_dequeue(evd).unwrap_err().kind(),
                    ErrorKind::QueueEmpty
                );
            }
            assert_eq!(drain(&ia, ia.async_evd()), []);
            // Other events still find their way.
            ia.evd_post_se(evd, 9).unwrap();
            assert_eq!(tags(&ia, evd), [9]);
        }
    }
}

/// Spec: DTO-03, EVW-11, EVW-09
#[test]
fn a_shared_buffer_is_reported_by_the_endpoint_that_took_it() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let pz = ia.pz_create().unwrap();
    let attributes = SrqAttributes {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = ia.srq_create(pz, &attributes).unwrap();
    let shared = ia.shared.shared_receive_queues[srq.index()]
        .main
        .with(|queue| queue.key);
    let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        ..EpAttributes::DEFAULT
    };
    let takers =
        [0, 1].map(|_| connected_on(&ia, &device, (pz, Some(srq)), Some(evd), None, &attributes));
    let [one, two] = &takers;
    for cookie in 0..6 {
        ia.srq_post_recv(srq, &[], cookie).unwrap();
    }
    // Taken out of order: buffers 2, 0, 3, 1 are left in front, one by one.
    let take = |position, taker: &Connected| {
        assert!(device.complete_shared(shared, position, taker.key, DtoStatus::Success, 0));
    };
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    take(2, two);
    progress(&ia);
    // A shared buffer always notifies.
    assert_eq!(wakes.take(), 1);
    take(0, one);
    take(1, two);
    let taken = |event| match event {
        Event::Dto(completion) => (completion.ep, completion.cookie, completion.operation),
        other => panic!("{other:?}"),
    };
    match wait.poll(&waker) {
        Poll::Ready(Ok(waited)) => {
            assert_eq!(taken(waited.event), (two.ep, 2, DtoOperation::Receive));
            assert_eq!(waited.more, 2);
        }
        other => panic!("{other:?}"),
    }
    drop(wait);
    assert_eq!(
        taken(ia.evd_dequeue(evd).unwrap()),
        (one.ep, 0, DtoOperation::Receive)
    );
    // What an endpoint had taken goes with it, and the places are free again: 2 are in use.
    take(0, one);
    ia.ep_free(two.ep).unwrap();
    assert_eq!(
        taken(ia.evd_dequeue(evd).unwrap()),
        (one.ep, 1, DtoOperation::Receive)
    );
    assert_eq!(tags(&ia, evd), []);
    assert_eq!(device.shared_posted(shared).len(), 2);
    for cookie in 10..16 {
        ia.srq_post_recv(srq, &[], cookie).unwrap();
    }
    assert_eq!(
        ia.srq_post_recv(srq, &[], 16).unwrap_err().kind(),
        ErrorKind::InsufficientResources
    );
    for _ in 0..8 {
        take(0, one);
    }
    assert_eq!(tags(&ia, evd), [4, 5, 10, 11, 12, 13, 14, 15]);
}

/// Spec: DTO-13
#[test]
fn the_failure_of_a_device_is_reported_once_however_many_queues_show_it() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evds = [0, 1, 2].map(|_| ia.evd_create(2, None, EvdFlags::DTO).unwrap());
    for evd in evds {
        device.fail_queue(number(evd), DeviceFailure::Broken);
        assert_eq!(tags(&ia, evd), []);
    }
    device.push_control(ControlEvent::DeviceFailed);
    progress(&ia);
    assert_eq!(
        drain(&ia, ia.async_evd()),
        [AsyncEventKind::IaCatastrophic as u64]
    );
}

/// Spec: GEN-06, DTO-03
#[test]
fn completions_of_nothing_posted_make_no_events() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    send(&ia, peer.ep, 1);
    let token = device.posted(peer.key).0[0].work.token();
    succeed(&device, peer.key);
    assert_eq!(tags(&ia, evd), [1]);
    send(&ia, peer.ep, 2);
    for token in [token, 0, u64::MAX, token ^ 1 << 31, token ^ 1 << 40] {
        for harvested in [false, true] {
            let completion = Completion {
                token,
                status: DtoStatus::Success,
                length: u32::MAX,
                queue_pair: u64::MAX,
                solicited: true,
            };
            device.inject(number(evd), completion);
            if harvested {
                ia.harvest_at(number(evd));
            }
            assert_eq!(
                ia.evd_dequeue(evd).unwrap_err().kind(),
                ErrorKind::QueueEmpty
            );
        }
    }
    succeed(&device, peer.key);
    assert_eq!(tags(&ia, evd), [2]);
}

/// Spec: EVZ-01, DTO-13
#[test]
fn resizing_counts_completions_and_keeps_their_places() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(4, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 1..=6 {
        send(&ia, peer.ep, cookie);
        succeed(&device, peer.key);
    }
    assert_eq!(
        ia.evd_resize(evd, 5).unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    let _before = device.take_calls();
    // The completion queue is as deep as the requests need, 16, already.
    ia.evd_resize(evd, 6).unwrap();
    assert_eq!(device.take_calls(), []);
    ia.evd_resize(evd, 20).unwrap();
    assert_eq!(
        device.take_calls(),
        [Call::ResizeCompletionQueue {
            number: number(evd),
            depth: 20
        }]
    );
    assert_eq!(tags(&ia, evd), [1, 2, 3, 4, 5, 6]);
}

/// Spec: EVF-01, PSC-01
#[test]
fn freeing_a_dispatcher_refuses_the_requests_in_it() {
    use crate::attributes::IaAddress;
    use crate::backend::RequestKey;
    use crate::flags::PspFlags;
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::CR).unwrap();
    let psp = ia.psp_create(77, evd, PspFlags::Consumer).unwrap();
    for request in 1..=2 {
        device.push_control(ControlEvent::ConnectionRequest {
            listener: psp.handle().to_raw(),
            request: RequestKey(request),
            remote: IaAddress::Node(2),
            remote_port: 1,
            local: IaAddress::Node(1),
            private_data: PrivateData::new(),
        });
    }
    progress(&ia);
    assert!(matches!(
        ia.evd_dequeue(evd),
        Ok(Event::ConnectionRequest { .. })
    ));
    ia.psp_free(psp).unwrap();
    let _before = device.take_calls();
    ia.evd_free(evd).unwrap();
    // The one that was handed out is the consumer's to answer.
    assert_eq!(
        device.take_calls(),
        [Call::Reject {
            request: RequestKey(2),
            by_consumer: false,
            private_data: Vec::new()
        }]
    );
}

/// Every event once, those of a stream in order, whatever is mixed with what.
///
/// Spec: EVW-09, EVG-03, DTO-11, EVW-04, EVZ-01
#[test]
fn random_mixes_keep_every_stream_whole() {
    for seed in 1..=200_u64 {
        std::println!("seed {seed}");
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = move |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let device = TestBackend::default();
        let mut storage = TestStorage::new();
        let ia = open(&mut storage, &device);
        let evd = ia.evd_create(6, None, SHARED).unwrap();
        let peers =
            [0, 1].map(|_| connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT));
        let (_, waker) = WakeCount::new();
        // Streams: two endpoints, software. Next to be made, next to be seen.
        let mut made = [0_u64; 3];
        let mut completed = [0_u64; 2];
        let mut seen = [0_u64; 3];
        let mut see = |event: Event| {
            let stream = match event {
                Event::Dto(completion) => usize::from(completion.ep == peers[1].ep),
                _ => 2,
            };
            assert_eq!(tag(event), seen[stream], "stream {stream}");
            seen[stream] += 1;
            seen
        };
        for _ in 0..400 {
            let peer = random(2) as usize;
            match random(9) {
                0..=2 => {
                    let flags = CompletionFlags::empty();
                    if ia.post_send(peers[peer].ep, &[], made[peer], flags).is_ok() {
                        made[peer] += 1;
                    }
                }
                3 | 4 => {
                    if device.complete_request(peers[peer].key, DtoStatus::Success) {
                        completed[peer] += 1;
                    }
                }
                5 => {
                    if ia.evd_post_se(evd, made[2]).is_ok() {
                        made[2] += 1;
                    }
                }
                6 => {
                    if let Ok(event) = ia.evd_dequeue(evd) {
                        see(event);
                    }
                }
                7 => {
                    let mut wait = ia.evd_wait(evd, 1 + random(4) as i32).unwrap();
                    if random(2) == 0
                        && let Poll::Ready(waited) = wait.poll(&waker)
                    {
                        see(waited.unwrap().event);
                    }
                }
                _ => {
                    let _may_be_too_short = ia.evd_resize(evd, 4 + random(8) as i32);
                    progress(&ia);
                }
            }
        }
        let mut last = None;
        while let Ok(event) = ia.evd_dequeue(evd) {
            last = Some(see(event));
        }
        if let Some(seen) = last {
            assert_eq!(seen, [completed[0], completed[1], made[2]]);
        }
    }
}
