//! Objects that are parked, and devices that do not cooperate, under a lock that splits.

use core::task::{Poll, Waker};

use super::bed::{Bed, NOTHING, RELEASES, peer};
use super::{progress, state};
use crate::attributes::EpAttributes;
use crate::backend::{BackendError, Completion, ControlEvent, DeviceFailure};
use crate::endpoint::{BatchOperation, BatchRequest, ConnectParam};
use crate::error::{Cause, ErrorKind, Subtype};
use crate::event::{AsyncEventKind, Event};
use crate::flags::{CompletionFlags, DtoStatus, EndpointState, EvdFlags};
use crate::id::EvdId;
use crate::sync::{ContextLock, Mutex, NoLock, SplitLock};
use crate::testing::WakeCount;
use crate::testing::fixture::SMALL;
use crate::time::Instant;

/// A completion that the core ignores.
const STALE: Completion = Completion {
    token: u64::MAX,
    status: DtoStatus::Success,
    length: 0,
    queue_pair: 0,
    solicited: false,
};

/// Only a lock that parks has room for a mark.
#[test]
fn other_locks_have_no_mark() {
    assert_eq!(size_of::<Mutex<NoLock, u8>>(), size_of::<(NoLock, u8)>());
    #[cfg(feature = "std")]
    {
        use crate::sync::HostLock;
        let (whole, parts) = (
            size_of::<Mutex<HostLock, u64>>(),
            size_of::<(HostLock, u64)>(),
        );
        assert_eq!(whole, parts);
    }
    type Split = SplitLock<NoLock, ContextLock>;
    assert_eq!(size_of::<Mutex<Split, u8>>(), size_of::<(Split, u8)>());
    assert!(size_of::<Split>() > size_of::<NoLock>());
}

/// A device to which completions keep arriving does not keep a context for ever.
///
/// Spec: GEN-16
#[test]
fn arming_ends_while_completions_keep_arriving() {
    let bed = Bed::new();
    let queue = bed.data.slot().get();
    bed.device.set_peeks(false);
    // The queue has notified, so the next look arms it again.
    bed.device.inject(queue, STALE);
    for _ in 0..1000 {
        bed.device.inject_before_arming(queue, STALE);
    }
    bed.ia.progress(Instant::ZERO);
    assert!(bed.device.slipping(queue) > 900);
    assert_eq!(bed.device.armed(queue), None);
    // The next `progress` goes on, until the queue is armed.
    for _ in 0..1000 {
        assert_ne!(bed.ia.take_interrupts(), 0);
        assert!(!bed.ia.is_quiet());
        bed.ia.progress(Instant::ZERO);
        if bed.device.slipping(queue) == 0 {
            break;
        }
    }
    assert_eq!(bed.device.armed(queue), Some(false));
}

/// A completion that arrives during an arming ends no wait for solicited ones.
///
/// Spec: GEN-16, EVW-11
#[test]
fn an_unsolicited_completion_ends_no_solicited_wait() {
    let bed = Bed::new();
    let evd = bed.ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..SMALL
    };
    let (data, by) = (Some(bed.data), Some(bed.connections));
    let ep = bed
        .ia
        .ep_create(Some(bed.pz), Some(evd), data, by, Some(&attributes))
        .unwrap();
    let pair = bed.pair(ep).unwrap();
    for _ in 0..2 {
        bed.ia.post_recv(ep, &[bed.segment], 1, NOTHING).unwrap();
    }
    let (_, receives) = bed.device.posted(pair);
    let (wakes, waker) = WakeCount::new();
    let mut wait = bed.ia.evd_wait(evd, 1).unwrap();
    bed.device.inject_before_arming(
        evd.slot().get(),
        Completion {
            token: receives[0].work.token(),
            length: 1,
            queue_pair: ep.handle().to_raw(),
            ..STALE
        },
    );
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(bed.device.armed(evd.slot().get()), Some(true));
    bed.device
        .complete_receive(pair, DtoStatus::Success, 1, true);
    bed.device
        .complete_receive(pair, DtoStatus::Success, 1, true);
    progress(&bed);
    assert_eq!(wakes.take(), 1);
    assert!(wait.poll(&waker).is_ready());
}

/// A failed queue is reported while the asynchronous dispatcher changes.
///
/// Spec: GEN-16
#[test]
fn the_asynchronous_dispatcher_takes_reports_while_it_changes() {
    let bed = Bed::new();
    let evd = bed.ia.async_evd;
    let slot = bed.ia.slot_of_evd(evd).unwrap();
    bed.device
        .fail_queue(bed.data.slot().get(), DeviceFailure::CompletionQueueOverrun);
    let made = bed.ia.controlled(|_| {
        RELEASES.set(0);
        // Its lock is kept, so that no context finds it parked.
        bed.ia.with_parked(slot, |_| assert_eq!(RELEASES.get(), 0));
        assert!(bed.ia.evd_dequeue(bed.data).is_err());
        Ok(())
    });
    made.unwrap();
    let Ok(Event::Async { kind, handle, .. }) = bed.ia.evd_dequeue(evd) else {
        panic!("no report");
    };
    assert_eq!(kind, AsyncEventKind::EvdOverflow);
    assert_eq!(handle, bed.data.handle());
}

