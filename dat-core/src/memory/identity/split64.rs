//! The identity of a region where the processor stores 32 bits at once.

use super::seal_with;
use crate::flags::MemoryPrivileges;
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

    /// Returns the seal for a local access, read after everything that was read before.
    ///
    /// While only one half is written it is 0, or the seal of a context that nobody was told yet.
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
