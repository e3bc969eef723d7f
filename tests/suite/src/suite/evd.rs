//! Event dispatchers.

use core::task::{Poll, Waker};

use dat_core::backend::Backend;
use dat_core::event::{AsyncEventKind, Event, Expired, REASON_PRIMARY};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EvdFields, EvdFlags, EvdState, IaFields, ProviderFields, PspFlags,
};
use dat_core::id::{CnoId, EvdId};
use dat_core::sync::RawLock;
use dat_core::{Error, ErrorKind, Ia, Subtype};

use crate::fixture::errors::{BAD_CNO, CNO_IN_USE};
use crate::fixture::{Net, Party, PartyOptions, Testbed, granted, refused};

const WAITER: Error = Error::invalid_state(Subtype::InvalidStateEvdWaiter);
const EVD_IN_USE: Error = Error::invalid_state(Subtype::InvalidStateEvdInUse);

/// Creates a dispatcher for software events.
#[track_caller]
fn software<B: Backend, L: RawLock>(ia: &Ia<'_, B, L>, length: i32) -> EvdId {
    granted(ia.evd_create(length, None, EvdFlags::SOFTWARE))
}

#[track_caller]
fn pointer<B: Backend, L: RawLock>(ia: &Ia<'_, B, L>, evd: EvdId) -> u64 {
    match granted(ia.evd_dequeue(evd)) {
        Event::Software { pointer } => pointer,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn state<B: Backend, L: RawLock>(ia: &Ia<'_, B, L>, evd: EvdId) -> EvdState {
    granted(ia.evd_query(evd, EvdFields::all())).state
}

/// A new dispatcher is enabled, waitable, empty and at least as long as requested.
///
/// A query returns its streams and its notification object.
///
/// Spec: EVC-01, EVC-02, EVQ-01, EVQ-02, GEN-08
pub fn query_describes_a_new_dispatcher<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    for flags in [
        EvdFlags::DEFAULT,
        EvdFlags::SOFTWARE,
        EvdFlags::DTO,
        EvdFlags::CONNECTION | EvdFlags::CR,
    ] {
        for cno in [None, Some(cno)] {
            let evd = granted(ia.evd_create(5, cno, flags));
            let param = granted(ia.evd_query(evd, EvdFields::all()));
            assert_eq!(
                (param.ia, param.cno, param.flags),
                (ia.handle(), cno, flags)
            );
            assert!(param.qlen >= 5);
            assert!(param.state.contains(EvdState::ENABLED | EvdState::WAITABLE));
            assert!(
                !param
                    .state
                    .intersects(EvdState::DISABLED | EvdState::UNWAITABLE)
            );
            refused(ia.evd_dequeue(evd), Error::queue_empty());
            for bit in 5..32 {
                refused(
                    ia.evd_query(evd, EvdFields::from_bits_retain(1 << bit)),
                    Error::invalid_argument(2),
                );
            }
            granted(ia.evd_free(evd));
        }
    }
}

/// Bad lengths, streams and notification objects are refused without effect.
///
/// Spec: EVC-02..04, GEN-03, GEN-06, GEN-07, GEN-11
pub fn bad_dispatchers_are_refused<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    for length in [0, -1, i32::MIN] {
        refused(
            ia.evd_create(length, None, EvdFlags::SOFTWARE),
            Error::invalid_argument(2),
        );
    }
    let limit = granted(ia.ia_query(IaFields::MAX_EVD_QLEN, ProviderFields::empty()))
        .ia
        .max_evd_qlen;
    if let Some(length) = limit.checked_add(1) {
        refused(
            ia.evd_create(length, None, EvdFlags::SOFTWARE),
            Error::insufficient_resources(Subtype::ResourceTevd),
        );
    }
    refused(
        ia.evd_create(4, None, EvdFlags::empty()),
        Error::invalid_argument(4),
    );
    for bit in 0..32 {
        let flags = EvdFlags::from_bits_retain(1 << bit);
        if EvdFlags::all().contains(flags) {
            granted(ia.evd_free(granted(ia.evd_create(4, None, flags))));
        } else {
            for flags in [flags, flags | EvdFlags::DTO] {
                refused(ia.evd_create(4, None, flags), Error::invalid_argument(4));
            }
        }
    }
    let freed = granted(ia.cno_create(None));
    granted(ia.cno_free(freed));
    for bad in [
        CnoId::NULL,
        freed,
        granted(net.adapter().cno_create(None)),
        CnoId::from_handle(ia.async_evd().handle()),
    ] {
        refused(ia.evd_create(4, Some(bad), EvdFlags::SOFTWARE), BAD_CNO);
    }
}

