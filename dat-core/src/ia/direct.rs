//! Loads and stores on the memory of peers, for interfaces other than DAT.

use crate::adapter::Ia;
use crate::backend::{Backend, DirectAccess};
use crate::error::Result;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Calls `act` with the backend's direct access, or `None`, under the control lock.
    ///
    /// Not part of DAT: Remote Shared Memory uses it to map segments.
    ///
    /// # Errors
    /// INVALID_HANDLE (IA): the adapter is being closed.
    #[doc(hidden)]
    pub fn with_direct_access<R>(
        &self,
        act: impl FnOnce(Option<&mut dyn DirectAccess>) -> R,
    ) -> Result<R> {
        self.control
            .with(|control| Ok(act(control.backend()?.direct_access())))
    }
}
