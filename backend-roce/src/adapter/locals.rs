//! The local way: connections whose packets go through queues in memory (ROCE-230 to ROCE-237).
//!
//! Each pair of queues leads to one adapter of this host. A packet is written into the outbox and
//! copied into the queue in the lock section that made it due: a queue with room takes it at once.
//! Without room nothing is made, so nothing is lost and nothing waits under the lock. Requests and
//! responses stay in the transport, and messages in their connection, until
//! [`LocalEvent::Room`] lets the pair go on. Other pairs and the sockets have lists of their own.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dat_core::backend::NotLocal;

use super::packets::PACKET_MAX;
use super::refusals::NOBODY;
use super::{Adapter, Ends, Pair};
use crate::options::PathChoice;
use crate::port::{
    Arrival, LocalEvent, LocalNumber, LocalQueue, LocalWay, Outbox, RECORD_OVERHEAD,
    RUN_PACKETS_MAX,
};
use crate::proto::PathMtu;
use crate::proto::connection::{ConnectionEvent, State as LinkState};
use crate::proto::packet::OVERHEAD_MAX;
use crate::reserve::{Reserve, zeros};

/// Room for the largest packet.
pub(super) const LOCAL_PACKET_MAX: usize = PathMtu::Bytes32768.bytes() as usize + OVERHEAD_MAX;

/// Bytes of a queue pair's turn, after which it is the turn of another one.
const TURN: usize = 2 * LOCAL_PACKET_MAX + 2 * RECORD_OVERHEAD;

/// Bytes that are copied in one lock section, but for the rest of a turn.
const SECTION: usize = 64 << 10;

/// Room that requests and responses leave for messages and last acknowledgements.
const RESERVE: usize = 16 << 10;

/// Room for all messages of a connection that are due at a time.
const MESSAGES: usize = 2 << 10;

/// A pair of queues that is open.
struct Local {
    number: LocalNumber,
    mtu: PathMtu,
    queue: Arc<dyn LocalQueue>,
    /// Connections and attempts on this way.
    users: usize,
    /// Queue pairs and connections with packets to send; there is room for all users.
    pairs: VecDeque<usize>,
    links: VecDeque<u32>,
    /// Set while it is in the list of those that may send.
    is_listed: bool,
    /// Set while requests and responses wait for room.
    is_full: bool,
    /// Set while messages do, too.
    is_stuck: bool,
    /// Set once packets were copied that the peer is not woken for yet.
    is_unrung: bool,
}

impl Local {
    /// Returns true if messages are due that may find room.
    fn has_messages(&self) -> bool {
        !(self.links.is_empty() || self.is_stuck)
    }

    fn has_output(&self) -> bool {
        self.has_messages() || !(self.pairs.is_empty() || self.is_full)
    }
}

/// The pairs of queues of an adapter.
pub(crate) struct Locals {
    slots: Vec<Option<Local>>,
    /// Pairs that have something to send, and are not known to be full.
    listed: VecDeque<u16>,
    /// Attempts that wait for a set-up, with its number; there is room for one more.
    attempts: VecDeque<(LocalNumber, u32)>,
    /// Queue pairs that have failed, and are to send their last packet.
    pub(super) failing: usize,
    /// Set-ups that queue pairs without a connection wait for, each with the pair that it came to.
    awaited: Vec<(LocalNumber, Option<LocalNumber>)>,
    /// The packets of one turn.
    pub(super) outbox: Outbox,
}

