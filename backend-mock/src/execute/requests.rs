//! Requests, from their start to their answer.

use dat_core::backend::SendFlags;
use dat_core::flags::DtoStatus;
use dat_queues::{State, Work};

use crate::fault::RemoteError;
use crate::objects::action::Action;
use crate::objects::queue_pair::QueuePair;
use crate::world::World;

/// Outcome of the attempt to start a request.
pub(crate) enum Attempt {
    /// It moved a chunk, and has more to move.
    Moving,
    /// It started and ended with this status.
    Ended(DtoStatus),
    /// It started; its outcome comes later.
    Started,
    /// It started; its message is at this queue pair already.
    Arrived(u32),
    /// An earlier request has to finish first.
    Blocked,
    /// The target had no receive buffer.
    NotReady,
    /// The target did not answer.
    Silence,
}

impl World {
    /// Schedules the start of a queue pair's next request, if possible and not done yet.
    pub(crate) fn kick(&mut self, key: u32) {
        let latency = self.draw(&self.options.latency.clone());
        self.start_after(key, latency);
    }

    fn start_after(&mut self, key: u32, delay: u64) {
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let waits = queue_pair.started < queue_pair.sends.len();
        if queue_pair.state != State::Connected || queue_pair.ticking || queue_pair.halted || !waits
        {
            return;
        }
        queue_pair.ticking = true;
        let at = now.saturating_add(delay).max(queue_pair.last_arrival);
        queue_pair.last_arrival = at;
        let connection = queue_pair.connection;
        self.plan(at, Action::Start { key, connection });
    }

