//! Creation, states and destruction of queue pairs.

use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, QueuePairKey, QueuePairRequest};

use dat_core::flags::CompletionFlags;

use super::backend::{PvrdmaBackend, checked};
use super::completion_queue::{attach, is_forgotten};
use super::pages::{PageRun, View, pages_for};
use super::platform::{Mapping, PairState};
use super::receive_queue::PvrdmaReceiveQueue;
use super::send_queue::PvrdmaSendQueue;
use super::slot_allocator::SlotRun;
use super::work_ring::{Posted, Ring, WorkRing};
use crate::cm::{Peer, PeerResolver};
use crate::defs::pvrdma::{
    CreateQueuePair, CreatedQueuePair, RELIABLE, Receive, Request, Words, access, command,
    doorbell, receive_stride, request_stride, ring_state, state,
};
use crate::fault::DeviceFault;
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::{after_end, is_maintained};
use crate::ring::{
    NO_QUEUE, QueuePairSlot, RequestSlot, completion_name, encode_shared, generation_index,
    next_user_index,
};

/// Highest number of a queue pair.
const NUMBERS: u32 = doorbell::HANDLE;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    requests: u32,
    request_segments: u32,
    receives: u32,
    receive_segments: u32,
}

impl Geometry {
    fn request_pages(self) -> u32 {
        let stride = request_stride(self.request_segments);
        pages_for(u64::from(self.requests).saturating_mul(u64::from(stride)))
    }

    fn receive_pages(self) -> u32 {
        let stride = receive_stride(self.receive_segments);
        pages_for(u64::from(self.receives).saturating_mul(u64::from(stride)))
    }

    /// Returns the pages of the rings and of their state.
    fn pages(self) -> u32 {
        let rings = self.request_pages().saturating_add(self.receive_pages());
        rings.saturating_add(1)
    }
}

/// Numbers and memory of a queue pair, from the device and from the driver.
struct Made<'s> {
    generation: &'s QueuePairSlot,
    user_index: u32,
    number: u32,
    /// State and descriptors of its rings.
    memory: View<'s>,
    page_run: PageRun,
    first_slot: usize,
    slots: &'s [RequestSlot],
    slot_run: SlotRun,
}

/// A queue pair that the device has created, not yet published in its slot.
pub(super) struct NewPair<'s, W, H> {
    pub(super) send: PvrdmaSendQueue<'s, H, W>,
    pub(super) receive: Option<PvrdmaReceiveQueue<'s, H, W>>,
    first_slot: usize,
    shared: u32,
}

