//! The device: its commands, and the messages that connect queue pairs.
//!
//! With hardware, none of this is the driver's.

use alloc::sync::Arc;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ControlEvent, DisconnectMode, DomainKey, PrivateData,
    QueuePairRequest, RegionKeys, Registration, RequestKey,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::{Mutex, SpinLock};

use super::backend::RingBackend;
use super::network::{Area, Listener, Network, Node, Pair, Request, State, broken, disconnected};
use super::queues::{CompletionRing, Ring};

/// The first connection qualifier for a listener that asks for any.
const FIRST_FREE_QUALIFIER: u64 = 1 << 16;

/// The wire between ring devices.
#[derive(Clone)]
pub struct Wire(Arc<Mutex<SpinLock, Network>>);

impl Wire {
    /// Returns a wire without devices.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Network::default())))
    }

    /// Adds a device and returns its driver; the address is the device's number, from 1.
    pub fn device(&self) -> RingBackend {
        let node = self.0.with(|network| {
            network.nodes.push(Node::default());
            network.nodes.len().wrapping_sub(1)
        });
        let device = Device {
            wire: self.clone(),
            node,
        };
        RingBackend { device }
    }

    /// Lets each queue pair carry out one request; returns false if there was none.
    pub fn step(&self) -> bool {
        self.0.with(Network::step)
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

/// A device as its driver reaches it.
pub(super) struct Device {
    wire: Wire,
    node: usize,
}

impl Device {
    fn network<R>(&self, call: impl FnOnce(&mut Network) -> R) -> R {
        self.wire.0.with(call)
    }

    fn node<R>(
        &self,
        call: impl FnOnce(&mut Node) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.network(|network| match network.nodes.get_mut(self.node) {
            Some(node) => call(node),
            None => Err(BackendError::Device),
        })
    }

    /// Returns the wire.
    #[cfg(feature = "host")]
    pub(super) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// Returns the address.
    pub(super) fn address(&self) -> IaAddress {
        address_of(self.node)
    }

    /// Creates a protection domain.
    pub(super) fn create_domain(&self) -> Result<DomainKey, BackendError> {
        self.node(|node| {
            node.domains = node.domains.wrapping_add(1);
            Ok(DomainKey(node.domains))
        })
    }

    /// Enters memory into the table of regions.
    pub(super) fn register(&self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.node(|node| {
            let key = u32::try_from(node.regions.len().wrapping_add(1));
            let local = key.map_err(|_| BackendError::Resources)?;
            node.regions.push(Some(Area::new(registration)));
            let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
            let is_remote = registration.privileges().intersects(remote);
            Ok(RegionKeys {
                object: local as usize,
                local,
                remote: if is_remote { local } else { 0 },
            })
        })
    }

    /// Removes memory from the table of regions.
    pub(super) fn deregister(&self, region: RegionKeys) {
        self.network(|network| {
            let node = network.nodes.get_mut(self.node);
            let index = region.object.wrapping_sub(1);
            if let Some(area) = node.and_then(|node| node.regions.get_mut(index)) {
                *area = None;
            }
        });
    }

    /// Adds a completion ring, unless its number is in use.
    pub(super) fn add_completion_ring(
        &self,
        ring: &Arc<CompletionRing>,
    ) -> Result<(), BackendError> {
        self.node(|node| {
            let mut known = node.completion_rings.iter();
            if known.any(|known| known.number == ring.number) {
                return Err(BackendError::State);
            }
            node.completion_rings.push(Arc::clone(ring));
            Ok(())
        })
    }

    /// Removes a completion ring.
    pub(super) fn remove_completion_ring(&self, number: u32) {
        let removed = self.node(|node| {
            node.completion_rings.retain(|ring| ring.number != number);
            Ok(())
        });
        removed.unwrap_or_default();
    }

    fn completion_ring(
        &self,
        number: Option<u32>,
    ) -> Result<Option<Arc<CompletionRing>>, BackendError> {
        let Some(number) = number else {
            return Ok(None);
        };
        self.node(|node| {
            let mut rings = node.completion_rings.iter();
            let ring = rings.find(|ring| ring.number == number);
            ring.cloned().ok_or(BackendError::State).map(Some)
        })
    }

    /// Adds an unconnected queue pair on two rings.
    pub(super) fn create_pair(
        &self,
        request: &QueuePairRequest,
        send: Arc<Ring>,
        receive: Arc<Ring>,
    ) -> Result<usize, BackendError> {
        let pair = Pair {
            node: self.node,
            token: request.token,
            domain: request.domain,
            state: State::Unconnected,
            attempts: 0,
            send,
            receive,
            send_completions: self.completion_ring(request.request_queue)?,
            receive_completions: self.completion_ring(request.receive_queue)?,
        };
        self.network(|network| {
            network.pairs.push(Some(pair));
            Ok(network.pairs.len().wrapping_sub(1))
        })
    }

    /// Changes an unconnected queue pair.
    pub(super) fn modify_pair(
        &self,
        key: usize,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let send = self.completion_ring(request.request_queue)?;
        let receive = self.completion_ring(request.receive_queue)?;
        self.network(|network| {
            let pair = network.pair_in(key, State::Unconnected)?;
            pair.domain = request.domain;
            (pair.send_completions, pair.receive_completions) = (send, receive);
            Ok(())
        })
    }

    /// Returns a queue pair in error to unconnected, with empty rings.
    pub(super) fn reset_pair(&self, key: usize) -> Result<(), BackendError> {
        self.network(|network| {
            let pair = network.pair_in(key, State::Error)?;
            pair.state = State::Unconnected;
            pair.send.clear();
            pair.receive.clear();
            Ok(())
        })
    }

    /// Destroys a queue pair; its peer sees a disconnect.
    pub(super) fn destroy_pair(&self, key: usize) {
        self.network(|network| network.destroy_pair(key));
    }

    /// Adds a listener and returns its qualifier.
    pub(super) fn listen(&self, token: u64, qualifier: Option<u64>) -> Result<u64, BackendError> {
        self.node(|node| {
            let in_use = |qualifier: u64| {
                let mut listeners = node.listeners.iter();
                listeners.any(|listener| listener.qualifier == qualifier)
            };
            let qualifier = match qualifier {
                Some(qualifier) if in_use(qualifier) => return Err(BackendError::QualifierInUse),
                Some(qualifier) => qualifier,
                None => (FIRST_FREE_QUALIFIER..)
                    .find(|qualifier| !in_use(*qualifier))
                    .ok_or(BackendError::QualifierUnavailable)?,
            };
            node.listeners.push(Listener { token, qualifier });
            Ok(qualifier)
        })
    }

    /// Removes the listener on a qualifier.
    pub(super) fn stop_listening(&self, qualifier: u64) {
        let stopped = self.node(|node| {
            let other = |known: &Listener| known.qualifier != qualifier;
            node.listeners.retain(other);
            Ok(())
        });
        stopped.unwrap_or_default();
    }

    /// Sends a connection request; returns the local port.
    pub(super) fn connect(
        &self,
        key: usize,
        to: (u64, u64),
        private_data: PrivateData,
    ) -> Result<u64, BackendError> {
        self.network(|network| {
            network.pair_in(key, State::Unconnected)?;
            network.connect(key, to, private_data);
            Ok(port_of(key))
        })
    }

    /// Accepts a connection request.
    pub(super) fn accept(
        &self,
        request: RequestKey,
        key: usize,
        private_data: PrivateData,
    ) -> Result<(), BackendError> {
        self.network(|network| {
            network.pair_in(key, State::Unconnected)?;
            let active = network.take_request(request).ok_or(BackendError::State)?;
            network.accept(active, key, private_data);
            Ok(())
        })
    }

    /// Rejects a connection request.
    pub(super) fn reject(&self, request: RequestKey, failure: ConnectFailure) {
        self.network(|network| {
            if let Some(Some(active)) = network.take_request(request) {
                network.fail_attempt(active, failure);
            }
        });
    }

    /// Ends a connection or an attempt.
    pub(super) fn disconnect(&self, key: usize, mode: DisconnectMode) {
        let event = match mode {
            DisconnectMode::Graceful | DisconnectMode::Abrupt => disconnected,
            DisconnectMode::Broken => broken,
        };
        self.network(|network| {
            network.disconnect(key, event);
            network.forget_events(key);
        });
    }

    /// Takes the next control event.
    pub(super) fn event(&self) -> Option<ControlEvent> {
        self.network(|network| network.nodes.get_mut(self.node)?.events.pop_front())
    }

    /// Ends all connections and removes all regions.
    pub(super) fn close(&self) {
        self.network(|network| {
            for key in 0..network.pairs.len() {
                if network.pair(key).is_some_and(|pair| pair.node == self.node) {
                    network.destroy_pair(key);
                }
            }
            if let Some(node) = network.nodes.get_mut(self.node) {
                *node = Node {
                    closed: true,
                    ..Node::default()
                };
            }
        });
    }
}

impl Network {
    /// Returns a queue pair that must be in a state.
    fn pair_in(&mut self, key: usize, state: State) -> Result<&mut Pair, BackendError> {
        let pair = self.pair(key).filter(|pair| pair.state == state);
        pair.ok_or(BackendError::State)
    }

    fn destroy_pair(&mut self, key: usize) {
        self.disconnect(key, disconnected);
        self.forget_events(key);
        if let Some(pair) = self.pairs.get_mut(key) {
            *pair = None;
        }
    }

    /// Returns the node with an address, unless its driver is gone.
    fn node_at(&self, address: u64) -> Option<usize> {
        let index = usize::try_from(address).ok()?.checked_sub(1)?;
        self.nodes
            .get(index)
            .is_some_and(|node| !node.closed)
            .then_some(index)
    }

    /// Starts a connection to an address and qualifier; its outcome is a control event.
    fn connect(
        &mut self,
        active: usize,
        (address, qualifier): (u64, u64),
        private_data: PrivateData,
    ) {
        let Some(pair) = self.pair(active) else {
            return;
        };
        (pair.state, pair.attempts) = (State::Connecting, pair.attempts.wrapping_add(1));
        let (attempt, from) = (pair.attempts, pair.node);
        let Some(to) = self.node_at(address) else {
            return self.fail_attempt(active, ConnectFailure::Unreachable);
        };
        let listeners = self.nodes.get(to).map_or(&[][..], |node| &node.listeners);
        let listener = listeners
            .iter()
            .find(|listener| listener.qualifier == qualifier);
        let Some(listener) = listener.map(|listener| listener.token) else {
            return self.fail_attempt(active, ConnectFailure::NonPeerRejected);
        };
        self.requests.push(Some(Request { active, attempt }));
        if let Some(node) = self.nodes.get_mut(to) {
            node.events.push_back(ControlEvent::ConnectionRequest {
                listener,
                request: RequestKey(self.requests.len().wrapping_sub(1)),
                remote: address_of(from),
                remote_port: port_of(active),
                local: address_of(to),
                private_data,
            });
        }
        self.raise(active, |queue_pair| ControlEvent::Answered { queue_pair });
    }

    fn fail_attempt(&mut self, key: usize, failure: ConnectFailure) {
        self.set_error(key);
        self.raise(key, |queue_pair| ControlEvent::ConnectFailed {
            queue_pair,
            failure,
        });
    }

    /// Takes a connection request; returns its active side, if that still waits.
    fn take_request(&mut self, key: RequestKey) -> Option<Option<usize>> {
        let Request { active, attempt } = self.requests.get_mut(key.0)?.take()?;
        let waits = self
            .pair(active)
            .is_some_and(|pair| pair.state == State::Connecting && pair.attempts == attempt);
        Some(waits.then_some(active))
    }

    /// Connects both sides, or fails the passive one if the active side has given up.
    fn accept(&mut self, active: Option<usize>, passive: usize, private_data: PrivateData) {
        let Some(active) = active else {
            return self.fail_attempt(passive, ConnectFailure::NonPeerRejected);
        };
        for (key, peer, private_data) in [
            (active, passive, private_data),
            (passive, active, PrivateData::new()),
        ] {
            if let Some(pair) = self.pair(key) {
                pair.state = State::Connected(peer);
            }
            self.raise(key, |queue_pair| ControlEvent::Established {
                queue_pair,
                private_data,
            });
        }
    }
}

/// Returns the address of a device.
const fn address_of(node: usize) -> IaAddress {
    IaAddress::Node(node as u64 + 1)
}

/// Returns the port qualifier of a queue pair.
const fn port_of(key: usize) -> u64 {
    key as u64 + 1
}
