//! Segments on their exporter's side: creating, rebinding and destroying them.

pub(crate) mod admit;
pub(crate) mod maintain;
mod publish;

use alloc::vec::Vec;

use bitflags::bitflags;
use dat_core::backend::{Backend, SyncDirection};
use dat_core::event::Wait;
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::RawLock;

use crate::access::{AccessEntry, Credentials, Permission};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, ExportId};
use crate::segment_id::SegmentId;
use crate::wire::Body;

bitflags! {
    /// Properties of a segment (`Spec: RSMEX-03`); unknown bits are ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExportFlags: u32 {
        /// The segment may be bound to other memory later.
        const ALLOW_REBIND = 0x01;
        /// Missing resources fail the call instead of delaying it; no call here waits for
        /// resources.
        const DONT_WAIT = 0x02;
        /// Locks on the segment, which are not supported: publishing it fails.
        const LOCK_OPERATIONS = 0x04;
        const _ = !0;
    }
}

/// Id and access list under which a segment is published.
pub(crate) struct Publication {
    pub(crate) segment: SegmentId,
    /// Tells this publication from all others of this incarnation of the node.
    pub(crate) number: u64,
    pub(crate) access: Vec<AccessEntry>,
}

/// A segment.
pub(crate) struct Export {
    pub(crate) port: usize,
    flags: ExportFlags,
    /// Registration that covers the memory for the life of the segment.
    pub(crate) base: LmrCreated,
    pub(crate) length: u64,
    pub(crate) owner: Credentials,
    pub(crate) default_access: u32,
    /// Registrations for peers, by [`Permission::class`].
    pub(crate) keys: [Option<LmrCreated>; 3],
    /// Changes with each rebind.
    pub(crate) binding: u32,
    pub(crate) publication: Option<Publication>,
    /// Set while the segment is taken back or rebound; other changes are refused.
    pub(crate) changing: bool,
    pub(crate) signals: u32,
    pub(crate) poll_references: u32,
}

impl Export {
    /// Returns true if the segment is published under this number.
    pub(crate) fn is_published(&self, number: u64) -> bool {
        let publication = self.publication.as_ref();
        publication.is_some_and(|publication| publication.number == number)
    }

    pub(crate) fn check_idle(&self) -> Result<()> {
        if self.changing {
            Err(RsmError::InsufficientResources)
        } else {
            Ok(())
        }
    }

    pub(crate) fn requests_locks(&self) -> bool {
        self.flags.contains(ExportFlags::LOCK_OPERATIONS)
    }
}

/// Returns the privileges that a key with these rights needs.
pub(crate) fn class_privileges(permission: Permission) -> MemoryPrivileges {
    let mut privileges = MemoryPrivileges::LOCAL_READ;
    if permission.contains(Permission::READ) {
        privileges |= MemoryPrivileges::REMOTE_READ;
    }
    if permission.contains(Permission::WRITE) {
        privileges |= MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_WRITE;
    }
    privileges
}