/// A dispatcher takes events only from the streams that it was made for.
///
/// Spec: EVC-05, PSC-05, GEN-03
pub fn dispatchers_take_only_their_streams<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let only = |flags| granted(ia.evd_create(64, None, flags));
    let software = only(EvdFlags::SOFTWARE);
    let dto = only(EvdFlags::DTO);
    let connection = only(EvdFlags::CONNECTION);
    let attributes = PartyOptions::default().attributes;
    for (receive, request, connect, role) in [
        (software, dto, connection, Subtype::InvalidHandleEvdRecv),
        (connection, dto, connection, Subtype::InvalidHandleEvdRecv),
        (
            dto,
            connection,
            connection,
            Subtype::InvalidHandleEvdRequest,
        ),
        (dto, dto, dto, Subtype::InvalidHandleEvdConn),
    ] {
        refused(
            ia.ep_create(
                Some(zone),
                Some(receive),
                Some(request),
                Some(connect),
                Some(&attributes),
            ),
            Error::invalid_handle(role),
        );
    }
    refused(
        ia.psp_create(net.qualifier(), dto, PspFlags::Consumer),
        Error::invalid_handle(Subtype::InvalidHandleEvdCr),
    );
    for evd in [software, dto, connection] {
        granted(ia.evd_free(evd));
    }
}

/// Every call refuses null, stale, foreign and wrong-kind dispatchers.
///
/// Spec: GEN-03, GEN-11, EVQ-01, EVM-01, EVZ-01, EVN-01, EVN-02, EVN-04, EVN-05, EVW-10, EVG-04,
/// EVS-03, EVF-03
pub fn bad_dispatcher_handles_are_refused<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let freed = software(&ia, 4);
    granted(ia.evd_free(freed));
    let other = net.adapter();
    for bad in [
        EvdId::NULL,
        freed,
        software(&other, 4),
        EvdId::from_handle(ia.handle()),
        EvdId::from_handle(granted(ia.pz_create()).handle()),
    ] {
        let outcomes = [
            ia.evd_query(bad, EvdFields::all()).map(drop),
            ia.evd_modify_cno(bad, None),
            ia.evd_resize(bad, 4),
            ia.evd_enable(bad),
            ia.evd_disable(bad),
            ia.evd_set_unwaitable(bad),
            ia.evd_clear_unwaitable(bad),
            ia.evd_wait(bad, 1).map(drop),
            ia.evd_dequeue(bad).map(drop),
            ia.evd_post_se(bad, 1),
            ia.evd_free(bad),
        ];
        for (call, outcome) in outcomes.into_iter().enumerate() {
            let error = outcome.expect_err("a bad handle");
            assert_eq!(
                error.kind(),
                ErrorKind::InvalidHandle,
                "call {call}: {error}"
            );
        }
    }
}

/// Software events are queued in order; a full queue refuses further ones.
///
/// A refusal has no other effect.
///
/// Spec: EVS-01..04, EVG-01, EVG-03, EVG-04
pub fn software_events_are_queued_or_refused<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    let length = granted(ia.evd_query(evd, EvdFields::QLEN)).qlen as u64;
    for round in 0..3 {
        for number in 0..length {
            granted(ia.evd_post_se(evd, u64::MAX - number - round));
        }
        for _ in 0..2 {
            refused(ia.evd_post_se(evd, 9), Error::queue_full());
        }
        for number in 0..length {
            assert_eq!(pointer(&ia, evd), u64::MAX - number - round);
        }
        refused(ia.evd_dequeue(evd), Error::queue_empty());
    }
    net.silent(&ia, ia.async_evd());
    let other = granted(ia.evd_create(4, None, EvdFlags::DEFAULT));
    let error = ia.evd_post_se(other, 1).expect_err("no software stream");
    assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error}");
    refused(ia.evd_dequeue(other), Error::queue_empty());
}

