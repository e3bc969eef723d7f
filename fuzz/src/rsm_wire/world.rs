//! The three nodes, and the checks of their state.

use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::event::{Wait, WakeReason};
use dat_core::memory::{Region, RmrTriplet};
use dat_core::time::Instant;
use dat_rsm::wire::MESSAGE_SIZE;
use dat_rsm::{
    AccessEntry, ControllerConfig, ControllerId, DEFAULT_QUALIFIER, ExportFlags, ExportId,
    GetEntry, ImportId, Limits, LocalAccess, NodeEntry, Options, Permission, PutEntry, Rsm,
    SegmentHandle, SignalFlags, Source, Target, VectorFlags,
};

use super::intruder::Intruder;
use super::pages::{
    FRIEND_PAGES, GOT, GUARD_BYTE, INTRUDER_BYTE, INTRUDER_PAGES, LOCAL, LOCAL_BYTE, OPEN,
    OPEN_BYTE, READABLE, READABLE_BYTE, REVOKED_BYTE, SECRET, SECRET_BYTE, STOLEN, VICTIM_PAGES,
};
use super::script::Operation;
use super::{Engine, FRIEND, INTRUDER, REGIONS, SEGMENTS, Slots, VICTIM, open};
use crate::consumer::{address, fill, is_full_of};
use crate::script::pick;

/// The regions that an open controller has by itself.
const OWN_REGIONS: usize = 2;

/// The three nodes and their objects.
pub(super) struct World<'s> {
    victim: Engine<'s>,
    friend: Engine<'s>,
    intruder: Intruder<'s>,
    victim_controller: ControllerId,
    friend_controller: ControllerId,
    exports: [ExportId; 3],
    published: [bool; 3],
    /// The victim's imports from the intruder.
    baits: Vec<ImportId>,
    secret: ImportId,
    fabric: Fabric,
}

fn entry(node: u32) -> NodeEntry {
    NodeEntry {
        node,
        controller: "dat0",
        address: address_of(node),
        qualifier: DEFAULT_QUALIFIER,
    }
}

fn address_of(node: u32) -> IaAddress {
    NodeOptions::new("", u64::from(node)).address
}

/// A wait that advances all nodes except the caller's.
struct Others<'w, 's> {
    fabric: &'w Fabric,
    engine: &'w Engine<'s>,
    intruder: &'w Intruder<'s>,
}

impl Wait for Others<'_, '_> {
    fn now(&mut self) -> Instant {
        self.fabric.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let now = self.now();
        let others = self.engine.progress(now) + self.intruder.progress(now);
        if others != 0 || self.fabric.step() {
            return WakeReason::Woken;
        }
        match until {
            Some(until) => {
                self.fabric.run_until(until.max(now));
                WakeReason::TimedOut
            }
            None => WakeReason::Interrupted,
        }
    }
}

