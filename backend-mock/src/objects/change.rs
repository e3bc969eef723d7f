//! Atomic operations on a number.

/// Change of a number by an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Add(u64),
    Swap { compare: u64, swap: u64 },
}

impl Change {
    pub(crate) fn of(self, before: u64) -> u64 {
        match self {
            Self::Add(add) => before.wrapping_add(add),
            Self::Swap { compare, swap } if before == compare => swap,
            Self::Swap { .. } => before,
        }
    }
}
