//! Memory order between a driver and a device in the same program.
#![expect(unsafe_code, reason = "the device belongs to this crate")]

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::Hal;
use dat_core::backend::{Backend, SyncDirection};

use crate::bad_cqe::draw;
use crate::connection_manager::{CmDevice, Devices};
use crate::lock::{Arc, Mutex, lock};

/// Barriers towards a model device on every processor, and caches that hide memory from it.
#[derive(Clone)]
pub struct ModelHal<D> {
    pub(crate) devices: D,
    pub(crate) device: usize,
    /// True if device and processor see the same consumer memory.
    pub(crate) coherent: bool,
    /// Count of random numbers drawn.
    pub(crate) drawn: Arc<Mutex<u32>>,
}

impl<D> fmt::Debug for ModelHal<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "host of device {}", self.device)
    }
}

// SAFETY: the device runs in threads of this program and its registers are calls. Among threads a
// full fence orders everything. The caches are those of the fabric, which maintains them.
unsafe impl<D: Devices + Clone> Hal for ModelHal<D> {
    const COHERENT: bool = true;

    fn is_coherent(&self) -> bool {
        self.coherent
    }

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

    /// Returns the same sequence in every run, so that a run can be repeated.
    fn random(&self) -> Option<u32> {
        // Some processors of firmware have no atomic addition.
        let mut drawn = lock(&self.drawn);
        let mut state = (self.device as u64) << 32 | u64::from(*drawn);
        *drawn = drawn.wrapping_add(1);
        Some(draw(&mut state))
    }

    fn synchronise(&self, direction: SyncDirection, address: u64, length: u64) {
        fence(Ordering::SeqCst);
        let _gone = self.devices.on(self.device, |device| {
            device.adapter().sync(direction, address, length);
            Ok(())
        });
        fence(Ordering::SeqCst);
    }
}
