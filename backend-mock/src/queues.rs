//! Work queues and completion queues, as the core holds them.

use alloc::vec::Vec;

use dat_core::backend::WindowKey;
use dat_queues::{
    Arc, CompletionQueue, CompletionRing, Executor, OvertakesBinds, Owner, Receive, ReceiveQueue,
    ReceiveSlot, Request, SendQueue, SendSlot,
};

use crate::objects::memories::RemoteKey;
use crate::shared::Shared;
use crate::world::World;

/// The send queue of a queue pair; it collects requests until the doorbell rings.
pub type MockSendQueue = SendQueue<MockExecutor>;
/// A reserved slot of a send queue.
pub type MockSendSlot<'a> = SendSlot<'a, MockExecutor>;
/// A receive queue; it collects buffers until the doorbell rings.
pub type MockReceiveQueue = ReceiveQueue<MockExecutor>;
/// A reserved slot of a receive queue.
pub type MockReceiveSlot<'a> = ReceiveSlot<'a, MockExecutor>;
/// A completion queue of an adapter.
pub type MockCompletionQueue = CompletionQueue<MockExecutor>;

/// A handle of a queue to the fabric of its adapter.
#[derive(Debug)]
pub struct MockExecutor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) adapter: usize,
}

impl Executor for MockExecutor {
    type Key = u32;

    fn requests(&self, key: u32) -> Option<usize> {
        self.shared
            .try_enter(|world| Some(world.queue_pairs.get(key)?.sends.len()))?
    }

    fn receives(&self, owner: Owner<u32>) -> Option<usize> {
        self.shared
            .try_enter(|world| world.receives(self.adapter, owner))?
    }

    fn post_requests(&self, key: u32, posted: &mut Vec<Request>) -> Option<usize> {
        self.shared
            .try_enter(|world| world.post_requests(key, posted.drain(..)))?
    }

    fn post_receives(&self, owner: Owner<u32>, posted: &mut Vec<Receive>) -> Option<usize> {
        self.shared
            .try_enter(|world| world.post_receives(self.adapter, owner, posted.drain(..)))?
    }

    fn refuses_post(&self, owner: Owner<u32>) -> bool {
        self.shared.is_busy()
            || self.shared.watches_posts()
                && self
                    .shared
                    .enter(|world| world.refuses_post(self.adapter, owner))
    }

    fn begin_bind(&self, window: WindowKey) -> Option<u32> {
        self.shared.try_enter(|world| {
            let memories = &mut world.adapters[self.adapter].memories;
            memories.windows.get(window.0 as u32)?;
            Some(memories.remote_keys.insert(RemoteKey::Binding))
        })?
    }

    fn cancel_bind(&self, key: u32) {
        self.shared.enter(|world| {
            let memories = &mut world.adapters[self.adapter].memories;
            memories.remote_keys.remove(key);
        });
    }

    fn with_ring<R>(
        &self,
        number: u32,
        act: impl FnOnce(&mut CompletionRing<u32>) -> R,
    ) -> Option<R> {
        self.shared.try_enter(|world| {
            let completions = world.adapters[self.adapter].completion_queue(number)?;
            Some(act(&mut completions.ring))
        })?
    }

    /// Performs the next action if polls drive the fabric.
    fn advance(&self) {
        if self.shared.poll_steps() {
            self.shared.try_enter(World::step);
        }
    }
}

impl OvertakesBinds for MockExecutor {}
