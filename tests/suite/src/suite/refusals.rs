//! Refusals of a backend with the errors that its traits state.

use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Armed, Backend, BackendError, BindRequest, CompletionQueue, ConnectRequest, ControlEvent,
    DisconnectMode, DomainKey, QueuePair, QueuePairKey, QueuePairRequest, ReceiveRequest,
    RegionKeys, Registration, Rejected, Segment, SendFlags, SendOperation, SendQueue, SendRequest,
    SharedReceiveQueueKey, WindowKey, WorkQueue, WorkSlot,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, QualityOfService};
use dat_core::memory::Region;

use crate::fixture::{Memory, Testbed};

/// Refusals of each kind: enough to notice a resource that every refusal leaks.
const REFUSALS: usize = 64;

/// Depth of the queues.
const DEPTH: i32 = 4;

/// Attributes of a small queue pair.
const SMALL: EpAttributes = EpAttributes {
    max_recv_dtos: DEPTH,
    max_request_dtos: DEPTH,
    max_recv_iov: 1,
    max_request_iov: 1,
    max_rdma_read_iov: 1,
    max_rdma_write_iov: 1,
    ..EpAttributes::DEFAULT
};

/// A backend refuses calls with the errors that its trait states, without effect.
///
/// Spec: GEN-06
pub fn backend_refuses_as_its_trait_states<T: Testbed>(bed: &T) {
    let mut device = bed.device();
    let mut queue = device.create_completion_queue(0, 4).expect("a queue");
    for depth in [2, 1, 4] {
        assert_eq!(device.resize_completion_queue(&mut queue, depth), Ok(()));
    }
    let more = device.resize_completion_queue(&mut queue, 8);
    assert!(
        matches!(more, Ok(()) | Err(BackendError::Resources)),
        "{more:?}"
    );
    assert_eq!(device.resize_completion_queue(&mut queue, 4), Ok(()));
    device.destroy_completion_queue(queue);
    let (listener, qualifier) = device.listen(1, Some(4_900)).expect("a listener");
    assert_eq!(qualifier, 4_900);
    let again = device.listen(2, Some(4_900));
    assert_eq!(again.err(), Some(BackendError::QualifierInUse));
    device.stop_listening(listener);
    let (listener, _) = device.listen(2, Some(4_900)).expect("a listener again");
    device.stop_listening(listener);
}

/// Returns two counts above a limit of the device.
fn above(most: i32) -> impl Iterator<Item = i32> {
    let next = most.checked_add(1).expect("every device has a limit");
    [next, i32::MAX].into_iter()
}

/// Returns depths of queues above a limit of the device.
fn depths_above(most: i32) -> impl Iterator<Item = u32> {
    above(most).map(i32::cast_unsigned).chain([u32::MAX])
}

