//! Connections of an adapter: their addresses, timers and messages.

use dat_queues::State;

use super::deadlines::Timer;
use super::locals::Sender;
use super::service_points::ServicePoint;
use super::unread::Unread;
use super::{Adapter, ENDED, Pair};
use crate::port::{LocalNumber, Path};
use crate::proto::connection::{
    ConnectRequest, Connection, Mad, State as LinkState, encode_packet,
};
use crate::proto::icrc::Flow;
use crate::proto::packet::OVERHEAD_MAX;
use crate::proto::{PathMtu, Psn};
use crate::reserve::Reserve;

/// Maximum number of peers in one report to the port.
const UNANSWERED_MAX: usize = 64;

/// Room of a message in a local queue.
const MESSAGE: usize = 512;

/// First bytes of a GUID of ours (ROCE-48).
const GUID: u64 = 0x0244_4154;

/// Returns a GUID of ours.
pub(super) const fn guid(number: u32) -> u64 {
    GUID << 32 | (number as u64 & !TRANSLATED)
}

/// Set in the GUID of an acceptance if the addresses of the connection are translated (ROCE-48).
pub(super) const TRANSLATED: u64 = 1;

pub(super) const fn is_ours(guid: u64) -> bool {
    guid >> 32 == GUID
}

/// A connection or an attempt.
pub(crate) struct Link {
    /// Communication id.
    pub(super) id: u32,
    pub(super) connection: Connection,
    /// Addresses of packets to the peer.
    pub(super) path: Path,
    /// Pair of local queues that the active side waits for, before it sends the request.
    pub(super) pending: Option<LocalNumber>,
    /// The queue pair, while the connection is its own.
    pub(super) pair: Option<usize>,
    /// QPN of this side; 0 before the passive side accepts.
    pub(super) qpn: u32,
    pub(super) request: ConnectRequest,
    /// Claimed port that the passive side uses.
    pub(super) port: Option<u16>,
    /// Service point at which a peer without a proven address has a place (ROCE-196).
    pub(super) place: Option<ServicePoint>,
    /// Set while the consumer decides about a request.
    pub(super) waits: bool,
    /// Set once the peer has received the request.
    pub(super) is_answered: bool,
    /// Port of the qualifier, if port 4791 is asked first.
    pub(super) fallback: Option<u16>,
    /// Port of the peer that an earlier request of the attempt was sent to.
    pub(super) earlier: Option<u16>,
    /// Cookies that the peer has asked the active side for.
    pub(super) proofs: u8,
    /// Set once the peer's host has refused the request at the port of the qualifier.
    pub(super) is_refused: bool,
    /// Set if this is the passive side.
    pub(super) is_passive: bool,
    /// Times that the timer has expired.
    pub(super) repeats: u32,
    /// Packets that the peer had not read at the last time-out.
    pub(super) unread: Option<Unread>,
    pub(super) is_ready: bool,
}

impl Link {
    /// Makes the link of an active side that has no queue pair yet.
    pub(super) const fn new(
        id: u32,
        connection: Connection,
        path: Path,
        request: ConnectRequest,
    ) -> Self {
        Self {
            id,
            connection,
            path,
            pending: None,
            pair: None,
            qpn: 0,
            request,
            port: None,
            place: None,
            waits: false,
            is_answered: false,
            fallback: None,
            earlier: None,
            proofs: 0,
            is_refused: false,
            is_passive: false,
            repeats: 0,
            unread: None,
            is_ready: false,
        }
    }

    /// Lets packets go through local queues (ROCE-230).
    pub(super) fn be_local(&mut self, number: LocalNumber, mtu: PathMtu) {
        self.path.local = Some(number);
        self.request.mtu = Some(mtu);
        // Each port of the peer leads to the same pair: nothing is asked elsewhere.
        if let Some(dialled) = self.fallback.take() {
            self.path.wire.destination_port = dialled;
            self.path.view.destination_port = dialled;
            if let Some(mark) = &mut self.request.mark {
                mark.dialled = dialled;
            }
        }
    }

    /// Returns true if the peer is one of ours.
    pub(super) const fn is_marked(&self) -> bool {
        !self.path.single
    }

