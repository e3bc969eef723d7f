//! The vector engine: entries checked, begun and waited for in order.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::PzId;
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, RmrTriplet};
use dat_core::sync::RawLock;
use dat_core::{Error, ErrorKind};

use super::entry::{Entries, Gets, Local, Puts, Wanted};
use super::pins::Pins;
use super::{Direction, GetEntry, PutEntry, VectorError, VectorFlags};
use crate::access::Permission;
use crate::engine::Rsm;
use crate::error::{Result, RsmError, of_status};
use crate::flight::{Flight, Owner, Request, Step, WINDOW};
use crate::id::{ControllerId, Handle, ImportId, LocalMemoryId};
use crate::import::{Attach, BarrierMode, Import, ImportState, import_at};
use crate::port::Port;
use crate::state::State;
use crate::wire::Body;

/// How often a vector begins again because somebody else's failure broke the link under it.
const ATTEMPTS: u32 = 8;
/// Microseconds that an interrupted call gives its transfers before it cuts them off.
const QUIET: u32 = 20_000;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Moving,
    Failing,
    Flushing,
    Closing,
    Signalling,
}

/// What happened to the next part of a vector.
enum Offer {
    /// It is on the way; so many bytes.
    Posted(u64),
    /// There is nothing to move.
    Nothing,
    /// It needs a registration.
    Pin,
    /// There is no room, or no link, at the moment.
    Later,
    Refused(RsmError),
    Aborted,
}

/// A call that moves a vector.
pub(crate) struct Vector<'r, 's, B: Backend, L: RawLock, E> {
    engine: &'r Rsm<'s, B, L>,
    port: &'r Port<'s, B, L>,
    // Before the entries: what is registered goes first.
    pins: Pins<'r, 's, B, L>,
    entries: E,
    pz: PzId,
    pub(crate) controller: ControllerId,
    direction: Direction,
    import: ImportId,
    pub(crate) flight: Handle,
    explicit: bool,
    flags: VectorFlags,
    /// Whether a barrier must exist in implicit mode (RSMGP-05), which vectors do without (RSMPV-34).
    needs_barrier: bool,
    generation: u32,
    /// The state of the keys and of the errors when the call, or its last attempt, began.
    key_epoch: u32,
    error_epoch: u32,
    /// The next entry, and how much of it is begun.
    next: usize,
    part: u64,
    stop: Option<RsmError>,
    phase: Phase,
    attempts: u32,
    flushed: bool,
}

