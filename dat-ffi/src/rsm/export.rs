//! Exported segments.

use dat_rsm::{
    AccessEntry as Access, ControllerId, ExportFlags, ExportId, Handle, Result, RsmError,
};

use super::process::{Opened, is_inherited, site_of, with_site};
use super::{Code, check_heap, code, named, required_handle, to_c};
use crate::boundary::{self, AccessEntry, Consumer, List, Out, access_to, page_size, region};
use crate::handles::CHandle;

/// Returns the site of an exported segment, for calls that only its creator may make.
///
/// # Errors
/// - NOT_CREATOR: a process that this one was forked from created the segment.
/// - BAD_SEG_HNDL: the handle is not that of an exported segment.
///
/// Spec: RSMGEN-03
fn created(segment: Handle) -> Result<&'static Opened> {
    site_of(segment, RsmError::BadSegmentHandle).map_err(|none| {
        let export = matches!(
            dat_rsm::SegmentHandle::from_handle(segment),
            Some(dat_rsm::SegmentHandle::Export(_))
        );
        if export && is_inherited(segment) {
            RsmError::NotCreator
        } else {
            none
        }
    })
}

/// Checks that memory can be exported, as far as the system tells.
fn check_memory(address: usize, length: usize) -> Result<()> {
    match access_to(address, length) {
        boundary::Access::Write => Ok(()),
        boundary::Access::Read => Err(RsmError::PermissionDenied),
        boundary::Access::None => Err(RsmError::BadAddress),
    }
}

/// Finds the reason why a device refused memory, where the device only reports a failure.
fn refused(error: RsmError, address: usize, length: usize) -> RsmError {
    match error {
        RsmError::BadAddress | RsmError::InternalError | RsmError::InsufficientResources => {
            check_memory(address, length).err().unwrap_or(error)
        }
        error => error,
    }
}

/// `rsm_memseg_export_create`.
///
/// Spec: RSMEX-01, RSMEX-02, RSMEX-03, RSMGEN-06
pub fn export_create(
    controller: CHandle,
    segment: Out<CHandle>,
    memory: Consumer,
    length: usize,
    flags: u32,
) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        with_site!(opened, site => {
            site.engine.controller_attributes(controller)?;
            let output = required_handle(segment, RsmError::BadSegmentHandle)?;
            if memory.is_null() {
                return Err(RsmError::BadAddress);
            }
            let address = memory.address();
            if length == 0 {
                return Err(RsmError::BadLength);
            }
            if !address.is_multiple_of(page_size()) || !length.is_multiple_of(page_size()) {
                return Err(RsmError::BadMemoryAlignment);
            }
            if !site.pins_memory() {
                // A device checks this when it pins the memory.
                check_memory(address, length)?;
            }
            check_heap()?;
            let flags = ExportFlags::from_bits_retain(flags);
            let made = site
                .engine
                .export_create(controller, region(address, length), flags)
                .map_err(|error| refused(error, address, length))?;
            output.put(to_c(made));
            Ok(())
        })
    })
}

/// `rsm_memseg_export_destroy`.
///
/// Spec: RSMEX-10
pub fn export_destroy(segment: CHandle) -> Code {
    code(|| {
        let segment = named(segment);
        let opened = site_of(segment, RsmError::BadSegmentHandle)?;
        let export = ExportId::from_handle(segment);
        with_site!(opened, site => {
            let destroyed = site.sleeping(|wait| site.engine.export_destroy(export, wait));
            site.look();
            destroyed
        })
    })
}

/// `rsm_memseg_export_rebind`.
///
/// Spec: RSMEX-20, RSMEX-22, RSMEX-23, RSMGEN-03
pub fn export_rebind(segment: CHandle, memory: Consumer, _offset: i64, length: usize) -> Code {
    /// An address at which no segment begins.
    const UNALIGNED: usize = 1;
    code(|| {
        let segment = named(segment);
        let opened = created(segment)?;
        let export = ExportId::from_handle(segment);
        with_site!(opened, site => {
            site.engine.export_length(export)?;
            check_heap()?;
            if memory.is_null() {
                return Err(RsmError::BadAddress);
            }
            let address = memory.address();
            let usable = if !site.pins_memory() {
                check_memory(address, length)
            } else {
                Ok(())
            };
            // The engine refuses this address in place of unusable memory, after all other errors.
            let given = region(usable.map_or(UNALIGNED, |()| address), length);
            let bound = site.sleeping(|wait| site.engine.export_rebind(export, given, wait));
            site.look();
            match (bound, usable) {
                (Err(RsmError::BadAddress), Err(error)) => Err(error),
                (bound, _) => bound.map_err(|error| refused(error, address, length)),
            }
        })
    })
}

