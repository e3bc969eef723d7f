//! Mappings and single accesses without a transfer.
//!
//! They need a backend that accesses the memory of peers.

use dat_core::attributes::IaAddress;
use dat_core::backend::{Backend, BackendError, DirectAccess, RemoteRange};
use dat_core::event::Wait;
use dat_core::sync::RawLock;
use portable_atomic::Ordering;

use crate::access::Permission;
use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ImportId;
use crate::import::{Attach, BarrierMode, Import, ImportState, import_at};

/// Accesses without a transfer for each call of `progress`.
const SHORTCUTS: u32 = 64;

/// Mapped part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    permission: Permission,
}

/// A checked access to a mapping.
struct Access {
    port: usize,
    peer: IaAddress,
    /// `None` once the segment is gone.
    range: Option<RemoteRange>,
}

impl Mapping {
    /// Returns true if the mapped part contains an access (`Spec: RSMMP-03`).
    pub(crate) fn covers(&self, offset: u64, length: u64) -> bool {
        offset.checked_sub(self.offset).is_some_and(|start| {
            start <= self.length && length <= self.length.saturating_sub(start)
        })
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Maps a part of a segment, for loads and stores without a transfer.
    ///
    /// A connection has at most one mapping. While it lasts, put and get must stay inside it;
    /// vectors need not.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - SEG_ALREADY_MAPPED: the connection has a mapping.
    /// - BAD_PERMS: `permission` is empty, or exceeds that of the connection.
    /// - BAD_OFFSET: the offset is at or after the end of the segment.
    /// - BAD_LENGTH: the length is 0, or exceeds the rest of the segment.
    /// - BAD_MEM_ALIGNMENT: the offset is not a multiple of the page size.
    /// - CONN_ABORTED: the segment is gone.
    /// - MAP_FAILED: the backend cannot access the exporter's memory.
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
            let slot = import_at(state, import)?;
            if slot.mapping.is_some() {
                return Err(RsmError::SegmentAlreadyMapped);
            }
            if permission.is_empty() || !slot.permission.contains(permission) {
                return Err(RsmError::BadPermissions);
            }
            if length == 0 {
                return Err(RsmError::BadLength);
            }
            if offset >= slot.length {
                return Err(RsmError::BadOffset);
            }
            let end = offset.checked_add(length);
            if end.is_none_or(|end| end > slot.length) {
                return Err(RsmError::BadLength);
            }
            if offset.checked_rem(page) != Some(0) {
                return Err(RsmError::BadMemoryAlignment);
            }
            if slot.state == ImportState::Aborted {
                return Err(RsmError::ConnectionAborted);
            }
            Ok((slot.port, self.peer_of(slot)?, slot.direct(offset)))
        })?;
        // An empty access finds out if the backend can access the memory.
        let read = permission.contains(Permission::READ);
        let seen = self.direct(port, |device| match read {
            true => device.load(peer, range, &mut []),
            false => device.store(peer, range, &[]),
        });
        seen.map_err(|_| RsmError::MapFailed)?;
        self.attempt(|state| {
            let slot = import_at(state, import)?;
            if slot.mapping.is_some() {
                return Err(RsmError::SegmentAlreadyMapped);
            }
            slot.mapping = Some(Mapping {
                offset,
                length,
                permission,
            });
            Ok(())
        })
    }

    /// Ends the mapping of a connection, even of an aborted one.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - SEG_NOT_MAPPED: the connection has no mapping.
    ///
    /// Spec: RSMMP-10, RSMST-02
    pub fn import_unmap(&self, import: ImportId) -> Result<()> {
        self.attempt(|state| {
            let mapping = import_at(state, import)?.mapping.take();
            mapping.map(|_| ()).ok_or(RsmError::SegmentNotMapped)
        })
    }

    /// Loads bytes from a mapping; offset 0 is its first byte.
    ///
    /// Once the segment is gone, the load succeeds and the bytes are undefined; closing a barrier
    /// reports it.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - SEG_NOT_MAPPED: the connection has no mapping.
    /// - PERM_DENIED: the mapping is not readable.
    /// - BAD_OFFSET, BAD_LENGTH: the range leaves the mapping.
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

    /// Stores bytes to a mapping; offset 0 is its first byte.
    ///
    /// Once the segment is gone, the store succeeds without effect; closing a barrier reports it.
    ///
    /// # Errors
    /// As [`map_load`](Self::map_load), where PERM_DENIED means that the mapping is not writable.
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

    /// Prepares a single access without a transfer; `None` if it must be a transfer.
    ///
    /// The access runs as if its range were mapped (RSMMP-04). It must be a transfer while there
    /// are earlier transfers that it might overtake: pending ones, or writes that are not known to
    /// be visible. An invalid access must be a transfer too, which reports its error.
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
            let slot = state.imports.get(import.handle())?;
            if !self.sees_peers(slot.port) {
                return None;
            }
            let within = slot.mapping.is_none_or(|mapping| {
                mapping.permission.contains(right) && mapping.covers(offset, length)
            });
            let attached = matches!(slot.attach, Attach::Attached(_));
            let ready = attached
                && slot.state == ImportState::Connected
                && slot.finished == slot.posted
                && slot.written <= slot.visible
                && !slot.closing
                && (slot.mode == BarrierMode::Explicit || slot.barriers != 0);
            let fine = ready
                && length != 0
                && slot.permission.contains(right)
                && within
                && offset
                    .checked_add(length)
                    .is_some_and(|end| end <= slot.length);
            let range = fine.then(|| slot.direct(offset));
            range?;
            Some(Access {
                port: slot.port,
                peer: self.peer_of(slot).ok()?,
                range,
            })
        })
    }

    /// Puts bytes without a transfer; returns false if a transfer is needed.
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

    /// Gets bytes without a transfer; returns false if a transfer is needed.
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

    /// Makes progress in one of [`SHORTCUTS`] calls.
    ///
    /// Accesses without a transfer need no progress, but a thread may make no other calls, and its
    /// peers need answers.
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
            let slot = import_at(state, import)?;
            let mapping = slot.mapping.ok_or(RsmError::SegmentNotMapped)?;
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
            let live = slot.state == ImportState::Connected;
            Ok(Access {
                port: slot.port,
                peer: self.peer_of(slot)?,
                range: live.then(|| slot.direct(start)),
            })
        })
    }

    /// Counts a failed access, which closing a barrier reports (`Spec: RSMBR-05`).
    fn account_direct(
        &self,
        import: ImportId,
        outcome: Option<core::result::Result<(), BackendError>>,
    ) {
        if let Some(Err(_)) = outcome {
            self.state.with(|state| {
                if let Some(slot) = state.imports.get_mut(import.handle()) {
                    slot.error_epoch = slot.error_epoch.wrapping_add(1);
                }
            });
        }
    }

    /// Returns the address of the exporter.
    fn peer_of(&self, import: &Import) -> Result<IaAddress> {
        self.ports
            .get(import.port)
            .and_then(|port| port.node(import.node))
            .map(|node| node.address)
            .ok_or(RsmError::RemoteNodeUnreachable)
    }

    /// Returns true if the backend of a port may access the memory of peers.
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
    /// Returns the remote address and key of an offset in the segment.
    fn direct(&self, offset: u64) -> RemoteRange {
        RemoteRange {
            address: self.address.wrapping_add(offset),
            key: self.key,
        }
    }
}
