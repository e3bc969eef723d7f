//! Completion queues of an adapter, with what fault plans need.

use core::sync::atomic::AtomicUsize;

use dat_queues::{Arc, CompletionRing};

/// A completion and its queue pair.
pub(crate) type Entry = dat_queues::Entry<u32>;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) ring: CompletionRing<u32>,
    /// Completions so far.
    pub(crate) produced: u32,
    /// Notifications so far.
    pub(crate) notified: u32,
    /// Completion that is kept back until the next one is delivered.
    pub(crate) kept_back: Option<Entry>,
}

impl Completions {
    pub(crate) fn new(depth: u32, ready: Arc<AtomicUsize>) -> Self {
        Self {
            ring: CompletionRing::new(depth, ready),
            produced: 0,
            notified: 0,
            kept_back: None,
        }
    }

    /// Removes the completions of a queue pair.
    pub(crate) fn forget(&mut self, owner: u32) {
        self.kept_back = self.kept_back.filter(|entry| entry.owner != owner);
        self.ring.forget(owner);
    }
}

impl AsMut<CompletionRing<u32>> for Completions {
    fn as_mut(&mut self) -> &mut CompletionRing<u32> {
        &mut self.ring
    }
}
