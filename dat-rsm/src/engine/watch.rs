//! Limits on waits for peers.
//!
//! # The rule
//! Whatever a peer owes has an age limit, [`Options::connect_timeout`], so no call waits on a peer
//! for ever. A wait may depend on a peer only through one of these:
//!
//! | wait for | limit | after the limit |
//! |---|---|---|
//! | a posted request: transfer, flush, probe, message | age of the oldest; 1 µs more for each pending byte | the link ends |
//! | a message of this side's own link that is queued | age of the oldest | the link ends |
//! | room for the signal of a call | age of the wait | the link ends, and the signal fails |
//! | a link, a grant, or a grant again | the connection's `deadline` | the connection is given up |
//! | acknowledgements of a revocation or rebind | [`Options::revocation_grace`] | the keys are freed |
//! | requests of a link that has ended | 50 ms | they count as flushed |
//!
//! A granted connection keeps its `deadline` until a request on it succeeds, or until it is
//! attached and idle at that time. So a peer that grants and breaks the link again gains no time.
//! In between, a connection asks again with back-off ([`Import::retry_later`]).
//!
//! Everything else that a call waits for is a call or request that has such a limit. Only waits
//! for a signal of a peer have none but the caller's.
//!
//! # Ages
//! Ages are counted in looks, [`LOOKS`] in each limit, while anything is owed. A post reads no
//! clock. Time in which nobody makes progress counts as one look at most, so a process that was
//! stopped does not blame its peers.
//!
//! [`Import::retry_later`]: crate::import::Import::retry_later

use dat_core::flags::DtoStatus;
use dat_core::time::Instant;

use crate::engine::state::State;
use crate::engine::wait::earliest;
use crate::id::Handle;
use crate::import::Attach;
use crate::link::Link;
use crate::options::Options;
use crate::transfer::flight::Step;

/// Looks in an age limit.
const LOOKS: u32 = 4;

/// Watches a queue whose items leave it in order.
///
/// What was in the queue at one look must have left it some looks later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// Number of items that had entered the queue at that look.
    mark: u64,
    /// Looks since then, and the most that the items may take.
    looks: u32,
    most: u32,
}

impl Watch {
    /// Looks at a queue that `entered` items have entered and `left` have left.
    ///
    /// Returns true if an item is older than the limit of `most` looks.
    pub(crate) fn is_overdue(&mut self, entered: u64, left: u64, most: u32) -> bool {
        if left >= self.mark {
            *self = Self {
                mark: entered,
                looks: 0,
                most,
            };
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        self.looks >= self.most
    }
}

impl State {
    /// Notes that a peer owes something, so that its age is watched.
    pub(crate) fn peer_owes(&mut self) {
        self.urgent |= self.watch_at.is_none();
    }

    /// Looks at what peers owe if a look is due, and ends the links on which it is too old.
    pub(crate) fn watch(&mut self, now: Instant, options: &Options) {
        if self.watch_at.is_none_or(|at| at <= now) {
            let period = options.connect_timeout.div_ceil(LOOKS).max(1);
            let owed = self.look_at_links(now, period, options);
            let starved = self.look_at_flights(now, options);
            self.watch_at = now.after(period).filter(|_| owed || starved);
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
    pub(crate) fn prove_idle_imports(&mut self, now: Instant) {
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
            self.remind(due);
        }
    }

    /// Looks at the requests and messages of all links; returns true if anything is owed.
    fn look_at_links(&mut self, now: Instant, period: u32, options: &Options) -> bool {
        let mut owed = false;
        let mut from = 0;
        while let Some((at, handle)) = self.links.find_from(from, Link::is_up) {
            from = at.saturating_add(1);
            let Some(link) = self.links.get_mut(handle) else {
                continue;
            };
            owed |= link.is_owed();
            if link.owes_too_long(period) {
                self.end_link(handle, now, options);
            }
        }
        owed
    }

    /// Looks at the calls whose signal finds no room; returns true if there is one.
    fn look_at_flights(&mut self, now: Instant, options: &Options) -> bool {
        let mut starved = false;
        let mut from = 0;
        while let Some((at, handle)) = self
            .flights
            .find_from(from, |flight| !flight.starved.is_null())
        {
            from = at.saturating_add(1);
            let Some(flight) = self.flights.get_mut(handle) else {
                continue;
            };
            let link = flight.starved;
            flight.looks = flight.looks.saturating_add(1);
            // The first look may come right after the wait began.
            let in_vain = flight.looks > LOOKS;
            if !self.links.get(link).is_some_and(Link::is_up) {
                flight.starved = Handle::NULL;
            } else if in_vain {
                flight.starved = Handle::NULL;
                flight.step = Step::Failed(DtoStatus::Flushed);
                self.end_link(link, now, options);
            } else {
                starved = true;
            }
        }
        starved
    }
}

/// Returns the looks that requests with this number of bytes may take.
pub(crate) fn looks_for(bytes: u64, period: u32) -> u32 {
    let more = bytes.checked_div(u64::from(period)).unwrap_or(0);
    LOOKS.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMST-06
    #[test]
    fn what_stays_in_a_queue_is_overdue_and_what_moves_is_not() {
        let mut watch = Watch::default();
        // Idle, then one item that stays, whatever enters after it.
        assert!(!watch.is_overdue(5, 5, LOOKS));
        for look in 0..LOOKS {
            assert!(!watch.is_overdue(6 + u64::from(look), 5, LOOKS), "{look}");
        }
        assert!(watch.is_overdue(20, 5, LOOKS));
        // A full queue that moves on.
        let mut watch = Watch::default();
        for look in 0..100 {
            assert!(!watch.is_overdue(look * 3 + 9, look * 3, LOOKS), "{look}");
        }
        // Many bytes have more time.
        assert_eq!(looks_for(64, 500_000), LOOKS);
        assert_eq!(looks_for(1 << 20, 500_000), LOOKS + 2);
        assert_eq!(looks_for(u64::MAX, 1), u32::MAX);
    }
}
