//! Shared state of a fabric without `std`: for one caller at a time, without sleep.
//!
//! An interrupt handler may meet a call of the context that it interrupts. It must not wait: its
//! posts are refused, its polls find nothing (and say so: the core looks again), its armings miss.

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

    /// As `enter`; `None` if the call would wait for the context that it interrupts.
    pub(crate) fn try_enter<R>(&self, act: impl FnOnce(&mut World) -> R) -> Option<R> {
        Some(act(&mut *self.world.try_lock()?))
    }

    /// Returns true if `try_enter` would return `None`.
    pub(crate) fn is_busy(&self) -> bool {
        self.world.is_locked()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FabricOptions;

    #[test]
    fn a_call_inside_another_does_not_wait() {
        let shared = Shared::new(World::new(FabricOptions::default()), false);
        assert!(!shared.is_busy());
        shared.enter(|_| {
            assert!(shared.is_busy());
            assert!(shared.try_enter(|_| ()).is_none());
        });
        assert!(shared.try_enter(|_| ()).is_some());
    }
}
