//! Where the messages of a load arrive, and the last message of each slot.

use std::sync::atomic::AtomicU8;

use dat_core::backend::HostBackend;
use dat_core::id::EpId;
use dat_core::sync::load_bytes;
use dat_host::{Endpoint, Message};
use futures_util::FutureExt;

use crate::failure::{Failure, Result};
use crate::remote::data::checksum;
use crate::remote::host_adapter::Core;
use crate::remote::registered::Registered;

/// Where messages arrive: at the other end in this process, or those of a server at this end.
pub(super) enum Inbox<'a, B: HostBackend> {
    Buffers(Buffers<'a, B>),
    Queue(Queue),
}

impl<B: HostBackend> Inbox<'_, B> {
    /// Returns true if the last message of a slot is this one, unless its buffer was used again.
    ///
    /// `memory` has the buffers of an endpoint.
    pub(super) fn has(&self, slot: usize, sent: &[AtomicU8], memory: &Option<Registered>) -> bool {
        match (self, memory) {
            (Self::Buffers(buffers), Some(memory)) => {
                let buffer = buffers.buffer_of[slot];
                buffers.slot_in[buffer] != Some(slot)
                    || checksum(memory.slot(buffer, sent.len())) == checksum(sent)
            }
            (Self::Buffers(_), None) => false,
            (Self::Queue(queue), _) => queue.last[slot].as_ref().is_none_or(|message| {
                let mut bytes = vec![0; sent.len()];
                load_bytes(sent, &mut bytes);
                message[..] == bytes
            }),
        }
    }
}

/// Receives of an endpoint, one for each slot.
pub(super) struct Buffers<'a, B: HostBackend> {
    pub(super) core: &'a Core<B>,
    pub(super) ep: EpId,
    /// The buffer of each slot's last message, and the slot of each buffer's.
    buffer_of: Vec<usize>,
    slot_in: Vec<Option<usize>>,
}

impl<'a, B: HostBackend> Buffers<'a, B> {
    pub(super) fn new(core: &'a Core<B>, ep: EpId, depth: usize) -> Self {
        Self {
            core,
            ep,
            buffer_of: vec![0; depth],
            slot_in: vec![None; depth],
        }
    }

    /// Notes that a buffer has the last message of a slot.
    pub(super) fn keep(&mut self, slot: usize, buffer: usize) {
        self.buffer_of[slot] = buffer;
        self.slot_in[buffer] = Some(slot);
    }
}

/// A shared receive queue of the other end in this process.
pub(super) struct Queue {
    /// The last message of each slot, whose buffer is not posted meanwhile.
    last: Vec<Option<Message>>,
}

impl Queue {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            last: (0..depth).map(|_| None).collect(),
        }
    }

    /// Returns a message that has come, and the number of its endpoint.
    ///
    /// # Errors
    /// - Operation: the connection ended.
    pub(super) fn next(&self, endpoints: &[Endpoint]) -> Result<Option<(usize, Message)>> {
        let next = |endpoint: &Endpoint| endpoint.next_message().now_or_never();
        let mut all = endpoints.iter().map(next).enumerate();
        match all.find_map(|(number, next)| Some((number, next?))) {
            Some((number, Ok(message))) => Ok(Some((number, message))),
            Some((_, Err(error))) => Err(Failure::operation("an operation failed", error)),
            None => Ok(None),
        }
    }

    /// Keeps the last message of a slot; the buffer of the one before is posted again.
    pub(super) fn keep(&mut self, slot: usize, message: Message) {
        self.last[slot] = Some(message);
    }
}
