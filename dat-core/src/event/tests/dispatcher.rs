use super::{code, drain, push};
use crate::attributes::ProviderAttributes;
use crate::backend::BackendError;
use crate::error::{Cause, ErrorKind, Subtype};
use crate::event::{AsyncEventKind, Event, ProxyAgent};
use crate::flags::{EvdFields, EvdFlags, EvdState};
use crate::id::{CnoId, EvdId, Handle};
use crate::testing::{
    Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend, TestStorage, WakeCount, open,
};

/// Spec: EVC-01, EVC-02, EVC-03, EVC-04, GEN-06, GEN-07
#[test]
fn creation_checks_everything_and_leaves_no_trace() {
    let (t, f) = (true, false);
    let mut matrix = ProviderAttributes::MERGE_ALL;
    matrix[0] = [t, f, t, t, t, t];
    matrix[1] = [f, t, t, t, t, t];
    let provider = ProviderAttributes {
        evd_stream_merging_supported: matrix,
        ..PROVIDER_ATTRIBUTES
    };
    let device = TestBackend::new(IA_ATTRIBUTES, provider);
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let before = device.objects();
    let argument = |n| (ErrorKind::InvalidParameter, Subtype::argument(n));
    let resources = (ErrorKind::InsufficientResources, Subtype::ResourceTevd);
    let unknown = EvdFlags::from_bits_retain(0x2 | 0x20);
    let refused = [
        (-1, Some(cno), EvdFlags::DTO, argument(2)),
        (0, Some(cno), EvdFlags::DTO, argument(2)),
        (i32::MIN, None, EvdFlags::DTO, argument(2)),
        (4, Some(cno), EvdFlags::empty(), argument(4)),
        (4, Some(cno), unknown, argument(4)),
        (4, None, EvdFlags::SOFTWARE | EvdFlags::CR, argument(4)),
        (49, Some(cno), EvdFlags::DTO, resources),
        (i32::MAX, None, EvdFlags::DTO, resources),
        (
            4,
            Some(CnoId::NULL),
            EvdFlags::DTO,
            (ErrorKind::InvalidHandle, Subtype::InvalidHandleCno),
        ),
        (
            4,
            Some(CnoId::from_handle(ia.async_evd().handle())),
            EvdFlags::DTO,
            (ErrorKind::InvalidHandle, Subtype::InvalidHandleCno),
        ),
    ];
    for (length, cno, flags, expected) in refused {
        let error = ia.evd_create(length, cno, flags).unwrap_err();
        assert_eq!(code(error), expected, "{length} {cno:?} {flags:?}");
    }
    device.refuse_next(BackendError::Resources);
    let error = ia.evd_create(4, Some(cno), EvdFlags::DTO).unwrap_err();
    assert_eq!(code(error), resources);
    assert_eq!(device.objects(), before);

    // No event slot is lost: of 64, the asynchronous dispatcher has 4.
    let both = EvdFlags::DTO | EvdFlags::SOFTWARE;
    let one = ia.evd_create(48, Some(cno), both).unwrap();
    let two = ia.evd_create(12, None, EvdFlags::SOFTWARE).unwrap();
    let error = ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap_err();
    assert_eq!(code(error), resources);
    ia.evd_free(one).unwrap();
    ia.evd_free(two).unwrap();
    assert_eq!(device.objects(), before);
    ia.cno_free(cno).unwrap();
}

/// Completions wait in their records, so a dispatcher of nothing else takes no event slots.
///
/// Spec: EVC-03, EVC-04, EVZ-01
#[test]
fn a_dispatcher_of_completions_takes_no_event_slots() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let made = [EvdFlags::DTO, EvdFlags::RMR_BIND, completions]
        .map(|flags| ia.evd_create(48, None, flags).unwrap());
    for length in [1, 48, 2] {
        ia.evd_resize(made[0], length).unwrap();
        let param = ia.evd_query(made[0], EvdFields::QLEN).unwrap();
        assert_eq!(param.qlen, length);
    }
    // Of 64 slots, the asynchronous dispatcher has 4.
    let some = ia.evd_create(12, None, EvdFlags::CONNECTION).unwrap();
    let rest = ia.evd_create(48, None, EvdFlags::SOFTWARE).unwrap();
    let error = ia
        .evd_create(1, None, completions | EvdFlags::SOFTWARE)
        .unwrap_err();
    assert_eq!(error.cause(), Cause::EventSlotsExhausted);
    for pointer in 0..48 {
        ia.evd_post_se(rest, pointer).unwrap();
    }
    for evd in made {
        ia.evd_resize(evd, 3).unwrap();
        ia.evd_free(evd).unwrap();
    }
    // Their end freed no slot of others.
    assert!(ia.evd_create(1, None, EvdFlags::SOFTWARE).is_err());
    for pointer in 0..48 {
        assert_eq!(ia.evd_dequeue(rest), Ok(Event::Software { pointer }));
    }
    ia.evd_free(some).unwrap();
    ia.evd_create(12, None, EvdFlags::SOFTWARE).unwrap();
}

