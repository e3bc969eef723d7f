//! Queue pairs that are attached by their attributes: two devices, a wire and virtual time.

#![cfg(feature = "std")]

mod common;

use backend_roce::{
    Bind, Binding, Data, Opcode, Operation, PairOptions, PairState, Post, PostError, RegionAccess,
    RemoteRights, SendAttributes,
};
use common::verbs::{ALL, Bed, LENGTH, REGION, SENDS, Side, post, receives};
use common::wire::Wire;
use dat_core::backend::{BackendError, ControlEvent, RemoteRange, SharedReceiveQueueKey};
use dat_core::flags::DtoStatus;
use dat_core::memory::Region;
use dat_core::time::Instant;

/// Spec: ROCE-260, ROCE-262, ROCE-266
#[test]
fn operations_of_attached_pairs_move_data_and_complete_with_their_opcodes() {
    let mut bed = Bed::new();
    let (qpns, text) = (bed.qpns, *b"sixteen bytes...");
    assert_eq!(qpns.map(|qpn| (qpn >> 11) + 57_344), [61_001, 61_002]);
    let [one, two] = &bed.sides;
    one.fill(0, &text);
    two.receive(qpns[1], 1, 0, 64);
    two.receive(qpns[1], 2, 64, 64);
    two.receive(qpns[1], 3, 128, 64);
    two.fill(512, &5u64.to_ne_bytes());
    one.start(qpns[0], Operation::Send(None), 0, 16);
    one.start(qpns[0], Operation::Send(Some(77)), 0, 16);
    one.start(qpns[0], Operation::Write(two.remote(256), Some(78)), 0, 16);
    one.start(qpns[0], Operation::Write(two.remote(300), None), 0, 16);
    one.start(qpns[0], Operation::Read(two.remote(300)), 1024, 16);
    one.start(qpns[0], Operation::FetchAdd(two.remote(512), 4), 2048, 8);
    let swap = Operation::CompareSwap {
        remote: two.remote(512),
        compare: 9,
        swap: 1,
    };
    one.start(qpns[0], swap, 2056, 8);
    let done = bed.completions(0, 7);
    let opcodes: Vec<_> = done.iter().map(|done| done.opcode).collect();
    let expected = [
        Opcode::Send,
        Opcode::Send,
        Opcode::Write,
        Opcode::Write,
        Opcode::Read,
        Opcode::FetchAdd,
        Opcode::CompareSwap,
    ];
    assert_eq!(opcodes, expected);
    for done in &done {
        assert_eq!((done.status, done.qpn), (DtoStatus::Success, qpns[0]));
    }
    let came = bed.completions(1, 3);
    let came = came.iter();
    let came: Vec<_> = came
        .map(|done| {
            (
                done.token,
                done.opcode,
                done.length,
                done.immediate,
                done.qpn,
            )
        })
        .collect();
    let expected = [
        (1, Opcode::Receive, 16, None, qpns[1]),
        (2, Opcode::Receive, 16, Some(77), qpns[1]),
        (3, Opcode::ReceiveWrite, 16, Some(78), qpns[1]),
    ];
    assert_eq!(came, expected);
    let [one, two] = &bed.sides;
    for at in [0, 64, 256, 300] {
        assert_eq!(two.read(at, 16), text, "{at}");
    }
    assert_eq!(one.read(1024, 16), text);
    assert_eq!(one.read(2048, 8), 5u64.to_ne_bytes());
    assert_eq!(one.read(2056, 8), 9u64.to_ne_bytes());
    assert_eq!(two.read(512, 8), 1u64.to_ne_bytes());
}

/// Spec: ROCE-262
#[test]
fn messages_arrive_whole_over_a_wire_that_loses_packets() {
    for seed in 0..20 {
        let mut bed = Bed::new();
        bed.wire.lose(100, seed);
        let data: Vec<u8> = (0..20_000).map(|index| (index % 251) as u8).collect();
        bed.sides[0].fill(0, &data);
        bed.sides[1].receive(bed.qpns[1], 1, 0, 30_000);
        let status = bed.status(Operation::Send(None), data.len());
        assert_eq!(status, DtoStatus::Success, "seed {seed}");
        bed.completions(1, 1);
        assert_eq!(bed.sides[1].read(0, data.len()), data, "seed {seed}");
    }
}

