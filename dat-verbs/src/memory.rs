//! Protection domains and memory regions.

use core::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex};

use backend_roce::{RegionAccess, RemoteRights};
use dat_core::backend::DomainKey;
use dat_core::memory::Region;
use nix::errno::Errno;

use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED, ibv_mr, ibv_pd,
};
use crate::boundary::{Address, Handle, Kind, provide, region, zeroed};
use crate::context::Context;
use crate::errors::{Result, ask_for_memory, code, or, refused, require, require_unused};
use crate::locks::lock;

/// A protection domain.
pub(crate) struct Domain {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) context: Handle<Context>,
    pub(crate) key: DomainKey,
    /// Held by each object of the domain.
    pub(crate) users: Arc<()>,
}

impl Kind for Domain {
    type C = ibv_pd;
}

/// A memory region.
pub(crate) struct MemoryRegion {
    adapter: Arc<Adapter>,
    registered: Mutex<Registered>,
}

/// A registration, which another one may replace.
#[derive(Clone)]
struct Registered {
    key: u32,
    domain: DomainKey,
    /// Set while the region has this domain.
    domain_use: Arc<()>,
    start: Address,
    length: usize,
    address: Option<u64>,
    flags: c_uint,
}

impl Kind for MemoryRegion {
    type C = ibv_mr;
}

impl MemoryRegion {
    /// Returns its key, if windows may be bound to it.
    pub(crate) fn key_for_windows(&self) -> Option<u32> {
        let registered = lock(&self.registered);
        (registered.flags & IBV_ACCESS_MW_BIND != 0).then_some(registered.key)
    }
}

/// `IBV_REREG_MR_CHANGE_TRANSLATION`.
const OTHER_MEMORY: c_int = 1;
/// `IBV_REREG_MR_CHANGE_PD`.
const OTHER_DOMAIN: c_int = 2;
/// `IBV_REREG_MR_CHANGE_ACCESS`.
const OTHER_ACCESS: c_int = 4;
/// `IBV_REREG_MR_ERR_INPUT`.
const INVALID: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the region is as it was.
const UNCHANGED: c_int = -4;

/// Rights that the first 20 bits of access flags give; the others are hints.
const RIGHTS: c_uint = 0xF_FFFF;
const KNOWN: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_HUGETLB;

/// Returns the rights of peers that access flags name.
pub(crate) const fn rights(flags: c_uint) -> RemoteRights {
    RemoteRights {
        read: flags & IBV_ACCESS_REMOTE_READ != 0,
        write: flags & IBV_ACCESS_REMOTE_WRITE != 0,
        atomic: flags & IBV_ACCESS_REMOTE_ATOMIC != 0,
    }
}

