//! Local memory handles.

use dat_rsm::{ControllerId, LocalAccess, LocalMemoryId, RsmError};

use super::process::{site_of, with_site};
use super::{Code, check_heap, code, named, required_handle, to_c};
use crate::boundary::{Access, Consumer, Out, access_to, region};
use crate::handles::CHandle;

/// `rsm_create_localmemory_handle`.
///
/// Spec: RSMLH-01..06, RSMGEN-06
pub fn create_local_memory(
    controller: CHandle,
    local: Out<CHandle>,
    memory: Consumer,
    length: usize,
) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        with_site!(opened, site => {
            let limits = site.engine.controller_attributes(controller)?;
            let output = required_handle(local, RsmError::BadLocalMemoryHandle)?;
            if length == 0 || length as u64 > limits.max_export_segment_size {
                return Err(RsmError::BadLength);
            }
            // A device checks this when it pins the memory.
            let access = match access_to(memory.address(), length) {
                _ if memory.is_null() => return Err(RsmError::BadAddress),
                Access::None => return Err(RsmError::BadAddress),
                Access::Read => LocalAccess::ReadOnly,
                Access::Write => LocalAccess::ReadWrite,
            };
            check_heap()?;
            let memory = region(memory.address(), length);
            let made = site.engine.create_local_memory(controller, memory, access)?;
            output.put(to_c(made));
            Ok(())
        })
    })
}

/// `rsm_free_localmemory_handle`.
///
/// Spec: RSMLH-10, RSMLH-11
pub fn free_local_memory(controller: CHandle, local: CHandle) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        let local = LocalMemoryId::from_handle(named(local));
        with_site!(opened, site => {
            site.sleeping(|wait| site.engine.free_local_memory(controller, local, wait))
        })
    })
}
