//! Probes of peers that are silent.

use core::time::Duration;

use dat_queues::State;

use super::deadlines::Timer;
use super::timers::after;
use super::{Adapter, SendEntry};
use crate::proto::coded_time;

/// Shortest silence after which a peer is probed.
pub(super) const SHORTEST_KEEP_ALIVE: Duration = Duration::from_millis(100);

impl Adapter {
    /// Probes the peer of an idle connection that has been silent, or sets the timer again.
    ///
    /// Packets do not set the timer, so that it costs them nothing.
    pub(super) fn probe(&mut self, key: usize) {
        let now = self.now;
        let tries = u64::from(self.options.retries) + 1;
        let patience = coded_time(self.options.timeout).saturating_mul(tries);
        let patience = Duration::from_micros(patience);
        let is_timed = self.options.timeout != 0;
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some(period) = pair.keep_alive.filter(|_| pair.is_open()) else {
            return;
        };
        let mut next = after(pair.heard, period);
        if next <= now {
            let pause = match pair.local {
                None => period,
                Some(_) => period.min(patience),
            };
            next = after(now, pause);
            // Without a time-out, nobody else finds out that a peer does not answer (ROCE-237).
            // Looks count and not the clock: this process may have been stopped, too.
            pair.silence = match pair.heard < pair.looked {
                true => pair.silence.saturating_add(pause),
                false => Duration::ZERO,
            };
            pair.looked = now;
            let is_silent = pair.silence >= patience;
            if pair.local.is_some() && is_silent && !pair.sends.is_empty() && is_timed {
                self.break_pair(key);
                return;
            }
            // A request under way finds out by itself.
            if pair.state == State::Connected && pair.sends.is_empty() {
                pair.probes += 1;
                self.post_request(key, SendEntry::probe());
                self.set_ready(key);
            }
        }
        self.deadlines.set(Timer::Probe(key), Some(next));
    }
}
