//! Memory for values that are made where they stay.

use core::mem::MaybeUninit;

/// Room for an array, without values. A `static` of it lies where memory has no first contents.
pub struct Places<T, const N: usize>([MaybeUninit<T>; N]);

impl<T, const N: usize> Places<T, N> {
    /// Room, and nothing in it.
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// Makes a value in each place, one after the other; a former one is forgotten.
    #[inline(never)]
    pub fn fill(&mut self, make: impl Fn() -> T) -> &mut [T; N] {
        for place in &mut self.0 {
            place.write(make());
        }
        #[expect(unsafe_code)]
        // SAFETY: every place was written just now, and an array of values lies in memory as one of places for them.
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
