//! Memory windows: remote keys that change with every bind.

use dat_core::backend::DomainKey;
use dat_core::flags::MemoryPrivileges;

/// The binding of a window to a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Remote key of the binding.
    pub(crate) key: u32,
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: MemoryPrivileges,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) domain: DomainKey,
    pub(crate) bound: Option<Binding>,
}
