//! Uninitialised memory for values that are built in place.

use core::mem::MaybeUninit;

/// Memory for an array, without values.
///
/// A `static` of it is in uninitialised memory, not in the program image.
pub struct Places<T, const N: usize>([MaybeUninit<T>; N]);

impl<T, const N: usize> Places<T, N> {
    /// Creates uninitialised memory.
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// Writes a value to each slot in order; does not drop former values.
    #[inline(never)]
    pub fn fill(&mut self, make: impl Fn() -> T) -> &mut [T; N] {
        for place in &mut self.0 {
            place.write(make());
        }
        #[expect(unsafe_code)]
        // SAFETY: all slots were just written, and an array of values has the layout of an array of
        // slots.
        unsafe {
            &mut *(&raw mut self.0).cast::<[T; N]>()
        }
    }
}

impl<T, const N: usize> Default for Places<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_hold_what_was_made_in_them() {
        let mut places = Places::<u32, 3>::new();
        let next = core::cell::Cell::new(0);
        let made = places.fill(|| {
            next.set(next.get() + 1);
            next.get()
        });
        assert_eq!(*made, [1, 2, 3]);
        assert_eq!(*places.fill(|| 7), [7; 3]);
    }
}
