//! Queue pairs that are attached by their attributes, without connection management.
//!
//! Their programs tell each other addresses, QPNs and PSNs in another way.

use core::net::{IpAddr, SocketAddr};

use dat_core::backend::{BackendError, ControlEvent, PrivateData};
use dat_queues::State;

use super::datagrams::Receiver;
use super::port_numbers::port_of_qpn;
use super::queue_pair::Drain;
use super::{Adapter, Pair, SendEntry};
use crate::port::{LocalNumber, Path};
use crate::proto::icrc::Flow;
use crate::proto::packet::RnrTimer;
use crate::proto::queue_pair::QueuePair;
use crate::proto::requester::RequesterOptions;
use crate::proto::responder::ResponderOptions;
use crate::proto::{PathMtu, Psn};
use crate::reserve::Reserve;

/// Rights of a peer to the memory of a queue pair; each access needs that of its region, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    /// RDMA Reads.
    pub read: bool,
    /// RDMA Writes.
    pub write: bool,
    /// Atomic operations.
    pub atomic: bool,
}

/// Attributes of a queue pair that becomes ready to receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveAttributes {
    /// Address of this side.
    pub local: IpAddr,
    /// Address of the peer, with the interface of a link-local one; its port is that of the QPN.
    pub peer: SocketAddr,
    /// QPN of the peer.
    pub peer_qpn: u32,
    /// PSN of the first request of the peer.
    pub expects: u32,
    /// Path MTU of both directions.
    pub mtu: PathMtu,
    /// Reads and atomics of the peer that are answered at a time.
    pub resources: u8,
    /// Code of the wait of a peer whose message finds no receive.
    pub not_ready_timer: u8,
    /// Rights of the peer.
    pub rights: RemoteRights,
}

/// Attributes of a queue pair that becomes ready to send.
#[derive(Clone, Copy, Debug)]
pub struct SendAttributes {
    /// PSN of the first request.
    pub sends: u32,
    /// Reads and atomics under way.
    pub depth: u8,
    /// Code of the time without progress after which a request is repeated; 0 means never.
    pub timeout: u8,
    /// Repetitions without progress, at most 7.
    pub retries: u8,
    /// Repetitions of a message that found no receive: 0 to 6, or 7 for ever.
    pub not_ready_retries: u8,
}

/// Terms of a connection that rdma_cm makes, as a program learns them.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTerms {
    /// Addresses of this side and of the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// QPN of the peer.
    pub peer_qpn: u32,
    /// Port of rdma_cm of the side that asked.
    pub asks_from: u16,
    /// PSN of the next request of the peer; 0 before it is chosen.
    pub expects: u32,
    /// PSN of the oldest request of this side that is not acknowledged.
    pub sends: u32,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Reads and atomics that this side answers, and has under way, at a time.
    pub depths: (u8, u8),
    /// Code of the time without progress after which this side repeats a request.
    pub timeout: u8,
    /// Repetitions without progress.
    pub retries: u8,
    /// Repetitions of a message that found no receive.
    pub not_ready_retries: u8,
    /// Code of the wait of a peer whose message finds no receive.
    pub not_ready_timer: u8,
}

/// Wishes of a program for its side of a connection that rdma_cm makes.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Rights of the peer.
    pub rights: RemoteRights,
    /// Code of the wait of a peer whose message finds no receive.
    pub not_ready_timer: u8,
    /// Time-out and repetitions of its requests, once it may send; the rest is agreed on.
    pub sends: Option<SendAttributes>,
}

/// How a queue pair is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Port of rdma_cm that the peer learns.
    pub own_port: u16,
    /// Reads and atomics under way: those of the peer, and its own.
    pub depths: (u8, u8),
    /// Repetitions of requests of the peer without progress, at most 7; those of this side are what
    /// the peer asks for.
    pub retries: u8,
    /// Repetitions of its messages that find no receive: 0 to 6, or 7 for ever.
    pub not_ready_retries: u8,
    /// Set if the queue pair stays as it is if the attempt fails; it is in error otherwise.
    pub keeps_pair: bool,
}

