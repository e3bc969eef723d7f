//! RDMA Reads: `dat_ep_post_rdma_read`.

use dat_core::Error;
use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::memory::RmrTriplet;

use super::post::{DEFAULT, Post, bad_endpoints, bad_segments, checks_in_order};
use crate::fixture::errors::{BAD_EP, EP_FULL, EP_UNCONNECTED};
use crate::fixture::{
    MakeTarget, Memory, Net, PartyOptions, Testbed, equal, granted, refused, same_bytes,
};

/// A read scatters the remote range over the local segments in list order.
///
/// The rest of longer segments does not change.
///
/// Spec: EPB-01, EPB-02, DTO-01, DTO-03
pub fn read_scatters_in_list_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let source = right.memory.load(300, 25);
    let mut expected = left.memory.content();
    expected[90..100].copy_from_slice(&source[..10]);
    expected[0..15].copy_from_slice(&source[10..]);
    let before = right.memory.content();
    let segments = [
        left.memory.segment(90, 10),
        left.memory.segment(50, 0),
        left.memory.segment(0, 40),
        left.memory.segment(200, 40),
    ];
    left.read(&segments, 5, &right.memory.remote(300, 25), DEFAULT);
    let completion = net.success(&left, 5);
    assert_eq!(
        (
            completion.ep,
            completion.operation,
            completion.transferred_length
        ),
        (left.ep, DtoOperation::RdmaRead, 25)
    );
    equal("the local memory", &left.memory.content(), &expected);
    equal("the peer's memory", &right.memory.content(), &before);
    net.quiet(&left);
    net.quiet(&right);
}

/// LENGTH_ERROR is returned exactly if the segments are shorter than the remote range.
///
/// Spec: EPB-02, EPB-04
pub fn read_needs_enough_local_room<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let segments = [left.memory.segment(0, 10), left.memory.segment(20, 6)];
    for length in [17, 4096, u64::MAX] {
        net.no_effect(&[&left, &right], Error::length(), || {
            let remote = right.memory.remote(0, length);
            left.ia
                .post_rdma_read(left.ep, &segments, 1, &remote, DEFAULT)
        });
    }
    for length in [16, 15, 0] {
        let remote = right.memory.remote(0, length);
        left.read(&segments, 2, &remote, DEFAULT);
        assert_eq!(net.success(&left, 2).transferred_length, length);
    }
    let nothing = RmrTriplet::default();
    left.read(&[], 3, &nothing, DEFAULT);
    assert_eq!(net.success(&left, 3).transferred_length, 0);
}

/// A Read takes SUPPRESS, BARRIER_FENCE and SOLICITED_WAIT, the last without effect.
///
/// Other flags are refused as argument 6.
///
/// Spec: EPB-01, EPW-37, DTO-04, DTO-05
pub fn read_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    for bit in (0..32).filter(|bit| !matches!(bit, 0 | 1 | 3)) {
        let flags = CompletionFlags::from_bits_retain(1 << bit);
        net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
            left.ia.post_rdma_read(left.ep, &segment, 1, &remote, flags)
        });
    }
    for flags in [
        CompletionFlags::SOLICITED_WAIT,
        CompletionFlags::BARRIER_FENCE,
        CompletionFlags::SUPPRESS,
    ] {
        left.read(&segment, 2, &remote, flags);
        if flags != CompletionFlags::SUPPRESS {
            net.success(&left, 2);
        }
        net.quiet(&left);
    }
}

/// A fenced Read starts after earlier ones completed, so it can fetch what they brought.
///
/// The peer opens the memory that the first Read fills.
///
/// Spec: DTO-04, EPB-01
pub fn fenced_read_fetches_what_an_earlier_one_brought<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let (ia, zone, block) = (&right.ia, right.zone, left.memory.block());
    let opened = Memory::register_block(ia, zone, block, MemoryPrivileges::ALL);
    for round in 0..16 {
        right.memory.fill(round);
        left.memory.fill(100 + round);
        let first = [left.memory.segment(0, 1024)];
        left.read(&first, 1, &right.memory.remote(0, 1024), DEFAULT);
        left.read(
            &[left.memory.segment(2048, 1024)],
            2,
            &opened.remote(0, 1024),
            CompletionFlags::BARRIER_FENCE,
        );
        net.success(&left, 1);
        net.success(&left, 2);
        same_bytes("the copy", (&left.memory, 2048), (&right.memory, 0), 1024);
    }
}

/// A Read is allowed in CONNECTED, flushed in DISCONNECTED, refused in UNCONNECTED.
///
/// A suppressed one is flushed, too.
///
/// Spec: EPB-03, EPB-06, DTO-10
pub fn read_follows_the_endpoint_state<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    net.no_effect(&[&left, &right], EP_UNCONNECTED, || {
        left.ia
            .post_rdma_read(left.ep, &segment, 1, &remote, DEFAULT)
    });
    net.connect(&left, &right);
    net.disconnect(&left, &right);
    for flags in [DEFAULT, CompletionFlags::SUPPRESS] {
        left.read(&segment, 2, &remote, flags);
        let completion = net.request_completion(&left);
        assert_eq!(
            (completion.operation, completion.cookie, completion.status),
            (DtoOperation::RdmaRead, 2, DtoStatus::Flushed)
        );
    }
}

