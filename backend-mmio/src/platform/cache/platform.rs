//! The `Hal`s of Arm and RISC-V: barrier instructions and cache maintenance.
#![expect(unsafe_code, reason = "barrier and cache instructions need assembly")]

use core::arch::asm;

use dat_core::backend::SyncDirection;

use super::maintain;
use crate::platform::Hal;

/// Defines a function of one barrier instruction, for aarch64 and for RISC-V.
macro_rules! barrier {
    ($name:ident, $arm:literal, $riscv:literal) => {
        #[inline]
        pub(super) fn $name() {
            // SAFETY: the instruction changes neither memory nor registers.
            unsafe {
                #[cfg(target_arch = "aarch64")]
                asm!($arm, options(nostack, preserves_flags));
                #[cfg(not(target_arch = "aarch64"))]
                asm!($riscv, options(nostack, preserves_flags));
            }
        }
    };
}

// On Arm, `osh` includes devices. `st` orders stores, to memory and to registers alike; `ld` orders
// loads before all later accesses. RISC-V names the earlier and the later accesses: memory (`r`,
// `w`) and registers (`i`, `o`).
barrier!(to_device, "dmb oshst", "fence w, w");
barrier!(from_device, "dmb oshld", "fence ir, ir");
barrier!(to_register, "dmb oshst", "fence w, o");
barrier!(store_before_load, "dmb osh", "fence ow, ir");
// Completes all earlier accesses and maintenance.
barrier!(complete, "dsb sy", "fence iorw, iorw");

/// Implements [`Hal`] with the processor's barriers and a platform's cache maintenance.
macro_rules! platform {
    ($platform:ty, $is_coherent:literal, $synchronise:expr) => {
        // SAFETY: each barrier orders the accesses that the function of its name requires; the
        // comments at the barriers say how.
        unsafe impl Hal for $platform {
            const COHERENT: bool = $is_coherent;

            #[inline]
            fn to_device() {
                to_device();
            }

            #[inline]
            fn from_device() {
                from_device();
            }

            #[inline]
            fn to_register() {
                to_register();
            }

            #[inline]
            fn store_before_load() {
                store_before_load();
            }

            fn synchronise(&self, direction: SyncDirection, address: u64, length: u64) {
                $synchronise(self, direction, address, length);
            }
        }
    };
}

/// Barriers for a processor whose devices are cache-coherent.
///
/// Registers must be mapped as device memory without gathering.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoherentHal;

/// Completes all earlier accesses; there is nothing to maintain.
fn wait(_coherent: &CoherentHal, _direction: SyncDirection, _address: u64, _length: u64) {
    complete();
}

platform!(CoherentHal, true, wait);
#[cfg(target_arch = "aarch64")]
platform!(super::Aarch64Hal, false, maintain);
#[cfg(not(target_arch = "aarch64"))]
platform!(super::RiscvHal, false, maintain);
