//! Slots for windows, and the sequence of keys of a window.

use core::sync::atomic::{AtomicU32, Ordering};

use dat_core::backend::BINDS_UNDER_WAY;

/// Slot for one window.
#[derive(Debug)]
pub struct WindowSlot {
    /// Key as of the last posted bind; 0 if the slot is free.
    pub(crate) key: AtomicU32,
    /// Sequence of the remaining keys, see `Keys`.
    keys: AtomicU32,
    /// Protection domain.
    domain: AtomicU32,
    /// Rank of a window made ahead and not yet taken, else 0.
    ///
    /// The lowest rank is taken first.
    ahead: AtomicU32,
}

/// Sequence of the eight variable key bits of a window, stored as one word.
#[derive(Clone, Copy, Debug)]
struct Keys {
    next: u8,
    /// Odd, so that every value occurs before one repeats.
    step: u8,
    /// The bits that the device assigned; no bind uses them.
    device_bits: u8,
    left: u8,
}

impl Keys {
    /// Covers all values but the device's own.
    ///
    /// Starts and steps at random values, or counts up by 1 without a random number.
    fn new(key: u32, random: Option<u32>) -> Self {
        let [device_bits, ..] = key.to_le_bytes();
        let [next, step, ..] = match random {
            Some(random) => random.to_le_bytes(),
            None => [device_bits.wrapping_add(1), 1, 0, 0],
        };
        let keys = Self {
            next,
            step: step | 1,
            device_bits,
            left: u8::MAX,
        };
        keys.past_device()
    }

    fn past_device(self) -> Self {
        if self.next == self.device_bits {
            let next = self.next.wrapping_add(self.step);
            Self { next, ..self }
        } else {
            self
        }
    }

    /// Returns the sequence after its next key is used.
    fn after(self) -> Self {
        let keys = Self {
            next: self.next.wrapping_add(self.step),
            left: self.left.saturating_sub(1),
            ..self
        };
        keys.past_device()
    }

    const fn to_word(self) -> u32 {
        u32::from_le_bytes([self.next, self.step, self.device_bits, self.left])
    }

    const fn of_word(word: u32) -> Self {
        let [next, step, device_bits, left] = word.to_le_bytes();
        Self {
            next,
            step,
            device_bits,
            left,
        }
    }
}

impl WindowSlot {
    /// A slot without window.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        key: AtomicU32::new(0),
        keys: AtomicU32::new(0),
        domain: AtomicU32::new(0),
        ahead: AtomicU32::new(0),
    };

    /// Starts a window of the device; `ahead` is 0 unless it is made ahead.
    pub(crate) fn begin(&self, key: u32, domain: u32, random: Option<u32>, ahead: u32) {
        let keys = Keys::new(key, random);
        self.keys.store(keys.to_word(), Ordering::Relaxed);
        self.domain.store(domain, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }

    /// Frees the slot.
    pub(crate) fn end(&self) {
        self.key.store(0, Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }

    /// Takes a window that was made ahead.
    pub(crate) fn take(&self) {
        self.ahead.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.key.load(Ordering::Relaxed) == 0
    }

    /// Returns the domain of a window made ahead, and its rank.
    pub(crate) fn made_ahead(&self) -> Option<(u32, u32)> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != 0).then(|| (self.domain.load(Ordering::Relaxed), ahead))
    }

    /// Returns true if too few keys are left for the next bind.
    ///
    /// A bind that is the only one under way needs keys for those that may follow it.
    #[inline]
    pub(crate) fn is_spent(&self, is_only: bool) -> bool {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        usize::from(keys.left) < needed
    }

    /// Returns the current key and the key of the next bind.
    pub(crate) fn next_key(&self) -> [u32; 2] {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        let old = self.key.load(Ordering::Relaxed);
        [old, old & !0xFF | u32::from(keys.next)]
    }

    /// Records that the next bind was posted with `key`.
    pub(crate) fn bound(&self, key: u32) {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        self.keys.store(keys.after().to_word(), Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }
}
