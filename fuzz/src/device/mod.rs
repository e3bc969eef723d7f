//! A device that writes anything, under the mmio driver, in both layouts.
//!
//! A fabric has two model devices: a suspect one, and an honest one at the other end of two
//! connections. The consumer makes legitimate calls on both. Between them the suspect device forges
//! completions, changes words of rings, records and slots, reports false events, answers commands
//! wrongly, and leaves its bus. Nothing panics or hangs. No unregistered byte changes. A post
//! completes at most once, and exactly once if the device was caught. Everything can be freed. The
//! honest end loses nothing.

pub(crate) mod judgement;
mod layout;
mod script;

use std::cell::RefCell;

use backend_mock::{BufferOrder, FabricOptions, NodeOptions};
use dat_core::Ia;
use dat_core::backend::Backend;
use dat_core::flags::{CloseFlags, TIMEOUT_INFINITE};
use mmio_model::pvrdma::{PvrdmaFabric, PvrdmaLent};
use mmio_model::{Lent, ModelFabric};

use self::judgement::{Side, Slots, check_guards, fill};
use self::layout::{Layout, may_lack};
pub use self::script::{Operation, SETUP_SIZE};
use crate::consumer::{Lock, connect_to};
use crate::script::decode;

/// The most operations of a run.
const OPERATIONS: usize = 48;
/// The most rounds until everything is at rest, unless the device never is.
const ROUNDS: usize = 400;
/// The qualifier on which the honest end listens.
const QUALIFIER: u64 = 4000;
/// The number of connections.
pub(crate) const PAIRS: usize = 2;
/// The indices of the suspect device and of the honest one.
pub(crate) const SUSPECT: usize = 0;
const HONEST: usize = 1;

thread_local! {
    /// The memory of the devices, in both layouts.
    static LENT: RefCell<[Lent; 2]> = RefCell::default();
    static PVRDMA_LENT: RefCell<[PvrdmaLent; 2]> = RefCell::default();
}

/// Runs an input.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let Some((setup, rest)) = input.split_first_chunk::<SETUP_SIZE>() else {
        return;
    };
    let operations = decode(rest, OPERATIONS);
    let [seed, layout, ..] = *setup;
    let options = FabricOptions {
        seed: u64::from(seed),
        buffer_order: BufferOrder::Seeded,
        ..FabricOptions::default()
    };
    if layout & 1 == 0 {
        LENT.with_borrow_mut(|lent| play(&ModelFabric::new(options), lent, setup, &operations));
    } else {
        let fabric = PvrdmaFabric::new(options);
        PVRDMA_LENT.with_borrow_mut(|lent| play(&fabric, lent, setup, &operations));
    }
}

fn open<B: Backend>(storage: &mut Slots<B>, backend: B) -> Option<Ia<'_, B, Lock>> {
    Ia::open(backend, storage.lend(), 8).ok()
}

/// The whole state of a run.
struct World<'w, 't, 'u, L: Layout, A: Backend, B: Backend> {
    fabric: &'w L,
    suspect: Side<'t, A>,
    honest: Side<'u, B>,
    /// The honest side's endpoint that is connected next.
    wanted: Option<usize>,
}

fn play<L: Layout>(
    fabric: &L,
    [first, second]: &mut [L::Lent; 2],
    setup: &[u8; SETUP_SIZE],
    operations: &[Operation],
) {
    fill();
    let coherent = |mut options: NodeOptions| {
        options.coherent = setup[1] & 0x80 == 0;
        options
    };
    let suspect = fabric.device(coherent(NodeOptions::new("suspect", 1)), Some(setup), first);
    let may_lack = may_lack(*setup);
    let Some((suspect, state)) = suspect else {
        assert!(may_lack, "the device could not be brought into operation");
        return check_guards();
    };
    let honest = fabric.device(coherent(NodeOptions::new("honest", 2)), None, second);
    let (honest, honest_state) = honest.expect("an honest device");
    let (mut near, mut far) = (Box::new(Slots::default()), Box::new(Slots::default()));
    let Some(ia) = open(&mut near, suspect) else {
        assert!(may_lack, "the adapter could not be opened");
        return check_guards();
    };
    let Some(suspect) = Side::new(SUSPECT, ia, may_lack) else {
        return check_guards();
    };
    let ia = open(&mut far, honest).expect("an adapter");
    let honest = Side::new(HONEST, ia, false).expect("objects of an honest device");
    let mut world = World {
        fabric,
        suspect,
        honest,
        wanted: None,
    };
    for pair in 0..PAIRS {
        world.connect(pair);
    }
    for operation in operations {
        world.act(*operation);
    }
    // Polls every completion that was written and is valid.
    world.suspect.take(0);
    world.suspect.take(1);
    for pair in 0..PAIRS {
        let _anything = world
            .suspect
            .ia
            .ep_disconnect(world.suspect.endpoints[pair], CloseFlags::Abrupt);
        let _anything = world
            .honest
            .ia
            .ep_disconnect(world.honest.endpoints[pair], CloseFlags::Abrupt);
    }
    for _ in 0..4 {
        world.run_to_idle(ROUNDS);
        for from in 0..3 {
            world.suspect.take(from);
            world.honest.take(from);
        }
    }
    check_guards();
    assert_eq!(honest_state.fault(), None, "of the honest device");
    let World {
        suspect, honest, ..
    } = world;
    let caught = state.fault().is_some();
    suspect.end(caught, caught);
    honest.end(false, true);
}

