//! Runs operations on two engines and on the oracle, and compares.

mod arguments;
mod call;
mod doubt;
mod export;
mod observed;
mod wait;

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use arbitrary::Arbitrary;
use backend_mock::{Fabric, FabricOptions, Happened, MockBackend, NodeOptions};
use dat_core::Ia;
use dat_core::memory::Region;
use dat_core::sync::SpinLock;
use dat_rsm::{
    BarrierId, BarrierMode, BarrierScope, ControllerConfig, ControllerId, Credentials, ExportFlags,
    ExportId, GetEntry, Handle, ImportId, ImportState, Limits, LocalAccess, LocalMemoryId,
    NodeEntry, Options, Permission, PutEntry, Rsm, RsmError, SegmentHandle, SegmentId, SignalFlags,
    Source, Target, VectorFlags,
};
use self_cell::{MutBorrow, self_cell};

use arguments::{application_id, node_number, wanted_permission};
use doubt::Doubt;
use wait::DrivingWait;

use super::damage::{Damage, Link};
use super::faults::Faults;
use super::op::{
    BarrierOp, Entry, ExportOp, ImportOp, Local, LocalOp, Op, Segment, SignalOp, TransferOp,
    prologue,
};
use super::transfer::{EntryMemory, Form, IovEntry, Memory, Plan, overlap};
use super::world::{self, Expected, LOCAL, Node, PAGE, PAGES, Picked, World, number_of, pick};
use crate::op::{Pick, Side};
use crate::runner::{Mismatch, Outcome, Tally};

dat_core::define_storage! {
    struct Storage for MockBackend, SpinLock {
        protection_zones: 64,
        local_regions: 64,
        remote_regions: 64,
        event_dispatchers: 5,
        notification_objects: 5,
        endpoints: 12,
        shared_receive_queues: 1,
        public_service_points: 12,
        reserved_service_points: 12,
        connection_requests: 12,
        events: 512,
        records: 2048,
    }
}

type Engine<'s> = Rsm<'s, MockBackend, SpinLock>;
type Engines<'s> = [Engine<'s>; 2];
type Stores = [Box<Storage>; 2];

self_cell!(
    struct Machine {
        owner: MutBorrow<Stores>,
        #[not_covariant]
        dependent: Engines,
    }
);

/// Everything of a run except its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Arbitrary)]
pub struct Setup {
    /// Seed of the fabric.
    pub seed: u64,
    /// Relation of the two processes: same user, same group, neither.
    pub credentials: u8,
    /// Default access rights, for segments published without a list, by number.
    pub default_access: u8,
    /// Set to begin without segments and connections.
    pub empty: bool,
    /// Faults after that.
    pub faults: Faults,
}

const CONTROLLER: &str = "rsm0";
const QUALIFIER: u64 = 7;
/// Limit on fabric actions, more than any call needs.
const MOST_STEPS: usize = 200_000;
/// Delay after which an engine repeats a refused request, in microseconds.
const SOON: u32 = 1_000;
/// Limit on waits, more than any call needs.
const WAITS: usize = 20_000;
/// Default access rights.
const DEFAULT_ACCESS: [u32; 8] = [0o666, 0o666, 0o666, 0o666, 0o666, 0o640, 0o604, 0o444];
/// Largest length of a caller's buffer.
const BUFFER: usize = 64;

