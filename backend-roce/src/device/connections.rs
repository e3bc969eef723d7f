//! Connections of a device that rdma_cm makes.

use core::net::SocketAddr;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Backend as _, BackendError, ConnectRequest, DisconnectMode, ListenerKey, QueuePairKey,
    RequestKey,
};
use dat_core::flags::QualityOfService;
use dat_queues::State;

use super::RoceDevice;
use crate::port::{Route, canonical};

impl RoceDevice {
    /// Returns the way to a peer, whose port does not matter.
    ///
    /// # Errors
    /// Those of [`Port::route`](crate::port::Port::route).
    pub fn route(&self, peer: SocketAddr) -> Result<Route, BackendError> {
        self.shared.port().route(canonical(peer))
    }

    /// Returns true if the device has a UDP port: it may listen there, unless it does.
    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        self.shared.enter(|adapter| adapter.has_port(port))
    }

    /// Listens at a port of rdma_cm; `token` names the listener in events.
    ///
    /// # Errors
    /// - `QualifierInUse`: the device, or another program, has the port.
    /// - `Resources`, `Descriptors`, `Prohibited`: the system refuses it, or there is no memory.
    pub fn listen(&self, token: u64, port: u16) -> Result<ListenerKey, BackendError> {
        let listens = self.backend().listen(token, Some(port.into()));
        listens.map(|(listener, _)| listener)
    }

    /// Stops listening.
    pub fn stop_listening(&self, listener: ListenerKey) {
        self.backend().stop_listening(listener);
    }

    /// Connects a queue pair to a listener of rdma_cm; events tell the outcome.
    ///
    /// `depths` are Reads and atomics under way: those of the peer, and its own.
    ///
    /// # Errors
    /// - `State`: it is in another state than [`PairState::Unattached`](super::PairState::Unattached).
    /// - `Unreachable`, `Address`: there is no way to the peer.
    /// - `Resources`: the private data is too long, or there is no memory.
    pub fn connect(
        &self,
        qpn: u32,
        peer: SocketAddr,
        data: &[u8],
        depths: (u8, u8),
    ) -> Result<(), BackendError> {
        let key = self.prepare(qpn, depths)?;
        let request = ConnectRequest {
            address: IaAddress::from(peer),
            qualifier: peer.port().into(),
            private_data: data,
            quality: QualityOfService::BEST_EFFORT,
        };
        self.backend().connect(key, &request).map(|_port| ())
    }

    /// Accepts a request with a queue pair; events tell the outcome.
    ///
    /// # Errors
    /// - `State`: the request is gone, or the queue pair is in another state than
    ///   [`PairState::Unattached`](super::PairState::Unattached).
    /// - `Resources`: the private data is too long, or there is no memory.
    pub fn accept(
        &self,
        request: RequestKey,
        qpn: u32,
        data: &[u8],
        depths: (u8, u8),
    ) -> Result<(), BackendError> {
        let key = self.prepare(qpn, depths)?;
        self.backend().accept(request, key, data)
    }

    /// Returns how many Reads and atomics the peer of a request answers, and has under way.
    #[must_use]
    pub fn request_depths(&self, request: RequestKey) -> Option<(u8, u8)> {
        let id = u32::try_from(request.0).ok()?;
        self.look(|adapter| adapter.request_depths(id))
    }

    /// Rejects a request.
    pub fn reject(&self, request: RequestKey, data: &[u8]) {
        self.backend().reject(request, true, data);
    }

    /// Ends the connection of a queue pair; no event about it follows.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn disconnect(&self, qpn: u32) -> Result<(), BackendError> {
        let key = self.shared.enter(|adapter| adapter.attached(qpn))?;
        let mode = DisconnectMode::Abrupt;
        self.backend().disconnect(QueuePairKey(key), mode);
        Ok(())
    }

    fn prepare(&self, qpn: u32, depths: (u8, u8)) -> Result<QueuePairKey, BackendError> {
        self.shared.enter(|adapter| {
            let key = adapter.attached(qpn)?;
            adapter.pair_in(key, State::Unconnected)?;
            adapter.set_depths(key, depths);
            Ok(QueuePairKey(key))
        })
    }
}
