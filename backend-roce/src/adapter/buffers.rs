//! Socket buffers that queue pairs share: those of peers, and those of this side (ROCE-183).
//!
//! A queue pair that finds no room waits. Room that becomes free goes to the queue pair that has
//! waited the longest; it has the turn until it has sent all that it may, or has filled the buffer
//! again.
//!
//! Connections to one peer share the buffer of its socket, and all peers share the buffer of a
//! socket of this side. There a peer that does not answer must not hold the room of others: once
//! somebody has waited, the peer's responses are counted apart ([`Pace`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use dat_core::time::Instant;

use super::Adapter;
use super::timers::{Timer, after};
use crate::port::Path;
use crate::proto::requester::Held;
use crate::proto::{BUFFER_UNIT, BufferRoom, PathMtu};

/// Units of a buffer that packets of one adapter may take.
///
/// Linux grants a socket that asks for more twice this size by default: one half for requests of a
/// peer, the other one for responses that this side has asked for. Acknowledgements are not counted:
/// a later one replaces a lost one. Nor are messages of connection management, which are few.
const ROOM: u32 = 212_992 / BUFFER_UNIT;

/// Room of the largest packet; with less, nobody gets the turn.
const LARGEST: u32 = BufferRoom::of_packet(PathMtu::Bytes4096.bytes());

/// Full packets whose room a queue pair may use while others wait, if they fit half of the buffer.
const SHARE: u32 = 32;

/// Times that responses take at most, of peers that are prompt and of those that are far.
const PROMPT: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(10);

/// Time for which a peer counts as far or slow.
const SLOW_TIME: Duration = Duration::from_secs(10);

/// Time for which a queue pair waits before it has its minimum.
const STARVED: Duration = Duration::from_millis(10);

/// Room of a queue pair that has waited for long, whatever others use: that of four small packets.
const MINIMUM: u32 = 4 * BufferRoom::EMPTY_PACKET;

/// Room beyond the buffer for these minima.
const RESERVE: u32 = ROOM / 4;

/// How fast a peer responds; decides with whom its responses share room (ROCE-191).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pace {
    /// With all others.
    Prompt,
    /// With others that are far.
    Far,
    /// With nobody.
    Slow(SocketAddr),
}

/// Address of a socket, and the pace of the peers whose packets are counted.
pub(crate) type BufferAddress = (SocketAddr, Pace);

/// A socket buffer.
#[derive(Debug)]
pub(crate) struct SocketBuffer {
    address: BufferAddress,
    /// Number of queue pairs that share it.
    users: usize,
    /// Units of the packets under way.
    used: u32,
    /// Queue pairs that wait for room.
    waiting: VecDeque<usize>,
    /// The queue pair that has the turn: it is ready to send, or waits for room for its responses.
    turn: Option<usize>,
    /// Timer that ends the patience of those that wait.
    patience: Option<Instant>,
    /// Up to two peers for whose sake queue pairs have waited since the timer began.
    waited: [Option<usize>; 2],
}

impl SocketBuffer {
    const fn new(address: BufferAddress) -> Self {
        Self {
            address,
            users: 0,
            used: 0,
            waiting: VecDeque::new(),
            turn: None,
            patience: None,
            waited: [None; 2],
        }
    }

    /// Returns how long others wait for the room of responses that are due.
    const fn patience(&self) -> Duration {
        match self.address {
            // No responses, but requests at a peer.
            (own, Pace::Prompt) if own.ip().is_unspecified() => PROMPT,
            _ => FAR,
        }
    }

    /// Returns the units that a queue pair may use, which uses `used`; `full` is a full packet.
    ///
    /// The queue pair that has the turn may send a packet even above its share: two that are at
    /// their share would otherwise pass the turn to each other without end.
    fn limit(&self, key: usize, used: u32, full: u32, is_starved: bool) -> u32 {
        let mut limit = used.saturating_add(self.room(key));
        if !self.waiting.is_empty() {
            let share = full.saturating_mul(SHARE).min(ROOM / 2);
            limit = limit.min(share.max(used.saturating_add(full)));
        }
        if is_starved && self.used < ROOM + RESERVE {
            limit = limit.max(MINIMUM);
        }
        limit
    }

