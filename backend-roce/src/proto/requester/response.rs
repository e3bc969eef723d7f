//! Responses to a requester.

use dat_core::time::Instant;

use super::{FOREVER, Operation, Requester, Status};
use crate::proto::Psn;
use crate::proto::memory::RequestMemory;
use crate::proto::packet::{Aeth, NakCode, Opcode, Packet, RnrTimer, Syndrome};
use crate::proto::time::later;

impl Requester<'_> {
    /// Takes an acknowledgement or a response; other packets are ignored.
    pub fn receive(&mut self, now: Instant, packet: &Packet<'_>, memory: &mut impl RequestMemory) {
        let psn = packet.header.bth.psn;
        let under_way = self.sent.since(self.unacknowledged);
        if self.ended || psn.since(self.unacknowledged) >= under_way {
            return;
        }
        let before = self.unacknowledged;
        let opcode = packet.header.bth.opcode;
        match (opcode, packet.header.extensions.aeth) {
            (Opcode::Acknowledge, Some(aeth)) => self.acknowledgement(now, psn, aeth),
            (Opcode::AtomicAcknowledge, _) => {
                let original = packet.header.extensions.original.unwrap_or_default();
                self.data(psn, &original.to_ne_bytes(), memory, true);
            }
            _ if opcode.is_read_response() => self.data(psn, packet.payload, memory, false),
            _ => return,
        }
        self.note_progress(now, before);
    }

    fn acknowledgement(&mut self, now: Instant, psn: Psn, aeth: Aeth) {
        match aeth.syndrome {
            Syndrome::Acknowledgement => {
                if let Err(missing) = self.acknowledge(psn.plus(1)) {
                    self.repair(missing);
                }
            }
            Syndrome::Negative(NakCode::SequenceError) => {
                let missing = self.acknowledge(psn).err().unwrap_or(psn);
                self.lose();
                self.go_back(missing);
            }
            Syndrome::Negative(code) => {
                // Responses that are missing before the refused request will not come any more.
                let _ = self.acknowledge(psn);
                let status = match code {
                    NakCode::RemoteAccess => Status::RemoteAccess,
                    NakCode::RemoteOperational => Status::RemoteOperational,
                    NakCode::InvalidRequest | NakCode::SequenceError => {
                        Status::RemoteInvalidRequest
                    }
                };
                self.fail(self.find(psn).position, status);
            }
            Syndrome::ReceiverNotReady(timer) => self.not_ready(now, psn, timer),
            Syndrome::Unknown(_) => {}
        }
    }

    fn not_ready(&mut self, now: Instant, psn: Psn, timer: RnrTimer) {
        if let Err(missing) = self.acknowledge(psn) {
            self.repair(missing);
            return;
        }
        // A repetition of the network, or an answer to a packet sent before this wait.
        if self.resume.is_some() {
            return;
        }
        self.counts.not_ready = self.counts.not_ready.saturating_add(1);
        if self.options.rnr_retry_count != FOREVER {
            let Some(left) = self.not_ready_left.checked_sub(1) else {
                self.fail(self.find(psn).position, Status::RnrRetryExceeded);
                return;
            };
            self.not_ready_left = left;
        }
        self.timeouts_left = self.options.retry_count;
        self.go_back(psn);
        self.resume = Some(later(now, timer.micros()));
        self.deadline = None;
    }

    /// Takes the data of one response (ROCE-74).
    fn data(&mut self, psn: Psn, data: &[u8], memory: &mut impl RequestMemory, atomic: bool) {
        if let Err(missing) = self.acknowledge(psn) {
            self.repair(missing);
            return;
        }
        let position = self.open;
        let Some(slot) = self.slot(position).copied() else {
            return;
        };
        let is_atomic = matches!(slot.request.operation, Operation::Atomic { .. });
        if !slot.lacks_data() || slot.first.plus(slot.received) != psn {
            return;
        }
        let mtu = self.options.mtu;
        let expected = mtu.payload(slot.request.length, slot.received);
        if is_atomic != atomic || data.len() as u64 != u64::from(expected) {
            self.fail(position, Status::BadResponse);
            return;
        }
        let offset = mtu.offset(slot.received);
        let token = slot.request.token;
        if !data.is_empty() && memory.scatter(token, offset, data).is_err() {
            self.fail(position, Status::LocalProtection);
            return;
        }
        if let Some(slot) = self.slot_mut(position) {
            slot.received = slot.received.saturating_add(1);
        }
        // Data is complete up to here, so that this finds no gap.
        let _ = self.acknowledge(psn.plus(1));
    }

    /// Completes what ends before `end`; returns the PSN of a response that is missing before it.
    fn acknowledge(&mut self, end: Psn) -> Result<(), Psn> {
        let before = self.unacknowledged;
        let outcome = self.acknowledge_open(end);
        if self.unacknowledged != before {
            self.repairing = false;
            self.timeouts_left = self.options.retry_count;
            self.not_ready_left = self.options.rnr_retry_count;
        }
        outcome
    }

    fn acknowledge_open(&mut self, end: Psn) -> Result<(), Psn> {
        for position in self.open..self.assigned {
            let covered = end.since(self.unacknowledged);
            let Some(slot) = self.slot(position).copied() else {
                break;
            };
            if covered == 0 {
                break;
            }
            let rest = slot.end().since(self.unacknowledged);
            if slot.lacks_data() {
                let missing = slot.first.plus(slot.received);
                let before = missing.since(self.unacknowledged);
                self.unacknowledged = self.unacknowledged.plus(before.min(covered));
                return if before < covered {
                    Err(missing)
                } else {
                    Ok(())
                };
            }
            if rest > covered {
                self.unacknowledged = end;
                break;
            }
            self.unacknowledged = slot.end();
            self.open = position.saturating_add(1);
            let returned_data = slot.request.operation.returns_data();
            self.reading = self.reading.saturating_sub(u8::from(returned_data));
        }
        Ok(())
    }

    /// Adjusts cursor, window and timer if there was progress since `before` was the oldest PSN.
    fn note_progress(&mut self, now: Instant, before: Psn) {
        let packets = self.unacknowledged.since(before);
        if packets == 0 || self.ended {
            return;
        }
        if self.cursor_psn().is_before(self.unacknowledged) {
            self.cursor = self.find(self.unacknowledged);
        }
        self.window.grow(packets);
        if self.resume.is_none() {
            self.start_timer(now);
        }
    }

    /// Asks again from a response that was lost, once until there is progress (ROCE-73).
    fn repair(&mut self, missing: Psn) {
        if !self.repairing {
            self.lose();
            self.go_back(missing);
        }
    }

    /// Counts a loss; shrinks the window unless it was shrunk since the last progress.
    fn lose(&mut self) {
        self.counts.losses = self.counts.losses.saturating_add(1);
        if !self.repairing {
            self.repairing = true;
            self.window.shrink();
        }
    }
}
