//! A peer that sends anything to the mmio driver's connection manager.
//!
//! The connection manager uses its own queue pair, the channel. A fabric of model devices has three
//! adapters. The mmio driver runs the first, the victim, and the second, its friend; their
//! connections are made over channels. A consumer listens, connects, accepts, rejects, disconnects
//! and frees on the victim. The third adapter has no driver. There the intruder has the other end
//! of one of the victim's channels. It connects its queue pairs to any queue pair of the victim
//! whose number it received. Nothing panics or runs forever. An endpoint is established at most
//! once and ends once. A post completes once. Private data arrives as it was sent, or not at all.
//! No byte changes or leaks without a grant. The intruder occupies at most its slots of the victim.
//! The friend continues and can connect again. Everything can be freed.

mod intruder;
mod ledger;
mod script;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};

use backend_mmio::cm::message::Kind;
use backend_mmio::cm::{CHANNEL_BYTES, Connection, ConnectionStorage, Listener};
use backend_mock::{BufferOrder, FabricOptions, NodeOptions};
use dat_core::Ia;
use dat_core::backend::Backend;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CloseFlags, CrFields, DtoStatus, MemoryPrivileges, PspFlags, TIMEOUT_INFINITE,
};
use dat_core::id::{CrId, PspId};
use dat_core::memory::LmrCreated;
use mmio_model::{Lent, ModelFabric};

pub use self::script::Operation;

use self::intruder::{Intruder, Known};
use self::ledger::Stage;
use crate::consumer::{self, Lock, address, connect_to, is_full_of, register};
use crate::device::judgement::{GUARD_BYTE, Side, check_guards, fill, guards, page};
use crate::script::argument::{RECEIVE, SEND};
use crate::script::decode;

/// The most operations of a run.
const OPERATIONS: usize = 64;
/// The most rounds until everything is at rest.
const ROUNDS: usize = 4000;
/// The numbers of the adapters on the fabric.
const VICTIM: u64 = 1;
const FRIEND: u64 = 2;
const INTRUDER: u64 = 3;
/// The qualifiers on which the victim listens always, sometimes and never.
const QUALIFIERS: [u64; 3] = [4000, 5000, 6000];
/// The indices of both sides' pages.
const VICTIM_SIDE: usize = 0;
const FRIEND_SIDE: usize = 1;
/// The victim's endpoint for new connections of the friend, and the one that stays connected.
///
/// The endpoints below are for the intruder.
const RENEWED: usize = 2;
const KEPT: usize = 3;
/// The same endpoints on the friend's side.
const FRIEND_RENEWED: usize = 1;
const FRIEND_KEPT: usize = 0;
/// The channels of an adapter: two to itself, one to each of the others.
const CHANNELS: usize = 4;
/// The connections of an adapter.
///
/// A peer that reads no message occupies at most as many as a channel has slots and requests in
/// both directions.
const CONNECTIONS: usize = 32;
/// The friend's private data.
const FRIENDLY: &[u8] = b"from a friend";
/// The most requests of the intruder that the victim leaves without a message.
const UNANSWERED: usize = 4;
/// The seconds after which a side gives up waiting for another.
const TIMEOUT_SECONDS: u64 = 25;
/// The guard bytes around the memory of channels.
const GUARD: usize = 64;

// Exchanged bytes have the highest bit set.
const _: () = assert!(GUARD_BYTE & 0x80 == 0);

dat_core::define_storage! {
    struct Slots<B: Backend> for B, Lock {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 512,
        records: 256,
    }
}

/// The memory of both sides' channels, between guards.
static CHANNEL_MEMORY: [[AtomicU8; CHANNELS * CHANNEL_BYTES + 2 * GUARD]; 2] =
    [const { [const { AtomicU8::new(0) }; CHANNELS * CHANNEL_BYTES + 2 * GUARD] }; 2];

thread_local! {
    /// The memory of the devices.
    static LENT: RefCell<[Lent; 2]> = RefCell::default();
}

/// The storage of a side's connection manager, except its memory.
struct ManagerStorage<C> {
    channels: Vec<Option<C>>,
    connections: Vec<Connection>,
    listeners: Vec<Listener>,
}

impl<C> ManagerStorage<C> {
    fn new() -> Self {
        Self {
            channels: (0..CHANNELS).map(|_| None).collect(),
            connections: (0..CONNECTIONS).map(|_| Connection::default()).collect(),
            listeners: vec![Listener::default(); 4],
        }
    }
}

fn channel_memory(side: usize) -> &'static [AtomicU8] {
    let memory = &CHANNEL_MEMORY[side];
    &memory[GUARD..memory.len() - GUARD]
}

