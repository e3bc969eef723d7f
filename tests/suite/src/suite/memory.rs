//! Protection zones and local memory regions.

use dat_core::backend::Backend;
use dat_core::flags::{
    CompletionFlags, DtoStatus, LMR_COOKIE_SIZE, LmrFields, MemoryPrivileges, PzFields,
};
use dat_core::id::{LmrId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrSource, Region};
use dat_core::sync::RawLock;
use dat_core::{Error, ErrorKind, Ia, Subtype};

use crate::fixture::errors::{BAD_LMR, BAD_PZ, LMR_IN_USE, PZ_IN_USE};
use crate::fixture::{
    Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused, same_bytes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

fn register_again<B: Backend, L: RawLock>(
    ia: &Ia<'_, B, L>,
    source: LmrId,
    pz: PzId,
    privileges: MemoryPrivileges,
) -> dat_core::Result<dat_core::memory::LmrCreated> {
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Lmr(source),
        pz,
        privileges,
    })
}

/// A zone exists until it is freed; its handle never becomes valid again.
///
/// A query returns its adapter.
///
/// Spec: PZC-01, PZQ-01, PZF-01, GEN-03, GEN-08, GEN-11
pub fn zones_live_until_freed<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let other = net.adapter();
    let first = granted(ia.pz_create());
    let second = granted(ia.pz_create());
    assert_ne!(first, second);
    assert_eq!(granted(ia.pz_query(first, PzFields::IA)).ia, ia.handle());
    granted(ia.pz_query(first, PzFields::empty()));
    for bit in 1..32 {
        refused(
            ia.pz_query(first, PzFields::from_bits_retain(1 << bit)),
            Error::invalid_argument(2),
        );
    }
    granted(ia.pz_free(first));
    let third = granted(ia.pz_create());
    assert_ne!(first, third);
    for bad in [
        PzId::NULL,
        first,
        granted(other.pz_create()),
        PzId::from_handle(ia.async_evd().handle()),
    ] {
        refused(ia.pz_query(bad, PzFields::all()), BAD_PZ);
        refused(ia.pz_free(bad), BAD_PZ);
    }
    granted(ia.pz_free(second));
    granted(ia.pz_free(third));
}

/// A zone cannot be freed while it contains a region or an endpoint.
///
/// Spec: PZF-01, GEN-15
pub fn zone_is_held_by_what_is_in_it<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let memory = Memory::register(&ia, zone, 64, MemoryPrivileges::ALL);
    refused(ia.pz_free(zone), PZ_IN_USE);
    granted(ia.lmr_free(memory.lmr));
    let party = Party::<T>::in_zone(&ia, zone, &PartyOptions::default());
    granted(ia.lmr_free(party.memory.lmr));
    refused(ia.pz_free(zone), PZ_IN_USE);
    granted(ia.ep_free(party.ep));
    granted(ia.pz_free(zone));
}

/// A zone cannot be freed while it contains a window.
///
/// Spec: PZF-01, GEN-15
pub fn zone_is_held_by_a_window<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let rmr = granted(ia.rmr_create(zone));
    refused(ia.pz_free(zone), PZ_IN_USE);
    granted(ia.rmr_free(rmr));
    granted(ia.pz_free(zone));
}

/// Registration returns handle, contexts and registered range, as a query does.
///
/// Spec: LMC-01, LMC-02, LMC-04, LMC-06, LMC-07, LMC-10, LMQ-01, GEN-08
pub fn registration_tells_what_it_did<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let block = Memory::allocate(1000);
    let region = Region::from_static(block);
    let address = region.address();
    let made = granted(ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(region),
        pz: zone,
        privileges: MemoryPrivileges::READ,
    }));
    assert_ne!(made.lmr_context, 0);
    assert_ne!(made.rmr_context, 0);
    assert!(made.registered_address <= address);
    assert!(made.registered_address + made.registered_size >= address + 1000);
    let param = granted(ia.lmr_query(made.lmr, LmrFields::all()));
    assert_eq!(param.ia, ia.handle());
    assert_eq!(param.source, LmrSource::Virtual { address });
    assert_eq!((param.length, param.pz), (1000, zone));
    assert_eq!(param.privileges, MemoryPrivileges::READ);
    assert_eq!(param.lmr_context, made.lmr_context);
    assert_eq!(param.rmr_context, made.rmr_context);
    assert_eq!(param.registered_size, made.registered_size);
    assert_eq!(param.registered_address, made.registered_address);
    for bit in 10..32 {
        refused(
            ia.lmr_query(made.lmr, LmrFields::from_bits_retain(1 << bit)),
            Error::invalid_argument(2),
        );
    }
    granted(ia.lmr_query(made.lmr, LmrFields::empty()));
}

