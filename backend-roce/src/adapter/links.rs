//! Connections of an adapter: their messages, and the queue pairs that they make.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ControlEvent, PrivateData as CoreData, RequestKey,
};
use dat_core::time::Instant;

use super::{Adapter, ENDED, State, Timer};
use crate::port::{Path, Route};
use crate::proto::Psn;
use crate::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Connection, ConnectionEvent, ConnectionOptions, Ids,
    Mad, Mark, Message, PRIVATE_TAIL, PrivateData, REJECT_PRIVATE, REPLY_PRIVATE, REQUEST_PRIVATE,
    Reason, Reject, State as LinkState, answer_unknown, decode_packet, encode_packet, refuse,
    service_of,
};
use crate::proto::icrc::{Flow, Verdict};
use crate::proto::packet::{Packet, RnrTimer, UDP_PORT};
use crate::proto::queue_pair::{Agreement, QueuePair, QueuePairOptions};
use crate::proto::requester::RequestSlot;
use crate::proto::responder::ResourceSlot;

/// Repetitions of a request without an answer after which port 4791 is tried: 0.8 s.
const SILENT_REPEATS: u32 = 3;
/// First bytes of a GUID of ours (ROCE-48).
const GUID: u64 = 0x0244_4154;

/// Returns a GUID of ours.
pub(super) const fn guid(number: u32) -> u64 {
    GUID << 32 | (number as u64 & !TRANSLATED)
}

/// Set in the GUID of an acceptance if the addresses of the connection are translated (ROCE-48).
const TRANSLATED: u64 = 1;

/// Silence after which a translated connection is probed, before a translator forgets it (ROCE-53).
const TRANSLATED_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Shortest silence after which a peer is probed.
const SHORTEST_KEEP_ALIVE: Duration = Duration::from_millis(100);

const fn is_ours(guid: u64) -> bool {
    guid >> 32 == GUID
}

/// Returns the largest private data of a request, in bytes.
pub(crate) const fn private_size() -> usize {
    REQUEST_PRIVATE + PRIVATE_TAIL
}

/// A service point.
pub(crate) struct Listener {
    pub(crate) token: u64,
    service: u64,
    port: u16,
}

/// A connection or an attempt.
pub(crate) struct Link {
    connection: Connection,
    /// Addresses of packets to the peer.
    pub(super) path: Path,
    /// The queue pair, while the connection is its own.
    pair: Option<usize>,
    /// QPN of this side; 0 before the passive side accepts.
    qpn: u32,
    request: ConnectRequest,
    /// Claimed port that the passive side uses.
    port: Option<u16>,
    /// Set while the consumer decides about a request.
    waits: bool,
    /// Set once the peer has received the request.
    is_answered: bool,
    /// Set if this is the passive side.
    is_passive: bool,
    /// Times that the timer has expired.
    repeats: u32,
    is_ready: bool,
    timer: Option<Instant>,
}

impl Link {
    /// Returns true if the peer is one of ours.
    pub(super) const fn is_marked(&self) -> bool {
        !self.path.single
    }

    /// Returns true if a packet comes from another port of the peer's address, and may be followed.
    ///
    /// Only where a translator is in between, which has given the connection another port, and only
    /// by the passive side: the other one keeps the address that it was answered from. Another
    /// address is not followed, or a peer could direct the responses to its Reads at others.
    pub(super) fn has_moved(&self, wire: &Flow) -> bool {
        let (before, now) = (self.path.wire.destination(), wire.source());
        let is_translated = self.path.wire != self.path.view;
        self.is_passive
            && self.is_marked()
            && is_translated
            && now.ip() == before.ip()
            && now.port() != before.port()
    }

    /// Returns the addresses that the ICRC of a packet with these addresses covers.
    ///
    /// A kernel sends from any port; only our own ends agree on addresses.
    pub(super) fn view(&self, wire: &Flow) -> Flow {
        if self.is_marked() {
            self.path.view.reversed()
        } else {
            *wire
        }
    }
}

/// Packs private data into the room of a message.
///
/// The last byte is the length plus one; other programs leave it 0.
fn pack<const N: usize>(data: &[u8]) -> Option<PrivateData<N>> {
    let mut bytes = [0; N];
    let (last, room) = bytes.split_last_mut()?;
    room.get_mut(..data.len())?.copy_from_slice(data);
    *last = u8::try_from(data.len()).ok()?.checked_add(1)?;
    PrivateData::new(&bytes)
}