impl ReceiveAttributes {
    /// Returns the address of the peer with the port of its QPN, and true if that names one.
    pub(crate) fn peer(&self) -> (SocketAddr, bool) {
        let (port, is_ours) = port_of_qpn(self.peer_qpn);
        let mut peer = self.peer;
        peer.set_port(port);
        (peer, is_ours)
    }
}

impl Adapter {
    /// Adds the numbers of a port that the adapter has; false if there is no memory.
    pub(crate) fn number_port(&mut self, port: u16) -> bool {
        self.hold_port(port) && self.port_numbers.add_port(port)
    }

    /// Keeps a port that the adapter has claimed until its end; false if there is no memory.
    pub(crate) fn hold_port(&mut self, port: u16) -> bool {
        let ports = self.ports.len() + self.unused_ports.len() + 1;
        let has_room = self.ports.try_reserve(1).is_ok() && self.unused_ports.has_room_for(ports);
        if has_room {
            *self.ports.entry(port).or_default() += 1;
        }
        has_room
    }

    /// Gives a queue pair a QPN that names a port; `None` if the ports have none left.
    pub(crate) fn number_pair(&mut self, key: usize) -> Option<u32> {
        let pair = self.pairs.get_mut(key)?;
        let qpn = self.port_numbers.draw(key, self.now)?;
        pair.qpn = Some(qpn);
        pair.setup.token = qpn.into();
        Some(qpn)
    }

    /// Returns the queue pair with a QPN that names a port.
    pub(crate) fn numbered_pair(&self, qpn: u32) -> Option<usize> {
        self.port_numbers.get(qpn)
    }

    /// Returns a queue pair in a state.
    pub(crate) fn pair_in(&mut self, key: usize, state: State) -> Result<&mut Pair, BackendError> {
        let pair = self.pairs.get_mut(key);
        pair.filter(|pair| pair.state == state)
            .ok_or(BackendError::State)
    }

    /// Makes a queue pair ready to receive (ROCE-262), through `local` if that is open (ROCE-273).
    ///
    /// # Errors
    /// - `State`: it is not new, and was not reset.
    /// - `Address`: the addresses are of different families.
    /// - `Resources`: there is no memory for its transport.
    pub(crate) fn attach(
        &mut self,
        key: usize,
        with: &ReceiveAttributes,
        local: Option<LocalNumber>,
    ) -> Result<(), BackendError> {
        let qpn = self.pair_in(key, State::Unconnected)?.qpn;
        let qpn = qpn.ok_or(BackendError::State)?;
        let own = SocketAddr::new(with.local, port_of_qpn(qpn).0);
        let (peer, is_ours) = with.peer();
        let flow = Flow::between(own, peer).ok_or(BackendError::Address)?;
        let queues = local.and_then(|number| Some((number, self.locals.mtu(number)?)));
        let path = Path {
            single: !is_ours,
            local: queues.map(|(number, _)| number),
            ..Path::from(flow)
        };
        let options = ResponderOptions {
            destination: with.peer_qpn,
            first: Psn::new(with.expects),
            mtu: queues.map_or(with.mtu, |(_, mtu)| mtu),
            remote_read: with.rights.read,
            remote_write: with.rights.write,
            remote_atomic: with.rights.atomic,
            rnr_timer: RnrTimer::from_code(with.not_ready_timer),
        };
        let now = self.now;
        let pair = self.pair_in(key, State::Unconnected)?;
        pair.setup.reads_in = with.resources.into();
        if !pair.reserve_transport() || path.local.is_some_and(|local| !self.locals.join(local)) {
            return Err(BackendError::Resources);
        }
        let pair = self.pair_in(key, State::Unconnected)?;
        let resources = pair.resources(with.resources.into());
        pair.transport = Some(QueuePair::receiving(qpn, options, resources));
        pair.path = Some(path);
        pair.local = path.local;
        pair.state = State::Accepting;
        pair.has_peer = false;
        pair.unread = None;
        pair.heard = now;
        if path.local.is_none() {
            self.join_buffers(key, &path);
        }
        Ok(())
    }

