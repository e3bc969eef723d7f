//! Tests of adapters below the core: damaged and hostile packets, operations, counts.

use backend_roce::proto::packet::OVERHEAD_MAX;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend as _, CompletionQueue as _, ControlEvent, Count, DisconnectMode, HostDriver, Peek,
    ReceiveRequest, Registration, RemoteRange, Segment, SendFlags, SendOperation, SendRequest,
    WorkQueue as _, WorkSlot as _,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::memory::Region;
use dat_tests::fixture::Testbed as _;
use std::net::{IpAddr, SocketAddr};

use crate::connections::pass;
use crate::network::RoceBed;
use crate::node::{Node, STEPS, check_message, connect, join};

/// Damaged packets, and packets of strangers, change nothing; congestion is counted.
///
/// Spec: ROCE-25, ROCE-26, ROCE-34, ROCE-39
#[test]
fn damaged_and_foreign_packets_change_nothing() {
    let seed = 34;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    check_message(&bed, &mut left, &mut right);
    let log = bed.log();
    let before = right.device.counts();
    for _ in 0..3_000 {
        let (flow, packet) = &log[random.usize(..log.len())];
        let mut bytes = packet.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] ^= random.u8(1..);
        }
        bytes.truncate(random.usize(bytes.len() / 2..=bytes.len()));
        bed.inject(flow, &bytes);
    }
    while bed.step() {}
    let after = right.device.counts();
    let came = after.packets - before.packets;
    let refused = after.bad_icrc + after.dropped - before.bad_icrc - before.dropped;
    // One byte in hundreds is not covered by the ICRC, since switches may change it.
    assert!(came > 1_000 && refused > came * 9 / 10, "{after:?}");
    assert!(after.bad_icrc > before.bad_icrc, "{after:?}");
    check_message(&bed, &mut left, &mut right);

    // A congestion notification of the peer: its opcode, and 16 bytes.
    let (flow, packet) = log
        .iter()
        .rev()
        .find(|(flow, _)| flow.destination_port == 7174)
        .unwrap();
    let mut notification = packet[..12].to_vec();
    notification.resize(32, 0);
    notification[0] = 0x81;
    flow.seal(0, &mut notification).unwrap();
    bed.inject(flow, &notification);
    while bed.step() {}
    assert_eq!(right.device.counts().congestion, 1);
    check_message(&bed, &mut left, &mut right);
}

/// A peer that sends anything, with a right ICRC, reaches nothing that was not granted to it.
///
/// Each receive completes once, and the adapter serves others.
///
/// Spec: ROCE-26, ROCE-39, ROCE-109, ROCE-112, ROCE-124, ROCE-125
#[test]
fn a_hostile_peer_reaches_what_was_granted_only() {
    const GUARD: usize = 4096;
    let seed = 109;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reached = 0;
    for _ in 0..150 {
        let bed = RoceBed::new();
        let (mut left, mut right) = connect(&bed, 7174);
        let guarded = vec![0x5A; 3 * GUARD].leak();
        let address = guarded[GUARD..].as_ptr().addr() as u64;
        #[expect(unsafe_code, reason = "memory of a test, which is leaked")]
        // SAFETY: as in `Node::memory`.
        let region = unsafe { Region::from_raw_parts(guarded[GUARD..].as_mut_ptr(), GUARD) };
        let registration = Registration::new(right.domain, &region, MemoryPrivileges::ALL);
        let keys = right.device.register(&registration).unwrap();
        let target = Segment {
            address,
            length: GUARD as u32,
            key: keys.local,
        };
        let posted = random.u64(..4);
        for token in 0..posted {
            let receives = right.pair.receive.as_mut().unwrap();
            receives.post(&ReceiveRequest { token }, &[target]).unwrap();
        }
        // Operations of an honest peer, whose packets are then bent.
        let (_, source, _) = left.memory(vec![0xC3; 3000]);
        let remote = dat_core::backend::RemoteRange {
            address,
            key: keys.remote,
        };
        for (token, operation) in [
            SendOperation::RdmaWrite(remote),
            SendOperation::RdmaRead(remote),
            SendOperation::Send,
        ]
        .into_iter()
        .enumerate()
        {
            let request = SendRequest {
                token: token as u64,
                operation,
                flags: SendFlags::empty(),
            };
            left.pair.send.post(&request, &[source]).unwrap();
        }
        let log = bed.log();
        let to_right = right.address().socket_address().unwrap();
        let sent: Vec<_> = log
            .iter()
            .filter(|(flow, packet)| to_right.ip() == flow.destination().ip() && packet.len() >= 16)
            .collect();
        for _ in 0..40 {
            let (flow, packet) = sent[random.usize(..sent.len())];
            let mut bytes = packet.clone();
            for _ in 0..random.usize(..4) {
                // Headers more often than data.
                let end = if random.bool() { 44 } else { bytes.len() };
                let at = random.usize(..end.min(bytes.len()));
                bytes[at] = match random.u8(..4) {
                    0 => random.u8(..),
                    1 => bytes[at].wrapping_add(1),
                    2 => bytes[at].wrapping_sub(1),
                    _ => bytes[at] ^ 1 << random.u8(..8),
                };
            }
            // A right opcode and queue pair, with the next PSN or one near it.
            if random.bool() {
                bytes[5..8].copy_from_slice(&packet[5..8]);
                bytes[11] = packet[11].wrapping_add(random.u8(..6));
            }
            if flow.seal(0, &mut bytes).is_some() {
                bed.inject(flow, &bytes);
            }
            if random.bool() {
                bed.step();
            }
        }
        while bed.step() {}
        if random.bool() {
            right.device.deregister(keys);
        }
        let mut completed = Vec::new();
        while let Some(completion) = right.queue.poll().unwrap() {
            completed.push(completion.token);
        }
        right
            .device
            .disconnect(right.pair.key, DisconnectMode::Abrupt);
        while let Some(completion) = right.queue.poll().unwrap() {
            completed.push(completion.token);
        }
        assert_eq!(completed, (0..posted).collect::<Vec<_>>());
        let outside = guarded[..GUARD].iter().chain(&guarded[2 * GUARD..]);
        assert!(outside.into_iter().all(|byte| *byte == 0x5A));
        reached += usize::from(guarded[GUARD..2 * GUARD].iter().any(|byte| *byte != 0x5A));
        // Others are served.
        let (mut near, mut far) = (Node::new(&bed), Node::new(&bed));
        join(&bed, &mut near, &mut far, 7175);
        check_message(&bed, &mut near, &mut far);
    }
    assert!(reached > 50, "{reached}: the packets are refused too early");
}

