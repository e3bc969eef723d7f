//! Runs operations on real adapters and on the oracle, and compares.

mod adapter;
mod agent;
mod batch;
mod connection;
mod cramped;
mod defaults;
mod endpoint;
mod event;
mod extended;
mod failed_allocation;
mod growing;
mod interleavings;
mod ledger;
mod memory;
mod post;
mod shared_receive;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use arbitrary::Arbitrary;
use backend_mock::{Fabric, FabricOptions, FaultPlan, Happened, Limits, MockBackend, NodeOptions};
use dat_core::flags::{EndpointState, HandleKind, SrqFields};
use dat_core::id::{CnoId, CrId, EpId, EvdId, Handle, LmrId, PspId, PzId, RmrId, RspId, SrqId};
use dat_core::sync::SpinLock;
use dat_core::{Error, Ia, Result};
use self_cell::{MutBorrow, self_cell};

use crate::expect::Verdict;
use crate::op::{FabricOp, Op, Pick, SegmentChoice, Side};
use crate::scenario::Prologue;
use crate::world::{self, ARENA, Key, Segment, World};
use ledger::Ledger;

dat_core::define_storage! {
    struct Storage for MockBackend, SpinLock {
        protection_zones: world::ZONES,
        local_regions: world::ZONES,
        remote_regions: world::ZONES,
        event_dispatchers: world::DISPATCHERS,
        notification_objects: world::DISPATCHERS,
        endpoints: world::ENDPOINTS,
        shared_receive_queues: world::SHARED_QUEUES,
        public_service_points: world::ENDPOINTS,
        reserved_service_points: world::ENDPOINTS,
        connection_requests: world::ENDPOINTS,
        events: 1024,
        records: 512,
    }
}

type Adapter<'s> = Ia<'s, MockBackend, SpinLock>;
type Adapters<'s> = [Adapter<'s>; 2];
type Stores = [Box<Storage>; 2];

self_cell!(
    struct Machine {
        owner: MutBorrow<Stores>,
        #[not_covariant]
        dependent: Adapters,
    }
);

/// Everything of a run except its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Arbitrary)]
pub struct Setup {
    /// Seed of the fabric.
    pub seed: u64,
    /// Set if device and processor of the second adapter see different memory.
    pub non_coherent: bool,
    /// Operations that precede those of the run.
    pub prologue: Prologue,
    /// Faults; from the first effect on, the run checks only invariants.
    pub faults: FaultPlan,
}

/// Deviation of the core from the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The call.
    pub call: String,
    /// Expected outcome.
    pub expected: String,
    /// Actual outcome.
    pub actual: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n  expected: {}\n  actual:   {}",
            self.call, self.expected, self.actual
        )
    }
}

impl std::error::Error for Mismatch {}

pub(crate) type Outcome<T = ()> = core::result::Result<T, Mismatch>;

/// Two adapters on a fabric, and the oracle of both.
pub struct Runner {
    fabric: Fabric,
    machine: Machine,
    memory: [&'static [AtomicU8]; 2],
    world: World,
    handles: BTreeMap<Key, Handle>,
    keys: BTreeMap<u64, Key>,
    /// Number of posts so far; a post's number is its cookie.
    posts: u64,
    /// Set after partial fabric progress: only dequeued events can be checked.
    partial: bool,
    /// Posts and completions, for runs with faults.
    ledger: Option<Ledger>,
    /// Set after a fault had an effect: the oracle no longer predicts.
    faulty: bool,
    call: String,
    tally: Tally,
    reached: BTreeSet<String>,
    /// Consumer contexts of the adapters.
    contexts: [u64; 2],
}

/// Number of successes and refusals of each call.
pub type Tally = BTreeMap<String, [u32; 2]>;

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner")
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// Registered memory, one pair for each thread because it is never freed.
    static MEMORY: [&'static [AtomicU8]; 2] = std::array::from_fn(|_| {
        let bytes: Vec<AtomicU8> = (0..ARENA).map(|_| AtomicU8::new(0)).collect();
        &*bytes.leak()
    });
}

