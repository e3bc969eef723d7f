//! The end of a connection at its queue pair: failures, flushed requests, resets.

use dat_core::backend::ControlEvent;
use dat_core::flags::DtoStatus;
use dat_queues::State;

use super::Adapter;
use super::deadlines::Timer;
use super::locals::LOCAL_PACKET_MAX;
use super::packets::PACKET_MAX;
use super::queue_pair::Drain;
use crate::port::RECORD_OVERHEAD;
use crate::proto::queue_pair::QueuePair;

/// Room of an acknowledgement in a local queue.
const ANSWER: usize = 2 * RECORD_OVERHEAD;

impl Adapter {
    /// Breaks a connection from this side.
    pub(super) fn break_pair(&mut self, key: usize) {
        let Some(pair) = self.pairs.get(key).filter(|pair| pair.is_open()) else {
            return;
        };
        let queue_pair = pair.setup.token;
        self.end_pair(key, true);
        self.raise(ControlEvent::Broken { queue_pair });
    }

    /// Notes a failure of the transport, which is reported once its last packet is sent.
    pub(super) fn begin_failure(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.state = State::Error;
        pair.is_failing = true;
        let local = pair.local;
        self.locals.failing += 1;
        self.set_ready(key);
        // The peer may never read what is before that packet.
        if local.is_some_and(|local| self.locals.is_full(local)) {
            self.finish_failure(key);
        }
    }

    /// Ends a queue pair that failed, once its last packet is sent, and reports it.
    pub(super) fn finish_failure(&mut self, key: usize) {
        if let Some(pair) = self.pairs.get(key).filter(|pair| pair.is_failing) {
            let queue_pair = pair.setup.token;
            self.end_pair(key, true);
            // After the completions, so that a consumer that it wakes finds them.
            self.raise(ControlEvent::Broken { queue_pair });
        }
    }

    /// Ends a connection or an attempt: tells the peer, and flushes both queues.
    pub(super) fn end_pair(&mut self, key: usize, broken: bool) {
        self.write_answers(key);
        self.disconnect_link(key, broken);
        self.stop_pair(key);
    }

    /// Puts a queue pair in error and flushes both queues.
    pub(super) fn stop_pair(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        pair.state = State::Error;
        self.locals.failing -= usize::from(core::mem::take(&mut pair.is_failing));
        let last = pair.transport.as_mut().and_then(QueuePair::end);
        if let Some(completion) = last {
            self.complete_receive(key, &completion);
        }
        self.flush_requests(key);
        self.flush_receives(key);
        self.after_transport(key);
    }

    /// Writes the responses and acknowledgements that a queue pair owes.
    pub(super) fn write_answers(&mut self, key: usize) {
        loop {
            let Some(pair) = self.pairs.get_mut(key) else {
                return;
            };
            let Some(path) = pair.path else {
                return;
            };
            let room = match path.local {
                None => PACKET_MAX,
                // A response may be larger. Its length is known once it is written.
                Some(local) => (LOCAL_PACKET_MAX + RECORD_OVERHEAD).min(self.locals.room(local)),
            };
            let (outbox, least) = match path.local {
                None => (&mut self.outbox, PACKET_MAX),
                // Packets of a turn of another pair of queues are not to leave by this one.
                Some(_) if !self.locals.outbox.is_empty() => return,
                Some(_) => (&mut self.locals.outbox, ANSWER),
            };
            if room < least || !outbox.has_room(room) {
                return;
            }
            let Some((transport, mut access)) = pair.access(&self.memories) else {
                return;
            };
            let sent = outbox.add(&path, |buffer| {
                let room = match path.local {
                    None => buffer.len(),
                    Some(_) => room - RECORD_OVERHEAD,
                };
                transport.answer(&mut access, buffer.get_mut(..room)?)
            });
            if let Some(local) = path.local {
                self.push_local(local, 0);
            }
            if !sent {
                return;
            }
        }
    }

    /// Completes the posted requests of a queue pair in error.
    ///
    /// With a transport, completes those whose outcome the transport has decided.
    pub(super) fn flush_requests(&mut self, key: usize) {
        self.take_completions(key);
        while let Some(pair) = self.pairs.get_mut(key) {
            // The transport gives the outcomes, in its own time, if there is one.
            if pair.transport.is_some() {
                return;
            }
            let Some(entry) = pair.sends.pop_front() else {
                return;
            };
            pair.first += 1;
            pair.receivers.pop_front();
            self.complete_request(key, &entry, DtoStatus::Flushed);
        }
    }

