//! Oracle of two nodes, by the catalogue of remote shared memory.

use dat_rsm::segment_id::{FIRST_APPLICATION_ID, FIRST_SYSTEM_ID, LAST_APPLICATION_ID};
use dat_rsm::{AccessEntry, Handle, Permission, RsmError, SegmentId};

use super::signals::Signals;
use crate::op::{Pick, Side};

/// Size of a page of these nodes, in bytes.
pub(crate) const PAGE: usize = 256;
/// Bytes of a node's segment memory.
pub(crate) const PAGES: usize = 8 * PAGE;
/// Bytes of a node's local memory.
pub(crate) const LOCAL: usize = 512;
/// Limits on objects of a node.
pub(crate) const MOST_EXPORTS: usize = 4;
pub(crate) const MOST_IMPORTS: usize = 5;
pub(crate) const MOST_IMPORTERS: usize = 6;
/// Number of nodes.
const NODES: usize = 2;
pub(crate) const MOST_LOCALS: usize = 4;
pub(crate) const MOST_BARRIERS: usize = 4;
/// Limits on exported bytes of a node: in total, and per segment.
pub(crate) const EXPORTED_BYTES: usize = 7 * PAGE;
pub(crate) const SEGMENT_BYTES: usize = 3 * PAGE;

pub(crate) type Expected<T = ()> = Result<T, RsmError>;

/// Returns the number of a node.
pub(crate) fn number_of(side: Side) -> u32 {
    side.index() as u32 + 1
}

/// Objects of one kind, including dead ones.
#[derive(Clone, Debug)]
pub(crate) struct Objects<T>(Vec<(Handle, Option<T>)>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Objects<T> {
    pub(crate) fn add(&mut self, handle: Handle, object: T) {
        self.0.push((handle, Some(object)));
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, Handle, &T)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(index, (handle, object))| Some((index, *handle, object.as_ref()?)))
    }

    pub(crate) fn live_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().filter_map(|(_, object)| object.as_mut())
    }

    pub(crate) fn count(&self) -> usize {
        self.live().count()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some((_, object)) = self.0.get_mut(index) {
            *object = None;
        }
    }

    /// Returns the handle and index of a live object, counted from the oldest.
    fn nth_live(&self, nth: u8) -> Option<(Handle, usize)> {
        let count = self.count();
        let nth = usize::from(nth).checked_rem(count)?;
        self.live()
            .nth(nth)
            .map(|(index, handle, _)| (handle, index))
    }

    fn nth_dead(&self, nth: u8) -> Option<Handle> {
        let dead: Vec<_> = self.0.iter().filter(|(_, it)| it.is_none()).collect();
        let nth = usize::from(nth).checked_rem(dead.len())?;
        Some(dead[nth].0)
    }
}

/// Handle of a pick, and the index if it is a valid live object.
pub(crate) type Picked = (Handle, Option<usize>);

/// Picks an object of a node.
///
/// `foreign` are objects of the other node, `other` is a handle of another kind.
pub(crate) fn pick<T>(
    pick: Pick,
    own: &Objects<T>,
    foreign: &Objects<T>,
    other: Option<Handle>,
) -> Picked {
    match pick {
        Pick::Live(nth) => own
            .nth_live(nth)
            .map_or((Handle::NULL, None), |(handle, index)| {
                (handle, Some(index))
            }),
        Pick::Dead(nth) => (own.nth_dead(nth).unwrap_or(Handle::NULL), None),
        Pick::Foreign(nth) => (
            foreign
                .nth_live(nth)
                .map_or(Handle::NULL, |(handle, _)| handle),
            None,
        ),
        Pick::WrongKind(_) => (other.unwrap_or(Handle::NULL), None),
        Pick::Null => (Handle::NULL, None),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) id: SegmentId,
    pub(crate) access: Vec<AccessEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) rebind: bool,
    pub(crate) locks: bool,
    pub(crate) publication: Option<Publication>,
    pub(crate) signals: Signals,
    pub(crate) polls: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Import {
    pub(crate) exporter: Side,
    pub(crate) export: usize,
    pub(crate) length: usize,
    pub(crate) permission: Permission,
    pub(crate) explicit: bool,
    pub(crate) aborted: bool,
    /// Set if the segment was unpublished unknown to the importer; only if messages are lost.
    pub(crate) revoked: bool,
    /// Set once the importer reported it as aborted.
    pub(crate) reported: bool,
    pub(crate) barriers: u32,
    pub(crate) signals: Signals,
    pub(crate) polls: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) import: usize,
    pub(crate) open: bool,
    /// Start of the span: number of faults by then, and number of the call.
    pub(crate) since: usize,
    pub(crate) begun: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) read_only: bool,
}

