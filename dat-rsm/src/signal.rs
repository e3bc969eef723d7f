//! Signals: events without data, counted at each segment.

use bitflags::bitflags;
use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::export_at;
use crate::flight::{Flight, Step};
use crate::id::{ExportId, Handle, ImportId, Kind};
use crate::import::{Attach, ImportState, import_at};
use crate::wire::Body;

bitflags! {
    /// Options of a signal; unknown bits are ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SignalFlags: u32 {
        /// The signal is dropped if one is pending at its target (`Spec: RSMSG-04`).
        const NO_ACCUMULATE = 0x02;
        const _ = !0;
    }
}

/// A segment on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHandle {
    /// Exported.
    Export(ExportId),
    /// Imported.
    Import(ImportId),
}

impl SegmentHandle {
    /// Converts a handle by the kind that it claims; `None` if that is no segment.
    pub const fn from_handle(handle: Handle) -> Option<Self> {
        if handle.is_kind(Kind::Export) {
            Some(Self::Export(ExportId::from_handle(handle)))
        } else if handle.is_kind(Kind::Import) {
            Some(Self::Import(ImportId::from_handle(handle)))
        } else {
            None
        }
    }

    /// Returns the handle without its kind in the type.
    pub const fn handle(self) -> Handle {
        match self {
            Self::Export(export) => export.handle(),
            Self::Import(import) => import.handle(),
        }
    }
}

impl From<ExportId> for SegmentHandle {
    fn from(export: ExportId) -> Self {
        Self::Export(export)
    }
}

