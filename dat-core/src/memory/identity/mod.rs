//! Identity of the region in a slot: context, zone and privileges, or none.
//!
//! A post compares one number, the seal. It then knows that the region is the named one, is in the
//! zone and may be accessed.

use crate::flags::MemoryPrivileges;
use crate::id::INDEX_BITS;

#[cfg(any(not(target_has_atomic = "64"), split64))]
mod split64;
#[cfg(all(target_has_atomic = "64", not(split64)))]
mod word64;

#[cfg(any(not(target_has_atomic = "64"), split64))]
pub(super) use split64::Identity;
#[cfg(all(target_has_atomic = "64", not(split64)))]
pub(super) use word64::Identity;

/// Lowest context of a region: the generation, in the upper bits, is never 0.
const FIRST_CONTEXT: u32 = 1 << INDEX_BITS;

impl Identity {
    /// Returns true if the slot holds a region.
    pub(super) fn is_live(&self) -> bool {
        self.context() >= FIRST_CONTEXT
    }
}

/// Returns the number that a check compares.
///
/// It has a bit that no empty slot has, the zone and the context.
#[inline]
pub(super) const fn seal(context: u32, meta: u32) -> u64 {
    1 << 63 | (meta as u64 >> 16) << 32 | context as u64
}

/// Returns the seal of a live region if it has the privilege, else 0.
#[inline]
const fn seal_with(privilege: MemoryPrivileges, context: u32, meta: u32) -> u64 {
    if context >= FIRST_CONTEXT && meta & privilege.bits() != 0 {
        seal(context, meta)
    } else {
        0
    }
}