/// Plain successes are peeked and skipped; other completions are left to a poll.
///
/// Spec: ROCE-85
#[test]
fn plain_successes_are_peeked() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    let (_, source, _) = left.memory(vec![1; 100]);
    let (_, target, _) = right.memory(vec![0; 100]);
    assert_eq!(left.queue.peek(), Peek::Empty);
    let request = |token| SendRequest {
        token,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    };
    for token in [11, 12] {
        let receives = right.pair.receive.as_mut().unwrap();
        receives.post(&ReceiveRequest { token }, &[target]).unwrap();
    }
    for token in [21, 22, 23] {
        left.pair.send.post(&request(token), &[source]).unwrap();
    }
    for _ in 0..STEPS {
        bed.step();
    }
    // The third message finds no receive.
    let length = u32::MAX;
    for token in [21, 22] {
        // Peeks take nothing.
        assert_eq!(left.queue.peek(), Peek::Success { token, length });
        assert_eq!(left.queue.peek(), Peek::Success { token, length });
        left.queue.skip();
        // A skip without a peek takes nothing, either.
        left.queue.skip();
    }
    let length = 100;
    assert_eq!(right.queue.peek(), Peek::Success { token: 11, length });
    assert_eq!(right.queue.poll().unwrap().unwrap().token, 11);
    right.queue.skip();
    assert_eq!(right.queue.peek(), Peek::Success { token: 12, length });
    right.queue.skip();
    assert_eq!(right.queue.peek(), Peek::Empty);
    while bed.go_on() && left.queue.peek() == Peek::Empty {}
    assert_eq!(left.queue.peek(), Peek::Other);
    let failed = left.queue.poll().unwrap().unwrap();
    let expected = (23, DtoStatus::ReceiverNotReady);
    assert_eq!((failed.token, failed.status), expected);
}

/// A Read that the peer does not allow fails, after all earlier requests and before all later ones.
///
/// Spec: DTO-11, ROCE-70, ROCE-85
#[test]
fn requests_end_in_order_where_one_is_not_allowed() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::without_reads(&bed));
    join(&bed, &mut left, &mut right, 7174);
    let (_, source, _) = left.memory(vec![1; 64]);
    let remote = dat_core::backend::RemoteRange {
        address: source.address,
        key: source.key,
    };
    for token in 0..5 {
        let operation = match token {
            2 => SendOperation::RdmaRead(remote),
            _ => SendOperation::Send,
        };
        let request = SendRequest {
            token,
            operation,
            flags: SendFlags::empty(),
        };
        let mut slot = left.pair.send.reserve(&request, 1).unwrap();
        slot.segment(source);
        slot.commit(64).unwrap();
    }
    left.pair.send.ring().unwrap();
    for token in 0..5 {
        let completion = left.queue.poll().unwrap().expect("a completion");
        let status = match token {
            2 => DtoStatus::LocalEndpoint,
            _ => DtoStatus::Flushed,
        };
        assert_eq!((completion.token, completion.status), (token, status));
    }
}