const NODES: [(&str, u64); 2] = [("first", 1), ("second", 2)];
/// Limit on fabric actions, more than any run needs to become idle.
const MOST_STEPS: usize = 200_000;
/// Length of the asynchronous dispatchers' queues.
const ASYNC_LENGTH: u32 = 16;

/// Runs operations from a fresh start.
///
/// # Errors
/// The first [`Mismatch`].
pub fn run(setup: &Setup, ops: &[Op]) -> core::result::Result<(), Mismatch> {
    let mut runner = Runner::new(setup)?;
    for op in ops {
        runner.apply(op)?;
    }
    runner.finish()
}

/// Removes operations as long as the run still fails.
pub fn shrink(setup: &Setup, ops: &[Op]) -> Vec<Op> {
    fewest(ops, |fewer| run(setup, fewer).is_err())
}

/// Removes operations as long as the rest fails.
pub(crate) fn fewest<O: Clone>(ops: &[O], fails: impl Fn(&[O]) -> bool) -> Vec<O> {
    let mut kept = ops.to_vec();
    let mut size = kept.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(start..(start + size).min(kept.len()));
            if fails(&fewer) {
                kept = fewer;
            } else {
                start += size;
            }
        }
        if size == 1 {
            return kept;
        }
        size /= 2;
    }
}

