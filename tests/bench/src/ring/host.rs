//! The part for programs of a host: who moves the device, and where threads sleep.

use dat_core::backend::{Activity, BackendError, HostBackend, HostDriver};
use dat_core::event::ThreadWait;
use dat_core::time::Instant;

use super::backend::RingBackend;
use super::device::Wire;

impl HostBackend for RingBackend {
    type Driver = Wire;

    // A post stores to memory, and so does the device.
    const POSTS_ALLOCATE: bool = false;
    const DATA_CALLS_ARE_CANCELLED: bool = false;

    fn driver(&self) -> Wire {
        self.device.wire()
    }
}

impl HostDriver for Wire {
    type Wait = ThreadWait;

    /// Nothing reports the events of the device, so nobody sleeps on it.
    fn wait(&self) -> Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Moves the devices: the model has no thread. A driver of hardware leaves this out.
    fn act(&self, _now: Instant) -> Activity {
        let mut acted = false;
        while self.step() {
            acted = true;
        }
        Activity { acted, next: None }
    }

    fn acts_after_posts(&self) -> bool {
        true
    }
}
