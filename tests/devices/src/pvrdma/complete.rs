//! Completions: polls the fabric and writes entries to the driver's completion queues.

use alloc::vec::Vec;

use backend_mmio::defs::pvrdma::{Entry, RECEIVED, status};
use dat_core::backend::{self, CompletionQueue as _};
use dat_core::flags::DtoStatus;

use super::bad_cqe::PvrdmaBadCqe;
use super::device::{Device, Read};
use super::quirks::Refusal;

fn outcome(status: DtoStatus) -> u32 {
    match status {
        DtoStatus::Success => status::SUCCESS,
        DtoStatus::Flushed => status::FLUSHED,
        DtoStatus::LocalLength => status::LOCAL_LENGTH,
        DtoStatus::LocalEndpoint
        | DtoStatus::LocalMemoryManagement
        | DtoStatus::RmrOperationFailed => status::LOCAL_OPERATION,
        DtoStatus::LocalProtection => status::LOCAL_PROTECTION,
        DtoStatus::BadResponse => status::BAD_RESPONSE,
        DtoStatus::RemoteAccess => status::REMOTE_ACCESS,
        DtoStatus::RemoteResponder => status::REMOTE_OPERATION,
        DtoStatus::Transport => status::RETRIES,
        DtoStatus::ReceiverNotReady => status::NOT_READY,
        DtoStatus::PartialPacket => status::LOCAL_ACCESS,
    }
}

impl Device {
    /// Writes the pending completions; returns true if there were any.
    pub(crate) fn complete(&mut self) -> bool {
        let mut any = false;
        let numbers: Vec<u32> = self.completion_queues.keys().copied().collect();
        for number in numbers {
            while self.complete_next(number) {
                any = true;
            }
        }
        any
    }

    fn complete_next(&mut self, number: u32) -> bool {
        let bus = self.bus;
        let queue = self.completion_queues.get_mut(&number);
        let Some(queue) = queue.filter(|queue| queue.ring.has_room(bus)) else {
            return false;
        };
        let Ok(Some(completion)) = queue.queue.poll() else {
            return false;
        };
        self.write(number, &completion);
        true
    }

    fn write(&mut self, number: u32, completion: &backend::Completion) {
        let unknown = Read {
            token: 0,
            opcode: 0,
        };
        let read = self.reads.remove(&completion.token).unwrap_or(unknown);
        let success = completion.status == DtoStatus::Success;
        let drops_flushed = self.quirks.drops_flushed || self.quirks.refuses == Refusal::Error;
        if drops_flushed && completion.status == DtoStatus::Flushed {
            return;
        }
        let mut entry = Entry {
            token: read.token,
            queue_pair: completion.queue_pair,
            opcode: read.opcode,
            status: outcome(completion.status),
            length: if read.opcode == RECEIVED {
                completion.length
            } else {
                0
            },
            immediate: 0,
            source: 0,
            flags: 0,
            vendor: 0,
            rest: [0; 5],
        };
        let bad_cqe = self.bad_cqe.take();
        if let Some(bad_cqe) = bad_cqe {
            bad_cqe.apply(&mut entry);
        }
        let bus = self.bus;
        let Some(queue) = self.completion_queues.get_mut(&number) else {
            return;
        };
        queue.ring.write(bus, &entry);
        let index = queue.ring.state + u64::from(queue.ring.at);
        match bad_cqe {
            Some(PvrdmaBadCqe::Index) => {
                let twice = 2 * queue.ring.entries - 1;
                let beyond = queue.ring.done.wrapping_add(queue.ring.entries);
                bus.store(index, beyond & twice);
            }
            Some(PvrdmaBadCqe::AllOnes) => bus.store(index, u32::MAX),
            _ => {}
        }
        let notable = completion.solicited || !success;
        let fires = |solicited_only: &mut bool| notable || !*solicited_only;
        if queue.armed.take_if(fires).is_some() {
            self.notices.push_back(number);
        }
    }
}
