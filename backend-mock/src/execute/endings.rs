//! Ends of requests, receives and connections at a queue pair.

use dat_core::backend::SharedReceiveQueueKey;
use dat_core::flags::DtoStatus;
use dat_queues::{Receive, Request, State, Work};

use crate::objects::queue_pair::{Ending, Notice};
use crate::world::World;

impl World {
    /// Delivers the completion of a request to its queue.
    fn complete_request(&mut self, key: u32, request: &Request, status: DtoStatus) {
        if let Some(queue_pair) = self.queue_pairs.get(key) {
            let setup = queue_pair.setup;
            let entry = setup.request_done(key, request, status);
            self.add_completion(queue_pair.adapter, setup.request_queue, entry);
        }
    }

    /// Completes a receive, with the immediate data that came with it, and frees its place.
    pub(crate) fn complete_receive(
        &mut self,
        key: u32,
        buffer: &Receive,
        status: DtoStatus,
        length: u32,
        solicited: bool,
        immediate: Option<u32>,
    ) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let (adapter, setup) = (queue_pair.adapter, queue_pair.setup);
        self.give_back(adapter, setup.shared);
        let mut entry = setup.receive_done(key, buffer.token, status, length);
        entry.completion.solicited = solicited;
        entry.immediate = immediate;
        self.add_completion(adapter, setup.receive_queue, entry);
    }

    /// Counts a receive that is complete, if it is of a shared queue.
    fn give_back(&mut self, adapter: usize, shared: Option<SharedReceiveQueueKey>) {
        let queues = &mut self.adapters[adapter].shared_receives;
        if let Some(queue) = shared.and_then(|key| queues.get_mut(key.0 as u32)) {
            queue.complete();
        }
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
            self.complete_request(key, &entry.request, status);
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
        let (adapter, token) = (queue_pair.adapter, queue_pair.setup.token);
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
            if let (Work::Bind(_, new_key), None) = (entry.request.work, entry.outcome) {
                self.adapters[adapter].memories.remote_keys.remove(new_key);
            }
            self.complete_request(key, &entry.request, status);
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
            self.complete_receive(key, &buffer, DtoStatus::Flushed, 0, false, None);
        }
    }

    /// Empties both queues without completions, and removes the unpolled ones.
    pub(crate) fn clear_queues(&mut self, key: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let adapter = queue_pair.adapter;
        let setup = queue_pair.setup;
        let arrivals = core::mem::take(&mut queue_pair.arrivals);
        let sends = core::mem::take(&mut queue_pair.sends);
        queue_pair.receives.clear();
        queue_pair.first += sends.len() as u64;
        queue_pair.started = 0;
        queue_pair.reads_out = 0;
        queue_pair.binding = 0;
        for entry in sends {
            if let (Work::Bind(_, new_key), None) = (entry.request.work, entry.outcome) {
                self.adapters[adapter].memories.remote_keys.remove(new_key);
            }
        }
        for _ in arrivals {
            self.give_back(adapter, setup.shared);
        }
        for number in setup.completion_queues() {
            if let Some(queue) = self.adapters[adapter].completion_queue(number) {
                queue.forget(key);
            }
        }
    }

    /// Adds a queue pair to the users of its completion queues, or removes it.
    pub(crate) fn use_completion_queues(&mut self, key: u32, uses: bool) {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return;
        };
        let queues = &mut self.adapters[queue_pair.adapter].completion_queues;
        queues.set_user(key, &queue_pair.setup, uses);
    }
}
