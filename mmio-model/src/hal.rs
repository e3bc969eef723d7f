//! The order between a driver and a device that is code of the same program.

use std::sync::atomic::{Ordering, fence};

use backend_mmio::Hal;
use dat_core::backend::SyncDirection;

/// Barriers towards a model device, on every processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelHal;

#[expect(unsafe_code, reason = "the device is this crate's own")]
// SAFETY: the device is threads of this program, whose registers are calls, and among threads a full fence orders everything.
unsafe impl Hal for ModelHal {
    const COHERENT: bool = true;

    fn to_device() {
        fence(Ordering::SeqCst);
    }

    fn from_device() {
        fence(Ordering::SeqCst);
    }

    fn to_register() {
        fence(Ordering::SeqCst);
    }

    fn store_before_load() {
        fence(Ordering::SeqCst);
    }

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {
        fence(Ordering::SeqCst);
    }
}