    /// Takes a request to a queue pair that may not send yet.
    ///
    /// It stands for the last message of the handshake of a connection. Without one, the first
    /// request raises an event.
    pub(super) fn note_peer(&mut self, key: usize, link: Option<u32>) {
        if let Some(accepting) = link {
            self.note_request(accepting);
        } else if let Some(pair) = self.pairs.get_mut(key)
            && !core::mem::replace(&mut pair.has_peer, true)
        {
            let queue_pair = pair.setup.token;
            self.raise(ControlEvent::Established {
                queue_pair,
                private_data: PrivateData::new(),
            });
        }
    }

    /// Makes a queue pair ready to send, too (ROCE-262).
    ///
    /// # Errors
    /// `State`: it is not ready to receive, or it sends already.
    pub(crate) fn start_requests(
        &mut self,
        key: usize,
        with: &SendAttributes,
    ) -> Result<(), BackendError> {
        let window = self.options.window;
        let pair = self.pair_in(key, State::Accepting)?;
        let path = pair.path.filter(|_| pair.link.is_none());
        let path = path.ok_or(BackendError::State)?;
        let run = self.outbox.run_packets(&path);
        let pair = self.pair_in(key, State::Accepting)?;
        pair.setup.reads_out = with.depth.into();
        let slots = pair.request_slots(0);
        let transport = pair.transport.as_mut().ok_or(BackendError::State)?;
        let options = RequesterOptions {
            destination: transport.destination(),
            first: Psn::new(with.sends),
            mtu: transport.mtu(),
            initiator_depth: with.depth,
            window,
            run,
            timeout: with.timeout,
            // Its peer may leave without a message that would say so.
            is_lossless: false,
            retry_count: with.retries,
            rnr_retry_count: with.not_ready_retries,
        };
        transport.start_requests(options, slots);
        pair.state = State::Connected;
        Ok(())
    }

    /// Changes the rights of the peer of a queue pair that has a transport.
    pub(crate) fn set_rights(&mut self, key: usize, rights: RemoteRights) {
        if let Some(transport) = self.transport(key) {
            transport.set_rights(rights.read, rights.write, rights.atomic);
        }
    }

    /// Sets the code of the time after which the peer repeats what found no receive.
    pub(crate) fn set_not_ready_timer(&mut self, key: usize, code: u8) {
        if let Some(transport) = self.transport(key) {
            transport.set_not_ready_timer(RnrTimer::from_code(code));
        }
    }

    /// Sets what a program wants of its side of a queue pair that rdma_cm has connected.
    pub(crate) fn tune(&mut self, key: usize, with: &Tuning) {
        self.set_rights(key, with.rights);
        self.set_not_ready_timer(key, with.not_ready_timer);
        if let Some((transport, sends)) = self.transport(key).zip(with.sends) {
            transport.set_patience(sends.timeout, sends.retries, sends.not_ready_retries);
        }
    }

    /// Sets how the next connection of a queue pair is made.
    pub(crate) fn set_attempt(&mut self, key: usize, with: &Attempt) {
        if let Some(pair) = self.pairs.get_mut(key) {
            let (peer, own) = with.depths;
            (pair.setup.reads_in, pair.setup.reads_out) = (peer.into(), own.into());
            pair.attempt = Some(*with);
        }
    }

    /// Returns what a program learns of the peer of a request.
    pub(crate) fn request_terms(&self, id: u32) -> Option<ConnectionTerms> {
        let link = self.links.get(id)?;
        let request = &link.request;
        Some(ConnectionTerms {
            ends: (link.path.wire.source(), link.path.wire.destination()),
            peer_qpn: request.qpn,
            asks_from: request.source_port,
            expects: 0,
            sends: request.starting_psn.value(),
            mtu: request.mtu?,
            depths: (request.initiator_depth, request.responder_resources),
            timeout: self.options.timeout,
            retries: request.retry_count,
            not_ready_retries: request.rnr_retry_count,
            not_ready_timer: self.options.not_ready_timer,
        })
    }

