//! Protection domains and memory regions.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use backend_roce::{RegionAccess, RemoteRights};
use dat_core::backend::DomainKey;
use nix::errno::Errno;

use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED, ibv_mr, ibv_pd,
};
use crate::boundary::{Address, Handle, Kind, provide, region, zeroed};
use crate::context::Context;
use crate::errors::{Result, code, or, refused};

/// What belongs to a protection domain.
pub(crate) struct Domain {
    adapter: Arc<Adapter>,
    pub(crate) key: DomainKey,
    /// Held by each object of the domain.
    pub(crate) users: Arc<()>,
}

impl Kind for Domain {
    type C = ibv_pd;
}

/// What belongs to a memory region.
pub(crate) struct MemoryRegion {
    adapter: Arc<Adapter>,
    key: u32,
    _use: Arc<()>,
}

impl Kind for MemoryRegion {
    type C = ibv_mr;
}

/// Rights that the first 20 bits of access flags give; the others are hints.
const RIGHTS: c_uint = 0xF_FFFF;
const KNOWN: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_HUGETLB;

/// Returns the access that flags name.
fn access(flags: c_uint, address: Option<u64>) -> Result<RegionAccess> {
    let has = |flag| flags & flag != 0;
    if has(IBV_ACCESS_ON_DEMAND) {
        return Err(Errno::EOPNOTSUPP);
    }
    let local_write = has(IBV_ACCESS_LOCAL_WRITE);
    let writes = has(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if flags & RIGHTS & !KNOWN != 0 || (writes && !local_write) {
        return Err(Errno::EINVAL);
    }
    let zero = has(IBV_ACCESS_ZERO_BASED).then_some(0);
    Ok(RegionAccess {
        local_write,
        remote: RemoteRights {
            read: has(IBV_ACCESS_REMOTE_READ),
            write: has(IBV_ACCESS_REMOTE_WRITE),
            atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        },
        address: address.or(zero),
    })
}

pub(crate) extern "C" fn ibv_alloc_pd(context: Handle<Context>) -> Handle<Domain> {
    let domain = (|| {
        let adapter = Arc::clone(&context.get().ok_or(Errno::EINVAL)?.adapter);
        let key = adapter.device.create_domain().map_err(refused)?;
        let mut c: ibv_pd = zeroed();
        c.context = context.pointer();
        c.handle = u32::try_from(key.0).unwrap_or(u32::MAX);
        let users = Arc::new(());
        Ok(Handle::new(
            c,
            Domain {
                adapter,
                key,
                users,
            },
        ))
    })();
    or(domain, Handle::NULL)
}

pub(crate) extern "C" fn ibv_dealloc_pd(domain: Handle<Domain>) -> c_int {
    code((|| {
        let own = domain.get().ok_or(Errno::EINVAL)?;
        if Arc::strong_count(&own.users) > 1 {
            return Err(Errno::EBUSY);
        }
        let own = domain.end().ok_or(Errno::EINVAL)?;
        own.adapter.device.destroy_domain(own.key);
        Ok(())
    })())
}

fn register(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    address: Option<u64>,
    flags: c_uint,
) -> Result<Handle<MemoryRegion>> {
    let own = domain.get().ok_or(Errno::EINVAL)?;
    let access = access(flags, address)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    provide(start, length, access.local_write)?;
    let device = &own.adapter.device;
    let key = device.register(own.key, &region(start, length), access);
    let key = key.map_err(refused)?;
    let mut c: ibv_mr = zeroed();
    c.context = domain.read().ok_or(Errno::EINVAL)?.context;
    c.pd = domain.pointer();
    c.addr = start.0;
    c.length = length;
    c.handle = key;
    c.lkey = key;
    c.rkey = key;
    Ok(Handle::new(
        c,
        MemoryRegion {
            adapter: Arc::clone(&own.adapter),
            key,
            _use: Arc::clone(&own.users),
        },
    ))
}

pub(crate) extern "C" fn ibv_reg_mr(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    access: c_int,
) -> Handle<MemoryRegion> {
    let made = register(domain, start, length, None, access.cast_unsigned());
    or(made, Handle::NULL)
}

pub(crate) extern "C" fn ibv_reg_mr_iova(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    address: u64,
    access: c_int,
) -> Handle<MemoryRegion> {
    ibv_reg_mr_iova2(domain, start, length, address, access.cast_unsigned())
}

pub(crate) extern "C" fn ibv_reg_mr_iova2(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    address: u64,
    access: c_uint,
) -> Handle<MemoryRegion> {
    let made = register(domain, start, length, Some(address), access);
    or(made, Handle::NULL)
}

pub(crate) extern "C" fn ibv_dereg_mr(region: Handle<MemoryRegion>) -> c_int {
    code(region.end().ok_or(Errno::EINVAL).map(|own| {
        own.adapter.device.deregister(own.key);
    }))
}
