//! Loads and stores on the memory of peers.

use super::{BackendError, RemoteRange};
use crate::attributes::IaAddress;

/// Access to registered memory of peers without a request: for backends that see it, such as shared memory and windows
/// of a bus.
///
/// A key gives here what it gives to RDMA, and no longer: after the peer's `deregister` returned, no access that names
/// the key touches the memory.
pub trait DirectAccess {
    /// Copies from the memory of the peer at an address; the key must let peers read.
    ///
    /// # Errors
    /// A refused load copies nothing.
    /// - [`BackendError::Address`]: the key does not open this range for reading, or nobody can be reached there.
    /// - [`BackendError::NotSupported`]: that peer's memory cannot be seen.
    /// - [`BackendError::Device`]: the device failed.
    fn load(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        into: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Copies to the memory of the peer at an address; the key must let peers write. It is visible there on return.
    ///
    /// # Errors
    /// As `load`, for writing. A refused store writes nothing.
    fn store(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        from: &[u8],
    ) -> Result<(), BackendError>;
}
