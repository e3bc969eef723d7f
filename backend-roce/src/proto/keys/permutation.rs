//! A secret permutation of 32 bits.

use core::hash::Hasher as _;
use siphasher::sip::SipHasher13;

/// Rounds; more than five withstand as many known pairs as there are halves.
const ROUNDS: u8 = 8;

/// A Feistel network over halves of 16 bits, with a keyed hash as its function.
#[derive(Clone, Debug)]
pub(super) struct Permutation(SipHasher13);

impl Permutation {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&secret))
    }

    pub(super) fn apply(&self, value: u32) -> u32 {
        let halves = (0..ROUNDS).fold(split(value), |(left, right), round| {
            (right, left ^ self.function(round, right))
        });
        join(halves)
    }

    pub(super) fn invert(&self, value: u32) -> u32 {
        let halves = (0..ROUNDS)
            .rev()
            .fold(split(value), |(left, right), round| {
                (right ^ self.function(round, left), left)
            });
        join(halves)
    }

    fn function(&self, round: u8, half: u16) -> u16 {
        let mut hasher = self.0;
        let [high, low] = half.to_be_bytes();
        hasher.write(&[round, high, low]);
        // Any 16 bits of the hash are as good.
        hasher.finish() as u16
    }
}

const fn split(value: u32) -> (u16, u16) {
    ((value >> 16) as u16, value as u16)
}

fn join((left, right): (u16, u16)) -> u32 {
    u32::from(left) << 16 | u32::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: ROCE-128
    #[test]
    fn the_inverse_leads_back_and_the_secret_matters() {
        let permutation = Permutation::new([7; 16]);
        let other = Permutation::new([8; 16]);
        let mut equal = 0;
        let mut flipped = 0;
        for value in (0..20_000).chain([u32::MAX, 1 << 31]) {
            let image = permutation.apply(value);
            assert_eq!(permutation.invert(image), value);
            equal += u32::from(other.apply(value) == image);
            flipped += (image ^ permutation.apply(value ^ 1)).count_ones();
        }
        assert!(equal < 5, "{equal}");
        // Half of the bits, on average.
        assert!((15 * 20_000..17 * 20_000).contains(&flipped), "{flipped}");
    }
}
