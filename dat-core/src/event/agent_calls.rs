//! Calls of agents of notification objects: one at a time in an adapter, so they do not nest.

use super::cno::CnoSlot;
use super::contain_panic;
use crate::backend::Backend;
use crate::ia::Ia;
use crate::storage::{Index, VisitLink, VisitList};
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU32, Ordering};

/// No frame calls agents.
const IDLE: u32 = 0;
/// A frame calls agents.
const CALLING: u32 = 1;
/// As `CALLING`, and an object has become due since the frame took the list.
const AGAIN: u32 = 2;

/// The notification objects whose agent is due, and whether a frame calls agents.
#[derive(Debug)]
pub(crate) struct AgentCalls {
    due: VisitList,
    state: AtomicU32,
}

impl AgentCalls {
    pub(crate) fn new() -> Self {
        Self {
            due: VisitList::new(),
            state: AtomicU32::new(IDLE),
        }
    }

    /// Adds an object. Needs its lock.
    fn enter(&self, index: Index, link: &VisitLink) {
        self.due.enter(index, link);
    }

    /// Asks for the calls of the objects that are due; returns true if the caller makes them.
    ///
    /// Otherwise the frame that calls agents does.
    fn begin(&self) -> bool {
        self.state.swap(AGAIN, Ordering::SeqCst) == IDLE
    }

    /// Takes the list of due objects; returns the first one.
    fn take(&self) -> Option<Index> {
        // Before the list: an object that enters later asks again.
        self.state.swap(CALLING, Ordering::SeqCst);
        self.due.take()
    }

    /// Ends the calls; returns false if an object has become due since `take`.
    fn end(&self) -> bool {
        self.state
            .compare_exchange(CALLING, IDLE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Calls the agent of the object at an index, or leaves it to the frame that calls agents.
    ///
    /// That frame may be further down on this stack: an agent that causes a call does not wait for
    /// it. So agents do not nest, however many objects cause each other's calls. No lock may be
    /// held.
    pub(crate) fn call_agents(&self, cno: Index) {
        let (calls, objects) = (&self.shared.agent_calls, &self.shared.notification_objects);
        let Some(slot) = objects.get(usize::from(cno)) else {
            return;
        };
        slot.main.with(|_| calls.enter(cno, &slot.calls));
        if !calls.begin() {
            return;
        }
        loop {
            let mut next = calls.take();
            while let Some(index) = next
                && let Some(slot) = objects.get(usize::from(index))
            {
                next = self.call_agent(index, slot);
            }
            if calls.end() {
                return;
            }
        }
    }

    /// Makes the next call of a due object; returns the next due object.
    fn call_agent(&self, index: Index, slot: &CnoSlot<L>) -> Option<Index> {
        let calls = &self.shared.agent_calls;
        let (next, call) = slot.main.with(|object| {
            let next = VisitList::next(index, &slot.calls);
            let call = object.take_call();
            if object.has_call() {
                calls.enter(index, &slot.calls);
                // This frame calls agents, so it only asks itself.
                calls.begin();
            }
            (next, call)
        });
        if let Some((agent, evd)) = call {
            contain_panic(|| (agent.function)(agent.instance_data, evd));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_makes_the_calls_until_nothing_is_due() {
        let (calls, link) = (AgentCalls::new(), VisitLink::NONE);
        assert!(calls.begin());
        assert!(!calls.begin(), "another frame");
        let _all = calls.take();
        // An object becomes due while an agent runs.
        calls.enter(Index::FIRST, &link);
        assert!(!calls.begin());
        assert!(!calls.end());
        let first = calls.take();
        assert_eq!(first.map(usize::from), Some(0));
        let _next = VisitList::next(Index::FIRST, &link);
        assert!(calls.end());
        assert!(calls.begin());
    }
}
