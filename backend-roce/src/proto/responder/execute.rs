//! Execution of a request in order.

use super::resource::{Kind, ResourceSlot};
use super::{Beside, Message, ReceiveCompletion, ReceiveStatus, Reply, Responder};
use crate::proto::Psn;
use crate::proto::memory::{Receive, ReceiveQueue, RemoteMemory, Right};
use crate::proto::packet::{AtomicEth, NakCode, Opcode, Packet, Reth};
use crate::proto::path_mtu::{MESSAGE_MAX, PACKETS_MAX};

/// The reason why a request is not executed.
enum Refusal {
    /// Ends the connection.
    Nak(NakCode),
    /// Ends the connection and completes the receive of the message with this status.
    Receive(NakCode, ReceiveStatus),
    /// There is no receive.
    NotReady,
}

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccess);

/// Effects of an executed packet.
struct Executed {
    completion: Option<ReceiveCompletion>,
    /// PSNs that the packet takes.
    packets: u32,
    /// Set if a message is executed.
    ends: bool,
    /// Set if responses with data answer the packet.
    answers: bool,
}

impl Responder<'_> {
    /// Executes the packet with the expected PSN.
    pub(super) fn in_order(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl RemoteMemory,
        receives: &mut impl ReceiveQueue,
    ) -> Option<ReceiveCompletion> {
        let executed = match self.execute(packet, memory, receives) {
            Ok(executed) => executed,
            Err(Refusal::NotReady) => {
                self.counts.not_ready = self.counts.not_ready.saturating_add(1);
                self.out_of_order = true;
                self.reply = Reply::NotReady;
                return None;
            }
            Err(Refusal::Nak(code)) => {
                return self.refuse(self.expected, code, ReceiveStatus::Flushed);
            }
            Err(Refusal::Receive(code, status)) => {
                return self.refuse(self.expected, code, status);
            }
        };
        self.counts.executed = self.counts.executed.saturating_add(1);
        self.expected = self.expected.plus(executed.packets);
        // MSNs have as many bits as PSNs.
        self.msn = Psn::new(self.msn).plus(u32::from(executed.ends)).value();
        // This packet makes a NAK that was not sent yet needless. The packets before it, which the
        // NAK acknowledged, still need an acknowledgement.
        let owed = self.reply != Reply::None;
        let asked = packet.header.bth.acknowledge && !executed.answers;
        self.reply = if owed || asked {
            Reply::Acknowledge
        } else {
            Reply::None
        };
        self.out_of_order = false;
        executed.completion
    }

    fn execute(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl RemoteMemory,
        receives: &mut impl ReceiveQueue,
    ) -> Result<Executed, Refusal> {
        let extensions = packet.header.extensions;
        match packet.header.bth.opcode {
            Opcode::SendFirst
            | Opcode::SendMiddle
            | Opcode::SendLast
            | Opcode::SendLastImmediate
            | Opcode::SendOnly
            | Opcode::SendOnlyImmediate => self.send(packet, receives),
            Opcode::WriteFirst
            | Opcode::WriteMiddle
            | Opcode::WriteLast
            | Opcode::WriteLastImmediate
            | Opcode::WriteOnly
            | Opcode::WriteOnlyImmediate => self.write(packet, memory, receives),
            Opcode::ReadRequest => self.read(extensions.reth.ok_or(INVALID)?, memory),
            Opcode::CompareSwap | Opcode::FetchAdd => {
                self.atomic(extensions.atomic.ok_or(INVALID)?, memory)
            }
            Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate => {
                let key = extensions.invalidate.ok_or(INVALID)?;
                self.send_invalidate(key, packet, memory, receives)
            }
            // Packets for other halves do not come here.
            _ => Err(INVALID),
        }
    }

    /// Checks the payload of a packet by its place in the message (ROCE-103).
    fn payload_length(&self, packet: &Packet<'_>) -> Result<u32, Refusal> {
        let length = u32::try_from(packet.payload.len()).map_err(|_| INVALID)?;
        let mtu = self.options.mtu.bytes();
        let position = packet.header.bth.opcode.position();
        let fits = match (position.begins(), position.ends()) {
            (true, true) => length <= mtu,
            (false, true) => (1..=mtu).contains(&length),
            (_, false) => length == mtu,
        };
        fits.then_some(length).ok_or(INVALID)
    }

    fn send(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut impl ReceiveQueue,
    ) -> Result<Executed, Refusal> {
        let position = packet.header.bth.opcode.position();
        if position.begins() != self.message.is_none() {
            return Err(INVALID);
        }
        let added = self.payload_length(packet)?;
        let (receive, before) = match self.message {
            None => (receives.take().ok_or(Refusal::NotReady)?, 0),
            Some(Message::Send { receive, length }) => (receive, length),
            Some(Message::Write { .. }) => return Err(INVALID),
        };
        self.message = Some(Message::Send {
            receive,
            length: before,
        });
        let length = before
            .checked_add(added)
            .filter(|length| *length <= receive.length)
            .ok_or(Refusal::Receive(
                NakCode::InvalidRequest,
                ReceiveStatus::Length,
            ))?;
        if added > 0 {
            let placed = receives.place(receive.token, before, packet.payload);
            placed.map_err(|_| {
                Refusal::Receive(NakCode::RemoteOperational, ReceiveStatus::LocalProtection)
            })?;
        }
        if !position.ends() {
            self.message = Some(Message::Send { receive, length });
            return Ok(Executed::packet());
        }
        self.message = None;
        Ok(Executed::message(Some(ReceiveCompletion {
            token: receive.token,
            status: ReceiveStatus::Success,
            length,
            beside: packet.header.extensions.immediate.into(),
            is_write: false,
            solicited: packet.header.bth.solicited,
        })))
    }

    /// Ends a message, and the key that it names (ROCE-127).
    #[cold]
    fn send_invalidate(
        &mut self,
        key: u32,
        packet: &Packet<'_>,
        memory: &mut impl RemoteMemory,
        receives: &mut impl ReceiveQueue,
    ) -> Result<Executed, Refusal> {
        let mut executed = self.send(packet, receives)?;
        if let Some(done) = &mut executed.completion {
            if memory.check_invalidation(key).is_err() {
                let (token, length) = (done.token, done.length);
                // The receive is taken: it completes with the message that fails.
                let receive = Receive { token, length };
                self.message = Some(Message::Send { receive, length });
                return Err(ACCESS);
            }
            done.beside = Beside::Invalidation(key);
        }
        Ok(executed)
    }

    fn write(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl RemoteMemory,
        receives: &mut impl ReceiveQueue,
    ) -> Result<Executed, Refusal> {
        let bth = packet.header.bth;
        let position = bth.opcode.position();
        let added = self.payload_length(packet)?;
        let (remote, length, before) = match (self.message, packet.header.extensions.reth) {
            (None, Some(Reth { remote, length })) => {
                if !self.options.remote_write {
                    return Err(INVALID);
                }
                (remote, length, 0)
            }
            (
                Some(Message::Write {
                    remote,
                    length,
                    done,
                }),
                None,
            ) => (remote, length, done),
            _ => return Err(INVALID),
        };
        let done = before.checked_add(added).ok_or(INVALID)?;
        // A message that goes on has bytes left, one that ends has none (ROCE-104).
        if done > length || (done == length) != position.ends() {
            return Err(INVALID);
        }
        let immediate = packet.header.extensions.immediate;
        let checked = match (position.begins(), immediate) {
            // The copy checks the only packet.
            (true, None) if position.ends() => 0,
            (true, _) => length,
            // Before a receive is taken; the copy checks again under its own lock.
            (false, Some(_)) => added,
            (false, None) => 0,
        };
        if checked > 0 && memory.check(remote, checked, Right::Write).is_err() {
            return Err(ACCESS);
        }
        let receive = match immediate {
            Some(_) => Some(receives.take().ok_or(Refusal::NotReady)?),
            None => None,
        };
        let completion = receive.map(|receive| ReceiveCompletion {
            token: receive.token,
            status: ReceiveStatus::Success,
            length,
            beside: immediate.into(),
            is_write: true,
            solicited: bth.solicited,
        });
        if added > 0 && memory.write(remote, packet.payload).is_err() {
            // The receive is taken: it completes with the message that fails.
            self.message = receive.map(|receive| Message::Send { receive, length: 0 });
            return Err(ACCESS);
        }
        if position.ends() {
            self.message = None;
            return Ok(Executed::message(completion));
        }
        self.message = Some(Message::Write {
            remote: remote.advanced(added),
            length,
            done,
        });
        Ok(Executed::packet())
    }

    fn read(&mut self, reth: Reth, memory: &mut impl RemoteMemory) -> Result<Executed, Refusal> {
        let packets = self.options.mtu.packets(reth.length);
        let too_long = reth.length > MESSAGE_MAX || packets > PACKETS_MAX;
        if self.message.is_some() || !self.options.remote_read || too_long {
            return Err(INVALID);
        }
        if self.next_resource().is_none() {
            return Err(INVALID);
        }
        if reth.length > 0 {
            let checked = memory.check(reth.remote, reth.length, Right::Read);
            checked.map_err(|_| ACCESS)?;
        }
        self.remember(Kind::Read(reth), packets)
    }

    fn atomic(
        &mut self,
        atomic: AtomicEth,
        memory: &mut impl RemoteMemory,
    ) -> Result<Executed, Refusal> {
        let aligned = atomic.remote.address.is_multiple_of(8);
        if self.message.is_some() || !self.options.remote_atomic || !aligned {
            return Err(INVALID);
        }
        if self.next_resource().is_none() {
            return Err(INVALID);
        }
        let original = memory.atomic(atomic.remote, atomic.operation);
        self.remember(Kind::Atomic(original.map_err(|_| ACCESS)?), 1)
    }

    /// Returns the slot of the next Read or Atomic; `None` if its responses were never sent.
    fn next_resource(&mut self) -> Option<&mut ResourceSlot> {
        let index = self.accepted.checked_rem(self.resources.len() as u64)?;
        let slot = self.resources.get_mut(usize::try_from(index).ok()?)?;
        slot.answered.then_some(slot)
    }

    fn remember(&mut self, kind: Kind, packets: u32) -> Result<Executed, Refusal> {
        let first = self.expected;
        *self.next_resource().ok_or(INVALID)? = ResourceSlot::new(kind, first, packets);
        self.accepted = self.accepted.saturating_add(1);
        Ok(Executed {
            completion: None,
            packets,
            ends: true,
            answers: true,
        })
    }
}

impl Executed {
    const fn packet() -> Self {
        Self {
            completion: None,
            packets: 1,
            ends: false,
            answers: false,
        }
    }

    const fn message(completion: Option<ReceiveCompletion>) -> Self {
        Self {
            completion,
            packets: 1,
            ends: true,
            answers: false,
        }
    }
}
