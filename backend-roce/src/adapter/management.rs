//! Messages of connection management that come in.

use core::net::IpAddr;

use dat_core::backend::ControlEvent;

use super::Adapter;
use super::links::is_ours;
use crate::port::{Arrival, LocalNumber, Path};
use crate::proto::connection::{
    ConnectionEvent, Information, Mad, Message, State as LinkState, answer_unknown, decode_packet,
};
use crate::proto::icrc::Verdict;
use crate::proto::packet::{Packet, UDP_PORT};

impl Adapter {
    /// Returns the communication id of the receiver of a message; 0 if it is unknown.
    fn receiver(&self, message: &Message) -> u32 {
        match message {
            Message::Request(_) => 0,
            Message::Receipt(receipt) => receipt.ids.remote,
            Message::Reject(reject) => match reject.information {
                // The active side takes its REQ back, and has seen no answer (ROCE-176).
                Information::Guid(guid) if reject.ids.remote == 0 => {
                    let id = self.incoming.get(&(guid, reject.ids.local));
                    id.copied().unwrap_or_default()
                }
                _ => reject.ids.remote,
            },
            Message::Reply(reply) => reply.ids.remote,
            Message::Ready(ids) | Message::DisconnectReply(ids) => ids.remote,
            Message::DisconnectRequest { ids, .. } => ids.remote,
        }
    }

    /// Takes a message of connection management.
    pub(super) fn management(&mut self, arrival: &Arrival, datagram: &[u8], packet: &Packet<'_>) {
        let (wire, local) = (&arrival.flow, arrival.local);
        let Some(mad) = decode_packet(packet).and_then(Mad::decode) else {
            self.counts.dropped += 1;
            return;
        };
        if let Message::Request(request) = mad.message {
            self.request_came(arrival, datagram, &mad, &request);
            return;
        }
        let id = self.receiver(&mad.message);
        let Some(link) = self.links.get_mut(id) else {
            if local.is_none() && wire.verify(datagram) == Verdict::Wrong {
                self.counts.bad_icrc += 1;
            } else if let (Message::Reject(reject), None) = (mad.message, local) {
                self.take_back_parked(&reject);
            } else if let Some(answer) = answer_unknown(&mad) {
                let path = Path {
                    local,
                    ..wire.reversed().into()
                };
                self.write_mad(&path, &answer);
            }
            return;
        };
        if link.path.local != local || link.pending.is_some() {
            // Of another adapter of this host, or of anybody (ROCE-231).
            self.counts.dropped += 1;
            return;
        }
        if local.is_none() && link.path.received(wire).verify(datagram) == Verdict::Wrong {
            // The answer of another program names the addresses of the wire, and one to an earlier
            // request of this attempt those of that request (ROCE-198).
            let connects = link.connection.state() == LinkState::RequestSent;
            let views = [Some(*wire), link.earlier_view()];
            let mut views = views.into_iter().flatten().filter(|_| connects);
            let Some(view) = views.find(|view| view.verify(datagram) != Verdict::Wrong) else {
                self.counts.bad_icrc += 1;
                return;
            };
            if let Message::Reply(reply) = mad.message
                && is_ours(reply.guid)
            {
                link.path = Path {
                    wire: wire.reversed(),
                    view: view.reversed(),
                    single: false,
                    local: None,
                };
            }
        }
        if let Message::Reply(reply) = mad.message
            && link.connection.state() == LinkState::RequestSent
        {
            link.path.single = !is_ours(reply.guid) && local.is_none();
            if link.path.single {
                // Other programs have no other port, also if another one was asked since.
                link.path.wire.destination_port = UDP_PORT;
                link.path.view.destination_port = UDP_PORT;
            }
        }
        if matches!(mad.message, Message::Reject(_))
            && link.connection.state() == LinkState::RequestSent
            && mad.transaction != link.connection.request_transaction()
        {
            // The refusal of an earlier request: a larger proposal, or to another port.
            return;
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
        if let Some(ConnectionEvent::Disconnected { .. }) = event {
            self.follow(id, wire);
        }
        self.link_event(id, event);
    }

    /// Ends a connection that its peer has forgotten (ROCE-180).
    pub(super) fn end_stale(&mut self, id: u32, source: IpAddr, local: Option<LocalNumber>) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        // Others may know the numbers of the peer.
        if link.path.local != local || link.path.wire.destination().ip() != source {
            return;
        }
        let event = match link.connection.state() {
            LinkState::RequestReceived | LinkState::ReplySent => Some(ConnectionEvent::Unreachable),
            LinkState::Established => Some(ConnectionEvent::Disconnected { broken: false }),
            _ => None,
        };
        let transaction = self.random.next();
        link.connection.disconnect(transaction, false, self.now);
        self.link_event(id, event);
    }
}