/// Lends that memory to the driver of a side.
#[expect(unsafe_code, reason = "memory that is lent again in each run")]
fn lent_channel_memory(side: usize) -> &'static mut [AtomicU8] {
    let memory = channel_memory(side);
    // SAFETY: the driver of the last run and its device are gone; all other users of the `static`
    // access the guards only.
    unsafe { core::slice::from_raw_parts_mut(memory.as_ptr().cast_mut(), memory.len()) }
}

fn guard_channels() {
    for memory in &CHANNEL_MEMORY {
        consumer::fill(memory, GUARD_BYTE);
    }
}

fn check_channels() {
    for memory in &CHANNEL_MEMORY {
        for guard in [&memory[..GUARD], &memory[memory.len() - GUARD..]] {
            assert!(
                is_full_of(guard, GUARD_BYTE),
                "a guard of a channel is hurt"
            );
        }
    }
}

/// Runs an input.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let Some((seed, rest)) = input.split_first() else {
        return;
    };
    let fabric = ModelFabric::new(FabricOptions {
        seed: u64::from(*seed),
        buffer_order: BufferOrder::Seeded,
        ..FabricOptions::default()
    });
    LENT.with_borrow_mut(|lent| play(&fabric, lent, &decode(rest, OPERATIONS)));
}

fn play(fabric: &ModelFabric, [first, second]: &mut [Lent; 2], operations: &[Operation]) {
    fill();
    guard_channels();
    let (mut near, mut far) = (ManagerStorage::new(), ManagerStorage::new());
    macro_rules! device {
        ($name:literal, $number:ident, $side:ident, $lent:ident, $storage:ident) => {
            fabric.over_queues_device_on(
                NodeOptions::new($name, $number),
                $lent,
                ConnectionStorage {
                    channels: &mut $storage.channels,
                    connections: &mut $storage.connections,
                    listeners: &mut $storage.listeners,
                    memory: lent_channel_memory($side),
                },
            )
        };
    }
    let (victim, victim_state) = device!("victim", VICTIM, VICTIM_SIDE, first, near);
    let (friend, friend_state) = device!("friend", FRIEND, FRIEND_SIDE, second, far);
    let (mut near, mut far) = (Box::new(Slots::default()), Box::new(Slots::default()));
    let ia = Ia::open(victim, near.lend(), 8).expect("an adapter");
    let victim = Side::new(VICTIM_SIDE, ia, false).expect("objects");
    let ia = Ia::open(friend, far.lend(), 8).expect("an adapter");
    let friend = Side::new(FRIEND_SIDE, ia, false).expect("objects");
    let guards = guards(VICTIM_SIDE);
    let secret = register(
        &victim.ia,
        victim.zone,
        guards,
        MemoryPrivileges::LOCAL_READ,
    );
    let secret = secret.expect("a region");
    let open = victim.remote(0, 0);
    let mut world = World {
        known: Known {
            addresses: [
                open.address,
                address(guards),
                address(channel_memory(VICTIM_SIDE)),
            ],
            keys: [open.context, secret.lmr_context, 0],
        },
        fabric,
        victim,
        friend,
        intruder: Intruder::new(fabric),
        stages: Default::default(),
        friend_stages: Default::default(),
        requests: Vec::new(),
        arrived: 0,
        sent_data: Vec::new(),
        wanted: None,
        service: None,
        secret,
    };
    world.run_to_idle();
    world.connect_friend(FRIEND_KEPT, KEPT);
    for operation in operations {
        world.act(*operation);
    }
    world.finish();
    check_guards();
    check_channels();
    assert_eq!(victim_state.fault(), None, "of the victim's device");
    assert_eq!(friend_state.fault(), None, "of the friend's device");
    let World {
        victim,
        friend,
        intruder,
        ..
    } = world;
    assert!(!intruder.knows(GUARD_BYTE), "the intruder has read it");
    victim.end(false, true);
    friend.end(false, true);
}

/// The whole state of a run.
struct World<'w, 't, 'u, A: Backend, B: Backend> {
    fabric: &'w ModelFabric,
    victim: Side<'t, A, 4>,
    friend: Side<'u, B, 2>,
    intruder: Intruder,
    known: Known,
    /// The stages of the endpoints' connections.
    stages: [Stage; 4],
    friend_stages: [Stage; 2],
    /// The intruder's unanswered requests, and the number of all its requests.
    requests: Vec<CrId>,
    arrived: usize,
    /// The private data that the victim sent.
    sent_data: Vec<Vec<u8>>,
    /// The victim's endpoint that the friend connects to next.
    wanted: Option<usize>,
    service: Option<PspId>,
    secret: LmrCreated,
}

