//! Controllers: opening, describing and releasing them.

pub(crate) mod topology;
mod unreached;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::export::Change;
use crate::id::{ControllerId, ExportId, LocalMemoryId};
use crate::port::{Name, PortState};

/// Capabilities of a controller; a limit of 0 means no limit (`Spec: RSMCT-20, RSMCT-21`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerAttributes {
    /// Item sizes that put and get move by single accesses (`Spec: RSMGP-04`).
    ///
    /// The value of each bit is an item size in bytes. Items of all sizes can be moved.
    pub direct_access_sizes: u32,
    /// Item sizes of atomic operations; always none.
    pub atomic_sizes: u32,
    /// Page size in bytes; segments are multiples of it.
    pub page_size: u64,
    /// Most bytes of an exported segment.
    pub max_export_segment_size: u64,
    /// Most exported bytes in total.
    pub total_export_segment_size: u64,
    /// Most exported segments.
    pub max_export_segments: u64,
    /// True if segments may be mapped, when the exporter's memory is accessible from here.
    pub mapping: bool,
    /// Most bytes of a mapping.
    pub max_import_map_size: u64,
    /// Most mapped bytes in total.
    pub total_import_map_size: u64,
    /// Most connections to segments.
    pub max_import_segments: u64,
}

/// Returns true if two names name the same controller.
///
/// Case is ignored, and an absent instance is 0. All instances of `loopback` are the same
/// controller. An invalid name names none.
///
/// Spec: RSMCT-01, RSMCT-05
pub fn is_same_controller(one: &str, other: &str) -> bool {
    let names = Name::parse(one).zip(Name::parse(other));
    names.is_some_and(|(one, other)| one.same(&other))
}

/// 1, 2, 4 and 8 bytes.
const ALL_SIZES: u32 = 0xF;
const BYTES: u32 = 0x1;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Opens a controller by name; for an open one, adds a user. `None` is `loopback`.
    ///
    /// Case is ignored, and an absent instance is 0. All instances of `loopback` are the same
    /// controller.
    ///
    /// # Errors
    /// - CTLR_NOT_PRESENT: no adapter has this name, or the name is invalid.
    /// - INSUFFICIENT_RESOURCES, INSUFFICIENT_MEM: the adapter's tables or memory are exhausted.
    /// - INSUFFICIENT_RESOURCES: another service listens at the controller's qualifier.
    /// - INSUFFICIENT_RESOURCES: a release of the controller by its last user has not finished.
    ///
    /// Spec: RSMCT-01, RSMCT-02, RSMCT-03, RSMCT-05, RSMCT-06
    pub fn get_controller(&self, name: Option<&str>) -> Result<ControllerId> {
        let requested = Name::parse(name.unwrap_or("loopback"));
        let requested = requested.ok_or(RsmError::ControllerNotPresent)?;
        let (index, port) = self
            .ports
            .iter()
            .enumerate()
            .find(|(_, port)| Name::parse(port.name).is_some_and(|name| name.same(&requested)))
            .ok_or(RsmError::ControllerNotPresent)?;
        self.state.with(|state| {
            let slot = state.ports.get_mut(index).ok_or(RsmError::InternalError)?;
            if slot.is_closed() {
                slot.zones.retain(|zone| port.ia.pz_free(*zone).is_err());
                slot.begin(port.open()?);
            } else if slot.references == 0 {
                // The release by the last user has not finished.
                return Err(RsmError::InsufficientResources);
            }
            slot.references = slot.references.saturating_add(1);
            slot.controller().ok_or(RsmError::InternalError)
        })
    }

    /// Releases a controller; the last release removes everything made on it.
    ///
    /// The last release takes its segments back, ends its connections, and returns its local memory
    /// to the callers.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: `controller` is not open.
    /// - INTERRUPTED: the wait for its connections to end was interrupted; the release stays in
    ///   effect.
    ///
    /// Spec: RSMCT-10, RSMCT-11
    pub fn release_controller<W: Wait>(
        &self,
        controller: ControllerId,
        wait: &mut W,
    ) -> Result<()> {
        let last = self.attempt(|state| {
            let index = self.port_of(state, controller)?;
            let port = state.ports.get_mut(index).ok_or(RsmError::InternalError)?;
            port.references = port.references.saturating_sub(1);
            Ok((port.references == 0).then_some(index))
        })?;
        let Some(index) = last else {
            return Ok(());
        };
        self.revoke_exports_of(index);
        self.destroy_exports_of(index);
        let now = wait.now();
        self.state.with(|state| {
            for (_, import) in state.imports.iter_mut() {
                if import.port == index {
                    import.abort();
                }
            }
            let mut from = 0;
            while let Some((at, link)) = state.links.find_from(from, |link| link.port == index) {
                state.end_link(link, now, &self.options);
                from = at.saturating_add(1);
            }
            state.remind(None);
        });
        let mut from = 0;
        loop {
            let found = self
                .state
                .with(|state| state.locals.find_from(from, |local| local.port == index));
            let Some((at, local)) = found else {
                break;
            };
            self.drop_local(LocalMemoryId::from_handle(local));
            from = at.saturating_add(1);
        }
        self.wait_for(None, None, wait, |_| {
            let closed = self
                .state
                .with(|state| state.ports.get(index).is_none_or(PortState::is_closed));
            closed.then_some(Ok(()))
        })
    }

    /// Tells the importers of a port's segments, as far as their links take a message at once.
    ///
    /// The others keep trying to come back until their time limit.
    fn revoke_exports_of(&self, index: usize) {
        self.state.with(|state| {
            let mut from = 0;
            while let Some((at, export)) =
                state.exports.find_from(from, |export| export.port == index)
            {
                let _told =
                    self.notify_importers(state, ExportId::from_handle(export), Change::Revoke);
                from = at.saturating_add(1);
            }
        });
    }

    /// Destroys all segments of a port, and their keys.
    fn destroy_exports_of(&self, index: usize) {
        let mut from = 0;
        loop {
            let found = self
                .state
                .with(|state| state.exports.find_from(from, |export| export.port == index));
            let Some((at, export)) = found else {
                return;
            };
            self.drop_export(ExportId::from_handle(export));
            from = at.saturating_add(1);
        }
    }

    /// Returns the capabilities of a controller.
    ///
    /// # Errors
    /// BAD_CTLR_HNDL: `controller` is not open.
    ///
    /// Spec: RSMCT-20, RSMCT-21
    pub fn controller_attributes(&self, controller: ControllerId) -> Result<ControllerAttributes> {
        let index = self.state.with(|state| self.port_of(state, controller))?;
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let limits = &self.options.limits;
        Ok(ControllerAttributes {
            // An adapter that reaches other machines does not state the size of its write accesses.
            direct_access_sizes: if self.sees_peers(index) {
                ALL_SIZES
            } else {
                BYTES
            },
            atomic_sizes: 0,
            page_size: self.options.page_size,
            max_export_segment_size: match limits.segment_bytes {
                0 => port.max_region,
                bytes => bytes.min(port.max_region),
            },
            total_export_segment_size: limits.exported_bytes,
            max_export_segments: limits.exports as u64,
            mapping: self.sees_peers(index),
            max_import_map_size: 0,
            total_import_map_size: 0,
            max_import_segments: limits.imports as u64,
        })
    }
}