/// Spec: EVC-04
#[test]
fn creation_ends_where_the_table_ends() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let made: std::vec::Vec<_> = (0..7)
        .map(|_| ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap())
        .collect();
    let error = ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap_err();
    assert_eq!(
        code(error),
        (ErrorKind::InsufficientResources, Subtype::ResourceTevd)
    );
    ia.evd_free(made[3]).unwrap();
    let again = ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap();
    assert_ne!(again, made[3]);
    // The old handle stays stale (GEN-03).
    assert_eq!(
        ia.evd_post_se(made[3], 1).unwrap_err().kind(),
        ErrorKind::InvalidHandle
    );
}

/// Spec: EVQ-01, EVQ-02, EVN-01, EVN-02, EVN-04, EVN-05, EVM-01, GEN-08
#[test]
fn query_tells_the_state() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let flags = EvdFlags::SOFTWARE | EvdFlags::CONNECTION;
    let evd = ia.evd_create(5, Some(cno), flags).unwrap();
    let param = ia.evd_query(evd, EvdFields::all()).unwrap();
    assert_eq!(param.ia, ia.handle());
    assert!(param.qlen >= 5);
    assert_eq!(param.state, EvdState::ENABLED | EvdState::WAITABLE);
    assert_eq!((param.cno, param.flags), (Some(cno), flags));

    let state = || ia.evd_query(evd, EvdFields::STATE).unwrap().state;
    for _ in 0..2 {
        ia.evd_disable(evd).unwrap();
        ia.evd_set_unwaitable(evd).unwrap();
        assert_eq!(state(), EvdState::DISABLED | EvdState::UNWAITABLE);
    }
    for _ in 0..2 {
        ia.evd_enable(evd).unwrap();
        ia.evd_clear_unwaitable(evd).unwrap();
        assert_eq!(state(), EvdState::ENABLED | EvdState::WAITABLE);
    }
    ia.evd_modify_cno(evd, None).unwrap();
    assert_eq!(ia.evd_query(evd, EvdFields::CNO).unwrap().cno, None);

    let error = ia
        .evd_query(evd, EvdFields::from_bits_retain(0x20))
        .unwrap_err();
    assert_eq!(
        code(error),
        (ErrorKind::InvalidParameter, Subtype::argument(2))
    );
}

/// Spec: GEN-03, GEN-11, EVQ-01, EVM-01, EVZ-01, EVN-01, EVN-02, EVN-04, EVN-05, EVW-10, EVG-04,
/// EVS-03, EVF-03
#[test]
fn every_call_refuses_handles_that_name_no_dispatcher() {
    let (device, other_device) = (TestBackend::default(), TestBackend::default());
    let (mut storage, mut other_storage) = (TestStorage::new(), TestStorage::new());
    let ia = open(&mut storage, &device);
    let other = open(&mut other_storage, &other_device);
    let freed = ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap();
    ia.evd_free(freed).unwrap();
    let cno = ia.cno_create(None).unwrap();
    let bad = [
        EvdId::NULL,
        freed,
        EvdId::from_handle(cno.handle()),
        EvdId::from_handle(Handle::from_raw(u64::MAX)),
        other.async_evd(),
    ];
    for evd in bad {
        let errors = [
            ia.evd_query(evd, EvdFields::all()).err(),
            ia.evd_modify_cno(evd, Some(cno)).err(),
            ia.evd_resize(evd, 3).err(),
            ia.evd_enable(evd).err(),
            ia.evd_disable(evd).err(),
            ia.evd_set_unwaitable(evd).err(),
            ia.evd_clear_unwaitable(evd).err(),
            ia.evd_wait(evd, 1).err(),
            ia.evd_dequeue(evd).err(),
            ia.evd_dequeue(evd).err(),
            ia.evd_post_se(evd, 1).err(),
            ia.evd_free(evd).err(),
        ];
        for (call, error) in errors.into_iter().enumerate() {
            let kind = error.map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::InvalidHandle), "{evd:?}, call {call}");
        }
    }
    ia.cno_free(cno).unwrap();
}

