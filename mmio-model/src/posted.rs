//! A driver and its device in one process, that reach each other through a mailbox alone.
#![expect(
    unsafe_code,
    reason = "the device is this crate's own, and names memory of its own process"
)]

use alloc::boxed::Box;
use core::fmt;
use core::ptr::with_exposed_provenance_mut;

use backend_mmio::mailbox::{MailboxBackend, OtherEnd};
use dat_core::memory::Region;
use dat_core::sync::HostLock;

use crate::fabric::Shared;
use crate::hal::ModelHal;
use crate::lock::{Mutex, lock};
use crate::mailbox::{MailboxDevice, Regions};

/// The driver on a model device behind a mailbox.
pub type PostedBackend = MailboxBackend<'static, HostLock, Beside, ModelHal<Shared>>;

/// A model device that looks into its mailbox when it is told to, and at no other time.
pub struct Beside(Mutex<Option<MailboxDevice>>);

impl Beside {
    pub(crate) fn new(device: MailboxDevice) -> Self {
        Self(Mutex::new(Some(device)))
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Beside")
            .field(&lock(&self.0))
            .finish()
    }
}

// SAFETY: the device does what its control path does, which makes the same promise; dropping it takes it off the fabric, and with
// that from all memory.
unsafe impl OtherEnd for Beside {
    fn ring(&self) {
        if let Some(device) = &mut *lock(&self.0) {
            device.look();
        }
    }

    fn is_gone(&self) -> bool {
        lock(&self.0).is_none()
    }

    fn awaits(&self, _looks: u32) -> bool {
        // It answers at once, or never.
        false
    }

    fn cut_off(&self) {
        *lock(&self.0) = None;
    }
}

/// All memory that a driver of this process names.
pub(crate) fn anything() -> Regions {
    Box::new(|address, length| {
        let base = with_exposed_provenance_mut(address as usize);
        // SAFETY: the driver got a region of these bytes, which stays as long as its registration, and that is this one's.
        Some(unsafe { Region::from_raw_parts(base, length as usize) })
    })
}
