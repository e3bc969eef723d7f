//! Memory calls.

use std::sync::atomic::Ordering;

use dat_core::flags::{
    HandleKind, LMR_COOKIE_SIZE, LmrFields, MemoryPrivileges, PzFields, RmrFields,
};
use dat_core::memory::{LmrMemory, LmrRequest, LmrSource, LmrTriplet, Region};

use super::{Outcome, Runner};
use crate::expect::Verdict;
use crate::op::{MemoryOp, Side};
use crate::world::{ARENA, Key, Lmr, Segment};

/// Chooses privileges: mostly all, sometimes fewer, rarely undefined ones.
pub(super) fn privileges(choice: u8) -> MemoryPrivileges {
    MemoryPrivileges::from_bits_retain(match choice {
        0..=159 => 0x33,
        160..=175 => 0x11,
        176..=191 => 0x23,
        192..=207 => 0x32,
        208..=223 => 0x31,
        224..=231 => 0x13,
        232..=239 => 0x22,
        240..=247 => 0,
        _ => 0x73,
    })
}

pub(super) fn triplets(segments: &[Segment]) -> Vec<LmrTriplet> {
    segments.iter().map(triplet).collect()
}

pub(super) fn triplet(segment: &Segment) -> LmrTriplet {
    LmrTriplet {
        context: segment.context,
        address: segment.address,
        length: segment.length,
    }
}

