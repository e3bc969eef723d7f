//! Commands and their answers.

use backend_mmio::pvrdma::Message;
use backend_mmio::pvrdma::defs::{
    AnswerHeader, Capabilities, CreateBind, CreateCompletionQueue, CreateContext, CreateDomain,
    CreateQueuePair, CreateRegion, CreateSharedReceiveQueue, CreatedQueuePair, CreatedRegion,
    ENTRY_BYTES, ETHERNET, Handle, ModifyQueuePair, ModifySharedReceiveQueue, NO_NETWORK, Notice,
    RELIABLE, ROUTABLE, RequestHeader, SHARED_LIMIT, SharedRegion, Words, access, attribute,
    command, receive_stride, register, request_stride, ring_state, state,
};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, BackendError, DisconnectMode, DomainKey, QueuePair, QueuePairRequest, Registration,
};
use dat_core::flags::MemoryPrivileges;

use super::device::{Begun, CompletionQueue, Device, Pair, Shared};
use super::manner::{Numbers, Refusal};
use super::memory::Ring;
use super::region;

/// Limits of a device.
const DOMAINS: u32 = 64;
const REGIONS: u32 = 1024;
const COMPLETION_QUEUES: u32 = 129;
const COMPLETIONS: u32 = 2048;
const QUEUE_PAIRS: u32 = 64;
const WORK_REQUESTS: u32 = 256;
const SEGMENTS: u32 = 30;
const SHARED_QUEUES: u32 = 8;
const SHARED_BUFFERS: u32 = 512;

/// MTU in bytes.
const PACKET: u32 = 1024;

/// Length of the longest answer in words.
const ANSWER_WORDS: u32 = 16;

/// Value of the error register after a failed command.
const REFUSED: u32 = 22;

fn capabilities() -> Capabilities {
    Capabilities {
        queue_pairs: QUEUE_PAIRS,
        work_requests: WORK_REQUESTS,
        segments: SEGMENTS,
        read_segments: SEGMENTS,
        completion_queues: COMPLETION_QUEUES,
        completions: COMPLETIONS,
        regions: REGIONS,
        domains: DOMAINS,
        shared_receive_queues: SHARED_QUEUES,
        shared_buffers: SHARED_BUFFERS,
        shared_segments: SEGMENTS,
        network: ETHERNET | ROUTABLE << 24,
        ..Capabilities::take(&mut || 0)
    }
}

fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn privileges(bits: u32) -> MemoryPrivileges {
    let mut privileges = MemoryPrivileges::LOCAL_READ;
    for (bit, right) in [
        (access::LOCAL_WRITE, MemoryPrivileges::LOCAL_WRITE),
        (access::REMOTE_READ, MemoryPrivileges::REMOTE_READ),
        (access::REMOTE_WRITE, MemoryPrivileges::REMOTE_WRITE),
    ] {
        privileges.set(right, bits & bit != 0);
    }
    privileges
}

impl Device {
    /// Starts the device: the driver has written the address of the shared region.
    pub(crate) fn begin(&mut self, high: u32) {
        let at = u64::from(high) << 32 | u64::from(self.low);
        let mut region: SharedRegion = self.bus.get(at);
        region.capabilities = capabilities();
        self.bus.put(at, &region);
        if let Some((word, value)) = self.manner.claims {
            // The capabilities are the last part of the region.
            let first = SharedRegion::WORDS - Capabilities::WORDS;
            let word = first + word as usize % Capabilities::WORDS;
            self.bus.store(at + word as u64 * 4, value);
            region = self.bus.get(at);
        }
        let events = self.ring_of_events(
            region.events.directory,
            region.events.pages,
            Notice::WORDS as u32 * 4,
        );
        let notices = self.ring_of_events(region.notices.directory, region.notices.pages, 4);
        if let (Some(events), Some(notices)) = (events, notices) {
            self.begun = Some(Begun {
                region,
                events,
                notices,
            });
        }
    }

