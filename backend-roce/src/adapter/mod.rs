//! An adapter: its objects, and the packets that change them.
//!
//! One lock protects the whole adapter ([`crate::backend`]). So a packet looks up its region, and
//! copies, under the lock that deregistration takes (ROCE-125).

mod completions;
mod links;
mod memories;
mod queue_pair;
mod random;

pub(crate) use completions::CompletionRing;
pub(crate) use links::{port_of, private_size};
pub(crate) use memories::Memories;
pub(crate) use queue_pair::{
    Pair, ReceiveEntry, SEGMENTS, Segments, SendEntry, SharedReceives, State, Work,
};

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use dat_core::backend::{Completion, ControlEvent};
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;
use slab::Slab;

use crate::counts::{AdapterCounts, ConnectionCounts};
use crate::options::RoceOptions;
use crate::port::Outbox;
use crate::proto::connection;
use crate::proto::icrc::{Flow, Verdict};
use crate::proto::numbers::{NumberKind, NumberSlot, NumberTable};
use crate::proto::packet::{OVERHEAD_MAX, Opcode, Packet};
use crate::proto::queue_pair::QueuePair;
use crate::proto::responder::ReceiveCompletion;
use completions::{Effect, Entry};
use links::{Link, Listener};
use queue_pair::{Access, Receives, receive_status};
use random::Random;

/// Bytes of the outbox.
pub(crate) const OUTBOX: usize = 256 << 10;

/// Room for the largest packet.
const PACKET_MAX: usize = 4096 + OVERHEAD_MAX;

/// Packets that a queue pair sends before it is the turn of another one.
const TURN: usize = 32;

/// Identifications up to this one are those of segments of one send (ROCE-50).
const SEGMENT_MAX: u16 = 128;

/// Stands in the table of QPNs for a queue pair whose connection has ended.
const ENDED: usize = usize::MAX;

/// Owner of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pair(usize),
    /// A probe of the peer of a queue pair.
    Probe(usize),
    Link(u32),
}

pub(crate) struct Adapter {
    pub(crate) options: RoceOptions,
    pub(crate) address: SocketAddr,
    pub(crate) now: Instant,
    random: Random,
    /// GUID of this adapter.
    guid: u64,
    pub(crate) domains: Slab<()>,
    pub(crate) memories: Memories,
    pub(crate) pairs: Slab<Pair>,
    /// Queue pairs by QPN.
    qpns: NumberTable<'static, usize>,
    pub(crate) shared_receives: Slab<SharedReceives>,
    completion_queues: Vec<Option<CompletionRing>>,
    pub(crate) completion_queue_count: usize,
    pub(crate) listeners: Slab<Listener>,
    /// Listeners by service id.
    services: BTreeMap<u64, usize>,
    /// Connections by communication id.
    links: NumberTable<'static, Box<Link>>,
    /// Communication ids of incoming requests, by GUID and communication id of the peer.
    incoming: BTreeMap<(u64, u32), u32>,
    /// Communication ids of incoming connections, by GUID and QPN of the peer.
    peers: BTreeMap<(u64, u32), u32>,
    /// Connection requests that the consumer has not answered.
    waiting: usize,
    /// Claimed UDP ports with the number of their users.
    ports: BTreeMap<u16, usize>,
    /// Ports without a user, to be given back.
    pub(crate) unused_ports: Vec<u16>,
    timers: BTreeSet<(Instant, Timer)>,
    ready_pairs: VecDeque<usize>,
    ready_links: VecDeque<u32>,
    outbox: Outbox,
    control: VecDeque<ControlEvent>,
    /// Set by a control event, until its caller has told the consumer.
    pub(crate) raised: bool,
    pub(crate) counts: AdapterCounts,
}

fn after(start: Instant, period: Duration) -> Instant {
    let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    Instant::from_micros(start.as_micros().saturating_add(period))
}

