//! Limits on waits for peers.
//!
//! # The rule
//! Whatever a peer owes has an age limit, [`Options::connect_timeout`], so no call waits on a peer
//! for ever. A wait may depend on a peer only through one of these:
//!
//! | wait for | limit | after the limit |
//! |---|---|---|
//! | the end of a posted request, as of a transfer or message | time since one ended | the link ends |
//! | a credit for a queued message or signal | time since one was sent | the link ends; a signal fails |
//! | the answer to a question | time since the question arrived | the link ends |
//! | a link, a grant, or a grant again | the connection's `deadline` | the connection is given up |
//! | acknowledgements of a revocation or rebind | [`Options::revocation_grace`] | the keys are freed |
//! | requests of a link that has ended | 50 ms | they count as flushed |
//!
//! A granted connection keeps its `deadline` until a request on it succeeds, or until it is
//! attached and idle at that time. So a peer that grants and breaks the link again gains no time.
//! In between, a connection asks again with back-off ([`Import::retry_later`]).
//!
//! This holds for links that this side asked for. On a link that the peer asked for, no call waits:
//! its messages are few, and the peer may be stopped for a while.
//!
//! The first three have 1 µs more for each byte that is pending on the link. Requests and messages
//! leave their queues in order, so each step brings every waiter closer to its end, and a peer can
//! only delay it. Credits are owed once the messages that took them have arrived. A signal waits
//! outside of the queue, where others may overtake it; after the limit it enters the queue. An
//! answer has its own age: no other answer gives it time.
//!
//! Everything else that a call waits for is a call or request that has such a limit. Only waits
//! for a signal of a peer have none but the caller's.
//!
//! # Ages
//! Ages are counted in looks, [`LOOKS`] in each limit, while anything is owed. A post reads no
//! clock. Time in which nobody makes progress counts as one look at most, so a process that was
//! stopped does not blame its peers. Deadlines move by that time
//! ([`State::discount_absence`]), and leave room for one look at least.
//!
//! [`Import::retry_later`]: crate::import::Import::retry_later

use dat_core::flags::DtoStatus;
use dat_core::time::Instant;

use crate::age::{LOOKS, earliest, period};
use crate::engine::state::State;
use crate::flight::{Flight, Step};
use crate::id::Handle;
use crate::import::Attach;
use crate::link::Link;
use crate::options::Options;

impl State {
    /// Notes that the peer of a link owes something, so that its age is watched.
    pub(crate) fn peer_owes(&mut self, link: Handle) {
        if self.watch_at.is_none() && self.links.get(link).is_some_and(|link| link.active) {
            self.urgent = true;
        }
    }

    /// Looks at what peers owe if a look is due, and ends the links on which it is too old.
    pub(crate) fn watch(&mut self, now: Instant, options: &Options) {
        if self.watch_at.is_none_or(|at| at <= now) {
            let period = period(options);
            let asked = self.look_at_flights(now, period, options);
            let owed = self.look_at_links(now, period, options);
            self.watch_at = now.after(period).filter(|_| owed || asked);
        }
        if self.watch_at.is_some() {
            self.remind(self.watch_at);
        }
    }

    /// Ends the trial of the connections that are restored and idle at their deadline.
    ///
    /// One that a call still waits for is given up with its next link, unless a request succeeds.
    ///
    /// Spec: RSMST-06
    pub(crate) fn prove_idle_imports(&mut self, now: Instant, options: &Options) {
        let mut due = None;
        for (_, import) in self.imports.iter_mut() {
            if matches!(import.attach, Attach::Attached(_)) {
                if import.deadline.is_some_and(|deadline| deadline > now) {
                    due = earliest(due, import.deadline);
                } else if import.is_idle() {
                    import.prove();
                }
            }
        }
        if due.is_some() {
            self.remind_in_steps(due, now, options);
        }
    }

    /// Schedules a look at a deadline, and looks before it that show that this side is present.
    pub(crate) fn remind_in_steps(&mut self, at: Option<Instant>, now: Instant, options: &Options) {
        self.remind(earliest(at, now.after(period(options))));
    }

    /// Moves the deadlines of peers by the time in which nobody made progress, except for one look.
    ///
    /// They then leave one look at least, so what came meanwhile is handled before they are judged.
    ///
    /// Spec: RSMST-10
    pub(crate) fn discount_absence(&mut self, now: Instant, options: &Options) {
        let period = period(options);
        let before = core::mem::replace(&mut self.present_at, now);
        let gap = now.as_micros().saturating_sub(before.as_micros());
        // The looks may be a little late.
        let absence = gap.saturating_sub(u64::from(period));
        if absence <= u64::from(period) {
            return;
        }
        let move_on = |deadline: &mut Option<Instant>, limit: u32| {
            if let Some(deadline) = deadline {
                let at = |micros: u64| now.as_micros().saturating_add(micros);
                let moved = deadline.as_micros().saturating_add(absence);
                let moved = moved.max(at(u64::from(period))).min(at(u64::from(limit)));
                *deadline = Instant::from_micros(moved);
            }
        };
        let limit = options.connect_timeout;
        for (_, import) in self.imports.iter_mut() {
            move_on(&mut import.deadline, limit);
        }
        for (_, importer) in self.importers.iter_mut() {
            move_on(&mut importer.until, limit.saturating_mul(2));
        }
    }

    /// Looks at the requests and messages of this side's links; returns true if anything is owed.
    fn look_at_links(&mut self, now: Instant, period: u32, options: &Options) -> bool {
        let mut owed = false;
        let mut from = 0;
        let is_watched = |link: &Link| link.active && link.is_up();
        while let Some((at, handle)) = self.links.find_from(from, is_watched) {
            from = at.saturating_add(1);
            let Some(link) = self.links.get_mut(handle) else {
                continue;
            };
            owed |= link.is_owed();
            let in_vain = link.owes_too_long(period);
            link.is_wanted = false;
            if in_vain {
                self.fail_starved(handle);
                self.end_link(handle, now, options);
            }
        }
        owed
    }

    /// Looks at the calls that wait for an answer, or for room for their signal.
    ///
    /// Returns true if there is one.
    fn look_at_flights(&mut self, now: Instant, period: u32, options: &Options) -> bool {
        let mut waits = false;
        let mut from = 0;
        let is_watched = |flight: &Flight| flight.question.is_some() || !flight.starved.is_null();
        while let Some((at, handle)) = self.flights.find_from(from, is_watched) {
            from = at.saturating_add(1);
            let Some(flight) = self.flights.get_mut(handle) else {
                continue;
            };
            waits = true;
            if let Some(question) = &mut flight.question {
                let link = question.link;
                let asked = self.links.get(link);
                if asked.is_some_and(|link| question.is_overdue(link, period)) {
                    self.end_link(link, now, options);
                }
                continue;
            }
            flight.looks = flight.looks.saturating_add(1);
            match self
                .links
                .get_mut(flight.starved)
                .filter(|link| link.is_up())
            {
                Some(link) => link.is_wanted = true,
                None => flight.starved = Handle::NULL,
            }
        }
        waits
    }

    /// Fails the signals that have waited for room on a link for too long.
    fn fail_starved(&mut self, link: Handle) {
        for (_, flight) in self.flights.iter_mut() {
            if flight.starved == link && flight.looks > LOOKS {
                flight.starved = Handle::NULL;
                flight.step = Step::Failed(DtoStatus::Flushed);
            }
        }
    }
}
