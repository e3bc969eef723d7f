//! The adapters of this host that are reached through local queues (ROCE-230).
//!
//! Each pair of queues has a slot, and a number that no other pair of this adapter ever has. The
//! adapter hears of a pair before its first packet, and of its end after the last one.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dat_core::backend::NotLocal;
use dat_core::event::ThreadWait;
use dat_core::sync::RegisteredSpan;
use dat_core::time::Instant;

use super::poller::Poller;
use crate::local::{
    DEADLINE, Dial, Dialled, FIRST, First, Identity, Known, Label, Listener, LocalPair, PATIENCE,
    PAYLOAD_MAX, Pairs, Record, SPLIT,
};
use crate::port::{
    Arrival, Gone, LocalEvent, LocalNumber, LocalQueue, LocalQueues, STOPPED, canonical,
};
use crate::proto::PathMtu;
use crate::proto::icrc::Flow;
use crate::proto::packet::length_behind_headers;
use crate::reserve::has_memory_for;
use crate::shared::INPUT;

/// Most pairs of an adapter: half a mebibyte each.
const PAIRS: usize = 256;

// The longest record fits into the buffer for input.
const _: () = assert!(INPUT >= PAYLOAD_MAX);

/// Payload of a full packet of local queues.
const MTU: PathMtu = PathMtu::Bytes32768;

/// Microseconds between two looks at a set-up that count against the peer (ROCE-220).
const LOOK: u64 = DEADLINE / 2;

/// Slot in the numbers of set-ups, which have no place in the tables.
const NO_SLOT: u16 = u16::MAX;

/// Microseconds between two looks at a set-up that the system may not report.
const SOON: u64 = 100;

/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// Kind of the records that have packets.
const PACKETS: u32 = 1;

/// A pair as its adapter uses it.
struct Neighbour {
    number: LocalNumber,
    pair: LocalPair,
    /// Addresses of its packets, as they would be on the wire.
    flow: Flow,
    /// Set once the adapter has heard of the pair.
    is_told: AtomicBool,
    /// Set while the adapter waits for room.
    waits: AtomicBool,
    /// Set if any pair may have an event.
    has_events: Arc<AtomicBool>,
}

impl Neighbour {
    fn label(&self, kind: u32, segment: usize) -> Label {
        Label {
            segment,
            kind,
            source_port: self.flow.destination_port,
            destination_port: self.flow.source_port,
        }
    }

    fn arrival(&self, record: &Record) -> Arrival {
        let is_split = record.label.kind == SPLIT;
        let (mut length, mut segment) = (record.length, record.label.segment);
        if is_split {
            length = segment + length_behind_headers(length.saturating_sub(FIRST));
            segment = length;
        }
        Arrival {
            flow: self.flow,
            length,
            segment,
            local: Some(self.number),
            is_split,
        }
    }
}

impl LocalQueue for Neighbour {
    fn room(&self, least: usize) -> usize {
        let room = self.pair.room(least);
        if room < least {
            self.waits.store(true, Ordering::Release);
            self.has_events.store(true, Ordering::Release);
        }
        room
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.pair.has_room(bytes)
    }

    fn withdraw(&self) {
        self.pair.withdraw();
    }

    fn push(&self, packets: &[u8], segment: usize) {
        let label = self.label(PACKETS, segment);
        let _ = self.pair.write(label, packets);
    }

    fn place(&self, offset: usize, from: RegisteredSpan<'_>) -> bool {
        self.pair.place(offset, from)
    }

    fn push_split(&self, headers: &[u8], payload: usize) {
        let label = self.label(SPLIT, headers.len());
        let _ = self.pair.write_split(label, headers, payload);
    }

    fn take(&self, offset: usize, into: RegisteredSpan<'_>) -> bool {
        self.pair.take(offset, into)
    }

    fn ring(&self) {
        self.pair.ring();
    }

    fn positions(&self) -> [u32; 2] {
        self.pair.positions()
    }

    fn flow(&self) -> Flow {
        self.flow
    }

    fn peer(&self) -> ([u8; 16], i32) {
        let peer = self.pair.naming().peer_adapter;
        (peer.name, peer.process)
    }
}

/// A pair that this side asks for.
struct Asked {
    number: LocalNumber,
    dial: Dial,
    /// Attempts that the adapter does not know yet; until then, it gets no outcome.
    unknown: usize,
    /// Time of the last look.
    seen: Instant,
    /// Adapter that was asked, once it has said that another set-up makes the pair.
    told: Option<Known>,
}

