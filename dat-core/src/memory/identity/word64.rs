//! Identity of a region on processors that store 64 bits at once.

use super::seal_with;
use crate::flags::MemoryPrivileges;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Identity, with the seal of each local privilege ready for comparison.
#[derive(Debug)]
pub(in crate::memory) struct Identity {
    /// Seal if the region may be read locally, else 0.
    read: AtomicU64,
    /// Seal if the region may be written locally, else 0.
    write: AtomicU64,
    /// Context in the upper half, zone and privileges in the lower.
    whole: AtomicU64,
}

impl Identity {
    /// Identity of a slot without a region.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(in crate::memory) const NONE: Self = Self {
        read: AtomicU64::new(0),
        write: AtomicU64::new(0),
        whole: AtomicU64::new(0),
    };

    /// Returns the seal for a local access; earlier reads are ordered before it.
    #[inline]
    pub(in crate::memory) fn seal(&self, writes: bool) -> u64 {
        fence(Ordering::Acquire);
        let seal = if writes { &self.write } else { &self.read };
        seal.load(Ordering::Relaxed)
    }

    /// Returns the context, below `FIRST_CONTEXT` without a region; sequentially consistent.
    pub(in crate::memory) fn context(&self) -> u32 {
        (self.whole.load(Ordering::SeqCst) >> 32) as u32
    }

    /// Returns zone tag and privileges.
    pub(in crate::memory) fn meta(&self) -> u32 {
        self.whole.load(Ordering::Relaxed) as u32
    }

    /// Sets the identity; a reader that sees its context also sees all earlier writes.
    ///
    /// A post reads the fields before the seal, so no order of the seal would help it.
    pub(in crate::memory) fn set(&self, context: u32, meta: u32) {
        let (read, write) = (MemoryPrivileges::LOCAL_READ, MemoryPrivileges::LOCAL_WRITE);
        self.read
            .store(seal_with(read, context, meta), Ordering::Relaxed);
        self.write
            .store(seal_with(write, context, meta), Ordering::Relaxed);
        let whole = u64::from(context) << 32 | u64::from(meta);
        self.whole.store(whole, Ordering::SeqCst);
    }

    /// Clears the identity.
    pub(in crate::memory) fn clear(&self) {
        self.whole.store(0, Ordering::SeqCst);
        // A refused post that saw no seal also sees that the region is gone.
        fence(Ordering::Release);
        self.read.store(0, Ordering::Relaxed);
        self.write.store(0, Ordering::Relaxed);
    }
}
