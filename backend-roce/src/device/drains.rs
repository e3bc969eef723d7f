//! Send queues of a device that drain.

use dat_core::backend::BackendError;

use super::RoceDevice;
use crate::adapter::{Drain, SendAttributes};

impl RoceDevice {
    /// Lets no request of a queue pair begin until [`resume`](Self::resume).
    ///
    /// If `tells`, [`Answered`](dat_core::backend::ControlEvent::Answered) follows once those that
    /// have begun are complete.
    ///
    /// # Errors
    /// `State`: it does not send, or it drains already.
    pub fn drain(&self, qpn: u32, tells: bool) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.drain(key, tells))?
    }

    /// Returns true if the requests that began before a queue pair drains are complete; `None` if
    /// it does not drain.
    #[must_use]
    pub fn has_drained(&self, qpn: u32) -> Option<bool> {
        self.look_at_pair(qpn, |_, pair| {
            (pair.drain != Drain::No).then(|| pair.has_drained())
        })
    }

    /// Changes how the requests of a queue pair that has drained are sent, all but the PSN.
    ///
    /// # Errors
    /// `State`: it has not drained, or Reads and atomics wait of which none could begin.
    pub fn change_requests(&self, qpn: u32, with: &SendAttributes) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.change_requests(key, with))?
    }

    /// Lets requests of a queue pair that has drained begin again.
    ///
    /// # Errors
    /// `State`: it has not drained.
    pub fn resume(&self, qpn: u32) -> Result<(), BackendError> {
        self.shared.enter_and_send(|adapter| {
            let key = adapter.attached(qpn)?;
            adapter.resume(key)
        })
    }
}
