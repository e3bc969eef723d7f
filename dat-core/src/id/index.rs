//! Index of the slot of an object.

use core::fmt;
use core::num::NonZeroU32;

use super::LAST_INDEX;

/// Index of the slot of an object; an `Option` of it has four bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Index(
    /// The index plus 1.
    NonZeroU32,
);

impl Index {
    /// Index of the first slot.
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    /// Creates an index from the lower bits of a word, those of an index in a handle.
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(word & LAST_INDEX))
    }

    /// Creates an index that a handle can hold.
    pub(crate) fn new(index: usize) -> Option<Self> {
        let index = u32::try_from(index).ok()?;
        (index <= LAST_INDEX).then_some(Self::from_word(index))
    }

    /// Returns the index.
    #[inline]
    pub(crate) const fn get(self) -> u32 {
        self.0.get().wrapping_sub(1)
    }
}

impl From<Index> for usize {
    #[inline]
    fn from(index: Index) -> Self {
        index.get() as Self
    }
}

#[cfg(test)]
impl From<u32> for Index {
    fn from(index: u32) -> Self {
        Self::new(index as usize).unwrap()
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_fits_in_a_handle() {
        assert_eq!(Index::new(0), Some(Index::FIRST));
        let last = Index::new(LAST_INDEX as usize).unwrap();
        assert_eq!(
            (last.get(), usize::from(last)),
            (LAST_INDEX, LAST_INDEX as usize)
        );
        assert_eq!(Index::new(LAST_INDEX as usize + 1), None);
        assert_eq!(Index::from_word(u32::MAX), last);
        assert_eq!(size_of::<Option<Index>>(), 4);
    }
}
