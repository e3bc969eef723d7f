//! The vector engine: checks, posts and completes entries in order.

use dat_core::backend::Backend;
use dat_core::flags::DtoStatus;
use dat_core::id::PzId;
use dat_core::sync::RawLock;

use super::entry::{self, Entries};
use super::offer::Offer;
use super::pins::Pins;
use super::{Direction, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{RsmError, of_status};
use crate::flight::{Flight, Step, WINDOW};
use crate::id::{ControllerId, Handle, ImportId};
use crate::import::{Attach, Import};
use crate::local::Local;
use crate::port::Port;
use crate::reach::Reach;
use crate::wire::Body;

/// Most restarts of a vector after another call's failure, or a rebind.
const ATTEMPTS: u32 = 8;

/// Phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The exporter is not coherent, and synchronises what the call moves.
    Asking,
    Moving,
    Failing,
    ReadingBack,
    Closing,
    Signalling,
}

/// A call that moves a vector.
pub(crate) struct Vector<'r, 's, B: Backend, L: RawLock, E: Entries> {
    pub(super) engine: &'r Rsm<'s, B, L>,
    pub(super) port: &'r Port<'s, B, L>,
    // Dropped before the entries: registrations end before the borrow of the memory.
    pub(super) pins: Pins<'r, 's, B, L>,
    pub(super) entries: E,
    pub(super) pz: PzId,
    pub(super) controller: ControllerId,
    pub(super) direction: Direction,
    pub(super) import: ImportId,
    pub(super) flight: Handle,
    /// Start of the call, in ticks of the state.
    pub(super) ticket: u64,
    /// True if others wait for the end of the call.
    pub(super) waited: bool,
    pub(super) explicit: bool,
    pub(super) flags: VectorFlags,
    /// True for a single access.
    ///
    /// It must stay inside a mapping (RSMMP-03), and needs a barrier in implicit mode (RSMGP-05).
    /// Vectors need neither (RSMPV-80, RSMPV-34).
    pub(super) single: bool,
    pub(super) generation: u32,
    /// Key epoch of the connection at the start of the last attempt.
    pub(super) key_epoch: u32,
    /// Failed transfers of the connection at the start of the call.
    pub(super) failures: u32,
    /// Local memory of the pending entries, as first byte and length.
    ///
    /// The index is the entry's index modulo the window.
    pub(super) locals: [(u64, u64); WINDOW],
    /// Next entry, and its bytes already posted.
    pub(super) next: usize,
    pub(super) part: u64,
    pub(super) stop: Option<RsmError>,
    pub(super) phase: Phase,
    /// The phase of each attempt's start.
    pub(super) first_phase: Phase,
    /// True once a transfer was posted.
    pub(super) has_posted: bool,
    pub(super) attempts: u32,
    /// Entries of a put that a read-back has shown to be visible.
    pub(super) visible: usize,
    /// Entries of a put that the last read-back covers: those posted before it.
    pub(super) covered: usize,
}

impl<B: Backend, L: RawLock, E: Entries> Vector<'_, '_, B, L, E> {
    /// Returns the number of leading entries that count as done if the call ends now.
    ///
    /// In explicit mode an entry from a handle counts once it is posted, because only a barrier
    /// waits for it.
    pub(crate) fn accepted(&self) -> usize {
        self.view().map_or(0, |flight| flight.intact() as usize)
    }

    /// Returns the number of entries that count as done if the call is interrupted.
    ///
    /// Writes count once they are visible.
    pub(super) fn known(&self) -> usize {
        let unseen = !self.explicit && self.direction == Direction::Put;
        let is_read_back = self.view().is_some_and(|flight| flight.step == Step::Done);
        match (unseen, is_read_back) {
            (true, true) => self.covered.min(self.accepted()),
            (true, false) => self.visible,
            (false, _) => self.accepted(),
        }
    }

    fn view(&self) -> Option<Flight> {
        self.engine
            .state
            .with(|state| state.flights.get(self.flight).copied())
    }

    fn fail(&self, error: RsmError, residual: usize) -> core::result::Result<(), VectorError> {
        Err(VectorError {
            error,
            residual,
            count: self.entries.count(),
        })
    }