/// Unpacks private data; of other programs, all of the room counts.
fn unpack(room: &[u8]) -> CoreData {
    let packed = || {
        let (last, rest) = room.split_last()?;
        let length = usize::from(*last).checked_sub(1)?;
        let (data, padding) = rest.split_at_checked(length)?;
        padding.iter().all(|byte| *byte == 0).then_some(data)
    };
    CoreData::from_slice(packed().unwrap_or(room)).unwrap_or_default()
}

/// Packs the private data of a request, with the part that the mark carries.
fn pack_request(data: &[u8]) -> Option<(PrivateData<REQUEST_PRIVATE>, u8, [u8; PRIVATE_TAIL])> {
    if let Some(packed) = pack(data) {
        return Some((packed, 0, [0; PRIVATE_TAIL]));
    }
    let (head, rest) = data.split_at_checked(REQUEST_PRIVATE)?;
    let mut tail = [0; PRIVATE_TAIL];
    tail.get_mut(..rest.len())?.copy_from_slice(rest);
    let length = u8::try_from(data.len()).ok()?.checked_add(1)?;
    Some((PrivateData::new(head)?, length, tail))
}

fn unpack_request(request: &ConnectRequest) -> CoreData {
    let head = request.private_data.bytes();
    match request.mark {
        Some(mark) if mark.private_length > 0 => {
            let mut data = CoreData::from_slice(head).unwrap_or_default();
            let _ = data.extend_from_slice(&mark.private_tail);
            data.truncate(usize::from(mark.private_length) - 1);
            data
        }
        _ => unpack(head),
    }
}

/// Returns the service id of a connection qualifier.
///
/// Between our own ends, qualifiers beyond those of rdma_cm have ids outside of its range.
fn service(qualifier: u64) -> u64 {
    u16::try_from(qualifier).map_or(qualifier ^ 1 << 63, service_of)
}

/// Returns the UDP port of a connection qualifier (ROCE-44, ROCE-45).
///
/// Ports that need a privilege, and qualifiers that are no ports, have one below the range in which
/// systems choose ports for clients.
pub(crate) fn port_of(qualifier: u64) -> u16 {
    const FIRST: u64 = 10_000;
    const COUNT: u64 = 20_000;
    match u16::try_from(qualifier) {
        Ok(port) if port >= 1024 => port,
        _ => {
            let mixed = qualifier.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            // Below 30,000.
            (FIRST + mixed % COUNT) as u16
        }
    }
}

/// Returns the communication id of the receiver of a message; 0 in a REQ.
const fn receiver(message: &Message) -> u32 {
    match message {
        Message::Request(_) => 0,
        Message::Receipt(receipt) => receipt.ids.remote,
        Message::Reject(reject) => reject.ids.remote,
        Message::Reply(reply) => reply.ids.remote,
        Message::Ready(ids) | Message::DisconnectReply(ids) => ids.remote,
        Message::DisconnectRequest { ids, .. } => ids.remote,
    }
}

impl Adapter {
    // Service points.

    /// Adds a service point whose port is claimed.
    ///
    /// # Errors
    /// - `QualifierInUse`: this adapter has one with the qualifier.
    pub(crate) fn listen(&mut self, token: u64, qualifier: u64) -> Result<usize, BackendError> {
        let service = service(qualifier);
        if self.services.contains_key(&service) {
            return Err(BackendError::QualifierInUse);
        }
        let port = port_of(qualifier);
        let key = self.listeners.insert(Listener {
            token,
            service,
            port,
        });
        self.services.insert(service, key);
        *self.ports.entry(port).or_default() += 1;
        self.unused_ports.retain(|unused| *unused != port);
        Ok(key)
    }

