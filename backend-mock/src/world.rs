//! The world of a fabric: its objects and its next actions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use dat_core::attributes::IaAddress;
use dat_core::backend::ControlEvent;
use oorandom::Rand64;

use crate::completion_queue::Entry;
use crate::connection::Message;
use crate::fault::{ConnectionEnd, Fault, Faults};
use crate::join::{Joining, Name};
use crate::key_map::KeyMap;
use crate::link::{HostAddress, Links};
use crate::node::{Adapter, Node};
use crate::options::FabricOptions;
use crate::queue_pair::{QueuePair, State};
use crate::schedule::Schedule;

/// A scheduled action; when it runs, it checks that its objects still exist.
#[derive(Debug)]
pub(crate) enum Action {
    /// A queue pair starts its next request.
    Start { key: u32, connection: u64 },
    /// The answer to a request reaches the sender.
    Answer {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// An answer to an RDMA Read or an atomic operation arrives, entirely or partly.
    Response {
        key: u32,
        connection: u64,
        number: u64,
        placed: bool,
    },
    /// An RDMA Read or an atomic operation without an answer fails.
    GiveUp {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// A piece of the oldest message in progress at a queue pair arrives.
    Place { key: u32, connection: u64 },
    /// A bind is performed.
    Bound {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// A delayed completion is delivered.
    Deliver {
        adapter: usize,
        number: u32,
        entry: Entry,
    },
    /// A completion that is kept back is delivered, as none overtook it in time.
    Release { adapter: usize, number: u32 },
    /// The queue pairs that use an overrun completion queue break.
    Overrun { adapter: usize, number: u32 },
    /// A message about a connection arrives.
    Message(Box<Message>),
    /// An accepting side stops waiting for the connection.
    AcceptTimeout { key: u32, connection: u64 },
    /// A host crashes.
    Crash { adapter: u16 },
}

/// The state of a fabric.
pub(crate) struct World {
    pub(crate) now: u64,
    random: Rand64,
    pub(crate) schedule: Schedule<Action>,
    pub(crate) options: FabricOptions,
    pub(crate) nodes: Vec<Node>,
    /// Numbers of the nodes by their addresses.
    pub(crate) hosts: BTreeMap<HostAddress, usize>,
    pub(crate) adapters: Vec<Adapter>,
    pub(crate) queue_pairs: KeyMap<QueuePair>,
    pub(crate) connections: u64,
    /// Queue pairs that wait for their peer to be joined to them, by their own names.
    pub(crate) joining: BTreeMap<Name, Joining>,
    pub(crate) links: Links,
    pub(crate) faults: Faults,
    /// Outages and crashes of adapters that do not exist yet.
    outages: Vec<Fault>,
    /// Counts changes that are visible to the users of adapters.
    pub(crate) deliveries: u64,
}

impl World {
    pub(crate) fn new(options: FabricOptions) -> Self {
        let mut world = Self {
            now: 0,
            random: Rand64::new(u128::from(options.seed)),
            schedule: Schedule::new(),
            nodes: Vec::new(),
            hosts: BTreeMap::new(),
            adapters: Vec::new(),
            queue_pairs: KeyMap::default(),
            connections: 0,
            joining: BTreeMap::new(),
            links: Links::default(),
            faults: Faults::default(),
            outages: Vec::new(),
            deliveries: 0,
            options,
        };
        for fault in core::mem::take(&mut world.options.faults.faults) {
            world.inject(fault);
        }
        world
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
    fn count_on(&self, adapter: u16, nth: &mut u32, counter: impl Fn(&Adapter) -> u32) {
        let adapter = self.adapters.get(usize::from(adapter));
        *nth = nth.saturating_add(adapter.map_or(0, counter));
    }

    /// Returns the numbers of completions and notifications of a queue so far.
    fn counts_of(&mut self, adapter: u16, queue: u32) -> (u32, u32) {
        let adapter = self.adapters.get_mut(usize::from(adapter));
        let ring = adapter.and_then(|adapter| adapter.completion_queue(queue));
        ring.map_or((0, 0), |ring| (ring.produced, ring.notified))
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
                let adapter: Option<&Adapter> = adapters.get(usize::from(adapter));
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

    /// Returns a number from the range, chosen by the seed.
    pub(crate) fn draw(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let (start, end) = (*range.start(), *range.end());
        if start >= end {
            return start;
        }
        self.random.rand_range(start..end.saturating_add(1))
    }

    /// Returns a bit, chosen by the seed.
    pub(crate) fn coin(&mut self) -> bool {
        self.random.rand_u64() & 1 == 1
    }

    /// Returns the rank of an action among those of the same time.
    fn tie(&mut self) -> u32 {
        if self.options.shuffle {
            (self.random.rand_u64() >> 32) as u32
        } else {
            0
        }
    }

    /// Schedules an action.
    pub(crate) fn plan(&mut self, at: u64, action: Action) {
        let tie = self.tie();
        self.schedule.add(at, tie, action);
    }

    /// Schedules an action that mostly has no effect when it is due.
    pub(crate) fn plan_timeout(&mut self, at: u64, action: Action) {
        let tie = self.tie();
        self.schedule.add_timeout(at, tie, action);
    }

    /// Returns the time of the next action, after removing timeouts without effect.
    pub(crate) fn next_at(&mut self) -> Option<u64> {
        while self
            .schedule
            .peek()
            .is_some_and(|action| self.is_settled(action))
        {
            self.schedule.pop();
        }
        self.schedule.next_at()
    }

    /// Returns true if an action is a timeout without effect; it must not advance time.
    fn is_settled(&self, action: &Action) -> bool {
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

    /// Returns the node at an address.
    pub(crate) fn node_at(&self, address: IaAddress) -> Option<usize> {
        self.hosts.get(&address.into()).copied()
    }

    /// Returns true if a message gets from one host to another now.
    pub(crate) fn passes(&self, from: usize, to: usize) -> bool {
        !self.nodes[from].crashed && !self.nodes[to].crashed && self.links.is_up(from, to, self.now)
    }

    /// Raises a control event.
    pub(crate) fn raise(&mut self, adapter: usize, event: ControlEvent) {
        self.adapters[adapter].control.push(event);
        self.deliveries = self.deliveries.wrapping_add(1);
    }

    /// Breaks all queue pairs that use a completion queue.
    fn break_users(&mut self, adapter: usize, number: u32) {
        let ring = self.adapters[adapter].completion_queue(number);
        for key in ring.map(|ring| ring.users.clone()).unwrap_or_default() {
            self.break_connection(key);
        }
    }
}
