//! Loads and stores without a transfer, where the backend sees the memory of peers: mappings, and single accesses.

use dat_core::attributes::IaAddress;
use dat_core::backend::{Backend, BackendError, DirectAccess, RemoteRange};
use dat_core::event::Wait;
use dat_core::sync::RawLock;
use portable_atomic::Ordering;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::export::access::Permission;
use crate::id::ImportId;
use crate::import::{Attach, BarrierMode, Import, ImportState, import_at};

/// Accesses without a transfer for each look at what peers say.
const SHORTCUTS: u32 = 64;

/// The mapped part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    permission: Permission,
}

/// One access to a mapping, checked.
struct Access {
    port: usize,
    peer: IaAddress,
    /// `None` once the segment is gone.
    range: Option<RemoteRange>,
}

impl Mapping {
    /// Whether a single access lies in the mapped part (`Spec: RSMMP-03`).
    pub(crate) fn covers(&self, offset: u64, length: u64) -> bool {
        offset.checked_sub(self.offset).is_some_and(|start| {
            start <= self.length && length <= self.length.saturating_sub(start)
        })
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Maps a part of a segment, for loads and stores without a transfer. There is at most one mapping of a connection;
    /// put and get keep to it while it lasts; vectors do not.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no connection.
    /// - SEG_ALREADY_MAPPED: it has a mapping.
    /// - BAD_PERMS: no right, or more than the connection has.
    /// - BAD_OFFSET: behind the end. BAD_LENGTH: nothing, or beyond the end.
    /// - BAD_MEM_ALIGNMENT: the offset is no multiple of the page size.
    /// - CONN_ABORTED: the segment is gone.
    /// - MAP_FAILED: the backend does not see the exporter's memory.
    ///
    /// Spec: RSMMP-01, RSMMP-03, RSMMP-05
    pub fn import_map(
        &self,
        import: ImportId,
        permission: Permission,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let page = self.options.page_size.max(1);
        let (port, peer, range) = self.attempt(|state| {
            let place = import_at(state, import)?;
            if place.mapping.is_some() {
                return Err(RsmError::SegmentAlreadyMapped);
            }
            if permission.is_empty() || !place.permission.contains(permission) {
                return Err(RsmError::BadPermissions);
            }
            if length == 0 {
                return Err(RsmError::BadLength);
            }
            if offset >= place.length {
                return Err(RsmError::BadOffset);
            }
            let end = offset.checked_add(length);
            if end.is_none_or(|end| end > place.length) {
                return Err(RsmError::BadLength);
            }
            if offset.checked_rem(page) != Some(0) {
                return Err(RsmError::BadMemoryAlignment);
            }
            if place.state == ImportState::Aborted {
                return Err(RsmError::ConnectionAborted);
            }
            Ok((place.port, self.peer_of(place)?, place.direct(offset)))
        })?;
        // Nothing is moved; but whether it could be is found out.
        let read = permission.contains(Permission::READ);
        let seen = self.direct(port, |device| match read {
            true => device.load(peer, range, &mut []),
            false => device.store(peer, range, &[]),
        });
        seen.map_err(|_| RsmError::MapFailed)?;
        self.attempt(|state| {
            let place = import_at(state, import)?;
            if place.mapping.is_some() {
                return Err(RsmError::SegmentAlreadyMapped);
            }
            place.mapping = Some(Mapping {
                offset,
                length,
                permission,
            });
            Ok(())
        })
    }

    /// Ends the mapping of a connection, also of an aborted one.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no connection.
    /// - SEG_NOT_MAPPED: there is no mapping.
    ///
    /// Spec: RSMMP-10, RSMST-02
    pub fn import_unmap(&self, import: ImportId) -> Result<()> {
        self.attempt(|state| {
            let mapping = import_at(state, import)?.mapping.take();
            mapping.map(|_| ()).ok_or(RsmError::SegmentNotMapped)
        })
    }

    /// Loads bytes from a mapping, whose first byte is at offset 0.
    ///
    /// Once the segment is gone the bytes mean nothing, and the load succeeds: closing a barrier tells.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no connection. SEG_NOT_MAPPED: no mapping.
    /// - PERM_DENIED: the mapping is not for reading.
    /// - BAD_OFFSET, BAD_LENGTH: outside.
    ///
    /// Spec: RSMMP-01, RSMST-02
    pub fn map_load(&self, import: ImportId, offset: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len() as u64;
        let access = self.check_direct(import, Permission::READ, offset, length)?;
        let loaded = access
            .range
            .map(|range| self.direct(access.port, |device| device.load(access.peer, range, into)));
        self.account_direct(import, loaded);
        Ok(())
    }

    /// Stores bytes to a mapping, whose first byte is at offset 0.
    ///
    /// Once the segment is gone the bytes vanish, and the store succeeds: closing a barrier tells.
    ///
    /// # Errors
    /// As [`map_load`](Self::map_load), where PERM_DENIED is for writing.
    ///
    /// Spec: RSMMP-01, RSMST-02
    pub fn map_store(&self, import: ImportId, offset: u64, from: &[u8]) -> Result<()> {
        let length = from.len() as u64;
        let access = self.check_direct(import, Permission::WRITE, offset, length)?;
        let stored = access
            .range
            .map(|range| self.direct(access.port, |device| device.store(access.peer, range, from)));
        self.account_direct(import, stored);
        Ok(())
    }

    /// What a single access needs to go without a transfer, as if what it names were mapped for it (RSMMP-04); `None` if it
    /// has to be a transfer, which says what is wrong if anything is. It has to while there are transfers that it might overtake, on the way or not seen to have
    /// arrived.
    ///
    /// Spec: RSMMP-03, RSMGP-05
    fn shortcut(
        &self,
        import: ImportId,
        right: Permission,
        offset: u64,
        length: u64,
    ) -> Option<Access> {
        self.state.with(|state| {
            let place = state.imports.get(import.handle())?;
            if !self.sees_peers(place.port) {
                return None;
            }
            let within = place.mapping.is_none_or(|mapping| {
                mapping.permission.contains(right) && mapping.covers(offset, length)
            });
            let attached = matches!(place.attach, Attach::Attached(_));
            let ready = attached
                && place.state == ImportState::Connected
                && place.finished == place.posted
                && place.written <= place.flushed
                && !place.closing
                && (place.mode == BarrierMode::Explicit || place.barriers != 0);
            let fine = ready
                && length != 0
                && place.permission.contains(right)
                && within
                && offset
                    .checked_add(length)
                    .is_some_and(|end| end <= place.length);
            let range = fine.then(|| place.direct(offset));
            range?;
            Some(Access {
                port: place.port,
                peer: self.peer_of(place).ok()?,
                range,
            })
        })
    }

    /// Puts bytes without a transfer; false if it has to be one.
    pub(crate) fn put_directly<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        source: &[u8],
        wait: &mut W,
    ) -> bool {
        let length = source.len() as u64;
        let Some(access) = self.shortcut(import, Permission::WRITE, offset, length) else {
            return false;
        };
        let stored = access.range.map(|range| {
            self.direct(access.port, |device| {
                device.store(access.peer, range, source)
            })
        });
        self.now_and_then(wait);
        stored == Some(Ok(()))
    }

