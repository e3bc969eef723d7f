//! Refusals of `dat_ep_post_rdma_write`.

use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::EpId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, ErrorKind, Subtype};

use super::epw::write;
use crate::fixture::errors::{BAD_EP, EP_FULL, EP_UNCONNECTED};
use crate::fixture::{Memory, Net, Party, PartyOptions, Testbed, granted, refused};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A segment may touch the ends of its region but not pass them.
///
/// A sum that overflows is refused, too.
///
/// Spec: EPW-27, DTO-07, GEN-06
pub fn write_segments_stay_inside_their_region<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    let size = left.memory.len() as u64;
    let to_the_end = u64::MAX - left.memory.address;
    for (offset, length) in [
        (0, size + 1),
        (1, size),
        (size, 1),
        (size + 1, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (0, u64::MAX),
        (1, u64::MAX),
        (8, to_the_end - 7),
        (8, to_the_end - 6),
        (to_the_end, 1),
        (to_the_end, 2),
    ] {
        let good = left.memory.segment(0, 4);
        let bad = left.memory.segment(offset, length);
        for list in [&[bad][..], &[good, bad], &[bad, good]] {
            net.no_effect(&[&left, &right], Error::invalid_argument(3), || {
                write(&left, list, 1, &right.memory.remote(0, 4096), DEFAULT)
            });
        }
    }
    for (cookie, (offset, length)) in [(0, size), (size - 1, 1), (size, 0), (1, size - 1)]
        .into_iter()
        .enumerate()
    {
        let cookie = cookie as u64;
        left.write(
            &[left.memory.segment(offset, length)],
            cookie,
            &right.memory.remote(0, 4096),
            DEFAULT,
        );
        assert_eq!(net.success(&left, cookie).transferred_length, length);
    }
}

/// Null, stale, foreign and wrong-kind endpoints are refused before any other check.
///
/// The error is INVALID_HANDLE/EP.
///
/// Spec: EPW-28, GEN-03, GEN-11, DTO-07
pub fn write_refuses_bad_endpoints<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let freed = granted(left.another_ep(None));
    granted(left.ia.ep_free(freed));
    let expected = BAD_EP;
    for ep in [
        EpId::NULL,
        freed,
        right.ep,
        EpId::from_handle(left.zone.handle()),
        EpId::from_handle(left.request.handle()),
        EpId::from_handle(left.ia.handle()),
        EpId::from_handle(dat_core::id::Handle::from_raw(u64::MAX)),
    ] {
        net.no_effect(&[&left, &right], expected, || {
            left.ia.post_rdma_write(
                ep,
                &[left.memory.segment(0, u64::MAX)],
                1,
                &right.memory.remote(0, 8),
                CompletionFlags::from_bits_retain(u32::MAX),
            )
        });
    }
}

/// LENGTH_ERROR is returned exactly if the remote range is shorter than the data.
///
/// Spec: EPW-30, GEN-06
pub fn write_needs_a_long_enough_remote_range<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let segments = [left.memory.segment(0, 10), left.memory.segment(20, 6)];
    for length in [15, 1, 0] {
        net.no_effect(&[&left, &right], Error::length(), || {
            write(
                &left,
                &segments,
                1,
                &right.memory.remote(0, length),
                DEFAULT,
            )
        });
    }
    for length in [16, 17, 4096] {
        left.write(&segments, length, &right.memory.remote(0, length), DEFAULT);
        assert_eq!(net.success(&left, length).transferred_length, 16);
    }
}

/// Every region of the list must be in the zone of the endpoint.
///
/// Spec: EPW-31, DTO-07, EPC-01, LMC-08
pub fn write_refuses_regions_of_other_zones<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let zone = granted(left.ia.pz_create());
    let other = Memory::register(&left.ia, zone, 64, MemoryPrivileges::ALL);
    let good = left.memory.segment(0, 4);
    let remote = right.memory.remote(0, 64);
    let expected = Error::protection_violation(Subtype::ProtectionRead);
    for list in [
        &[other.segment(0, 4)][..],
        &[good, other.segment(0, 4)],
        &[other.segment(0, 4), good],
    ] {
        net.no_effect(&[&left, &right], expected, || {
            write(&left, list, 1, &remote, DEFAULT)
        });
    }
    left.write(&[other.segment(0, 0), good], 2, &remote, DEFAULT);
    net.success(&left, 2);
}

/// Every region of the list must exist and allow local reads.
///
/// Spec: EPW-33, DTO-07, LMF-02
pub fn write_refuses_dead_and_unreadable_regions<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let freed = left.more_memory(64, MemoryPrivileges::ALL);
    granted(left.ia.lmr_free(freed.lmr));
    let unreadable = left.more_memory(
        64,
        MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_READ,
    );
    let readable = left.more_memory(64, MemoryPrivileges::LOCAL_READ);
    let unknown = |context| LmrTriplet {
        context,
        ..left.memory.segment(0, 4)
    };
    let expected = Error::privileges_violation(Subtype::PrivilegesRead);
    for bad in [
        freed.segment(0, 4),
        unreadable.segment(0, 4),
        unknown(0),
        unknown(u32::MAX),
        unknown(left.memory.context ^ 0x0001_0000),
        unknown(left.memory.context ^ 0x8000_0000),
    ] {
        for list in [&[bad][..], &[left.memory.segment(0, 4), bad]] {
            net.no_effect(&[&left, &right], expected, || {
                write(&left, list, 1, &right.memory.remote(0, 64), DEFAULT)
            });
        }
    }
    let list = [readable.segment(0, 4)];
    left.write(&list, 2, &right.memory.remote(0, 64), DEFAULT);
    net.success(&left, 2);
}

