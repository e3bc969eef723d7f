//! Uninitialised memory for values that are built in place.

use core::mem::MaybeUninit;

/// Memory for an array, without values.
///
/// A `static` of it is in uninitialised memory, not in the program image.
pub struct SlotMemory<T, const N: usize>([MaybeUninit<T>; N]);

impl<T, const N: usize> SlotMemory<T, N> {
    /// Creates uninitialised memory.
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// Writes a value to each slot in order; does not drop former values.
    #[inline(never)]
    pub fn fill(&mut self, make: impl Fn() -> T) -> &mut [T; N] {
        for slot in &mut self.0 {
            slot.write(make());
        }
        #[expect(unsafe_code)]
        // SAFETY: all slots were just written, and an array of values has the layout of an array of
        // slots.
        unsafe {
            &mut *(&raw mut self.0).cast::<[T; N]>()
        }
    }
}

impl<T, const N: usize> Default for SlotMemory<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_their_values() {
        let mut memory = SlotMemory::<u32, 3>::new();
        let next = core::cell::Cell::new(0);
        let made = memory.fill(|| {
            next.set(next.get() + 1);
            next.get()
        });
        assert_eq!(*made, [1, 2, 3]);
        assert_eq!(*memory.fill(|| 7), [7; 3]);
    }
}
