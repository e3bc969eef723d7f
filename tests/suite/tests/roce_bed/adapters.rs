//! Tests of adapters below the core: ports, marks, translated paths, damaged packets.

use std::net::{Ipv4Addr, SocketAddr};

use backend_roce::RoceBackend;
use backend_roce::proto::connection::{
    Answered, Ids, Information, Mad, Message, PrivateData, Reason, Reject, decode_packet,
    encode_packet,
};
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::Packet;
use backend_roce::proto::{PathMtu, Psn};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend, BackendError, CompletionQueue, ConnectFailure, ConnectRequest, ControlEvent,
    DisconnectMode, DomainKey, Peek, QueuePair, QueuePairRequest, ReceiveRequest, Registration,
    RequestKey, Segment, SendFlags, SendOperation, SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, QualityOfService};
use dat_core::memory::Region;
use dat_tests::fixture::Testbed as _;

use crate::network::RoceBed;

/// Most steps until an awaited event.
const STEPS: usize = 10_000;

/// A device with one completion queue and one queue pair.
pub(crate) struct Node {
    pub(crate) device: RoceBackend,
    pub(crate) queue: backend_roce::RoceCompletionQueue,
    pub(crate) domain: DomainKey,
    pub(crate) pair: QueuePair<backend_roce::RoceSendQueue, backend_roce::RoceReceiveQueue>,
}

const TOKEN: u64 = 7;

impl Node {
    fn over(device: RoceBackend) -> Self {
        Self::with_attributes(device, EpAttributes::DEFAULT)
    }

    fn without_reads(bed: &RoceBed) -> Self {
        let attributes = EpAttributes {
            max_rdma_read_in: 0,
            ..EpAttributes::DEFAULT
        };
        Self::with_attributes(bed.device(), attributes)
    }

    pub(crate) fn with_attributes(mut device: RoceBackend, attributes: EpAttributes) -> Self {
        let domain = device.create_domain().unwrap();
        let queue = device.create_completion_queue(0, 64).unwrap();
        let mut request = QueuePairRequest::new(TOKEN, domain, attributes);
        request.request_queue = Some(0);
        request.receive_queue = Some(0);
        let pair = device.create_queue_pair(&request).unwrap();
        Self {
            device,
            queue,
            domain,
            pair,
        }
    }

    fn new(bed: &RoceBed) -> Self {
        Self::over(bed.device())
    }

    fn address(&self) -> IaAddress {
        self.device.ia_attributes().ia_address
    }

    fn connect(&mut self, address: IaAddress, qualifier: u64, data: &[u8]) {
        let request = ConnectRequest {
            address,
            qualifier,
            private_data: data,
            quality: QualityOfService::BEST_EFFORT,
        };
        self.device.connect(self.pair.key, &request).unwrap();
    }

