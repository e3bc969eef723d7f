//! The registry of DAT 2.0, `libdat2.so.2`: names and version that programs for DAT 2.0 need.
//!
//! All code is in `dat_ffi::redirection`; this library gives it the names. `docs/c-libraries.md` is
//! for users.

#![expect(unsafe_code, reason = "assembler defines the names, and only jumps")]

use std::arch::global_asm;

use dat_ffi::export_calls;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the variadic entry point is assembler for x86-64");

/// Carries calls to their end if the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

dat_ffi::calls_of_dat!(export_calls "DAT_2.0", dat_ffi::redirection, dats_get_ia_handle);

// A function with variable arguments. It stores them as `va_list` of x86-64 has them: the arguments
// that came in registers at 32 bytes above the stack pointer, the list at the stack pointer. The
// arguments on the stack stay where they are.
global_asm!(
    ".pushsection .text.exported_dat_extension_op,\"ax\",@progbits",
    ".globl exported_dat_extension_op",
    ".type exported_dat_extension_op,@function",
    "exported_dat_extension_op:",
    ".cfi_startproc",
    "sub rsp, 216",
    ".cfi_adjust_cfa_offset 216",
    "mov [rsp + 48], rdx",
    "mov [rsp + 56], rcx",
    "mov [rsp + 64], r8",
    "mov [rsp + 72], r9",
    "test al, al",
    "je 2f",
    "movaps [rsp + 80], xmm0",
    "movaps [rsp + 96], xmm1",
    "movaps [rsp + 112], xmm2",
    "movaps [rsp + 128], xmm3",
    "movaps [rsp + 144], xmm4",
    "movaps [rsp + 160], xmm5",
    "movaps [rsp + 176], xmm6",
    "movaps [rsp + 192], xmm7",
    "2:",
    // Named arguments take two general registers and no floating-point register.
    "mov dword ptr [rsp], 16",
    "mov dword ptr [rsp + 4], 48",
    "lea rax, [rsp + 224]",
    "mov [rsp + 8], rax",
    "lea rax, [rsp + 32]",
    "mov [rsp + 16], rax",
    "mov rdx, rsp",
    "call {function}",
    "add rsp, 216",
    ".cfi_adjust_cfa_offset -216",
    "ret",
    ".cfi_endproc",
    ".size exported_dat_extension_op, . - exported_dat_extension_op",
    ".symver exported_dat_extension_op, dat_extension_op@@DAT_2.0",
    ".popsection",
    function = sym dat_ffi::redirection::dat_extension_op,
);
