//! Registered regions.

use dat_core::backend::DomainKey;
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::RegisteredMemory;

/// A registered region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) memory: RegisteredMemory,
    pub(crate) domain: DomainKey,
    pub(crate) privileges: MemoryPrivileges,
    /// Remote key; 0 if peers have no privileges.
    pub(crate) remote: u32,
}