    /// Advances as far as possible; returns the outcome once the call is done.
    pub(crate) fn advance(&mut self) -> Option<core::result::Result<(), VectorError>> {
        if !self.waited {
            let ends = self.engine.state.with(|state| {
                let import = state.imports.get(self.import.handle());
                import.map(|import| self.waits_for_disconnect(import))
            });
            match ends {
                Some(false) => {}
                Some(true) => return None,
                None => return Some(self.disconnected()),
            }
        }
        loop {
            let before = self.phase;
            let outcome = match self.phase {
                Phase::Asking => self.asking(),
                Phase::Moving => self.moving(),
                Phase::Failing => self.failing(),
                Phase::ReadingBack => self.reading_back(),
                Phase::Closing => self.closing(),
                Phase::Signalling => self.signalling(),
            };
            if outcome.is_some() || self.phase == before {
                return outcome;
            }
        }
    }

    /// Returns true if the connection is being disconnected without waiting for this call.
    ///
    /// The disconnect waits for the pending requests, so the call must post no more.
    pub(super) fn waits_for_disconnect(&self, import: &Import) -> bool {
        import.closing && !self.waited
    }

    /// Returns the outcome of a call whose connection ended before it.
    fn disconnected(&self) -> core::result::Result<(), VectorError> {
        let count = self.entries.count();
        let residual = match self.phase {
            // All bytes have moved; only the signal is missing (RSMPV-74).
            Phase::Signalling => 0,
            _ if self.explicit => count.saturating_sub(self.next).max(1),
            _ => count,
        };
        self.fail(RsmError::BadSegmentHandle, residual)
    }

    /// Waits until the exporter has synchronised the bytes that the call moves.
    ///
    /// Spec: RSMNC-01
    fn asking(&mut self) -> Option<core::result::Result<(), VectorError>> {
        match self.view()?.step {
            Step::Done => {
                self.expect_step();
                self.phase = Phase::Moving;
            }
            Step::Failed(_) => self.phase = Phase::Failing,
            Step::Posted => {}
            Step::Idle => {
                if !self.ask() {
                    self.phase = Phase::Failing;
                }
            }
        }
        None
    }

    /// Asks the exporter if it is attached; returns false if the segment is gone.
    fn ask(&self) -> bool {
        let mut reach = Reach::default();
        for args in (0..self.entries.count()).filter_map(|index| self.entries.args(index)) {
            reach.add(args.remote_offset, args.length);
        }
        let writes = self.direction == Direction::Put;
        self.while_there(|state| {
            self.engine
                .put_question(state, self.import, self.flight, reach, writes, None);
        })
    }

    fn moving(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let count = self.entries.count();
        loop {
            let before = (self.next, self.part, self.stop);
            let depends = self.fill();
            if self.phase != Phase::Moving {
                return None;
            }
            let flight = self.view()?;
            if flight.failure.is_some() {
                if !self.explicit {
                    self.phase = Phase::Failing;
                    return None;
                }
                if flight.pending != 0 {
                    return None;
                }
                // Closing the barrier reports late errors (RSMPV-42). All posted entries have
                // ended, also those that failed after the first failure.
                let next = self.next as u32;
                self.engine.state.with(|state| {
                    if let Some(flight) = state.flights.get_mut(self.flight) {
                        flight.write_off(next);
                    }
                });
                continue;
            }
            self.pins.release_before(flight.done as usize);
            let over = self.stop.is_some() || self.next >= count;
            if over || depends {
                let writes = self.direction == Direction::Put && !self.explicit;
                if flight.pending != 0 {
                    if writes && flight.step == Step::Idle {
                        // Posted at once after the entries: it completes after them, and the call
                        // waits only once.
                        self.post_read_back();
                    }
                } else if writes && flight.done as usize > self.visible {
                    self.phase = Phase::ReadingBack;
                    return None;
                } else if over {
                    self.phase = Phase::Closing;
                    return None;
                }
            }
            if before == (self.next, self.part, self.stop) {
                return None;
            }
        }
    }

    /// Posts entries while there is room; returns true if the next must wait for others.
    fn fill(&mut self) -> bool {
        let count = self.entries.count();
        while self.stop.is_none() && self.next < count {
            let Some(args) = self.entries.args(self.next) else {
                return false;
            };
            match self.engine.state.with(|state| self.offer(state, &args)) {
                Offer::Posted(bytes, first) => {
                    self.has_posted = true;
                    if self.part == 0 {
                        self.note_local((first, args.length));
                    }
                    self.part = self.part.saturating_add(bytes);
                    if self.part >= args.length {
                        self.next = self.next.saturating_add(1);
                        self.part = 0;
                    }
                }
                Offer::Nothing => {
                    self.note_local((0, 0));
                    self.next = self.next.saturating_add(1);
                }
                Offer::Depends => return true,
                Offer::Later => return false,
                Offer::Refused(error) => self.stop = Some(error),
                Offer::Aborted => {
                    self.phase = Phase::Failing;
                    return false;
                }
                Offer::Pin => {
                    if let Err(error) = self.pin() {
                        let busy = self.view().is_some_and(|flight| flight.pending != 0);
                        if busy && error == RsmError::InsufficientResources {
                            // A completion frees resources.
                            return false;
                        }
                        self.stop = Some(error);
                    }
                }
            }
        }
        false
    }

