//! Exporters that synchronise their segments for peers, a slice at a time.
//!
//! A message of a peer names any range of a segment. Each link has at most one such range, and each
//! round of progress synchronises one slice of it. So other links have their turn in between. Later
//! messages of the link wait: a signal shows the writes that were to be synchronised before it.

use dat_core::backend::{Backend, SyncDirection};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::access::Permission;
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::id::Handle;
use crate::link::maintenance::{LastQuestions, Maintenance, Then};
use crate::link::receive::Wish;
use crate::link::{Link, LinkState};
use crate::wire::Body;

/// Most bytes that a round synchronises for a link.
const SLICE: u64 = 256 << 10;

impl State {
    /// Returns the segment of a connection that this link may name, and the direction of its
    /// question.
    ///
    /// A connection that may not write does not choose when the exporter sees writes.
    ///
    /// Spec: RSMNC-05
    fn asks_about(
        &self,
        link: Handle,
        importer: Handle,
        writes: bool,
    ) -> Option<(Handle, SyncDirection)> {
        let importer = self.importers.get(importer);
        let importer = importer.filter(|importer| importer.link == link)?;
        let direction = match writes && importer.permission.contains(Permission::WRITE) {
            true => SyncDirection::RdmaWrite,
            false => SyncDirection::RdmaRead,
        };
        Some((importer.export, direction))
    }

    fn begin_maintenance(&mut self, link: Handle, maintenance: Maintenance) {
        if let Some(link) = self.links.get_mut(link) {
            link.maintenance = Some(maintenance);
            self.urgent = true;
        }
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Returns true if peers have to ask for the memory of a link's port.
    fn maintains(&self, state: &State, link: Handle) -> bool {
        let port = state
            .links
            .get(link)
            .and_then(|link| self.ports.get(link.port));
        port.is_some_and(|port| port.non_coherent)
    }

    /// Handles an importer's question.
    ///
    /// One about a segment that is gone is answered: a revocation tells that.
    ///
    /// Spec: RSMNC-05, RSMNC-06
    pub(crate) fn asked(
        &self,
        link: Handle,
        importer: Handle,
        call: u64,
        (offset, length): (u64, u64),
        writes: bool,
    ) {
        let is_due = self.state.with(|state| {
            if let Some(slot) = state.links.get_mut(link)
                && let Some(last) = &mut slot.last_questions
            {
                return core::mem::replace(last, LastQuestions::Synchronised)
                    == LastQuestions::Open;
            }
            let about = state.asks_about(link, importer, writes);
            match about.filter(|_| self.maintains(state, link)) {
                Some((export, direction)) => {
                    let maintenance = Maintenance {
                        export,
                        direction,
                        start: offset,
                        end: offset.saturating_add(length),
                        then: Then::Answer(call),
                    };
                    state.begin_maintenance(link, maintenance);
                }
                None => self.tell_synchronised(state, link, call),
            }
            false
        });
        if is_due {
            self.synchronise_written(link);
        }
    }

    /// Synchronises a segment before a connection to it resumes; returns false if it need not.
    ///
    /// Writes that were acknowledged on the broken link count, also those that no question
    /// followed.
    ///
    /// Spec: RSMNC-03, RSMNC-06
    pub(crate) fn maintains_first(&self, state: &mut State, link: Handle, wish: Wish) -> bool {
        let resumed = state
            .resumed_by(link, wish)
            .filter(|_| self.maintains(state, link));
        let Some(export) = resumed else {
            return false;
        };
        let length = state.exports.get(export).map_or(0, |export| export.length);
        let maintenance = Maintenance {
            export,
            direction: SyncDirection::RdmaWrite,
            start: 0,
            end: length,
            then: Then::Grant(wish),
        };
        state.begin_maintenance(link, maintenance);
        true
    }

    fn tell_synchronised(&self, state: &mut State, link: Handle, call: u64) {
        if call != 0 {
            self.tell(state, link, Body::Synchronised { call });
        }
    }

    /// Synchronises a slice for each link that waits for it; returns their number.
    ///
    /// Spec: RSMNC-06
    pub(crate) fn maintain(&self, now: Instant) -> usize {
        let mut slices = 0_usize;
        let mut from = 0;
        let waits = |link: &Link| link.maintenance.is_some();
        while let Some((at, link)) = self.state.with(|state| state.links.find_from(from, waits)) {
            from = at.saturating_add(1);
            slices = slices.saturating_add(1);
            self.maintain_slice(link, now);
        }
        if slices != 0 {
            self.state
                .with(|state| state.urgent |= state.links.find(waits).is_some());
        }
        slices
    }

    fn maintain_slice(&self, link: Handle, now: Instant) {
        let found = self.state.with(|state| {
            let slot = state.links.get_mut(link)?;
            let maintenance = slot.maintenance.as_mut()?;
            // A segment that is gone, or ends before the range, has nothing left.
            let segment = state.exports.get(maintenance.export);
            let end = segment.map_or(0, |segment| maintenance.end.min(segment.length));
            let length = end.saturating_sub(maintenance.start).min(SLICE);
            let range = (maintenance.start, length);
            maintenance.start = maintenance.start.saturating_add(length);
            let work = segment.map(|segment| (segment.port, segment.base, maintenance.direction));
            let is_over = maintenance.start >= end;
            let then = maintenance.then;
            if is_over {
                slot.maintenance = None;
            }
            Some((slot.port, range, work, is_over.then_some(then)))
        });
        let Some((index, range, work, over)) = found else {
            return;
        };
        if let Some((port, base, direction)) = work.filter(|_| range.1 != 0) {
            self.synchronise(port, &base, direction, range);
        }
        match over {
            None => return,
            Some(Then::Answer(call)) => self
                .state
                .with(|state| self.tell_synchronised(state, link, call)),
            Some(Then::Grant(wish)) => self.answer_request(index, link, wish),
        }
        if let Some(port) = self.ports.get(index) {
            self.handle_messages(index, port, link, now);
        }
    }

    /// Prepares the last messages of a link that ends: they are handled at once.
    ///
    /// No write of the link arrives any more, so all its questions need one maintenance at most.
    pub(crate) fn end_maintenance(&self, link: Handle) {
        let is_due = self.state.with(|state| {
            let slot = state.links.get_mut(link)?;
            if slot.state == LinkState::Over || slot.last_questions.is_some() {
                return None;
            }
            let is_asked = slot.maintenance.take().is_some();
            slot.last_questions = Some(match is_asked {
                true => LastQuestions::Synchronised,
                false => LastQuestions::Open,
            });
            Some(is_asked)
        });
        if is_due == Some(true) {
            self.synchronise_written(link);
        }
    }

    /// Synchronises, once each, all segments that a link may have written to.
    fn synchronise_written(&self, link: Handle) {
        let mut from = 0;
        loop {
            let found = self.state.with(|state| {
                let is_written = |export: Handle| {
                    state.importers.iter().any(|(_, importer)| {
                        (importer.link, importer.export) == (link, export)
                            && importer.permission.contains(Permission::WRITE)
                    })
                };
                let mut exports = state.exports.iter();
                exports
                    .find(|(handle, _)| handle.index() >= from && is_written(*handle))
                    .map(|(handle, export)| (handle, export.port, export.base, export.length))
            });
            let Some((export, port, base, length)) = found else {
                return;
            };
            from = export.index().saturating_add(1);
            self.synchronise(port, &base, SyncDirection::RdmaWrite, (0, length));
        }
    }
}
