//! Connections: calls to the connection manager, and the effects of its events.

use std::net::{IpAddr, SocketAddr};

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey,
    PrivateData, QueuePairKey, RequestKey,
};

use crate::backend::VerbsBackend;
use crate::hal::{
    AsyncEvent, CONNECT_DATA, CmEvent, CmEventKind, CmParameters, ConnectionId, REJECT_DATA,
    REPLY_DATA, Step,
};
use crate::options::LongQualifiers;
use crate::private_data::{Brought, MOST, Name, join, pack, receive, split, unpack};
use crate::queue_pair::{Pair, State};
use crate::signal::Source;

/// Most bytes of private data of a connection call.
pub(crate) const PRIVATE_DATA_SIZE: i32 = MOST as i32;

/// Most tails of private data that wait for their heads; the newest are kept.
const ANNOUNCED_MOST: usize = 256;

/// Position of the kind in an identifier's number; the key is below.
const KIND_SHIFT: u32 = 60;
const KEY_MASK: usize = (1 << KIND_SHIFT) - 1;

/// Owner of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Pair(usize),
    Listener(usize),
    Request(usize),
}

impl Owner {
    fn pack(self) -> usize {
        let (kind, key) = match self {
            Self::Pair(key) => (1, key),
            Self::Listener(key) => (2, key),
            Self::Request(key) => (3, key),
        };
        kind << KIND_SHIFT | key & KEY_MASK
    }

    fn unpack(number: usize) -> Option<Self> {
        let key = number & KEY_MASK;
        Some(match number >> KIND_SHIFT {
            1 => Self::Pair(key),
            2 => Self::Listener(key),
            3 => Self::Request(key),
            _ => return None,
        })
    }
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    token: u64,
    /// One identifier for each address of the port.
    _ids: Vec<ConnectionId>,
}

/// A request that was neither accepted nor rejected.
#[derive(Debug)]
pub(crate) struct Request {
    id: ConnectionId,
    parameters: CmParameters,
}

/// Tail of private data that arrived ahead of its request.
#[derive(Debug)]
pub(crate) struct Announced {
    peer: IpAddr,
    name: Name,
    tail: PrivateData,
}

