//! Connection manager over the fabric.

use core::fmt;

use backend_mmio::cm::ConnectionManager;
use backend_mock::MockBackend;
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, QueuePairKey,
    RequestKey,
};
use dat_core::time::Instant;

/// Devices of one layout on one fabric.
pub trait Devices {
    /// A device of this layout.
    type Device: CmDevice;

    /// Runs a function on a device, between reading descriptors and writing completions.
    fn on<R>(
        &self,
        device: usize,
        act: impl FnOnce(&mut Self::Device) -> Result<R, BackendError>,
    ) -> Result<R, BackendError>;
}

/// Device as its connection manager sees it.
pub trait CmDevice {
    /// Returns its adapter of the fabric.
    fn adapter(&mut self) -> &mut MockBackend;

    /// Returns the fabric's key of a queue pair.
    fn key(&self, number: u32) -> Option<QueuePairKey>;

    /// Records that the connection of a queue pair was ended.
    fn ended(&mut self, number: u32);

    /// Returns the next connection event.
    fn connection_event(&mut self, now: Instant) -> Option<ControlEvent>;
}

/// Connection manager of a model device; in the fabric, queue pair numbers serve as tokens.
pub struct FabricConnectionManager<D> {
    pub(crate) devices: D,
    pub(crate) device: usize,
}

impl<D> fmt::Debug for FabricConnectionManager<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "connections of device {}", self.device)
    }
}

impl<D: Devices> FabricConnectionManager<D> {
    fn on<R>(
        &self,
        act: impl FnOnce(&mut MockBackend) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.devices.on(self.device, |device| act(device.adapter()))
    }

    fn key(&self, number: u32) -> Result<QueuePairKey, BackendError> {
        let key = self
            .devices
            .on(self.device, |device| Ok(device.key(number)));
        key?.ok_or(BackendError::State)
    }
}

impl<D: Devices> ConnectionManager for FabricConnectionManager<D> {
    fn address(&self) -> IaAddress {
        let address = self.on(|adapter| Ok(adapter.ia_attributes().ia_address));
        address.unwrap_or(IaAddress::Node(0))
    }

    fn private_data_limit(&self) -> u32 {
        let limit = self.on(|adapter| Ok(adapter.provider_attributes()));
        limit.map_or(0, |provider| provider.max_private_data_size as u32)
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.on(|adapter| adapter.listen(token, qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        let _gone = self.on(|adapter| {
            adapter.stop_listening(listener);
            Ok(())
        });
    }

    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let key = self.key(queue_pair)?;
        self.on(|adapter| adapter.connect(key, request))
    }

    fn accept(
        &mut self,
        request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let key = self.key(queue_pair)?;
        self.on(|adapter| adapter.accept(request, key, private_data))
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        let _gone = self.on(|adapter| {
            adapter.reject(request, by_consumer, private_data);
            Ok(())
        });
    }

    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode) {
        let _gone = self.devices.on(self.device, |device| {
            let key = device.key(queue_pair).ok_or(BackendError::State)?;
            device.adapter().disconnect(key, mode);
            device.ended(queue_pair);
            Ok(())
        });
    }

    fn poll(&mut self, now: Instant) -> Option<ControlEvent> {
        self.devices
            .on(self.device, |device| Ok(device.connection_event(now)))
            .ok()
            .flatten()
    }
}
