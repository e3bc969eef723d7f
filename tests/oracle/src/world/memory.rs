//! Memory and its owners: zones, regions, windows, and the value of each byte.

use std::collections::BTreeSet;

use dat_core::error::{ErrorKind, Subtype};
use dat_core::flags::{HandleKind, MemoryPrivileges};

use super::{Key, Segment, World, ZONES};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// Bytes of memory on each side.
pub(crate) const ARENA: usize = 2048;

/// Known values of a byte; `None` where the catalogue leaves the content undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// Value that the consumer reads.
    consumer: Option<u8>,
    /// Value that incoming RDMA reads; differs on non-coherent hosts only.
    device: Option<u8>,
    /// Set if the consumer stored to it since both agreed (LSW-13, LSR-02).
    stored: bool,
    /// Set if a peer wrote to it since both agreed (LSW-05).
    written: bool,
}

/// Memory of one side.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    pub(crate) coherent: bool,
    cells: Vec<Cell>,
}

impl Default for Arena {
    fn default() -> Self {
        let cell = Cell {
            consumer: Some(0),
            device: Some(0),
            stored: false,
            written: false,
        };
        Self {
            base: 0,
            coherent: true,
            cells: vec![cell; ARENA],
        }
    }
}

impl Arena {
    fn cell(&mut self, at: u64) -> Option<&mut Cell> {
        let index = usize::try_from(at.checked_sub(self.base)?).ok()?;
        self.cells.get_mut(index)
    }

    /// Returns the value that the consumer must read at an offset, if it is defined.
    pub(crate) fn expected(&self, offset: usize) -> Option<u8> {
        self.cells.get(offset).and_then(|cell| cell.consumer)
    }

    /// Stores a byte for the consumer.
    fn store(&mut self, at: u64, value: u8, registered: bool) {
        let coherent = self.coherent;
        if let Some(cell) = self.cell(at) {
            cell.consumer = Some(value);
            if coherent || !registered {
                cell.device = Some(value);
            } else {
                cell.stored = true;
                // LSW-14, LSW-16: a store between an incoming write and its synchronisation.
                if cell.written {
                    (cell.consumer, cell.device) = (None, None);
                }
            }
        }
    }

    /// Reads a byte for the local side of an operation.
    pub(super) fn local_read(&mut self, at: u64) -> Option<u8> {
        // The provider keeps posted buffers coherent, except in the cases that LSW-15 leaves
        // undefined.
        let cell = self.cell(at)?;
        if cell.written { None } else { cell.consumer }
    }

    /// Writes a byte for the local side of an operation.
    pub(super) fn local_write(&mut self, at: u64, value: Option<u8>) {
        if let Some(cell) = self.cell(at) {
            let contested = cell.written || cell.stored;
            cell.consumer = value.filter(|_| !cell.written);
            cell.device = value.filter(|_| !contested);
        }
    }

    /// Reads a byte for an incoming RDMA Read.
    pub(super) fn remote_read(&mut self, at: u64) -> Option<u8> {
        let cell = self.cell(at)?;
        if cell.stored { None } else { cell.device }
    }

    /// Writes a byte for an incoming RDMA Write.
    pub(super) fn remote_write(&mut self, at: u64, value: Option<u8>) {
        let coherent = self.coherent;
        if let Some(cell) = self.cell(at) {
            cell.device = value;
            if coherent {
                cell.consumer = value;
            } else {
                cell.written = true;
                // LSW-15: a read before the synchronisation is undefined.
                cell.consumer = None;
                if cell.stored {
                    cell.device = None;
                }
            }
        }
    }

    fn sync(&mut self, at: u64, after_write: bool) {
        if self.coherent {
            return;
        }
        if let Some(cell) = self.cell(at) {
            match (cell.stored, cell.written) {
                (true, true) => (cell.consumer, cell.device) = (None, None),
                (true, false) => cell.device = cell.consumer,
                (false, true) if after_write => cell.consumer = cell.device,
                _ => {}
            }
            cell.stored = false;
            if after_write || cell.consumer.is_none() && cell.device.is_none() {
                cell.written = false;
            }
        }
    }

    fn release(&mut self, at: u64) {
        if let Some(cell) = self.cell(at) {
            if cell.written {
                cell.consumer = None;
            }
            cell.device = cell.consumer;
            (cell.stored, cell.written) = (false, false);
        }
    }

    pub(super) fn forget(&mut self, at: u64) {
        if let Some(cell) = self.cell(at) {
            (cell.consumer, cell.device) = (None, None);
        }
    }
}

