//! Devices whose backend calls a function when it has events.

use std::sync::{Arc, OnceLock};

use crate::bell::Bell;
use crate::device::Device;

/// A device that rings the bell of its adapter from a thread of its backend.
#[derive(Default)]
pub(crate) struct Ringing(Arc<OnceLock<Bell>>);

impl Ringing {
    /// Returns the function that the backend is to call.
    pub(crate) fn ring(&self) -> impl Fn() + Send + Sync + 'static {
        let bell = Arc::clone(&self.0);
        move || {
            if let Some(bell) = bell.get() {
                bell.ring();
            }
        }
    }
}

impl Device for Ringing {
    fn attach(&self, bell: &Bell) {
        // Attached once, by the adapter that owns the device.
        let _ = self.0.set(bell.clone());
    }
}
