//! State of the oracle: maps of objects, with lists as queues.
//!
//! There is no time except "idle" and "not yet".

mod connection;
mod endpoint;
mod event;
mod memory;
mod race;
mod shared_receive;
mod transfer;

use std::collections::BTreeMap;

use dat_core::flags::{EndpointState, HandleKind};

pub(crate) use connection::{PRIVATE_DATA, Psp, Rsp};
pub(crate) use endpoint::{Ep, MOST_BYTES, MOST_SEGMENTS, MOST_TRANSFERS, Shape};
pub(crate) use event::{Agent, Config, Evd, Operation, Seen};
pub(crate) use memory::{ARENA, Lmr, RemoteContext};
pub(crate) use shared_receive::MOST_BUFFERS;
pub(crate) use transfer::{Change, Receive, Request, Segment, Work};

use connection::{Attempt, Cr};
use event::Cno;
use memory::{Arena, Rmr};
use race::Access;
use shared_receive::Srq;

use crate::expect::Checks;
use crate::op::{Pick, Side};

/// Key of an object for the whole run, independent of its handle.
pub(crate) type Key = u32;

/// Limits per adapter, by kind of object.
pub(crate) const ZONES: usize = 8;
pub(crate) const DISPATCHERS: usize = 8;
pub(crate) const ENDPOINTS: usize = 6;
pub(crate) const SHARED_QUEUES: usize = 2;

/// Properties common to all objects.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: HandleKind,
    pub(crate) side: Side,
    pub(crate) alive: bool,
    /// Set if the consumer knows the handle.
    ///
    /// It learns that of a connection request from its event.
    pub(crate) named: bool,
    pub(crate) context: u64,
}

/// Complete state of the oracle.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    next: Key,
    pub(crate) objects: BTreeMap<Key, Object>,
    pub(crate) zones: BTreeMap<Key, ()>,
    pub(crate) lmrs: BTreeMap<Key, Lmr>,
    /// Freed regions.
    pub(crate) freed_lmrs: BTreeMap<Key, Lmr>,
    pub(crate) rmrs: BTreeMap<Key, Rmr>,
    pub(crate) contexts: Vec<RemoteContext>,
    pub(crate) evds: BTreeMap<Key, Evd>,
    pub(crate) cnos: BTreeMap<Key, Cno>,
    pub(crate) eps: BTreeMap<Key, Ep>,
    pub(crate) srqs: BTreeMap<Key, Srq>,
    pub(crate) psps: BTreeMap<Key, Psp>,
    pub(crate) rsps: BTreeMap<Key, Rsp>,
    pub(crate) crs: BTreeMap<Key, Cr>,
    pub(crate) attempts: Vec<Attempt>,
    /// Ended connections that the peer has not seen: the peer's endpoint, and its attempt.
    pub(crate) endings: Vec<(Key, usize)>,
    pub(crate) arenas: [Arena; 2],
    pub(crate) async_evds: [Key; 2],
    /// Accesses of transfers since the fabric was last idle.
    pub(crate) accesses: Vec<Access>,
    /// Endpoints with a failed request since the fabric was last idle.
    pub(crate) failures: Vec<Key>,
    pub(crate) stamps: u64,
}

impl World {
    pub(crate) fn add(&mut self, side: Side, kind: HandleKind, named: bool) -> Key {
        self.next += 1;
        let object = Object {
            kind,
            side,
            alive: true,
            named,
            context: 0,
        };
        self.objects.insert(self.next, object);
        self.next
    }