/// The adapter has a table of queues by number, which is as long as the highest number.
#[test]
fn queues_that_come_and_go_do_not_use_up_numbers() {
    let side = Side::new(&Wire::default(), 1);
    let stays: Vec<_> = (0..40)
        .map(|_| side.device.create_queue(16).expect("a queue"))
        .collect();
    let mut last = stays.len() as u32;
    for _ in 0..10_000 {
        let queue = side.device.create_queue(16).expect("a queue");
        let number = queue.number();
        assert!(number < 200, "number {number}");
        assert_ne!(number, last, "it rests for a while");
        assert!(stays.iter().all(|other| other.number() != number));
        last = number;
        side.device.destroy_queue(queue);
    }
}

/// Spec: ROCE-262
#[test]
fn a_pair_receives_before_it_may_send() {
    let mut bed = Bed::unattached();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    let with = receives(two, qpns[1], one.address);
    // A receive may be posted before; a request may not.
    let segments = [one.segment(0, 64)];
    let early = post(1, Operation::Send(None), &segments);
    one.receive(qpns[0], 9, 0, 64);
    assert_eq!(one.post(qpns[0], &early), Err(PostError::State));
    let sends = |side: &Side, qpn| side.device.ready_to_send(qpn, &SENDS);
    assert_eq!(sends(one, qpns[0]), Err(BackendError::State));
    assert_eq!(one.device.ready_to_receive(qpns[0], &with), Ok(()));
    assert_eq!(one.device.pair_state(qpns[0]), Ok(PairState::Receiving));
    assert!(one.events.lock().expect("not poisoned").is_empty());
    let again = one.device.ready_to_receive(qpns[0], &with);
    assert_eq!(again, Err(BackendError::State));
    assert_eq!(one.post(qpns[0], &early), Err(PostError::State));
    let other = receives(one, qpns[0], two.address);
    assert_eq!(two.device.ready_to_receive(qpns[1], &other), Ok(()));
    assert_eq!(sends(two, qpns[1]), Ok(()));
    assert_eq!(sends(two, qpns[1]), Err(BackendError::State));
    one.receive(qpns[0], 9, 0, 64);
    for _ in 0..2 {
        bed.sides[1].start(qpns[1], Operation::Send(None), 0, 8);
        assert_eq!(bed.completions(1, 1)[0].status, DtoStatus::Success);
        assert_eq!(bed.completions(0, 1)[0].token, 9);
    }
    let [one, two] = &bed.sides;
    // It is told once that its peer has begun; a pair that may send is told nothing.
    let begun = one.events.lock().expect("not poisoned").pop();
    assert!(
        matches!(begun, Some(ControlEvent::Established { queue_pair, .. })
            if queue_pair == u64::from(qpns[0])),
        "{begun:?}"
    );
    for side in [one, two] {
        assert!(side.events.lock().expect("not poisoned").is_empty());
    }
    assert_eq!(sends(one, qpns[0]), Ok(()));
    assert_eq!(one.device.pair_state(qpns[0]), Ok(PairState::Sending));
    assert_eq!(one.device.pair_state(0x11), Err(BackendError::State));
    let mut wrong = with;
    wrong.peer = "[::1]:0".parse().expect("an address");
    assert_eq!(one.device.reset_pair(qpns[0]), Ok(()));
    let refused = one.device.ready_to_receive(qpns[0], &wrong);
    assert_eq!(refused, Err(BackendError::Address));
}