/// A Read checks its endpoint, segments, total and room at once.
///
/// The checks of a segment are region, zone, LOCAL_WRITE and bounds; their number is checked, too.
///
/// Spec: EPB-04, EPB-07, DTO-07, GEN-03, GEN-11
pub fn read_checks_its_segments<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for (read_iov, request_iov) in [(2, 4), (4, 2)] {
        let (left, right) = net.pair(&PartyOptions::with(|attributes| {
            attributes.max_request_dtos = 2;
            attributes.max_rdma_read_iov = read_iov;
            attributes.max_request_iov = request_iov;
            attributes.max_rdma_size = 64;
        }));
        let good = left.memory.segment(0, 8);
        let remote = right.memory.remote(0, 8);
        for (bad, expected) in bad_segments(&left, true) {
            for list in [&[bad][..], &[good, bad]] {
                net.no_effect(&[&left, &right], expected, || {
                    left.ia.post_rdma_read(left.ep, list, 1, &remote, DEFAULT)
                });
            }
        }
        for ep in bad_endpoints(&left, &right) {
            net.no_effect(&[&left, &right], BAD_EP, || {
                left.ia.post_rdma_read(ep, &[good], 1, &remote, DEFAULT)
            });
        }
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            left.ia
                .post_rdma_read(left.ep, &[good; 3], 1, &remote, DEFAULT)
        });
        let all = [left.memory.segment(0, 4096)];
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            let remote = right.memory.remote(0, 65);
            left.ia.post_rdma_read(left.ep, &all, 1, &remote, DEFAULT)
        });
        for cookie in 0..2 {
            left.read(&all, cookie, &right.memory.remote(0, 64), DEFAULT);
        }
        refused(
            left.ia.post_rdma_read(left.ep, &all, 9, &remote, DEFAULT),
            EP_FULL,
        );
        net.success(&left, 0);
        net.success(&left, 1);
    }
}

/// A fault that only the peer can detect ends with REMOTE_ACCESS and a broken connection.
///
/// No local byte changes.
///
/// Spec: EPB-04, DTO-08, DTO-12
pub fn remote_faults_of_a_read_break_the_connection<T: Testbed>(bed: &T) {
    let cases: [(&str, MakeTarget<T>); 5] = [
        ("another zone", |right| {
            let zone = granted(right.ia.pz_create());
            Memory::register(&right.ia, zone, 64, MemoryPrivileges::ALL).remote(0, 64)
        }),
        ("no remote read", |right| {
            let privileges = MemoryPrivileges::ALL.difference(MemoryPrivileges::REMOTE_READ);
            right.more_memory(64, privileges).remote(0, 64)
        }),
        ("unknown context", |right| RmrTriplet {
            context: right.memory.remote_context ^ 0x5555_0000,
            ..right.memory.remote(0, 64)
        }),
        ("past the end", |right| right.memory.remote(4096 - 63, 64)),
        ("a freed region", |right| {
            let freed = right.more_memory(64, MemoryPrivileges::ALL);
            granted(right.ia.lmr_free(freed.lmr));
            freed.remote(0, 64)
        }),
    ];
    for (case, remote) in cases {
        let (net, left, right) = Net::connected(bed);
        let remote = remote(&right);
        let segment = [left.memory.segment(0, 64)];
        left.read(&segment, 1, &remote, DEFAULT);
        let completion = net.request_completion(&left);
        assert_eq!(
            (completion.cookie, completion.status),
            (1, DtoStatus::RemoteAccess),
            "{case}"
        );
        net.broken(&left, &right);
        equal(case, &left.memory.content(), &[0; 4096]);
        net.quiet(&left);
        net.quiet(&right);
    }
}

/// Reads beyond the depth of the endpoint wait in its queue and complete in order.
///
/// Spec: EPB-05, DTO-11
pub fn reads_beyond_the_depth_wait_their_turn<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_rdma_read_in = 1;
        attributes.max_rdma_read_out = 1;
    }));
    right.memory.fill(6);
    for cookie in 0..16 {
        left.read(
            &[left.memory.segment(cookie * 64, 64)],
            cookie,
            &right.memory.remote(cookie * 64, 64),
            DEFAULT,
        );
    }
    for cookie in 0..16 {
        net.success(&left, cookie);
    }
    same_bytes("what was read", (&left.memory, 0), (&right.memory, 0), 1024);
}

/// A Read with several faults is refused for the first in checking order.
///
/// Spec: DTO-07
pub fn read_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let post: Post<T> =
        |party, ep, list, remote, flags| party.ia.post_rdma_read(ep, list, 1, remote, flags);
    checks_in_order(bed, post, (6, 2), true, true);
}

/// An endpoint that posts no Reads says so after the flags and before the segments.
///
/// Spec: DTO-07, EPB-07
pub fn reads_without_a_depth_are_refused_in_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_rdma_read_out = 0;
    }));
    let remote = right.memory.remote(0, 8);
    let (bad, unknown) = (
        CompletionFlags::from_bits_retain(1 << 4),
        RmrTriplet::default(),
    );
    let outside = [left.memory.segment(4096, 8)];
    for (segments, remote, flags, argument) in [
        (&outside[..], remote, bad, 6),
        (&outside, remote, DEFAULT, 2),
        (&[], unknown, DEFAULT, 2),
    ] {
        net.no_effect(&[&left, &right], Error::invalid_argument(argument), || {
            left.ia.post_rdma_read(left.ep, segments, 1, &remote, flags)
        });
    }
}