/// A wait ends at its threshold, takes the first event and counts the rest.
///
/// Spec: EVW-01, EVW-02, EVW-07, EVW-09, EVW-14
pub fn wait_ends_at_its_threshold<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    let length = granted(ia.evd_query(evd, EvdFields::QLEN)).qlen;
    for bad in [0, -1, i32::MIN, length + 1, i32::MAX] {
        refused(ia.evd_wait(evd, bad).map(drop), Error::invalid_argument(3));
    }
    for threshold in 1..=length {
        let mut wait = granted(ia.evd_wait(evd, threshold));
        for number in 0..threshold {
            assert!(
                wait.poll(Waker::noop()).is_pending(),
                "{number} of {threshold}"
            );
            granted(ia.evd_post_se(evd, number as u64));
        }
        let Poll::Ready(outcome) = wait.poll(Waker::noop()) else {
            panic!("{threshold} events are there");
        };
        let waited = granted(outcome);
        assert_eq!(waited.event, Event::Software { pointer: 0 });
        assert_eq!(waited.event.number(), 0x1_0001);
        assert_eq!(waited.more, threshold as u32 - 1);
        drop(wait);
        for number in 1..threshold {
            assert_eq!(pointer(&ia, evd), number as u64);
        }
    }
}

/// While a thread waits, no other may wait or dequeue.
///
/// A wait that expires loses no event and returns their count.
///
/// Spec: EVW-04, EVW-06, EVW-08, EVG-02
pub fn a_waiter_owns_the_dispatcher<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    granted(ia.evd_post_se(evd, 1));
    let mut wait = granted(ia.evd_wait(evd, 3));
    assert!(wait.poll(Waker::noop()).is_pending());
    refused(ia.evd_wait(evd, 1).map(drop), WAITER);
    refused(ia.evd_dequeue(evd), WAITER);
    granted(ia.evd_post_se(evd, 2));
    assert_eq!(wait.expire(), Err(Expired { queued: 2 }));
    assert_eq!(pointer(&ia, evd), 1);
    drop(granted(ia.evd_wait(evd, 1)));
    assert_eq!(pointer(&ia, evd), 2);
}

/// A wait that expires counts its queued events, which are fewer than its threshold.
///
/// It succeeds if the threshold is reached.
///
/// Spec: EVW-01, EVW-06, EVW-07
pub fn expired_wait_counts_fewer_than_its_threshold<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    for number in 0..=3 {
        let mut wait = granted(ia.evd_wait(evd, 2));
        assert!(wait.poll(Waker::noop()).is_pending());
        for pointer in 0..number {
            granted(ia.evd_post_se(evd, pointer));
        }
        match wait.expire() {
            Err(Expired { queued }) => {
                assert!(number < 2, "{number} queued");
                assert_eq!(u64::from(queued), number);
                (0..number).for_each(|expected| assert_eq!(pointer(&ia, evd), expected));
            }
            Ok(waited) => {
                assert!(number >= 2, "{number} queued");
                assert_eq!(waited.event, Event::Software { pointer: 0 });
                assert_eq!(u64::from(waited.more), number - 1);
                (1..number).for_each(|expected| assert_eq!(pointer(&ia, evd), expected));
            }
        }
        refused(ia.evd_dequeue(evd), Error::queue_empty());
    }
}

