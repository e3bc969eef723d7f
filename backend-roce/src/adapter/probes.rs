//! Probes of peers that are silent.

use core::time::Duration;

use dat_queues::State;

use super::deadlines::Timer;
use super::timers::after;
use super::{Adapter, SendEntry};

/// Shortest silence after which a peer is probed.
pub(super) const SHORTEST_KEEP_ALIVE: Duration = Duration::from_millis(100);

impl Adapter {
    /// Probes the peer of an idle connection that has been silent, or sets the timer again.
    ///
    /// Packets do not set the timer, so that it costs them nothing.
    pub(super) fn probe(&mut self, key: usize) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some(period) = pair.keep_alive.filter(|_| pair.is_open()) else {
            return;
        };
        let mut next = after(pair.heard, period);
        if next <= now {
            next = after(now, period);
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