/// How a call is made.
pub(crate) struct Manner {
    pub(crate) direction: Direction,
    pub(crate) flags: VectorFlags,
    pub(crate) needs_barrier: bool,
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// Gathers pieces of local memory into a segment, in the order of the entries.
    ///
    /// In implicit mode all of it is in the exporter's memory, and visible there, when the call returns. In explicit
    /// mode all of it is on the way; closing a barrier says how it went. Immediate entries are waited for in both, because
    /// they are registered for the call alone. Any number of entries is taken.
    ///
    /// A refused entry ends the vector before it is begun; those before it stay done, the connection lives.
    ///
    /// # Errors
    /// With the number of entries that are left:
    /// - BAD_SEG_HNDL: no connection. BAD_CTLR_HNDL: its controller was released.
    /// - BAD_SGIO: no entries, or an entry's handle is none, freed, or of another controller.
    /// - CONN_ABORTED: the exporter took the segment back, or died, before or meanwhile.
    /// - PERM_DENIED: the connection may not write; or the exporter's adapter says so.
    /// - BAD_ADDR: the handle's memory may not be used like that.
    /// - BAD_OFFSET, BAD_LENGTH: an entry leaves its local memory or the segment.
    /// - INSUFFICIENT_RESOURCES: memory cannot be registered, or tables are used up.
    /// - BARRIER_FAILURE: a transfer failed; the connection recovers by itself.
    /// - INTERRUPTED: the wait was; nothing touches the caller's memory any more.
    /// - REMOTE_NODE_UNREACHABLE with residual 0: the signal failed.
    ///
    /// Spec: RSMPV-01..06, RSMPV-08..15, RSMPV-20..22, RSMPV-30..35, RSMPV-40..45, RSMPV-50..61, RSMPV-70..75, RSMPV-80..84
    pub fn putv<W: Wait>(
        &self,
        import: ImportId,
        entries: &[PutEntry<'_>],
        flags: VectorFlags,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let manner = Manner {
            direction: Direction::Put,
            flags,
            needs_barrier: false,
        };
        self.run(import, Puts(entries), manner, wait)
    }

    /// Scatters parts of a segment to pieces of local memory, in the order of the entries.
    ///
    /// As [`putv`](Self::putv), the other way; targets are undefined until the entry counts as completed.
    ///
    /// # Errors
    /// As `putv`, where PERM_DENIED is for the right to read.
    ///
    /// Spec: RSMPV-01..06, RSMPV-08..15, RSMPV-20..22, RSMPV-30..35, RSMPV-40..45, RSMPV-50..61, RSMPV-70..75, RSMPV-80..84
    pub fn getv<W: Wait>(
        &self,
        import: ImportId,
        entries: &mut [GetEntry<'_>],
        flags: VectorFlags,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let manner = Manner {
            direction: Direction::Get,
            flags,
            needs_barrier: false,
        };
        self.run(import, Gets(entries), manner, wait)
    }

    /// Runs a call to its end.
    pub(crate) fn run<W: Wait, E: Entries>(
        &self,
        import: ImportId,
        entries: E,
        manner: Manner,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let count = entries.count();
        let mut vector = self.begin(import, entries, &manner)?;
        let (flight, controller) = (vector.flight, vector.controller);
        let outcome = self.wait_for(Some(controller), None, wait, |_| vector.advance().map(Ok));
        match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.quiesce(flight, controller, wait);
                let residual = count.saturating_sub(vector.accepted());
                Err(VectorError {
                    error,
                    residual,
                    count,
                })
            }
        }
    }

    /// Checks what concerns the call as a whole, in the order of the interface, and makes room for it.
    pub(crate) fn begin<'r, E: Entries>(
        &'r self,
        import: ImportId,
        entries: E,
        manner: &Manner,
    ) -> core::result::Result<Vector<'r, 's, B, L, E>, VectorError> {
        let count = entries.count();
        let begun = self.state.with(|state| {
            let place = import_at(state, import)?;
            let (controller, generation) = (place.controller, place.generation);
            let port = self.port_of(state, controller)?;
            let pz = state.ports.get(port).and_then(|port| port.ids());
            let pz = pz.ok_or(RsmError::BadControllerHandle)?.pz;
            if count == 0 {
                return Err(RsmError::BadScatterGather);
            }
            let place = import_at(state, import)?;
            if place.state == ImportState::Aborted {
                return Err(RsmError::ConnectionAborted);
            }
            let right = match manner.direction {
                Direction::Put => Permission::WRITE,
                Direction::Get => Permission::READ,
            };
            if !place.permission.contains(right) {
                return Err(RsmError::PermissionDenied);
            }
            let epochs = (generation, place.key_epoch, place.error_epoch);
            let explicit = place.mode == BarrierMode::Explicit;
            let flight = state.flights.insert(Flight::new());
            let flight = flight.ok_or(RsmError::InsufficientResources)?;
            let place = import_at(state, import)?;
            place.calls = place.calls.saturating_add(1);
            Ok((controller, port, pz, epochs, explicit, flight))
        });
        let (controller, port, pz, epochs, explicit, flight) =
            begun.map_err(|error| VectorError {
                error,
                residual: count,
                count,
            })?;
        let (generation, key_epoch, error_epoch) = epochs;
        let port = self.ports.get(port).ok_or(VectorError {
            error: RsmError::InternalError,
            residual: count,
            count,
        })?;
        Ok(Vector {
            engine: self,
            port,
            pins: Pins::new(&port.ia),
            entries,
            pz,
            controller,
            direction: manner.direction,
            import,
            flight,
            explicit,
            flags: manner.flags,
            needs_barrier: manner.needs_barrier,
            generation,
            key_epoch,
            error_epoch,
            next: 0,
            part: 0,
            stop: None,
            phase: Phase::Moving,
            attempts: 0,
            flushed: false,
        })
    }

    /// Waits until nothing of a call is on the way any more, or sees to it.
    ///
    /// Spec: RSMPV-83
    fn quiesce<W: Wait>(&self, flight: Handle, controller: ControllerId, wait: &mut W) {
        let pending = || {
            self.state.with(|state| {
                let flight = state.flights.get(flight);
                flight.is_some_and(|flight| flight.pending != 0)
            })
        };
        let until = wait.now().after(QUIET);
        let idle = self.wait_for(Some(controller), until, wait, |_| {
            (!pending()).then_some(Ok(()))
        });
        if idle.is_err() && pending() {
            self.sever(flight, wait.now());
        }
    }
}