/// Returns the port for a connection qualifier.
fn port_of(qualifier: u64, long: LongQualifiers) -> Result<u16, BackendError> {
    let short = match long {
        LongQualifiers::Refused => qualifier,
        LongQualifiers::Shortened => qualifier & u64::from(u16::MAX),
    };
    match u16::try_from(short) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(BackendError::Address),
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

impl VerbsBackend {
    pub(crate) fn start_listening(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let mut port = match qualifier {
            Some(qualifier) => port_of(qualifier, self.options.long_qualifiers)?,
            None => 0,
        };
        let key = self.listeners.next_key().ok_or(BackendError::Resources)?;
        let channel = self.seat.sources.channel()?;
        let mut ids = Vec::new();
        for &address in &self.port.addresses {
            let id = channel.create_id(Owner::Listener(key).pack())?;
            if address.is_ipv6() {
                id.only_v6()?;
            }
            let bound = id.bind(with_port(address, port)).and_then(|()| id.listen());
            if let Err(refused) = bound {
                return Err(match (refused, qualifier) {
                    // Another address has a listener on the port that was free at the first one.
                    (BackendError::QualifierInUse, None) => BackendError::QualifierUnavailable,
                    (BackendError::QualifierInUse, Some(_)) => BackendError::QualifierInUse,
                    // An interface may lose an address while it is up; the other addresses serve.
                    (BackendError::Address, _) if !ids.is_empty() => continue,
                    (other, _) => other,
                });
            }
            port = id.local_port();
            ids.push(id);
        }
        let key = self
            .listeners
            .insert(Listener { token, _ids: ids })
            .ok_or(BackendError::Resources)?;
        // A longer qualifier is returned as it was requested.
        Ok((ListenerKey(key), qualifier.unwrap_or(port.into())))
    }

    pub(crate) fn start_connection(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let address = request
            .address
            .socket_address()
            .ok_or(BackendError::Address)?;
        let remote = with_port(
            address,
            port_of(request.qualifier, self.options.long_qualifiers)?,
        );
        let local = self.port.towards(remote).ok_or(BackendError::Address)?;
        let data = request.private_data;
        let (private_data, first) = if data.len() < CONNECT_DATA {
            (pack(data, CONNECT_DATA)?, None)
        } else {
            let number = self.pairs.get(key.0).map_or(0, Pair::number);
            self.names = self.names.wrapping_add(1);
            let [_, a, b, c] = number.to_be_bytes();
            let [_, d, e, f] = self.names.to_be_bytes();
            let [first, second] = split(data, [a, b, c, d, e, f])?;
            (second, Some(first))
        };
        let pair = self.pairs.get_mut(key.0).ok_or(BackendError::State)?;
        if pair.state != State::Unconnected {
            return Err(BackendError::State);
        }
        let channel = self.seat.sources.channel()?;
        let id = channel.create_id(Owner::Pair(key.0).pack())?;
        id.bind(with_port(local, 0))?;
        let timeout = i32::try_from(self.options.resolve_timeout).unwrap_or(i32::MAX);
        let ahead = match first {
            None => None,
            Some(first) => {
                let ahead = channel.create_id(Owner::Pair(key.0).pack())?;
                ahead.bind(with_port(local, 0))?;
                Some((ahead, first, remote))
            }
        };
        id.resolve_address(remote, timeout)?;
        if let Some((ahead, first, remote)) = ahead {
            ahead.resolve_address(remote, timeout)?;
            pair.ahead = Some((ahead, first));
        }
        let port = id.local_port();
        pair.state = State::ResolvingAddress;
        pair.private_data = private_data;
        pair.id = Some(id);
        Ok(u64::from(port))
    }

    pub(crate) fn accept_request(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let private_data = pack(private_data, REPLY_DATA)?;
        let pair = self.pairs.get_mut(key.0).ok_or(BackendError::State)?;
        if pair.state != State::Unconnected {
            return Err(BackendError::State);
        }
        let Request { mut id, parameters } =
            self.requests.remove(request.0).ok_or(BackendError::State)?;
        // The peer's requested depths are the most that it uses; lower ones do no harm.
        let wanted = CmParameters {
            reads_in: parameters.reads_in.min(pair.reads_in()),
            reads_out: parameters.reads_out.min(pair.reads_out()),
            retries: self.options.retries.min(MOST_RETRIES),
            not_ready_retries: self.options.not_ready_retries,
            queue_pair: pair.number(),
            shared: pair.request.shared_receive_queue.is_some(),
        };
        id.set_context(Owner::Pair(key.0).pack());
        // Before the peer can send anything.
        self.directory.wait_for_data(pair.number());
        let accepted = pair
            .device
            .advance(&id, Step::Initialise)
            .and_then(|()| pair.device.advance(&id, receiving(&self.options, wanted)))
            .and_then(|()| pair.device.advance(&id, sending(&self.options, wanted)))
            .and_then(|()| id.accept(wanted, &private_data));
        pair.id = Some(id);
        pair.state = State::Accepting;
        if accepted.is_err() {
            // The request is used up, and the queue pair half connected: the attempt has failed.
            pair.id = None;
            pair.end(&self.directory);
            let queue_pair = pair.token();
            self.pending.push_back(ControlEvent::ConnectFailed {
                queue_pair,
                failure: ConnectFailure::TimedOut,
            });
            self.signal.alert();
        }
        Ok(())
    }

    pub(crate) fn refuse_request(
        &mut self,
        request: RequestKey,
        by_consumer: bool,
        private_data: &[u8],
    ) {
        if let Some(Request { id, .. }) = self.requests.remove(request.0) {
            let room = usize::try_from(PRIVATE_DATA_SIZE).unwrap_or(0);
            let data = private_data.get(..room).unwrap_or(private_data);
            id.reject(by_consumer, &pack(data, REJECT_DATA).unwrap_or_default());
        }
    }

    /// Ends a connection or an attempt.
    ///
    /// Verbs has only one message for an end, a disconnect, whatever the mode. A peer learns that
    /// the connection broke from its own queue pair, if that failed.
    pub(crate) fn end_connection(&mut self, key: QueuePairKey, _mode: DisconnectMode) {
        let Some(pair) = self.pairs.get_mut(key.0) else {
            return;
        };
        if pair.state == State::Unconnected {
            return;
        }
        pair.give_up(&self.directory);
        let token = pair.token();
        self.forget_connection_events(token);
    }

    /// Drops pending connection events of a queue pair.
    pub(crate) fn forget_connection_events(&mut self, token: u64) {
        self.pending.retain(|event| {
            !matches!(
                event,
                ControlEvent::Answered { queue_pair }
                    | ControlEvent::Established { queue_pair, .. }
                    | ControlEvent::ConnectFailed { queue_pair, .. }
                    | ControlEvent::Disconnected { queue_pair }
                    | ControlEvent::Broken { queue_pair }
                    if *queue_pair == token
            )
        });
    }

    /// Handles the notes of the polling path about queue pairs: early data and failures.
    pub(crate) fn take_in_notes(&mut self) {
        if !self.directory.take_changes() {
            return;
        }
        if self.directory.take_nonsense() {
            self.give_device_up();
        }
        for (_, pair) in self.pairs.iter_mut() {
            let noted = self.directory.noted(pair.number());
            if noted.arrived && pair.state == State::Accepting {
                pair.state = State::Connected;
                self.directory.expect_data(pair.number());
                self.pending.push_back(ControlEvent::Established {
                    queue_pair: pair.token(),
                    private_data: Default::default(),
                });
            }
            if noted.failed && pair.state == State::Connected {
                pair.give_up(&self.directory);
                self.pending.push_back(ControlEvent::Broken {
                    queue_pair: pair.token(),
                });
            }
        }
    }

    /// Handles an event of the connection manager; returns true if there was one.
    pub(crate) fn take_in_connections(&mut self) -> bool {
        if !self.signal.take_ready(Source::Connections) {
            return false;
        }
        let Some(channel) = self.seat.sources.made_channel() else {
            return false;
        };
        let Some(event) = channel.next() else {
            if !self.seat.sources.tells_of_connections() {
                self.signal.set_ready(Source::Connections);
            }
            return false;
        };
        // There may be more events, which are not reported again.
        self.signal.set_ready(Source::Connections);
        self.seat.sources.found_connection();
        self.take_in_connection(event);
        true
    }

    fn take_in_connection(&mut self, event: CmEvent) {
        if let (CmEventKind::Request, Some(id)) = (event.kind, event.request) {
            self.request_arrived(event.context, id, event.parameters, event.private_data);
            return;
        }
        match Owner::unpack(event.context) {
            Some(Owner::Pair(key)) => self.pair_event(
                key,
                event.identity,
                event.kind,
                event.parameters,
                event.private_data,
            ),
            Some(Owner::Request(key)) => {
                // The peer gave up before an answer; the answer will fail.
                let _known = self.requests.get(key);
            }
            Some(Owner::Listener(_)) | None => {
                if event.kind == CmEventKind::DeviceRemoved {
                    self.give_device_up();
                }
            }
        }
    }

    fn request_arrived(
        &mut self,
        context: usize,
        mut id: ConnectionId,
        parameters: CmParameters,
        private_data: PrivateData,
    ) {
        let listener = match Owner::unpack(context) {
            Some(Owner::Listener(key)) => self.listeners.get(key),
            _ => None,
        };
        let (Some(listener), (local, Some(remote)), true) = (
            listener,
            id.addresses(),
            id.is_of(&self.seat.device.context),
        ) else {
            // There is no listener any longer, or it is on another device.
            id.reject(false, &[]);
            return;
        };
        let token = listener.token;
        let peer = remote.ip();
        let private_data = match receive(private_data) {
            Brought::Complete(data) => Some(data),
            Brought::First(name, tail) => {
                if self.announced.len() == ANNOUNCED_MOST {
                    self.announced.pop_front();
                }
                self.announced.push_back(Announced { peer, name, tail });
                None
            }
            Brought::Second(name, length, head) => {
                let known = |one: &Announced| one.peer == peer && one.name == name;
                let index = self.announced.iter().position(known);
                let tail = index.and_then(|index| self.announced.remove(index));
                tail.and_then(|announced| join(head, &announced.tail))
                    .filter(|data| data.len() == length)
            }
        };
        let Some(private_data) = private_data else {
            // The first request has delivered its tail, or the second one's tail is missing.
            id.reject(false, &[]);
            return;
        };
        let Some(key) = self.requests.next_key() else {
            id.reject(false, &[]);
            return;
        };
        id.set_context(Owner::Request(key).pack());
        self.requests.insert(Request { id, parameters });
        self.pending.push_back(ControlEvent::ConnectionRequest {
            listener: token,
            request: RequestKey(key),
            remote: IaAddress::from(with_port(remote, 0)),
            remote_port: u64::from(remote.port()),
            local: local.map_or(IaAddress::Node(0), |local| {
                IaAddress::from(with_port(local, 0))
            }),
            private_data,
        });
    }

    fn pair_event(
        &mut self,
        key: usize,
        identity: usize,
        kind: CmEventKind,
        parameters: CmParameters,
        private_data: PrivateData,
    ) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let ahead = pair.ahead.as_ref();
        if ahead.is_some_and(|(ahead, _)| ahead.identity() == identity) {
            self.ahead_event(key, kind);
            return;
        }
        // An identifier that was given up has no more events.
        let Some(id) = pair.id.as_ref().filter(|id| id.identity() == identity) else {
            return;
        };
        let queue_pair = pair.token();
        let timeout = i32::try_from(self.options.resolve_timeout).unwrap_or(i32::MAX);
        match (pair.state, kind) {
            (State::ResolvingAddress, CmEventKind::AddressResolved) => {
                if !id.is_of(&self.seat.device.context) {
                    self.attempt_failed(key, ConnectFailure::Unreachable);
                } else if id.resolve_route(timeout).is_ok() {
                    pair.state = State::ResolvingRoute;
                    // The peer's address is known.
                    self.pending
                        .push_back(ControlEvent::Answered { queue_pair });
                } else {
                    self.attempt_failed(key, ConnectFailure::Unreachable);
                }
            }
            (State::ResolvingRoute, CmEventKind::RouteResolved) => {
                pair.state = State::Announcing;
                if pair.ahead.is_none() {
                    self.start_request(key);
                }
            }
            (State::Connecting, CmEventKind::Response) => {
                if establish(pair, id, &self.options, parameters).is_ok() {
                    pair.state = State::Connected;
                    self.pending.push_back(ControlEvent::Established {
                        queue_pair,
                        private_data: unpack(private_data),
                    });
                } else {
                    self.attempt_failed(key, ConnectFailure::TimedOut);
                }
            }
            (State::Accepting, CmEventKind::Established) => {
                pair.state = State::Connected;
                self.directory.expect_data(pair.number());
                self.pending.push_back(ControlEvent::Established {
                    queue_pair,
                    private_data: Default::default(),
                });
            }
            (State::Accepting | State::Connected, CmEventKind::Disconnected) => {
                self.peer_disconnected(key);
            }
            (State::Connected, CmEventKind::DeviceRemoved) => {
                pair.end(&self.directory);
                self.pending.push_back(ControlEvent::Broken { queue_pair });
            }
            (
                State::ResolvingAddress
                | State::ResolvingRoute
                | State::Announcing
                | State::Connecting
                | State::Accepting,
                failed,
            ) => {
                if let Some(failure) = failure(failed, private_data) {
                    self.attempt_failed(key, failure);
                }
            }
            _ => {}
        }
    }

    /// Sends the connection request.
    ///
    /// The route is known, and the tail of long private data has arrived at the peer.
    fn start_request(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let wanted = asking(pair, &self.options);
        let sent = pair
            .id
            .as_ref()
            .map(|id| id.connect(wanted, &pair.private_data));
        if let Some(Ok(())) = sent {
            pair.state = State::Connecting;
        } else {
            self.attempt_failed(key, ConnectFailure::NonPeerRejected);
        }
    }

    /// Handles the end of a connection by the peer, which may come before the connection.
    fn peer_disconnected(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let queue_pair = pair.token();
        // The peer ends a broken connection by the same message, but then this queue pair failed
        // too.
        let broke = pair.device.has_failed();
        let is_accepting = pair.state == State::Accepting;
        pair.end(&self.directory);
        if let Some(id) = &pair.id {
            id.disconnect();
        }
        if is_accepting {
            self.pending.push_back(ControlEvent::Established {
                queue_pair,
                private_data: Default::default(),
            });
        }
        self.pending.push_back(if broke {
            ControlEvent::Broken { queue_pair }
        } else {
            ControlEvent::Disconnected { queue_pair }
        });
    }

    /// Handles an event of the request with the tail of long private data.
    fn ahead_event(&mut self, key: usize, kind: CmEventKind) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let Some((ahead, data)) = &pair.ahead else {
            return;
        };
        let timeout = i32::try_from(self.options.resolve_timeout).unwrap_or(i32::MAX);
        let going = match kind {
            CmEventKind::AddressResolved => ahead.resolve_route(timeout).is_ok(),
            CmEventKind::RouteResolved => ahead.connect(asking(pair, &self.options), data).is_ok(),
            CmEventKind::Rejected(_) => {
                // Expected: the peer rejects it after taking the data.
                pair.ahead = None;
                if pair.state == State::Announcing {
                    self.start_request(key);
                }
                return;
            }
            CmEventKind::Other => true,
            _ => false,
        };
        if !going {
            let failure = match kind {
                CmEventKind::Response | CmEventKind::Established => ConnectFailure::NonPeerRejected,
                _ => ConnectFailure::Unreachable,
            };
            self.attempt_failed(key, failure);
        }
    }

    fn attempt_failed(&mut self, key: usize, failure: ConnectFailure) {
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.end(&self.directory);
            pair.id = None;
            self.pending.push_back(ControlEvent::ConnectFailed {
                queue_pair: pair.token(),
                failure,
            });
        }
    }

    /// Handles an asynchronous event of the device; returns true if there was one.
    pub(crate) fn take_in_device(&mut self) -> bool {
        let Some(event) = self.signal.take_device_event() else {
            return false;
        };
        match event {
            AsyncEvent::CompletionQueueFailed(number) => self.completion_queue_failed(number),
            AsyncEvent::QueuePairFailed(key) => {
                if let Some(pair) = self.pairs.get_mut(key)
                    && pair.state == State::Connected
                {
                    pair.give_up(&self.directory);
                    let queue_pair = pair.token();
                    self.pending.push_back(ControlEvent::Broken { queue_pair });
                }
            }
            AsyncEvent::Established(key) => {
                if let Some(pair) = self.pairs.get(key)
                    && self.directory.note_data(pair.number())
                {
                    self.take_in_notes();
                }
            }
            AsyncEvent::SharedReceiveLimit(key) => {
                if let Some(queue) = self.shared_queues.get(key) {
                    let queue = queue.token;
                    self.pending
                        .push_back(ControlEvent::SharedReceiveLimit { queue });
                }
            }
            AsyncEvent::SharedReceiveFailed(key) => {
                if let Some(queue) = self.shared_queues.get(key) {
                    let queue = queue.token;
                    self.pending
                        .push_back(ControlEvent::SharedReceiveFailed { queue });
                }
            }
            AsyncEvent::DeviceFailed => {
                self.give_device_up();
            }
            AsyncEvent::Other => {}
        }
        true
    }

    /// Ends all connections of a device that is gone, or whose reports cannot be trusted.
    ///
    /// The core ends only its own side of them. The device flushes posted requests as far as it
    /// still can.
    fn give_device_up(&mut self) {
        for (_, pair) in self.pairs.iter_mut() {
            if !matches!(pair.state, State::Unconnected | State::Ended) {
                pair.give_up(&self.directory);
            }
        }
        self.pending.push_back(ControlEvent::DeviceFailed);
    }

    /// Ends the connection of a queue pair that is destroyed, with notice to the peer.
    pub(crate) fn give_up(&mut self, pair: &mut Pair) {
        pair.give_up(&self.directory);
        self.forget_connection_events(pair.token());
        self.forget_pair(&pair.request, pair.number());
    }
}

