//! Memory of a device and its driver, which can be lent several times in sequence.

use alloc::boxed::Box;
use alloc::vec::Vec;

use backend_mmio::DmaView;
use backend_mmio::pvrdma::{LentMessages, MessageWords, PairState, RegionSlot, Storage};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};

use crate::lent::{clear, vector_of};
use crate::memory;

/// Size of the memory that device and driver share, in pages.
///
/// Smaller than in other devices, because it is cleared before each use.
const PAGES: usize = 256;
const PAGE: usize = 4096;
/// Request slots, and the number of them in an allocation unit.
const REQUESTS: usize = 2048;
const REQUESTS_GRAIN: usize = 16;

/// Memory of a device and its driver, which later ones can use again.
///
/// Programs that create many devices, such as fuzzers, would otherwise run out of memory.
#[derive(Debug)]
pub struct PvrdmaLent {
    pub(crate) memory: DmaView<'static>,
    pub(crate) words: &'static MessageWords,
    messages: LentMessages<'static>,
    state: DeviceState,
    queue_pairs: Vec<QueuePairSlot>,
    pair_states: Vec<PairState>,
    completion_queues: Vec<CompletionQueueSlot>,
    shared_receive_queues: Vec<SharedReceiveSlot>,
    regions: Vec<RegionSlot>,
    requests: Vec<RequestSlot>,
    requests_taken: Vec<bool>,
    pages_taken: Vec<bool>,
}

impl PvrdmaLent {
    /// Allocates the memory.
    #[must_use]
    pub fn new() -> Self {
        let (messages, words) = Box::leak(Box::new(MessageWords::new())).lend();
        Self {
            memory: memory::shared(PAGES * PAGE),
            words,
            messages,
            state: DeviceState::new(),
            queue_pairs: vector_of(128, || QueuePairSlot::EMPTY),
            pair_states: vector_of(64, PairState::default),
            completion_queues: vector_of(128, || CompletionQueueSlot::EMPTY),
            shared_receive_queues: vector_of(8, || SharedReceiveSlot::EMPTY),
            regions: vector_of(64, RegionSlot::default),
            requests: vector_of(REQUESTS, || RequestSlot::EMPTY),
            requests_taken: vector_of(REQUESTS / REQUESTS_GRAIN, || false),
            pages_taken: vector_of(PAGES, || false),
        }
    }

    /// Returns the memory in its initial state, and a view of the device state.
    pub(crate) fn storage(&mut self) -> (Storage<'_>, LentMessages<'_>, &DeviceState) {
        clear(&self.memory);
        for state in &mut self.pair_states {
            *state = PairState::default();
        }
        let (lent, state) = self.state.lend();
        let storage = Storage {
            state: lent,
            queue_pairs: &mut self.queue_pairs,
            pair_states: &mut self.pair_states,
            completion_queues: &mut self.completion_queues,
            shared_receive_queues: &mut self.shared_receive_queues,
            regions: &mut self.regions,
            requests: &mut self.requests,
            requests_taken: &mut self.requests_taken,
            pages_taken: &mut self.pages_taken,
        };
        (storage, self.messages.again(), state)
    }
}

impl Default for PvrdmaLent {
    fn default() -> Self {
        Self::new()
    }
}
