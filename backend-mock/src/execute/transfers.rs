//! RDMA Writes and Reads at their targets.

use dat_core::backend::RemoteRange;
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_queues::{State, Work};

use super::chunk::{self, CHUNK, part_of};
use super::requests::Attempt;
use super::unmaintained;
use crate::objects::action::Action;
use crate::world::World;

impl World {
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
        let Some((target, target_domain)) =
            target.map(|target| (target.adapter, target.setup.domain))
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
        if !from.all_local(&entry.request.segments, source.setup.domain, right) {
            return Some(DtoStatus::LocalProtection);
        }
        if entry.request.length == 0 {
            return Some(DtoStatus::Success);
        }
        let length = u64::from(entry.request.length);
        let to = &adapters[target];
        let right = MemoryPrivileges::REMOTE_WRITE;
        let Some(space) = to.memories.remote(range, length, target_domain, right) else {
            return Some(DtoStatus::RemoteAccess);
        };
        let from_node = adapters[source.adapter].node;
        let count = chunk::length(
            entry.request.length,
            &entry.request.segments,
            &[chunk::segment(range, entry.request.length)],
        );
        let mut offset = entry.moved as usize;
        for segment in part_of(&entry.request.segments, entry.moved, count) {
            let address = range.address.wrapping_add(offset as u64);
            let right = MemoryPrivileges::LOCAL_READ;
            let Some(chunk) = from.local(&segment, source.setup.domain, right) else {
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
        entry.moved = entry.moved.saturating_add(count).min(entry.request.length);
        (entry.moved == entry.request.length).then_some(DtoStatus::Success)
    }

    /// Handles an RDMA Read at its target (`Spec: EPB-05`).
    pub(super) fn read(
        &mut self,
        key: u32,
        number: u64,
        target: u32,
        range: RemoteRange,
    ) -> Attempt {
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
            .is_none_or(|entry| entry.request.length <= CHUNK);
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
        if !from.all_local(&entry.request.segments, source.setup.domain, right) {
            return Some(DtoStatus::LocalProtection);
        }
        if source.reads_out >= target.setup.reads_in && index >= source.started {
            return Some(DtoStatus::RemoteResponder);
        }
        let length = u64::from(entry.request.length);
        let right = MemoryPrivileges::REMOTE_READ;
        let to = &self.adapters[target.adapter].memories;
        if length > 0
            && to
                .remote(range, length, target.setup.domain, right)
                .is_none()
        {
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
        let Some(target) = target.map(|target| (target.adapter, target.setup.domain)) else {
            return false;
        };
        let Some(source) = queue_pairs.get_mut(key) else {
            return false;
        };
        let domain = source.setup.domain;
        let to = &adapters[source.adapter];
        let Some(entry) = source.request(number) else {
            return false;
        };
        let from = &adapters[target.0];
        let length = u64::from(entry.request.length);
        let right = MemoryPrivileges::REMOTE_READ;
        let Some(data) = from.memories.remote(range, length, target.1, right) else {
            return false;
        };
        let count = chunk::length(
            entry.request.length,
            &[chunk::segment(range, entry.request.length)],
            &entry.request.segments,
        );
        let mut offset = entry.moved as usize;
        for segment in part_of(&entry.request.segments, entry.moved, count) {
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
        entry.moved = entry.moved.saturating_add(count).min(entry.request.length);
        entry.moved < entry.request.length
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
            queue_pair.request(number).map(|entry| entry.request.work)
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
}