/// A wrong key ends the connection, so that a peer has one guess.
///
/// Spec: ROCE-109, ROCE-123, ROCE-128
#[test]
fn a_guessed_key_ends_the_connection() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    let (_, source, _) = left.memory(vec![1; 64]);
    let (bytes, target, key) = right.memory(vec![0; 64]);
    let write = |node: &mut Node, key: u32| {
        let remote = dat_core::backend::RemoteRange {
            address: target.address,
            key,
        };
        let request = SendRequest {
            token: 3,
            operation: SendOperation::RdmaWrite(remote),
            flags: SendFlags::empty(),
        };
        node.pair.send.post(&request, &[source]).unwrap();
        node.status(&bed)
    };
    assert_eq!(write(&mut left, key), DtoStatus::Success);
    assert!(bytes.iter().all(|byte| *byte == 1));
    assert_eq!(write(&mut left, key ^ 1), DtoStatus::RemoteAccess);
    assert_eq!(write(&mut left, key), DtoStatus::Flushed);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Broken { .. }).then_some(())
    });
}

/// Counts tell the requests, packets and bytes of a connection, and outlive it.
#[test]
fn counts_tell_what_each_side_did() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    check_message(&bed, &mut left, &mut right);
    while bed.step() {}
    let [connection] = left.device.driver().connection_counts()[..] else {
        panic!("not one connection");
    };
    let ip = |address: IaAddress| address.socket_address().unwrap().ip();
    assert_eq!(connection.peer.ip(), ip(right.address()));
    let requester = connection.requester;
    assert_eq!((requester.posts, requester.bytes), (1, 5000));
    // The path MTU is 1024.
    assert_eq!((requester.packets, requester.retransmits), (5, 0));
    let counts = left.device.counts();
    assert_eq!(counts.requester, requester);
    assert_eq!(right.device.counts().responder.executed, 5);
    let from = |address: IaAddress| {
        let log = bed.log();
        let sent = log
            .iter()
            .filter(|(flow, _)| flow.source().ip() == ip(address));
        let lengths: Vec<u64> = sent.map(|(_, packet)| packet.len() as u64).collect();
        (lengths.len() as u64, lengths.iter().sum::<u64>())
    };
    let sent = (counts.packets_sent, counts.bytes_sent);
    assert_eq!(sent, from(left.address()));
    assert_eq!((counts.packets, counts.bytes), from(right.address()));
    let mut reported = Vec::new();
    HostDriver::counts(&left.device.driver(), &mut |count, value| {
        reported.push((count, value));
    });
    for expected in [(Count::PostedBytes, 5000), (Count::RequestPackets, 5)] {
        assert!(reported.contains(&expected), "{expected:?}");
    }
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    let pair = &mut left.pair;
    let reset = left
        .device
        .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut());
    reset.unwrap();
    assert!(left.device.driver().connection_counts().is_empty());
    assert_eq!(left.device.counts().requester, requester);
}

/// The port is told of peers to which packets were lost: their path may have become narrow.
///
/// Spec: ROCE-186
#[test]
fn the_port_is_told_of_lost_packets() {
    let bed = RoceBed::new();
    let attributes = EpAttributes {
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        ..EpAttributes::DEFAULT
    };
    let nodes = [(); 2].map(|()| Node::with_attributes(bed.device(), attributes));
    let [mut left, mut right] = nodes;
    join(&bed, &mut left, &mut right, 7174);
    let (_, here, _) = left.memory(vec![1; 3_000]);
    let (_, there, key) = right.memory(vec![2; 3_000]);
    let (near, far) = (left.address(), right.address());
    let (near, far) = (
        near.socket_address().unwrap(),
        far.socket_address().unwrap(),
    );
    let remote = RemoteRange {
        address: there.address,
        key,
    };
    let mut carry = |operation, silent: Option<IpAddr>| {
        let request = SendRequest {
            token: 1,
            operation,
            flags: SendFlags::empty(),
        };
        if let Some(silent) = silent {
            bed.silence(silent);
        }
        left.pair.send.post(&request, &[here]).unwrap();
        while bed.step() {}
        bed.hear_all();
        pass(&bed, 1);
        // The adapters learn the time.
        bed.step();
        assert_eq!(left.status(&bed), DtoStatus::Success);
        bed.unanswered()
    };
    let ends = |told: Vec<(SocketAddr, usize)>| -> Vec<_> {
        let told = told.into_iter();
        told.map(|(peer, length)| (peer.ip(), length)).collect()
    };
    // Full packets of 1 KiB with the longest headers, and those without payload.
    let (full, empty) = (1_024 + OVERHEAD_MAX, OVERHEAD_MAX);
    assert_eq!(carry(SendOperation::RdmaWrite(remote), None), []);
    assert_eq!(carry(SendOperation::RdmaRead(remote), None), []);
    let lost = carry(SendOperation::RdmaWrite(remote), Some(far.ip()));
    assert_eq!(ends(lost), [(far.ip(), full)]);
    // Responses are lost: their sender is asked again.
    let lost = carry(SendOperation::RdmaRead(remote), Some(near.ip()));
    assert_eq!(ends(lost), [(far.ip(), empty), (near.ip(), full)]);
}
