//! Random numbers of an adapter (ROCE-175).

use core::hash::Hasher as _;
use siphasher::sip::SipHasher13;

/// A generator of numbers that nobody without the secret can guess.
pub(crate) struct Random {
    secret: [u8; 16],
    drawn: u64,
}

impl Random {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self { secret, drawn: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    pub(crate) fn secret(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_ne_bytes()
    }
}
