//! Remote memory regions from creation over bind, rebind and unbind to free.

use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges, RmrFields};
use dat_core::id::RmrId;
use dat_core::memory::LmrTriplet;
use dat_core::{Error, ErrorKind, Subtype};

use super::rmb::{READ, WRITE, bind, through, window, write_through};
use crate::fixture::errors::{BAD_PZ, BAD_RMR, LMR_IN_USE, PZ_IN_USE};
use crate::fixture::{Net, Party, PartyOptions, Testbed, equal, granted, refused};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A new remote memory region is unbound and holds its zone; a query follows its binds.
///
/// Spec: RMC-01, RMQ-01, PZF-01, GEN-08
pub fn rmr_query_follows_the_binding<T: Testbed>(bed: &T) {
    let (net, _left, right) = Net::connected(bed);
    for bad in [
        dat_core::id::PzId::NULL,
        dat_core::id::PzId::from_handle(right.ep.handle()),
    ] {
        refused(right.ia.rmr_create(bad), BAD_PZ);
    }
    let zone = granted(right.ia.pz_create());
    let alone = granted(right.ia.rmr_create(zone));
    refused(right.ia.pz_free(zone), PZ_IN_USE);
    granted(right.ia.rmr_free(alone));
    granted(right.ia.pz_free(zone));

    let rmr = window(&right);
    let unbound = granted(right.ia.rmr_query(rmr, RmrFields::all()));
    assert_eq!((unbound.ia, unbound.pz), (right.ia.handle(), right.zone));
    assert!(unbound.binding.is_none());
    let segment = right.memory.segment(10, 20);
    let context = bind(&net, &right, rmr, &segment, READ);
    let bound = granted(right.ia.rmr_query(rmr, RmrFields::all()));
    assert_eq!((bound.ia, bound.pz), (right.ia.handle(), right.zone));
    let binding = bound.binding.expect("a binding");
    assert_eq!(
        (binding.lmr_triplet, binding.privileges, binding.rmr_context),
        (segment, READ, context)
    );
    refused(
        right.ia.rmr_query(rmr, RmrFields::from_bits_retain(0x20)),
        Error::invalid_argument(2),
    );
    granted(right.ia.rmr_query(rmr, RmrFields::empty()));
    granted(right.ia.rmr_free(rmr));
    let dead = BAD_RMR;
    refused(right.ia.rmr_query(rmr, RmrFields::all()), dead);
    refused(right.ia.rmr_free(rmr), dead);
}

/// A bound region can be freed: it unbinds and releases its memory.
///
/// Its context opens nothing afterwards.
///
/// Spec: RMF-01, RMF-02
pub fn rmr_free_unbinds<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    let segment = memory.segment(0, 64);
    let rmr = window(&right);
    let context = bind(&net, &right, rmr, &segment, WRITE);
    refused(right.ia.lmr_free(memory.lmr), LMR_IN_USE);
    granted(right.ia.rmr_free(rmr));
    left.memory.fill(1);
    let status = write_through(&net, &left, &through(context, &segment));
    assert_eq!(status, DtoStatus::RemoteAccess);
    equal("the memory", &memory.content(), &[0; 64]);
    net.broken(&left, &right);
    granted(right.ia.lmr_free(memory.lmr));
    for bad in [RmrId::NULL, RmrId::from_handle(right.zone.handle())] {
        refused(right.ia.rmr_free(bad), BAD_RMR);
    }
}

/// A flushed rebind keeps the old binding; only that holds its region.
///
/// Spec: RMB-42
pub fn flushed_rebind_keeps_the_old_binding<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let old = right.more_memory(64, MemoryPrivileges::ALL);
    let new = right.more_memory(64, MemoryPrivileges::ALL);
    let context = bind(&net, &right, rmr, &old.segment(0, 64), WRITE);
    net.disconnect(&left, &right);
    right.bind(rmr, &new.segment(0, 64), WRITE, 2, DEFAULT);
    assert_eq!(net.bound(&right).status, DtoStatus::Flushed);
    granted(right.ia.lmr_free(new.lmr));
    refused(right.ia.lmr_free(old.lmr), LMR_IN_USE);
    granted(right.ia.ep_reset(right.ep));
    granted(left.ia.ep_reset(left.ep));
    net.connect(&left, &right);
    let remote = through(context, &old.segment(0, 64));
    assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
    granted(right.ia.rmr_free(rmr));
    granted(right.ia.lmr_free(old.lmr));
}

/// The old context opens nothing once a rebind has completed.
///
/// Spec: RMB-10, RMB-11, RMB-21, RMB-42
pub fn rebind_kills_the_old_context<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let first = right.memory.segment(0, 64);
    let second = right.memory.segment(64, 64);
    let old = bind(&net, &right, rmr, &first, WRITE);
    let new = bind(&net, &right, rmr, &second, WRITE);
    assert_ne!(old, new);
    let remote = through(new, &second);
    assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
    left.memory.fill(1);
    let before = right.memory.content();
    let status = write_through(&net, &left, &through(old, &first));
    assert_eq!(status, DtoStatus::RemoteAccess);
    equal("the peer's memory", &right.memory.content(), &before);
    net.broken(&left, &right);
}

