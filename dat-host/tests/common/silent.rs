//! A device that never rings.

use backend_mock::Fabric;
use dat_host::{Activity, Bell, Device, Ringing};

/// A fabric as a device that asks for no time and has a bell that nothing rings.
pub struct Silent(Fabric, Ringing);

impl Silent {
    pub fn on(fabric: &Fabric) -> Self {
        Self(fabric.clone(), Ringing::default())
    }
}

impl Device for Silent {
    fn attach(&self, bell: &Bell) {
        self.1.attach(bell);
    }

    fn act(&self, now: dat_core::time::Instant) -> Activity {
        Activity {
            acted: self.0.run_until(now) != 0,
            next: None,
        }
    }

    fn rings(&self) -> bool {
        self.1.rings()
    }
}
