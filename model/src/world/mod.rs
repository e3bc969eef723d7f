//! The model: objects in maps, no queues but lists, no time but "at rest" and "not yet".

mod connection;
mod contest;
mod endpoint;
mod event;
mod memory;
mod shared_receive;
mod transfer;

use std::collections::BTreeMap;

use dat_core::error::Subtype;
use dat_core::flags::{EndpointState, HandleKind};

pub(crate) use connection::{PRIVATE_DATA, Psp, Rsp};
pub(crate) use endpoint::{MOST_BYTES, MOST_SEGMENTS, MOST_TRANSFERS, Shape};
pub(crate) use event::{Agent, Config, Evd, Seen};
pub(crate) use memory::{ARENA, Lmr, RemoteContext};
pub(crate) use shared_receive::MOST_BUFFERS;
pub(crate) use transfer::{Change, Piece, Receive, Request, Work};

use connection::{Attempt, Cr};
use contest::Access;
use endpoint::Ep;
use event::Cno;
use memory::{Arena, Rmr};
use shared_receive::Srq;

use crate::op::{Pick, Side};

/// Names an object for the whole run; what the handle really looks like is no matter of the model.
pub(crate) type Key = u32;

/// Objects of one kind per adapter.
pub(crate) const ZONES: usize = 8;
pub(crate) const DISPATCHERS: usize = 8;
pub(crate) const ENDPOINTS: usize = 6;
pub(crate) const SHARED_QUEUES: usize = 2;

/// What every object has.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: HandleKind,
    pub(crate) side: Side,
    pub(crate) alive: bool,
    /// Whether the consumer knows the handle: of a connection request only once its event was dequeued.
    pub(crate) named: bool,
    pub(crate) context: u64,
}

/// Everything there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    next: Key,
    pub(crate) objects: BTreeMap<Key, Object>,
    pub(crate) zones: BTreeMap<Key, ()>,
    pub(crate) lmrs: BTreeMap<Key, Lmr>,
    /// Regions that are gone.
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
    /// Ends of connections that the peer has still to learn of: the peer's endpoint and its connection.
    pub(crate) endings: Vec<(Key, usize)>,
    pub(crate) arenas: [Arena; 2],
    pub(crate) async_evds: [Key; 2],
    /// What the transfers since the last rest touched.
    pub(crate) accesses: Vec<Access>,
    /// Endpoints whose requests failed since the last rest.
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

    pub(crate) fn bury(&mut self, key: Key) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.alive = false;
        }
    }

    pub(crate) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// The object a pick means, if there is one; `None` is the null handle.
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

    /// Whether a handle argument names a live object of this kind and adapter (GEN-03, GEN-11).
    pub(crate) fn is(&self, side: Side, kind: HandleKind, key: Option<Key>) -> bool {
        key.and_then(|key| self.objects.get(&key))
            .is_some_and(|object| object.alive && object.kind == kind && object.side == side)
    }

    /// As [`World::is`], for an argument that may be left out.
    pub(crate) fn is_or_none(
        &self,
        side: Side,
        kind: HandleKind,
        key: Option<Option<Key>>,
    ) -> bool {
        key.is_none_or(|key| self.is(side, kind, key))
    }

    pub(crate) fn count(&self, side: Side, kind: HandleKind) -> usize {
        self.objects
            .values()
            .filter(|object| object.alive && object.side == side && object.kind == kind)
            .count()
    }

    /// Whether nothing is under way: the fabric has nothing to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.endings.is_empty()
            && self.attempts.iter().all(Attempt::is_at_rest)
            && self.eps.values().all(Ep::is_at_rest)
    }

    /// Whether nothing but the requests of one endpoint is under way.
    pub(crate) fn is_alone(&self, key: Option<Key>) -> bool {
        self.endings.is_empty()
            && self.attempts.iter().all(Attempt::is_at_rest)
            && self
                .eps
                .iter()
                .all(|(other, ep)| Some(*other) == key || ep.is_at_rest())
    }

    /// Does everything that is under way, in one of the orders there are.
    pub(crate) fn advance(&mut self) {
        while !self.is_at_rest() {
            self.advance_attempts();
            self.carry_out_requests();
            self.finish_disconnects();
            self.deliver_endings();
        }
    }

    /// Lets everything that is under way happen; whatever it leads to is there.
    pub(crate) fn settle(&mut self) {
        self.advance();
        for evd in self.evds.values_mut() {
            evd.settle();
        }
        self.forget_contested_bytes();
        self.failures.clear();
    }

    /// Whether what comes of a request depends on what other endpoints do meanwhile.
    pub(crate) fn would_race(&self, key: Key, request: &Request) -> bool {
        let others = self
            .eps
            .iter()
            .any(|(&other, ep)| other != key && !ep.is_at_rest());
        let ending = self.eps.get(&key).is_some_and(|ep| ep.may_still_be_ending);
        if ending || !self.endings.is_empty() || !self.attempts.iter().all(Attempt::is_at_rest) {
            return true;
        }
        // A read is answered later than a send: whether one that is under way when a later request breaks the
        // connection succeeds or is flushed depends on time (section 1.4: "may be successful").
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
        ending || probe.is_contested() || !probe.failures.is_empty()
    }
}

/// The subtype of a bad handle of this kind.
pub(crate) fn handle_subtype(kind: HandleKind) -> Option<Subtype> {
    (kind != HandleKind::Evd).then(|| kind.subtype())
}