/// Spec: ROCE-262
#[test]
fn a_reset_pair_is_new_and_a_failed_one_flushes() {
    let mut bed = Bed::new();
    let (qpns, [one, _]) = (bed.qpns, &bed.sides);
    one.receive(qpns[0], 5, 0, 64);
    assert_eq!(one.device.fail_pair(qpns[0]), Ok(()));
    one.receive(qpns[0], 6, 0, 64);
    one.start(qpns[0], Operation::Send(None), 7, 8);
    let done: Vec<_> = one.take().iter().map(|d| (d.token, d.status)).collect();
    assert_eq!(done, [5, 6, 7].map(|token| (token, DtoStatus::Flushed)));
    one.receive(qpns[0], 8, 0, 64);
    for (side, qpn) in bed.sides.iter().zip(qpns) {
        assert_eq!(side.device.reset_pair(qpn), Ok(()));
        assert_eq!(side.device.pair_state(qpn), Ok(PairState::Unattached));
        assert_eq!(side.take(), [], "the completions went with it");
    }
    bed.attach(ALL, SENDS);
    bed.sides[1].receive(qpns[1], 1, 0, 64);
    let status = bed.status(Operation::Send(None), 8);
    assert_eq!(status, DtoStatus::Success);
}

/// A wrong key, range, domain or right fails at the peer's responder; nothing changes there.
///
/// Spec: ROCE-264
#[test]
fn the_responder_checks_keys_ranges_and_rights() {
    let no = RemoteRights::default();
    let region = |remote| RegionAccess { remote, ..REGION };
    let (read, write, atomic) = (
        RemoteRights { read: true, ..no },
        RemoteRights { write: true, ..no },
        RemoteRights { atomic: true, ..no },
    );
    // The rights of the pair and of the region, and whether a Read, a Write and an atomic succeed.
    let cases = [
        (ALL, ALL, [true, true, true]),
        (ALL, no, [false, false, false]),
        (no, ALL, [false, false, false]),
        (read, ALL, [true, false, false]),
        (write, ALL, [false, true, false]),
        (atomic, ALL, [false, false, true]),
        (ALL, read, [true, false, false]),
        (ALL, write, [false, true, false]),
        (ALL, atomic, [false, false, true]),
    ];
    for (rights, access, allowed) in cases {
        for (kind, is_allowed) in allowed.into_iter().enumerate() {
            let mut bed = Bed::unattached();
            bed.attach(rights, SENDS);
            let two = &bed.sides[1];
            let memory = Region::from_static(two.bytes);
            let key = two.device.register(two.domain, &memory, region(access));
            let at = RemoteRange {
                key: key.expect("a region"),
                ..two.remote(8)
            };
            bed.sides[0].fill(0, &[7; 8]);
            let operation = match kind {
                0 => Operation::Read(at),
                1 => Operation::Write(at, None),
                _ => Operation::FetchAdd(at, 1),
            };
            let status = bed.status(operation, 8);
            let case = format!("{rights:?} {access:?} {operation:?}: {status:?}");
            let refusals = [DtoStatus::RemoteAccess, DtoStatus::RemoteResponder];
            assert_eq!(status == DtoStatus::Success, is_allowed, "{case}");
            assert_eq!(refusals.contains(&status), !is_allowed, "{case}");
            let two = &bed.sides[1];
            if !is_allowed {
                assert_eq!(two.read(8, 8), [0; 8], "{case}");
                let state = two.device.pair_state(bed.qpns[1]);
                assert_eq!(state, Ok(PairState::Failed), "{case}");
            }
        }
    }
}