impl Runner {
    /// Opens the adapters and runs the prologue.
    ///
    /// # Errors
    /// [`Mismatch`] if one of these steps deviates.
    pub fn new(setup: &Setup) -> core::result::Result<Self, Mismatch> {
        let memory = MEMORY.with(|memory| *memory);
        for byte in memory.iter().flat_map(|bytes| bytes.iter()) {
            byte.store(0, Ordering::Relaxed);
        }
        let options = FabricOptions {
            seed: setup.seed,
            ..FabricOptions::default()
        };
        let fabric = Fabric::new(options);
        let limits = Limits {
            segments: world::MOST_SEGMENTS as u32,
            work_requests: world::MOST_TRANSFERS as u32,
            shared_buffers: world::MOST_BUFFERS as u32,
            private_data: world::PRIVATE_DATA as u32,
            ..Limits::default()
        };
        let backends = [Side::A, Side::B].map(|side| {
            let (name, number) = NODES[side.index()];
            let node = NodeOptions {
                limits,
                extensions: extended::extensions(side),
                ..NodeOptions::new(name, number)
            };
            let apart = setup.non_coherent && side == Side::B;
            fabric.node(if apart { node.non_coherent() } else { node })
        });
        let stores = MutBorrow::new([Box::new(Storage::new()), Box::new(Storage::new())]);
        let opened = Machine::try_new(stores, |stores| {
            let [first, second] = stores.borrow_mut();
            let [a, b] = backends;
            let open = |backend, store| {
                Ia::open(backend, store, ASYNC_LENGTH as i32).map_err(|refused| refused.error)
            };
            match (open(a, first.lend()), open(b, second.lend())) {
                (Ok(a), Ok(b)) => Ok([a, b]),
                (Err(error), _) | (_, Err(error)) => Err(error),
            }
        });
        let machine = opened.map_err(|error| Mismatch {
            call: "open".into(),
            expected: "two adapters".into(),
            actual: error.to_string(),
        })?;
        let mut runner = Self {
            fabric,
            machine,
            memory,
            world: World::default(),
            handles: BTreeMap::new(),
            keys: BTreeMap::new(),
            posts: 0,
            partial: false,
            ledger: None,
            faulty: false,
            call: String::new(),
            tally: Tally::new(),
            reached: BTreeSet::new(),
            contexts: [0; 2],
        };
        for side in [Side::A, Side::B] {
            let arena = runner.world.arena(side);
            arena.base = dat_core::memory::Region::from_static(memory[side.index()]).address();
            arena.coherent = side == Side::A || !setup.non_coherent;
            let evd = runner.with(side, |ia| ia.async_evd());
            let flags = dat_core::flags::EvdFlags::ASYNC;
            let key = runner.world.evd_create(side, ASYNC_LENGTH, None, flags);
            runner.world.async_evds[side.index()] = key;
            runner.record_handle(key, evd.handle());
        }
        for op in setup.prologue.ops() {
            runner.act(&op)?;
        }
        runner.compare()?;
        if !setup.faults.faults.is_empty() {
            runner.ledger = Some(Ledger::new(&runner));
            for fault in &setup.faults.faults {
                runner.fabric.inject(fault.clone());
            }
        }
        Ok(runner)
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// [`Mismatch`] if the oracle rules the outcome out.
    pub fn apply(&mut self, op: &Op) -> core::result::Result<(), Mismatch> {
        self.act(op)?;
        self.compare_agents()?;
        self.compare()
    }

    fn act(&mut self, op: &Op) -> Outcome {
        self.call = format!("{op:?}");
        self.check_for_faults();
        if self.needs_idle(op) {
            self.run_to_idle()?;
        }
        match op {
            Op::Memory(side, op) => self.memory(*side, op)?,
            Op::Event(side, op) => self.event(*side, op)?,
            Op::Endpoint(side, op) => self.endpoint(*side, op)?,
            Op::Connection(side, op) => self.connection(*side, op)?,
            Op::Post(side, op) => self.post(*side, op)?,
            Op::SharedReceive(side, op) => self.shared_receive(*side, op)?,
            Op::Adapter(side, op) => self.adapter(*side, op)?,
            Op::Fabric(FabricOp::RunToIdle) => self.run_to_idle()?,
            Op::Fabric(FabricOp::Step(count)) => self.step(*count)?,
            Op::Fabric(FabricOp::Expire) => self.expire()?,
        }
        Ok(())
    }

    /// Returns the faults that had an effect so far.
    pub fn happened(&self) -> Vec<Happened> {
        self.fabric.happened()
    }

    /// Returns the number of successes and refusals of each call so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the tags reached so far: successful calls, kinds of refusals, sorts of events.
    pub fn reached(&self) -> &BTreeSet<String> {
        &self.reached
    }

    /// Runs the fabric until it is idle, drains the dispatchers, and closes the adapters.
    ///
    /// # Errors
    /// [`Mismatch`] if the oracle rules the outcome out, above all for missing or excess events.
    pub fn finish(mut self) -> core::result::Result<(), Mismatch> {
        self.call = "the end of the run".into();
        self.run_to_idle()?;
        for side in [Side::A, Side::B] {
            self.drain(side)?;
        }
        self.run_to_idle()?;
        for side in [Side::A, Side::B] {
            self.drain(side)?;
        }
        self.compare_agents()?;
        self.compare()?;
        if let Some(ledger) = &self.ledger {
            ledger.finish(&self)?;
        }
        for side in [Side::A, Side::B] {
            self.close(side)?;
            self.compare_agents_of_closed(side)?;
        }
        Ok(())
    }

    fn with<R>(&self, side: Side, act: impl for<'s> FnOnce(&Adapter<'s>) -> R) -> R {
        self.machine
            .with_dependent(|_, adapters| act(&adapters[side.index()]))
    }

    fn mismatch<T>(&self, expected: impl Into<String>, actual: impl fmt::Debug) -> Outcome<T> {
        Err(Mismatch {
            call: self.call.clone(),
            expected: expected.into(),
            actual: format!("{actual:?}"),
        })
    }

    fn expect(&self, holds: bool, expected: impl fmt::Display, actual: impl fmt::Debug) -> Outcome {
        if holds || self.has_fault_effect() {
            return Ok(());
        }
        self.mismatch(expected.to_string(), actual)
    }

    /// Returns true if a fault had an effect so far, even within a call.
    fn has_fault_effect(&self) -> bool {
        self.faulty || (self.ledger.is_some() && !self.fabric.happened().is_empty())
    }