impl Asked {
    /// Goes on with the set-up. The peer may have had no time while this side did not look.
    fn poll(&mut self, now: Instant) -> Dialled {
        if let Some(adapter) = self.told {
            return Dialled::Known(adapter);
        }
        let unseen = now.as_micros().saturating_sub(self.seen.as_micros());
        self.dial.postpone(unseen.saturating_sub(LOOK));
        self.seen = now;
        self.dial.poll(now)
    }
}

/// The pairs and set-ups that the adapter is to hear of.
struct News {
    events: VecDeque<LocalEvent>,
    /// Turn of the next pair or set-up.
    turn: u32,
}

impl News {
    /// Returns the number of the next pair or set-up.
    fn number(&mut self, slot: u16) -> LocalNumber {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        LocalNumber { slot, turn }
    }
}

/// The state by which an adapter makes pairs.
struct Setup {
    listener: Listener,
    dials: Vec<Asked>,
    news: News,
    /// Pair whose doorbell is looked at next, if no poller does.
    next: usize,
}

/// The pairs of an adapter.
pub(super) struct Neighbours {
    identity: Identity,
    /// Address of the sockets, with the port that connections are made from.
    bound: SocketAddr,
    pollers: Option<[Arc<Poller>; 2]>,
    /// Set if packets cannot go through sockets.
    is_only_way: bool,
    /// The open pairs.
    slots: RwLock<Vec<Option<Arc<Neighbour>>>>,
    /// Locked before the slots, if both are.
    setup: Mutex<Setup>,
    /// Number of open pairs.
    used: AtomicUsize,
    /// Time of the next look at set-ups, in microseconds.
    next_look: AtomicU64,
    has_events: Arc<AtomicBool>,
    /// Doorbells of pairs that have ended.
    rung: AtomicU64,
    /// Slot to read next.
    next: AtomicUsize,
}

