//! Completions: polls the fabric and writes entries to the driver's completion queues.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::defs::mlx5::{
    ArmCommand, COMPLETION_UNITS, COUNTER, Completion, CompletionKind, CompletionTail, Opcode,
    Syndrome,
};
use backend_mmio::mlx5::DeviceEvent;
use dat_core::backend::{self, CompletionQueue as _};
use dat_core::flags::DtoStatus;

use crate::bad_cqe::{BadCqe, draw};
use crate::device::{CompletionQueue, Device, consumed};
use crate::fetch::control_at;

/// Origin of a completion of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A request, by the block that it starts in.
    Request(u16),
    /// A receive, by its ring index.
    Receive(u16),
    /// A buffer of a shared receive queue, by its index.
    Shared(u16),
}

impl Origin {
    /// Returns the token in the fabric.
    ///
    /// `pair` is the queue pair's number, or 0 for shared buffers.
    pub(crate) fn token(self, pair: u32) -> u64 {
        let (kind, index) = match self {
            Self::Request(index) => (0, index),
            Self::Receive(index) => (1, index),
            Self::Shared(index) => (2, index),
        };
        u64::from(pair) << 32 | kind << 16 | u64::from(index)
    }

    fn of(token: u64) -> Self {
        let index = token as u16;
        match token >> 16 & 3 {
            0 => Self::Request(index),
            1 => Self::Receive(index),
            _ => Self::Shared(index),
        }
    }
}

fn syndrome(status: DtoStatus) -> Syndrome {
    match status {
        DtoStatus::Success => Syndrome(0),
        DtoStatus::Flushed => Syndrome::FLUSHED,
        DtoStatus::LocalLength => Syndrome::LOCAL_LENGTH,
        DtoStatus::LocalEndpoint | DtoStatus::LocalMemoryManagement => Syndrome::LOCAL_OPERATION,
        DtoStatus::LocalProtection => Syndrome::LOCAL_PROTECTION,
        DtoStatus::BadResponse => Syndrome::BAD_RESPONSE,
        DtoStatus::RemoteAccess => Syndrome::REMOTE_ACCESS,
        DtoStatus::RemoteResponder => Syndrome::REMOTE_OPERATION,
        DtoStatus::Transport => Syndrome::RETRIES,
        DtoStatus::ReceiverNotReady => Syndrome::NOT_READY,
        DtoStatus::PartialPacket => Syndrome::LOCAL_ACCESS,
        DtoStatus::RmrOperationFailed => Syndrome::BIND,
    }
}

impl Device {
    /// Writes the pending completions; returns true if there were any.
    pub(crate) fn complete(&mut self) -> bool {
        let mut any = false;
        let numbers: Vec<u32> = self.completion_queues.keys().copied().collect();
        for number in numbers {
            while !self.halted && self.complete_next(number) {
                any = true;
            }
        }
        any
    }

    fn complete_next(&mut self, number: u32) -> bool {
        let Some(queue) = self.completion_queues.get_mut(&number) else {
            return false;
        };
        let waiting = queue
            .written
            .wrapping_sub(consumed(&self.memory, &queue.spec))
            & COUNTER;
        if waiting >= queue.spec.entries {
            return false;
        }
        let completion = match queue.queue.poll() {
            Ok(Some(completion)) => completion,
            Ok(None) => return false,
            Err(_) => {
                self.events.push_back(DeviceEvent::Failed);
                return false;
            }
        };
        self.write(number, &completion);
        true
    }

    fn write(&mut self, number: u32, completion: &backend::Completion) {
        let origin = Origin::of(completion.token);
        let pair_number = completion.queue_pair as u32;
        let pair = self.pairs.get(&pair_number);
        let success = completion.status == DtoStatus::Success;
        let (kind, index) = match (origin, success) {
            (Origin::Request(index), true) => (CompletionKind::REQUEST, index),
            (Origin::Request(index), false) => (CompletionKind::FAILED_REQUEST, index),
            (Origin::Receive(index) | Origin::Shared(index), true) => {
                (CompletionKind::RECEIVE, index)
            }
            (Origin::Receive(index) | Origin::Shared(index), false) => {
                (CompletionKind::FAILED_RECEIVE, index)
            }
        };
        let control = match origin {
            Origin::Request(index) => {
                pair.and_then(|pair| control_at(&self.memory, pair, u32::from(index)))
            }
            _ => None,
        };
        let mut entry = Completion {
            user_index: pair.map_or(0, |pair| pair.spec.user_index),
            length: completion.length,
            syndrome: syndrome(completion.status),
            queue_pair: pair_number,
            opcode: control.map_or(Opcode(0), |control| control.opcode),
        };
        let solicited = completion.solicited;
        let mut tail = CompletionTail::new(index, kind, solicited);
        let bad_cqe = self.bad_cqe.take();
        if let Some(bad_cqe) = bad_cqe {
            bad_cqe.apply(&mut entry, &mut tail);
        }
        let Some(queue) = self.completion_queues.get_mut(&number) else {
            return;
        };
        if bad_cqe == Some(BadCqe::Phase) {
            queue.written = queue.written.wrapping_add(1);
        }
        put(&self.memory, queue, &entry, tail);
        if let Some(BadCqe::Noise(mut seed)) = bad_cqe {
            let units = queue.spec.entries * COMPLETION_UNITS;
            let ring = self.memory.seen_at(queue.spec.ring, units as usize);
            for word in ring.into_iter().flatten().flatten() {
                word.store(draw(&mut seed));
            }
        }
        let notable = solicited || !success;
        let fires = |armed: &mut ArmCommand| notable || !armed.solicited_only;
        if queue.armed.take_if(fires).is_some() {
            self.events.push_back(DeviceEvent::Completions(number));
        }
    }
}

/// Writes the next entry of a queue; its last word is written last.
pub(crate) fn put(
    memory: &backend_mmio::DmaView<'static>,
    queue: &mut CompletionQueue,
    entry: &Completion,
    tail: CompletionTail,
) {
    let CompletionQueue { spec, written, .. } = queue;
    let slot_index = *written & (spec.entries - 1);
    let units = COMPLETION_UNITS;
    let bus = spec.ring + u64::from(slot_index * units) * 16;
    let words = memory.seen_at(bus, units as usize).into_iter().flatten();
    let mut words = words.flatten();
    for (word, value) in words.by_ref().zip(entry.encode()) {
        word.store(value);
    }
    fence(Ordering::Release);
    let unit = memory.seen_at(bus + 48, 1).and_then(|units| units.first());
    if let Some(last) = unit.and_then(|unit| unit.last()) {
        let tail = match tail {
            CompletionTail::ALL_ONES => tail,
            _ => tail.in_lap(*written & spec.entries != 0),
        };
        last.store(tail.0);
    }
    *written = written.wrapping_add(1);
}
