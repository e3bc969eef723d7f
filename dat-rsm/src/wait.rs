//! Calls that wait: they make progress, look, and sleep until there is reason to look again.

use core::task::Waker;

use dat_core::ErrorKind;
use dat_core::backend::Backend;
use dat_core::event::{Wait, WakeReason};
use dat_core::sync::RawLock;
use dat_core::time::Instant;
use portable_atomic::{AtomicU32, Ordering};

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ControllerId;

/// Microseconds after which a call looks again if nothing can be relied on to wake it.
const SLICE: u32 = 1_000;

/// The caller's way to sleep, which also returns when something changed in the engine.
struct Attentive<'w, W> {
    inner: &'w mut W,
    changes: &'w AtomicU32,
    seen: u32,
    interrupted: bool,
}

impl<W: Wait> Wait for Attentive<'_, W> {
    fn now(&mut self) -> Instant {
        self.inner.now()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        // To the adapter a change of the engine is an interruption; only the engine knows the difference.
        if self.changes.load(Ordering::SeqCst) != self.seen {
            return WakeReason::Interrupted;
        }
        let reason = self.inner.wait(until);
        if reason == WakeReason::Interrupted {
            self.interrupted = true;
        } else if self.changes.load(Ordering::SeqCst) != self.seen {
            return WakeReason::Interrupted;
        }
        reason
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Something changed that sleeping calls may wait for.
    pub(crate) fn tell_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        loop {
            let sleeper = self.sleepers.with(|sleepers| sleepers.pop());
            let Some((_, waker)) = sleeper else {
                return;
            };
            waker.wake();
        }
    }

    /// Makes progress and looks until `look` has an answer.
    ///
    /// # Errors
    /// - TIMEOUT: the deadline has passed.
    /// - INTERRUPTED: `wait` was.
    pub(crate) fn wait_for<W: Wait, R>(
        &self,
        controller: Option<ControllerId>,
        deadline: Option<Instant>,
        wait: &mut W,
        mut look: impl FnMut(Instant) -> Option<Result<R>>,
    ) -> Result<R> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
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
            if busy {
                continue;
            }
            if let Err(error) = self.sleep(controller, deadline, seen, ticket, wait) {
                break Err(error);
            }
        };
        self.sleepers
            .with(|sleepers| sleepers.retain(|(other, _)| *other != ticket));
        outcome
    }

    /// Sleeps until there may be something new: an event of the adapter, a change of the engine since `seen`, or a
    /// moment.
    fn sleep<W: Wait>(
        &self,
        controller: Option<ControllerId>,
        deadline: Option<Instant>,
        seen: u32,
        ticket: u32,
        wait: &mut W,
    ) -> Result<()> {
        let waker = wait.waker();
        let told = self.sleepers.with(|sleepers| {
            sleepers.iter().any(|(other, _)| *other == ticket)
                || sleepers.push((ticket, waker)).is_ok()
        });
        let (cno, due, open) = self.state.with(|state| {
            let open = state.ports.iter().filter(|port| port.references != 0);
            let index = controller.map_or(0, |controller| controller.handle().index());
            let ids = state.ports.get(index).and_then(|port| port.ids());
            (ids.map(|ids| (index, ids.cno)), state.due, open.count())
        });
        let now = wait.now();
        let mut until = earliest(deadline, due);
        if !told || open > 1 || cno.is_none() {
            // Nothing wakes the call for the other adapters.
            until = earliest(until, now.after(SLICE));
        }
        let mut attentive = Attentive {
            inner: wait,
            changes: &self.changes,
            seen,
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
                // The controller was released meanwhile: `look` finds out.
                _ => {
                    attentive.wait(earliest(until, now.after(SLICE)));
                }
            },
        }
        if attentive.interrupted {
            return Err(RsmError::Interrupted);
        }
        Ok(())
    }
}

/// The first of two moments that may or may not come.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