/// An unwaitable dispatcher refuses waits and ends a pending one; dequeue still works.
///
/// Waits are allowed once it is waitable again.
///
/// Spec: EVN-04, EVN-05, EVW-05, EVQ-02
pub fn unwaitable_ends_waits<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    let mut wait = granted(ia.evd_wait(evd, 2));
    granted(ia.evd_post_se(evd, 1));
    assert!(wait.poll(Waker::noop()).is_pending());
    for _ in 0..2 {
        granted(ia.evd_set_unwaitable(evd));
        assert!(state(&ia, evd).contains(EvdState::UNWAITABLE | EvdState::ENABLED));
    }
    let Poll::Ready(outcome) = wait.poll(Waker::noop()) else {
        panic!("the wait goes on");
    };
    let unwaitable = Error::invalid_state(Subtype::InvalidStateEvdUnwaitable);
    refused(outcome, unwaitable);
    drop(wait);
    refused(ia.evd_wait(evd, 1).map(drop), unwaitable);
    assert_eq!(pointer(&ia, evd), 1);
    for _ in 0..2 {
        granted(ia.evd_clear_unwaitable(evd));
        assert!(state(&ia, evd).contains(EvdState::WAITABLE));
    }
    drop(granted(ia.evd_wait(evd, 1)));
}

/// Only a notification ends a wait where endpoints complete UNSIGNALLED.
///
/// Thresholds other than 1 are refused there. Events without a notification that are queued by then
/// come with the others.
///
/// Spec: EVW-03, EVW-11, EVQ-02, DTO-04
pub fn unsignalled_completions_do_not_end_a_wait<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.request_completion_flags = unsignalled;
    }));
    assert_eq!(
        state(&left.ia, left.request).configuration(),
        EvdState::CONFIG_NOTIFY
    );
    let error = left
        .ia
        .evd_wait(left.request, 2)
        .map(drop)
        .expect_err("notifications decide");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    let write = |cookie, flags| {
        left.write(
            &[left.memory.segment(0, 8)],
            cookie,
            &right.memory.remote(0, 8),
            flags,
        );
        net.run_to_idle();
    };
    let mut wait = granted(left.ia.evd_wait(left.request, 1));
    write(1, unsignalled);
    assert!(wait.poll(Waker::noop()).is_pending());
    write(2, CompletionFlags::empty());
    let Poll::Ready(outcome) = wait.poll(Waker::noop()) else {
        panic!("a notification is there");
    };
    let waited = granted(outcome);
    assert_eq!(waited.more, 1);
    let Event::Dto(first) = waited.event else {
        panic!("{waited:?}");
    };
    assert_eq!(first.cookie, 1);
    drop(wait);
    net.success(&left, 2);
}

/// Without UNSIGNALLED streams every event counts towards the threshold.
///
/// The configuration of the dispatcher says threshold.
///
/// Spec: EVW-01, EVW-11, EVQ-02
pub fn thresholds_count_completions<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for attribute in [CompletionFlags::empty(), CompletionFlags::EVD_THRESHOLD] {
        let (left, right) = net.pair(&PartyOptions::with(|attributes| {
            attributes.request_completion_flags = attribute;
        }));
        assert_eq!(
            state(&left.ia, left.request).configuration(),
            EvdState::CONFIG_THRESHOLD
        );
        let mut wait = granted(left.ia.evd_wait(left.request, 3));
        for cookie in 0..3 {
            net.run_to_idle();
            assert!(wait.poll(Waker::noop()).is_pending());
            left.write(
                &[left.memory.segment(0, 8)],
                cookie,
                &right.memory.remote(0, 8),
                CompletionFlags::empty(),
            );
        }
        net.run_to_idle();
        let Poll::Ready(outcome) = wait.poll(Waker::noop()) else {
            panic!("three completions are there");
        };
        assert_eq!(granted(outcome).more, 2);
    }
}

/// A failed completion notifies, with any completion flags.
///
/// Spec: EVW-11, DTO-04
pub fn failures_always_notify<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let options = PartyOptions::with(|attributes| {
        attributes.request_completion_flags = CompletionFlags::UNSIGNALLED;
        attributes.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    });
    let left = Party::notifying(&ia, cno, &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    net.disconnect(&left, &right);
    net.run_to_idle();
    while net.triggered(&ia, cno).is_some() {}
    left.send(&[], 1, CompletionFlags::UNSIGNALLED);
    net.run_to_idle();
    assert_eq!(net.triggered(&ia, cno), Some(left.request));
    assert_eq!(net.request_completion(&left).status, DtoStatus::Flushed);
    left.receive_into(&[], 2);
    net.run_to_idle();
    assert_eq!(net.triggered(&ia, cno), Some(left.receive));
    assert_eq!(net.receive_completion(&left).status, DtoStatus::Flushed);
}