/// Every call refuses a depth above the device's limit with `Resources`, without effect.
///
/// Existing queues stay usable, and legal ones can be created afterwards.
///
/// Spec: GEN-06, EVC-04, EVZ-01, EPC-08
pub fn depths_above_the_device_are_refused<T: Testbed>(bed: &T) {
    let mut device = bed.device();
    let most = device.ia_attributes();
    let domain = device.create_domain().expect("a domain");
    let resources = Some(BackendError::Resources);

    let mut queue = device.create_completion_queue(0, 4).expect("a queue");
    for depth in depths_above(most.max_evd_qlen) {
        for _ in 0..REFUSALS {
            let made = device.create_completion_queue(1, depth);
            assert_eq!(made.err(), resources, "{depth} completions");
            let resized = device.resize_completion_queue(&mut queue, depth);
            assert_eq!(resized.err(), resources, "to {depth} completions");
        }
    }
    assert_eq!(device.resize_completion_queue(&mut queue, 4), Ok(()));
    assert_eq!(queue.poll(), Ok(None));
    let other = device.create_completion_queue(1, 4).expect("another queue");
    let again = device.create_completion_queue(1, 4);
    assert_eq!(again.err(), Some(BackendError::State));

    let (key, mut shared) = device
        .create_shared_receive_queue(7, domain, DEPTH as u32, 1)
        .expect("a shared queue");
    for depth in depths_above(most.max_recv_per_srq) {
        for _ in 0..REFUSALS {
            let made = device.create_shared_receive_queue(8, domain, depth, 1);
            assert_eq!(made.err(), resources, "{depth} buffers");
            let resized = device.resize_shared_receive_queue(key, &mut shared, depth);
            assert_eq!(resized.err(), resources, "to {depth} buffers");
        }
    }
    for segments in depths_above(most.max_iov_segments_per_dto) {
        for _ in 0..REFUSALS {
            let made = device.create_shared_receive_queue(8, domain, 4, segments);
            assert_eq!(made.err(), resources, "{segments} segments");
        }
    }
    let segment = segment(&mut device, domain);
    let taken = post(&mut shared, segment, |token| ReceiveRequest { token });
    assert!(taken.len() >= DEPTH as usize, "{taken:?}");

    let request = small(1, domain, [0, 0]);
    let QueuePair {
        key: pair,
        mut send,
        mut receive,
    } = device.create_queue_pair(&request).expect("a queue pair");
    type Field = fn(&mut EpAttributes) -> &mut i32;
    let fields: [(&str, Field, i32); 4] = [
        (
            "requests",
            |wanted| &mut wanted.max_request_dtos,
            most.max_dto_per_ep,
        ),
        (
            "receives",
            |wanted| &mut wanted.max_recv_dtos,
            most.max_dto_per_ep,
        ),
        (
            "segments of requests",
            |wanted| &mut wanted.max_request_iov,
            most.max_iov_segments_per_dto,
        ),
        (
            "segments of receives",
            |wanted| &mut wanted.max_recv_iov,
            most.max_iov_segments_per_dto,
        ),
    ];
    for (what, field, most) in fields {
        for count in above(most) {
            let mut wanted = request;
            *field(&mut wanted.attributes) = count;
            for _ in 0..REFUSALS {
                let made = device.create_queue_pair(&wanted);
                assert_eq!(made.err(), resources, "{count} {what}");
                let changed = device.modify_queue_pair(pair, &mut send, receive.as_mut(), &wanted);
                assert_eq!(changed.err(), resources, "to {count} {what}");
            }
        }
    }
    let mut sharing = request;
    sharing.shared_receive_queue = Some(SharedReceiveQueueKey(7_777));
    let unknown = [[7_777, 0], [0, 7_777]].map(|queues| small(1, domain, queues));
    for unknown in unknown.into_iter().chain([sharing]) {
        let made = device.create_queue_pair(&unknown);
        assert_eq!(made.err(), Some(BackendError::State), "{unknown:?}");
    }
    let mut own = receive.expect("a receive queue");
    let taken = post(&mut own, segment, |token| ReceiveRequest { token });
    assert!(taken.len() >= DEPTH as usize, "{taken:?}");
    let made = device.create_queue_pair(&request).expect("another one");

    device.destroy_queue_pair(made.key, made.send, made.receive);
    device.destroy_queue_pair(pair, send, Some(own));
    device.destroy_shared_receive_queue(key, shared);
    device.destroy_completion_queue(other);
    device.destroy_completion_queue(queue);
}

/// Returns a request for a small queue pair that completes on these queues.
fn small(token: u64, domain: DomainKey, [requests, receives]: [u32; 2]) -> QueuePairRequest {
    let mut request = QueuePairRequest::new(token, domain, SMALL);
    request.request_queue = Some(requests);
    request.receive_queue = Some(receives);
    request
}

/// Registers a segment of memory, which is leaked.
fn segment(device: &mut impl Backend, domain: DomainKey) -> Segment {
    let region = Region::from_static(Memory::allocate(8));
    let address = region.address();
    let registration = Registration::new(domain, &region, MemoryPrivileges::ALL);
    let RegionKeys { local: key, .. } = device.register(&registration).expect("a region");
    Segment {
        address,
        length: 8,
        key,
    }
}

/// Posts until the queue refuses, at most 40 times; returns the accepted tokens.
fn post<Q: WorkQueue>(
    queue: &mut Q,
    segment: Segment,
    request: impl Fn(u64) -> Q::Request,
) -> Vec<u64> {
    const MOST: u64 = 40;
    let mut taken = Vec::new();
    for token in 0..MOST {
        let request = request(token);
        if let Some(mut dropped) = queue.reserve(&request, 1) {
            dropped.segment(segment);
        }
        let Some(mut slot) = queue.reserve(&request, 1) else {
            break;
        };
        slot.segment(segment);
        if slot.commit(segment.length).is_err() {
            break;
        }
        match queue.ring() {
            Ok(()) => taken.push(token),
            Err(newest) => {
                assert_eq!(newest, 1, "one was committed since the last doorbell");
                break;
            }
        }
    }
    assert_eq!(queue.ring(), Ok(()), "nothing is committed");
    taken
}

/// Two devices with a queue pair each.
struct Connection<'b, T: Testbed> {
    bed: &'b T,
    devices: [T::Backend; 2],
    keys: [QueuePairKey; 2],
}

