//! The registry of DAT 2.0, `libdat2.so.2`: names and version that programs for DAT 2.0 need.
//!
//! All code is in `dat_ffi::redirection`; this library gives it the names. `docs/c-libraries.md` is
//! for users.

#![expect(unsafe_code, reason = "assembler defines the names, and only jumps")]

use std::arch::global_asm;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the variadic entry point is assembler for x86-64");

/// Carries calls to their end if the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

dat_ffi::export_with_version! {
    "DAT_2.0", dat_ffi::redirection:
    dat_cno_create, dat_cno_free, dat_cno_modify_agent, dat_cno_query, dat_cno_wait, dat_cr_accept, dat_cr_handoff, dat_cr_query,
    dat_cr_reject, dat_ep_connect, dat_ep_create, dat_ep_create_with_srq, dat_ep_disconnect, dat_ep_dup_connect, dat_ep_free,
    dat_ep_get_status, dat_ep_modify, dat_ep_post_rdma_read, dat_ep_post_rdma_write, dat_ep_post_recv, dat_ep_post_send,
    dat_ep_query, dat_ep_recv_query, dat_ep_reset, dat_ep_set_watermark, dat_evd_clear_unwaitable, dat_evd_create,
    dat_evd_dequeue, dat_evd_disable, dat_evd_enable, dat_evd_free, dat_evd_modify_cno, dat_evd_post_se, dat_evd_query,
    dat_evd_resize, dat_evd_set_unwaitable, dat_evd_wait, dat_get_consumer_context, dat_get_handle_type, dat_ia_close,
    dat_ia_openv, dat_ia_query, dat_lmr_create, dat_lmr_free, dat_lmr_query, dat_lmr_sync_rdma_read, dat_lmr_sync_rdma_write,
    dat_psp_create, dat_psp_create_any, dat_psp_free, dat_psp_query, dat_pz_create, dat_pz_free, dat_pz_query,
    dat_registry_add_provider, dat_registry_list_providers, dat_registry_remove_provider, dat_rmr_bind, dat_rmr_create,
    dat_rmr_free, dat_rmr_query, dat_rsp_create, dat_rsp_free, dat_rsp_query, dat_set_consumer_context, dat_srq_create,
    dat_srq_free, dat_srq_post_recv, dat_srq_query, dat_srq_resize, dat_srq_set_lw, dat_strerror, dats_get_ia_handle,
}

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
