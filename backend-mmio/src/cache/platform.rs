//! The `Hal`s of Arm and RISC-V: their instructions that order accesses, and the caches of a platform.
#![expect(
    unsafe_code,
    reason = "instructions that the language has no words for"
)]

use core::arch::asm;

use dat_core::backend::SyncDirection;

use super::maintain;
use crate::hal::Hal;

/// A function of an instruction that orders accesses: one for aarch64, one for RISC-V.
macro_rules! barrier {
    ($name:ident, $arm:literal, $riscv:literal) => {
        #[inline]
        pub(super) fn $name() {
            // SAFETY: it changes neither memory nor registers.
            unsafe {
                #[cfg(target_arch = "aarch64")]
                asm!($arm, options(nostack, preserves_flags));
                #[cfg(not(target_arch = "aarch64"))]
                asm!($riscv, options(nostack, preserves_flags));
            }
        }
    };
}

// Of Arm, `osh` reaches devices; `st` orders stores, to memory and to registers alike, `ld` loads before all that follows.
// RISC-V names the accesses before and after: of memory (`r`, `w`) and of registers (`i`, `o`).
barrier!(to_device, "dmb oshst", "fence w, w");
barrier!(from_device, "dmb oshld", "fence ir, ir");
barrier!(to_register, "dmb oshst", "fence w, o");
barrier!(store_before_load, "dmb osh", "fence ow, ir");
// All accesses and maintenance before it are complete.
barrier!(complete, "dsb sy", "fence iorw, iorw");

/// A [`Hal`] with the barriers of the processor, by what its platform does about caches.
macro_rules! platform {
    ($platform:ty, $is_coherent:literal, $synchronise:expr) => {
        // SAFETY: each barrier orders the accesses that the function's name is of; the comment at them says how.
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

/// The barriers of a processor whose devices take part in the coherence of caches.
///
/// Registers are mapped as memory of devices, without gathering.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoherentHal;

/// Waits for what is under way: there is nothing to maintain.
fn wait(_coherent: &CoherentHal, _direction: SyncDirection, _address: u64, _length: u64) {
    complete();
}

platform!(CoherentHal, true, wait);
#[cfg(target_arch = "aarch64")]
platform!(super::Aarch64Hal, false, maintain);
#[cfg(not(target_arch = "aarch64"))]
platform!(super::RiscvHal, false, maintain);
