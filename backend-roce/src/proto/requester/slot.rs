//! Slots of posted requests.

use super::request::{Operation, Request};
use crate::proto::{BufferRoom, PathMtu, Psn};

/// A slot of a posted request; the caller lends a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct RequestSlot {
    pub(super) request: Request,
    /// PSN of the first packet, once one is sent.
    pub(super) first: Psn,
    /// Number of PSNs.
    pub(super) packets: u32,
    /// Number of packets that were ever sent or, for a Read, asked for.
    pub(super) requested: u32,
    /// Number of responses that were placed.
    pub(super) received: u32,
    /// Room of all earlier requests of the queue pair, modulo 2^32.
    pub(super) before: BufferRoom,
}

impl RequestSlot {
    /// A slot without a request.
    pub const EMPTY: Self = Self {
        request: Request {
            token: 0,
            operation: Operation::Send { immediate: None },
            length: 0,
            fence: false,
            solicited: false,
        },
        first: Psn::new(0),
        packets: 0,
        requested: 0,
        received: 0,
        before: BufferRoom::NONE,
    };

    /// Returns the PSN after the last one.
    pub(super) const fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Returns the room that the first `packets` packets take, modulo 2^32.
    pub(super) const fn room(&self, mtu: PathMtu, packets: u32) -> BufferRoom {
        if packets == 0 {
            return BufferRoom::NONE;
        }
        let sent = BufferRoom::EMPTY_PACKET;
        let length = self.request.length;
        match self.request.operation {
            Operation::Send { .. } | Operation::SendInvalidate { .. } | Operation::Write { .. } => {
                BufferRoom {
                    requests: BufferRoom::of_message(mtu, length, packets),
                    // A later acknowledgement replaces one that finds no room.
                    responses: 0,
                }
            }
            Operation::Read { .. } => BufferRoom {
                // One part is under way at a time (ROCE-69).
                requests: sent,
                responses: BufferRoom::of_message(mtu, length, packets),
            },
            Operation::Atomic { .. } => BufferRoom {
                requests: sent,
                responses: sent,
            },
            Operation::Local => BufferRoom::NONE,
        }
    }

    /// Returns the room of the packets from `packet` to `end`, which is not one of them.
    #[inline]
    pub(super) const fn room_between(&self, mtu: PathMtu, packet: u32, end: u32) -> BufferRoom {
        let room = self.room(mtu, end);
        if packet == 0 {
            return room;
        }
        room.minus(self.room(mtu, packet))
    }

    /// Returns true if data of the peer is missing.
    pub(super) const fn lacks_data(&self) -> bool {
        self.request.operation.returns_data() && self.received < self.packets
    }
}