/// Spec: ROCE-264
#[test]
fn ranges_domains_and_old_keys_are_refused() {
    for case in 0..5 {
        let mut bed = Bed::new();
        let two = &bed.sides[1];
        let mut at = two.remote(0);
        match case {
            0 => at.address += LENGTH as u64 - 4,
            1 => at.address -= 1,
            2 => at.key ^= 0x100,
            3 => {
                let other = two.device.create_domain().expect("a domain");
                let memory = Region::from_static(two.bytes);
                at.key = two
                    .device
                    .register(other, &memory, REGION)
                    .expect("a region");
            }
            _ => two.device.deregister(two.key),
        }
        let status = bed.status(Operation::Write(at, None), 8);
        assert_eq!(status, DtoStatus::RemoteAccess, "case {case}");
        // Local ones, too.
        let mut bed = Bed::new();
        let one = &bed.sides[0];
        let mut segment = one.segment(0, 8);
        match case {
            0 => segment.address += LENGTH as u64 - 4,
            1 => segment.address -= 1,
            2 => segment.key ^= 0x100,
            3 => {
                let other = one.device.create_domain().expect("a domain");
                let memory = Region::from_static(one.bytes);
                segment.key = one
                    .device
                    .register(other, &memory, REGION)
                    .expect("a region");
            }
            _ => one.device.deregister(one.key),
        }
        let at = bed.sides[1].remote(0);
        let request = post(
            1,
            Operation::Write(at, None),
            core::slice::from_ref(&segment),
        );
        one.post(bed.qpns[0], &request).expect("a request");
        let status = bed.completions(0, 1)[0].status;
        assert_eq!(status, DtoStatus::LocalProtection, "case {case}");
    }
}

/// Spec: ROCE-264
#[test]
fn a_region_has_the_address_that_its_owner_chose() {
    let mut bed = Bed::new();
    let two = &bed.sides[1];
    let memory = Region::from_static(two.bytes);
    let access = RegionAccess {
        address: Some(0x10),
        ..REGION
    };
    let key = two.device.register(two.domain, &memory, access);
    let key = key.expect("a region");
    let at = |address| Operation::Write(RemoteRange { address, key }, None);
    bed.sides[0].fill(0, b"eightbyt");
    assert_eq!(bed.status(at(0x12), 8), DtoStatus::Success);
    assert_eq!(bed.sides[1].read(2, 8), b"eightbyt");
    assert_eq!(bed.status(at(0xF), 8), DtoStatus::RemoteAccess);
}

/// Spec: ROCE-265
#[test]
fn a_silent_request_completes_only_if_it_fails() {
    let mut bed = Bed::new();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    let segments = [one.segment(0, 8)];
    let silent = |token, at| Post {
        silent: true,
        ..post(token, Operation::Write(at, None), &segments)
    };
    for token in 0..8 {
        let posted = one.post(qpns[0], &silent(token, two.remote(0)));
        assert_eq!(posted, Ok(()));
    }
    let full = one.post(qpns[0], &silent(8, two.remote(0)));
    assert_eq!(full, Err(PostError::Full));
    for _ in 0..100 {
        bed.step();
    }
    assert_eq!(bed.sides[0].take(), []);
    let status = bed.status(Operation::Write(bed.sides[1].remote(0), None), 8);
    assert_eq!(status, DtoStatus::Success);
    let [one, two] = &bed.sides;
    let beyond = two.remote(LENGTH);
    assert_eq!(one.post(qpns[0], &silent(9, beyond)), Ok(()));
    let done = bed.completions(0, 1);
    assert_eq!(
        (done[0].token, done[0].status),
        (9, DtoStatus::RemoteAccess)
    );
}

/// Spec: ROCE-265
#[test]
fn inline_data_is_what_it_was_when_it_was_posted() {
    let mut bed = Bed::new();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    // More than fit the queue at a time, so that its places are used again.
    for round in 0u8..20 {
        let (mut head, tail) = (vec![round; 10], vec![!round; 54]);
        two.receive(qpns[1], 1, 0, 64);
        let inline = |data: &[&[u8]]| {
            one.post(
                qpns[0],
                &Post {
                    data: Data::Inline(data),
                    ..post(1, Operation::Send(None), &[])
                },
            )
        };
        assert_eq!(inline(&[&head, &tail]), Ok(()));
        assert_eq!(inline(&[&head, &tail, &[1]]), Err(PostError::Invalid));
        head.fill(0xEE);
        let expected = [vec![round; 10], tail].concat();
        let mut done = Vec::new();
        for _ in 0..100 {
            bed.now += 100;
            for side in [one, two] {
                side.device.driver().drive(Instant::from_micros(bed.now));
                done.extend(side.take());
            }
        }
        assert_eq!(done.len(), 2, "{done:?}");
        assert_eq!(two.read(0, 64), expected);
    }
    let none: &[&[u8]] = &[];
    let read = Post {
        data: Data::Inline(none),
        ..post(1, Operation::Read(two.remote(0)), &[])
    };
    assert_eq!(one.post(qpns[0], &read), Err(PostError::Invalid));
}

