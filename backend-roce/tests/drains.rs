//! Send queues that drain (SQD).

#![cfg(feature = "std")]

mod common;

use backend_roce::{Binding, Operation, PairState, PostError, Receiver, SendAttributes};
use common::verbs::{ALL, Bed, SENDS, post};
use dat_core::backend::{BackendError, ControlEvent};
use dat_core::flags::DtoStatus;
use std::net::SocketAddr;

/// Steps in which all that may happen happens.
const STEPS: usize = 100;

fn wait(bed: &mut Bed) {
    (0..STEPS).for_each(|_| bed.step());
}

/// Drains the first side.
fn drain(bed: &Bed, tells: bool) {
    let drained = bed.sides[0].device.drain(bed.qpns[0], tells);
    assert_eq!(drained, Ok(()));
}

/// Returns how many events have told that the first side has drained.
fn told(bed: &Bed) -> usize {
    let events = bed.sides[0].events.lock().expect("not poisoned");
    let queue_pair = bed.qpns[0].into();
    let drained = ControlEvent::Answered { queue_pair };
    events.iter().filter(|event| **event == drained).count()
}

fn is_draining(bed: &Bed) -> bool {
    bed.sides[0].device.has_drained(bed.qpns[0]) == Some(false)
}

fn write(bed: &Bed, at: usize) {
    let operation = Operation::Write(bed.sides[1].remote(at), None);
    bed.sides[0].start(bed.qpns[0], operation, at, 8);
}

/// Spec: ROCE-278
#[test]
fn requests_under_way_are_completed_and_no_others_begin() {
    for loses in [false, true] {
        let mut bed = Bed::new();
        bed.sides[0].fill(0, &[7; 64]);
        if loses {
            bed.wire.lose(1_000, 1);
        }
        write(&bed, 0);
        drain(&bed, true);
        let again = bed.sides[0].device.drain(bed.qpns[0], true);
        assert_eq!(again, Err(BackendError::State));
        write(&bed, 8);
        assert!(is_draining(&bed));
        assert_eq!(told(&bed), 0);
        let early = bed.sides[0].device.resume(bed.qpns[0]);
        assert_eq!(early, Err(BackendError::State), "it has not drained");
        bed.wire.lose(0, 1);
        assert_eq!(bed.completions(0, 1)[0].token, 0);
        assert!(!is_draining(&bed));
        assert_eq!(told(&bed), 1);
        wait(&mut bed);
        assert_eq!(bed.sides[0].take(), []);
        assert_eq!(bed.sides[1].read(8, 8), [0; 8], "it has not begun");
        assert_eq!(bed.sides[0].device.resume(bed.qpns[0]), Ok(()));
        let again = bed.sides[0].device.resume(bed.qpns[0]);
        assert_eq!(again, Err(BackendError::State));
        assert_eq!(bed.completions(0, 1)[0].token, 8);
        assert_eq!(bed.sides[1].read(8, 8), [7; 8]);
        assert_eq!(told(&bed), 1);
    }
}

/// Spec: ROCE-278
#[test]
fn an_idle_send_queue_has_drained_at_once() {
    for tells in [true, false] {
        let mut bed = Bed::new();
        drain(&bed, tells);
        assert!(!is_draining(&bed));
        assert_eq!(told(&bed), usize::from(tells));
        // Posts are taken until the queue is full.
        for at in 0..8 {
            write(&bed, 8 * at);
        }
        let operation = Operation::Write(bed.sides[1].remote(0), None);
        let full = bed.sides[0].post(bed.qpns[0], &post(9, operation, &[]));
        assert_eq!(full, Err(PostError::Full));
        wait(&mut bed);
        assert_eq!(bed.sides[0].take(), []);
        assert_eq!(bed.sides[0].device.resume(bed.qpns[0]), Ok(()));
        assert_eq!(bed.completions(0, 8).len(), 8);
        assert_eq!(told(&bed), usize::from(tells));
    }
}

/// Messages, Reads and atomics of several packets are completed; the other direction goes on.
///
/// Spec: ROCE-278
#[test]
fn each_operation_drains_over_a_wire_that_loses_packets() {
    for seed in 0..10 {
        let mut bed = Bed::new();
        bed.wire.lose(100, seed);
        bed.sides[1].receive(bed.qpns[1], 1, 30_000, 20_000);
        let [one, two] = &bed.sides;
        for operation in [
            Operation::Send(None),
            Operation::Write(two.remote(0), None),
            Operation::Read(two.remote(0)),
        ] {
            one.start(bed.qpns[0], operation, 0, 20_000);
        }
        one.start(bed.qpns[0], Operation::FetchAdd(two.remote(0), 1), 0, 8);
        // As many as the window has room for have begun.
        drain(&bed, true);
        let mut done = Vec::new();
        while is_draining(&bed) {
            bed.step();
            done.extend(bed.sides[0].take());
        }
        assert_eq!(told(&bed), 1, "seed {seed}");
        wait(&mut bed);
        assert_eq!(bed.sides[0].take(), [], "seed {seed}");
        // A peer that sends meets no wait.
        let (one, two) = (&bed.sides[0], &bed.sides[1]);
        one.receive(bed.qpns[0], 2, 50_000, 64);
        two.start(bed.qpns[1], Operation::Send(None), 0, 64);
        let sent = bed.completions(1, 2);
        assert!(sent.iter().all(|done| done.status == DtoStatus::Success));
        let came = bed.completions(0, 1);
        assert_eq!(came[0].token, 2, "seed {seed}");
        assert_eq!(bed.sides[0].device.resume(bed.qpns[0]), Ok(()));
        let rest = 4 - done.len();
        if rest > 0 {
            done.extend(bed.completions(0, rest));
        }
        assert!(done.iter().all(|done| done.status == DtoStatus::Success));
    }
}

