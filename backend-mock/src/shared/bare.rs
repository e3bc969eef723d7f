//! Shared state of a fabric without `std`: for one caller at a time, without sleep.

use core::sync::atomic::{AtomicBool, Ordering};

use spin::mutex::SpinMutex;

use crate::world::World;

/// Shared state of a fabric.
pub(crate) struct Shared {
    world: SpinMutex<World>,
    poll_steps: bool,
    watches_posts: AtomicBool,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(world: World, poll_steps: bool) -> Self {
        Self {
            poll_steps,
            watches_posts: AtomicBool::new(world.faults.watches_posts()),
            world: SpinMutex::new(world),
        }
    }

    /// Runs `act` on the locked world.
    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        act(&mut self.world.lock())
    }

    pub(crate) fn poll_steps(&self) -> bool {
        self.poll_steps
    }

    pub(crate) fn watches_posts(&self) -> bool {
        self.watches_posts.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_posts(&self, watches: bool) {
        self.watches_posts.store(watches, Ordering::Relaxed);
    }
}
