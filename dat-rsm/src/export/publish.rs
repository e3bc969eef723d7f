//! Publishing segments and taking them back.

use alloc::vec::Vec;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::PspFlags;
use dat_core::id::PspId;
use dat_core::sync::RawLock;

use crate::access::{AccessEntry, AccessFault, fault_of_list};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::{Change, Publication, export_at, forget_importers};
use crate::id::ExportId;
use crate::port::Port;
use crate::segment_id::{SegmentId, check_application_id, choose_system_id, id_after};

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Publishes a segment under an id and returns the id.
    ///
    /// For the id 0 the system chooses one. With an empty list all nodes may connect, with the
    /// rights of [`crate::Options::default_access`].
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - SEG_ALREADY_PUBLISHED: the segment has an id.
    /// - RESERVED_SEGID: applications may not use the id.
    /// - BAD_ACL: the list has more entries than nodes, an unknown node, or bits above 0666. On
    ///   loopback this node is the only one.
    /// - SEGID_IN_USE: this node publishes another segment under the id.
    /// - INSUFFICIENT_RESOURCES: another thread is changing the segment.
    /// - INSUFFICIENT_MEM: memory for the list is missing.
    /// - LOCKS_NOT_SUPPORTED: the segment was made for locks.
    ///
    /// Spec: RSMPB-01..06, RSMEX-03
    pub fn export_publish(
        &self,
        export: ExportId,
        id: SegmentId,
        access: &[AccessEntry],
    ) -> Result<SegmentId> {
        let access_copy = copy_list(access)?;
        let (port, base, length) = self.state.with(|state| {
            let segment = export_at(state, export)?;
            if segment.publication.is_some() {
                return Err(RsmError::SegmentAlreadyPublished);
            }
            if id != 0 {
                check_application_id(id)?;
            }
            let segment = export_at(state, export)?;
            let (port, locks) = (segment.port, segment.requests_locks());
            let (base, length) = (segment.base, segment.length);
            segment.check_idle()?;
            self.check_access_list(port, access)?;
            if id != 0 && is_published(state, id) {
                return Err(RsmError::SegmentIdInUse);
            }
            if locks {
                return Err(RsmError::LocksNotSupported);
            }
            export_at(state, export)?.changing = true;
            Ok((port, base, length))
        })?;
        self.synchronise_all(port, &base, length);
        self.state.with(|state| {
            export_at(state, export)?.changing = false;
            if id != 0 && is_published(state, id) {
                return Err(RsmError::SegmentIdInUse);
            }
            let id = match id {
                0 => {
                    let id = choose_system_id(state.next_system_id, |id| is_published(state, id));
                    state.next_system_id = id_after(id);
                    id
                }
                id => id,
            };
            let number = state.next_publication;
            state.next_publication = number.wrapping_add(1).max(1);
            export_at(state, export)?.publication = Some(Publication {
                segment: id,
                number,
                access: access_copy,
            });
            Ok(id)
        })
    }

    /// Listens for importers of a segment's controller, unless the controller already listens.
    ///
    /// For processes that share a node, and so a qualifier: their controllers are made with the
    /// qualifier 0, and the process that exports calls this.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - INSUFFICIENT_RESOURCES: the controller cannot listen there, as when another process does.
    ///
    /// Spec: RSMPB-01, RSMGEN-09
    pub fn listen(&self, export: ExportId, qualifier: u64) -> Result<()> {
        self.attempt(|state| {
            let index = export_at(state, export)?.port;
            let objects = state.ports.get_mut(index);
            let objects = objects.and_then(|port| port.objects.as_mut());
            let objects = objects.ok_or(RsmError::BadSegmentHandle)?;
            let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
            if objects.psp == PspId::NULL {
                let made = port
                    .ia
                    .psp_create(qualifier, objects.arrivals, PspFlags::Consumer);
                objects.psp = made.map_err(|_| RsmError::InsufficientResources)?;
            }
            Ok(())
        })
    }

    /// Returns the fault of an access list that publishing the segment refuses with BAD_ACL.
    ///
    /// `None` if the list has no fault, or `export` is no exported segment.
    ///
    /// Spec: RSMPB-03
    #[must_use]
    pub fn access_fault(&self, export: ExportId, access: &[AccessEntry]) -> Option<AccessFault> {
        let index = self.state.with(|state| {
            let segment = export_at(state, export).ok()?;
            Some(segment.port)
        })?;
        self.fault_at(self.ports.get(index)?, access)
    }

    fn fault_at(&self, port: &Port<'_, B, L>, access: &[AccessEntry]) -> Option<AccessFault> {
        if port.is_loopback() {
            let own = self.options.node;
            return fault_of_list(access, |node| node == own, 1);
        }
        fault_of_list(access, |node| port.node(node).is_some(), port.nodes.len())
    }

    fn check_access_list(&self, port: usize, access: &[AccessEntry]) -> Result<()> {
        let port = self.ports.get(port).ok_or(RsmError::InternalError)?;
        match self.fault_at(port, access) {
            None => Ok(()),
            Some(_) => Err(RsmError::BadAccessList),
        }
    }

    /// Replaces the access list of a published segment, for later connections.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - SEG_NOT_PUBLISHED: the segment has no id.
    /// - BAD_ACL: as for `export_publish`; the old list stays.
    /// - INSUFFICIENT_MEM: memory for the list is missing.
    ///
    /// Spec: RSMPB-10
    pub fn export_republish(&self, export: ExportId, access: &[AccessEntry]) -> Result<()> {
        let access_copy = copy_list(access)?;
        self.state.with(|state| {
            let segment = export_at(state, export)?;
            if segment.publication.is_none() {
                return Err(RsmError::SegmentNotPublished);
            }
            let port = segment.port;
            self.check_access_list(port, access)?;
            if let Some(publication) = &mut export_at(state, export)?.publication {
                publication.access = access_copy;
            }
            Ok(())
        })
    }

    /// Takes a segment back: frees its id and the keys of its importers.
    ///
    /// This cuts off importers even in the middle of a vector. They are told first and have
    /// [`crate::Options::revocation_grace`] to stop, so that no transfer of another segment fails
    /// with theirs. The keys are freed after the grace period, and also when `wait` is interrupted.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - SEG_NOT_PUBLISHED: the segment has no id.
    /// - INSUFFICIENT_RESOURCES: another thread is changing the segment.
    ///
    /// Spec: RSMPB-20, RSMPB-21, RSMST-04
    pub fn export_unpublish<W: Wait>(&self, export: ExportId, wait: &mut W) -> Result<()> {
        self.state.with(|state| {
            let segment = export_at(state, export)?;
            if segment.publication.is_none() {
                return Err(RsmError::SegmentNotPublished);
            }
            segment.check_idle()?;
            segment.changing = true;
            segment.publication = None;
            Ok(())
        })?;
        self.notify_importers_and_wait(export, Change::Revoke, wait);
        self.destroy_keys(export);
        self.state.with(|state| {
            forget_importers(state, export);
            if let Some(segment) = state.exports.get_mut(export.handle()) {
                segment.changing = false;
            }
        });
        Ok(())
    }
}

fn is_published(state: &State, id: SegmentId) -> bool {
    state.exports.iter().any(|(_, export)| {
        let publication = export.publication.as_ref();
        publication.is_some_and(|publication| publication.segment == id)
    })
}

fn copy_list(access: &[AccessEntry]) -> Result<Vec<AccessEntry>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(access.len())
        .map_err(|_| RsmError::InsufficientMemory)?;
    copy.extend_from_slice(access);
    Ok(copy)
}
