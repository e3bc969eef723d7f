//! State that is open after faults, and its duration.
//!
//! - In implicit mode, entries counted as done are in memory, including those before a failed one
//!   (RSMPV-54, RSMPV-56). Of the others, each byte of the target has its old or its new value; no
//!   other byte changes.
//! - In explicit mode, data may be missing if the link lost something before the run was idle,
//!   unless a barrier that covers it was closed with success (RSMBR-05).
//! - An aborted connection stays aborted (RSMST-03). No node reaches a segment that was
//!   unpublished, even if the message that says so did not arrive (RSMPB-21).
//! - A signal may be missing if its link lost something while it was on the way. No signal arrives
//!   that was not posted.

use std::ops::Range;

use super::*;
use crate::rsm::damage::{Call, Kind, Link, kind as kind_of};
use crate::rsm::signals::Signals;

/// Bytes that may still have their old value.
#[derive(Debug)]
struct OldBytes {
    link: Link,
    import: (Side, usize),
    /// Number of the call that began the transfer.
    begun: u64,
    to: (Memory, Range<usize>),
    was: Vec<u8>,
    /// Set if that does not depend on losses of the link.
    failed: bool,
}

/// Range of a buffer, and its bytes before the call.
type OldRange = ((Memory, Range<usize>), Vec<u8>);

/// Signal on the way: its segment, the signals before it, and its link.
#[derive(Debug)]
struct Sent {
    segment: (Side, usize),
    export: bool,
    before: Signals,
    link: Link,
}

/// Open state until the run is idle.
#[derive(Debug)]
pub(super) struct Doubt {
    old_bytes: Vec<OldBytes>,
    sent: Vec<Sent>,
    calls: u64,
    /// State of the oracle before the call.
    before: World,
}

/// Completed transfer.
pub(super) struct EndedTransfer<'p> {
    pub(super) name: &'static str,
    pub(super) side: Side,
    pub(super) index: Option<usize>,
    pub(super) put: bool,
    pub(super) iov: &'p [IovEntry],
    /// Set if a signal follows; true if it does not accumulate.
    pub(super) signal: Option<bool>,
    /// Error, and number of entries left.
    pub(super) outcome: Result<(), (RsmError, usize)>,
}

/// Progress of an entry of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Not begun.
    Nowhere,
    /// Possibly begun, and possibly moved.
    Begun,
    /// Begun; the result comes later.
    Accepted,
    Done,
}

impl Doubt {
    pub(super) fn new(world: &World) -> Self {
        Self {
            old_bytes: Vec::new(),
            sent: Vec::new(),
            calls: 0,
            before: world.clone(),
        }
    }

    /// Returns true if a failed call may have moved data.
    pub(super) fn has_failed(&self) -> bool {
        self.old_bytes.iter().any(|old| old.failed)
    }
}

impl Runner {
    pub(super) fn begin_call(&mut self) -> Outcome {
        self.process_reports()?;
        self.doubt.calls += 1;
        self.doubt.before.clone_from(&self.world);
        Ok(())
    }

    /// Restores the oracle: the call had no effect.
    fn restore_oracle(&mut self) {
        self.world.clone_from(&self.doubt.before);
    }

    /// Returns the link of a connection.
    pub(super) fn link_of(&self, side: Side, index: Option<usize>) -> Option<Link> {
        let import = index.and_then(|index| self.world.node(side).imports.get(index))?;
        Some(Link {
            importer: side,
            exporter: import.exporter,
        })
    }

    /// Returns the link of a barrier's connection.
    pub(super) fn link_of_barrier(&self, side: Side, index: Option<usize>) -> Option<Link> {
        let barrier = index.and_then(|index| self.world.node(side).barriers.get(index))?;
        self.link_of(side, Some(barrier.import))
    }

