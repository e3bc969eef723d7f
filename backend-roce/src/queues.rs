//! Work queues and completion queues, as the core holds them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dat_core::backend::WindowKey;
use dat_queues::{
    CompletionQueue, CompletionRing, Executor, Owner, Receive, ReceiveQueue, ReceiveSlot, Request,
    SendQueue, SendSlot,
};

use crate::adapter::{Adapter, Pair, SEGMENTS};
use crate::shared::Shared;

/// The send queue of a queue pair; it collects requests until the doorbell rings.
pub type RoceSendQueue = SendQueue<RoceExecutor>;
/// A reserved slot of a send queue.
pub type RoceSendSlot<'a> = SendSlot<'a, RoceExecutor>;
/// A receive queue, shared or of one queue pair.
pub type RoceReceiveQueue = ReceiveQueue<RoceExecutor>;
/// A reserved slot of a receive queue.
pub type RoceReceiveSlot<'a> = ReceiveSlot<'a, RoceExecutor>;
/// A completion queue.
pub type RoceCompletionQueue = CompletionQueue<RoceExecutor>;

/// A handle of a queue to its adapter.
pub struct RoceExecutor(pub(crate) Arc<Shared>);

impl Executor for RoceExecutor {
    type Key = usize;

    const SEGMENTS: usize = SEGMENTS;
    const PEEKS: bool = true;

    fn requests(&self, key: usize) -> Option<usize> {
        self.0
            .enter(|adapter| adapter.pairs.get(key).map(Pair::posted))
    }

    fn receives(&self, owner: Owner<usize>) -> Option<usize> {
        self.0.enter(|adapter| adapter.receives(owner))
    }

    fn post_requests(&self, key: usize, posted: &mut Vec<Request>) -> Option<usize> {
        // The thread has to know when requests that wait leave in any case.
        self.0
            .enter_and_send(|adapter| adapter.post_requests(key, posted.drain(..)))
    }

    fn post_receives(&self, owner: Owner<usize>, posted: &mut Vec<Receive>) -> Option<usize> {
        // The completions of an ended queue pair can overrun their queue, which ends the other
        // connections of that queue: their peers are told.
        self.0
            .enter_and_send(|adapter| adapter.post_receives(owner, posted.drain(..)))
    }

    fn begin_bind(&self, window: WindowKey) -> Option<u32> {
        self.0
            .enter(|adapter| adapter.memories.begin_bind(window.0))
    }

    fn cancel_bind(&self, key: u32) {
        self.0.enter(|adapter| adapter.memories.cancel_bind(key));
    }

    fn with_ring<R>(
        &self,
        number: u32,
        act: impl FnOnce(&mut CompletionRing<usize>) -> R,
    ) -> Option<R> {
        self.0
            .enter_briefly(|adapter| Some(act(&mut adapter.completion_queue(number)?.ring)))
    }

    /// Lets requests leave that wait for the consumer, and moves the packets of local queues;
    /// without a thread, moves all packets that are due.
    fn advance(&self) {
        if self.0.gathers() {
            self.0.enter_and_send(Adapter::release_gathered);
        }
        self.0.poll();
    }

    fn before_arming(&self) {
        self.0.before_arming();
    }

    fn is_gone(&self) -> bool {
        self.0.is_forked()
    }
}
