//! The fabric: a network in this process.

use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;

use dat_core::time::Instant;

use crate::backend::MockBackend;
use crate::coherence::Coherence;
use crate::fault::{Fault, Happened};
use crate::link::same_host;
use crate::node::{Adapter, Node};
use crate::options::{FabricOptions, NodeOptions};
use crate::shared::{Arc, Shared};
use crate::world::World;

/// The first connection qualifier for listeners that take any, and the first local port.
const FIRST_DYNAMIC_QUALIFIER: u64 = 0x8000;
const FIRST_PORT: u64 = 0xC000;

/// The qualifiers a listener that takes any may get: `count` of them, each once, starting with `first`.
pub(crate) fn dynamic_qualifiers(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let offset = first.saturating_sub(FIRST_DYNAMIC_QUALIFIER);
    (0..count).map(move |step| FIRST_DYNAMIC_QUALIFIER + (offset + step) % count)
}

/// A network of adapters in this process. Clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(crate) shared: Arc<Shared>,
}

impl Fabric {
    /// A fabric without adapters, at time zero.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        let poll_steps = options.poll_steps;
        Self {
            shared: Arc::new(Shared::new(World::new(options), poll_steps)),
        }
    }

    /// Adds an adapter, on the host of its address if there is one already.
    pub fn node(&self, options: NodeOptions) -> MockBackend {
        let control_ready = Arc::new(AtomicUsize::new(0));
        let adapter = self.shared.enter(|world| {
            let node = world
                .nodes
                .iter()
                .position(|node| same_host(node.address, options.address));
            let node = node.unwrap_or_else(|| {
                let seed = world.draw(&(0..=u64::MAX - 1));
                world.nodes.push(Node {
                    address: options.address,
                    coherence: (!options.coherent).then(|| Coherence::new(seed)),
                    listeners: Vec::new(),
                    next_qualifier: FIRST_DYNAMIC_QUALIFIER,
                    next_listener: 0,
                    next_port: FIRST_PORT,
                    crashed: false,
                });
                world.nodes.len() - 1
            });
            let salt = || world.draw(&(1..=0x7FFF)) as u16;
            let adapter = Adapter::new(node, options, Arc::clone(&control_ready), salt);
            world.adapters.push(adapter);
            world.place_outages();
            world.adapters.len() - 1
        });
        MockBackend::new(Arc::clone(&self.shared), adapter, control_ready, options)
    }

    /// Performs the next action and moves time to it; false if there is nothing to do.
    pub fn step(&self) -> bool {
        self.shared.enter(World::step)
    }

    /// Steps until there is nothing to do, but at most so often; the number of steps.
    pub fn run_until_idle(&self, max_steps: usize) -> usize {
        (0..max_steps).take_while(|_| self.step()).count()
    }

    /// Performs everything that is due until `until` and moves time there; the number of steps.
    pub fn run_until(&self, until: Instant) -> usize {
        let until = until.as_micros();
        self.shared.enter(|world| {
            let mut steps = 0;
            while world.next_at().is_some_and(|at| at <= until) {
                world.step();
                steps += 1;
            }
            world.now = world.now.max(until);
            steps
        })
    }

    /// When the next action is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.shared.enter(World::next_at).map(Instant::from_micros)
    }

    /// The time of the fabric: virtual, and with the clock while the fabric has its own thread.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_micros(self.shared.enter(|world| world.now))
    }

    /// The faults that had an effect so far, the first one first; one that cuts hosts apart, or takes buffers away, each time that it has one.
    #[must_use]
    pub fn happened(&self) -> Vec<Happened> {
        self.shared.enter(|world| world.faults.happened().to_vec())
    }

    /// Adds a fault to the plan, whose times and counts begin now.
    pub fn inject_from_now(&self, fault: Fault) {
        let fault = self.shared.enter(|world| world.begin_now(fault));
        self.inject(fault);
    }

    /// Adds a fault to the plan. What is counted, is counted from the beginning.
    pub fn inject(&self, fault: Fault) {
        self.shared.enter(|world| {
            world.inject(fault);
            self.shared.watch_posts(world.faults.watches_posts());
        });
    }
}