    /// Returns true if a failure may be due to faults.
    pub(super) fn excuse(&mut self, call: Call, import: Option<usize>, error: RsmError) -> bool {
        if error == RsmError::ConnectionAborted {
            // The connection's own report decides if it may be aborted. If it was aborted before
            // the call, the oracle knows.
            let is_aborted = |world: &World| {
                let import = import.and_then(|at| world.node(call.side).imports.get(at));
                import.is_some_and(|import| import.aborted)
            };
            let since = is_aborted(&self.world) && !is_aborted(&self.doubt.before);
            return call.kind.ends_with_connection() && since;
        }
        self.damage.excuses(&call, error)
    }

    /// Compares the result of a call on a link; returns the value of a success.
    pub(super) fn judge_on<T: fmt::Debug>(
        &mut self,
        side: Side,
        name: &str,
        (link, import): (Option<Link>, Option<usize>),
        expected: Expected,
        actual: Result<T, RsmError>,
    ) -> Outcome<Option<T>> {
        self.process_reports()?;
        if self.endless.get() {
            return self.mismatch("a call that ends", "endless waiting");
        }
        let error = actual.as_ref().err().copied();
        if expected.err() != error {
            let call = Call {
                kind: kind_of(name),
                side,
                link,
                since: self.damage.idle_since(),
            };
            let Some(error) = error.filter(|error| self.excuse(call, import, *error)) else {
                return self.mismatch(expected, actual);
            };
            self.restore_oracle();
            self.process_reports()?;
            self.note_excuse(name, error);
        }
        self.count(name, actual.is_ok());
        Ok(actual.ok())
    }

    pub(super) fn count(&mut self, name: &str, done: bool) {
        self.tally.entry(name.into()).or_default()[usize::from(!done)] += 1;
    }

    fn note_excuse(&mut self, name: &str, error: RsmError) {
        let counts = self.tally.entry(format!("{name}: {error:?}")).or_default();
        counts[1] += 1;
    }

    /// Processes the reports of the fabric and the connection states of the engines.
    pub(super) fn process_reports(&mut self) -> Outcome {
        let happened = self.fabric.happened();
        self.damage.process_reports(&happened);
        if self.damage.now() == 0 {
            return Ok(());
        }
        for side in [Side::A, Side::B] {
            let imports = self.world.node(side).imports.live();
            let all: Vec<(usize, Handle)> = imports.map(|(at, handle, _)| (at, handle)).collect();
            for (index, handle) in all {
                let state = self.on(side, |engine, _| {
                    engine.import_state(ImportId::from_handle(handle))
                });
                self.check_import_state(side, index, state)?;
            }
        }
        Ok(())
    }

    fn check_import_state(
        &mut self,
        side: Side,
        index: usize,
        state: Result<ImportState, RsmError>,
    ) -> Outcome {
        let Some(link) = self.link_of(side, Some(index)) else {
            return Ok(());
        };
        let (may_abort, lasts) = (self.damage.may_abort(link), self.damage.lasts(link));
        let Some(import) = self.world.node_mut(side).imports.get_mut(index) else {
            return Ok(());
        };
        match state {
            Ok(ImportState::Aborted) if import.aborted || import.revoked || may_abort => {
                (import.aborted, import.reported, import.revoked) = (true, true, false);
            }
            Ok(ImportState::Connected) if !import.reported => {
                // The abort was not reported yet; with a lasting fault it may never be.
                if import.aborted && lasts {
                    (import.aborted, import.revoked) = (false, true);
                }
            }
            state => return self.mismatch(("a connection", index, "of", side, link), state),
        }
        Ok(())
    }

    /// Accepts old values of open bytes, and marks signals that may be lost.
    pub(super) fn resolve_doubt(&mut self) {
        for old in std::mem::take(&mut self.doubt.old_bytes) {
            let (Memory::Pages(side) | Memory::Local(side)) = old.to.0 else {
                continue;
            };
            if !old.failed && !self.damage.may_lose(old.link) {
                continue;
            }
            let actual = load(&self.memory[side.index()][kind(old.to.0)][old.to.1.clone()]);
            let known = &mut self.world.memory(old.to.0, &mut [])[old.to.1];
            for ((known, actual), was) in known.iter_mut().zip(actual).zip(old.was) {
                if actual == was {
                    *known = actual;
                }
            }
        }
        for sent in std::mem::take(&mut self.doubt.sent) {
            if !self.damage.may_lose(sent.link) {
                continue;
            }
            let (side, index) = sent.segment;
            if let Some(signals) = self.world.signals(side, index, sent.export) {
                signals.doubt_since(sent.before);
            }
        }
    }

