//! Instance tags of adapters.

use portable_atomic::{AtomicU16, AtomicU32, Ordering};

/// Words of the bitmap of tags: one bit per tag on hosts, else 1/256 of that.
const WORDS: usize = if cfg!(feature = "std") { 2048 } else { 8 };

/// The tags of all adapters, with a bitmap of those in use.
///
/// Tags are given out in turn. Tags that are equal modulo 32 times the number of words share a bit,
/// so at most one of them is in use.
struct Tags<const WORDS: usize> {
    next: AtomicU16,
    in_use: [AtomicU32; WORDS],
}

static TAGS: Tags<WORDS> = Tags::new();

/// The tag of an open adapter; no other adapter gets it until this is dropped.
#[derive(Debug)]
pub(crate) struct InstanceTag(u16);

impl InstanceTag {
    /// Takes the next tag in turn that no open adapter has.
    ///
    /// Returns `None` if more adapters are open than tags can tell apart. A leaked adapter keeps
    /// its tag.
    pub(crate) fn take() -> Option<Self> {
        TAGS.take().map(Self)
    }

    /// Returns the tag as handles carry it.
    pub(crate) const fn get(&self) -> u16 {
        self.0
    }
}

impl Drop for InstanceTag {
    fn drop(&mut self) {
        TAGS.give_back(self.0);
    }
}

impl<const WORDS: usize> Tags<WORDS> {
    const fn new() -> Self {
        Self {
            next: AtomicU16::new(1),
            in_use: [const { AtomicU32::new(0) }; WORDS],
        }
    }

    fn take(&self) -> Option<u16> {
        for _ in 0..WORDS.saturating_mul(32) {
            let tag = self.next.fetch_add(1, Ordering::Relaxed);
            let (word, bit) = self.position(tag)?;
            if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                return Some(tag);
            }
        }
        None
    }

    fn give_back(&self, tag: u16) {
        if let Some((word, bit)) = self.position(tag) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn position(&self, tag: u16) -> Option<(&AtomicU32, u32)> {
        let word = usize::from(tag >> 5).checked_rem(WORDS)?;
        let bit = 1_u32.wrapping_shl(u32::from(tag));
        Some((self.in_use.get(word)?, bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Cause, ErrorKind};
    use crate::testing::{TestBackend, TestStorage, open};

    /// Spec: GEN-11
    #[test]
    fn tags_in_use_are_not_given_out_again() {
        let tags = Tags::<2>::new();
        let mut held: std::vec::Vec<u16> = (0..64).map(|_| tags.take().unwrap()).collect();
        assert_eq!(tags.take(), None);
        for round in 0..200_000_usize {
            let old = held.remove(round * 7 % 63);
            tags.give_back(old);
            let tag = tags.take().unwrap();
            assert!(tag != old && !held.contains(&tag));
            assert_eq!(tag % 64, old % 64);
            held.push(tag);
        }
        for tag in held {
            tags.give_back(tag);
        }
        assert!((0..64).all(|_| tags.take().is_some()));
    }

    /// Handles of an open adapter stay foreign to another, even after 65,536 more were opened.
    ///
    /// Spec: GEN-11, IAO-06
    #[test]
    fn adapters_that_are_open_never_share_a_tag() {
        let (device, other) = (TestBackend::default(), TestBackend::default());
        let (mut storage, mut other_storage) = (TestStorage::new(), TestStorage::new());
        let first = open(&mut storage, &device);
        let pz = first.pz_create().unwrap();
        for _ in 0..=u16::MAX {
            let second = open(&mut other_storage, &other);
            assert_ne!(second.handle(), first.handle());
            let refused = second.pz_free(pz).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidHandle);
            assert_eq!(refused.cause(), Cause::Foreign);
        }
        first.pz_free(pz).unwrap();
    }
}
