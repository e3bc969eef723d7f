//! Connections to segments.

use dat_rsm::{BarrierMode, ControllerId, ImportId, Permission, RsmError};

use super::process::{site_of, with_site};
use super::{Code, check_heap, code, named, required, required_handle, to_c};
use crate::boundary::Out;
use crate::handles::CHandle;

/// `rsm_memseg_import_connect`.
///
/// Spec: RSMIM-01..04, RSMIM-06, RSMGEN-06, RSMGEN-08
pub fn import_connect(
    controller: CHandle,
    node: u32,
    segment: u32,
    permission: u32,
    import: Out<CHandle>,
) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        with_site!(opened, site => {
            site.engine.controller_attributes(controller)?;
            let output = required_handle(import, RsmError::BadSegmentHandle)?;
            let permission = Permission::from_number(permission)?;
            check_heap()?;
            let made = site.sleeping_lightly(|wait| {
                site.engine.import_connect(controller, node, segment, permission, wait)
            })?;
            output.put(to_c(made));
            Ok(())
        })
    })
}

/// `rsm_memseg_import_disconnect`.
///
/// Spec: RSMIM-10, RSMIM-11
pub fn import_disconnect(import: CHandle) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        with_site!(opened, site => {
            let ended = site.sleeping(|wait| site.engine.import_disconnect(import, wait));
            site.look();
            ended
        })
    })
}

/// `rsm_memseg_import_set_mode`.
///
/// Spec: RSMMD-01, RSMMD-02
pub fn set_mode(import: CHandle, mode: u32) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        with_site!(opened, site => {
            site.engine.mode(import)?;
            site.engine.set_mode(import, BarrierMode::from_number(mode)?)
        })
    })
}

/// `rsm_memseg_import_get_mode`.
///
/// Spec: RSMMD-01
pub fn get_mode(import: CHandle, mode: Out<u32>) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        let known = with_site!(opened, site => site.engine.mode(import))?;
        required(mode, RsmError::BadAddress)?.put(known as u32);
        Ok(())
    })
}
