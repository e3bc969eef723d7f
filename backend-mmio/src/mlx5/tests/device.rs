//! Tests of the driver on the scripted device.

use std::boxed::Box;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::scripted_device::{Bench, Step, segment};
use crate::DeviceFault;
use crate::defs::mlx5::{CompletionKind, LONGEST_SEGMENT, LONGEST_WINDOW, Syndrome};
use crate::mlx5::DeviceEvent;
use crate::mlx5::queue_pairs::PairParameters;
use dat_core::backend::{
    Armed, Backend as _, BackendError, BindRequest, CompletionQueue as _, ControlEvent, DomainKey,
    Peek, QueuePair, ReceiveRequest, RegionKeys, Rejected, SendFlags, SendOperation,
    SendQueue as _, SendRequest, WorkQueue, WorkSlot as _,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::time::Instant;

/// A completion that is flushed during the queue pair's destruction is not a fault.
#[test]
fn completions_may_be_polled_during_queue_pair_destruction() {
    let mut bench = Bench::new();
    for token in 0..3 {
        bench.post_send(token, 8).expect("room");
        bench.post_receive(10 + token, 8).expect("room");
    }
    let write = bench.writer();
    let completions = Rc::clone(&bench.completions);
    let polls = Rc::new(Cell::new(0));
    let (counted, state) = (Rc::clone(&polls), bench.state);
    let mut index = 0;
    *bench.shared.on_destroy.borrow_mut() = Some(Box::new(move || {
        for kind in [
            CompletionKind::FAILED_REQUEST,
            CompletionKind::FAILED_RECEIVE,
        ] {
            write(kind, index, Syndrome::FLUSHED);
        }
        let polled = completions.borrow_mut().poll().expect("no failure");
        assert!(polled.is_none(), "{polled:?}");
        assert_eq!(state.fault(), None);
        index += 1;
        counted.set(counted.get() + 1);
    }));
    let (write, index) = (bench.writer(), bench.shared.user_index.get());
    let Bench {
        mut backend,
        completions,
        key,
        mut send,
        mut receive,
        state,
        shared,
        ..
    } = bench;
    backend
        .reset_queue_pair(key, &mut send, Some(&mut receive))
        .expect("a reset");
    assert_ne!(shared.user_index.get(), index, "a life of its own");
    backend.destroy_queue_pair(key, send, Some(receive));
    assert_eq!((polls.get(), state.fault()), (2, None));
    // Three requests and three receives were posted, and two of each completed. Two more late
    // completions are accepted, and a third is not.
    for _ in 0..2 {
        write(CompletionKind::FAILED_REQUEST, 2, Syndrome::FLUSHED);
        assert!(
            completions
                .borrow_mut()
                .poll()
                .expect("no failure")
                .is_none()
        );
        assert_eq!(state.fault(), None);
    }
    write(CompletionKind::FAILED_REQUEST, 2, Syndrome::FLUSHED);
    assert!(
        completions
            .borrow_mut()
            .poll()
            .expect("no failure")
            .is_none()
    );
    assert_eq!(state.fault(), Some(DeviceFault::UnknownQueuePair));
}

/// Completions that a peer can cause are not faults of the device.
///
/// A message with an immediate value is a message. A write with an immediate value fails the
/// receive that it took.
#[test]
fn a_peer_cannot_end_the_adapter() {
    let mut bench = Bench::new();
    let kinds = [
        (CompletionKind::RECEIVE, DtoStatus::Success, 8),
        (CompletionKind::RECEIVE_IMMEDIATE, DtoStatus::Success, 8),
        (CompletionKind::WRITE_IMMEDIATE, DtoStatus::BadResponse, 0),
        (CompletionKind::RECEIVE_INVALIDATE, DtoStatus::Success, 8),
    ];
    for (index, (kind, status, length)) in (0_u16..).zip(kinds) {
        let token = u64::from(index);
        bench.post_receive(token, 8).expect("room");
        bench.complete(kind, index);
        assert_eq!(bench.poll(), Some((token, status, length)), "{kind:?}");
    }
    assert_eq!(bench.state.fault(), None);
    // Beyond the length of the buffer it is a fault.
    bench.post_receive(9, 7).expect("room");
    bench.complete(CompletionKind::RECEIVE_IMMEDIATE, 4);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.state.fault(), Some(DeviceFault::ImpossibleLength));
}

