//! A secret permutation of 24 or 32 bits.

use core::cell::Cell;
use core::hash::Hasher as _;
use siphasher::sip::SipHasher13;

/// Rounds; more than five withstand as many known pairs as there are halves.
const ROUNDS: u8 = 8;

/// Inversions that are remembered; a power of two.
const REMEMBERED: usize = 64;

/// A Feistel network over two halves, with a keyed hash as its function.
///
/// An inversion takes as long as the rest of a short packet. Packets name the same few numbers
/// again and again, so the last inversions are remembered, each at the low bits of its number.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    hasher: SipHasher13,
    /// Bits of a half, at most 16.
    half: u32,
    /// Values with their inverses.
    remembered: [Cell<(u32, u32)>; REMEMBERED],
}

impl Permutation {
    pub(super) fn new(secret: [u8; 16], half: u32) -> Self {
        let permutation = Self {
            hasher: SipHasher13::new_with_key(&secret),
            half,
            remembered: [const { Cell::new((0, 0)) }; REMEMBERED],
        };
        // A true pair, so that no entry has to be marked as empty.
        let pair = (0, permutation.compute_inverse(0));
        for entry in &permutation.remembered {
            entry.set(pair);
        }
        permutation
    }

    pub(super) fn apply(&self, value: u32) -> u32 {
        let (left, right) = (0..ROUNDS).fold(self.split(value), |(left, right), round| {
            (right, left ^ self.function(round, right))
        });
        left << self.half | right
    }

    pub(super) fn invert(&self, value: u32) -> u32 {
        let index = value as usize % REMEMBERED;
        let Some(entry) = self.remembered.get(index) else {
            return self.compute_inverse(value);
        };
        let (known, inverse) = entry.get();
        if known == value {
            return inverse;
        }
        let inverse = self.compute_inverse(value);
        entry.set((value, inverse));
        inverse
    }

    fn compute_inverse(&self, value: u32) -> u32 {
        let halves = self.split(value);
        let (left, right) = (0..ROUNDS).rev().fold(halves, |(left, right), round| {
            (right ^ self.function(round, left), left)
        });
        left << self.half | right
    }

    fn function(&self, round: u8, half: u32) -> u32 {
        let mut hasher = self.hasher;
        let [_, _, high, low] = half.to_be_bytes();
        hasher.write(&[round, high, low]);
        // Any bits of the hash are as good.
        hasher.finish() as u32 & self.mask()
    }

    const fn split(&self, value: u32) -> (u32, u32) {
        (value >> self.half, value & self.mask())
    }

    const fn mask(&self) -> u32 {
        (1 << self.half) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: ROCE-128
    #[test]
    fn the_inverse_leads_back_and_the_secret_matters() {
        let permutation = Permutation::new([7; 16], 16);
        let other = Permutation::new([8; 16], 16);
        let mut equal = 0;
        let mut flipped = 0;
        for value in (0..20_000).chain([u32::MAX, 1 << 31]) {
            let image = permutation.apply(value);
            assert_eq!(permutation.invert(image), value);
            // The second time it is remembered.
            assert_eq!(permutation.invert(image), value);
            equal += u32::from(other.apply(value) == image);
            flipped += (image ^ permutation.apply(value ^ 1)).count_ones();
        }
        assert!(equal < 5, "{equal}");
        // Half of the bits, on average.
        assert!((15 * 20_000..17 * 20_000).contains(&flipped), "{flipped}");
    }

    /// Spec: ROCE-56
    #[test]
    fn numbers_of_24_bits_stay_below_2_to_the_24() {
        let permutation = Permutation::new([9; 16], 12);
        for value in (0..5_000).chain((1 << 24) - 5_000..1 << 24) {
            let image = permutation.apply(value);
            assert!(image < 1 << 24);
            assert_eq!(permutation.invert(image), value);
        }
    }
}
