//! Waits: polled once, or until an event comes or the time is up.

use std::fmt;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backend_mock::MockWait;
use dat_core::error::ErrorKind;
use dat_core::error::Subtype;
use dat_core::event::{ThreadWait, Wait, Waited};
use dat_core::flags::{EvdFlags, HandleKind};
use dat_core::time::Instant;
use dat_core::{Error, Result};

use super::{Outcome, Runner};
use crate::expect::Verdict;
use crate::op::{Pick, Side};
use crate::world::{Config, Evd, Key};

/// Limits of waits on the host's clock.
const HOSTS_CLOCK: RangeInclusive<u8> = 192..=207;
/// Number of waits, more than the wakers that a notification object keeps.
const MOST_WAITS: u8 = 12;

/// Requested length of a dispatcher during a wait.
const LENGTH_MEANWHILE: usize = 5;

/// Results of a call made during a wait, and of the wait's polls.
#[derive(Debug)]
struct Meanwhile {
    first: Poll<Result<Waited>>,
    call: Result<()>,
    second: Poll<Result<Waited>>,
    third: Poll<Result<Waited>>,
}

impl Runner {
    /// Returns the deadline of a wait: now, in some time, or none.
    fn deadline(&self, limit: u8) -> Option<Instant> {
        let now = self.fabric.now().as_micros();
        match limit {
            0..=63 => Some(Instant::from_micros(now)),
            64..=207 => Some(Instant::from_micros(now + u64::from(limit - 63))),
            _ => None,
        }
    }

    /// Returns a wait on the host's clock, during which the fabric makes no progress.
    fn thread_wait(limit: u8) -> ThreadWait {
        match limit % 3 {
            0 => ThreadWait::default(),
            1 => ThreadWait::with_slice(Duration::from_micros(5)),
            _ => ThreadWait::until_woken(),
        }
    }

    /// Returns true if a wait without deadline may outlast an attempt; other operations cover that.
    fn outlasts_attempts(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none() && self.is_exact() && self.world.has_finite_attempts()
    }

    /// Returns true if only some completions of a dispatcher wake a waiter (EVW-11).
    fn is_selective(&self, key: Option<Key>) -> bool {
        key.and_then(|key| self.world.config_of(key))
            .is_some_and(|config| config != Config::Threshold)
    }

    /// Returns the numbers of events that are certainly queued, and of those that may be.
    fn queued(&self, key: Option<Key>) -> (usize, usize) {
        key.and_then(|key| self.world.evds.get(&key))
            .map_or((0, 0), Evd::bounds)
    }

    /// Records that the fabric made progress during a wait.
    fn note_progress(&mut self) {
        if self.is_exact() {
            self.world.advance();
            self.partial = true;
        }
    }

    /// Waits until the threshold, the deadline or an idle fabric (EVW-01 to EVW-14).
    pub(super) fn evd_wait_until(
        &mut self,
        side: Side,
        evd: Pick,
        threshold: i32,
        limit: u8,
    ) -> Outcome {
        let deadline = self.deadline(limit);
        if self.outlasts_attempts(deadline) {
            return Ok(());
        }
        let key = self.pick(side, HandleKind::Evd, evd);
        let id = self.evd_id(key);
        let verdict = self.world.check_evd_wait(side, key, threshold);
        let least = usize::try_from(threshold).unwrap_or(0);
        let before = self.queued(key).0;
        let outcome = if HOSTS_CLOCK.contains(&limit) {
            let mut wait = Self::thread_wait(limit);
            let until = wait.now().as_micros() + u64::from(limit % 4) * 10;
            let until = Some(Instant::from_micros(until));
            self.with(side, |ia| {
                ia.evd_wait_until(id, threshold, until, &mut wait)
            })
        } else {
            let mut wait = MockWait::new(&self.fabric);
            self.with(side, |ia| {
                ia.evd_wait_until(id, threshold, deadline, &mut wait)
            })
        };
        match outcome {
            Ok(waited) => {
                self.judge(&verdict, Ok(()))?;
                self.note_progress();
                self.check_waited(side, key, least, waited)
            }
            Err(error) if error.kind() == ErrorKind::TimeoutExpired => {
                self.judge(&verdict, Ok(()))?;
                self.note_progress();
                self.expect(
                    deadline.is_some() && (before < least || self.is_selective(key)),
                    format_args!("{before} events, of {least}, at once (EVW-01)"),
                    error,
                )
            }
            Err(error) if error.kind() == ErrorKind::InterruptedCall => {
                self.judge(&verdict, Ok(()))?;
                self.run_to_idle()?;
                let after = self.queued(key).0;
                self.expect(
                    deadline.is_none() && (after < least || self.is_selective(key)),
                    format_args!("{after} events, of {least}, sooner or later (EVW-01)"),
                    error,
                )
            }
            Err(error) => self.judge::<()>(&verdict, Err(error)).map(drop),
        }
    }