    /// Gets bytes without a transfer; false if it has to be one.
    pub(crate) fn get_directly<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        target: &mut [u8],
        wait: &mut W,
    ) -> bool {
        let length = target.len() as u64;
        let Some(access) = self.shortcut(import, Permission::READ, offset, length) else {
            return false;
        };
        let loaded = access.range.map(|range| {
            self.direct(access.port, |device| {
                device.load(access.peer, range, target)
            })
        });
        self.now_and_then(wait);
        loaded == Some(Ok(()))
    }

    /// Makes progress in one of many calls that need none, so that peers are heard by a caller that makes no others.
    fn now_and_then<W: Wait>(&self, wait: &mut W) {
        let count = self.shortcuts.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(SHORTCUTS) {
            self.progress(wait.now());
        }
    }

    fn check_direct(
        &self,
        import: ImportId,
        right: Permission,
        offset: u64,
        length: u64,
    ) -> Result<Access> {
        self.attempt(|state| {
            let place = import_at(state, import)?;
            let mapping = place.mapping.ok_or(RsmError::SegmentNotMapped)?;
            if !mapping.permission.contains(right) {
                return Err(RsmError::PermissionDenied);
            }
            if offset > mapping.length {
                return Err(RsmError::BadOffset);
            }
            if length > mapping.length.saturating_sub(offset) {
                return Err(RsmError::BadLength);
            }
            let start = mapping.offset.saturating_add(offset);
            let live = place.state == ImportState::Connected;
            Ok(Access {
                port: place.port,
                peer: self.peer_of(place)?,
                range: live.then(|| place.direct(start)),
            })
        })
    }

    /// An access that failed is the barrier's to tell (`Spec: RSMBR-05`).
    fn account_direct(
        &self,
        import: ImportId,
        outcome: Option<core::result::Result<(), BackendError>>,
    ) {
        if let Some(Err(_)) = outcome {
            self.state.with(|state| {
                if let Some(place) = state.imports.get_mut(import.handle()) {
                    place.error_epoch = place.error_epoch.wrapping_add(1);
                }
            });
        }
    }

    /// The address of the exporter.
    fn peer_of(&self, import: &Import) -> Result<IaAddress> {
        self.ports
            .get(import.port)
            .and_then(|port| port.node(import.node))
            .map(|node| node.address)
            .ok_or(RsmError::RemoteNodeUnreachable)
    }

    /// Whether the backend of a port may see the memory of peers.
    pub(crate) fn sees_peers(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|port| port.sees_peers)
    }

    fn direct(
        &self,
        port: usize,
        act: impl FnOnce(&mut dyn DirectAccess) -> core::result::Result<(), BackendError>,
    ) -> core::result::Result<(), BackendError> {
        let port = self.ports.get(port).ok_or(BackendError::Device)?;
        let outcome = port
            .ia
            .with_direct_access(|device| device.map_or(Err(BackendError::NotSupported), act));
        outcome.unwrap_or(Err(BackendError::Device))
    }
}

impl Import {
    /// A place in the segment, as peers name it.
    fn direct(&self, offset: u64) -> RemoteRange {
        RemoteRange {
            address: self.address.wrapping_add(offset),
            key: self.key,
        }
    }
}