/// Returns the access that flags name.
fn access(flags: c_uint, address: Option<u64>) -> Result<RegionAccess> {
    let has = |flag| flags & flag != 0;
    require(!has(IBV_ACCESS_ON_DEMAND), Errno::EOPNOTSUPP)?;
    let local_write = has(IBV_ACCESS_LOCAL_WRITE);
    let writes = has(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    let is_right = flags & RIGHTS & !KNOWN == 0 && (local_write || !writes);
    require(is_right, Errno::EINVAL)?;
    let zero = has(IBV_ACCESS_ZERO_BASED).then_some(0);
    Ok(RegionAccess {
        local_write,
        remote: rights(flags),
        address: address.or(zero),
    })
}

/// Makes a protection domain.
pub(crate) fn allocate(context: Handle<Context>) -> Result<Handle<Domain>> {
    ask_for_memory()?;
    let adapter = Arc::clone(&context.get()?.adapter);
    let key = adapter.device.create_domain().map_err(refused)?;
    let mut c: ibv_pd = zeroed();
    c.context = context.pointer();
    c.handle = u32::try_from(key.0).unwrap_or(u32::MAX);
    let made = Domain {
        adapter,
        context,
        key,
        users: Arc::new(()),
    };
    Ok(Handle::new(c, made))
}

pub(crate) extern "C" fn ibv_alloc_pd(context: Handle<Context>) -> Handle<Domain> {
    or(Handle::NULL, || allocate(context))
}

pub(crate) extern "C" fn ibv_dealloc_pd(domain: Handle<Domain>) -> c_int {
    code(|| {
        let own = domain.get()?;
        require_unused(&own.users)?;
        let own = domain.end()?;
        own.adapter.device.destroy_domain(own.key);
        Ok(())
    })
}

impl Registered {
    /// Returns the memory, whose pages are there, and the access to it.
    fn parts(&self) -> Result<(Region, RegionAccess)> {
        let access = access(self.flags, self.address)?;
        require(self.length != 0, Errno::EINVAL)?;
        provide(self.start, self.length, access.local_write)?;
        Ok((region(self.start, self.length), access))
    }

    /// Fills in the structure of the region.
    fn tell(&self, c: &mut ibv_mr) {
        c.addr = self.start.0;
        c.length = self.length;
        c.handle = self.key;
        c.lkey = self.key;
        c.rkey = self.key;
    }
}

fn register(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    address: Option<u64>,
    flags: c_uint,
) -> Result<Handle<MemoryRegion>> {
    ask_for_memory()?;
    let own = domain.get()?;
    let mut registered = Registered {
        key: 0,
        domain: own.key,
        domain_use: Arc::clone(&own.users),
        start,
        length,
        address,
        flags,
    };
    let (memory, access) = registered.parts()?;
    let key = own.adapter.device.register(own.key, &memory, access);
    registered.key = key.map_err(refused)?;
    let mut c: ibv_mr = zeroed();
    c.context = own.context.pointer();
    c.pd = domain.pointer();
    registered.tell(&mut c);
    let made = MemoryRegion {
        adapter: Arc::clone(&own.adapter),
        registered: Mutex::new(registered),
    };
    Ok(Handle::new(c, made))
}

/// Replaces what `flags` name of a region, which keeps its handle and its keys.
fn reregister(
    region: Handle<MemoryRegion>,
    flags: c_int,
    domain: Handle<Domain>,
    (start, length): (Address, usize),
    access: c_int,
) -> core::result::Result<(), c_int> {
    let own = region.get().map_err(|_| INVALID)?;
    if flags == 0 || flags & !(OTHER_MEMORY | OTHER_DOMAIN | OTHER_ACCESS) != 0 {
        return Err(INVALID);
    }
    let mut registered = lock(&own.registered);
    let mut other = registered.clone();
    if flags & OTHER_MEMORY != 0 {
        (other.start, other.length, other.address) = (start, length, None);
    }
    if flags & OTHER_DOMAIN != 0 {
        let domain = domain.get().map_err(|_| INVALID)?;
        (other.domain, other.domain_use) = (domain.key, Arc::clone(&domain.users));
    }
    if flags & OTHER_ACCESS != 0 {
        other.flags = access.cast_unsigned();
    }
    let replaced = other.parts().and_then(|(memory, access)| {
        let device = &own.adapter.device;
        require(!device.has_windows(other.key), Errno::EBUSY)?;
        let replaced = device.reregister(other.key, other.domain, &memory, access);
        replaced.map_err(refused)
    });
    replaced.map_err(|error| {
        error.set();
        UNCHANGED
    })?;
    *registered = other;
    region.change(|c| {
        registered.tell(c);
        if flags & OTHER_DOMAIN != 0 {
            c.pd = domain.pointer();
        }
    });
    Ok(())
}

pub(crate) extern "C" fn ibv_reg_mr(
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    access: c_int,
) -> Handle<MemoryRegion> {
    let flags = access.cast_unsigned();
    or(Handle::NULL, || {
        register(domain, start, length, None, flags)
    })
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
    let address = Some(address);
    or(Handle::NULL, || {
        register(domain, start, length, address, access)
    })
}

pub(crate) extern "C" fn ibv_rereg_mr(
    region: Handle<MemoryRegion>,
    flags: c_int,
    domain: Handle<Domain>,
    start: Address,
    length: usize,
    access: c_int,
) -> c_int {
    match reregister(region, flags, domain, (start, length), access) {
        Ok(()) => 0,
        Err(INVALID) => {
            Errno::EINVAL.set();
            INVALID
        }
        Err(number) => number,
    }
}

pub(crate) extern "C" fn ibv_dereg_mr(region: Handle<MemoryRegion>) -> c_int {
    code(|| {
        let own = region.get()?;
        let key = lock(&own.registered).key;
        require(!own.adapter.device.has_windows(key), Errno::EBUSY)?;
        let own = region.end()?;
        own.adapter.device.deregister(key);
        Ok(())
    })
}
