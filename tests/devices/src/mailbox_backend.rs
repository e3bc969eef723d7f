//! Driver and device in one process that communicate only through a mailbox.
#![expect(
    unsafe_code,
    reason = "the device belongs to this crate, and regions name memory of its own process"
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
use crate::mailbox_device::{MailboxDevice, Regions};

/// Driver of a model device that is reached through a mailbox.
pub type ModelMailboxBackend = MailboxBackend<'static, HostLock, InProcessEnd, ModelHal<Shared>>;

/// Model device that reads its mailbox only when the driver rings.
pub struct InProcessEnd(Mutex<Option<MailboxDevice>>);

impl InProcessEnd {
    pub(crate) fn new(device: MailboxDevice) -> Self {
        Self(Mutex::new(Some(device)))
    }
}

impl fmt::Debug for InProcessEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("InProcessEnd")
            .field(&lock(&self.0))
            .finish()
    }
}

// SAFETY: the device acts through its control path, which makes the same promise. Drop removes the
// device from the fabric, and so from all memory.
unsafe impl OtherEnd for InProcessEnd {
    fn ring(&self) {
        if let Some(device) = &mut *lock(&self.0) {
            device.serve();
        }
    }

    fn is_gone(&self) -> bool {
        lock(&self.0).is_none()
    }

    fn keep_waiting(&self, _polls: u32) -> bool {
        // It answers at once or never.
        false
    }

    fn cut_off(&self) {
        *lock(&self.0) = None;
    }
}

/// Accepts all memory that a driver of this process names.
pub(crate) fn any_region() -> Regions {
    Box::new(|address, length| {
        let base = with_exposed_provenance_mut(address as usize);
        // SAFETY: the driver was given a region of these bytes. It stays valid as long as its
        // registration, and this region has the same lifetime.
        Some(unsafe { Region::from_raw_parts(base, length as usize) })
    })
}