    fn note_local(&mut self, local: (u64, u64)) {
        if let Some(slot) = self.locals.get_mut(self.next % WINDOW) {
            *slot = local;
        }
    }

    /// Handles a failed entry or a lost segment, once no request is pending.
    ///
    /// Spec: RSMPV-50, RSMPV-51, RSMST-01
    fn failing(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let flight = self.view()?;
        if flight.pending != 0 {
            return None;
        }
        let count = self.entries.count();
        let done = flight.done as usize;
        let (aborted, attached, key_epoch) = self.engine.state.with(|state| {
            let import = state.imports.get(self.import.handle())?;
            let aborted = import.generation != self.generation;
            let attached = matches!(import.attach, Attach::Attached(_));
            Some((aborted, attached, import.key_epoch))
        })?;
        if aborted {
            // The segment went before the call ended. If all entries are acknowledged, none counts,
            // since none is certain. Residual 0 is reserved for failed signals (RSMPV-74).
            let residual = match count.saturating_sub(flight.intact() as usize) {
                0 => count,
                left => left,
            };
            return Some(self.fail(RsmError::ConnectionAborted, residual));
        }
        if !attached {
            // The exporter has neither reconnected nor been given up.
            return None;
        }
        // A read-back that was posted after a failed entry fails too, and has no status of its own.
        let status = match (flight.failure, flight.step) {
            (Some(failure), _) => failure.status,
            (None, Step::Failed(status)) => status,
            (None, _) => DtoStatus::Flushed,
        };
        // Flushed: another call's failure broke the link. New key: a rebind replaced the memory.
        let innocent = status == DtoStatus::Flushed
            || (status == DtoStatus::RemoteAccess && key_epoch != self.key_epoch);
        if innocent && self.attempts < ATTEMPTS {
            self.attempts = self.attempts.saturating_add(1);
            self.key_epoch = key_epoch;
            self.engine.state.with(|state| {
                if let Some(flight) = state.flights.get_mut(self.flight) {
                    flight.rewind();
                }
            });
            self.next = done;
            self.part = 0;
            self.stop = None;
            self.phase = self.first_phase;
            return None;
        }
        let unseen = flight.failure.is_none() && matches!(flight.step, Step::Failed(_));
        let complete = if unseen { self.visible } else { done };
        Some(self.fail(of_status(status), count.saturating_sub(complete)))
    }

    /// Waits until all writes are visible, at the end or before a dependent entry.
    ///
    /// Spec: RSMPV-21, RSMPV-30
    fn reading_back(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let flight = self.view()?;
        match flight.step {
            Step::Done => {
                // Later entries may have been posted after the read-back, and need another one.
                self.visible = self.covered;
                self.expect_step();
                self.phase = Phase::Moving;
            }
            Step::Failed(_) => self.phase = Phase::Failing,
            Step::Posted => {}
            Step::Idle => {
                if !self.post_read_back() {
                    self.phase = Phase::Failing;
                }
            }
        }
        None
    }

    /// Posts the read-back if there is room; returns false if the segment is gone.
    fn post_read_back(&mut self) -> bool {
        self.covered = self.next;
        self.while_there(|state| {
            self.engine
                .read_back(state, self.port, self.import, self.flight);
        })
    }

    /// Calls `post` unless the call waits for a disconnect; returns false if the segment is gone.
    fn while_there(&self, post: impl FnOnce(&mut State)) -> bool {
        let there = self.engine.state.with(|state| {
            let slot = state.imports.get(self.import.handle())?;
            if !self.waits_for_disconnect(slot) {
                post(state);
            }
            let slot = state.imports.get(self.import.handle())?;
            Some(slot.generation == self.generation)
        });
        there.unwrap_or(false)
    }