impl<L: Layout, A: Backend, B: Backend> World<'_, '_, '_, L, A, B> {
    fn act(&mut self, operation: Operation) {
        match operation {
            Operation::Post {
                at,
                kind,
                offset,
                length,
                flags,
            } => {
                // The interface allows legitimate calls and refuses the others.
                let there = u64::from(length) * 8;
                if at & 1 == 0 {
                    let to = self.honest.remote(offset, there);
                    self.suspect.post(&to, at, kind, offset, length, flags);
                } else {
                    let to = self.suspect.remote(offset, there);
                    self.honest.post(&to, at, kind, offset, length, flags);
                }
            }
            Operation::Take { at, dispatcher } => {
                let from = usize::from(dispatcher) % 3;
                if at & 1 == 0 {
                    self.suspect.take(from);
                } else {
                    self.honest.take(from);
                }
            }
            Operation::Wait {
                at,
                dispatcher,
                threshold,
            } => {
                let from = usize::from(dispatcher) % 3;
                if at & 1 == 0 {
                    self.suspect.wait(from, threshold);
                } else {
                    self.honest.wait(from, threshold);
                }
            }
            Operation::Advance { steps } => self.run_to_idle(usize::from(steps)),
            Operation::Corrupt {
                area,
                low,
                high,
                how,
                value,
            } => {
                let value = u32::from(value);
                let change = |word: u32| match how % 8 {
                    0 => word ^ 1 << (value % 32),
                    1 => value,
                    2 => u32::MAX,
                    3 => word.wrapping_add(value),
                    4 => word.wrapping_sub(value),
                    5 => value << 24,
                    6 => word ^ value << 8,
                    _ => word.swap_bytes(),
                };
                let word = u16::from_le_bytes([low, high]);
                self.fabric.corrupt(area.into(), word.into(), change);
            }
            Operation::BadCqe { kind, bit } => self.fabric.bad_cqe(kind, bit),
            Operation::FalseEvent { kind, number } => self.fabric.false_event(kind, number),
            Operation::FalseAnswer { word, bit } => {
                let bits = if bit < 32 { 1 << bit } else { u32::MAX };
                self.fabric.false_answer(word, bits);
            }
            Operation::Unplug => self.fabric.unplug(),
            Operation::Connection { at, how } => self.connection(at, how),
            Operation::Make { at, kind } => {
                if at & 1 == 0 {
                    self.suspect.make(kind);
                } else {
                    self.honest.make(kind);
                }
            }
        }
    }

    fn connection(&mut self, at: u8, how: u8) {
        let pair = usize::from(at >> 1) % PAIRS;
        let flags = [CloseFlags::Abrupt, CloseFlags::Graceful][usize::from(how >> 2) % 2];
        let (near, far) = (self.suspect.endpoints[pair], self.honest.endpoints[pair]);
        let _anything = match (how % 4, at & 1) {
            (0, 0) => self.suspect.ia.ep_disconnect(near, flags),
            (0, _) => self.honest.ia.ep_disconnect(far, flags),
            (1, 0) => self.suspect.reset(pair),
            (1, _) => self.honest.reset(pair),
            _ => {
                self.connect(pair);
                Ok(())
            }
        };
    }

    /// Connects two endpoints, if they are ready for it and the device lets them.
    fn connect(&mut self, pair: usize) {
        self.wanted = Some(pair);
        let outcome = self.suspect.ia.ep_connect(
            self.suspect.endpoints[pair],
            &connect_to(
                NodeOptions::new("", 2).address,
                QUALIFIER + HONEST as u64,
                TIMEOUT_INFINITE,
                &[],
            ),
            self.fabric.now(),
        );
        if outcome.is_ok() {
            self.run_to_idle(ROUNDS);
        }
    }

    /// Advances both sides until they are at rest, or for `rounds`.
    fn run_to_idle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let now = self.fabric.now();
            let handled = self.suspect.ia.progress(now) + self.honest.ia.progress(now);
            let arrivals = self.honest.dispatchers[3];
            while let Ok(event) = self.honest.ia.evd_dequeue(arrivals) {
                let Some(request) = self.honest.taken(3, event) else {
                    continue;
                };
                let ia = &self.honest.ia;
                let accepted = self.wanted.take().is_some_and(|pair| {
                    ia.cr_accept(request, Some(self.honest.endpoints[pair]), &[])
                        .is_ok()
                });
                if !accepted {
                    let _gone = ia.cr_reject(request, &[]);
                }
            }
            if !self.fabric.step() && handled == 0 {
                return;
            }
        }
    }
}
