//! Socket buffers that queue pairs share: those of peers, and those of this side (ROCE-183).
//!
//! A queue pair that finds no room waits. Room that becomes free goes to the queue pair that has
//! waited the longest; it has the turn until it has sent all that it may, or has filled the buffer
//! again.
//!
//! Connections to one peer share the buffer of its socket, and all peers share the buffer of a
//! socket of this side. There a peer that does not answer must not hold the room of others: once
//! somebody has waited, the peer's responses are counted apart ([`Pace`]).

mod patience;
mod socket_buffer;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use dat_core::time::Instant;

use super::deadlines::Timer;
use super::{Adapter, Pair, Slab};
use crate::port::Path;
use crate::proto::BufferRoom;
use crate::proto::requester::Held;
use crate::reserve::Reserve as _;
use patience::Pace;
use socket_buffer::note_wait;
pub(super) use socket_buffer::{BufferAddress, SocketBuffer};

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
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use dat_core::attributes::EpAttributes;
    use dat_core::backend::{DomainKey, QueuePairRequest};

    use super::*;
    use crate::RoceOptions;
    use crate::proto::icrc::Flow;

    pub(super) fn socket(host: u8) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), 4791)
    }

    /// Makes an adapter with queue pairs that share one buffer for responses.
    pub(super) fn adapter(pairs: u8) -> Adapter {
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

    pub(super) fn path(peer: SocketAddr) -> Path {
        let flow = Flow::between(socket(0), peer).expect("one family");
        Path {
            wire: flow,
            view: flow,
            single: false,
            local: None,
        }
    }

    pub(super) fn share(adapter: &mut Adapter, key: usize) -> &mut Share {
        let pair = adapter.pairs.get_mut(key).expect("a queue pair");
        pair.share.as_mut().expect("a share")
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
}
