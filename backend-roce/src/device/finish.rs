//! The end of a process that keeps the objects of its device.

use core::time::Duration;
use std::time::Instant;

use super::RoceDevice;
use crate::adapter::Adapter;
use crate::shared::LINGER;

impl RoceDevice {
    /// Ends what peers wait for, when the process ends (ROCE-269).
    ///
    /// Waits at most `patience` for requests that are posted, then ends all connections and refuses
    /// requests to connect. The objects stay. A thread that is stopped in another call may hold a
    /// lock: then this call does not return.
    pub fn finish(&self, patience: Duration) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.send_pending();
        self.serve_while(patience, Adapter::has_requests);
        self.shared.enter(Adapter::leave_peers);
        self.shared.send_pending();
        self.serve_while(LINGER, Adapter::is_ending);
    }

    /// Moves packets while `is_due` says so, at most for `time`.
    fn serve_while(&self, time: Duration, is_due: fn(&Adapter) -> bool) {
        let end = Instant::now() + time;
        while self.shared.enter_briefly(|adapter| is_due(adapter)) && Instant::now() < end {
            self.shared.poll();
            if !self.shared.poll_sockets() {
                std::thread::yield_now();
            }
        }
        self.shared.await_sender();
    }
}
