//! DAT 1.2 for C programs: the calls of `<dat/udat.h>` and `<dat/dat_registry.h>`.
//!
//! Programs are linked by `cc program.c -ldat`. All code is in `dat-ffi`. This library gives the
//! calls their names for the linker, with the version `DAT_1.2`, so that a process with both DAT
//! 1.2 and DAT 2.0 gets the right functions. `docs/c-libraries.md` is for users.

use dat_ffi::export_calls;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the symbol versions are assembler for x86-64");

/// Carries calls to their end if the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

dat_ffi::calls_of_dat!(export_calls "DAT_1.2", dat_ffi::v1, dat_provider_explain);
