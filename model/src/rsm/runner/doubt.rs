//! With faults below, outcomes are open; what holds whatever goes wrong is kept here.
//!
//! - A call comes to its end. INTERRUPTED, which is when nothing would ever wake it, is one only if the plan loses completions or
//!   notifications, or kills a host.
//! - A call that needs the adapter may fail for the reasons that the catalogue has for that, and then nothing happened but what
//!   a transfer moved. One that needs no more than the engine's tables ends as it does without faults. What is to be refused is
//!   refused.
//! - What a call in implicit mode counts as done is in memory, also the entries before one that failed (RSMPV-54, RSMPV-56); what an explicit
//!   one began is there once a barrier that was open before is closed with success (RSMBR-05). Bytes that others may have
//!   changed are open (RSMPV-55) until something that is known is written there. All other bytes keep what they are.
//! - A connection that is aborted stays so (RSMST-03), and nobody reaches a segment that was taken back, whether the message that says
//!   so arrived or not (RSMPB-21).
//! - No more signals are taken than were posted.
//! - At the end controllers are released and can be had again, with all objects that they may have.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use backend_mock::{Fault, RemoteError};

use super::*;
use crate::rsm::faults::Faults;

/// Calls that need nothing but tables.
const LOCAL_CALLS: [&str; 8] = [
    "acquire_poll",
    "destroy_barrier",
    "export_publish",
    "export_republish",
    "init_barrier",
    "open_barrier",
    "release_poll",
    "set_mode",
];

/// Bytes that something in explicit mode may still change.
#[derive(Debug)]
struct Pending {
    /// The side and place of the connection.
    import: (usize, usize),
    /// The call that began it.
    begun: u64,
    to: (Memory, Range<usize>),
    /// Whether these are the model's bytes if it succeeds.
    known: bool,
}

/// What is open in a run with faults.
#[derive(Debug)]
pub(super) struct Doubt {
    /// Something that is waited for may never come.
    lossy: bool,
    /// A peer may say that an access is not allowed.
    denies: bool,
    /// Hosts that die: calls there have no code for that.
    dead: [bool; 2],
    /// How often each adapter may find no resources.
    refusals: [usize; 2],
    /// Bytes that may hold anything, of both kinds of memory of both sides.
    open: [[Vec<bool>; 2]; 2],
    pending: Vec<Pending>,
    /// The calls that opened barriers, by side and place.
    spans: BTreeMap<(usize, usize), u64>,
    /// Connections that the engine called aborted.
    aborted: BTreeSet<(usize, usize)>,
    calls: u64,
    /// The model before the call.
    before: World,
}

/// A transfer that ended.
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) side: Side,
    pub(super) place: Option<usize>,
    pub(super) put: bool,
    /// Entries.
    pub(super) count: usize,
    /// Whether any of them has bytes.
    pub(super) moves: bool,
    /// The signal that goes with it: whether it adds to others.
    pub(super) signal: Option<bool>,
    /// The error, and how many entries are left.
    pub(super) outcome: Result<(), (RsmError, usize)>,
}

impl Doubt {
    pub(super) fn new(faults: &Faults, world: &World) -> Self {
        let any = |is: fn(&Fault) -> bool| faults.0.iter().any(is);
        let refusals = [0, 1].map(|side| {
            let of = |fault: &&Fault| matches!(fault, Fault::AllocationFailure { adapter, .. } if *adapter == side);
            faults.0.iter().filter(of).count()
        });
        let dead = [0, 1].map(|side| {
            let of =
                |fault: &Fault| matches!(fault, Fault::Crash { adapter, .. } if *adapter == side);
            faults.0.iter().any(of)
        });
        Self {
            dead,
            lossy: any(|fault| {
                matches!(
                    fault,
                    Fault::DropCompletion { .. }
                        | Fault::DuplicateCompletion { .. }
                        | Fault::OverrunQueue { .. }
                        | Fault::LoseNotification { .. }
                        | Fault::Crash { .. }
                )
            }),
            denies: any(|fault| {
                matches!(
                    fault,
                    Fault::RemoteError {
                        error: RemoteError::Access,
                        ..
                    }
                )
            }),
            refusals,
            open: [(); 2].map(|()| [vec![false; PAGES], vec![false; LOCAL]]),
            pending: Vec::new(),
            spans: BTreeMap::new(),
            aborted: BTreeSet::new(),
            calls: 0,
            before: world.clone(),
        }
    }