impl Runner {
    pub(super) fn memory(&mut self, side: Side, op: &MemoryOp) -> Outcome {
        match *op {
            MemoryOp::PzCreate => {
                let verdict = self.world.check_pz_create(side);
                let outcome = self.with(side, |ia| ia.pz_create());
                if let Some(id) = self.judge(&verdict, outcome)? {
                    let key = self.world.pz_create(side);
                    self.record_handle(key, id.handle());
                }
            }
            MemoryOp::PzQuery { pz, unknown_mask } => {
                let key = self.pick(side, HandleKind::Pz, pz);
                let id = self.pz_id(key);
                let verdict = self.check_query(side, HandleKind::Pz, key, unknown_mask);
                let mask =
                    PzFields::from_bits_retain(super::mask(PzFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.pz_query(id, mask));
                self.judge(&verdict, outcome)?;
            }
            MemoryOp::PzFree { pz } => {
                let key = self.pick(side, HandleKind::Pz, pz);
                let id = self.pz_id(key);
                let verdict = self.world.check_pz_free(side, key);
                let outcome = self.with(side, |ia| ia.pz_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.pz_free(key);
                }
            }
            MemoryOp::LmrCreate {
                pz,
                start,
                length,
                privileges: choice,
            } => {
                let pz = self.pick(side, HandleKind::Pz, pz);
                let (start, length) = (usize::from(start) * 4, usize::from(length) * 4);
                let verdict =
                    self.world
                        .check_lmr_create(side, pz, None, length as u64, privileges(choice));
                let region = Region::from_static(&self.memory[side.index()][start..start + length]);
                self.expect(
                    region.is_empty() == (length == 0) && region.len() == length,
                    "the length of the memory",
                    region.len(),
                )?;
                let range = (region.address(), length as u64);
                self.lmr_create(
                    side,
                    pz,
                    &verdict,
                    LmrMemory::Virtual(region),
                    range,
                    choice,
                )?;
            }
            MemoryOp::LmrCreateFrom {
                pz,
                source,
                privileges: choice,
            } => {
                let pz = self.pick(side, HandleKind::Pz, pz);
                let source = self.pick(side, HandleKind::Lmr, source);
                let range = source
                    .and_then(|key| self.world.lmrs.get(&key))
                    .map_or((0, 0), |lmr| (lmr.address, lmr.length));
                let verdict =
                    self.world
                        .check_lmr_create(side, pz, Some(source), 0, privileges(choice));
                let memory = LmrMemory::Lmr(self.lmr_id(source));
                self.lmr_create(side, pz, &verdict, memory, range, choice)?;
            }
            MemoryOp::LmrCreateShared {
                pz,
                start,
                length,
                cookie,
                privileges: choice,
            } => {
                let pz = self.pick(side, HandleKind::Pz, pz);
                let (start, length) = (usize::from(start) * 4, usize::from(length) * 4);
                let region = Region::from_static(&self.memory[side.index()][start..start + length]);
                let range = (region.address(), length as u64);
                let verdict =
                    self.world
                        .check_lmr_share(side, pz, range, cookie, privileges(choice));
                let memory = LmrMemory::SharedVirtual(region, [cookie; LMR_COOKIE_SIZE]);
                self.lmr_create(side, pz, &verdict, memory, range, choice)?;
            }
            MemoryOp::LmrQuery { lmr, unknown_mask } => self.lmr_query(side, lmr, unknown_mask)?,
            MemoryOp::LmrFree { lmr } => {
                let key = self.pick(side, HandleKind::Lmr, lmr);
                // LMF-03 leaves the effect on buffers in freed regions open. Section 5 of the state
                // machines leaves open when a flushed bind releases its region: before its
                // completion is dequeued, or then.
                if self.is_exact()
                    && (key.is_some_and(|key| self.world.is_posted(key))
                        || self.world.has_failed_bind())
                {
                    return Ok(());
                }
                let id = self.lmr_id(key);
                let verdict = self.world.check_lmr_free(side, key);
                let outcome = self.with(side, |ia| ia.lmr_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.lmr_free(key);
                }
            }
            MemoryOp::SyncRead { ref segments } | MemoryOp::SyncWrite { ref segments } => {
                let after_write = matches!(op, MemoryOp::SyncWrite { .. });
                let segments = self.segments(side, segments);
                let verdict = self.world.check_sync(side, &segments);
                let list = triplets(&segments);
                let outcome = self.with(side, |ia| {
                    if after_write {
                        ia.lmr_sync_rdma_write(&list)
                    } else {
                        ia.lmr_sync_rdma_read(&list)
                    }
                });
                if self.judge(&verdict, outcome)?.is_some() {
                    self.world.sync(side, &segments, after_write);
                }
            }
            MemoryOp::RmrCreate { pz } => {
                let pz = self.pick(side, HandleKind::Pz, pz);
                let id = self.pz_id(pz);
                let verdict = self.world.check_rmr_create(side, pz);
                let outcome = self.with(side, |ia| ia.rmr_create(id));
                if let (Some(id), Some(pz)) = (self.judge(&verdict, outcome)?, pz) {
                    let key = self.world.rmr_create(side, pz);
                    self.record_handle(key, id.handle());
                }
            }
            MemoryOp::RmrQuery { rmr, unknown_mask } => {
                let key = self.pick(side, HandleKind::Rmr, rmr);
                let id = self.rmr_id(key);
                let verdict = self.check_query(side, HandleKind::Rmr, key, unknown_mask);
                let mask =
                    RmrFields::from_bits_retain(super::mask(RmrFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.rmr_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)? {
                    let pz = key
                        .and_then(|key| self.world.rmrs.get(&key))
                        .map(|rmr| rmr.pz);
                    self.expect(
                        self.key(param.pz) == pz,
                        "the zone of the region (RMQ-01)",
                        param,
                    )?;
                }
            }
            MemoryOp::RmrFree { rmr } => {
                let key = self.pick(side, HandleKind::Rmr, rmr);
                let id = self.rmr_id(key);
                let checks = self.world.check_handle(side, HandleKind::Rmr, key);
                let outcome = self.with(side, |ia| ia.rmr_free(id));
                if let (Some(()), Some(key)) = (self.judge(&checks.verdict(), outcome)?, key) {
                    self.world.rmr_free(key);
                }
            }
            MemoryOp::Store { at, value, count } => {
                let start = usize::from(at) % ARENA;
                for offset in start..(start + usize::from(count)).min(ARENA) {
                    self.memory[side.index()][offset].store(value, Ordering::Relaxed);
                    self.world.store(side, offset, value);
                    if let Some(ledger) = &mut self.ledger {
                        ledger.store(side, offset, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks a query (GEN-03, GEN-08): first the handle, then the mask.
    pub(super) fn check_query(
        &self,
        side: Side,
        kind: HandleKind,
        key: Option<Key>,
        unknown_mask: bool,
    ) -> Verdict {
        let mut checks = self.world.check_handle(side, kind, key);
        checks.parameter(unknown_mask, 2);
        checks.verdict()
    }

    fn lmr_create(
        &mut self,
        side: Side,
        pz: Option<Key>,
        verdict: &Verdict,
        memory: LmrMemory,
        (address, length): (u64, u64),
        choice: u8,
    ) -> Outcome {
        let privileges = privileges(choice);
        let cookie = match memory {
            LmrMemory::SharedVirtual(_, [cookie, ..]) => Some(cookie),
            _ => None,
        };
        let kind = memory.memory_type();
        let request = LmrRequest {
            memory,
            pz: self.pz_id(pz),
            privileges,
        };
        let outcome = self.with(side, |ia| ia.lmr_create(&request));
        let (Some(created), Some(pz)) = (self.judge(verdict, outcome)?, pz) else {
            return Ok(());
        };
        let source = self.with(side, |ia| ia.lmr_query(created.lmr, LmrFields::all()));
        let kind_found = source.map(|param| param.source.memory_type());
        self.expect(
            kind_found == Ok(kind),
            "the type of its memory (LMQ-01)",
            kind_found,
        )?;
        // LMC-05, LMC-06.
        let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        self.expect(
            (created.rmr_context != 0) == privileges.intersects(remote),
            "a remote context exactly if a remote right was requested (LMC-05)",
            created,
        )?;
        let end = created.registered_address + created.registered_size;
        self.expect(
            created.registered_address <= address && end >= address + length,
            "a registered range around the requested one (LMC-06)",
            created,
        )?;
        self.expect(
            !self.world.was_context(side, created.lmr_context),
            "a context no region had before (LMF-02)",
            created,
        )?;
        let key = self.world.lmr_create(Lmr {
            side,
            pz,
            address,
            length,
            privileges,
            context: created.lmr_context,
            remote: created.rmr_context,
            cookie,
        });
        self.record_handle(key, created.lmr.handle());
        Ok(())
    }

    fn lmr_query(&mut self, side: Side, lmr: crate::op::Pick, unknown_mask: bool) -> Outcome {
        let key = self.pick(side, HandleKind::Lmr, lmr);
        let id = self.lmr_id(key);
        let verdict = self.check_query(side, HandleKind::Lmr, key, unknown_mask);
        let mask = LmrFields::from_bits_retain(super::mask(LmrFields::all().bits(), unknown_mask));
        let outcome = self.with(side, |ia| ia.lmr_query(id, mask));
        if let Some(param) = self.judge(&verdict, outcome)?
            && let Some(lmr) = key.and_then(|key| self.world.lmrs.get(&key))
        {
            let cookie = match param.source {
                LmrSource::SharedVirtual { cookie, .. } => Some(cookie),
                _ => None,
            };
            let holds = param.length == lmr.length
                && cookie == lmr.cookie.map(|cookie| [cookie; LMR_COOKIE_SIZE])
                && self.key(param.pz) == Some(lmr.pz)
                && param.privileges == lmr.privileges
                && param.lmr_context == lmr.context
                && param.rmr_context == lmr.remote;
            self.expect(holds, format_args!("{lmr:?} (LMQ-01)"), param)?;
        }
        Ok(())
    }
}
