//! Connections: how they start and end.
//!
//! | side | call or message | then |
//! |---|---|---|
//! | active | `connect` | *Request* goes out |
//! | passive | *Request*, room in the listener's backlog | request event; *Answered* goes back |
//! | passive | *Request*, otherwise | *Refused* goes back |
//! | passive | `accept` | *Accepted* goes back |
//! | passive | `reject` | *Refused* goes back |
//! | active | *Accepted*, still connecting | established; *Ready* goes out |
//! | active | *Accepted*, given up meanwhile | *Withdrawn* goes out |
//! | passive | *Ready*, or the first data | established |
//! | passive | *Withdrawn*, or nothing in time | failed |
//! | either | disconnect, failure, destruction | *Ended* goes out |
//!
//! Messages and data of one queue pair arrive in the order in which they were sent. A message is
//! lost if its link is down or a host is dead; only *Ended* is sent again when the link is up.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use dat_core::attributes::IaAddress;
use dat_core::backend::{ConnectFailure, ControlEvent, PrivateData};
use dat_queues::State;

use crate::objects::action::{Action, Content, Message};
use crate::objects::adapter::PendingRequest;
use crate::objects::queue_pair::{Ending, Notice};
use crate::world::World;

impl World {
    /// Sends a message from a queue pair, to arrive after all its earlier ones.
    pub(crate) fn send_from(&mut self, key: u32, to: usize, content: Content) {
        let latency = self.draw(&self.options.latency.clone());
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let at = now
            .saturating_add(latency)
            .max(queue_pair.last_arrival.saturating_add(1));
        queue_pair.last_arrival = at;
        let connection = queue_pair.connection;
        let from = self.adapters[queue_pair.adapter].node;
        self.post(at, connection, (from, to), content);
    }

    /// Sends a message from a host.
    fn send_message(&mut self, connection: u64, between: (usize, usize), content: Content) {
        self.send_behind(0, connection, between, content);
    }

    /// Sends a message from a host, to arrive no earlier than `earliest`; returns its arrival.
    fn send_behind(
        &mut self,
        earliest: u64,
        connection: u64,
        between: (usize, usize),
        content: Content,
    ) -> u64 {
        let latency = self.draw(&self.options.latency.clone());
        let at = self.now.saturating_add(latency).max(earliest);
        self.post(at, connection, between, content);
        at
    }

    fn post(&mut self, at: u64, connection: u64, (from, to): (usize, usize), content: Content) {
        let message = Box::new(Message {
            connection,
            from,
            to,
            content,
        });
        self.plan(at, Action::Message(message));
    }

