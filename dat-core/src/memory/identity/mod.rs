//! Identity of the region in a slot: context, zone and privileges, or none.
//!
//! A post compares one number, the seal, to know that the region is the one it names, is in its
//! zone and may be accessed.

use crate::flags::MemoryPrivileges;

#[cfg(any(not(target_has_atomic = "64"), halves))]
mod halves;
#[cfg(all(target_has_atomic = "64", not(halves)))]
mod whole;

#[cfg(any(not(target_has_atomic = "64"), halves))]
pub(super) use halves::Identity;
#[cfg(all(target_has_atomic = "64", not(halves)))]
pub(super) use whole::Identity;

/// Contexts have a generation in their upper half, which is never 0.
const FIRST_CONTEXT: u32 = 1 << 16;

impl Identity {
    /// Whether a region lives in the slot.
    pub(super) fn is_live(&self) -> bool {
        self.context() >= FIRST_CONTEXT
    }
}

/// Returns what a check compares: a bit that no empty slot has, the zone, and the context.
#[inline(always)]
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
