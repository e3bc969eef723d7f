//! Requests to connect that come in, until the consumer knows of them.
//!
//! Nothing is kept of a request whose sender has not proven its address, if it can (ROCE-194). The
//! others have few places (ROCE-196).

use core::net::{IpAddr, SocketAddr};

use dat_core::attributes::IaAddress;
use dat_core::backend::{ControlEvent, RequestKey};
use dat_core::time::Instant;

use super::Adapter;
use super::links::Link;
use super::private_data::unpack_request;
use super::service_points::ServicePoint;
use super::timers::after;
use crate::options::PathChoice;
use crate::port::{Arrival, LocalNumber, Path, Route};
use crate::proto::connection::{
    ConnectRequest, Connection, Information, Mad, Message, Reason, Reject, refuse,
};
use crate::proto::icrc::{Flow, Verdict};
use crate::proto::packet::UDP_PORT;

/// Connections of a service point whose peers have not proven their addresses (ROCE-196).
const PLACES: usize = 4;

/// Requests of an adapter that wait for such a place.
const PARKED_MAX: usize = 64;

/// Time after which a request that waits for a place is forgotten: its peer repeats it.
const PARKED_TIME: core::time::Duration = core::time::Duration::from_secs(2);

/// A new request to connect.
#[derive(Clone, Copy)]
pub(crate) struct Arrived {
    /// The service point.
    point: ServicePoint,
    /// Address that the request came from.
    pub(crate) peer: SocketAddr,
    /// Address that it was sent to.
    local: SocketAddr,
    /// Addresses of answers.
    path: Path,
    /// Set if the peer has proven its address.
    is_proven: bool,
    transaction: u64,
    request: ConnectRequest,
}

/// A request that waits for a place.
pub(super) struct Parked {
    since: Instant,
    arrived: Arrived,
}

impl Adapter {
    /// Takes a REQ.
    pub(super) fn request_came(
        &mut self,
        arrival: &Arrival,
        datagram: &[u8],
        mad: &Mad,
        request: &ConnectRequest,
    ) {
        let (mut wire, local) = (&arrival.flow, arrival.local);
        let mut request = *request;
        let marked = request.mark.and_then(|mark| {
            let source = SocketAddr::new(request.source, mark.port);
            let destination = SocketAddr::new(request.destination, mark.dialled);
            let flow = Flow::between(source, destination)?;
            // Only this side knows its interface.
            let scope = wire.scope;
            Some(Flow { scope, ..flow })
        });
        let view = marked.unwrap_or(*wire);
        if let Some(number) = local {
            // The pair has no addresses: the mark names those of both ends.
            request.mtu = self.locals.mtu(number);
            wire = &view;
        } else if view.verify(datagram) == Verdict::Wrong {
            self.counts.bad_icrc += 1;
            return;
        }
        let request = &request;
        let known = self.incoming.get(&(request.guid, request.local_id));
        if let Some(id) = known.copied() {
            if self
                .links
                .get(id)
                .is_some_and(|link| link.path.local != local)
            {
                self.counts.dropped += 1;
                return;
            }
            self.request_again(id, wire, mad, request);
            return;
        }
        let mut path = Path {
            wire: wire.reversed(),
            view: view.reversed(),
            single: marked.is_none() && local.is_none(),
            local,
        };
        if path.single {
            // A kernel sends from any port, and receives at this one only.
            path.wire.destination_port = UDP_PORT;
            path.view.destination_port = UDP_PORT;
        }
        let is_refused = self.options.path == PathChoice::Local && local.is_none();
        let point = self.service_at(wire.destination(), request);
        let reason = match point {
            Some(_) if is_refused => Reason::LOCAL_ONLY,
            _ => Reason::INVALID_SERVICE,
        };
        let point = point.filter(|_| !is_refused);
        let (peer, source) = (wire.source(), wire.source().ip());
        let (proof, refusal) = self.refusal(request, source, local, point.is_some());
        let (Some(point), None) = (point, refusal) else {
            let (reason, information) = refusal.unwrap_or((reason, Information::None));
            let refusal = refuse(mad.transaction, request, reason, information);
            self.write_mad(&path, &refusal);
            return;
        };
        let arrived = Arrived {
            point,
            peer,
            local: wire.destination(),
            path,
            is_proven: proof == Some(true),
            transaction: mad.transaction,
            request: *request,
        };
        if local.is_some() {
            self.routed(&arrived, None);
            return;
        }
        // At most those of one arrival. Without memory it is dropped: its peer repeats it.
        if self.unrouted.try_reserve(1).is_err() {
            self.counts.dropped += 1;
            return;
        }
        self.unrouted.push_back(arrived);
    }

