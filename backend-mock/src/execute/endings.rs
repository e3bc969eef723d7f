//! Ends of requests, receives and connections at a queue pair.

use dat_core::backend::Completion;
use dat_core::flags::DtoStatus;

use crate::objects::queue_pair::{Ending, Notice, ReceiveEntry, State, Work};
use crate::world::World;

impl World {
    /// Delivers the completion of a request to its queue.
    fn complete_request(&mut self, key: u32, token: u64, status: DtoStatus, length: u32) {
        if let Some(queue_pair) = self.queue_pairs.get(key) {
            let completion = Completion {
                token,
                status,
                length,
                queue_pair: queue_pair.token,
                solicited: false,
            };
            let (adapter, queue) = (queue_pair.adapter, queue_pair.request_queue);
            self.add_completion(adapter, queue, key, completion, None);
        }
    }

    /// Completes a receive, with the immediate data that came with it, and frees its place.
    pub(crate) fn complete_receive(
        &mut self,
        key: u32,
        buffer: ReceiveEntry,
        status: DtoStatus,
        length: u32,
        solicited: bool,
        immediate: Option<u32>,
    ) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let completion = Completion {
            token: buffer.token,
            status,
            length,
            queue_pair: queue_pair.token,
            solicited,
        };
        let (adapter, queue) = (queue_pair.adapter, queue_pair.receive_queue);
        match queue_pair.shared {
            None => queue_pair.recycle(buffer.segments),
            Some(shared) => self.give_back_shared(adapter, shared, buffer.segments),
        }
        self.add_completion(adapter, queue, key, completion, immediate);
    }

    /// Completes the ended requests at the head, in posting order (`Spec: DTO-11`).
    ///
    /// The first failure ends the connection (`Spec: DTO-12`).
    pub(crate) fn retire(&mut self, key: u32) {
        while let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            let Some((status, true)) = queue_pair
                .sends
                .front()
                .and_then(|entry| Some((entry.outcome?, entry.answered)))
            else {
                return;
            };
            let Some(entry) = queue_pair.sends.pop_front() else {
                return;
            };
            queue_pair.first += 1;
            queue_pair.started = queue_pair.started.saturating_sub(1);
            let (token, length) = (entry.token, entry.length);
            queue_pair.recycle(entry.segments);
            self.complete_request(key, token, status, length);
            if status != DtoStatus::Success {
                self.break_connection(key);
                return;
            }
        }
    }

    /// Breaks a connection; both ends get an event.
    pub(crate) fn break_connection(&mut self, key: u32) {
        self.end_connection(key, Some(Ending::Broken), Ending::Broken);
    }

    /// Ends a connection or an attempt from this end.
    pub(crate) fn end_connection(&mut self, key: u32, here: Option<Ending>, there: Ending) {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return;
        };
        if matches!(queue_pair.state, State::Connected | State::Accepting) {
            self.tell_peer_of_end(key, there);
        }
        self.fail_queue_pair(key, here.map(Notice::Ended));
    }

    /// Puts a queue pair into the error state, flushes it and reports the notice.
    pub(crate) fn fail_queue_pair(&mut self, key: u32, notice: Option<Notice>) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        if queue_pair.state == State::Error {
            return;
        }
        queue_pair.state = State::Error;
        let (adapter, token) = (queue_pair.adapter, queue_pair.token);
        self.flush_requests(key);
        self.flush_receives(key);
        if let Some(notice) = notice {
            self.raise(adapter, notice.event(token));
        }
    }

    /// Completes all requests of the send queue.
    ///
    /// Requests that are done keep their status, up to the first failure; the others are flushed.
    pub(crate) fn flush_requests(&mut self, key: u32) {
        let mut failed = false;
        while let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            let Some(entry) = queue_pair.sends.pop_front() else {
                queue_pair.started = 0;
                queue_pair.reads_out = 0;
                queue_pair.binding = 0;
                return;
            };
            queue_pair.first += 1;
            let status = match entry.outcome {
                Some(status) if !failed => status,
                _ => DtoStatus::Flushed,
            };
            failed |= status != DtoStatus::Success;
            let adapter = queue_pair.adapter;
            let (token, length) = (entry.token, entry.length);
            queue_pair.recycle(entry.segments);
            if let (Work::Bind(_, new_key), None) = (entry.work, entry.outcome) {
                self.adapters[adapter].memories.remote_keys.remove(new_key);
            }
            self.complete_request(key, token, status, length);
        }
    }

    /// Flushes the receive queue (`Spec: SRQR-38..40`).
    ///
    /// Of a shared receive queue, it flushes only the buffers that this queue pair has taken.
    pub(crate) fn flush_receives(&mut self, key: u32) {
        while let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            let buffer = match queue_pair.arrivals.pop_front() {
                Some(arrival) => arrival.buffer,
                None => match queue_pair.receives.pop_front() {
                    Some(buffer) => buffer,
                    None => return,
                },
            };
            self.complete_receive(key, buffer, DtoStatus::Flushed, 0, false, None);
        }
    }

    /// Empties both queues without completions, and removes the unpolled ones.
    pub(crate) fn clear_queues(&mut self, key: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let adapter = queue_pair.adapter;
        let shared = queue_pair.shared;
        let arrivals = core::mem::take(&mut queue_pair.arrivals);
        let sends = core::mem::take(&mut queue_pair.sends);
        queue_pair.receives.clear();
        queue_pair.first += sends.len() as u64;
        queue_pair.started = 0;
        queue_pair.reads_out = 0;
        queue_pair.binding = 0;
        for entry in sends {
            if let (Work::Bind(_, new_key), None) = (entry.work, entry.outcome) {
                self.adapters[adapter].memories.remote_keys.remove(new_key);
            }
        }
        if let Some(shared) = shared {
            for arrival in arrivals {
                self.give_back_shared(adapter, shared, arrival.buffer.segments);
            }
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        for number in queue_pair.completion_queues() {
            let last = queue_pair.last_completion(number).map(core::mem::take);
            if let Some(ring) = self.adapters[adapter].completion_queue(number) {
                ring.forget(key, last.unwrap_or(0));
            }
        }
    }

    /// Adds a queue pair to the users of its completion queues, or removes it.
    pub(crate) fn use_completion_queues(&mut self, key: u32, uses: bool) {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return;
        };
        let adapter = &mut self.adapters[queue_pair.adapter];
        for number in queue_pair.completion_queues() {
            match adapter.completion_queue(number) {
                Some(ring) if uses => ring.users.insert(key),
                Some(ring) => ring.users.swap_remove(&key),
                None => false,
            };
        }
    }
}