impl<'s> World<'s> {
    pub(super) fn new(seed: u64, storage: &'s mut [Box<Slots>; 3]) -> Self {
        for (page, byte) in VICTIM_PAGES.0.iter().zip(b"GOGRGSGLG") {
            fill(page, *byte);
        }
        for (page, byte) in INTRUDER_PAGES.0.iter().zip([0, 0, INTRUDER_BYTE]) {
            fill(page, byte);
        }
        let fabric = Fabric::new(FabricOptions {
            seed,
            ..FabricOptions::default()
        });
        let [first, second, third] = storage;
        let adapter = |storage: &'s mut Slots, node: u32| {
            let mut options = NodeOptions::new("fuzz", u64::from(node));
            // One zone each, so that a leaked one is noticed at the end.
            options.limits.domains = 1;
            open(storage, fabric.node(options))
        };
        let intruder = Intruder::new(adapter(first, INTRUDER));
        let engine = |storage: &'s mut Slots, node: u32| {
            let config = ControllerConfig {
                name: "dat0",
                ia: adapter(storage, node),
                qualifier: DEFAULT_QUALIFIER,
                nodes: [INTRUDER, VICTIM, FRIEND].map(entry).to_vec(),
            };
            let options = Options {
                limits: Limits {
                    exports: 3,
                    imports: 8,
                    importers: 12,
                    local_memory: REGIONS,
                    barriers: 4,
                    links: 9,
                    calls: 8,
                    requests: 256,
                    ..Limits::default()
                },
                ..Options::new(node, u64::from(node))
            };
            let engine = Rsm::new(options, vec![config]).expect("an engine");
            let controller = engine.get_controller(Some("dat0"));
            (engine, controller.expect("a controller"))
        };
        let (victim, victim_controller) = engine(second, VICTIM);
        let (friend, friend_controller) = engine(third, FRIEND);
        let exports = [OPEN, READABLE, SECRET].map(|page| {
            let page: &'static [AtomicU8] = &VICTIM_PAGES.0[page];
            victim
                .export_create(
                    victim_controller,
                    Region::from_static(page),
                    ExportFlags::empty(),
                )
                .expect("a segment")
        });
        for (index, export) in exports.iter().enumerate() {
            victim
                .export_publish(*export, SEGMENTS[index], access(index))
                .expect("published");
        }
        let mut wait = Others {
            fabric: &fabric,
            engine: &victim,
            intruder: &intruder,
        };
        let secret = friend.import_connect(
            friend_controller,
            VICTIM,
            SEGMENTS[2],
            Permission::all(),
            &mut wait,
        );
        let secret = secret.expect("connected");
        Self {
            victim,
            friend,
            intruder,
            victim_controller,
            friend_controller,
            exports,
            published: [true; 3],
            baits: Vec::new(),
            secret,
            fabric,
        }
    }

    pub(super) fn act(&mut self, operation: Operation) {
        match operation {
            Operation::SendMessage {
                kind,
                word,
                other,
                half,
                bent,
            } => {
                let mut bytes = self.intruder.message(kind, word, other, half).encode();
                if let Some(byte) = bytes.get_mut(usize::from(bent).wrapping_sub(1)) {
                    *byte = byte.wrapping_add(1);
                }
                self.intruder.send(&bytes);
                self.run_to_idle();
            }
            Operation::Noise {
                first,
                second,
                third,
                fourth,
                fifth,
            } => {
                let bytes = [first, second, third, fourth, fifth];
                let length = [MESSAGE_SIZE, MESSAGE_SIZE + 1, 1, 0][usize::from(bytes[0]) % 4];
                let noise: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
                self.intruder.send(&noise);
                self.run_to_idle();
            }
            Operation::Access {
                write,
                key,
                offset,
                length,
                target,
            } => {
                let keys = self.intruder.keys.borrow().clone();
                let (granted, key) = keys[keys.len() - 1 - usize::from(key) % keys.len()];
                let base = match target % 6 {
                    0 => address(&VICTIM_PAGES.0[OPEN]),
                    1 => address(&VICTIM_PAGES.0[READABLE]),
                    2 => address(&VICTIM_PAGES.0[SECRET]),
                    3 => address(&VICTIM_PAGES.0[LOCAL]),
                    _ => granted,
                };
                let offset = [0, 8, 4088, 4092, 4096, u64::MAX - 7][usize::from(offset) % 6];
                let remote = RmrTriplet {
                    context: key,
                    address: base.wrapping_add(offset),
                    length: [8, 1, 4096, 0][usize::from(length) % 4],
                };
                self.intruder.access(write & 1 == 1, &remote, target >> 4);
                self.run_to_idle();
            }
            Operation::Greet { variant } => {
                self.intruder.connect(variant, self.fabric.now());
                self.run_to_idle();
            }
            Operation::Victim { call, segment } => self.call(call, usize::from(segment)),
            Operation::RunToIdle { time } => {
                let until = self.fabric.now().after(u32::from(time) * 1000);
                self.run_to_idle();
                if let Some(until) = until {
                    self.fabric.run_until(until);
                }
                self.run_to_idle();
            }
        }
        self.check();
    }

    /// Makes a call of the victim.
    ///
    /// Its result may depend on the intruder, but must not be wrong.
    fn call(&mut self, call: u8, choice: usize) {
        let wait = &mut Others {
            fabric: &self.fabric,
            engine: &self.friend,
            intruder: &self.intruder,
        };
        let victim = &self.victim;
        let index = choice % 2;
        let bait = pick(&self.baits, choice);
        match (call % 9, bait) {
            (0, _) => {
                self.intruder.answer.set(u8::try_from(choice).ok());
                let connected = victim.import_connect(
                    self.victim_controller,
                    INTRUDER,
                    SEGMENTS[0],
                    Permission::all(),
                    wait,
                );
                self.baits.extend(connected);
            }
            (1, _) if self.published[index] => {
                victim
                    .export_unpublish(self.exports[index], wait)
                    .expect("an unpublished segment");
                self.published[index] = false;
                if index == 0 {
                    fill(&VICTIM_PAGES.0[OPEN], REVOKED_BYTE);
                }
            }
            (2, _) if !self.published[index] => {
                if index == 0 {
                    fill(&VICTIM_PAGES.0[OPEN], OPEN_BYTE);
                }
                victim
                    .export_publish(self.exports[index], SEGMENTS[index], access(index))
                    .expect("published");
                self.published[index] = true;
            }
            (3, Some(bait)) => {
                let entry = PutEntry {
                    local: Source::Bytes(b"VVVVVVVV"),
                    local_offset: 0,
                    remote_offset: 16,
                    length: 8,
                };
                let _anything = victim.putv(bait, &[entry], VectorFlags::IMPLICIT_SIGPOST, wait);
            }
            (4, Some(bait)) => {
                let region = Region::from_static(&VICTIM_PAGES.0[LOCAL]);
                let controller = self.victim_controller;
                let local = victim
                    .create_local_memory(controller, region, LocalAccess::ReadWrite)
                    .expect("local memory");
                let mut entries = [GetEntry {
                    local: Target::Handle(local),
                    local_offset: GOT.start as u64,
                    remote_offset: 8,
                    length: GOT.len() as u64,
                }];
                let _anything = victim.getv(bait, &mut entries, VectorFlags::empty(), wait);
                // Succeeds even if transfers that use the memory would never complete.
                victim
                    .free_local_memory(controller, local, wait)
                    .expect("freed");
            }
            (5, Some(bait)) => {
                let _anything = victim.signal_post(bait, SignalFlags::empty(), wait);
            }
            (6, _) => {
                let export = SegmentHandle::Export(self.exports[index]);
                let posted = victim.signal_post(export, SignalFlags::NO_ACCUMULATE, wait);
                assert_eq!(posted, Ok(()));
            }
            (3..=5 | 7, None) => {}
            (7, Some(bait)) => {
                victim.import_disconnect(bait, wait).expect("disconnected");
                self.baits.retain(|other| *other != bait);
            }
            _ => {
                for export in self.exports {
                    let _taken = victim.signal_take(export).expect("a segment");
                }
            }
        }
        self.run_to_idle();
    }

    fn run_to_idle(&self) {
        loop {
            let now = self.fabric.now();
            let handled =
                self.victim.progress(now) + self.friend.progress(now) + self.intruder.progress(now);
            if !self.fabric.step() && handled == 0 {
                return;
            }
        }
    }

    /// Checks that no byte changed or leaked without a grant to the intruder.
    fn check(&self) {
        let pages = &VICTIM_PAGES.0;
        for guard in pages.iter().step_by(2) {
            assert!(is_full_of(guard, GUARD_BYTE), "a guard is hurt");
        }
        assert!(is_full_of(&pages[READABLE], READABLE_BYTE), "written");
        assert!(is_full_of(&pages[SECRET], SECRET_BYTE), "a secret is hurt");
        let open = |cell: &AtomicU8| match cell.load(Ordering::Relaxed) {
            REVOKED_BYTE => !self.published[0],
            OPEN_BYTE | INTRUDER_BYTE => self.published[0],
            // The intruder may copy bytes here that the victim put into the bait.
            b'V' => self.published[0],
            _ => false,
        };
        assert!(pages[OPEN].iter().all(open), "written after revocation");
        let local = &pages[LOCAL];
        let (before, after) = (&local[..GOT.start], &local[GOT.end..]);
        for part in [before, after] {
            assert!(is_full_of(part, LOCAL_BYTE), "outside the requested range");
        }
        let stolen = &INTRUDER_PAGES.0[STOLEN];
        for cell in stolen {
            let byte = cell.load(Ordering::Relaxed);
            assert!(
                [0, OPEN_BYTE, READABLE_BYTE, INTRUDER_BYTE, b'V'].contains(&byte),
                "{:?} was read",
                char::from(byte)
            );
        }
    }

    /// Checks that the third node is still served, and that no object is left.
    pub(super) fn end(mut self) {
        self.run_to_idle();
        self.check();
        let mut wait = Others {
            fabric: &self.fabric,
            engine: &self.victim,
            intruder: &self.intruder,
        };
        let bytes: &'static [AtomicU8] = &FRIEND_PAGES.0[0];
        let entry = PutEntry {
            local: Source::Shared(bytes),
            local_offset: 0,
            remote_offset: 0,
            length: 64,
        };
        self.friend
            .putv(
                self.secret,
                &[entry],
                VectorFlags::IMPLICIT_SIGPOST,
                &mut wait,
            )
            .expect("the friend is served");
        assert!(is_full_of(&VICTIM_PAGES.0[SECRET][..64], 0), "not there");
        let taken = self.victim.signal_take(self.exports[2]);
        assert_eq!(taken, Ok(true), "the friend's signal");
        self.friend
            .release_controller(self.friend_controller, &mut wait)
            .expect("released");
        let mut wait = Others {
            fabric: &self.fabric,
            engine: &self.friend,
            intruder: &self.intruder,
        };
        self.victim
            .release_controller(self.victim_controller, &mut wait)
            .expect("released");
        self.run_to_idle();
        self.baits.clear();
        for engine in [&self.victim, &self.friend] {
            is_empty(engine);
        }
    }
}

/// Checks that the adapter's tables are empty.
///
/// The tables are no larger than the engine needs, so it can fill them only if all slots are free.
fn is_empty(engine: &Engine<'_>) {
    let controller = engine.get_controller(Some("dat0"));
    let controller = controller.expect("a zone, a dispatcher or a service point leaked");
    let page: &'static [AtomicU8] = &FRIEND_PAGES.0[0];
    for _ in OWN_REGIONS..REGIONS {
        engine
            .create_local_memory(controller, Region::from_static(page), LocalAccess::ReadOnly)
            .expect("a region leaked");
    }
}

/// Returns the access list of each page.
fn access(index: usize) -> &'static [AccessEntry] {
    const LISTS: [&[AccessEntry]; 3] = [
        &[
            AccessEntry {
                node: INTRUDER,
                permission: 0o666,
            },
            AccessEntry {
                node: FRIEND,
                permission: 0o666,
            },
        ],
        &[AccessEntry {
            node: INTRUDER,
            permission: 0o444,
        }],
        &[AccessEntry {
            node: FRIEND,
            permission: 0o666,
        }],
    ];
    LISTS[index]
}
