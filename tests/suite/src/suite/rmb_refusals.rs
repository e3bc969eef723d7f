//! Refusals of `dat_rmr_bind`.

use dat_core::flags::{
    CompletionFlags, DtoStatus, EvdFlags, IaFields, MemoryPrivileges, ProviderFields,
};
use dat_core::id::{EpId, RmrId};
use dat_core::memory::LmrTriplet;
use dat_core::{Error, ErrorKind, Subtype};

use super::rmb::{DEFAULT, READ, WRITE, bind, read_through, through, window, write_through};
use crate::fixture::errors::{BAD_EP, BAD_RMR};
use crate::fixture::{Memory, Net, PartyOptions, Testbed, WindowlessTestbed, granted, refused};

/// BARRIER_FENCE and SOLICITED_WAIT are accepted; undefined bits are refused as argument 6.
///
/// UNSIGNALLED is refused like them unless the endpoint is configured for it.
///
/// Spec: RMB-07..09, RMB-43, DTO-04, DTO-05
pub fn bind_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    for bit in (0..32).filter(|bit| !matches!(bit, 0 | 1 | 3)) {
        let flags = CompletionFlags::from_bits_retain(1 << bit);
        net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
            right.ia.rmr_bind(rmr, &segment, WRITE, right.ep, 1, flags)
        });
    }
    for flags in [
        CompletionFlags::BARRIER_FENCE,
        CompletionFlags::SOLICITED_WAIT,
    ] {
        right.bind(rmr, &segment, WRITE, 1, flags);
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
    }
}

/// Remote rights need the matching local rights of the region, not its remote rights.
///
/// Spec: RMB-25, RMB-26, RMB-39, RMB-45
pub fn bind_needs_matching_local_rights<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let local = [
        MemoryPrivileges::empty(),
        MemoryPrivileges::LOCAL_READ,
        MemoryPrivileges::LOCAL_WRITE,
        MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    ];
    for has in local {
        let memory = right.more_memory(64, has);
        for asks in [MemoryPrivileges::empty(), READ, WRITE, READ | WRITE] {
            let read = asks.contains(READ) && !has.contains(MemoryPrivileges::LOCAL_READ);
            let write = asks.contains(WRITE) && !has.contains(MemoryPrivileges::LOCAL_WRITE);
            let segment = memory.segment(0, 64);
            let call = || right.ia.rmr_bind(rmr, &segment, asks, right.ep, 1, DEFAULT);
            if read || write {
                let subtype = if read {
                    Subtype::PrivilegesRead
                } else {
                    Subtype::PrivilegesWrite
                };
                let expected = Error::privileges_violation(subtype);
                net.no_effect(&[&left, &right], expected, call);
                continue;
            }
            let context = granted(call());
            assert_eq!(net.bound(&right).status, DtoStatus::Success);
            let remote = through(context, &segment);
            if asks.contains(WRITE) {
                assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
            }
            if asks.contains(READ) {
                assert_eq!(read_through(&net, &left, &remote), DtoStatus::Success);
            }
        }
    }
}

/// The range must lie in its region, also if the arithmetic overflows.
///
/// Spec: RMB-02, RMB-35
pub fn bind_range_stays_inside_its_region<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let size = right.memory.len() as u64;
    for (offset, length) in [
        (0, size + 1),
        (size, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (0, u64::MAX),
        (1, u64::MAX),
        (8, u64::MAX - right.memory.address - 7),
    ] {
        let segment = right.memory.segment(offset, length);
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            right
                .ia
                .rmr_bind(rmr, &segment, WRITE, right.ep, 1, DEFAULT)
        });
    }
    for (offset, length) in [(0, size), (size - 1, 1), (0, 1)] {
        let segment = right.memory.segment(offset, length);
        bind(&net, &right, rmr, &segment, WRITE);
    }
}

/// Null, stale, foreign and wrong-kind handles are refused as INVALID_HANDLE of their kind.
///
/// Spec: RMB-36, GEN-03, GEN-11, EVC-05
pub fn bind_refuses_bad_handles<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    let freed = window(&right);
    granted(right.ia.rmr_free(freed));
    let foreign = window(&left);
    for bad in [
        RmrId::NULL,
        freed,
        foreign,
        RmrId::from_handle(right.memory.lmr.handle()),
    ] {
        let expected = BAD_RMR;
        net.no_effect(&[&left, &right], expected, || {
            right
                .ia
                .rmr_bind(bad, &segment, WRITE, right.ep, 1, DEFAULT)
        });
    }
    for bad in [EpId::NULL, left.ep, EpId::from_handle(rmr.handle())] {
        let expected = BAD_EP;
        net.no_effect(&[&left, &right], expected, || {
            right.ia.rmr_bind(rmr, &segment, WRITE, bad, 1, DEFAULT)
        });
    }
    // An endpoint whose request dispatcher takes only transfers.
    let ia = &right.ia;
    let evd = granted(ia.evd_create(4, None, EvdFlags::DTO));
    let attributes = PartyOptions::default().attributes;
    let (zone, connect) = (Some(right.zone), Some(right.connect));
    let ep = granted(ia.ep_create(zone, Some(evd), Some(evd), connect, Some(&attributes)));
    let expected = Error::invalid_handle(Subtype::InvalidHandleEvdRequest);
    net.no_effect(&[&left, &right], expected, || {
        ia.rmr_bind(rmr, &segment, WRITE, ep, 1, DEFAULT)
    });
}