impl Locals {
    /// Makes an empty table; it takes memory once there is a pair.
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            listed: VecDeque::new(),
            attempts: VecDeque::new(),
            failing: 0,
            awaited: Vec::new(),
            outbox: Outbox::new(Vec::new(), RUN_PACKETS_MAX),
        }
    }

    fn get(&self, number: LocalNumber) -> Option<&Local> {
        let local = self.slots.get(usize::from(number.slot))?.as_ref();
        local.filter(|local| local.number == number)
    }

    fn get_mut(&mut self, number: LocalNumber) -> Option<&mut Local> {
        let local = self.slots.get_mut(usize::from(number.slot))?.as_mut();
        local.filter(|local| local.number == number)
    }

    /// Returns the size of packets of an open pair.
    pub(crate) fn mtu(&self, number: LocalNumber) -> Option<PathMtu> {
        self.get(number).map(|local| local.mtu)
    }

    pub(super) fn is_open(&self, number: LocalNumber) -> bool {
        self.get(number).is_some()
    }

    /// Returns the number of open pairs.
    pub(super) fn count(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Returns the open pair from an address of this side to a port of the peer.
    pub(super) fn find(&self, (local, peer): &Ends) -> Option<LocalNumber> {
        let mut open = self.slots.iter().flatten();
        let found = open.find(|pair| {
            let flow = pair.queue.flow();
            flow.source() == *peer && flow.destination().ip() == *local
        });
        found.map(|pair| pair.number)
    }

    /// Returns true if a pair is open, and between the addresses of both ends.
    pub(super) fn is_between(&self, number: LocalNumber, (local, peer): &Ends) -> bool {
        self.get(number).is_some_and(|pair| {
            let flow = pair.queue.flow();
            [flow.source().ip(), flow.destination().ip()] == [peer.ip(), *local]
        })
    }

    /// Returns true if a pair has room for a datagram, and nothing that waits for room.
    pub(super) fn takes_datagram(&self, number: LocalNumber) -> bool {
        const NEEDED: usize = RESERVE + PACKET_MAX + RECORD_OVERHEAD;
        self.get(number)
            .is_some_and(|local| !local.is_full && local.queue.has_room(NEEDED))
    }

    /// Returns true if two pairs lead to the same adapter: each of both ends may have made one.
    pub(super) fn lead_to_one(&self, pairs: [LocalNumber; 2]) -> bool {
        let peer = |number| Some(self.get(number)?.queue.peer());
        let [one, other] = pairs.map(peer);
        one.is_some() && one == other
    }

    /// Waits for the outcome of a set-up; false if there is no memory.
    pub(crate) fn expect(&mut self, asked: LocalNumber) -> bool {
        let has_room = self.awaited.try_reserve(1).is_ok();
        if has_room {
            self.awaited.push((asked, None));
        }
        has_room
    }

    /// Takes the outcome of a set-up, once there is one: the number of a pair, which is open if the
    /// set-up succeeded.
    pub(crate) fn outcome(&mut self, asked: LocalNumber) -> Option<LocalNumber> {
        let mut awaited = self.awaited.iter();
        let index = awaited.position(|(number, pair)| *number == asked && pair.is_some())?;
        self.awaited.swap_remove(index).1
    }

    /// Gives up on a set-up.
    pub(crate) fn forget_setup(&mut self, asked: LocalNumber) {
        if let Some(index) = self.awaited.iter().position(|(number, _)| *number == asked) {
            self.awaited.swap_remove(index);
        }
    }

    /// Adds a user; false if the pair has ended, or there is no memory.
    pub(super) fn join(&mut self, number: LocalNumber) -> bool {
        let Some(local) = self.get_mut(number) else {
            return false;
        };
        let users = local.users.saturating_add(1);
        let has_room = local.pairs.has_room_for(users) && local.links.has_room_for(users);
        local.users += usize::from(has_room);
        has_room
    }

    pub(super) fn leave(&mut self, number: LocalNumber) {
        if let Some(local) = self.get_mut(number) {
            local.users = local.users.saturating_sub(1);
        }
    }

    /// Makes room for one more attempt; false if there is no memory.
    pub(super) fn reserve_attempt(&mut self) -> bool {
        let attempts = self.attempts.len() + 1;
        self.attempts.has_room_for(attempts)
    }

    /// Returns true if requests and responses of a pair wait for room.
    pub(super) fn is_full(&self, number: LocalNumber) -> bool {
        self.get(number).is_some_and(|local| local.is_full)
    }

    /// Forgets the messages of a connection that is over, if its pair has no room for any; false if
    /// it has.
    pub(super) fn drop_messages(&mut self, number: LocalNumber, id: u32) -> bool {
        let local = self.get_mut(number).filter(|local| local.is_stuck);
        let is_stuck = local.is_some();
        if let Some(local) = local {
            local.links.retain(|ready| *ready != id);
        }
        is_stuck
    }

    fn open(&mut self, number: LocalNumber, mtu: PathMtu, queue: Arc<dyn LocalQueue>) -> bool {
        let slot = usize::from(number.slot);
        if !self.outbox.has_room(TURN) {
            let Some(buffer) = zeros(TURN) else {
                return false;
            };
            self.outbox = Outbox::new(buffer, RUN_PACKETS_MAX);
            if !self.outbox.has_room(TURN) {
                return false;
            }
        }
        if !(self.slots.has_room_for(slot + 1) && self.listed.has_room_for(slot + 1)) {
            return false;
        }
        while self.slots.len() <= slot {
            self.slots.push(None);
        }
        let Some(place) = self.slots.get_mut(slot) else {
            return false;
        };
        // The list names slots, not pairs.
        let is_listed = place.take().is_some_and(|before| before.is_listed);
        *place = Some(Local {
            number,
            mtu,
            queue,
            users: 0,
            pairs: VecDeque::new(),
            links: VecDeque::new(),
            is_listed,
            is_full: false,
            is_stuck: false,
            is_unrung: false,
        });
        true
    }

    /// Notes a queue pair or a connection with something to send; false if the pair has ended.
    pub(super) fn add(&mut self, number: LocalNumber, sender: Sender) -> bool {
        let Some(local) = self.get_mut(number) else {
            return false;
        };
        match sender {
            Sender::Pair(key) => local.pairs.push_back(key),
            Sender::Link(id) => local.links.push_back(id),
        }
        self.list(number.slot);
        true
    }

    fn list(&mut self, slot: u16) {
        if let Some(Some(local)) = self.slots.get_mut(usize::from(slot))
            && local.has_output()
            && !core::mem::replace(&mut local.is_listed, true)
        {
            self.listed.push_back(slot);
        }
    }

    /// Takes the pair whose turn it is.
    fn next(&mut self) -> Option<&mut Local> {
        let slot = self.listed.pop_front()?;
        let local = self.slots.get_mut(usize::from(slot))?.as_mut()?;
        local.is_listed = false;
        Some(local)
    }

    pub(super) fn has_output(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Forgets a queue pair that is no more.
    pub(super) fn forget(&mut self, key: usize) {
        for local in self.slots.iter_mut().flatten() {
            local.pairs.retain(|ready| *ready != key);
        }
    }

    /// Returns the queue that has the payload of a split arrival, if its pair is open.
    pub(super) fn source(&self, arrival: &Arrival) -> Option<&dyn LocalQueue> {
        self.queue(arrival.local.filter(|_| arrival.is_split)?)
    }

    /// Returns the queue of an open pair.
    pub(super) fn queue(&self, number: LocalNumber) -> Option<&dyn LocalQueue> {
        self.get(number).map(|local| &*local.queue)
    }

    /// Returns the outbox, and the queue of an open pair.
    pub(super) fn sender(&mut self, number: LocalNumber) -> Option<(&mut Outbox, &dyn LocalQueue)> {
        let local = self.slots.get(usize::from(number.slot))?.as_ref();
        let local = local.filter(|local| local.number == number)?;
        Some((&mut self.outbox, &*local.queue))
    }

    /// Copies the packets of the outbox into the queue of a pair; returns their number and bytes.
    ///
    /// If `placed` is not 0, the outbox has one packet, and that many bytes of its payload are there.
    pub(super) fn push(&mut self, number: LocalNumber, placed: usize) -> (u64, u64) {
        let totals = self.outbox.totals();
        match self.slots.get(usize::from(number.slot)) {
            Some(Some(local)) if local.number == number => match placed {
                0 => self.outbox.push(&*local.queue),
                _ => self.outbox.push_split(&*local.queue, placed),
            },
            _ => self.outbox.clear(),
        }
        totals
    }

    /// Returns the room for messages and last acknowledgements.
    pub(super) fn room(&self, number: LocalNumber) -> usize {
        self.get(number).map_or(0, |local| local.queue.room(0))
    }
}

/// Something with packets to send.
#[derive(Clone, Copy)]
pub(super) enum Sender {
    Pair(usize),
    Link(u32),
}

impl Adapter {
    /// Returns true if packets of the local way are due and may have room.
    pub(crate) fn has_local_output(&self) -> bool {
        self.locals.has_output()
    }

    /// Sends packets of the local way that are due, as many as one lock section may copy.
    pub(crate) fn transmit_local(&mut self) {
        let mut sent = 0;
        while sent < SECTION
            && let Some(local) = self.locals.next()
        {
            let number = local.number;
            let is_message = local.has_messages();
            let least = match is_message {
                true => MESSAGES,
                false => RESERVE + local.mtu.bytes() as usize + OVERHEAD_MAX + RECORD_OVERHEAD,
            };
            let room = local.queue.room(least);
            if room < least {
                local.is_full = true;
                local.is_stuck |= is_message;
                self.counts.local.full += 1;
                self.finish_failures(number);
                continue;
            }
            let before = self.counts.local.bytes_sent;
            if is_message {
                if let Some(id) = local.links.pop_front() {
                    self.transmit_link(id);
                }
            } else if let Some(key) = local.pairs.pop_front() {
                self.transmit_local_pair(number, key, room - RESERVE);
            }
            sent += (self.counts.local.bytes_sent - before) as usize;
            self.locals.list(number.slot);
        }
    }

    /// Ends the connections that have failed and wait for room to tell it, which may not come.
    #[cold]
    fn finish_failures(&mut self, number: LocalNumber) {
        while self.locals.failing > 0
            && let Some(local) = self.locals.get(number)
            && let Some(key) = local.pairs.iter().copied().find(|key| {
                let pair = self.pairs.get(*key);
                pair.is_some_and(|pair| pair.is_failing)
            })
        {
            self.finish_failure(key);
        }
    }

    fn transmit_local_pair(&mut self, number: LocalNumber, key: usize, room: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.is_ready = false;
        if pair.local != Some(number) {
            // It has another connection since.
            self.set_ready(key);
            return;
        }
        self.transmit_pair(key, room.min(TURN));
    }

    /// Copies the packets of the outbox into a queue, counts them and wakes a peer that sleeps.
    ///
    /// Of a packet, `placed` bytes are there already; the rest of its turn follows, and wakes.
    pub(super) fn push_local(&mut self, number: LocalNumber, placed: usize) {
        let (packets, bytes) = self.locals.push(number, placed);
        self.counts.packets_sent += packets;
        self.counts.bytes_sent += bytes;
        self.counts.local.packets_sent += packets;
        self.counts.local.bytes_sent += bytes;
        if let Some(local) = self.locals.get_mut(number) {
            local.is_unrung |= packets > 0;
            if placed == 0 && core::mem::take(&mut local.is_unrung) {
                local.queue.ring();
            }
        }
    }

    /// Begins an attempt: sends its request, or waits for its pair of queues first (ROCE-230).
    pub(super) fn begin(&mut self, id: u32, local: LocalWay) {
        match local {
            Ok(None) => self.after_link(id),
            // The port tells what becomes of it.
            Ok(Some(number)) => self.locals.attempts.push_back((number, id)),
            Err(NotLocal::Nobody) => self.find_nobody(id),
            Err(reason) => self.give_up(id, reason),
        }
    }

    /// Refuses an attempt that takes queues only, where nobody has any (ROCE-251).
    fn find_nobody(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id) {
            link.fallback = None;
            link.connection.abandon();
            self.link_event(id, Some(ConnectionEvent::Rejected(NOBODY)));
        }
        self.not_local = Some(NotLocal::Nobody);
    }

    /// Sends the request of an attempt that has waited for a pair of queues, on one way or the
    /// other; `reason` says why there is no pair if there is none.
    pub(super) fn settle(&mut self, id: u32, reason: NotLocal) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let Some(number) = link.pending.take() else {
            return;
        };
        let mtu = self.locals.mtu(number);
        if let Some(mtu) = mtu
            && self.locals.join(number)
        {
            link.be_local(number, mtu);
        } else if self.options.path == PathChoice::Local {
            self.give_up(id, reason);
            return;
        }
        self.request_anew(id);
    }

    /// Ends an attempt that finds no queues and may take no other way (ROCE-251).
    fn give_up(&mut self, id: u32, reason: NotLocal) {
        if let Some(link) = self.links.get_mut(id) {
            link.connection.abandon();
        }
        self.link_event(id, Some(ConnectionEvent::Unreachable));
        self.not_local = Some(reason);
    }

    /// Takes over a change of a pair of queues.
    pub(crate) fn local_event(&mut self, event: LocalEvent) {
        match event {
            LocalEvent::Opened { pair, mtu, queue } => {
                // Without memory, attempts go by packets, and packets of the peer are dropped.
                let has_opened = self.locals.open(pair, mtu, queue);
                self.counts.local.pairs += u64::from(has_opened);
            }
            LocalEvent::Failed(number, reason) => self.settle_all(number, number, reason),
            LocalEvent::Known { asked, pair } => self.settle_all(asked, pair, NotLocal::Memory),
            LocalEvent::Room(number) => {
                if let Some(local) = self.locals.get_mut(number) {
                    local.queue.withdraw();
                    (local.is_full, local.is_stuck) = (false, false);
                }
                self.locals.list(number.slot);
            }
            LocalEvent::Ended(number) => self.end_local(number),
        }
    }

    /// Settles the attempts that wait for one pair on another one, or the same.
    fn settle_all(&mut self, asked: LocalNumber, number: LocalNumber, reason: NotLocal) {
        for (awaited, pair) in &mut self.locals.awaited {
            if *awaited == asked {
                *pair = Some(number);
            }
        }
        self.settle_ways(asked, number);
        for _ in 0..self.locals.attempts.len() {
            let Some((waits, id)) = self.locals.attempts.pop_front() else {
                return;
            };
            if waits != asked {
                self.locals.attempts.push_back((waits, id));
                continue;
            }
            // It may have ended.
            let link = self.links.get_mut(id);
            if let Some(link) = link.filter(|link| link.pending == Some(asked)) {
                link.pending = Some(number);
                self.settle(id, reason);
            }
        }
    }

    /// Ends all pairs, at the end of the adapter.
    pub(crate) fn end_locals(&mut self) {
        for slot in 0..self.locals.slots.len() {
            if let Some(Some(local)) = self.locals.slots.get(slot) {
                let number = local.number;
                self.end_local(number);
            }
        }
    }

    /// Breaks the connections of a pair whose peer has gone (ROCE-236).
    fn end_local(&mut self, number: LocalNumber) {
        let Some(place) = self.locals.slots.get_mut(usize::from(number.slot)) else {
            return;
        };
        let Some(local) = place.take_if(|local| local.number == number) else {
            return;
        };
        self.counts.local.pairs -= 1;
        if local.is_listed {
            self.locals.listed.retain(|slot| *slot != number.slot);
        }
        for key in local.pairs {
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.is_ready = false;
            }
        }
        for id in local.links {
            if let Some(link) = self.links.get_mut(id) {
                link.is_ready = false;
            }
        }
        let mut users = local.users;
        for index in 0..self.links.bound() {
            if users == 0 {
                break;
            }
            let link = self.links.at_mut(index);
            let Some(link) = link.filter(|link| link.path.local == Some(number)) else {
                continue;
            };
            users -= 1;
            let (id, state) = (link.id, link.connection.state());
            let event = match state {
                LinkState::Established => Some(ConnectionEvent::Disconnected { broken: true }),
                LinkState::RequestSent | LinkState::RequestReceived | LinkState::ReplySent => {
                    Some(ConnectionEvent::Unreachable)
                }
                _ => None,
            };
            link.connection.abandon();
            let key = link.pair;
            if let Some(key) = key {
                self.lose_peer(key);
            }
            self.link_event(id, event);
        }
        for key in 0..self.pairs.bound() {
            if users == 0 {
                break;
            }
            let pair = self.pairs.get(key);
            if pair.is_some_and(|pair| pair.link.is_none() && pair.local == Some(number)) {
                users -= 1;
                self.break_attached(key);
            }
        }
    }

    /// Fails the requests of a queue pair without a connection whose queues have ended (ROCE-273).
    ///
    /// One without requests learns of it with the next one, as from a peer that does not answer.
    pub(super) fn break_attached(&mut self, key: usize) {
        let pair = self.pairs.get(key);
        let has_requests = |pair: &Pair| {
            let transport = pair.transport.as_ref();
            pair.link.is_none() && pair.is_open() && transport.is_some_and(|one| !one.is_idle())
        };
        if pair.is_some_and(has_requests) {
            self.lose_peer(key);
            self.take_completions(key);
            self.fail_pair(key);
        }
    }

    fn lose_peer(&mut self, key: usize) {
        let pair = self.pairs.get_mut(key);
        if let Some(transport) = pair.and_then(|pair| pair.transport.as_mut()) {
            transport.lose_peer();
        }
    }
}
