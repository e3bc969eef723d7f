//! Socket buffers that queue pairs share: those of peers, and those of this side (ROCE-183).
//!
//! A queue pair that finds no room waits. Room that becomes free goes to the queue pair that has
//! waited the longest; it has the turn until it has sent all that it may, or has filled the buffer
//! again.
//!
//! Connections to one peer share the buffer of its socket, and all peers share the buffer of a
//! socket of this side. There a peer that does not answer must not hold the room of others: once
//! somebody has waited, the peer's responses are counted apart ([`Pace`]).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use dat_core::time::Instant;

use super::deadlines::Timer;
use super::timers::after;
use super::{Adapter, Pair, Slab};
use crate::port::Path;
use crate::proto::requester::Held;
use crate::proto::{BUFFER_UNIT, BufferRoom, PathMtu};
use crate::reserve::Reserve;

/// Units of a buffer that packets of one adapter may take.
///
/// Linux grants a socket that asks for more twice this size by default: one half for requests of a
/// peer, the other one for responses that this side has asked for. Acknowledgements are not
/// counted: a later one replaces a lost one. Nor are messages of connection management, which are
/// few.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// First and last of the queue pairs that wait for room; each names its neighbours.
    waiting: Option<(usize, usize)>,
    /// The queue pair that has the turn: it is ready to send, or waits for room for its responses.
    turn: Option<usize>,
    /// Up to two peers for whose sake queue pairs have waited since the timer began.
    waited: [Option<usize>; 2],
    /// Queue pairs with responses that are due, in any order. Their room bounds their number.
    due: Vec<usize>,
}