    /// Whether each byte of a stretch is open; those of buffers are not.
    fn open_at(&mut self, memory: Memory, range: &Range<usize>) -> Vec<bool> {
        match self.open_of(memory) {
            Some(open) => open[range.clone()].to_vec(),
            None => vec![false; range.len()],
        }
    }

    fn open_of(&mut self, memory: Memory) -> Option<&mut Vec<bool>> {
        let (Memory::Pages(side) | Memory::Local(side)) = memory else {
            return None;
        };
        Some(&mut self.open[side.index()][kind(memory)])
    }

    /// Whether something that is not over may change a byte.
    fn may_change(&self, memory: Memory, at: usize) -> bool {
        let mut pending = self.pending.iter();
        pending.any(|it| it.to.0 == memory && it.to.1.contains(&at))
    }
}

impl Runner {
    pub(super) fn begin_call(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.calls += 1;
            doubt.before.clone_from(&self.world);
        }
    }

    /// The call did nothing.
    fn undo(&mut self) {
        if let Some(doubt) = &self.doubt {
            self.world.clone_from(&doubt.before);
        }
    }

    fn is_excused(&self, side: Side, name: &str, error: RsmError) -> bool {
        let Some(doubt) = &self.doubt else {
            return false;
        };
        match error {
            RsmError::Interrupted => doubt.lossy,
            RsmError::InternalError => doubt.dead[side.index()],
            RsmError::PermissionDenied => doubt.denies,
            RsmError::InsufficientResources
            | RsmError::InsufficientMemory
            | RsmError::RemoteNodeUnreachable
            | RsmError::ConnectionAborted
            | RsmError::BarrierFailure => !LOCAL_CALLS.contains(&name),
            _ => false,
        }
    }

    /// A call failed where it would not without faults; says whether it may.
    pub(super) fn excuse(&mut self, side: Side, name: &str, error: Option<RsmError>) -> bool {
        let Some(error) = error.filter(|error| self.is_excused(side, name, *error)) else {
            return false;
        };
        let ends_span = matches!(name, "close_barrier" | "order_barrier");
        if !ends_span || error == RsmError::Interrupted {
            self.undo();
        }
        *self.tally.entry(format!("{name}: {error:?}")).or_default() = [0, 1];
        true
    }

    /// Takes in what the engines say of their connections.
    pub(super) fn hear(&mut self) -> Outcome {
        let Some(mut doubt) = self.doubt.take() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for side in [Side::A, Side::B] {
            let imports = self.world.node(side).imports.live();
            let all: Vec<(usize, Handle)> = imports.map(|(at, handle, _)| (at, handle)).collect();
            for (place, handle) in all {
                let told = self.on(side, |engine, _| {
                    engine.import_state(ImportId::from_handle(handle))
                });
                let import = self.world.node_mut(side).imports.get_mut(place);
                let (Some(import), key) = (import, (side.index(), place)) else {
                    continue;
                };
                match told {
                    Ok(ImportState::Aborted) => {
                        import.aborted = true;
                        doubt.aborted.insert(key);
                    }
                    Ok(ImportState::Connected) if !doubt.aborted.contains(&key) => {
                        // It was not told yet, and may never be.
                        import.revoked |= import.aborted;
                        import.aborted = false;
                    }
                    _ => outcome = self.mismatch("a connection, once aborted for good", told),
                }
            }
        }
        self.doubt = Some(doubt);
        outcome
    }

    /// Bytes that are open are what they are.
    pub(super) fn adopt_open(&mut self) {
        let Some(doubt) = &mut self.doubt else {
            return;
        };
        for side in [Side::A, Side::B] {
            for (memory, actual) in [Memory::Pages(side), Memory::Local(side)]
                .into_iter()
                .zip(self.memory[side.index()])
            {
                let known = self.world.memory(memory, &mut []);
                let open = &doubt.open[side.index()][kind(memory)];
                for (at, _) in open.iter().enumerate().filter(|(_, open)| **open) {
                    known[at] = actual[at].load(Ordering::Relaxed);
                }
            }
        }
    }

    /// The consumer wrote to its own memory.
    pub(super) fn note_store(&mut self, side: Side, range: Range<usize>) {
        let Some(doubt) = &mut self.doubt else {
            return;
        };
        for at in range {
            doubt.open[side.index()][1][at] = doubt.may_change(Memory::Local(side), at);
        }
    }

    pub(super) fn note_open_barrier(&mut self, side: Side, place: Option<usize>) {
        if let (Some(doubt), Some(place)) = (&mut self.doubt, place) {
            doubt.spans.insert((side.index(), place), doubt.calls);
        }
    }

    /// Nothing of a connection is on the way any more; all that began from a moment on succeeded, if there is one.
    pub(super) fn note_quiet(&mut self, side: Side, import: usize, since: Option<u64>) {
        let Some(doubt) = &mut self.doubt else {
            return;
        };
        let all = std::mem::take(&mut doubt.pending);
        let (over, rest): (Vec<Pending>, Vec<Pending>) = all
            .into_iter()
            .partition(|it| it.import == (side.index(), import));
        doubt.pending = rest;
        // A byte is known if the last that wrote to it is.
        for Pending {
            to, known, begun, ..
        } in over
        {
            let known = known && since.is_some_and(|since| since <= begun);
            for at in to.1 {
                let open = !known || doubt.may_change(to.0, at);
                if let Some(of) = doubt.open_of(to.0) {
                    of[at] = open;
                }
            }
        }
    }

    /// A barrier was closed, or ordered something.
    pub(super) fn note_span(
        &mut self,
        side: Side,
        place: Option<usize>,
        ended: Result<(), RsmError>,
    ) {
        let import = place.and_then(|place| self.world.node(side).barriers.get(place));
        let (Some(doubt), Some(place), Some(import)) = (&self.doubt, place, import) else {
            return;
        };
        let import = import.import;
        let since = doubt.spans.get(&(side.index(), place)).copied();
        match ended {
            Ok(()) => self.note_quiet(side, import, since),
            Err(RsmError::BarrierFailure | RsmError::ConnectionAborted) => {
                self.note_quiet(side, import, None);
            }
            Err(_) => {}
        }
    }

    /// Whether a signal was taken.
    pub(super) fn judge_taken(
        &mut self,
        name: &str,
        expected: Expected<bool>,
        actual: Result<bool, RsmError>,
    ) -> Outcome {
        let lost = match (expected, actual) {
            _ if expected == actual => false,
            // It was lost, or is not there yet.
            (Ok(true), Ok(false)) => true,
            (Ok(_), Err(RsmError::ConnectionAborted)) => true,
            _ => return self.mismatch(expected, actual),
        };
        if lost {
            self.undo();
        }
        self.tally.entry(name.into()).or_default()[usize::from(actual.is_err())] += 1;
        Ok(())
    }

    /// Judges a transfer, and keeps what it did to memory.
    pub(super) fn settle(
        &mut self,
        ended: &Ended,
        plan: &Plan,
        mut model: Vec<Vec<u8>>,
        buffers: &[Vec<u8>],
    ) -> Outcome {
        let &Ended {
            name,
            side,
            count,
            outcome,
            ..
        } = ended;
        if self.endless.get() {
            return self.mismatch("an end", "there is none");
        }
        let import = ended
            .place
            .and_then(|at| self.world.node(side).imports.get(at));
        let revoked = import.is_some_and(|import| import.revoked);
        let explicit = import.is_some_and(|import| import.explicit);
        match (plan.outcome, outcome) {
            (expected, actual) if expected == actual => {}
            (_, Err((error, residual))) => {
                let least = match plan.outcome {
                    // All of it was done when the wait for the end was interrupted.
                    Ok(()) if error == RsmError::Interrupted => 0,
                    Ok(()) => usize::from(ended.signal.is_none()),
                    Err((_, residual)) => residual,
                };
                let fits = (least..=count).contains(&residual);
                if !fits || !(revoked || self.is_excused(side, name, error)) {
                    return self.mismatch(plan.outcome, outcome);
                }
                *self.tally.entry(format!("{name}: {error:?}")).or_default() = [0, 1];
            }
            _ => return self.mismatch(plan.outcome, outcome),
        }
        if outcome.is_ok() && revoked && !explicit && ended.moves {
            return self.mismatch("an error: the segment was taken back", outcome);
        }
        self.tally.entry(name.into()).or_default()[usize::from(outcome.is_err())] += 1;
        if ended.put && buffers != model {
            return self.mismatch(model, buffers);
        }
        if revoked {
            // What a failed read leaves behind is open, wherever it was to go.
            if let Some(doubt) = self.doubt.as_mut().filter(|_| !ended.put) {
                doubt.open[side.index()][1].fill(true);
            }
            return Ok(());
        }
        let open = self.move_bytes(ended, plan, &mut model);
        for ((known, actual), open) in model.iter().zip(buffers).zip(&open) {
            let differs = (0..known.len()).any(|at| !open[at] && known[at] != actual[at]);
            if differs {
                return self.mismatch(known, actual);
            }
        }
        let left = outcome.map_or_else(|(_, residual)| residual, |()| 0);
        if let (Some(no_accumulate), 0) = (ended.signal, left) {
            // That it failed does not say that it did not arrive.
            let _counted = self
                .world
                .post_to_exporter(side, ended.place, no_accumulate);
        }
        Ok(())
    }

    /// Moves the model's bytes, and says which bytes of the buffers are open.
    fn move_bytes(&mut self, ended: &Ended, plan: &Plan, model: &mut [Vec<u8>]) -> Vec<Vec<bool>> {
        let mut open: Vec<Vec<bool>> = model.iter().map(|it| vec![false; it.len()]).collect();
        let Some(doubt) = &mut self.doubt else {
            return open;
        };
        let done = match ended.outcome {
            Ok(()) => ended.count,
            Err((_, residual)) => ended.count - residual,
        };
        for step in &plan.moves {
            let (from, to) = if ended.put {
                (&step.local, &step.remote)
            } else {
                (&step.remote, &step.local)
            };
            let bytes = self.world.memory(from.0, model)[from.1.clone()].to_vec();
            let source_open = doubt.open_at(from.0, &from.1);
            self.world.memory(to.0, model)[to.1.clone()].copy_from_slice(&bytes);
            let known = !plan.explicit && step.entry < done;
            for (at, source_open) in to.1.clone().zip(&source_open) {
                let is_open = !known || *source_open || doubt.may_change(to.0, at);
                match to.0 {
                    Memory::Buffer(index) => open[index][at] = is_open,
                    memory => {
                        if let Some(of) = doubt.open_of(memory) {
                            of[at] = is_open;
                        }
                    }
                }
            }
            let overlaps = plan.moves.iter().any(|other| {
                let there = if ended.put {
                    &other.remote
                } else {
                    &other.local
                };
                other.entry != step.entry && meet(to, there)
            });
            if let (true, Some(place)) = (plan.explicit, ended.place) {
                doubt.pending.push(Pending {
                    import: (ended.side.index(), place),
                    begun: doubt.calls,
                    to: to.clone(),
                    known: ended.outcome.is_ok() && !overlaps && !source_open.contains(&true),
                });
            }
        }
        open
    }

    /// Every object that the controllers may have can be had again.
    pub(super) fn check_tables(&mut self) -> Outcome {
        for side in [Side::A, Side::B] {
            let Some(doubt) = &self.doubt else {
                return Ok(());
            };
            if doubt.dead[side.index()] {
                continue;
            }
            let mut refusals = doubt.refusals[side.index()];
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
                match made {
                    Ok(()) => wanted -= 1,
                    Err(_) if refusals != 0 => refusals -= 1,
                    Err(error) => return self.mismatch(("all objects again", wanted), error),
                }
            }
        }
        Ok(())
    }
}
