//! Messages of connection management that come in.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use dat_core::attributes::IaAddress;
use dat_core::backend::{ControlEvent, RequestKey};

use super::Adapter;
use super::links::{Link, is_ours};
use super::private_data::unpack_request;
use crate::port::{Path, Route};
use crate::proto::connection::{
    ConnectRequest, Connection, ConnectionEvent, Information, Mad, Message, Reason,
    State as LinkState, answer_unknown, decode_packet, refuse,
};
use crate::proto::icrc::{Flow, Verdict};
use crate::proto::packet::{Packet, UDP_PORT};

/// A new request to connect whose path is to be looked up.
pub(crate) struct Unrouted {
    /// Communication id of this side.
    id: u32,
    /// Token of the service point.
    listener: u64,
    /// Address that the request came from.
    pub(crate) peer: SocketAddr,
    /// Address that it was sent to.
    local: SocketAddr,
}

impl Adapter {
    /// Returns the communication id of the receiver of a message; 0 if it is unknown.
    fn receiver(&self, message: &Message) -> u32 {
        match message {
            Message::Request(_) => 0,
            Message::Receipt(receipt) => receipt.ids.remote,
            Message::Reject(reject) => match reject.information {
                // The active side takes its REQ back, and has seen no answer (ROCE-176).
                Information::Guid(guid) if reject.ids.remote == 0 => {
                    let id = self.incoming.get(&(guid, reject.ids.local));
                    id.copied().unwrap_or_default()
                }
                _ => reject.ids.remote,
            },
            Message::Reply(reply) => reply.ids.remote,
            Message::Ready(ids) | Message::DisconnectReply(ids) => ids.remote,
            Message::DisconnectRequest { ids, .. } => ids.remote,
        }
    }

    /// Takes a message of connection management.
    pub(super) fn management(&mut self, wire: &Flow, datagram: &[u8], packet: &Packet<'_>) {
        let Some(mad) = decode_packet(packet).and_then(Mad::decode) else {
            self.counts.dropped += 1;
            return;
        };
        if let Message::Request(request) = mad.message {
            self.request_came(wire, datagram, &mad, &request);
            return;
        }
        let id = self.receiver(&mad.message);
        let Some(link) = self.links.get_mut(id) else {
            if wire.verify(datagram) == Verdict::Wrong {
                self.counts.bad_icrc += 1;
            } else if let Some(answer) = answer_unknown(&mad) {
                self.write_mad(&wire.reversed().into(), &answer);
            }
            return;
        };
        if link.view(wire).verify(datagram) == Verdict::Wrong {
            // The answer of another program names the addresses of the wire.
            let connects = link.connection.state() == LinkState::RequestSent;
            if !connects || wire.verify(datagram) == Verdict::Wrong {
                self.counts.bad_icrc += 1;
                return;
            }
            if let Message::Reply(reply) = mad.message
                && is_ours(reply.guid)
            {
                // The answer to a request before the one to the common port.
                link.path = wire.reversed().into();
            }
        }
        if let Message::Reply(reply) = mad.message
            && link.connection.state() == LinkState::RequestSent
        {
            link.path.single = !is_ours(reply.guid);
            if link.path.single {
                // Other programs have no other port, also if another one was asked since.
                link.path.wire.destination_port = UDP_PORT;
                link.path.view.destination_port = UDP_PORT;
            }
        }
        if matches!(mad.message, Message::Reject(_))
            && link.connection.state() == LinkState::RequestSent
            && mad.transaction != link.connection.request_transaction()
        {
            // The refusal of an earlier request: a larger proposal, or to another port.
            return;
        }
        let is_receipt = matches!(mad.message, Message::Receipt(_));
        let answered = is_receipt && !core::mem::replace(&mut link.is_answered, true);
        if answered && let Some(token) = self.token_of(id) {
            self.raise(ControlEvent::Answered { queue_pair: token });
        }
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let event = link.connection.receive(&mad, self.now);
        if let Some(ConnectionEvent::Disconnected { .. }) = event {
            self.follow(id, wire);
        }
        self.link_event(id, event);
    }