/// Spec: ROCE-262
#[test]
fn requests_with_another_psn_are_not_executed() {
    let mut bed = Bed::unattached();
    let sends = SendAttributes { sends: 90, ..SENDS };
    bed.attach(ALL, sends);
    bed.sides[0].fill(0, &[7; 8]);
    // The responder takes them for requests that it has executed, and acknowledges them.
    let at = bed.sides[1].remote(0);
    bed.status(Operation::Write(at, None), 8);
    assert_eq!(bed.sides[1].read(0, 8), [0; 8]);
    let mut bed = Bed::unattached();
    let sends = SendAttributes {
        sends: 110,
        ..SENDS
    };
    bed.attach(ALL, sends);
    let at = bed.sides[1].remote(0);
    let status = bed.status(Operation::Write(at, None), 8);
    assert_ne!(status, DtoStatus::Success);
    assert_eq!(bed.sides[1].read(0, 8), [0; 8]);
}

/// Packets from another address, or another port of ours, reach no attached pair.
///
/// Spec: ROCE-263
#[test]
fn an_attached_pair_has_one_peer() {
    let mut bed = Bed::new();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    two.receive(qpns[1], 1, 0, 64);
    one.start(qpns[0], Operation::Send(None), 0, 8);
    let packets = bed.wire.packets_to(two.address);
    let [(flow, packet)] = packets.as_slice() else {
        panic!("{packets:?}");
    };
    let mut stranger = *flow;
    stranger.source_port += 1;
    let mut forged = packet.clone();
    stranger.seal(0, &mut forged).expect("a packet");
    let before = two.device.counts().dropped;
    // In place of the packet of the peer.
    let poll = two.device.poll(&two.queue, 0, |_| {});
    poll.expect("a queue that works");
    bed.wire.put(stranger, forged);
    bed.step();
    assert_eq!(bed.sides[1].device.counts().dropped, before + 1);
}

/// Spec: ROCE-264
#[test]
fn pairs_share_a_receive_queue_with_a_limit() {
    let wire = Wire::default();
    let sides = [Side::new(&wire, 1), Side::new(&wire, 2)];
    let shared = sides[1].device.create_shared_queue(42, sides[1].domain, 4);
    let shared: SharedReceiveQueueKey = shared.expect("a shared queue");
    let options = PairOptions {
        shared: Some(shared),
        ..sides[1].options()
    };
    let pair = |_| sides[1].device.create_pair(&options).expect("a pair");
    let (ones, twos) = ([sides[0].pair(), sides[0].pair()], [0, 1].map(pair));
    let refused = sides[1].device.post_receive(twos[0], 1, &[]);
    assert_eq!(refused, Err(PostError::Invalid));
    for token in 0..4 {
        let segments = [sides[1].segment(64 * token, 64)];
        let posted = sides[1].device.post_shared(shared, token as u64, &segments);
        assert_eq!(posted, Ok(()));
    }
    let full = sides[1].device.post_shared(shared, 9, &[]);
    assert_eq!(full, Err(PostError::Full));
    assert_eq!(sides[1].device.arm_limit(shared, 3), Ok(()));
    let mut bed = Bed {
        wire,
        sides,
        qpns: [ones[0], twos[0]],
        now: 0,
    };
    for pair in 0..2 {
        bed.qpns = [ones[pair], twos[pair]];
        bed.attach(ALL, SENDS);
        assert_eq!(bed.status(Operation::Send(None), 8), DtoStatus::Success);
        let came = bed.completions(1, 1);
        assert_eq!((came[0].token, came[0].qpn), (pair as u64, twos[pair]));
    }
    let events = bed.sides[1].events.lock().expect("not poisoned");
    let limit = ControlEvent::SharedReceiveLimit { queue: 42 };
    assert_eq!(events.iter().filter(|event| **event == limit).count(), 1);
}