impl From<ImportId> for SegmentHandle {
    fn from(import: ImportId) -> Self {
        Self::Import(import)
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Posts a signal from an import to its exporter, or an export to its importers.
    ///
    /// An import's signal has arrived when the call returns. An export's signals are queued for all
    /// current importers that are reachable, if any. Writes that completed before are visible to
    /// the taker of the signal.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `segment` is no segment.
    /// - CONN_ABORTED: the import's exporter took the segment back or ended. The signal may have
    ///   arrived if the exporter's process ended.
    /// - REMOTE_NODE_UNREACHABLE: the path to the exporter broke; the signal may have arrived.
    /// - INTERRUPTED: `wait` was interrupted; the signal may have arrived.
    /// - INSUFFICIENT_RESOURCES: tables are exhausted.
    ///
    /// Spec: RSMSG-01, RSMSG-03, RSMSG-05, RSMSG-06
    pub fn signal_post<W: Wait>(
        &self,
        segment: impl Into<SegmentHandle>,
        flags: SignalFlags,
        wait: &mut W,
    ) -> Result<()> {
        let no_accumulate = flags.contains(SignalFlags::NO_ACCUMULATE);
        match segment.into() {
            SegmentHandle::Import(import) => self.post_to_exporter(import, no_accumulate, wait),
            SegmentHandle::Export(export) => self.post_to_importers(export, no_accumulate),
        }
    }

    fn post_to_importers(&self, export: ExportId, no_accumulate: bool) -> Result<()> {
        self.state.with(|state| {
            let Some(publication) = &export_at(state, export)?.publication else {
                return Ok(());
            };
            let publication = publication.number;
            // One message to each node signals all of its connections (RSMSG-03).
            let mut from = 0;
            while let Some((at, link)) = state.links.find_from(from, crate::link::Link::is_up) {
                from = at.saturating_add(1);
                let of_link = |importer: &crate::importer::Importer| {
                    importer.link == link && importer.export == export.handle()
                };
                if state.importers.find(of_link).is_some() {
                    let body = Body::SignalImporters {
                        publication,
                        no_accumulate,
                    };
                    self.tell(state, link, body);
                }
            }
            Ok(())
        })
    }

    fn post_to_exporter<W: Wait>(
        &self,
        import: ImportId,
        no_accumulate: bool,
        wait: &mut W,
    ) -> Result<()> {
        let (controller, generation, flight) = self.attempt(|state| {
            let slot = import_at(state, import)?;
            if slot.state == ImportState::Aborted {
                return Err(RsmError::ConnectionAborted);
            }
            let (controller, generation) = (slot.controller, slot.generation);
            let flight = Flight::new(slot.node);
            let flight = state.begin_flight(flight)?;
            let slot = import_at(state, import)?;
            slot.calls = slot.calls.saturating_add(1);
            Ok((controller, generation, flight))
        })?;
        let mut reported = false;
        let outcome = self.wait_for(Some(controller), None, wait, |_| {
            self.state.with(|state| {
                let (is_aborted, lost) = {
                    let slot = state.imports.get_mut(import.handle())?;
                    let is_aborted = slot.generation != generation;
                    (is_aborted, slot.attach == Attach::Detached)
                };
                let flight_step = state.flights.get(flight).map(|flight| flight.step);
                match flight_step {
                    // Also if the exporter has taken the segment back since.
                    Some(Step::Done) => Some(Ok(())),
                    Some(Step::Failed(_)) if is_aborted => Some(Err(RsmError::ConnectionAborted)),
                    _ if is_aborted && reported => None,
                    _ if is_aborted => Some(Err(RsmError::ConnectionAborted)),
                    // The link broke with the signal on it. The outcome is decided once the
                    // exporter has reconnected or is given up.
                    Some(Step::Failed(_)) if lost => None,
                    Some(Step::Failed(_)) => {
                        attached(state, import).map(|_| Err(state.signal_lost(import)))
                    }
                    _ if reported => None,
                    _ => {
                        let (link, importer) = attached(state, import)?;
                        if !state.takes_signal(flight, link) {
                            return None;
                        }
                        self.announce(state, import, link);
                        let body = Body::Signal {
                            importer,
                            no_accumulate,
                        };
                        state.say(
                            &self.ports,
                            link,
                            body,
                            import.handle(),
                            flight,
                            &self.options,
                        );
                        reported = true;
                        None
                    }
                }
            })
        });
        self.state.with(|state| {
            state.flights.remove(flight);
            if let Some(slot) = state.imports.get_mut(import.handle()) {
                slot.calls = slot.calls.saturating_sub(1);
            }
        });
        self.tell_change();
        outcome
    }

    /// Takes a pending signal of a segment; returns false if there is none.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `segment` is no segment.
    /// - CONN_ABORTED: no signal is pending, and the import is aborted.
    ///
    /// Spec: RSMSG-02, RSMSG-08
    pub fn signal_take(&self, segment: impl Into<SegmentHandle>) -> Result<bool> {
        let segment = segment.into();
        self.state.with(|state| take_signal(state, segment))
    }

    /// Waits for a signal of a segment and takes it; one signal ends one wait.
    ///
    /// A deadline in the past polls once; `None` waits forever.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `segment` is no segment, or was removed during the wait.
    /// - CONN_ABORTED: the import is aborted, and no signal is left.
    /// - TIMEOUT: the deadline has passed.
    /// - INTERRUPTED: `wait` was interrupted.
    ///
    /// Spec: RSMSG-07, RSMSG-08
    pub fn signal_wait<W: Wait>(
        &self,
        segment: impl Into<SegmentHandle>,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<()> {
        let segment = segment.into();
        self.wait_for(None, deadline, wait, |_| {
            match self.state.with(|state| take_signal(state, segment)) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// Adds a poll reference, which keeps a segment from being destroyed or disconnected.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `segment` is no segment, or an export that is not published.
    ///
    /// Spec: RSMPF-01, RSMPF-02
    pub fn acquire_poll(&self, segment: impl Into<SegmentHandle>) -> Result<()> {
        let segment = segment.into();
        self.state.with(|state| {
            let published = match segment {
                SegmentHandle::Export(export) => export_at(state, export)?.publication.is_some(),
                SegmentHandle::Import(_) => true,
            };
            if !published {
                return Err(RsmError::BadSegmentHandle);
            }
            let references = poll_references(state, segment)?;
            *references = references.saturating_add(1);
            Ok(())
        })
    }

    /// Removes a poll reference, if there is one.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `segment` is no segment.
    ///
    /// Spec: RSMPF-03
    pub fn release_poll(&self, segment: impl Into<SegmentHandle>) -> Result<()> {
        let segment = segment.into();
        self.state.with(|state| {
            let references = poll_references(state, segment)?;
            *references = references.saturating_sub(1);
            Ok(())
        })
    }

    /// Returns true if a signal is pending; takes none.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `segment` is no segment.
    ///
    /// Spec: RSMPF-04
    pub fn signal_pending(&self, segment: impl Into<SegmentHandle>) -> Result<bool> {
        let segment = segment.into();
        self.state.with(|state| {
            Ok(match segment {
                SegmentHandle::Export(export) => export_at(state, export)?.signals != 0,
                SegmentHandle::Import(import) => import_at(state, import)?.signals != 0,
            })
        })
    }

    /// Waits for a signal of any segment; takes one of each segment that has one.
    ///
    /// Sets `ready` for these segments and returns their number. A segment that is gone counts as
    /// not ready; its handle is the caller's error.
    ///
    /// # Errors
    /// - BAD_ARGS_ERRORS: `ready` and `segments` have different lengths.
    /// - TIMEOUT: the deadline has passed; no signal was taken.
    /// - INTERRUPTED: `wait` was interrupted; no signal was taken.
    ///
    /// Spec: RSMPF-10, RSMPF-11, RSMPF-12
    pub fn signal_wait_any<W: Wait>(
        &self,
        segments: &[SegmentHandle],
        ready: &mut [bool],
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<usize> {
        if segments.len() != ready.len() {
            return Err(RsmError::BadArguments);
        }
        ready.fill(false);
        self.wait_for(None, deadline, wait, |_| {
            let taken = self.state.with(|state| {
                let mut taken = 0_usize;
                for (segment, ready) in segments.iter().zip(ready.iter_mut()) {
                    *ready = take_signal(state, *segment).unwrap_or(false);
                    taken = taken.saturating_add(usize::from(*ready));
                }
                taken
            });
            (taken != 0).then_some(Ok(taken))
        })
    }
}

fn attached(state: &mut State, import: ImportId) -> Option<(Handle, u64)> {
    let import = state.imports.get(import.handle())?;
    match import.attach {
        Attach::Attached(link) => Some((link, import.importer)),
        Attach::Detached | Attach::Requested(_) => None,
    }
}

fn take_signal(state: &mut State, segment: SegmentHandle) -> Result<bool> {
    let (signals, dead) = match segment {
        SegmentHandle::Export(export) => (&mut export_at(state, export)?.signals, false),
        SegmentHandle::Import(import) => {
            let import = import_at(state, import)?;
            let dead = import.state == ImportState::Aborted;
            (&mut import.signals, dead)
        }
    };
    match signals.checked_sub(1) {
        Some(left) => {
            *signals = left;
            Ok(true)
        }
        None if dead => Err(RsmError::ConnectionAborted),
        None => Ok(false),
    }
}

fn poll_references(state: &mut State, segment: SegmentHandle) -> Result<&mut u32> {
    Ok(match segment {
        SegmentHandle::Export(export) => &mut export_at(state, export)?.poll_references,
        SegmentHandle::Import(import) => &mut import_at(state, import)?.poll_references,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMSG-01, RSMGEN-05
    #[test]
    fn segment_handles_show_their_side() {
        for kind in [Kind::Export, Kind::Import, Kind::Controller, Kind::Barrier] {
            let handle = Handle::new(3, kind, 1, 2);
            let segment = SegmentHandle::from_handle(handle);
            assert_eq!(
                segment.map(SegmentHandle::handle),
                match kind {
                    Kind::Export | Kind::Import => Some(handle),
                    _ => None,
                }
            );
        }
        assert_eq!(SegmentHandle::from_handle(Handle::NULL), None);
        let garbage = Handle::from_raw(u64::MAX);
        assert_eq!(SegmentHandle::from_handle(garbage), None);
    }
}
