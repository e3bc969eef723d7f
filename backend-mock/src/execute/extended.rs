//! Extended operations at the target: writes with immediate data, and atomic operations.
//!
//! As on a device, an atomic operation is atomic with respect to others and to the rest of the
//! fabric. Transfers that are long enough to move in pieces are the exception. A concurrent store
//! of the processor to the same number may be overwritten.

use dat_core::backend::RemoteRange;
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_queues::Change;

use super::requests::Attempt;
use crate::objects::action::Action;
use crate::world::World;

/// Bytes of the number.
const BYTES: u64 = 8;
/// Privileges that peers need.
const RIGHTS: MemoryPrivileges =
    MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);

/// Returns a number after its change.
fn changed(before: u64, change: Change) -> u64 {
    match change {
        Change::Add(add) => before.wrapping_add(add),
        Change::Swap { compare, swap } if before == compare => swap,
        Change::Swap { .. } => before,
    }
}

impl World {
    /// Performs a write with immediate data.
    ///
    /// It acts as an RDMA Write. Once that is done, the immediate data takes a receive buffer, as a
    /// message does. Without a buffer, the written bytes stay.
    pub(crate) fn write_immediate(
        &mut self,
        key: u32,
        number: u64,
        target: u32,
        range: RemoteRange,
        immediate: u32,
    ) -> Attempt {
        match self.write(key, target, range) {
            None => Attempt::Moving,
            Some(DtoStatus::Success) => self.take_message(key, number, target, Some(immediate)),
            Some(status) => Attempt::Ended(status),
        }
    }

    /// Performs an atomic operation at its target.
    ///
    /// It counts as an RDMA Read, and is answered like one.
    pub(crate) fn atomic(
        &mut self,
        key: u32,
        number: u64,
        target: u32,
        range: RemoteRange,
        change: Change,
    ) -> Attempt {
        if let Some(refusal) = self.change(key, target, range, change) {
            return Attempt::Ended(refusal);
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return Attempt::Blocked;
        };
        queue_pair.reads_out += 1;
        let connection = queue_pair.connection;
        let latency = self.draw(&self.options.latency.clone());
        let action = Action::Response {
            key,
            connection,
            number,
            placed: true,
        };
        let at = self.now.saturating_add(latency);
        self.plan(at, action);
        Attempt::Started
    }

    /// Changes the number and stores the old one locally; returns the status of a refusal.
    fn change(
        &mut self,
        key: u32,
        target: u32,
        range: RemoteRange,
        change: Change,
    ) -> Option<DtoStatus> {
        let World {
            queue_pairs,
            adapters,
            nodes,
            ..
        } = self;
        let (Some(source), Some(target)) = (queue_pairs.get(key), queue_pairs.get(target)) else {
            return Some(DtoStatus::Transport);
        };
        let Some(entry) = source.sends.get(source.started) else {
            return Some(DtoStatus::LocalEndpoint);
        };
        let near = &adapters[source.adapter];
        let right = MemoryPrivileges::LOCAL_WRITE;
        // The core admits exactly one segment.
        let Some((segment, local)) = entry.request.segments.first().and_then(|segment| {
            Some((
                segment,
                near.memories.local(segment, source.setup.domain, right)?,
            ))
        }) else {
            return Some(DtoStatus::LocalProtection);
        };
        if source.reads_out >= target.setup.reads_in || !range.address.is_multiple_of(BYTES) {
            return Some(DtoStatus::RemoteResponder);
        }
        let far = &adapters[target.adapter];
        let number = far
            .memories
            .remote(range, BYTES, target.setup.domain, RIGHTS);
        let Some((number, local)) = number.zip(local.part(0, BYTES as usize)) else {
            return Some(DtoStatus::RemoteAccess);
        };
        // The old number is stored last: both spans may be the same.
        let mut before = [0; BYTES as usize];
        match &nodes[far.node].coherence {
            Some(coherence) => coherence.look(range.address, &mut before),
            None => number.read(&mut before),
        }
        let after = changed(u64::from_ne_bytes(before), change).to_ne_bytes();
        match &mut nodes[far.node].coherence {
            Some(coherence) => coherence.store(range.address, &after),
            None => number.write(&after),
        }
        match &mut nodes[near.node].coherence {
            Some(coherence) if !coherence.maintains => coherence.store(segment.address, &before),
            Some(coherence) => {
                local.write(&before);
                coherence.agree(segment.address, local);
            }
            None => local.write(&before),
        }
        None
    }
}