    /// Steps the bed until the device has an event that `wanted` takes.
    fn until<R>(&mut self, bed: &RoceBed, mut wanted: impl FnMut(ControlEvent) -> Option<R>) -> R {
        for _ in 0..STEPS {
            while let Some(event) = self.device.poll_control(bed.now()) {
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
            bed.go_on();
        }
        panic!("an event never came");
    }

    fn request(&mut self, bed: &RoceBed) -> (RequestKey, Vec<u8>) {
        self.until(bed, |event| match event {
            ControlEvent::ConnectionRequest {
                request,
                private_data,
                ..
            } => Some((request, private_data.to_vec())),
            _ => None,
        })
    }

    fn established(&mut self, bed: &RoceBed) {
        self.until(bed, |event| {
            matches!(event, ControlEvent::Established { .. }).then_some(())
        });
    }

    fn failure(&mut self, bed: &RoceBed) -> ConnectFailure {
        self.until(bed, |event| match event {
            ControlEvent::ConnectFailed { failure, .. } => Some(failure),
            _ => None,
        })
    }

    /// Registers memory that lives until the end of the process.
    fn memory(&mut self, bytes: Vec<u8>) -> (&'static mut [u8], Segment, u32) {
        let bytes = bytes.leak();
        #[expect(unsafe_code, reason = "memory of a test, which is leaked")]
        // SAFETY: the memory is never freed. The test looks at it only while nothing is under way.
        let region = unsafe { Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
        let registration = Registration::new(self.domain, &region, MemoryPrivileges::ALL);
        let keys = self.device.register(&registration).unwrap();
        let segment = Segment {
            address: bytes.as_ptr().addr() as u64,
            length: bytes.len() as u32,
            key: keys.local,
        };
        (bytes, segment, keys.remote)
    }

    fn status(&mut self, bed: &RoceBed) -> DtoStatus {
        for _ in 0..STEPS {
            if let Some(completion) = self.queue.poll().unwrap() {
                return completion.status;
            }
            bed.step();
        }
        panic!("a completion never came");
    }
}

/// Connects two nodes; the second one listens.
fn connect(bed: &RoceBed, qualifier: u64) -> (Node, Node) {
    let (mut left, mut right) = (Node::new(bed), Node::new(bed));
    join(bed, &mut left, &mut right, qualifier);
    (left, right)
}

pub(crate) fn join(bed: &RoceBed, left: &mut Node, right: &mut Node, qualifier: u64) {
    right.device.listen(1, Some(qualifier)).unwrap();
    left.connect(right.address(), qualifier, b"hello");
    let (request, data) = right.request(bed);
    assert_eq!(data, b"hello");
    right.device.accept(request, right.pair.key, &[]).unwrap();
    left.established(bed);
    right.established(bed);
}

/// Sends a message and checks its bytes.
fn check_message(bed: &RoceBed, left: &mut Node, right: &mut Node) {
    let sent: Vec<u8> = (0..5000).map(|at| (at % 249) as u8).collect();
    let (_, source, _) = left.memory(sent.clone());
    let (received, target, _) = right.memory(vec![0; 5000]);
    let receives = right.pair.receive.as_mut().unwrap();
    receives
        .post(&ReceiveRequest { token: 2 }, &[target])
        .unwrap();
    let request = SendRequest {
        token: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    };
    left.pair.send.post(&request, &[source]).unwrap();
    assert_eq!(right.status(bed), DtoStatus::Success);
    assert_eq!(left.status(bed), DtoStatus::Success);
    assert!(received == sent);
}

/// A qualifier is a UDP port; those that need a privilege or are too large have another one.
///
/// Spec: ROCE-44, ROCE-45
#[test]
fn a_service_point_claims_a_port() {
    for qualifier in [1024, 7174, 65_535, 0, 80, 1023, 65_536, 1 << 40, u64::MAX] {
        let bed = RoceBed::new();
        let (mut left, mut right) = connect(&bed, qualifier);
        check_message(&bed, &mut left, &mut right);
        let ports: Vec<u16> = bed.ports(right.address().socket_address().unwrap().ip());
        let port = ports.into_iter().find(|port| *port != 4791).unwrap();
        match u16::try_from(qualifier) {
            Ok(same) if same >= 1024 => assert_eq!(port, same),
            _ => assert!((10_000..30_000).contains(&port), "{qualifier}: {port}"),
        }
        // Another adapter at the address cannot have it meanwhile.
        let mut other = bed.device_on(right.address().socket_address().unwrap().ip());
        assert_eq!(
            other.listen(1, Some(qualifier)).err(),
            Some(BackendError::QualifierInUse)
        );
        assert_eq!(
            right.device.listen(2, Some(qualifier)).err(),
            Some(BackendError::QualifierInUse)
        );
        drop(right);
        other.listen(1, Some(qualifier)).unwrap();
    }
}

/// A request goes to the port of the qualifier, then to 4791, whose owner answers.
///
/// Spec: ROCE-46, ROCE-54, ROCE-164, ROCE-173
#[test]
fn a_refused_port_is_followed_by_the_common_one() {
    let bed = RoceBed::new();
    let (mut left, right) = (Node::new(&bed), Node::new(&bed));
    left.connect(right.address(), 7174, &[]);
    assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
    let dialled: Vec<u16> = bed
        .log()
        .iter()
        .filter_map(|(flow, packet)| Some((flow, mad(packet)?)))
        .filter(|(_, mad)| matches!(mad.message, Message::Request(_)))
        .map(|(flow, _)| flow.destination_port)
        .collect();
    assert_eq!(dialled, [7174, 4791]);

    // Nobody has that one either.
    let mut alone = Node::new(&bed);
    let nobody = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), 0);
    alone.connect(nobody.into(), 7174, &[]);
    assert_eq!(alone.failure(&bed), ConnectFailure::NonPeerRejected);
}

/// A request is repeated until its retries are used up; then the peer is unreachable.
///
/// Spec: EPK-09, ROCE-46, ROCE-160, ROCE-176
#[test]
fn a_silent_peer_is_unreachable() {
    let bed = RoceBed::new();
    let mut left = Node::new(&bed);
    let nobody = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), 0);
    bed.silence(nobody.ip());
    left.connect(nobody.into(), 7174, &[]);
    bed.advance(bed.now().after(10_000_000).unwrap());
    assert_eq!(left.failure(&bed), ConnectFailure::Unreachable);
    let ports: Vec<u16> = bed
        .log()
        .iter()
        .map(|(flow, _)| flow.destination_port)
        .collect();
    // First to the port of the qualifier, then to the common one, with all repetitions.
    assert_eq!(ports[..3], [7174; 3]);
    assert_eq!(ports[3..19], [4791; 16]);
    // A peer that was there, but could not answer, forgets the request (ROCE-176).
    assert_eq!(ports[19..], [4791]);
    assert_eq!(rejections(&bed)[0].reason, Reason::TIMEOUT);
}

