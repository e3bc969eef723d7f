//! A 64-bit word with relaxed accesses on every target.

#[cfg(any(not(target_has_atomic = "64"), split64))]
use super::atomic::AtomicU32;
#[cfg(all(target_has_atomic = "64", not(split64)))]
use super::atomic::AtomicU64;
use super::atomic::Ordering;

/// A 64-bit word; on targets without 64-bit atomics two halves.
///
/// A lock, or the ownership protocol of the record that holds the word, orders reads and writes, so
/// no reader sees halves of two values.
#[derive(Debug)]
pub struct Word64 {
    #[cfg(all(target_has_atomic = "64", not(split64)))]
    whole: AtomicU64,
    #[cfg(any(not(target_has_atomic = "64"), split64))]
    split64: [AtomicU32; 2],
}

impl Word64 {
    /// Creates a word with this value.
    #[cfg(all(target_has_atomic = "64", not(split64)))]
    pub const fn new(value: u64) -> Self {
        Self {
            whole: AtomicU64::new(value),
        }
    }

    /// Creates a word with this value.
    #[cfg(any(not(target_has_atomic = "64"), split64))]
    pub const fn new(value: u64) -> Self {
        Self {
            split64: [
                AtomicU32::new(value as u32),
                AtomicU32::new((value >> 32) as u32),
            ],
        }
    }

    /// Returns the value.
    #[cfg(all(target_has_atomic = "64", not(split64)))]
    #[inline]
    pub fn load(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    /// Returns the value.
    #[cfg(any(not(target_has_atomic = "64"), split64))]
    #[inline]
    pub fn load(&self) -> u64 {
        let [low, high] = &self.split64;
        u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
    }

    /// Sets the value.
    #[cfg(all(target_has_atomic = "64", not(split64)))]
    #[inline]
    pub fn store(&self, value: u64) {
        self.whole.store(value, Ordering::Relaxed);
    }

    /// Sets the value.
    #[cfg(any(not(target_has_atomic = "64"), split64))]
    #[inline]
    pub fn store(&self, value: u64) {
        let [low, high] = &self.split64;
        low.store(value as u32, Ordering::Relaxed);
        high.store((value >> 32) as u32, Ordering::Relaxed);
    }
}
