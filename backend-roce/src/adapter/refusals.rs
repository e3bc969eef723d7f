//! Requests to connect that the peer's host refuses, or that a port does not answer.

use super::Adapter;
use crate::port::Undelivered;
use crate::proto::PathMtu;
use crate::proto::connection::{
    Answered, Connection, ConnectionEvent, ConnectionOptions, Ids, Information, Mark, PrivateData,
    REQUEST_PRIVATE, Reason, Reject, State as LinkState,
};
use crate::proto::packet::UDP_PORT;

/// Repetitions of a request without an answer after which port 4791 is tried: 0.8 s.
pub(super) const SILENT_REPEATS: u32 = 3;

/// The refusal of a host on which nobody listens.
const NOBODY: Reject = Reject {
    ids: Ids {
        local: 0,
        remote: 0,
    },
    answered: Answered::Request,
    reason: Reason::INVALID_SERVICE,
    information: Information::None,
    private_data: PrivateData::NONE,
};

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
            Undelivered::NoPort if self.try_common_port(id) => return,
            Undelivered::NoPort => ConnectionEvent::Rejected(NOBODY),
            Undelivered::NoHost => ConnectionEvent::Unreachable,
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

    /// Sends the request of an attempt to port 4791; false if it has been sent there.
    ///
    /// A kernel, or an adapter of hardware, has only that port.
    pub(super) fn try_common_port(&mut self, id: u32) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        let dialled = link.path.wire.destination_port;
        // Another program reads no private data from the mark.
        let in_mark = |mark: Mark| usize::from(mark.private_length) > REQUEST_PRIVATE + 1;
        if dialled == UDP_PORT || link.request.mark.is_some_and(in_mark) {
            return false;
        }
        link.path.wire.destination_port = UDP_PORT;
        link.path.view.destination_port = UDP_PORT;
        if let Some(mark) = &mut link.request.mark {
            mark.dialled = UDP_PORT;
        }
        self.request_anew(id);
        true
    }

    /// Begins an attempt again, by its request as it is now.
    fn request_anew(&mut self, id: u32) {
        let transaction = self.random.next();
        if let Some(link) = self.links.get_mut(id) {
            let options = ConnectionOptions::USUAL;
            link.connection = Connection::connect(options, transaction, link.request, self.now);
        }
        self.after_link(id);
    }
}