    fn closing(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let count = self.entries.count();
        let aborted = self.engine.state.with(|state| {
            let import = state.imports.get(self.import.handle());
            import.is_none_or(|import| import.generation != self.generation)
        });
        if aborted {
            self.phase = Phase::Failing;
            return None;
        }
        if let Some(error) = self.stop {
            // The residual names the refused entry (RSMPV-57). In explicit mode, closing the
            // barrier reports failures of earlier ones (RSMPV-42).
            let left = if self.explicit {
                self.next
            } else {
                self.accepted()
            };
            return Some(self.fail(error, count.saturating_sub(left)));
        }
        if self.flags.contains(VectorFlags::IMPLICIT_SIGPOST) {
            self.expect_step();
            self.phase = Phase::Signalling;
            return None;
        }
        Some(Ok(()))
    }

    /// Resets the step, so that the next read-back or the signal can be posted.
    fn expect_step(&self) {
        self.engine.state.with(|state| {
            if let Some(flight) = state.flights.get_mut(self.flight) {
                flight.step = Step::Idle;
            }
        });
    }

    /// Posts the signal after the data.
    ///
    /// Spec: RSMPV-70..75
    fn signalling(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let no_accumulate = self.flags.contains(VectorFlags::SIGPOST_NO_ACCUMULATE);
        let (engine, import, flight) = (self.engine, self.import, self.flight);
        let (generation, failures, explicit) = (self.generation, self.failures, self.explicit);
        let outcome = engine.state.with(|state| {
            let slot = state.imports.get(import.handle())?;
            if slot.generation != generation {
                // The signal may have arrived before the exporter took the segment back.
                return match state.flights.get(flight).map(|flight| flight.step) {
                    Some(Step::Done) => Some(Ok(())),
                    Some(Step::Posted) => None,
                    _ => Some(Err(RsmError::ConnectionAborted)),
                };
            }
            if explicit && slot.failures != failures {
                // After a failed entry no signal is sent (RSMPV-71). Closing the barrier reports
                // the failure.
                return Some(Ok(()));
            }
            let attached = match slot.attach {
                Attach::Attached(link) => Some((link, slot.importer)),
                Attach::Detached | Attach::Requested(_) => None,
            };
            if self.waits_for_disconnect(slot) {
                return None;
            }
            match state.flights.get(flight)?.step {
                Step::Done => Some(Ok(())),
                Step::Failed(_) => attached.map(|_| Err(state.signal_lost(import))),
                Step::Posted => None,
                // Entries may be pending on a broken link, and the signal must come after the data.
                Step::Idle if state.drains(slot.port, slot.node) => None,
                Step::Idle => {
                    let (link, importer) = attached?;
                    if state.takes_signal(flight, link) {
                        if let Some(flight) = state.flights.get_mut(flight) {
                            flight.step = Step::Posted;
                        }
                        engine.announce(state, import, link);
                        let body = Body::Signal {
                            importer,
                            no_accumulate,
                        };
                        let options = &engine.options;
                        state.say(&engine.ports, link, body, import.handle(), flight, options);
                    }
                    None
                }
            }
        })?;
        match outcome {
            Ok(()) => Some(Ok(())),
            Err(error) => Some(self.fail(error, 0)),
        }
    }
}

impl State {
    /// Calls `act` on the local memory that a vector names.
    ///
    /// Skips memory that was not registered when the vector began at `ticket`. Calls `act` once for
    /// each run of entries with the same memory.
    pub(super) fn for_each_local(
        &mut self,
        entries: &impl Entries,
        ticket: u64,
        act: impl Fn(&mut Local),
    ) {
        let mut before = None;
        for args in (0..entries.count()).filter_map(|index| entries.args(index)) {
            let entry::Local::Handle(local) = args.local else {
                continue;
            };
            if before == Some(local) {
                continue;
            }
            before = Some(local);
            let slot = self.locals.get_mut(local.handle());
            if let Some(local) = slot.filter(|local| local.made_at < ticket) {
                act(local);
            }
        }
    }
}

impl<B: Backend, L: RawLock, E: Entries> Drop for Vector<'_, '_, B, L, E> {
    fn drop(&mut self) {
        self.engine.state.with(|state| {
            state.end_flight(self.flight);
            if !self.waited {
                return;
            }
            let ticket = self.ticket;
            state.for_each_local(&self.entries, ticket, |local| local.end_use(ticket));
            if let Some(import) = state.imports.get_mut(self.import.handle()) {
                import.calls = import.calls.saturating_sub(1);
            }
        });
        self.engine.tell_change();
    }
}