/// A region has a remote context exactly if a remote right was requested.
///
/// Spec: LMC-05, LMC-07
pub fn remote_context_needs_a_remote_right<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
    for bits in 0..64 {
        let privileges = MemoryPrivileges::from_bits_retain(bits);
        if MemoryPrivileges::ALL.contains(privileges) {
            let memory = Memory::register(&ia, zone, 64, privileges);
            assert_eq!(
                memory.remote_context != 0,
                privileges.intersects(remote),
                "{privileges:?}"
            );
            granted(ia.lmr_free(memory.lmr));
        }
    }
}

/// Bad registrations are refused under the argument that is wrong.
///
/// Undefined privilege bits are argument 6, an empty range is argument 4, bad zones are PZ handles.
///
/// Spec: LMC-07, LMC-10, GEN-03, GEN-06, GEN-11
pub fn bad_registrations_are_refused<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let block = Memory::allocate(64);
    let attempt = |pz, privileges, length: usize| {
        ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(&block[..length])),
            pz,
            privileges,
        })
    };
    for bit in 0..32 {
        let privileges = MemoryPrivileges::from_bits_retain(1 << bit);
        if !MemoryPrivileges::ALL.contains(privileges) {
            refused(attempt(zone, privileges, 64), Error::invalid_argument(6));
        }
    }
    refused(
        attempt(zone, MemoryPrivileges::ALL, 0),
        Error::invalid_argument(4),
    );
    let freed = granted(ia.pz_create());
    granted(ia.pz_free(freed));
    for bad in [
        PzId::NULL,
        freed,
        granted(net.adapter().pz_create()),
        PzId::from_handle(ia.handle()),
    ] {
        refused(attempt(bad, MemoryPrivileges::ALL, 64), BAD_PZ);
    }
    // No refused registration holds the zone.
    granted(ia.pz_free(zone));
}

/// A region of another region covers the same memory under its own zone and privileges.
///
/// It outlives its source.
///
/// Spec: LMC-02, LMC-04, LMC-08, LMF-04, LMQ-01
pub fn region_of_a_region_stands_on_its_own<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let zone = granted(right.ia.pz_create());
    let source = Memory::register(&right.ia, zone, 256, MemoryPrivileges::LOCAL_READ);
    let privileges = MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_WRITE;
    let made = granted(register_again(
        &right.ia, source.lmr, right.zone, privileges,
    ));
    assert_ne!(made.lmr_context, source.context);
    assert_eq!(made.registered_address, source.address);
    assert_eq!(made.registered_size, 256);
    let param = granted(right.ia.lmr_query(made.lmr, LmrFields::all()));
    assert_eq!(param.source, LmrSource::Lmr(source.lmr));
    assert_eq!((param.pz, param.privileges), (right.zone, privileges));
    granted(right.ia.lmr_free(source.lmr));
    granted(right.ia.pz_free(zone));
    left.memory.fill(1);
    let remote = dat_core::memory::RmrTriplet {
        context: made.rmr_context,
        address: source.address,
        length: 256,
    };
    left.write(&[left.memory.segment(0, 256)], 1, &remote, DEFAULT);
    net.success(&left, 1);
    equal("memory", &source.content(), &left.memory.load(0, 256));
    for bad in [
        LmrId::NULL,
        source.lmr,
        left.memory.lmr,
        LmrId::from_handle(right.ep.handle()),
    ] {
        refused(
            register_again(&right.ia, bad, right.zone, privileges),
            BAD_LMR,
        );
    }
}

/// Regions of shared memory need the same cookie in all 40 bytes.
///
/// Another cookie for the same memory is refused.
///
/// Spec: LMC-02, LMC-03, LMC-10, LMQ-01
pub fn shared_memory_goes_by_its_whole_cookie<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let block = Memory::allocate(256);
    let share = |cookie| {
        ia.lmr_create(&LmrRequest {
            memory: LmrMemory::SharedVirtual(Region::from_static(block), cookie),
            pz: zone,
            privileges: MemoryPrivileges::ALL,
        })
    };
    let mut cookie = [0; LMR_COOKIE_SIZE];
    cookie[3] = 7;
    cookie[39] = 9;
    let first = granted(share(cookie));
    let second = granted(share(cookie));
    assert_ne!(first.lmr, second.lmr);
    assert_ne!(first.lmr_context, second.lmr_context);
    let address = Region::from_static(block).address();
    for made in [first, second] {
        assert_eq!(
            granted(ia.lmr_query(made.lmr, LmrFields::all())).source,
            LmrSource::SharedVirtual { address, cookie }
        );
    }
    for index in [0, 4, 39] {
        let mut other = cookie;
        other[index] ^= 1;
        let error = share(other).expect_err("another cookie for the same memory");
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    }
    granted(ia.lmr_free(first.lmr));
    granted(ia.lmr_free(second.lmr));
    cookie[39] ^= 1;
    granted(share(cookie));
}

