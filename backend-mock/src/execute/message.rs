//! Messages: from one queue pair to a receive buffer of the other.

use dat_core::backend::{DomainKey, Segment, SendFlags};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::sync::RegisteredSpan;
use dat_queues::{Receive, State};

use super::chunk::{self, part_of};
use super::requests::Attempt;
use super::unmaintained;
use crate::objects::action::Action;
use crate::objects::memories::Memories;
use crate::objects::queue_pair::Arrival;
use crate::world::World;

/// Outcome of the attempt to move a message.
enum Moved {
    All,
    /// Moved a chunk; there is more.
    Chunk,
    Failed(DtoStatus),
}

impl World {
    /// Handles a Send at its target (`Spec: EPS-04, EPH-05`).
    pub(super) fn send(&mut self, key: u32, number: u64, target: u32) -> Attempt {
        let Some(source) = self.queue_pairs.get(key) else {
            return Attempt::Blocked;
        };
        let Some(entry) = source.sends.get(source.started) else {
            return Attempt::Blocked;
        };
        let right = MemoryPrivileges::LOCAL_READ;
        let memories = &self.adapters[source.adapter].memories;
        if !memories.all_local(&entry.request.segments, source.setup.domain, right) {
            return Attempt::Ended(DtoStatus::LocalProtection);
        }
        self.take_message(key, number, target, None)
    }

    /// Takes a buffer at the target for a message, or for a write's immediate data.
    pub(crate) fn take_message(
        &mut self,
        key: u32,
        number: u64,
        target: u32,
        immediate: Option<u32>,
    ) -> Attempt {
        let Some(source) = self.queue_pairs.get(key) else {
            return Attempt::Blocked;
        };
        let Some(entry) = source.sends.get(source.started) else {
            return Attempt::Blocked;
        };
        let length = entry.request.length;
        let solicited = entry.request.flags.contains(SendFlags::SOLICITED);
        let connection = source.connection;
        let first_try = source.receiver_not_ready == 0;
        if self.pretends_no_buffer(target, first_try) {
            return Attempt::NotReady;
        }
        let Some(buffer) = self.take_buffer(target) else {
            return Attempt::NotReady;
        };
        let failure = match immediate {
            None => self.receive_failure(target, &buffer, length),
            Some(_) => None,
        };
        if failure.is_some()
            && let Some(source) = self.queue_pairs.get_mut(key)
        {
            source.halted = true;
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(target) {
            queue_pair.arrivals.push_back(Arrival {
                buffer,
                sender: (key, number),
                length,
                moved: 0,
                solicited,
                immediate,
                failure,
            });
        }
        self.check_watermarks(target);
        let latency = self.draw(&self.options.receive_latency.clone());
        if latency == 0 {
            return Attempt::Arrived(target);
        }
        let action = Action::Place {
            key: target,
            connection,
        };
        let at = self.now.saturating_add(latency);
        self.plan(at, action);
        Attempt::Started
    }

    /// Returns true if a fault lets this message find no buffer.
    fn pretends_no_buffer(&mut self, target: u32, first_try: bool) -> bool {
        let Some(adapter) = self.queue_pairs.get(target).map(|target| target.adapter) else {
            return false;
        };
        let adapter_number = adapter as u16;
        let adapter = &mut self.adapters[adapter];
        if first_try {
            let count = adapter.messages;
            adapter.messages = count.wrapping_add(1);
            if let Some((fault, attempts)) = self.faults.not_ready(adapter_number, count) {
                adapter.refusals = u32::from(attempts);
                adapter.refusing = Some(fault);
            }
        }
        let refuses = adapter.refusals > 0;
        adapter.refusals = adapter.refusals.saturating_sub(1);
        if !refuses {
            // From now on, a sender gives up for lack of buffers and not because of the fault.
            adapter.refusing = None;
        }
        refuses
    }

    /// Takes a buffer for an arriving message.
    fn take_buffer(&mut self, target: u32) -> Option<Receive> {
        let queue_pair = self.queue_pairs.get_mut(target)?;
        match queue_pair.setup.shared {
            None => queue_pair.receives.pop_front(),
            Some(shared) => {
                let adapter = queue_pair.adapter;
                self.take_shared(adapter, shared.0 as u32)
            }
        }
    }

    /// Returns the domain of a queue pair's receive buffers.
    fn receive_domain(&self, key: u32) -> Option<DomainKey> {
        let queue_pair = self.queue_pairs.get(key)?;
        match queue_pair.setup.shared {
            None => Some(queue_pair.setup.domain),
            Some(shared) => Some(
                self.adapters[queue_pair.adapter]
                    .shared_receives
                    .get(shared.0 as u32)?
                    .domain,
            ),
        }
    }

    /// Returns the failure of a message of this length in a buffer (`Spec: EPV-04, SRQR-43`).
    fn receive_failure(&self, target: u32, buffer: &Receive, length: u32) -> Option<DtoStatus> {
        let room: u64 = buffer
            .segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum();
        if u64::from(length) > room {
            return Some(DtoStatus::LocalLength);
        }
        let adapter = self.queue_pairs.get(target)?.adapter;
        let domain = self.receive_domain(target)?;
        let right = MemoryPrivileges::LOCAL_WRITE;
        let memories = &self.adapters[adapter].memories;
        (!memories.all_local(&buffer.segments, domain, right)).then_some(DtoStatus::LocalProtection)
    }

    /// Moves a chunk of the oldest message in progress, and completes it after the last.
    pub(crate) fn place_message(&mut self, key: u32, connection: u64) {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return;
        };
        if queue_pair.connection != connection || queue_pair.state != State::Connected {
            return;
        }
        let Some(arrival) = queue_pair.arrivals.front() else {
            return;
        };
        let (sender, number) = arrival.sender;
        let (length, immediate) = (arrival.length, arrival.immediate);
        let source_ready = self.queue_pairs.get(sender).is_some_and(|source| {
            source.connection == connection
                && source.state == State::Connected
                && number >= source.first
        });
        if !source_ready {
            // The sender is gone. The end of the connection is in transit and flushes the buffer.
            return;
        }
        let failure = match arrival.failure {
            Some(failure) => Some(failure),
            None if immediate.is_some() => None,
            None => match self.move_message(key, sender, number) {
                Moved::All => None,
                Moved::Failed(failure) => Some(failure),
                Moved::Chunk => {
                    self.plan(self.now, Action::Place { key, connection });
                    return;
                }
            },
        };
        let Some(arrival) = self
            .queue_pairs
            .get_mut(key)
            .and_then(|queue_pair| queue_pair.arrivals.pop_front())
        else {
            return;
        };
        match failure {
            None => {
                let solicited = arrival.solicited;
                let success = DtoStatus::Success;
                self.complete_receive(key, &arrival.buffer, success, length, solicited, immediate);
                self.answer_later(sender, number, DtoStatus::Success);
            }
            Some(failure) => {
                self.complete_receive(key, &arrival.buffer, failure, 0, false, None);
                self.answer_later(sender, number, DtoStatus::RemoteResponder);
                self.break_connection(key);
            }
        }
    }