/// Spec: ROCE-91, ROCE-278
#[test]
fn a_bind_waits_until_requests_begin_again() {
    let mut bed = Bed::new();
    drain(&bed, false);
    let one = &bed.sides[0];
    let made = one.device.create_type_2_window(one.domain);
    let (window, key) = made.expect("a window");
    let binding = Binding {
        window,
        region: one.key,
        address: one.remote(0).address,
        length: 8,
        rights: ALL,
        is_zero_based: false,
    };
    let posted = one.post(bed.qpns[0], &post(1, Operation::Bind(binding, key), &[]));
    assert_eq!(posted, Ok(()));
    wait(&mut bed);
    let one = &bed.sides[0];
    assert!(one.take().is_empty() && !one.device.has_windows(one.key));
    assert_eq!(one.device.resume(bed.qpns[0]), Ok(()));
    assert_eq!(bed.completions(0, 1)[0].status, DtoStatus::Success);
    let one = &bed.sides[0];
    assert!(one.device.has_windows(one.key));
}

/// Spec: ROCE-278
#[test]
fn requests_change_while_none_is_under_way() {
    let mut bed = Bed::new();
    let with = |depth, not_ready_retries| SendAttributes {
        depth,
        not_ready_retries,
        ..SENDS
    };
    let change = |bed: &Bed, with| bed.sides[0].device.change_requests(bed.qpns[0], &with);
    assert_eq!(change(&bed, with(4, 7)), Err(BackendError::State));
    write(&bed, 0);
    drain(&bed, true);
    let early = change(&bed, with(4, 7));
    assert_eq!(early, Err(BackendError::State), "it has not drained");
    bed.completions(0, 1);
    let read = Operation::Read(bed.sides[1].remote(0));
    bed.sides[0].start(bed.qpns[0], read, 0, 8);
    assert_eq!(change(&bed, with(0, 0)), Err(BackendError::State), "a Read");
    assert_eq!(change(&bed, with(1, 0)), Ok(()));
    assert_eq!(bed.sides[0].device.resume(bed.qpns[0]), Ok(()));
    assert_eq!(bed.completions(0, 1)[0].status, DtoStatus::Success);
    // A message without a receive is not repeated any more.
    let status = bed.status(Operation::Send(None), 8);
    assert_eq!(status, DtoStatus::ReceiverNotReady);
}

/// Spec: ROCE-278
#[test]
fn a_queue_pair_that_drains_fails_and_is_reset_as_others_are() {
    for is_reset in [true, false] {
        let mut bed = Bed::new();
        write(&bed, 0);
        drain(&bed, true);
        write(&bed, 8);
        let device = &bed.sides[0].device;
        if is_reset {
            assert_eq!(device.reset_pair(bed.qpns[0]), Ok(()));
            assert_eq!(bed.sides[0].take(), []);
        } else {
            assert_eq!(device.fail_pair(bed.qpns[0]), Ok(()));
            assert_eq!(device.pair_state(bed.qpns[0]), Ok(PairState::Failed));
            let done = bed.sides[0].take();
            let tokens: Vec<_> = done.iter().map(|done| (done.token, done.status)).collect();
            assert_eq!(tokens, [0, 8].map(|token| (token, DtoStatus::Flushed)));
            assert_eq!(device.reset_pair(bed.qpns[0]), Ok(()));
        }
        let unattached = bed.sides[0].device.drain(bed.qpns[0], true);
        assert_eq!(unattached, Err(BackendError::State));
        assert_eq!(bed.sides[1].device.reset_pair(bed.qpns[1]), Ok(()));
        bed.attach(ALL, SENDS);
        let at = bed.sides[1].remote(0);
        let status = bed.status(Operation::Write(at, None), 8);
        assert_eq!((status, told(&bed)), (DtoStatus::Success, 0), "{is_reset}");
    }
}

/// Spec: ROCE-271, ROCE-278
#[test]
fn datagrams_wait_until_they_may_leave() {
    let mut bed = Bed::unattached();
    for (side, qpn) in bed.sides.iter().zip(bed.qpns) {
        assert_eq!(side.device.receive_datagrams(qpn, 7), Ok(()));
        assert_eq!(side.device.send_datagrams(qpn), Ok(()));
    }
    drain(&bed, true);
    assert!(!is_draining(&bed));
    assert_eq!(told(&bed), 1);
    let [one, two] = &bed.sides;
    two.receive(bed.qpns[1], 1, 0, 64);
    let receiver = Receiver {
        local: one.address,
        peer: SocketAddr::new(two.address, 0),
        qpn: bed.qpns[1],
        key: 7,
    };
    let mut datagram = post(5, Operation::Send(None), &[]);
    datagram.receiver = Some(receiver);
    assert_eq!(one.post(bed.qpns[0], &datagram), Ok(()));
    wait(&mut bed);
    assert!(bed.sides.iter().all(|side| side.take().is_empty()));
    assert_eq!(bed.sides[0].device.resume(bed.qpns[0]), Ok(()));
    assert_eq!(bed.completions(0, 1)[0].token, 5);
    assert_eq!(bed.completions(1, 1)[0].token, 1);
}
