//! Cache maintenance of RISC-V with the extension Zicbom, by cache block.
#![expect(unsafe_code, reason = "barrier and cache instructions need assembly")]

use core::arch::asm;

use super::platform::complete;
use super::{CacheLines, LineSize};

/// Barriers and cache maintenance for a RISC-V processor whose devices bypass its caches.
#[derive(Clone, Copy, Debug)]
pub struct RiscvHal {
    block: LineSize,
}

impl RiscvHal {
    /// Creates the barriers for a cache block size.
    ///
    /// No register reports the size; the device tree has it as `riscv,cbom-block-size`.
    ///
    /// # Safety
    /// The processor has Zicbom, and the environment lets this privilege mode run `cbo.clean` and
    /// `cbo.flush` (`menvcfg.CBCFE`, and `senvcfg.CBCFE` for user mode). Otherwise they are illegal
    /// instructions. `block` is not larger than the processor's block: a larger one would skip
    /// memory.
    // UNSAFETY: the function cannot check the processor's features.
    #[must_use]
    pub const unsafe fn new(block: LineSize) -> Self {
        Self { block }
    }
}

// The instructions are encoded as numbers, since the compilation targets do not enable the
// extension: opcode MISC-MEM (0x0F), function 2, and the operation as the immediate.
impl CacheLines for RiscvHal {
    fn line_size(&self) -> LineSize {
        self.block
    }

    fn clean(&self, line: u64) {
        // SAFETY: `cbo.clean` changes no byte that the processor reads; it faults if nothing is
        // mapped at the address.
        unsafe {
            asm!(".insn i 0x0F, 2, x0, {}, 1", in(reg) line as usize, options(nostack, preserves_flags));
        }
    }

    fn clean_and_invalidate(&self, line: u64) {
        // SAFETY: `cbo.flush` first writes back stores in the block. A byte changes only if a
        // device wrote it, in memory given to devices. It faults if nothing is mapped at the
        // address.
        unsafe {
            asm!(".insn i 0x0F, 2, x0, {}, 2", in(reg) line as usize, options(nostack, preserves_flags));
        }
    }

    fn barrier(&self) {
        complete();
    }
}