    /// Moves a chunk of the oldest message in progress.
    fn move_message(&mut self, key: u32, sender: u32, number: u64) -> Moved {
        let domain = self.receive_domain(key);
        let World {
            queue_pairs,
            adapters,
            nodes,
            ..
        } = self;
        let (Some(target), Some(source), Some(domain)) =
            (queue_pairs.get(key), queue_pairs.get(sender), domain)
        else {
            return Moved::Failed(DtoStatus::LocalEndpoint);
        };
        let index = number.checked_sub(source.first).unwrap_or(u64::MAX);
        let entry = usize::try_from(index)
            .ok()
            .and_then(|index| source.sends.get(index));
        let (Some(entry), Some(arrival)) = (entry, target.arrivals.front()) else {
            return Moved::Failed(DtoStatus::LocalEndpoint);
        };
        let from = &adapters[source.adapter].memories;
        let to = &adapters[target.adapter];
        let right = MemoryPrivileges::LOCAL_WRITE;
        if !to
            .memories
            .all_local(&arrival.buffer.segments, domain, right)
        {
            return Moved::Failed(DtoStatus::LocalProtection);
        }
        let right = MemoryPrivileges::LOCAL_READ;
        if !from.all_local(&entry.request.segments, source.setup.domain, right) {
            return Moved::Failed(DtoStatus::PartialPacket);
        }
        let from_node = adapters[source.adapter].node;
        let apart =
            [from_node, to.node].map(|node| unmaintained::is_apart(nodes[node].coherence.as_ref()));
        let count = chunk::length(
            arrival.length,
            &entry.request.segments,
            &arrival.buffer.segments,
        );
        let sources = part_of(&entry.request.segments, arrival.moved, count);
        let destinations = part_of(&arrival.buffer.segments, arrival.moved, count);
        if apart.contains(&true) {
            let view = nodes[from_node].coherence.as_ref();
            let bytes = unmaintained::gather(view, from, sources, source.setup.domain);
            let view = nodes[to.node].coherence.as_mut();
            unmaintained::scatter(&bytes, view, &to.memories, destinations, domain);
        } else {
            let mut coherence = nodes[to.node].coherence.as_mut();
            gather_scatter(
                (from, sources, source.setup.domain),
                (&to.memories, destinations, domain),
                |address, placed| {
                    if let Some(coherence) = &mut coherence {
                        coherence.agree(address, placed);
                    }
                },
            );
        }
        let moved = arrival.moved.saturating_add(count).min(arrival.length);
        let all = moved == arrival.length;
        let arrival = queue_pairs
            .get_mut(key)
            .and_then(|target| target.arrivals.front_mut());
        if let Some(arrival) = arrival {
            arrival.moved = moved;
        }
        if all { Moved::All } else { Moved::Chunk }
    }
}

/// Copies the bytes of the source segments, in order, to the destination segments.
fn gather_scatter(
    (from, sources, from_domain): (&Memories, impl Iterator<Item = Segment>, DomainKey),
    (to, mut destinations, to_domain): (&Memories, impl Iterator<Item = Segment>, DomainKey),
    mut placed: impl FnMut(u64, RegisteredSpan<'_>),
) {
    let mut room: Option<(u64, RegisteredSpan<'_>)> = None;
    for source in sources {
        let Some(mut rest) = from.local(&source, from_domain, MemoryPrivileges::LOCAL_READ) else {
            return;
        };
        while rest.length() > 0 {
            let (address, space) = match room.take() {
                Some(space) => space,
                None => {
                    let Some(next) = destinations.next() else {
                        return;
                    };
                    match to.local(&next, to_domain, MemoryPrivileges::LOCAL_WRITE) {
                        Some(space) => (next.address, space),
                        None => return,
                    }
                }
            };
            let count = rest.length().min(space.length());
            let (Some(chunk), Some(target)) = (rest.part(0, count), space.part(0, count)) else {
                return;
            };
            target.copy_from(chunk);
            placed(address, target);
            room = space
                .part(count, space.length() - count)
                .filter(|left| left.length() > 0)
                .map(|left| (address.wrapping_add(count as u64), left));
            match rest.part(count, rest.length() - count) {
                Some(left) => rest = left,
                None => return,
            }
        }
    }
}
