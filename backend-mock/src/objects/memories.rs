//! All memory of an adapter, and the access that keys give to it.

use dat_core::backend::{BindRequest, DomainKey, RemoteRange, Segment};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::RegisteredSpan;

use super::key_map::KeyMap;
use super::region::Region;
use super::window::{Binding, Window};

/// Object of a remote key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteKey {
    /// A region, until it is deregistered.
    Region(u32),
    /// A window, until its next bind completes.
    Window(u32),
    /// A window whose bind has not completed; gives no access yet (`Spec: RMB-15`).
    Binding,
}

/// All memory of an adapter, and all keys to it.
#[derive(Debug)]
pub(crate) struct Memories {
    /// Regions by their local keys.
    pub(crate) regions: KeyMap<Region>,
    pub(crate) windows: KeyMap<Window>,
    pub(crate) remote_keys: KeyMap<RemoteKey>,
}

impl Memories {
    /// Makes empty tables whose keys start at the generations that `salt` yields.
    ///
    /// So keys of different tables and adapters are not equal by chance.
    pub(crate) fn new(mut salt: impl FnMut() -> u16) -> Self {
        Self {
            regions: KeyMap::starting_at(salt()),
            windows: KeyMap::starting_at(salt()),
            remote_keys: KeyMap::starting_at(salt()),
        }
    }

    /// Returns the memory of a local segment, if its domain and privileges permit the access.
    pub(crate) fn local(
        &self,
        segment: &Segment,
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Option<RegisteredSpan<'_>> {
        let region = self.regions.get(segment.key)?;
        if region.domain != domain || !region.privileges.contains(right) {
            return None;
        }
        region
            .memory
            .span(segment.address, u64::from(segment.length))
    }

    /// Returns true if domain and privileges permit the access to all segments.
    pub(crate) fn all_local(
        &self,
        segments: &[Segment],
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> bool {
        segments
            .iter()
            .all(|segment| self.local(segment, domain, right).is_some())
    }

    /// Returns the domain of the object of a remote key.
    pub(crate) fn domain_of(&self, key: u32) -> Option<DomainKey> {
        match *self.remote_keys.get(key)? {
            RemoteKey::Binding => None,
            RemoteKey::Region(key) => Some(self.regions.get(key)?.domain),
            RemoteKey::Window(key) => Some(self.windows.get(key)?.domain),
        }
    }

    /// Returns the memory of a remote range (`Spec: EPW-32, EPW-34, EPW-41`).
    ///
    /// `None` unless the key permits the access for a queue pair of this domain.
    pub(crate) fn remote(
        &self,
        range: RemoteRange,
        length: u64,
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Option<RegisteredSpan<'_>> {
        let (key, domain_of_key, privileges) = match *self.remote_keys.get(range.key)? {
            RemoteKey::Binding => return None,
            RemoteKey::Region(key) => {
                let region = self.regions.get(key)?;
                (key, region.domain, region.privileges)
            }
            RemoteKey::Window(key) => {
                let window = self.windows.get(key)?;
                let bound = window.bound.as_ref()?;
                let start = range.address.checked_sub(bound.address)?;
                if start > bound.length || length > bound.length - start {
                    return None;
                }
                (bound.region, window.domain, bound.privileges)
            }
        };
        if domain_of_key != domain || !privileges.contains(right) {
            return None;
        }
        self.regions.get(key)?.memory.span(range.address, length)
    }

    /// Binds a window to the new remote key `key`; the old key becomes invalid
    /// (`Spec: RMB-21, RMB-27`).
    ///
    /// Returns true on success; a bind of length 0 only unbinds. On a failure, the window is
    /// unbound and both keys are invalid.
    pub(crate) fn bind(&mut self, request: &BindRequest, key: u32, domain: DomainKey) -> bool {
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
    fn may_bind(&self, request: &BindRequest, domain: DomainKey) -> bool {
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