impl<'s, W: RegisterWords, M: Mapping, S: PeerResolver, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    fn geometry(&self, request: &QueuePairRequest) -> Result<Geometry, BackendError> {
        let attributes = &request.attributes;
        let segments = attributes
            .max_request_iov
            .max(attributes.max_rdma_read_iov)
            .max(attributes.max_rdma_write_iov);
        let (segments, receive_segments) = (
            checked(segments).max(1),
            checked(attributes.max_recv_iov).max(1),
        );
        if segments > self.segments() || receive_segments > self.segments() {
            return Err(BackendError::Resources);
        }
        let receives = match request.shared_receive_queue {
            Some(_) => 0,
            None => self.ring_size(checked(attributes.max_recv_dtos))?,
        };
        Ok(Geometry {
            requests: self.ring_size(checked(attributes.max_request_dtos))?,
            request_segments: segments,
            receives,
            receive_segments,
        })
    }

    /// Creates a queue pair on the device for an index.
    ///
    /// Does not touch the current queue pair of the index.
    pub(super) fn create_pair(
        &mut self,
        index: usize,
        request: &QueuePairRequest,
    ) -> Result<NewPair<'s, W, H>, BackendError> {
        self.tables.alive()?;
        let last = self
            .generation(QueuePairKey(index))
            .ok_or(BackendError::State)?;
        let user_index = next_user_index(last.user_index.load(Ordering::Relaxed), index);
        let generation = self.tables.generations.get(generation_index(user_index));
        let generation = generation.ok_or(BackendError::State)?;
        if !is_maintained(&self.hal) {
            return Err(BackendError::NotSupported);
        }
        let geometry = self.geometry(request)?;
        let request_queue = self.completion_number(request.request_queue)?;
        let receive_queue = self.completion_number(request.receive_queue)?;
        let shared = match request.shared_receive_queue {
            Some(key) => Some(self.tables.shared_number(key)?),
            None => None,
        };
        let rings = geometry.pages();
        let slots = geometry.requests.saturating_add(geometry.receives);
        let (first_slot, slots, slot_run) = self.slots.take(slots)?;
        let (directory, memory, page_run) = match self.pages.take_ring(rings) {
            Ok(ring) => ring,
            Err(error) => {
                self.slots.give_back(slot_run);
                return Err(error);
            }
        };
        let parameters = CreateQueuePair {
            directory,
            domain: request.domain.0 as u32,
            request_queue,
            receive_queue,
            shared_receive_queue: shared.unwrap_or(0),
            requests: geometry.requests,
            receives: geometry.receives,
            request_segments: geometry.request_segments,
            receive_segments: geometry.receive_segments,
            inline: 0,
            key: 0,
            access: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
            pages: rings | geometry.request_pages() << 16,
            kind: 1 << 16 | RELIABLE << 24,
            shares: u32::from(shared.is_some()),
        };
        let number = match self.create_initialised(&parameters) {
            Ok(number) => number,
            Err(error) => {
                self.slots.give_back(slot_run);
                self.pages.give_back(page_run);
                return Err(error);
            }
        };
        let made = Made {
            generation,
            user_index,
            number,
            memory,
            page_run,
            first_slot,
            slots,
            slot_run,
        };
        Ok(self.assemble(request, geometry, made))
    }

    /// Creates a queue pair with the device and initialises it; returns its number.
    fn create_initialised(&mut self, parameters: &CreateQueuePair) -> Result<u32, BackendError> {
        let created =
            self.execute::<_, CreatedQueuePair>(command::CREATE_QUEUE_PAIR, parameters)?;
        self.check_number(created.number)?;
        let modified = self.modify_pair(created.number, state::INITIALISED, None);
        if modified.is_err() {
            self.destroy(command::DESTROY_QUEUE_PAIR, created.number);
        }
        modified.map(|()| created.number)
    }

    /// Makes the queues of a queue pair that the device has created.
    fn assemble(
        &self,
        request: &QueuePairRequest,
        geometry: Geometry,
        made: Made<'s>,
    ) -> NewPair<'s, W, H> {
        let Made {
            generation,
            user_index,
            number,
            memory,
            page_run,
            first_slot,
            slots,
            slot_run,
        } = made;
        let (receive_slots, send_slots) = slots
            .split_at_checked(geometry.receives as usize)
            .unwrap_or_default();
        let state = self.tables.state;
        let work =
            |producer, page, stride, header: usize, entries, cell, slots, segments| WorkRing {
                hal: self.hal.clone(),
                doorbells: self.doorbells.clone(),
                ring: Ring {
                    state: memory,
                    producer,
                    descriptors: memory.at_page(page),
                    stride,
                    header: header as u32 * 4,
                    entries,
                    head: 0,
                },
                posted: Posted {
                    cell,
                    slots,
                    tail: 0,
                },
                generation,
                state,
                user_index,
                number,
                segments,
            };
        let shared = request.shared_receive_queue;
        let receive = shared.is_none().then(|| PvrdmaReceiveQueue {
            work: work(
                ring_state::RECEIVE,
                geometry.request_pages().saturating_add(1),
                receive_stride(geometry.receive_segments),
                Receive::WORDS,
                geometry.receives,
                &generation.receives,
                receive_slots,
                geometry.receive_segments,
            ),
        });
        NewPair {
            send: PvrdmaSendQueue {
                request: *request,
                page_run,
                slot_run,
                work: work(
                    ring_state::SEND,
                    1,
                    request_stride(geometry.request_segments),
                    Request::WORDS,
                    geometry.requests,
                    &generation.requests,
                    send_slots,
                    geometry.request_segments,
                ),
            },
            receive,
            first_slot,
            shared: encode_shared(shared),
        }
    }

    /// Checks the number of a new queue pair.
    ///
    /// If it is invalid, gives up on the device and halts it, before the caller gives the memory
    /// back.
    fn check_number(&mut self, number: u32) -> Result<(), BackendError> {
        if number <= NUMBERS && self.index(number).is_none() {
            return Ok(());
        }
        self.tables.fault(DeviceFault::UnknownQueuePair);
        self.device.halt();
        Err(BackendError::Device)
    }

    /// Publishes a new queue pair in its slot.
    pub(super) fn publish_pair(&mut self, key: QueuePairKey, created: &NewPair<'s, W, H>) {
        let generation = created.send.work.generation;
        let request = &created.send.request;
        let receives = created
            .receive
            .as_ref()
            .map_or(0, |queue| queue.work.ring.entries);
        let sends = created.first_slot.saturating_add(receives as usize);
        let receive_queue = request.receive_queue.and_then(completion_name);
        let request_queue = request.request_queue.and_then(completion_name);
        generation
            .receives
            .begin(created.first_slot, receives, receive_queue);
        generation
            .requests
            .begin(sends, created.send.work.ring.entries, request_queue);
        generation.token.store(request.token);
        generation.shared.store(created.shared, Ordering::Relaxed);
        self.tables.expect(generation, created.send.work.user_index);
        generation
            .number
            .store(created.send.work.number, Ordering::Release);
        let flags = request.attributes.recv_completion_flags;
        let solicited = flags == CompletionFlags::SOLICITED_WAIT;
        let queues = [(receive_queue, solicited), (request_queue, false)];
        for (name, solicited_only) in queues {
            let slot = name.and_then(|name| self.tables.completion_queues.get(usize::from(name)));
            if let Some(slot) = slot {
                attach::<H, W>(slot, &self.doorbells, solicited_only);
            }
        }
        if let Some(state) = self.pair_states.get_mut(key.0) {
            *state = PairState::Initialised;
        }
    }

    /// Destroys a queue pair on the device; its completions may still be queued.
    pub(super) fn retire(&mut self, key: QueuePairKey) {
        let Some(generation) = self
            .generation(key)
            .filter(|generation| generation.is_live())
        else {
            return;
        };
        let number = self.tables.retire(generation);
        // `destroy_early` has done this for a forgotten queue pair, whose number may name another.
        if !self.was_destroyed_early(key) {
            self.destroy(command::DESTROY_QUEUE_PAIR, number);
            self.cm.forget(number);
        }
        for queue in [&generation.requests, &generation.receives] {
            after_end(&self.hal, queue, self.tables.requests);
        }
    }

    /// Returns true if the device's queue pair was destroyed early, by `destroy_early`.
    pub(super) fn was_destroyed_early(&self, key: QueuePairKey) -> bool {
        self.pair_states.get(key.0) == Some(&PairState::Forgotten)
    }

    /// Replaces queues by new ones and frees the memory of the old ones.
    pub(super) fn replace(
        &mut self,
        send: &mut PvrdmaSendQueue<'s, H, W>,
        receive: Option<&mut PvrdmaReceiveQueue<'s, H, W>>,
        created: NewPair<'s, W, H>,
    ) {
        if let (Some(old), Some(new)) = (receive, created.receive) {
            *old = new;
        }
        let old = core::mem::replace(send, created.send);
        self.give_back(&old);
    }

    /// Frees the memory of a destroyed queue pair.
    pub(super) fn give_back(&mut self, send: &PvrdmaSendQueue<'s, H, W>) {
        self.pages.give_back(send.page_run);
        self.slots.give_back(send.slot_run);
    }

    /// Returns the index of the queue pair with a device number.
    ///
    /// Excludes queue pairs that the device has forgotten: it may reuse their numbers.
    pub(super) fn index(&self, number: u32) -> Option<usize> {
        let mut generations = self.tables.latest();
        generations.position(|generation| {
            let numbered = generation.number.load(Ordering::Relaxed) == number;
            numbered && generation.is_live() && !is_forgotten(generation)
        })
    }

    /// Moves a queue pair to the state that carries data, unless it is there.
    pub(super) fn make_ready(
        &mut self,
        number: u32,
        peer: Option<Peer>,
    ) -> Result<(), BackendError> {
        let index = self.index(number).ok_or(BackendError::State)?;
        match self.pair_states.get(index) {
            Some(PairState::Initialised) => {}
            Some(PairState::Ready) => return Ok(()),
            _ => return Err(BackendError::State),
        }
        let peer = peer.ok_or(BackendError::State)?;
        self.modify_pair(number, state::READY_TO_RECEIVE, Some(peer))?;
        self.modify_pair(number, state::READY_TO_SEND, None)?;
        if let Some(state) = self.pair_states.get_mut(index) {
            *state = PairState::Ready;
        }
        Ok(())
    }

    /// Moves a queue pair to the error state, unless it is there.
    pub(super) fn make_failed(&mut self, number: u32) {
        let Some(index) = self.index(number) else {
            return;
        };
        let state = self.pair_states.get_mut(index);
        if let Some(state) = state.filter(|state| **state != PairState::Failed) {
            *state = PairState::Failed;
            // If the transition fails, the device flushes nothing.
            let flushes = self.modify_pair(number, state::ERROR, None).is_ok() && self.flushes;
            if !flushes && !self.tables.is_faulty() {
                self.destroy_early(index, number);
            }
        }
    }

    /// Destroys a failed queue pair on the device; the driver then completes its descriptors.
    fn destroy_early(&mut self, index: usize, number: u32) {
        let Some(generation) = self.tables.latest_at(index) else {
            return;
        };
        // Completions already under way may arrive in addition to those of the driver.
        self.tables.expect_stale_of(generation);
        generation.expected.store(NO_QUEUE, Ordering::Release);
        if let Some(state) = self.pair_states.get_mut(index) {
            *state = PairState::Forgotten;
        }
        self.destroy(command::DESTROY_QUEUE_PAIR, number);
        self.cm.forget(number);
    }
}
