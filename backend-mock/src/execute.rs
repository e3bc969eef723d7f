//! Execution of requests: the sender's device, the wire and the target's device.
//!
//! Requests of one queue pair start in posting order, one after another, and act at the target in
//! that order. A request has *started* when it acted there; an RDMA Read, when the target admitted
//! it. It has an *outcome* when it is done at the target. It is *answered* when the sender's device
//! knows the outcome. Then it retires, in posting order.
//!
//! Data moves in chunks, as in packets; each chunk is an action. So a long transfer does not delay
//! all others. Rights are checked for each chunk, so memory is not touched after its rights are
//! taken away.

mod message;

use dat_core::backend::{RemoteRange, SendFlags};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::chunk::{self, CHUNK, part_of};
use crate::fault::RemoteError;
use crate::queue_pair::{State, Work};
use crate::unmaintained;
use crate::world::{Action, World};

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
        counter: impl FnOnce(&mut crate::queue_pair::QueuePair) -> &mut u32,
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
        if (queue_pair.binding != 0 && !entry.overtakes_binds)
            || (entry.flags.contains(SendFlags::FENCE) && queue_pair.reads_out > 0)
        {
            return Attempt::Blocked;
        }
        let work = entry.work;
        let first_try =
            queue_pair.retries == 0 && queue_pair.receiver_not_ready == 0 && entry.moved == 0;
        let adapter = queue_pair.adapter;
        let connection = queue_pair.connection;
        let reads_out = queue_pair.reads_out;
        let reads_out_limit = queue_pair.reads_out_limit;
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
    fn reach(&mut self, key: u32) -> Option<u32> {
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

    /// Moves a chunk of an RDMA Write; returns the status once nothing is left
    /// (`Spec: EPW-10, EPW-11, EPW-39, EPW-41`).
    pub(crate) fn write(&mut self, key: u32, target: u32, range: RemoteRange) -> Option<DtoStatus> {
        let World {
            queue_pairs,
            adapters,
            nodes,
            ..
        } = self;
        let target = queue_pairs.get(target);
        let Some((target, target_domain)) = target.map(|target| (target.adapter, target.domain))
        else {
            return Some(DtoStatus::Transport);
        };
        let Some(source) = queue_pairs.get_mut(key) else {
            return Some(DtoStatus::Transport);
        };
        let Some(entry) = source.sends.get_mut(source.started) else {
            return Some(DtoStatus::LocalEndpoint);
        };
        let from = &adapters[source.adapter].memories;
        let right = MemoryPrivileges::LOCAL_READ;
        if !from.all_local(&entry.segments, source.domain, right) {
            return Some(DtoStatus::LocalProtection);
        }
        if entry.length == 0 {
            return Some(DtoStatus::Success);
        }
        let length = u64::from(entry.length);
        let to = &adapters[target];
        let right = MemoryPrivileges::REMOTE_WRITE;
        let Some(space) = to.memories.remote(range, length, target_domain, right) else {
            return Some(DtoStatus::RemoteAccess);
        };
        let from_node = adapters[source.adapter].node;
        let count = chunk::length(
            entry.length,
            &entry.segments,
            &[chunk::segment(range, entry.length)],
        );
        let mut offset = entry.moved as usize;
        for segment in part_of(&entry.segments, entry.moved, count) {
            let address = range.address.wrapping_add(offset as u64);
            let right = MemoryPrivileges::LOCAL_READ;
            let Some(chunk) = from.local(&segment, source.domain, right) else {
                return Some(DtoStatus::LocalProtection);
            };
            let Some(target_span) = space.part(offset, chunk.length()) else {
                return Some(DtoStatus::RemoteAccess);
            };
            let view = nodes[from_node].coherence.as_ref();
            if unmaintained::is_apart(view) {
                let bytes = unmaintained::exposed(view, segment.address, chunk);
                let view = nodes[to.node].coherence.as_mut();
                unmaintained::write_exposed(view, address, target_span, &bytes);
            } else {
                match &mut nodes[to.node].coherence {
                    Some(coherence) => coherence.write(address, chunk),
                    None => target_span.copy_from(chunk),
                }
            }
            offset += chunk.length();
        }
        entry.moved = entry.moved.saturating_add(count).min(entry.length);
        (entry.moved == entry.length).then_some(DtoStatus::Success)
    }

    /// Handles an RDMA Read at its target (`Spec: EPB-05`).
    fn read(&mut self, key: u32, number: u64, target: u32, range: RemoteRange) -> Attempt {
        if let Some(refusal) = self.read_refused(key, number, target, range) {
            return Attempt::Ended(refusal);
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return Attempt::Blocked;
        };
        queue_pair.reads_out += 1;
        let connection = queue_pair.connection;
        let one_chunk = queue_pair
            .request(number)
            .is_none_or(|entry| entry.length <= CHUNK);
        let latency = self
            .draw(&self.options.latency.clone())
            .saturating_add(self.draw(&self.options.read_latency.clone()));
        // A read may return the data of now or of the time of its answer; the seed decides.
        let placed = (latency == 0 || self.coin()) && one_chunk;
        if placed {
            self.place_read(key, number, target, range);
        }
        let action = Action::Response {
            key,
            connection,
            number,
            placed,
        };
        let at = self.now.saturating_add(latency);
        self.plan(at, action);
        Attempt::Started
    }

    fn read_refused(
        &self,
        key: u32,
        number: u64,
        target: u32,
        range: RemoteRange,
    ) -> Option<DtoStatus> {
        let source = self.queue_pairs.get(key)?;
        let target = self.queue_pairs.get(target)?;
        let index = usize::try_from(number.checked_sub(source.first)?).ok()?;
        let entry = source.sends.get(index)?;
        let from = &self.adapters[source.adapter].memories;
        let right = MemoryPrivileges::LOCAL_WRITE;
        if !from.all_local(&entry.segments, source.domain, right) {
            return Some(DtoStatus::LocalProtection);
        }
        if source.reads_out >= target.reads_in_limit && index >= source.started {
            return Some(DtoStatus::RemoteResponder);
        }
        let length = u64::from(entry.length);
        let right = MemoryPrivileges::REMOTE_READ;
        let to = &self.adapters[target.adapter].memories;
        if length > 0 && to.remote(range, length, target.domain, right).is_none() {
            return Some(DtoStatus::RemoteAccess);
        }
        None
    }

    /// Moves a chunk of an admitted RDMA Read; returns true if there is more.
    fn place_read(&mut self, key: u32, number: u64, target: u32, range: RemoteRange) -> bool {
        let World {
            queue_pairs,
            adapters,
            nodes,
            ..
        } = self;
        let target = queue_pairs.get(target);
        let Some(target) = target.map(|target| (target.adapter, target.domain)) else {
            return false;
        };
        let Some(source) = queue_pairs.get_mut(key) else {
            return false;
        };
        let domain = source.domain;
        let to = &adapters[source.adapter];
        let Some(entry) = source.request(number) else {
            return false;
        };
        let from = &adapters[target.0];
        let length = u64::from(entry.length);
        let right = MemoryPrivileges::REMOTE_READ;
        let Some(data) = from.memories.remote(range, length, target.1, right) else {
            return false;
        };
        let count = chunk::length(
            entry.length,
            &[chunk::segment(range, entry.length)],
            &entry.segments,
        );
        let mut offset = entry.moved as usize;
        for segment in part_of(&entry.segments, entry.moved, count) {
            let right = MemoryPrivileges::LOCAL_WRITE;
            let Some(target_span) = to.memories.local(&segment, domain, right) else {
                return false;
            };
            if unmaintained::is_apart(nodes[to.node].coherence.as_ref()) {
                let address = range.address.wrapping_add(offset as u64);
                let Some(part) = data.part(offset, target_span.length()) else {
                    return false;
                };
                let bytes =
                    unmaintained::exposed(nodes[from.node].coherence.as_ref(), address, part);
                let view = nodes[to.node].coherence.as_mut();
                unmaintained::write_exposed(view, segment.address, target_span, &bytes);
                offset += target_span.length();
                continue;
            }
            match &nodes[from.node].coherence {
                Some(coherence) => {
                    coherence.read(range.address.wrapping_add(offset as u64), target_span);
                }
                None => {
                    if let Some(chunk) = data.part(offset, target_span.length()) {
                        target_span.copy_from(chunk);
                    }
                }
            }
            if let Some(coherence) = &mut nodes[to.node].coherence {
                coherence.agree(segment.address, target_span);
            }
            offset += target_span.length();
        }
        entry.moved = entry.moved.saturating_add(count).min(entry.length);
        entry.moved < entry.length
    }

    /// Handles the answer to an RDMA Read or an atomic operation.
    pub(crate) fn response(&mut self, key: u32, connection: u64, number: u64, placed: bool) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        if queue_pair.connection != connection || queue_pair.state != State::Connected {
            return;
        }
        let (Some(Work::Read(range)) | Some(Work::Atomic(range, _))) =
            queue_pair.request(number).map(|entry| entry.work)
        else {
            return;
        };
        let status = match self.reach(key) {
            None => {
                self.note_outage_of(key);
                let patience = self
                    .options
                    .retry_interval
                    .saturating_mul(u64::from(self.options.retries));
                let action = Action::GiveUp {
                    key,
                    connection,
                    number,
                };
                let at = self.now.saturating_add(patience);
                self.plan(at, action);
                return;
            }
            Some(_) if placed => DtoStatus::Success,
            Some(target) => match self.read_refused(key, number, target, range) {
                Some(status) => status,
                None => {
                    if self.place_read(key, number, target, range) {
                        let action = Action::Response {
                            key,
                            connection,
                            number,
                            placed,
                        };
                        self.plan(self.now, action);
                        return;
                    }
                    DtoStatus::Success
                }
            },
        };
        self.read_done(key, number, status);
    }

    fn read_done(&mut self, key: u32, number: u64, status: DtoStatus) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            queue_pair.reads_out = queue_pair.reads_out.saturating_sub(1);
        }
        self.end(key, number, status);
        self.kick(key);
    }

    /// Fails an RDMA Read or an atomic operation without an answer.
    pub(crate) fn give_up(&mut self, key: u32, connection: u64, number: u64) {
        let current = self.queue_pairs.get(key).is_some_and(|queue_pair| {
            queue_pair.connection == connection && queue_pair.state == State::Connected
        });
        if current {
            self.read_done(key, number, DtoStatus::Transport);
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
        let (adapter, domain) = (queue_pair.adapter, queue_pair.domain);
        let Some(Work::Bind(request, new_key)) = queue_pair.request(number).map(|entry| entry.work)
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
    fn end(&mut self, key: u32, number: u64, status: DtoStatus) {
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
    fn answer_later(&mut self, key: u32, number: u64, status: DtoStatus) {
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