fn numbers<T>(kind: NumberKind, secret: [u8; 16], count: usize) -> NumberTable<'static, T> {
    let slots: Vec<_> = (0..count).map(|_| NumberSlot::EMPTY).collect();
    let slots: Box<[_]> = slots.into();
    NumberTable::new(kind, secret, slots).expect("a number of slots")
}

impl Adapter {
    pub(crate) fn new(options: RoceOptions, address: SocketAddr, run_packets: u16) -> Self {
        let mut random = Random::new(options.secret);
        let connections = options.connections.clamp(64, 1 << 15).next_power_of_two();
        let keys = options.keys.clamp(256, 1 << 24).next_power_of_two();
        Self {
            address,
            now: Instant::ZERO,
            // Locally administered, and marked as ours (ROCE-48).
            guid: links::guid(random.next() as u32),
            domains: Slab::new(),
            memories: Memories::new(random.secret(), keys),
            pairs: Slab::new(),
            qpns: numbers(NumberKind::Qpn, random.secret(), connections),
            shared_receives: Slab::new(),
            completion_queues: Vec::new(),
            completion_queue_count: 0,
            listeners: Slab::new(),
            services: BTreeMap::new(),
            links: numbers(NumberKind::Word, random.secret(), connections),
            incoming: BTreeMap::new(),
            peers: BTreeMap::new(),
            waiting: 0,
            ports: BTreeMap::new(),
            unused_ports: Vec::new(),
            timers: BTreeSet::new(),
            ready_pairs: VecDeque::new(),
            ready_links: VecDeque::new(),
            outbox: Outbox::new(OUTBOX, run_packets),
            control: VecDeque::new(),
            raised: false,
            counts: AdapterCounts::default(),
            random,
            options,
        }
    }

    // Control events.

    pub(crate) fn raise(&mut self, event: ControlEvent) {
        self.control.push_back(event);
        self.raised = true;
    }

    pub(crate) fn next_event(&mut self) -> Option<ControlEvent> {
        self.control.pop_front()
    }

    /// Withdraws the events that are of the subject; returns true if there were any.
    pub(crate) fn withdraw(&mut self, is_of: impl Fn(&ControlEvent) -> bool) -> bool {
        let before = self.control.len();
        self.control.retain(|event| !is_of(event));
        self.control.len() != before
    }

