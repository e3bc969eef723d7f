//! Protection domains, regions and windows.

use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, Registration};
use dat_core::flags::MemoryPrivileges;
use rdma_sys::{
    ibv_access_flags, ibv_alloc_pd, ibv_context_ops, ibv_dealloc_pd, ibv_dereg_mr, ibv_mr, ibv_mw,
    ibv_mw_type, ibv_pd, ibv_reg_mr,
};

use super::cancel::uncancelled;
use super::{Context, refusal};

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Domain {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, BackendError> {
        // SAFETY: the context lives.
        let raw = unsafe { ibv_alloc_pd(context.raw()) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            context: Arc::clone(context),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn operations(&self) -> &ibv_context_ops {
        self.context.operations()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: made by `new`; every object made from it holds it and is gone.
        unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

/// Access rights as verbs flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(super) u32);

impl Access {
    const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    const BIND: u32 = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
    const ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

    /// Returns the rights of a region, to which windows can be bound if `bindable`.
    ///
    /// Peers with both remote rights may perform atomic operations on devices with `atomics`.
    ///
    /// Verbs requires the local right to write for the remote one, so that is added. The core still
    /// refuses local posts without the privilege.
    pub(crate) fn of_region(privileges: MemoryPrivileges, bindable: bool, atomics: bool) -> Self {
        let mut access = Self::remote(privileges);
        if privileges.intersects(MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_WRITE) {
            access |= Self::LOCAL_WRITE;
        }
        if bindable {
            access |= Self::BIND;
        }
        let both = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        if atomics && privileges.contains(both) {
            access |= Self::ATOMIC;
        }
        Self(access)
    }

    /// Returns the same rights without windows, if the region has them and is not writable.
    ///
    /// The kernel wants writable memory for a region with windows.
    fn without_windows(self) -> Option<Self> {
        (self.0 & (Self::LOCAL_WRITE | Self::BIND) == Self::BIND)
            .then_some(Self(self.0 & !Self::BIND))
    }

    /// Returns the rights that a window opens.
    #[inline]
    pub(crate) fn of_window(privileges: MemoryPrivileges) -> Self {
        // The table takes fewer instructions than moving two bits.
        let index = privileges.bits() as usize & (OPENED.len() - 1);
        Self(u32::from(OPENED[index]))
    }

    /// Returns the most that peers may do through a queue pair.
    pub(crate) const fn of_queue_pair(atomics: bool) -> Self {
        let plain = Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_READ;
        Self(if atomics { plain | Self::ATOMIC } else { plain })
    }

    const fn remote(privileges: MemoryPrivileges) -> u32 {
        let mut access = 0;
        if privileges.contains(MemoryPrivileges::REMOTE_READ) {
            access |= Self::REMOTE_READ;
        }
        if privileges.contains(MemoryPrivileges::REMOTE_WRITE) {
            access |= Self::REMOTE_WRITE;
        }
        access
    }
}

/// Rights of a window as verbs flags, indexed by the bits of its privileges.
static OPENED: [u8; 64] = {
    let mut opened = [0; 64];
    let mut bits = 0;
    while bits < opened.len() {
        let privileges = MemoryPrivileges::from_bits_retain(bits as u32);
        opened[bits] = Access::remote(privileges) as u8;
        bits += 1;
    }
    opened
};

/// A registered region.
#[derive(Debug)]
pub(crate) struct Region {
    raw: NonNull<ibv_mr>,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Registers memory whose owner promised to keep it until the deregistration.
    pub(crate) fn register(
        domain: &Arc<Domain>,
        registration: &Registration,
        access: Access,
    ) -> Result<Self, BackendError> {
        let (base, length) = (registration.base().cast(), registration.length());
        let register = |access: Access| {
            // SAFETY: the domain lives. The maker of the region in the registration promised that
            // the memory stays and tolerates accesses of devices until the backend deregisters it,
            // which a drop does.
            let raw = unsafe { ibv_reg_mr(domain.raw(), base, length, access.0 as i32) };
            NonNull::new(raw).ok_or_else(refusal::last)
        };
        let raw = match (register(access), access.without_windows()) {
            (Err(_), Some(less)) => register(less)?,
            (registered, _) => registered?,
        };
        Ok(Self {
            raw,
            domain: Arc::clone(domain),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }

    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.raw()).lkey }
    }

    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.raw()).rkey }
    }

    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl Region {
    /// Deregisters the memory; returns the region if the device refuses.
    ///
    /// A device that is gone has released the memory.
    pub(crate) fn release(self) -> Result<(), Self> {
        let region = ManuallyDrop::new(self);
        // SAFETY: made by `register`; neither used nor dropped again unless the device refused.
        let refused = unsafe { ibv_dereg_mr(region.raw()) };
        if refused != 0 && refusal::of(refused.abs()) != BackendError::Device {
            return Err(ManuallyDrop::into_inner(region));
        }
        // SAFETY: only the domain among the fields owns something, and it is read once.
        drop(unsafe { ptr::read(&raw const region.domain) });
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: made by `register`, and dropped once.
        let refused = unsafe { ibv_dereg_mr(self.raw()) };
        // The memory is about to be reused. A device that keeps it, and is not gone itself, would
        // write there, and nothing that this process does from here on could be trusted.
        if refused != 0 && refusal::of(refused.abs()) != BackendError::Device {
            eprintln!("a device does not let go of memory: error {refused}");
            std::process::abort();
        }
    }
}

/// Kind of memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowType {
    /// Open to all queue pairs of its domain; bound by a call of its own.
    One,
    /// Open to the queue pair it was bound on; bound by a work request.
    Two,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    raw: NonNull<ibv_mw>,
    domain: Arc<Domain>,
    kind: WindowType,
}