    /// Sends a connection request, or a refusal if no host has the address.
    pub(crate) fn request_connection(
        &mut self,
        key: u32,
        address: IaAddress,
        qualifier: u64,
        private_data: PrivateData,
    ) -> u64 {
        self.connections += 1;
        let connection = self.connections;
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return 0;
        };
        queue_pair.state = State::Connecting;
        queue_pair.is_initiator = true;
        queue_pair.connection = connection;
        queue_pair.last_arrival = now;
        let node_number = self.adapters[queue_pair.adapter].node;
        let node = &mut self.nodes[node_number];
        let port = node.next_port;
        node.next_port += 1;
        let remote = node.address;
        match self.node_at(address) {
            Some(target) => self.send_from(
                key,
                target,
                Content::Request {
                    active: key,
                    qualifier,
                    remote,
                    remote_port: port,
                    private_data,
                },
            ),
            None => self.send_message(
                connection,
                (node_number, node_number),
                Content::Refused {
                    active: key,
                    failure: ConnectFailure::Unreachable,
                },
            ),
        }
        port
    }

    /// Handles a message that arrives.
    pub(crate) fn message(&mut self, message: Box<Message>) {
        if !self.passes(message.from, message.to) {
            self.lost(message);
            return;
        }
        let Message {
            connection,
            from,
            to,
            content,
        } = *message;
        match content {
            Content::Request { .. } => self.on_request(connection, (from, to), content),
            Content::Answered { active } => {
                if self.is_in(active, connection, State::Connecting) {
                    self.tell(active, |queue_pair| ControlEvent::Answered { queue_pair });
                }
            }
            Content::Refused { active, failure } => {
                if self.is_in(active, connection, State::Connecting) {
                    self.fail_queue_pair(active, Some(Notice::Failed(Box::new(failure))));
                }
            }
            Content::Accepted {
                active,
                passive,
                private_data,
            } => {
                if !self.is_in(active, connection, State::Connecting) {
                    let content = Content::Withdrawn { passive };
                    self.send_message(connection, (to, from), content);
                    return;
                }
                if let Some(queue_pair) = self.queue_pairs.get_mut(active) {
                    queue_pair.state = State::Connected;
                    queue_pair.peer = Some(passive);
                }
                self.send_from(active, from, Content::Ready { passive });
                self.tell(active, |queue_pair| ControlEvent::Established {
                    queue_pair,
                    private_data,
                });
                self.check_watermarks(active);
            }
            Content::Ready { passive } => {
                if self.is_in(passive, connection, State::Accepting) {
                    self.establish(passive);
                }
            }
            Content::Withdrawn { passive } => {
                if self.is_in(passive, connection, State::Accepting) {
                    let failure = ConnectFailure::NonPeerRejected;
                    self.fail_queue_pair(passive, Some(Notice::Failed(Box::new(failure))));
                }
            }
            Content::Ended { queue_pair, ending } => {
                self.on_ended(queue_pair, connection, ending);
            }
        }
    }

    /// Handles a message that met a link that is down, or a dead host.
    fn lost(&mut self, message: Box<Message>) {
        let alive = !self.nodes[message.to].crashed && !self.nodes[message.from].crashed;
        if !alive {
            return;
        }
        let up = self.links.next_up(message.from, message.to, self.now);
        match up.filter(|_| matches!(message.content, Content::Ended { .. })) {
            Some(at) => self.plan(at, Action::Message(message)),
            None => self.note_outage(message.from, message.to),
        }
    }

    fn on_request(&mut self, connection: u64, (from, to): (usize, usize), content: Content) {
        let Content::Request {
            active,
            qualifier,
            remote,
            remote_port,
            private_data,
        } = content
        else {
            return;
        };
        let listener = self.nodes[to].qualifiers.get(qualifier);
        let request = listener.and_then(|(number, key)| {
            let adapter = &mut self.adapters[number];
            let listener = adapter.listeners.get_mut(key)?;
            if listener.waiting >= adapter.options.limits.backlog {
                return None;
            }
            listener.waiting += 1;
            let request = adapter.requests.insert(PendingRequest {
                listener: key,
                active,
                connection,
                answered: 0,
            });
            Some((number, listener.token, request))
        });
        let Some((adapter, listener, request)) = request else {
            let content = Content::Refused {
                active,
                failure: ConnectFailure::NonPeerRejected,
            };
            self.send_message(connection, (to, from), content);
            return;
        };
        let local = self.adapters[adapter].options.address;
        self.raise(
            adapter,
            ControlEvent::ConnectionRequest {
                listener,
                request: dat_core::backend::RequestKey(request as usize),
                remote,
                remote_port,
                local,
                private_data,
            },
        );
        let content = Content::Answered { active };
        let answered = self.send_behind(0, connection, (to, from), content);
        if let Some(request) = self.adapters[adapter].requests.get_mut(request) {
            request.answered = answered;
        }
    }

    fn on_ended(&mut self, key: u32, connection: u64, ending: Ending) {
        let Some(queue_pair) = self.queue_pairs.get(key) else {
            return;
        };
        if queue_pair.connection != connection {
            return;
        }
        let notice = match queue_pair.state {
            State::Connected => Notice::Ended(ending),
            State::Connecting | State::Accepting => {
                Notice::Failed(Box::new(ConnectFailure::NonPeerRejected))
            }
            State::Unconnected | State::Error => return,
        };
        self.fail_queue_pair(key, Some(notice));
    }

    /// Establishes the connection on the accepting side.
    pub(crate) fn establish(&mut self, key: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(key) {
            queue_pair.state = State::Connected;
        }
        self.tell(key, |queue_pair| ControlEvent::Established {
            queue_pair,
            private_data: PrivateData::new(),
        });
        self.check_watermarks(key);
    }

    /// Accepts a connection request with a queue pair of the same adapter.
    pub(crate) fn accept_request(
        &mut self,
        request: PendingRequest,
        key: u32,
        private_data: PrivateData,
    ) {
        let PendingRequest {
            active,
            connection,
            answered,
            ..
        } = request;
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        queue_pair.state = State::Accepting;
        queue_pair.is_initiator = false;
        queue_pair.connection = connection;
        queue_pair.peer = Some(active);
        queue_pair.last_arrival = now.max(answered);
        let adapter = queue_pair.adapter;
        let to = self.node_of_request(active, adapter);
        let content = Content::Accepted {
            active,
            passive: key,
            private_data,
        };
        self.send_from(key, to, content);
        let at = now.saturating_add(self.options.handshake_timeout);
        self.plan_timeout(at, Action::AcceptTimeout { key, connection });
    }

    /// Refuses a connection request to an adapter.
    pub(crate) fn refuse_request(
        &mut self,
        adapter: usize,
        request: &PendingRequest,
        failure: ConnectFailure,
    ) {
        let from = self.adapters[adapter].node;
        let to = self.node_of_request(request.active, adapter);
        let content = Content::Refused {
            active: request.active,
            failure,
        };
        let earliest = request.answered.saturating_add(1);
        self.send_behind(earliest, request.connection, (from, to), content);
    }

    /// Returns the host that a request came from.
    ///
    /// If its queue pair is gone, the answer has no receiver, and any host will do.
    fn node_of_request(&self, active: u32, adapter: usize) -> usize {
        let adapter = self
            .queue_pairs
            .get(active)
            .map_or(adapter, |queue_pair| queue_pair.adapter);
        self.adapters[adapter].node
    }

    /// Fails a connection that was accepted and not established in time.
    pub(crate) fn accept_timeout(&mut self, key: u32, connection: u64) {
        if self.is_in(key, connection, State::Accepting) {
            self.fail_queue_pair(
                key,
                Some(Notice::Failed(Box::new(ConnectFailure::TimedOut))),
            );
        }
    }

    /// Sends *Ended* to the other end of a connection.
    pub(crate) fn tell_peer_of_end(&mut self, key: u32, ending: Ending) {
        let Some(peer) = self
            .queue_pairs
            .get(key)
            .and_then(|queue_pair| queue_pair.peer)
        else {
            return;
        };
        let Some(to) = self
            .queue_pairs
            .get(peer)
            .map(|peer| self.adapters[peer.adapter].node)
        else {
            return;
        };
        let content = Content::Ended {
            queue_pair: peer,
            ending,
        };
        self.send_from(key, to, content);
    }

    /// Raises a control event of a queue pair.
    fn tell(&mut self, key: u32, event: impl FnOnce(u64) -> ControlEvent) {
        if let Some(queue_pair) = self.queue_pairs.get(key) {
            let (adapter, token) = (queue_pair.adapter, queue_pair.setup.token);
            self.raise(adapter, event(token));
        }
    }

    /// Crashes a host: no message leaves it or reaches it from now on.
    pub(crate) fn crash(&mut self, node: usize) {
        self.nodes[node].crashed = true;
        let adapters = self.nodes[node].adapters.clone();
        let pairs = adapters
            .iter()
            .map(|adapter| &self.adapters[*adapter].queue_pairs);
        // In the order in which they were made.
        let pairs: BTreeSet<u32> = pairs.flatten().copied().collect();
        for key in pairs {
            self.fail_queue_pair(key, None);
        }
        for adapter in adapters {
            for queue in self.adapters[adapter].completion_queues.iter_mut() {
                queue.ring.fail(dat_core::backend::DeviceFailure::Broken);
            }
            self.raise(adapter, ControlEvent::DeviceFailed);
        }
    }
}
