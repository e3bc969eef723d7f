//! The end of a process that keeps the objects of its device.

use super::RoceDevice;

impl RoceDevice {
    /// Ends what peers wait for, when the process ends (ROCE-269).
    ///
    /// The thread of the device waits a while for requests that are posted, then ends all
    /// connections and refuses requests to connect. The objects stay.
    ///
    /// The handler of a signal may call this, whatever it has stopped: the call needs no memory,
    /// and waits for no lock. It returns after 4 s in any case.
    pub fn finish(&self) {
        self.shared.ask_farewell();
    }
}
