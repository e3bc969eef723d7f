//! Array of values in reserved address space.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_core::{Error, Result, Subtype};

use crate::limits::above_limit;
use crate::memory::{Memory, access};

/// Number of bytes that become accessible at a time.
const STEP: usize = 1 << 15;

/// A type whose values may be made of zero bytes.
///
/// # Safety
/// All bytes zero are a value, and it needs no drop. The alignment is at most that of a page.
#[expect(unsafe_code)]
// UNSAFETY: `Words` and `Arena` make values of the type from the system's memory.
pub unsafe trait Zeroed: Sync {}

/// An array of words that grows, for tables beside those of the core. A new word is 0.
#[derive(Debug)]
pub struct Words<T> {
    memory: Memory,
    length: usize,
    /// Number of words at the start that are accessible.
    made: AtomicUsize,
    _words: PhantomData<T>,
}

impl<T: Zeroed> Words<T> {
    /// Reserves address space for `length` words.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (MEMORY), above limit: there are fewer addresses.
    /// - INSUFFICIENT_RESOURCES (MEMORY): the system refuses the address space.
    pub fn new(length: usize) -> Result<Self> {
        let bytes = length.checked_mul(size_of::<T>());
        let memory = Memory::reserve(bytes.ok_or(above_limit())?);
        Ok(Self {
            memory: memory.ok_or(Error::insufficient_resources(Subtype::ResourceMemory))?,
            length,
            made: AtomicUsize::new(0),
            _words: PhantomData,
        })
    }

    /// Returns the maximum number of words.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there can be no words.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns a word, if it was made.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index >= self.made.load(Ordering::Acquire) {
            return None;
        }
        #[expect(unsafe_code)]
        // SAFETY: the word is accessible, and memory of the system is 0 at first, which is a value.
        // It is aligned, since the memory starts with a page. All references to it are shared.
        Some(unsafe { self.memory.start().cast::<T>().add(index).as_ref() })
    }

    /// Returns a word, and makes it first if it is new.
    ///
    /// `None` if `index` is not below the length, or if the system refuses memory.
    pub fn make(&self, index: usize) -> Option<&T> {
        let made = self.made.load(Ordering::Acquire);
        if index < made {
            return self.get(index);
        }
        if index >= self.length {
            return None;
        }
        extend(
            self.memory.start().as_ptr().cast::<T>(),
            &self.made,
            index,
            self.length,
        )?;
        self.get(index)
    }
}

/// Makes the element with an index accessible, which is not yet, and those before it.
///
/// `None` if the system refuses memory. `start` is that of a `Memory` of `most` elements, `index`
/// is below `most`, and `made` of them are accessible.
pub(crate) fn extend<T>(
    start: *mut T,
    made: &AtomicUsize,
    index: usize,
    most: usize,
) -> Option<()> {
    let first = made.load(Ordering::Acquire);
    let bytes = (index + 1)
        .saturating_sub(first)
        .checked_mul(size_of::<T>())?;
    let count = bytes.checked_next_multiple_of(STEP)? / size_of::<T>().max(1);
    let end = first.saturating_add(count).min(most);
    let bytes = end.saturating_sub(first) * size_of::<T>();
    if !access(start.wrapping_add(first).cast(), bytes) {
        return None;
    }
    // Another thread may make elements at the same time, from the same or a later one on.
    made.fetch_max(end, Ordering::AcqRel);
    Some(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[expect(unsafe_code)]
    // SAFETY: it is an integer.
    unsafe impl Zeroed for AtomicU32 {}
    type Words = super::Words<AtomicU32>;

    #[test]
    fn words_are_made_on_demand() {
        let words = Words::new(10_000).unwrap();
        assert!(words.get(0).is_none());
        words.make(0).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(words.get(0).unwrap().load(Ordering::Relaxed), 7);
        assert!(words.get(9_999).is_none() && words.make(10_000).is_none());
        assert_eq!(words.make(9_999).unwrap().load(Ordering::Relaxed), 0);
        assert!(words.get(10_000).is_none() && words.get(usize::MAX).is_none());
        assert_eq!(words.get(0).unwrap().load(Ordering::Relaxed), 7);
    }

    #[test]
    fn threads_make_words_at_once() {
        let words = Words::new(1 << 16).unwrap();
        std::thread::scope(|scope| {
            for first in 0..4 {
                let words = &words;
                scope.spawn(move || {
                    for index in (first..1 << 16).step_by(4) {
                        words.make(index).unwrap().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let all = (0..1 << 16).map(|index| words.get(index).unwrap());
        assert!(
            all.into_iter()
                .all(|word| word.load(Ordering::Relaxed) == 1)
        );
    }

    #[test]
    fn too_many_words_are_refused() {
        assert_eq!(Words::new(usize::MAX).unwrap_err(), above_limit());
        assert!(Words::new(usize::MAX / 8).is_err());
        assert!(Words::new(0).unwrap().make(0).is_none());
    }
}
