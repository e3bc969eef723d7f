//! Adapter on the fabric that sends arbitrary messages to the other devices.

use core::fmt;

use backend_mmio::cm::Network;
use backend_mmio::cm::Peer;
use backend_mock::MockBackend;
use dat_core::backend::{BackendError, QueuePairKey};

use crate::fabric::Shared;
use crate::network::ModelNetwork;

/// Adapter without a driver, controlled by a test.
///
/// The test creates its queue pairs and joins them to those of devices that set up connections over
/// their own queue pairs ([`over_queues_device`](crate::ModelFabric::over_queues_device)).
pub struct Outsider {
    /// The adapter.
    pub adapter: MockBackend,
    pub(crate) network: ModelNetwork<Shared>,
}

impl fmt::Debug for Outsider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "outsider {}", self.network.device)
    }
}

impl Outsider {
    /// Returns the port by which others address it.
    #[must_use]
    pub const fn port(&self) -> [u32; 4] {
        [self.network.device as u32, 0, 0, 0]
    }

    /// Pairs a queue pair number with a spare channel of another device, if any.
    pub fn channel_peer(&mut self, number: u32) -> Option<Peer> {
        self.network.channel_peer(number).map(|(_, peer)| peer)
    }

    /// Joins a queue pair to one of a device.
    ///
    /// Data flows once both sides are joined.
    ///
    /// # Errors
    /// [`BackendError::State`] if the queue pair is not unconnected.
    pub fn join(&mut self, key: QueuePairKey, number: u32, peer: Peer) -> Result<(), BackendError> {
        let [own, ..] = self.port();
        let [remote, ..] = peer.address;
        self.adapter
            .join(key, [own, number], [remote, peer.queue_pair])
    }
}