/// The queue itself knows its depth: a post beside a resize finds no more room than there is.
#[test]
fn a_shared_queue_takes_as_many_receives_as_its_last_size() {
    let bed = Bed::new();
    let two = &bed.sides[1];
    let shared = two.device.create_shared_queue(42, two.domain, 4);
    let shared = shared.expect("a shared queue");
    let post = || two.device.post_shared(shared, 1, &[]);
    let resize = |depth| two.device.resize_shared_queue(shared, depth);
    assert_eq!((post(), post()), (Ok(()), Ok(())));
    assert_eq!((resize(2), post()), (Ok(()), Err(PostError::Full)));
    assert_eq!((resize(3), post()), (Ok(()), Ok(())));
    assert_eq!(resize(2), Err(BackendError::State), "it has three");
    assert_eq!(post(), Err(PostError::Full));
    assert_eq!(
        (resize(u32::MAX), post()),
        (Err(BackendError::Resources), Err(PostError::Full))
    );
}

/// Spec: ROCE-267
#[test]
fn an_armed_queue_tells_of_the_next_completion_only() {
    let mut bed = Bed::new();
    let write = Operation::Write(bed.sides[1].remote(0), None);
    let told = |bed: &Bed| {
        let events = bed.sides[0].events.lock().expect("not poisoned");
        let is_told = |event: &&ControlEvent| matches!(event, ControlEvent::Completions { .. });
        events.iter().filter(is_told).count()
    };
    let wait = |bed: &mut Bed| (0..100).for_each(|_| bed.step());
    bed.sides[0].start(bed.qpns[0], write, 0, 8);
    wait(&mut bed);
    assert_eq!(told(&bed), 0, "not armed");
    // A completion waits: it does not count.
    bed.sides[0].queue.arm(false);
    wait(&mut bed);
    assert_eq!(told(&bed), 0);
    for _ in 0..2 {
        bed.sides[0].start(bed.qpns[0], write, 0, 8);
        wait(&mut bed);
        assert_eq!(told(&bed), 1);
    }
    // Solicited only: an error counts.
    bed.sides[0].queue.arm(true);
    bed.sides[0].start(bed.qpns[0], write, 0, 8);
    wait(&mut bed);
    assert_eq!(told(&bed), 1);
    let beyond = Operation::Write(bed.sides[1].remote(LENGTH), None);
    bed.sides[0].start(bed.qpns[0], beyond, 0, 8);
    wait(&mut bed);
    assert_eq!(told(&bed), 2);
    assert_eq!(bed.sides[0].take().len(), 5);
}

/// A queue that loses completions tells so, though it is not armed, and then breaks its pairs.
///
/// Spec: ROCE-267
#[test]
fn a_queue_that_overruns_tells_of_it() {
    let mut bed = Bed::unattached();
    let short = bed.sides[0].device.create_queue(1).expect("a queue");
    let options = PairOptions {
        sends: &short,
        ..bed.sides[0].options()
    };
    bed.qpns[0] = bed.sides[0].device.create_pair(&options).expect("a pair");
    bed.attach(ALL, SENDS);
    let [one, two] = &bed.sides;
    for _ in 0..2 {
        assert!(!one.device.has_overrun(short.number()));
        assert!(!one.device.loses_completions(bed.qpns[0]));
        one.start(bed.qpns[0], Operation::Write(two.remote(0), None), 0, 8);
    }
    (0..100).for_each(|_| bed.step());
    let one = &bed.sides[0];
    assert!(one.device.has_overrun(short.number()));
    assert!(one.device.loses_completions(bed.qpns[0]));
    let queue = short.number();
    let queue_pair = bed.qpns[0].into();
    assert_eq!(
        *one.events.lock().expect("not poisoned"),
        [
            ControlEvent::Completions { queue },
            ControlEvent::Broken { queue_pair }
        ]
    );
    assert!(!one.device.has_overrun(one.queue.number()));
    assert!(!bed.sides[1].device.loses_completions(bed.qpns[1]));
}