/// Reads an access list; at most one entry more than a valid list has.
///
/// # Errors
/// - BAD_ACL: the list is null.
/// - BAD_ADDR: the list cannot be read, and its length is valid.
fn access_list(list: List<AccessEntry>, length: u32, nodes: usize) -> Result<Vec<Access>> {
    let count = (length as usize).min(nodes.saturating_add(1));
    if !list.is_null() && !list.is_readable(count) {
        return Err(match count <= nodes {
            true => RsmError::BadAddress,
            false => RsmError::BadAccessList,
        });
    }
    let entry = |index| {
        let entry = list.nth(index).ok_or(RsmError::BadAccessList)?;
        Ok(Access {
            node: entry.node,
            permission: entry.permission,
        })
    };
    (0..count).map(entry).collect()
}

/// Calls `publish` with a list; one that could not be read is refused in its turn.
fn in_turn<R>(
    list: Result<Vec<Access>>,
    publish: impl FnOnce(&[Access]) -> Result<R>,
) -> Result<R> {
    let refusal = match list {
        Ok(list) => return publish(&list),
        Err(refusal) => refusal,
    };
    // An entry that is never valid.
    let none = Access {
        node: 0,
        permission: u32::MAX,
    };
    publish(&[none]).map_err(|error| match error {
        RsmError::BadAccessList => refusal,
        error => error,
    })
}

/// `rsm_memseg_export_publish`.
///
/// Spec: RSMPB-01..06, RSMGEN-03
pub fn export_publish(
    segment: CHandle,
    id: Out<u32>,
    list: List<AccessEntry>,
    length: u32,
) -> Code {
    code(|| {
        if id.is_null() {
            return Err(RsmError::BadSegmentId);
        }
        if !id.allows(1, boundary::Access::Read) {
            return Err(RsmError::BadAddress);
        }
        // An id that the caller chose is only read.
        let wanted = id.get().unwrap_or_default();
        if wanted == 0 && !id.is_writable() {
            return Err(RsmError::BadAddress);
        }
        let segment = named(segment);
        let opened = created(segment)?;
        let export = ExportId::from_handle(segment);
        with_site!(opened, site => {
            site.engine.export_length(export)?;
            check_heap()?;
            if length != 0 && list.is_null() {
                return Err(RsmError::BadAccessList);
            }
            let list = access_list(list, length, site.nodes);
            // Fails if another process of this node has the qualifier that importers use.
            site.engine.listen(export, site.qualifier)?;
            let given = in_turn(list, |list| site.engine.export_publish(export, wanted, list))?;
            if wanted == 0 {
                id.offer(given);
            }
            Ok(())
        })
    })
}

/// `rsm_memseg_export_republish`.
///
/// Spec: RSMPB-10, RSMGEN-03
pub fn export_republish(segment: CHandle, list: List<AccessEntry>, length: u32) -> Code {
    code(|| {
        let segment = named(segment);
        let opened = created(segment)?;
        let export = ExportId::from_handle(segment);
        with_site!(opened, site => {
            site.engine.export_length(export)?;
            check_heap()?;
            let list = access_list(list, length, site.nodes);
            in_turn(list, |list| site.engine.export_republish(export, list))
        })
    })
}

/// `rsm_memseg_export_unpublish`.
///
/// Spec: RSMPB-20, RSMPB-21, RSMGEN-03
pub fn export_unpublish(segment: CHandle) -> Code {
    code(|| {
        let segment = named(segment);
        let opened = created(segment)?;
        let export = ExportId::from_handle(segment);
        with_site!(opened, site => {
            let withdrawn = site.sleeping(|wait| site.engine.export_unpublish(export, wait));
            site.look();
            withdrawn
        })
    })
}
