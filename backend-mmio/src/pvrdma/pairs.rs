//! Creation, states and destruction of queue pairs.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, QueuePairKey, QueuePairRequest};

use dat_core::flags::CompletionFlags;

use super::backend::{PvrdmaBackend, checked};
use super::completion_queue::{attach, is_forgotten};
use super::defs::{
    CreateQueuePair, CreatedQueuePair, RELIABLE, Receive, Request, Words, access, command,
    doorbell, receive_stride, request_stride, ring_state, state,
};
use super::pages::pages_for;
use super::platform::{Mapping, PairState, Rendezvous};
use super::receive_queue::PvrdmaReceiveQueue;
use super::ring::{Posted, Ring, WorkRing};
use super::send_queue::PvrdmaSendQueue;
use crate::fault::DeviceFault;
use crate::hal::Hal;
use crate::mlx5::storage::{NO_QUEUE, life_of, next_user_index, taken_from};
use crate::sideband::Peer;
use crate::words::RegisterWords;

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
}

/// A queue pair that the device has created, not yet published in its slot.
pub(super) struct Made<'s, W, H> {
    pub(super) send: PvrdmaSendQueue<'s, H, W>,
    pub(super) receive: Option<PvrdmaReceiveQueue<'s, H, W>>,
    first_slot: usize,
    shared: u32,
}

