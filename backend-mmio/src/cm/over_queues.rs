//! The connection manager over queues.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Armed, BackendError, CompletionQueue, ConnectFailure, ConnectRequest, ControlEvent,
    DisconnectMode, ListenerKey, PrivateData, ReceiveRequest, RequestKey, SendRequest, WorkQueue,
};
use dat_core::time::Instant;

use super::channel::{REQUESTS, State as ChannelState};
use super::connection_manager::{ConnectionManager, Peer};
use super::connection_storage::{Connection, ConnectionStorage, Listener, State};
use super::message::{Kind, Message, PRIVATE_DATA};

/// The platform's knowledge of its network.
pub trait Network {
    /// Returns the host and the peer of the channel with this local queue pair number.
    ///
    /// Returns `None` until they are known.
    fn channel_peer(&mut self, queue_pair: u32) -> Option<(IaAddress, Peer)>;

    /// Moves a queue pair to the state that carries data to its peer.
    ///
    /// Does nothing with drivers that move queue pairs themselves.
    ///
    /// # Errors
    /// `State`, `Device`.
    fn make_ready(&mut self, queue_pair: u32, peer: Peer) -> Result<(), BackendError>;

    /// Moves a queue pair to the error state; it flushes on return.
    ///
    /// Does nothing with drivers that move queue pairs themselves.
    fn make_failed(&mut self, queue_pair: u32);
}

/// Time that the accepting side waits for the other one, in microseconds.
const ANSWER_TIMEOUT: u32 = 10_000_000;
/// Highest number of a queue pair.
const LAST_QUEUE_PAIR: u32 = 0xFF_FFFF;
/// Most completions that one call handles.
const MOST_COMPLETIONS: usize = 64;
/// Connection qualifiers for listeners that accept any.
const QUALIFIERS: core::ops::Range<u64> = 0x8000..0xC000;
/// First local port.
const FIRST_PORT: u64 = 0xC000;

/// Connection manager over queue pairs of the device.
#[derive(Debug)]
pub struct QueueConnectionManager<'s, C, S, R, J> {
    pub(super) storage: ConnectionStorage<'s, S, R>,
    pub(super) network: J,
    pub(super) completions: Option<C>,
    address: IaAddress,
    /// Address of the port on the network, which is sent to peers.
    port_address: [u32; 4],
    next_qualifier: u64,
    next_port: u64,
    /// Set if more completions may be pending than the last call handled.
    more: bool,
}

/// Returns true if two addresses name the same host.
fn same_host(one: IaAddress, other: IaAddress) -> bool {
    match (one, other) {
        (IaAddress::V4(one, _), IaAddress::V4(other, _)) => one == other,
        (IaAddress::V6(one, _, scope), IaAddress::V6(other, _, peer_name)) => {
            one == other && scope == peer_name
        }
        (IaAddress::Node(one), IaAddress::Node(other)) => one == other,
        _ => false,
    }
}

/// Returns true if an address has the family of `own` and is not unspecified.
fn is_usable(own: IaAddress, address: IaAddress) -> bool {
    match (own, address) {
        (IaAddress::V4(..), IaAddress::V4(octets, _)) => octets != [0; 4],
        (IaAddress::V6(..), IaAddress::V6(octets, ..)) => octets != [0; 16],
        (IaAddress::Node(_), IaAddress::Node(_)) => true,
        _ => false,
    }
}

fn to_private_data(bytes: &[u8]) -> Result<PrivateData, BackendError> {
    if bytes.len() > PRIVATE_DATA {
        return Err(BackendError::Resources);
    }
    PrivateData::from_slice(bytes).map_err(|_| BackendError::Resources)
}

