//! A peer that says whatever a fuzzer likes to the engine of remote shared memory.
//!
//! Three nodes on a mock fabric. The second one, the victim, exports three pages: one that the intruder may read and
//! write, one that it may read, one that is for the third node alone. The intruder is no engine but a bare endpoint on the
//! first node; it speaks by hand, accesses memory with the keys it heard, and answers when the victim connects to it.
//! Whatever it does, no byte changes or leaks that it was not granted, the third node is served, and when the
//! controllers are released every object is free again.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event, Wait, WakeReason};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use dat_core::{Ia, IaStorage};
use dat_rsm::wire::{Body, GREETING_SIZE, Greeting, MESSAGE_SIZE, Message};
use dat_rsm::{
    AccessEntry, ControllerConfig, ControllerId, DEFAULT_QUALIFIER, ExportFlags, ExportId,
    GetEntry, ImportId, Limits, LocalAccess, NodeEntry, Options, Permission, PutEntry, Rsm,
    RsmError, SegmentHandle, SignalFlags, Source, Target, VectorFlags,
};

const PAGE: usize = 4096;
const INTRUDER: u32 = 1;
const VICTIM: u32 = 2;
const FRIEND: u32 = 3;
/// The life that the intruder claims to be in.
const LIFE: u64 = 0xBAD;
/// The ids of the victim's pages, and one that nobody has.
const SEGMENTS: [u32; 4] = [0x60_0000, 0x60_0001, 0x60_0002, 0x60_0003];
/// Messages that the intruder takes at a time, for each endpoint.
const PLACES: usize = 8;
/// Endpoints that the intruder makes in a run.
const ENDPOINTS: usize = 6;
/// Operations of a run.
const OPERATIONS: usize = 64;

const REGIONS: usize = 64;
/// Regions that an open controller has by itself.
const OWN_REGIONS: usize = 2;
/// What an engine needs, and the adapter's own; the intruder needs no more.
const DISPATCHERS: usize = 5;

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// What happens next. Numbers choose from what makes sense, and from some things that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The intruder says a message of this type, with these fields.
    Say {
        /// The type, modulo the number of types.
        kind: u8,
        /// The first word.
        word: u8,
        /// The second word.
        other: u8,
        /// The numbers of 32 bits.
        half: u8,
        /// A byte of the message that is changed, if it is one.
        bent: u8,
    },
    /// The intruder sends these bytes, repeated.
    Noise {
        /// The first five bytes.
        bytes: [u8; 5],
    },
    /// The intruder reads or writes through a key.
    Access {
        /// Odd writes, even reads.
        write: u8,
        /// Which key.
        key: u8,
        /// Where.
        offset: u8,
        /// How much.
        length: u8,
        /// Whose address: what came with the key, or one of the victim's pages.
        place: u8,
    },
    /// The intruder connects anew.
    Greet {
        /// What it says of itself.
        variant: u8,
    },
    /// The victim calls something.
    Victim {
        /// What.
        call: u8,
        /// Of which segment.
        segment: u8,
    },
    /// Everything comes to rest, or time passes.
    Rest {
        /// Milliseconds.
        time: u8,
    },
}

impl Operation {
    /// The operation as a part of an input.
    pub fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Say {
                kind,
                word,
                other,
                half,
                bent,
            } => [0, kind, word, other, half, bent],
            Self::Noise {
                bytes: [a, b, c, d, e],
            } => [1, a, b, c, d, e],
            Self::Access {
                write,
                key,
                offset,
                length,
                place,
            } => [2, write, key, offset, length, place],
            Self::Greet { variant } => [3, variant, 0, 0, 0, 0],
            Self::Victim { call, segment } => [4, call, segment, 0, 0, 0],
            Self::Rest { time } => [5, time, 0, 0, 0, 0],
        }
    }

    fn decode([what, a, b, c, d, e]: [u8; OPERATION_SIZE]) -> Self {
        match what % 6 {
            0 => Self::Say {
                kind: a,
                word: b,
                other: c,
                half: d,
                bent: e,
            },
            1 => Self::Noise {
                bytes: [a, b, c, d, e],
            },
            2 => Self::Access {
                write: a,
                key: b,
                offset: c,
                length: d,
                place: e,
            },
            3 => Self::Greet { variant: a },
            4 => Self::Victim {
                call: a,
                segment: b,
            },
            _ => Self::Rest { time: a },
        }
    }
}

/// An input of these operations.
pub fn encode(operations: &[Operation]) -> Vec<u8> {
    let mut input = vec![0];
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}

