//! QEMU's `virt` for 32-bit RISC-V, without firmware: entry and registers. Nothing is mapped.
#![expect(
    unsafe_code,
    reason = "start code, and registers at fixed addresses; only in this module"
)]

use core::arch::global_asm;
use core::ptr::with_exposed_provenance_mut;

/// Barriers of this processor, whose devices are cache coherent.
pub use backend_mmio::CoherentHal as Barriers;

/// Start of the address range for windows of devices.
pub(crate) const WINDOWS: Option<u32> = Some(0x4000_0000);

const SERIAL: usize = 0x1000_0000;
const EXIT: usize = 0x0010_0000;
/// Address of the configuration space.
pub(crate) const CONFIGURATION: usize = 0x3000_0000;

// A fault ends the image.
global_asm!(
    r#"
.section .text.boot,"ax"
.global start
start:
  la sp, stack_top
  la t0, 1f
  csrw mtvec, t0
  call image_main
.balign 4
1: call {fault}
"#,
    fault = sym fault,
);

extern "C" fn fault() -> ! {
    exit(3)
}

/// Sends a byte over the serial line.
pub(crate) fn send(byte: u8) {
    // SAFETY: the register exists and has no effect on memory.
    unsafe { with_exposed_provenance_mut::<u8>(SERIAL).write_volatile(byte) }
}

/// Ends the machine; QEMU exits with the code.
pub fn exit(code: u32) -> ! {
    const SUCCESS: u32 = 0x5555;
    const FAILURE: u32 = 0x3333;
    let how = match code {
        0 => SUCCESS,
        code => code << 16 | FAILURE,
    };
    // SAFETY: the register exists and has no effect on memory.
    unsafe { with_exposed_provenance_mut::<u32>(EXIT).write_volatile(how) }
    loop {
        core::hint::spin_loop();
    }
}