    /// Stops the prediction after the first effect of a fault: pending work may end differently.
    fn check_for_faults(&mut self) {
        if !self.faulty && self.has_fault_effect() {
            self.faulty = true;
            self.snapshot_memory();
        }
    }

    /// Compares a result with its verdict; returns the value if the call succeeded.
    fn judge<T: fmt::Debug>(
        &mut self,
        verdict: &Verdict,
        outcome: Result<T>,
    ) -> Outcome<Option<T>> {
        let (group, call) = self.call.split_once(", ").unwrap_or_default();
        let group = group.split('(').next().unwrap_or_default();
        let call = call.split([' ', ')']).next().unwrap_or_default();
        let counts = self.tally.entry(format!("{group} {call}")).or_default();
        counts[usize::from(outcome.is_err())] += 1;
        self.reached.insert(match &outcome {
            Ok(_) => format!("{group} {call}"),
            Err(error) => format!("{group} {call}: {error}"),
        });
        let allowed = if self.has_fault_effect() {
            verdict.allows_with_faults(&outcome)
        } else {
            verdict.allows(&outcome)
        };
        if !allowed {
            return self.mismatch(format!("{verdict:?}"), outcome);
        }
        Ok(outcome.ok())
    }

    fn record_handle(&mut self, key: Key, handle: Handle) {
        self.handles.insert(key, handle);
        self.keys.insert(handle.to_raw(), key);
    }

    fn handle(&self, key: Option<Key>) -> Handle {
        key.and_then(|key| self.handles.get(&key))
            .copied()
            .unwrap_or(Handle::NULL)
    }

    fn key(&self, handle: impl Into<Handle>) -> Option<Key> {
        self.keys.get(&handle.into().to_raw()).copied()
    }

    fn pick(&self, side: Side, kind: HandleKind, pick: Pick) -> Option<Key> {
        self.world
            .pick(side, kind, pick)
            .filter(|key| self.handles.contains_key(key))
    }

    fn pick_optional(
        &self,
        side: Side,
        kind: HandleKind,
        pick: Option<Pick>,
    ) -> Option<Option<Key>> {
        pick.map(|pick| self.pick(side, kind, pick))
    }

    /// Returns true as long as the oracle predicts: no fault had an effect.
    fn is_exact(&self) -> bool {
        !self.has_fault_effect()
    }

    fn next_post(&mut self) -> u64 {
        self.posts += 1;
        self.posts
    }

    /// Returns the range that offset and length choose; it may exceed the region.
    fn range(address: u64, length: u64, offset: u8, bytes: u8) -> (u64, u64) {
        let start = address + u64::from(offset >> 5) * length / 8 + u64::from(offset & 31);
        let bytes = match bytes {
            255 => length + 1,
            254 => u64::MAX - 8,
            _ => u64::from(bytes),
        };
        (start, bytes)
    }

    fn segment(&self, side: Side, segment: &SegmentChoice) -> Segment {
        let key = self.pick(side, HandleKind::Lmr, segment.region);
        let Some(lmr) = key.and_then(|key| self.world.region_ever(key)) else {
            return Segment {
                context: if key.is_some() { u32::MAX } else { 0 },
                address: u64::from(segment.offset),
                length: u64::from(segment.length),
            };
        };
        let (address, length) =
            Self::range(lmr.address, lmr.length, segment.offset, segment.length);
        Segment {
            context: lmr.context,
            address,
            length,
        }
    }

    fn segments(&self, side: Side, segments: &[SegmentChoice]) -> Vec<Segment> {
        segments
            .iter()
            .take(8)
            .map(|segment| self.segment(side, segment))
            .collect()
    }

    /// Performs up to `count` fabric actions; the oracle does all pending work.
    fn step(&mut self, count: u8) -> Outcome {
        for _ in 0..count {
            if !self.fabric.step() {
                break;
            }
            let now = self.fabric.now();
            for side in [Side::A, Side::B] {
                self.with(side, |ia| ia.progress(now));
            }
        }
        if self.is_exact() && count != 0 {
            self.world.advance();
            self.partial = true;
        }
        Ok(())
    }

