//! A device that reports no events.

use backend_mock::Fabric;
use dat_core::backend::{Activity, BackendError, HostDriver};
use dat_core::event::ThreadWait;

/// A fabric as a device that asks for no time, and that its adapter has to poll.
#[derive(Clone)]
pub struct Silent(Fabric);

impl Silent {
    pub fn on(fabric: &Fabric) -> Self {
        Self(fabric.clone())
    }
}

impl HostDriver for Silent {
    type Wait = ThreadWait;

    fn wait(&self) -> Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn act(&self, now: dat_core::time::Instant) -> Activity {
        Activity {
            acted: self.0.run_until(now) != 0,
            next: None,
        }
    }
}
