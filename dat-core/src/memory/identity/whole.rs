//! The identity of a region where the processor stores 64 bits at once.

use super::word;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// The identity as one word.
#[derive(Debug)]
pub(in crate::memory) struct Identity {
    whole: AtomicU64,
}

impl Identity {
    /// No region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(in crate::memory) const NONE: Self = Self {
        whole: AtomicU64::new(0),
    };

    /// The word, read after everything that was read before.
    #[inline(always)]
    pub(in crate::memory) fn settled(&self) -> u64 {
        fence(Ordering::Acquire);
        self.whole.load(Ordering::Relaxed)
    }

    /// The context, below `FIRST_CONTEXT` if no region is here; ordered among all of its kind.
    pub(in crate::memory) fn context(&self) -> u32 {
        (self.whole.load(Ordering::SeqCst) >> 32) as u32
    }

    /// Zone tag and privileges.
    pub(in crate::memory) fn meta(&self) -> u32 {
        self.whole.load(Ordering::Relaxed) as u32
    }

    /// Makes the slot the region's; what was written before is seen by who sees this.
    pub(in crate::memory) fn set(&self, context: u32, meta: u32) {
        self.whole.store(word(context, meta), Ordering::SeqCst);
    }

    /// No region any more; what is written afterwards is seen only by who sees this.
    pub(in crate::memory) fn clear(&self) {
        self.whole.store(0, Ordering::SeqCst);
        fence(Ordering::Release);
    }
}
