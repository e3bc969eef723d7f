//! A requester whose packets a test takes and answers.

use super::memory::Buffers;
use super::packets::{Made, Sent, acknowledge, sent};
use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{Opcode, Syndrome};
use backend_roce::proto::requester::{
    Completion, Operation, PostError, Request, RequestSlot, Requester, RequesterOptions, Status,
};
use backend_roce::proto::{PathMtu, Psn};
use dat_core::time::Instant;

pub const OPTIONS: RequesterOptions = RequesterOptions {
    destination: 0x12,
    first: Psn::new(0xFF_FFFE),
    mtu: PathMtu::Bytes256,
    initiator_depth: 2,
    run: 1,
    window: 16,
    timeout: 8,
    is_lossless: false,
    retry_count: 2,
    rnr_retry_count: 2,
};

/// PSN number `index` of the requester.
pub fn psn(index: u32) -> u32 {
    OPTIONS.first.plus(index).value()
}

pub struct Bench {
    pub requester: Requester<'static>,
    pub buffers: Buffers,
    pub now: u64,
    pub next: u64,
}

pub const REMOTE: RemoteAddress = RemoteAddress {
    key: 7,
    address: 0x1000,
};
pub const SEND: Operation = Operation::Send { immediate: None };
pub const WRITE: Operation = Operation::Write {
    remote: REMOTE,
    immediate: None,
};
pub const READ: Operation = Operation::Read { remote: REMOTE };
pub const ATOMIC: Operation = Operation::Atomic {
    remote: REMOTE,
    operation: AtomicOperation::FetchAdd(1),
};
pub const ACK: Syndrome = Syndrome::Acknowledgement;

impl Bench {
    pub fn new(options: RequesterOptions) -> Self {
        let slots = Box::leak(Box::new([RequestSlot::EMPTY; 8]));
        Self {
            requester: Requester::new(options, slots),
            buffers: Buffers::default(),
            now: 0,
            next: 0,
        }
    }

    pub fn post(&mut self, operation: Operation, length: u32) {
        self.post_with(operation, length, false, false)
            .expect("room");
    }

    pub fn post_with(
        &mut self,
        operation: Operation,
        length: u32,
        fence: bool,
        solicited: bool,
    ) -> Result<(), PostError> {
        let token = self.next;
        self.requester.post(Request {
            token,
            operation,
            length,
            fence,
            solicited,
        })?;
        let bytes = (0..length)
            .map(|index| (index / 256 + index) as u8)
            .collect();
        self.buffers.0.insert(token, bytes);
        self.next += 1;
        Ok(())
    }

    pub fn now(&self) -> Instant {
        Instant::from_micros(self.now)
    }

    pub fn transmit(&mut self) -> Option<Sent> {
        let mut buffer = [0; 512];
        let now = self.now();
        let length = self
            .requester
            .transmit(now, &mut self.buffers, &mut buffer)?;
        Some(sent(&buffer[..length]))
    }

    /// Sends everything; returns the opcodes and the index of the PSNs.
    pub fn drain(&mut self) -> Vec<(Opcode, u32)> {
        let index = |sent: Sent| (sent.opcode, Psn::new(sent.psn).since(OPTIONS.first));
        std::iter::from_fn(|| self.transmit().map(index)).collect()
    }

    pub fn receive(&mut self, made: &Made) {
        let now = self.now();
        self.requester
            .receive(now, &made.packet(), &mut self.buffers);
    }

    pub fn answer(&mut self, index: u32, syndrome: Syndrome) {
        self.receive(&acknowledge(psn(index), syndrome));
    }

    pub fn respond(&mut self, index: u32, length: usize) {
        let made = Made::new(
            Opcode::ReadResponseMiddle,
            psn(index),
            &vec![index as u8 + 1; length],
        );
        self.receive(&made);
    }

    pub fn completions(&mut self) -> Vec<(u64, Status)> {
        let of = |done: Completion| (done.token, done.status);
        std::iter::from_fn(|| self.requester.poll().map(of)).collect()
    }

    pub fn expire(&mut self) {
        self.now = self.requester.deadline().expect("a deadline").as_micros();
        let now = self.now();
        self.requester.expire(now);
    }
}
