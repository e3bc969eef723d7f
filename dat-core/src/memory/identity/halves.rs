//! The identity of a region where the processor stores 32 bits at once.

use super::{FIRST_CONTEXT, word};
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// The identity as two halves, of which the context is written last and read last.
#[derive(Debug)]
pub(in crate::memory) struct Identity {
    /// Zone tag in the upper half, privileges in the lower.
    meta: AtomicU32,
    /// The LMR context while the region lives, else one below `FIRST_CONTEXT`.
    context: AtomicU32,
}

impl Identity {
    /// No region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(in crate::memory) const NONE: Self = Self {
        meta: AtomicU32::new(0),
        context: AtomicU32::new(0),
    };

    /// The word, read after everything that was read before.
    ///
    /// Nothing while only one half of it is written: such a word has privileges, which would pass who
    /// asks for no context.
    #[inline(always)]
    pub(in crate::memory) fn settled(&self) -> u64 {
        let meta = self.meta.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        match self.context.load(Ordering::Relaxed) {
            0..FIRST_CONTEXT => 0,
            context => word(context, meta),
        }
    }

    /// The context, below `FIRST_CONTEXT` if no region is here; ordered among all of its kind.
    pub(in crate::memory) fn context(&self) -> u32 {
        self.context.load(Ordering::SeqCst)
    }

    /// Zone tag and privileges.
    pub(in crate::memory) fn meta(&self) -> u32 {
        self.meta.load(Ordering::Relaxed)
    }

    /// Makes the slot the region's; what was written before is seen by who sees this.
    pub(in crate::memory) fn set(&self, context: u32, meta: u32) {
        self.meta.store(meta, Ordering::Relaxed);
        self.context.store(context, Ordering::SeqCst);
    }

    /// No region any more; what is written afterwards is seen only by who sees this.
    pub(in crate::memory) fn clear(&self) {
        self.context.store(0, Ordering::SeqCst);
        fence(Ordering::Release);
        self.meta.store(0, Ordering::Relaxed);
    }
}
