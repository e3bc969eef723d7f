//! QEMU's `virt` for 64-bit Arm, without high memory: entry, page tables, registers.
#![expect(
    unsafe_code,
    reason = "start code, and registers at fixed addresses; only in this module"
)]

use core::arch::{asm, global_asm};
use core::ptr::with_exposed_provenance_mut;

/// Barriers, and cache maintenance for devices that do not see the processor's caches.
///
/// QEMU has no caches. It executes the instructions, rings may lie in write-back memory, and
/// programs that omit the calls work as well.
pub use backend_mmio::cache::Aarch64Hal as Barriers;

/// Start of the address range for windows of devices.
pub(crate) const WINDOWS: Option<u32> = Some(0x1000_0000);

const SERIAL: usize = 0x0900_0000;
/// Address of the configuration space.
pub(crate) const CONFIGURATION: usize = 0x3F00_0000;

// Atomic and unaligned accesses need normal memory, and so page tables. The first GiB is registers
// (Device-nGnRE), the second is memory (write-back), both mapped to their own addresses. A fault
// ends the image.
global_asm!(
    r#"
.section .text.boot,"ax"
.global start
start:
  adrp x0, stack_top
  add x0, x0, :lo12:stack_top
  mov sp, x0
  adrp x0, vectors
  add x0, x0, :lo12:vectors
  msr vbar_el1, x0
  mov x0, #(3 << 20)
  msr cpacr_el1, x0
  mov x0, #0xff04
  msr mair_el1, x0
  movz x0, #0x3520
  movk x0, #0x80, lsl #16
  msr tcr_el1, x0
  adrp x0, table
  add x0, x0, :lo12:table
  msr ttbr0_el1, x0
  tlbi vmalle1
  dsb ish
  isb
  mrs x0, sctlr_el1
  mov x1, #0x1005
  orr x0, x0, x1
  msr sctlr_el1, x0
  isb
  bl image_main
.balign 2048
vectors:
.rept 16
  b {fault}
  .balign 128
.endr
.section .rodata.boot,"a"
.balign 4096
table: .quad 0x0060000000000401, 0x40000705, 0, 0
"#,
    fault = sym fault,
);

extern "C" fn fault() -> ! {
    exit(3)
}

/// Sends a byte over the serial line.
pub(crate) fn send(byte: u8) {
    // SAFETY: the register exists and has no effect on memory.
    unsafe { with_exposed_provenance_mut::<u32>(SERIAL).write_volatile(byte.into()) }
}

/// Ends the machine; QEMU exits with the code.
pub fn exit(code: u32) -> ! {
    /// Semihosting call `SYS_EXIT`, and its reason: the application ended.
    const EXIT: u32 = 0x18;
    const ENDED: u64 = 0x20026;
    let argument = [ENDED, code.into()];
    // SAFETY: QEMU reads the argument and does not return.
    unsafe { asm!("hlt #0xf000", in("w0") EXIT, in("x1") argument.as_ptr(), options(noreturn)) }
}
