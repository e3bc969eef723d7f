//! Identity of a region on processors that store 32 bits at once.

use super::seal_with;
use crate::flags::MemoryPrivileges;
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// Identity as two halves; the context is written last and read last.
#[derive(Debug)]
pub(in crate::memory) struct Identity {
    /// Zone tag in the upper half, privileges in the lower.
    meta: AtomicU32,
    /// LMR context while the slot holds a region, else a value below `FIRST_CONTEXT`.
    context: AtomicU32,
}

impl Identity {
    /// Identity of a slot without a region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(in crate::memory) const NONE: Self = Self {
        meta: AtomicU32::new(0),
        context: AtomicU32::new(0),
    };

    /// Returns the seal for a local access; earlier reads are ordered before it.
    ///
    /// While only one half is written, the seal is 0 or that of a context not yet given to a
    /// consumer.
    #[inline]
    pub(in crate::memory) fn seal(&self, writes: bool) -> u64 {
        let meta = self.meta.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let privilege = if writes {
            MemoryPrivileges::LOCAL_WRITE
        } else {
            MemoryPrivileges::LOCAL_READ
        };
        seal_with(privilege, self.context.load(Ordering::Relaxed), meta)
    }

    /// Returns the context, below `FIRST_CONTEXT` without a region; sequentially consistent.
    pub(in crate::memory) fn context(&self) -> u32 {
        self.context.load(Ordering::SeqCst)
    }

    /// Returns zone tag and privileges.
    pub(in crate::memory) fn meta(&self) -> u32 {
        self.meta.load(Ordering::Relaxed)
    }

    /// Sets the identity; a reader that sees it also sees all earlier writes.
    pub(in crate::memory) fn set(&self, context: u32, meta: u32) {
        self.meta.store(meta, Ordering::Relaxed);
        self.context.store(context, Ordering::SeqCst);
    }

    /// Clears the identity.
    pub(in crate::memory) fn clear(&self) {
        self.context.store(0, Ordering::SeqCst);
        fence(Ordering::Release);
        self.meta.store(0, Ordering::Relaxed);
    }
}