fn mad(packet: &[u8]) -> Option<Mad> {
    Mad::decode(decode_packet(&Packet::decode(packet).ok()?)?)
}

/// The numbers of an adapter are of its own secret, and its messages are marked.
///
/// Spec: ROCE-47, ROCE-48, ROCE-56, ROCE-175
#[test]
fn messages_are_marked_and_numbers_are_random() {
    let bed = RoceBed::new();
    let _ = connect(&bed, 7174);
    let _ = connect(&bed, 7175);
    let (mut guids, mut numbers, mut psns) = (Vec::new(), Vec::new(), Vec::new());
    for mad in bed.log().iter().filter_map(|(_, packet)| mad(packet)) {
        let (guid, qpn, id, psn) = match mad.message {
            Message::Request(request) => {
                let mark = request.mark.expect("a mark");
                assert_eq!(mark.port, 4791);
                assert!([7174, 7175].contains(&mark.dialled));
                let psn = request.starting_psn;
                (request.guid, request.qpn, request.local_id, psn)
            }
            Message::Reply(reply) => (reply.guid, reply.qpn, reply.ids.local, reply.starting_psn),
            _ => continue,
        };
        assert_eq!(guid >> 32, 0x0244_4154, "02 `DAT`");
        assert!(guid & 2 << 56 != 0, "locally administered");
        guids.push(guid);
        numbers.extend([qpn, id]);
        psns.push(psn.value());
    }
    assert_eq!(guids.len(), 4);
    for list in [&mut numbers, &mut psns] {
        let count = list.len();
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), count);
    }
    guids.sort_unstable();
    guids.dedup();
    assert_eq!(guids.len(), 4);
}

/// Private data of each length arrives as it was sent.
///
/// Spec: ROCE-47, ROCE-149, ROCE-152, GEN-10
#[test]
fn private_data_of_every_length_arrives() {
    for length in 0..=64 {
        let bed = RoceBed::new();
        let data: Vec<u8> = (0..length).map(|at| 0xFF - at as u8).collect();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        right.device.listen(1, Some(7174)).unwrap();
        left.connect(right.address(), 7174, &data);
        let (request, received) = right.request(&bed);
        assert_eq!(received, data);
        if length % 2 == 0 {
            right.device.reject(request, true, &data);
            let failure = left.failure(&bed);
            let ConnectFailure::PeerRejected(received) = failure else {
                panic!("{failure:?}");
            };
            assert_eq!(received.as_slice(), data);
            continue;
        }
        right.device.accept(request, right.pair.key, &data).unwrap();
        let received = left.until(&bed, |event| match event {
            ControlEvent::Established { private_data, .. } => Some(private_data),
            _ => None,
        });
        assert_eq!(received.as_slice(), data);
    }
    let bed = RoceBed::new();
    let mut node = Node::new(&bed);
    let request = ConnectRequest {
        address: node.address(),
        qualifier: 7174,
        private_data: &[1; 65],
        quality: QualityOfService::BEST_EFFORT,
    };
    let refused = node.device.connect(node.pair.key, &request);
    assert_eq!(refused.err(), Some(BackendError::Resources));
}

/// Addresses may be translated on the way: between our own ends the ICRC covers those of the mark.
///
/// Spec: ROCE-49, ROCE-50, ROCE-51
#[test]
fn a_translated_path_carries_a_connection() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let outside = SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), 40_007);
    bed.translate(left.address().socket_address().unwrap(), outside);
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    let remote = right.until(&bed, |event| match event {
        ControlEvent::ConnectionRequest {
            request, remote, ..
        } => Some((request, remote)),
        _ => None,
    });
    assert_eq!(remote.1, IaAddress::from(outside));
    right.device.accept(remote.0, right.pair.key, &[]).unwrap();
    left.established(&bed);
    right.established(&bed);
    check_message(&bed, &mut left, &mut right);
    check_message(&bed, &mut right, &mut left);
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    assert_eq!(left.device.counts().bad_icrc, 0);
    assert_eq!(right.device.counts().bad_icrc, 0);
}

fn ip(node: &Node) -> std::net::IpAddr {
    node.address().socket_address().unwrap().ip()
}

/// Returns the reasons and path MTUs of all rejections on the wire.
fn rejections(bed: &RoceBed) -> Vec<Reject> {
    let log = bed.log();
    let mads = log.iter().filter_map(|(_, packet)| mad(packet));
    mads.filter_map(|mad| match mad.message {
        Message::Reject(reject) => Some(reject),
        _ => None,
    })
    .collect()
}