impl Neighbours {
    /// Makes an adapter known by a random name; `None` without memory.
    pub(super) fn new(
        name: [u8; 16],
        bound: SocketAddr,
        pollers: Option<[Arc<Poller>; 2]>,
        is_only_way: bool,
    ) -> Option<Self> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(PAIRS).ok()?;
        let mut dials = Vec::new();
        dials.try_reserve_exact(PAIRS).ok()?;
        let mut events = VecDeque::new();
        // One for each pair, and one for each attempt to make one.
        events.try_reserve_exact(2 * PAIRS).ok()?;
        let mut identity = Identity::new(name);
        identity.has_all = bound.ip().is_unspecified();
        Some(Self {
            identity,
            bound,
            pollers,
            is_only_way,
            slots: RwLock::new(slots),
            setup: Mutex::new(Setup {
                listener: Listener::new()?,
                dials,
                news: News { events, turn: 0 },
                next: 0,
            }),
            used: AtomicUsize::new(0),
            next_look: AtomicU64::new(NEVER),
            has_events: Arc::new(AtomicBool::new(false)),
            rung: AtomicU64::new(0),
            next: AtomicUsize::new(0),
        })
    }

    /// Lets the adapter's thread look at set-ups that end without a report of the system.
    fn wake_service(&self) {
        if let Some([_, poller]) = &self.pollers {
            poller.wake();
        }
    }

    fn slots(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<Neighbour>>>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots_mut(&self) -> RwLockWriteGuard<'_, Vec<Option<Arc<Neighbour>>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of a peer; one that is link-local has the interface of this adapter if
    /// it names none.
    fn with_interface(&self, peer: SocketAddr) -> SocketAddr {
        match (peer, self.bound) {
            (SocketAddr::V6(mut peer), SocketAddr::V6(own))
                if peer.scope_id() == 0 && peer.ip().is_unicast_link_local() =>
            {
                peer.set_scope_id(own.scope_id());
                peer.into()
            }
            _ => peer,
        }
    }

    /// Lets adapters of this host find a UDP port that was claimed.
    ///
    /// # Errors
    /// The reason why they do not, if packets cannot go through sockets.
    pub(super) fn listen(&self, port: u16) -> Result<(), NotLocal> {
        let mut address = self.bound;
        address.set_port(port);
        let mut setup = self.setup();
        let refusal = match setup.listener.add(canonical(address)) {
            Ok(socket) if self.watch_setup(socket) => return Ok(()),
            Ok(_) => {
                setup.listener.remove(port);
                NotLocal::Memory
            }
            Err(refusal) => NotLocal::from(&refusal),
        };
        // Peers that find no queues send packets.
        self.is_only_way.then_some(refusal).map_or(Ok(()), Err)
    }

    /// Has the system report a socket that makes a pair; false if it has no room for it.
    fn watch_setup(&self, socket: BorrowedFd<'_>) -> bool {
        let mut pollers = self.pollers.iter().flatten();
        pollers.all(|poller| poller.add_setup(socket).is_ok())
    }

    pub(super) fn stop_listening(&self, port: u16) {
        self.setup().listener.remove(port);
    }

    /// Takes a pair out of its slot.
    fn take(&self, slot: &mut Option<Arc<Neighbour>>) -> Option<Arc<Neighbour>> {
        let neighbour = slot.take()?;
        self.rung
            .fetch_add(neighbour.pair.rung(), Ordering::Relaxed);
        self.used.fetch_sub(1, Ordering::AcqRel);
        Some(neighbour)
    }

    fn tell(&self, news: &mut News, event: LocalEvent) {
        news.events.push_back(event);
        self.has_events.store(true, Ordering::Release);
    }

    /// Opens a pair.
    fn open(&self, news: &mut News, pair: LocalPair) -> Result<Arc<Neighbour>, NotLocal> {
        let naming = pair.naming();
        let (own, peer) = (canonical(naming.own), canonical(naming.peer));
        let flow = Flow::between(peer, own).ok_or(NotLocal::Refused)?;
        let mut slots = self.slots_mut();
        let free = slots.iter().position(Option::is_none);
        let index = free.unwrap_or(slots.len());
        if index == PAIRS {
            return Err(NotLocal::Full);
        }
        let slot = u16::try_from(index).map_err(|_| NotLocal::Full)?;
        if !has_memory_for::<Neighbour>() {
            return Err(NotLocal::Memory);
        }
        for poller in self.pollers.iter().flatten() {
            let added = poller.add_bell(pair.as_fd(), slot);
            added.map_err(|_| NotLocal::Memory)?;
        }
        let number = news.number(slot);
        let neighbour = Arc::new(Neighbour {
            number,
            pair,
            flow,
            is_told: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            has_events: Arc::clone(&self.has_events),
        });
        match slots.get_mut(index) {
            Some(slot) => *slot = Some(Arc::clone(&neighbour)),
            None => slots.push(Some(Arc::clone(&neighbour))),
        }
        drop(slots);
        self.used.fetch_add(1, Ordering::AcqRel);
        let opened = LocalEvent::Opened {
            pair: number,
            mtu: MTU,
            queue: Arc::<Neighbour>::clone(&neighbour),
        };
        self.tell(news, opened);
        // A sleeping thread has asked for the doorbells of the other pairs only.
        self.pollers
            .iter()
            .flatten()
            .for_each(|poller| poller.wake());
        Ok(neighbour)
    }

    /// Returns the open pair with an adapter.
    fn known(&self, adapter: &Known) -> Option<LocalNumber> {
        let slots = self.slots();
        let mut with = slots.iter().flatten().filter(|neighbour| {
            let pair = &neighbour.pair;
            pair.naming().peer_adapter == *adapter && pair.is_alive()
        });
        with.next().map(|neighbour| neighbour.number)
    }

    /// Goes on with the pairs that this side asks for, or with one.
    fn poll_dials(&self, setup: &mut Setup, only: Option<LocalNumber>) {
        let now = ThreadWait::clock();
        let mut index = 0;
        while let Some(asked) = setup.dials.get_mut(index) {
            let number = asked.number;
            let is_due = asked.unknown == 0 && only.is_none_or(|only| only == number);
            let dialled = match is_due {
                true => asked.poll(now),
                false => Dialled::Pending,
            };
            let found = match dialled {
                Dialled::Pending => None,
                Dialled::Made(pair) => {
                    let opened = self.open(&mut setup.news, pair);
                    Some(opened.map(|neighbour| neighbour.number))
                }
                Dialled::Known(adapter) => self.find(setup, index, adapter),
                Dialled::Failed(refusal) => Some(Err(NotLocal::from(&refusal))),
            };
            let Some(found) = found else {
                index += 1;
                continue;
            };
            // In order: a later one may name the pair of an earlier one.
            setup.dials.remove(index);
            let event = match found {
                Ok(pair) => LocalEvent::Known {
                    asked: number,
                    pair,
                },
                Err(reason) => LocalEvent::Failed(number, reason),
            };
            self.tell(&mut setup.news, event);
        }
    }

    /// Returns the pair with an adapter that knows one; `None` while it may be being made.
    fn find(
        &self,
        setup: &mut Setup,
        index: usize,
        adapter: Known,
    ) -> Option<Result<LocalNumber, NotLocal>> {
        if let Some(number) = self.known(&adapter) {
            return Some(Ok(number));
        }
        if setup.dials.iter().any(|other| other.dial.makes(&adapter)) {
            setup.dials.get_mut(index)?.told = Some(adapter);
            return None;
        }
        Some(Err(NotLocal::Refused))
    }

    /// Takes the pairs that peers ask for.
    fn accept(&self, setup: &mut Setup) {
        let Setup { listener, news, .. } = setup;
        let mut incoming = Incoming {
            neighbours: self,
            news,
            added: None,
        };
        listener.accept(&self.identity, ThreadWait::clock(), &mut incoming);
    }

    /// Decides when to look at set-ups next.
    fn plan_look(&self, setup: &Setup) {
        let soon = ThreadWait::clock().as_micros().saturating_add(SOON);
        let given_up = setup.listener.deadline().map_or(NEVER, Instant::as_micros);
        let is_reported = self.pollers.is_some() && setup.dials.is_empty();
        let look = match given_up {
            NEVER if setup.dials.is_empty() => NEVER,
            given_up if is_reported => given_up,
            given_up => given_up.min(soon),
        };
        if look < self.next_look.swap(look, Ordering::AcqRel) {
            self.wake_service();
        }
    }

    /// Returns the next event of an open pair.
    fn pair_event(&self) -> Option<LocalEvent> {
        let mut waits = false;
        let mut ended = None;
        for neighbour in self.slots().iter().flatten() {
            if neighbour.pair.is_over() {
                ended = Some(neighbour.number);
                break;
            }
            if neighbour.waits.load(Ordering::Acquire) {
                if neighbour.pair.has_room_come() {
                    neighbour.waits.store(false, Ordering::Release);
                    self.has_events.store(true, Ordering::Release);
                    return Some(LocalEvent::Room(neighbour.number));
                }
                waits = true;
            }
        }
        if waits {
            self.has_events.store(true, Ordering::Release);
        }
        let number = ended?;
        let ended = self
            .slots_mut()
            .get_mut(usize::from(number.slot))
            .map(|slot| self.take(slot));
        drop(ended);
        self.has_events.store(true, Ordering::Release);
        Some(LocalEvent::Ended(number))
    }
}

