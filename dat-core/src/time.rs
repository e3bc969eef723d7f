//! Time as the caller passes it; the core reads no clock.

#[cfg(test)]
mod tests;

/// A point in time, in microseconds since an epoch of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instant(u64);

impl Instant {
    /// The epoch.
    pub const ZERO: Self = Self(0);

    /// Returns the time `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time at which a DAT timeout expires; `None` for an infinite one (GEN-09).
    pub fn after(self, timeout: u32) -> Option<Self> {
        if timeout == crate::flags::TIMEOUT_INFINITE {
            return None;
        }
        Some(Self(self.0.saturating_add(u64::from(timeout))))
    }
}

/// Returns the earlier of two optional times.
pub(crate) fn first(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
