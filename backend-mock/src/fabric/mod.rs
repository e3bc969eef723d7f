//! The fabric: a network in this process.

#[cfg(feature = "std")]
mod thread;

use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;

use dat_core::time::Instant;
use dat_queues::Arc;

use crate::fault::{Fault, Happened};
use crate::objects::adapter::MockAdapter;
use crate::objects::coherence::Coherence;
use crate::options::{FabricOptions, NodeOptions};
use crate::shared::Shared;
use crate::world::World;

#[cfg(feature = "std")]
pub use thread::FabricThread;

/// A network of adapters in this process; clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(crate) shared: Arc<Shared>,
}

impl Fabric {
    /// Makes a fabric without adapters, at time zero.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        let poll_steps = options.poll_steps;
        Self {
            shared: Arc::new(Shared::new(World::new(options), poll_steps)),
        }
    }

    /// Adds an adapter; returns its number.
    pub(crate) fn add(&self, options: NodeOptions, control_ready: Arc<AtomicUsize>) -> usize {
        self.shared.enter(|world| {
            let node = world.node_at(options.address).unwrap_or_else(|| {
                let seed = world.draw(&(0..=u64::MAX - 1));
                let coherence =
                    (!options.coherent).then(|| Coherence::new(seed, options.maintains_buffers));
                world.add_node(options.address, coherence)
            });
            let salt = || world.draw(&(1..=0x7FFF)) as u16;
            let adapter = MockAdapter::new(node, options, control_ready, salt);
            let number = world.adapters.len();
            world.adapters.push(adapter);
            world.nodes[node].adapters.push(number);
            world.schedule_outages();
            number
        })
    }

    /// Performs the next action and advances time to it; returns false if there is none.
    pub fn step(&self) -> bool {
        self.shared.enter(World::step)
    }

    /// Steps until no action is left, at most `max_steps` times; returns the number of steps.
    pub fn run_until_idle(&self, max_steps: usize) -> usize {
        (0..max_steps).take_while(|_| self.step()).count()
    }

    /// Performs all actions due by `until`, and advances time to it.
    ///
    /// Returns the number of steps.
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

    /// Returns the time of the next action.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.shared.enter(World::next_at).map(Instant::from_micros)
    }

    /// Returns the time of the fabric.
    ///
    /// It is virtual. With the fabric's own thread it follows the clock, and stands still while an
    /// action is overdue.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_micros(self.shared.enter(|world| world.now))
    }

    /// Returns the faults that have had an effect, in order.
    ///
    /// A link that is down, and a receiver that is not ready, are listed for each of their effects.
    #[must_use]
    pub fn happened(&self) -> Vec<Happened> {
        self.shared.enter(|world| world.faults.happened().to_vec())
    }

    /// Adds a fault to the plan; times and counts start now.
    pub fn inject_from_now(&self, fault: Fault) {
        let fault = self.shared.enter(|world| world.begin_now(fault));
        self.inject(fault);
    }

    /// Adds a fault to the plan; times and counts start with the fabric.
    pub fn inject(&self, fault: Fault) {
        self.shared.enter(|world| {
            world.inject(fault);
            self.shared.watch_posts(world.faults.watches_posts());
        });
    }
}