/// Returns the parameters of a connection request.
fn asking(pair: &Pair, options: &crate::VerbsOptions) -> CmParameters {
    CmParameters {
        reads_in: pair.reads_in(),
        reads_out: pair.reads_out(),
        retries: options.retries.min(MOST_RETRIES),
        not_ready_retries: options.not_ready_retries,
        queue_pair: pair.number(),
        shared: pair.request.shared_receive_queue.is_some(),
    }
}

/// Most repetitions; soft-RoCE repeats for ever with 7.
const MOST_RETRIES: u8 = 6;

fn receiving(options: &crate::VerbsOptions, parameters: CmParameters) -> Step {
    Step::Receive {
        reads_in: parameters.reads_in,
        not_ready_timer: options.not_ready_timer & 0x1F,
    }
}

/// Makes a queue pair ready with the depths of the peer's reply, and confirms the reply.
fn establish(
    pair: &Pair,
    id: &ConnectionId,
    options: &crate::VerbsOptions,
    parameters: CmParameters,
) -> Result<(), BackendError> {
    // The depths from this side.
    let granted = CmParameters {
        reads_in: pair.reads_in().min(parameters.reads_in),
        reads_out: pair.reads_out().min(parameters.reads_out),
        ..parameters
    };
    pair.device.advance(id, Step::Initialise)?;
    pair.device.advance(id, receiving(options, granted))?;
    pair.device.advance(id, sending(options, granted))?;
    id.establish()
}