    /// Checks the event that a wait returned (EVW-07).
    fn check_waited(
        &mut self,
        side: Side,
        key: Option<Key>,
        least: usize,
        waited: Waited,
    ) -> Outcome {
        let most = self.queued(key).1;
        let more = usize::try_from(waited.more).unwrap_or(usize::MAX);
        self.expect(
            (least.saturating_sub(1)..most.max(1)).contains(&more),
            format_args!("{least} to {most} events less the first (EVW-07)"),
            waited,
        )?;
        self.check_event(side, key, Ok(waited.event)).map(drop)
    }

    /// Checks `evd_wait_now`, which returns only if it needs no wait.
    pub(super) fn evd_wait_now(&mut self, side: Side, evd: Pick, threshold: i32) -> Outcome {
        let key = self.pick(side, HandleKind::Evd, evd);
        let id = self.evd_id(key);
        let verdict = self.world.check_evd_wait(side, key, threshold);
        match self.with(side, |ia| ia.evd_wait_now(id, threshold)) {
            Some(waited) => {
                self.judge(&verdict, Ok(()))?;
                self.check_waited(side, key, 1, waited)
            }
            None => Ok(()),
        }
    }

    /// Makes a call during a wait (EVW-02, EVW-03, EVU-02, EVF-02, EVZ-01).
    ///
    /// Some calls are refused, some end the wait.
    pub(super) fn evd_wait_meanwhile(
        &mut self,
        side: Side,
        evd: Pick,
        threshold: i32,
        call: u8,
    ) -> Outcome {
        let key = self.pick(side, HandleKind::Evd, evd);
        let id = self.evd_id(key);
        let verdict = self.world.check_evd_wait(side, key, threshold);
        let call = call % 6;
        let outcome = self.with(side, |ia| {
            let mut wait = ia.evd_wait(id, threshold)?;
            let first = wait.poll(Waker::noop());
            let call = match call {
                _ if first.is_ready() => Ok(()),
                0 => ia.evd_wait(id, threshold).map(drop),
                1 => ia.evd_dequeue(id).map(drop),
                2 => ia.evd_resize(id, LENGTH_MEANWHILE as i32),
                3 => ia.evd_free(id),
                4 => ia.evd_set_unwaitable(id),
                _ => Err(Error::queue_empty()),
            };
            // A wait that was ready has ended.
            let mut poll = || match first {
                Poll::Pending => wait.poll(Waker::noop()),
                Poll::Ready(_) => Poll::Pending,
            };
            let second = poll();
            Ok(Meanwhile {
                first,
                call,
                second,
                third: poll(),
            })
        });
        let Some(meanwhile) = self.judge(&verdict, outcome)? else {
            return Ok(());
        };
        let least = usize::try_from(threshold).unwrap_or(0);
        if let Poll::Ready(Ok(waited)) = meanwhile.first {
            self.check_waited(side, key, least, waited)?;
        }
        if meanwhile.first.is_ready() {
            return Ok(());
        }
        let busy = Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateEvdWaiter);
        let state = Verdict::refused(ErrorKind::InvalidState, None);
        let second = match call {
            0 | 1 => self.judge(&busy, meanwhile.call).map(|_| None)?,
            // EVZ-01: shorter than the threshold of the wait.
            2 if least > LENGTH_MEANWHILE => self.judge(&state, meanwhile.call).map(|_| None)?,
            2 => {
                let length = i32::try_from(LENGTH_MEANWHILE).unwrap_or(i32::MAX);
                let verdict = self.world.check_evd_resize(side, key, length);
                if self.judge(&verdict, meanwhile.call)?.is_some()
                    && let Some(evd) = key.and_then(|key| self.world.evds.get_mut(&key))
                {
                    evd.length = length.unsigned_abs();
                }
                None
            }
            3 => self.judge(&state, meanwhile.call).map(|_| None)?,
            4 => {
                if let Some(evd) = key.and_then(|key| self.world.evds.get_mut(&key)) {
                    evd.waitable = false;
                }
                Some((Subtype::InvalidStateEvdUnwaitable, ErrorKind::Abort))
            }
            _ => None,
        };
        let holds = match (second, meanwhile.second, meanwhile.third) {
            (None, Poll::Pending, Poll::Pending) => true,
            (Some((subtype, kind)), Poll::Ready(Err(second)), Poll::Ready(Err(third))) => {
                second.subtype() == subtype && third.kind() == kind
            }
            _ => false,
        };
        self.expect(
            holds,
            "a wait that goes on, or ends since nobody may wait (EVW-03)",
            meanwhile,
        )
    }

    /// Checks several concurrent waits (CNW-03, CNW-06, CNF-01).
    ///
    /// One notification ends one wait, and passes on to the next if that wait is dropped.
    pub(super) fn cno_waits(&mut self, side: Side, cno: Pick, waits: u8) -> Outcome {
        let key = self.pick(side, HandleKind::Cno, cno);
        let id = self.cno_id(key);
        let verdict = self.check_query(side, HandleKind::Cno, key, false);
        let software = self.world.evds.iter().find(|(_, evd)| {
            evd.cno.is_some()
                && evd.cno == key
                && evd.enabled
                && evd.flags.contains(EvdFlags::SOFTWARE)
                && evd.bounds().1 < 8
        });
        let software = software.map(|(key, _)| *key);
        let evd = self.evd_id(software);
        let count = usize::from(2 + waits % MOST_WAITS);
        let outcome = self.with(side, |ia| {
            let waits: Result<Vec<_>> = (0..count).map(|_| ia.cno_wait(id)).collect();
            let mut waits = waits?;
            // Polled twice with the same waker.
            let mut ready = Vec::new();
            for _ in 0..2 {
                waits.retain_mut(|wait| match wait.poll(Waker::noop()) {
                    Poll::Ready(outcome) => {
                        ready.push(outcome);
                        false
                    }
                    Poll::Pending => true,
                });
            }
            let freed = ia.cno_free(id);
            let posted = software.map(|_| ia.evd_post_se(evd, 0));
            // The last wait is dropped, woken or not.
            waits.pop();
            let left = waits.len();
            let mut woken = 0;
            waits.retain_mut(|wait| {
                let over = wait.poll(Waker::noop()).is_ready();
                woken += usize::from(over);
                !over
            });
            Ok((ready, freed, posted, woken, left))
        });
        let Some((ready, freed, posted, woken, left)) = self.judge(&verdict, outcome)? else {
            return Ok(());
        };
        let (triggered, touched) = key
            .and_then(|key| self.world.cnos.get(&key))
            .map_or((false, false), |cno| (cno.triggered, cno.touched));
        self.expect(
            (usize::from(triggered)..=usize::from(touched)).contains(&ready.len()),
            format_args!("triggered: {triggered}, perhaps: {touched} (CNW-01)"),
            &ready,
        )?;
        for hint in ready {
            self.check_hint(side, key, &hint)?;
        }
        let used = Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateCnoInUse);
        self.judge(&used, freed)?;
        let fired = matches!(posted, Some(Ok(())));
        if let (true, Some(evd)) = (fired, software) {
            self.world.post_software(evd, 0);
        }
        let due = usize::from(fired && left != 0);
        self.expect(
            woken == due,
            format_args!("{due} waits that end (CNW-03)"),
            woken,
        )?;
        if let Some(cno) = key.and_then(|key| self.world.cnos.get_mut(&key)) {
            // Without a remaining wait the next one gets the notification.
            cno.triggered = fired && left == 0;
        }
        Ok(())
    }

    /// Checks the dispatcher that a wait on a notification object returns (CNW-03, CNW-05).
    ///
    /// It exists, or is `None` only if no dispatcher is attached.
    fn check_hint(
        &self,
        side: Side,
        cno: Option<Key>,
        hint: &Result<Option<dat_core::id::EvdId>>,
    ) -> Outcome {
        let good = match hint {
            Ok(Some(evd)) => self.key(*evd).is_some_and(|evd| {
                let object = self.world.objects.get(&evd);
                self.world.evds.contains_key(&evd)
                    && object.is_some_and(|object| object.side == side)
            }),
            Ok(None) => !self.world.evds.values().any(|evd| evd.cno == cno),
            Err(_) => false,
        };
        self.expect(good, "a dispatcher that there is (CNW-03)", hint)
    }

    /// Waits on a notification object until a notification or the deadline (CNW-01 to CNW-07).
    pub(super) fn cno_wait_until(&mut self, side: Side, cno: Pick, limit: u8) -> Outcome {
        let deadline = self.deadline(limit);
        if self.outlasts_attempts(deadline) {
            return Ok(());
        }
        let key = self.pick(side, HandleKind::Cno, cno);
        let id = self.cno_id(key);
        let verdict = self.check_query(side, HandleKind::Cno, key, false);
        let sure = |runner: &Self| {
            key.and_then(|key| runner.world.cnos.get(&key))
                .is_some_and(|cno| cno.triggered)
        };
        let before = sure(self);
        let mut wait = MockWait::new(&self.fabric);
        let outcome = self.with(side, |ia| ia.cno_wait_until(id, deadline, &mut wait));
        match outcome {
            Ok(fired) => {
                self.judge(&verdict, Ok(()))?;
                self.note_progress();
                self.check_hint(side, key, &Ok(fired))?;
                let cno = key.and_then(|key| self.world.cnos.get_mut(&key));
                let touched = cno.is_some_and(|cno| {
                    cno.triggered = false;
                    cno.touched
                });
                self.expect(touched, "a dispatcher that may have fired", fired)
            }
            Err(error) if error.kind() == ErrorKind::QueueEmpty => {
                self.judge(&verdict, Ok(()))?;
                self.note_progress();
                self.expect(
                    deadline.is_some() && !before,
                    "the notification that is there (CNW-03)",
                    error,
                )
            }
            Err(error) if error.kind() == ErrorKind::InterruptedCall => {
                self.judge(&verdict, Ok(()))?;
                self.run_to_idle()?;
                self.expect(
                    deadline.is_none() && !sure(self),
                    "the notification that is there (CNW-03)",
                    error,
                )
            }
            Err(error) => self.judge::<()>(&verdict, Err(error)).map(drop),
        }
    }

    /// Polls a wait once, then ends it (EVW-01 to EVW-08, EVW-11).
    pub(super) fn evd_wait(&mut self, side: Side, evd: Pick, threshold: i32) -> Outcome {
        let key = self.pick(side, HandleKind::Evd, evd);
        let id = self.evd_id(key);
        let verdict = self.world.check_evd_wait(side, key, threshold);
        enum Wait {
            Refused(Error),
            Came(Waited),
            Expired(u32),
        }
        let wait = self.with(side, |ia| match ia.evd_wait(id, threshold) {
            Err(error) => Wait::Refused(error),
            Ok(mut wait) => match poll_future(&mut wait) {
                Poll::Ready(Ok(waited)) => Wait::Came(waited),
                Poll::Ready(Err(error)) => Wait::Refused(error),
                Poll::Pending => match wait.expire() {
                    Ok(waited) => Wait::Came(waited),
                    Err(expired) => Wait::Expired(expired.queued),
                },
            },
        });
        let threshold = usize::try_from(threshold).unwrap_or(0);
        let (sure, most) = key
            .and_then(|key| self.world.evds.get(&key))
            .map_or((0, 0), Evd::bounds);
        let selective = key
            .and_then(|key| self.world.config_of(key))
            .is_some_and(|config| config != Config::Threshold);
        match wait {
            Wait::Refused(error) => {
                self.judge::<()>(&verdict, Err(error))?;
            }
            Wait::Came(waited) => {
                self.judge(&verdict, Ok(()))?;
                let more = usize::try_from(waited.more).unwrap_or(usize::MAX);
                self.expect(
                    (threshold - 1..most.max(1)).contains(&more),
                    format_args!(
                        "{} to {most} events after the first (EVW-07)",
                        threshold - 1
                    ),
                    waited,
                )?;
                self.check_event(side, key, Ok(waited.event))?;
            }
            Wait::Expired(queued) => {
                self.judge(&verdict, Ok(()))?;
                let queued = usize::try_from(queued).unwrap_or(usize::MAX);
                // On a selective dispatcher, quiet events do not wake (EVW-11).
                self.expect(
                    queued <= most && (selective || sure < threshold),
                    format_args!(
                        "a wait for {threshold} of {sure} to {most} events (EVW-01, EVW-06)"
                    ),
                    queued,
                )?;
            }
        }
        Ok(())
    }

    /// Polls a wait on a notification object once (CNW-01 to CNW-03).
    pub(super) fn cno_wait(&mut self, side: Side, cno: Pick) -> Outcome {
        let key = self.pick(side, HandleKind::Cno, cno);
        let id = self.cno_id(key);
        let verdict = self.check_query(side, HandleKind::Cno, key, false);
        let polled = self.with(side, |ia| {
            ia.cno_wait(id).map(|mut wait| poll_future(&mut wait))
        });
        let Some(polled) = self.judge(&verdict, polled)? else {
            return Ok(());
        };
        let Some(cno) = key.and_then(|key| self.world.cnos.get_mut(&key)) else {
            return Ok(());
        };
        let (triggered, touched) = (cno.triggered, cno.touched);
        let ready = polled.is_ready();
        if ready {
            // A second event before the wait adds no trigger; later events do.
            cno.triggered = false;
        }
        self.expect(
            if ready { touched } else { !triggered },
            format_args!("triggered: {triggered}, perhaps: {touched} (CNW-01)"),
            polled,
        )?;
        match polled {
            Poll::Ready(hint) => self.check_hint(side, key, &hint),
            Poll::Pending => Ok(()),
        }
    }
}

/// Polls a wait as an executor does; checks that its debug text names the object.
fn poll_future<W: Future + Unpin + fmt::Debug>(wait: &mut W) -> Poll<W::Output> {
    let text = format!("{wait:?}");
    assert!(text.contains('#') && text.contains("Wait"), "{text}");
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}
