//! Connections, over the fabric.

use std::fmt;

use backend_mmio::Sideband;
use backend_mmio::mlx5::DeviceEvent;
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, QueuePairKey,
    RequestKey,
};
use dat_core::time::Instant;

use crate::device::Device;
use crate::fabric::Shared;

/// The connections of a model device. Queue pairs have their numbers as tokens in the fabric.
pub struct ModelSideband {
    pub(crate) shared: Shared,
    pub(crate) device: usize,
}

impl fmt::Debug for ModelSideband {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "connections of device {}", self.device)
    }
}

impl ModelSideband {
    fn on<R>(
        &self,
        act: impl FnOnce(&mut Device) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.shared.command(self.device, act)
    }
}

fn key(device: &Device, number: u32) -> Result<QueuePairKey, BackendError> {
    let pair = device.pairs.get(&number);
    pair.map(|pair| pair.key).ok_or(BackendError::State)
}

impl Device {
    /// The next event of the fabric about a connection; others become events of the device.
    pub(crate) fn connection_event(&mut self, now: Instant) -> Option<ControlEvent> {
        loop {
            match self.backend.poll_control(now)? {
                ControlEvent::SharedReceiveLimit { queue } => {
                    let event = DeviceEvent::SharedReceiveLimit(queue as u32);
                    self.events.push_back(event);
                }
                ControlEvent::SharedReceiveFailed { queue } => {
                    let event = DeviceEvent::SharedReceiveFailed(queue as u32);
                    self.events.push_back(event);
                }
                ControlEvent::DeviceFailed => self.events.push_back(DeviceEvent::Failed),
                event => return Some(event),
            }
        }
    }
}

impl Sideband for ModelSideband {
    fn address(&self) -> IaAddress {
        let address = self.on(|device| Ok(device.backend.ia_attributes().ia_address));
        address.unwrap_or(IaAddress::Node(0))
    }

    fn private_data_limit(&self) -> u32 {
        let limit = self.on(|device| Ok(device.backend.provider_attributes()));
        limit.map_or(0, |provider| provider.max_private_data_size as u32)
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.on(|device| device.backend.listen(token, qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        let _gone = self.on(|device| {
            device.backend.stop_listening(listener);
            Ok(())
        });
    }

    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        self.on(|device| {
            let key = key(device, queue_pair)?;
            device.backend.connect(key, request)
        })
    }

    fn accept(
        &mut self,
        request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        self.on(|device| {
            let key = key(device, queue_pair)?;
            device.backend.accept(request, key, private_data)
        })
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        let _gone = self.on(|device| {
            device.backend.reject(request, by_consumer, private_data);
            Ok(())
        });
    }

    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode) {
        let _gone = self.on(|device| {
            let key = key(device, queue_pair)?;
            device.backend.disconnect(key, mode);
            Ok(())
        });
    }

    fn poll(&mut self, now: Instant) -> Option<ControlEvent> {
        self.on(|device| Ok(device.connection_event(now)))
            .ok()
            .flatten()
    }
}
