//! Loads and stores on the memory of peers, for interfaces beside this one.

use super::Ia;
use crate::backend::{Backend, DirectAccess};
use crate::error::Result;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Hands the backend's direct access to `act`, or `None` if it has none; the control lock is held meanwhile.
    ///
    /// Not part of DAT: Remote Shared Memory maps segments by it.
    ///
    /// # Errors
    /// INVALID_HANDLE (IA): the adapter is being closed.
    pub fn with_direct_access<R>(
        &self,
        act: impl FnOnce(Option<&mut dyn DirectAccess>) -> R,
    ) -> Result<R> {
        self.control
            .with(|control| Ok(act(control.backend()?.direct_access())))
    }
}