    /// Returns the addresses that the ICRC of an answer to an earlier request covers.
    pub(super) fn earlier_view(&self) -> Option<Flow> {
        self.earlier.map(|source_port| Flow {
            source_port,
            ..self.path.view.reversed()
        })
    }

    /// Returns true if a packet comes from another port of the peer's address, and may be followed.
    ///
    /// Only where a translator is in between, which has given the connection another port, and only
    /// by the passive side: the other one keeps the address that it was answered from. Another
    /// address is not followed, or a peer could direct the responses to its Reads at others.
    pub(super) fn has_moved(&self, wire: &Flow) -> bool {
        let is_translated = self.path.wire != self.path.view;
        if !(self.is_passive && self.is_marked() && is_translated) {
            return false;
        }
        let (before, now) = (self.path.wire.destination(), wire.source());
        now.ip() == before.ip() && now.port() != before.port()
    }
}

impl Adapter {
    /// Makes room for one more connection; false if there is no memory for it.
    pub(super) fn reserve_link(&mut self) -> bool {
        let links = self.links.len().saturating_add(1);
        let index = self.links.reserve();
        index.is_some_and(|index| self.deadlines.has_room(Timer::Link(index)))
            && self.ready_links.has_room_for(links)
            && self.locals.reserve_attempt()
    }

    /// Follows the peer of a connection to another port, if it may have moved there (ROCE-52).
    ///
    /// The caller has checked that the packet is a current one of the peer.
    pub(super) fn follow(&mut self, id: u32, wire: &Flow) {
        if let Some(link) = self.links.get_mut(id)
            && link.has_moved(wire)
        {
            link.path.wire = wire.reversed();
            let path = link.path;
            if let Some(key) = link.pair {
                self.change_path(key, &path);
            }
        }
    }

    /// Lets the packets of a queue pair take another path to the same peer.
    pub(super) fn change_path(&mut self, key: usize, path: &Path) {
        if let Some(current) = self.pairs.get_mut(key).and_then(|pair| pair.path.as_mut()) {
            *current = *path;
        }
        self.change_buffers(key, path);
    }

    /// Notes that the peer of a queue pair has not answered in time, or has asked again.
    ///
    /// None of the packets that may be lost has more than `payload` bytes of payload.
    pub(super) fn note_unanswered(&mut self, key: usize, payload: u32) {
        let Some(path) = self.pairs.get(key).and_then(|pair| pair.path) else {
            return;
        };
        let peer = path.wire.destination();
        let length = payload as usize + OVERHEAD_MAX;
        if let Some((last, longest)) = self.unanswered.last_mut()
            && *last == peer
        {
            *longest = length.max(*longest);
        } else if self.unanswered.len() < UNANSWERED_MAX && self.unanswered.try_reserve(1).is_ok() {
            // Without memory, the next report to the port names the peer.
            self.unanswered.push((peer, length));
        }
    }