/// A resize loses no event and keeps their order.
///
/// It is refused if more events are queued than the new length holds.
///
/// Spec: EVZ-01, GEN-06, GEN-07
pub fn resized_dispatcher_keeps_its_events<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = software(&ia, 4);
    for number in 0..4 {
        granted(ia.evd_post_se(evd, number));
    }
    assert_eq!(pointer(&ia, evd), 0);
    granted(ia.evd_post_se(evd, 4));
    let length = |evd| granted(ia.evd_query(evd, EvdFields::QLEN)).qlen;
    let before = length(evd);
    let error = ia.evd_resize(evd, 3).expect_err("four are queued");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    for bad in [0, -1, i32::MIN] {
        refused(ia.evd_resize(evd, bad), Error::invalid_argument(2));
    }
    let limit = granted(ia.ia_query(IaFields::MAX_EVD_QLEN, ProviderFields::empty()))
        .ia
        .max_evd_qlen;
    if let Some(bad) = limit.checked_add(1) {
        let error = ia.evd_resize(evd, bad).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
    }
    assert_eq!(length(evd), before);
    granted(ia.evd_resize(evd, 8));
    assert!(length(evd) >= 8);
    for number in 5..9 {
        granted(ia.evd_post_se(evd, number));
    }
    for number in 1..7 {
        assert_eq!(pointer(&ia, evd), number);
    }
    granted(ia.evd_resize(evd, 2));
    assert_eq!((pointer(&ia, evd), pointer(&ia, evd)), (7, 8));
    for number in 0..length(evd) as u64 {
        granted(ia.evd_post_se(evd, number));
    }
    refused(ia.evd_post_se(evd, 9), Error::queue_full());
}

/// A disabled dispatcher notifies no object; once enabled again, it does.
///
/// Dequeue works in both states.
///
/// Spec: EVN-01, EVN-02, EVG-02, CNW-02
pub fn disabled_dispatcher_notifies_nobody<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE));
    for _ in 0..2 {
        granted(ia.evd_disable(evd));
        assert!(state(&ia, evd).contains(EvdState::DISABLED));
    }
    granted(ia.evd_post_se(evd, 1));
    assert_eq!(net.triggered(&ia, cno), None);
    assert_eq!(pointer(&ia, evd), 1);
    for _ in 0..2 {
        granted(ia.evd_enable(evd));
        assert!(state(&ia, evd).contains(EvdState::ENABLED));
    }
    assert_eq!(net.triggered(&ia, cno), None);
    granted(ia.evd_post_se(evd, 2));
    assert_eq!(net.triggered(&ia, cno), Some(evd));
    assert_eq!(pointer(&ia, evd), 2);
}

/// While a thread waits on the dispatcher, its notification object is not notified.
///
/// The wait works on an enabled and on a disabled dispatcher.
///
/// Spec: EVN-03, EVW-04, CNW-02
pub fn a_waiter_goes_before_the_notification_object<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE));
    let mut wait = granted(ia.evd_wait(evd, 2));
    for number in 0..2 {
        assert!(wait.poll(Waker::noop()).is_pending());
        granted(ia.evd_post_se(evd, number));
    }
    assert!(wait.poll(Waker::noop()).is_ready());
    drop(wait);
    assert_eq!(net.triggered(&ia, cno), None);
    // Waits on the dispatcher work also if it is disabled.
    granted(ia.evd_disable(evd));
    let mut wait = granted(ia.evd_wait(evd, 1));
    assert!(wait.poll(Waker::noop()).is_ready());
}

