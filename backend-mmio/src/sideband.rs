//! The channel over which connections come about.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, RequestKey,
};
use dat_core::time::Instant;

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

    /// The next event about a connection.
    fn poll(&mut self, now: Instant) -> Option<ControlEvent>;

    /// When `poll` has something to do even if nothing else happens.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