/// Spec: ROCE-268
#[test]
fn a_pair_that_is_destroyed_has_acknowledged_what_completed() {
    let mut bed = Bed::new();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    two.receive(qpns[1], 1, 0, 64);
    one.start(qpns[0], Operation::Send(None), 0, 8);
    // The other side alone runs, and goes at once.
    two.device.driver().drive(Instant::from_micros(1));
    assert_eq!(two.take().len(), 1);
    assert_eq!(two.device.destroy_pair(qpns[1]), Ok(()));
    let gone = two.device.pair_state(qpns[1]);
    assert_eq!(gone, Err(BackendError::State));
    assert_eq!(bed.completions(0, 1)[0].status, DtoStatus::Success);
}

/// Spec: ROCE-260, ROCE-261
#[test]
fn a_device_takes_another_port_when_its_numbers_are_used() {
    let wire = Wire::default();
    let side = Side::new(&wire, 1);
    let qpns: Vec<u32> = (0..2_050).map(|_| side.pair()).collect();
    let port = |qpn: &u32| (qpn >> 11) + 57_344;
    assert!(qpns[..2_048].iter().all(|qpn| port(qpn) == 61_001));
    assert_eq!(
        qpns[2_048..].iter().map(port).collect::<Vec<_>>(),
        [61_000; 2]
    );
    // A number rests after its pair.
    assert_eq!(side.device.destroy_pair(qpns[7]), Ok(()));
    let next = side.pair();
    assert!(!qpns.contains(&next), "{next:#x}");
}

/// Other memory, rights and domains of a region hold for the next access; its key stays.
///
/// Spec: ROCE-274
#[test]
fn a_region_that_is_changed_keeps_its_key() {
    let mut bed = Bed::new();
    let at = bed.sides[1].remote(8);
    bed.sides[0].fill(0, &[7; 8]);
    let write = Operation::Write(at, None);
    assert_eq!(bed.status(write, 8), DtoStatus::Success);
    let two = &bed.sides[1];
    let memory = Region::from_static(two.bytes);
    let remote = RemoteRights::default();
    let local = RegionAccess { remote, ..REGION };
    let change = |key, access| two.device.reregister(key, two.domain, &memory, access);
    assert_eq!(change(two.key ^ 1, local), Err(BackendError::State));
    assert_eq!(change(two.key, local), Ok(()));
    bed.sides[0].fill(0, &[8; 8]);
    assert_eq!(bed.status(write, 8), DtoStatus::RemoteAccess);
    assert_eq!(bed.sides[1].read(8, 8), [7; 8]);
}

/// Returns a bind of a new window of the second side to 16 bytes of a region.
fn bind_of(bed: &Bed, region: u32, rights: RemoteRights) -> Bind {
    let two = &bed.sides[1];
    let binding = Binding {
        window: two.device.create_window(two.domain).expect("a window"),
        region,
        address: two.remote(64).address,
        length: 16,
        rights,
        is_zero_based: false,
    };
    Bind {
        token: 5,
        binding,
        silent: false,
        fence: false,
    }
}

/// Binds a window of the second side; returns its key and the status.
fn bind(bed: &mut Bed, bind: &Bind) -> (u32, DtoStatus) {
    let device = &bed.sides[1].device;
    let key = device.post(bed.qpns[1], |posts| posts.bind(bind));
    let [done] = bed.completions(1, 1)[..] else {
        panic!("a bind has one completion");
    };
    assert_eq!((done.token, done.opcode), (5, Opcode::Bind));
    (key.expect("a pair").expect("a key"), done.status)
}

