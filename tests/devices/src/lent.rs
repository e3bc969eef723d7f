//! Memory of a device and its driver, which can be lent several times in sequence.

use alloc::vec::Vec;

use backend_mmio::mlx5::{Storage, WindowSlot};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceWord, DmaView};

use crate::fabric::LIMITS;
use crate::memory;

/// Size of the memory that device and driver share, in bytes.
///
/// Smaller than in other devices, because it is cleared before each use.
const MEMORY: usize = 1 << 18;
/// Allocation unit of that memory, in bytes.
const MEMORY_GRAIN: usize = 256;
/// Request slots, and the number of them in an allocation unit.
const REQUESTS: usize = 2048;
const REQUESTS_GRAIN: usize = 16;

/// Memory of a device and its driver, which later ones can use again.
///
/// Programs that create many devices, such as fuzzers, would otherwise run out of memory.
#[derive(Debug)]
pub struct Lent {
    pub(crate) memory: DmaView<'static>,
    state: DeviceState,
    queue_pairs: Vec<QueuePairSlot>,
    completion_queues: Vec<CompletionQueueSlot>,
    shared_receive_queues: Vec<SharedReceiveSlot>,
    requests: Vec<RequestSlot>,
    requests_taken: Vec<bool>,
    windows: Vec<WindowSlot>,
    memory_taken: Vec<bool>,
}

/// Returns a vector of `count` elements.
pub(crate) fn vector_of<T>(count: usize, empty: impl FnMut() -> T) -> Vec<T> {
    core::iter::repeat_with(empty).take(count).collect()
}

/// Sets all words to zero, as a new device finds them.
pub(crate) fn clear(memory: &DmaView<'static>) {
    for word in memory.units().iter().flatten() {
        if word.load() != 0 {
            DeviceWord::store(word, 0);
        }
    }
}

impl Lent {
    /// Allocates the memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: memory::shared(MEMORY),
            state: DeviceState::new(),
            queue_pairs: vector_of(2 * LIMITS.queue_pairs as usize, || QueuePairSlot::EMPTY),
            completion_queues: vector_of(LIMITS.completion_queues as usize, || {
                CompletionQueueSlot::EMPTY
            }),
            shared_receive_queues: vector_of(LIMITS.shared_receive_queues as usize, || {
                SharedReceiveSlot::EMPTY
            }),
            requests: vector_of(REQUESTS, || RequestSlot::EMPTY),
            requests_taken: vector_of(REQUESTS / REQUESTS_GRAIN, || false),
            windows: vector_of(LIMITS.windows as usize, || WindowSlot::EMPTY),
            memory_taken: vector_of(MEMORY / MEMORY_GRAIN, || false),
        }
    }

    /// Returns the memory in its initial state, and a view of the device state.
    pub(crate) fn storage(&mut self) -> (Storage<'_>, &DeviceState) {
        clear(&self.memory);
        let (lent, state) = self.state.lend();
        let storage = Storage {
            state: lent,
            queue_pairs: &mut self.queue_pairs,
            completion_queues: &mut self.completion_queues,
            shared_receive_queues: &mut self.shared_receive_queues,
            requests: &mut self.requests,
            requests_taken: &mut self.requests_taken,
            windows: &mut self.windows,
            memory_taken: &mut self.memory_taken,
        };
        (storage, state)
    }
}

impl Default for Lent {
    fn default() -> Self {
        Self::new()
    }
}
