//! Connections as the consumer makes, accepts, rejects and ends them.

use core::net::SocketAddr;
use core::time::Duration;

use dat_core::backend::{BackendError, ConnectFailure};
use dat_queues::State;

use super::links::{Link, TRANSLATED};
use super::private_data::{PrivateForm, pack, pack_request, private_size};
use super::probes::SHORTEST_KEEP_ALIVE;
use super::service_points::{port_of, service};
use super::{Adapter, Pair};
use crate::port::{LocalWay, Route};
use crate::proto::Psn;
use crate::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Connection, ConnectionOptions, Ids, Information, Mark,
    PrivateData, REJECT_PRIVATE, REPLY_PRIVATE, Reason, Reject, State as LinkState,
};
use crate::proto::icrc::Flow;
use crate::proto::packet::{RnrTimer, UDP_PORT};
use crate::proto::queue_pair::{Agreement, QueuePair, QueuePairOptions};

impl Adapter {
    /// Returns the times and repetitions of connection management.
    pub(crate) const fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions {
            response_timeout: self.options.response_timeout,
            ..ConnectionOptions::USUAL
        }
    }

    /// Starts a connection.
    ///
    /// # Errors
    /// - `Address`: there is no way to the peer.
    /// - `Resources`: no memory, QPN or communication id is left, or the private data is too long.
    pub(crate) fn connect(
        &mut self,
        key: usize,
        (route, local): (Route, LocalWay),
        mut peer: SocketAddr,
        qualifier: u64,
        data: &[u8],
    ) -> Result<(), BackendError> {
        let resources = BackendError::Resources;
        let packed = pack_request(self.private_form, data);
        let (private_data, private_length, private_tail) = packed.ok_or(resources)?;
        let dialled = port_of(qualifier);
        let source = SocketAddr::new(route.source, self.address.port());
        peer.set_port(dialled);
        let mut flow = Flow::between(source, peer).ok_or(BackendError::Address)?;
        let pair = self.pairs.get(key).ok_or(BackendError::State)?;
        let (reads_in, reads_out) = pair.reads();
        let shared_receive_queue = pair.setup.shared.is_some();
        let (source_port, retry_count, rnr_retry_count) = self.wishes(pair);
        let nonce = self.random.next().to_ne_bytes();
        let options = self.connection_options();
        let mut request = ConnectRequest {
            local_id: 0,
            service: service(qualifier),
            guid: self.guid,
            qpn: 0,
            responder_resources: reads_in,
            initiator_depth: reads_out,
            remote_response_timeout: options.response_timeout,
            is_reliable: true,
            starting_psn: Psn::new(self.random.next() as u32),
            local_response_timeout: options.response_timeout,
            retry_count,
            rnr_retry_count,
            mtu: Some(route.mtu.min(self.options.mtu)),
            max_retries: options.max_retries,
            shared_receive_queue,
            source: route.source,
            destination: peer.ip(),
            source_port,
            ack_timeout: self.options.timeout,
            mark: Some(Mark {
                port: source.port(),
                dialled,
                flags: Mark::REVISION_2,
                private_length,
                nonce,
                cookie: 0,
                private_tail,
            }),
            private_data,
        };
        let mut fallback = None;
        if dialled != UDP_PORT && self.is_common(&request) {
            fallback = Some(dialled);
            flow.destination_port = UDP_PORT;
            if let Some(mark) = &mut request.mark {
                mark.dialled = UDP_PORT;
            }
        }
        if !self.reserve_link() {
            return Err(resources);
        }
        let qpn = self.draw_qpn(key).ok_or(resources)?;
        let transaction = self.random.next();
        let now = self.now;
        request.qpn = qpn;
        let drawn = self.links.draw_with(|local_id| {
            request.local_id = local_id;
            let connection = Connection::connect(options, transaction, request, now);
            Link {
                pair: Some(key),
                qpn,
                fallback,
                pending: local.ok().flatten(),
                ..Link::new(local_id, connection, flow.into(), request)
            }
        });
        let Some(id) = drawn else {
            self.qpns.remove(qpn);
            return Err(resources);
        };
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.link = Some(id);
            pair.state = State::Connecting;
        }
        self.begin(id, local);
        Ok(())
    }

    /// Returns the port of rdma_cm that the peer of a queue pair learns, and the repetitions that
    /// it is asked for: without progress, and of messages that find no receive.
    fn wishes(&self, pair: &Pair) -> (u16, u8, u8) {
        let options = &self.options;
        let usual = (
            self.address.port(),
            options.retries,
            options.not_ready_retries,
        );
        pair.attempt.map_or(usual, |with| {
            (with.own_port, with.retries, with.not_ready_retries)
        })
    }

    /// Returns the QPN of a queue pair in its next connection: its own, if it has one (ROCE-272).
    fn draw_qpn(&mut self, key: usize) -> Option<u32> {
        let own = self.pairs.get(key)?.qpn;
        own.or_else(|| self.qpns.draw(key))
    }

    /// Accepts a request with a queue pair.
    ///
    /// # Errors
    /// - `State`: the request is gone.
    /// - `Resources`: no QPN is left, or the private data is too long.
    pub(crate) fn accept(&mut self, id: u32, key: usize, data: &[u8]) -> Result<(), BackendError> {
        let private_data = pack::<REPLY_PRIVATE>(self.private_form, data);
        let private_data = private_data.ok_or(BackendError::Resources)?;
        let link = self.links.get(id).filter(|link| link.waits);
        let link = link.ok_or(BackendError::State)?;
        let (request, translated) = (link.request, link.path.wire != link.path.view);
        let pair = self.pairs.get(key).ok_or(BackendError::State)?;
        if link.connection.state() == LinkState::Closed {
            self.accept_late(id, key);
            return Ok(());
        }
        let (reads_in, reads_out) = pair.reads();
        let shared_receive_queue = pair.setup.shared.is_some();
        let (_, _, rnr_retry_count) = self.wishes(pair);
        let qpn = self.draw_qpn(key).ok_or(BackendError::Resources)?;
        let reply = ConnectReply {
            ids: Ids::default(),
            qpn,
            starting_psn: Psn::new(self.random.next() as u32),
            responder_resources: reads_in.min(request.initiator_depth),
            initiator_depth: reads_out.min(request.responder_resources),
            rnr_retry_count,
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

    /// Fails the acceptance of a request that its peer has taken back (ROCE-176).
    fn accept_late(&mut self, id: u32, key: usize) {
        if let Some(link) = self.links.get_mut(id) {
            link.pair = Some(key);
        }
        self.forget_request(id);
        self.attempt_failed(id, ConnectFailure::NonPeerRejected);
        self.after_link(id);
    }

    /// Makes the transport of a queue pair.
    pub(super) fn start_pair(
        &mut self,
        key: usize,
        id: u32,
        agreement: &Agreement,
        state: State,
        keep_alive: Option<Duration>,
    ) {
        let path = self.links.get(id).map(|link| link.path);
        let options = QueuePairOptions {
            window: self.options.window,
            run: path.map_or(1, |path| self.outbox.run_packets(&path)),
            timeout: self.options.timeout,
            is_lossless: path.is_some_and(|path| path.local.is_some()),
            rnr_timer: RnrTimer::from_code(self.options.not_ready_timer),
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        if let Some(pair) = self.pairs.get_mut(key) {
            let probes = usize::from(keep_alive.is_some());
            let resources = usize::from(agreement.responder_resources);
            let (slots, resources) = pair.transport_slots(probes, resources);
            pair.transport = Some(QueuePair::new(agreement, &options, slots, resources));
            pair.link = Some(id);
            pair.path = path;
            pair.state = state;
            pair.keep_alive = keep_alive.map(|period| period.max(SHORTEST_KEEP_ALIVE));
            pair.heard = self.now;
            pair.local = path.and_then(|path| path.local);
            if let Some(path) = path.filter(|path| path.local.is_none()) {
                self.join_buffers(key, &path);
            }
            self.probe(key);
        }
    }

    /// Rejects a request.
    pub(crate) fn reject(&mut self, id: u32, by_consumer: bool, data: &[u8]) {
        let Some(link) = self.links.get(id).filter(|link| link.waits) else {
            return;
        };
        let (local, request) = (link.path.wire.source(), link.request);
        // The consumer has no room for the request if its service point is still there.
        let refusal = match self.service_at(local, &request) {
            Some(_) => Reason::NO_RESOURCES,
            None => Reason::INVALID_SERVICE,
        };
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let form = self.private_form;
        let most = match form {
            PrivateForm::Packed => private_size(),
            PrivateForm::Plain => REJECT_PRIVATE,
        };
        let kept = data.get(..most).unwrap_or(data);
        let private_data = pack::<REJECT_PRIVATE>(form, kept).filter(|_| by_consumer);
        let reject = Reject {
            ids: Ids::default(),
            answered: Answered::Request,
            reason: if by_consumer {
                Reason::CONSUMER
            } else {
                refusal
            },
            information: Information::None,
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
        for index in 0..self.links.bound() {
            if let Some(id) = self.links.at(index).map(|link| link.id) {
                self.reject(id, false, &[]);
            }
        }
    }

    /// Ends the connection of a queue pair by a message.
    pub(super) fn disconnect_link(&mut self, key: usize, broken: bool) {
        let Some(id) = self.pairs.get(key).and_then(|pair| pair.link) else {
            return;
        };
        let transaction = self.random.next();
        if let Some(link) = self.links.get_mut(id) {
            if link.pending.take().is_some() {
                // The peer knows nothing of it.
                link.connection.abandon();
            }
            link.connection.disconnect(transaction, broken, self.now);
        }
        self.detach(id);
        self.after_link(id);
    }
}