    /// Returns whether a new request proves the address of its sender, if it can, and the reason to
    /// refuse it, if there is one.
    fn refusal(
        &mut self,
        request: &ConnectRequest,
        source: IpAddr,
        local: Option<LocalNumber>,
        has_point: bool,
    ) -> (Option<bool>, Option<(Reason, Information)>) {
        let cookie = request
            .mark
            .filter(|mark| mark.takes_cookie())
            .map(|mark| mark.cookie);
        let proof = match local {
            Some(_) => Some(true),
            None => {
                cookie.map(|cookie| (self.cookies).holds(cookie, source, request.service, self.now))
            }
        };
        let stale = self.peers.get(&(request.guid, request.qpn)).copied();
        let largest = self.options.mtu;
        let refusal = if proof == Some(false) && has_point {
            let cookie = self.cookies.cookie(source, request.service, self.now);
            Some((Reason::COOKIE, Information::Cookie(cookie)))
        } else if let Some(stale) = stale.filter(|_| proof != Some(false)) {
            // The peer has begun again: nothing of the earlier connection is there any more.
            self.end_stale(stale, source, local);
            Some((Reason::STALE, Information::None))
        } else if !request.is_reliable {
            Some((Reason::INVALID_TRANSPORT, Information::None))
        } else if request
            .mtu
            .is_none_or(|mtu| local.is_none() && mtu > largest)
        {
            Some((Reason::INVALID_MTU, Information::Mtu(largest.code())))
        } else {
            None
        };
        (proof, refusal)
    }

