//! Outcomes of requests and receives: completions, and limits of buffers.

use dat_core::backend::{ControlEvent, SharedReceiveQueueKey};
use dat_core::flags::DtoStatus;
use dat_queues::{Detail, Opcode};

use super::queue_pair::receive_status;
use super::{Adapter, SendEntry};
use crate::proto::queue_pair::QueuePair;
use crate::proto::requester::Status;
use crate::proto::responder::{Beside, ReceiveCompletion};

impl Adapter {
    /// Moves the completions of the transport to the completion queue.
    pub(super) fn take_completions(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            let Some(done) = pair.transport.as_mut().and_then(QueuePair::poll) else {
                return;
            };
            let Some(entry) = pair.sends.pop_front() else {
                return;
            };
            pair.first += 1;
            pair.peer_failed |= done.status == Status::RemoteOperational;
            let status = entry.status(done.status);
            self.complete_request(key, &entry, status);
        }
    }

    #[inline(always)]
    pub(super) fn complete_request(&mut self, key: usize, entry: &SendEntry, status: DtoStatus) {
        if status == DtoStatus::Flushed
            && let Some(drawn) = entry.drawn_key()
        {
            self.memories.cancel_bind(drawn);
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if entry.is_probe {
            pair.probes -= 1;
            return;
        }
        // An error is reported in any case (ROCE-265).
        if entry.is_silent && status == DtoStatus::Success {
            return;
        }
        let setup = pair.setup;
        let mut done = setup.request_done(key, &entry.request, status);
        if pair.peer_failed {
            done.detail = Detail::PeerFailed;
        }
        if done.opcode == Opcode::Bind && entry.is_invalidation() {
            done.opcode = Opcode::Invalidate;
        }
        self.add_completion(setup.request_queue, done);
    }

    pub(super) fn complete_receive(&mut self, key: usize, done: &ReceiveCompletion) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let taken = pair.current.take().is_some();
        let status = receive_status(done.status);
        let (setup, user) = (pair.setup, pair.user());
        if taken {
            self.give_back(setup.shared);
        }
        let mut entry = setup.receive_done(key, done.token, status, done.length);
        entry.completion.solicited = done.solicited;
        if done.is_write {
            entry.opcode = Opcode::ReceiveWrite;
        }
        match done.beside {
            Beside::Nothing => {}
            Beside::Immediate(bytes) => entry.immediate = Some(u32::from_ne_bytes(bytes)),
            Beside::Invalidation(key) => {
                // The responder has checked it under the same lock.
                let _ended = self.memories.invalidate(key, user);
                (entry.immediate, entry.detail) = (Some(key), Detail::Invalidated);
            }
        }
        self.add_completion(setup.receive_queue, entry);
    }

    /// Counts a receive that is complete, if it is of a shared queue.
    pub(super) fn give_back(&mut self, shared: Option<SharedReceiveQueueKey>) {
        if let Some(queue) = shared.and_then(|key| self.shared_receives.get_mut(key.0)) {
            queue.complete();
        }
    }

    /// Acts on the limits of receive buffers that a queue pair exceeds with `held` of them.
    pub(crate) fn check_watermarks(&mut self, key: usize, held: u32) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let queue_pair = pair.setup.token;
        let (soft, hard) = pair.watermarks.exceeded(held);
        if soft {
            let event = ControlEvent::SoftHighWatermark { queue_pair };
            if !self.control.contains(&event) {
                self.raise(event);
            }
        }
        if hard {
            self.break_pair(key);
        }
    }

    /// Raises the limit event of a shared receive queue if it is due.
    pub(crate) fn check_limit(&mut self, key: usize) {
        let Some(shared) = self.shared_receives.get_mut(key) else {
            return;
        };
        if shared.falls_below_limit() {
            let queue = shared.token;
            self.raise(ControlEvent::SharedReceiveLimit { queue });
        }
    }
}