/// Local memory region.
#[derive(Clone, Debug)]
pub(crate) struct Lmr {
    pub(crate) side: Side,
    pub(crate) pz: Key,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: MemoryPrivileges,
    pub(crate) context: u32,
    pub(crate) remote: u32,
    /// Cookie under which others may register the same memory.
    pub(crate) cookie: Option<u8>,
}

/// Remote memory region.
#[derive(Clone, Debug)]
pub(crate) struct Rmr {
    pub(crate) pz: Key,
    /// Accepted binds that have not completed, in order: post, and the resulting context.
    pub(crate) pending: Vec<(u64, Option<usize>)>,
    /// Currently valid context, an index into `contexts`.
    pub(crate) bound: Option<usize>,
}

impl Rmr {
    /// Returns the context after all accepted binds (RMB-42).
    fn latest(&self) -> Option<usize> {
        self.pending
            .last()
            .map_or(self.bound, |&(_, context)| context)
    }
}

/// Remote context of a region or of a bind.
#[derive(Clone, Debug)]
pub(crate) struct RemoteContext {
    pub(crate) side: Side,
    pub(crate) number: u32,
    pub(crate) alive: bool,
    pub(crate) pz: Key,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: MemoryPrivileges,
    /// Region that backs it.
    pub(crate) lmr: Key,
}

const READ: MemoryPrivileges = MemoryPrivileges::LOCAL_READ;
const WRITE: MemoryPrivileges = MemoryPrivileges::LOCAL_WRITE;
const REMOTE: MemoryPrivileges =
    MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);

impl World {
    pub(crate) fn arena(&mut self, side: Side) -> &mut Arena {
        &mut self.arenas[side.index()]
    }

    /// Checks `pz_create` (PZC-01).
    pub(crate) fn check_pz_create(&self, side: Side) -> Verdict {
        let mut checks = Checks::default();
        checks.resource(self.count(side, HandleKind::Pz) >= ZONES);
        checks.verdict()
    }

    pub(crate) fn pz_create(&mut self, side: Side) -> Key {
        let key = self.add(side, HandleKind::Pz, true);
        self.zones.insert(key, ());
        key
    }

