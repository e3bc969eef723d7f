//! Waiting calls: they make progress, check their condition and sleep.
//!
//! [`watch`](super::watch) has the limits of waits for peers.

use core::mem;
use core::task::Waker;

use dat_core::ErrorKind;
use dat_core::backend::Backend;
use dat_core::event::{Wait, WakeReason, contain_panic};
use dat_core::sync::RawLock;
use dat_core::time::Instant;
use portable_atomic::Ordering;

use crate::age::earliest;
use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ControllerId;

/// Microseconds until a call polls again if no event is sure to wake it.
const SLICE: u32 = 1_000;

/// Rounds without a sleep after which a call looks whether it is interrupted.
const BUSY_ROUNDS: u32 = 8;

/// Sleeps of a [`Deaf`] wait that an interruption may end at one and the same time.
const DEAF_SLEEPS: u32 = 20_000;

/// A wait that an interruption does not end.
///
/// For calls that have no error for an interruption. An interruption may last, so that no sleep is
/// possible. The wait then polls. Only if its time stands still, too, it is interrupted in the end.
#[derive(Debug)]
pub struct Deaf<'w, W> {
    inner: &'w mut W,
    since: Instant,
    /// Sleeps that were interrupted at that time.
    sleeps: u32,
}

impl<'w, W: Wait> Deaf<'w, W> {
    /// Makes such a wait of one that an interruption ends.
    pub fn new(inner: &'w mut W) -> Self {
        Self {
            inner,
            since: Instant::ZERO,
            sleeps: 0,
        }
    }
}

