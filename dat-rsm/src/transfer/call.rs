//! Calls that move a vector and wait for it.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use super::entry::{Entries, Gets, Puts};
use super::pins::Pins;
use super::vector::{Phase, Vector};
use super::{Direction, GetEntry, PutEntry, VectorError, VectorFlags};
use crate::drive::wait::Deaf;
use crate::engine::Rsm;
use crate::error::RsmError;
use crate::flight::{Flight, WINDOW};
use crate::id::{ControllerId, Handle, ImportId};
use crate::import::{BarrierMode, ImportState, import_at};

/// Microseconds that an interrupted call waits for its transfers before it cuts them off.
///
/// Long enough for a sound path, since the cut restarts all calls on the link.
const QUIET: u32 = 200_000;

/// Properties of a call.
pub(crate) struct CallOptions {
    pub(crate) direction: Direction,
    pub(crate) flags: VectorFlags,
    pub(crate) single: bool,
    /// True if the call ends before its caller continues, so that others wait for it.
    ///
    /// A caller may forget a call that does not block, so nothing waits for one.
    pub(crate) waited: bool,
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// Gathers local memory into a segment, in the order of the entries.
    ///
    /// In implicit mode all bytes are visible in the exporter's memory when the call returns. In
    /// explicit mode all transfers are posted; closing a barrier reports their outcome. The call
    /// waits for immediate entries in both modes, because they are registered only during the call.
    /// The number of entries is not limited.
    ///
    /// In implicit mode an entry waits for an earlier one if it writes bytes that the earlier one
    /// reads, reads bytes that the earlier one writes, or gets to the same bytes. The first two
    /// cases need a segment in the memory of this process. Other entries are pending together.
    /// Sharing is found by address. Memory that is mapped twice, or by another process, counts as
    /// different memory and needs a call for each step.
    ///
    /// A refused entry ends the vector before it starts; earlier entries stay done, and the
    /// connection stays intact.
    ///
    /// # Errors
    /// With the number of entries that are left:
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - BAD_CTLR_HNDL: the connection's controller was released.
    /// - BAD_SGIO: there are no entries, or an entry's handle is invalid, freed, or of another
    ///   controller.
    /// - CONN_ABORTED: the exporter took the segment back or ended, before or during the call.
    /// - PERM_DENIED: the connection may not write, or the exporter's adapter refused the access.
    /// - BAD_ADDR: the local memory does not allow the access.
    /// - BAD_OFFSET, BAD_LENGTH: an entry leaves its local memory or the segment.
    /// - INSUFFICIENT_RESOURCES: memory cannot be registered, or tables are exhausted.
    /// - BARRIER_FAILURE: a transfer failed; the connection recovers by itself.
    /// - INTERRUPTED: `wait` was interrupted; no transfer touches the caller's memory from now on.
    /// - REMOTE_NODE_UNREACHABLE with residual 0: the signal failed.
    ///
    /// Spec: RSMPV-01..06, RSMPV-08..15, RSMPV-20..22, RSMPV-30..35, RSMPV-40..45, RSMPV-50..61,
    /// RSMPV-70..75, RSMPV-80..84
    pub fn putv<W: Wait>(
        &self,
        import: ImportId,
        entries: &[PutEntry<'_>],
        flags: VectorFlags,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let options = CallOptions {
            direction: Direction::Put,
            flags,
            single: false,
            waited: true,
        };
        self.run(import, Puts(entries), options, wait)
    }

    /// Scatters a segment to local memory, in the order of the entries.
    ///
    /// As [`putv`](Self::putv), in the other direction. A target is undefined until its entry
    /// counts as completed.
    ///
    /// # Errors
    /// As `putv`, where PERM_DENIED means that the connection may not read.
    ///
    /// Spec: RSMPV-01..06, RSMPV-08..15, RSMPV-20..22, RSMPV-30..35, RSMPV-40..45, RSMPV-50..61,
    /// RSMPV-70..75, RSMPV-80..84
    pub fn getv<W: Wait>(
        &self,
        import: ImportId,
        entries: &mut [GetEntry<'_>],
        flags: VectorFlags,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let options = CallOptions {
            direction: Direction::Get,
            flags,
            single: false,
            waited: true,
        };
        self.run(import, Gets(entries), options, wait)
    }

    /// Runs a call to its end.
    pub(crate) fn run<W: Wait, E: Entries>(
        &self,
        import: ImportId,
        entries: E,
        options: CallOptions,
        wait: &mut W,
    ) -> core::result::Result<(), VectorError> {
        let count = entries.count();
        let mut vector = self.begin(import, entries, &options)?;
        let (flight, controller) = (vector.flight, vector.controller);
        let outcome = self.wait_for(Some(controller), None, wait, |_| vector.advance().map(Ok));
        match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.quiesce(flight, controller, wait);
                let residual = count.saturating_sub(vector.known());
                Err(VectorError {
                    error,
                    residual,
                    count,
                })
            }
        }
    }

