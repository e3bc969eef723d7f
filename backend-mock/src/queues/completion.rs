//! Completion queues as the core holds them.

use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, CompletionQueue, DeviceFailure};

use crate::objects::Arc;
use crate::shared::Shared;
use crate::world::World;

/// A completion queue of an adapter.
#[derive(Debug)]
pub struct MockCompletionQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) adapter: usize,
    pub(crate) number: u32,
    pub(crate) ready: Arc<AtomicUsize>,
    /// Immediate data of the completion that was polled last.
    pub(crate) immediate: Option<u32>,
}

impl MockCompletionQueue {
    /// Returns true if a poll finds an entry.
    ///
    /// If there is none and polls drive the fabric, performs the next action and checks again.
    fn is_ready(&self) -> bool {
        if self.ready.load(Ordering::Acquire) > 0 {
            return true;
        }
        self.shared.poll_steps() && {
            self.shared.enter(World::step);
            self.ready.load(Ordering::Acquire) > 0
        }
    }
}

impl CompletionQueue for MockCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        if !self.is_ready() {
            return Ok(None);
        }
        let taken = self.shared.enter(|world| {
            match world.adapters[self.adapter].completion_queue(self.number) {
                Some(ring) => ring.take(),
                None => Ok(None),
            }
        })?;
        self.immediate = taken.and_then(|entry| entry.immediate);
        Ok(taken.map(|entry| entry.completion))
    }

    fn immediate(&mut self) -> Option<u32> {
        self.immediate
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        self.shared.enter(|world| {
            match world.adapters[self.adapter].completion_queue(self.number) {
                Some(ring) => ring.arm(solicited_only),
                None => Armed::Missed,
            }
        })
    }
}