/// Runs an input: the bytes as messages, and as operations.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &[u8]) {
    decode_alone(input);
    let Some((seed, rest)) = input.split_first() else {
        return;
    };
    let mut storage = [(); 3].map(|()| Box::new(Slots::default()));
    let mut world = World::new(u64::from(*seed), &mut storage);
    for bytes in rest.as_chunks().0.iter().take(OPERATIONS) {
        world.act(Operation::decode(*bytes));
    }
    world.end();
}

/// Whatever bytes come, they are refused, or are exactly what the message that they are read as is written as.
fn decode_alone(input: &[u8]) {
    for bytes in input.windows(MESSAGE_SIZE).step_by(7).take(64) {
        let bytes: &[u8; MESSAGE_SIZE] = bytes.first_chunk().expect("of this size");
        for magic in [false, true] {
            let mut bytes = *bytes;
            if magic {
                bytes[..4].copy_from_slice(b"RSM\x01");
                bytes[4] %= 12;
                bytes[5] = 0;
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes, "{message:?}");
            }
            if let Ok(greeting) = Greeting::decode(&bytes) {
                assert_eq!(greeting.encode(), bytes[..GREETING_SIZE], "{greeting:?}");
            }
        }
    }
    if let Ok(greeting) = Greeting::decode(input) {
        assert_eq!(Some(&greeting.encode()), input.first_chunk());
    }
}

/// Pages of a node, for ever.
#[repr(align(4096))]
struct Pages<const COUNT: usize>([[AtomicU8; PAGE]; COUNT]);

impl<const COUNT: usize> Pages<COUNT> {
    const fn new() -> Self {
        Self([const { [const { AtomicU8::new(0) }; PAGE] }; COUNT])
    }
}

/// The victim's: a guard before and behind each thing.
static VICTIM_PAGES: Pages<9> = Pages::new();
static INTRUDER_PAGES: Pages<3> = Pages::new();
static FRIEND_PAGES: Pages<1> = Pages::new();

/// Places among the victim's pages.
const OPEN: usize = 1;
const READABLE: usize = 3;
const SECRET: usize = 5;
const LOCAL: usize = 7;
/// What they are full of.
const GUARD_BYTE: u8 = b'G';
const OPEN_BYTE: u8 = b'O';
const READABLE_BYTE: u8 = b'R';
const SECRET_BYTE: u8 = b'S';
const LOCAL_BYTE: u8 = b'L';
/// What the open page is full of while it is not published.
const REVOKED_BYTE: u8 = b'X';
/// What the intruder writes.
const INTRUDER_BYTE: u8 = b'H';
/// What the victim may be given, and where in its local page.
const GOT: core::ops::Range<usize> = 1024..1088;

/// Places among the intruder's pages.
const MESSAGES: usize = 0;
const STOLEN: usize = 1;
const BAIT: usize = 2;

fn fill(page: &[AtomicU8; PAGE], byte: u8) {
    for cell in page {
        cell.store(byte, Ordering::Relaxed);
    }
}

fn is_full_of(page: &[AtomicU8], byte: u8) -> bool {
    page.iter().all(|cell| cell.load(Ordering::Relaxed) == byte)
}

fn store(page: &[AtomicU8], bytes: &[u8]) {
    for (cell, byte) in page.iter().zip(bytes) {
        cell.store(*byte, Ordering::Relaxed);
    }
}

fn address(page: &'static [AtomicU8; PAGE]) -> u64 {
    Region::from_static(page).address()
}

type Lock = SpinLock;
type Adapter<'s> = Ia<'s, MockBackend, Lock>;
type Engine<'s> = Rsm<'s, MockBackend, Lock>;
type Slots = IaStorage<MockBackend, Lock, 16, DISPATCHERS, 1, REGIONS, 1024, 2048>;

fn open(storage: &mut Slots, backend: MockBackend) -> Adapter<'_> {
    match Ia::open(backend, storage.lend(), 32) {
        Ok(ia) => ia,
        Err(refused) => panic!("{}", refused.error),
    }
}

/// The intruder.
struct Intruder<'s> {
    ia: Adapter<'s>,
    zone: PzId,
    transfers: EvdId,
    connections: EvdId,
    arrivals: EvdId,
    memory: [LmrCreated; 3],
    /// The endpoints, and whether each is connected, oldest first.
    endpoints: RefCell<Vec<(EpId, bool)>>,
    /// Words it heard, and words that everybody knows.
    words: RefCell<Vec<u64>>,
    /// Addresses and keys that it heard.
    keys: RefCell<Vec<(u64, u32)>>,
    /// How it answers when the victim asks for a connection, if it does.
    answer: Cell<Option<u8>>,
}

