//! Adapter on the fabric that sends arbitrary messages to the other devices.

use core::fmt;

use backend_mmio::Peer;
use backend_mmio::over_queues::Junction;
use backend_mock::MockBackend;
use dat_core::backend::{BackendError, QueuePairKey};

use crate::fabric::Shared;
use crate::junction::ModelJunction;

/// Adapter without a driver, controlled by a test.
///
/// The test creates its queue pairs and joins them to those of devices that set up connections over
/// their own queue pairs ([`speaking_device`](crate::ModelFabric::speaking_device)).
pub struct Outsider {
    /// The adapter.
    pub adapter: MockBackend,
    pub(crate) junction: ModelJunction<Shared>,
}

impl fmt::Debug for Outsider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "outsider {}", self.junction.device)
    }
}

impl Outsider {
    /// Returns the port by which others address it.
    #[must_use]
    pub const fn port(&self) -> [u32; 4] {
        [self.junction.device as u32, 0, 0, 0]
    }

    /// Pairs a queue pair number with a spare channel of another device, if any.
    pub fn meet(&mut self, number: u32) -> Option<Peer> {
        self.junction.meet(number).map(|(_, peer)| peer)
    }

    /// Joins a queue pair to one of a device.
    ///
    /// Data flows once both sides are joined.
    ///
    /// # Errors
    /// [`BackendError::State`] if the queue pair is not unconnected.
    pub fn join(&mut self, key: QueuePairKey, number: u32, peer: Peer) -> Result<(), BackendError> {
        let [own, ..] = self.port();
        let [there, ..] = peer.address;
        self.adapter
            .join(key, [own, number], [there, peer.queue_pair])
    }
}
