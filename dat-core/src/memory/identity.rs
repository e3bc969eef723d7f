//! What a post compares to know that a region is the one it names and may be used.

#[cfg(any(not(target_has_atomic = "64"), halves))]
use crate::sync::atomic::AtomicU32;
#[cfg(all(target_has_atomic = "64", not(halves)))]
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::{Ordering, fence};

/// Context, zone and privileges of the region in a slot, or nothing: one word, on 32-bit targets two
/// halves of which the context is written last and read last.
#[derive(Debug)]
pub(super) struct Identity {
    #[cfg(all(target_has_atomic = "64", not(halves)))]
    whole: AtomicU64,
    /// Zone tag in the upper half, privileges in the lower.
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    meta: AtomicU32,
    /// The LMR context while the region lives, else one below `FIRST_CONTEXT`.
    #[cfg(any(not(target_has_atomic = "64"), halves))]
    context: AtomicU32,
}

/// Contexts have a generation in their upper half, which is never 0.
const FIRST_CONTEXT: u32 = 1 << 16;

impl Identity {
    /// Whether a region lives in the slot.
    pub(super) fn is_live(&self) -> bool {
        self.context() >= FIRST_CONTEXT
    }
}

/// An identity as one number: context above, zone and privileges below. A word without privileges
/// passes no check, whatever context is asked for.
#[inline(always)]
pub(super) const fn word(context: u32, meta: u32) -> u64 {
    (context as u64) << 32 | meta as u64
}

#[cfg(all(target_has_atomic = "64", not(halves)))]
impl Identity {
    /// No region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(super) const NONE: Self = Self {
        whole: AtomicU64::new(0),
    };

    /// The word, read after everything that was read before.
    #[inline(always)]
    pub(super) fn settled(&self) -> u64 {
        fence(Ordering::Acquire);
        self.whole.load(Ordering::Relaxed)
    }

    /// The context, below `FIRST_CONTEXT` if no region is here; ordered among all of its kind.
    pub(super) fn context(&self) -> u32 {
        (self.whole.load(Ordering::SeqCst) >> 32) as u32
    }

    /// Zone tag and privileges.
    pub(super) fn meta(&self) -> u32 {
        self.whole.load(Ordering::Relaxed) as u32
    }

    /// Makes the slot the region's; what was written before is seen by who sees this.
    pub(super) fn set(&self, context: u32, meta: u32) {
        self.whole.store(word(context, meta), Ordering::SeqCst);
    }

    /// No region any more; what is written afterwards is seen only by who sees this.
    pub(super) fn clear(&self) {
        self.whole.store(0, Ordering::SeqCst);
        fence(Ordering::Release);
    }
}

#[cfg(any(not(target_has_atomic = "64"), halves))]
impl Identity {
    /// No region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(super) const NONE: Self = Self {
        meta: AtomicU32::new(0),
        context: AtomicU32::new(0),
    };

    /// The word, read after everything that was read before.
    ///
    /// Nothing while only one half of it is written: such a word has privileges, which would pass who
    /// asks for no context.
    #[inline(always)]
    pub(super) fn settled(&self) -> u64 {
        let meta = self.meta.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        match self.context.load(Ordering::Relaxed) {
            0..FIRST_CONTEXT => 0,
            context => word(context, meta),
        }
    }

    /// The context, below `FIRST_CONTEXT` if no region is here; ordered among all of its kind.
    pub(super) fn context(&self) -> u32 {
        self.context.load(Ordering::SeqCst)
    }

    /// Zone tag and privileges.
    pub(super) fn meta(&self) -> u32 {
        self.meta.load(Ordering::Relaxed)
    }

    /// Makes the slot the region's; what was written before is seen by who sees this.
    pub(super) fn set(&self, context: u32, meta: u32) {
        self.meta.store(meta, Ordering::Relaxed);
        self.context.store(context, Ordering::SeqCst);
    }

    /// No region any more; what is written afterwards is seen only by who sees this.
    pub(super) fn clear(&self) {
        self.context.store(0, Ordering::SeqCst);
        fence(Ordering::Release);
        self.meta.store(0, Ordering::Relaxed);
    }
}