impl<'s, C, S, R, J> QueueConnectionManager<'s, C, S, R, J>
where
    C: CompletionQueue,
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
    J: Network,
{
    /// Creates the connection manager of an adapter, given the adapter's address and its port's.
    ///
    /// It reaches no host before its channels are open.
    pub fn new(
        storage: ConnectionStorage<'s, S, R>,
        network: J,
        address: IaAddress,
        port_address: [u32; 4],
    ) -> Self {
        for channel in storage.channels.iter_mut() {
            *channel = None;
        }
        for connection in storage.connections.iter_mut() {
            *connection = Connection::default();
        }
        storage.listeners.fill(Listener::default());
        Self {
            storage,
            network,
            completions: None,
            address,
            port_address,
            next_qualifier: QUALIFIERS.start,
            next_port: FIRST_PORT,
            more: false,
        }
    }

    /// Queries the hosts at the other ends of waiting channels.
    pub(super) fn resolve_peers(&mut self) {
        let channels = self.storage.channels.iter_mut().flatten();
        for channel in channels.filter(|channel| channel.state == ChannelState::Waiting) {
            if let Some((address, peer)) = self.network.channel_peer(channel.number) {
                channel.address = address;
                channel.peer = peer;
                channel.state = ChannelState::Resolved;
            }
        }
    }

    /// Takes a free connection slot and resets it; returns its index and the slot.
    fn allocate(&mut self) -> Option<(usize, &mut Connection)> {
        let mut slots = self.storage.connections.iter_mut().enumerate();
        let (index, connection) = slots.find(|(_, one)| one.state == State::Free)?;
        let generation = connection.generation.wrapping_add(1);
        *connection = Connection {
            generation,
            ..Connection::default()
        };
        Some((index, connection))
    }

    /// Returns the connection with a name, if it belongs to the channel.
    fn find_by_name(&mut self, name: u32, channel: usize) -> Option<&mut Connection> {
        let index = (name & 0xFFFF) as usize;
        let connection = self.storage.connections.get_mut(index)?;
        let known = connection.state != State::Free
            && u32::from(connection.generation) == name >> 16
            && connection.channel == channel;
        known.then_some(connection)
    }

    fn find_by_pair(&mut self, queue_pair: u32) -> Option<&mut Connection> {
        let mut connections = self.storage.connections.iter_mut();
        connections.find(|one| {
            let has = matches!(
                one.state,
                State::Connecting | State::Accepting | State::Connected | State::Unreachable
            );
            has && one.queue_pair == queue_pair
        })
    }

    /// Ends the connection of a queue pair; the caller must end the queue pair itself.
    fn end(&mut self, queue_pair: u32, kind: Kind) {
        if let Some(connection) = self.find_by_pair(queue_pair) {
            match connection.state {
                State::Accepting | State::Connected => {
                    // A requester without the acceptance does not know the connection, so it is
                    // refused.
                    let unsent = connection.outgoing == Some(Kind::Accepted);
                    connection.state = State::Over;
                    connection.outgoing = Some(if unsent { Kind::Refused } else { kind });
                    connection.private_data = PrivateData::new();
                }
                // The other side is notified when it accepts.
                State::Connecting if connection.request_sent => connection.state = State::Cancelled,
                _ => connection.state = State::Free,
            }
        }
    }

    /// Sends pending messages, as far as there is room.
    fn send_pending(&mut self) {
        let own = self.port_address;
        for (index, connection) in self.storage.connections.iter_mut().enumerate() {
            let pending = connection
                .outgoing
                .filter(|_| connection.state != State::Free);
            let Some(kind) = pending else {
                continue;
            };
            let channel = self.storage.channels.get_mut(connection.channel);
            let Some(channel) = channel.and_then(Option::as_mut) else {
                continue;
            };
            let is_request = kind == Kind::Request;
            if !channel.has_room() || is_request && channel.unanswered >= REQUESTS {
                continue;
            }
            let name = u32::from(connection.generation) << 16 | index as u32 & 0xFFFF;
            channel.send(Message {
                queue_pair: connection.queue_pair,
                qualifier: connection.qualifier,
                port: connection.port,
                address: own,
                private_data: core::mem::take(&mut connection.private_data),
                ..Message::new(kind, name, connection.peer_name)
            });
            connection.outgoing = None;
            connection.awaits_answer = is_request;
            if is_request {
                connection.request_sent = true;
                channel.unanswered = channel.unanswered.saturating_add(1);
            }
            if matches!(connection.state, State::Over) {
                connection.state = State::Free;
            }
        }
        for channel in self.storage.channels.iter_mut().flatten() {
            channel.send_pending();
        }
    }

    /// Joins a ready channel, or ends a connection of a failed one; returns the event.
    fn poll_channels(&mut self) -> Option<ControlEvent> {
        for channel in self.storage.channels.iter_mut().flatten() {
            if channel.state == ChannelState::Resolved {
                let ready = self.network.make_ready(channel.number, channel.peer);
                channel.state = match ready {
                    Ok(()) => ChannelState::Up,
                    Err(_) => ChannelState::Down,
                };
                return Some(ControlEvent::Established {
                    queue_pair: u64::from(channel.number),
                    private_data: PrivateData::new(),
                });
            }
        }
        for connection in self.storage.connections.iter_mut() {
            let channel = self.storage.channels.get(connection.channel);
            let channel = channel.and_then(Option::as_ref);
            let down = channel.is_none_or(|channel| channel.state == ChannelState::Down);
            let queue_pair = u64::from(connection.queue_pair);
            let failure = match connection.state {
                State::Unreachable => ConnectFailure::Unreachable,
                State::Connecting if down => ConnectFailure::Unreachable,
                State::Accepting if down => ConnectFailure::NonPeerRejected,
                State::Connected if down => {
                    connection.state = State::Free;
                    self.network.make_failed(connection.queue_pair);
                    return Some(ControlEvent::Broken { queue_pair });
                }
                State::Over | State::Cancelled if down => {
                    connection.state = State::Free;
                    continue;
                }
                _ => continue,
            };
            connection.state = State::Free;
            self.network.make_failed(connection.queue_pair);
            return Some(ControlEvent::ConnectFailed {
                queue_pair,
                failure,
            });
        }
        None
    }

    /// Returns the next event that a message causes.
    pub(super) fn poll_messages(&mut self) -> Option<ControlEvent> {
        self.more = false;
        for _ in 0..MOST_COMPLETIONS {
            let completion = match self.completions.as_mut()?.poll() {
                Ok(Some(completion)) => completion,
                Ok(None) => match self.completions.as_mut()?.arm(false) {
                    Armed::Armed => return None,
                    Armed::Missed => continue,
                },
                Err(_) => {
                    for channel in self.storage.channels.iter_mut().flatten() {
                        channel.state = ChannelState::Down;
                    }
                    return None;
                }
            };
            let index = completion.queue_pair as usize;
            let channel = self
                .storage
                .channels
                .get_mut(index)
                .and_then(Option::as_mut);
            let message = channel
                .filter(|channel| channel.state != ChannelState::Down)
                .and_then(|channel| channel.completed(&completion));
            let event = message.and_then(|message| self.handle_message(index, message));
            if event.is_some() {
                return event;
            }
        }
        self.more = true;
        None
    }

    fn reply(&mut self, channel: usize, kind: Kind, to: u32) {
        if let Some(channel) = self
            .storage
            .channels
            .get_mut(channel)
            .and_then(Option::as_mut)
        {
            channel.reply((kind, to));
        }
    }

    /// Returns the connection that was requested on a channel; the other end has answered.
    fn answered_connection(&mut self, name: u32, channel: usize) -> Option<&mut Connection> {
        let connection = self.find_by_name(name, channel)?;
        let awaits_answer = core::mem::take(&mut connection.awaits_answer);
        let request_sent = connection.request_sent;
        let channel = self.storage.channels.get_mut(channel);
        if let Some(channel) = channel
            .and_then(Option::as_mut)
            .filter(|_| awaits_answer && request_sent)
        {
            channel.unanswered = channel.unanswered.saturating_sub(1);
        }
        let connection = self.storage.connections.get_mut((name & 0xFFFF) as usize)?;
        let wanted = matches!(connection.state, State::Connecting | State::Cancelled);
        (wanted && request_sent).then_some(connection)
    }

    fn handle_message(&mut self, channel: usize, message: Message) -> Option<ControlEvent> {
        let end = self.storage.channels.get_mut(channel)?.as_mut()?;
        // Both ends of a connection must be hosts of the channel, whatever the message says.
        let wrong_host = matches!(message.kind, Kind::Request | Kind::Accepted)
            && message.address != end.peer.address;
        if wrong_host || message.queue_pair > LAST_QUEUE_PAIR {
            end.close();
            return None;
        }
        match message.kind {
            Kind::Credits => None,
            Kind::Request => self.handle_request(channel, message),
            Kind::Answered => {
                let connection = self.answered_connection(message.to, channel)?;
                (connection.state == State::Connecting).then(|| ControlEvent::Answered {
                    queue_pair: u64::from(connection.queue_pair),
                })
            }
            Kind::Accepted => self.handle_accepted(channel, message),
            Kind::Rejected | Kind::Refused => {
                let connection = self.answered_connection(message.to, channel)?;
                let was = connection.state;
                connection.state = State::Free;
                if was == State::Cancelled {
                    return None;
                }
                let queue_pair = connection.queue_pair;
                self.network.make_failed(queue_pair);
                Some(ControlEvent::ConnectFailed {
                    queue_pair: u64::from(queue_pair),
                    failure: if message.kind == Kind::Rejected {
                        ConnectFailure::PeerRejected(message.private_data)
                    } else {
                        ConnectFailure::NonPeerRejected
                    },
                })
            }
            Kind::Ready => {
                let connection = self.find_by_name(message.to, channel)?;
                if connection.state != State::Accepting || connection.outgoing.is_some() {
                    return None;
                }
                connection.state = State::Connected;
                let (queue_pair, peer) = (connection.queue_pair, connection.peer);
                self.establish(queue_pair, peer, PrivateData::new())
            }
            Kind::Cancelled | Kind::Ended | Kind::Broken => {
                let connection = self.find_by_name(message.to, channel)?;
                let was = connection.state;
                let queue_pair = u64::from(connection.queue_pair);
                // Before the request was answered here there is nothing to end.
                if !matches!(was, State::Accepting | State::Connected) {
                    return None;
                }
                connection.state = State::Free;
                self.network.make_failed(queue_pair as u32);
                Some(match (was, message.kind) {
                    (State::Connected, Kind::Broken) => ControlEvent::Broken { queue_pair },
                    (State::Connected, _) => ControlEvent::Disconnected { queue_pair },
                    _ => ControlEvent::ConnectFailed {
                        queue_pair,
                        failure: ConnectFailure::NonPeerRejected,
                    },
                })
            }
        }
    }

    /// Handles a connection request.
    fn handle_request(&mut self, channel: usize, message: Message) -> Option<ControlEvent> {
        let mut listeners = self.storage.listeners.iter();
        let listener = listeners.find(|one| one.qualifier == Some(message.qualifier));
        let token = listener.map(|listener| listener.token);
        let local = self.address;
        let remote = self.storage.channels.get(channel)?.as_ref()?.address;
        let connections = self.storage.connections.iter();
        let waiting = connections
            .filter(|one| one.state != State::Free && one.channel == channel)
            .filter(|one| one.awaits_answer && !one.request_sent);
        // A peer with this many unanswered requests must not send another one.
        if waiting.count() >= REQUESTS as usize {
            self.storage.channels.get_mut(channel)?.as_mut()?.close();
            return None;
        }
        let allocated = token.and_then(|token| Some((token, self.allocate()?)));
        let Some((listener, (index, connection))) = allocated else {
            self.reply(channel, Kind::Refused, message.from);
            return None;
        };
        connection.awaits_answer = true;
        connection.state = State::Requested;
        connection.channel = channel;
        connection.peer_name = message.from;
        connection.outgoing = Some(Kind::Answered);
        connection.peer = Peer {
            queue_pair: message.queue_pair,
            address: message.address,
        };
        Some(ControlEvent::ConnectionRequest {
            listener,
            request: RequestKey(usize::from(connection.generation) << 16 | index),
            remote,
            remote_port: message.port,
            local,
            private_data: message.private_data,
        })
    }

    fn handle_accepted(&mut self, channel: usize, message: Message) -> Option<ControlEvent> {
        let connection = self.answered_connection(message.to, channel)?;
        if connection.state == State::Cancelled {
            connection.state = State::Over;
            connection.peer_name = message.from;
            connection.outgoing = Some(Kind::Cancelled);
            return None;
        }
        connection.state = State::Connected;
        connection.peer_name = message.from;
        connection.peer = Peer {
            queue_pair: message.queue_pair,
            address: message.address,
        };
        connection.outgoing = Some(Kind::Ready);
        let (queue_pair, peer) = (connection.queue_pair, connection.peer);
        self.establish(queue_pair, peer, message.private_data)
    }

    /// Establishes a connection, if its queue pair reaches the state that carries data.
    fn establish(
        &mut self,
        queue_pair: u32,
        peer: Peer,
        private_data: PrivateData,
    ) -> Option<ControlEvent> {
        let ready = self.network.make_ready(queue_pair, peer);
        let named = u64::from(queue_pair);
        if ready.is_err() {
            self.end(queue_pair, Kind::Broken);
            self.network.make_failed(queue_pair);
            return Some(ControlEvent::ConnectFailed {
                queue_pair: named,
                failure: ConnectFailure::NonPeerRejected,
            });
        }
        Some(ControlEvent::Established {
            queue_pair: named,
            private_data,
        })
    }

    /// Ends connections and attempts that waited too long.
    ///
    /// An accepted connection fails. The slot of a cancelled request becomes free; a later answer
    /// names no connection.
    fn expire(&mut self, now: Instant) -> Option<ControlEvent> {
        let cancelled = self.storage.connections.iter_mut();
        for connection in cancelled.filter(|one| one.state == State::Cancelled) {
            let deadline = *connection
                .deadline
                .get_or_insert(now.after(ANSWER_TIMEOUT)?);
            if deadline > now {
                continue;
            }
            connection.state = State::Free;
            let channel = self.storage.channels.get_mut(connection.channel);
            // The peer has not even acknowledged the request.
            if let Some(channel) = channel
                .and_then(Option::as_mut)
                .filter(|_| connection.awaits_answer)
            {
                channel.close();
            }
        }
        let waiting = self.storage.connections.iter_mut();
        let mut waiting = waiting.filter(|one| one.state == State::Accepting);
        let late = waiting.find_map(|one| {
            let deadline = *one.deadline.get_or_insert(now.after(ANSWER_TIMEOUT)?);
            (deadline <= now).then_some(one)
        })?;
        let queue_pair = late.queue_pair;
        self.end(queue_pair, Kind::Ended);
        self.network.make_failed(queue_pair);
        Some(ControlEvent::ConnectFailed {
            queue_pair: u64::from(queue_pair),
            failure: ConnectFailure::TimedOut,
        })
    }

    /// Returns the connection of a request, which is answered now.
    fn request(&mut self, request: RequestKey) -> Option<&mut Connection> {
        let index = request.0 & 0xFFFF;
        let connection = self.storage.connections.get_mut(index)?;
        let same = usize::from(connection.generation) == request.0 >> 16;
        (same && connection.state == State::Requested).then_some(connection)
    }

    /// Returns the peer of a queue pair or of a channel.
    pub(super) fn peer_of(&self, queue_pair: u32) -> Option<Peer> {
        let mut channels = self.storage.channels.iter().flatten();
        if let Some(channel) = channels.find(|channel| channel.number == queue_pair) {
            return Some(channel.peer);
        }
        let mut connections = self.storage.connections.iter();
        let connected = connections
            .find(|one| one.state == State::Connected && one.queue_pair == queue_pair)?;
        Some(connected.peer)
    }
}