    /// Returns the terms of the connection of a queue pair that rdma_cm has made.
    pub(crate) fn pair_terms(&self, key: usize) -> Option<ConnectionTerms> {
        let pair = self.pairs.get(key)?;
        let transport = pair.transport.as_ref()?;
        let request = &self.links.get(pair.link?)?.request;
        let (expects, sends, _) = transport.progress();
        let flow = pair.path?.wire;
        Some(ConnectionTerms {
            ends: (flow.source(), flow.destination()),
            peer_qpn: transport.destination(),
            asks_from: request.source_port,
            expects: expects.value(),
            sends: sends.value(),
            mtu: transport.mtu(),
            depths: (pair.reads().0, transport.depth()),
            timeout: transport.timeout(),
            retries: request.retry_count,
            not_ready_retries: transport.not_ready_retries(),
            not_ready_timer: transport.not_ready_timer().code(),
        })
    }

    /// Lets no request of a queue pair begin; `tells` asks for an event once those that have are
    /// complete (ROCE-278).
    ///
    /// # Errors
    /// `State`: it does not send, or it drains already.
    pub(crate) fn drain(&mut self, key: usize, tells: bool) -> Result<(), BackendError> {
        let pair = self.pair_in(key, State::Connected)?;
        if pair.drain != Drain::No {
            return Err(BackendError::State);
        }
        pair.drain = if tells { Drain::Tells } else { Drain::Yes };
        if let Some(transport) = &mut pair.transport {
            transport.drain();
        }
        if tells {
            self.tell_drained(key);
        }
        Ok(())
    }

    /// Tells that a queue pair has drained, if it has.
    pub(super) fn tell_drained(&mut self, key: usize) {
        let pair = self.pairs.get_mut(key);
        if let Some(pair) = pair.filter(|pair| pair.is_open() && pair.has_drained()) {
            pair.drain = Drain::Yes;
            let queue_pair = pair.setup.token;
            self.raise(ControlEvent::Answered { queue_pair });
        }
    }

    /// Returns a queue pair whose requests under way are complete, and that begins no others.
    fn drained(&mut self, key: usize) -> Result<&mut Pair, BackendError> {
        let pair = self.pair_in(key, State::Connected)?;
        let has_drained = pair.drain != Drain::No && pair.has_drained();
        has_drained.then_some(pair).ok_or(BackendError::State)
    }

    /// Lets requests of a queue pair that has drained begin again.
    ///
    /// # Errors
    /// `State`: it has not drained.
    pub(crate) fn resume(&mut self, key: usize) -> Result<(), BackendError> {
        let pair = self.drained(key)?;
        pair.drain = Drain::No;
        if let Some(transport) = &mut pair.transport {
            transport.resume();
        }
        self.set_ready(key);
        Ok(())
    }

    /// Changes how the requests of a queue pair that has drained are sent.
    ///
    /// # Errors
    /// `State`: it has not drained, or Reads and atomics wait of which none could begin.
    pub(crate) fn change_requests(
        &mut self,
        key: usize,
        with: &SendAttributes,
    ) -> Result<(), BackendError> {
        let pair = self.drained(key)?;
        let transport = pair.transport.as_mut().ok_or(BackendError::State)?;
        if !transport.set_depth(with.depth) {
            return Err(BackendError::State);
        }
        transport.set_patience(with.timeout, with.retries, with.not_ready_retries);
        pair.setup.reads_out = with.depth.into();
        Ok(())
    }

    /// Puts a queue pair in error: what is posted is flushed.
    pub(crate) fn fail_pair(&mut self, key: usize) {
        self.finish_failure(key);
        self.end_pair(key, true);
    }

    /// Makes a queue pair as it was when it was new.
    pub(crate) fn clear_attached(&mut self, key: usize) {
        self.fail_pair(key);
        self.clear_pair(key);
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.state = State::Unconnected;
        }
    }

    /// Posts one more request to a queue pair that takes them; false if it is full.
    ///
    /// `inline` is copied, in place of the segments of the request. A datagram has a receiver.
    pub(crate) fn post_attached(
        &mut self,
        key: usize,
        mut entry: SendEntry,
        inline: Option<&[&[u8]]>,
        receiver: Option<Receiver>,
    ) -> bool {
        let Some(pair) = self.pairs.get_mut(key) else {
            return false;
        };
        if pair.posted() >= pair.setup.request_depth {
            return false;
        }
        if let Some(parts) = inline {
            entry.request.length = pair.place_inline(parts);
            entry.is_inline = true;
        }
        pair.receivers.extend(receiver);
        self.post_request(key, entry);
        true
    }
}
