//! A static library without std around `dat-core`, `backend-mmio` and `backend-roce`.
//!
//! Under the profile `bare`, which aborts on panic, this crate brings the only panic handler and no
//! allocator. The build fails if one of the two or a dependency links std (two panic handlers) or
//! alloc (no allocator). Under all other profiles it is an empty library, so that it can be a
//! member of the workspace.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(panic = "abort")]
use {backend_mmio as _, backend_roce as _, dat_core as _};

#[cfg(panic = "abort")]
#[panic_handler]
fn halt(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