    /// Runs the fabric until it is idle.
    fn run_to_idle(&mut self) -> Outcome {
        let mut idle = false;
        for _ in 0..MOST_STEPS {
            let steps = self.fabric.run_until_idle(MOST_STEPS);
            let now = self.fabric.now();
            let handled: usize = [Side::A, Side::B]
                .map(|side| self.with(side, |ia| ia.progress(now)))
                .iter()
                .sum();
            if steps + handled == 0 {
                idle = true;
                break;
            }
        }
        self.expect(idle, "an idle fabric", "a fabric that never becomes idle")?;
        if self.is_exact() {
            self.world.run_to_idle();
        }
        self.partial = false;
        Ok(())
    }

    fn expire(&mut self) -> Outcome {
        self.run_to_idle()?;
        let later = self.fabric.now().as_micros().saturating_add(10_000_000_000);
        let later = dat_core::time::Instant::from_micros(later);
        self.fabric.run_until(later);
        if self.is_exact() {
            self.world.expire();
        }
        self.run_to_idle()
    }

    /// Returns true if an operation would race with pending work.
    fn needs_idle(&self, op: &Op) -> bool {
        use crate::op::{EndpointOp, EventOp, MemoryOp};
        if !self.is_exact() {
            return false;
        }
        let looks = match op {
            Op::Fabric(_) | Op::Adapter(..) => true,
            Op::Event(_, op) => !matches!(
                op,
                EventOp::EvdResize { .. }
                    | EventOp::EvdFree { .. }
                    | EventOp::EvdPostSe { .. }
                    | EventOp::EvdModifyCno { .. }
            ),
            Op::Memory(_, op) => matches!(op, MemoryOp::PzQuery { .. } | MemoryOp::LmrQuery { .. }),
            Op::Endpoint(_, op) => {
                matches!(
                    op,
                    EndpointOp::GetStatus { .. } | EndpointOp::RecvQuery { .. }
                )
            }
            _ => false,
        };
        if looks {
            return false;
        }
        if self.partial {
            return true;
        }
        if self.world.is_idle() {
            return false;
        }
        match op {
            Op::Memory(_, op) => matches!(
                op,
                MemoryOp::LmrFree { .. }
                    | MemoryOp::RmrFree { .. }
                    | MemoryOp::Store { .. }
                    | MemoryOp::SyncRead { .. }
                    | MemoryOp::SyncWrite { .. }
            ),
            Op::Endpoint(side, op) => match op {
                EndpointOp::Free { ep } | EndpointOp::Disconnect { ep, .. } => {
                    let key = self.pick(*side, HandleKind::Ep, *ep);
                    !self.world.is_idle_except(key)
                }
                EndpointOp::ModifyPz { .. }
                | EndpointOp::ModifyEvds { .. }
                | EndpointOp::Reset { .. }
                | EndpointOp::Query { .. } => true,
                _ => false,
            },
            Op::Connection(..) => true,
            _ => false,
        }
    }

    /// Compares all state that can be queried without side effects.
    fn compare(&mut self) -> Outcome {
        if self.partial {
            return Ok(());
        }
        let eps: Vec<Key> = self.world.eps.keys().copied().collect();
        for key in eps {
            self.compare_endpoint(key)?;
        }
        self.check_for_faults();
        if self.faulty {
            self.check_ledger()
        } else {
            self.compare_shared_queues()?;
            self.compare_memory()
        }
    }