    /// Checks the call as a whole, in the interface's order, and reserves its flight.
    pub(crate) fn begin<'r, E: Entries>(
        &'r self,
        import: ImportId,
        entries: E,
        options: &CallOptions,
    ) -> core::result::Result<Vector<'r, 's, B, L, E>, VectorError> {
        let count = entries.count();
        let begun = self.state.with(|state| {
            let slot = import_at(state, import)?;
            let (controller, generation) = (slot.controller, slot.generation);
            let port = self.port_of(state, controller)?;
            let pz = state.ports.get(port).and_then(|port| port.ids());
            let pz = pz.ok_or(RsmError::BadControllerHandle)?.pz;
            if count == 0 {
                return Err(RsmError::BadScatterGather);
            }
            let slot = import_at(state, import)?;
            if slot.state == ImportState::Aborted {
                return Err(RsmError::ConnectionAborted);
            }
            if !slot.permission.contains(options.direction.needed()) {
                return Err(RsmError::PermissionDenied);
            }
            let epochs = (generation, slot.key_epoch, slot.failures);
            let explicit = slot.mode == BarrierMode::Explicit;
            let first_phase = match slot.non_coherent {
                true => Phase::Asking,
                false => Phase::Moving,
            };
            let mut flight = Flight::new(slot.node);
            if !options.waited {
                flight.import = import.handle();
            }
            let flight = state.begin_flight(flight)?;
            state.ticks = state.ticks.saturating_add(1);
            let ticket = state.ticks;
            if options.waited {
                state.for_each_local(&entries, ticket, |local| local.begin_use(ticket));
                let slot = import_at(state, import)?;
                slot.calls = slot.calls.saturating_add(1);
            }
            let modes = (explicit, first_phase);
            Ok((controller, port, pz, epochs, modes, (flight, ticket)))
        });
        let refused = |error| VectorError {
            error,
            residual: count,
            count,
        };
        let (controller, port, pz, epochs, (explicit, first_phase), (flight, ticket)) =
            begun.map_err(refused)?;
        let (generation, key_epoch, failures) = epochs;
        let port = self
            .ports
            .get(port)
            .ok_or(refused(RsmError::InternalError))?;
        Ok(Vector {
            engine: self,
            port,
            pins: Pins::new(&port.ia),
            entries,
            pz,
            controller,
            direction: options.direction,
            import,
            flight,
            ticket,
            waited: options.waited,
            explicit,
            flags: options.flags,
            single: options.single,
            generation,
            key_epoch,
            failures,
            locals: [(0, 0); WINDOW],
            next: 0,
            part: 0,
            stop: None,
            phase: first_phase,
            first_phase,
            has_posted: false,
            attempts: 0,
            visible: 0,
            covered: 0,
        })
    }

    /// Waits until no request of a call is pending; after [`QUIET`], ends their links.
    ///
    /// The interruption that ended the call may last, and must not end this wait, too.
    ///
    /// Spec: RSMPV-83
    fn quiesce<W: Wait>(&self, flight: Handle, controller: ControllerId, wait: &mut W) {
        self.state.with(|state| state.take_question_back(flight));
        let pending = || {
            self.state.with(|state| {
                let flight = state.flights.get(flight);
                flight.is_some_and(|flight| flight.pending != 0 || flight.question.is_some())
            })
        };
        let until = wait.now().after(QUIET.min(self.options.connect_timeout));
        let deaf = &mut Deaf::new(wait);
        let idle = self.wait_for(Some(controller), until, deaf, |_| {
            (!pending()).then_some(Ok(()))
        });
        if idle.is_err() && pending() {
            self.sever(flight, wait.now());
        }
    }
}