thread_local! {
    /// Pages and local memory of both nodes, for each thread because they are never freed.
    static MEMORY: [[&'static [AtomicU8]; 2]; 2] =
        std::array::from_fn(|_| [aligned(PAGES), aligned(LOCAL)]);
}

/// Returns page-aligned bytes that are never freed.
fn aligned(length: usize) -> &'static [AtomicU8] {
    let bytes: Vec<AtomicU8> = (0..length + PAGE).map(|_| AtomicU8::new(0)).collect();
    let bytes: &'static [AtomicU8] = bytes.leak();
    let skip = bytes.as_ptr().align_offset(PAGE);
    &bytes[skip..][..length]
}

/// Two engines on a fabric, and the oracle of both.
pub struct Runner {
    fabric: Fabric,
    machine: Machine,
    controllers: [ControllerId; 2],
    memory: [[&'static [AtomicU8]; 2]; 2],
    world: World,
    /// Ranges of pending transfers in explicit mode, and true for those written to.
    outstanding: Vec<((Memory, Range<usize>), bool)>,
    /// Bytes that depend on the order of overlapping reads (RSMPV-33 orders implicit mode only).
    undefined: Vec<(Memory, Range<usize>)>,
    buffers: u8,
    /// Faults that had an effect.
    damage: Damage,
    /// State that is open because of them.
    doubt: Doubt,
    /// Set once a call exceeded its limit of waits.
    endless: Cell<bool>,
    call: String,
    tally: Tally,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner")
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

impl Runner {
    /// Opens the engines and runs the prologue.
    ///
    /// # Errors
    /// [`Mismatch`] if one of these steps deviates.
    pub fn new(setup: &Setup) -> Result<Self, Mismatch> {
        let memory = MEMORY.with(|memory| *memory);
        for byte in memory.iter().flatten().flat_map(|bytes| bytes.iter()) {
            byte.store(0, Ordering::Relaxed);
        }
        let fabric = Fabric::new(FabricOptions {
            seed: setup.seed,
            ..FabricOptions::default()
        });
        let owners = [
            (10, 20),
            [(10, 20), (11, 20), (11, 21)][usize::from(setup.credentials % 3)],
        ];
        let default_access = DEFAULT_ACCESS[usize::from(setup.default_access % 8)];
        let stores = MutBorrow::new([Box::new(Storage::new()), Box::new(Storage::new())]);
        let made = Machine::try_new(stores, |stores| {
            let [first, second] = stores.borrow_mut();
            let make = |store, side: Side| {
                let options = options(side, owners[side.index()], default_access);
                engine(&fabric, store, options)
            };
            Ok([make(first, Side::A)?, make(second, Side::B)?])
        });
        let machine = made.map_err(|actual| Mismatch {
            call: "open".into(),
            expected: "two engines".into(),
            actual,
        })?;
        let controllers = machine.with_dependent(|_, engines| {
            let got = [0, 1].map(|node| engines[node].get_controller(Some(CONTROLLER)));
            got.map(|controller| controller.unwrap_or(ControllerId::NULL))
        });
        let world = World(owners.map(|owner| Node::new(owner, default_access)));
        let mut runner = Self {
            fabric,
            machine,
            controllers,
            memory,
            doubt: Doubt::new(&world),
            world,
            outstanding: Vec::new(),
            undefined: Vec::new(),
            buffers: 0,
            damage: Damage::default(),
            endless: Cell::new(false),
            call: String::new(),
            tally: Tally::new(),
        };
        if !setup.empty {
            for op in prologue() {
                runner.apply(&op)?;
            }
        }
        for fault in &setup.faults.0 {
            runner.fabric.inject_from_now(fault.clone());
        }
        Ok(runner)
    }

    /// Returns the number of successes and refusals of each call so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the faults that had an effect so far.
    pub fn happened(&self) -> Vec<Happened> {
        self.fabric.happened()
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// [`Mismatch`] if the oracle rules the outcome out.
    pub fn apply(&mut self, op: &Op) -> Result<(), Mismatch> {
        self.call = format!("{op:?}");
        let may_overlap = matches!(
            op,
            Op::Transfer(..)
                | Op::Barrier(..)
                | Op::Import(_, ImportOp::SetMode { .. } | ImportOp::Disconnect { .. })
                | Op::Local(_, LocalOp::Free { .. })
        );
        if !may_overlap {
            self.run_to_idle()?;
        }
        self.begin_call()?;
        match op {
            Op::Export(side, op) => self.export(*side, op)?,
            Op::Import(side, op) => self.import(*side, op)?,
            Op::Local(side, op) => self.local(*side, op)?,
            Op::Transfer(side, op) => self.transfer(*side, op)?,
            Op::Barrier(side, op) => self.barrier(*side, op)?,
            Op::Signal(side, op) => self.signal(*side, op)?,
            Op::RunToIdle => self.run_to_idle()?,
        }
        if self.outstanding.is_empty() || self.doubt.has_failed() {
            self.run_to_idle()?;
        }
        Ok(())
    }

    /// Waits until idle, releases the controllers, and checks that they can be opened again.
    ///
    /// # Errors
    /// [`Mismatch`] if the oracle rules the outcome out.
    pub fn finish(mut self) -> Result<(), Mismatch> {
        self.call = "the end of the run".into();
        self.run_to_idle()?;
        // Releasing the controllers releases all their objects.
        for node in &mut self.world.0 {
            *node = Node::new(node.owner, node.default_access);
        }
        self.begin_call()?;
        for side in [Side::A, Side::B] {
            let controller = self.controllers[side.index()];
            let released = self.on(side, |engine, wait| {
                engine.release_controller(controller, wait)
            });
            self.judge(side, "release", Ok(()), released)?;
        }
        self.check_tables()
    }

    fn on<R>(
        &self,
        side: Side,
        act: impl for<'w, 's> FnOnce(&Engine<'s>, &mut DrivingWait<'w, 's>) -> R,
    ) -> R {
        self.machine.with_dependent(|_, engines| {
            let mut wait = DrivingWait {
                fabric: &self.fabric,
                other: &engines[side.other().index()],
                waits_left: WAITS,
                endless: &self.endless,
            };
            act(&engines[side.index()], &mut wait)
        })
    }

    fn mismatch<T>(&self, expected: impl fmt::Debug, actual: impl fmt::Debug) -> Outcome<T> {
        Err(Mismatch {
            call: self.call.clone(),
            expected: format!("{expected:?}"),
            actual: format!("{actual:?}"),
        })
    }

    /// Compares a result with the expected one; returns the value if the call succeeded.
    fn judge<T: fmt::Debug>(
        &mut self,
        side: Side,
        name: &str,
        expected: Expected,
        actual: Result<T, RsmError>,
    ) -> Outcome<Option<T>> {
        self.judge_on(side, name, (None, None), expected, actual)
    }

    /// Runs the fabric and the engines until they are idle, and compares.
    fn run_to_idle(&mut self) -> Outcome {
        for _ in 0..MOST_STEPS {
            let moved = self.fabric.step();
            let now = self.fabric.now();
            let handled: usize = self
                .machine
                .with_dependent(|_, engines| engines.iter().map(|it| it.progress(now)).sum());
            // An engine does not count its repetitions.
            if moved || handled != 0 || self.fabric.next_due().is_some() {
                continue;
            }
            let due = self.machine.with_dependent(|_, engines| {
                let deadlines = engines.iter().filter_map(Engine::next_deadline);
                deadlines.min()
            });
            match (due, now.after(SOON)) {
                (Some(due), Some(soon)) if due <= soon => {
                    self.fabric.run_until(due);
                }
                _ => {
                    self.outstanding.clear();
                    return self.compare();
                }
            }
        }
        self.mismatch("an idle run", "a run that never becomes idle")
    }

    fn compare(&mut self) -> Outcome {
        self.process_reports()?;
        self.resolve_doubt();
        for (memory, range) in std::mem::take(&mut self.undefined) {
            let (Memory::Pages(side) | Memory::Local(side)) = memory else {
                continue;
            };
            let bytes = load(&self.memory[side.index()][kind(memory)][range.clone()]);
            self.world.memory(memory, &mut [])[range].copy_from_slice(&bytes);
        }
        for side in [Side::A, Side::B] {
            let [pages, local] = self.memory[side.index()];
            let node = self.world.node(side);
            for (name, expected, actual) in [
                ("pages", &node.pages, load(pages)),
                ("local memory", &node.local, load(local)),
            ] {
                let at = (0..actual.len()).find(|at| expected[*at] != actual[*at]);
                if let Some(at) = at {
                    let index = format!("byte {at} of the {name} of {side:?}");
                    return self.mismatch((index, expected[at]), actual[at]);
                }
            }
            self.compare_objects(side)?;
        }
        self.damage.mark_idle();
        Ok(())
    }

    fn compare_objects(&mut self, side: Side) -> Outcome {
        self.observe_signals(side);
        let node = self.world.node(side);
        for (_, handle, export) in node.exports.live() {
            let id = ExportId::from_handle(handle);
            let actual = self.on(side, |engine, _| {
                (engine.export_length(id), engine.signal_pending(id))
            });
            let expected = (Ok(export.length as u64), Ok(export.signals.any()));
            if actual != expected {
                return self.mismatch((handle, expected), actual);
            }
        }
        for (_, handle, import) in node.imports.live() {
            let id = ImportId::from_handle(handle);
            let (mode, state) = (mode(import.explicit), state(import.aborted));
            let actual = self.on(side, |engine, _| {
                (
                    (
                        engine.import_state(id),
                        engine.import_length(id),
                        engine.mode(id),
                    ),
                    (engine.import_permission(id), engine.signal_pending(id)),
                )
            });
            let expected = (
                (Ok(state), Ok(import.length as u64), Ok(mode)),
                (Ok(import.permission), Ok(import.signals.any())),
            );
            if actual != expected {
                return self.mismatch((handle, expected), actual);
            }
        }
        Ok(())
    }

    fn picked_export(&self, side: Side, which: Pick) -> Picked {
        let (own, other) = (self.world.node(side), self.world.node(side.other()));
        let wrong = own.imports.live().next().map(|(_, handle, _)| handle);
        pick(which, &own.exports, &other.exports, wrong)
    }

    fn picked_import(&self, side: Side, which: Pick) -> Picked {
        let (own, other) = (self.world.node(side), self.world.node(side.other()));
        let wrong = own.exports.live().next().map(|(_, handle, _)| handle);
        pick(which, &own.imports, &other.imports, wrong)
    }

    fn picked_local(&self, side: Side, which: Pick) -> Picked {
        let (own, other) = (self.world.node(side), self.world.node(side.other()));
        let wrong = own.imports.live().next().map(|(_, handle, _)| handle);
        pick(which, &own.locals, &other.locals, wrong)
    }

    fn picked_barrier(&self, side: Side, which: Pick) -> Picked {
        let (own, other) = (self.world.node(side), self.world.node(side.other()));
        let wrong = own.imports.live().next().map(|(_, handle, _)| handle);
        pick(which, &own.barriers, &other.barriers, wrong)
    }

    fn pages(&self, side: Side, start: usize, length: usize) -> Region {
        Region::from_static(&self.memory[side.index()][0][start..start + length])
    }

    fn import(&mut self, side: Side, op: &ImportOp) -> Outcome {
        match *op {
            ImportOp::Connect {
                node,
                id,
                permission,
            } => {
                let node = node_number(node);
                let (id, permission) = (self.wanted_id(node, id), wanted_permission(permission));
                let exporter = if node == 1 { Side::A } else { Side::B };
                let link = Link {
                    importer: side,
                    exporter,
                };
                let counts = !self.damage.lasts(link);
                let import = self.world.connect(side, (node, id), permission, counts);
                let (expected, import) = match import {
                    Ok(import) => (Ok(()), Some(import)),
                    Err(error) => (Err(error), None),
                };
                let controller = self.controllers[side.index()];
                let permission = Permission::from_bits_retain(permission);
                let made = self.on(side, |engine, wait| {
                    engine.import_connect(controller, node, id, permission, wait)
                });
                let ends = (Some(link), None);
                let made = self.judge_on(side, "import_connect", ends, expected, made)?;
                if let (Some(id), Some(import)) = (made, import) {
                    let imports = &mut self.world.node_mut(side).imports;
                    imports.add(id.handle(), import);
                }
            }
            ImportOp::SetMode { import, explicit } => {
                let (handle, index) = self.picked_import(side, import);
                let found = index.and_then(|it| self.world.node_mut(side).imports.get_mut(it));
                let expected = match found {
                    Some(import) => {
                        import.explicit = explicit;
                        Ok(())
                    }
                    None => Err(RsmError::BadSegmentHandle),
                };
                let (import, mode) = (ImportId::from_handle(handle), mode(explicit));
                let done = self.on(side, |engine, _| engine.set_mode(import, mode));
                self.judge(side, "set_mode", expected, done)?;
            }
            ImportOp::Disconnect { import } => {
                let (handle, index) = self.picked_import(side, import);
                let link = self.link_of(side, index);
                let expected = self.world.disconnect(side, index);
                let import = ImportId::from_handle(handle);
                let done = self.on(side, |engine, wait| engine.import_disconnect(import, wait));
                self.judge_on(side, "import_disconnect", (link, index), expected, done)?;
            }
        }
        Ok(())
    }

    /// Chooses an id to connect to, mostly one that the node publishes.
    fn wanted_id(&self, node: u32, id: u8) -> SegmentId {
        let side = if node == 1 { Side::A } else { Side::B };
        let exports = self.world.node(side).exports.live();
        let published: Vec<SegmentId> = exports
            .filter_map(|(_, _, export)| Some(export.publication.as_ref()?.id))
            .collect();
        let nth = usize::from(id).checked_rem(published.len());
        match nth {
            Some(nth) if id < 220 => published[nth],
            _ if id.is_multiple_of(4) => 0x8000_0000 + u32::from(id / 4 % 3),
            _ => application_id(id),
        }
    }

    fn local(&mut self, side: Side, op: &LocalOp) -> Outcome {
        match *op {
            LocalOp::Create {
                start,
                length,
                read_only,
            } => {
                let start = usize::from(start) * 2;
                let length = usize::from(length).min(LOCAL - start);
                let full = self.world.node(side).locals.count() >= world::MOST_LOCALS;
                let expected = match length {
                    0 => Err(RsmError::BadLength),
                    _ if full => Err(RsmError::InsufficientResources),
                    _ => Ok(()),
                };
                let access = if read_only {
                    LocalAccess::ReadOnly
                } else {
                    LocalAccess::ReadWrite
                };
                let memory = self.memory[side.index()][1];
                let region = Region::from_static(&memory[start..start + length]);
                let controller = self.controllers[side.index()];
                let made = self.on(side, |engine, _| {
                    engine.create_local_memory(controller, region, access)
                });
                if let Some(local) = self.judge(side, "create_local_memory", expected, made)? {
                    let object = world::Local {
                        start,
                        length,
                        read_only,
                    };
                    let locals = &mut self.world.node_mut(side).locals;
                    locals.add(local.handle(), object);
                }
            }
            LocalOp::Free { local } => {
                let (handle, index) = self.picked_local(side, local);
                let expected = match index {
                    Some(index) => {
                        self.world.node_mut(side).locals.remove(index);
                        Ok(())
                    }
                    None => Err(RsmError::BadLocalMemoryHandle),
                };
                let local = LocalMemoryId::from_handle(handle);
                let controller = self.controllers[side.index()];
                let done = self.on(side, |engine, wait| {
                    engine.free_local_memory(controller, local, wait)
                });
                self.judge(side, "free_local_memory", expected, done)?;
            }
            LocalOp::Store { at, value, count } => {
                let start = usize::from(at) * 2;
                let end = (start + usize::from(count)).min(LOCAL);
                self.world.node_mut(side).local[start..end].fill(value);
                for byte in &self.memory[side.index()][1][start..end] {
                    byte.store(value, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn barrier(&mut self, side: Side, op: &BarrierOp) -> Outcome {
        match *op {
            BarrierOp::Init { import } => {
                let (handle, index) = self.picked_import(side, import);
                let expected = self.world.barrier_init(side, index);
                let import = ImportId::from_handle(handle);
                let scope = BarrierScope::default();
                let made = self.on(side, |engine, _| engine.init_barrier(import, scope));
                let made = self.judge(side, "init_barrier", expected.map(drop), made)?;
                if let (Some(id), Ok(import)) = (made, expected) {
                    let barrier = world::Barrier {
                        import,
                        open: false,
                        since: 0,
                        begun: 0,
                    };
                    let barriers = &mut self.world.node_mut(side).barriers;
                    barriers.add(id.handle(), barrier);
                }
            }
            BarrierOp::Open { barrier } => {
                let (handle, index) = self.picked_barrier(side, barrier);
                let expected = self.world.barrier_open(side, index);
                let barrier = BarrierId::from_handle(handle);
                let done = self.on(side, |engine, _| engine.open_barrier(barrier));
                if self.judge(side, "open_barrier", expected, done)?.is_some() {
                    self.note_open_barrier(side, index);
                }
            }
            BarrierOp::Order { barrier } => {
                let (handle, index) = self.picked_barrier(side, barrier);
                let barrier = BarrierId::from_handle(handle);
                let done = self.on(side, |engine, wait| engine.order_barrier(barrier, wait));
                self.judge_span(side, index, false, done)?;
            }
            BarrierOp::Close { barrier } => {
                let (handle, index) = self.picked_barrier(side, barrier);
                let barrier = BarrierId::from_handle(handle);
                let done = self.on(side, |engine, wait| engine.close_barrier(barrier, wait));
                self.judge_span(side, index, true, done)?;
            }
            BarrierOp::Destroy { barrier } => {
                let (handle, index) = self.picked_barrier(side, barrier);
                let expected = self.world.barrier_destroy(side, index);
                let barrier = BarrierId::from_handle(handle);
                let done = self.on(side, |engine, _| engine.destroy_barrier(barrier));
                self.judge(side, "destroy_barrier", expected, done)?;
            }
        }
        Ok(())
    }

    /// Returns the handle of a segment, its index, and true if it is exported.
    fn picked_segment(&self, side: Side, segment: Segment) -> (SegmentHandle, Option<usize>, bool) {
        match segment {
            Segment::Export(which) => {
                let (handle, index) = self.picked_export(side, which);
                (ExportId::from_handle(handle).into(), index, true)
            }
            Segment::Import(which) => {
                let (handle, index) = self.picked_import(side, which);
                (ImportId::from_handle(handle).into(), index, false)
            }
        }
    }

    fn signal(&mut self, side: Side, op: &SignalOp) -> Outcome {
        match *op {
            SignalOp::Post {
                segment,
                no_accumulate,
            } => {
                let (handle, index, export) = self.picked_segment(side, segment);
                let link = self.link_of(side, index).filter(|_| !export);
                let expected = if export {
                    self.send_to_importers(side, index, no_accumulate)
                } else {
                    self.send_to_exporter(side, index, no_accumulate, false)
                };
                let mut flags = SignalFlags::empty();
                flags.set(SignalFlags::NO_ACCUMULATE, no_accumulate);
                let done = self.on(side, |engine, wait| engine.signal_post(handle, flags, wait));
                let import = index.filter(|_| !export);
                let done = self.judge_on(side, "signal_post", (link, import), expected, done)?;
                if done.is_none() && expected.is_ok() {
                    // A failed post may still have arrived.
                    let _aborted = self.send_to_exporter(side, index, no_accumulate, true);
                }
            }
            SignalOp::Take { segment } => {
                let (handle, index, export) = self.picked_segment(side, segment);
                let taken = self.on(side, |engine, _| engine.signal_take(handle));
                self.judge_taken(side, "signal_take", (index, export), taken)?;
            }
            SignalOp::Wait { segment } => {
                let (handle, index, export) = self.picked_segment(side, segment);
                let now = self.fabric.now();
                let waited = self.on(side, |engine, wait| {
                    engine.signal_wait(handle, Some(now), wait)
                });
                let taken = match waited {
                    Ok(()) => Ok(true),
                    Err(RsmError::TimedOut) => Ok(false),
                    Err(error) => Err(error),
                };
                self.judge_taken(side, "signal_wait", (index, export), taken)?;
            }
            SignalOp::AcquirePoll { segment } => {
                let (handle, index, export) = self.picked_segment(side, segment);
                let expected = self.world.poll(side, index, export, true);
                let done = self.on(side, |engine, _| engine.acquire_poll(handle));
                self.judge(side, "acquire_poll", expected, done)?;
            }
            SignalOp::ReleasePoll { segment } => {
                let (handle, index, export) = self.picked_segment(side, segment);
                let expected = self.world.poll(side, index, export, false);
                let done = self.on(side, |engine, _| engine.release_poll(handle));
                self.judge(side, "release_poll", expected, done)?;
            }
        }
        Ok(())
    }
}

fn options(side: Side, owner: (u32, u32), default_access: u32) -> Options {
    let (user, group) = owner;
    Options {
        credentials: Credentials { user, group },
        default_access,
        page_size: PAGE as u64,
        limits: Limits {
            exports: world::MOST_EXPORTS,
            imports: world::MOST_IMPORTS,
            importers: world::MOST_IMPORTERS,
            local_memory: world::MOST_LOCALS,
            barriers: world::MOST_BARRIERS,
            links: 8,
            calls: 8,
            requests: 128,
            exported_bytes: world::EXPORTED_BYTES as u64,
            segment_bytes: world::SEGMENT_BYTES as u64,
        },
        ..Options::new(number_of(side), 100 + u64::from(number_of(side)))
    }
}

fn engine<'s>(
    fabric: &Fabric,
    store: &'s mut Storage,
    options: Options,
) -> Result<Engine<'s>, String> {
    let node = |number: u32| NodeOptions::new("rsm", u64::from(number));
    let mut own = node(options.node);
    own.limits.domains = 1;
    let ia = Ia::open(fabric.node(own), store.lend(), 8);
    let entry = |number| NodeEntry {
        node: number,
        controller: CONTROLLER,
        address: node(number).address,
        qualifier: QUALIFIER,
    };
    let config = ControllerConfig {
        name: CONTROLLER,
        ia: ia.map_err(|refused| refused.error.to_string())?,
        qualifier: QUALIFIER,
        nodes: [1, 2].map(entry).to_vec(),
    };
    Rsm::new(options, vec![config]).map_err(|error| error.to_string())
}

fn load(bytes: &[AtomicU8]) -> Vec<u8> {
    let all = bytes.iter();
    all.map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Returns the index of a node's memory: pages 0, local memory 1.
fn kind(memory: Memory) -> usize {
    usize::from(matches!(memory, Memory::Local(_)))
}

fn mode(explicit: bool) -> BarrierMode {
    if explicit {
        BarrierMode::Explicit
    } else {
        BarrierMode::Implicit
    }
}

fn state(aborted: bool) -> ImportState {
    if aborted {
        ImportState::Aborted
    } else {
        ImportState::Connected
    }
}
