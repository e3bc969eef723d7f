//! RISC-V with the extension Zicbom: maintenance by cache block.
#![expect(
    unsafe_code,
    reason = "instructions that the language has no words for"
)]

use core::arch::asm;

use super::platform::complete;
use super::{CacheLines, LineSize};

/// Barriers and cache maintenance of a processor whose devices do not see its caches.
#[derive(Clone, Copy, Debug)]
pub struct RiscvHal {
    block: LineSize,
}

impl RiscvHal {
    /// Takes the size of a cache block, which no register tells: `riscv,cbom-block-size` in the device tree.
    ///
    /// # Safety
    /// The processor has Zicbom, and the environment lets this privilege mode run `cbo.clean` and `cbo.flush`
    /// (`menvcfg.CBCFE`, and `senvcfg.CBCFE` for user mode). Elsewhere they are illegal instructions.
    /// The block is not larger than the processor's: between larger ones, memory is left out.
    // UNSAFETY: what the processor has cannot be checked here.
    #[must_use]
    pub const unsafe fn new(block: LineSize) -> Self {
        Self { block }
    }
}

// The instructions are given as numbers, since the processors of our targets do not have them as a matter of course: MISC-MEM
// (0x0F), function 2, and the operation as the immediate.
impl CacheLines for RiscvHal {
    fn line_size(&self) -> LineSize {
        self.block
    }

    fn clean(&self, line: u64) {
        // SAFETY: `cbo.clean`: it changes no byte that the processor reads; where nothing is mapped it faults.
        unsafe {
            asm!(".insn i 0x0F, 2, x0, {}, 1", in(reg) line as usize, options(nostack, preserves_flags));
        }
    }

    fn clean_and_invalidate(&self, line: u64) {
        // SAFETY: `cbo.flush`: stores in the block are written back first; a byte that changes is one that a device wrote, in
        // memory that devices were given. Where nothing is mapped it faults.
        unsafe {
            asm!(".insn i 0x0F, 2, x0, {}, 2", in(reg) line as usize, options(nostack, preserves_flags));
        }
    }

    fn barrier(&self) {
        complete();
    }
}
