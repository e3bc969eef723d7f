//! Shared receive queues of an adapter.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dat_core::backend::Segment;

use super::queue_pair::ReceiveEntry;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceive {
    pub(crate) token: u64,
    pub(crate) domain: u32,
    pub(crate) depth: usize,
    /// Buffers that endpoints can still take.
    pub(crate) buffers: VecDeque<ReceiveEntry>,
    /// Number of buffers that messages have taken and that have not completed.
    pub(crate) taken: usize,
    /// Limit of an armed queue; 0 if unarmed.
    ///
    /// One event is raised once fewer buffers are left.
    pub(crate) limit: u32,
    /// Set if the queue failed; it keeps its buffers.
    pub(crate) failed: bool,
    pub(crate) spare: Vec<Vec<Segment>>,
}

impl SharedReceive {
    pub(crate) fn new(token: u64, domain: u32, depth: u32) -> Self {
        Self {
            token,
            domain,
            depth: depth as usize,
            buffers: VecDeque::new(),
            taken: 0,
            limit: 0,
            failed: false,
            spare: Vec::new(),
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.buffers.len() + self.taken
    }

    /// Disarms the limit and returns true if fewer buffers are left (`Spec: SRL-02`).
    pub(crate) fn falls_below_limit(&mut self) -> bool {
        let below = (self.buffers.len() as u64) < u64::from(self.limit);
        if below {
            self.limit = 0;
        }
        below
    }
}
