//! Waits of an engine, during which the other engine and the fabric act.

use std::cell::Cell;
use std::task::Waker;

use backend_mock::Fabric;
use dat_core::event::{Wait, WakeReason};
use dat_core::time::Instant;

use super::Engine;

/// Waits by driving the other engine and the fabric.
pub(super) struct DrivingWait<'w, 's> {
    pub(super) fabric: &'w Fabric,
    pub(super) other: &'w Engine<'s>,
    pub(super) waits_left: usize,
    pub(super) endless: &'w Cell<bool>,
}

impl Wait for DrivingWait<'_, '_> {
    fn now(&mut self) -> Instant {
        self.fabric.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let now = self.now();
        self.waits_left = self.waits_left.saturating_sub(1);
        if self.waits_left == 0 {
            self.endless.set(true);
            return WakeReason::Interrupted;
        }
        if self.other.progress(now) != 0 || self.fabric.step() {
            return WakeReason::Woken;
        }
        // The other engine is driven whenever its deadline is due.
        let other = self.other.next_deadline().filter(|due| *due > now);
        match (until, other) {
            (until, Some(other)) if until.is_none_or(|until| other < until) => {
                self.fabric.run_until(other);
                WakeReason::Woken
            }
            (Some(until), _) => {
                self.fabric.run_until(until.max(now));
                WakeReason::TimedOut
            }
            // Nothing will ever wake this call.
            (None, _) => WakeReason::Interrupted,
        }
    }
}
