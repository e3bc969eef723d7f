//! Cache maintenance for processors whose devices do not see the cache, a line at a time.
//!
//! | call | whole lines | lines that the range shares with its neighbours |
//! |---|---|---|
//! | `lmr_sync_rdma_read` | cleaned | cleaned |
//! | `lmr_sync_rdma_write` | cleaned and invalidated | cleaned and invalidated |
//!
//! No line is invalidated without being cleaned. In a line at either end of the range that would discard stores to the
//! neighbours' bytes. In a whole line it would discard the consumer's own stores: one call serves both before a peer's write and
//! after it (LSW-12), and what was stored before the write stays where the peer does not write. After the write a line of a
//! program that keeps the rules holds no store, and to clean it changes nothing.
//!
//! A line that a peer writes *and* the processor stores to meanwhile can keep one of the two only. Memory that peers write begins and
//! ends with a line.
//!
//! Rings and other memory that the driver shares with the device are not maintained: on these platforms [`DmaMemory`](crate::DmaMemory)
//! is memory that no cache holds.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(any(
    target_arch = "aarch64",
    target_arch = "riscv32",
    target_arch = "riscv64"
))]
mod platform;
#[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
mod riscv;
#[cfg(test)]
mod tests;

use dat_core::backend::SyncDirection;

#[cfg(target_arch = "aarch64")]
pub use aarch64::Aarch64Hal;
#[cfg(any(
    target_arch = "aarch64",
    target_arch = "riscv32",
    target_arch = "riscv64"
))]
pub use platform::CoherentHal;
#[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
pub use riscv::RiscvHal;

/// Size of a cache line in bytes, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSize(u64);

impl LineSize {
    /// A line of this many bytes; `None` unless that is a power of two.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        match bytes.is_power_of_two() {
            true => Some(Self(bytes)),
            false => None,
        }
    }

    /// The bytes of a line.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The address where the line of a byte begins.
    const fn line_of(self, address: u64) -> u64 {
        address & self.0.wrapping_neg()
    }
}

/// Operations of a processor's data cache on one line, up to the point where devices see memory.
///
/// Neither operation changes a byte that the processor reads, unless a device wrote it.
pub trait CacheLines {
    /// The size of the smallest line of all its caches.
    fn line_size(&self) -> LineSize;

    /// Writes the line back if it was stored to; the cache may keep it.
    fn clean(&self, line: u64);

    /// Writes the line back if it was stored to, and drops it from the cache.
    fn clean_and_invalidate(&self, line: u64);

    /// Orders accesses to memory and maintenance before it against those after it; the maintenance is complete on return.
    fn barrier(&self);
}

/// Maintains every line of a range, each once and upwards; complete on return. Does nothing for an empty range.
///
/// The range does not wrap: one that reaches beyond the last address ends there.
///
/// Spec: LSR-04, LSW-03, LSW-24, LSW-26, LSW-27
pub fn maintain(cache: &impl CacheLines, direction: SyncDirection, address: u64, length: u64) {
    let Some(beyond) = length.checked_sub(1) else {
        return;
    };
    let size = cache.line_size();
    let last = size.line_of(address.saturating_add(beyond));
    let mut line = size.line_of(address);
    cache.barrier();
    loop {
        match direction {
            SyncDirection::RdmaRead => cache.clean(line),
            SyncDirection::RdmaWrite => cache.clean_and_invalidate(line),
        }
        if line == last {
            break;
        }
        line = line.wrapping_add(size.bytes());
    }
    cache.barrier();
}