    /// Returns true if a port is claimed already.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        port == self.address.port() || self.ports.contains_key(&port)
    }

    pub(crate) fn stop_listening(&mut self, key: usize) {
        if let Some(listener) = self.listeners.try_remove(key) {
            self.services.remove(&listener.service);
            self.leave_port(listener.port);
        }
    }

    fn leave_port(&mut self, port: u16) {
        if let Some(users) = self.ports.get_mut(&port) {
            *users -= 1;
            if *users == 0 {
                self.ports.remove(&port);
                if port != self.address.port() {
                    self.unused_ports.push(port);
                }
            }
        }
    }

    // Calls of the consumer.

    /// Starts a connection.
    ///
    /// # Errors
    /// - `Address`: there is no way to the peer.
    /// - `Resources`: no QPN or communication id is left, or the private data is too long.
    pub(crate) fn connect(
        &mut self,
        key: usize,
        route: Route,
        peer: IpAddr,
        qualifier: u64,
        data: &[u8],
    ) -> Result<(), BackendError> {
        let resources = BackendError::Resources;
        let (private_data, private_length, private_tail) = pack_request(data).ok_or(resources)?;
        let dialled = port_of(qualifier);
        let source = SocketAddr::new(route.source, self.address.port());
        let flow = Flow::between(source, SocketAddr::new(peer, dialled));
        let flow = flow.ok_or(BackendError::Address)?;
        let pair = self.pairs.get(key).ok_or(BackendError::State)?;
        let (reads_in, reads_out) = (pair.reads_in, pair.reads_out);
        let shared_receive_queue = pair.shared.is_some();
        let nonce = self.random.secret();
        let mut request = ConnectRequest {
            local_id: 0,
            service: service(qualifier),
            guid: self.guid,
            qpn: 0,
            responder_resources: reads_in,
            initiator_depth: reads_out,
            remote_response_timeout: ConnectionOptions::USUAL.response_timeout,
            is_reliable: true,
            starting_psn: Psn::new(self.random.next() as u32),
            local_response_timeout: ConnectionOptions::USUAL.response_timeout,
            retry_count: self.options.retries,
            rnr_retry_count: self.options.not_ready_retries,
            mtu: Some(route.mtu.min(self.options.mtu)),
            max_retries: ConnectionOptions::USUAL.max_retries,
            shared_receive_queue,
            source: route.source,
            destination: peer,
            source_port: source.port(),
            ack_timeout: self.options.timeout,
            mark: Some(Mark {
                port: source.port(),
                dialled,
                flags: 0,
                private_length,
                nonce,
                private_tail,
            }),
            private_data,
        };
        let qpn = self.qpns.draw(key).ok_or(resources)?;
        let transaction = self.random.next();
        let now = self.now;
        request.qpn = qpn;
        let drawn = self.links.draw_with(|local_id| {
            request.local_id = local_id;
            let options = ConnectionOptions::USUAL;
            Box::new(Link {
                connection: Connection::connect(options, transaction, request, now),
                path: flow.into(),
                pair: Some(key),
                qpn,
                request,
                port: None,
                waits: false,
                is_answered: false,
                is_passive: false,
                repeats: 0,
                is_ready: false,
                timer: None,
            })
        });
        let Some(id) = drawn else {
            self.qpns.remove(qpn);
            return Err(resources);
        };
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.link = Some(id);
            pair.state = State::Connecting;
        }
        self.after_link(id);
        Ok(())
    }

    /// Accepts a request with a queue pair.
    ///
    /// # Errors
    /// - `State`: the request is gone.
    /// - `Resources`: no QPN is left, or the private data is too long.
    pub(crate) fn accept(&mut self, id: u32, key: usize, data: &[u8]) -> Result<(), BackendError> {
        let private_data = pack::<REPLY_PRIVATE>(data).ok_or(BackendError::Resources)?;
        let link = self.links.get(id).filter(|link| link.waits);
        let link = link.ok_or(BackendError::State)?;
        let (request, translated) = (link.request, link.path.wire != link.path.view);
        let pair = self.pairs.get(key).ok_or(BackendError::State)?;
        let (reads_in, reads_out) = (pair.reads_in, pair.reads_out);
        let shared_receive_queue = pair.shared.is_some();
        let qpn = self.qpns.draw(key).ok_or(BackendError::Resources)?;
        let reply = ConnectReply {
            ids: Ids::default(),
            qpn,
            starting_psn: Psn::new(self.random.next() as u32),
            responder_resources: reads_in.min(request.initiator_depth),
            initiator_depth: reads_out.min(request.responder_resources),
            rnr_retry_count: self.options.not_ready_retries,
            shared_receive_queue,
            guid: self.guid | if translated { TRANSLATED } else { 0 },
            private_data,
        };
        let Some(agreement) = Agreement::passive(&request, &reply) else {
            self.qpns.remove(qpn);
            return Err(BackendError::State);
        };
        self.start_pair(
            key,
            id,
            &agreement,
            State::Accepting,
            self.options.keep_alive,
        );
        if let Some(link) = self.links.get_mut(id) {
            link.waits = false;
            link.qpn = qpn;
            link.pair = Some(key);
            link.connection.accept(reply, self.now);
        }
        self.waiting -= 1;
        self.after_link(id);
        Ok(())
    }

    /// Makes the transport of a queue pair.
    fn start_pair(
        &mut self,
        key: usize,
        id: u32,
        agreement: &Agreement,
        state: State,
        keep_alive: Option<Duration>,
    ) {
        let options = QueuePairOptions {
            window: self.options.window,
            timeout: self.options.timeout,
            rnr_timer: RnrTimer::from_code(self.options.not_ready_timer),
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        if let Some(pair) = self.pairs.get_mut(key) {
            let probes = usize::from(keep_alive.is_some());
            let slots = (pair.request_depth + probes).max(1).next_power_of_two();
            let slots: Box<[_]> = alloc::vec![RequestSlot::EMPTY; slots].into();
            let resources = usize::from(agreement.responder_resources);
            let resources: Box<[_]> = alloc::vec![ResourceSlot::EMPTY; resources].into();
            pair.transport = Some(QueuePair::new(agreement, &options, slots, resources));
            pair.link = Some(id);
            pair.state = state;
            pair.keep_alive = keep_alive.map(|period| period.max(SHORTEST_KEEP_ALIVE));
            pair.heard = self.now;
            self.probe(key);
        }
    }

    /// Follows the peer of a connection to another port (ROCE-52).
    pub(super) fn follow(&mut self, id: u32, wire: &Flow) {
        if let Some(link) = self.links.get_mut(id) {
            link.path.wire = wire.reversed();
        }
    }

    /// Rejects a request.
    pub(crate) fn reject(&mut self, id: u32, by_consumer: bool, data: &[u8]) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.waits) else {
            return;
        };
        let kept = data.get(..private_size()).unwrap_or(data);
        let private_data = pack::<REJECT_PRIVATE>(kept).filter(|_| by_consumer);
        let reject = Reject {
            ids: Ids::default(),
            answered: Answered::Request,
            reason: if by_consumer {
                Reason::CONSUMER
            } else {
                Reason::INVALID_SERVICE
            },
            mtu: None,
            private_data: private_data.unwrap_or(PrivateData::NONE),
        };
        link.waits = false;
        link.connection.reject(reject, self.now);
        let peer = (link.request.guid, link.request.qpn);
        self.waiting -= 1;
        self.forget_peer(id, peer);
        self.after_link(id);
    }

    /// Rejects all requests that wait, at the end of the adapter.
    pub(super) fn refuse_waiting(&mut self) {
        let incoming: alloc::vec::Vec<u32> = self.incoming.values().copied().collect();
        for id in incoming {
            self.reject(id, false, &[]);
        }
    }

    /// Ends the connection of a queue pair by a message.
    pub(super) fn disconnect_link(&mut self, key: usize, broken: bool) {
        let Some(id) = self.pairs.get(key).and_then(|pair| pair.link) else {
            return;
        };
        let transaction = self.random.next();
        if let Some(link) = self.links.get_mut(id) {
            link.connection.disconnect(transaction, broken, self.now);
        }
        self.detach(id);
        self.after_link(id);
    }

    /// Separates a connection that has ended from its queue pair; packets find it no more.
    fn detach(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        link.pair = None;
        if let Some(pair) = self.qpns.get_mut(link.qpn) {
            *pair = ENDED;
        }
        let peer = (link.request.guid, link.request.qpn);
        self.forget_peer(id, peer);
    }

    /// Lets a peer use a QPN for another connection.
    fn forget_peer(&mut self, id: u32, peer: (u64, u32)) {
        if self.peers.get(&peer) == Some(&id) {
            self.peers.remove(&peer);
        }
    }

    // Messages.

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
        let id = receiver(&mad.message);
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
        let ends = matches!(event, Some(ConnectionEvent::Disconnected { .. }));
        if ends && link.has_moved(wire) {
            link.path.wire = wire.reversed();
        }
        self.link_event(id, event);
    }

    /// Ends a connection that its peer has forgotten (ROCE-180).
    fn end_stale(&mut self, id: u32, source: IpAddr) {
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

    /// Returns the token of a queue pair whose attempt to connect is pending.
    fn token_of(&self, id: u32) -> Option<u64> {
        let pair = self.pairs.get(self.links.get(id)?.pair?)?;
        (pair.state == State::Connecting).then_some(pair.token)
    }

    fn request_came(&mut self, wire: &Flow, datagram: &[u8], mad: &Mad, request: &ConnectRequest) {
        let marked = request.mark.and_then(|mark| {
            let source = SocketAddr::new(request.source, mark.port);
            let destination = SocketAddr::new(request.destination, mark.dialled);
            Flow::between(source, destination)
        });
        let view = marked.unwrap_or(*wire);
        if view.verify(datagram) == Verdict::Wrong {
            self.counts.bad_icrc += 1;
            return;
        }
        let known = self.incoming.get(&(request.guid, request.local_id));
        if let Some(id) = known.copied() {
            if let Some(link) = self.links.get_mut(id) {
                let repeats = mad.transaction == link.connection.request_transaction()
                    && request.mark == link.request.mark;
                if repeats && link.has_moved(wire) {
                    link.path.wire = wire.reversed();
                }
                let event = link.connection.receive(mad, self.now);
                self.link_event(id, event);
            }
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
        let listener = self.services.get(&request.service).copied();
        let listener = listener.and_then(|key| self.listeners.get(key));
        let token = listener.map(|listener| listener.token);
        let (peer, local) = (wire.source(), wire.destination().ip());
        let largest = self.options.mtu;
        let refusal = if let Some(stale) = stale {
            // The peer has begun again: nothing of the earlier connection is there any more.
            self.end_stale(stale, peer.ip());
            Some((Reason::STALE, None))
        } else if !request.is_reliable {
            Some((Reason::INVALID_TRANSPORT, None))
        } else if token.is_none() {
            Some((Reason::INVALID_SERVICE, None))
        } else if request.mtu.is_none_or(|mtu| mtu > largest) {
            Some((Reason::INVALID_MTU, Some(largest.code())))
        } else if self.waiting >= self.options.backlog {
            Some((Reason::NO_RESOURCES, None))
        } else {
            None
        };
        let (Some(token), None) = (token, refusal) else {
            let (reason, mtu) = refusal.unwrap_or((Reason::INVALID_SERVICE, None));
            self.write_mad(&path, &refuse(mad.transaction, request, reason, mtu));
            return;
        };
        let options = ConnectionOptions::USUAL;
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
                is_passive: true,
                repeats: 0,
                is_ready: false,
                timer: None,
            })
        });
        let Some(id) = drawn else {
            let reason = Reason::NO_RESOURCES;
            self.write_mad(&path, &refuse(mad.transaction, request, reason, None));
            return;
        };
        if let Some(users) = port.and_then(|port| self.ports.get_mut(&port)) {
            *users += 1;
        }
        self.incoming.insert((request.guid, request.local_id), id);
        self.peers.insert((request.guid, request.qpn), id);
        self.waiting += 1;
        self.after_link(id);
        self.raise(ControlEvent::ConnectionRequest {
            listener: token,
            request: RequestKey(id as usize),
            remote: IaAddress::from(peer),
            remote_port: peer.port().into(),
            local: IaAddress::from(SocketAddr::new(local, self.address.port())),
            private_data: unpack_request(request),
        });
    }

    /// Takes a request on a queue pair for the last message of the handshake (ROCE-167).
    pub(super) fn note_request(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id)
            && let Some(event) = link.connection.note_request()
        {
            self.link_event(id, Some(event));
        }
    }

    pub(super) fn expire_link(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id) {
            link.timer = None;
            let event = link.connection.expire(self.now);
            link.repeats = link.repeats.saturating_add(1);
            let connects = link.connection.state() == LinkState::RequestSent;
            // Hosts refuse only so many datagrams in a second: silence may be a refusal, too.
            if connects && !link.is_answered && link.repeats == SILENT_REPEATS {
                self.try_common_port(id);
            }
            self.link_event(id, event);
        }
    }

    /// Fails an attempt whose request was refused by the peer's host, or tries another port.
    ///
    /// `datagram` is the beginning of the refused one.
    pub(crate) fn refused(&mut self, datagram: &[u8]) {
        // Behind BTH, DETH and the header of the MAD, which has the transaction id.
        const OFFSET: usize = 44;
        const TRANSACTION: usize = 28;
        let id = datagram.get(OFFSET..).and_then(|rest| rest.first_chunk());
        let Some(id) = id.map(|bytes| u32::from_be_bytes(*bytes)) else {
            return;
        };
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        // An earlier request may be refused late, or somebody may only say so.
        let named = datagram
            .get(TRANSACTION..)
            .and_then(|rest| rest.first_chunk());
        let is_current = named == Some(&link.connection.request_transaction().to_be_bytes());
        let connects = link.connection.state() == LinkState::RequestSent;
        if !connects || !is_current || link.is_answered {
            return;
        }
        if !self.try_common_port(id) {
            let transaction = self.random.next();
            if let Some(link) = self.links.get_mut(id) {
                link.connection.disconnect(transaction, false, self.now);
            }
            self.link_event(id, Some(ConnectionEvent::Rejected(NOBODY)));
        }
    }

    /// Sends the request of an attempt to port 4791; false if it has been sent there.
    ///
    /// A kernel, or an adapter of hardware, has that port alone.
    fn try_common_port(&mut self, id: u32) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        let dialled = link.path.wire.destination_port;
        let long = link
            .request
            .mark
            .is_some_and(|mark| mark.private_length > 0);
        if dialled == UDP_PORT || long {
            return false;
        }
        link.path.wire.destination_port = UDP_PORT;
        link.path.view.destination_port = UDP_PORT;
        if let Some(mark) = &mut link.request.mark {
            mark.dialled = UDP_PORT;
        }
        let transaction = self.random.next();
        link.connection = Connection::connect(
            ConnectionOptions::USUAL,
            transaction,
            link.request,
            self.now,
        );
        self.after_link(id);
        true
    }

    /// Takes over what a connection has done, and its event.
    fn link_event(&mut self, id: u32, event: Option<ConnectionEvent>) {
        match event {
            None => {}
            Some(ConnectionEvent::Accepted(reply)) => self.accepted(id, &reply),
            Some(ConnectionEvent::Established) => self.established(id),
            Some(ConnectionEvent::Rejected(reject)) => {
                let failure = if reject.reason == Reason::CONSUMER {
                    ConnectFailure::PeerRejected(unpack(reject.private_data.bytes()))
                } else {
                    ConnectFailure::NonPeerRejected
                };
                self.attempt_failed(id, failure);
            }
            Some(ConnectionEvent::Unreachable) => {
                let pair = self.links.get(id).and_then(|link| link.pair);
                let state = pair
                    .and_then(|key| self.pairs.get(key))
                    .map(|pair| pair.state);
                let failure = if state == Some(State::Accepting) {
                    ConnectFailure::TimedOut
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
    fn accepted(&mut self, id: u32, reply: &ConnectReply) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let Some((key, agreement)) = link.pair.zip(Agreement::active(&link.request, reply)) else {
            return;
        };
        let is_translated = is_ours(reply.guid) && reply.guid & TRANSLATED != 0;
        let asked = self.options.keep_alive;
        let keep_alive = match asked {
            _ if !is_translated => asked,
            Some(asked) => Some(asked.min(TRANSLATED_KEEP_ALIVE)),
            None => Some(TRANSLATED_KEEP_ALIVE),
        };
        self.start_pair(key, id, &agreement, State::Connected, keep_alive);
        if let Some(queue_pair) = self.pairs.get(key).map(|pair| pair.token) {
            self.raise(ControlEvent::Established {
                queue_pair,
                private_data: unpack(reply.private_data.bytes()),
            });
        }
    }

    /// Passive side: the peer has the acceptance.
    fn established(&mut self, id: u32) {
        let Some(key) = self.links.get(id).and_then(|link| link.pair) else {
            return;
        };
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.state = State::Connected;
            let queue_pair = pair.token;
            self.raise(ControlEvent::Established {
                queue_pair,
                private_data: CoreData::new(),
            });
        }
    }

    fn attempt_failed(&mut self, id: u32, failure: ConnectFailure) {
        let pair = self.links.get(id).and_then(|link| link.pair);
        self.detach(id);
        self.forget_request(id);
        if let Some(key) = pair
            && let Some(pair) = self.pairs.get(key)
        {
            let queue_pair = pair.token;
            self.stop_pair(key);
            self.raise(ControlEvent::ConnectFailed {
                queue_pair,
                failure,
            });
        }
    }

    /// Forgets a request that its peer has taken back.
    fn forget_request(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id)
            && core::mem::take(&mut link.waits)
        {
            self.waiting -= 1;
            self.withdraw(|event| {
                matches!(event, ControlEvent::ConnectionRequest { request, .. }
                    if request.0 == id as usize)
            });
        }
    }

    fn disconnected(&mut self, id: u32, broken: bool) {
        let Some(key) = self.links.get(id).and_then(|link| link.pair) else {
            return;
        };
        let Some(pair) = self.pairs.get(key) else {
            return;
        };
        let (queue_pair, state) = (pair.token, pair.state);
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

    /// Sets the timer of a connection, notes its messages, and removes it if it is over.
    fn after_link(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let deadline = link.connection.deadline();
        let old = core::mem::replace(&mut link.timer, deadline);
        if !core::mem::replace(&mut link.is_ready, true) {
            self.ready_links.push_back(id);
        }
        self.set_timer(Timer::Link(id), old, deadline);
    }

    /// Writes the messages of a connection.
    pub(super) fn transmit_link(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id) {
            link.is_ready = false;
        }
        while let Some(link) = self.links.get_mut(id) {
            let path = link.path;
            let Some(mad) = link.connection.transmit() else {
                if link.connection.state() == LinkState::Closed {
                    self.remove_link(id);
                }
                return;
            };
            self.write_mad(&path, &mad);
        }
    }

    /// Removes a connection that is over; its QPN may be used again.
    fn remove_link(&mut self, id: u32) {
        self.detach(id);
        self.forget_request(id);
        let Some(link) = self.links.remove(id) else {
            return;
        };
        self.set_timer(Timer::Link(id), link.timer, None);
        self.qpns.remove(link.qpn);
        let request = &link.request;
        let key = (request.guid, request.local_id);
        if self.incoming.get(&key) == Some(&id) {
            self.incoming.remove(&key);
        }
        self.forget_peer(id, (request.guid, request.qpn));
        if let Some(port) = link.port {
            self.leave_port(port);
        }
    }

    fn write_mad(&mut self, path: &Path, mad: &Mad) {
        let psn = Psn::new(self.random.next() as u32);
        let bytes = mad.encode();
        self.outbox
            .add(path, |buffer| encode_packet(&bytes, psn, buffer));
    }

    /// Returns true if requests or messages wait for an answer of a peer.
    pub(crate) fn waits_for_peers(&self) -> bool {
        let waits = |timer: &Timer| match timer {
            Timer::Pair(_) => true,
            Timer::Probe(_) => false,
            Timer::Link(id) => self.links.get(*id).is_some_and(|link| {
                let state = link.connection.state();
                let unanswered = state == LinkState::RequestSent && !link.is_answered;
                unanswered || matches!(state, LinkState::ReplySent | LinkState::DisconnectSent)
            }),
        };
        self.timers.iter().any(|(_, timer)| waits(timer))
    }

    /// Gives all claimed ports back.
    pub(crate) fn leave_ports(&mut self) {
        let own = self.address.port();
        let ports = core::mem::take(&mut self.ports).into_keys();
        self.unused_ports.extend(ports.filter(|port| *port != own));
    }

    /// Returns true if messages that end connections are still to be answered (ROCE-178).
    pub(crate) fn is_ending(&self) -> bool {
        let ending = |link: &Link| matches!(link.connection.state(), LinkState::DisconnectSent);
        !self.ready_links.is_empty() || self.links.iter().any(|link| ending(link))
    }
}

/// The refusal of a host on which nobody listens.
const NOBODY: Reject = Reject {
    ids: Ids {
        local: 0,
        remote: 0,
    },
    answered: Answered::Request,
    reason: Reason::INVALID_SERVICE,
    mtu: None,
    private_data: PrivateData::NONE,
};