/// A window bound through two endpoints keeps the later bind.
///
/// The order in which the dispatchers are polled does not matter.
///
/// Spec: RMB-42, RMQ-01, LMF-01
pub fn binds_polled_in_any_order_leave_the_last<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let in_use = LMR_IN_USE;
    for unbinds in [false, true] {
        let (left, right) = net.pair(&options);
        let (other_left, other) = (
            Party::in_zone(&left.ia, left.zone, &options),
            Party::in_zone(&right.ia, right.zone, &options),
        );
        net.connect(&other_left, &other);
        let ia = &right.ia;
        let rmr = window(&right);
        let old = right.more_memory(64, MemoryPrivileges::ALL);
        let new = right.more_memory(64, MemoryPrivileges::ALL);
        let segment = new.segment(0, if unbinds { 0 } else { 64 });
        let suppress = CompletionFlags::SUPPRESS;
        granted(ia.rmr_bind(rmr, &old.segment(0, 64), WRITE, right.ep, 1, DEFAULT));
        // The device has carried out the first bind before the second one is posted.
        net.run_to_idle();
        let context = granted(ia.rmr_bind(rmr, &segment, WRITE, other.ep, 2, DEFAULT));
        assert_eq!(net.bound(&other).status, DtoStatus::Success);
        let tell = || granted(ia.rmr_query(rmr, RmrFields::all())).binding;
        let param = tell();
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        assert_eq!(tell(), param);
        granted(ia.lmr_free(old.lmr));
        if unbinds {
            assert_eq!(param, None);
            granted(ia.lmr_free(new.lmr));
        } else {
            assert_eq!(param.map(|binding| binding.rmr_context), Some(context));
            refused(ia.lmr_free(new.lmr), in_use);
            let remote = through(context, &segment);
            let status = write_through(&net, &other_left, &remote);
            assert_eq!(status, DtoStatus::Success);
            // A bind after both replaces the binding.
            let last = right.memory.segment(0, 64);
            granted(ia.rmr_bind(rmr, &last, WRITE, right.ep, 3, suppress));
            net.run_to_idle();
            granted(ia.lmr_free(new.lmr));
            refused(ia.lmr_free(right.memory.lmr), in_use);
        }
        granted(ia.rmr_free(rmr));
    }
}

/// A bind is refused while another endpoint has a pending bind of the window.
///
/// The device might carry out the pending one last and open the window to a region that the core
/// considers free.
///
/// Spec: RMB-34, RMB-42, RMQ-01, LMF-01
pub fn binds_under_way_are_of_one_endpoint<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let in_use = LMR_IN_USE;
    let (left, right) = net.pair(&options);
    let (other_left, other) = (
        Party::in_zone(&left.ia, left.zone, &options),
        Party::in_zone(&right.ia, right.zone, &options),
    );
    net.connect(&other_left, &other);
    let ia = &right.ia;
    for _ in 0..8 {
        let rmr = window(&right);
        let old = right.more_memory(64, MemoryPrivileges::ALL);
        let new = right.more_memory(64, MemoryPrivileges::ALL);
        let (first, segment) = (old.segment(0, 64), new.segment(0, 64));
        // The first bind waits for a read.
        let (target, source) = ([right.memory.segment(0, 2048)], left.memory.remote(0, 2048));
        granted(ia.post_rdma_read(right.ep, &target, 1, &source, DEFAULT));
        let fence = CompletionFlags::BARRIER_FENCE;
        granted(ia.rmr_bind(rmr, &first, WRITE, right.ep, 2, fence));
        let bind = || ia.rmr_bind(rmr, &segment, WRITE, other.ep, 3, DEFAULT);
        let early = bind();
        net.success(&right, 1);
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        let context = early.unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
            assert_eq!(error.subtype(), Subtype::ResourceMemoryRegion, "{error}");
            granted(bind())
        });
        assert_eq!(net.bound(&other).status, DtoStatus::Success);
        let param = granted(ia.rmr_query(rmr, RmrFields::all())).binding;
        assert_eq!(param.map(|binding| binding.rmr_context), Some(context));
        let remote = through(context, &segment);
        let status = write_through(&net, &other_left, &remote);
        assert_eq!(status, DtoStatus::Success);
        granted(ia.lmr_free(old.lmr));
        refused(ia.lmr_free(new.lmr), in_use);
        granted(ia.rmr_free(rmr));
        granted(ia.lmr_free(new.lmr));
    }
}

/// A bind of length 0 unbinds without a check of its triplet.
///
/// The old context opens nothing, and the region can be freed.
///
/// Spec: RMB-27, RMB-28, DTO-06
pub fn empty_bind_unbinds<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    let segment = memory.segment(0, 64);
    let context = bind(&net, &right, rmr, &segment, READ | WRITE);
    let in_use = LMR_IN_USE;
    refused(right.ia.lmr_free(memory.lmr), in_use);
    let nothing = LmrTriplet {
        context: u32::MAX,
        address: u64::MAX,
        length: 0,
    };
    bind(&net, &right, rmr, &nothing, READ | WRITE);
    // The region is still registered here: without it, no context would reach its bytes.
    let before = memory.content();
    let status = write_through(&net, &left, &through(context, &segment));
    assert_eq!(status, DtoStatus::RemoteAccess);
    assert_eq!(memory.content(), before);
    net.broken(&left, &right);
    granted(right.ia.lmr_free(memory.lmr));
}