impl<'s, W: RegisterWords, M: Mapping, S: Rendezvous, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    fn geometry(&self, request: &QueuePairRequest) -> Result<Geometry, BackendError> {
        let attributes = &request.attributes;
        let segments = attributes
            .max_request_iov
            .max(attributes.max_rdma_read_iov)
            .max(attributes.max_rdma_write_iov);
        let (segments, pieces) = (
            checked(segments).max(1),
            checked(attributes.max_recv_iov).max(1),
        );
        if segments > self.segments() || pieces > self.segments() {
            return Err(BackendError::Resources);
        }
        let receives = match request.shared_receive_queue {
            Some(_) => 0,
            None => self.room(checked(attributes.max_recv_dtos))?,
        };
        Ok(Geometry {
            requests: self.room(checked(attributes.max_request_dtos))?,
            request_segments: segments,
            receives,
            receive_segments: pieces,
        })
    }

    /// Creates a queue pair on the device for an index.
    ///
    /// Does not touch the current queue pair of the index.
    pub(super) fn make(
        &mut self,
        place: usize,
        request: &QueuePairRequest,
    ) -> Result<Made<'s, W, H>, BackendError> {
        self.tables.alive()?;
        let last = self.life(QueuePairKey(place)).ok_or(BackendError::State)?;
        let user_index = next_user_index(last.user_index.load(Ordering::Relaxed), place);
        let life = self.tables.lives.get(life_of(user_index));
        let life = life.ok_or(BackendError::State)?;
        let geometry = self.geometry(request)?;
        let request_queue = self.completion_number(request.request_queue)?;
        let receive_queue = self.completion_number(request.receive_queue)?;
        let shared_key = request.shared_receive_queue;
        let shared = match shared_key {
            Some(key) => Some(self.tables.shared_number(key)?),
            None => None,
        };
        let (requests, receives) = (geometry.request_pages(), geometry.receive_pages());
        let rings = requests.saturating_add(receives).saturating_add(1);
        let slots = geometry.requests.saturating_add(geometry.receives);
        let (first_slot, slots, held_slots) = self.slots.take(slots)?;
        let (directory, memory, held) = match self.pages.take_ring(rings) {
            Ok(ring) => ring,
            Err(error) => {
                self.slots.give_back(held_slots);
                return Err(error);
            }
        };
        let question = CreateQueuePair {
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
            pages: rings | requests << 16,
            kind: 1 << 16 | RELIABLE << 24,
            shares: u32::from(shared.is_some()),
        };
        let made = self.ask::<_, CreatedQueuePair>(command::CREATE_QUEUE_PAIR, &question);
        let made = made.and_then(|made| {
            self.believe(made.number)?;
            let brought = self.bring(made.number, state::INITIALISED, None);
            if brought.is_err() {
                self.destroy(command::DESTROY_QUEUE_PAIR, made.number);
            }
            brought.map(|()| made.number)
        });
        let number = match made {
            Ok(number) => number,
            Err(error) => {
                self.slots.give_back(held_slots);
                self.pages.give_back(held);
                return Err(error);
            }
        };
        let (receive_slots, send_slots) = slots
            .split_at_checked(geometry.receives as usize)
            .unwrap_or_default();
        let state = self.tables.state;
        let work =
            |producer, page, stride, header: usize, entries, cell, slots, segments| WorkRing {
                hal: PhantomData,
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
                life,
                state,
                user_index,
                number,
                segments,
            };
        let receive = shared.is_none().then(|| PvrdmaReceiveQueue {
            work: work(
                ring_state::RECEIVE,
                requests.saturating_add(1),
                receive_stride(geometry.receive_segments),
                Receive::WORDS,
                geometry.receives,
                &life.receives,
                receive_slots,
                geometry.receive_segments,
            ),
        });
        Ok(Made {
            send: PvrdmaSendQueue {
                request: *request,
                held,
                held_slots,
                work: work(
                    ring_state::SEND,
                    1,
                    request_stride(geometry.request_segments),
                    Request::WORDS,
                    geometry.requests,
                    &life.requests,
                    send_slots,
                    geometry.request_segments,
                ),
            },
            receive,
            first_slot,
            shared: taken_from(shared_key),
        })
    }

    /// Checks the number of a new queue pair.
    ///
    /// If it is invalid, gives up on the device and halts it, before the caller gives the memory
    /// back.
    fn believe(&mut self, number: u32) -> Result<(), BackendError> {
        if number <= NUMBERS && self.place(number).is_none() {
            return Ok(());
        }
        self.tables.fault(DeviceFault::UnknownQueuePair);
        self.device.halt();
        Err(BackendError::Device)
    }

    /// Publishes a new queue pair in its slot.
    pub(super) fn settle(&mut self, key: QueuePairKey, made: &Made<'s, W, H>) {
        let life = made.send.work.life;
        let request = &made.send.request;
        let receives = made
            .receive
            .as_ref()
            .map_or(0, |queue| queue.work.ring.entries);
        let sends = made.first_slot.saturating_add(receives as usize);
        life.receives
            .begin(made.first_slot, receives, request.receive_queue);
        life.requests
            .begin(sends, made.send.work.ring.entries, request.request_queue);
        life.token.store(request.token);
        life.shared.store(made.shared, Ordering::Relaxed);
        self.tables.expect(life, made.send.work.user_index);
        life.number.store(made.send.work.number, Ordering::Release);
        let flags = request.attributes.recv_completion_flags;
        let solicited = flags == CompletionFlags::SOLICITED_WAIT;
        let queues = [
            (request.receive_queue, solicited),
            (request.request_queue, false),
        ];
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
        let Some(life) = self.life(key).filter(|life| life.lives()) else {
            return;
        };
        let number = life.number.load(Ordering::Relaxed);
        self.tables.owe_all(life);
        // Late completions are recorded before a poller can see that the queue pair is gone. The
        // device call may take long, so it follows.
        life.number.store(NO_QUEUE, Ordering::Release);
        // `let_go` has done this for a forgotten queue pair, whose number may name another one now.
        if !self.was_let_go(key) {
            self.destroy(command::DESTROY_QUEUE_PAIR, number);
            self.sideband.forget(number);
        }
    }

    /// Returns true if the device's queue pair was destroyed early, by `let_go`.
    pub(super) fn was_let_go(&self, key: QueuePairKey) -> bool {
        self.pair_states.get(key.0) == Some(&PairState::Forgotten)
    }

    /// Replaces queues by new ones and frees the memory of the old ones.
    pub(super) fn replace(
        &mut self,
        send: &mut PvrdmaSendQueue<'s, H, W>,
        receive: Option<&mut PvrdmaReceiveQueue<'s, H, W>>,
        made: Made<'s, W, H>,
    ) {
        if let (Some(old), Some(new)) = (receive, made.receive) {
            *old = new;
        }
        let old = core::mem::replace(send, made.send);
        self.give_back(&old);
    }

    /// Frees the memory of a destroyed queue pair.
    pub(super) fn give_back(&mut self, send: &PvrdmaSendQueue<'s, H, W>) {
        self.pages.give_back(send.held);
        self.slots.give_back(send.held_slots);
    }

    /// Returns the index of the queue pair with a device number.
    ///
    /// Excludes queue pairs that the device has forgotten: it may reuse their numbers.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        let mut lives = self.tables.latest();
        lives.position(|life| {
            let numbered = life.number.load(Ordering::Relaxed) == number;
            numbered && life.lives() && !is_forgotten(life)
        })
    }

    /// Moves a queue pair to the state that carries data, unless it is there.
    pub(super) fn make_ready(
        &mut self,
        number: u32,
        peer: Option<Peer>,
    ) -> Result<(), BackendError> {
        let place = self.place(number).ok_or(BackendError::State)?;
        match self.pair_states.get(place) {
            Some(PairState::Initialised) => {}
            Some(PairState::Ready) => return Ok(()),
            _ => return Err(BackendError::State),
        }
        let peer = peer.ok_or(BackendError::State)?;
        self.bring(number, state::READY_TO_RECEIVE, Some(peer))?;
        self.bring(number, state::READY_TO_SEND, None)?;
        if let Some(state) = self.pair_states.get_mut(place) {
            *state = PairState::Ready;
        }
        Ok(())
    }

    /// Moves a queue pair to the error state, unless it is there.
    pub(super) fn make_failed(&mut self, number: u32) {
        let Some(place) = self.place(number) else {
            return;
        };
        let state = self.pair_states.get_mut(place);
        if let Some(state) = state.filter(|state| **state != PairState::Failed) {
            *state = PairState::Failed;
            // If the transition fails, the device flushes nothing.
            let flushes = self.bring(number, state::ERROR, None).is_ok() && self.flushes;
            if !flushes && !self.tables.is_faulty() {
                self.let_go(place, number);
            }
        }
    }

    /// Destroys a failed queue pair on the device; the driver then completes its descriptors.
    fn let_go(&mut self, place: usize, number: u32) {
        let Some(life) = self.tables.latest_at(place) else {
            return;
        };
        // Completions already under way may arrive in addition to those of the driver.
        self.tables.owe_all(life);
        life.expected.store(NO_QUEUE, Ordering::Release);
        if let Some(state) = self.pair_states.get_mut(place) {
            *state = PairState::Forgotten;
        }
        self.destroy(command::DESTROY_QUEUE_PAIR, number);
        self.sideband.forget(number);
    }
}
