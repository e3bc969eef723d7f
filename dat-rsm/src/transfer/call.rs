//! Calls that move a vector and wait for it.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use super::entry::{Entries, Gets, Puts};
use super::pins::Pins;
use super::vector::{Phase, Vector};
use super::{Direction, GetEntry, PutEntry, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::error::RsmError;
use crate::export::access::Permission;
use crate::id::{ControllerId, Handle, ImportId};
use crate::import::{BarrierMode, ImportState, import_at};
use crate::transfer::flight::{Flight, WINDOW};

/// Microseconds that an interrupted call gives its transfers before it cuts them off.
const QUIET: u32 = 20_000;

/// How a call is made.
pub(crate) struct Manner {
    pub(crate) direction: Direction,
    pub(crate) flags: VectorFlags,
    pub(crate) single: bool,
    /// Whether the call ends before its caller goes on: others wait for it then. Who forgets a call keeps nobody waiting.
    pub(crate) waited: bool,
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// Gathers pieces of local memory into a segment, in the order of the entries.
    ///
    /// In implicit mode all of it is in the exporter's memory, and visible there, when the call returns. In explicit
    /// mode all of it is on the way; closing a barrier says how it went. Immediate entries are waited for in both, because
    /// they are registered for the call alone. Any number of entries is taken.
    ///
    /// In implicit mode an entry that shares bytes with an earlier one waits for it, where the segment is memory of this
    /// process too; others are on the way together. Sharing is found by address: memory that is mapped twice, or by
    /// another process, counts as different memory, and needs a call for each step.
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
            single: false,
            waited: true,
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
            single: false,
            waited: true,
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
                let residual = count.saturating_sub(vector.known());
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
            let epochs = (generation, place.key_epoch, place.failures);
            let explicit = place.mode == BarrierMode::Explicit;
            let mut flight = Flight::new();
            if !manner.waited {
                flight.import = import.handle();
            }
            let flight = state.flights.insert(flight);
            let flight = flight.ok_or(RsmError::InsufficientResources)?;
            state.ticks = state.ticks.saturating_add(1);
            let ticket = state.ticks;
            if manner.waited {
                state.for_each_local(&entries, ticket, |local| local.hold(ticket));
                let place = import_at(state, import)?;
                place.calls = place.calls.saturating_add(1);
            }
            Ok((controller, port, pz, epochs, explicit, (flight, ticket)))
        });
        let (controller, port, pz, epochs, explicit, (flight, ticket)) =
            begun.map_err(|error| VectorError {
                error,
                residual: count,
                count,
            })?;
        let (generation, key_epoch, failures) = epochs;
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
            ticket,
            waited: manner.waited,
            explicit,
            flags: manner.flags,
            single: manner.single,
            generation,
            key_epoch,
            failures,
            locals: [(0, 0); WINDOW],
            next: 0,
            part: 0,
            stop: None,
            phase: Phase::Moving,
            attempts: 0,
            visible: 0,
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
