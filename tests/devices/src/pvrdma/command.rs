//! Commands and their answers.

use backend_mmio::defs::pvrdma::{
    AnswerHeader, Capabilities, CreateBind, CreateCompletionQueue, CreateContext, CreateDomain,
    CreateQueuePair, CreateRegion, CreateSharedReceiveQueue, CreatedQueuePair, CreatedRegion,
    ENTRY_BYTES, ETHERNET, Handle, ModifyQueuePair, ModifySharedReceiveQueue, NO_NETWORK, Notice,
    RELIABLE, ROUTABLE, RequestHeader, SHARED_LIMIT, SharedRegion, Words, access, attribute,
    command, receive_stride, register, request_stride, ring_state, state,
};
use backend_mmio::pvrdma::Message;
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, BackendError, DisconnectMode, DomainKey, QueuePair, QueuePairRequest, Registration,
};
use dat_core::flags::MemoryPrivileges;

use super::device::{CompletionQueue, Device, Pair, Shared, Started};
use super::memory::Ring;
use super::quirks::{Numbers, Refusal};
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
        if let Some((word, value)) = self.quirks.fake_capability {
            // The capabilities are the last part of the region.
            let first = SharedRegion::WORDS - Capabilities::WORDS;
            let word = first + word as usize % Capabilities::WORDS;
            self.bus.store(at + word as u64 * 4, value);
            region = self.bus.get(at);
        }
        let events = self.event_ring(
            region.events.directory,
            region.events.pages,
            Notice::WORDS as u32 * 4,
        );
        let notices = self.event_ring(region.notices.directory, region.notices.pages, 4);
        if let (Some(events), Some(notices)) = (events, notices) {
            self.started = Some(Started {
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
            register::ACTIVATE if self.started.is_some() => self.error = 0,
            register::RESET if self.started.is_some() => {
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
        let Some(started) = &self.started else {
            return;
        };
        let (slot, answer) = (started.region.command_slot, started.region.answer_slot);
        let header: RequestHeader = self.bus.get(slot);
        let after_header = slot + RequestHeader::WORDS as u64 * 4;
        let done = self.execute_command(header.command, after_header, answer);
        self.error = if done.is_ok() { 0 } else { REFUSED };
        let answer_header = AnswerHeader {
            key: header.key,
            acknowledges: header.command | command::ANSWER,
            error: self.error,
        };
        self.bus.put(answer, &answer_header);
        let bad_cqe = self.answer_corruption.take();
        self.error_reads = bad_cqe.map(|_| 0);
        if let Some((word, bits)) = bad_cqe {
            let at = answer + u64::from(word % ANSWER_WORDS) * 4;
            self.bus.store(at, self.bus.load(at) ^ bits);
        }
        self.send(Message::Answer);
    }

    fn execute_command(&mut self, number: u32, at: u64, answer: u64) -> Result<(), BackendError> {
        let after_header = answer + AnswerHeader::WORDS as u64 * 4;
        let handle = |device: &Self| device.bus.get::<Handle>(at).handle;
        let answer_handle = |device: &Self, handle| {
            let created = Handle { handle, other: 0 };
            device.bus.put(after_header, &created);
            Ok(())
        };
        if self.quirks.refuses.is_of(number) {
            return Err(BackendError::Resources);
        }
        match number {
            command::CREATE_CONTEXT => {
                let _page: CreateContext = self.bus.get(at);
                answer_handle(self, 1)
            }
            command::CREATE_BIND => {
                let bind: CreateBind = self.bus.get(at);
                let started = self.started.as_ref().ok_or(BackendError::State)?;
                let kind = started.region.capabilities.address_kind(self.version());
                let known = kind == Some(bind.kind) && bind.network == NO_NETWORK;
                let known = known && bind.packet == PACKET;
                known.then_some(()).ok_or(BackendError::NotSupported)
            }
            command::CREATE_DOMAIN => {
                let _context: CreateDomain = self.bus.get(at);
                let domain = self.backend.create_domain()?;
                answer_handle(self, domain.0 as u32)
            }
            command::DESTROY_DOMAIN => {
                let domain = DomainKey(handle(self) as usize);
                self.backend.destroy_domain(domain);
                Ok(())
            }
            command::CREATE_REGION => {
                let created = self.create_region(&self.bus.get(at))?;
                self.bus.put(after_header, &created);
                Ok(())
            }
            command::DESTROY_REGION => {
                let keys = self.regions.remove(&handle(self));
                self.backend.deregister(keys.ok_or(BackendError::State)?);
                Ok(())
            }
            command::CREATE_COMPLETION_QUEUE => {
                let number = self.create_completion_queue(&self.bus.get(at))?;
                answer_handle(self, number)
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
                let created = self.create_queue_pair(&self.bus.get(at))?;
                self.bus.put(after_header, &created);
                Ok(())
            }
            command::MODIFY_QUEUE_PAIR => self.modify_queue_pair(&self.bus.get(at)),
            command::DESTROY_QUEUE_PAIR => {
                let number = handle(self);
                let pair = self.pairs.remove(&number).ok_or(BackendError::State)?;
                if self.moves_pairs.is_some() {
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
                answer_handle(self, number)
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

    fn create_region(&mut self, parameters: &CreateRegion) -> Result<CreatedRegion, BackendError> {
        let pages = self.bus.pages(parameters.directory, parameters.pages);
        let region = region::memory(parameters.start, parameters.length, &pages);
        let region = region.ok_or(BackendError::Address)?;
        let domain = DomainKey(parameters.domain as usize);
        let registration = Registration::new(domain, &region, privileges(parameters.access));
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
        parameters: &CreateCompletionQueue,
    ) -> Result<u32, BackendError> {
        let pages = self.bus.pages(parameters.directory, parameters.pages);
        let (state, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let taken = |name: &u32| {
            let mut queues = self.completion_queues.values();
            queues.any(|queue| queue.name == *name)
        };
        let mut names = 0..=u32::from(u16::MAX);
        let name = names.find(|name| !taken(name));
        let name = name.ok_or(BackendError::Resources)?;
        let queue = self
            .backend
            .create_completion_queue(name, parameters.entries)?;
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
                    entries: parameters.entries,
                    done: 0,
                },
                armed: None,
            },
        );
        Ok(number)
    }

    fn create_queue_pair(
        &mut self,
        parameters: &CreateQueuePair,
    ) -> Result<CreatedQueuePair, BackendError> {
        if parameters.kind >> 24 != RELIABLE {
            return Err(BackendError::NotSupported);
        }
        let name = |handle: u32| {
            let queue = self.completion_queues.get(&handle);
            queue.map(|queue| queue.name).ok_or(BackendError::State)
        };
        let attributes = EpAttributes {
            max_request_dtos: count(parameters.requests),
            max_recv_dtos: count(parameters.receives),
            max_request_iov: count(parameters.request_segments),
            max_rdma_read_iov: count(parameters.request_segments),
            max_rdma_write_iov: count(parameters.request_segments),
            max_recv_iov: count(parameters.receive_segments),
            // The modify command that makes the queue pair ready sets them. These are the fabric's
            // limits.
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            ..EpAttributes::DEFAULT
        };
        let domain = DomainKey(parameters.domain as usize);
        let (requests_on, receives_on) = (
            name(parameters.request_queue)?,
            name(parameters.receive_queue)?,
        );
        let number = self.pair_number();
        let mut request = QueuePairRequest::new(u64::from(number), domain, attributes);
        request.request_queue = Some(requests_on);
        request.receive_queue = Some(receives_on);
        if parameters.shares & 0xFF != 0 {
            let shared = self.shared.get(&parameters.shared_receive_queue);
            request.shared_receive_queue = Some(shared.ok_or(BackendError::State)?.key);
        }
        let pages = self
            .bus
            .pages(parameters.directory, parameters.pages & 0xFFFF);
        let (state_page, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let request_pages = (parameters.pages >> 16) as usize;
        let (requests, receives) = pages
            .split_at_checked(request_pages)
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
        let request_stride = request_stride(parameters.request_segments);
        let receive_stride = receive_stride(parameters.receive_segments);
        self.pairs.insert(
            number,
            Pair {
                key,
                send,
                receive,
                requests: ring(
                    ring_state::SEND,
                    requests,
                    request_stride,
                    parameters.requests,
                ),
                receives: ring(
                    ring_state::RECEIVE,
                    receives,
                    receive_stride,
                    parameters.receives,
                ),
                state: 0,
                ended: false,
                has_invalid_descriptor: false,
            },
        );
        Ok(CreatedQueuePair {
            number: match self.quirks.numbers {
                Numbers::Always(number) => number,
                Numbers::Reuse => number,
            },
            got: [
                parameters.requests,
                parameters.receives,
                parameters.request_segments,
                parameters.receive_segments,
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
                let needed = attribute::PEER | attribute::ADDRESS_VECTOR;
                pair.state == state::INITIALISED && change.mask & needed == needed
            }
            state::READY_TO_SEND => pair.state == state::READY_TO_RECEIVE,
            state::ERROR => self.quirks.refuses != Refusal::Error,
            _ => false,
        };
        if !follows {
            return Err(BackendError::State);
        }
        if let (Some(device), state::READY_TO_RECEIVE) = (self.moves_pairs, change.state) {
            let [remote, ..] = change.address_vector.address;
            let own = [device, change.handle];
            self.backend.join(pair.key, own, [remote, change.peer])?;
        }
        pair.state = change.state;
        if pair.state == state::ERROR && !pair.ended {
            if self.moves_pairs.is_some() {
                self.backend.part(pair.key);
            } else {
                self.backend.disconnect(pair.key, DisconnectMode::Broken);
            }
            pair.ended = true;
        }
        Ok(())
    }

    fn create_shared(
        &mut self,
        parameters: &CreateSharedReceiveQueue,
    ) -> Result<u32, BackendError> {
        let pages = self.bus.pages(parameters.directory, parameters.pages);
        let (state, pages) = pages.split_first().ok_or(BackendError::Address)?;
        let number = self.number();
        let (key, queue) = self.backend.create_shared_receive_queue(
            u64::from(number),
            DomainKey(parameters.domain as usize),
            parameters.entries,
            parameters.segments,
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
                    stride: receive_stride(parameters.segments),
                    entries: parameters.entries,
                    done: 0,
                },
                segments: parameters.segments,
            },
        );
        Ok(number)
    }
}
