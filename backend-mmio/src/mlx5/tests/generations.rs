//! Resets and destruction of queue pairs during polls, and reuse of storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use dat_core::attributes::EpAttributes;
use dat_core::backend::{Backend as _, DomainKey, QueuePairRequest, ReceiveRequest, WorkQueue};
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;

use super::scripted_device::{Bench, segment};
use crate::DeviceFault;
use crate::defs::mlx5::{CompletionKind, Syndrome};
use crate::mlx5::DeviceEvent;
use crate::ring::DeviceState;

/// A poll of a completion from before a reset takes nothing of the new generation.
///
/// Another thread found the completion before the reset and takes it afterwards. Holds for requests
/// and for receives.
#[test]
fn a_poll_of_an_earlier_generation_takes_nothing_of_the_next() {
    for kind in [CompletionKind::REQUEST, CompletionKind::RECEIVE] {
        let mut bench = Bench::new();
        bench.post_send(1, 8).expect("room");
        bench.post_receive(1, 8).expect("room");
        bench.complete(kind, 0);
        let queue = if kind == CompletionKind::REQUEST {
            &bench.send.generation.requests
        } else {
            &bench.receive.generation.receives
        };
        let Bench {
            backend,
            key,
            send,
            receive,
            ..
        } = &mut bench;
        backend
            .reset_queue_pair(*key, send, Some(receive))
            .expect("a reset");
        // The other thread continues: it has found the queue and its oldest descriptor.
        queue.set_tail(1);
        bench.completions.borrow_mut().advance();
        for token in 2..5 {
            bench.post_send(token, 8).expect("room");
            bench.post_receive(token, 8).expect("room");
        }
        for (index, token) in (0..).zip(2..5) {
            bench.complete(kind, index);
            let (found, status, _) = bench.poll().expect("a completion");
            assert_eq!((found, status), (token, DtoStatus::Success));
        }
        assert_eq!(bench.state.fault(), None);
    }
}

/// A shared buffer that a reset flushed returns, and its slot is reused.
///
/// The buffer is polled after the reset.
#[test]
fn a_shared_buffer_returns_after_a_reset() {
    const BUFFERS: u64 = 7;
    let mut bench = Bench::new();
    let (shared, mut buffers) = bench
        .backend
        .create_shared_receive_queue(1, DomainKey(1), 4, 1)
        .expect("a shared queue");
    let mut request = QueuePairRequest::new(77, DomainKey(1), EpAttributes::DEFAULT);
    request.receive_queue = Some(0);
    request.shared_receive_queue = Some(shared);
    let mut consumer = bench.backend.create_queue_pair(&request).expect("a pair");
    let name = bench.shared.user_index.get();
    for token in 0..BUFFERS {
        let request = ReceiveRequest { token };
        buffers.post(&request, &[segment(8)]).expect("room");
    }
    let one_more = ReceiveRequest { token: BUFFERS };
    assert!(buffers.post(&one_more, &[segment(8)]).is_err());
    bench
        .backend
        .reset_queue_pair(consumer.key, &mut consumer.send, None)
        .expect("a reset");
    bench.shared.user_index.set(name);
    bench.writer()(CompletionKind::FAILED_RECEIVE, 3, Syndrome::FLUSHED);
    assert_eq!(bench.poll(), Some((3, DtoStatus::Flushed, 0)));
    buffers
        .post(&one_more, &[segment(8)])
        .expect("the returned slot");
    // It returns once.
    bench.writer()(CompletionKind::FAILED_RECEIVE, 5, Syndrome::FLUSHED);
    bench.writer()(CompletionKind::FAILED_RECEIVE, 5, Syndrome::FLUSHED);
    assert_eq!(bench.poll(), Some((5, DtoStatus::Flushed, 0)));
    assert_eq!(bench.poll(), None);
    // Late completions of a destroyed shared queue do not affect the next one.
    bench
        .backend
        .destroy_queue_pair(consumer.key, consumer.send, consumer.receive);
    bench.backend.destroy_shared_receive_queue(shared, buffers);
    let (_, mut next) = bench
        .backend
        .create_shared_receive_queue(2, DomainKey(1), 4, 1)
        .expect("a shared queue");
    for token in 0..BUFFERS {
        let request = ReceiveRequest { token };
        next.post(&request, &[segment(8)]).expect("room");
    }
    bench.writer()(CompletionKind::FAILED_RECEIVE, 1, Syndrome::FLUSHED);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.state.fault(), None);
}

