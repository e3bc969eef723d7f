//! An adapter on the fabric that says to the others whatever it is made to say.

use core::fmt;

use backend_mmio::Peer;
use backend_mmio::over_queues::Junction;
use backend_mock::MockBackend;
use dat_core::backend::{BackendError, QueuePairKey};

use crate::fabric::Shared;
use crate::junction::ModelJunction;

/// An adapter without a driver: who has it makes its queue pairs, and leads them to those of devices whose connections come about over
/// their own ([`speaking_device`](crate::ModelFabric::speaking_device)).
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
    /// What others call its port.
    #[must_use]
    pub const fn port(&self) -> [u32; 4] {
        [self.junction.device as u32, 0, 0, 0]
    }

    /// The channel of another device that a queue pair of this number is the other end of from now on, if there is one to spare.
    pub fn meet(&mut self, number: u32) -> Option<Peer> {
        self.junction.meet(number).map(|(_, peer)| peer)
    }

    /// Joins a queue pair, of a number, to one of a device; they carry data once that one was joined to this, too.
    ///
    /// # Errors
    /// [`BackendError::State`] if it is not unconnected.
    pub fn join(&mut self, key: QueuePairKey, number: u32, peer: Peer) -> Result<(), BackendError> {
        let [own, ..] = self.port();
        let [there, ..] = peer.address;
        self.adapter
            .join(key, [own, number], [there, peer.queue_pair])
    }
}
