//! Execution of requests: the sender's device, the wire and the target's device.
//!
//! Requests of one queue pair start in posting order, one after another, and act at the target in
//! that order. A request has *started* when it acted there; an RDMA Read, when the target admitted
//! it. It has an *outcome* when it is done at the target. It is *answered* when the sender's device
//! knows the outcome. Then it retires, in posting order.
//!
//! Data moves in chunks, as in packets; each chunk is an action. So a long transfer does not delay
//! all others. Rights are checked for each chunk, so memory is not touched after its rights are
//! taken away.

mod calls;
mod chunk;
mod completions;
mod connection;
mod endings;
mod extended;
mod join;
mod message;
mod posts;
mod receives;
mod requests;
mod transfers;
mod unmaintained;

use dat_queues::State;

use crate::fault::Fault;
use crate::objects::action::Action;
use crate::world::World;

impl World {
    /// Performs the next action and advances time to it; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.next_at();
        let Some((at, action)) = self.schedule.pop() else {
            return false;
        };
        self.now = self.now.max(at);
        self.perform(action);
        true
    }

    /// Returns the time of the next action, after removing timeouts without effect.
    pub(crate) fn next_at(&mut self) -> Option<u64> {
        while self
            .schedule
            .peek()
            .is_some_and(|action| self.is_without_effect(action))
        {
            self.schedule.pop();
        }
        self.schedule.next_at()
    }

    /// Returns true if an action is a timeout without effect; it must not advance time.
    fn is_without_effect(&self, action: &Action) -> bool {
        match *action {
            Action::AcceptTimeout { key, connection } => {
                !self.is_in(key, connection, State::Accepting)
            }
            Action::GiveUp {
                key, connection, ..
            } => !self.is_in(key, connection, State::Connected),
            Action::Release { adapter, number } => !self.adapters[adapter].keeps_back(number),
            _ => false,
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start { key, connection } => self.start(key, connection),
            Action::Answer {
                key,
                connection,
                number,
            } => self.answer(key, connection, number),
            Action::Response {
                key,
                connection,
                number,
                placed,
            } => self.response(key, connection, number, placed),
            Action::GiveUp {
                key,
                connection,
                number,
            } => self.give_up(key, connection, number),
            Action::Place { key, connection } => self.place_message(key, connection),
            Action::Bound {
                key,
                connection,
                number,
            } => self.bound(key, connection, number),
            Action::Deliver {
                adapter,
                number,
                entry,
            } => self.queue_entry(adapter, number, entry),
            Action::Release { adapter, number } => self.release_kept(adapter, number),
            Action::Overrun { adapter, number } => self.break_users(adapter, number),
            Action::Message(message) => self.message(message),
            Action::AcceptTimeout { key, connection } => self.accept_timeout(key, connection),
            Action::Crash { adapter: number } => {
                if let Some(adapter) = self.adapters.get(usize::from(number)) {
                    self.crash(adapter.node);
                    let (adapter, at) = (number, self.now);
                    self.faults.note(Fault::Crash { adapter, at }, None);
                }
            }
        }
    }
}
