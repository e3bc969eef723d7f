//! Barriers: spans of transfers in which every failure is reported.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::{BarrierId, ImportId};
use crate::import::{Import, ImportState, import_at};

/// Scope asked of a barrier; every barrier covers its segment (`Spec: RSMBR-02`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BarrierScope {
    /// The segment.
    Segment,
    /// All transfers to the node of the segment; the default of the interface.
    #[default]
    Node,
    /// The segment, for the calling thread.
    SegmentThread,
    /// The node, for the calling thread.
    NodeThread,
}

/// State of the connection at the start of a span.
#[derive(Clone, Copy, Debug)]
struct Span {
    error_epoch: u32,
    generation: u32,
}

/// A barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    import: ImportId,
    span: Option<Span>,
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Makes a closed barrier for a connection, which may have several.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - INSUFFICIENT_RESOURCES: the table is full.
    ///
    /// Spec: RSMBR-01, RSMBR-02, RSMBR-03
    pub fn init_barrier(&self, import: ImportId, scope: BarrierScope) -> Result<BarrierId> {
        // Ignores the scope: every barrier covers the segment of its connection.
        let _wider = scope;
        self.state.with(|state| {
            import_at(state, import)?;
            let barrier = Barrier { import, span: None };
            let handle = state.barriers.insert(barrier);
            let handle = handle.ok_or(RsmError::InsufficientResources)?;
            let slot = import_at(state, import)?;
            slot.barriers = slot.barriers.saturating_add(1);
            Ok(BarrierId::from_handle(handle))
        })
    }

    /// Starts a span, or restarts it.
    ///
    /// A broken path does not fail the call; closing the barrier reports it.
    ///
    /// # Errors
    /// - BARRIER_UNINITIALIZED: `barrier` is no barrier.
    /// - BAD_SEG_HNDL: the barrier's connection is gone.
    ///
    /// Spec: RSMBR-04
    pub fn open_barrier(&self, barrier: BarrierId) -> Result<()> {
        self.state.with(|state| {
            let (_, import) = barrier_at(state, barrier)?;
            let span = Span {
                error_epoch: import.error_epoch,
                generation: import.generation,
            };
            if let Some(barrier) = state.barriers.get_mut(barrier.handle()) {
                barrier.span = Some(span);
            }
            Ok(())
        })
    }

    /// Ends a span: waits until its transfers are done and visible, and reports failures.
    ///
    /// Closes the barrier. If the call cannot find out, the span continues: after an interruption,
    /// and without a free call slot.
    ///
    /// # Errors
    /// - BARRIER_UNINITIALIZED: `barrier` is no barrier.
    /// - BAD_SEG_HNDL: the barrier's connection is gone.
    /// - BARRIER_NOT_OPENED: no span has started.
    /// - CONN_ABORTED: the segment was taken back during the span.
    /// - BARRIER_FAILURE: a transfer of the span or the path to the node failed; repeat all
    ///   transfers of the span.
    /// - INSUFFICIENT_RESOURCES: the table of calls is full; the span continues.
    /// - INTERRUPTED: `wait` was interrupted; the span continues.
    ///
    /// Spec: RSMBR-05, RSMBR-06, RSMBR-08, RSMBR-09, RSMBR-11, RSMBR-12, RSMST-01
    pub fn close_barrier<W: Wait>(&self, barrier: BarrierId, wait: &mut W) -> Result<()> {
        let outcome = self.finish_span(barrier, wait);
        let no_verdict = [RsmError::Interrupted, RsmError::InsufficientResources];
        if !outcome.is_err_and(|error| no_verdict.contains(&error)) {
            self.state.with(|state| {
                if let Some(barrier) = state.barriers.get_mut(barrier.handle()) {
                    barrier.span = None;
                }
            });
        }
        outcome
    }

    /// Orders transfers: earlier writes are visible before later transfers start.
    ///
    /// The span continues.
    ///
    /// # Errors
    /// As [`close_barrier`](Self::close_barrier).
    ///
    /// Spec: RSMBR-07, RSMBR-08, RSMBR-11
    pub fn order_barrier<W: Wait>(&self, barrier: BarrierId, wait: &mut W) -> Result<()> {
        self.finish_span(barrier, wait)
    }

    fn finish_span<W: Wait>(&self, barrier: BarrierId, wait: &mut W) -> Result<()> {
        let (import, span) = self.attempt(|state| {
            let (barrier, _) = barrier_at(state, barrier)?;
            Ok((
                barrier.import,
                barrier.span.ok_or(RsmError::BarrierNotOpened)?,
            ))
        })?;
        let verdict = |import: &Import| {
            if import.generation != span.generation || import.state == ImportState::Aborted {
                Err(RsmError::ConnectionAborted)
            } else if import.error_epoch != span.error_epoch {
                Err(RsmError::BarrierFailure)
            } else {
                Ok(())
            }
        };
        let drained = self.quiet(import, wait);
        let outcome = self.state.with(|state| {
            let import = state
                .imports
                .get_mut(import.handle())
                .ok_or(RsmError::BadSegmentHandle)?;
            verdict(import)
        });
        // The state of the connection takes precedence over the outcome of the read-back.
        outcome.and(drained)
    }

    /// Frees a barrier in any state, even if its connection is gone.
    ///
    /// # Errors
    /// BARRIER_UNINITIALIZED: `barrier` is no barrier.
    ///
    /// Spec: RSMBR-10
    pub fn destroy_barrier(&self, barrier: BarrierId) -> Result<()> {
        self.state.with(|state| {
            let removed = state.barriers.remove(barrier.handle());
            let removed = removed.ok_or(RsmError::BarrierUninitialized)?;
            if let Some(import) = state.imports.get_mut(removed.import.handle()) {
                import.barriers = import.barriers.saturating_sub(1);
            }
            Ok(())
        })
    }
}

/// Returns a live barrier and its connection.
fn barrier_at(state: &mut State, barrier: BarrierId) -> Result<(Barrier, &mut Import)> {
    let slot = *state
        .barriers
        .get(barrier.handle())
        .ok_or(RsmError::BarrierUninitialized)?;
    Ok((slot, import_at(state, slot.import)?))
}
