//! Adapters of hosts.

use alloc::collections::BTreeSet;
use core::sync::atomic::AtomicUsize;

use dat_queues::{Arc, RingTable, SharedReceives};

use super::completions::Completions;
use super::control::ControlEvents;
use super::key_map::KeyMap;
use super::memories::Memories;
use crate::fault::Fault;
use crate::options::NodeOptions;

/// A listener on a connection qualifier.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) qualifier: u64,
    pub(crate) token: u64,
    /// Number of connection requests that wait for an answer.
    pub(crate) waiting: u32,
}

/// A connection request that waits for an answer.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// Key of the listener, which may be gone.
    pub(crate) listener: u32,
    pub(crate) active: u32,
    pub(crate) connection: u64,
    /// Time at which *Answered* arrives; the later answer must arrive after it.
    pub(crate) answered: u64,
}

/// An adapter of a host; opened once.
pub(crate) struct MockAdapter {
    pub(crate) node: usize,
    pub(crate) options: NodeOptions,
    pub(crate) memories: Memories,
    pub(crate) domains: KeyMap<()>,
    pub(crate) shared_receives: KeyMap<SharedReceives>,
    pub(crate) listeners: KeyMap<Listener>,
    /// Connection requests that wait for an answer.
    pub(crate) requests: KeyMap<PendingRequest>,
    /// Keys of its queue pairs.
    pub(crate) queue_pairs: BTreeSet<u32>,
    pub(crate) completion_queues: RingTable<Completions>,
    pub(crate) control: ControlEvents,
    /// Counters for the fault plan.
    pub(crate) control_calls: u32,
    pub(crate) posts: u32,
    pub(crate) operations: u32,
    pub(crate) messages: u32,
    /// Attempts to take a buffer from a shared receive queue.
    pub(crate) takes: u32,
    /// Attempts that have yet to find no receive buffer.
    pub(crate) refusals: u32,
    /// Fault that causes these refusals.
    pub(crate) refusing: Option<Fault>,
}

impl MockAdapter {
    pub(crate) fn new(
        node: usize,
        options: NodeOptions,
        control_ready: Arc<AtomicUsize>,
        mut salt: impl FnMut() -> u16,
    ) -> Self {
        Self {
            node,
            options,
            domains: KeyMap::starting_at(salt()),
            shared_receives: KeyMap::starting_at(salt()),
            memories: Memories::new(salt),
            listeners: KeyMap::default(),
            requests: KeyMap::default(),
            queue_pairs: BTreeSet::new(),
            completion_queues: RingTable::default(),
            control: ControlEvents::new(control_ready),
            control_calls: 0,
            posts: 0,
            operations: 0,
            messages: 0,
            takes: 0,
            refusals: 0,
            refusing: None,
        }
    }

    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut Completions> {
        self.completion_queues.get_mut(number)
    }

    /// Returns true if a completion of this queue is kept back.
    pub(crate) fn keeps_back(&self, number: u32) -> bool {
        let queue = self.completion_queues.get(number);
        queue.is_some_and(|queue| queue.kept_back.is_some())
    }

    /// Takes a connection request out of its listener's backlog.
    pub(crate) fn take_request(&mut self, key: u32) -> Option<PendingRequest> {
        let request = self.requests.remove(key)?;
        if let Some(listener) = self.listeners.get_mut(request.listener) {
            listener.waiting -= 1;
        }
        Some(request)
    }
}
