//! Hosts and their adapters.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::attributes::IaAddress;
use dat_core::backend::ControlEvent;

use crate::coherence::Coherence;
use crate::completion_queue::CompletionRing;
use crate::fault::Fault;
use crate::options::NodeOptions;
use crate::region::Memories;
use crate::shared::Arc;
use crate::shared_receive::SharedReceive;
use crate::table::Table;

/// A listener on a connection qualifier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    pub(crate) key: usize,
    pub(crate) qualifier: u64,
    pub(crate) adapter: usize,
    pub(crate) token: u64,
}

/// A host.
pub(crate) struct Node {
    pub(crate) address: IaAddress,
    pub(crate) coherence: Option<Coherence>,
    pub(crate) listeners: Vec<Listener>,
    /// First qualifier to try for a listener that takes any.
    pub(crate) next_qualifier: u64,
    pub(crate) next_listener: usize,
    pub(crate) next_port: u64,
    pub(crate) crashed: bool,
}

/// An adapter of a host; opened once.
pub(crate) struct Adapter {
    pub(crate) node: usize,
    pub(crate) options: NodeOptions,
    pub(crate) memories: Memories,
    pub(crate) domains: Table<()>,
    pub(crate) shared_receives: Table<SharedReceive>,
    completion_queues: Vec<Option<CompletionRing>>,
    control: VecDeque<ControlEvent>,
    /// Number of queued control events; read without the lock.
    control_ready: Arc<AtomicUsize>,
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

impl Adapter {
    pub(crate) fn new(
        node: usize,
        options: NodeOptions,
        control_ready: Arc<AtomicUsize>,
        mut salt: impl FnMut() -> u16,
    ) -> Self {
        Self {
            node,
            options,
            domains: Table::starting_at(salt()),
            shared_receives: Table::starting_at(salt()),
            memories: Memories::new(salt),
            completion_queues: Vec::new(),
            control: VecDeque::new(),
            control_ready,
            control_calls: 0,
            posts: 0,
            operations: 0,
            messages: 0,
            takes: 0,
            refusals: 0,
            refusing: None,
        }
    }

    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut CompletionRing> {
        self.completion_queues
            .get_mut(number as usize)?
            .as_mut()
    }

    /// Returns true if a completion of this queue is kept back.
    pub(crate) fn keeps_back(&self, number: u32) -> bool {
        let ring = self.completion_queues.get(number as usize);
        ring.and_then(Option::as_ref)
            .is_some_and(CompletionRing::keeps_back)
    }

    pub(crate) fn completion_queues(&mut self) -> impl Iterator<Item = &mut CompletionRing> {
        self.completion_queues.iter_mut().flatten()
    }

    /// Adds a queue under this number; returns false if there is one.
    pub(crate) fn add_completion_queue(&mut self, number: u32, ring: CompletionRing) -> bool {
        let index = number as usize;
        if self.completion_queues.len() <= index {
            self.completion_queues.resize_with(index + 1, || None);
        }
        match self.completion_queues.get_mut(index) {
            Some(slot @ None) => {
                *slot = Some(ring);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove_completion_queue(&mut self, number: u32) {
        if let Some(slot) = self.completion_queues.get_mut(number as usize) {
            *slot = None;
        }
    }

    /// Queues a control event.
    pub(crate) fn push_control(&mut self, event: ControlEvent) {
        self.control.push_back(event);
        self.publish();
    }

    pub(crate) fn pop_control(&mut self) -> Option<ControlEvent> {
        let event = self.control.pop_front();
        self.publish();
        event
    }

    /// Removes the connection events of a queue pair.
    pub(crate) fn forget_connection_events(&mut self, token: u64) {
        self.control.retain(|event| match event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair } => *queue_pair != token,
            _ => true,
        });
        self.publish();
    }

    /// Removes all events of a queue pair.
    pub(crate) fn forget_queue_pair(&mut self, token: u64) {
        self.forget_connection_events(token);
        self.control.retain(|event| {
            !matches!(event, ControlEvent::SoftHighWatermark { queue_pair } if *queue_pair == token)
        });
        self.publish();
    }

    /// Removes the unpolled events that equal `gone`; returns true if there were any.
    ///
    /// For a queue that is removed or armed again.
    pub(crate) fn forget_events(&mut self, gone: &ControlEvent) -> bool {
        let before = self.control.len();
        self.control.retain(|event| event != gone);
        self.publish();
        self.control.len() != before
    }

    fn publish(&self) {
        self.control_ready
            .store(self.control.len(), Ordering::Release);
    }
}
