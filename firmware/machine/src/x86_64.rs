//! First 4 GiB of a PC: from QEMU's 32-bit entry to `image_main`; ports.
//!
//! Also provides the memory functions that the compiler expects from a hosted library.
#![expect(
    unsafe_code,
    reason = "start code, its page tables, and ports, which reach beyond memory; only in this module"
)]

use core::arch::{asm, global_asm};

pub use backend_mmio::CoherentHal as Barriers;

/// The machine's firmware placed the windows of devices.
pub(crate) const WINDOWS: Option<u32> = None;

const SERIAL: u16 = 0x3F8;
const EXIT: u16 = 0xF4;
const BUS_ADDRESS: u16 = 0xCF8;
const BUS_DATA: u16 = 0xCFC;

// An ELF note names the entry. The first 4 GiB are mapped to their own addresses, in pages of 2
// MiB.
global_asm!(
    r#"
.section .note.pvh,"a",@note
.align 4
.long 4, 4, 18
.asciz "Xen"
.long start32
.section .text.boot,"ax",@progbits
.code32
.global start32
start32:
  movl $stack_top, %esp
  movl $directories + 3, %eax
  movl $pointers, %ecx
  movl $4, %edx
1: movl %eax, (%ecx)
  addl $4096, %eax
  addl $8, %ecx
  decl %edx
  jnz 1b
  movl $0x83, %eax
  movl $directories, %ecx
  movl $2048, %edx
2: movl %eax, (%ecx)
  addl $0x200000, %eax
  addl $8, %ecx
  decl %edx
  jnz 2b
  movl $pointers + 3, %eax
  movl %eax, root
  movl $root, %eax
  movl %eax, %cr3
  movl %cr4, %eax
  orl $0x620, %eax
  movl %eax, %cr4
  movl $0xc0000080, %ecx
  rdmsr
  orl $0x100, %eax
  wrmsr
  movl %cr0, %eax
  andl $~4, %eax
  orl $0x80000003, %eax
  movl %eax, %cr0
  lgdt descriptors_at
  ljmp $8, $start64
.code64
start64:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  call image_main
3: hlt
  jmp 3b
.section .rodata.boot,"a"
.align 8
descriptors: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
descriptors_at: .word 23
  .long descriptors
.section .bss.boot,"aw",@nobits
.align 4096
root: .skip 4096
pointers: .skip 4096
directories: .skip 16384
"#,
    options(att_syntax)
);

fn write_byte(port: u16, value: u8) {
    // SAFETY: the ports of this module have no effect on memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn write_port(port: u16, value: u32) {
    // SAFETY: as above; the windows of devices stay at the addresses that the machine's firmware
    // assigned.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) }
}

fn read_port(port: u16) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) }
    value
}

/// Sends a byte over the serial line.
pub(crate) fn send(byte: u8) {
    write_byte(SERIAL, byte);
}

/// Ends the machine; QEMU exits with twice the code plus 1.
pub fn exit(code: u32) -> ! {
    write_port(EXIT, code);
    loop {
        core::hint::spin_loop();
    }
}

fn address(function: u8, offset: u8) {
    let function = u32::from(function) << 8;
    write_port(BUS_ADDRESS, 1 << 31 | function | u32::from(offset));
}

/// Reads a word of the configuration space of a function on the first bus.
pub(crate) fn read_configuration(function: u8, offset: u8) -> u32 {
    address(function, offset);
    read_port(BUS_DATA)
}

/// Writes a word of the configuration space of a function on the first bus.
pub(crate) fn write_configuration(function: u8, offset: u8, value: u32) {
    address(function, offset);
    write_port(BUS_DATA, value);
}

/// Copies bytes between ranges that do not overlap.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's promise. The direction flag is clear by the calling convention.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// Copies bytes between ranges that may overlap.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= count {
        // SAFETY: an upward copy reads each byte before it is overwritten.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: the caller's promise, from the end downwards. There is at least one byte, and the
    // direction flag is cleared again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") count => _, inout("rdi") to.add(count).sub(1) => _,
            inout("rsi") from.add(count).sub(1) => _, options(nostack));
    }
    to
}

/// Fills a range with a byte.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: as for `memcpy`.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// Compares two ranges.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for index in 0..count {
        // SAFETY: the caller's promise. The reads are volatile so that the compiler does not turn
        // the loop into a call of `memcmp`.
        let (a, b) = unsafe {
            (
                one.add(index).read_volatile(),
                other.add(index).read_volatile(),
            )
        };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// Returns nonzero if two ranges differ.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(one, other, count) }
}