/// Returns the failure of an attempt that an event tells; `None` if it goes on.
fn failure(kind: CmEventKind, private_data: PrivateData) -> Option<ConnectFailure> {
    Some(match kind {
        CmEventKind::AddressFailed | CmEventKind::RouteFailed | CmEventKind::Unreachable => {
            ConnectFailure::Unreachable
        }
        CmEventKind::Rejected(true) => ConnectFailure::PeerRejected(unpack(private_data)),
        CmEventKind::Rejected(false) => ConnectFailure::NonPeerRejected,
        CmEventKind::ConnectFailed | CmEventKind::DeviceRemoved => ConnectFailure::TimedOut,
        _ => return None,
    })
}

fn sending(options: &crate::VerbsOptions, parameters: CmParameters) -> Step {
    Step::Send {
        reads_out: parameters.reads_out,
        longest_timeout: options.longest_acknowledgement & 0x1F,
        retries: options.retries.min(MOST_RETRIES),
        not_ready_retries: options.not_ready_retries & 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_return_their_owner() {
        for owner in [
            Owner::Pair(1 << 24),
            Owner::Listener((1 << 54) - 1),
            Owner::Request(7),
        ] {
            assert_eq!(Owner::unpack(owner.pack()), Some(owner));
        }
        for nonsense in [0, 5, 4 << KIND_SHIFT, usize::MAX] {
            assert_eq!(Owner::unpack(nonsense), None);
        }
    }

    /// Spec: PSC-01, EPK-05
    #[test]
    fn qualifiers_are_ports() {
        let refused = LongQualifiers::Refused;
        assert_eq!(port_of(1, refused), Ok(1));
        assert_eq!(port_of(65_535, refused), Ok(65_535));
        for wrong in [0, 65_536, u64::MAX] {
            assert_eq!(port_of(wrong, refused), Err(BackendError::Address));
        }
        let shortened = LongQualifiers::Shortened;
        for (long, port) in [(1, 1), (0xAFF_AB1E, 0xAB1E), (u64::MAX, u16::MAX)] {
            assert_eq!(port_of(long, shortened), Ok(port));
        }
        for wrong in [0, 65_536, u64::MAX << 16] {
            assert_eq!(port_of(wrong, shortened), Err(BackendError::Address));
        }
    }
}