    /// Withdraws the events about the connection of a queue pair.
    fn withdraw_connection(&mut self, token: u64) {
        self.withdraw(|event| match *event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair }
            | ControlEvent::SoftHighWatermark { queue_pair } => queue_pair == token,
            _ => false,
        });
    }

    // Completion queues.

    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut CompletionRing> {
        self.completion_queues.get_mut(number as usize)?.as_mut()
    }

    /// Adds a completion queue; false if there is one with this number.
    pub(crate) fn add_completion_queue(&mut self, number: u32, ring: CompletionRing) -> bool {
        let index = number as usize;
        if index >= self.completion_queues.len() {
            self.completion_queues.resize_with(index + 1, || None);
        }
        let is_free = self.completion_queues[index].is_none();
        if is_free {
            self.completion_queues[index] = Some(ring);
            self.completion_queue_count += 1;
        }
        is_free
    }

    pub(crate) fn remove_completion_queue(&mut self, number: u32) {
        let slot = self.completion_queues.get_mut(number as usize);
        if slot.and_then(Option::take).is_some() {
            self.completion_queue_count -= 1;
        }
        self.withdraw(
            |event| matches!(*event, ControlEvent::Completions { queue } if queue == number),
        );
    }

    /// Adds a queue pair to the users of its completion queues, or removes it.
    pub(crate) fn use_completion_queues(&mut self, key: usize, uses: bool) {
        let Some(pair) = self.pairs.get(key) else {
            return;
        };
        for number in pair.completion_queues() {
            if let Some(ring) = self.completion_queue(number) {
                if uses {
                    ring.users.insert(key);
                } else {
                    ring.users.remove(&key);
                }
            }
        }
    }

    fn add_completion(
        &mut self,
        queue: Option<u32>,
        owner: usize,
        completion: Completion,
        immediate: Option<u32>,
    ) {
        let entry = Entry {
            owner,
            completion,
            immediate,
        };
        let Some((number, ring)) =
            queue.and_then(|number| Some((number, self.completion_queue(number)?)))
        else {
            return;
        };
        match ring.push(entry) {
            Effect::None => {}
            Effect::Notify => self.raise(ControlEvent::Completions { queue: number }),
            Effect::Overrun => self.overrun(number),
        }
    }

    /// Breaks the queue pairs of a completion queue that failed.
    fn overrun(&mut self, number: u32) {
        let Some(ring) = self.completion_queue(number) else {
            return;
        };
        let users = core::mem::take(&mut ring.users);
        if ring.disarm() {
            self.raise(ControlEvent::Completions { queue: number });
        }
        for key in users {
            self.break_pair(key);
        }
    }

    // Posts.

    /// Takes the requests of a send queue; false if its queue pair does not take any.
    pub(crate) fn post_requests(
        &mut self,
        key: usize,
        entries: impl Iterator<Item = SendEntry>,
    ) -> bool {
        let takes = |pair: &Pair| matches!(pair.state, State::Connected | State::Error);
        if !self.pairs.get(key).is_some_and(takes) {
            return false;
        }
        for entry in entries {
            self.post_request(key, entry);
        }
        if self.pairs.get(key).map(|pair| pair.state) == Some(State::Error) {
            self.flush_requests(key);
        } else {
            self.set_ready(key);
        }
        true
    }

    fn post_request(&mut self, key: usize, entry: SendEntry) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let position = pair.first + pair.sends.len() as u64;
        let refused = match &mut pair.transport {
            Some(transport) => transport.post(entry.request(position)).is_err(),
            None => false,
        };
        if !refused {
            pair.sends.push_back(entry);
            return;
        }
        // The core does not know the limits of the peer: it may take no Reads, or packets so short
        // that the message has too many. Earlier requests end first.
        let was_open = pair.is_open();
        self.break_pair(key);
        self.finish_failure(key);
        self.flush_requests(key);
        let status = if was_open {
            DtoStatus::LocalEndpoint
        } else {
            DtoStatus::Flushed
        };
        self.complete_request(key, &entry, status);
    }

    /// Takes the receives of a queue pair; false if there is no such queue pair.
    pub(crate) fn post_receives(
        &mut self,
        key: usize,
        entries: impl Iterator<Item = ReceiveEntry>,
    ) -> bool {
        let Some(pair) = self.pairs.get_mut(key) else {
            return false;
        };
        pair.receives.extend(entries);
        if pair.state == State::Error {
            self.flush_receives(key);
        }
        true
    }

    // Progress of queue pairs.

    fn set_ready(&mut self, key: usize) {
        if let Some(pair) = self.pairs.get_mut(key)
            && !pair.is_ready
        {
            pair.is_ready = true;
            self.ready_pairs.push_back(key);
        }
    }

    fn set_timer(&mut self, timer: Timer, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.timers.remove(&(old, timer));
        }
        if let Some(new) = new {
            self.timers.insert((new, timer));
        }
    }

    /// Takes over what the transport of a queue pair has done.
    fn after_transport(&mut self, key: usize) {
        self.take_completions(key);
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let deadline = pair.transport.as_ref().and_then(QueuePair::deadline);
        let old = core::mem::replace(&mut pair.timer, deadline);
        let failed = pair.transport.as_ref().is_some_and(QueuePair::is_failed);
        let breaks = failed && pair.is_open();
        self.set_timer(Timer::Pair(key), old, deadline);
        if breaks {
            self.begin_failure(key);
        }
    }

    /// Notes a failure of the transport, which is reported once its last packet is sent.
    fn begin_failure(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.state = State::Error;
        pair.is_failing = true;
        self.set_ready(key);
    }

    /// Breaks a connection from this side.
    fn break_pair(&mut self, key: usize) {
        let Some(pair) = self.pairs.get(key).filter(|pair| pair.is_open()) else {
            return;
        };
        let queue_pair = pair.token;
        self.end_pair(key, true);
        self.raise(ControlEvent::Broken { queue_pair });
    }

    /// Ends a connection or an attempt: tells the peer, and flushes both queues.
    fn end_pair(&mut self, key: usize, broken: bool) {
        self.write_answers(key);
        self.disconnect_link(key, broken);
        self.stop_pair(key);
    }

    /// Puts a queue pair in error and flushes both queues.
    fn stop_pair(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.state = State::Error;
        pair.is_failing = false;
        let last = pair.transport.as_mut().and_then(QueuePair::end);
        if let Some(completion) = last {
            self.complete_receive(key, &completion);
        }
        self.flush_requests(key);
        self.flush_receives(key);
        self.after_transport(key);
    }

    /// Writes the responses and acknowledgements that a queue pair owes.
    fn write_answers(&mut self, key: usize) {
        while self.outbox.has_room(PACKET_MAX) {
            let Some(pair) = self.pairs.get_mut(key) else {
                return;
            };
            let Some(link) = pair.link.and_then(|link| self.links.get(link)) else {
                return;
            };
            let path = link.path;
            let Some((transport, mut access)) = pair.access(&self.memories) else {
                return;
            };
            let sent = self
                .outbox
                .add(&path, |buffer| transport.answer(&mut access, buffer));
            if !sent {
                return;
            }
        }
    }

    /// Moves the completions of the transport to the completion queue.
    fn take_completions(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            let Some(done) = pair.transport.as_mut().and_then(QueuePair::poll) else {
                return;
            };
            let Some(entry) = pair.sends.pop_front() else {
                return;
            };
            pair.first += 1;
            let status = entry.status(done.status);
            self.complete_request(key, &entry, status);
        }
    }

    fn complete_request(&mut self, key: usize, entry: &SendEntry, status: DtoStatus) {
        if let Work::Bind(_, window_key) = entry.work
            && status == DtoStatus::Flushed
        {
            self.memories.cancel_bind(window_key);
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if matches!(entry.work, Work::Probe) {
            pair.probes -= 1;
            return;
        }
        let completion = pair.completion(entry.token, status, entry.length);
        let queue = pair.request_queue;
        self.add_completion(queue, key, completion, None);
    }

    fn complete_receive(&mut self, key: usize, done: &ReceiveCompletion) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let taken = pair.current.take().is_some();
        let status = receive_status(done.status);
        let completion = Completion {
            solicited: done.solicited,
            ..pair.completion(done.token, status, done.length)
        };
        let (queue, shared) = (pair.receive_queue, pair.shared);
        if let Some(shared) = shared.and_then(|shared| self.shared_receives.get_mut(shared)) {
            shared.taken -= usize::from(taken);
        }
        let immediate = done.immediate.map(u32::from_ne_bytes);
        self.add_completion(queue, key, completion, immediate);
    }

    /// Completes the posted requests of a queue pair in error.
    ///
    /// With a transport, completes those whose outcome the transport has decided.
    fn flush_requests(&mut self, key: usize) {
        self.take_completions(key);
        while let Some(pair) = self.pairs.get_mut(key) {
            // The transport gives the outcomes, in its own time, if there is one.
            if pair.transport.is_some() {
                return;
            }
            let Some(entry) = pair.sends.pop_front() else {
                return;
            };
            pair.first += 1;
            self.complete_request(key, &entry, DtoStatus::Flushed);
        }
    }

    /// Completes the posted receives of a queue pair in error, unless its failure is still to be sent.
    fn flush_receives(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            if pair.is_failing {
                return;
            }
            let Some(entry) = pair.receives.pop_front() else {
                return;
            };
            let completion = pair.completion(entry.token, DtoStatus::Flushed, 0);
            let queue = pair.receive_queue;
            self.add_completion(queue, key, completion, None);
        }
    }

    /// Empties both queues of a queue pair without completions, and removes the unpolled ones.
    fn clear_pair(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if let Some(transport) = pair.transport.take() {
            let (requester, responder) = transport.counts();
            self.counts.requester += requester;
            self.counts.responder += responder;
        }
        pair.link = None;
        let sends = core::mem::take(&mut pair.sends);
        pair.first = 0;
        pair.probes = 0;
        let probe_at = pair.probe_at.take();
        pair.receives.clear();
        let taken = pair.current.take().is_some();
        let timer = pair.timer.take();
        let (shared, token) = (pair.shared, pair.token);
        let queues = pair.completion_queues();
        self.set_timer(Timer::Pair(key), timer, None);
        self.set_timer(Timer::Probe(key), probe_at, None);
        for entry in sends {
            if let Work::Bind(_, window_key) = entry.work {
                self.memories.cancel_bind(window_key);
            }
        }
        if let Some(shared) = shared.and_then(|shared| self.shared_receives.get_mut(shared)) {
            shared.taken -= usize::from(taken);
        }
        for number in queues {
            if let Some(ring) = self.completion_queue(number) {
                ring.forget(key);
            }
        }
        self.withdraw_connection(token);
    }

    /// Ends a connection or an attempt by the consumer; no event about it follows.
    pub(crate) fn disconnect(&mut self, key: usize, broken: bool) {
        let Some(pair) = self.pairs.get(key) else {
            return;
        };
        let token = pair.token;
        if pair.is_open() || pair.is_failing {
            self.end_pair(key, broken);
        }
        self.withdraw_connection(token);
    }

    /// Returns a queue pair in error to unconnected; false if it is in another state.
    pub(crate) fn reset(&mut self, key: usize) -> bool {
        let in_error = self.pairs.get(key).map(|pair| pair.state) == Some(State::Error);
        if in_error {
            self.finish_failure(key);
            self.clear_pair(key);
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.state = State::Unconnected;
            }
        }
        in_error
    }

    pub(crate) fn destroy_pair(&mut self, key: usize) {
        self.finish_failure(key);
        self.disconnect(key, false);
        self.use_completion_queues(key, false);
        self.clear_pair(key);
        if self.pairs.try_remove(key).is_some_and(|pair| pair.is_ready) {
            self.ready_pairs.retain(|ready| *ready != key);
        }
    }

    /// Acts on the limits of receive buffers that a queue pair exceeds with `held` of them.
    pub(crate) fn check_watermarks(&mut self, key: usize, held: u32) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let queue_pair = pair.token;
        let hard = pair.hard_watermark.is_some_and(|limit| held > limit);
        if pair.soft_watermark.is_some_and(|limit| held > limit) {
            pair.soft_watermark = None;
            self.raise(ControlEvent::SoftHighWatermark { queue_pair });
        }
        if hard {
            self.break_pair(key);
        }
    }

    /// Raises the limit event of a shared receive queue if it is due.
    pub(crate) fn check_limit(&mut self, key: usize) {
        let Some(shared) = self.shared_receives.get_mut(key) else {
            return;
        };
        shared.check_limit();
        if core::mem::take(&mut shared.is_low) {
            let queue = shared.token;
            self.raise(ControlEvent::SharedReceiveLimit { queue });
        }
    }

    // Packets.

    /// Takes a received packet; `wire` has the addresses of the datagram.
    pub(crate) fn receive(&mut self, wire: &Flow, datagram: &[u8]) {
        self.counts.packets += 1;
        self.counts.bytes += datagram.len() as u64;
        let Ok(packet) = Packet::decode(datagram) else {
            self.counts.dropped += 1;
            return;
        };
        let bth = packet.header.bth;
        if bth.destination == connection::MANAGEMENT_QPN {
            self.management(wire, datagram, &packet);
            return;
        }
        let key = self.qpns.get(bth.destination).copied();
        let Some(key) = key.filter(|key| *key != ENDED) else {
            self.counts.dropped += 1;
            return;
        };
        let Some(link) = self.pairs.get(key).and_then(|pair| pair.link) else {
            self.counts.dropped += 1;
            return;
        };
        let Some((view, is_marked, has_moved)) = self
            .links
            .get(link)
            .map(|link| (link.view(wire), link.is_marked(), link.has_moved(wire)))
        else {
            return;
        };
        let valid = match view.verify(datagram) {
            Verdict::Right => true,
            Verdict::Recovered(identification) => !is_marked || identification < SEGMENT_MAX,
            Verdict::Wrong => false,
        };
        if !valid {
            self.counts.bad_icrc += 1;
            return;
        }
        if bth.opcode == Opcode::CongestionNotification {
            self.counts.congestion += 1;
            return;
        }
        if !bth.opcode.is_response() && !bth.opcode.has_deth() {
            self.note_request(link);
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Pair {
            transport,
            sends,
            receives,
            current,
            ..
        } = pair;
        let Some(transport) = transport else {
            return;
        };
        let mut access = Access {
            memories: &self.memories,
            domain: pair.domain,
            sends,
            first: pair.first,
        };
        pair.heard = self.now;
        let before = transport.progress();
        let shared_key = pair.shared;
        let shared = shared_key.and_then(|key| self.shared_receives.get_mut(key));
        let mut queue = Receives {
            memories: &self.memories,
            domain: shared.as_ref().map_or(pair.domain, |shared| shared.domain),
            own: receives,
            shared,
            current,
        };
        let had_current = queue.current.is_some();
        let done = transport.receive(self.now, &packet, &mut access, &mut queue);
        let takes = !had_current && queue.current.is_some();
        // An old packet, or a forged one, may come from anywhere (ROCE-52).
        let follows = has_moved && transport.progress() != before;
        if follows {
            self.follow(link, wire);
        }
        if let Some(done) = done {
            self.complete_receive(key, &done);
        }
        if takes {
            self.check_watermarks(key, 1);
            if let Some(shared) = shared_key {
                self.check_limit(shared);
            }
        }
        self.after_transport(key);
        self.set_ready(key);
    }

    /// Does what is due by now.
    pub(crate) fn expire(&mut self) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop_first();
            match timer {
                Timer::Link(id) => self.expire_link(id),
                Timer::Probe(key) => self.probe(key),
                Timer::Pair(key) => {
                    if let Some(pair) = self.pairs.get_mut(key) {
                        pair.timer = None;
                        if let Some(transport) = &mut pair.transport {
                            transport.expire(self.now);
                        }
                        self.after_transport(key);
                        self.set_ready(key);
                    }
                }
            }
        }
    }

    /// Probes the peer of an idle connection that has been silent, or sets the timer again.
    ///
    /// Packets do not set the timer, so that it costs them nothing.
    fn probe(&mut self, key: usize) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.probe_at = None;
        let Some(period) = pair.keep_alive.filter(|_| pair.is_open()) else {
            return;
        };
        let mut next = after(pair.heard, period);
        if next <= now {
            next = after(now, period);
            // A request under way finds out by itself.
            if pair.state == State::Connected && pair.sends.is_empty() {
                pair.probes += 1;
                self.post_request(key, SendEntry::PROBE);
                self.set_ready(key);
            }
        }
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.probe_at = Some(next);
            self.set_timer(Timer::Probe(key), None, Some(next));
        }
    }

    /// Returns true if packets are due.
    pub(crate) fn has_output(&self) -> bool {
        !self.ready_pairs.is_empty() || !self.ready_links.is_empty()
    }

    /// Returns how many connections can be there at a time.
    pub(crate) fn connection_capacity(&self) -> usize {
        self.qpns.capacity()
    }

    /// Returns when [`expire`](Self::expire) has work to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Writes packets that are due into `out`, which is empty; returns false if there are none.
    pub(crate) fn transmit(&mut self, out: &mut Outbox) -> bool {
        let mut turns = self.ready_pairs.len();
        while turns > 0 && self.outbox.has_room(PACKET_MAX) {
            turns -= 1;
            let Some(key) = self.ready_pairs.pop_front() else {
                break;
            };
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.is_ready = false;
                self.transmit_pair(key);
            }
        }
        while self.outbox.has_room(PACKET_MAX) {
            let Some(id) = self.ready_links.pop_front() else {
                break;
            };
            self.transmit_link(id);
        }
        let (packets, bytes) = self.outbox.totals();
        self.counts.packets_sent += packets;
        self.counts.bytes_sent += bytes;
        core::mem::swap(&mut self.outbox, out);
        !out.is_empty()
    }

    /// Writes some packets of a queue pair.
    fn transmit_pair(&mut self, key: usize) {
        for _ in 0..TURN {
            if !self.outbox.has_room(PACKET_MAX) {
                self.set_ready(key);
                return;
            }
            self.run_binds(key);
            let Some(pair) = self.pairs.get_mut(key) else {
                return;
            };
            let Some(link) = pair.link.and_then(|link| self.links.get(link)) else {
                return;
            };
            let path = link.path;
            let Some((transport, mut access)) = pair.access(&self.memories) else {
                return;
            };
            let now = self.now;
            let sent = self
                .outbox
                .add(&path, |buffer| transport.transmit(now, &mut access, buffer));
            if !sent {
                self.after_transport(key);
                self.finish_failure(key);
                return;
            }
        }
        self.after_transport(key);
        self.set_ready(key);
    }

    /// Ends a queue pair that failed, once its last packet is sent, and reports it.
    fn finish_failure(&mut self, key: usize) {
        if let Some(pair) = self.pairs.get(key).filter(|pair| pair.is_failing) {
            let queue_pair = pair.token;
            self.end_pair(key, true);
            // After the completions, so that a consumer that it wakes finds them.
            self.raise(ControlEvent::Broken { queue_pair });
        }
    }

    /// Carries out the binds whose turn has come.
    fn run_binds(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            let Some(position) = pair.transport.as_ref().and_then(QueuePair::next_local) else {
                return;
            };
            let index = position.checked_sub(pair.first).map(|index| index as usize);
            let work = index
                .and_then(|index| pair.sends.get(index))
                .map(|entry| entry.work);
            let Some(Work::Bind(request, window_key)) = work else {
                return;
            };
            let outcome = self.memories.bind(&request, window_key, pair.domain);
            if let Some(transport) = &mut pair.transport {
                transport.finish_local(outcome);
            }
            self.after_transport(key);
        }
    }

    // Counts.

    /// Returns the counts of the adapter and of all its connections.
    pub(crate) fn counts(&self) -> AdapterCounts {
        let mut counts = self.counts;
        let transports = self
            .pairs
            .iter()
            .filter_map(|(_, pair)| pair.transport.as_ref());
        for (requester, responder) in transports.map(QueuePair::counts) {
            counts.requester += requester;
            counts.responder += responder;
        }
        counts
    }

    /// Returns the counts of each connection that has not ended.
    pub(crate) fn connection_counts(&self) -> impl Iterator<Item = ConnectionCounts> {
        let open = self.pairs.iter().filter(|(_, pair)| pair.is_open());
        open.filter_map(|(_, pair)| {
            let (requester, responder) = pair.transport.as_ref()?.counts();
            Some(ConnectionCounts {
                peer: self.links.get(pair.link?)?.path.wire.destination(),
                requester,
                responder,
            })
        })
    }

    // The end.

    /// Ends all connections, and drops all regions.
    pub(crate) fn close(&mut self) {
        let pairs: Vec<usize> = self.pairs.iter().map(|(key, _)| key).collect();
        for key in pairs {
            self.destroy_pair(key);
        }
        let listeners: Vec<usize> = self.listeners.iter().map(|(key, _)| key).collect();
        for key in listeners {
            self.stop_listening(key);
        }
        self.refuse_waiting();
        self.memories.deregister_all();
    }
}
