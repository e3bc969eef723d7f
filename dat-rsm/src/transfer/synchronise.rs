//! Segments of nodes whose processor and device see different memory.
//!
//! Such an exporter synchronises its segment (`dat_lmr_sync_rdma_*`) when its importers ask. A call
//! asks before its first transfer, so that the exporter's stores are in memory. After writes it
//! asks instead of the read-back. The exporter answers once both sides see the same bytes:
//! [`maintain`](crate::export::maintain) has its side.

use dat_core::backend::{Backend, SyncDirection};
use dat_core::flags::DtoStatus;
use dat_core::memory::{LmrCreated, LmrTriplet};
use dat_core::sync::RawLock;

use crate::age::{Watch, looks_for};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::export_at;
use crate::flight::{Question, Step};
use crate::id::{ExportId, Handle, ImportId};
use crate::import::Attach;
use crate::link::Link;
use crate::port::Port;
use crate::reach::Reach;
use crate::wire::Body;

impl Question {
    /// Looks at a question; returns true if its answer is owed for too long.
    ///
    /// The exporter owes it from the time at which the question has arrived. Before, the message
    /// has limits of its own.
    pub(crate) fn is_overdue(&mut self, link: &Link, period: u32) -> bool {
        if self.posted.is_none() && link.has_sent(self.queued) {
            self.posted = Some(link.posted());
        }
        let has_arrived = self.posted.is_some_and(|posted| link.has_ended(posted));
        let most = looks_for(link.bytes, period);
        self.watch.is_overdue(has_arrived, 0, most)
    }
}

impl State {
    /// Handles an exporter's answer; one to no question changes nothing.
    pub(crate) fn answered(&mut self, link: Handle, call: Handle) {
        let Some(flight) = self.flights.get_mut(call) else {
            return;
        };
        let Some(question) = flight.question.take_if(|question| question.link == link) else {
            return;
        };
        flight.step = Step::Done;
        if let Some(covers) = question.covers
            && let Some(import) = self.imports.get_mut(question.import.handle())
        {
            import.visible = import.visible.max(covers);
            if import.visible >= import.written {
                import.unseen = Reach::default();
            }
        }
    }

    /// Takes a call's question back if it is not sent.
    ///
    /// Spec: RSMNC-07
    pub(crate) fn take_question_back(&mut self, call: Handle) {
        if let Some(flight) = self.flights.get_mut(call)
            && let Some(question) = flight.question
            && let Some(link) = self.links.get_mut(question.link)
            && link.take_back(call.to_raw())
        {
            flight.question = None;
        }
    }

    /// Removes the flight of a call that ends.
    pub(crate) fn end_flight(&mut self, call: Handle) {
        self.take_question_back(call);
        self.flights.remove(call);
    }

