//! Events and event order of completions.

use core::task::Poll;
use std::vec::Vec;

use super::TestIa;
use super::code;
use super::connected::*;
use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::{Completion, ControlEvent, PrivateData, SharedReceiveQueueKey};
use crate::error::{ErrorKind, Subtype};
use crate::event::{DtoOperation, Event};
use crate::flags::{CompletionFlags, DtoStatus, EvdFlags};
use crate::id::{Index, PzId, SrqId};
use crate::testing::{Call, TestBackend, TestStorage, WakeCount, open};

/// Creates a shared queue for `length` buffers of one segment; returns the device's key too.
fn shared_queue(ia: &TestIa<'_>, pz: PzId, length: i32) -> (SrqId, SharedReceiveQueueKey) {
    let srq = ia
        .srq_create(
            pz,
            &SrqAttributes {
                max_recv_dtos: length,
                max_recv_iov: 1,
                low_watermark: 0,
            },
        )
        .unwrap();
    let key = ia.shared.shared_receive_queues.made()[srq.index()]
        .main
        .with(|queue| queue.key);
    (srq, key)
}

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
    // Completions beyond the queue's length leave room for other events.
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
    // One completion of the first endpoint is dequeued already, and one is still at the device.
    assert_eq!(tag(ia.evd_dequeue(evd).unwrap()), 0);
    send(&ia, one.ep, 4);
    succeed(&device, one.key);
    ia.ep_free(one.ep).unwrap();
    ia.evd_post_se(evd, 104).unwrap();
    assert_eq!(tags(&ia, evd), [10, 100, 11, 101, 12, 102, 13, 103, 104]);
    // Other endpoints can use the records, and the order still holds.
    let three = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    send(&ia, three.ep, 20);
    succeed(&device, three.key);
    ia.evd_post_se(evd, 105).unwrap();
    send(&ia, two.ep, 14);
    succeed(&device, two.key);
    assert_eq!(tags(&ia, evd), [20, 105, 14]);
    // Endpoints are the streams that keep the dispatcher in use (EVF-02).
    assert_eq!(
        code(ia.evd_free(evd).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdInUse)
    );
    ia.ep_free(two.ep).unwrap();
    ia.ep_free(three.ep).unwrap();
    ia.evd_free(evd).unwrap();
}

/// Spec: DTO-03, EVW-11, EVW-09
#[test]
fn a_shared_buffer_is_reported_by_the_endpoint_that_took_it() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let pz = ia.pz_create().unwrap();
    let (srq, shared) = shared_queue(&ia, pz, 8);
    let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        ..EpAttributes::DEFAULT
    };
    let consuming_endpoints =
        [0, 1].map(|_| connected_on(&ia, &device, (pz, Some(srq)), Some(evd), None, &attributes));
    let [one, two] = &consuming_endpoints;
    for cookie in 0..6 {
        ia.srq_post_recv(srq, &[], cookie).unwrap();
    }
    // Taken out of order: buffers 2, 0, 3, 1.
    let take = |position, consuming_endpoint: &Connected| {
        assert!(device.complete_shared(
            shared,
            position,
            consuming_endpoint.key,
            DtoStatus::Success,
            0
        ));
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
    // A freed endpoint's taken buffers are dropped and their records freed: two are in use.
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
        for polled in [false, true] {
            let completion = Completion {
                token,
                status: DtoStatus::Success,
                length: u32::MAX,
                queue_pair: u64::MAX,
                solicited: true,
            };
            device.inject(number(evd), completion);
            if polled {
                ia.poll_at(Index::from(number(evd)));
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
    // The completion queue already has the depth that the requests need, 16.
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
    // The consumer answers the request that it dequeued.
    assert_eq!(
        device.take_calls(),
        [Call::Reject {
            request: RequestKey(2),
            by_consumer: false,
            private_data: Vec::new()
        }]
    );
}

/// Each event comes once and each stream keeps its order, in any mix of operations.
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
        // Streams: two endpoints and software events. Counts of events made and seen.
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

/// A write with an immediate value in a shared buffer is reported as a failure.
///
/// It leaves no data in the buffer, and the event has no field for the value. This holds for
/// completions that are polled into records too.
///
/// Spec: DTO-12, SRQR-06
#[test]
fn a_shared_buffer_that_only_a_number_came_for_is_no_message() {
    for kept in [false, true] {
        let device = TestBackend::default();
        let mut storage = TestStorage::new();
        let ia = open(&mut storage, &device);
        let pz = ia.pz_create().unwrap();
        let (srq, shared) = shared_queue(&ia, pz, 4);
        let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
        let attributes = EpAttributes {
            recv_completion_flags: CompletionFlags::UNSIGNALLED,
            ..EpAttributes::DEFAULT
        };
        let consuming_endpoint =
            connected_on(&ia, &device, (pz, Some(srq)), Some(evd), None, &attributes);
        ia.srq_post_recv(srq, &[], 3).unwrap();
        device.number_shared(shared, 0, 7);
        assert!(device.complete_shared(
            shared,
            0,
            consuming_endpoint.key,
            DtoStatus::Success,
            1000
        ));
        if kept {
            ia.poll_at(Index::from(number(evd)));
        }
        let Ok(Event::Dto(told)) = ia.evd_dequeue(evd) else {
            panic!("an event of a transfer");
        };
        assert_eq!((told.ep, told.cookie), (consuming_endpoint.ep, 3));
        assert_eq!(
            (told.status, told.transferred_length),
            (DtoStatus::BadResponse, 0)
        );
    }
}

/// With a device that must be polled, `evd_wait_now` returns nothing and takes nothing.
///
/// Spec: EVW-01, EVW-03, EVW-04
#[test]
fn polled_device_gives_nothing_to_a_wait_now() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let now = |threshold| ia.evd_wait_now(evd, threshold);
    assert_eq!(now(1), None);
    send(&ia, peer.ep, 1);
    succeed(&device, peer.key);
    for threshold in [1, 2, 0, -1] {
        assert_eq!(now(threshold), None);
    }
    let wait = ia.evd_wait(evd, 1).unwrap();
    assert_eq!(now(1), None, "the dispatcher has a waiter");
    drop(wait);
    ia.evd_set_unwaitable(evd).unwrap();
    assert_eq!(now(1), None, "the dispatcher is unwaitable");
    assert_eq!(tags(&ia, evd), [1]);
    assert_eq!(ia.evd_wait_now(crate::id::EvdId::NULL, 1), None);
}