    /// Activates the device, or resets it.
    ///
    /// A reset breaks its connections; the device then accesses no memory.
    pub(crate) fn control(&mut self, value: u32) {
        match value {
            register::ACTIVATE if self.begun.is_some() => self.error = 0,
            register::RESET if self.begun.is_some() => {
                let Self { backend, pairs, .. } = self;
                for pair in pairs.values_mut().filter(|pair| !pair.ended) {
                    backend.disconnect(pair.key, DisconnectMode::Broken);
                    pair.ended = true;
                }
                self.halted = true;
            }
            _ => {}
        }
    }

    /// Executes the command in the command slot.
    pub(crate) fn execute(&mut self) {
        let Some(begun) = &self.begun else {
            return;
        };
        let (slot, answer) = (begun.region.command_slot, begun.region.answer_slot);
        let header: RequestHeader = self.bus.get(slot);
        let behind = slot + RequestHeader::WORDS as u64 * 4;
        let done = self.carry_out(header.command, behind, answer);
        self.error = if done.is_ok() { 0 } else { REFUSED };
        let answered = AnswerHeader {
            key: header.key,
            acknowledges: header.command | command::ANSWER,
            error: self.error,
        };
        self.bus.put(answer, &answered);
        let lie = self.answer_lie.take();
        self.looks = lie.map(|_| 0);
        if let Some((word, bits)) = lie {
            let at = answer + u64::from(word % ANSWER_WORDS) * 4;
            self.bus.store(at, self.bus.load(at) ^ bits);
        }
        self.send(Message::Answer);
    }

    fn carry_out(&mut self, number: u32, at: u64, answer: u64) -> Result<(), BackendError> {
        let behind = answer + AnswerHeader::WORDS as u64 * 4;
        let handle = |device: &Self| device.bus.get::<Handle>(at).handle;
        let answered = |device: &Self, handle| {
            let made = Handle { handle, other: 0 };
            device.bus.put(behind, &made);
            Ok(())
        };
        if self.manner.refuses.is_of(number) {
            return Err(BackendError::Resources);
        }
        match number {
            command::CREATE_CONTEXT => {
                let _page: CreateContext = self.bus.get(at);
                answered(self, 1)
            }
            command::CREATE_BIND => {
                let bind: CreateBind = self.bus.get(at);
                let begun = self.begun.as_ref().ok_or(BackendError::State)?;
                let kind = begun.region.capabilities.address_kind(self.version());
                let known = kind == Some(bind.kind) && bind.network == NO_NETWORK;
                let known = known && bind.packet == PACKET;
                known.then_some(()).ok_or(BackendError::NotSupported)
            }
            command::CREATE_DOMAIN => {
                let _context: CreateDomain = self.bus.get(at);
                let domain = self.backend.create_domain()?;
                answered(self, domain.0 as u32)
            }
            command::DESTROY_DOMAIN => {
                let domain = DomainKey(handle(self) as usize);
                self.backend.destroy_domain(domain);
                Ok(())
            }
            command::CREATE_REGION => {
                let made = self.create_region(&self.bus.get(at))?;
                self.bus.put(behind, &made);
                Ok(())
            }
            command::DESTROY_REGION => {
                let keys = self.regions.remove(&handle(self));
                self.backend.deregister(keys.ok_or(BackendError::State)?);
                Ok(())
            }
            command::CREATE_COMPLETION_QUEUE => {
                let number = self.create_completion_queue(&self.bus.get(at))?;
                answered(self, number)
            }
            command::DESTROY_COMPLETION_QUEUE => {
                let number = handle(self);
                let queue = self.completion_queues.remove(&number);
                let queue = queue.ok_or(BackendError::State)?;
                self.backend.destroy_completion_queue(queue.queue);
                self.notices.retain(|notice| *notice != number);
                Ok(())
            }
            command::CREATE_QUEUE_PAIR => {
                let made = self.create_queue_pair(&self.bus.get(at))?;
                self.bus.put(behind, &made);
                Ok(())
            }
            command::MODIFY_QUEUE_PAIR => self.modify_queue_pair(&self.bus.get(at)),
            command::DESTROY_QUEUE_PAIR => {
                let number = handle(self);
                let pair = self.pairs.remove(&number).ok_or(BackendError::State)?;
                if self.joins.is_some() {
                    self.backend.part(pair.key);
                }
                self.backend
                    .destroy_queue_pair(pair.key, pair.send, pair.receive);
                self.forget_connection(number);
                self.free_numbers.push(number);
                Ok(())
            }
            command::CREATE_SHARED_RECEIVE_QUEUE => {
                let number = self.create_shared(&self.bus.get(at))?;
                answered(self, number)
            }
            command::MODIFY_SHARED_RECEIVE_QUEUE => {
                let change: ModifySharedReceiveQueue = self.bus.get(at);
                let shared = self.shared.get(&change.handle);
                let key = shared.ok_or(BackendError::State)?.key;
                if change.mask & SHARED_LIMIT != 0 {
                    // Pending events are in the ring already.
                    self.backend.arm_shared_receive_limit(key, change.limit)?;
                }
                Ok(())
            }
            command::DESTROY_SHARED_RECEIVE_QUEUE => {
                let shared = self.shared.remove(&handle(self));
                let shared = shared.ok_or(BackendError::State)?;
                self.backend
                    .destroy_shared_receive_queue(shared.key, shared.queue);
                Ok(())
            }
            _ => Err(BackendError::NotSupported),
        }
    }