impl<B: Backend, L: RawLock, E: Entries> Vector<'_, '_, B, L, E> {
    /// Entries that count as done, for a call that ends now.
    pub(crate) fn accepted(&self) -> usize {
        if self.explicit {
            self.next
        } else {
            self.done()
        }
    }

    fn done(&self) -> usize {
        self.view().map_or(0, |flight| flight.done as usize)
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

    /// Goes on as far as it can; says how it ended once it has.
    pub(crate) fn advance(&mut self) -> Option<core::result::Result<(), VectorError>> {
        loop {
            let before = self.phase;
            let outcome = match self.phase {
                Phase::Moving => self.moving(),
                Phase::Failing => self.failing(),
                Phase::Flushing => self.flushing(),
                Phase::Closing => self.closing(),
                Phase::Signalling => self.signalling(),
            };
            if outcome.is_some() || self.phase == before {
                return outcome;
            }
        }
    }

    fn moving(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let count = self.entries.count();
        loop {
            let before = (self.next, self.part, self.stop);
            self.fill();
            if self.phase != Phase::Moving {
                return None;
            }
            let flight = self.view()?;
            if let Some(failure) = flight.failure {
                if !self.explicit {
                    self.phase = Phase::Failing;
                    return None;
                }
                // Late errors are the barrier's to tell (RSMPV-42); the entry is over.
                self.engine.state.with(|state| {
                    if let Some(flight) = state.flights.get_mut(self.flight) {
                        flight.failure = None;
                        flight.skip(failure.index);
                    }
                });
                continue;
            }
            self.pins.release_before(flight.done as usize);
            if (self.stop.is_some() || self.next >= count) && flight.pending == 0 {
                let flush = self.direction == Direction::Put && !self.explicit && flight.done > 0;
                self.phase = if flush {
                    Phase::Flushing
                } else {
                    Phase::Closing
                };
                return None;
            }
            if before == (self.next, self.part, self.stop) {
                return None;
            }
        }
    }

    /// Begins entries while there is room and none is refused.
    fn fill(&mut self) {
        let count = self.entries.count();
        while self.stop.is_none() && self.next < count {
            let Some(wanted) = self.entries.wanted(self.next) else {
                return;
            };
            match self.engine.state.with(|state| self.offer(state, &wanted)) {
                Offer::Posted(bytes) => {
                    self.part = self.part.saturating_add(bytes);
                    if self.part >= wanted.length {
                        self.next = self.next.saturating_add(1);
                        self.part = 0;
                    }
                }
                Offer::Nothing => self.next = self.next.saturating_add(1),
                Offer::Later => return,
                Offer::Refused(error) => self.stop = Some(error),
                Offer::Aborted => {
                    self.phase = Phase::Failing;
                    return;
                }
                Offer::Pin => {
                    if let Err(error) = self.pin() {
                        let busy = self.view().is_some_and(|flight| flight.pending != 0);
                        if busy && error == RsmError::InsufficientResources {
                            // What comes back frees some.
                            return;
                        }
                        self.stop = Some(error);
                    }
                }
            }
        }
    }

    /// Registers the memory of the next entry for the call.
    ///
    /// Spec: RSMPV-11
    fn pin(&mut self) -> Result<()> {
        let region = self.entries.region(self.next).ok_or(RsmError::BadAddress)?;
        let privileges = match self.direction {
            Direction::Put => MemoryPrivileges::LOCAL_READ,
            Direction::Get => self.port.target_privileges,
        };
        let made = self.port.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz: self.pz,
            privileges,
        });
        match made {
            Ok(made) => {
                self.pins.keep(self.next, made);
                Ok(())
            }
            Err(error) => Err(match RsmError::from(error) {
                RsmError::InsufficientResources | RsmError::InsufficientMemory => {
                    RsmError::InsufficientResources
                }
                _ => RsmError::BadAddress,
            }),
        }
    }

    /// Checks the next entry and begins it, or a part of it.
    ///
    /// Spec: RSMPV-57, RSMPV-21
    fn offer(&self, state: &mut State, wanted: &Wanted) -> Offer {
        let Some(import) = state.imports.get(self.import.handle()) else {
            return Offer::Aborted;
        };
        if import.generation != self.generation {
            return Offer::Aborted;
        }
        let (attach, remote) = (import.attach, import.remote(wanted, self.part));
        if let Err(error) = self.check(state, import, wanted) {
            return Offer::Refused(error);
        }
        let Some(flight) = state.flights.get_mut(self.flight) else {
            return Offer::Aborted;
        };
        if flight.failure.is_some() {
            return Offer::Later;
        }
        if wanted.length == 0 {
            flight.skip(self.next as u32);
            return Offer::Nothing;
        }
        if self.next.saturating_sub(flight.done as usize) >= WINDOW {
            return Offer::Later;
        }
        let Attach::Attached(link_handle) = attach else {
            return Offer::Later;
        };
        let ready = state
            .links
            .get(link_handle)
            .filter(|link| link.takes_transfer(self.port.max_transfers));
        let (Some(link), true) = (ready, state.requests.has_room()) else {
            return Offer::Later;
        };
        let ep = link.ep;
        let bytes = wanted
            .length
            .saturating_sub(self.part)
            .min(self.port.max_transfer);
        let last = self.part.saturating_add(bytes) >= wanted.length;
        let (context, base, local) = match wanted.local {
            Local::Handle(local) => match state.locals.get(local.handle()) {
                Some(place) => {
                    let made = &place.made;
                    let base = made.registered_address.wrapping_add(wanted.local_offset);
                    (made.lmr_context, base, Some(local))
                }
                None => return Offer::Refused(RsmError::BadScatterGather),
            },
            Local::Immediate(_) => match self.pins.of(self.next) {
                Some(made) => (made.lmr_context, made.registered_address, None),
                None => return Offer::Pin,
            },
        };
        let piece = LmrTriplet {
            context,
            address: base.wrapping_add(self.part),
            length: bytes,
        };
        let remote = RmrTriplet {
            length: bytes,
            ..remote
        };
        // Nobody waits for an entry from a handle in explicit mode but a barrier.
        let spans = self.explicit && local.is_some();
        let owner = if spans {
            Owner::Span
        } else {
            Owner::Entry {
                flight: self.flight,
                index: self.next as u32,
                last,
            }
        };
        let request = Request {
            owner,
            link: link_handle,
            import: self.import.handle(),
            local,
            told: Handle::NULL,
        };
        match self.post(state, ep, request, &piece, &remote) {
            Ok(()) => {
                if spans
                    && last
                    && let Some(flight) = state.flights.get_mut(self.flight)
                {
                    flight.skip(self.next as u32);
                }
                Offer::Posted(bytes)
            }
            Err(error) if error.kind() == ErrorKind::InsufficientResources => {
                let waits = state
                    .links
                    .get(link_handle)
                    .is_some_and(|link| link.requests != 0);
                if waits {
                    Offer::Later
                } else {
                    Offer::Refused(RsmError::InsufficientResources)
                }
            }
            Err(error) => Offer::Refused(error.into()),
        }
    }

    /// Posts one request and keeps the books.
    fn post(
        &self,
        state: &mut State,
        ep: dat_core::id::EpId,
        request: Request,
        piece: &LmrTriplet,
        remote: &RmrTriplet,
    ) -> core::result::Result<(), Error> {
        let Some(cookie) = state.requests.insert(request) else {
            return Err(Error::queue_full());
        };
        let (ia, flags) = (&self.port.ia, CompletionFlags::empty());
        let pieces = core::slice::from_ref(piece);
        let posted = match self.direction {
            Direction::Put => ia.post_rdma_write(ep, pieces, cookie.to_raw(), remote, flags),
            Direction::Get => ia.post_rdma_read(ep, pieces, cookie.to_raw(), remote, flags),
        };
        if let Err(error) = posted {
            state.requests.remove(cookie);
            return Err(error);
        }
        state.count_posted(&request);
        if let Some(import) = state.imports.get_mut(request.import)
            && request.owner == Owner::Span
            && self.direction == Direction::Put
        {
            import.unflushed = true;
        }
        Ok(())
    }

    /// Checks an entry against its local memory and the segment.
    ///
    /// Spec: RSMPV-03, RSMPV-13, RSMPV-15, RSMPV-61
    fn check(&self, state: &State, import: &Import, wanted: &Wanted) -> Result<()> {
        let available = match wanted.local {
            Local::Handle(local) => self.local_length(state, local)?,
            Local::Immediate(length) => length,
        };
        for (offset, length) in [
            (wanted.local_offset, available),
            (wanted.remote_offset, import.length),
        ] {
            if offset > length {
                return Err(RsmError::BadOffset);
            }
        }
        for (offset, length) in [
            (wanted.local_offset, available),
            (wanted.remote_offset, import.length),
        ] {
            let end = offset.checked_add(wanted.length);
            if end.is_none_or(|end| end > length) {
                return Err(RsmError::BadLength);
            }
        }
        if self.needs_barrier && !self.explicit && import.barriers == 0 {
            return Err(RsmError::BarrierUninitialized);
        }
        Ok(())
    }

    fn local_length(&self, state: &State, local: LocalMemoryId) -> Result<u64> {
        let place = state
            .locals
            .get(local.handle())
            .filter(|place| !place.closing)
            .ok_or(RsmError::BadScatterGather)?;
        if self.port_index() != Some(place.port) {
            return Err(RsmError::BadScatterGather);
        }
        if self.direction == Direction::Get && !place.writable {
            return Err(RsmError::BadAddress);
        }
        Ok(place.length)
    }

    fn port_index(&self) -> Option<usize> {
        Some(self.controller.handle().index())
    }

    /// Something failed or the segment is gone: all that is on the way comes back first, then the truth is found out.
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
            let left = if self.explicit { self.next } else { done };
            return Some(self.fail(RsmError::ConnectionAborted, count.saturating_sub(left)));
        }
        if !attached {
            // Whether the exporter lives is not known yet.
            return None;
        }
        let status = match (flight.failure, flight.step) {
            (_, Step::Failed(status)) => status,
            (Some(failure), _) => failure.status,
            (None, _) => DtoStatus::Flushed,
        };
        // Flushed: another's failure broke the link. Another key: the memory changed under the entry.
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
            self.phase = Phase::Moving;
            return None;
        }
        let unseen = matches!(flight.step, Step::Failed(_));
        let residual = if unseen {
            count
        } else {
            count.saturating_sub(done)
        };
        Some(self.fail(of_status(status), residual))
    }

    /// Makes sure that what was written is visible.
    ///
    /// Spec: RSMPV-21, RSMPV-30
    fn flushing(&mut self) -> Option<core::result::Result<(), VectorError>> {
        if self.flushed {
            self.phase = Phase::Closing;
            return None;
        }
        let flight = self.view()?;
        match flight.step {
            Step::Done => {
                self.flushed = true;
                self.phase = Phase::Closing;
            }
            Step::Failed(_) => self.phase = Phase::Failing,
            Step::Posted => {}
            Step::Idle => {
                let (port, import) = (self.port, self.import);
                let flight = self.flight;
                let gone = self.engine.state.with(|state| {
                    state.post_flush(port, import, flight);
                    let import = state.imports.get(import.handle());
                    import.is_none_or(|import| import.generation != self.generation)
                });
                if gone {
                    self.phase = Phase::Failing;
                }
            }
        }
        None
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
            let left = if self.explicit {
                self.next
            } else {
                self.done()
            };
            return Some(self.fail(error, count.saturating_sub(left)));
        }
        if self.flags.contains(VectorFlags::IMPLICIT_SIGPOST) {
            self.engine.state.with(|state| {
                if let Some(flight) = state.flights.get_mut(self.flight) {
                    flight.step = Step::Idle;
                }
            });
            self.phase = Phase::Signalling;
            return None;
        }
        Some(Ok(()))
    }

    /// Sends the signal, behind the data.
    ///
    /// Spec: RSMPV-70..75
    fn signalling(&mut self) -> Option<core::result::Result<(), VectorError>> {
        let no_accumulate = self.flags.contains(VectorFlags::SIGPOST_NO_ACCUMULATE);
        let (engine, import, flight) = (self.engine, self.import, self.flight);
        let (generation, error_epoch, explicit) =
            (self.generation, self.error_epoch, self.explicit);
        let outcome = engine.state.with(|state| {
            let place = state.imports.get(import.handle())?;
            if place.generation != generation {
                return Some(Err(RsmError::ConnectionAborted));
            }
            if explicit && place.error_epoch != error_epoch {
                // An entry failed: nobody is told (RSMPV-71). The barrier tells the caller.
                return Some(Ok(()));
            }
            let attached = match place.attach {
                Attach::Attached(link) => Some((link, place.importer)),
                Attach::Detached | Attach::Asked(_) => None,
            };
            match state.flights.get(flight)?.step {
                Step::Done => Some(Ok(())),
                Step::Failed(_) => attached.map(|_| Err(RsmError::RemoteNodeUnreachable)),
                Step::Posted => None,
                Step::Idle => {
                    let (link, importer) = attached?;
                    if state.links.get(link).is_some_and(|link| link.has_room()) {
                        if let Some(flight) = state.flights.get_mut(flight) {
                            flight.step = Step::Posted;
                        }
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

impl Import {
    /// Where an entry, or the rest of it, goes in the exporter's memory.
    fn remote(&self, wanted: &Wanted, part: u64) -> RmrTriplet {
        RmrTriplet {
            context: self.key,
            address: self
                .address
                .wrapping_add(wanted.remote_offset)
                .wrapping_add(part),
            length: 0,
        }
    }
}

impl<B: Backend, L: RawLock, E> Drop for Vector<'_, '_, B, L, E> {
    fn drop(&mut self) {
        self.engine.state.with(|state| {
            state.flights.remove(self.flight);
            if let Some(import) = state.imports.get_mut(self.import.handle()) {
                import.calls = import.calls.saturating_sub(1);
            }
        });
        self.engine.tell_change();
    }
}