    /// Returns the units that a queue pair may use more; none while others are before it.
    fn room(&self, key: usize) -> u32 {
        let is_next = match self.turn {
            Some(turn) => turn == key,
            None => self.waiting.is_empty(),
        };
        if is_next {
            ROOM.saturating_sub(self.used)
        } else {
            0
        }
    }

    /// Lets a queue pair of a peer wait.
    fn wait(&mut self, key: usize, peer: usize) {
        self.waiting.push_back(key);
        self.note_wait(peer);
    }

    fn note_wait(&mut self, peer: usize) {
        match &mut self.waited {
            [first @ None, _] => *first = Some(peer),
            [Some(first), second] if *first != peer => *second = Some(peer),
            _ => {}
        }
    }

    /// Gives the turn to the next queue pair if there is room; returns it.
    fn pass(&mut self) -> Option<usize> {
        if self.turn.is_some() || ROOM.saturating_sub(self.used) < LARGEST {
            return None;
        }
        self.turn = self.waiting.pop_front();
        self.turn
    }
}

/// The share of a queue pair in two buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Buffer of requests, at the peer.
    requests: usize,
    /// Buffer of responses, at this side.
    responses: usize,
    /// Units that the queue pair uses of them.
    used: BufferRoom,
    /// The buffer whose room the queue pair waits for.
    waits_for: Option<usize>,
    /// Time at which the wait began.
    waits_since: Instant,
    /// Set if the wait has lasted for long, until the queue pair has the turn.
    is_starved: bool,
    /// Time since which responses are due.
    due_since: Instant,
    /// Units of the responses that were under way then and still are.
    due: u32,
    /// Pace of the peer, with whose buffer the responses are counted.
    pace: Pace,
}