/// A passive side whose interface carries less than its peer proposes tells so, and both use less.
///
/// Spec: ROCE-43, ROCE-155, ROCE-177, ROCE-182
#[test]
fn the_smaller_path_mtu_of_both_ends_is_used() {
    let mtus = [PathMtu::Bytes256, PathMtu::Bytes1024, PathMtu::Bytes4096];
    for (near, far) in mtus
        .into_iter()
        .flat_map(|near| mtus.map(|far| (near, far)))
    {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        bed.set_path_mtu(ip(&left), near);
        bed.set_path_mtu(ip(&right), far);
        join(&bed, &mut left, &mut right, 7174);
        check_message(&bed, &mut left, &mut right);
        check_message(&bed, &mut right, &mut left);
        let mtu = near.min(far);
        let largest = bed.log().iter().map(|(_, packet)| packet.len()).max();
        // A message of connection management is longer than the smallest packets.
        let expected = (mtu.bytes() as usize + 16).max(280);
        assert_eq!(largest, Some(expected), "{near:?} {far:?}");
        let refused: Vec<_> = rejections(&bed)
            .iter()
            .map(|reject| (reject.reason, reject.information))
            .collect();
        let expected = match near > far {
            true => vec![(Reason::INVALID_MTU, Information::Mtu(far.code()))],
            false => Vec::new(),
        };
        assert_eq!(refused, expected);
        // The place of the refused request is free.
        for _ in 0..RoceBed::BACKLOG {
            let mut other = Node::new(&bed);
            bed.set_path_mtu(ip(&other), near);
            other.connect(right.address(), 7174, &[]);
            right.request(&bed);
        }
    }
}

/// A peer that proposes a path MTU again which was rejected is rejected again.
///
/// Spec: ROCE-177, ROCE-182
#[test]
fn a_rejected_path_mtu_is_no_request() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    let (flow, packet) = bed.log()[0].clone();
    let (request, _) = right.request(&bed);
    right.device.reject(request, true, &[]);
    left.failure(&bed);
    pass(&bed, 10);
    bed.set_path_mtu(ip(&right), PathMtu::Bytes512);
    for _ in 0..5 {
        bed.inject(&flow, &packet);
        while bed.step() {}
        assert_eq!(right.device.poll_control(bed.now()), None);
        let last = rejections(&bed).pop().unwrap();
        assert_eq!(last.information, Information::Mtu(2));
    }
}

/// An attempt that its consumer gives up is taken back at the peer, in each state there.
///
/// Spec: ROCE-176
#[test]
fn an_attempt_that_is_given_up_is_taken_back_at_the_peer() {
    for (seen, accepted) in [(false, false), (true, false), (true, true)] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        right.device.listen(1, Some(7174)).unwrap();
        left.connect(right.address(), 7174, &[]);
        let mut request = None;
        if seen {
            request = Some(right.request(&bed).0);
        } else {
            while bed.step() {}
        }
        if accepted {
            // The acceptance does not reach the peer in time.
            bed.silence(ip(&left));
            right
                .device
                .accept(request.unwrap(), right.pair.key, &[])
                .unwrap();
            while bed.step() {}
        }
        left.device
            .disconnect(left.pair.key, DisconnectMode::Abrupt);
        while bed.step() {}
        let last = rejections(&bed).pop().unwrap();
        assert_eq!(last.reason, Reason::TIMEOUT);
        assert!(matches!(last.information, Information::Guid(_)));
        if accepted {
            assert_eq!(right.failure(&bed), ConnectFailure::NonPeerRejected);
            continue;
        }
        assert_eq!(right.device.poll_control(bed.now()), None);
        if let Some(request) = request {
            // The consumer knows of it: its acceptance fails late.
            right.device.accept(request, right.pair.key, &[]).unwrap();
            assert_eq!(right.failure(&bed), ConnectFailure::NonPeerRejected);
            let again = right.device.accept(request, right.pair.key, &[]);
            assert_eq!(again, Err(BackendError::State));
            let pair = &mut right.pair;
            right
                .device
                .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut())
                .unwrap();
        }
        // Nothing of it is left: the same queue pairs connect.
        let pair = &mut left.pair;
        left.device
            .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut())
            .unwrap();
        left.connect(right.address(), 7174, &[]);
        let (request, _) = right.request(&bed);
        right.device.accept(request, right.pair.key, &[]).unwrap();
        left.established(&bed);
        check_message(&bed, &mut left, &mut right);
    }
}

