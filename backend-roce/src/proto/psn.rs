//! Packet sequence numbers.

/// A packet sequence number: 24 bits that wrap (ROCE-60).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Psn(u32);

/// Number of PSNs.
const PSNS: u32 = 1 << 24;

impl Psn {
    /// Returns the PSN of the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value % PSNS)
    }

    /// Returns the number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN `packets` after this one.
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// Returns the PSN before this one.
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// Returns the number of PSNs from `start` up to this one, modulo 2^24.
    pub const fn since(self, start: Self) -> u32 {
        self.0.wrapping_sub(start.0) % PSNS
    }

    /// Returns true if this PSN is before `other`: the shorter way round leads forward to `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) >= PSNS / 2
    }
}