impl<C, S, R, J> ConnectionManager for QueueConnectionManager<'_, C, S, R, J>
where
    C: CompletionQueue,
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
    J: Network,
{
    fn address(&self) -> IaAddress {
        self.address
    }

    fn private_data_limit(&self) -> u32 {
        PRIVATE_DATA as u32
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let listeners = &mut *self.storage.listeners;
        let taken = |wanted: u64| listeners.iter().any(|one| one.qualifier == Some(wanted));
        let qualifier = match qualifier {
            Some(qualifier) if taken(qualifier) => return Err(BackendError::QualifierInUse),
            Some(qualifier) => qualifier,
            None => {
                let following = self.next_qualifier..QUALIFIERS.end;
                let mut free = following.chain(QUALIFIERS.start..self.next_qualifier);
                let free = free.find(|qualifier| !taken(*qualifier));
                let free = free.ok_or(BackendError::QualifierUnavailable)?;
                self.next_qualifier = free.saturating_add(1);
                free
            }
        };
        let mut slots = listeners.iter_mut().enumerate();
        let index = slots.find(|(_, one)| one.qualifier.is_none());
        let (index, listener) = index.ok_or(BackendError::Resources)?;
        *listener = Listener {
            token,
            qualifier: Some(qualifier),
        };
        Ok((ListenerKey(index), qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        if let Some(index) = self.storage.listeners.get_mut(listener.0) {
            index.qualifier = None;
        }
    }

    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        if !is_usable(self.address, request.address) {
            return Err(BackendError::Address);
        }
        let private_data = to_private_data(request.private_data)?;
        if self.find_by_pair(queue_pair).is_some() {
            return Err(BackendError::State);
        }
        self.resolve_peers();
        let mut channels = self.storage.channels.iter();
        let channel = channels.position(|channel| {
            channel.as_ref().is_some_and(|channel| {
                let peer_name = matches!(channel.state, ChannelState::Resolved | ChannelState::Up);
                peer_name && same_host(channel.address, request.address)
            })
        });
        let port = self.next_port;
        let (_, connection) = self.allocate().ok_or(BackendError::Resources)?;
        connection.queue_pair = queue_pair;
        connection.qualifier = request.qualifier;
        connection.port = port;
        match channel {
            Some(channel) => {
                connection.state = State::Connecting;
                connection.channel = channel;
                connection.outgoing = Some(Kind::Request);
                connection.private_data = private_data;
            }
            None => connection.state = State::Unreachable,
        }
        self.next_port = port.wrapping_add(1);
        self.send_pending();
        Ok(port)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let private_data = to_private_data(private_data)?;
        if self.find_by_pair(queue_pair).is_some() {
            return Err(BackendError::State);
        }
        let connection = self.request(request).ok_or(BackendError::State)?;
        connection.state = State::Accepting;
        connection.queue_pair = queue_pair;
        connection.outgoing = Some(Kind::Accepted);
        connection.private_data = private_data;
        self.send_pending();
        Ok(())
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        let kept = private_data.get(..PRIVATE_DATA).unwrap_or(private_data);
        if let Some(connection) = self.request(request) {
            connection.state = State::Over;
            let kind = if by_consumer {
                Kind::Rejected
            } else {
                Kind::Refused
            };
            connection.outgoing = Some(kind);
            connection.private_data = PrivateData::from_slice(kept).unwrap_or_default();
        }
        self.send_pending();
    }

    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode) {
        let kind = match mode {
            DisconnectMode::Broken => Kind::Broken,
            DisconnectMode::Graceful | DisconnectMode::Abrupt => Kind::Ended,
        };
        self.end(queue_pair, kind);
        self.network.make_failed(queue_pair);
        self.send_pending();
    }

    fn forget(&mut self, queue_pair: u32) {
        self.end(queue_pair, Kind::Ended);
        self.send_pending();
    }

    fn owns(&self, queue_pair: u32) -> bool {
        let mut channels = self.storage.channels.iter().flatten();
        channels.any(|channel| channel.number == queue_pair)
    }

    fn failed(&mut self, queue_pair: u32) {
        let mut channels = self.storage.channels.iter_mut().flatten();
        match channels.find(|channel| channel.number == queue_pair) {
            Some(channel) => channel.state = ChannelState::Down,
            None => {
                self.end(queue_pair, Kind::Broken);
                self.network.make_failed(queue_pair);
                self.send_pending();
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<ControlEvent> {
        self.resolve_peers();
        let event = self.poll_channels();
        // Messages that an event causes are sent by the next call, after the queue pair moved.
        if event.is_none() {
            self.send_pending();
        }
        let event = event.or_else(|| self.poll_messages());
        // A message may have closed its channel.
        let event = event.or_else(|| self.poll_channels());
        event.or_else(|| self.expire(now))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut connections = self.storage.connections.iter();
        let is_due = |one: &Connection| {
            one.state == State::Unreachable
                || one.state == State::Cancelled && one.deadline.is_none()
        };
        if self.more || connections.any(is_due) {
            return Some(Instant::ZERO);
        }
        let connections = self.storage.connections.iter();
        let waiting =
            connections.filter(|one| matches!(one.state, State::Accepting | State::Cancelled));
        waiting.filter_map(|one| one.deadline).min()
    }
}