/// A stranger's rejection takes back nothing: it must name the GUID and the communication id.
///
/// Spec: ROCE-176
#[test]
fn a_rejection_with_another_guid_takes_nothing_back() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    while bed.step() {}
    let (flow, packet) = bed.log()[0].clone();
    let Some(Mad {
        transaction,
        message: Message::Request(request),
    }) = mad(&packet)
    else {
        panic!("not a request");
    };
    for (guid, id) in [(1, 0), (0, 1), (1, 1)] {
        let reject = Mad {
            transaction,
            message: Message::Reject(Reject {
                ids: Ids {
                    local: request.local_id ^ id,
                    remote: 0,
                },
                answered: Answered::Request,
                reason: Reason::TIMEOUT,
                information: Information::Guid(request.guid ^ guid),
                private_data: PrivateData::NONE,
            }),
        };
        let mut bytes = [0; 280];
        encode_packet(&reject.encode(), Psn::new(1), &mut bytes).unwrap();
        flow.seal(0, &mut bytes).unwrap();
        bed.inject(&flow, &bytes);
        while bed.step() {}
    }
    let (request, _) = right.request(&bed);
    right.device.accept(request, right.pair.key, &[]).unwrap();
    left.established(&bed);
}

/// Requests that nobody answers take no room without bound.
///
/// Spec: ROCE-174
#[test]
fn waiting_requests_are_bounded() {
    let bed = RoceBed::new();
    let mut right = Node::new(&bed);
    right.device.listen(1, Some(7174)).unwrap();
    let address = right.address();
    let mut clients: Vec<Node> = (0..=RoceBed::BACKLOG).map(|_| Node::new(&bed)).collect();
    for client in &mut clients {
        client.connect(address, 7174, &[]);
    }
    let last = clients.last_mut().unwrap();
    assert_eq!(last.failure(&bed), ConnectFailure::NonPeerRejected);
    // Each answer makes room for another one.
    let (request, _) = right.request(&bed);
    right.device.reject(request, true, &[]);
    let mut late = Node::new(&bed);
    late.connect(address, 7174, &[]);
    for _ in 0..RoceBed::BACKLOG {
        right.request(&bed);
    }
}

/// A peer that begins again ends what it has forgotten.
///
/// Spec: ROCE-180
#[test]
fn a_queue_pair_that_connects_again_ends_the_connection_before() {
    let bed = RoceBed::new();
    let (_left, mut right) = connect(&bed, 7174);
    let log = bed.log();
    let (flow, packet) = log
        .iter()
        .find(|(_, packet)| {
            matches!(
                mad(packet),
                Some(Mad {
                    message: Message::Request(_),
                    ..
                })
            )
        })
        .unwrap();
    // The same request under another communication id.
    let mut again = packet.clone();
    again[20 + 24] ^= 0x55;
    flow.seal(0, &mut again).unwrap();
    bed.inject(flow, &again);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    let refused = bed
        .log()
        .iter()
        .filter_map(|(_, packet)| mad(packet))
        .any(|mad| matches!(mad.message, Message::Reject(reject) if reject.reason.0 == 10));
    assert!(refused);
}

/// Damaged packets, and packets of strangers, change nothing; congestion is counted.
///
/// Spec: ROCE-25, ROCE-26, ROCE-34, ROCE-39
#[test]
fn damaged_and_foreign_packets_change_nothing() {
    let seed = 34;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    check_message(&bed, &mut left, &mut right);
    let log = bed.log();
    let before = right.device.counts();
    for _ in 0..3_000 {
        let (flow, packet) = &log[random.usize(..log.len())];
        let mut bytes = packet.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] ^= random.u8(1..);
        }
        bytes.truncate(random.usize(bytes.len() / 2..=bytes.len()));
        bed.inject(flow, &bytes);
    }
    while bed.step() {}
    let after = right.device.counts();
    let came = after.packets - before.packets;
    let refused = after.bad_icrc + after.dropped - before.bad_icrc - before.dropped;
    // One byte in hundreds is not covered by the ICRC, since switches may change it.
    assert!(came > 1_000 && refused > came * 9 / 10, "{after:?}");
    assert!(after.bad_icrc > before.bad_icrc, "{after:?}");
    check_message(&bed, &mut left, &mut right);

    // A congestion notification of the peer: its opcode, and 16 bytes.
    let (flow, packet) = log
        .iter()
        .rev()
        .find(|(flow, _)| flow.destination_port == 7174)
        .unwrap();
    let mut notification = packet[..12].to_vec();
    notification.resize(32, 0);
    notification[0] = 0x81;
    flow.seal(0, &mut notification).unwrap();
    bed.inject(flow, &notification);
    while bed.step() {}
    assert_eq!(right.device.counts().congestion, 1);
    check_message(&bed, &mut left, &mut right);
}