/// Spec: EVS-01, EVS-02, EVS-03, EVG-01
#[test]
fn software_events_fill_the_queue_without_an_overflow() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(3, None, EvdFlags::SOFTWARE).unwrap();
    for round in 0..5 {
        for pointer in 0..3 {
            ia.evd_post_se(evd, round * 10 + pointer).unwrap();
        }
        assert_eq!(
            ia.evd_post_se(evd, 99).unwrap_err().kind(),
            ErrorKind::QueueFull
        );
        let expected = [0, 1, 2].map(|pointer| round * 10 + pointer);
        assert_eq!(drain(&ia, evd), expected);
    }
    assert_eq!(
        ia.evd_dequeue(ia.async_evd()).unwrap_err().kind(),
        ErrorKind::QueueEmpty
    );
    let silent = ia.evd_create(3, None, EvdFlags::CONNECTION).unwrap();
    assert_eq!(
        code(ia.evd_post_se(silent, 1).unwrap_err()),
        (ErrorKind::InvalidParameter, Subtype::argument(1))
    );
}

/// Spec: DTO-13, EVS-02, EVW-10
#[test]
fn an_overflow_is_reported_once_until_the_queue_is_drained() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(2, None, EvdFlags::CONNECTION).unwrap();
    let event = Event::Async {
        kind: AsyncEventKind::TimedOut,
        handle: ia.handle(),
        reason: 0,
    };
    let push = |count| {
        for _ in 0..count {
            push(&ia, evd, &event);
        }
    };
    let overflow = Event::Async {
        kind: AsyncEventKind::EvdOverflow,
        handle: evd.handle(),
        reason: 0,
    };
    for _ in 0..2 {
        push(5);
        assert_eq!(ia.evd_dequeue(ia.async_evd()), Ok(overflow));
        assert_eq!(
            ia.evd_dequeue(ia.async_evd()).unwrap_err().kind(),
            ErrorKind::QueueEmpty
        );
        // One slot is free again, but the overflow is already reported.
        assert_eq!(ia.evd_dequeue(evd), Ok(event));
        push(3);
        assert_eq!(
            ia.evd_dequeue(ia.async_evd()).unwrap_err().kind(),
            ErrorKind::QueueEmpty
        );
        assert_eq!(drain(&ia, evd).len(), 2);
    }
}

/// Spec: DTO-13
#[test]
fn waits_drain_an_overflowed_dispatcher_and_then_fail() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(2, None, EvdFlags::CONNECTION).unwrap();
    let (_, waker) = WakeCount::new();
    for pointer in 0..3 {
        push(&ia, evd, &Event::Software { pointer });
    }
    for pointer in 0..2 {
        let mut wait = ia.evd_wait(evd, 1).unwrap();
        match wait.poll(&waker) {
            core::task::Poll::Ready(Ok(waited)) => {
                assert_eq!(waited.event, Event::Software { pointer });
            }
            other => panic!("{other:?}"),
        }
    }
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    match wait.poll(&waker) {
        core::task::Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::InvalidState),
        other => panic!("{other:?}"),
    }
    // A dequeue that finds the queue empty clears the error.
    assert_eq!(
        ia.evd_dequeue(evd).unwrap_err().kind(),
        ErrorKind::QueueEmpty
    );
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
}

