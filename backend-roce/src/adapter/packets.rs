//! Packets of an adapter, in and out.

use dat_queues::State;

use super::deadlines::Timer;
use super::locals::Sender;
use super::queue_pair::{Access, Drain, Receives};
use super::{Adapter, Pair};
use crate::port::{Arrival, LocalNumber, Outbox, RECORD_OVERHEAD, RUN_PACKETS_MAX};
use crate::proto::connection;
use crate::proto::icrc::{Flow, Verdict};
use crate::proto::packet::{OVERHEAD_MAX, Opcode, Packet};
use crate::proto::queue_pair::QueuePair;

/// Room for the largest packet.
pub(super) const PACKET_MAX: usize = 4096 + OVERHEAD_MAX;

/// Packets that a queue pair sends before it is the turn of another one: a full run.
const TURN: usize = RUN_PACKETS_MAX as usize;

/// Identifications up to this one are those of segments of one send (ROCE-50).
const SEGMENT_MAX: u16 = 128;

impl Adapter {
    /// Takes the packets of an arrival, whose bytes are in `input`.
    pub(crate) fn receive(&mut self, arrival: &Arrival, input: &[u8]) {
        // The packets of an arrival mostly belong to one queue pair: its completions, timers and
        // answers follow once.
        let mut changed = None;
        for (index, packet) in (0..).zip(arrival.packets(input)) {
            let key = self.receive_packet(arrival, index, packet);
            if key != changed
                && let Some(before) = core::mem::replace(&mut changed, key)
            {
                self.after_receive(before);
            }
        }
        if let Some(key) = changed {
            self.after_receive(key);
        }
    }

    /// Takes over what packets have changed in a queue pair, and lets it send.
    fn after_receive(&mut self, key: usize) {
        self.after_transport(key);
        let pair = self.pairs.get(key);
        let transport = pair.and_then(|pair| pair.transport.as_ref());
        if transport.is_some_and(QueuePair::has_output) {
            self.set_ready(key);
        }
    }

    /// Checks the ICRC of a packet to a queue pair; returns true if the address of the peer of its
    /// connection has changed.
    ///
    /// Counts a wrong one, and returns `None`.
    fn verify(
        &mut self,
        key: usize,
        link: Option<u32>,
        wire: &Flow,
        (index, datagram): (u16, &[u8]),
    ) -> Option<bool> {
        let path = self.pairs.get(key)?.path.as_ref()?;
        let valid = match path.received(wire).verify_segment(index, datagram) {
            Verdict::Right => true,
            Verdict::Recovered(identification) => path.single || identification < SEGMENT_MAX,
            Verdict::Wrong => false,
        };
        if !valid {
            self.counts.bad_icrc += 1;
            return None;
        }
        let link = link.and_then(|link| self.links.get(link));
        Some(link.is_some_and(|link| link.has_moved(wire)))
    }

    fn count_packet(&mut self, arrival: &Arrival, bytes: u64) {
        self.counts.packets += 1;
        self.counts.bytes += bytes;
        if arrival.local.is_some() {
            self.counts.local.packets += 1;
            self.counts.local.bytes += bytes;
        }
    }

    /// Returns the queue pair with a QPN, its connection and its state, if packets reach it on the
    /// way of this one (ROCE-231).
    fn addressed(&self, qpn: u32, arrival: &Arrival) -> Option<(usize, Option<u32>, State)> {
        let key = match self.port_numbers.get(qpn) {
            Some(key) => key,
            None => *self.qpns.get(qpn)?,
        };
        let pair = self.pairs.get(key)?;
        let has_payload = !arrival.is_split || self.locals.source(arrival).is_some();
        let is_reached = match pair.link {
            Some(_) => pair.local == arrival.local,
            None => self.reaches_attached(pair, arrival),
        };
        (is_reached && has_payload).then_some((key, pair.link, pair.state))
    }

    /// Returns true if an arrival is of the peer of an attached queue pair.
    #[inline(never)]
    fn reaches_attached(&self, pair: &Pair, arrival: &Arrival) -> bool {
        match (pair.local, arrival.local, &pair.path) {
            // It has one peer, which does not move (ROCE-263).
            (None, None, Some(path)) => path.is_from_peer(&arrival.flow),
            (Some(own), Some(other), Some(_)) => {
                own == other || self.locals.lead_to_one([own, other])
            }
            _ => false,
        }
    }

