//! Memory of a device and its driver, which can be lent several times in sequence.

use alloc::boxed::Box;
use alloc::vec::Vec;

use backend_mmio::DmaView;
use backend_mmio::mlx5::{
    CompletionQueueSlot, QueuePairSlot, RequestSlot, SharedReceiveSlot, State,
};
use backend_mmio::pvrdma::{LentMessages, MessageWords, PairState, RegionSlot, Storage};

use crate::lent::{clear, several};
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
    state: State,
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
            state: State::new(),
            queue_pairs: several(128, || QueuePairSlot::EMPTY),
            pair_states: several(64, PairState::default),
            completion_queues: several(128, || CompletionQueueSlot::EMPTY),
            shared_receive_queues: several(8, || SharedReceiveSlot::EMPTY),
            regions: several(64, RegionSlot::default),
            requests: several(REQUESTS, || RequestSlot::EMPTY),
            requests_taken: several(REQUESTS / REQUESTS_GRAIN, || false),
            pages_taken: several(PAGES, || false),
        }
    }

    /// Returns the memory in its initial state, and a view of the device state.
    pub(crate) fn storage(&mut self) -> (Storage<'_>, LentMessages<'_>, &State) {
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