    /// Posts a signal of an import.
    ///
    /// After a failure it may be missing, whatever the link's state.
    pub(super) fn send_to_exporter(
        &mut self,
        side: Side,
        index: Option<usize>,
        no_accumulate: bool,
        failed: bool,
    ) -> Expected {
        let found = self.link_of(side, index);
        let import = index.and_then(|index| self.world.node(side).imports.get(index));
        let export = import.map(|import| import.export);
        let (Some(link), Some(export)) = (found, export) else {
            return self.world.post_to_exporter(side, index, no_accumulate);
        };
        let before = self.world.signals(link.exporter, export, true).copied();
        let outcome = if failed {
            // It may have arrived, even if the connection was aborted since.
            let signals = self.world.signals(link.exporter, export, true);
            if let (Some(signals), Some(before)) = (signals, before) {
                signals.count(no_accumulate);
                signals.doubt_since(before);
            }
            Ok(())
        } else {
            self.world.post_to_exporter(side, index, no_accumulate)
        };
        if let Some(before) = before {
            self.doubt.sent.push(Sent {
                segment: (link.exporter, export),
                export: true,
                before,
                link,
            });
        }
        outcome
    }

    /// Posts a signal of an export to all importers.
    pub(super) fn send_to_importers(
        &mut self,
        side: Side,
        index: Option<usize>,
        no_accumulate: bool,
    ) -> Expected {
        for importer in [Side::A, Side::B] {
            for (at, _, import) in self.world.node(importer).imports.live() {
                let link = Link {
                    importer,
                    exporter: side,
                };
                if (import.exporter, Some(import.export)) == (side, index) {
                    self.doubt.sent.push(Sent {
                        segment: (importer, at),
                        export: false,
                        before: import.signals,
                        link,
                    });
                }
            }
        }
        self.world.post_to_importers(side, index, no_accumulate)
    }

    pub(super) fn note_open_barrier(&mut self, side: Side, index: Option<usize>) {
        let (since, begun) = (self.damage.now(), self.doubt.calls);
        let barriers = &mut self.world.node_mut(side).barriers;
        if let Some(barrier) = index.and_then(|index| barriers.get_mut(index)) {
            (barrier.since, barrier.begun) = (since, begun);
        }
    }

    /// Judges the end of a span, or an order within it.
    ///
    /// Spec: RSMBR-05, RSMBR-07, RSMBR-08, RSMBR-09
    pub(super) fn judge_span(
        &mut self,
        side: Side,
        index: Option<usize>,
        close: bool,
        actual: Result<(), RsmError>,
    ) -> Outcome {
        self.process_reports()?;
        let name = if close {
            "close_barrier"
        } else {
            "order_barrier"
        };
        let link = self.link_of_barrier(side, index);
        let barrier = index.and_then(|index| self.world.node(side).barriers.get(index));
        let span = barrier.map(|barrier| (barrier.import, barrier.since, barrier.begun));
        let mut expected = self.world.barrier_end(side, index, close);
        let (Some(link), Some((import, since, begun))) = (link, span) else {
            self.judge(side, name, expected, actual)?;
            return Ok(());
        };
        if self.endless.get() {
            return self.mismatch("a call that ends", "endless waiting");
        }
        if expected.is_ok() && self.damage.broke(link, since) {
            expected = Err(RsmError::BarrierFailure);
        }
        if let Err(error) = actual
            && Err(error) != expected
        {
            let call = Call {
                kind: Kind::Span,
                side,
                link: Some(link),
                since,
            };
            let opened = expected != Err(RsmError::BarrierNotOpened);
            // A missed wake-up excuses the call only while it waits.
            let asleep = error == RsmError::Interrupted;
            let since = if asleep {
                self.damage.idle_since()
            } else {
                since
            };
            if !(opened && self.excuse(Call { since, ..call }, Some(import), error)) {
                return self.mismatch(expected, actual);
            }
            if asleep {
                // The span continues.
                self.restore_oracle();
                self.process_reports()?;
            }
            self.note_excuse(name, error);
        } else if actual != expected {
            return self.mismatch(expected, actual);
        }
        self.count(name, actual.is_ok());
        if actual.is_ok() {
            self.confirm_transfers(side, import, begun, close);
        }
        Ok(())
    }

