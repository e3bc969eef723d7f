//! The ring alone.

use std::vec::Vec;

use super::*;

fn ring(depth: u32) -> CompletionRing<u32> {
    let mut ring = CompletionRing::new(depth, Arc::default());
    for user in 0..4 {
        assert!(ring.reserve_user());
        ring.add_user(user);
    }
    ring
}

fn entry(owner: u32, token: u64) -> Entry<u32> {
    Entry {
        owner,
        completion: Completion {
            token,
            status: DtoStatus::Success,
            length: 7,
            queue_pair: owner.into(),
            solicited: false,
        },
        immediate: None,
        kind: Kind::Request,
        opcode: Opcode::Send,
        source: 0,
        detail: Detail::None,
        extra: false,
    }
}

/// Takes all completions; returns their tokens.
fn drain(ring: &mut CompletionRing<u32>) -> Vec<u64> {
    let take = || ring.take().ok().flatten();
    core::iter::from_fn(take)
        .map(|entry| entry.completion.token)
        .collect()
}

fn ready(ring: &CompletionRing<u32>) -> usize {
    ring.ready.load(Ordering::Relaxed)
}

#[test]
fn a_full_queue_fails_and_keeps_what_it_has() {
    let mut ring = ring(2);
    assert_eq!(ring.push(entry(0, 1)), Effect::None);
    let extra = true;
    assert_eq!(
        ring.push(Entry {
            extra,
            ..entry(0, 1)
        }),
        Effect::None
    );
    assert_eq!(ring.push(entry(1, 2)), Effect::None);
    assert!(!ring.has_room());
    assert_eq!(ring.push(entry(1, 3)), Effect::Overrun);
    assert_eq!(ring.push(entry(1, 4)), Effect::None);
    assert_eq!(ready(&ring), 4);
    assert_eq!(drain(&mut ring), [1, 1, 2]);
    let failure = DeviceFailure::CompletionQueueOverrun;
    assert_eq!(ring.take().map(|_| ()), Err(failure));
    assert_eq!((ring.peek(), ring.arm(false)), (Peek::Other, Armed::Missed));
    assert_eq!(ready(&ring), 1);
}

#[test]
fn an_armed_queue_notifies_once() {
    let mut ring = ring(8);
    assert_eq!(ring.arm(true), Armed::Armed);
    assert_eq!(ring.push(entry(0, 1)), Effect::None, "not solicited");
    let mut solicited = entry(0, 2);
    solicited.completion.solicited = true;
    assert_eq!(ring.push(solicited), Effect::Notify);
    assert_eq!(ring.push(solicited), Effect::None, "disarmed");
    assert_eq!(ring.arm(false), Armed::Missed);
    drain(&mut ring);
    assert_eq!(ring.arm(false), Armed::Armed);
    assert!(ring.disarm() && !ring.disarm());
}

#[test]
fn the_head_is_skipped_if_it_is_what_was_peeked() {
    let mut ring = ring(8);
    assert_eq!(ring.peek(), Peek::Empty);
    let kinds = [Kind::Request, Kind::Receive, Kind::SharedReceive];
    for (kind, token) in kinds.into_iter().zip(1..) {
        let _none = ring.push(Entry {
            kind,
            ..entry(0, token)
        });
    }
    ring.skip(2);
    let head = |length, token| Peek::Success { token, length };
    assert_eq!(ring.peek(), head(u32::MAX, 1));
    ring.skip(1);
    assert_eq!(ring.peek(), head(7, 2));
    ring.skip(2);
    assert_eq!(ring.peek(), Peek::Other);
    ring.skip(3);
    assert_eq!(drain(&mut ring), [3]);
}

#[test]
fn the_completions_of_a_queue_pair_are_removed_without_a_look_at_others() {
    let mut ring = ring(4000);
    for token in 0..3000 {
        let _none = ring.push(entry(if token % 1000 == 500 { 3 } else { 0 }, token));
    }
    ring.forget(3);
    assert!(ring.steps < 10, "{}", ring.steps);
    assert_eq!(ready(&ring), 2997);
    ring.forget(3);
    ring.forget(9);
    let left: Vec<u64> = (0..3000).filter(|token| token % 1000 != 500).collect();
    assert_eq!(drain(&mut ring), left);
    assert!(ring.entries.is_empty());
}

/// The completion that nobody takes stays; others come and are forgotten around it.
#[test]
fn gaps_take_little_memory() {
    let mut ring = ring(16);
    assert!(ring.reserve(16));
    for round in 0..1000_u64 {
        let keeps = round % 100 == 0;
        for user in [1, 2] {
            let _none = ring.push(entry(user, round));
        }
        if keeps {
            let _none = ring.push(entry(0, round));
        }
        ring.forget(1);
        let _none = ring.push(entry(3, round));
        ring.forget(2);
        let _none = ring.push(entry(2, round));
        ring.forget(3);
        assert!(ring.entries.capacity() <= 64, "{}", ring.entries.capacity());
        ring.forget(2);
    }
    assert_eq!(ring.queued, 10);
    let kept: Vec<u64> = (0..10).map(|kept| kept * 100).collect();
    assert_eq!(drain(&mut ring), kept);
    assert_eq!(ready(&ring), 0);
}

#[test]
fn requests_wait_for_a_consumer_that_takes_completions() {
    let mut ring = ring(8);
    assert!(!ring.is_being_taken());
    for token in 0..3 {
        let _none = ring.push(entry(0, token));
    }
    assert!(!ring.is_being_taken(), "none was taken");
    ring.skip(0);
    assert!(ring.is_being_taken());
    assert!(!ring.is_being_taken(), "one for each");
    drain(&mut ring);
    assert!(!ring.is_being_taken(), "none is here");
}