    /// Returns true if a path is to be looked up.
    pub(crate) fn has_unrouted(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Returns the next request whose path is to be looked up, without the adapter's lock.
    pub(crate) fn next_unrouted(&mut self) -> Option<Arrived> {
        self.unrouted.pop_front()
    }

    /// Rejects a new request if its path MTU is too large for the path, or admits it (ROCE-177).
    ///
    /// Without a route, the path MTU of the request is taken on trust: its packet found a way here.
    pub(crate) fn routed(&mut self, arrived: &Arrived, route: Option<Route>) {
        let request = &arrived.request;
        let name = (request.guid, request.local_id);
        self.forget_parked_name(name);
        if self.incoming.contains_key(&name) {
            return;
        }
        let largest = route.map(|route| route.mtu);
        let refusal = if let Some(largest) = largest.filter(|most| request.mtu > Some(*most)) {
            (Reason::INVALID_MTU, Information::Mtu(largest.code()))
        } else if self.waiting >= self.options.backlog {
            (Reason::NO_RESOURCES, Information::None)
        } else if arrived.is_proven {
            self.admit(arrived);
            return;
        } else if let Some(listener) = self.service_point(arrived.point) {
            if listener.unproven < PLACES {
                listener.unproven += 1;
                self.admit(arrived);
            } else {
                self.park(arrived);
            }
            return;
        } else {
            (Reason::INVALID_SERVICE, Information::None)
        };
        self.refuse(arrived, refusal);
    }

    fn refuse(&mut self, arrived: &Arrived, (reason, information): (Reason, Information)) {
        let refusal = refuse(arrived.transaction, &arrived.request, reason, information);
        self.write_mad(&arrived.path, &refusal);
    }

    /// Lets a request wait for a place of its service point, in the place of the oldest one.
    fn park(&mut self, arrived: &Arrived) {
        if self.parked.len() == PARKED_MAX {
            self.parked.pop_front();
            self.counts.dropped += 1;
        }
        // Without memory it is dropped: its peer repeats it.
        if self.parked.try_reserve(1).is_ok() {
            self.parked.push_back(Parked {
                since: self.now,
                arrived: *arrived,
            });
        }
    }

    /// Gives back the place of a connection whose peer has proven its address, or which is over.
    ///
    /// The newest request that waits for it gets it: older ones may be forged, or repeated soon.
    pub(super) fn leave_place(&mut self, point: ServicePoint) {
        let now = self.now;
        self.parked
            .retain(|parked| after(parked.since, PARKED_TIME) > now);
        let waits = |parked: &Parked| parked.arrived.point == point;
        let next = self.parked.iter().rposition(waits);
        if let Some(parked) = next.and_then(|at| self.parked.remove(at)) {
            self.admit(&parked.arrived);
        } else if let Some(listener) = self.service_point(point) {
            listener.unproven = listener.unproven.saturating_sub(1);
        }
    }

    /// Returns true if the peer of a request has proven its address.
    pub(crate) fn is_proven(&self, id: u32) -> bool {
        let link = self.links.get(id);
        link.is_some_and(|link| link.connection.is_proven())
    }

    /// Forgets a request that waits for a place if a rejection takes it back (ROCE-176).
    pub(super) fn take_back_parked(&mut self, reject: &Reject) {
        if let Information::Guid(guid) = reject.information {
            self.forget_parked_name((guid, reject.ids.local));
        }
    }

    /// Forgets a request that waits for a place, by the GUID and communication id of its peer.
    fn forget_parked_name(&mut self, name: (u64, u32)) {
        self.parked.retain(|parked| {
            let parked = &parked.arrived.request;
            (parked.guid, parked.local_id) != name
        });
    }

    /// Forgets the requests that wait for a place of a service point.
    pub(super) fn forget_parked(&mut self, listener: u64) {
        self.parked
            .retain(|parked| parked.arrived.point.token != listener);
    }

    /// Makes the connection of a request, and reports it; one that is not proven has a place.
    fn admit(&mut self, arrived: &Arrived) {
        let Arrived { path, request, .. } = arrived;
        let options = self.connection_options();
        let mad = Mad {
            transaction: arrived.transaction,
            message: Message::Request(*request),
        };
        let port = arrived.local.port();
        let (port, now) = (self.ports.contains_key(&port).then_some(port), self.now);
        let has_room = self.reserve_link()
            && self.has_room_for_events()
            && self.incoming.try_reserve(1).is_ok()
            && self.peers.try_reserve(1).is_ok()
            && path.local.is_none_or(|local| self.locals.join(local));
        let make = |id| {
            let mut connection = Connection::incoming(options, mad.transaction, request, id);
            if arrived.is_proven {
                connection.prove();
                // The peer learns at once that its request has come.
                let _ = connection.receive(&mad, now);
            }
            Link {
                port,
                place: (!arrived.is_proven).then_some(arrived.point),
                waits: true,
                is_passive: true,
                ..Link::new(id, connection, *path, *request)
            }
        };
        let drawn = has_room.then(|| self.links.draw_with(make)).flatten();
        let Some(id) = drawn else {
            if let Some(local) = path.local.filter(|_| has_room) {
                self.locals.leave(local);
            }
            self.refuse(arrived, (Reason::NO_RESOURCES, Information::None));
            if !arrived.is_proven {
                self.leave_place(arrived.point);
            }
            return;
        };
        if let Some(users) = port.and_then(|port| self.ports.get_mut(&port)) {
            *users += 1;
        }
        self.incoming.insert((request.guid, request.local_id), id);
        self.peers.insert((request.guid, request.qpn), id);
        self.waiting += 1;
        self.after_link(id);
        let mut local = arrived.local;
        local.set_port(self.address.port());
        self.raise(ControlEvent::ConnectionRequest {
            listener: arrived.point.token,
            request: RequestKey(id as usize),
            remote: IaAddress::from(arrived.peer),
            remote_port: arrived.peer.port().into(),
            local: IaAddress::from(local),
            private_data: unpack_request(self.private_form, request),
        });
    }

    /// Takes a REQ that has come before.
    fn request_again(&mut self, id: u32, wire: &Flow, mad: &Mad, request: &ConnectRequest) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let (before, peer) = (link.request.mark, link.path.wire.destination().ip());
        let repeats =
            mad.transaction == link.connection.request_transaction() && request.mark == before;
        // The same attempt at another port: answers from the first one may not arrive (ROCE-198).
        let nonces = before.zip(request.mark);
        let moves = !repeats
            && nonces.is_some_and(|(before, mark)| before.nonce == mark.nonce)
            && wire.source().ip() == peer
            && link.connection.ask_anew(mad.transaction);
        let event = link.connection.receive(mad, self.now);
        if moves {
            self.move_link(id, wire);
        } else if repeats {
            self.follow(id, wire);
        }
        self.link_event(id, event);
    }

    /// Answers a request from the port that it came to last; the ICRC stays as agreed.
    fn move_link(&mut self, id: u32, wire: &Flow) {
        let port = wire.destination().port();
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        link.path.wire = wire.reversed();
        if link.port.is_none()
            && let Some(users) = self.ports.get_mut(&port)
        {
            *users += 1;
            link.port = Some(port);
        }
        let (path, pair) = (link.path, link.pair);
        if let Some(key) = pair {
            self.change_path(key, &path);
        }
    }
}
