//! Mappings: addresses at which the program reaches a segment without a call.
//!
//! The backend that can be mapped has the exporter in this process. Shared memory is mapped a
//! second time, so that the mapping has the requested rights and outlives the segment. Other memory
//! is reached at its own address.

use dat_core::sync::HostLock;
use dat_rsm::{ImportId, ImportState, Permission, Result, Rsm, RsmError};

use super::process::{site_of, with_site};
use super::{Code, check_heap, code, named, required};
use crate::adapter::Openable;
use crate::boundary::{Out, Window, page_size};
use crate::handles::CHandle;

/// `RSM_MAP_FIXED`.
const FIXED: u32 = 1;

/// The mapping of a connection.
#[derive(Debug)]
pub(super) struct Mapped {
    import: ImportId,
    /// The window that the program uses; `None` if it uses the memory itself.
    window: Option<Window>,
    /// Address of the segment when the window was last moved; `None` if it is gone.
    base: Option<u64>,
    offset: u64,
}

impl Mapped {
    /// Moves the window to the segment's current memory. Always returns true.
    pub(super) fn follow<B: Openable>(&mut self, engine: &Rsm<'static, B, HostLock>) -> bool {
        let Some(window) = &mut self.window else {
            return true;
        };
        let base = match engine.import_state(self.import) {
            Ok(ImportState::Connected) => engine.import_address(self.import).ok(),
            _ => None,
        };
        if base != self.base {
            self.base = base;
            let turned = base.is_some_and(|base| {
                usize::try_from(base.wrapping_add(self.offset)).is_ok_and(|at| window.turn_to(at))
            });
            if !turned {
                window.blind();
            }
        }
        true
    }
}

/// Makes a mapping that the engine has granted; returns its address.
fn show(
    (import, base): (ImportId, u64),
    at: Option<usize>,
    permission: Permission,
    (offset, length): (u64, usize),
) -> Result<(usize, Mapped)> {
    let failed = RsmError::MapFailed;
    let memory = usize::try_from(base.wrapping_add(offset)).map_err(|_| failed)?;
    let page = page_size();
    if at.is_some_and(|at| !at.is_multiple_of(page)) {
        return Err(RsmError::BadMemoryAlignment);
    }
    let mapped = |window| Mapped {
        import,
        window,
        base: Some(base),
        offset,
    };
    if at == Some(memory) {
        return Ok((memory, mapped(None)));
    }
    let rounded = length.checked_next_multiple_of(page).ok_or(failed)?;
    let rights = (
        permission.contains(Permission::READ),
        permission.contains(Permission::WRITE),
    );
    match (Window::new(memory, rounded, at, rights), at) {
        (Some(window), _) => Ok((window.address(), mapped(Some(window)))),
        (None, None) => Ok((memory, mapped(None))),
        (None, Some(_)) => Err(failed),
    }
}

/// `rsm_memseg_import_map`.
///
/// Spec: RSMMP-01, RSMMP-02, RSMMP-03, RSMMP-05
pub fn import_map(
    import: CHandle,
    address: Out<u64>,
    attribute: u32,
    permission: u32,
    offset: i64,
    length: usize,
) -> Code {
    code(|| {
        let segment = named(import);
        let opened = site_of(segment, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(segment);
        with_site!(opened, site => {
            site.engine.import_state(import)?;
            let output = required(address, RsmError::BadAddress)?;
            // The engine refuses empty permissions in its turn. A negative offset lies past every
            // end.
            let permission = Permission::from_bits(permission).unwrap_or_default();
            let offset = offset as u64;
            check_heap().map_err(|_| RsmError::InsufficientResources)?;
            let mut known = site.mapped();
            site.engine.import_map(import, permission, offset, length as u64)?;
            let at = match attribute & FIXED {
                0 => None,
                _ => Some(address.get().unwrap_or_default() as usize),
            };
            let base = site.engine.import_address(import)?;
            match show((import, base), at, permission, (offset, length)) {
                Ok((shown, mapped)) => {
                    known.insert(segment.to_raw(), mapped);
                    output.put(shown as u64);
                    Ok(())
                }
                Err(error) => {
                    site.engine.import_unmap(import)?;
                    Err(error)
                }
            }
        })
    })
}

/// `rsm_memseg_import_unmap`.
///
/// Spec: RSMMP-10
pub fn import_unmap(import: CHandle) -> Code {
    code(|| {
        let segment = named(import);
        let opened = site_of(segment, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(segment);
        with_site!(opened, site => {
            let mut known = site.mapped();
            site.engine.import_unmap(import)?;
            known.remove(&segment.to_raw());
            Ok(())
        })
    })
}