impl<W: Wait> Wait for Deaf<'_, W> {
    fn now(&mut self) -> Instant {
        self.inner.now()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn begin(&mut self) {
        self.inner.begin();
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let reason = self.inner.wait(until);
        if reason != WakeReason::Interrupted {
            return reason;
        }
        let now = self.inner.now();
        if now > self.since {
            (self.since, self.sleeps) = (now, 0);
        }
        if self.sleeps >= DEAF_SLEEPS {
            return reason;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        core::hint::spin_loop();
        WakeReason::Woken
    }
}

/// The caller's wait, which also ends when the engine changes.
struct Attentive<'w, 's, B: Backend, L: RawLock, W> {
    inner: &'w mut W,
    engine: &'w Rsm<'s, B, L>,
    ticket: u32,
    seen: u32,
    slept: bool,
    interrupted: bool,
}

impl<B: Backend, L: RawLock, W> Attentive<'_, '_, B, L, W> {
    fn is_stale(&self) -> bool {
        self.engine.changes.load(Ordering::SeqCst) != self.seen
    }
}

impl<B: Backend, L: RawLock, W: Wait> Wait for Attentive<'_, '_, B, L, W> {
    fn now(&mut self) -> Instant {
        self.inner.now()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn begin(&mut self) {
        self.inner.begin();
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        // `tell_change` drops the wakers that it wakes, so each sleep registers again. The check of
        // the changes comes later, so none is missed.
        let will_wake = self.engine.begin_sleep(self.ticket, self.inner.waker());
        // The adapter sees a change of the engine as an interruption; `sleep` tells the two apart.
        if self.is_stale() {
            return WakeReason::Interrupted;
        }
        let until = if will_wake {
            until
        } else {
            earliest(until, self.inner.now().after(SLICE))
        };
        let reason = self.inner.wait(until);
        self.slept = true;
        if reason == WakeReason::Interrupted {
            self.interrupted = true;
        } else if self.is_stale() {
            return WakeReason::Interrupted;
        }
        reason
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Reports a change, and wakes the sleeping calls.
    pub(crate) fn tell_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let sleepers = self.sleepers.with(mem::take);
        for (_, waker) in sleepers {
            contain_panic(|| waker.wake());
        }
    }

    /// Registers a waker for the next change; returns false if too many calls sleep.
    fn begin_sleep(&self, ticket: u32, waker: Waker) -> bool {
        self.sleepers.with(|sleepers| {
            sleepers.iter().any(|(other, _)| *other == ticket)
                || sleepers.push((ticket, waker)).is_ok()
        })
    }

    /// Makes progress as long as a controller is open, for a thread of its own.
    ///
    /// Such a thread answers importers and takes signals and revocations, independent of the rest
    /// of the program. Calls `look` whenever something may have changed.
    ///
    /// # Errors
    /// INTERRUPTED: `wait` was interrupted; call it again.
    pub fn serve<W: Wait>(
        &self,
        controller: ControllerId,
        wait: &mut W,
        mut look: impl FnMut(),
    ) -> Result<()> {
        self.wait_for(Some(controller), None, wait, |_| {
            look();
            let open = self.state.with(|state| self.port_of(state, controller));
            open.is_err().then_some(Ok(()))
        })
    }

    /// Makes progress until `look` returns an outcome.
    ///
    /// # Errors
    /// - TIMEOUT: the deadline has passed.
    /// - INTERRUPTED: `wait` was interrupted.
    pub(crate) fn wait_for<W: Wait, R>(
        &self,
        controller: Option<ControllerId>,
        deadline: Option<Instant>,
        wait: &mut W,
        mut look: impl FnMut(Instant) -> Option<Result<R>>,
    ) -> Result<R> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut fresh = true;
        let mut busy_rounds = 0_u32;
        let outcome = loop {
            let seen = self.changes.load(Ordering::SeqCst);
            let now = wait.now();
            let busy = self.progress(now) != 0;
            if let Some(outcome) = look(now) {
                break outcome;
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                break Err(RsmError::TimedOut);
            }
            busy_rounds = busy_rounds.saturating_add(1);
            // A flood, also one that another thread handles, must not keep the call from being
            // interrupted. A look may be a system call, so not every round has one.
            if busy_rounds >= BUSY_ROUNDS {
                busy_rounds = 0;
                if wait.wait(Some(now)) == WakeReason::Interrupted {
                    break Err(RsmError::Interrupted);
                }
            }
            if busy {
                fresh = true;
                continue;
            }
            // The work that `look` started may be done already. Another round costs less than
            // arming the device.
            if mem::take(&mut fresh) {
                continue;
            }
            match self.sleep(controller, deadline, seen, ticket, wait) {
                Ok(true) => busy_rounds = 0,
                Ok(false) => {}
                Err(error) => break Err(error),
            }
        };
        self.sleepers
            .with(|sleepers| sleepers.retain(|(other, _)| *other != ticket));
        outcome
    }

    /// Sleeps until an adapter event, a change of the engine since `seen`, or a deadline.
    ///
    /// Returns false if there was such a change before the sleep.
    fn sleep<W: Wait>(
        &self,
        controller: Option<ControllerId>,
        deadline: Option<Instant>,
        seen: u32,
        ticket: u32,
        wait: &mut W,
    ) -> Result<bool> {
        let (cno, due, open) = self.state.with(|state| {
            let open = state.ports.iter().filter(|port| port.references != 0);
            let index = controller.map_or(0, |controller| controller.handle().index());
            let ids = state.ports.get(index).and_then(|port| port.ids());
            let due = if state.urgent {
                Some(Instant::ZERO)
            } else {
                state.due
            };
            (
                ids.and_then(|ids| Some((index, ids.cno?))),
                due,
                open.count(),
            )
        });
        let now = wait.now();
        let mut until = earliest(deadline, due);
        if open > 1 || cno.is_none() {
            // Only one adapter can wake the call, so it polls the others.
            until = earliest(until, now.after(SLICE));
        }
        let mut attentive = Attentive {
            inner: wait,
            engine: self,
            ticket,
            seen,
            slept: false,
            interrupted: false,
        };
        let outcome = cno.and_then(|(index, cno)| {
            let port = self.ports.get(index)?;
            Some(port.ia.cno_wait_until(cno, until, &mut attentive))
        });
        match outcome {
            None => {
                attentive.wait(until);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => match error.kind() {
                ErrorKind::QueueEmpty | ErrorKind::InterruptedCall => {}
                // The controller was released meanwhile; `look` detects it.
                _ => {
                    attentive.wait(earliest(until, now.after(SLICE)));
                }
            },
        }
        if attentive.interrupted {
            return Err(RsmError::Interrupted);
        }
        Ok(attentive.slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that is always interrupted; its clock goes on by this many microseconds each time.
    struct Nagged(Instant, u64);

    impl Wait for Nagged {
        fn now(&mut self) -> Instant {
            self.0
        }

        fn waker(&self) -> Waker {
            Waker::noop().clone()
        }

        fn wait(&mut self, _: Option<Instant>) -> WakeReason {
            self.0 = Instant::from_micros(self.0.as_micros() + self.1);
            WakeReason::Interrupted
        }
    }

    /// Spec: RSMGEN-11
    #[test]
    fn interruptions_end_a_deaf_wait_only_if_its_time_stands_still() {
        let hears = |pace| {
            let mut nagged = Nagged(Instant::from_micros(7), pace);
            let mut deaf = Deaf::new(&mut nagged);
            let mut waits = (0..3 * DEAF_SLEEPS).map(|_| deaf.wait(None));
            waits.any(|reason| reason == WakeReason::Interrupted)
        };
        assert!(hears(0));
        assert!(!hears(1));
    }
}