impl<'s> Intruder<'s> {
    fn new(ia: Adapter<'s>) -> Self {
        let zone = ia.pz_create().expect("a zone");
        let dispatcher = |flags| ia.evd_create(64, None, flags).expect("a dispatcher");
        let transfers = dispatcher(EvdFlags::DTO);
        let connections = dispatcher(EvdFlags::CONNECTION);
        let arrivals = dispatcher(EvdFlags::CR);
        ia.psp_create(DEFAULT_QUALIFIER, arrivals, PspFlags::Consumer)
            .expect("a service point");
        let memory = [MESSAGES, STOLEN, BAIT].map(|page| {
            let page: &'static [AtomicU8] = &INTRUDER_PAGES.0[page];
            ia.lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_static(page)),
                pz: zone,
                privileges: MemoryPrivileges::ALL,
            })
            .expect("memory")
        });
        Self {
            ia,
            zone,
            transfers,
            connections,
            arrivals,
            memory,
            endpoints: RefCell::default(),
            words: RefCell::new(vec![0, 1, 2, u64::MAX]),
            keys: RefCell::new(vec![(0, 0), (0, 1)]),
            answer: Cell::new(None),
        }
    }

    fn piece(&self, page: usize, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.memory[page].lmr_context,
            address: address(&INTRUDER_PAGES.0[page]) + offset as u64,
            length: length as u64,
        }
    }

    fn endpoint(&self) -> Option<EpId> {
        let number = self.endpoints.borrow().len();
        if number == ENDPOINTS {
            return None;
        }
        let attributes = EpAttributes {
            max_message_size: 1 << 20,
            max_rdma_size: 1 << 20,
            max_request_dtos: 16,
            max_recv_dtos: PLACES as i32,
            max_rdma_read_in: 16,
            max_rdma_read_out: 16,
            ..EpAttributes::DEFAULT
        };
        let (both, connect) = (Some(self.transfers), Some(self.connections));
        let ep = self
            .ia
            .ep_create(Some(self.zone), both, both, connect, Some(&attributes))
            .expect("an endpoint");
        for place in 0..PLACES {
            self.listen(ep, number * PLACES + place);
        }
        self.endpoints.borrow_mut().push((ep, false));
        Some(ep)
    }

    fn listen(&self, ep: EpId, place: usize) {
        // The first place is for what is sent.
        let piece = self.piece(MESSAGES, (place + 1) * MESSAGE_SIZE, MESSAGE_SIZE);
        let flags = CompletionFlags::empty();
        let _over = self.ia.post_recv(ep, &[piece], place as u64, flags);
    }

    fn greeting(&self, variant: u8) -> Vec<u8> {
        let fine = Greeting {
            node: INTRUDER,
            incarnation: LIFE,
            flush_address: address(&INTRUDER_PAGES.0[BAIT]),
            flush_key: self.memory[BAIT].rmr_context,
            credits: PLACES as u16,
            big_endian: false,
        };
        let greeting = match variant % 10 {
            1 => Greeting {
                node: FRIEND,
                ..fine
            },
            2 => Greeting {
                node: VICTIM,
                ..fine
            },
            3 => Greeting { node: 77, ..fine },
            4 => Greeting { credits: 1, ..fine },
            5 => Greeting {
                credits: u16::MAX,
                ..fine
            },
            6 => Greeting {
                flush_key: 1,
                ..fine
            },
            7 => Greeting {
                flush_address: u64::MAX,
                ..fine
            },
            8 => Greeting {
                big_endian: true,
                ..fine
            },
            _ => fine,
        };
        let mut bytes = greeting.encode().to_vec();
        if variant % 10 == 9 {
            bytes.truncate(usize::from(variant) % GREETING_SIZE);
        }
        bytes
    }

    fn connect(&self, variant: u8, now: Instant) {
        let Some(ep) = self.endpoint() else {
            return;
        };
        self.ia
            .ep_connect(
                ep,
                &ConnectParam {
                    address: NodeOptions::new("", u64::from(VICTIM)).address,
                    qualifier: DEFAULT_QUALIFIER,
                    timeout: 1_000_000,
                    private_data: &self.greeting(variant),
                    quality: QualityOfService::BEST_EFFORT,
                    flags: ConnectFlags::empty(),
                },
                now,
            )
            .expect("asked");
    }

    /// The newest connected endpoint, or another one.
    fn connected(&self, choice: u8) -> Option<EpId> {
        let endpoints = self.endpoints.borrow();
        let connected: Vec<EpId> = endpoints
            .iter()
            .rev()
            .filter(|(_, connected)| *connected)
            .map(|(ep, _)| *ep)
            .collect();
        connected
            .get(usize::from(choice) % connected.len().max(1))
            .copied()
    }

    fn send(&self, bytes: &[u8]) {
        if let Some(ep) = self.connected(0) {
            store(&INTRUDER_PAGES.0[MESSAGES], bytes);
            let piece = self.piece(MESSAGES, 0, bytes.len());
            let flags = CompletionFlags::empty();
            let _full = self.ia.post_send(ep, &[piece], u64::MAX, flags);
        }
    }

    fn word(&self, choice: u8) -> u64 {
        let words = self.words.borrow();
        // The newest first.
        let place = usize::from(choice & 0x3F) % words.len();
        let word = words[words.len() - 1 - place];
        match choice >> 6 {
            2 => word.wrapping_add(1),
            3 => word.wrapping_sub(1),
            _ => word,
        }
    }

    fn say(&self, kind: u8, word: u8, other: u8, half: u8) -> Message {
        let (first, second) = (self.word(word), self.word(other));
        let key = self.memory[BAIT].rmr_context;
        let bait = address(&INTRUDER_PAGES.0[BAIT]);
        let (address, key) = match half % 4 {
            0 => (bait, key),
            1 => (u64::MAX - 7, key),
            2 => (address(&VICTIM_PAGES.0[SECRET]), key),
            _ => (bait, u32::MAX),
        };
        let no_accumulate = half & 1 == 1;
        let body = match kind % 10 {
            0 => Body::Credit,
            1 => Body::Connect {
                import: first,
                segment: SEGMENTS[usize::from(half) % SEGMENTS.len()],
                permission: [0o400, 0o200, 0o600, 0, 0o777, u32::MAX][usize::from(half >> 2) % 6],
                user: u32::from(half >> 6),
                group: 0,
                resume: if other & 0x80 == 0 { 0 } else { second },
            },
            2 => Body::Accept {
                import: first,
                importer: second,
                length: [PAGE as u64, 0, u64::MAX, 7][usize::from(half >> 2) % 4],
                address,
                key,
                publication: second | 1,
            },
            3 => Body::Refuse {
                import: first,
                error: RsmError::ALL[usize::from(half) % RsmError::ALL.len()],
            },
            4 => Body::Disconnect { importer: first },
            5 => Body::Revoke {
                import: first,
                importer: second,
            },
            6 => Body::Rebind {
                import: first,
                importer: second,
                address,
                key,
            },
            7 => Body::Acknowledge { importer: first },
            8 => Body::Signal {
                importer: first,
                no_accumulate,
            },
            _ => Body::SignalImporters {
                publication: first,
                no_accumulate,
            },
        };
        Message {
            incarnation: LIFE,
            credits: u16::from(half & 3),
            body,
        }
    }

    fn access(&self, write: bool, remote: &RmrTriplet, choice: u8) {
        let Some(ep) = self.connected(choice & 1) else {
            return;
        };
        let length = usize::try_from(remote.length).expect("small");
        let flags = CompletionFlags::empty();
        let _full = if write {
            let piece = [self.piece(BAIT, 0, length)];
            self.ia.post_rdma_write(ep, &piece, u64::MAX, remote, flags)
        } else {
            let piece = [self.piece(STOLEN, 0, length)];
            self.ia.post_rdma_read(ep, &piece, u64::MAX, remote, flags)
        };
    }

    /// Takes in what happened: words and keys are remembered, connections answered.
    fn progress(&self, now: Instant) -> usize {
        let mut handled = self.ia.progress(now);
        while let Ok(Event::ConnectionRequest { cr, .. }) = self.ia.evd_dequeue(self.arrivals) {
            handled += 1;
            match self.endpoint() {
                Some(ep) => {
                    let _gone = self.ia.cr_accept(cr, Some(ep), &self.greeting(0));
                }
                None => {
                    let _gone = self.ia.cr_reject(cr, &[]);
                }
            }
        }
        while let Ok(event) = self.ia.evd_dequeue(self.connections) {
            handled += 1;
            if let Event::Connection { kind, ep, .. } = event {
                let mut endpoints = self.endpoints.borrow_mut();
                if let Some(place) = endpoints.iter_mut().find(|(other, _)| *other == ep) {
                    place.1 = kind == ConnectionEventKind::Established;
                }
            }
        }
        while let Ok(event) = self.ia.evd_dequeue(self.transfers) {
            handled += 1;
            let Event::Dto(done) = event else {
                continue;
            };
            if done.operation != DtoOperation::Receive || done.status != DtoStatus::Success {
                continue;
            }
            let place = done.cookie as usize;
            let from = &INTRUDER_PAGES.0[MESSAGES][(place + 1) * MESSAGE_SIZE..];
            let mut bytes = [0; MESSAGE_SIZE];
            for (byte, cell) in bytes.iter_mut().zip(from) {
                *byte = cell.load(Ordering::Relaxed);
            }
            let message = Message::decode(&bytes).expect("the victim keeps to the protocol");
            self.heard(message.body);
            self.listen(done.ep, place);
            if let (Body::Connect { .. }, Some(answer)) = (message.body, self.answer.get()) {
                // A refusal or a grant of the newest word that it heard.
                let kind = if answer & 0x40 == 0 { 2 } else { 3 };
                self.send(&self.say(kind, 0, 1, answer).encode());
            }
        }
        handled
    }

    fn heard(&self, body: Body) {
        let mut words = self.words.borrow_mut();
        match body {
            Body::Connect { import, resume, .. } => words.extend([resume, import]),
            Body::Accept {
                importer,
                address,
                key,
                publication,
                ..
            } => {
                words.extend([publication, importer]);
                self.keys.borrow_mut().push((address, key));
            }
            Body::Rebind {
                importer,
                address,
                key,
                ..
            } => {
                words.push(importer);
                self.keys.borrow_mut().push((address, key));
            }
            Body::Revoke { importer, .. }
            | Body::Disconnect { importer }
            | Body::Acknowledge { importer }
            | Body::Signal { importer, .. } => words.push(importer),
            Body::SignalImporters { publication, .. } => words.push(publication),
            Body::Credit | Body::Refuse { .. } => {}
        }
    }
}