    /// Separates a connection that has ended from its queue pair; packets find it no more.
    pub(super) fn detach(&mut self, id: u32) {
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
    pub(super) fn forget_peer(&mut self, id: u32, peer: (u64, u32)) {
        if self.peers.get(&peer) == Some(&id) {
            self.peers.remove(&peer);
        }
    }

    /// Sets the timer of a connection, notes its messages, and removes it if it is over.
    pub(super) fn after_link(&mut self, id: u32) {
        let Some(index) = self.links.index(id) else {
            return;
        };
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let connection = &link.connection;
        let is_over = connection.state() == LinkState::Closed && !link.waits;
        let needs_place = !connection.is_proven() && !is_over;
        let left = link.place.take_if(|_| !needs_place);
        let deadline = link.connection.deadline();
        let is_new = !core::mem::replace(&mut link.is_ready, true);
        let local = link.path.local;
        if is_over && local.is_some_and(|local| self.locals.drop_messages(local, id)) {
            // A peer that reads nothing keeps no place of it.
            self.remove_link(id);
            return;
        }
        let mut add = |local| self.locals.add(local, Sender::Link(id));
        if is_new && !local.is_some_and(&mut add) {
            self.ready_links.push_back(id);
        }
        self.deadlines.set(Timer::Link(index), deadline);
        if let Some(point) = left {
            self.leave_place(point);
        }
    }

    /// Writes the messages of a connection.
    pub(super) fn transmit_link(&mut self, id: u32) {
        if let Some(link) = self.links.get_mut(id) {
            link.is_ready = false;
        }
        while let Some(link) = self.links.get_mut(id) {
            let path = link.path;
            let Some(mad) = link.connection.transmit() else {
                // A request that was taken back waits for the consumer's answer.
                if link.connection.state() == LinkState::Closed && !link.waits {
                    self.remove_link(id);
                }
                return;
            };
            self.write_mad(&path, &mad);
        }
    }

    /// Removes a connection that is over; its QPN may be used again.
    pub(super) fn remove_link(&mut self, id: u32) {
        self.detach(id);
        self.forget_request(id);
        let Some((index, link)) = self.links.remove(id) else {
            return;
        };
        self.deadlines.set(Timer::Link(index), None);
        self.qpns.remove(link.qpn);
        let request = &link.request;
        let key = (request.guid, request.local_id);
        if self.incoming.get(&key) == Some(&id) {
            self.incoming.remove(&key);
        }
        self.forget_peer(id, (request.guid, request.qpn));
        if let Some(local) = link.path.local {
            self.locals.leave(local);
        }
        if let Some(port) = link.port {
            self.leave_port(port);
        }
        if let Some(point) = link.place {
            self.leave_place(point);
        }
    }

    pub(super) fn write_mad(&mut self, path: &Path, mad: &Mad) {
        let psn = Psn::new(self.random.next() as u32);
        let bytes = mad.encode();
        // No message joins another: its peer may be a kernel, which drops one whose identification
        // is not that of its ICRC, as when a device cannot segment.
        let path = Path {
            single: true,
            ..*path
        };
        let Some(local) = path.local else {
            self.outbox
                .add(&path, |buffer| encode_packet(&bytes, psn, buffer));
            return;
        };
        if self.locals.room(local) < MESSAGE {
            // An answer to a message that its sender repeats.
            self.counts.dropped += 1;
            return;
        }
        self.locals
            .outbox
            .add(&path, |buffer| encode_packet(&bytes, psn, buffer));
        self.push_local(local, 0);
    }

    /// Returns the token of a queue pair whose attempt to connect is pending.
    pub(super) fn token_of(&self, id: u32) -> Option<u64> {
        let pair = self.pairs.get(self.links.get(id)?.pair?)?;
        (pair.state == State::Connecting).then_some(pair.setup.token)
    }

    /// Returns true if requests or messages wait for an answer of a peer.
    pub(crate) fn waits_for_peers(&self) -> bool {
        let waits = |timer: Timer| match timer {
            // That of the local way ends the pause of a message that found no receive.
            Timer::Pair(key) => {
                let pair = self.pairs.get(key);
                pair.is_none_or(|pair| pair.local.is_none() || pair.link.is_none())
            }
            Timer::Gathered => true,
            Timer::Probe(_) | Timer::Patience(_) => false,
            Timer::Link(index) => self.links.at(index).is_some_and(|link| {
                let state = link.connection.state();
                let unanswered = state == LinkState::RequestSent && !link.is_answered;
                unanswered || matches!(state, LinkState::ReplySent | LinkState::DisconnectSent)
            }),
        };
        // Requests of the local way have no timer.
        let is_busy = |(key, pair): (usize, &Pair)| {
            let transport = pair.transport.as_ref().filter(|_| pair.local.is_some());
            let has_requests = transport.is_some_and(|transport| !transport.is_idle());
            pair.is_open() && has_requests && !self.deadlines.is_set(Timer::Pair(key))
        };
        self.deadlines.timers().any(waits) || self.pairs.iter().any(is_busy)
    }

    /// Returns true if messages that end connections are still to be answered (ROCE-178).
    #[cfg(feature = "udp")]
    pub(crate) fn is_ending(&self) -> bool {
        let ending = |link: &Link| matches!(link.connection.state(), LinkState::DisconnectSent);
        !self.ready_links.is_empty() || self.locals.has_output() || self.links.iter().any(ending)
    }
}
