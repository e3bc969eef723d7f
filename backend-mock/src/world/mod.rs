//! The world of a fabric: its objects, its time and its seed.

mod faults;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use dat_core::attributes::IaAddress;
use dat_core::backend::ControlEvent;
use dat_queues::State;
use oorandom::Rand64;

use crate::fault::Fault;
use crate::objects::action::Action;
use crate::objects::adapter::MockAdapter;
use crate::objects::coherence::Coherence;
use crate::objects::faults::Faults;
use crate::objects::joining::{Joining, Name};
use crate::objects::key_map::KeyMap;
use crate::objects::links::Links;
use crate::objects::node::{HostAddress, Node};
use crate::objects::queue_pair::QueuePair;
use crate::objects::schedule::Schedule;
use crate::options::FabricOptions;

/// The state of a fabric.
pub(crate) struct World {
    pub(crate) now: u64,
    random: Rand64,
    pub(crate) schedule: Schedule<Action>,
    pub(crate) options: FabricOptions,
    pub(crate) nodes: Vec<Node>,
    /// Numbers of the nodes by their addresses.
    pub(crate) hosts: BTreeMap<HostAddress, usize>,
    pub(crate) adapters: Vec<MockAdapter>,
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

    /// Returns the node at an address.
    pub(crate) fn node_at(&self, address: IaAddress) -> Option<usize> {
        self.hosts.get(&address.into()).copied()
    }

    /// Adds a host; returns its number.
    pub(crate) fn add_node(&mut self, address: IaAddress, coherence: Option<Coherence>) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node::new(address, coherence));
        self.hosts.insert(address.into(), node);
        node
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

    /// Returns true if a queue pair is in a state of a connection.
    pub(crate) fn is_in(&self, key: u32, connection: u64, state: State) -> bool {
        self.queue_pairs.get(key).is_some_and(|queue_pair| {
            queue_pair.connection == connection && queue_pair.state == state
        })
    }
}