    fn compare_endpoint(&mut self, key: Key) -> Outcome {
        let Some(ep) = self
            .world
            .eps
            .get(&key)
            .filter(|_| self.handles.contains_key(&key))
        else {
            return Ok(());
        };
        let id = EpId::from_handle(self.handle(Some(key)));
        let status = self.with(ep.side, |ia| ia.ep_get_status(id));
        let Ok(status) = status else {
            return self.mismatch("a live endpoint (EPG-01)", status);
        };
        self.expect(
            ep.may_be(status.state),
            format_args!("endpoint {id:?} in state {:?}", ep.state),
            status.state,
        )?;
        if ep.may_still_be_ending {
            // Its receives may have been flushed by now.
            return Ok(());
        }
        // EPG-01: if completed but not dequeued, both answers are legal.
        let busy = ep.request_slots.pending() != 0;
        let idle = ep.request_slots.occupied() == 0;
        self.expect(
            if status.request_idle { !busy } else { !idle },
            format_args!("endpoint {id:?} with requests idle: {idle}, busy: {busy} (EPG-01)"),
            status,
        )?;
        if ep.srq.is_none() {
            let busy = ep.receive_slots.pending() != 0;
            let idle = ep.receive_slots.occupied() == 0;
            self.expect(
                if status.recv_idle { !busy } else { !idle },
                format_args!("endpoint {id:?} with receives idle: {idle}, busy: {busy} (EPG-01)"),
                status,
            )?;
        }
        if let Some(ledger) = &mut self.ledger
            && let Err(text) = ledger.check_state_change(key, status.state)
        {
            return self.mismatch(text, status.state);
        }
        Ok(())
    }

    fn compare_shared_queues(&self) -> Outcome {
        for (&key, srq) in &self.world.srqs {
            let id = SrqId::from_handle(self.handle(Some(key)));
            let query = self.with(srq.side, |ia| ia.srq_query(id, SrqFields::all()));
            let Ok(param) = query else {
                return self.mismatch("a live shared receive queue", query);
            };
            let (least, most) = srq.outstanding_bounds();
            let outstanding = usize::try_from(param.outstanding).unwrap_or(usize::MAX);
            let available = usize::try_from(param.available).unwrap_or(usize::MAX);
            let holds = (least..=most).contains(&outstanding) && available == srq.buffers.len();
            self.expect(
                holds,
                format_args!(
                    "{id:?} with {} available and {least} to {most} outstanding (SRY-02)",
                    srq.buffers.len()
                ),
                (param.available, param.outstanding),
            )?;
        }
        Ok(())
    }

    fn compare_memory(&mut self) -> Outcome {
        for side in [Side::A, Side::B] {
            for (offset, byte) in self.memory[side.index()].iter().enumerate() {
                let actual = byte.load(Ordering::Relaxed);
                if let Some(expected) = self.world.arena(side).expected(offset)
                    && expected != actual
                {
                    return self.mismatch(
                        format!("byte {offset} of side {side:?} is {expected}"),
                        actual,
                    );
                }
            }
        }
        Ok(())
    }
}

/// Defines a function for each kind of handle, which returns the id of a key.
macro_rules! ids {
    ($($name:ident $id:ident)*) => {
        impl Runner {
            $(
                fn $name(&self, key: Option<Key>) -> $id {
                    $id::from_handle(self.handle(key))
                }
            )*
        }
    };
}

ids! {
    pz_id PzId
    lmr_id LmrId
    rmr_id RmrId
    evd_id EvdId
    cno_id CnoId
    ep_id EpId
    srq_id SrqId
    psp_id PspId
    rsp_id RspId
    cr_id CrId
}

/// Returns a mask with an additional undefined bit if `unknown`.
fn mask<T: From<u32>>(all: u32, unknown: bool) -> T {
    T::from(if unknown { all | 1 << 30 } else { all })
}

/// Returns true if a connected endpoint can reach this state without a reset.
fn is_after_connected(state: EndpointState) -> bool {
    matches!(
        state,
        EndpointState::Connected | EndpointState::DisconnectPending | EndpointState::Disconnected
    )
}

/// Returns kind and subtype of an error, without its cause.
fn code(error: Error) -> String {
    format!("{:?}/{:?}", error.kind(), error.subtype())
}
