//! Many queue pairs that send to one socket, whose buffer drops what it has no room for.

use backend_roce::RoceBackend;
use backend_roce::proto::PathMtu;
use dat_core::backend::{Backend as _, RemoteRange, Segment, SendOperation};
use dat_core::flags::DtoStatus;
use dat_tests::fixture::Testbed as _;

use crate::crowd::{End, join, stream};
use crate::network::RoceBed;

/// Bytes of a socket buffer, as Linux counts them.
const BUFFER: usize = 212_992;

const PAIRS: usize = 64;

fn ends(bed: &RoceBed, mtu: PathMtu) -> (End, End) {
    let device = || {
        let device = bed.device();
        let address = device.ia_attributes().ia_address.socket_address().unwrap();
        bed.set_path_mtu(address.ip(), mtu);
        device
    };
    let (mut left, mut right) = (End::new(device(), PAIRS), End::new(device(), PAIRS));
    join(bed, &mut left, &mut right, 7174);
    (left, right)
}

fn repetitions(device: &RoceBackend) -> u64 {
    let requester = device.counts().requester;
    requester.retransmits + requester.timeouts + requester.losses
}

/// All queue pairs together have no more under way than the buffer holds, and take turns.
///
/// Spec: ROCE-66, ROCE-183
#[test]
fn queue_pairs_to_one_socket_share_its_buffer() {
    for reads in [false, true] {
        for (mtu, length) in [
            (PathMtu::Bytes256, 8),
            (PathMtu::Bytes256, 3_000),
            (PathMtu::Bytes1024, 20_000),
            (PathMtu::Bytes4096, 8),
            (PathMtu::Bytes4096, 50_000),
        ] {
            let bed = RoceBed::new();
            let (mut left, mut right) = ends(&bed, mtu);
            bed.limit_buffers(BUFFER);
            let count = if length < 1_000 { 256 } else { 8 };
            let fewest = stream(&bed, &mut left, &mut right, (count, length), reads);
            let (most, dropped) = bed.buffered();
            println!("{mtu:?} {length} reads {reads}: {most} bytes, at least {fewest} of {count}");
            assert_eq!(dropped, 0, "{mtu:?} {length}");
            assert_eq!(repetitions(&left.device), 0);
            assert!(most <= BUFFER && most > BUFFER * 3 / 4, "{most}");
            // Nobody is left behind.
            assert!(fewest >= count / 4, "{fewest}");
        }
    }
}

/// Two queue pairs at their share leave the rest of the buffer to each other, and come to rest.
///
/// With nothing to send, an adapter has no work until a packet or a time-out comes.
///
/// Spec: ROCE-183
#[test]
fn queue_pairs_at_their_share_come_to_rest() {
    for (mtu, length) in [
        (PathMtu::Bytes256, 200_000),
        (PathMtu::Bytes512, 300_000),
        (PathMtu::Bytes1024, 500_000),
        (PathMtu::Bytes1024, 8),
    ] {
        let bed = RoceBed::new();
        let (mut left, mut right) = ends(&bed, mtu);
        let (_, segment, _) = left.memory(vec![1; length]);
        let (_, _, far) = right.memory(vec![2; length]);
        let count = if length < 1_000 { 256 } else { 1 };
        post_writes(&mut left, 0, count, (segment, far));
        post_writes(&mut left, 1, count, (segment, far));
        let mut done = 0;
        while done < 2 * count {
            bed.go_on();
            assert_ne!(left.device.next_deadline(), Some(bed.now()), "{mtu:?}");
            while let Some((_, status)) = left.poll() {
                assert_eq!(status, DtoStatus::Success);
                done += 1;
            }
        }
    }
}

/// Both directions at once fit in the buffer that Linux grants: twice the size.
///
/// Spec: ROCE-183
#[test]
fn both_directions_fit_in_the_granted_buffer() {
    let bed = RoceBed::new();
    let (mut left, mut right) = ends(&bed, PathMtu::Bytes4096);
    bed.limit_buffers(2 * BUFFER);
    let length = 30_000;
    let (_, source, remote) = left.memory(vec![1; length]);
    let (_, target, far) = right.memory(vec![2; length]);
    for pair in 0..PAIRS {
        for number in 0..12 {
            let operation = |range| match (pair + number) % 2 {
                0 => SendOperation::RdmaWrite(range),
                _ => SendOperation::RdmaRead(range),
            };
            left.post(pair, 0, operation(far), source);
            right.post(pair, 0, operation(remote), target);
        }
    }
    let mut done = 0;
    for _ in 0..100_000 {
        if done == 2 * 12 * PAIRS {
            break;
        }
        bed.step();
        for end in [&mut left, &mut right] {
            while let Some((_, status)) = end.poll() {
                assert_eq!(status, DtoStatus::Success);
                done += 1;
            }
        }
    }
    assert_eq!(done, 2 * 12 * PAIRS);
    let (most, dropped) = bed.buffered();
    println!("{most} bytes");
    assert_eq!(dropped, 0);
    assert_eq!(repetitions(&left.device) + repetitions(&right.device), 0);
}

