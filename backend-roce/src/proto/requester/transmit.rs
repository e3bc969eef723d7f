//! The next packet of a requester.

use dat_core::time::Instant;

use super::{Cursor, Held, Operation, RequestSlot, Requester, Status};
use crate::proto::memory::{AtomicOperation, RequestMemory};
use crate::proto::packet::{AtomicEth, Bth, Extensions, Header, Opcode, Position, Reth};
use crate::proto::{BufferRoom, Psn};

/// Acknowledgements are asked for at least this often in a window (ROCE-64).
const ASKS: u32 = 4;

/// Content of a packet of a request.
struct Content {
    opcode: Opcode,
    extensions: Extensions,
    /// Number of PSNs that the packet takes.
    packets: u32,
    /// Length of its payload.
    payload: u32,
}

impl Requester<'_> {
    /// Writes the next packet into `buffer` and returns its length.
    ///
    /// The length includes 4 bytes for the ICRC, which the caller fills in.
    ///
    /// `buffer` must have room for the path MTU and 48 bytes (`packet::OVERHEAD_MAX`).
    /// `None` means that nothing is to be sent until a packet or a deadline comes.
    pub fn transmit(
        &mut self,
        now: Instant,
        memory: &mut impl RequestMemory,
        buffer: &mut [u8],
    ) -> Option<usize> {
        self.held = None;
        if self.ended || self.resume.is_some_and(|resume| now < resume) {
            return None;
        }
        self.resume = None;
        let room = self.room();
        if room == 0 || !self.assign() {
            return None;
        }
        let position = self.cursor.position;
        let packet = self.cursor.packet;
        let slot = *self.slot(position)?;
        let psn = slot.first.plus(packet);
        let mtu = self.options.mtu;
        // Without a limit, the room of packets is not counted.
        let is_limited = self.limit != BufferRoom::UNLIMITED;
        let left = match is_limited {
            true => self.limit.rest(self.under_way()),
            false => self.limit,
        };
        let request = slot.request;
        let ends = packet.saturating_add(1) == slot.packets;
        let content = self.content(&slot, packet, room, left)?;
        let Content {
            opcode,
            extensions,
            packets,
            payload,
        } = content;
        let next = packet.saturating_add(packets);
        let wanted = match is_limited {
            true => slot.room_between(mtu, packet, next),
            false => BufferRoom::default(),
        };
        if wanted.requests > left.requests {
            self.held = Some(Held::Requests);
            return None;
        }
        let repeats_read = opcode == Opcode::ReadRequest && packet < slot.requested;
        if wanted.responses > left.responses && !repeats_read {
            self.held = Some(Held::Responses);
            return None;
        }
        // The next packet may have no room: the acknowledgement makes some.
        let full = BufferRoom::of_packet(mtu.bytes());
        let fills = left.requests.saturating_sub(wanted.requests) < full;
        let acknowledge = self.asks(fills || next == slot.packets);
        let header = Header {
            bth: Bth {
                opcode,
                solicited: ends && request.solicited && request.operation.may_solicit(),
                destination: self.options.destination,
                acknowledge,
                psn,
            },
            extensions,
        };
        let draft = header.encode(usize::try_from(payload).ok()?, buffer)?;
        if !draft.payload.is_empty() {
            let copied = memory.gather(request.token, mtu.offset(packet), draft.payload);
            if copied.is_err() {
                self.fail(position, Status::LocalProtection);
                return None;
            }
        }
        let length = draft.length;
        self.advance(now, psn, packets);
        Some(length)
    }

    /// Returns the content of packet `packet` of a request; `None` if it cannot be sent now.
    ///
    /// `room` is the number of PSNs, and `left` the room at the peer.
    #[inline]
    fn content(
        &mut self,
        slot: &RequestSlot,
        packet: u32,
        room: u32,
        left: BufferRoom,
    ) -> Option<Content> {
        let request = slot.request;
        let ends = packet.saturating_add(1) == slot.packets;
        let mtu = self.options.mtu;
        let mut extensions = Extensions::default();
        let (opcode, packets, payload) = match request.operation {
            Operation::Send { immediate } => {
                extensions.immediate = immediate.filter(|_| ends);
                let place = Position::of(packet == 0, ends);
                let opcode = Opcode::send(place, extensions.immediate.is_some());
                (opcode, 1, mtu.payload(request.length, packet))
            }
            Operation::SendInvalidate { key } => {
                extensions.invalidate = ends.then_some(key);
                let place = Position::of(packet == 0, ends);
                let opcode = Opcode::send_invalidate(place);
                (opcode, 1, mtu.payload(request.length, packet))
            }
            Operation::Write { remote, immediate } => {
                extensions.immediate = immediate.filter(|_| ends);
                extensions.reth = Some(Reth {
                    remote,
                    length: request.length,
                });
                let place = Position::of(packet == 0, ends);
                let opcode = Opcode::write(place, extensions.immediate.is_some());
                (opcode, 1, mtu.payload(request.length, packet))
            }
            Operation::Read { remote } => {
                let packets = if packet < slot.requested {
                    // One request, even if the window is smaller now: if the peer has not seen the
                    // first one, each smaller part would be a Read of its own there.
                    slot.requested.saturating_sub(packet)
                } else if left.requests < BufferRoom::EMPTY_PACKET {
                    // Room for requests is named first, if both are missing.
                    self.held = Some(Held::Requests);
                    return None;
                } else if packet == slot.received {
                    let packets = slot.packets.saturating_sub(packet).min(room);
                    let all = slot.room_between(mtu, packet, packet.saturating_add(packets));
                    let full = BufferRoom::of_packet(mtu.bytes());
                    if all.responses <= left.responses {
                        packets
                    } else if full <= left.responses {
                        left.responses / full
                    } else {
                        self.held = Some(Held::Responses);
                        return None;
                    }
                } else {
                    // The next part is asked for when this one is here (ROCE-69).
                    return None;
                };
                let offset = mtu.offset(packet);
                let until = mtu.offset(packet.saturating_add(packets));
                extensions.reth = Some(Reth {
                    remote: remote.advanced(offset),
                    length: until.min(request.length).saturating_sub(offset),
                });
                (Opcode::ReadRequest, packets, 0)
            }
            Operation::Atomic { remote, operation } => {
                extensions.atomic = Some(AtomicEth { remote, operation });
                let opcode = match operation {
                    AtomicOperation::CompareSwap { .. } => Opcode::CompareSwap,
                    AtomicOperation::FetchAdd(_) => Opcode::FetchAdd,
                };
                (opcode, 1, 0)
            }
            Operation::Local => return None,
        };
        Some(Content {
            opcode,
            extensions,
            packets,
            payload,
        })
    }

    /// Returns how many more PSNs the window allows.
    fn room(&self) -> u32 {
        let used = self.cursor_psn().since(self.unacknowledged);
        self.window.size().saturating_sub(used)
    }

    /// Gives PSNs to the request at the cursor if it has none; false if it has to wait.
    fn assign(&mut self) -> bool {
        let position = self.cursor.position;
        if position < self.assigned {
            return true;
        }
        if position == self.posted || self.gathers() {
            return false;
        }
        if position >= self.released {
            // All that have gathered leave.
            self.released = self.posted;
            self.gathered = 0;
            self.has_long = false;
        }
        let (first, before, reading) = (self.sent, self.total, self.reading);
        let mtu = self.options.mtu;
        let depth = self.options.initiator_depth;
        let Some(slot) = self.slot_mut(position) else {
            return false;
        };
        let operation = slot.request.operation;
        let returns_data = operation.returns_data();
        if operation == Operation::Local {
            return false;
        }
        if slot.request.fence && reading > 0 || returns_data && reading >= depth {
            return false;
        }
        slot.first = first;
        slot.before = before;
        let after = before.plus(slot.room(mtu, slot.packets));
        self.total = after;
        self.reading = reading.saturating_add(u8::from(returns_data));
        self.assigned = self.assigned.saturating_add(1);
        true
    }

    /// Returns true if the packet asks for an acknowledgement (ROCE-64).
    fn asks(&mut self, must: bool) -> bool {
        let must = core::mem::take(&mut self.must_ask) || must;
        self.unasked = self.unasked.saturating_add(1);
        let often = self.unasked >= self.window.size() / ASKS;
        let asks = must || often;
        if asks {
            self.unasked = 0;
        }
        asks
    }

    /// Moves the cursor behind `packets` packets that were sent from `psn` on.
    fn advance(&mut self, now: Instant, psn: Psn, packets: u32) {
        let Cursor { position, packet } = self.cursor;
        let next = packet.saturating_add(packets);
        let end = psn.plus(packets);
        let mut complete = false;
        if let Some(slot) = self.slot_mut(position) {
            slot.requested = slot.requested.max(next);
            complete = next == slot.packets;
        }
        self.cursor = if complete {
            Cursor {
                position: position.saturating_add(1),
                packet: 0,
            }
        } else {
            Cursor {
                position,
                packet: next,
            }
        };
        self.counts.packets = self.counts.packets.saturating_add(1);
        if end.since(self.unacknowledged) > self.sent.since(self.unacknowledged) {
            self.sent = end;
        } else {
            self.counts.retransmits = self.counts.retransmits.saturating_add(1);
        }
        if self.deadline.is_none() {
            self.start_timer(now);
        }
    }
}