/// Region, window and endpoint must be in one zone.
///
/// An unknown region is a PRIVILEGES_VIOLATION.
///
/// Spec: RMB-39..41
pub fn bind_needs_one_zone<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let zone = granted(right.ia.pz_create());
    let elsewhere = Memory::register(&right.ia, zone, 64, MemoryPrivileges::ALL);
    let other_window = granted(right.ia.rmr_create(zone));
    let rmr = window(&right);
    let here = right.memory.segment(0, 64);
    let there = elsewhere.segment(0, 64);
    for (window, segment) in [(rmr, there), (other_window, here), (other_window, there)] {
        let outcome = right
            .ia
            .rmr_bind(window, &segment, WRITE, right.ep, 1, DEFAULT);
        let error = outcome.expect_err("zones differ");
        assert_eq!(error.kind(), ErrorKind::ProtectionViolation, "{error}");
    }
    let freed = right.more_memory(64, MemoryPrivileges::ALL);
    granted(right.ia.lmr_free(freed.lmr));
    for context in [0, u32::MAX, freed.context] {
        let segment = LmrTriplet { context, ..here };
        let outcome = right
            .ia
            .rmr_bind(rmr, &segment, WRITE, right.ep, 1, DEFAULT);
        let error = outcome.expect_err("no such region");
        assert_eq!(error.kind(), ErrorKind::PrivilegesViolation, "{error}");
    }
    net.quiet(&right);
    granted(right.ia.lmr_free(elsewhere.lmr));
    net.check_transfer(&left, &right);
}

/// Privilege bits outside ALL are refused as argument 3; ALL and NONE are accepted.
///
/// Spec: RMB-03, RMB-43
pub fn bind_privileges_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    for bit in 0..32 {
        let privileges = MemoryPrivileges::from_bits_retain(1 << bit);
        if MemoryPrivileges::ALL.contains(privileges) {
            bind(&net, &right, rmr, &segment, privileges);
        } else {
            net.no_effect(&[&left, &right], Error::invalid_argument(3), || {
                right
                    .ia
                    .rmr_bind(rmr, &segment, privileges, right.ep, 1, DEFAULT)
            });
        }
    }
    bind(&net, &right, rmr, &segment, MemoryPrivileges::empty());
    let context = bind(&net, &right, rmr, &segment, MemoryPrivileges::ALL);
    let remote = through(context, &segment);
    assert_eq!(read_through(&net, &left, &remote), DtoStatus::Success);
    assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
}

/// A device without memory windows reports MODEL_NOT_SUPPORTED.
///
/// Spec: RMB-38
pub fn bind_needs_windows<T: WindowlessTestbed>(bed: &T) {
    let net = Net::new(bed);
    let ia = net.adapter_over(bed.windowless_device());
    let zone = granted(ia.pz_create());
    let attributes = granted(ia.ia_query(IaFields::all(), ProviderFields::empty())).ia;
    assert_eq!(attributes.max_rmrs, 0);
    refused(ia.rmr_create(zone), Error::model_not_supported());
    // The refused region does not hold the zone.
    granted(ia.pz_free(zone));
}

/// A bind with several faults is refused for the first in checking order.
///
/// The order is: flags, privilege bits, zone, privilege, bounds.
///
/// Spec: DTO-07, RMB-25, RMB-26, RMB-35, RMB-41, RMB-43
pub fn bind_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let zone = granted(right.ia.pz_create());
    let elsewhere = Memory::register(&right.ia, zone, 64, MemoryPrivileges::empty());
    let lacking = right.more_memory(64, MemoryPrivileges::empty());
    let rmr = window(&right);
    let unknown = MemoryPrivileges::from_bits_retain(0x100);
    let bad_flags = CompletionFlags::EVD_THRESHOLD;
    let missing = Error::privileges_violation(Subtype::PrivilegesWrite);
    let cases = [
        (
            elsewhere.segment(0, 65),
            unknown,
            bad_flags,
            Error::invalid_argument(6),
        ),
        (
            elsewhere.segment(0, 65),
            unknown,
            DEFAULT,
            Error::invalid_argument(3),
        ),
        (
            elsewhere.segment(0, 65),
            WRITE,
            DEFAULT,
            Error::protection_violation(Subtype::ProtectionWrite),
        ),
        (lacking.segment(0, 65), WRITE, DEFAULT, missing),
        (
            right.memory.segment(0, 4097),
            WRITE,
            DEFAULT,
            Error::invalid_argument(2),
        ),
    ];
    for (segment, privileges, flags, expected) in cases {
        refused(
            right
                .ia
                .rmr_bind(rmr, &segment, privileges, right.ep, 1, flags),
            expected,
        );
    }
    net.quiet(&right);
    net.check_transfer(&left, &right);
}