/// Spec: EVZ-01, GEN-06, GEN-07
#[test]
fn resizing_loses_nothing() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let flags = EvdFlags::SOFTWARE | EvdFlags::DTO;
    let evd = ia.evd_create(4, None, flags).unwrap();
    let length = || ia.evd_query(evd, EvdFields::QLEN).unwrap().qlen;
    // The ring wraps: three in, two out, three in.
    for pointer in [1, 2, 3] {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    assert_eq!(ia.evd_dequeue(evd), Ok(Event::Software { pointer: 1 }));
    assert_eq!(ia.evd_dequeue(evd), Ok(Event::Software { pointer: 2 }));
    for pointer in [4, 5, 6] {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    let _creation = device.take_calls();

    for (wanted, expected) in [
        (0, (ErrorKind::InvalidParameter, Subtype::argument(2))),
        (-7, (ErrorKind::InvalidParameter, Subtype::argument(2))),
        (3, (ErrorKind::InvalidState, Subtype::NoSubtype)),
        (
            49,
            (ErrorKind::InsufficientResources, Subtype::ResourceTevd),
        ),
    ] {
        assert_eq!(code(ia.evd_resize(evd, wanted).unwrap_err()), expected);
        assert_eq!(length(), 4);
    }
    device.refuse_next(BackendError::Resources);
    let error = ia.evd_resize(evd, 8).unwrap_err();
    assert_eq!(
        code(error),
        (ErrorKind::InsufficientResources, Subtype::ResourceTevd)
    );
    assert_eq!(length(), 4);
    assert_eq!(device.take_calls(), []);

    ia.evd_resize(evd, 8).unwrap();
    assert_eq!(length(), 8);
    let number = evd.handle().index() as u32;
    assert_eq!(
        device.take_calls(),
        [Call::ResizeCompletionQueue { number, depth: 8 }]
    );
    for pointer in [7, 8, 9, 10] {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    assert_eq!(
        ia.evd_post_se(evd, 11).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(drain(&ia, evd), [3, 4, 5, 6, 7, 8, 9, 10]);
    ia.evd_resize(evd, 1).unwrap();
    ia.evd_post_se(evd, 12).unwrap();
    assert_eq!(
        ia.evd_post_se(evd, 13).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(drain(&ia, evd), [12]);
    // All slots are free: the largest queue fits again.
    ia.evd_free(evd).unwrap();
    ia.evd_create(48, None, flags).unwrap();
}

/// Spec: EVZ-01
#[test]
fn a_queue_shrinks_even_if_no_other_run_of_slots_is_free() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(30, None, EvdFlags::SOFTWARE).unwrap();
    let _rest = ia.evd_create(30, None, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(
        ia.evd_resize(evd, 31).unwrap_err().kind(),
        ErrorKind::InsufficientResources
    );
    ia.evd_post_se(evd, 1).unwrap();
    ia.evd_resize(evd, 2).unwrap();
    ia.evd_post_se(evd, 2).unwrap();
    assert_eq!(
        ia.evd_post_se(evd, 3).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(drain(&ia, evd), [1, 2]);
}

/// Spec: EVF-01, EVF-02, EVF-03, GEN-15
#[test]
fn freeing_needs_an_idle_dispatcher() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let (_, waker) = WakeCount::new();
    assert_eq!(
        code(ia.evd_free(ia.async_evd()).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdInUse)
    );
    let evd = ia.evd_create(4, None, EvdFlags::all()).unwrap();
    ia.evd_post_se(evd, 1).unwrap();
    let mut wait = ia.evd_wait(evd, 2).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(
        code(ia.evd_free(evd).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdWaiter)
    );
    drop(wait);
    let role = Subtype::InvalidHandleEvdConn;
    let attach = |stream| {
        ia.control.with(|control| {
            let backend = control.backend().unwrap();
            ia.attach_stream(backend, evd, stream, role, None)
        })
    };
    let index = attach(EvdFlags::CONNECTION).unwrap();
    assert_eq!(
        code(ia.evd_free(evd).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdInUse)
    );
    ia.detach_stream(index, None);
    ia.evd_free(evd).unwrap();
    assert_eq!(
        code(attach(EvdFlags::CONNECTION).unwrap_err()),
        (ErrorKind::InvalidHandle, role)
    );
}

/// Spec: EVC-05, EPC-04, EPC-05, EPC-06, EPC-07, EPX-06
#[test]
fn streams_that_cannot_share_a_dispatcher_are_refused() {
    use crate::event::EvdConfig::{Notify, Solicited, Threshold};
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let role = Subtype::InvalidHandleEvdRecv;
    let evd = ia
        .evd_create(4, None, EvdFlags::DTO | EvdFlags::CONNECTION)
        .unwrap();
    let attach = |stream, endpoint| {
        ia.control.with(|control| {
            let backend = control.backend().unwrap();
            ia.attach_stream(backend, evd, stream, role, endpoint)
        })
    };
    let state = || {
        let param = ia.evd_query(evd, EvdFields::STATE).unwrap();
        param.state.configuration()
    };
    assert_eq!(
        code(attach(EvdFlags::CR, None).unwrap_err()),
        (ErrorKind::InvalidHandle, role)
    );
    let clash = (ErrorKind::InvalidParameter, Subtype::NoSubtype);
    for (config, bits) in [
        (Notify, EvdState::CONFIG_NOTIFY),
        (Solicited, EvdState::CONFIG_SOLICITED),
        (Threshold, EvdState::CONFIG_THRESHOLD),
    ] {
        assert_eq!(state(), EvdState::empty());
        let index = attach(EvdFlags::DTO, Some((config, 3))).unwrap();
        attach(EvdFlags::DTO, Some((config, 2))).unwrap();
        assert_eq!(state(), bits);
        for other in [Notify, Solicited, Threshold] {
            if other != config {
                let refused = attach(EvdFlags::DTO, Some((other, 1))).unwrap_err();
                assert_eq!(code(refused), clash);
            }
        }
        let connection = attach(EvdFlags::CONNECTION, None);
        if config == Threshold {
            ia.detach_stream(connection.unwrap(), None);
        } else {
            assert_eq!(code(connection.unwrap_err()), clash);
        }
        ia.detach_stream(index, Some(3));
        ia.detach_stream(index, Some(2));

        // In the other order: the connection stream is attached first.
        let index = attach(EvdFlags::CONNECTION, None).unwrap();
        let completions = attach(EvdFlags::DTO, Some((config, 1)));
        if config == Threshold {
            ia.detach_stream(completions.unwrap(), Some(1));
        } else {
            assert_eq!(code(completions.unwrap_err()), clash);
        }
        ia.detach_stream(index, None);
    }
    ia.evd_free(evd).unwrap();
}

/// Spec: DTO-13, GEN-06
#[test]
fn the_completion_queue_has_a_place_for_every_request() {
    use crate::event::EvdConfig::Threshold;
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let number = evd.handle().index() as u32;
    let attach = |places| {
        ia.control.with(|control| {
            let backend = control.backend().unwrap();
            let role = Subtype::InvalidHandleEvdRequest;
            ia.attach_stream(backend, evd, EvdFlags::DTO, role, Some((Threshold, places)))
        })
    };
    let _creation = device.take_calls();
    attach(3).unwrap();
    assert_eq!(device.take_calls(), []);
    attach(6).unwrap();
    assert_eq!(
        device.take_calls(),
        [Call::ResizeCompletionQueue { number, depth: 9 }]
    );
    device.refuse_next(BackendError::Resources);
    assert_eq!(
        code(attach(1).unwrap_err()),
        (ErrorKind::InsufficientResources, Subtype::ResourceTevd)
    );
    // A longer event queue does not resize the completion queue if its depth suffices.
    ia.evd_resize(evd, 9).unwrap();
    assert_eq!(device.take_calls(), []);
    ia.detach_stream(number.into(), Some(3));
    ia.detach_stream(number.into(), Some(6));
    ia.evd_free(evd).unwrap();
}

/// Spec: GEN-06
#[test]
fn a_failed_creation_does_not_call_the_agent() {
    fn never(_: u64, _: Option<EvdId>) {
        panic!("called for a dispatcher that was never made");
    }
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let agent = ProxyAgent {
        function: never,
        instance_data: 0,
    };
    let cno = ia.cno_create(Some(agent)).unwrap();
    device.refuse_next(BackendError::Resources);
    ia.evd_create(4, Some(cno), EvdFlags::DTO).unwrap_err();
    ia.cno_free(cno).unwrap();
}

/// Exact sizes are accepted: the events queued, a waiter's threshold, the device's limit.
///
/// Spec: EVZ-01
#[test]
fn a_dispatcher_is_resized_to_the_very_number_that_is_needed() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let length = || ia.evd_query(evd, EvdFields::QLEN).unwrap().qlen;
    for pointer in [1, 2, 3] {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    ia.evd_resize(evd, 3).unwrap();
    assert_eq!(length(), 3);
    assert_eq!(
        ia.evd_post_se(evd, 4).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(drain(&ia, evd), [1, 2, 3]);
    let wait = ia.evd_wait(evd, 2).unwrap();
    ia.evd_resize(evd, 2).unwrap();
    assert_eq!(length(), 2);
    drop(wait);
    ia.evd_resize(evd, IA_ATTRIBUTES.max_evd_qlen).unwrap();
    assert_eq!(length(), IA_ATTRIBUTES.max_evd_qlen);
}

/// A resize to the present length succeeds in place if no other slots are free.
///
/// Spec: EVZ-01
#[test]
fn a_queue_keeps_its_slots_and_length_if_no_others_are_free() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(30, None, EvdFlags::SOFTWARE).unwrap();
    let _rest = ia.evd_create(30, None, EvdFlags::SOFTWARE).unwrap();
    for pointer in 0..30 {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    ia.evd_resize(evd, 30).unwrap();
    assert_eq!(drain(&ia, evd), (0..30).collect::<std::vec::Vec<_>>());
    for pointer in 0..30 {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    assert_eq!(
        ia.evd_post_se(evd, 30).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
}
