//! Passes of a driver: looks for events of the device, and at what is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use dat_core::time::Instant;

use super::adapter_state::AdapterState;
use super::dispatch::Scope;
use crate::lock::lock;
use crate::wake::wake_at;

/// Time between two looks at a device that reports no events, in microseconds.
pub(crate) const POLL_MICROS: u64 = 1_000;

/// Result of [`AdapterState::pass_once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// There were events; look once more.
    Active,
    /// There were none; look again at this time, or when the drivers are woken.
    Idle(Option<Instant>),
}

impl Pass {
    /// Returns how long a thread may sleep: without limit if the outer value has no inner one.
    pub(crate) fn pause(self, adapter: &AdapterState) -> Option<Option<Duration>> {
        match self {
            Self::Active => None,
            Self::Idle(next) => Some(next.map(|next| adapter.until(next))),
        }
    }
}

impl AdapterState {
    /// Registers a sleeper; call `pass` once more before sleeping.
    pub(crate) fn enlist(&self, waker: &Waker) {
        if self.is_inherited() {
            return;
        }
        self.drivers.add(waker);
        self.interface()
            .register_progress_waker(&self.drivers_waker);
    }

    /// As `pass_once`, for a driver that then sleeps until it is woken.
    pub(crate) fn pass(&self) -> Pass {
        if self.is_inherited() {
            return Pass::Idle(None);
        }
        // Before the look for events, so that a later event wakes the driver.
        let notice = || {
            self.device
                .wake_on_events(Waker::from(Arc::clone(&self.notice)))
        };
        let reports_events = *self.reports_events.get_or_init(notice);
        match self.pass_once() {
            Pass::Idle(next) if !reports_events => {
                let poll = Instant::from_micros(self.now().as_micros() + POLL_MICROS);
                Pass::Idle(Some(next.map_or(poll, |next| next.min(poll))))
            }
            Pass::Idle(_) if self.device.before_sleep() => Pass::Active,
            pass => pass,
        }
    }

    /// Notes that a thread is about to sleep on the device, or that it is awake.
    pub(crate) fn note_sleep(&self, sleeps: bool) {
        self.notice.sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Removes a sleeper that does not sleep again.
    pub(crate) fn forget(&self, waker: &Waker) {
        if !self.is_inherited() {
            self.drivers.remove(waker);
        }
    }

    /// Looks for events of the device once and runs their effects.
    pub(crate) fn pass_once(&self) -> Pass {
        if self.is_inherited() {
            return Pass::Idle(None);
        }
        let now = self.now();
        let activity = self.device.act(now);
        self.is_timed
            .store(activity.next.is_some(), Ordering::Relaxed);
        // Before `progress`, which would copy the completions into the queue of the dispatcher.
        let completed = self.dispatch(Scope::Completions);
        let progressed = self.interface().progress(now) != 0;
        let dispatched = self.dispatch(Scope::All);
        if activity.acted || completed || progressed || dispatched {
            return Pass::Active;
        }
        Pass::Idle(first(self.interface().next_deadline(), activity.next))
    }

    /// As `pass_once`, after a sleep in the device's own sleeper that neither a wake-up nor a
    /// deadline ended.
    ///
    /// The sleeper marks what it finds. So a quiet device has nothing but completions, and asking
    /// it or the clock would take a system call.
    pub(crate) fn pass_after_sleep(&self) -> Pass {
        let is_quiet = match self.interface().is_quiet() {
            Some(is_quiet) if !self.is_timed.load(Ordering::Relaxed) => is_quiet,
            _ => return self.pass_once(),
        };
        let completed = self.dispatch(Scope::Completions);
        let progressed = !is_quiet && self.interface().progress(Instant::ZERO) != 0 && {
            self.dispatch(Scope::All);
            true
        };
        match completed || progressed {
            true => Pass::Active,
            false => Pass::Idle(self.interface().next_deadline()),
        }
    }

    /// Lets the timer wake the drivers at the time of the next pass, for drivers that are futures.
    pub(crate) fn arm_timer(&self, next: Instant) {
        let now = self.now();
        let mut armed = lock(&self.armed);
        if armed.is_woken_by(next, now) {
            return;
        }
        let pause = next.as_micros().saturating_sub(now.as_micros());
        let at = std::time::Instant::now() + Duration::from_micros(pause);
        if wake_at(&self.drivers, at).is_ok() {
            armed.add(next);
        } else {
            // Without a thread for the timer, the driver polls.
            drop(armed);
            self.drivers.wake_all();
        }
    }
}

/// Returns the earlier one of two times, if there are any.
pub(crate) fn first(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