const NONE: RemoteRights = RemoteRights {
    read: false,
    write: false,
    atomic: false,
};
const WRITE: RemoteRights = RemoteRights {
    write: true,
    ..NONE
};

/// Spec: ROCE-275
#[test]
fn a_window_grants_a_range_until_it_is_bound_anew() {
    // The key of which bind is used, the distance from its range, and whether that is granted.
    for (used, distance, is_granted) in [(1, 0, true), (0, 0, false), (1, 1, false)] {
        let mut bed = Bed::new();
        let wanted = bind_of(&bed, bed.sides[1].key, WRITE);
        let keys = [0, 1].map(|_| {
            let (key, status) = bind(&mut bed, &wanted);
            assert_eq!(status, DtoStatus::Success);
            key
        });
        assert_ne!(keys[0], keys[1]);
        let at = RemoteRange {
            address: wanted.binding.address + distance,
            key: keys[used],
        };
        let status = bed.status(Operation::Write(at, None), 16);
        let expected = match is_granted {
            true => DtoStatus::Success,
            false => DtoStatus::RemoteAccess,
        };
        assert_eq!(status, expected, "{used} {distance}");
    }
}

/// Spec: ROCE-275
#[test]
fn a_window_grants_atomics_by_a_right_of_their_own() {
    let atomic = RemoteRights {
        atomic: true,
        ..NONE
    };
    let both = RemoteRights {
        read: true,
        ..WRITE
    };
    for (rights, adds, writes) in [(atomic, true, false), (both, false, true)] {
        for (is_add, is_granted) in [(true, adds), (false, writes)] {
            let mut bed = Bed::new();
            let wanted = bind_of(&bed, bed.sides[1].key, rights);
            let (key, status) = bind(&mut bed, &wanted);
            assert_eq!(status, DtoStatus::Success);
            let at = RemoteRange {
                address: wanted.binding.address,
                key,
            };
            let operation = match is_add {
                true => Operation::FetchAdd(at, 1),
                false => Operation::Write(at, None),
            };
            let expected = match is_granted {
                true => DtoStatus::Success,
                false => DtoStatus::RemoteAccess,
            };
            assert_eq!(bed.status(operation, 8), expected, "{rights:?} {is_add}");
        }
    }
}

/// A window cannot give what its region does not, and a right to write memory is never left behind.
///
/// Spec: ROCE-275
#[test]
fn a_window_holds_its_region_as_it_is() {
    for rights in [WRITE, ALL] {
        let mut bed = Bed::new();
        let two = &bed.sides[1];
        let memory = Region::from_static(two.bytes);
        let constant = RegionAccess {
            local_write: false,
            remote: NONE,
            address: None,
        };
        let region = two.device.register(two.domain, &memory, constant);
        let region = region.expect("a region");
        let wanted = bind_of(&bed, region, rights);
        let (_, status) = bind(&mut bed, &wanted);
        assert_eq!(
            status,
            DtoStatus::RmrOperationFailed,
            "it cannot be written"
        );

        let mut bed = Bed::new();
        let region = bed.sides[1].key;
        let wanted = bind_of(&bed, region, rights);
        let (key, status) = bind(&mut bed, &wanted);
        assert_eq!(status, DtoStatus::Success);
        let two = &bed.sides[1];
        let memory = Region::from_static(two.bytes);
        let change = || {
            let device = &two.device;
            device.reregister(region, two.domain, &memory, constant)
        };
        assert!(two.device.has_windows(region));
        assert_eq!(change(), Err(BackendError::State), "it has a window");
        let at = RemoteRange {
            address: wanted.binding.address,
            key,
        };
        assert_eq!(
            bed.status(Operation::Write(at, None), 16),
            DtoStatus::Success
        );
        let two = &bed.sides[1];
        two.device.deregister(region);
        assert!(!two.device.has_windows(region), "its windows are unbound");
        assert_eq!(
            bed.status(Operation::Write(at, None), 16),
            DtoStatus::RemoteAccess
        );
        bed.sides[1].device.destroy_window(wanted.binding.window);
    }
}