impl<A: Backend, B: Backend> World<'_, '_, '_, A, B> {
    /// Advances all sides for at most `rounds`; returns true if they came to rest.
    fn advance(&mut self, rounds: usize, victim_sleeps: bool) -> bool {
        for _ in 0..rounds {
            let now = self.fabric.now();
            let mut handled = self.friend.ia.progress(now);
            if !victim_sleeps {
                handled += self.victim.ia.progress(now);
            }
            let received = self.intruder.progress(&self.sent_data);
            if !self.fabric.step() && handled == 0 && !received {
                return true;
            }
        }
        false
    }

    fn run_to_idle(&mut self) {
        assert!(
            self.advance(ROUNDS, false),
            "the fabric does not become idle"
        );
        self.take_connections();
        self.take_requests();
        if self.intruder.is_idle() {
            let unanswered = self.arrived.saturating_sub(self.intruder.answered.len());
            assert!(
                unanswered <= UNANSWERED,
                "{unanswered} requests without a message"
            );
        }
    }

    fn advance_time(&mut self, seconds: u64) {
        let until = u32::try_from(seconds * 1_000_000).expect("a short time");
        if let Some(until) = self.fabric.now().after(until) {
            self.fabric.run_until(until);
        }
    }

    /// Dequeues the connection events of both sides.
    fn take_connections(&mut self) {
        while let Ok(event) = self.victim.next(2) {
            if let Event::Connection {
                kind,
                ep,
                private_data_size,
            } = event
            {
                let mut endpoints = self.victim.endpoints.iter();
                let index = endpoints.position(|own| *own == ep);
                let index = index.expect("an endpoint that is there");
                let requested = self.stages[index] == Stage::Requested;
                self.stages[index].note(kind);
                let mut data = [0; 256];
                let length = usize::from(private_data_size);
                if length != 0 {
                    let held = self.victim.ia.ep_private_data(ep, &mut data);
                    assert_eq!(held.expect("an endpoint"), length);
                }
                let reply = match kind {
                    ConnectionEventKind::Established => Kind::Accepted,
                    _ => Kind::Rejected,
                };
                let sent = requested && self.intruder.promised(reply, &data[..length]);
                assert!(length == 0 || sent, "nobody sent that: {event:?}");
            }
            self.victim.taken(2, event);
        }
        while let Ok(event) = self.friend.next(2) {
            if let Event::Connection { kind, ep, .. } = event {
                let mut endpoints = self.friend.endpoints.iter();
                let index = endpoints.position(|own| *own == ep);
                self.friend_stages[index.expect("an endpoint")].note(kind);
            }
            self.friend.taken(2, event);
        }
    }

    /// Dequeues the victim's connection requests; accepts those of the friend at once.
    fn take_requests(&mut self) {
        while let Ok(event) = self.victim.next(3) {
            let Some(request) = self.victim.taken(3, event) else {
                continue;
            };
            let param = self.victim.ia.cr_query(request, CrFields::all());
            let param = param.expect("a request");
            let data = param.private_data.as_slice();
            if param.remote_address == Some(NodeOptions::new("", FRIEND).address) {
                assert_eq!(data, FRIENDLY);
                let index = self.wanted.take().expect("one that the friend requested");
                let ep = self.victim.endpoints[index];
                let accepted = self.victim.ia.cr_accept(request, Some(ep), &[]);
                accepted.expect("an endpoint that is not connected");
                self.stages[index] = Stage::Accepted;
                continue;
            }
            let intruder = NodeOptions::new("", INTRUDER).address;
            assert_eq!(param.remote_address, Some(intruder));
            assert!(QUALIFIERS[..2].contains(&param.qualifier), "{param:?}");
            assert!(
                self.intruder.promised(Kind::Request, data),
                "data that nobody sent: {param:?}"
            );
            self.arrived += 1;
            self.requests.push(request);
        }
    }

    /// Connects the friend to the victim.
    fn connect_friend(&mut self, from: usize, to: usize) {
        self.wanted = Some(to);
        let outcome = self.friend.ia.ep_connect(
            self.friend.endpoints[from],
            &connect_to(
                NodeOptions::new("", VICTIM).address,
                QUALIFIERS[0],
                TIMEOUT_INFINITE,
                FRIENDLY,
            ),
            self.fabric.now(),
        );
        outcome.expect("an endpoint that is not connected");
        self.friend_stages[from] = Stage::Requested;
        self.run_to_idle();
        self.run_to_idle();
        assert_eq!(
            (self.friend_stages[from], self.stages[to]),
            (Stage::Established, Stage::Established),
            "the friend cannot connect"
        );
    }

    /// Sends a message in each direction, and checks that it arrives.
    fn exchange(&mut self, index: usize, friend: usize) {
        const LENGTH: u8 = 4;
        self.run_to_idle();
        self.take(0);
        self.take(1);
        let nobody = self.victim.remote(0, 0);
        for (kind, other, from, to) in [
            (RECEIVE, SEND, FRIEND_SIDE, VICTIM_SIDE),
            (SEND, RECEIVE, VICTIM_SIDE, FRIEND_SIDE),
        ] {
            for (index, cell) in page(from).iter().take(32).enumerate() {
                let old = cell.load(Ordering::Relaxed);
                let new = old.wrapping_mul(5).wrapping_add(index as u8);
                // Never the guard byte: the page may be read, and that byte in the intruder's
                // memory counts as a leak.
                cell.store(new | 0x80, Ordering::Relaxed);
            }
            let (at, there) = ((index << 1) as u8, (friend << 1) as u8);
            // The receiver posts first.
            let mut here = None;
            if kind == RECEIVE {
                here = self.victim.post(&nobody, at, kind, 0, LENGTH, 0);
            }
            let over = self.friend.post(&nobody, there, other, 0, LENGTH, 0);
            let here = here.or_else(|| self.victim.post(&nobody, at, kind, 0, LENGTH, 0));
            self.run_to_idle();
            let receives = usize::from(kind != RECEIVE);
            assert!(succeeded(&mut self.victim, receives, here), "victim");
            let receives = usize::from(other != RECEIVE);
            assert!(succeeded(&mut self.friend, receives, over), "friend");
            let sent = page(from).iter().zip(page(to)).take(32);
            let same = |(one, other): (&AtomicU8, &AtomicU8)| {
                one.load(Ordering::Relaxed) == other.load(Ordering::Relaxed)
            };
            assert!(sent.into_iter().all(same), "other bytes came");
        }
    }

    fn take(&mut self, from: usize) {
        self.victim.take(from);
        self.friend.take(from);
    }

    /// Ends one of the friend's connections, and connects again.
    fn reconnect_friend(&mut self) {
        // Unanswered requests of the intruder would occupy slots.
        self.run_to_idle();
        for request in core::mem::take(&mut self.requests) {
            let rejected = self.victim.ia.cr_reject(request, &[]);
            rejected.expect("a request");
        }
        self.leave_friend();
        self.connect_friend(FRIEND_RENEWED, RENEWED);
        self.exchange(RENEWED, FRIEND_RENEWED);
    }

    fn leave_friend(&mut self) {
        let near = self.victim.endpoints[RENEWED];
        let far = self.friend.endpoints[FRIEND_RENEWED];
        let _idle = self.friend.ia.ep_disconnect(far, CloseFlags::Abrupt);
        let _idle = self.victim.ia.ep_disconnect(near, CloseFlags::Abrupt);
        self.run_to_idle();
        self.take(0);
        self.take(1);
        self.victim
            .reset(RENEWED)
            .expect("one that is disconnected");
        self.friend.reset(FRIEND_RENEWED).expect("the same");
        for stage in [
            &mut self.stages[RENEWED],
            &mut self.friend_stages[FRIEND_RENEWED],
        ] {
            assert!(!stage.is_live(), "{stage:?} after it was ended");
            *stage = Stage::Idle;
        }
    }

    /// Returns private data of the victim, and records it.
    fn data(&mut self, of: u8) -> Vec<u8> {
        let data = vec![of | 0x80; usize::from(of) % 65];
        self.sent_data.push(data.clone());
        data
    }

    fn act(&mut self, operation: Operation) {
        let intruders = |ep: u8| usize::from(ep) % RENEWED;
        match operation {
            Operation::Connect { ep, data, timeout } => {
                let index = intruders(ep);
                let data = self.data(data);
                let timeout = match timeout {
                    0 => TIMEOUT_INFINITE,
                    tenths => u32::from(tenths) * 100_000,
                };
                self.take_connections();
                let outcome = self.victim.ia.ep_connect(
                    self.victim.endpoints[index],
                    &connect_to(
                        NodeOptions::new("", INTRUDER).address,
                        QUALIFIERS[0],
                        timeout,
                        &data,
                    ),
                    self.fabric.now(),
                );
                if outcome.is_ok() {
                    assert_eq!(self.stages[index], Stage::Idle);
                    self.stages[index] = Stage::Requested;
                }
            }
            Operation::Answer {
                which,
                how,
                ep,
                data,
            } => {
                self.take_requests();
                if self.requests.is_empty() {
                    return;
                }
                let which = usize::from(which) % self.requests.len();
                let request = self.requests.remove(which);
                let data = self.data(data);
                if how % 3 == 0 {
                    let rejected = self.victim.ia.cr_reject(request, &data);
                    return rejected.expect("a request");
                }
                self.take_connections();
                let index = intruders(ep);
                let ep = self.victim.endpoints[index];
                match self.victim.ia.cr_accept(request, Some(ep), &data) {
                    Ok(()) => {
                        assert_eq!(self.stages[index], Stage::Idle);
                        self.stages[index] = Stage::Accepted;
                    }
                    Err(_) => self.requests.push(request),
                }
            }
            Operation::Disconnect { ep, how } => {
                let flags = [CloseFlags::Abrupt, CloseFlags::Graceful][usize::from(how) % 2];
                let ep = self.victim.endpoints[intruders(ep)];
                let _idle = self.victim.ia.ep_disconnect(ep, flags);
            }
            Operation::Reset { ep } => {
                let index = intruders(ep);
                self.take_connections();
                if self.victim.reset(index).is_ok() {
                    assert!(!self.stages[index].is_live(), "{:?}", self.stages[index]);
                    self.stages[index] = Stage::Idle;
                }
            }
            Operation::Replace { ep } => {
                let index = intruders(ep);
                self.take_connections();
                self.victim.replace(index);
                self.stages[index] = Stage::Idle;
            }
            Operation::Post {
                ep,
                kind,
                offset,
                length,
                flags,
            } => {
                let to = self.friend.remote(offset, u64::from(length) * 8);
                let at = (intruders(ep) << 1) as u8;
                self.victim.post(&to, at, kind, offset, length, flags);
            }
            Operation::Take { dispatcher } => match dispatcher % 4 {
                2 => self.take_connections(),
                3 => self.take_requests(),
                from => self.victim.take(usize::from(from)),
            },
            Operation::Service => match self.service.take() {
                Some(service) => self.victim.ia.psp_free(service).expect("a service point"),
                None => {
                    let arrivals = self.victim.dispatchers[3];
                    let ia = &self.victim.ia;
                    let made = ia.psp_create(QUALIFIERS[1], arrivals, PspFlags::Consumer);
                    self.service = Some(made.expect("a service point"));
                }
            },
            Operation::Advance { steps } => {
                self.advance(usize::from(steps & 0x7F), steps & 0x80 != 0);
            }
            Operation::AdvanceTime { seconds } => self.advance_time(u64::from(seconds % 16)),
            Operation::Exchange => self.exchange(KEPT, FRIEND_KEPT),
            Operation::Reconnect => self.reconnect_friend(),
            of_the_intruder => self.intruder.act(of_the_intruder, &self.known),
        }
    }

    /// Checks that the friend continues, and ends everything else.
    fn finish(&mut self) {
        self.exchange(KEPT, FRIEND_KEPT);
        for index in 0..RENEWED {
            let ep = self.victim.endpoints[index];
            let _idle = self.victim.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        }
        for _ in 0..2 {
            self.reconnect_friend();
            self.advance_time(TIMEOUT_SECONDS);
        }
        for index in 0..RENEWED {
            assert!(!self.stages[index].is_live(), "{:?}", self.stages[index]);
        }
        for ep in self.victim.endpoints {
            let _over = self.victim.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        }
        for ep in self.friend.endpoints {
            let _over = self.friend.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        }
        self.run_to_idle();
        let stages = self.stages.iter().chain(&self.friend_stages);
        for stage in stages {
            assert!(!stage.is_live(), "{stage:?} after it was ended");
        }
        self.take_requests();
        for request in core::mem::take(&mut self.requests) {
            let rejected = self.victim.ia.cr_reject(request, &[]);
            rejected.expect("a request");
        }
        if let Some(service) = self.service.take() {
            self.victim.ia.psp_free(service).expect("a service point");
        }
        let freed = self.victim.ia.lmr_free(self.secret.lmr);
        freed.expect("a region");
    }
}

/// Dequeues all completions; returns true if the one with this cookie succeeded.
fn succeeded<B: Backend, const ENDPOINTS: usize>(
    side: &mut Side<'_, B, ENDPOINTS>,
    from: usize,
    cookie: Option<u64>,
) -> bool {
    let mut done = false;
    while let Ok(event) = side.next(from) {
        if let Event::Dto(completion) = event {
            done |= Some(completion.cookie) == cookie && completion.status == DtoStatus::Success;
        }
        let arrived = side.taken(from, event);
        assert!(arrived.is_none());
    }
    done
}