/// A peer that sends anything, with a right ICRC, reaches nothing that was not granted to it.
///
/// Each receive completes once, and the adapter serves others.
///
/// Spec: ROCE-26, ROCE-39, ROCE-109, ROCE-112, ROCE-124, ROCE-125
#[test]
fn a_hostile_peer_reaches_what_was_granted_only() {
    const GUARD: usize = 4096;
    let seed = 109;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reached = 0;
    for _ in 0..150 {
        let bed = RoceBed::new();
        let (mut left, mut right) = connect(&bed, 7174);
        let guarded = vec![0x5A; 3 * GUARD].leak();
        let address = guarded[GUARD..].as_ptr().addr() as u64;
        #[expect(unsafe_code, reason = "memory of a test, which is leaked")]
        // SAFETY: as in `Node::memory`.
        let region = unsafe { Region::from_raw_parts(guarded[GUARD..].as_mut_ptr(), GUARD) };
        let registration = Registration::new(right.domain, &region, MemoryPrivileges::ALL);
        let keys = right.device.register(&registration).unwrap();
        let target = Segment {
            address,
            length: GUARD as u32,
            key: keys.local,
        };
        let posted = random.u64(..4);
        for token in 0..posted {
            let receives = right.pair.receive.as_mut().unwrap();
            receives.post(&ReceiveRequest { token }, &[target]).unwrap();
        }
        // Operations of an honest peer, whose packets are then bent.
        let (_, source, _) = left.memory(vec![0xC3; 3000]);
        let remote = dat_core::backend::RemoteRange {
            address,
            key: keys.remote,
        };
        for (token, operation) in [
            SendOperation::RdmaWrite(remote),
            SendOperation::RdmaRead(remote),
            SendOperation::Send,
        ]
        .into_iter()
        .enumerate()
        {
            let request = SendRequest {
                token: token as u64,
                operation,
                flags: SendFlags::empty(),
            };
            left.pair.send.post(&request, &[source]).unwrap();
        }
        let log = bed.log();
        let to_right = right.address().socket_address().unwrap();
        let sent: Vec<_> = log
            .iter()
            .filter(|(flow, packet)| to_right.ip() == flow.destination().ip() && packet.len() >= 16)
            .collect();
        for _ in 0..40 {
            let (flow, packet) = sent[random.usize(..sent.len())];
            let mut bytes = packet.clone();
            for _ in 0..random.usize(..4) {
                // Headers more often than data.
                let end = if random.bool() { 44 } else { bytes.len() };
                let at = random.usize(..end.min(bytes.len()));
                bytes[at] = match random.u8(..4) {
                    0 => random.u8(..),
                    1 => bytes[at].wrapping_add(1),
                    2 => bytes[at].wrapping_sub(1),
                    _ => bytes[at] ^ 1 << random.u8(..8),
                };
            }
            // A right opcode and queue pair, with the next PSN or one near it.
            if random.bool() {
                bytes[5..8].copy_from_slice(&packet[5..8]);
                bytes[11] = packet[11].wrapping_add(random.u8(..6));
            }
            if flow.seal(0, &mut bytes).is_some() {
                bed.inject(flow, &bytes);
            }
            if random.bool() {
                bed.step();
            }
        }
        while bed.step() {}
        if random.bool() {
            right.device.deregister(keys);
        }
        let mut completed = Vec::new();
        while let Some(completion) = right.queue.poll().unwrap() {
            completed.push(completion.token);
        }
        right
            .device
            .disconnect(right.pair.key, DisconnectMode::Abrupt);
        while let Some(completion) = right.queue.poll().unwrap() {
            completed.push(completion.token);
        }
        assert_eq!(completed, (0..posted).collect::<Vec<_>>());
        let outside = guarded[..GUARD].iter().chain(&guarded[2 * GUARD..]);
        assert!(outside.into_iter().all(|byte| *byte == 0x5A));
        reached += usize::from(guarded[GUARD..2 * GUARD].iter().any(|byte| *byte != 0x5A));
        // Others are served.
        let (mut near, mut far) = (Node::new(&bed), Node::new(&bed));
        join(&bed, &mut near, &mut far, 7175);
        check_message(&bed, &mut near, &mut far);
    }
    assert!(reached > 50, "{reached}: the packets are refused too early");
}

