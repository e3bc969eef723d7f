//! A peer that is no adapter: it says what a test tells it to, and hears what is sent to it.

use backend_roce::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Ids, Information, Mad, Mark, Message, PrivateData,
    Reason, Reject, encode_packet, service_of,
};
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::{PathMtu, Psn};
use std::net::{Ipv4Addr, SocketAddr};

use crate::connections::mad;
use crate::network::RoceBed;
use crate::node::Node;

/// An active side of a kernel, of an older build or of an attacker.
pub(crate) struct Stranger {
    pub(crate) request: ConnectRequest,
    pub(crate) transaction: u64,
    /// Addresses of what it sends.
    pub(crate) flow: Flow,
    /// Packets in the log that it has heard.
    heard: usize,
}

/// Returns an acceptance by a queue pair of no adapter.
pub(crate) fn acceptance(ids: Ids, guid: u64) -> ConnectReply {
    ConnectReply {
        ids,
        qpn: 0x1234,
        starting_psn: Psn::new(5),
        responder_resources: 1,
        initiator_depth: 1,
        rnr_retry_count: 7,
        shared_receive_queue: false,
        guid,
        private_data: PrivateData::NONE,
    }
}

impl Stranger {
    /// Returns a stranger with an address of its own, which has a mark if `flags` are given.
    pub(crate) fn new(number: u16, peer: &Node, qualifier: u16, flags: Option<u8>) -> Self {
        let [high, low] = number.to_be_bytes();
        let source = SocketAddr::new(Ipv4Addr::new(172, 16, high, low).into(), 4791);
        let mut destination = peer.address().socket_address().unwrap();
        destination.set_port(qualifier);
        let mark = flags.map(|flags| Mark {
            port: source.port(),
            dialled: qualifier,
            flags,
            private_length: 0,
            nonce: u64::from(number).to_be_bytes(),
            cookie: 0,
            private_tail: [0; 8],
        });
        let request = ConnectRequest {
            local_id: 0x5000_0000 | u32::from(number),
            service: service_of(qualifier),
            guid: 0x0200_0000_0000_0009,
            qpn: 0x1000 + u32::from(number),
            responder_resources: 4,
            initiator_depth: 4,
            remote_response_timeout: 16,
            is_reliable: true,
            starting_psn: Psn::new(7),
            local_response_timeout: 16,
            retry_count: 7,
            rnr_retry_count: 7,
            mtu: Some(PathMtu::Bytes1024),
            max_retries: 15,
            shared_receive_queue: false,
            source: source.ip(),
            destination: destination.ip(),
            source_port: 1,
            ack_timeout: 16,
            mark,
            private_data: PrivateData::new(b"stranger").unwrap(),
        };
        Self {
            request,
            transaction: 1000 + u64::from(number),
            flow: Flow::between(source, destination).unwrap(),
            heard: 0,
        }
    }

    /// Puts a message on the wire.
    pub(crate) fn say(&self, bed: &RoceBed, message: Message) {
        let mad = Mad {
            transaction: self.transaction,
            message,
        };
        let mut bytes = [0; 280];
        encode_packet(&mad.encode(), Psn::new(1), &mut bytes).unwrap();
        self.flow.seal(0, &mut bytes).unwrap();
        bed.inject(&self.flow, &bytes);
    }

    /// Sends its REQ.
    pub(crate) fn ask(&self, bed: &RoceBed) {
        self.say(bed, Message::Request(self.request));
    }

    /// Takes its REQ back.
    pub(crate) fn take_back(&self, bed: &RoceBed) {
        let reject = Reject {
            ids: Ids {
                local: self.request.local_id,
                remote: 0,
            },
            answered: Answered::Request,
            reason: Reason::TIMEOUT,
            information: Information::Guid(self.request.guid),
            private_data: PrivateData::NONE,
        };
        self.say(bed, Message::Reject(reject));
    }

    /// Sends an RTU to the side with a communication id.
    pub(crate) fn confirm(&self, bed: &RoceBed, remote: u32) {
        let local = self.request.local_id;
        self.say(bed, Message::Ready(Ids { local, remote }));
    }

    /// Returns the messages to its host that it has not heard yet.
    pub(crate) fn hear(&mut self, bed: &RoceBed) -> Vec<Message> {
        let log = bed.log();
        let new = &log[self.heard..];
        self.heard = log.len();
        let own = self.flow.source().ip();
        let to_it = new
            .iter()
            .filter(|(flow, _)| flow.destination().ip() == own);
        to_it
            .map(|(_, packet)| mad(packet).expect("nothing but messages").message)
            .collect()
    }
}