impl Adapter {
    /// Lets a queue pair share the buffers of a path.
    pub(super) fn join_buffers(&mut self, key: usize, path: &Path) {
        // All addresses of this side at one port are one socket.
        let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), path.wire.source_port);
        let peer = path.wire.destination();
        let pace = self.pace(peer);
        let requests = self.use_buffer((peer, Pace::Prompt));
        let responses = self.use_buffer((own, pace));
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.share = Some(Share {
                requests,
                responses,
                used: BufferRoom::default(),
                waits_for: None,
                waits_since: self.now,
                is_starved: false,
                due_since: self.now,
                due: 0,
                pace,
            });
        }
    }

    fn pace(&self, peer: SocketAddr) -> Pace {
        let known = self.slow_peers.get(&peer);
        known
            .filter(|(_, until)| self.now < *until)
            .map_or(Pace::Prompt, |(pace, _)| *pace)
    }

    fn use_buffer(&mut self, address: BufferAddress) -> usize {
        let buffers = &mut self.buffers;
        let insert = || buffers.insert(SocketBuffer::new(address));
        let number = *self
            .buffers_by_address
            .entry(address)
            .or_insert_with(insert);
        if let Some(buffer) = self.buffers.get_mut(number) {
            buffer.users += 1;
        }
        number
    }

    /// Ends the share of a queue pair, and its wait or turn.
    pub(super) fn leave_buffers(&mut self, key: usize) {
        let share = self.pairs.get_mut(key).and_then(|pair| pair.share.take());
        let Some(share) = share else {
            return;
        };
        let shares = [
            (share.requests, share.used.requests),
            (share.responses, share.used.responses),
        ];
        for (number, used) in shares {
            let Some(buffer) = self.buffers.get_mut(number) else {
                continue;
            };
            buffer.users -= 1;
            buffer.used = buffer.used.saturating_sub(used);
            if share.waits_for == Some(number) {
                buffer.waiting.retain(|waiting| *waiting != key);
            }
            if buffer.turn == Some(key) {
                buffer.turn = None;
            }
            if buffer.users == 0 {
                let patience = buffer.patience;
                self.buffers_by_address.remove(&buffer.address);
                self.buffers.remove(number);
                self.set_timer(Timer::Patience(number), patience, None);
            } else {
                self.pass_turn(number);
            }
        }
    }

    /// Moves the share of a queue pair to the buffers of another path.
    pub(super) fn change_buffers(&mut self, key: usize, path: &Path) {
        if self.pairs.get(key).is_some_and(|pair| pair.share.is_some()) {
            self.leave_buffers(key);
            self.join_buffers(key, path);
            self.count_room(key);
            // It may have waited.
            self.set_ready(key);
        }
    }

    /// Tells the transport of a queue pair the room that it may use.
    pub(super) fn limit_room(&mut self, key: usize) {
        let share = self.pairs.get(key).and_then(|pair| pair.share);
        if let Some(share) = share.filter(|share| share.pace != Pace::Prompt)
            && let Some(peer) = self.buffers.get(share.requests)
            && self.pace(peer.address.0) != share.pace
        {
            self.renew_buffers(key);
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some((share, transport)) = pair.share.zip(pair.transport.as_mut()) else {
            return;
        };
        let full = BufferRoom::of_packet(transport.mtu().bytes());
        let limit = |number: usize, used: u32| {
            let buffer = self.buffers.get(number);
            buffer.map_or(0, |buffer| buffer.limit(key, used, full, share.is_starved))
        };
        transport.set_limit(BufferRoom {
            requests: limit(share.requests, share.used.requests),
            responses: limit(share.responses, share.used.responses),
        });
    }

    /// Counts the room that a queue pair uses now, and passes on room that has become free.
    pub(super) fn count_room(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some((share, transport)) = pair.share.as_mut().zip(pair.transport.as_ref()) else {
            return;
        };
        let now = transport.under_way();
        let before = core::mem::replace(&mut share.used, now);
        let arrived = before.responses.saturating_sub(now.responses);
        share.due = share.due.saturating_sub(arrived);
        if share.due == 0 {
            share.due = now.responses;
            share.due_since = self.now;
        }
        let changes = [
            (share.requests, before.requests, now.requests),
            (share.responses, before.responses, now.responses),
        ];
        for (number, before, now) in changes {
            if before == now {
                continue;
            }
            if let Some(buffer) = self.buffers.get_mut(number) {
                buffer.used = buffer.used.saturating_add(now).saturating_sub(before);
                self.pass_turn(number);
            }
        }
    }

    /// Ends the turn of a queue pair that has sent all that it may; it waits if it needs room.
    ///
    /// One that waits for room for its responses keeps the turn for its requests: a queue pair
    /// takes both in this order, so that no two wait for each other.
    pub(super) fn end_turn(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some(share) = &mut pair.share else {
            return;
        };
        let held = pair
            .transport
            .as_ref()
            .and_then(|transport| transport.held());
        let Share {
            requests,
            responses,
            ..
        } = *share;
        let needed = held.map(|held| match held {
            Held::Requests => requests,
            Held::Responses => responses,
        });
        if let Some(number) = needed.filter(|_| share.waits_for.is_none()) {
            share.waits_for = Some(number);
            share.waits_since = self.now;
            if let Some(buffer) = self.buffers.get_mut(number) {
                buffer.wait(key, requests);
            }
            self.begin_patience(number);
        }
        if held == Some(Held::Responses) {
            // Nobody else has the turn, unless this one has sent by its minimum.
            if let Some(buffer) = self.buffers.get_mut(requests) {
                buffer.turn = buffer.turn.or(Some(key));
            }
        } else {
            self.release_turn(requests, key);
        }
        self.release_turn(responses, key);
    }

    fn release_turn(&mut self, number: usize, key: usize) {
        if let Some(buffer) = self.buffers.get_mut(number)
            && buffer.turn == Some(key)
        {
            buffer.turn = None;
        }
        self.pass_turn(number);
    }

    /// Lets the next queue pair send if there is room.
    fn pass_turn(&mut self, number: usize) {
        let next = self.buffers.get_mut(number).and_then(SocketBuffer::pass);
        if let Some(key) = next {
            if let Some(pair) = self.pairs.get_mut(key)
                && let Some(share) = &mut pair.share
            {
                share.waits_for = None;
                share.is_starved = false;
            }
            self.set_ready(key);
        }
    }

    /// Starts the timer of a buffer that queue pairs wait for, if it does not run.
    fn begin_patience(&mut self, number: usize) {
        if let Some(buffer) = self.buffers.get_mut(number)
            && buffer.patience.is_none()
        {
            let end = after(self.now, buffer.patience());
            buffer.patience = Some(end);
            self.set_timer(Timer::Patience(number), None, Some(end));
        }
    }

    /// Finds peers that hold the room of others, and gives those that have waited their minimum.
    pub(super) fn end_patience(&mut self, number: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        buffer.patience = None;
        let waited = core::mem::take(&mut buffer.waited);
        self.find_slow_peers(number, waited);
        let mut waits = false;
        for (key, pair) in self.pairs.iter_mut() {
            let Some(share) = &mut pair.share else {
                continue;
            };
            if share.waits_for != Some(number) {
                continue;
            }
            waits = true;
            if let Some(buffer) = self.buffers.get_mut(number) {
                buffer.note_wait(share.requests);
            }
            if after(share.waits_since, STARVED) <= self.now {
                share.is_starved = true;
                if !core::mem::replace(&mut pair.is_ready, true) {
                    self.ready_pairs.push_back(key);
                }
            }
        }
        if waits {
            self.begin_patience(number);
        }
    }

    /// Counts the responses of peers apart that have been due for long, if queue pairs of others have
    /// waited.
    ///
    /// Queue pairs of one peer wait for each other: their responses may all come at once.
    fn find_slow_peers(&mut self, number: usize, waited: [Option<usize>; 2]) {
        let (now, until) = (self.now, after(self.now, SLOW_TIME));
        let patience = self.buffers.get(number).map(SocketBuffer::patience);
        let patience = patience.unwrap_or_default();
        self.slow_peers.retain(|_, (_, until)| now < *until);
        for (_, pair) in self.pairs.iter() {
            if let Some(share) = pair.share
                && share.responses == number
                && share.due > 0
                && after(share.due_since, patience) <= now
                && waited
                    .into_iter()
                    .flatten()
                    .any(|peer| peer != share.requests)
                && let Some(peer) = self.buffers.get(share.requests)
            {
                let peer = peer.address.0;
                let pace = match share.pace {
                    Pace::Prompt => Pace::Far,
                    Pace::Far | Pace::Slow(_) => Pace::Slow(peer),
                };
                self.slow_peers.insert(peer, (pace, until));
            }
        }
        let moved = self.pairs.iter().filter_map(|(key, pair)| {
            let share = pair.share.filter(|share| share.responses == number)?;
            let peer = self.buffers.get(share.requests)?.address.0;
            (self.pace(peer) != share.pace).then_some(key)
        });
        for key in moved.collect::<Vec<_>>() {
            self.renew_buffers(key);
        }
    }

    /// Moves the share of a queue pair to the buffers of its peer's pace.
    fn renew_buffers(&mut self, key: usize) {
        let link = self.pairs.get(key).and_then(|pair| pair.link);
        if let Some(path) = link.and_then(|link| Some(self.links.get(link)?.path)) {
            self.change_buffers(key, &path);
        }
    }
}
