//! Connection manager over the fabric.

use backend_mmio::cm::{Peer, PeerResolver};
use backend_mock::MockBackend;
use dat_core::backend::{BackendError, ControlEvent, QueuePairKey, RequestKey};
use dat_core::time::Instant;

use super::device::Device;
use super::fabric::Shared;
use crate::connection_manager::{CmDevice, Devices, FabricConnectionManager};

/// Connection manager of a model device.
pub type PvrdmaConnectionManager = FabricConnectionManager<Shared>;

/// Placeholder peer: the fabric knows the real one.
const PLACEHOLDER: Peer = Peer {
    queue_pair: 1,
    address: [0; 4],
};

impl PeerResolver for PvrdmaConnectionManager {
    fn peer(&self, _queue_pair: u32) -> Option<Peer> {
        Some(PLACEHOLDER)
    }

    fn requester(&self, _request: RequestKey) -> Option<Peer> {
        Some(PLACEHOLDER)
    }
}

impl Devices for Shared {
    type Device = Device;

    fn on<R>(
        &self,
        device: usize,
        act: impl FnOnce(&mut Device) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        let mut world = self.enter();
        let device = world.device(device).ok_or(BackendError::Device)?;
        device.work();
        let result = act(device);
        device.work();
        result
    }
}

impl CmDevice for Device {
    fn adapter(&mut self) -> &mut MockBackend {
        &mut self.backend
    }

    fn key(&self, number: u32) -> Option<QueuePairKey> {
        self.pairs.get(&number).map(|pair| pair.key)
    }

    fn ended(&mut self, number: u32) {
        self.forget_connection(number);
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.ended = true;
        }
    }

    fn connection_event(&mut self, _now: Instant) -> Option<ControlEvent> {
        let event = self.connections.pop_front()?;
        if let ControlEvent::ConnectFailed { queue_pair, .. }
        | ControlEvent::Disconnected { queue_pair }
        | ControlEvent::Broken { queue_pair } = event
            && let Some(pair) = self.pairs.get_mut(&(queue_pair as u32))
        {
            pair.ended = true;
        }
        Some(event)
    }
}
