//! Memory windows: remote keys that change with every bind.

use dat_core::backend::BindRequest;
use dat_core::flags::MemoryPrivileges;

use crate::region::{Memories, RemoteKey};

/// The binding of a window to a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Remote key of the binding.
    pub(crate) key: u32,
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: MemoryPrivileges,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) domain: u32,
    pub(crate) bound: Option<Binding>,
}

impl Memories {
    /// Binds a window to the new remote key `key`; the old key becomes invalid
    /// (`Spec: RMB-21, RMB-27`).
    ///
    /// Returns true on success; a bind of length 0 only unbinds. On a failure, the window is
    /// unbound and both keys are invalid.
    pub(crate) fn bind(&mut self, request: &BindRequest, key: u32, domain: u32) -> bool {
        let allowed = self.may_bind(request, domain);
        let window_key = request.window.0 as u32;
        let Some(window) = self.windows.get_mut(window_key) else {
            self.remote_keys.remove(key);
            return false;
        };
        let old = window.bound.take();
        let binds = allowed && request.length > 0;
        if binds {
            window.bound = Some(Binding {
                key,
                region: request.region.local,
                address: request.address,
                length: request.length,
                privileges: request.privileges,
            });
        }
        if let Some(old) = old {
            self.remote_keys.remove(old.key);
        }
        if !binds {
            self.remote_keys.remove(key);
        } else if let Some(entry) = self.remote_keys.get_mut(key) {
            *entry = RemoteKey::Window(window_key);
        }
        allowed
    }

    /// Returns true if domains, privileges and bounds permit the bind
    /// (`Spec: RMB-25, RMB-26, RMB-41`).
    fn may_bind(&self, request: &BindRequest, domain: u32) -> bool {
        let Some(window) = self.windows.get(request.window.0 as u32) else {
            return false;
        };
        if window.domain != domain {
            return false;
        }
        if request.length == 0 {
            return true;
        }
        let Some(region) = self.regions.get(request.region.local) else {
            return false;
        };
        let mut needed = MemoryPrivileges::empty();
        if request.privileges.contains(MemoryPrivileges::REMOTE_READ) {
            needed |= MemoryPrivileges::LOCAL_READ;
        }
        if request.privileges.contains(MemoryPrivileges::REMOTE_WRITE) {
            needed |= MemoryPrivileges::LOCAL_WRITE;
        }
        region.domain == domain
            && region.privileges.contains(needed)
            && region
                .memory
                .span(request.address, request.length)
                .is_some()
    }

    /// Removes a window; its key becomes invalid at once (`Spec: RMF-01, RMF-02`).
    pub(crate) fn remove_window(&mut self, window: u32) {
        if let Some(Window {
            bound: Some(bound), ..
        }) = self.windows.remove(window)
        {
            self.remote_keys.remove(bound.key);
        }
    }
}