/// A wait that has ended does not wait for a dispatcher that changes.
///
/// Spec: GEN-16, EVW-05
#[test]
fn a_wait_that_has_ended_waits_for_no_change() {
    let bed = Bed::new();
    let slot = bed.ia.slot_of_evd(bed.data).unwrap();
    let mut wait = bed.ia.evd_wait(bed.data, 1).unwrap();
    assert!(wait.poll(Waker::noop()).is_pending());
    bed.ia.evd_set_unwaitable(bed.data).unwrap();
    let parked = slot.queue.park();
    let Poll::Ready(Err(error)) = wait.poll(Waker::noop()) else {
        panic!("still waits");
    };
    assert_eq!(error.subtype(), Subtype::InvalidStateEvdUnwaitable);
    drop(parked);
    bed.ia.evd_clear_unwaitable(bed.data).unwrap();
    let wait = bed.ia.evd_wait(bed.data, 1).unwrap();
    bed.ia.evd_set_unwaitable(bed.data).unwrap();
    let parked = slot.queue.park();
    assert!(wait.expire().is_err());
    drop(parked);
}

/// The deadline of an endpoint that another context changes is not forgotten.
///
/// Spec: GEN-16, EPK-08
#[test]
fn a_deadline_survives_a_change_of_its_endpoint() {
    let bed = Bed::new();
    let param = ConnectParam {
        timeout: 10,
        ..peer()
    };
    bed.ia.ep_connect(bed.fresh, &param, Instant::ZERO).unwrap();
    let late = Instant::from_micros(20);
    let parked = bed.ia.slot_of_endpoint(bed.fresh).unwrap().main.park();
    bed.ia.progress(late);
    drop(parked);
    assert!(bed.ia.next_deadline().is_some_and(|next| next <= late));
    bed.ia.progress(late);
    assert_eq!(state(&bed, bed.fresh), Ok(EndpointState::Disconnected));
}

/// A dispatcher with a waiter gets no longer completion queue: the device would need its time.
///
/// Spec: GEN-16
#[test]
fn a_dispatcher_with_a_waiter_does_not_grow() {
    let bed = Bed::new();
    let create = |evd: EvdId| {
        let (data, by) = (Some(evd), Some(bed.connections));
        bed.ia.ep_create(Some(bed.pz), data, data, by, Some(&SMALL))
    };
    let narrow = bed.ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let roomy = bed.ia.evd_create(16, None, EvdFlags::DTO).unwrap();
    let waits = [narrow, roomy].map(|evd| bed.ia.evd_wait(evd, 1).unwrap());
    bed.device.take_calls();
    let refused = create(narrow).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    assert_eq!(refused.subtype(), Subtype::ResourceTevd);
    assert_eq!(refused.cause(), Cause::Busy);
    let resized = bed.ia.evd_resize(narrow, 40).unwrap_err();
    assert_eq!(resized.cause(), Cause::Busy);
    assert_eq!(bed.device.take_calls(), []);
    // One that has the room takes endpoints.
    let ep = create(roomy).unwrap();
    bed.ia.ep_free(ep).unwrap();
    drop(waits);
    create(narrow).unwrap();
}

/// A device that refuses work while it executes a command makes the post `Busy`.
///
/// Spec: GEN-16
#[test]
fn a_device_that_cannot_be_interrupted_is_busy() {
    let bed = Bed::new();
    type Post = fn(&Bed) -> crate::Result<()>;
    let posts: [Post; 4] = [
        |bed| bed.ia.post_send(bed.ep, &[bed.segment], 1, NOTHING),
        |bed| bed.ia.post_recv(bed.ep, &[bed.segment], 1, NOTHING),
        |bed| bed.ia.srq_post_recv(bed.srq, &[bed.segment], 1),
        |bed| {
            let request = BatchRequest {
                operation: BatchOperation::Send,
                segments: &[],
                cookie: 1,
                flags: NOTHING,
            };
            let posted = bed.ia.post_batch(bed.ep, &[request]);
            posted.map_err(|refused| refused.error)
        },
    ];
    let refuse = |bed: &Bed| {
        for _ in 0..2 {
            bed.device.refuse_next(BackendError::Device);
        }
    };
    for post in posts {
        let made = bed.ia.controlled(|_| {
            refuse(&bed);
            assert_eq!(post(&bed).unwrap_err().cause(), Cause::Busy);
            Ok(())
        });
        made.unwrap();
        assert_ne!(bed.ia.take_interrupts(), 0);
        // Without such a command, the refusal is the device's own.
        refuse(&bed);
        let refused = post(&bed).unwrap_err();
        assert_eq!(refused.cause(), Cause::DeviceRefused);
        bed.device.refuse_no_more();
        post(&bed).unwrap();
    }
}

/// A batch gives the lock back after each post.
///
/// Spec: GEN-16
#[test]
fn a_batch_masks_interrupts_for_one_post_at_a_time() {
    let bed = Bed::new();
    let request = BatchRequest {
        operation: BatchOperation::Send,
        segments: &[],
        cookie: 1,
        flags: NOTHING,
    };
    let releases = |count| {
        RELEASES.set(0);
        bed.ia.post_batch(bed.ep, &[request; 4][..count]).unwrap();
        RELEASES.get()
    };
    assert_eq!((releases(1), releases(3)), (1, 3));
}

/// `progress` in a handler that interrupts a control call handles nothing, and is told.
///
/// Spec: GEN-16
#[test]
fn a_refused_progress_is_made_up_for() {
    let bed = Bed::new();
    let queue_pair = bed.other.handle().to_raw();
    bed.device
        .push_control(ControlEvent::Disconnected { queue_pair });
    let made = bed.ia.controlled(|_| {
        assert_eq!(bed.ia.progress(Instant::ZERO), 0);
        Ok(())
    });
    made.unwrap();
    assert_eq!(bed.ia.take_interrupts(), 1);
    assert_eq!(bed.ia.progress(Instant::ZERO), 1);
    assert_eq!(state(&bed, bed.other), Ok(EndpointState::Disconnected));
}