/// A change that importers are told.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Revoke,
    Rebind,
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Makes a segment of memory; peers can connect to it once it is published.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: `controller` is not open.
    /// - BAD_LENGTH: the memory is empty.
    /// - BAD_MEM_ALIGNMENT: the address or length is not a multiple of the page size.
    /// - BAD_LENGTH: the length exceeds the controller's limit; loopback has none.
    /// - INSUFFICIENT_MEM: the total of exported bytes would exceed its limit.
    /// - INSUFFICIENT_RESOURCES: tables, device objects or memory are exhausted.
    ///
    /// Spec: RSMEX-01..04, RSMST-05
    pub fn export_create(
        &self,
        controller: ControllerId,
        memory: Region,
        flags: ExportFlags,
    ) -> Result<ExportId> {
        let length = memory.len() as u64;
        let (index, pz) = self.attempt(|state| {
            let index = self.port_of(state, controller)?;
            let ids = state.ports.get(index).and_then(|port| port.ids());
            Ok((index, ids.ok_or(RsmError::BadControllerHandle)?.pz))
        })?;
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        self.check_memory(&memory, port.is_loopback(), port.max_region)?;
        self.attempt(|state| {
            let limit = self.options.limits.exported_bytes;
            let bytes = state
                .exported_bytes
                .checked_add(length)
                .filter(|bytes| limit == 0 || *bytes <= limit)
                .ok_or(RsmError::InsufficientMemory)?;
            state.exported_bytes = bytes;
            Ok(())
        })?;
        let made = port.ia.lmr_create(&base_request(memory, pz));
        let result = made.map_err(RsmError::from).and_then(|base| {
            let inserted = self.state.with(|state| {
                self.port_of(state, controller)?;
                state
                    .exports
                    .insert(Export {
                        port: index,
                        flags,
                        base,
                        length,
                        owner: self.options.credentials,
                        default_access: self.options.default_access,
                        keys: [None; 3],
                        binding: 0,
                        publication: None,
                        changing: false,
                        signals: 0,
                        poll_references: 0,
                    })
                    .ok_or(RsmError::InsufficientResources)
            });
            inserted.inspect_err(|_| {
                let _adapter_closed = port.ia.lmr_free(base.lmr);
            })
        });
        match result {
            Ok(handle) => Ok(ExportId::from_handle(handle)),
            Err(error) => {
                self.state.with(|state| {
                    state.exported_bytes = state.exported_bytes.saturating_sub(length);
                });
                Err(error)
            }
        }
    }

    /// Checks memory for a segment, in the order of the interface.
    fn check_memory(&self, memory: &Region, loopback: bool, max_region: u64) -> Result<()> {
        let length = memory.len() as u64;
        let page = self.options.page_size.max(1);
        if length == 0 {
            return Err(RsmError::BadLength);
        }
        let aligned = |value: u64| value.checked_rem(page) == Some(0);
        if !aligned(memory.address()) || !aligned(length) {
            return Err(RsmError::BadMemoryAlignment);
        }
        let limit = match self.options.limits.segment_bytes {
            0 => max_region,
            bytes => bytes.min(max_region),
        };
        if length > limit && !loopback {
            return Err(RsmError::BadLength);
        }
        Ok(())
    }

    /// Returns the length of a segment in bytes.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `export` is no exported segment.
    pub fn export_length(&self, export: ExportId) -> Result<u64> {
        self.state
            .with(|state| Ok(export_at(state, export)?.length))
    }

    /// Destroys a segment; its memory is the caller's again on return.
    ///
    /// The importers lose the segment. An interruption of `wait` ends only the grace period of the
    /// importers; the segment is destroyed with its keys.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - POLLFD_IN_USE: a caller polls the segment; nothing changed.
    /// - INSUFFICIENT_RESOURCES: another thread is changing the segment.
    ///
    /// Spec: RSMEX-10, RSMST-04
    pub fn export_destroy<W: Wait>(&self, export: ExportId, wait: &mut W) -> Result<()> {
        self.state.with(|state| {
            let segment = export_at(state, export)?;
            if segment.poll_references != 0 {
                return Err(RsmError::PollDescriptorInUse);
            }
            segment.check_idle()?;
            segment.changing = true;
            segment.publication = None;
            Ok(())
        })?;
        self.notify_importers_and_wait(export, Change::Revoke, wait);
        self.drop_export(export);
        Ok(())
    }

    /// Destroys a segment with its keys, even if it is in use.
    ///
    /// The handle leaves the table last. A caller that does not find it there can rely on the end
    /// of the registrations, and each of several concurrent callers waits for the device.
    pub(crate) fn drop_export(&self, export: ExportId) {
        loop {
            let found = self.state.with(|state| {
                let segment = state.exports.get_mut(export.handle())?;
                // From now on no importer gets a key.
                segment.publication = None;
                segment.changing = true;
                let registered = (segment.keys, segment.base);
                let (port, length) = (segment.port, segment.length);
                forget_importers(state, export);
                Some((port, length, registered))
            });
            let Some((port, length, registered)) = found else {
                break;
            };
            self.free_keys(port, registered.0);
            let written = SyncDirection::RdmaWrite;
            self.synchronise(port, &registered.1, written, (0, length));
            self.free_keys(port, [Some(registered.1)]);
            let is_over = self.state.with(|state| {
                let segment = state.exports.get(export.handle());
                let is_over =
                    segment.is_none_or(|segment| (segment.keys, segment.base) == registered);
                // Otherwise it was bound to other memory meanwhile.
                if is_over && let Some(removed) = state.exports.remove(export.handle()) {
                    state.exported_bytes = state.exported_bytes.saturating_sub(removed.length);
                }
                is_over
            });
            if is_over {
                break;
            }
        }
        self.tell_change();
    }

    /// Frees the keys of a segment; keys that importers hold are invalid from then on.
    ///
    /// They leave the segment last, as in [`drop_export`](Self::drop_export).
    pub(crate) fn destroy_keys(&self, export: ExportId) {
        let found = self.state.with(|state| {
            let segment = state.exports.get(export.handle())?;
            Some((segment.port, segment.keys, segment.base, segment.length))
        });
        let Some((port, keys, base, length)) = found else {
            return;
        };
        self.free_keys(port, keys);
        self.synchronise(port, &base, SyncDirection::RdmaWrite, (0, length));
        self.state.with(|state| {
            if let Some(segment) = state.exports.get_mut(export.handle())
                && segment.keys == keys
            {
                segment.keys = [None; 3];
            }
        });
    }

    /// Frees registrations; one that another thread is freeing is freed on return, too.
    fn free_keys<const N: usize>(&self, port: usize, keys: [Option<LmrCreated>; N]) {
        if let Some(port) = self.ports.get(port) {
            for key in keys.into_iter().flatten() {
                let _freed_or_adapter_closed = port.ia.lmr_free(key.lmr);
            }
        }
    }

    /// Tells importers of a change and waits for their acknowledgements, at most the grace period.
    ///
    /// Spec: RSMST-04
    pub(crate) fn notify_importers_and_wait<W: Wait>(
        &self,
        export: ExportId,
        change: Change,
        wait: &mut W,
    ) {
        let deadline = wait.now().after(self.options.revocation_grace);
        let notified = self
            .state
            .with(|state| self.notify_importers(state, export, change));
        if notified == 0 || self.options.revocation_grace == 0 {
            return;
        }
        // After a time-out or an interruption, the caller frees the keys too.
        let _outcome = self.wait_for(None, deadline, wait, |_| {
            let awaited = self.state.with(|state| {
                state
                    .importers
                    .find(|importer| importer.export == export.handle() && importer.awaited)
            });
            awaited.is_none().then_some(Ok(()))
        });
    }

    /// Tells importers of a change; returns their number.
    pub(crate) fn notify_importers(
        &self,
        state: &mut State,
        export: ExportId,
        change: Change,
    ) -> usize {
        let Some((address, keys)) = state
            .exports
            .get(export.handle())
            .map(|segment| (segment.base.registered_address, segment.keys))
        else {
            return 0;
        };
        let mut notified = 0_usize;
        let mut from = 0;
        while let Some((at, handle)) = state
            .importers
            .find_from(from, |importer| importer.export == export.handle())
        {
            from = at.saturating_add(1);
            let Some(importer) = state.importers.get_mut(handle) else {
                continue;
            };
            let (link, import) = (importer.link, importer.import);
            if link.is_null() {
                // The link is broken; the importer learns of the change when it reconnects.
                continue;
            }
            importer.awaited = true;
            let key = keys.get(importer.permission.class()).copied().flatten();
            let body = match change {
                Change::Revoke => Body::Revoke {
                    import,
                    importer: handle.to_raw(),
                },
                Change::Rebind => Body::Rebind {
                    import,
                    importer: handle.to_raw(),
                    address,
                    key: key.map_or(0, |key| key.rmr_context),
                },
            };
            self.tell(state, link, body);
            notified = notified.saturating_add(1);
        }
        notified
    }

    /// Binds a segment to other memory of the same length.
    ///
    /// The id, access list and connections stay. Later accesses go to the new memory, and the old
    /// memory is the caller's again on return.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - REBIND_NOT_ALLOWED: the segment was made without [`ExportFlags::ALLOW_REBIND`].
    /// - BAD_LENGTH: the length differs from the segment's.
    /// - BAD_ADDR: the address is not a multiple of the page size.
    /// - INSUFFICIENT_RESOURCES: another thread is changing the segment.
    /// - INSUFFICIENT_RESOURCES: the device cannot register the memory; the old memory stays.
    ///
    /// Spec: RSMEX-20..23
    pub fn export_rebind<W: Wait>(
        &self,
        export: ExportId,
        memory: Region,
        wait: &mut W,
    ) -> Result<()> {
        let (index, same) = self.state.with(|state| {
            let segment = export_at(state, export)?;
            if !segment.flags.contains(ExportFlags::ALLOW_REBIND) {
                return Err(RsmError::RebindNotAllowed);
            }
            if memory.len() as u64 != segment.length {
                return Err(RsmError::BadLength);
            }
            if memory.address().checked_rem(self.options.page_size.max(1)) != Some(0) {
                return Err(RsmError::BadAddress);
            }
            let same = memory.address() == segment.base.registered_address;
            if !same {
                segment.check_idle()?;
                segment.changing = true;
            }
            Ok((segment.port, same))
        })?;
        if same {
            return Ok(());
        }
        let outcome = self.rebind(export, index, memory, wait);
        self.state.with(|state| {
            if let Some(segment) = state.exports.get_mut(export.handle()) {
                segment.changing = false;
            }
        });
        outcome
    }

    fn rebind<W: Wait>(
        &self,
        export: ExportId,
        index: usize,
        memory: Region,
        wait: &mut W,
    ) -> Result<()> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let pz = self.state.with(|state| {
            let ids = state.ports.get(index).and_then(|port| port.ids());
            ids.map(|ids| ids.pz).ok_or(RsmError::BadSegmentHandle)
        })?;
        let length = memory.len() as u64;
        let base = port.ia.lmr_create(&base_request(memory, pz))?;
        self.synchronise_all(index, &base, length);
        let mut keys = [None; 3];
        // An importer may connect meanwhile with a class that had no key before; then the loop
        // makes that key too.
        let old = loop {
            let swapped = self.state.with(|state| {
                let segment = export_at(state, export)?;
                let missing = (0..keys.len()).find(|class| {
                    let has =
                        |of: &[Option<LmrCreated>; 3]| of.get(*class).is_some_and(Option::is_some);
                    has(&segment.keys) && !has(&keys)
                });
                if let Some(class) = missing {
                    return Ok(Err(class));
                }
                segment.binding = segment.binding.wrapping_add(1);
                let old = core::mem::replace(&mut segment.keys, keys);
                Ok(Ok((old, core::mem::replace(&mut segment.base, base))))
            });
            let made = match swapped {
                Ok(Ok(old)) => break old,
                Ok(Err(class)) => self
                    .make_key(index, &base, class_of(class))
                    .map(|key| (class, key)),
                Err(error) => Err(error),
            };
            match made {
                Ok((class, key)) => {
                    if let Some(slot) = keys.get_mut(class) {
                        *slot = Some(key);
                    }
                }
                Err(error) => {
                    for key in keys.into_iter().flatten().chain([base]) {
                        let _adapter_closed = port.ia.lmr_free(key.lmr);
                    }
                    return Err(error);
                }
            }
        };
        self.notify_importers_and_wait(export, Change::Rebind, wait);
        let (old_keys, old_base) = old;
        self.free_keys(index, old_keys);
        self.synchronise(index, &old_base, SyncDirection::RdmaWrite, (0, length));
        self.free_keys(index, [Some(old_base)]);
        Ok(())
    }

    /// Makes a key: a registration of a segment's memory for peers with these rights.
    pub(crate) fn make_key(
        &self,
        index: usize,
        base: &LmrCreated,
        permission: Permission,
    ) -> Result<LmrCreated> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let pz = self.state.with(|state| {
            let ids = state.ports.get(index).and_then(|port| port.ids());
            ids.map(|ids| ids.pz).ok_or(RsmError::InternalError)
        })?;
        Ok(port.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Lmr(base.lmr),
            pz,
            privileges: class_privileges(permission),
        })?)
    }
}

fn base_request(memory: Region, pz: dat_core::id::PzId) -> LmrRequest {
    LmrRequest {
        memory: LmrMemory::Virtual(memory),
        pz,
        privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    }
}

/// Returns the rights of a class.
fn class_of(class: usize) -> Permission {
    match class {
        0 => Permission::READ,
        1 => Permission::WRITE,
        _ => Permission::all(),
    }
}

/// Returns a live segment.
pub(crate) fn export_at(state: &mut State, export: ExportId) -> Result<&mut Export> {
    state
        .exports
        .get_mut(export.handle())
        .ok_or(RsmError::BadSegmentHandle)
}

/// Removes the importers of a segment.
pub(crate) fn forget_importers(state: &mut State, export: ExportId) {
    let mut from = 0;
    while let Some((at, importer)) = state
        .importers
        .find_from(from, |importer| importer.export == export.handle())
    {
        state.importers.remove(importer);
        from = at;
    }
}