/// Node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) exports: Objects<Export>,
    pub(crate) imports: Objects<Import>,
    pub(crate) barriers: Objects<Barrier>,
    pub(crate) locals: Objects<Local>,
    pub(crate) pages: Vec<u8>,
    pub(crate) local: Vec<u8>,
    /// User and group.
    pub(crate) owner: (u32, u32),
    pub(crate) default_access: u32,
    next_system_id: SegmentId,
}

impl Node {
    pub(crate) fn new(owner: (u32, u32), default_access: u32) -> Self {
        Self {
            exports: Objects::default(),
            imports: Objects::default(),
            barriers: Objects::default(),
            locals: Objects::default(),
            pages: vec![0; PAGES],
            local: vec![0; LOCAL],
            owner,
            default_access,
            next_system_id: FIRST_SYSTEM_ID,
        }
    }

    /// Returns the index of the segment published under an id.
    fn published(&self, id: SegmentId) -> Option<usize> {
        let found = self.exports.live().find(|(_, _, export)| {
            let publication = export.publication.as_ref();
            publication.is_some_and(|publication| publication.id == id)
        });
        found.map(|(index, ..)| index)
    }
}

/// Both nodes.
#[derive(Clone, Debug)]
pub(crate) struct World(pub(crate) [Node; 2]);

impl World {
    pub(crate) fn node(&self, side: Side) -> &Node {
        &self.0[side.index()]
    }

    pub(crate) fn node_mut(&mut self, side: Side) -> &mut Node {
        &mut self.0[side.index()]
    }

