//! The responder: executes requests of the peer in order, each once, and answers them.

mod execute;
mod outcome;
mod resource;
mod transmit;

pub use outcome::{Beside, ReceiveCompletion, ReceiveStatus, ResponderCounts};
pub use resource::ResourceSlot;

use super::memory::{Receive, ReceiveQueue, RemoteAddress, RemoteMemory};
use super::packet::{NakCode, Opcode, Packet, RnrTimer};
use super::{PathMtu, Psn, Slots};

/// Values that both ends agreed on when they connected, and rights of the peer.
#[derive(Clone, Copy, Debug)]
pub struct ResponderOptions {
    /// QPN of the peer.
    pub destination: u32,
    /// PSN of the first request (ROCE-61).
    pub first: Psn,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Set if the peer may read (ROCE-105).
    pub remote_read: bool,
    /// Set if the peer may write.
    pub remote_write: bool,
    /// Set if the peer may use atomics.
    pub remote_atomic: bool,
    /// The time to wait where there is no receive (ROCE-106).
    pub rnr_timer: RnrTimer,
}

/// A message of several packets under way.
#[derive(Clone, Copy, Debug)]
enum Message {
    Send {
        receive: Receive,
        length: u32,
    },
    Write {
        /// Address of the next packet.
        remote: RemoteAddress,
        length: u32,
        done: u32,
    },
}

/// The acknowledgement to send after all pending responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    None,
    /// For the last PSN in order.
    Acknowledge,
    /// For the expected PSN.
    NotReady,
    /// For this PSN.
    Negative(Psn, NakCode),
}

/// The half of a queue pair that executes requests of the peer.
#[derive(Debug)]
pub struct Responder<'s> {
    options: ResponderOptions,
    resources: Slots<'s, ResourceSlot>,
    /// Reads and Atomics accepted so far; the next one takes this slot, modulo their number.
    accepted: u64,
    expected: Psn,
    /// Number of executed messages, 24 bits (ROCE-119).
    msn: u32,
    message: Option<Message>,
    reply: Reply,
    /// Set from a NAK 0 or RNR NAK until a packet comes in order (ROCE-101, ROCE-107).
    out_of_order: bool,
    /// The NAK that ended the connection (ROCE-123).
    fault: Option<NakCode>,
    ended: bool,
    counts: ResponderCounts,
}

impl<'s> Responder<'s> {
    /// Makes a responder that remembers as many Reads and Atomics as there are slots.
    pub fn new(options: ResponderOptions, resources: impl Into<Slots<'s, ResourceSlot>>) -> Self {
        let mut resources = resources.into();
        resources.fill(ResourceSlot::EMPTY);
        Self {
            resources,
            accepted: 0,
            expected: options.first,
            msn: 0,
            message: None,
            reply: Reply::None,
            out_of_order: false,
            fault: None,
            ended: false,
            counts: ResponderCounts::default(),
            options,
        }
    }

    /// Changes the rights of the peer.
    pub const fn set_rights(&mut self, read: bool, write: bool, atomic: bool) {
        self.options.remote_read = read;
        self.options.remote_write = write;
        self.options.remote_atomic = atomic;
    }

    /// Changes the time after which the peer repeats what found no receive.
    pub const fn set_not_ready_timer(&mut self, timer: RnrTimer) {
        self.options.rnr_timer = timer;
    }

    /// Returns the time after which the peer repeats what found no receive.
    pub const fn not_ready_timer(&self) -> RnrTimer {
        self.options.rnr_timer
    }

    /// Returns the QPN of the peer.
    pub const fn destination(&self) -> u32 {
        self.options.destination
    }

    /// Returns the NAK that ended the connection; the queue pair is in error if there is one.
    pub const fn fault(&self) -> Option<NakCode> {
        self.fault
    }

    /// Ends the responder: nothing is executed any more, and a receive that is under way completes.
    ///
    /// After a fault, the NAK is still sent; call this once [`transmit`](Self::transmit) has
    /// nothing left.
    pub fn end(&mut self) -> Option<ReceiveCompletion> {
        self.ended = true;
        if self.fault.is_none() {
            self.reply = Reply::None;
        }
        self.clear_responses();
        self.abort(ReceiveStatus::Flushed)
    }

    /// Returns the counts.
    pub const fn counts(&self) -> ResponderCounts {
        self.counts
    }

    /// Returns the PSN of the next request.
    pub const fn expected(&self) -> Psn {
        self.expected
    }

    /// Takes a request; returns the receive that it completes, if any.
    pub fn receive(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl RemoteMemory,
        receives: &mut impl ReceiveQueue,
    ) -> Option<ReceiveCompletion> {
        let opcode = packet.header.bth.opcode;
        if self.ended
            || opcode.is_response()
            || opcode.has_deth()
            || opcode == Opcode::CongestionNotification
        {
            return None;
        }
        let psn = packet.header.bth.psn;
        if psn == self.expected {
            return self.in_order(packet, memory, receives);
        }
        if psn.is_before(self.expected) {
            self.counts.duplicates = self.counts.duplicates.saturating_add(1);
            self.repeat(packet);
            return None;
        }
        self.counts.ahead = self.counts.ahead.saturating_add(1);
        if !self.out_of_order {
            self.out_of_order = true;
            self.reply = Reply::Negative(self.expected, NakCode::SequenceError);
        }
        None
    }

    /// Answers a packet that came before (ROCE-120 to ROCE-122).
    fn repeat(&mut self, packet: &Packet<'_>) {
        let psn = packet.header.bth.psn;
        let extensions = packet.header.extensions;
        let mtu = self.options.mtu;
        match (extensions.reth, packet.header.bth.opcode) {
            (Some(reth), Opcode::ReadRequest) => {
                let mut resources = self.resources.iter_mut();
                resources.any(|resource| resource.repeat_read(psn, reth, mtu));
            }
            (_, Opcode::CompareSwap | Opcode::FetchAdd) => {
                let mut resources = self.resources.iter_mut();
                resources.any(|resource| resource.repeat_atomic(psn));
            }
            // A NAK that waits acknowledges the same packets, and also names the missing one.
            _ if self.reply == Reply::None => self.reply = Reply::Acknowledge,
            _ => {}
        }
    }

    /// Ends the connection by a NAK at `psn`, and completes a receive that is under way.
    fn refuse(
        &mut self,
        psn: Psn,
        code: NakCode,
        status: ReceiveStatus,
    ) -> Option<ReceiveCompletion> {
        self.fault = Some(code);
        self.ended = true;
        self.reply = Reply::Negative(psn, code);
        self.abort(status)
    }

    /// Gives up the message under way.
    fn abort(&mut self, status: ReceiveStatus) -> Option<ReceiveCompletion> {
        match self.message.take() {
            Some(Message::Send { receive, length }) => Some(ReceiveCompletion {
                token: receive.token,
                status,
                length,
                beside: Beside::Nothing,
                is_write: false,
                solicited: false,
            }),
            Some(Message::Write { .. }) | None => None,
        }
    }

    fn clear_responses(&mut self) {
        for resource in &mut *self.resources {
            resource.pending = None;
        }
    }
}
