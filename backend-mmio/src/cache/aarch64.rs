//! Arm of 64 bits: maintenance by address to the point of coherency.
#![expect(
    unsafe_code,
    reason = "instructions that the language has no words for"
)]

use core::arch::asm;

use super::platform::complete;
use super::{CacheLines, LineSize};

/// Barriers and cache maintenance of a processor whose devices do not see its caches.
///
/// Registers are mapped as device memory without gathering. The operations work at EL1; at EL0 the operating system must
/// allow them (`SCTLR_EL1.UCI` and `UCT`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64Hal;

impl CacheLines for Aarch64Hal {
    fn line_size(&self) -> LineSize {
        let register: u64;
        // SAFETY: it reads a register that says how caches are made.
        unsafe {
            asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags));
        }
        // `DminLine`: words of 4 bytes in the smallest line, as a power of two.
        LineSize(4 << (register >> 16 & 0xF))
    }

    fn clean(&self, line: u64) {
        // SAFETY: it changes no byte that the processor reads; where nothing is mapped it faults.
        unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    fn clean_and_invalidate(&self, line: u64) {
        // SAFETY: stores in the line are written back first; a byte that changes is one that a device wrote, in memory that
        // devices were given. Where nothing is mapped it faults.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    fn barrier(&self) {
        complete();
    }
}
