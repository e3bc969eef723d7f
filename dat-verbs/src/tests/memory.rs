//! Protection domains and memory regions.

use nix::errno::Errno;

use super::Opened;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_RELAXED_ORDERING,
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
};
use crate::boundary::{Address, Handle};
use crate::memory::{
    Domain, ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova2, ibv_rereg_mr,
};

fn at(bytes: &[u8]) -> Address {
    Address(bytes.as_ptr().cast_mut().cast())
}

/// Returns the error of a registration that is refused.
fn refused(domain: Handle<Domain>, memory: Address, length: usize, access: u32) -> Errno {
    let made = ibv_reg_mr(domain, memory, length, access.cast_signed());
    assert!(made.is_null());
    Errno::last()
}

#[test]
fn a_domain_with_regions_is_busy() {
    let context = Opened::new();
    let domain = ibv_alloc_pd(context.0);
    let memory = [0_u8; 100];
    let region = ibv_reg_mr(domain, at(&memory), 100, 7);
    let c = region.read().expect("a region");
    assert_eq!((c.length, c.addr), (100, at(&memory).0));
    assert!(c.lkey == c.rkey && c.pd == domain.pointer() && c.context == context.0.pointer());
    assert_eq!(ibv_dealloc_pd(domain), libc::EBUSY);
    assert_eq!(ibv_dereg_mr(region), 0);
    assert_eq!(ibv_dereg_mr(region), libc::EINVAL, "a second time");
    assert_eq!(ibv_dealloc_pd(domain), 0);
    assert_eq!(ibv_dealloc_pd(domain), libc::EINVAL, "a second time");
    assert!(ibv_alloc_pd(Handle::NULL).is_null());
}

#[test]
fn each_region_has_a_key() {
    let context = Opened::new();
    let domain = ibv_alloc_pd(context.0);
    let memory = [0_u8; 100];
    let regions: Vec<_> = (0..100)
        .map(|_| ibv_reg_mr(domain, at(&memory), 100, 1))
        .collect();
    let mut keys: Vec<_> = regions
        .iter()
        .map(|region| region.read().expect("a region").lkey)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
    for region in regions {
        assert_eq!(ibv_dereg_mr(region), 0);
    }
    assert_eq!(ibv_dealloc_pd(domain), 0);
}

#[test]
fn access_that_a_device_refuses_is_refused() {
    static CONSTANT: [u8; 64] = [7; 64];
    let context = Opened::new();
    let domain = ibv_alloc_pd(context.0);
    let memory = [0_u8; 64];
    for rights in [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC] {
        assert_eq!(refused(domain, at(&memory), 64, rights), Errno::EINVAL);
    }
    let on_demand = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
    assert_eq!(
        refused(domain, at(&memory), 64, on_demand),
        Errno::EOPNOTSUPP
    );
    assert_eq!(refused(domain, at(&memory), 64, 1 << 9), Errno::EINVAL);
    assert_eq!(refused(domain, at(&memory), 0, 1), Errno::EINVAL);
    let nowhere = Address(core::ptr::without_provenance_mut(4096));
    assert_eq!(refused(domain, nowhere, 64, 0), Errno::EFAULT);
    assert_eq!(refused(domain, at(&CONSTANT), 64, 1), Errno::EFAULT);
    assert_eq!(refused(Handle::NULL, at(&memory), 64, 1), Errno::EINVAL);
    // Reading needs no right to write, and a hint may be ignored.
    let rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
    let region = ibv_reg_mr(domain, at(&CONSTANT), 64, rights.cast_signed());
    assert_eq!(ibv_dereg_mr(region), 0);
    for address in [0, 1 << 40, u64::MAX] {
        let region = ibv_reg_mr_iova2(domain, at(&memory), 64, address, IBV_ACCESS_LOCAL_WRITE);
        assert_eq!(ibv_dereg_mr(region), 0, "{address}");
    }
    assert_eq!(ibv_dealloc_pd(domain), 0);
}

#[test]
fn a_region_is_changed_as_a_whole_or_not() {
    static CONSTANT: [u8; 64] = [7; 64];
    let context = Opened::new();
    let (domain, other) = (ibv_alloc_pd(context.0), ibv_alloc_pd(context.0));
    let memory = [0_u8; 100];
    let region = ibv_reg_mr(domain, at(&memory), 100, 1);
    let before = region.read().expect("a region");
    let change = |flags, memory, access| ibv_rereg_mr(region, flags, other, memory, 64, access);
    for flags in [0, 8, -1] {
        assert_eq!(change(flags, at(&memory), 1), -1, "{flags}");
    }
    // Memory that is constant cannot be written.
    assert_eq!(change(1, at(&CONSTANT), 1), -4);
    assert_eq!(Errno::last(), Errno::EFAULT);
    let same = region.read().expect("a region");
    assert_eq!((same.lkey, same.addr), (before.lkey, before.addr));
    assert_eq!(change(1 | 2 | 4, at(&CONSTANT), 0), 0);
    let after = region.read().expect("a region");
    assert_eq!((after.length, after.addr), (64, at(&CONSTANT).0));
    assert!(after.pd == other.pointer() && after.lkey == before.lkey);
    assert_eq!(ibv_dealloc_pd(domain), 0, "it has no region any more");
    assert_eq!(ibv_dealloc_pd(other), libc::EBUSY);
    assert_eq!(ibv_dereg_mr(region), 0);
    assert_eq!(ibv_dealloc_pd(other), 0);
    assert_eq!(ibv_rereg_mr(region, 1, other, at(&memory), 64, 0), -1);
}