/// Takes the pairs that peers ask for.
struct Incoming<'n> {
    neighbours: &'n Neighbours,
    news: &'n mut News,
    /// The pair that was added last.
    added: Option<Arc<Neighbour>>,
}

impl Pairs for Incoming<'_> {
    fn knows(&mut self, adapter: &Known) -> bool {
        self.neighbours.known(adapter).is_some()
    }

    fn has_room(&self) -> bool {
        self.neighbours.used.load(Ordering::Acquire) < PAIRS
    }

    fn add(&mut self, pair: LocalPair) -> Option<BorrowedFd<'_>> {
        self.added = self.neighbours.open(self.news, pair).ok();
        let added = self.added.as_ref();
        added.map(|neighbour| neighbour.pair.as_fd())
    }

    fn watch(&mut self, socket: BorrowedFd<'_>) -> bool {
        self.neighbours.watch_setup(socket)
    }
}

impl LocalQueues for Neighbours {
    fn dial(&self, source: IpAddr, peer: SocketAddr, waits: bool) -> Result<LocalNumber, NotLocal> {
        let mut own = SocketAddr::new(source, self.bound.port());
        let peer = self.with_interface(peer);
        if let (SocketAddr::V6(own), SocketAddr::V6(peer)) = (&mut own, peer)
            && own.ip().is_unicast_link_local()
        {
            own.set_scope_id(peer.scope_id());
        }
        let now = ThreadWait::clock();
        let mut setup = self.setup();
        let mut asked = setup.dials.iter_mut();
        if let Some(asked) = asked.find(|asked| asked.dial.ends() == (own, peer)) {
            asked.unknown += 1;
            if waits {
                asked.dial.set_patience(STOPPED, now);
            }
            return Ok(asked.number);
        }
        if setup.dials.len() == PAIRS {
            return Err(NotLocal::Full);
        }
        // Without any pair, none can be there: the first question brings the memory.
        let first = match self.is_used() {
            true => First::Question,
            false => First::Offer,
        };
        let dial = Dial::new(&self.identity, own, peer, first, now);
        let mut dial = dial.map_err(|refusal| NotLocal::from(&refusal))?;
        if waits {
            dial.set_patience(STOPPED, now);
        } else if self.is_only_way {
            dial.set_patience(PATIENCE, now);
        }
        if dial
            .socket()
            .is_some_and(|socket| !self.watch_setup(socket))
        {
            return Err(NotLocal::Memory);
        }
        let number = setup.news.number(NO_SLOT);
        setup.dials.push(Asked {
            number,
            dial,
            unknown: 1,
            seen: now,
            told: None,
        });
        self.plan_look(&setup);
        Ok(number)
    }

