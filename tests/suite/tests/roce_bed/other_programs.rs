//! Tests of messages that other programs write.

use backend_roce::proto::Psn;
use backend_roce::proto::connection::{
    ConnectReply, ConnectRequest, Ids, Mad, Message, PrivateData, REPLY_PRIVATE, REQUEST_PRIVATE,
    encode_packet,
};
use backend_roce::proto::icrc::Flow;
use dat_core::backend::{Backend as _, ControlEvent};
use std::net::{Ipv4Addr, SocketAddr};

use crate::connections::{mad, pass};
use crate::network::RoceBed;
use crate::node::Node;

/// GUID of an adapter that is not one of ours.
pub(crate) const GUID: u64 = 0x5254_00FF_FE12_3456;

/// Another program at an address to which everything gets lost.
pub(crate) struct Program<'b> {
    bed: &'b RoceBed,
    pub(crate) address: SocketAddr,
}

impl<'b> Program<'b> {
    pub(crate) fn new(bed: &'b RoceBed) -> Self {
        let address = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), 4791);
        bed.silence(address.ip());
        Self { bed, address }
    }

    /// Puts a message to a node on the wire.
    pub(crate) fn send(&self, node: &Node, transaction: u64, message: Message) {
        let to = node.address().socket_address().unwrap();
        let flow = Flow::between(self.address, to).unwrap();
        let mut bytes = [0; 280];
        let mad = Mad {
            transaction,
            message,
        };
        encode_packet(&mad.encode(), Psn::new(1), &mut bytes).unwrap();
        flow.seal(0, &mut bytes).unwrap();
        self.bed.inject(&flow, &bytes);
    }
}

/// Returns the last request to connect on the wire, with its transaction id.
pub(crate) fn last_request(bed: &RoceBed) -> (u64, ConnectRequest) {
    let log = bed.log();
    let mut mads = log.iter().rev().filter_map(|(_, packet)| mad(packet));
    let request = mads.find_map(|mad| match mad.message {
        Message::Request(request) => Some((mad.transaction, request)),
        _ => None,
    });
    request.expect("a request")
}

/// Full private data of another program's request is whole, also if its end looks like the length
/// that our own ends write.
///
/// Spec: ROCE-47, ROCE-152
#[test]
fn the_private_data_of_another_program_s_request_is_whole() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let program = Program::new(&bed);
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    right.request(&bed);
    let (transaction, request) = last_request(&bed);
    for last in 0..=u8::MAX {
        for rest in [0, 7] {
            let mut data = [rest; REQUEST_PRIVATE];
            data[REQUEST_PRIVATE - 1] = last;
            let number = u32::from(last) << 1 | u32::from(rest == 0);
            let request = ConnectRequest {
                local_id: 1 + number,
                guid: GUID,
                qpn: 0x1000 + number,
                mark: None,
                private_data: PrivateData::new(&data).unwrap(),
                ..request
            };
            program.send(&right, transaction, Message::Request(request));
            let (request, received) = right.request(&bed);
            assert_eq!(received, data, "{last}");
            right.device.reject(request, true, &[]);
            // Until the rejected request is forgotten.
            pass(&bed, 5);
        }
    }
}

/// Full private data of another program's acceptance is whole, too.
///
/// Spec: ROCE-48, ROCE-152
#[test]
fn the_private_data_of_another_program_s_acceptance_is_whole() {
    for last in [0, 1, 2, 56, 65, 66, 255] {
        let bed = RoceBed::new();
        let mut left = Node::new(&bed);
        let program = Program::new(&bed);
        left.connect(program.address.into(), 4791, &[]);
        let (transaction, request) = last_request(&bed);
        let mut data = [0; REPLY_PRIVATE];
        data[REPLY_PRIVATE - 1] = last;
        let reply = ConnectReply {
            ids: Ids {
                local: 77,
                remote: request.local_id,
            },
            qpn: 0x1234,
            starting_psn: Psn::new(5),
            responder_resources: 1,
            initiator_depth: 1,
            rnr_retry_count: 7,
            shared_receive_queue: false,
            guid: GUID,
            private_data: PrivateData::new(&data).unwrap(),
        };
        program.send(&left, transaction, Message::Reply(reply));
        let received = left.until(&bed, |event| match event {
            ControlEvent::Established { private_data, .. } => Some(private_data),
            _ => None,
        });
        assert_eq!(received.as_slice(), data, "{last}");
    }
}