impl<T: Testbed> Connection<'_, T> {
    /// Steps the transport and polls both devices; returns their events.
    fn turn(&mut self) -> [Option<ControlEvent>; 2] {
        self.bed.step();
        let now = self.bed.now();
        self.devices
            .each_mut()
            .map(|device| device.poll_control(now))
    }

    /// Connects the first queue pair to the second one.
    fn connect(&mut self) {
        let [left, right] = &mut self.devices;
        let (listener, qualifier) = right.listen(9, None).expect("a listener");
        let request = ConnectRequest {
            address: right.ia_attributes().ia_address,
            qualifier,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
        };
        left.connect(self.keys[0], &request).expect("an attempt");
        let mut connected = [false; 2];
        for _ in 0..self.bed.max_steps() {
            for (side, event) in self.turn().into_iter().enumerate() {
                match event {
                    Some(ControlEvent::ConnectionRequest { request, .. }) => self.devices[side]
                        .accept(request, self.keys[side], &[])
                        .expect("it is accepted"),
                    Some(ControlEvent::Established { .. }) => connected[side] = true,
                    // A device whose connections go over its own queues completes some requests for
                    // itself.
                    Some(ControlEvent::Answered { .. } | ControlEvent::Completions { .. })
                    | None => {}
                    Some(other) => panic!("{other:?}"),
                }
            }
            if connected == [true; 2] {
                self.devices[1].stop_listening(listener);
                return;
            }
        }
        panic!("the queue pairs are not connected");
    }

    /// Takes flushed completions until rest, and expects exactly these tokens.
    fn flushed(&mut self, queue: &mut <T::Backend as Backend>::CompletionQueue, expected: &[u64]) {
        let mut seen = Vec::new();
        self.bed.reset_idle_count();
        for _ in 0..self.bed.max_steps() {
            let moved = self.bed.step();
            let now = self.bed.now();
            let param = self
                .devices
                .each_mut()
                .map(|device| device.poll_control(now));
            let found = queue.poll().expect("a sound queue");
            if let Some(completion) = found {
                assert_eq!(completion.status, DtoStatus::Flushed, "{completion:?}");
                seen.push(completion.token);
                self.bed.reset_idle_count();
            } else if !moved && param == [None, None] {
                break;
            }
        }
        assert_eq!(seen, expected);
        assert_eq!(queue.poll(), Ok(None));
        assert_eq!(queue.arm(false), Armed::Armed);
    }
}

/// A queue without room refuses in one of the ways that its trait states.
///
/// Accepted requests complete once and in order. Refused ones, and slots that were only reserved,
/// never do.
///
/// Spec: DTO-11
pub fn queues_refuse_as_their_traits_state<T: Testbed>(bed: &T) {
    let mut devices = [bed.device(), bed.device()];
    let queues = devices.each_mut().map(|device| {
        [0, 1].map(|number| {
            device
                .create_completion_queue(number, 128)
                .expect("a queue")
        })
    });
    let domains = devices
        .each_mut()
        .map(|device| device.create_domain().expect("a domain"));
    let segment = segment(&mut devices[0], domains[0]);
    let mut pairs = Vec::new();
    for (device, domain) in devices.iter_mut().zip(domains) {
        let request = small(5, domain, [0, 1]);
        pairs.push(device.create_queue_pair(&request).expect("a queue pair"));
    }
    let keys = [pairs[0].key, pairs[1].key];
    let mut connection = Connection { bed, devices, keys };
    let [[mut requests, mut receives], _peers] = queues;
    let QueuePair { send, receive, .. } = &mut pairs[0];
    let receive = receive.as_mut().expect("a receive queue");

    let received = post(receive, segment, |token| ReceiveRequest { token });
    assert!(received.len() >= DEPTH as usize, "{received:?}");
    connection.connect();
    let bind = BindRequest {
        token: 70,
        window: WindowKey(usize::MAX),
        region: RegionKeys::default(),
        address: segment.address,
        length: 8,
        privileges: MemoryPrivileges::REMOTE_READ,
        flags: SendFlags::empty(),
        is_only: true,
    };
    assert_eq!(send.bind(&bind), Err(Rejected), "no such window");
    assert_eq!(requests.poll(), Ok(None));
    connection.devices[0].disconnect(keys[0], DisconnectMode::Abrupt);
    connection.flushed(&mut receives, &received);
    let sent = post(send, segment, |token| SendRequest {
        token,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    });
    assert!(sent.len() >= DEPTH as usize, "{sent:?}");
    connection.flushed(&mut requests, &sent);
    assert_eq!(send.bind(&bind), Err(Rejected), "no such window");
    connection.flushed(&mut requests, &[]);
}