    /// Checks `pz_free` (PZF-01, PZF-02).
    pub(crate) fn check_pz_free(&self, side: Side, pz: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Pz, pz);
        let used = self.lmrs.values().any(|lmr| Some(lmr.pz) == pz)
            || self.rmrs.values().any(|rmr| Some(rmr.pz) == pz)
            || self.eps.values().any(|ep| ep.pz.is_some() && ep.pz == pz)
            || self.srqs.values().any(|srq| Some(srq.pz) == pz);
        checks.state(used, Subtype::InvalidStatePzInUse);
        checks.verdict()
    }

    pub(crate) fn pz_free(&mut self, pz: Key) {
        self.zones.remove(&pz);
        self.mark_dead(pz);
    }

    /// Checks `lmr_create` (LMC-02, LMC-07, LMC-10).
    ///
    /// `source` is the region that it is made from, if any. `length` is the memory's otherwise.
    pub(crate) fn check_lmr_create(
        &self,
        side: Side,
        pz: Option<Key>,
        source: Option<Option<Key>>,
        length: u64,
        privileges: MemoryPrivileges,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Pz, pz);
        self.check_optional(&mut checks, side, HandleKind::Lmr, source);
        checks.parameter(MemoryPrivileges::from_bits(privileges.bits()).is_none(), 6);
        checks.parameter(source.is_none() && length == 0, 4);
        checks.resource(self.count(side, HandleKind::Lmr) + self.cookies(side).len() >= ZONES);
        checks.verdict()
    }

    /// Returns the cookies under which memory is shared; each takes a resource of its own.
    fn cookies(&self, side: Side) -> BTreeSet<u8> {
        let own = self.lmrs.values().filter(|lmr| lmr.side == side);
        own.filter_map(|lmr| lmr.cookie).collect()
    }

    /// Checks `lmr_create` of shared memory (LMC-04).
    ///
    /// All regions of a cookie agree on the length and on the memory.
    pub(crate) fn check_lmr_share(
        &self,
        side: Side,
        pz: Option<Key>,
        (address, length): (u64, u64),
        cookie: u8,
        privileges: MemoryPrivileges,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Pz, pz);
        checks.parameter(MemoryPrivileges::from_bits(privileges.bits()).is_none(), 6);
        checks.parameter(length == 0, 4);
        let sharers = self.lmrs.values().filter(|lmr| lmr.side == side);
        let contradicted = sharers.filter(|lmr| lmr.cookie.is_some()).any(|lmr| {
            if lmr.cookie == Some(cookie) {
                lmr.length != length
            } else {
                address < lmr.address + lmr.length && lmr.address < address + length
            }
        });
        checks.state(contradicted, None);
        let cookies = self.cookies(side);
        let taken = self.count(side, HandleKind::Lmr) + cookies.len();
        let needed = 1 + usize::from(!cookies.contains(&cookie));
        checks.resource(taken + needed > ZONES);
        checks.verdict()
    }

    pub(crate) fn lmr_create(&mut self, lmr: Lmr) -> Key {
        let key = self.add(lmr.side, HandleKind::Lmr, true);
        if lmr.privileges.intersects(REMOTE) {
            self.contexts.push(RemoteContext {
                side: lmr.side,
                number: lmr.remote,
                alive: true,
                pz: lmr.pz,
                address: lmr.address,
                length: lmr.length,
                privileges: lmr.privileges,
                lmr: key,
            });
        }
        self.lmrs.insert(key, lmr);
        key
    }

    /// Checks `lmr_free` (LMF-01).
    pub(crate) fn check_lmr_free(&self, side: Side, lmr: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Lmr, lmr);
        let bound = self
            .rmrs
            .values()
            .filter_map(Rmr::latest)
            .any(|context| self.contexts.get(context).map(|context| context.lmr) == lmr);
        checks.state(bound, Subtype::InvalidStateLmrInUse);
        checks.verdict()
    }

    pub(crate) fn lmr_free(&mut self, key: Key) {
        let Some(lmr) = self.lmrs.remove(&key) else {
            return;
        };
        self.mark_dead(key);
        for context in &mut self.contexts {
            if context.lmr == key {
                context.alive = false;
            }
        }
        for at in lmr.address..lmr.address + lmr.length {
            if !self.is_registered(lmr.side, at) {
                self.arena(lmr.side).release(at);
            }
        }
        self.freed_lmrs.insert(key, lmr);
    }

    /// Returns a region, live or freed.
    pub(crate) fn region_ever(&self, key: Key) -> Option<&Lmr> {
        self.lmrs.get(&key).or_else(|| self.freed_lmrs.get(&key))
    }

    /// Returns true if a region has or had this context.
    pub(crate) fn was_context(&self, side: Side, context: u32) -> bool {
        let all = self.lmrs.values().chain(self.freed_lmrs.values());
        all.into_iter()
            .any(|lmr| lmr.side == side && lmr.context == context)
    }

    /// Returns true if this remote context was ever created.
    pub(crate) fn was_remote_context(&self, side: Side, number: u32) -> bool {
        self.contexts
            .iter()
            .any(|context| context.side == side && context.number == number)
    }

    /// Returns true if a posted receive uses this region: then LMF-03 leaves the outcome open.
    pub(crate) fn is_posted(&self, key: Key) -> bool {
        let Some(lmr) = self.lmrs.get(&key) else {
            return false;
        };
        let of_eps = self.eps.values().filter(|ep| ep.side == lmr.side);
        let of_srqs = self.srqs.values().filter(|srq| srq.side == lmr.side);
        of_eps
            .flat_map(|ep| &ep.receives)
            .chain(of_srqs.flat_map(|srq| &srq.buffers))
            .flat_map(|receive| &receive.segments)
            .any(|segment| segment.length != 0 && segment.context == lmr.context)
    }

    pub(crate) fn is_registered(&self, side: Side, at: u64) -> bool {
        self.lmrs
            .values()
            .any(|lmr| lmr.side == side && lmr.address <= at && at - lmr.address < lmr.length)
    }

    /// Checks synchronisation (LSW-18 to LSW-20, LSW-28 to LSW-30, LSR-05).
    pub(crate) fn check_sync(&self, side: Side, segments: &[Segment]) -> Verdict {
        let mut checks = Checks::default();
        for segment in segments.iter().filter(|segment| segment.length != 0) {
            let lmr = self.lmr_of(side, segment.context);
            checks.parameter(!lmr.is_some_and(|lmr| segment.is_within(lmr)), 2);
        }
        checks.verdict()
    }

    pub(crate) fn sync(&mut self, side: Side, segments: &[Segment], after_write: bool) {
        for segment in segments {
            for at in segment.bytes() {
                self.arena(side).sync(at, after_write);
            }
        }
    }

    pub(crate) fn store(&mut self, side: Side, offset: usize, value: u8) {
        let at = self.arena(side).base + offset as u64;
        let registered = self.is_registered(side, at);
        self.arena(side).store(at, value, registered);
    }

    /// Returns the live region with this context.
    pub(crate) fn lmr_of(&self, side: Side, context: u32) -> Option<&Lmr> {
        self.lmrs
            .values()
            .find(|lmr| lmr.side == side && lmr.context == context && context != 0)
    }

    /// Returns the key of the live region with this context.
    pub(crate) fn lmr_key(&self, side: Side, context: u32) -> Option<Key> {
        let found = |lmr: &Lmr| lmr.side == side && lmr.context == context;
        self.lmrs
            .iter()
            .find(|(_, lmr)| found(lmr))
            .map(|(&key, _)| key)
    }

    /// Records an accepted bind; returns the index of its context.
    pub(crate) fn accept_bind(
        &mut self,
        post: u64,
        rmr: Key,
        context: Option<RemoteContext>,
    ) -> Option<usize> {
        let index = self.contexts.len();
        let index = context.map(|context| {
            self.contexts.push(context);
            index
        });
        if let Some(rmr) = self.rmrs.get_mut(&rmr) {
            rmr.pending.push((post, index));
        }
        index
    }

    /// Checks `rmr_create` (RMC-01).
    pub(crate) fn check_rmr_create(&self, side: Side, pz: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Pz, pz);
        checks.resource(self.count(side, HandleKind::Rmr) >= ZONES);
        checks.verdict()
    }

    pub(crate) fn rmr_create(&mut self, side: Side, pz: Key) -> Key {
        let key = self.add(side, HandleKind::Rmr, true);
        let rmr = Rmr {
            pz,
            pending: Vec::new(),
            bound: None,
        };
        self.rmrs.insert(key, rmr);
        key
    }

    /// Frees a remote memory region (RMF-01, RMF-02).
    pub(crate) fn rmr_free(&mut self, key: Key) {
        if let Some(rmr) = self.rmrs.remove(&key)
            && let Some(context) = rmr.bound.and_then(|index| self.contexts.get_mut(index))
        {
            context.alive = false;
        }
        self.mark_dead(key);
    }

    /// Checks the segments of a post in the order of DTO-07; the first fault counts.
    ///
    /// The order is region, zone, privilege, bounds.
    pub(crate) fn check_segments(
        &self,
        side: Side,
        pz: Key,
        segments: &[Segment],
        for_reading: bool,
        position: u8,
    ) -> Option<Verdict> {
        let (privilege, lacking, protected) = if for_reading {
            (READ, Subtype::PrivilegesRead, Subtype::ProtectionRead)
        } else {
            (WRITE, Subtype::PrivilegesWrite, Subtype::ProtectionWrite)
        };
        for segment in segments.iter().filter(|segment| segment.length != 0) {
            let Some(lmr) = self.lmr_of(side, segment.context) else {
                return Some(Verdict::refused(ErrorKind::PrivilegesViolation, lacking));
            };
            if lmr.pz != pz {
                return Some(Verdict::refused(ErrorKind::ProtectionViolation, protected));
            }
            if !lmr.privileges.contains(privilege) {
                return Some(Verdict::refused(ErrorKind::PrivilegesViolation, lacking));
            }
            if !segment.is_within(lmr) {
                let argument = Subtype::argument(position);
                return Some(Verdict::refused(ErrorKind::InvalidParameter, argument));
            }
        }
        None
    }

    /// Checks the range of a bind in the order of DTO-07 (RMB-25, RMB-26, RMB-35, RMB-41).
    pub(crate) fn check_bind_range(
        &self,
        side: Side,
        pz: Key,
        segment: &Segment,
        privileges: MemoryPrivileges,
    ) -> Option<Verdict> {
        if segment.length == 0 {
            return None;
        }
        let Some(lmr) = self.lmr_of(side, segment.context) else {
            return Some(Verdict::refused(ErrorKind::PrivilegesViolation, None));
        };
        if lmr.pz != pz {
            return Some(Verdict::refused(ErrorKind::ProtectionViolation, None));
        }
        let lacks = |remote, local| privileges.contains(remote) && !lmr.privileges.contains(local);
        if lacks(MemoryPrivileges::REMOTE_READ, READ)
            || lacks(MemoryPrivileges::REMOTE_WRITE, WRITE)
        {
            return Some(Verdict::refused(ErrorKind::PrivilegesViolation, None));
        }
        if !segment.is_within(lmr) {
            return Some(Verdict::refused(
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
            ));
        }
        None
    }
}
