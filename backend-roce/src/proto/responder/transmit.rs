//! The next packet of a responder.

use super::resource::{Kind, ResourceSlot, Responses};
use super::{Reply, Responder};
use crate::proto::Psn;
use crate::proto::memory::RemoteMemory;
use crate::proto::packet::{Aeth, Bth, Extensions, Header, NakCode, Opcode, Position, Syndrome};

impl Responder<'_> {
    /// Writes the next packet into `buffer` and returns its length.
    ///
    /// The length includes 4 bytes for the ICRC, which the caller fills in.
    ///
    /// `buffer` must have room for the path MTU and 48 bytes (`packet::OVERHEAD_MAX`).
    /// Called once after a batch of received packets, it merges their acknowledgements.
    pub fn transmit(&mut self, memory: &mut impl RemoteMemory, buffer: &mut [u8]) -> Option<usize> {
        while let Some(index) = self.oldest_pending() {
            match self.respond(index, memory, buffer)? {
                Ok(length) => return Some(length),
                Err(psn) => self.response_failed(index, psn),
            }
        }
        let (psn, syndrome) = match self.reply {
            Reply::None => return None,
            Reply::Acknowledge => (self.expected.previous(), Syndrome::Acknowledgement),
            Reply::NotReady => {
                let timer = self.options.rnr_timer;
                (self.expected, Syndrome::ReceiverNotReady(timer))
            }
            Reply::Negative(psn, code) => (psn, Syndrome::Negative(code)),
        };
        let extensions = Extensions {
            aeth: Some(self.aeth(syndrome)),
            ..Extensions::default()
        };
        let header = self.header(Opcode::Acknowledge, psn, extensions);
        let length = header.encode_with(&[], buffer)?;
        self.reply = Reply::None;
        Some(length)
    }

    /// Returns true if [`transmit`](Self::transmit) has a packet to send.
    pub fn has_output(&self) -> bool {
        self.reply != Reply::None || self.oldest_pending().is_some()
    }

    /// Finds the resource whose next response has the oldest PSN (ROCE-118).
    fn oldest_pending(&self) -> Option<usize> {
        let age = |slot: &ResourceSlot| {
            let next = slot.first.plus(slot.pending?.next);
            Some(self.expected.since(next))
        };
        let slots = self.resources.iter().enumerate();
        let pending = slots.filter_map(|(index, slot)| Some((age(slot)?, index)));
        pending.max().map(|(_, index)| index)
    }

    /// Writes the next response of a resource; the error is the PSN whose access failed.
    fn respond(
        &mut self,
        index: usize,
        memory: &mut impl RemoteMemory,
        buffer: &mut [u8],
    ) -> Option<Result<usize, Psn>> {
        let slot = *self.resources.get(index)?;
        let Responses { start, next, end } = slot.pending?;
        let psn = slot.first.plus(next);
        let following = next.saturating_add(1);
        let aeth = Some(self.aeth(Syndrome::Acknowledgement));
        let extensions = Extensions {
            aeth,
            ..Extensions::default()
        };
        let length = match slot.kind {
            Kind::Empty => return None,
            Kind::Atomic(original) => {
                let extensions = Extensions {
                    original: Some(original),
                    ..extensions
                };
                let header = self.header(Opcode::AtomicAcknowledge, psn, extensions);
                header.encode_with(&[], buffer)?
            }
            Kind::Read(reth) => {
                let position = Position::of(next == start, following == end);
                let header = self.header(Opcode::read_response(position), psn, extensions);
                let (remote, length) = ResourceSlot::part(reth, next, self.options.mtu);
                let draft = header.encode(usize::try_from(length).ok()?, buffer)?;
                if length > 0 && memory.read(remote, draft.payload).is_err() {
                    return Some(Err(psn));
                }
                draft.length
            }
        };
        if let Some(slot) = self.resources.get_mut(index) {
            slot.answered |= following == slot.packets;
            slot.pending = (following < end).then_some(Responses {
                start,
                next: following,
                end,
            });
        }
        Some(Ok(length))
    }

    /// Ends the connection: the memory of a Read went away (ROCE-112).
    ///
    /// A Read that was answered in full before is dropped: the peer may have freed the memory since
    /// it completed, and this repetition may be a late one (ROCE-121).
    fn response_failed(&mut self, index: usize, psn: Psn) {
        if let Some(slot) = self.resources.get_mut(index)
            && slot.answered
        {
            slot.pending = None;
            return;
        }
        self.clear_responses();
        self.fault = Some(NakCode::RemoteAccess);
        self.ended = true;
        self.reply = Reply::Negative(psn, NakCode::RemoteAccess);
    }

    fn aeth(&self, syndrome: Syndrome) -> Aeth {
        Aeth {
            syndrome,
            msn: self.msn,
        }
    }

    fn header(&self, opcode: Opcode, psn: Psn, extensions: Extensions) -> Header {
        let bth = Bth {
            opcode,
            solicited: false,
            destination: self.options.destination,
            acknowledge: false,
            psn,
        };
        Header { bth, extensions }
    }
}
