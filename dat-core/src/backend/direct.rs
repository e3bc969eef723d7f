//! Loads and stores on the memory of peers.

use super::{BackendError, RemoteRange};
use crate::attributes::IaAddress;

/// Access to registered memory of peers without a request.
///
/// For backends that can address that memory, such as shared memory and windows of a bus.
///
/// A key grants the same access as to RDMA, for the same time: after the peer's `deregister`
/// returns, no access by this key touches the memory.
pub trait DirectAccess {
    /// Copies from the memory of the peer at an address; the key must permit reads.
    ///
    /// # Errors
    /// A refused load copies nothing.
    /// - [`BackendError::Address`]: the key does not permit reads of this range, or no peer can be
    ///   reached at the address.
    /// - [`BackendError::NotSupported`]: the memory of that peer cannot be addressed.
    /// - [`BackendError::Device`]: the device failed.
    fn load(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        into: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Copies to the memory of the peer at an address; the key must permit writes.
    ///
    /// The peer sees the data on return.
    ///
    /// # Errors
    /// Those of `load`, with writes in place of reads. A refused store writes nothing.
    fn store(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        from: &[u8],
    ) -> Result<(), BackendError>;
}
