//! Calls that get, describe and release controllers.

use dat_rsm::{ControllerId, RsmError};

use super::process::{LOOPBACK, Process, site_of, with_site};
use super::{Code, check_heap, code, named, required, required_handle, to_c};
use crate::boundary::{ControllerAttributes, Out, Text};
use crate::handles::CHandle;

/// `rsm_get_controller`.
///
/// Spec: RSMCT-01..05, RSMGEN-06
pub fn get_controller(name: Text, controller: Out<CHandle>) -> Code {
    code(|| {
        let output = required_handle(controller, RsmError::BadControllerHandle)?;
        if !name.is_readable() {
            return Err(RsmError::BadAddress);
        }
        check_heap()?;
        let name = name.get();
        let process = Process::this()?;
        let opened = match &name {
            Some(name) => match name.to_str() {
                Ok(name) => process.open(name),
                Err(_) => Err(process.absent(&name.to_string_lossy())),
            },
            None => process.open(LOOPBACK),
        }?;
        let controller = with_site!(opened, site => site.get())?;
        output.put(to_c(controller));
        Ok(())
    })
}

/// `rsm_release_controller`.
///
/// Spec: RSMCT-10, RSMCT-11
pub fn release_controller(controller: CHandle) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        with_site!(opened, site => site.release(controller))
    })
}

/// `rsm_get_controller_attr`.
///
/// Spec: RSMCT-20, RSMCT-21
pub fn get_controller_attributes(
    controller: CHandle,
    attributes: Out<ControllerAttributes>,
) -> Code {
    code(|| {
        let controller = named(controller);
        let opened = site_of(controller, RsmError::BadControllerHandle)?;
        let controller = ControllerId::from_handle(controller);
        let known = with_site!(opened, site => site.engine.controller_attributes(controller))?;
        // A size above `usize::MAX` is no limit on this host.
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        required(attributes, RsmError::BadAddress)?.put(ControllerAttributes {
            direct_access_sizes: known.direct_access_sizes,
            atomic_sizes: known.atomic_sizes,
            page_size: size(known.page_size),
            max_export_segment_size: size(known.max_export_segment_size),
            tot_export_segment_size: size(known.total_export_segment_size),
            max_export_segments: known.max_export_segments,
            max_import_map_size: size(known.max_import_map_size),
            tot_import_map_size: size(known.total_import_map_size),
            max_import_segments: known.max_import_segments,
        });
        Ok(())
    })
}