impl SocketBuffer {
    const fn new(address: BufferAddress) -> Self {
        Self {
            address,
            users: 0,
            used: 0,
            waiting: None,
            turn: None,
            waited: [None; 2],
            due: Vec::new(),
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
        if self.waiting.is_some() {
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
            None => self.waiting.is_none(),
        };
        if is_next {
            ROOM.saturating_sub(self.used)
        } else {
            0
        }
    }

    /// Returns the queue pair whose turn begins, if there is room.
    fn next(&self) -> Option<usize> {
        let is_free = self.turn.is_none() && ROOM.saturating_sub(self.used) >= LARGEST;
        self.waiting.filter(|_| is_free).map(|(first, _)| first)
    }
}

fn note_wait(waited: &mut [Option<usize>; 2], peer: usize) {
    match waited {
        [first @ None, _] => *first = Some(peer),
        [Some(first), second] if *first != peer => *second = Some(peer),
        _ => {}
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
    /// The queue pairs that wait before and after this one.
    neighbours: [Option<usize>; 2],
    /// Time at which the wait began.
    waits_since: Instant,
    /// Set if the wait has lasted for long, until the queue pair has the turn.
    is_starved: bool,
    /// Time since which responses are due.
    due_since: Instant,
    /// Units of the responses that were under way then and still are.
    due: u32,
    /// Place of the queue pair in [`SocketBuffer::due`].
    due_place: Option<usize>,
    /// Pace of the peer, with whose buffer the responses are counted.
    pace: Pace,
}

impl Adapter {
    /// Makes room for the buffers of one more queue pair; false if there is no memory.
    ///
    /// Each shares two at most, so that those of a connection always find room.
    pub(crate) fn reserve_buffers(&mut self) -> bool {
        let buffers = self.pairs.len().saturating_add(1).saturating_mul(2);
        self.buffers.has_room_for(buffers)
            && self.buffers_by_address.has_room_for(buffers)
            && self.deadlines.has_room(Timer::Patience(buffers - 1))
    }

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
                neighbours: [None; 2],
                waits_since: self.now,
                is_starved: false,
                due_since: self.now,
                due: 0,
                due_place: None,
                pace,
            });
        }
    }

    fn pace(&self, peer: SocketAddr) -> Pace {
        match self.slow_peers.get(&peer.ip()) {
            Some((is_slow, until)) if self.now < *until => match is_slow {
                true => Pace::Slow(peer),
                false => Pace::Far,
            },
            _ => Pace::Prompt,
        }
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
        self.end_wait(key);
        let share = self.pairs.get_mut(key).and_then(|pair| pair.share.take());
        let Some(share) = share else {
            return;
        };
        if let Some(place) = share.due_place {
            self.remove_due(share.responses, place);
        }
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
            if buffer.turn == Some(key) {
                buffer.turn = None;
            }
            if buffer.users == 0 {
                self.buffers_by_address.remove(&buffer.address);
                self.buffers.remove(number);
                self.deadlines.set(Timer::Patience(number), None);
            } else {
                self.pass_turn(number);
            }
        }
    }

    /// Moves the share of a queue pair to the buffers of another path.
    pub(super) fn change_buffers(&mut self, key: usize, path: &Path) {
        let share = |pairs: &Slab<Pair>| pairs.get(key).and_then(|pair| pair.share);
        let Some(Share { due, due_since, .. }) = share(&self.pairs) else {
            return;
        };
        self.leave_buffers(key);
        self.join_buffers(key, path);
        if let Some(pair) = self.pairs.get_mut(key)
            && let Some(share) = &mut pair.share
        {
            // Or a peer that goes from port to port would never be late.
            (share.due, share.due_since) = (due, due_since);
        }
        self.count_room(key);
        // It may have waited.
        self.set_ready(key);
    }

    /// Tells the transport of a queue pair the room that it may use.
    pub(super) fn limit_room(&mut self, key: usize) {
        let share = self.pairs.get(key).and_then(|pair| pair.share);
        if let Some(share) = share
            && !(share.pace == Pace::Prompt && self.slow_peers.is_empty())
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
        let (is_due, place, responses) = (share.due > 0, share.due_place, share.responses);
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
        match place {
            None if is_due => self.add_due(responses, key),
            Some(place) if !is_due => self.remove_due(responses, place),
            _ => {}
        }
    }

    /// Lists a queue pair with responses that are due.
    fn add_due(&mut self, number: usize, key: usize) {
        let share = self.pairs.get_mut(key).and_then(|pair| pair.share.as_mut());
        if let Some(buffer) = self.buffers.get_mut(number)
            && let Some(share) = share
            // Without memory, the queue pair does not count as slow.
            && buffer.due.try_reserve(1).is_ok()
        {
            share.due_place = Some(buffer.due.len());
            buffer.due.push(key);
        }
    }

    /// Removes the queue pair at a place of the list of those with responses that are due.
    fn remove_due(&mut self, number: usize, place: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        if place >= buffer.due.len() {
            return;
        }
        let removed = buffer.due.swap_remove(place);
        let moved = buffer.due.get(place).copied();
        for (key, place) in [(Some(removed), None), (moved, Some(place))] {
            let pair = key.and_then(|key| self.pairs.get_mut(key));
            if let Some(share) = pair.and_then(|pair| pair.share.as_mut()) {
                share.due_place = place;
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
            self.begin_wait(key, number);
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
        if let Some(buffer) = self.buffers.get_mut(number)
            && let Some(key) = buffer.next()
        {
            buffer.turn = Some(key);
            self.end_wait(key);
            self.set_ready(key);
        }
    }

    fn share(&mut self, key: usize) -> Option<&mut Share> {
        self.pairs.get_mut(key)?.share.as_mut()
    }

    /// Adds a queue pair to those that wait for room in a buffer.
    fn begin_wait(&mut self, key: usize, number: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        let last = buffer.waiting.map(|(_, last)| last);
        let first = buffer.waiting.map_or(key, |(first, _)| first);
        buffer.waiting = Some((first, key));
        let now = self.now;
        let mut peer = None;
        if let Some(share) = self.share(key) {
            share.waits_for = Some(number);
            share.waits_since = now;
            share.neighbours = [last, None];
            peer = Some(share.requests);
        }
        if let Some(last) = last.and_then(|last| self.share(last)) {
            last.neighbours[1] = Some(key);
        }
        if let Some((buffer, peer)) = self.buffers.get_mut(number).zip(peer) {
            note_wait(&mut buffer.waited, peer);
        }
        self.begin_patience(number);
    }

    /// Removes a queue pair from those that wait.
    fn end_wait(&mut self, key: usize) {
        let Some(share) = self.share(key) else {
            return;
        };
        share.is_starved = false;
        let Some(number) = share.waits_for.take() else {
            return;
        };
        let [before, after] = core::mem::take(&mut share.neighbours);
        if let Some(before) = before.and_then(|before| self.share(before)) {
            before.neighbours[1] = after;
        }
        if let Some(after) = after.and_then(|after| self.share(after)) {
            after.neighbours[0] = before;
        }
        if let Some(buffer) = self.buffers.get_mut(number)
            && let Some((first, last)) = buffer.waiting
        {
            let first = if first == key { after } else { Some(first) };
            let last = if last == key { before } else { Some(last) };
            buffer.waiting = first.zip(last);
        }
    }

    /// Starts the timer of a buffer that queue pairs wait for, if it does not run.
    fn begin_patience(&mut self, number: usize) {
        if let Some(buffer) = self.buffers.get(number)
            && !self.deadlines.is_set(Timer::Patience(number))
        {
            let end = after(self.now, buffer.patience());
            self.deadlines.set(Timer::Patience(number), Some(end));
        }
    }

    /// Finds peers that hold the room of others, and gives those that have waited their minimum.
    ///
    /// Looks at those that wait or have responses due, not at all that share the buffer.
    pub(super) fn end_patience(&mut self, number: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        let waited = core::mem::take(&mut buffer.waited);
        self.find_slow_peers(number, waited);
        let Some(SocketBuffer {
            waiting, waited, ..
        }) = self.buffers.get_mut(number)
        else {
            return;
        };
        let mut next = waiting.map(|(first, _)| first);
        while let Some(key) = next.take()
            && let Some(pair) = self.pairs.get_mut(key)
            && let Some(share) = &mut pair.share
        {
            next = share.neighbours[1];
            note_wait(waited, share.requests);
            if after(share.waits_since, STARVED) <= self.now {
                share.is_starved = true;
                if !core::mem::replace(&mut pair.is_ready, true) {
                    self.ready_pairs.push_back(key);
                }
            } else if let [_, Some(_)] = waited {
                // The others have waited for less.
                break;
            }
        }
        if waiting.is_some() {
            self.begin_patience(number);
        }
    }

    /// Counts the responses of peers apart that have been due for long, if queue pairs of others
    /// have waited.
    ///
    /// Queue pairs of one peer wait for each other: their responses may all come at once. Those of
    /// a slow peer that have nothing due move when they send.
    fn find_slow_peers(&mut self, number: usize, waited: [Option<usize>; 2]) {
        let Some(buffer) = self.buffers.get(number) else {
            return;
        };
        let (now, until) = (self.now, after(self.now, SLOW_TIME));
        let patience = buffer.patience();
        for key in &buffer.due {
            if let Some(share) = self.pairs.get(*key).and_then(|pair| pair.share)
                && after(share.due_since, patience) <= now
                && waited
                    .into_iter()
                    .flatten()
                    .any(|peer| peer != share.requests)
                && let Some(peer) = self.buffers.get(share.requests)
            {
                let peer = peer.address.0;
                let is_slow = share.pace > Pace::Prompt || self.pace(peer) > Pace::Far;
                // Without memory, the peer does not count as slow.
                if self.slow_peers.try_reserve(1).is_err() {
                    break;
                }
                let known = self.slow_peers.insert(peer.ip(), (is_slow, until));
                // Now and then is enough: what has ended does not count.
                if known.is_none() && self.slow_peers.len().is_power_of_two() {
                    self.slow_peers.retain(|_, (_, until)| now < *until);
                }
            }
        }
        // From the end: what leaves is replaced by the last one.
        let mut place = buffer.due.len();
        while let Some(before) = place.checked_sub(1) {
            place = before;
            let Some(key) = self
                .buffers
                .get(number)
                .and_then(|buffer| buffer.due.get(place))
            else {
                continue;
            };
            let key = *key;
            if let Some(share) = self.pairs.get(key).and_then(|pair| pair.share)
                && let Some(peer) = self.buffers.get(share.requests)
                && self.pace(peer.address.0) != share.pace
            {
                self.renew_buffers(key);
            }
        }
    }

    /// Moves the share of a queue pair to the buffers of its peer's pace.
    fn renew_buffers(&mut self, key: usize) {
        if let Some(path) = self.pairs.get(key).and_then(|pair| pair.path) {
            self.change_buffers(key, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use dat_core::attributes::EpAttributes;
    use dat_core::backend::{DomainKey, QueuePairRequest};

    use super::*;
    use crate::RoceOptions;
    use crate::proto::icrc::Flow;

    fn socket(host: u8) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), 4791)
    }

    /// Makes an adapter with queue pairs that share one buffer for responses.
    fn adapter(pairs: u8) -> Adapter {
        let adapter = Adapter::new(RoceOptions::new([7; 16]), socket(0), 1);
        let mut adapter = adapter.expect("memory");
        for host in 1..=pairs {
            let request = QueuePairRequest::new(0, DomainKey(0), EpAttributes::DEFAULT);
            let pair = Pair::new(&request).expect("memory");
            assert!(adapter.pairs.has_room() && adapter.reserve_buffers());
            let key = adapter.pairs.insert(pair);
            adapter.join_buffers(key, &path(socket(host)));
        }
        adapter
    }

    fn path(peer: SocketAddr) -> Path {
        let flow = Flow::between(socket(0), peer).expect("one family");
        Path {
            wire: flow,
            view: flow,
            single: false,
            local: None,
        }
    }

    fn share(adapter: &mut Adapter, key: usize) -> &mut Share {
        let pair = adapter.pairs.get_mut(key).expect("a queue pair");
        pair.share.as_mut().expect("a share")
    }

    /// Those with something due are found without the others, in whatever order they come and go.
    ///
    /// Spec: ROCE-191
    #[test]
    fn the_list_of_what_is_due_has_nothing_else() {
        let mut adapter = adapter(20);
        let number = share(&mut adapter, 0).responses;
        let check = |adapter: &mut Adapter, due: &[usize]| {
            let mut listed = adapter.buffers.get(number).expect("a buffer").due.clone();
            for (place, key) in listed.iter().enumerate() {
                assert_eq!(share(adapter, *key).due_place, Some(place));
            }
            listed.sort_unstable();
            assert_eq!(listed, due);
        };
        for key in [3, 9, 1, 12] {
            adapter.add_due(number, key);
        }
        check(&mut adapter, &[1, 3, 9, 12]);
        for (key, left) in [(3, &[1, 9, 12][..]), (12, &[1, 9])] {
            let place = share(&mut adapter, key).due_place.expect("a place");
            adapter.remove_due(number, place);
            assert_eq!(share(&mut adapter, key).due_place, None);
            check(&mut adapter, left);
        }
        // One that leaves the buffer has nothing due there.
        adapter.leave_buffers(9);
        check(&mut adapter, &[1]);
        adapter.remove_due(number, 7);
        check(&mut adapter, &[1]);
    }

    /// Queue pairs wait in the order in which they came, whoever leaves meanwhile.
    ///
    /// Spec: ROCE-183, ROCE-199
    #[test]
    fn those_that_wait_keep_their_order() {
        let seed = fastrand::u64(..);
        std::println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut adapter = adapter(9);
        let number = share(&mut adapter, 0).responses;
        let mut expected = Vec::new();
        for _ in 0..2_000 {
            let key = random.usize(..9);
            if expected.contains(&key) {
                expected.retain(|waiting| *waiting != key);
                adapter.end_wait(key);
            } else {
                expected.push(key);
                adapter.begin_wait(key, number);
            }
            let ends = expected.first().copied().zip(expected.last().copied());
            assert_eq!(adapter.buffers.get(number).expect("a buffer").waiting, ends);
            let mut next = ends.map(|(first, _)| first);
            for key in &expected {
                assert_eq!(next, Some(*key));
                next = share(&mut adapter, *key).neighbours[1];
            }
            assert_eq!(next, None);
        }
    }

    /// The end of patience counts the late ones apart, and gives those that wait their minimum.
    ///
    /// Spec: ROCE-191..192
    #[test]
    fn the_end_of_patience_finds_the_late_and_the_starved() {
        let mut adapter = adapter(20);
        let number = share(&mut adapter, 0).responses;
        for key in [2, 5] {
            share(&mut adapter, key).due = 1;
            adapter.add_due(number, key);
        }
        let peer = share(&mut adapter, 7).requests;
        assert_ne!(peer, number);
        adapter.begin_wait(7, number);
        for (time, late, is_starved) in [(500, 0, false), (1_000, 2, false), (10_000, 2, true)] {
            adapter.now = Instant::from_micros(time);
            adapter.end_patience(number);
            assert_eq!(adapter.slow_peers.len(), late, "{time}");
            assert_eq!(share(&mut adapter, 7).is_starved, is_starved, "{time}");
        }
        assert_eq!(adapter.ready_pairs, [7]);
        // At each port of its address.
        let at = |host, port| SocketAddr::new(socket(host).ip(), port);
        let paces = [at(3, 4791), at(3, 9), at(4, 4791)].map(|peer| adapter.pace(peer));
        assert_eq!(paces, [Pace::Far, Pace::Far, Pace::Prompt]);
    }

    /// Far peers share the room of their responses, and each of those that are slow there has its
    /// own.
    ///
    /// Spec: ROCE-191
    #[test]
    fn peers_that_are_far_are_slow_only_if_they_are_late_there() {
        let mut adapter = adapter(4);
        let prompt = share(&mut adapter, 0).responses;
        for key in [0, 1] {
            share(&mut adapter, key).due = 1;
            adapter.add_due(prompt, key);
        }
        adapter.begin_wait(2, prompt);
        adapter.now = Instant::from_micros(1_000);
        adapter.end_patience(prompt);
        for key in [0, 1] {
            adapter.change_buffers(key, &path(socket(key as u8 + 1)));
        }
        let far = share(&mut adapter, 0).responses;
        assert_ne!(far, prompt);
        let [first, second] = [0, 1].map(|key| *share(&mut adapter, key));
        assert_eq!((second.responses, second.pace), (far, Pace::Far));
        assert_eq!(first.pace, Pace::Far);
        // The second one waits for the first there.
        share(&mut adapter, 0).due_since = adapter.now;
        adapter.add_due(far, 0);
        adapter.begin_wait(1, far);
        let slow = Pace::Slow(socket(1));
        for (time, pace) in [(10_900, Pace::Far), (11_000, slow)] {
            adapter.now = Instant::from_micros(time);
            adapter.end_patience(far);
            assert_eq!(adapter.pace(socket(1)), pace, "{time}");
            assert_eq!(adapter.pace(socket(2)), Pace::Far, "{time}");
        }
        adapter.change_buffers(0, &path(socket(1)));
        let own = share(&mut adapter, 0).responses;
        assert!(![prompt, far].contains(&own));
        assert_eq!(share(&mut adapter, 1).responses, far);
    }

    /// A peer that goes from port to port is late all the same.
    ///
    /// Spec: ROCE-191
    #[test]
    fn what_is_due_stays_due_at_another_port() {
        let mut adapter = adapter(1);
        let since = Instant::from_micros(5);
        let due = share(&mut adapter, 0);
        (due.due, due.due_since) = (3, since);
        adapter.now = Instant::from_micros(900);
        let moved = SocketAddr::new(socket(1).ip(), 9);
        adapter.change_buffers(0, &path(moved));
        let Share { due, due_since, .. } = *share(&mut adapter, 0);
        assert_eq!((due, due_since), (3, since));
    }

    /// One that has waited for long has its minimum beside a full buffer, up to the reserve.
    ///
    /// Spec: ROCE-192
    #[test]
    fn the_starved_have_their_minimum_beside_a_full_buffer() {
        let mut buffer = SocketBuffer::new((socket(1), Pace::Prompt));
        buffer.waiting = Some((3, 3));
        for (used, is_starved, expected) in [
            (ROOM, false, 0),
            (ROOM, true, MINIMUM),
            (ROOM + RESERVE - 1, true, MINIMUM),
            (ROOM + RESERVE, true, 0),
        ] {
            buffer.used = used;
            assert_eq!(buffer.limit(3, 0, LARGEST, is_starved), expected, "{used}");
        }
    }
}
