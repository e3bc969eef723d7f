//! Cache maintenance of 64-bit Arm, by address to the point of coherency.
#![expect(unsafe_code, reason = "barrier and cache instructions need assembly")]

use core::arch::asm;

use super::platform::complete;
use super::{CacheLines, LineSize};

/// Barriers and cache maintenance for a 64-bit Arm processor whose devices bypass its caches.
///
/// Registers must be mapped as device memory without gathering. The operations work at EL1; at EL0
/// the operating system must allow them (`SCTLR_EL1.UCI` and `UCT`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64Hal;

impl CacheLines for Aarch64Hal {
    fn line_size(&self) -> LineSize {
        let register: u64;
        // SAFETY: the instruction reads a register that describes the caches.
        unsafe {
            asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags));
        }
        // `DminLine`: log2 of the number of 4-byte words in the smallest line.
        LineSize(4 << (register >> 16 & 0xF))
    }

    fn clean(&self, line: u64) {
        // SAFETY: the instruction changes no byte that the processor reads; it faults if nothing is
        // mapped at the address.
        unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    fn clean_and_invalidate(&self, line: u64) {
        // SAFETY: the instruction first writes back stores in the line. A byte changes only if a
        // device wrote it, in memory given to devices. It faults if nothing is mapped at the
        // address.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    fn barrier(&self) {
        complete();
    }
}
