//! The state that the engine's lock guards.

use alloc::vec::Vec;

use dat_core::time::Instant;

use crate::age::LOOKS;
use crate::error::RsmError;
use crate::export::Export;
use crate::flight::{Flight, Request};
use crate::handle_map::{Exhausted, HandleMap};
use crate::id::{Handle, ImportId, Kind, NodeId};
use crate::import::Import;
use crate::import::barrier::Barrier;
use crate::importer::Importer;
use crate::link::Link;
use crate::local::Local;
use crate::options::Options;
use crate::port::PortState;
use crate::segment_id::{FIRST_SYSTEM_ID, SegmentId};
use crate::shares::Shares;
use crate::unreached::Unreached;

/// Objects of an engine.
pub(crate) struct State {
    /// Share of each node in the tables.
    pub(crate) shares: Shares,
    pub(crate) ports: Vec<PortState>,
    pub(crate) exports: HandleMap<Export>,
    pub(crate) importers: HandleMap<Importer>,
    pub(crate) imports: HandleMap<Import>,
    pub(crate) locals: HandleMap<Local>,
    pub(crate) barriers: HandleMap<Barrier>,
    pub(crate) links: HandleMap<Link>,
    pub(crate) flights: HandleMap<Flight>,
    pub(crate) requests: HandleMap<Request>,
    /// Next id that the system tries.
    pub(crate) next_system_id: SegmentId,
    pub(crate) next_publication: u64,
    pub(crate) exported_bytes: u64,
    /// Counts vectors, to order their starts.
    pub(crate) ticks: u64,
    /// Set if the next progress has deferred work.
    pub(crate) urgent: bool,
    /// Set if the last poll stopped at its limit; more events may be queued.
    pub(crate) poll_again: bool,
    /// Time of the next deferred work.
    pub(crate) due: Option<Instant>,
    /// Time of the last deferred work.
    pub(crate) present_at: Instant,
    /// Time of the next look at what peers owe; `None` if they owe nothing.
    pub(crate) watch_at: Option<Instant>,
}

impl State {
    pub(crate) fn new(
        instance: u16,
        options: &Options,
        shares: Shares,
        ports: Vec<PortState>,
    ) -> Option<Self> {
        let limits = &options.limits;
        let keep = Exhausted::Retire;
        let begin = Exhausted::Begin;
        let mut state = Self {
            shares,
            ports,
            exports: HandleMap::new(instance, Kind::Export, limits.exports, keep),
            importers: HandleMap::new(instance, Kind::Importer, limits.importers, keep),
            imports: HandleMap::new(instance, Kind::Import, limits.imports, keep),
            locals: HandleMap::new(instance, Kind::LocalMemory, limits.local_memory, keep),
            barriers: HandleMap::new(instance, Kind::Barrier, limits.barriers, keep),
            links: HandleMap::new(instance, Kind::Link, limits.links, begin),
            flights: HandleMap::new(instance, Kind::Flight, limits.calls, begin),
            requests: HandleMap::new(instance, Kind::Request, limits.requests, begin),
            next_system_id: FIRST_SYSTEM_ID,
            next_publication: 1,
            exported_bytes: 0,
            ticks: 0,
            urgent: false,
            poll_again: false,
            due: None,
            present_at: Instant::ZERO,
            watch_at: None,
        };
        (state.flights.reserve_all() && state.requests.reserve_all()).then_some(state)
    }

    /// Keeps the reason why a node was not reached.
    pub(crate) fn not_reached(&mut self, index: usize, node: NodeId, reason: Unreached) {
        let Some(port) = self.ports.get_mut(index) else {
            return;
        };
        port.unreached.retain(|(failed, _)| *failed != node);
        // Without memory the reason is lost.
        if port.unreached.try_reserve(1).is_ok() {
            port.unreached.push((node, reason));
        }
    }

    /// Returns the error of a signal whose link broke, and keeps the reason.
    pub(crate) fn signal_lost(&mut self, import: ImportId) -> RsmError {
        if let Some(import) = self.imports.get(import.handle()) {
            let (index, node) = (import.port, import.node);
            self.not_reached(index, node, Unreached::Broken);
        }
        RsmError::RemoteNodeUnreachable
    }

    /// Returns true if a call's signal would be sent at once; otherwise its wait is watched.
    ///
    /// A signal that others have overtaken for too long is queued, so its turn comes.
    pub(crate) fn takes_signal(&mut self, flight: Handle, link: Handle) -> bool {
        let mut room = self.links.get(link).is_some_and(Link::has_room);
        if let Some(flight) = self.flights.get_mut(flight) {
            room |= flight.looks > LOOKS;
            flight.has_room(link, room);
        }
        if !room {
            self.peer_owes(link);
        }
        room
    }

    /// Schedules deferred work for the next progress, or for a time.
    pub(crate) fn remind(&mut self, at: Option<Instant>) {
        match at {
            None => self.urgent = true,
            Some(at) => self.due = Some(self.due.map_or(at, |due| due.min(at))),
        }
    }

    /// Returns the link through a port to a node's engine, if it is up.
    ///
    /// Only a link that this side asked for leads to the engine. A link from a node may belong to
    /// any of its processes.
    pub(crate) fn link_to(&self, port: usize, node: u32) -> Option<Handle> {
        self.links
            .find(|link| link.active && link.is_up() && link.port == port && link.node == node)
    }
}