// SAFETY: libibverbs lets any thread use its objects; binds, which change the window, hold a lock.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowType) -> Result<Self, BackendError> {
        let allocate = domain
            .operations()
            .alloc_mw
            .ok_or(BackendError::NotSupported)?;
        let wanted = match kind {
            WindowType::One => ibv_mw_type::IBV_MW_TYPE_1,
            WindowType::Two => ibv_mw_type::IBV_MW_TYPE_2,
        };
        // SAFETY: the domain lives, and the function belongs to its device.
        let raw = uncancelled(|| unsafe { allocate(domain.raw(), wanted) });
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            domain: Arc::clone(domain),
            kind,
        })
    }

    pub(crate) fn kind(&self) -> WindowType {
        self.kind
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the key of the last bind, or the device's first one (type 2).
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: the window lives; binds write the word, and hold a lock.
        unsafe { ptr::read(&raw const (*self.raw()).rkey) }
    }

    /// Stores the key of a posted bind (type 2).
    ///
    /// Soft-RoCE names the window by it in the next bind.
    #[inline]
    pub(crate) fn set_remote_key(&mut self, key: u32) {
        // SAFETY: the window lives, and `&mut self` excludes other accesses to the word.
        unsafe { (*self.raw()).rkey = key };
    }

    pub(super) fn raw(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(free) = self.domain.operations().dealloc_mw {
            // SAFETY: made by `new`, and dropped once. The call closes an open window.
            uncancelled(|| unsafe { free(self.raw()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region has the rights asked for, and those that they need.
    ///
    /// Verbs refuses a region that its peers may write to and its owner may not.
    ///
    /// Spec: LMC-05, LMC-07, EPW-34
    #[test]
    fn a_region_has_the_requested_rights_and_those_they_imply() {
        const LOCAL_WRITE: u32 = 1;
        const REMOTE_WRITE: u32 = 2;
        const REMOTE_READ: u32 = 4;
        const ATOMIC: u32 = 8;
        const BIND: u32 = 16;
        let all = (0..64).map(MemoryPrivileges::from_bits_retain);
        for privileges in all.filter(|one| MemoryPrivileges::ALL.contains(*one)) {
            for (bindable, atomics) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let has = |privilege| privileges.contains(privilege);
                let writes = has(MemoryPrivileges::REMOTE_WRITE);
                let reads = has(MemoryPrivileges::REMOTE_READ);
                let mut expected = 0;
                for (is_there, flag) in [
                    (has(MemoryPrivileges::LOCAL_WRITE) || writes, LOCAL_WRITE),
                    (writes, REMOTE_WRITE),
                    (reads, REMOTE_READ),
                    (reads && writes && atomics, ATOMIC),
                    (bindable, BIND),
                ] {
                    expected |= if is_there { flag } else { 0 };
                }
                let access = Access::of_region(privileges, bindable, atomics);
                assert_eq!(access, Access(expected), "{privileges:?}");
                let read_only = bindable && expected & LOCAL_WRITE == 0;
                let less = read_only.then_some(Access(expected & !BIND));
                assert_eq!(access.without_windows(), less, "{privileges:?}");
            }
        }
    }
}