/// A completion of a kind without a cause is a fault.
#[test]
fn other_completion_kinds_are_a_fault() {
    for kind in [6, 7, 8, 9, 10, 11, 12] {
        let mut bench = Bench::new();
        bench.post_receive(1, 8).expect("room");
        bench.complete(CompletionKind(kind), 0);
        assert_eq!(bench.poll(), None);
        let fault = bench.state.fault();
        assert_eq!(fault, Some(DeviceFault::UnknownKind), "{kind}");
    }
}

/// Compressed completions and completions with message data are faults.
#[test]
fn completions_of_other_formats_are_a_fault() {
    for format in 1..4_u32 {
        let mut bench = Bench::new();
        bench.post_receive(1, 8).expect("room");
        bench.complete(CompletionKind::RECEIVE, 0);
        let ring = bench.memory.seen_at(bench.shared.ring.get(), 4);
        let words = ring.expect("an entry").iter().flatten();
        let tail = words.last().expect("a tail");
        tail.store(tail.load() | format << 2);
        let head = bench.completions.borrow_mut().peek();
        assert!(matches!(head, Peek::Other), "{format}");
        assert_eq!(bench.poll(), None);
        let fault = bench.state.fault();
        assert_eq!(fault, Some(DeviceFault::UnknownKind), "{format}");
    }
}

/// A segment with bit 31 of its length set is refused; the queue is unchanged.
#[test]
fn segments_longer_than_31_bits_are_refused() {
    let mut bench = Bench::new();
    let limits = bench.backend.ia_attributes();
    let longest = u64::from(LONGEST_SEGMENT);
    assert_eq!(
        (limits.max_message_size, limits.max_rdma_size),
        (longest, longest)
    );
    let (_, mut shared) = bench
        .backend
        .create_shared_receive_queue(1, DomainKey(1), 4, 2)
        .expect("a queue");
    for length in [1 << 31, (1 << 31) + 1, u32::MAX] {
        assert_eq!(bench.post_send(1, length), Err(Rejected), "{length}");
        assert_eq!(bench.post_receive(1, length), Err(Rejected), "{length}");
        let request = ReceiveRequest { token: 1 };
        let posted = shared.post(&request, &[segment(length)]);
        assert_eq!(posted, Err(Rejected), "{length}");
    }
    assert_eq!(bench.registers.0.get(), 0, "nothing was posted");
    bench.post_send(2, LONGEST_SEGMENT).expect("room");
    bench.post_receive(3, LONGEST_SEGMENT).expect("room");
    let request = ReceiveRequest { token: 4 };
    shared
        .post(&request, &[segment(LONGEST_SEGMENT)])
        .expect("room");
    bench.complete(CompletionKind::REQUEST, 0);
    bench.complete(CompletionKind::RECEIVE, 0);
    let done = [bench.poll(), bench.poll()].map(|done| done.map(|(token, ..)| token));
    assert_eq!(done, [Some(2), Some(3)]);
}

/// A window is limited to one segment; a refused bind leaves the key unchanged.
#[test]
fn windows_longer_than_one_segment_are_refused() {
    let mut bench = Bench::new();
    let window = bench.backend.create_window(DomainKey(1)).expect("a window");
    let request = |length| BindRequest {
        token: 1,
        window,
        region: RegionKeys::default(),
        address: 0x10_0000,
        length,
        privileges: MemoryPrivileges::REMOTE_READ,
        flags: SendFlags::empty(),
        is_only: true,
    };
    for length in [LONGEST_WINDOW + 1, 1 << 32, (1 << 32) + 1, u64::MAX] {
        assert_eq!(bench.send.bind(&request(length)), Err(Rejected), "{length}");
    }
    assert_eq!(bench.registers.0.get(), 0, "nothing was posted");
    assert_eq!(bench.send.bind(&request(LONGEST_WINDOW - 1)), Ok(0x101));
    assert_eq!(bench.send.bind(&request(LONGEST_WINDOW)), Ok(0x102));
}