    /// Marks all transfers of a connection since a call as done.
    ///
    /// Before the barrier is closed this holds for writes only.
    fn confirm_transfers(&mut self, side: Side, import: usize, begun: u64, close: bool) {
        let covered = |old: &OldBytes| {
            let read = matches!(old.to.0, Memory::Local(_));
            old.import == (side, import) && old.begun >= begun && !old.failed && (close || !read)
        };
        self.doubt.old_bytes.retain(|old| !covered(old));
    }

    /// Judges a transfer, and carries it out on the oracle.
    pub(super) fn judge_transfer(
        &mut self,
        ended: &EndedTransfer<'_>,
        plan: &Plan,
        mut expected: Vec<Vec<u8>>,
        buffers: &[Vec<u8>],
    ) -> Outcome {
        self.process_reports()?;
        let &EndedTransfer {
            name,
            side,
            index,
            outcome,
            ..
        } = ended;
        if self.endless.get() {
            return self.mismatch("a call that ends", "endless waiting");
        }
        let link = self.link_of(side, index);
        let import = index.and_then(|at| self.world.node(side).imports.get(at));
        let revoked = import.is_some_and(|import| import.revoked);
        let mut refused = false;
        if outcome != plan.outcome {
            let Err((error, residual)) = outcome else {
                return self.mismatch(plan.outcome, outcome);
            };
            let call = Call {
                kind: Kind::Transfer {
                    signal: ended.signal.is_some(),
                },
                side,
                link,
                since: self.damage.idle_since(),
            };
            let revoked_error = revoked
                && matches!(
                    error,
                    RsmError::PermissionDenied | RsmError::ConnectionAborted
                );
            refused = error == RsmError::InsufficientResources;
            let fits = self.residual_fits(ended, plan, error, residual);
            if !(fits && (revoked_error || self.excuse(call, index, error))) {
                return self.mismatch(plan.outcome, outcome);
            }
            self.note_excuse(name, error);
        }
        if outcome.is_ok() && revoked && !plan.explicit && !plan.moves.is_empty() {
            return self.mismatch("an error: the segment was unpublished", outcome);
        }
        self.count(name, outcome.is_ok());
        if ended.put && buffers != expected {
            return self.mismatch(expected, buffers);
        }
        if revoked {
            return self.compare_buffers(&expected, buffers, &[]);
        }
        let old_bytes = self.move_bytes(ended, plan, refused, &mut expected);
        self.compare_buffers(&expected, buffers, &old_bytes)?;
        let left = outcome.map_or_else(|(_, residual)| residual, |()| 0);
        if let (Some(no_accumulate), 0, Ok(())) = (ended.signal, left, plan.outcome) {
            let failed = outcome.is_err();
            let posted = self.send_to_exporter(side, index, no_accumulate, failed);
            posted.or_else(|error| self.mismatch("a connection", error))?;
        }
        Ok(())
    }

    /// Returns true if this number of entries may be left.
    ///
    /// Spec: RSMPV-52, RSMPV-54, RSMPV-74
    fn residual_fits(
        &self,
        ended: &EndedTransfer<'_>,
        plan: &Plan,
        error: RsmError,
        residual: usize,
    ) -> bool {
        let count = ended.iov.len();
        let least = match (plan.outcome, error) {
            (Err((_, residual)), _) => residual,
            // All was done when the wait for the end, or for the signal, was interrupted.
            (Ok(()), RsmError::Interrupted) => 0,
            // Only the signal is left, and the residual is 0.
            (Ok(()), RsmError::RemoteNodeUnreachable) => return residual == 0,
            (Ok(()), RsmError::ConnectionAborted) if ended.signal.is_some() => 0,
            (Ok(()), _) => 1,
        };
        (least..=count).contains(&residual)
    }