    pub(crate) fn mark_dead(&mut self, key: Key) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.alive = false;
        }
    }

    pub(crate) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// Returns the object of a pick, if there is one; `None` is the null handle.
    pub(crate) fn pick(&self, side: Side, kind: HandleKind, pick: Pick) -> Option<Key> {
        let choose = |number: u8, wanted: &dyn Fn(&Object) -> bool| {
            let known: Vec<Key> = self
                .objects
                .iter()
                .filter(|(_, object)| object.named && wanted(object))
                .map(|(&key, _)| key)
                .collect();
            let index = usize::from(number).checked_rem(known.len())?;
            known.get(index).copied()
        };
        match pick {
            Pick::Live(n) => choose(n, &|o| o.kind == kind && o.side == side && o.alive),
            Pick::Dead(n) => choose(n, &|o| o.kind == kind && o.side == side && !o.alive),
            Pick::Foreign(n) => choose(n, &|o| o.kind == kind && o.side != side),
            Pick::WrongKind(n) => choose(n, &|o| o.kind != kind && o.side == side),
            Pick::Null => None,
        }
    }

    /// Returns true for a live object of this kind and adapter (GEN-03, GEN-11).
    pub(crate) fn is(&self, side: Side, kind: HandleKind, key: Option<Key>) -> bool {
        key.and_then(|key| self.objects.get(&key))
            .is_some_and(|object| object.alive && object.kind == kind && object.side == side)
    }

    /// Checks that a handle argument is valid.
    pub(crate) fn check_handle(&self, side: Side, kind: HandleKind, key: Option<Key>) -> Checks {
        let mut checks = Checks::default();
        self.check_optional(&mut checks, side, kind, Some(key));
        checks
    }

    /// Checks that an optional handle argument is absent or valid.
    ///
    /// A dispatcher without a role has no subtype: GEN-03 has subtypes for roles only.
    pub(crate) fn check_optional(
        &self,
        checks: &mut Checks,
        side: Side,
        kind: HandleKind,
        key: Option<Option<Key>>,
    ) {
        let bad = key.is_some_and(|key| !self.is(side, kind, key));
        let subtype = (kind != HandleKind::Evd).then(|| kind.subtype());
        checks.handle(bad, subtype);
    }

    pub(crate) fn count(&self, side: Side, kind: HandleKind) -> usize {
        self.objects
            .values()
            .filter(|object| object.alive && object.side == side && object.kind == kind)
            .count()
    }

    /// Returns true if no work is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.endings.is_empty()
            && self.attempts.iter().all(Attempt::is_idle)
            && self.eps.values().all(Ep::is_idle)
    }

    /// Returns true if only requests of one endpoint are pending.
    pub(crate) fn is_idle_except(&self, key: Option<Key>) -> bool {
        self.endings.is_empty()
            && self.attempts.iter().all(Attempt::is_idle)
            && self
                .eps
                .iter()
                .all(|(other, ep)| Some(*other) == key || ep.is_idle())
    }

    /// Does all pending work, in one of the possible orders.
    pub(crate) fn advance(&mut self) {
        while !self.is_idle() {
            self.advance_attempts();
            self.carry_out_requests();
            self.finish_disconnects();
            self.deliver_endings();
        }
    }

    /// Does all pending work; all its events have then arrived.
    pub(crate) fn run_to_idle(&mut self) {
        self.advance();
        for evd in self.evds.values_mut() {
            evd.mark_arrived();
        }
        self.forget_racing_bytes();
        self.failures.clear();
    }

    /// Returns true if the outcome of a request depends on concurrent work of other endpoints.
    pub(crate) fn would_race(&self, key: Key, request: &Request) -> bool {
        let others = self
            .eps
            .iter()
            .any(|(&other, ep)| other != key && !ep.is_idle());
        let ending = self.eps.get(&key).is_some_and(|ep| ep.may_still_be_ending);
        if ending || !self.endings.is_empty() || !self.attempts.iter().all(Attempt::is_idle) {
            return true;
        }
        // A read completes later than a send. If a later request breaks the connection, a pending
        // read succeeds or is flushed, depending on time (section 1.4: "may be successful").
        let reads = self.eps.get(&key).is_some_and(|ep| {
            ep.requests
                .iter()
                .any(|earlier| matches!(earlier.work, Work::Read { .. } | Work::Atomic { .. }))
        });
        if !others && !reads {
            return false;
        }
        let mut probe = self.clone();
        if let Some(ep) = probe.eps.get_mut(&key) {
            ep.requests.push_back(request.clone());
        }
        let ending = self
            .eps
            .values()
            .any(|ep| ep.state == EndpointState::DisconnectPending);
        probe.advance();
        ending || probe.has_race() || !probe.failures.is_empty()
    }
}
