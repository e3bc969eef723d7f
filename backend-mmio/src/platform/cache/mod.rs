//! Cache maintenance, line by line, for processors whose devices bypass the cache.
//!
//! | call | whole lines | lines that the range shares with its neighbours |
//! |---|---|---|
//! | `lmr_sync_rdma_read` | cleaned | cleaned |
//! | `lmr_sync_rdma_write` | cleaned and invalidated | cleaned and invalidated |
//!
//! No line is invalidated without being cleaned. In a line at either end of the range, that would
//! discard stores to neighbouring bytes. In a whole line it would discard the consumer's own
//! stores. The same call is made before and after a peer's write (LSW-12), and earlier stores
//! remain where the peer does not write. After the write, no line holds a store if the program
//! follows the rules, so cleaning changes nothing.
//!
//! A line that a peer writes *and* the processor stores to at the same time keeps only one of the
//! two. Memory that peers write must begin and end at a line.
//!
//! The driver does not maintain rings and other memory that it shares with the device: on these
//! platforms no cache holds [`DmaMemory`](crate::DmaMemory).

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
    /// Creates a line size; `None` unless `bytes` is a power of two.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        match bytes.is_power_of_two() {
            true => Some(Self(bytes)),
            false => None,
        }
    }

    /// Returns the bytes of a line.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the address of the line that contains a byte.
    const fn line_of(self, address: u64) -> u64 {
        address & self.0.wrapping_neg()
    }
}

/// Operations on one line of the data cache, to the point where devices see memory.
///
/// Neither operation changes a byte that the processor reads, unless a device wrote the byte.
pub trait CacheLines {
    /// Returns the size of the smallest line of all caches.
    fn line_size(&self) -> LineSize;

    /// Writes the line back if it is dirty; the cache may keep it.
    fn clean(&self, line: u64);

    /// Writes the line back if it is dirty, and drops it from the cache.
    fn clean_and_invalidate(&self, line: u64);

    /// Orders earlier memory accesses and maintenance before later ones.
    ///
    /// Earlier maintenance is complete on return.
    fn barrier(&self);
}

/// Maintains every line of a range once, in ascending order; complete on return.
///
/// Does nothing for an empty range. The range does not wrap: it ends at the last address if it
/// reaches beyond.
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