    /// Starts the next request of a queue pair.
    pub(crate) fn start(&mut self, key: u32, connection: u64) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        if queue_pair.connection != connection || queue_pair.state != State::Connected {
            return;
        }
        queue_pair.ticking = false;
        let number = queue_pair.first + queue_pair.started as u64;
        match self.attempt(key, number) {
            Attempt::Blocked => return,
            Attempt::Moving => {
                if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
                    queue_pair.ticking = true;
                }
                self.plan(self.now, Action::Start { key, connection });
                return;
            }
            Attempt::Silence => {
                let (interval, limit) = (self.options.retry_interval, self.options.retries);
                if self.count_retry(key, interval, limit, |queue_pair| &mut queue_pair.retries) {
                    return;
                }
                self.note_outage_of(key);
                self.ended(key, number, DtoStatus::Transport);
            }
            Attempt::NotReady => {
                let interval = self.options.receiver_not_ready_interval;
                let limit = self.options.receiver_not_ready_retries;
                if self.count_retry(key, interval, limit, |queue_pair| {
                    &mut queue_pair.receiver_not_ready
                }) {
                    return;
                }
                self.note_not_ready(key);
                self.ended(key, number, DtoStatus::ReceiverNotReady);
            }
            Attempt::Started => self.mark_started(key),
            Attempt::Arrived(target) => {
                self.mark_started(key);
                self.place_message(target, connection);
            }
            Attempt::Ended(status) => self.ended(key, number, status),
        }
        let latency = &self.options.latency;
        let jitter = 0..=latency.end().saturating_sub(*latency.start());
        let jitter = self.draw(&jitter);
        self.start_after(key, jitter);
    }

    /// Notes the fault, if one made a sender give up its receiver as not ready.
    fn note_not_ready(&mut self, key: u32) {
        let end = self.connection_end(key);
        let target = end.and_then(|end| self.adapters.get(usize::from(end.to)));
        if let Some(fault) = target.and_then(|target| target.refusing.clone()) {
            self.faults.note(fault, end);
        }
    }

    fn mark_started(&mut self, key: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            queue_pair.started += 1;
            queue_pair.retries = 0;
            queue_pair.receiver_not_ready = 0;
        }
    }

    /// Handles a request that ended when it started.
    fn ended(&mut self, key: u32, number: u64, status: DtoStatus) {
        self.mark_started(key);
        self.answer_later(key, number, status);
    }

    /// Schedules a retry; returns false if the retries are used up.
    fn count_retry(
        &mut self,
        key: u32,
        interval: u64,
        limit: u32,
        counter: impl FnOnce(&mut QueuePair) -> &mut u32,
    ) -> bool {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return true;
        };
        let connection = queue_pair.connection;
        let retries = counter(queue_pair);
        *retries = retries.saturating_add(1);
        if *retries > limit {
            return false;
        }
        queue_pair.ticking = true;
        let at = self.now.saturating_add(interval);
        self.plan(at, Action::Start { key, connection });
        true
    }

    fn attempt(&mut self, key: u32, number: u64) -> Attempt {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return Attempt::Blocked;
        };
        let Some(entry) = queue_pair.sends.get(queue_pair.started) else {
            return Attempt::Blocked;
        };
        if (queue_pair.binding != 0 && !entry.request.overtakes_binds)
            || (entry.request.flags.contains(SendFlags::FENCE) && queue_pair.reads_out > 0)
        {
            return Attempt::Blocked;
        }
        let work = entry.request.work;
        let first_try =
            queue_pair.retries == 0 && queue_pair.receiver_not_ready == 0 && entry.moved == 0;
        let adapter = queue_pair.adapter;
        let connection = queue_pair.connection;
        let reads_out = queue_pair.reads_out;
        let reads_out_limit = queue_pair.setup.reads_out;
        if let Work::Bind(..) = work {
            let latency = self.draw(&self.options.bind_latency.clone());
            if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
                queue_pair.binding += 1;
            }
            let action = Action::Bound {
                key,
                connection,
                number,
            };
            let at = self.now.saturating_add(latency);
            self.plan(at, action);
            return Attempt::Started;
        }
        if let Work::Read(_) | Work::Atomic(..) = work {
            if reads_out_limit == 0 {
                return Attempt::Ended(DtoStatus::LocalEndpoint);
            }
            if reads_out >= reads_out_limit {
                return Attempt::Blocked;
            }
        }
        if first_try && let Some(error) = self.remote_error(adapter) {
            let end = self.connection_end(key);
            self.faults.note_connection(end);
            return Attempt::Ended(match error {
                RemoteError::Access => DtoStatus::RemoteAccess,
                RemoteError::Responder => DtoStatus::RemoteResponder,
                RemoteError::BadResponse => DtoStatus::BadResponse,
                RemoteError::Silence => DtoStatus::Transport,
            });
        }
        let Some(target) = self.reach(key) else {
            return Attempt::Silence;
        };
        match work {
            Work::Send => self.send(key, number, target),
            Work::Write(range) => match self.write(key, target, range) {
                Some(status) => Attempt::Ended(status),
                None => Attempt::Moving,
            },
            Work::Read(range) => self.read(key, number, target, range),
            Work::WriteImmediate(range, immediate) => {
                self.write_immediate(key, number, target, range, immediate)
            }
            Work::Atomic(range, change) => self.atomic(key, number, target, range, change),
            Work::Bind(..) => Attempt::Blocked,
        }
    }

    fn remote_error(&mut self, adapter: usize) -> Option<RemoteError> {
        let count = self.adapters[adapter].operations;
        self.adapters[adapter].operations = count.wrapping_add(1);
        self.faults.remote_error(adapter as u16, count)
    }

    /// Returns the other end of a connection, if it can be reached now.
    pub(super) fn reach(&mut self, key: u32) -> Option<u32> {
        let queue_pair = self.queue_pairs.get(key)?;
        let target_key = queue_pair.peer?;
        let target = self.queue_pairs.get(target_key)?;
        if target.connection != queue_pair.connection {
            return None;
        }
        let ends = (queue_pair.adapter, target.adapter);
        let state = target.state;
        if !self.passes(self.adapters[ends.0].node, self.adapters[ends.1].node) {
            return None;
        }
        match state {
            State::Connected => Some(target_key),
            State::Accepting => {
                // The first data establishes the accepting side, as *Ready* would.
                self.establish(target_key);
                Some(target_key)
            }
            State::Unconnected | State::Connecting | State::Error => None,
        }
    }

    /// Performs a bind (`Spec: RMB-18, RMB-22`).
    pub(crate) fn bound(&mut self, key: u32, connection: u64, number: u64) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        if queue_pair.connection != connection || queue_pair.state != State::Connected {
            return;
        }
        let (adapter, domain) = (queue_pair.adapter, queue_pair.setup.domain);
        let Some(Work::Bind(request, new_key)) =
            queue_pair.request(number).map(|entry| entry.request.work)
        else {
            return;
        };
        queue_pair.binding = queue_pair.binding.saturating_sub(1);
        let memories = &mut self.adapters[adapter].memories;
        let status = if memories.bind(&request, new_key, domain) {
            DtoStatus::Success
        } else {
            DtoStatus::RmrOperationFailed
        };
        self.end(key, number, status);
        self.kick(key);
    }

    /// Ends a request with a status that its own device knows at once.
    pub(super) fn end(&mut self, key: u32, number: u64, status: DtoStatus) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            queue_pair.halted |= status != DtoStatus::Success;
            if let Some(entry) = queue_pair.request(number) {
                entry.outcome = Some(status);
                entry.answered = true;
            }
        }
        self.retire(key);
    }

    /// Ends a request at the target, and sends the answer to the sender.
    pub(super) fn answer_later(&mut self, key: u32, number: u64, status: DtoStatus) {
        let latency = self.draw(&self.options.latency.clone());
        if latency == 0 {
            self.end(key, number, status);
            return;
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        queue_pair.halted |= status != DtoStatus::Success;
        let connection = queue_pair.connection;
        if let Some(entry) = queue_pair.request(number) {
            entry.outcome = Some(status);
        }
        let action = Action::Answer {
            key,
            connection,
            number,
        };
        let at = self.now.saturating_add(latency);
        self.plan(at, action);
    }

    /// Handles the answer of a request at the sender's device.
    pub(crate) fn answer(&mut self, key: u32, connection: u64, number: u64) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        if queue_pair.connection != connection || queue_pair.state != State::Connected {
            return;
        }
        if let Some(entry) = queue_pair.request(number) {
            entry.answered = true;
        }
        self.retire(key);
    }
}