/// Plain successes are peeked and skipped; other completions are left to a poll.
///
/// Spec: ROCE-85
#[test]
fn plain_successes_are_peeked() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    let (_, source, _) = left.memory(vec![1; 100]);
    let (_, target, _) = right.memory(vec![0; 100]);
    assert_eq!(left.queue.peek(), Peek::Empty);
    let request = |token| SendRequest {
        token,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    };
    for token in [11, 12] {
        let receives = right.pair.receive.as_mut().unwrap();
        receives.post(&ReceiveRequest { token }, &[target]).unwrap();
    }
    for token in [21, 22, 23] {
        left.pair.send.post(&request(token), &[source]).unwrap();
    }
    for _ in 0..STEPS {
        bed.step();
    }
    // The third message finds no receive.
    let length = u32::MAX;
    for token in [21, 22] {
        // Peeks take nothing.
        assert_eq!(left.queue.peek(), Peek::Success { token, length });
        assert_eq!(left.queue.peek(), Peek::Success { token, length });
        left.queue.skip();
        // A skip without a peek takes nothing, either.
        left.queue.skip();
    }
    let length = 100;
    assert_eq!(right.queue.peek(), Peek::Success { token: 11, length });
    assert_eq!(right.queue.poll().unwrap().unwrap().token, 11);
    right.queue.skip();
    assert_eq!(right.queue.peek(), Peek::Success { token: 12, length });
    right.queue.skip();
    assert_eq!(right.queue.peek(), Peek::Empty);
    while bed.go_on() && left.queue.peek() == Peek::Empty {}
    assert_eq!(left.queue.peek(), Peek::Other);
    let failed = left.queue.poll().unwrap().unwrap();
    let expected = (23, DtoStatus::ReceiverNotReady);
    assert_eq!((failed.token, failed.status), expected);
}

/// A Read that the peer does not allow fails, after all earlier requests and before all later ones.
///
/// Spec: DTO-11, ROCE-70, ROCE-85
#[test]
fn requests_end_in_order_where_one_is_not_allowed() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::without_reads(&bed));
    join(&bed, &mut left, &mut right, 7174);
    let (_, source, _) = left.memory(vec![1; 64]);
    let remote = dat_core::backend::RemoteRange {
        address: source.address,
        key: source.key,
    };
    for token in 0..5 {
        let operation = match token {
            2 => SendOperation::RdmaRead(remote),
            _ => SendOperation::Send,
        };
        let request = SendRequest {
            token,
            operation,
            flags: SendFlags::empty(),
        };
        let mut slot = left.pair.send.reserve(&request, 1).unwrap();
        slot.segment(source);
        slot.commit(64).unwrap();
    }
    left.pair.send.ring().unwrap();
    for token in 0..5 {
        let completion = left.queue.poll().unwrap().expect("a completion");
        let status = match token {
            2 => DtoStatus::LocalEndpoint,
            _ => DtoStatus::Flushed,
        };
        assert_eq!((completion.token, completion.status), (token, status));
    }
}

/// A wrong key ends the connection, so that a peer has one guess.
///
/// Spec: ROCE-109, ROCE-123, ROCE-128
#[test]
fn a_guessed_key_ends_the_connection() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    let (_, source, _) = left.memory(vec![1; 64]);
    let (bytes, target, key) = right.memory(vec![0; 64]);
    let write = |node: &mut Node, key: u32| {
        let remote = dat_core::backend::RemoteRange {
            address: target.address,
            key,
        };
        let request = SendRequest {
            token: 3,
            operation: SendOperation::RdmaWrite(remote),
            flags: SendFlags::empty(),
        };
        node.pair.send.post(&request, &[source]).unwrap();
        node.status(&bed)
    };
    assert_eq!(write(&mut left, key), DtoStatus::Success);
    assert!(bytes.iter().all(|byte| *byte == 1));
    assert_eq!(write(&mut left, key ^ 1), DtoStatus::RemoteAccess);
    assert_eq!(write(&mut left, key), DtoStatus::Flushed);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Broken { .. }).then_some(())
    });
}

/// Counts tell the requests, packets and bytes of a connection, and outlive it.
#[test]
fn counts_tell_what_each_side_did() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    check_message(&bed, &mut left, &mut right);
    while bed.step() {}
    let [connection] = left.device.driver().connection_counts()[..] else {
        panic!("not one connection");
    };
    let ip = |address: IaAddress| address.socket_address().unwrap().ip();
    assert_eq!(connection.peer.ip(), ip(right.address()));
    let requester = connection.requester;
    assert_eq!((requester.posts, requester.bytes), (1, 5000));
    // The path MTU is 1024.
    assert_eq!((requester.packets, requester.retransmits), (5, 0));
    let counts = left.device.counts();
    assert_eq!(counts.requester, requester);
    assert_eq!(right.device.counts().responder.executed, 5);
    let from = |address: IaAddress| {
        let log = bed.log();
        let sent = log
            .iter()
            .filter(|(flow, _)| flow.source().ip() == ip(address));
        let lengths: Vec<u64> = sent.map(|(_, packet)| packet.len() as u64).collect();
        (lengths.len() as u64, lengths.iter().sum::<u64>())
    };
    let sent = (counts.packets_sent, counts.bytes_sent);
    assert_eq!(sent, from(left.address()));
    assert_eq!((counts.packets, counts.bytes), from(right.address()));
    let named = counts.named();
    assert!(named.contains(&("posted_bytes", 5000)) && named.contains(&("request_packets", 5)));
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    let pair = &mut left.pair;
    let reset = left
        .device
        .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut());
    reset.unwrap();
    assert!(left.device.driver().connection_counts().is_empty());
    assert_eq!(left.device.counts().requester, requester);
}