/// The notification object of a dispatcher can be changed and removed.
///
/// Spec: EVM-01, EVM-02, CNF-01
pub fn notification_object_can_be_changed<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let first = granted(ia.cno_create(None));
    let second = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(4, Some(first), EvdFlags::SOFTWARE));
    let cno = |evd| granted(ia.evd_query(evd, EvdFields::CNO)).cno;
    let in_use = CNO_IN_USE;
    refused(ia.cno_free(first), in_use);
    granted(ia.evd_modify_cno(evd, Some(second)));
    assert_eq!(cno(evd), Some(second));
    granted(ia.evd_post_se(evd, 1));
    assert_eq!(net.triggered(&ia, first), None);
    assert_eq!(net.triggered(&ia, second), Some(evd));
    granted(ia.cno_free(first));
    refused(ia.cno_free(second), in_use);
    refused(ia.evd_modify_cno(evd, Some(first)), BAD_CNO);
    assert_eq!(cno(evd), Some(second));
    granted(ia.evd_modify_cno(evd, None));
    assert_eq!(cno(evd), None);
    granted(ia.evd_post_se(evd, 2));
    assert_eq!(net.triggered(&ia, second), None);
    granted(ia.cno_free(second));
}

/// A dispatcher can be freed only without streams and waiters; its events are dropped.
///
/// Spec: EVF-01..03, GEN-15
pub fn dispatcher_is_held_by_its_streams<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for evd in [
        left.receive,
        left.request,
        left.connect,
        left.ia.async_evd(),
    ] {
        refused(left.ia.evd_free(evd), EVD_IN_USE);
    }
    let requests = granted(left.ia.evd_create(4, None, EvdFlags::CR));
    let psp = granted(
        left.ia
            .psp_create(net.qualifier(), requests, PspFlags::Consumer),
    );
    refused(left.ia.evd_free(requests), EVD_IN_USE);
    granted(left.ia.psp_free(psp));
    granted(left.ia.evd_free(requests));
    left.send_from(&[], 1);
    net.run_to_idle();
    granted(left.ia.ep_free(left.ep));
    for evd in [left.receive, left.request, left.connect] {
        granted(left.ia.evd_free(evd));
    }
    let evd = software(&right.ia, 4);
    granted(right.ia.evd_post_se(evd, 1));
    let wait = granted(right.ia.evd_wait(evd, 1));
    refused(right.ia.evd_free(evd), WAITER);
    drop(wait);
    granted(right.ia.evd_free(evd));
}

/// Unsolicited events beyond the queue are lost, which is reported once.
///
/// The asynchronous dispatcher gets the report. The queued events stay.
///
/// Spec: EVW-09, DTO-13
pub fn overflow_is_reported_once<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let peer = net.adapter();
    let options = PartyOptions::default();
    let connect = granted(ia.evd_create(1, None, EvdFlags::CONNECTION));
    let pairs: Vec<_> = (0..4)
        .map(|_| {
            let near = Party::new(&ia, &options);
            let near = Party {
                connect,
                ep: granted(ia.ep_create(
                    Some(near.zone),
                    Some(near.receive),
                    Some(near.request),
                    Some(connect),
                    Some(&options.attributes),
                )),
                ..near
            };
            let far = Party::new(&peer, &options);
            net.connect(&near, &far);
            (near, far)
        })
        .collect();
    let length = granted(ia.evd_query(connect, EvdFields::QLEN)).qlen as usize;
    for (_, far) in &pairs {
        granted(
            far.ia
                .ep_disconnect(far.ep, dat_core::flags::CloseFlags::Abrupt),
        );
    }
    net.run_to_idle();
    assert!(length < pairs.len(), "the queue is too long for this test");
    assert_eq!(
        net.event(&ia, ia.async_evd()),
        Event::Async {
            kind: AsyncEventKind::EvdOverflow,
            handle: connect.handle(),
            reason: REASON_PRIMARY,
        }
    );
    net.silent(&ia, ia.async_evd());
    for _ in 0..length {
        let event = granted(ia.evd_dequeue(connect));
        assert_eq!(event.number(), 0x4005);
    }
    let error = ia.evd_dequeue(connect).expect_err("nothing more");
    assert_eq!(error.kind(), ErrorKind::QueueEmpty, "{error}");
}