/// A remote context is valid until the region is freed, across connections.
///
/// Spec: LMC-09, LMF-02
pub fn remote_context_lives_as_long_as_the_region<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let remote = right.memory.remote(0, 64);
    for round in 0..3 {
        left.memory.fill(round);
        let segment = [left.memory.segment(0, 64)];
        left.write(&segment, 1, &remote, DEFAULT);
        net.success(&left, 1);
        same_bytes("data", (&right.memory, 0), (&left.memory, 0), 64);
        net.disconnect(&left, &right);
        for party in [&left, &right] {
            granted(party.ia.ep_reset(party.ep));
        }
        net.connect(&left, &right);
    }
    granted(right.ia.lmr_free(right.memory.lmr));
    let before = right.memory.content();
    let segment = [left.memory.segment(0, 64)];
    left.write(&segment, 2, &remote, DEFAULT);
    assert_eq!(
        net.request_completion(&left).status,
        DtoStatus::RemoteAccess
    );
    net.broken(&left, &right);
    equal("memory", &right.memory.content(), &before);
}

/// A window holds its region from the bind until the window is freed.
///
/// Spec: LMF-01, GEN-15
pub fn bound_window_holds_its_region<T: Testbed>(bed: &T) {
    let (net, _left, right) = Net::connected(bed);
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    let rmr = granted(right.ia.rmr_create(right.zone));
    let segment = memory.segment(0, 8);
    let privileges = MemoryPrivileges::REMOTE_READ;
    right.bind(rmr, &segment, privileges, 1, DEFAULT);
    let in_use = LMR_IN_USE;
    refused(right.ia.lmr_free(memory.lmr), in_use);
    assert_eq!(net.bound(&right).status, DtoStatus::Success);
    refused(right.ia.lmr_free(memory.lmr), in_use);
    granted(right.ia.rmr_free(rmr));
    granted(right.ia.lmr_free(memory.lmr));
}

/// Freeing a region makes handle and contexts invalid; bad handles are refused.
///
/// Spec: LMF-01, LMF-02, GEN-03, GEN-11
pub fn region_is_gone_once_freed<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    granted(right.ia.lmr_free(memory.lmr));
    let again =
        Memory::register_block(&right.ia, right.zone, memory.block(), MemoryPrivileges::ALL);
    assert_ne!(again.lmr, memory.lmr);
    assert_ne!(again.context, memory.context);
    for bad in [
        LmrId::NULL,
        memory.lmr,
        left.memory.lmr,
        LmrId::from_handle(right.zone.handle()),
    ] {
        refused(right.ia.lmr_free(bad), BAD_LMR);
        refused(right.ia.lmr_query(bad, LmrFields::all()), BAD_LMR);
    }
    let stale = [memory.segment(0, 8)];
    net.no_effect(
        &[&left, &right],
        Error::privileges_violation(Subtype::PrivilegesRead),
        || right.ia.post_send(right.ep, &stale, 1, DEFAULT),
    );
}

/// Transfers complete exactly once when their region is freed under them.
///
/// Spec: LMF-03
pub fn transfers_in_flight_survive_the_end_of_their_region<T: Testbed>(bed: &T) {
    for steps in 0..10 {
        let (net, left, right) = Net::connected(bed);
        let memory = left.more_memory(1024, MemoryPrivileges::ALL);
        for cookie in 0..4 {
            left.write(
                &[memory.segment(0, 1024)],
                cookie,
                &right.memory.remote(0, 1024),
                DEFAULT,
            );
        }
        for _ in 0..steps {
            net.step();
        }
        granted(left.ia.lmr_free(memory.lmr));
        for cookie in 0..4 {
            assert_eq!(net.request_completion(&left).cookie, cookie);
        }
        net.run_to_idle();
        refused(left.ia.evd_dequeue(left.request), Error::queue_empty());
    }
}
