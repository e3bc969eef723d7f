//! Timers of an adapter.

use core::time::Duration;

use dat_core::time::Instant;

use super::Adapter;
use super::deadlines::Timer;
use super::refusals::{SILENT_REPEATS, SILENT_REPEATS_OF_OURS};
use crate::proto::connection::State as LinkState;

pub(super) fn after(start: Instant, period: Duration) -> Instant {
    let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    Instant::from_micros(start.as_micros().saturating_add(period))
}

impl Adapter {
    /// Returns when [`expire`](Self::expire) has work to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Does what is due by now.
    pub(crate) fn expire(&mut self) {
        while let Some((at, timer)) = self.deadlines.first() {
            if at > self.now {
                return;
            }
            self.deadlines.set(timer, None);
            match timer {
                Timer::Link(index) => {
                    if let Some(id) = self.links.at(index).map(|link| link.id) {
                        self.expire_link(id);
                    }
                }
                Timer::Probe(key) => self.probe(key),
                Timer::Patience(number) => self.end_patience(number),
                Timer::Gathered => self.release_gathered(),
                Timer::Pair(key) => {
                    self.postpone_pair(key);
                    if let Some(pair) = self.pairs.get_mut(key) {
                        let mut late = None;
                        if let Some(transport) = &mut pair.transport {
                            let before = transport.counts().0.timeouts;
                            transport.expire(self.now);
                            let is_late = transport.counts().0.timeouts != before;
                            late = is_late.then(|| transport.longest_payload());
                        }
                        if let Some(payload) = late {
                            self.note_unanswered(key, payload);
                        }
                        self.after_transport(key);
                        self.set_ready(key);
                    }
                }
            }
        }
    }

    pub(super) fn expire_link(&mut self, id: u32) {
        self.postpone_link(id);
        if let Some(link) = self.links.get_mut(id) {
            let event = link.connection.expire(self.now);
            link.repeats = link.repeats.saturating_add(1);
            let connects =
                link.connection.state() == LinkState::RequestSent && link.path.local.is_none();
            let silence = match link.proofs {
                0 => SILENT_REPEATS,
                _ => SILENT_REPEATS_OF_OURS,
            };
            if connects && !link.is_answered && link.repeats == silence {
                // Hosts refuse only so many datagrams in a second: silence may be a refusal, too.
                let silent = link.path.wire.destination_port;
                if self.try_next_port(id)
                    && let Some(link) = self.links.get_mut(id)
                    && !link.is_refused
                {
                    // Or loss, if the next port belongs to another program.
                    link.fallback = Some(silent);
                }
            }
            self.link_event(id, event);
        }
    }
}
