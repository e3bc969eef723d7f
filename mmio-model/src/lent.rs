//! What a device and its driver need of memory, to be lent to one after the other.

use alloc::vec::Vec;

use backend_mmio::mlx5::{
    CompletionQueueSlot, QueuePairSlot, RequestSlot, SharedReceiveSlot, State, Storage, WindowSlot,
};
use backend_mmio::{DeviceWord, DmaView};

use crate::fabric::LIMITS;
use crate::memory;

/// Memory that a device shares with its driver, in bytes; less than others have, since it is cleared each time.
const MEMORY: usize = 1 << 18;
/// Bytes of it that are given out together.
const MEMORY_GRAIN: usize = 256;
/// Descriptors that are remembered, and how many of them are given out together.
const REQUESTS: usize = 2048;
const REQUESTS_GRAIN: usize = 16;

/// Memory for a device and its driver, which the next ones get when they are gone.
///
/// Programs that make devices again and again, as fuzzers do, would run out of it otherwise.
#[derive(Debug)]
pub struct Lent {
    pub(crate) memory: DmaView<'static>,
    state: State,
    queue_pairs: Vec<QueuePairSlot>,
    completion_queues: Vec<CompletionQueueSlot>,
    shared_receive_queues: Vec<SharedReceiveSlot>,
    requests: Vec<RequestSlot>,
    requests_taken: Vec<bool>,
    windows: Vec<WindowSlot>,
    memory_taken: Vec<bool>,
}

/// So many of something.
pub(crate) fn several<T>(count: usize, empty: impl FnMut() -> T) -> Vec<T> {
    core::iter::repeat_with(empty).take(count).collect()
}

/// Zeros everywhere, as a new device finds it.
pub(crate) fn clear(memory: &DmaView<'static>) {
    for word in memory.units().iter().flatten() {
        if word.load() != 0 {
            DeviceWord::store(word, 0);
        }
    }
}

impl Lent {
    /// Takes it from the system, for ever.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: memory::shared(MEMORY),
            state: State::new(),
            queue_pairs: several(2 * LIMITS.queue_pairs as usize, || QueuePairSlot::EMPTY),
            completion_queues: several(LIMITS.completion_queues as usize, || {
                CompletionQueueSlot::EMPTY
            }),
            shared_receive_queues: several(LIMITS.shared_receive_queues as usize, || {
                SharedReceiveSlot::EMPTY
            }),
            requests: several(REQUESTS, || RequestSlot::EMPTY),
            requests_taken: several(REQUESTS / REQUESTS_GRAIN, || false),
            windows: several(LIMITS.windows as usize, || WindowSlot::EMPTY),
            memory_taken: several(MEMORY / MEMORY_GRAIN, || false),
        }
    }

    /// As if nobody had used it, and a view of the state.
    pub(crate) fn storage(&mut self) -> (Storage<'_>, &State) {
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