/// SOLICITED_WAIT is accepted without effect; undefined bits are refused as argument 6.
///
/// UNSIGNALLED is refused like them unless the endpoint is configured for it.
///
/// Spec: EPW-37, DTO-04, DTO-05
pub fn write_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    for bit in (0..32).filter(|bit| !matches!(bit, 0 | 1 | 3)) {
        let flags = CompletionFlags::from_bits_retain(1 << bit);
        net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
            write(&left, &segment, 1, &remote, flags)
        });
    }
    let all = CompletionFlags::SUPPRESS
        | CompletionFlags::SOLICITED_WAIT
        | CompletionFlags::BARRIER_FENCE;
    left.write(&segment, 2, &remote, CompletionFlags::SOLICITED_WAIT);
    left.write(&segment, 3, &remote, all);
    left.write(&segment, 4, &remote, CompletionFlags::BARRIER_FENCE);
    net.success(&left, 2);
    net.success(&left, 4);
    net.quiet(&left);
    net.quiet(&right);
}

/// The smaller of two attributes limits the number of segments, empty ones included.
///
/// Spec: EPW-38, DTO-07
pub fn write_segment_count_is_limited<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for (write_iov, request_iov) in [(3, 4), (4, 3)] {
        let (left, right) = net.pair(&PartyOptions::with(|attributes| {
            attributes.max_rdma_write_iov = write_iov;
            attributes.max_request_iov = request_iov;
        }));
        let segment = left.memory.segment(0, 2);
        let remote = right.memory.remote(0, 64);
        let too_many = [
            &[segment; 4][..],
            &[LmrTriplet::default(); 4],
            &[segment; 5],
        ];
        for list in too_many {
            net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
                write(&left, list, 1, &remote, DEFAULT)
            });
        }
        left.write(&[segment; 3], 2, &remote, DEFAULT);
        assert_eq!(net.success(&left, 2).transferred_length, 6);
    }
}

/// The attribute `max_rdma_size` limits the total of a write, summed without overflow.
///
/// Spec: EPW-40, DTO-07
pub fn write_total_is_limited<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_rdma_size = 64;
    }));
    let remote = right.memory.remote(0, 4096);
    for list in [
        &[left.memory.segment(0, 65)][..],
        &[left.memory.segment(0, 64), left.memory.segment(0, 1)],
        &[left.memory.segment(0, 4096); 4],
    ] {
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            write(&left, list, 1, &remote, DEFAULT)
        });
    }
    let list = [left.memory.segment(0, 63), left.memory.segment(9, 1)];
    left.write(&list, 2, &remote, DEFAULT);
    assert_eq!(net.success(&left, 2).transferred_length, 64);
}

/// With several faults, the first check decides the error.
///
/// Their order is: handle, state, flags, count; for each segment region, zone, privilege, bounds;
/// then lengths; then room.
///
/// Spec: DTO-07, EPW-27..31, EPW-33, EPW-37, EPW-38, EPW-40
pub fn write_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 1;
        attributes.max_request_iov = 2;
        attributes.max_rdma_size = 1024;
    });
    let (left, right) = net.pair(&options);
    let idle = Party::<T>::new(&left.ia, &options);
    let zone = granted(left.ia.pz_create());
    let foreign = Memory::register(&left.ia, zone, 64, MemoryPrivileges::LOCAL_WRITE);
    let unreadable = left.more_memory(64, MemoryPrivileges::LOCAL_WRITE);
    let unknown = LmrTriplet {
        context: u32::MAX,
        address: 0,
        length: 1,
    };
    let short = RmrTriplet::default();
    let long = right.memory.remote(0, 4096);
    let bad_flags = CompletionFlags::EVD_THRESHOLD;
    // The queue is full from here on, so that any valid request would be refused for room.
    left.write(&[], 0, &short, DEFAULT);
    let argument = Error::invalid_argument;
    let read = |kind| Error::new(kind, Subtype::PrivilegesRead);
    let three = [unknown; 3];
    let cases: [(EpId, &[LmrTriplet], RmrTriplet, CompletionFlags, Error); 11] = [
        (EpId::NULL, &three, short, bad_flags, BAD_EP),
        (idle.ep, &three, short, bad_flags, EP_UNCONNECTED),
        (left.ep, &three, short, bad_flags, argument(6)),
        (left.ep, &three, short, DEFAULT, argument(2)),
        (
            left.ep,
            &[unknown, foreign.segment(0, 99)],
            short,
            DEFAULT,
            read(ErrorKind::PrivilegesViolation),
        ),
        (
            left.ep,
            &[foreign.segment(0, 99), unknown],
            short,
            DEFAULT,
            Error::protection_violation(Subtype::ProtectionRead),
        ),
        (
            left.ep,
            &[unreadable.segment(0, 99), unknown],
            short,
            DEFAULT,
            read(ErrorKind::PrivilegesViolation),
        ),
        (
            left.ep,
            &[left.memory.segment(0, 4097), unknown],
            short,
            DEFAULT,
            argument(3),
        ),
        (
            left.ep,
            &[left.memory.segment(0, 1025)],
            short,
            DEFAULT,
            argument(2),
        ),
        (
            left.ep,
            &[left.memory.segment(0, 8)],
            short,
            DEFAULT,
            Error::length(),
        ),
        (
            left.ep,
            &[left.memory.segment(0, 8)],
            long,
            DEFAULT,
            EP_FULL,
        ),
    ];
    for (ep, list, remote, flags, expected) in cases {
        refused(
            left.ia.post_rdma_write(ep, list, 1, &remote, flags),
            expected,
        );
    }
    net.success(&left, 0);
    net.quiet(&left);
    net.check_transfer(&left, &right);
}