fn post_writes(left: &mut End, pair: usize, count: usize, (segment, far): (Segment, RemoteRange)) {
    for _ in 0..count {
        left.post(pair, pair as u64, SendOperation::RdmaWrite(far), segment);
    }
}

/// A queue pair that ends while it has room, waits or has the turn, stops nobody else.
///
/// Spec: ROCE-183
#[test]
fn queue_pairs_that_end_give_their_room_back() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let bed = RoceBed::new();
        let (mut left, mut right) = ends(&bed, PathMtu::Bytes4096);
        bed.limit_buffers(BUFFER);
        let (_, segment, _) = left.memory(vec![1; 50_000]);
        let (_, _, far) = right.memory(vec![2; 50_000]);
        for pair in 0..PAIRS {
            post_writes(&mut left, pair, 4, (segment, far));
        }
        let mut done = [0; PAIRS];
        let (mut ended, mut idle) = (0, 0);
        let open = |left: &End, done: &[usize; PAIRS]| {
            let pairs = left.pairs.iter().zip(done);
            pairs
                .filter(|(pair, _)| pair.is_some())
                .any(|(_, done)| *done < 4)
        };
        while open(&left, &done) {
            bed.go_on();
            idle += 1;
            while let Some((pair, status)) = left.poll() {
                if status == DtoStatus::Success {
                    done[pair as usize] += 1;
                    idle = 0;
                }
            }
            if ended < PAIRS / 2 && random.bool() {
                let pair = random.usize(..PAIRS);
                if let Some(pair) = left.pairs[pair].take() {
                    left.device
                        .destroy_queue_pair(pair.key, pair.send, pair.receive);
                    ended += 1;
                }
            }
            assert!(idle < 10_000, "{done:?}");
        }
        assert!(ended > 10);
    }
}

/// A connection that is gone at a living peer holds its room until the time-out; the others have
/// a minimum meanwhile.
///
/// Spec: ROCE-192
#[test]
fn a_connection_without_answers_leaves_a_minimum_to_others() {
    let bed = RoceBed::new();
    let (mut left, mut right) = ends(&bed, PathMtu::Bytes4096);
    let (_, segment, _) = left.memory(vec![1; 8]);
    let (_, _, far) = right.memory(vec![2; 8]);
    for pair in 0..2 {
        let gone = right.pairs[pair].take().unwrap();
        right
            .device
            .destroy_queue_pair(gone.key, gone.send, gone.receive);
    }
    bed.lose_all();
    // Two windows fill the buffer.
    for pair in 0..2 {
        post_writes(&mut left, pair, 128, (segment, far));
    }
    let start = bed.now();
    post_writes(&mut left, 2, 100, (segment, far));
    let mut done = 0;
    while done < 100 {
        assert!(bed.go_on());
        while let Some((pair, status)) = left.poll() {
            assert_eq!((pair, status), (2, DtoStatus::Success));
            done += 1;
        }
    }
    let passed = bed.now().as_micros() - start.as_micros();
    assert!(passed < 50_000, "{passed} µs");
}

/// Requests that wait for receives hold no room meanwhile.
///
/// Spec: ROCE-78, ROCE-183
#[test]
fn a_peer_without_receives_holds_up_nobody_else() {
    let bed = RoceBed::new();
    let (mut left, mut right) = ends(&bed, PathMtu::Bytes4096);
    let (_, segment, _) = left.memory(vec![1; 50_000]);
    let (_, _, far) = right.memory(vec![2; 50_000]);
    for pair in 0..PAIRS {
        if pair % 2 == 0 {
            for _ in 0..8 {
                left.post(pair, pair as u64, SendOperation::Send, segment);
            }
        } else {
            post_writes(&mut left, pair, 4, (segment, far));
        }
    }
    let mut done = [0; PAIRS];
    let start = bed.now();
    while (1..PAIRS).step_by(2).any(|pair| done[pair] < 4) {
        bed.go_on();
        while let Some((pair, status)) = left.poll() {
            if pair % 2 == 1 {
                assert_eq!(status, DtoStatus::Success);
            }
            done[pair as usize] += 1;
        }
    }
    // Long before the others have used up their repetitions.
    let passed = bed.now().as_micros() - start.as_micros();
    assert!(passed < 1_000_000, "{passed} µs");
}
