//! The fault plan, and the objects that its faults hit.

use super::World;
use crate::fault::{ConnectionEnd, Fault};
use crate::objects::action::Action;
use crate::objects::adapter::MockAdapter;

impl World {
    /// Adds a fault to the plan.
    pub(crate) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { .. } | Fault::LinkDown { .. } => {
                self.outages.push(fault);
                self.schedule_outages();
            }
            counted => self.faults.add(counted),
        }
    }

    /// Returns the fault with its times and counts starting now.
    pub(crate) fn begin_now(&mut self, mut fault: Fault) -> Fault {
        let now = self.now;
        match &mut fault {
            Fault::DropCompletion {
                adapter,
                queue,
                nth,
            }
            | Fault::DelayCompletion {
                adapter,
                queue,
                nth,
                ..
            }
            | Fault::DuplicateCompletion {
                adapter,
                queue,
                nth,
            }
            | Fault::ReorderCompletion {
                adapter,
                queue,
                nth,
            }
            | Fault::OverrunQueue {
                adapter,
                queue,
                nth,
            } => *nth = nth.saturating_add(self.counts_of(*adapter, *queue).0),
            Fault::LoseNotification {
                adapter,
                queue,
                nth,
            } => *nth = nth.saturating_add(self.counts_of(*adapter, *queue).1),
            Fault::LinkDown { at, .. } | Fault::Crash { at, .. } => *at = at.saturating_add(now),
            Fault::AllocationFailure { adapter, nth } => {
                self.count_on(*adapter, nth, |it| it.control_calls)
            }
            Fault::RefusePost { adapter, nth } => self.count_on(*adapter, nth, |it| it.posts),
            Fault::RemoteError { adapter, nth, .. } => {
                self.count_on(*adapter, nth, |it| it.operations)
            }
            Fault::ReceiverNotReady { adapter, nth, .. } => {
                self.count_on(*adapter, nth, |it| it.messages)
            }
            Fault::FailSharedReceive { adapter, nth } => {
                self.count_on(*adapter, nth, |it| it.takes)
            }
        }
        fault
    }

    /// Adds the count of an adapter so far.
    fn count_on(&self, adapter: u16, nth: &mut u32, counter: impl Fn(&MockAdapter) -> u32) {
        let adapter = self.adapters.get(usize::from(adapter));
        *nth = nth.saturating_add(adapter.map_or(0, counter));
    }

    /// Returns the numbers of completions and notifications of a queue so far.
    fn counts_of(&mut self, adapter: u16, queue: u32) -> (u32, u32) {
        let adapter = self.adapters.get_mut(usize::from(adapter));
        let queue = adapter.and_then(|adapter| adapter.completion_queue(queue));
        queue.map_or((0, 0), |queue| (queue.produced, queue.notified))
    }

    /// Applies the outages and schedules the crashes of adapters that exist.
    ///
    /// A crash of an adapter that does not exist is not scheduled, so it cannot advance time.
    pub(crate) fn schedule_outages(&mut self) {
        let Self {
            outages,
            adapters,
            links,
            schedule,
            now,
            ..
        } = self;
        outages.retain(|fault| {
            if let Fault::Crash { adapter, at } = *fault {
                let exists = adapters.len() > usize::from(adapter);
                if exists {
                    schedule.add(at.max(*now), 0, Action::Crash { adapter });
                }
                return !exists;
            }
            let Fault::LinkDown { a, b, at, duration } = *fault else {
                return false;
            };
            let node = |adapter: u16| {
                let adapter: Option<&MockAdapter> = adapters.get(usize::from(adapter));
                adapter.map(|adapter| adapter.node)
            };
            let (Some(a), Some(b)) = (node(a), node(b)) else {
                return true;
            };
            let until = duration.map(|duration| at.saturating_add(u64::from(duration)));
            links.cut(fault.clone(), (a, b), at, until);
            false
        });
    }

    /// Returns the connection of a queue pair by its adapters.
    pub(crate) fn connection_end(&self, key: u32) -> Option<ConnectionEnd> {
        let queue_pair = self.queue_pairs.get(key)?;
        let peer = self.queue_pairs.get(queue_pair.peer?)?;
        Some(ConnectionEnd {
            from: queue_pair.adapter as u16,
            to: peer.adapter as u16,
            is_initiator: queue_pair.is_initiator,
        })
    }

    /// Notes the outage of the link, if that made a transfer between two hosts fail.
    pub(crate) fn note_outage(&mut self, from: usize, to: usize) {
        if let Some(fault) = self.links.cause(from, to, self.now) {
            let fault = fault.clone();
            self.faults.note(fault, None);
        }
    }

    /// As [`note_outage`](Self::note_outage), for a request of a queue pair.
    pub(crate) fn note_outage_of(&mut self, key: u32) {
        if let Some(ConnectionEnd { from, to, .. }) = self.connection_end(key) {
            let node = |adapter: u16| self.adapters[usize::from(adapter)].node;
            self.note_outage(node(from), node(to));
        }
    }
}
