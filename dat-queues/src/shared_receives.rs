//! Shared receive queues of an adapter.

use alloc::collections::VecDeque;

use dat_core::backend::DomainKey;

use crate::request::Receive;

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceives {
    /// Token of its events.
    pub token: u64,
    /// Domain of its buffers.
    pub domain: DomainKey,
    /// Most buffers, for which there is room.
    depth: usize,
    /// Buffers that messages can still take.
    buffers: VecDeque<Receive>,
    /// Number of buffers that messages have taken and that are not complete.
    taken: usize,
    /// Limit of an armed queue; 0 if it is not armed.
    ///
    /// One event is raised once fewer buffers are left.
    limit: u32,
    /// Set if the queue failed; it keeps its buffers.
    failed: bool,
}

impl SharedReceives {
    /// Makes an empty queue.
    pub fn new(token: u64, domain: DomainKey) -> Self {
        Self {
            token,
            domain,
            depth: 0,
            buffers: VecDeque::new(),
            taken: 0,
            limit: 0,
            failed: false,
        }
    }

    /// Makes room for `depth` buffers; false if there is no memory for them.
    pub fn reserve(&mut self, depth: usize) -> bool {
        let more = depth.saturating_sub(self.buffers.len());
        let is_made = self.buffers.try_reserve(more).is_ok();
        if is_made {
            self.depth = depth;
        }
        is_made
    }

    /// Returns true if it has as many buffers as it had room made for.
    pub fn is_full(&self) -> bool {
        self.outstanding() >= self.depth
    }

    /// Returns the number of buffers that messages can still take.
    pub fn available(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the number of buffers that are not complete.
    pub fn outstanding(&self) -> usize {
        self.buffers.len() + self.taken
    }

    /// Adds posted buffers.
    pub fn post(&mut self, posted: impl Iterator<Item = Receive>) {
        self.buffers.extend(posted);
    }

    /// Takes a buffer for a message; 0 is the oldest one.
    pub fn take(&mut self, index: usize) -> Option<Receive> {
        let buffer = self.buffers.remove(index)?;
        self.taken += 1;
        Some(buffer)
    }

    /// Counts a taken buffer that is complete.
    pub fn complete(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Arms the limit; 0 disarms it. A queue that failed stays disarmed.
    pub fn arm(&mut self, limit: u32) {
        self.limit = if self.failed { 0 } else { limit };
    }

    /// Disarms the limit and returns true if fewer buffers are left (`Spec: SRL-02`).
    pub fn falls_below_limit(&mut self) -> bool {
        let below = (self.buffers.len() as u64) < u64::from(self.limit);
        if below {
            self.limit = 0;
        }
        below
    }

    /// Fails the queue: it disarms, and its owner gives no more buffers.
    pub fn fail(&mut self) {
        (self.failed, self.limit) = (true, 0);
    }

    /// Returns true if the queue failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }
}