    /// Moves bytes in the oracle; returns buffer bytes that may be unchanged.
    fn move_bytes(
        &mut self,
        ended: &EndedTransfer<'_>,
        plan: &Plan,
        refused: bool,
        expected: &mut [Vec<u8>],
    ) -> Vec<OldRange> {
        let mut old_bytes = Vec::new();
        let (Some(index), Some(link)) = (ended.index, self.link_of(ended.side, ended.index)) else {
            return old_bytes;
        };
        let accepted = match ended.outcome {
            Ok(()) => ended.iov.len(),
            Err((_, residual)) => ended.iov.len() - residual,
        };
        let lossy = self.damage.may_lose(link);
        for step in &plan.moves {
            let reach = match step.entry < accepted {
                true if plan.explicit => Reach::Accepted,
                true => Reach::Done,
                false if refused => Reach::Nowhere,
                false => Reach::Begun,
            };
            if reach == Reach::Nowhere {
                continue;
            }
            let (from, to) = if ended.put {
                (&step.local, &step.remote)
            } else {
                (&step.remote, &step.local)
            };
            let bytes = self.world.memory(from.0, expected)[from.1.clone()].to_vec();
            let target = &mut self.world.memory(to.0, expected)[to.1.clone()];
            let was = target.to_vec();
            target.copy_from_slice(&bytes);
            let failed = reach == Reach::Begun;
            match to.0 {
                _ if reach == Reach::Done => {}
                Memory::Buffer(_) if failed || lossy => old_bytes.push((to.clone(), was)),
                Memory::Buffer(_) => {}
                Memory::Pages(_) | Memory::Local(_) => self.doubt.old_bytes.push(OldBytes {
                    link,
                    import: (ended.side, index),
                    begun: self.doubt.calls,
                    to: to.clone(),
                    was,
                    failed,
                }),
            }
        }
        old_bytes
    }

    /// Compares the buffers of a call, except bytes that may have their old value.
    fn compare_buffers(
        &self,
        expected: &[Vec<u8>],
        buffers: &[Vec<u8>],
        old_bytes: &[OldRange],
    ) -> Outcome {
        for (index, (known, actual)) in expected.iter().zip(buffers).enumerate() {
            for at in 0..known.len() {
                let was = |((memory, range), was): &OldRange| {
                    *memory == Memory::Buffer(index)
                        && range.contains(&at)
                        && was[at - range.start] == actual[at]
                };
                if known[at] != actual[at] && !old_bytes.iter().any(was) {
                    return self.mismatch(known, actual);
                }
            }
        }
        Ok(())
    }

    /// Checks that all objects which the controllers allow can be created again.
    pub(super) fn check_tables(&mut self) -> Outcome {
        for side in [Side::A, Side::B] {
            if self.damage.is_dead(side) {
                continue;
            }
            let mut wanted = 1 + world::MOST_LOCALS + world::MOST_EXPORTS;
            let mut controller = ControllerId::NULL;
            while wanted != 0 {
                let memory = Region::from_static(&self.memory[side.index()][1][..8]);
                let page = self.pages(side, 0, PAGE);
                let made = self.on(side, |engine, _| {
                    if wanted > world::MOST_LOCALS + world::MOST_EXPORTS {
                        let got = engine.get_controller(Some(CONTROLLER));
                        got.map(|got| controller = got)
                    } else if wanted > world::MOST_EXPORTS {
                        let access = LocalAccess::ReadWrite;
                        let made = engine.create_local_memory(controller, memory, access);
                        made.map(drop)
                    } else {
                        let flags = ExportFlags::empty();
                        let made = engine.export_create(controller, page, flags);
                        made.map(drop)
                    }
                });
                let name = if wanted > world::MOST_LOCALS + world::MOST_EXPORTS {
                    "get_controller"
                } else {
                    "create_local_memory"
                };
                let made = self.judge(side, name, Ok(()), made)?;
                wanted -= usize::from(made.is_some());
            }
        }
        Ok(())
    }
}