    /// Takes packet `index` of an arrival; returns the queue pair whose transport has taken it.
    fn receive_packet(&mut self, arrival: &Arrival, index: u16, datagram: &[u8]) -> Option<usize> {
        let wire = &arrival.flow;
        self.count_packet(arrival, datagram.len() as u64);
        let Ok(packet) = Packet::decode(datagram) else {
            self.counts.dropped += 1;
            return None;
        };
        let bth = packet.header.bth;
        if bth.destination == connection::MANAGEMENT_QPN && !arrival.is_split {
            self.management(arrival, datagram, &packet);
            return None;
        }
        let Some((key, link, state)) = self.addressed(bth.destination, arrival) else {
            self.receive_datagram(arrival, index, datagram, &packet);
            return None;
        };
        let is_checked = arrival.local.is_none();
        let has_moved = is_checked && self.verify(key, link, wire, (index, datagram))?;
        if bth.opcode == Opcode::CongestionNotification {
            self.counts.congestion += 1;
            return None;
        }
        if state == State::Accepting && !(bth.opcode.is_response() || bth.opcode.has_deth()) {
            self.note_peer(key, link);
        }
        let source = self.locals.source(arrival);
        let pair = self.pairs.get_mut(key)?;
        let user = pair.user();
        let Pair {
            transport,
            sends,
            receives,
            current,
            inline,
            ..
        } = pair;
        let transport = transport.as_mut()?;
        let mut access = Access {
            memories: &self.memories,
            user,
            sends,
            first: pair.first,
            inline,
            queue: source,
            placed: 0,
        };
        pair.heard = self.now;
        let may_repeat = bth.opcode == Opcode::ReadRequest;
        let read = packet.header.extensions.reth.filter(|_| may_repeat);
        let response = read.map(|read| transport.mtu().bytes().min(read.length));
        let before = (has_moved || may_repeat).then(|| transport.progress());
        let shared_key = pair.setup.shared.map(|key| key.0);
        let shared = shared_key.and_then(|key| self.shared_receives.get_mut(key));
        let mut queue = Receives {
            memories: &self.memories,
            domain: shared.as_ref().map_or(user.domain, |shared| shared.domain),
            own: receives,
            shared,
            current,
            queue: source,
        };
        let had_current = queue.current.is_some();
        let done = transport.receive(self.now, &packet, &mut access, &mut queue);
        let takes = !had_current && queue.current.is_some();
        // An old packet, or a forged one, may come from anywhere (ROCE-52).
        let follows = before.is_some_and(|before| has_moved && transport.progress() != before);
        // Its responses may have been too long for the path.
        let repeats = before.is_some_and(|before| may_repeat && transport.progress().2 != before.2);
        if follows && let Some(link) = link {
            self.follow(link, wire);
        }
        if let Some(longest) = response.filter(|_| repeats) {
            self.note_unanswered(key, longest);
        }
        if let Some(done) = done {
            self.complete_receive(key, &done);
        }
        if takes {
            self.check_limits(key, shared_key);
        }
        Some(key)
    }

    /// Acts on the limits of receive buffers once a packet has taken one.
    fn check_limits(&mut self, key: usize, shared: Option<usize>) {
        self.check_watermarks(key, 1);
        if let Some(shared) = shared {
            self.check_limit(shared);
        }
    }

