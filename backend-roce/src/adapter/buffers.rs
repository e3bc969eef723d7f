//! Socket buffers that queue pairs share: those of peers, and those of this side (ROCE-183).
//!
//! A queue pair that finds no room waits. Room that becomes free goes to the queue pair that has
//! waited the longest; it has the turn until it has sent all that it may, or has filled the buffer
//! again.

use alloc::collections::VecDeque;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Adapter;
use crate::port::Path;
use crate::proto::requester::Held;
use crate::proto::{BUFFER_UNIT, BufferRoom, PathMtu};

/// Units of a buffer that packets of one adapter may take.
///
/// Linux grants a socket that asks for more twice this size by default: one half for requests of a
/// peer, the other one for responses and acknowledgements that this side has asked for. Messages of
/// connection management are few, and are not counted.
const ROOM: u32 = 212_992 / BUFFER_UNIT;

/// Room of the largest packet; with less, nobody gets the turn.
const LARGEST: u32 = BufferRoom::of_packet(PathMtu::Bytes4096.bytes());

/// Full packets whose room a queue pair may use while others wait.
const SHARE: u32 = 32;

/// A socket buffer.
#[derive(Debug)]
pub(crate) struct SocketBuffer {
    address: SocketAddr,
    /// Number of queue pairs that share it.
    users: usize,
    /// Units of the packets under way.
    used: u32,
    /// Queue pairs that wait for room.
    waiting: VecDeque<usize>,
    /// The queue pair that has the turn: it is ready to send, or waits for room for its responses.
    turn: Option<usize>,
}

impl SocketBuffer {
    const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            users: 0,
            used: 0,
            waiting: VecDeque::new(),
            turn: None,
        }
    }

    /// Returns the units that a queue pair may use, which uses `used`; `full` is a full packet.
    ///
    /// The queue pair that has the turn may send a packet even above its share: two that are at
    /// their share would otherwise pass the turn to each other without end.
    fn limit(&self, key: usize, used: u32, full: u32) -> u32 {
        let limit = used.saturating_add(self.room(key));
        if self.waiting.is_empty() {
            limit
        } else {
            let share = full.saturating_mul(SHARE);
            limit.min(share.max(used.saturating_add(full)))
        }
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
    /// Buffer of responses and acknowledgements, at this side.
    responses: usize,
    /// Units that the queue pair uses of them.
    used: BufferRoom,
    /// The buffer whose room the queue pair waits for.
    waits_for: Option<usize>,
}

impl Adapter {
    /// Lets a queue pair share the buffers of a path.
    pub(super) fn join_buffers(&mut self, key: usize, path: &Path) {
        // All addresses of this side at one port are one socket.
        let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), path.wire.source_port);
        let requests = self.use_buffer(path.wire.destination());
        let responses = self.use_buffer(own);
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.share = Some(Share {
                requests,
                responses,
                used: BufferRoom::default(),
                waits_for: None,
            });
        }
    }

    fn use_buffer(&mut self, address: SocketAddr) -> usize {
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
                self.buffers_by_address.remove(&buffer.address);
                self.buffers.remove(number);
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
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some((share, transport)) = pair.share.zip(pair.transport.as_mut()) else {
            return;
        };
        let full = BufferRoom::of_packet(transport.mtu().bytes());
        let limit = |number: usize, used: u32| {
            let buffer = self.buffers.get(number);
            buffer.map_or(0, |buffer| buffer.limit(key, used, full))
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
            if let Some(buffer) = self.buffers.get_mut(number) {
                buffer.waiting.push_back(key);
            }
        }
        if held == Some(Held::Responses) {
            // There was room for its requests, so nobody else has the turn.
            if let Some(buffer) = self.buffers.get_mut(requests) {
                debug_assert!(buffer.turn.is_none_or(|turn| turn == key));
                buffer.turn = Some(key);
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
            }
            self.set_ready(key);
        }
    }
}
