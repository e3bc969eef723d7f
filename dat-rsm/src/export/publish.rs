//! Publishing segments, and taking them back.

use alloc::vec::Vec;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::PspFlags;
use dat_core::id::PspId;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::access::{AccessEntry, check_list};
use crate::export::segment_id::{SegmentId, check_application_id};
use crate::export::{Change, Publication, export_at, forget_importers};
use crate::id::ExportId;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Publishes a segment under an id, or, for 0, under one that the system chooses; returns the id.
    ///
    /// With an empty list all nodes may connect, with the rights of [`crate::Options::default_access`].
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no exported segment.
    /// - SEG_ALREADY_PUBLISHED: it has an id already.
    /// - RESERVED_SEGID: the id is not for applications.
    /// - BAD_ACL: more entries than nodes, an unknown node, bits above 0666; on loopback another node than this one.
    /// - SEGID_IN_USE: this node publishes something else under it.
    /// - INSUFFICIENT_RESOURCES: the system has no id left, or the segment is being changed.
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
        self.state.with(|state| {
            let segment = export_at(state, export)?;
            if segment.publication.is_some() {
                return Err(RsmError::SegmentAlreadyPublished);
            }
            if id != 0 {
                check_application_id(id)?;
            }
            let segment = export_at(state, export)?;
            let (port, locks) = (segment.port, segment.locks_asked());
            segment.check_idle()?;
            self.check_access_list(port, access)?;
            if id != 0 && is_published(state, id) {
                return Err(RsmError::SegmentIdInUse);
            }
            if locks {
                return Err(RsmError::LocksNotSupported);
            }
            let id = match id {
                0 => {
                    let chosen = state
                        .next_system_id
                        .ok_or(RsmError::InsufficientResources)?;
                    state.next_system_id = chosen.checked_add(1);
                    chosen
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

    /// Listens for importers of a segment's controller, if that was made with the connection qualifier 0 and does not yet: for
    /// processes of which one or another is to export, that share a node and so a qualifier.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no exported segment.
    /// - INSUFFICIENT_RESOURCES: somebody else listens there.
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

    fn check_access_list(&self, port: usize, access: &[AccessEntry]) -> Result<()> {
        let port = self.ports.get(port).ok_or(RsmError::InternalError)?;
        if port.is_loopback() {
            let own = self.options.node;
            return check_list(access, |node| node == own, 1);
        }
        check_list(access, |node| port.node(node).is_some(), port.nodes.len())
    }

    /// Replaces the access list of a published segment, for connections made from now on.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no exported segment.
    /// - SEG_NOT_PUBLISHED: it has no id.
    /// - BAD_ACL: as for `export_publish`; the old list stays.
    /// - INSUFFICIENT_MEM: no memory for the list.
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

    /// Takes a segment back: its id is free, its importers are cut off by key, in the middle of a vector too.
    ///
    /// Importers are told first and have [`crate::Options::revocation_grace`] to let go, so that nobody else's
    /// transfers are hurt; the keys go whether they do or not, and also when the wait is interrupted.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no exported segment.
    /// - SEG_NOT_PUBLISHED: it has no id.
    /// - INSUFFICIENT_RESOURCES: another thread is changing it.
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
        self.settle_importers(export, Change::Revoke, wait);
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
