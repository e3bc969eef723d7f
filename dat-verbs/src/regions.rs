//! Protection domains and memory regions.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};

use backend_roce::{RegionAccess, RemoteRights};
use dat_core::backend::DomainKey;

use crate::c::{self, Shared};
use crate::devices::{self, Context};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::process::error_number;

/// Access flags that may be ignored (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: c_uint = 0x3FF0_0000;

/// A protection domain.
#[repr(C)]
pub(crate) struct Domain {
    base: Shared<ibv_pd>,
    pub(crate) context: &'static Context,
    pub(crate) key: DomainKey,
    users: Users,
}

impl Object for Domain {
    type C = ibv_pd;
    const KIND: Kind = Kind::Domain;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// A memory region.
#[repr(C)]
struct Mr {
    base: Shared<ibv_mr>,
    domain: &'static Domain,
    key: u32,
    users: Users,
}

impl Object for Mr {
    type C = ibv_mr;
    const KIND: Kind = Kind::Region;

    fn users(&self) -> &Users {
        &self.users
    }
}

fn allocate(context: *mut ibv_context) -> Result<*mut ibv_pd, c_int> {
    let owner = devices::find(context)?;
    let key = owner.process.device.create_domain().map_err(error_number)?;
    let mut base: ibv_pd = c::zeroed();
    base.context = context;
    owner.users().add();
    Ok(objects::publish(Box::new(Domain {
        base: Shared(UnsafeCell::new(base)),
        context: owner,
        key,
        users: Users::default(),
    })))
}

pub(crate) extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    c::pointer(allocate(context))
}

pub(crate) extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    c::code(objects::retire::<Domain>(pd).map(|domain| {
        domain.context.process.device.destroy_domain(domain.key);
        domain.context.users().remove();
    }))
}

/// Returns the access of a region; its address is that of the memory.
fn access(flags: c_uint) -> Result<RegionAccess, c_int> {
    let has = |flag| flags & flag != 0;
    let known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC
        | IBV_ACCESS_MW_BIND
        | IBV_ACCESS_ZERO_BASED
        | IBV_ACCESS_HUGETLB;
    if flags & !(known | OPTIONAL) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    // A peer writes through this side.
    let writes = has(IBV_ACCESS_REMOTE_WRITE) || has(IBV_ACCESS_REMOTE_ATOMIC);
    if writes && !has(IBV_ACCESS_LOCAL_WRITE) {
        return Err(libc::EINVAL);
    }
    Ok(RegionAccess {
        local_write: has(IBV_ACCESS_LOCAL_WRITE),
        remote: RemoteRights {
            read: has(IBV_ACCESS_REMOTE_READ),
            write: has(IBV_ACCESS_REMOTE_WRITE),
            atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        },
        address: has(IBV_ACCESS_ZERO_BASED).then_some(0),
    })
}

fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    named: Option<u64>,
    flags: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    let domain: &Domain = objects::find(pd)?;
    let mut access = access(flags)?;
    access.address = access.address.or(named);
    if !c::is_mapped(address, length) {
        return Err(libc::EFAULT);
    }
    let region = c::region(address, length);
    let device = &domain.context.process.device;
    let key = device.register(domain.key, &region, access);
    let key = key.map_err(error_number)?;
    let mut base: ibv_mr = c::zeroed();
    base.context = domain.context.pointer();
    base.pd = pd;
    base.addr = address;
    base.length = length;
    base.lkey = key;
    base.rkey = key;
    domain.users.add();
    Ok(objects::publish(Box::new(Mr {
        base: Shared(UnsafeCell::new(base)),
        domain,
        key,
        users: Users::default(),
    })))
}

pub(crate) extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    c::pointer(register(pd, address, length, None, flags as c_uint))
}

pub(crate) extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut ibv_mr {
    reg_mr_iova2(pd, address, length, iova, flags as c_uint)
}

pub(crate) extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> *mut ibv_mr {
    c::pointer(register(pd, address, length, Some(iova), flags))
}

pub(crate) extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    c::code(objects::retire::<Mr>(mr).map(|region| {
        region.domain.context.process.device.deregister(region.key);
        region.domain.users.remove();
    }))
}

/// Registered memory is not pinned: a child of `fork` may have it.
pub(crate) extern "C" fn dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

pub(crate) extern "C" fn dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}
