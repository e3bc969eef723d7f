//! Calls of agents of notification objects. In one context, those of an adapter do not nest.

use super::cno::CnoSlot;
use super::contain_panic;
use crate::adapter::Ia;
use crate::backend::Backend;
use crate::id::Index;
use crate::storage::Table;
use crate::sync::RawLock;

/// Notification objects whose agents a frame calls next, in order. An object is due in one frame.
#[derive(Debug, Default)]
pub(crate) struct DueObjects {
    first: Option<Index>,
    last: Option<Index>,
}

impl DueObjects {
    /// Adds an object; returns false if it is due in some frame already.
    fn push<L: RawLock>(&mut self, objects: &Table<'_, CnoSlot<L>>, cno: Index) -> bool {
        let Some(slot) = objects.get(usize::from(cno)) else {
            return false;
        };
        if slot.calls.is_listed() {
            return false;
        }
        slot.calls.set(None);
        let last = self.last.replace(cno);
        match last.and_then(|last| objects.get(usize::from(last))) {
            Some(last) => last.calls.set(Some(cno)),
            None => self.first = Some(cno),
        }
        true
    }

    /// Removes the first object.
    fn pop<L: RawLock>(&mut self, objects: &Table<'_, CnoSlot<L>>) -> Option<Index> {
        let cno = self.first?;
        let slot = objects.get(usize::from(cno));
        self.first = slot.and_then(|slot| slot.calls.take());
        if self.first.is_none() {
            self.last = None;
        }
        Some(cno)
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Calls the agents of the object at an index, or leaves them to the frame of this context that
    /// calls agents of this adapter.
    ///
    /// That frame is further down on this stack, so agents that cause each other's calls do not
    /// nest. Frames of other contexts are not waited for: an agent may wait for what the agent of
    /// another thread does. No lock may be held.
    ///
    /// Spec: CNC-02
    #[cold]
    pub(crate) fn call_agents(&self, cno: Index) {
        let (frames, objects) = (&self.shared.agent_frames, &self.shared.notification_objects);
        let is_left = frames.with(|due| {
            due.push(objects, cno);
        });
        if is_left.is_none() {
            frames.run(
                cno,
                |cno| self.call_agent(cno).then_some(cno),
                |due, again| match again {
                    // Another frame may have it, whose agent may wait for this call.
                    Some(cno) if !due.push(objects, cno) => Some(cno),
                    _ => due.pop(objects),
                },
            );
        }
    }

    /// Makes the next call of an object, unless an agent of the object runs.
    ///
    /// Returns true if a further call is due.
    fn call_agent(&self, cno: Index) -> bool {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return false;
        };
        let begun = slot
            .main
            .with(|object| object.begin_call().map(|call| (object.id, call)));
        let Some((id, (agent, evd))) = begun else {
            return false;
        };
        contain_panic(|| (agent.function)(agent.instance_data, evd));
        slot.main.with(|object| {
            // The agent may have freed its object.
            object.id == id && object.end_call()
        })
    }
}