/// No request is flushed before the device is halted.
///
/// From the first fault on no register is written.
#[test]
fn nothing_is_flushed_before_the_device_is_halted() {
    let mut bench = Bench::new();
    bench.post_send(1, 8).expect("room");
    bench.post_receive(2, 8).expect("room");
    bench.complete(CompletionKind::REQUEST, 5);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.state.fault(), Some(DeviceFault::WrongIndex));
    let written = bench.registers.0.get();
    bench.post_send(3, 8).expect("room");
    assert_eq!(bench.completions.borrow_mut().arm(false), Armed::Armed);
    assert!(matches!(bench.completions.borrow_mut().peek(), Peek::Other));
    assert_eq!((bench.poll(), bench.shared.halted.get()), (None, 0));
    assert_eq!(bench.backend.next_deadline(), Some(Instant::ZERO));

    let now = Instant::ZERO;
    let event = bench.backend.poll_control(now);
    assert!(
        matches!(event, Some(ControlEvent::DeviceFailed)),
        "{event:?}"
    );
    assert_eq!(bench.shared.halted.get(), 1);
    assert_eq!(bench.backend.next_deadline(), None);
    // The armed queue gets an event.
    let event = bench.backend.poll_control(now);
    let armed = matches!(event, Some(ControlEvent::Completions { queue: 0 }));
    assert!(armed, "{event:?}");
    assert!(bench.backend.poll_control(now).is_none());
    for token in [1, 3, 2] {
        assert_eq!(bench.poll(), Some((token, DtoStatus::Flushed, 0)));
    }
    bench.post_send(4, 8).expect("room");
    assert_eq!(bench.completions.borrow_mut().arm(false), Armed::Missed);
    assert_eq!(bench.poll(), Some((4, DtoStatus::Flushed, 0)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.registers.0.get(), written);
    assert_eq!(bench.shared.halted.get(), 1);
}

/// Events of unknown objects end a call, and neither source delays the other.
#[test]
fn events_of_unknown_objects_are_bounded() {
    for endless in [[true, false], [false, true], [true, true]] {
        let mut bench = Bench::new();
        bench.shared.endless.set(endless);
        let now = Instant::ZERO;
        assert!(bench.backend.poll_control(now).is_none());
        assert_eq!(bench.backend.next_deadline(), Some(now), "there is more");
        let event = DeviceEvent::Completions(7);
        bench.shared.events.borrow_mut().push_back(event);
        let event = bench.backend.poll_control(now);
        let known = matches!(event, Some(ControlEvent::Completions { queue: 0 }));
        assert!(known, "{event:?}");
        bench.shared.endless.set([false, false]);
        assert!(bench.backend.poll_control(now).is_none());
        assert_eq!(bench.backend.next_deadline(), None);
        assert_eq!(bench.state.fault(), None);
    }
}