    /// Fails the questions on a link that ends.
    pub(crate) fn fail_questions(&mut self, link: Handle) {
        for (_, flight) in self.flights.iter_mut() {
            let asked = flight.question.take_if(|question| question.link == link);
            if asked.is_some() {
                flight.step = Step::Failed(DtoStatus::Flushed);
            }
        }
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Synchronises a range of a segment that this program and its importers access.
    ///
    /// Only for a program that looks at the memory without a signal, or changes it while an
    /// importer's call is under way. Calls of importers synchronise what they move, before and
    /// after; publishing and unpublishing a segment synchronise all of it. Where the adapter does
    /// not need it (`lmr_sync_req`), the call does nothing else than its checks.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `export` is no exported segment.
    /// - BAD_LENGTH: the range exceeds the segment.
    ///
    /// Spec: RSMNC-03
    pub fn export_sync(
        &self,
        export: ExportId,
        direction: SyncDirection,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (port, base) = self.attempt(|state| {
            let segment = export_at(state, export)?;
            let end = offset.checked_add(length);
            let inside = end.is_some_and(|end| end <= segment.length);
            let found = (segment.port, segment.base);
            inside.then_some(found).ok_or(RsmError::BadLength)
        })?;
        self.synchronise(port, &base, direction, (offset, length));
        Ok(())
    }

    /// Synchronises a range of registered memory, first byte and length, if its adapter needs it.
    pub(crate) fn synchronise(
        &self,
        port: usize,
        base: &LmrCreated,
        direction: SyncDirection,
        (offset, length): (u64, u64),
    ) {
        let Some(port) = self.ports.get(port).filter(|port| port.non_coherent) else {
            return;
        };
        let segment = [LmrTriplet {
            context: base.lmr_context,
            address: base.registered_address.wrapping_add(offset),
            length,
        }];
        // Fails if the memory was deregistered meanwhile.
        let _gone = match direction {
            SyncDirection::RdmaRead => port.ia.lmr_sync_rdma_read(&segment),
            SyncDirection::RdmaWrite => port.ia.lmr_sync_rdma_write(&segment),
        };
    }

    /// Synchronises all of a segment's memory before importers get keys of it.
    pub(crate) fn synchronise_all(&self, port: usize, base: &LmrCreated, length: u64) {
        for direction in [SyncDirection::RdmaRead, SyncDirection::RdmaWrite] {
            self.synchronise(port, base, direction, (0, length));
        }
    }

    /// Shows that the writes of a connection are visible, by a question or by a read.
    pub(crate) fn read_back(
        &self,
        state: &mut State,
        port: &Port<'_, B, L>,
        import: ImportId,
        flight: Handle,
    ) {
        let Some(slot) = state.imports.get(import.handle()) else {
            return;
        };
        if !slot.non_coherent {
            state.post_read_back(port, import, flight);
            return;
        }
        let (unseen, covers) = (slot.unseen, slot.posted);
        let (index, node) = (slot.port, slot.node);
        // A message on another link may overtake writes.
        if !state.drains(index, node) {
            self.put_question(state, import, flight, unseen, true, Some(covers));
        }
    }

    /// Asks an exporter to synchronise what a call moves, if it is attached.
    ///
    /// `covers` is the number of the last transfer that the answer shows to be visible.
    pub(crate) fn put_question(
        &self,
        state: &mut State,
        import: ImportId,
        flight: Handle,
        reach: Reach,
        writes: bool,
        covers: Option<u64>,
    ) {
        let Some(slot) = state.imports.get(import.handle()) else {
            return;
        };
        let Attach::Attached(link) = slot.attach else {
            return;
        };
        let body = question(slot.importer, flight.to_raw(), reach, writes);
        let (Some(flight), Some(slot)) = (state.flights.get_mut(flight), state.links.get(link))
        else {
            return;
        };
        flight.step = Step::Posted;
        flight.question = Some(Question {
            link,
            import,
            covers,
            queued: slot.queued().saturating_add(1),
            posted: None,
            watch: Watch::default(),
        });
        self.tell(state, link, body);
    }

    /// Lets a signal show the writes before it: a non-coherent exporter synchronises them first.
    pub(crate) fn announce(&self, state: &mut State, import: ImportId, link: Handle) {
        if let Some(slot) = state.imports.get(import.handle())
            && slot.non_coherent
            && slot.written > slot.visible
        {
            let body = question(slot.importer, 0, slot.unseen, true);
            self.tell(state, link, body);
        }
    }
}

fn question(importer: u64, call: u64, reach: Reach, writes: bool) -> Body {
    Body::Synchronise {
        importer,
        call,
        offset: reach.start,
        length: reach.length(),
        writes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMNC-01
    #[test]
    fn a_reach_covers_all_ranges_and_ignores_empty_ones() {
        let mut reach = Reach::default();
        reach.add(70, 0);
        assert!(reach.is_empty());
        reach.add(10, 5);
        reach.add(2, 0);
        reach.add(40, 2);
        reach.add(4, 3);
        assert_eq!((reach.start, reach.length()), (4, 38));
        reach.add(u64::MAX, 2);
        assert_eq!(reach.length(), u64::MAX - 4);
    }
}