/// Moves the time on by seconds.
fn pass(bed: &RoceBed, seconds: u32) {
    bed.advance(bed.now().after(seconds * 1_000_000).unwrap());
}

fn is_broken(node: &mut Node, bed: &RoceBed) -> bool {
    let event = node.device.poll_control(bed.now());
    matches!(event, Some(ControlEvent::Broken { .. }))
}

/// An idle connection is probed if its adapter is asked to; the consumer sees nothing of it.
///
/// Spec: ROCE-53
#[test]
fn an_idle_connection_is_probed_if_that_is_asked_for() {
    let bed = RoceBed::new();
    let (left, right) = connect(&bed, 7174);
    let packets = bed.log().len();
    pass(&bed, 3600);
    assert_eq!(bed.log().len(), packets, "an idle connection says nothing");
    assert_eq!(left.device.counts().requester.posts, 0);
    drop((left, right));

    let bed = RoceBed::new();
    bed.keep_alive(std::time::Duration::from_secs(10));
    let (mut left, mut right) = connect(&bed, 7174);
    pass(&bed, 100);
    let probes = left.device.counts().requester.posts + right.device.counts().requester.posts;
    // Each probe is heard by the other side, whose time begins anew.
    assert!((5..=20).contains(&probes), "{probes}");
    assert_eq!(left.queue.poll(), Ok(None));
    assert_eq!(right.queue.poll(), Ok(None));
    check_message(&bed, &mut left, &mut right);
    check_message(&bed, &mut right, &mut left);
    // All requests of the queue are the consumer's.
    let depth = EpAttributes::DEFAULT.max_request_dtos;
    let (_, source, _) = left.memory(vec![0; 8]);
    bed.silence(right.address().socket_address().unwrap().ip());
    pass(&bed, 12);
    for _ in 0..depth {
        let request = SendRequest {
            token: 9,
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        left.pair.send.post(&request, &[source]).unwrap();
    }
    // The peer has gone: what was posted is flushed, and the probe is not told.
    pass(&bed, 60);
    let mut statuses = Vec::new();
    while let Some(completion) = left.queue.poll().unwrap() {
        assert_eq!(completion.token, 9);
        statuses.push(completion.status);
    }
    assert_eq!(statuses, vec![DtoStatus::Flushed; depth as usize]);
    assert!(is_broken(&mut left, &bed));
    assert!(!is_broken(&mut left, &bed));
}

/// A peer that went silent breaks an idle connection that is probed, and no other one.
///
/// Spec: ROCE-53
#[test]
fn a_probe_without_an_answer_breaks_the_connection() {
    for asked in [false, true] {
        let bed = RoceBed::new();
        if asked {
            bed.keep_alive(std::time::Duration::from_secs(10));
        }
        let (mut left, right) = connect(&bed, 7174);
        bed.silence(right.address().socket_address().unwrap().ip());
        pass(&bed, 60);
        assert_eq!(is_broken(&mut left, &bed), asked);
        assert_eq!(left.queue.poll(), Ok(None));
    }
}

/// The passive side follows a peer whose address changes, and no old packet from elsewhere.
///
/// Spec: ROCE-48, ROCE-52, ROCE-53
#[test]
fn a_peer_whose_address_changes_is_followed() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let inside = left.address().socket_address().unwrap();
    let outside = |port| SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port);
    bed.translate(inside, outside(40_007));
    join(&bed, &mut left, &mut right, 7174);
    check_message(&bed, &mut left, &mut right);
    // The translator has forgotten the connection: what the passive side sends is refused.
    bed.translate(inside, outside(40_008));
    // An old packet of the peer, from somebody else.
    let old = bed.log().into_iter().rfind(|(flow, packet)| {
        flow.source() == inside && packet.len() > 64 && mad(packet).is_none()
    });
    let (mut flow, packet) = old.unwrap();
    let stranger = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 9).into(), 5);
    flow = Flow::between(stranger, flow.destination()).unwrap();
    bed.inject(&flow, &packet);
    while bed.step() {}
    let to = |address: SocketAddr| {
        let log = bed.log();
        log.iter()
            .filter(|(flow, _)| flow.destination() == address)
            .count()
    };
    assert_eq!(to(stranger), 0);
    // The active side was told that it is translated, and probes before long.
    let before = to(outside(40_008));
    pass(&bed, 16);
    assert!(to(outside(40_008)) > before);
    check_message(&bed, &mut right, &mut left);
    check_message(&bed, &mut left, &mut right);
    // A disconnect from yet another address is answered there.
    bed.translate(inside, outside(40_009));
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    while bed.step() {}
    assert!(to(outside(40_009)) > 0);
}
