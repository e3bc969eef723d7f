//! Slots of a state machine: lent by the caller, or its own.

#[cfg(feature = "alloc")]
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// A slice of slots that a state machine uses.
pub struct Slots<'s, T> {
    memory: Memory<'s, T>,
    /// Number of slots in use, from the first one on.
    used: usize,
}

enum Memory<'s, T> {
    Lent(&'s mut [T]),
    #[cfg(feature = "alloc")]
    Owned(Vec<T>),
}

impl<T> Memory<'_, T> {
    const fn all(&self) -> &[T] {
        match self {
            Self::Lent(slots) => slots,
            #[cfg(feature = "alloc")]
            Self::Owned(slots) => slots.as_slice(),
        }
    }

    const fn all_mut(&mut self) -> &mut [T] {
        match self {
            Self::Lent(slots) => slots,
            #[cfg(feature = "alloc")]
            Self::Owned(slots) => slots.as_mut_slice(),
        }
    }
}

impl<T> Slots<'_, T> {
    /// Leaves the slots from `used` on unused.
    pub(super) fn truncate(&mut self, used: usize) {
        self.used = self.used.min(used);
    }
}

impl<T> Default for Slots<'_, T> {
    /// Returns no slots.
    fn default() -> Self {
        Self {
            memory: Memory::Lent(&mut []),
            used: 0,
        }
    }
}

impl<'s, T, M> From<&'s mut M> for Slots<'s, T>
where
    M: AsMut<[T]> + ?Sized,
{
    fn from(memory: &'s mut M) -> Self {
        let memory = memory.as_mut();
        Self {
            used: memory.len(),
            memory: Memory::Lent(memory),
        }
    }
}

#[cfg(feature = "alloc")]
impl<T> From<Vec<T>> for Slots<'_, T> {
    fn from(memory: Vec<T>) -> Self {
        Self {
            used: memory.len(),
            memory: Memory::Owned(memory),
        }
    }
}

impl<T> Deref for Slots<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory.all().get(..self.used).unwrap_or_default()
    }
}

impl<T> DerefMut for Slots<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let all = self.memory.all_mut();
        all.get_mut(..self.used).unwrap_or_default()
    }
}

impl<T: fmt::Debug> fmt::Debug for Slots<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