    /// Spec: RSMEX-01, RSMEX-02, RSMST-05
    pub(crate) fn export_create(&self, side: Side, start: usize, length: usize) -> Expected {
        let node = self.node(side);
        if length == 0 {
            return Err(RsmError::BadLength);
        }
        if !start.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) {
            return Err(RsmError::BadMemoryAlignment);
        }
        if length > SEGMENT_BYTES {
            return Err(RsmError::BadLength);
        }
        let exported: usize = node.exports.live().map(|(_, _, it)| it.length).sum();
        if exported + length > EXPORTED_BYTES {
            return Err(RsmError::InsufficientMemory);
        }
        if node.exports.count() >= MOST_EXPORTS {
            return Err(RsmError::InsufficientResources);
        }
        Ok(())
    }

    fn export(&self, side: Side, index: Option<usize>) -> Expected<&Export> {
        let found = index.and_then(|index| self.node(side).exports.get(index));
        found.ok_or(RsmError::BadSegmentHandle)
    }

    fn import(&self, side: Side, index: Option<usize>) -> Expected<&Import> {
        let found = index.and_then(|index| self.node(side).imports.get(index));
        found.ok_or(RsmError::BadSegmentHandle)
    }

    fn check_list(access: &[AccessEntry]) -> Expected {
        let fine =
            |entry: &AccessEntry| (1..=2).contains(&entry.node) && entry.permission & !0o666 == 0;
        if access.len() <= 2 && access.iter().all(fine) {
            Ok(())
        } else {
            Err(RsmError::BadAccessList)
        }
    }

    /// Publishes a segment; returns its id.
    ///
    /// Spec: RSMPB-01..06
    pub(crate) fn publish(
        &mut self,
        side: Side,
        index: Option<usize>,
        id: SegmentId,
        access: &[AccessEntry],
    ) -> Expected<SegmentId> {
        let export = self.export(side, index)?;
        let locks = export.locks;
        if export.publication.is_some() {
            return Err(RsmError::SegmentAlreadyPublished);
        }
        if id != 0 && !(FIRST_APPLICATION_ID..=LAST_APPLICATION_ID).contains(&id) {
            return Err(RsmError::ReservedSegmentId);
        }
        Self::check_list(access)?;
        if id != 0 && self.node(side).published(id).is_some() {
            return Err(RsmError::SegmentIdInUse);
        }
        if locks {
            return Err(RsmError::LocksNotSupported);
        }
        let node = self.node_mut(side);
        let id = match id {
            0 => {
                node.next_system_id += 1;
                node.next_system_id - 1
            }
            id => id,
        };
        if let Some(export) = index.and_then(|index| node.exports.get_mut(index)) {
            let access = access.to_vec();
            export.publication = Some(Publication { id, access });
        }
        Ok(id)
    }

    /// Spec: RSMPB-10
    pub(crate) fn republish(
        &mut self,
        side: Side,
        index: Option<usize>,
        access: &[AccessEntry],
    ) -> Expected {
        if self.export(side, index)?.publication.is_none() {
            return Err(RsmError::SegmentNotPublished);
        }
        Self::check_list(access)?;
        let export = index.and_then(|index| self.node_mut(side).exports.get_mut(index));
        if let Some(publication) = export.and_then(|export| export.publication.as_mut()) {
            publication.access = access.to_vec();
        }
        Ok(())
    }

    /// Spec: RSMPB-20, RSMPB-21
    pub(crate) fn unpublish(&mut self, side: Side, index: Option<usize>) -> Expected {
        if self.export(side, index)?.publication.is_none() {
            return Err(RsmError::SegmentNotPublished);
        }
        if let Some(index) = index {
            if let Some(export) = self.node_mut(side).exports.get_mut(index) {
                export.publication = None;
            }
            self.abort_importers(side, index);
        }
        Ok(())
    }

    /// Spec: RSMEX-10, RSMPB-21
    pub(crate) fn destroy(&mut self, side: Side, index: Option<usize>) -> Expected {
        if self.export(side, index)?.polls != 0 {
            return Err(RsmError::PollDescriptorInUse);
        }
        if let Some(index) = index {
            self.abort_importers(side, index);
            self.node_mut(side).exports.remove(index);
        }
        Ok(())
    }

    /// Spec: RSMST-03
    fn abort_importers(&mut self, exporter: Side, export: usize) {
        for node in &mut self.0 {
            for import in node.imports.live_mut() {
                if (import.exporter, import.export) == (exporter, export) {
                    import.aborted = true;
                }
            }
        }
    }

    /// Spec: RSMEX-20, RSMEX-22, RSMEX-23
    pub(crate) fn rebind(
        &mut self,
        side: Side,
        index: Option<usize>,
        start: usize,
        length: usize,
    ) -> Expected {
        let export = self.export(side, index)?;
        if !export.rebind {
            return Err(RsmError::RebindNotAllowed);
        }
        if length != export.length {
            return Err(RsmError::BadLength);
        }
        if !start.is_multiple_of(PAGE) {
            return Err(RsmError::BadAddress);
        }
        if let Some(export) = index.and_then(|index| self.node_mut(side).exports.get_mut(index)) {
            export.start = start;
        }
        Ok(())
    }

    /// Returns the new connection.
    ///
    /// `counts`: the exporter counts existing connections. It cannot if it does not know them all.
    ///
    /// Spec: RSMIM-01..06, RSMPB-03
    pub(crate) fn connect(
        &self,
        side: Side,
        (node, id): (u32, SegmentId),
        permission: u32,
        counts: bool,
    ) -> Expected<Import> {
        if ![0o400, 0o200, 0o600].contains(&permission) {
            return Err(RsmError::PermissionDenied);
        }
        let permission = Permission::from_bits_retain(permission);
        let exporter = match node {
            1 => Side::A,
            2 => Side::B,
            _ => return Err(RsmError::RemoteNodeUnreachable),
        };
        if self.node(side).imports.count() >= MOST_IMPORTS {
            return Err(RsmError::InsufficientResources);
        }
        let there = self.node(exporter);
        let found = there.published(id).ok_or(RsmError::SegmentNotPublished)?;
        let export = self.export(exporter, Some(found))?;
        let publication = export.publication.as_ref();
        let access = &publication.ok_or(RsmError::SegmentNotPublished)?.access;
        let digits = match access.as_slice() {
            [] => there.default_access,
            list => {
                let mine = list.iter().find(|entry| entry.node == number_of(side));
                mine.ok_or(RsmError::SegmentNotPublishedToNode)?.permission
            }
        };
        let (user, group) = self.node(side).owner;
        let digit = match there.owner {
            (owner, _) if owner == user => digits >> 6,
            (_, owner) if owner == group => digits >> 3,
            _ => digits,
        } & 7;
        let read = digit & 4 != 0 || !permission.contains(Permission::READ);
        let write = digit & 2 != 0 || !permission.contains(Permission::WRITE);
        if !(read && write) {
            return Err(RsmError::PermissionDenied);
        }
        let own = self.node(side).imports.live();
        let importers = own.filter(|(_, _, it)| it.exporter == exporter && !it.aborted);
        // No node may have more than its share.
        if counts && importers.count() >= MOST_IMPORTERS / NODES {
            return Err(RsmError::InsufficientResources);
        }
        Ok(Import {
            exporter,
            export: found,
            length: export.length,
            permission,
            explicit: false,
            aborted: false,
            revoked: false,
            reported: false,
            barriers: 0,
            signals: Signals::default(),
            polls: 0,
        })
    }

    /// Spec: RSMIM-10, RSMIM-11
    pub(crate) fn disconnect(&mut self, side: Side, index: Option<usize>) -> Expected {
        if self.import(side, index)?.polls != 0 {
            return Err(RsmError::PollDescriptorInUse);
        }
        if let Some(index) = index {
            self.node_mut(side).imports.remove(index);
        }
        Ok(())
    }

    /// Spec: RSMBR-01
    pub(crate) fn barrier_init(&mut self, side: Side, index: Option<usize>) -> Expected<usize> {
        self.import(side, index)?;
        let node = self.node_mut(side);
        if node.barriers.count() >= MOST_BARRIERS {
            return Err(RsmError::InsufficientResources);
        }
        let index = index.ok_or(RsmError::BadSegmentHandle)?;
        if let Some(import) = node.imports.get_mut(index) {
            import.barriers += 1;
        }
        Ok(index)
    }

    fn barrier(&self, side: Side, index: Option<usize>) -> Expected<(&Barrier, &Import)> {
        let node = self.node(side);
        let barrier = index.and_then(|index| node.barriers.get(index));
        let barrier = barrier.ok_or(RsmError::BarrierUninitialized)?;
        let import = node.imports.get(barrier.import);
        Ok((barrier, import.ok_or(RsmError::BadSegmentHandle)?))
    }

    /// Spec: RSMBR-04
    pub(crate) fn barrier_open(&mut self, side: Side, index: Option<usize>) -> Expected {
        self.barrier(side, index)?;
        self.set_open(side, index, true);
        Ok(())
    }

    fn set_open(&mut self, side: Side, index: Option<usize>, open: bool) {
        if let Some(barrier) = index.and_then(|index| self.node_mut(side).barriers.get_mut(index)) {
            barrier.open = open;
        }
    }

    /// Ends a span or orders within it; without faults only an abort makes it fail.
    ///
    /// Spec: RSMBR-05, RSMBR-07, RSMBR-11, RSMST-01
    pub(crate) fn barrier_end(
        &mut self,
        side: Side,
        index: Option<usize>,
        close: bool,
    ) -> Expected {
        let (barrier, import) = self.barrier(side, index)?;
        if !barrier.open {
            return Err(RsmError::BarrierNotOpened);
        }
        let outcome = if import.aborted {
            Err(RsmError::ConnectionAborted)
        } else {
            Ok(())
        };
        if close {
            self.set_open(side, index, false);
        }
        outcome
    }

    /// Spec: RSMBR-10
    pub(crate) fn barrier_destroy(&mut self, side: Side, index: Option<usize>) -> Expected {
        let node = self.node_mut(side);
        let index = index.ok_or(RsmError::BarrierUninitialized)?;
        let barrier = node.barriers.get(index);
        let import = barrier.ok_or(RsmError::BarrierUninitialized)?.import;
        if let Some(import) = node.imports.get_mut(import) {
            import.barriers -= 1;
        }
        node.barriers.remove(index);
        Ok(())
    }

    /// Posts a signal to the exporter of an import.
    ///
    /// Spec: RSMSG-01, RSMSG-02, RSMSG-04
    pub(crate) fn post_to_exporter(
        &mut self,
        side: Side,
        index: Option<usize>,
        no_accumulate: bool,
    ) -> Expected {
        let import = self.import(side, index)?;
        if import.aborted {
            return Err(RsmError::ConnectionAborted);
        }
        let (exporter, export) = (import.exporter, import.export);
        if let Some(export) = self.node_mut(exporter).exports.get_mut(export) {
            export.signals.count(no_accumulate);
        }
        Ok(())
    }

    /// Returns the signals of a segment, exported or imported.
    pub(crate) fn signals(
        &mut self,
        side: Side,
        index: usize,
        export: bool,
    ) -> Option<&mut Signals> {
        let node = self.node_mut(side);
        if export {
            Some(&mut node.exports.get_mut(index)?.signals)
        } else {
            Some(&mut node.imports.get_mut(index)?.signals)
        }
    }

    /// Posts a signal to all importers of a segment.
    ///
    /// Spec: RSMSG-01, RSMSG-03, RSMSG-06
    pub(crate) fn post_to_importers(
        &mut self,
        side: Side,
        index: Option<usize>,
        no_accumulate: bool,
    ) -> Expected {
        self.export(side, index)?;
        for node in &mut self.0 {
            for import in node.imports.live_mut() {
                let here = (import.exporter, Some(import.export)) == (side, index);
                if here && !import.aborted {
                    import.signals.count(no_accumulate);
                }
            }
        }
        Ok(())
    }

    /// Spec: RSMSG-02, RSMSG-08
    pub(crate) fn take(
        &mut self,
        side: Side,
        index: Option<usize>,
        export: bool,
    ) -> Expected<bool> {
        let node = self.node_mut(side);
        let (signals, dead) = if export {
            let export = index.and_then(|index| node.exports.get_mut(index));
            (
                &mut export.ok_or(RsmError::BadSegmentHandle)?.signals,
                false,
            )
        } else {
            let import = index.and_then(|index| node.imports.get_mut(index));
            let import = import.ok_or(RsmError::BadSegmentHandle)?;
            (&mut import.signals, import.aborted)
        };
        match signals.take() {
            false if dead => Err(RsmError::ConnectionAborted),
            taken => Ok(taken),
        }
    }

    /// Spec: RSMPF-01, RSMPF-02, RSMPF-03
    pub(crate) fn poll(
        &mut self,
        side: Side,
        index: Option<usize>,
        export: bool,
        acquire: bool,
    ) -> Expected {
        let bad = RsmError::BadSegmentHandle;
        let node = self.node_mut(side);
        let polls = if export {
            let export = index.and_then(|index| node.exports.get_mut(index));
            let export = export.ok_or(bad)?;
            if acquire && export.publication.is_none() {
                return Err(bad);
            }
            &mut export.polls
        } else {
            let import = index.and_then(|index| node.imports.get_mut(index));
            &mut import.ok_or(bad)?.polls
        };
        *polls = if acquire {
            *polls + 1
        } else {
            polls.saturating_sub(1)
        };
        Ok(())
    }
}