/// All nodes.
struct World<'s> {
    victim: Engine<'s>,
    friend: Engine<'s>,
    intruder: Intruder<'s>,
    victim_controller: ControllerId,
    friend_controller: ControllerId,
    exports: [ExportId; 3],
    published: [bool; 3],
    /// What the victim imports from the intruder.
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

/// Lets everybody but the caller go on.
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
    fn new(seed: u64, storage: &'s mut [Box<Slots>; 3]) -> Self {
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
            // One zone each, so that one that leaks is missed at the end.
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
                    calls: 4,
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
        for (place, export) in exports.iter().enumerate() {
            victim
                .export_publish(*export, SEGMENTS[place], access(place))
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

    fn act(&mut self, operation: Operation) {
        match operation {
            Operation::Say {
                kind,
                word,
                other,
                half,
                bent,
            } => {
                let mut bytes = self.intruder.say(kind, word, other, half).encode();
                if let Some(byte) = bytes.get_mut(usize::from(bent).wrapping_sub(1)) {
                    *byte = byte.wrapping_add(1);
                }
                self.intruder.send(&bytes);
                self.settle();
            }
            Operation::Noise { bytes } => {
                let length = [MESSAGE_SIZE, MESSAGE_SIZE + 1, 1, 0][usize::from(bytes[0]) % 4];
                let noise: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
                self.intruder.send(&noise);
                self.settle();
            }
            Operation::Access {
                write,
                key,
                offset,
                length,
                place,
            } => {
                let keys = self.intruder.keys.borrow().clone();
                let (heard, key) = keys[keys.len() - 1 - usize::from(key) % keys.len()];
                let base = match place % 6 {
                    0 => address(&VICTIM_PAGES.0[OPEN]),
                    1 => address(&VICTIM_PAGES.0[READABLE]),
                    2 => address(&VICTIM_PAGES.0[SECRET]),
                    3 => address(&VICTIM_PAGES.0[LOCAL]),
                    _ => heard,
                };
                let offset = [0, 8, 4088, 4092, 4096, u64::MAX - 7][usize::from(offset) % 6];
                let remote = RmrTriplet {
                    context: key,
                    address: base.wrapping_add(offset),
                    length: [8, 1, 4096, 0][usize::from(length) % 4],
                };
                self.intruder.access(write & 1 == 1, &remote, place >> 4);
                self.settle();
            }
            Operation::Greet { variant } => {
                self.intruder.connect(variant, self.fabric.now());
                self.settle();
            }
            Operation::Victim { call, segment } => self.call(call, usize::from(segment)),
            Operation::Rest { time } => {
                let until = self.fabric.now().after(u32::from(time) * 1000);
                self.settle();
                if let Some(until) = until {
                    self.fabric.run_until(until);
                }
                self.settle();
            }
        }
        self.check();
    }

    /// The victim calls something; what it is told may be anything but wrong.
    fn call(&mut self, call: u8, choice: usize) {
        let wait = &mut Others {
            fabric: &self.fabric,
            engine: &self.friend,
            intruder: &self.intruder,
        };
        let victim = &self.victim;
        let place = choice % 2;
        let bait = self.baits.get(choice % self.baits.len().max(1)).copied();
        match call % 9 {
            0 => {
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
            1 if self.published[place] => {
                victim
                    .export_unpublish(self.exports[place], wait)
                    .expect("taken back");
                self.published[place] = false;
                if place == 0 {
                    fill(&VICTIM_PAGES.0[OPEN], REVOKED_BYTE);
                }
            }
            2 if !self.published[place] => {
                if place == 0 {
                    fill(&VICTIM_PAGES.0[OPEN], OPEN_BYTE);
                }
                victim
                    .export_publish(self.exports[place], SEGMENTS[place], access(place))
                    .expect("published");
                self.published[place] = true;
            }
            3 => {
                if let Some(bait) = bait {
                    let entry = PutEntry {
                        local: Source::Bytes(b"VVVVVVVV"),
                        local_offset: 0,
                        remote_offset: 16,
                        length: 8,
                    };
                    let _anything =
                        victim.putv(bait, &[entry], VectorFlags::IMPLICIT_SIGPOST, wait);
                }
            }
            4 => {
                if let Some(bait) = bait {
                    let page: &'static [AtomicU8] = &VICTIM_PAGES.0[LOCAL];
                    let local = victim
                        .create_local_memory(
                            self.victim_controller,
                            Region::from_static(page),
                            LocalAccess::ReadWrite,
                        )
                        .expect("local memory");
                    let mut entries = [GetEntry {
                        local: Target::Handle(local),
                        local_offset: GOT.start as u64,
                        remote_offset: 8,
                        length: GOT.len() as u64,
                    }];
                    let _anything = victim.getv(bait, &mut entries, VectorFlags::empty(), wait);
                    // Also if the calls that use it never end otherwise.
                    victim
                        .free_local_memory(self.victim_controller, local, wait)
                        .expect("freed");
                }
            }
            5 => {
                if let Some(bait) = bait {
                    let _anything = victim.signal_post(bait, SignalFlags::empty(), wait);
                }
            }
            6 => {
                let export = SegmentHandle::Export(self.exports[place]);
                let posted = victim.signal_post(export, SignalFlags::NO_ACCUMULATE, wait);
                assert_eq!(posted, Ok(()));
            }
            7 => {
                if let Some(bait) = bait {
                    victim.import_disconnect(bait, wait).expect("disconnected");
                    self.baits.retain(|other| *other != bait);
                }
            }
            _ => {
                for export in self.exports {
                    let _taken = victim.signal_take(export).expect("a segment");
                }
            }
        }
        self.settle();
    }

    fn settle(&self) {
        loop {
            let now = self.fabric.now();
            let handled =
                self.victim.progress(now) + self.friend.progress(now) + self.intruder.progress(now);
            if !self.fabric.step() && handled == 0 {
                return;
            }
        }
    }

    /// No byte changed or leaked that the intruder was not granted.
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
            // What the victim put into the bait comes from there.
            b'V' => self.published[0],
            _ => false,
        };
        assert!(pages[OPEN].iter().all(open), "written after revocation");
        let local = &pages[LOCAL];
        let (before, after) = (&local[..GOT.start], &local[GOT.end..]);
        for part in [before, after] {
            assert!(is_full_of(part, LOCAL_BYTE), "beside what was asked for");
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

    /// The third node is still served, and nothing is left of anything.
    fn end(mut self) {
        self.settle();
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
        self.settle();
        self.baits.clear();
        for engine in [&self.victim, &self.friend] {
            is_empty(engine);
        }
    }
}

/// Every place of the adapter's tables is free: the engine, which has no more than it needs, can take all of them anew.
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

/// Who may connect to each page.
fn access(place: usize) -> &'static [AccessEntry] {
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
    LISTS[place]
}