    /// Completes the posted receives of a queue pair in error, unless its failure is still to be
    /// sent.
    pub(super) fn flush_receives(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            if pair.is_failing {
                return;
            }
            let Some(entry) = pair.receives.pop_front() else {
                return;
            };
            let setup = pair.setup;
            let flushed = setup.receive_done(key, entry.token, DtoStatus::Flushed, 0);
            self.add_completion(setup.receive_queue, flushed);
        }
    }

    /// Empties both queues of a queue pair without completions, and removes the unpolled ones.
    pub(super) fn clear_pair(&mut self, key: usize) {
        self.leave_buffers(key);
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        if let Some(transport) = pair.transport.take() {
            let (requester, responder) = transport.counts();
            self.counts.requester += requester;
            self.counts.responder += responder;
        }
        // That of a connection leaves with its messages.
        let local = pair.local.take().filter(|_| pair.link.is_none());
        pair.link = None;
        pair.path = None;
        pair.datagrams = None;
        pair.receivers.clear();
        pair.peer_failed = false;
        pair.drain = Drain::No;
        if let Some(qpn) = pair.qpn {
            self.memories.unbind_all_of(qpn);
        }
        // A pair of queues that is full would keep it from the next connection.
        let was_ready = core::mem::take(&mut pair.is_ready);
        // Their room stays reserved.
        for entry in pair.sends.drain(..) {
            if let Some(drawn) = entry.drawn_key() {
                self.memories.cancel_bind(drawn);
            }
        }
        pair.first = 0;
        pair.probes = 0;
        pair.receives.clear();
        let taken = pair.current.take().is_some();
        let setup = pair.setup;
        if let Some(local) = local {
            self.locals.leave(local);
        }
        if was_ready {
            self.ready_pairs.retain(|ready| *ready != key);
            self.locals.forget(key);
        }
        self.deadlines.set(Timer::Pair(key), None);
        self.deadlines.set(Timer::Probe(key), None);
        if taken {
            self.give_back(setup.shared);
        }
        for number in setup.completion_queues() {
            if let Some(queue) = self.completion_queue(number) {
                queue.ring.forget(key);
            }
        }
        self.withdraw_connection(setup.token);
    }

    /// Ends a connection or an attempt by the consumer; no event about it follows.
    pub(crate) fn disconnect(&mut self, key: usize, broken: bool) {
        let Some(pair) = self.pairs.get(key) else {
            return;
        };
        let token = pair.setup.token;
        if pair.is_open() || pair.is_failing {
            self.end_pair(key, broken);
        }
        self.withdraw_connection(token);
    }

    /// Returns true if requests or packets are still to leave, or to be acknowledged.
    #[cfg(feature = "udp")]
    pub(crate) fn has_requests(&self) -> bool {
        let waits = |pair: &super::Pair| {
            // Requests of a queue pair that drains do not begin.
            let is_held = pair.drain != Drain::No && pair.has_drained();
            pair.is_failing || pair.state == State::Connected && pair.posted() > 0 && !is_held
        };
        self.has_output() || self.pairs.iter().any(|(_, pair)| waits(pair))
    }

    /// Ends all connections and attempts; no event about them follows.
    #[cfg(feature = "udp")]
    pub(crate) fn leave_peers(&mut self) {
        for key in 0..self.pairs.bound() {
            if self.pairs.get(key).is_some_and(|pair| pair.link.is_some()) {
                self.disconnect(key, false);
            }
        }
        self.refuse_waiting();
    }

    /// Returns a queue pair in error to unconnected; false if it is in another state.
    pub(crate) fn reset(&mut self, key: usize) -> bool {
        let in_error = self.pairs.get(key).map(|pair| pair.state) == Some(State::Error);
        if in_error {
            self.finish_failure(key);
            self.clear_pair(key);
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.state = State::Unconnected;
            }
        }
        in_error
    }

    pub(crate) fn destroy_pair(&mut self, key: usize) {
        self.finish_failure(key);
        self.disconnect(key, false);
        self.clear_pair(key);
        self.use_completion_queues(key, false);
        let Some(pair) = self.pairs.remove(key) else {
            return;
        };
        if let Some(qpn) = pair.qpn {
            self.port_numbers.release(qpn, self.now);
        }
        if pair.is_gathering {
            self.gathering.retain(|gathering| *gathering != key);
        }
    }
}