    fn dialled(&self, number: LocalNumber) {
        let mut setup = self.setup();
        let asked = setup.dials.iter_mut().find(|asked| asked.number == number);
        if let Some(asked) = asked {
            asked.unknown = asked.unknown.saturating_sub(1);
        }
        // The answer may have come before.
        self.poll_dials(&mut setup, Some(number));
        self.plan_look(&setup);
        self.wake_service();
    }

    fn event(&self) -> Option<LocalEvent> {
        if self
            .next_look()
            .is_some_and(|look| look <= ThreadWait::clock())
        {
            let mut setup = self.setup();
            self.poll_dials(&mut setup, None);
            if setup.listener.deadline().is_some() {
                self.accept(&mut setup);
            }
            self.plan_look(&setup);
        }
        if !self.has_events.load(Ordering::Acquire)
            || !self.has_events.swap(false, Ordering::AcqRel)
        {
            return None;
        }
        let next = self.setup().news.events.pop_front();
        if let Some(event) = next {
            self.has_events.store(true, Ordering::Release);
            if let LocalEvent::Opened { pair, .. } = &event
                && let Some(Some(neighbour)) = self.slots().get(usize::from(pair.slot))
            {
                neighbour.is_told.store(true, Ordering::Release);
            }
            return Some(event);
        }
        self.pair_event()
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let slots = self.slots();
        let (behind, before) = slots.split_at_checked(self.next.load(Ordering::Relaxed))?;
        let from = behind.len();
        for (index, slot) in (from..).zip(before).chain((0..).zip(behind)) {
            let Some(neighbour) = slot else {
                continue;
            };
            if !neighbour.is_told.load(Ordering::Acquire) {
                continue;
            }
            if let Some(record) = neighbour.pair.read(buffer) {
                self.next
                    .store((index + 1) % slots.len(), Ordering::Relaxed);
                return Some(neighbour.arrival(&record));
            }
            if neighbour.pair.is_over() {
                self.has_events.store(true, Ordering::Release);
            }
        }
        None
    }

    fn release(&self, number: LocalNumber) {
        if let Some(Some(neighbour)) = self.slots().get(usize::from(number.slot)) {
            neighbour.pair.release();
        }
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire) > 0
            || self.next_look().is_some()
            // The outcome of the only set-up.
            || self.has_events.load(Ordering::Acquire)
    }

    fn next_look(&self) -> Option<Instant> {
        let look = self.next_look.load(Ordering::Acquire);
        (look != NEVER).then(|| Instant::from_micros(look))
    }

    fn attend(&self, gone: Gone) {
        let mut setup = self.setup();
        self.accept(&mut setup);
        self.poll_dials(&mut setup, None);
        self.plan_look(&setup);
        drop(setup);
        let slots = self.slots();
        let looked_at = match gone {
            Gone::None => None,
            Gone::One(slot) => slots.get(usize::from(slot)..=usize::from(slot)),
            Gone::Any => slots.get(..),
        };
        let neighbours = looked_at.unwrap_or_default().iter().flatten();
        neighbours.for_each(|neighbour| neighbour.pair.attend());
        self.has_events.store(true, Ordering::Release);
    }

    fn attend_next(&self) {
        let mut setup = self.setup();
        let slots = self.slots();
        let next = setup.next;
        setup.next = if next >= slots.len() { 0 } else { next + 1 };
        match slots.get(next) {
            Some(Some(neighbour)) => neighbour.pair.attend(),
            Some(None) => {}
            None => {
                drop(slots);
                self.accept(&mut setup);
                self.plan_look(&setup);
            }
        }
    }

    fn arm(&self) -> bool {
        let mut has_come = !self.setup().news.events.is_empty();
        for neighbour in self.slots().iter().flatten() {
            has_come |= !neighbour.pair.arm();
        }
        has_come
    }

    fn close(&self) {
        let mut setup = self.setup();
        setup.listener.close();
        setup.dials.clear();
        setup.news.events.clear();
        self.plan_look(&setup);
        for slot in self.slots_mut().iter_mut() {
            if let Some(neighbour) = self.take(slot) {
                neighbour.pair.close();
            }
        }
    }

    fn doorbells(&self) -> u64 {
        let slots = self.slots();
        let open = slots
            .iter()
            .flatten()
            .map(|neighbour| neighbour.pair.rung());
        open.sum::<u64>() + self.rung.load(Ordering::Relaxed)
    }
}
