//! Outcomes of requests and receives: completions, and limits of buffers.

use dat_core::backend::{Completion, ControlEvent};
use dat_core::flags::DtoStatus;

use super::completions::Kind;
use super::queue_pair::receive_status;
use super::{Adapter, SendEntry, Work};
use crate::proto::queue_pair::QueuePair;
use crate::proto::responder::ReceiveCompletion;

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
            let status = entry.status(done.status);
            self.complete_request(key, &entry, status);
        }
    }

    pub(super) fn complete_request(&mut self, key: usize, entry: &SendEntry, status: DtoStatus) {
        if let Work::Bind(_, window_key) = entry.work
            && status == DtoStatus::Flushed
        {
            self.memories.cancel_bind(window_key);
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if matches!(entry.work, Work::Probe) {
            pair.probes -= 1;
            return;
        }
        let completion = pair.completion(entry.token, status, entry.length);
        let queue = pair.request_queue;
        self.add_completion(queue, key, completion, None, Kind::Request);
    }

    pub(super) fn complete_receive(&mut self, key: usize, done: &ReceiveCompletion) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let taken = pair.current.take().is_some();
        let status = receive_status(done.status);
        let completion = Completion {
            solicited: done.solicited,
            ..pair.completion(done.token, status, done.length)
        };
        let (queue, shared_key) = (pair.receive_queue, pair.shared);
        if let Some(shared) = shared_key.and_then(|shared| self.shared_receives.get_mut(shared)) {
            shared.taken -= usize::from(taken);
        }
        let immediate = done.immediate.map(u32::from_ne_bytes);
        let kind = match shared_key {
            Some(_) => Kind::SharedReceive,
            None => Kind::Receive,
        };
        self.add_completion(queue, key, completion, immediate, kind);
    }

    /// Acts on the limits of receive buffers that a queue pair exceeds with `held` of them.
    pub(crate) fn check_watermarks(&mut self, key: usize, held: u32) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let queue_pair = pair.token;
        let hard = pair.hard_watermark.is_some_and(|limit| held > limit);
        if pair.soft_watermark.is_some_and(|limit| held > limit) {
            pair.soft_watermark = None;
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
        shared.check_limit();
        if core::mem::take(&mut shared.is_low) {
            let queue = shared.token;
            self.raise(ControlEvent::SharedReceiveLimit { queue });
        }
    }
}
