//! Memory windows of a device.

use dat_core::backend::{Backend as _, BackendError, DomainKey, WindowKey};

use super::RoceDevice;

impl RoceDevice {
    /// Makes a memory window, which [`Posts::bind`](super::Posts::bind) binds.
    ///
    /// # Errors
    /// `Resources`: there are too many, or there is no memory.
    pub fn create_window(&self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.backend().create_window(domain)
    }

    /// Makes a window of type 2, which [`Operation::Bind`](super::Operation::Bind) binds; returns
    /// it with its key, of which the lowest byte changes with each bind.
    ///
    /// # Errors
    /// `Resources`: there are too many, or there is no memory.
    pub fn create_type_2_window(
        &self,
        domain: DomainKey,
    ) -> Result<(WindowKey, u32), BackendError> {
        self.shared.check_process()?;
        let made = self
            .shared
            .enter(|adapter| adapter.memories.create_type_2_window(domain));
        let (window, key) = made.ok_or(BackendError::Resources)?;
        Ok((WindowKey(window), key))
    }

    /// Removes a window; its key is invalid at once.
    pub fn destroy_window(&self, window: WindowKey) {
        self.backend().destroy_window(window);
    }

    /// Returns true if a window is bound to a region.
    #[must_use]
    pub fn has_windows(&self, region: u32) -> bool {
        self.look(|adapter| adapter.memories.window_of(region))
            .is_some()
    }
}
