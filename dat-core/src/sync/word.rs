//! A 64-bit word with relaxed accesses on every target.

#[cfg(any(not(target_has_atomic = "64"), halves))]
use super::atomic::AtomicU32;
#[cfg(all(target_has_atomic = "64", not(halves)))]
use super::atomic::AtomicU64;
use super::atomic::Ordering;

/// A 64-bit word; on 32-bit targets it is two halves.
///
/// Who may read and who may write at a given moment is settled elsewhere (a lock, or the ownership
/// protocol of the record that holds the word), so a torn pair is never observed.
#[derive(Debug)]
pub struct Word64 {
    #[cfg(all(target_has_atomic = "64", not(halves)))]
    whole: AtomicU64,
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    halves: [AtomicU32; 2],
}

impl Word64 {
    /// A word of this value.
    #[cfg(all(target_has_atomic = "64", not(halves)))]
    pub const fn new(value: u64) -> Self {
        Self {
            whole: AtomicU64::new(value),
        }
    }

    /// A word of this value.
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    pub const fn new(value: u64) -> Self {
        Self {
            halves: [
                AtomicU32::new(value as u32),
                AtomicU32::new((value >> 32) as u32),
            ],
        }
    }

    /// Its value.
    #[cfg(all(target_has_atomic = "64", not(halves)))]
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    /// Its value.
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    #[inline(always)]
    pub fn load(&self) -> u64 {
        let [low, high] = &self.halves;
        u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
    }

    /// Gives it another value.
    #[cfg(all(target_has_atomic = "64", not(halves)))]
    #[inline(always)]
    pub fn store(&self, value: u64) {
        self.whole.store(value, Ordering::Relaxed);
    }

    /// Gives it another value.
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    #[inline(always)]
    pub fn store(&self, value: u64) {
        let [low, high] = &self.halves;
        low.store(value as u32, Ordering::Relaxed);
        high.store((value >> 32) as u32, Ordering::Relaxed);
    }
}
