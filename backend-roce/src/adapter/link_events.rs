//! Events of connections, and their effects on queue pairs.

use core::time::Duration;

use dat_core::backend::{ConnectFailure, ControlEvent, NotLocal, PrivateData as CoreData};
use dat_queues::State;

use super::Adapter;
use super::links::{TRANSLATED, is_ours};
use super::private_data::unpack;
use crate::proto::connection::{ConnectReply, ConnectionEvent, Reason};
use crate::proto::queue_pair::Agreement;

/// Silence after which a translated connection is probed, before a translator forgets it (ROCE-53).
const TRANSLATED_KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Adapter {
    /// Takes a request on a queue pair for the last message of the handshake (ROCE-167).
    pub(super) fn note_request(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id)
            && let Some(event) = link.connection.note_request()
        {
            self.link_event(id, Some(event));
        }
    }

    /// Takes over what a connection has done, and its event.
    pub(super) fn link_event(&mut self, id: u32, event: Option<ConnectionEvent>) {
        match event {
            None => {}
            Some(ConnectionEvent::Accepted(reply)) => self.accepted(id, &reply),
            Some(ConnectionEvent::Established) => self.established(id),
            Some(ConnectionEvent::Rejected(reject)) if self.prove(id, &reject) => {}
            Some(ConnectionEvent::Rejected(reject)) if self.propose_smaller(id, &reject) => {}
            Some(ConnectionEvent::Rejected(reject)) if self.asks_elsewhere(id, &reject) => {}
            Some(ConnectionEvent::Rejected(reject)) => {
                self.not_local =
                    (reject.reason == Reason::LOCAL_ONLY).then_some(NotLocal::Required);
                let failure = if reject.reason == Reason::CONSUMER {
                    self.note_answer(id);
                    ConnectFailure::PeerRejected(unpack(
                        self.private_form,
                        reject.private_data.bytes(),
                    ))
                } else {
                    self.counts.without_room += u64::from(reject.reason == Reason::NO_RESOURCES);
                    ConnectFailure::NonPeerRejected
                };
                self.attempt_failed(id, failure);
            }
            Some(ConnectionEvent::Unreachable) => {
                self.not_local = None;
                let link = self.links.get(id);
                // Port 4791 may belong to a kernel that answers others only.
                let is_refused = link.is_some_and(|link| link.is_refused);
                let pair = link.and_then(|link| link.pair);
                let state = pair
                    .and_then(|key| self.pairs.get(key))
                    .map(|pair| pair.state);
                let failure = if state == Some(State::Accepting) {
                    ConnectFailure::TimedOut
                } else if is_refused {
                    ConnectFailure::NonPeerRejected
                } else {
                    ConnectFailure::Unreachable
                };
                self.attempt_failed(id, failure);
            }
            Some(ConnectionEvent::Disconnected { broken }) => self.disconnected(id, broken),
            Some(ConnectionEvent::DisconnectDone | ConnectionEvent::Released) => {}
        }
        self.after_link(id);
    }

    /// Active side: makes the queue pair ready.
    pub(super) fn accepted(&mut self, id: u32, reply: &ConnectReply) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let Some((key, agreement)) = link.pair.zip(Agreement::active(&link.request, reply)) else {
            return;
        };
        self.not_local = None;
        self.note_answer(id);
        let is_translated = is_ours(reply.guid) && reply.guid & TRANSLATED != 0;
        let asked = self.options.keep_alive;
        let keep_alive = match asked {
            _ if !is_translated => asked,
            Some(asked) => Some(asked.min(TRANSLATED_KEEP_ALIVE)),
            None => Some(TRANSLATED_KEEP_ALIVE),
        };
        self.start_pair(key, id, &agreement, State::Connected, keep_alive);
        self.count_connection(id);
        if let Some(queue_pair) = self.pairs.get(key).map(|pair| pair.setup.token) {
            self.raise(ControlEvent::Established {
                queue_pair,
                private_data: unpack(self.private_form, reply.private_data.bytes()),
            });
        }
    }

    /// Passive side: the peer has the acceptance.
    pub(super) fn established(&mut self, id: u32) {
        let Some(key) = self.links.get(id).and_then(|link| link.pair) else {
            return;
        };
        self.count_connection(id);
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.state = State::Connected;
            let queue_pair = pair.setup.token;
            self.raise(ControlEvent::Established {
                queue_pair,
                private_data: CoreData::new(),
            });
        }
    }

    /// Counts a connection that is made, by its way (ROCE-253).
    fn count_connection(&mut self, id: u32) {
        let is_local = self
            .links
            .get(id)
            .is_some_and(|link| link.path.local.is_some());
        self.counts.connections += 1;
        self.counts.local.connections += u64::from(is_local);
    }

    pub(super) fn attempt_failed(&mut self, id: u32, failure: ConnectFailure) {
        let pair = self.links.get(id).and_then(|link| link.pair);
        self.detach(id);
        self.take_back(id);
        if let Some(key) = pair
            && let Some(pair) = self.pairs.get_mut(key)
        {
            let queue_pair = pair.setup.token;
            if pair.attempt.is_some_and(|with| with.keeps_pair) && pair.state == State::Connecting {
                (pair.state, pair.link) = (State::Unconnected, None);
            } else {
                self.stop_pair(key);
            }
            self.raise(ControlEvent::ConnectFailed {
                queue_pair,
                failure,
            });
        }
    }

    /// Withdraws the request of a peer that has taken it back, unless the consumer knows of it.
    ///
    /// Then it stays until the consumer answers it; an acceptance fails.
    fn take_back(&mut self, id: u32) {
        if self.links.get(id).is_some_and(|link| link.waits) && self.withdraw_request(id) {
            self.forget_request(id);
        }
    }

    fn withdraw_request(&mut self, id: u32) -> bool {
        self.withdraw(|event| {
            matches!(event, ControlEvent::ConnectionRequest { request, .. }
                if request.0 == id as usize)
        })
    }

    /// Forgets a request that waits.
    pub(super) fn forget_request(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id)
            && core::mem::take(&mut link.waits)
        {
            self.waiting -= 1;
            self.withdraw_request(id);
        }
    }

    pub(super) fn disconnected(&mut self, id: u32, broken: bool) {
        let Some(key) = self.links.get(id).and_then(|link| link.pair) else {
            return;
        };
        let Some(pair) = self.pairs.get(key) else {
            return;
        };
        let (queue_pair, state) = (pair.setup.token, pair.state);
        if state == State::Accepting {
            // The peer was connected: its last message of the handshake is lost.
            self.established(id);
        }
        self.detach(id);
        self.stop_pair(key);
        if matches!(state, State::Accepting | State::Connected) {
            self.raise(if broken {
                ControlEvent::Broken { queue_pair }
            } else {
                ControlEvent::Disconnected { queue_pair }
            });
        }
    }
}
