//! The channel over which connections come about.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, RequestKey,
};
use dat_core::time::Instant;

/// The queue pair at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its number there.
    pub queue_pair: u32,
    /// The address of its port, as it lies in memory, by words.
    pub address: [u32; 4],
}

/// Connection management, by whatever channel the platform has beside the queue pairs.
///
/// Queue pairs are named by their device numbers, here and in the events: a `queue_pair` in a [`ControlEvent`] of a sideband
/// is such a number. Everything else is as [`Backend`](dat_core::backend::Backend) says of the calls of the same names, which the
/// driver hands on. The sideband takes the queue pair through its states: when `Established` is reported it carries data,
/// when `disconnect` has returned, or an event says that a connection or an attempt ended, it is in error.
pub trait Sideband {
    /// Where this adapter is reached.
    fn address(&self) -> IaAddress;

    /// Bytes of private data that a request or an answer carries.
    fn private_data_limit(&self) -> u32;

    /// Listens on a connection qualifier, or on a free one; says which.
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

    /// Starts a connection; says which port it comes from.
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

    /// A queue pair is gone: destroyed, or replaced by one of another number when it was reset or modified. Its connection
    /// and its attempts went before; the number may come again for another queue pair.
    fn forget(&mut self, queue_pair: u32) {
        let _nothing_kept = queue_pair;
    }

    /// Whether a queue pair is its own: then nobody else is told of it, and its `Established` is for the driver alone.
    fn owns(&self, queue_pair: u32) -> bool {
        let _none_of_its_own = queue_pair;
        false
    }

    /// The device reports that a queue pair failed on its own. That its connection broke is told already.
    fn failed(&mut self, queue_pair: u32) {
        let _nothing_kept = queue_pair;
    }

    /// The next event about a connection.
    fn poll(&mut self, now: Instant) -> Option<ControlEvent>;

    /// When `poll` has something to do even if nothing else happens.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