    /// Writes packets that are due into `out`, which is empty; returns true if others are left.
    pub(crate) fn transmit(&mut self, out: &mut Outbox) -> bool {
        let mut turns = self.ready_pairs.len();
        while turns > 0 && self.outbox.has_room(PACKET_MAX) {
            turns -= 1;
            let Some(key) = self.ready_pairs.pop_front() else {
                break;
            };
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.is_ready = false;
                match pair.local {
                    None => self.transmit_pair(key, usize::MAX),
                    Some(_) => self.set_ready(key),
                }
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
        !(self.ready_pairs.is_empty() && self.ready_links.is_empty()) || self.has_local_output()
    }

    /// Writes some packets of a queue pair, as far as its peer has room for them.
    ///
    /// Those of the local way take at most `room` bytes, which its queue has.
    pub(super) fn transmit_pair(&mut self, key: usize, room: usize) {
        self.limit_room(key);
        let pair = self.pairs.get(key);
        let local = pair.and_then(|pair| pair.local);
        let is_for_datagrams = pair.is_some_and(|pair| pair.datagrams.is_some());
        let is_more = match local {
            None if is_for_datagrams => self.write_datagrams(key),
            None => self.write_packets(key),
            Some(local) => {
                let is_more = self.write_local_packets(local, key, room);
                self.push_local(local, 0);
                is_more
            }
        };
        self.after_transport(key);
        if is_more {
            self.set_ready(key);
        } else {
            self.end_turn(key);
            self.finish_failure(key);
        }
    }

    /// Writes packets of a queue pair; false if it has none left that it may send now.
    fn write_packets(&mut self, key: usize) -> bool {
        let Some(path) = self.pairs.get(key).and_then(|pair| pair.path) else {
            return false;
        };
        for left in (0..TURN).rev() {
            if !self.outbox.has_room(PACKET_MAX) {
                return true;
            }
            self.run_binds(key);
            let Some(pair) = self.pairs.get_mut(key) else {
                return false;
            };
            let Some((transport, mut access)) = pair.access(&self.memories) else {
                return false;
            };
            // Requests and responses alternate: one of the last two packets of a turn asks.
            if left < 2 || !self.outbox.has_room(3 * PACKET_MAX) {
                transport.ask();
            }
            let now = self.now;
            let sent = self
                .outbox
                .add(&path, |buffer| transport.transmit(now, &mut access, buffer));
            if !sent || !transport.has_output() {
                return false;
            }
        }
        true
    }

    /// As `write_packets`, for a turn of at most `room` bytes.
    fn write_local_packets(&mut self, number: LocalNumber, key: usize, mut room: usize) -> bool {
        let Some(path) = self.pairs.get(key).and_then(|pair| pair.path) else {
            return false;
        };
        loop {
            self.run_binds(key);
            let Some((outbox, queue)) = self.locals.sender(number) else {
                return false;
            };
            let Some(pair) = self.pairs.get_mut(key) else {
                return false;
            };
            let Some((transport, mut access)) = pair.access(&self.memories) else {
                return false;
            };
            let largest = transport.mtu().bytes() as usize + OVERHEAD_MAX + RECORD_OVERHEAD;
            let left = room.saturating_sub(outbox.local_bytes());
            if left < largest || !outbox.has_room(largest) {
                return true;
            }
            // One of the last two packets of a turn asks.
            if left < 3 * largest {
                transport.ask();
            }
            // The packets of the outbox come before.
            access.queue = outbox.is_empty().then_some(queue);
            let now = self.now;
            let sent = outbox.add(&path, |buffer| transport.transmit(now, &mut access, buffer));
            let is_last = !sent || !transport.has_output();
            let placed = access.placed;
            if placed > 0 {
                room = room.saturating_sub(placed + RECORD_OVERHEAD);
                self.push_local(number, placed);
            }
            if is_last {
                return false;
            }
        }
    }

    /// Returns true if packets are due, ports are to be given back, or queues are wanted.
    pub(crate) fn has_output(&self) -> bool {
        let nothing = self.ready_pairs.is_empty()
            && self.ready_links.is_empty()
            && self.outbox.is_empty()
            && !self.has_local_output()
            && !self.has_chores;
        !nothing
    }

    pub(super) fn set_ready(&mut self, key: usize) {
        if let Some(pair) = self.pairs.get_mut(key)
            && !pair.is_ready
        {
            let local = pair.local;
            match local.map(|local| self.locals.add(local, Sender::Pair(key))) {
                None => self.ready_pairs.push_back(key),
                Some(true) => {}
                // Its queues have ended: it is about to break.
                Some(false) => return self.break_attached(key),
            }
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.is_ready = true;
            }
        }
    }

    /// Takes over what the transport of a queue pair has done.
    pub(super) fn after_transport(&mut self, key: usize) {
        self.take_completions(key);
        self.count_room(key);
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let deadline = pair.transport.as_ref().and_then(QueuePair::deadline);
        let failed = pair.transport.as_ref().is_some_and(QueuePair::is_failed);
        let has_more = failed || pair.drain == Drain::Tells;
        self.deadlines.set(Timer::Pair(key), deadline);
        if has_more {
            self.end_or_tell(key, failed);
        }
    }

    /// Begins the failure of a queue pair that failed, or tells that another one has drained.
    #[cold]
    fn end_or_tell(&mut self, key: usize, failed: bool) {
        let is_open = self.pairs.get(key).is_some_and(Pair::is_open);
        if failed && is_open {
            self.begin_failure(key);
        } else {
            self.tell_drained(key);
        }
    }
}