/// Resets, modifications and destructions make the connection manager forget the queue pair.
/// pair.
#[test]
fn the_connection_manager_forgets_destroyed_queue_pairs() {
    let bench = Bench::new();
    let Bench {
        mut backend,
        key,
        mut send,
        mut receive,
        shared,
        request,
        ..
    } = bench;
    assert_eq!(shared.forgotten.get(), 0);
    backend
        .reset_queue_pair(key, &mut send, Some(&mut receive))
        .expect("a reset");
    assert_eq!(shared.forgotten.get(), 1);
    backend
        .modify_queue_pair(key, &mut send, Some(&mut receive), &request)
        .expect("a change");
    assert_eq!(shared.forgotten.get(), 2);
    backend.destroy_queue_pair(key, send, Some(receive));
    assert_eq!(shared.forgotten.get(), 3);
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The first fault wakes the waker once.
///
/// A poll finds it, or the device reports it.
#[test]
fn the_first_fault_calls_the_waker() {
    for reported in [false, true] {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let state = DeviceState::waking(Waker::from(Arc::clone(&count)));
        let mut bench = Bench::with(state);
        bench.post_send(1, 8).expect("room");
        if reported {
            let events = &bench.shared.events;
            events.borrow_mut().push_back(DeviceEvent::Failed);
            bench.backend.poll_control(Instant::ZERO);
        } else {
            bench.complete(CompletionKind::REQUEST, 5);
            assert_eq!(bench.poll(), None);
        }
        assert!(bench.state.fault().is_some());
        bench.backend.poll_control(Instant::ZERO);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}

/// Lost completions are a fault, unless the reported queue does not exist.
#[test]
fn lost_completions_are_a_fault() {
    let mut bench = Bench::new();
    let lost = |number| DeviceEvent::CompletionsLost(number);
    let events = std::rc::Rc::clone(&bench.shared);
    events.events.borrow_mut().push_back(lost(8));
    bench.backend.poll_control(Instant::ZERO);
    assert_eq!(bench.state.fault(), None);
    events.events.borrow_mut().push_back(lost(7));
    bench.backend.poll_control(Instant::ZERO);
    assert_eq!(bench.state.fault(), Some(DeviceFault::Overrun));
}

/// Storage that a faulty adapter left with objects in it works like new storage.
#[test]
fn storage_is_reusable() {
    let mut bench = Bench::new();
    bench.post_send(1, 8).expect("room");
    bench.complete(CompletionKind::REQUEST, 5);
    assert_eq!(bench.poll(), None);
    assert!(bench.state.fault().is_some());
    let mut bench = bench.again();
    assert_eq!(bench.state.fault(), None);
    bench.post_send(2, 8).expect("room");
    bench.complete(CompletionKind::REQUEST, 0);
    let done = bench.poll();
    assert_eq!(
        done.map(|(token, status, _)| (token, status)),
        Some((2, DtoStatus::Success))
    );
}

/// No entry of a ring or record crosses a line of the device.
///
/// This holds for every start address of the memory.
#[test]
fn rings_are_aligned_to_cache_lines() {
    for bus in [0x1000, 0x1010, 0x10F0, u64::from(u32::MAX) - 0xF] {
        let ring = Bench::try_at(bus).expect("room");
        assert!(
            ring >= bus && ring.is_multiple_of(256),
            "{bus:#x}: {ring:#x}"
        );
    }
    // Memory that is not aligned to a unit is unusable.
    assert_eq!(Bench::try_at(0x1008), None);
}