/// The record is stored before a fence, and the fence comes before the doorbell.
///
/// A write-combining window gets a processor fence, whatever is written to it.
#[test]
fn doorbells_follow_the_fence_of_their_window() {
    let mut bench = Bench::new();
    let one = |bench: &mut Bench| bench.post_send(0, 8).expect("room");
    assert_eq!(bench.steps(one), [Step::Ordered(1), Step::Written(1)]);
    bench.send.takes_blocks = true;
    let gathered = |record| {
        [
            Step::Gathered(record),
            Step::Written(record),
            Step::Flushed(record),
        ]
    };
    assert_eq!(bench.steps(one), gathered(2));
    let steps = bench.steps(|bench| {
        let request = SendRequest {
            token: 2,
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        let mut slot = bench.send.reserve(&request, 1).expect("room");
        slot.segment(segment(8));
        slot.commit(8).expect("a request");
        bench.send.burst = 2;
        bench.send.ring().expect("a doorbell");
    });
    assert_eq!(steps, gathered(3));
}

/// The device requires a receive ring of at least 64 bytes.
#[test]
fn receive_rings_have_at_least_one_block() {
    let mut bench = Bench::new();
    for (receives, segments, created) in [
        (1, 1, [4, 1]),
        (2, 1, [4, 1]),
        (1, 2, [2, 2]),
        (1, 4, [1, 4]),
        (5, 1, [8, 1]),
        (0, 1, [0, 1]),
    ] {
        let mut request = bench.request;
        request.attributes.max_recv_dtos = receives;
        request.attributes.max_recv_iov = segments;
        let pair = bench.backend.create_queue_pair(&request).expect("room");
        assert_eq!(
            bench.shared.receives.get(),
            created,
            "{receives} of {segments}"
        );
        let QueuePair { key, send, receive } = pair;
        bench.backend.destroy_queue_pair(key, send, receive);
        bench.shared.forgotten.set(0);
    }
}

/// A window's keys are all different and differ from the device's, until binds are refused.
///
/// An unbind is never refused.
///
/// Spec: RMB-10, RMB-21
#[test]
fn keys_of_a_window_never_repeat() {
    for under_way in [false, true] {
        let mut bench = Bench::new();
        let window = bench.backend.create_window(DomainKey(1)).expect("a window");
        let request = |length| BindRequest {
            token: 1,
            window,
            region: RegionKeys::default(),
            address: 0,
            length,
            privileges: MemoryPrivileges::empty(),
            flags: SendFlags::empty(),
            is_only: !under_way,
        };
        assert!(!bench.backend.needs_renewal(window, false));
        assert!(bench.backend.needs_renewal(window, true));
        let (mut index, mut keys) = (0_u16, BTreeSet::from([0x100]));
        while let Ok(key) = bench.send.bind(&request(8)) {
            assert!(keys.insert(key), "{key:#x} again");
            assert_eq!(key >> 8, 1);
            bench.complete(CompletionKind::REQUEST, index);
            assert!(bench.poll().is_some());
            index = index.wrapping_add(3);
        }
        // With other binds under way all keys are used; else enough are left for the binds that may
        // follow at once.
        assert_eq!(keys.len(), if under_way { 256 } else { 253 });
        assert!(bench.backend.needs_renewal(window, false));
        for _ in 0..5 {
            bench.send.bind(&request(0)).expect("it closes");
            bench.complete(CompletionKind::REQUEST, index);
            assert!(bench.poll().is_some());
            index = index.wrapping_add(2);
        }
        assert_eq!(bench.send.bind(&request(8)), Err(Rejected));
    }
}

/// On a platform that is not coherent, queues are made only if slots record the posted buffers.
///
/// Spec: LSW-32
#[test]
fn posted_buffers_are_maintained_or_there_are_no_queues() {
    let mut bench = Bench::new();
    let refused = Some(BackendError::NotSupported).filter(|_| cfg!(not(feature = "non-coherent")));
    let domain = DomainKey(1);
    for (is_coherent, expected) in [(true, None), (false, refused)] {
        bench.backend.hal.is_coherent = is_coherent;
        let pair = PairParameters::of(&bench.request);
        let pair = bench.backend.geometry(&pair).err();
        let shared = bench.backend.create_shared_receive_queue(7, domain, 1, 1);
        let shared = shared.map(|(key, queue)| {
            bench.backend.destroy_shared_receive_queue(key, queue);
        });
        assert_eq!((pair, shared.err()), (expected, expected), "{is_coherent}");
    }
}
