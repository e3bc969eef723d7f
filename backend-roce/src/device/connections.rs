//! Connections of a device that rdma_cm makes.

use core::net::{IpAddr, SocketAddr};

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Backend as _, BackendError, ConnectRequest, DisconnectMode, ListenerKey, QueuePairKey,
    RequestKey,
};
use dat_core::flags::QualityOfService;
use dat_queues::State;

use super::RoceDevice;
use crate::adapter::{Attempt, ConnectionTerms, Tuning};

impl RoceDevice {
    /// Returns true if the device has a UDP port: it may listen there, unless it does.
    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        self.shared.enter(|adapter| adapter.has_port(port))
    }

    /// Listens at a port of rdma_cm; `token` names the listener in events.
    ///
    /// It takes the requests to one address, or those of a family that no other listener has.
    /// `None` stands for all addresses.
    ///
    /// # Errors
    /// - `QualifierInUse`: another listener has the address, or another program the port.
    /// - `Resources`, `Descriptors`, `Prohibited`: the system refuses it, or there is no memory.
    pub fn listen(
        &self,
        token: u64,
        port: u16,
        address: Option<IpAddr>,
    ) -> Result<ListenerKey, BackendError> {
        let address = address.map(|address| address.to_canonical());
        let listens = self.backend().listen_at(token, Some(port.into()), address);
        listens.map(|(listener, _)| listener)
    }

    /// Returns true if there is such a listener.
    #[must_use]
    pub fn listens(&self, port: u16, address: Option<IpAddr>) -> bool {
        let address = address.map(|address| address.to_canonical());
        self.shared
            .enter(|adapter| adapter.listens(port.into(), address))
    }

    /// Stops listening.
    pub fn stop_listening(&self, listener: ListenerKey) {
        self.backend().stop_listening(listener);
    }

    /// Connects a queue pair to a listener of rdma_cm; events tell the outcome.
    ///
    /// # Errors
    /// - `State`: it is in another state than
    ///   [`PairState::Unattached`](super::PairState::Unattached).
    /// - `Unreachable`, `Address`: there is no way to the peer.
    /// - `Resources`: the private data is too long, or there is no memory.
    pub fn connect(
        &self,
        qpn: u32,
        peer: SocketAddr,
        data: &[u8],
        with: &Attempt,
    ) -> Result<(), BackendError> {
        let key = self.prepare(qpn, with)?;
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
        with: &Attempt,
    ) -> Result<(), BackendError> {
        let key = self.prepare(qpn, with)?;
        self.backend().accept(request, key, data)
    }

    /// Returns what is known of the peer of a request.
    #[must_use]
    pub fn request_terms(&self, request: RequestKey) -> Option<ConnectionTerms> {
        let id = u32::try_from(request.0).ok()?;
        self.look(|adapter| adapter.request_terms(id))
    }

    /// Returns the terms of the connection of a queue pair.
    #[must_use]
    pub fn pair_terms(&self, qpn: u32) -> Option<ConnectionTerms> {
        self.look(|adapter| adapter.pair_terms(adapter.attached(qpn).ok()?))
    }

    /// Sets what a program wants of its side of a queue pair, if that is connected.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn tune(&self, qpn: u32, with: &Tuning) -> Result<(), BackendError> {
        self.with_pair(qpn, |adapter, key| adapter.tune(key, with))
    }

    /// Rejects a request, by the program or for want of room.
    pub fn reject(&self, request: RequestKey, by_program: bool, data: &[u8]) {
        self.backend().reject(request, by_program, data);
    }

    /// Rejects a request for want of room, as a function for events may.
    ///
    /// The rejection leaves with the next packets.
    pub fn refuse(&self, request: RequestKey) {
        if let Ok(id) = u32::try_from(request.0)
            && !self.shared.is_forked()
        {
            self.shared.enter(|adapter| adapter.reject(id, false, &[]));
        }
    }

    /// Ends the connection of a queue pair; no event about it follows.
    ///
    /// # Errors
    /// `State`: there is none with this QPN.
    pub fn disconnect(&self, qpn: u32) -> Result<(), BackendError> {
        let key = self.with_pair(qpn, |_, key| key)?;
        let mode = DisconnectMode::Abrupt;
        self.backend().disconnect(QueuePairKey(key), mode);
        Ok(())
    }

    fn prepare(&self, qpn: u32, with: &Attempt) -> Result<QueuePairKey, BackendError> {
        self.with_pair(qpn, |adapter, key| {
            adapter.pair_in(key, State::Unconnected)?;
            adapter.set_attempt(key, with);
            Ok(QueuePairKey(key))
        })?
    }
}
