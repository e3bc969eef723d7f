//! What a post compares to know that a region is the one it names and may be used: context, zone and
//! privileges of the region in a slot, or nothing.

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

/// An identity as one number: context above, zone and privileges below. A word without privileges
/// passes no check, whatever context is asked for.
#[inline(always)]
pub(super) const fn word(context: u32, meta: u32) -> u64 {
    (context as u64) << 32 | meta as u64
}