    fn create_region(&mut self, asked: &CreateRegion) -> Result<CreatedRegion, BackendError> {
        let pages = self.bus.pages(asked.directory, asked.pages);
        let region = region::memory(asked.start, asked.length, &pages);
        let region = region.ok_or(BackendError::Address)?;
        let domain = DomainKey(asked.domain as usize);
        let registration = Registration::new(domain, &region, privileges(asked.access));
        let keys = self.backend.register(&registration)?;
        let handle = self.number();
        self.regions.insert(handle, keys);
        Ok(CreatedRegion {
            handle,
            local: keys.local,
            remote: keys.remote,
            reserved: 0,
        })
    }

    fn create_completion_queue(
        &mut self,
        asked: &CreateCompletionQueue,
    ) -> Result<u32, BackendError> {
        let pages = self.bus.pages(asked.directory, asked.pages);
        let (state, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let taken = |name: &u16| {
            let mut queues = self.completion_queues.values();
            queues.any(|queue| queue.name == *name)
        };
        let mut names = 0..=u16::MAX;
        let name = names.find(|name| !taken(name));
        let name = name.ok_or(BackendError::Resources)?;
        let queue = self.backend.create_completion_queue(name, asked.entries)?;
        let number = self.number();
        self.completion_queues.insert(
            number,
            CompletionQueue {
                queue,
                name,
                ring: Ring {
                    state: *state,
                    at: ring_state::RECEIVE,
                    pages: pages.to_vec(),
                    stride: ENTRY_BYTES,
                    entries: asked.entries,
                    done: 0,
                },
                armed: None,
            },
        );
        Ok(number)
    }

    fn create_queue_pair(
        &mut self,
        asked: &CreateQueuePair,
    ) -> Result<CreatedQueuePair, BackendError> {
        if asked.kind >> 24 != RELIABLE {
            return Err(BackendError::NotSupported);
        }
        let name = |handle: u32| {
            let queue = self.completion_queues.get(&handle);
            queue.map(|queue| queue.name).ok_or(BackendError::State)
        };
        let attributes = EpAttributes {
            max_request_dtos: count(asked.requests),
            max_recv_dtos: count(asked.receives),
            max_request_iov: count(asked.request_segments),
            max_rdma_read_iov: count(asked.request_segments),
            max_rdma_write_iov: count(asked.request_segments),
            max_recv_iov: count(asked.receive_segments),
            // The modify command that makes the queue pair ready sets them. These are the fabric's
            // limits.
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            ..EpAttributes::DEFAULT
        };
        let domain = DomainKey(asked.domain as usize);
        let (requests_on, receives_on) = (name(asked.request_queue)?, name(asked.receive_queue)?);
        let number = self.pair_number();
        let mut request = QueuePairRequest::new(u64::from(number), domain, attributes);
        request.request_queue = Some(requests_on);
        request.receive_queue = Some(receives_on);
        if asked.shares & 0xFF != 0 {
            let shared = self.shared.get(&asked.shared_receive_queue);
            request.shared_receive_queue = Some(shared.ok_or(BackendError::State)?.key);
        }
        let pages = self.bus.pages(asked.directory, asked.pages & 0xFFFF);
        let (state_page, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let of_requests = (asked.pages >> 16) as usize;
        let (requests, receives) = pages
            .split_at_checked(of_requests)
            .ok_or(BackendError::Address)?;
        let ring = |at, pages: &[u64], stride, entries| Ring {
            state: *state_page,
            at,
            pages: pages.to_vec(),
            stride,
            entries,
            done: 0,
        };
        let QueuePair { key, send, receive } = self.backend.create_queue_pair(&request)?;
        let request_stride = request_stride(asked.request_segments);
        let receive_stride = receive_stride(asked.receive_segments);
        self.pairs.insert(
            number,
            Pair {
                key,
                send,
                receive,
                requests: ring(ring_state::SEND, requests, request_stride, asked.requests),
                receives: ring(
                    ring_state::RECEIVE,
                    receives,
                    receive_stride,
                    asked.receives,
                ),
                state: 0,
                ended: false,
                senseless: false,
            },
        );
        Ok(CreatedQueuePair {
            number: match self.manner.numbers {
                Numbers::Always(said) => said,
                Numbers::Again => number,
            },
            got: [
                asked.requests,
                asked.receives,
                asked.request_segments,
                asked.receive_segments,
                0,
            ],
        })
    }

    fn modify_queue_pair(&mut self, change: &ModifyQueuePair) -> Result<(), BackendError> {
        let pair = self.pairs.get_mut(&change.handle);
        let pair = pair.ok_or(BackendError::State)?;
        if change.mask & attribute::STATE == 0 {
            return Err(BackendError::NotSupported);
        }
        let follows = match change.state {
            state::INITIALISED => pair.state == 0,
            state::READY_TO_RECEIVE => {
                let needed = attribute::PEER | attribute::WAY;
                pair.state == state::INITIALISED && change.mask & needed == needed
            }
            state::READY_TO_SEND => pair.state == state::READY_TO_RECEIVE,
            state::ERROR => self.manner.refuses != Refusal::Error,
            _ => false,
        };
        if !follows {
            return Err(BackendError::State);
        }
        if let (Some(device), state::READY_TO_RECEIVE) = (self.joins, change.state) {
            let [there, ..] = change.way.address;
            let own = [device, change.handle];
            self.backend.join(pair.key, own, [there, change.peer])?;
        }
        pair.state = change.state;
        if pair.state == state::ERROR && !pair.ended {
            if self.joins.is_some() {
                self.backend.part(pair.key);
            } else {
                self.backend.disconnect(pair.key, DisconnectMode::Broken);
            }
            pair.ended = true;
        }
        Ok(())
    }

    fn create_shared(&mut self, asked: &CreateSharedReceiveQueue) -> Result<u32, BackendError> {
        let pages = self.bus.pages(asked.directory, asked.pages);
        let (state, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let number = self.number();
        let (key, queue) = self.backend.create_shared_receive_queue(
            u64::from(number),
            DomainKey(asked.domain as usize),
            asked.entries,
            asked.segments,
        )?;
        self.shared.insert(
            number,
            Shared {
                key,
                queue,
                ring: Ring {
                    state: *state,
                    at: ring_state::RECEIVE,
                    pages: pages.to_vec(),
                    stride: receive_stride(asked.segments),
                    entries: asked.entries,
                    done: 0,
                },
                segments: asked.segments,
            },
        );
        Ok(number)
    }
}
