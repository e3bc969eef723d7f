//! Failures of completions, completion queues and devices.

use core::task::Poll;

use super::connected::*;
use super::drain;
use crate::attributes::EpAttributes;
use crate::backend::{ControlEvent, DeviceFailure, DisconnectMode};
use crate::error::ErrorKind;
use crate::event::{AsyncEventKind, ConnectionEventKind};
use crate::flags::{CompletionFlags, DtoStatus, EvdFlags};
use crate::testing::{Call, TestBackend, TestStorage, WakeCount, open};

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
        // The other requests are flushed; flushed completions are no failures.
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
            // Other events are still delivered.
            ia.evd_post_se(evd, 9).unwrap();
            assert_eq!(tags(&ia, evd), [9]);
        }
    }
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

/// The failure of a device is reported even if the asynchronous dispatcher is full.
///
/// Spec: DTO-13
#[test]
fn the_failure_of_a_device_is_told_where_there_was_no_room_for_it() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let overrun = AsyncEventKind::EvdOverflow as u64;
    for lost in [0, 1, 2] {
        let evds: std::vec::Vec<_> = (0..4 + lost)
            .map(|_| ia.evd_create(2, None, EvdFlags::DTO).unwrap())
            .collect();
        for evd in &evds {
            device.fail_queue(number(*evd), DeviceFailure::CompletionQueueOverrun);
            assert_eq!(tags(&ia, *evd), []);
        }
        if lost == 2 {
            let cno = ia.cno_create(None).unwrap();
            ia.evd_modify_cno(ia.async_evd(), Some(cno)).unwrap();
            assert!(!cno_fired(&ia, cno));
            device.push_control(ControlEvent::DeviceFailed);
            progress(&ia);
            assert!(cno_fired(&ia, cno));
            assert!(!cno_fired(&ia, cno));
            let told = [
                overrun,
                overrun,
                overrun,
                AsyncEventKind::IaCatastrophic as u64,
            ];
            assert_eq!(drain(&ia, ia.async_evd()), told);
            // The failure is reported once.
            device.push_control(ControlEvent::DeviceFailed);
            progress(&ia);
        } else {
            assert_eq!(drain(&ia, ia.async_evd()), [overrun; 4]);
        }
        assert_eq!(drain(&ia, ia.async_evd()), []);
        for evd in evds {
            ia.evd_free(evd).unwrap();
        }
    }
}

/// A failed queue notifies its object once, not at each dequeue.
///
/// Spec: DTO-13, CNW-01
#[test]
fn a_failed_queue_is_announced_once() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), SHARED).unwrap();
    connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    device.fail_queue(number(evd), DeviceFailure::CompletionQueueOverrun);
    progress(&ia);
    cno_fired(&ia, cno);
    assert_eq!(tags(&ia, evd), []);
    for _ in 0..2 {
        ia.evd_disable(evd).unwrap();
        ia.evd_enable(evd).unwrap();
        assert!(ia.evd_dequeue(evd).is_err());
        assert!(!cno_fired(&ia, cno));
    }
}

/// A failure that shows while the queue is armed for later streams is reported.
///
/// Spec: DTO-13, EVW-11
#[test]
fn a_failure_that_the_last_stream_leaves_behind_is_reported() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    assert_eq!(device.armed(number(evd)), Some(true));
    device.fail_queue(number(evd), DeviceFailure::CompletionQueueOverrun);
    ia.ep_free(peer.ep).unwrap();
    progress(&ia);
    let overrun = AsyncEventKind::EvdOverflow as u64;
    assert_eq!(drain(&ia, ia.async_evd()), [overrun]);
}
