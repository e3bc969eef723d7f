//! Registered regions, and the access that keys give to them.

use dat_core::backend::{RemoteRange, Segment};
use dat_core::flags::MemoryPrivileges;

use crate::key_map::KeyMap;
use crate::window::Window;
use dat_core::sync::{RegisteredMemory, RegisteredSpan};

/// A registered region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) memory: RegisteredMemory,
    pub(crate) domain: u32,
    pub(crate) privileges: MemoryPrivileges,
    /// Remote key; 0 if peers have no privileges.
    pub(crate) remote: u32,
}

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
        domain: u32,
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
        domain: u32,
        right: MemoryPrivileges,
    ) -> bool {
        segments
            .iter()
            .all(|segment| self.local(segment, domain, right).is_some())
    }

    /// Returns the domain of the object of a remote key.
    pub(crate) fn domain_of(&self, key: u32) -> Option<u32> {
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
        domain: u32,
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
}

/// Copies the bytes of the source segments, in order, to the destination segments.
pub(crate) fn gather_scatter(
    (from, sources, from_domain): (&Memories, impl Iterator<Item = Segment>, u32),
    (to, mut destinations, to_domain): (&Memories, impl Iterator<Item = Segment>, u32),
    mut placed: impl FnMut(u64, RegisteredSpan<'_>),
) {
    let mut room: Option<(u64, RegisteredSpan<'_>)> = None;
    for source in sources {
        let Some(mut rest) = from.local(&source, from_domain, MemoryPrivileges::LOCAL_READ) else {
            return;
        };
        while rest.length() > 0 {
            let (address, space) = match room.take() {
                Some(space) => space,
                None => {
                    let Some(next) = destinations.next() else {
                        return;
                    };
                    match to.local(&next, to_domain, MemoryPrivileges::LOCAL_WRITE) {
                        Some(space) => (next.address, space),
                        None => return,
                    }
                }
            };
            let count = rest.length().min(space.length());
            let (Some(chunk), Some(target)) = (rest.part(0, count), space.part(0, count)) else {
                return;
            };
            target.copy_from(chunk);
            placed(address, target);
            room = space
                .part(count, space.length() - count)
                .filter(|left| left.length() > 0)
                .map(|left| (address.wrapping_add(count as u64), left));
            match rest.part(count, rest.length() - count) {
                Some(left) => rest = left,
                None => return,
            }
        }
    }
}
