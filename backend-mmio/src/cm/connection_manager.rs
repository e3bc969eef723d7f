//! The contract of a connection manager.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, RequestKey,
};
use dat_core::time::Instant;

/// The remote queue pair of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Number of the queue pair at the peer.
    pub queue_pair: u32,
    /// Address of the peer's port, in memory order, by words.
    pub address: [u32; 4],
}

/// A connection manager, over any channel of the platform.
///
/// Device numbers name queue pairs, both in the calls and as the `queue_pair` of a
/// [`ControlEvent`]. Otherwise each call follows the call of the same name of
/// [`Backend`](dat_core::backend::Backend), which the driver forwards. The connection manager moves
/// the queue pair through its states. The queue pair carries data when `Established` is reported.
/// It is in the error state when `disconnect` has returned, or when an event reports the end of a
/// connection or an attempt.
pub trait ConnectionManager {
    /// Returns the address of this adapter.
    fn address(&self) -> IaAddress;

    /// Returns the capacity for private data of a request or an answer, in bytes.
    fn private_data_limit(&self) -> u32;

    /// Listens on a connection qualifier, or on a free one; returns the qualifier.
    ///
    /// # Errors
    /// Those of [`Backend::listen`](dat_core::backend::Backend::listen).
    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError>;

    /// Stops listening.
    fn stop_listening(&mut self, listener: ListenerKey);

    /// Starts a connection attempt; returns the local port.
    ///
    /// # Errors
    /// Those of [`Backend::connect`](dat_core::backend::Backend::connect).
    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError>;

    /// Accepts a request.
    ///
    /// # Errors
    /// Those of [`Backend::accept`](dat_core::backend::Backend::accept).
    fn accept(
        &mut self,
        request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError>;

    /// Refuses a request.
    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]);

    /// Ends a connection or an attempt.
    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode);

    /// Forgets a queue pair that no longer exists.
    ///
    /// The queue pair was destroyed, or replaced by one with another number by a reset or a
    /// modification. Its connection and its attempts ended earlier. Its number can name another
    /// queue pair later.
    fn forget(&mut self, queue_pair: u32) {
        let _nothing_kept = queue_pair;
    }

    /// Returns true if the queue pair is the connection manager's own.
    ///
    /// The driver reports no event of such a queue pair to the core. It acts on `Established`
    /// itself.
    fn owns(&self, queue_pair: u32) -> bool {
        let _none_of_its_own = queue_pair;
        false
    }

    /// Handles the failure of a queue pair.
    ///
    /// The driver itself reports the broken connection to the core.
    fn failed(&mut self, queue_pair: u32) {
        let _nothing_kept = queue_pair;
    }

    /// Returns the next connection event.
    fn poll(&mut self, now: Instant) -> Option<ControlEvent>;

    /// Returns the time at which `poll` next has work without any other event.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

/// A connection manager that leaves queue pair states to the driver and names the peers.
///
/// The driver makes a queue pair ready before it accepts. On the requesting side it does so before
/// it forwards `Established`. An implementation reports the connection to the consumer of neither
/// side before the other side is ready to receive. If `requester` returns `None`, the driver makes
/// the accepting side ready when `Established` is reported there; the device repeats messages that
/// came too early.
pub trait PeerResolver: ConnectionManager {
    /// Returns the peer of a queue pair for which `Established` was just reported.
    fn peer(&self, queue_pair: u32) -> Option<Peer>;

    /// Returns the peer that requests a connection; `None` if `peer` names it later.
    fn requester(&self, request: RequestKey) -> Option<Peer>;
}
