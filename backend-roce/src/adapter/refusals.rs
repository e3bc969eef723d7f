//! Requests to connect that the peer's host refuses, or that a port does not answer.

use super::Adapter;
use crate::port::Undelivered;
use crate::proto::PathMtu;
use crate::proto::connection::{
    Answered, ConnectRequest, Connection, ConnectionEvent, Ids, Information, Mark, PrivateData,
    REQUEST_PRIVATE, Reason, Reject, State as LinkState,
};
use crate::proto::packet::UDP_PORT;

/// Repetitions of a request without an answer after which port 4791 is tried: 0.8 s.
pub(super) const SILENT_REPEATS: u32 = 3;

/// The same after a cookie: an end of ours has the port, so that silence is mostly loss. 2.1 s.
pub(super) const SILENT_REPEATS_OF_OURS: u32 = 8;

/// Cookies of a peer that an attempt takes: a window may end, and begin, meanwhile.
const PROOFS_MAX: u8 = 8;

/// Most services that are known to answer at port 4791.
pub(super) const COMMON_SERVICES_MAX: usize = 64;

/// The refusal of a host on which nobody listens.
pub(super) const NOBODY: Reject = Reject {
    ids: Ids {
        local: 0,
        remote: 0,
    },
    answered: Answered::Request,
    reason: Reason::INVALID_SERVICE,
    information: Information::None,
    private_data: PrivateData::NONE,
};

/// Returns true if private data is in the mark, where another program reads none.
fn in_mark(mark: Mark) -> bool {
    usize::from(mark.private_length) > REQUEST_PRIVATE + 1
}

impl Adapter {
    /// Fails an attempt whose request was not delivered, or tries another port.
    ///
    /// `datagram` is the beginning of the request.
    pub(crate) fn not_delivered(&mut self, datagram: &[u8], reason: Undelivered) {
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
        link.is_refused |= reason == Undelivered::NoPort;
        let failure = match reason {
            Undelivered::NoPort | Undelivered::Prohibited if self.try_next_port(id) => return,
            Undelivered::NoPort => ConnectionEvent::Rejected(NOBODY),
            Undelivered::NoHost | Undelivered::Prohibited => ConnectionEvent::Unreachable,
        };
        let transaction = self.random.next();
        if let Some(link) = self.links.get_mut(id) {
            link.connection.disconnect(transaction, false, self.now);
        }
        self.link_event(id, Some(failure));
    }

    /// Proposes the smaller path MTU that a refusal names (ROCE-182); false if it names none.
    pub(super) fn propose_smaller(&mut self, id: u32, reject: &Reject) -> bool {
        let Information::Mtu(code) = reject.information else {
            return false;
        };
        let smaller = PathMtu::from_code(code);
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        if link.is_passive || smaller.is_none() || smaller >= link.request.mtu {
            return false;
        }
        link.request.mtu = smaller;
        self.request_anew(id);
        true
    }

    /// Repeats a request with the cookie that a refusal brings (ROCE-194); false if it brings none.
    pub(super) fn prove(&mut self, id: u32, reject: &Reject) -> bool {
        let Information::Cookie(cookie) = reject.information else {
            return false;
        };
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        let Some(mark) = &mut link.request.mark else {
            return false;
        };
        if link.is_passive || link.proofs == PROOFS_MAX {
            return false;
        }
        mark.cookie = cookie;
        link.proofs += 1;
        link.repeats = 0;
        self.request_anew(id);
        true
    }

    /// Sends the request of an attempt to the next port; false if all have been tried.
    ///
    /// A kernel, or an adapter of hardware, has only port 4791.
    pub(super) fn try_next_port(&mut self, id: u32) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        let dialled = link.path.wire.destination_port;
        let service = (link.request.destination, link.request.service);
        let next = match link.fallback.take() {
            Some(port) => {
                self.common_services.retain(|known| *known != service);
                port
            }
            None if dialled != UDP_PORT && !link.request.mark.is_some_and(in_mark) => UDP_PORT,
            None => return false,
        };
        link.earlier = Some(dialled);
        link.path.wire.destination_port = next;
        link.path.view.destination_port = next;
        if let Some(mark) = &mut link.request.mark {
            mark.dialled = next;
        }
        self.request_anew(id);
        true
    }

    /// Tries the port of the qualifier if port 4791 does not know the service any more.
    pub(super) fn asks_elsewhere(&mut self, id: u32, reject: &Reject) -> bool {
        let link = self.links.get(id);
        reject.reason == Reason::INVALID_SERVICE
            && link.is_some_and(|link| link.fallback.is_some())
            && self.try_next_port(id)
    }

    /// Returns true if the service of an attempt has answered at port 4791 before (ROCE-189).
    pub(super) fn is_common(&self, request: &ConnectRequest) -> bool {
        let service = (request.destination, request.service);
        self.common_services.contains(&service) && !request.mark.is_some_and(in_mark)
    }

    /// Notes that a service has answered, if it did so at port 4791.
    pub(super) fn note_answer(&mut self, id: u32) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let service = (link.request.destination, link.request.service);
        let is_common = !link.is_passive && link.path.wire.destination_port == UDP_PORT;
        if !is_common || self.common_services.contains(&service) {
            return;
        }
        if self.common_services.len() == COMMON_SERVICES_MAX {
            self.common_services.pop_front();
        }
        self.common_services.push_back(service);
    }

    /// Begins an attempt again, by its request as it is now.
    pub(super) fn request_anew(&mut self, id: u32) {
        let transaction = self.random.next();
        let options = self.connection_options();
        if let Some(link) = self.links.get_mut(id) {
            link.connection = Connection::connect(options, transaction, link.request, self.now);
        }
        self.after_link(id);
    }
}