    pub(super) fn request_came(
        &mut self,
        wire: &Flow,
        datagram: &[u8],
        mad: &Mad,
        request: &ConnectRequest,
    ) {
        let marked = request.mark.and_then(|mark| {
            let source = SocketAddr::new(request.source, mark.port);
            let destination = SocketAddr::new(request.destination, mark.dialled);
            let flow = Flow::between(source, destination)?;
            // Only this side knows its interface.
            let scope = wire.scope;
            Some(Flow { scope, ..flow })
        });
        let view = marked.unwrap_or(*wire);
        if view.verify(datagram) == Verdict::Wrong {
            self.counts.bad_icrc += 1;
            return;
        }
        let known = self.incoming.get(&(request.guid, request.local_id));
        if let Some(id) = known.copied() {
            self.request_again(id, wire, mad, request);
            return;
        }
        let stale = self.peers.get(&(request.guid, request.qpn)).copied();
        let mut path = Path {
            wire: wire.reversed(),
            view: view.reversed(),
            single: marked.is_none(),
        };
        if marked.is_none() {
            // A kernel sends from any port, and receives at this one only.
            path.wire.destination_port = UDP_PORT;
            path.view.destination_port = UDP_PORT;
        }
        let listener = self.service_at(wire.destination().port(), request);
        let listener = listener.and_then(|key| self.listeners.get(key));
        let token = listener.map(|listener| listener.token);
        let (peer, local) = (wire.source(), wire.destination());
        let largest = self.options.mtu;
        let refusal = if let Some(stale) = stale {
            // The peer has begun again: nothing of the earlier connection is there any more.
            self.end_stale(stale, peer.ip());
            Some((Reason::STALE, Information::None))
        } else if !request.is_reliable {
            Some((Reason::INVALID_TRANSPORT, Information::None))
        } else if token.is_none() {
            Some((Reason::INVALID_SERVICE, Information::None))
        } else if request.mtu.is_none_or(|mtu| mtu > largest) {
            Some((Reason::INVALID_MTU, Information::Mtu(largest.code())))
        } else if self.waiting >= self.options.backlog {
            Some((Reason::NO_RESOURCES, Information::None))
        } else {
            None
        };
        let (Some(token), None) = (token, refusal) else {
            let (reason, information) =
                refusal.unwrap_or((Reason::INVALID_SERVICE, Information::None));
            self.write_mad(
                &path,
                &refuse(mad.transaction, request, reason, information),
            );
            return;
        };
        let options = self.connection_options();
        let port = path.wire.source_port;
        let port = self.ports.contains_key(&port).then_some(port);
        let drawn = self.links.draw_with(|id| {
            let mut connection = Connection::incoming(options, mad.transaction, request, id);
            // The peer learns at once that its request has come.
            let _ = connection.receive(mad, self.now);
            Box::new(Link {
                connection,
                path,
                pair: None,
                qpn: 0,
                request: *request,
                port,
                waits: true,
                is_answered: false,
                fallback: None,
                is_refused: false,
                is_passive: true,
                repeats: 0,
                is_ready: false,
                timer: None,
            })
        });
        let Some(id) = drawn else {
            let reason = Reason::NO_RESOURCES;
            let refusal = refuse(mad.transaction, request, reason, Information::None);
            self.write_mad(&path, &refusal);
            return;
        };
        if let Some(users) = port.and_then(|port| self.ports.get_mut(&port)) {
            *users += 1;
        }
        self.incoming.insert((request.guid, request.local_id), id);
        self.peers.insert((request.guid, request.qpn), id);
        self.waiting += 1;
        self.unrouted.push_back(Unrouted {
            id,
            listener: token,
            peer,
            local,
        });
    }

    /// Returns true if a path is to be looked up.
    pub(crate) fn has_unrouted(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Returns the peer of a new request whose path is to be looked up, without the adapter's lock.
    pub(crate) fn next_unrouted(&mut self) -> Option<Unrouted> {
        self.unrouted.pop_front()
    }

    /// Rejects a new request if its path MTU is too large for the path, or reports it (ROCE-177).
    ///
    /// Without a route, the path MTU of the request is taken on trust: its packet found a way here.
    pub(crate) fn routed(&mut self, unrouted: &Unrouted, route: Option<Route>) {
        let id = unrouted.id;
        let Some(link) = self.links.get(id).filter(|link| link.waits) else {
            return;
        };
        if link.connection.state() == LinkState::Closed {
            // Taken back at once.
            self.remove_link(id);
            return;
        }
        let (request, path) = (link.request, link.path);
        let largest = route.map(|route| route.mtu);
        if let Some(largest) = largest.filter(|largest| request.mtu > Some(*largest)) {
            let transaction = link.connection.request_transaction();
            // Nothing of it is kept: the peer may propose a smaller one under the same ids.
            self.remove_link(id);
            let information = Information::Mtu(largest.code());
            let refusal = refuse(transaction, &request, Reason::INVALID_MTU, information);
            self.write_mad(&path, &refusal);
            return;
        }
        self.after_link(id);
        let mut local = unrouted.local;
        local.set_port(self.address.port());
        self.raise(ControlEvent::ConnectionRequest {
            listener: unrouted.listener,
            request: RequestKey(id as usize),
            remote: IaAddress::from(unrouted.peer),
            remote_port: unrouted.peer.port().into(),
            local: IaAddress::from(local),
            private_data: unpack_request(&request),
        });
    }

    /// Takes a REQ that has come before.
    fn request_again(&mut self, id: u32, wire: &Flow, mad: &Mad, request: &ConnectRequest) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let repeats = mad.transaction == link.connection.request_transaction()
            && request.mark == link.request.mark;
        let event = link.connection.receive(mad, self.now);
        if repeats {
            self.follow(id, wire);
        }
        self.link_event(id, event);
    }

    /// Ends a connection that its peer has forgotten (ROCE-180).
    pub(super) fn end_stale(&mut self, id: u32, source: IpAddr) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        // Others may know the numbers of the peer.
        if link.path.wire.destination().ip() != source {
            return;
        }
        let event = match link.connection.state() {
            LinkState::RequestReceived => {
                self.reject(id, false, &[]);
                return;
            }
            LinkState::ReplySent => Some(ConnectionEvent::Unreachable),
            LinkState::Established => Some(ConnectionEvent::Disconnected { broken: false }),
            _ => None,
        };
        let transaction = self.random.next();
        link.connection.disconnect(transaction, false, self.now);
        self.link_event(id, event);
    }
}
