//! A device for tests below the core, with one completion queue and one queue pair.

use backend_roce::RoceBackend;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend as _, CompletionQueue as _, ConnectFailure, ConnectRequest, ControlEvent, DomainKey,
    QueuePair, QueuePairRequest, ReceiveRequest, Registration, RequestKey, Segment, SendFlags,
    SendOperation, SendRequest, WorkQueue as _,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, QualityOfService};
use dat_core::memory::Region;
use dat_tests::fixture::Testbed as _;

use crate::network::RoceBed;

/// Most steps until an awaited event.
pub(crate) const STEPS: usize = 10_000;

/// A device with one completion queue and one queue pair.
pub(crate) struct Node {
    pub(crate) device: RoceBackend,
    pub(crate) queue: backend_roce::RoceCompletionQueue,
    pub(crate) domain: DomainKey,
    pub(crate) pair: QueuePair<backend_roce::RoceSendQueue, backend_roce::RoceReceiveQueue>,
}

pub(crate) const TOKEN: u64 = 7;

impl Node {
    pub(crate) fn over(device: RoceBackend) -> Self {
        Self::with_attributes(device, EpAttributes::DEFAULT)
    }

    pub(crate) fn without_reads(bed: &RoceBed) -> Self {
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

    pub(crate) fn new(bed: &RoceBed) -> Self {
        Self::over(bed.device())
    }

    pub(crate) fn address(&self) -> IaAddress {
        self.device.ia_attributes().ia_address
    }

    pub(crate) fn connect(&mut self, address: IaAddress, qualifier: u64, data: &[u8]) {
        let request = ConnectRequest {
            address,
            qualifier,
            private_data: data,
            quality: QualityOfService::BEST_EFFORT,
        };
        self.device.connect(self.pair.key, &request).unwrap();
    }

    /// Steps the bed until the device has an event that `wanted` takes.
    pub(crate) fn until<R>(
        &mut self,
        bed: &RoceBed,
        mut wanted: impl FnMut(ControlEvent) -> Option<R>,
    ) -> R {
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

    pub(crate) fn request(&mut self, bed: &RoceBed) -> (RequestKey, Vec<u8>) {
        self.until(bed, |event| match event {
            ControlEvent::ConnectionRequest {
                request,
                private_data,
                ..
            } => Some((request, private_data.to_vec())),
            _ => None,
        })
    }

    pub(crate) fn established(&mut self, bed: &RoceBed) {
        self.until(bed, |event| {
            matches!(event, ControlEvent::Established { .. }).then_some(())
        });
    }

    pub(crate) fn failure(&mut self, bed: &RoceBed) -> ConnectFailure {
        self.until(bed, |event| match event {
            ControlEvent::ConnectFailed { failure, .. } => Some(failure),
            _ => None,
        })
    }

    /// Registers memory that lives until the end of the process.
    pub(crate) fn memory(&mut self, bytes: Vec<u8>) -> (&'static mut [u8], Segment, u32) {
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

    pub(crate) fn status(&mut self, bed: &RoceBed) -> DtoStatus {
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
pub(crate) fn connect(bed: &RoceBed, qualifier: u64) -> (Node, Node) {
    let (mut left, mut right) = (Node::new(bed), Node::new(bed));
    join(bed, &mut left, &mut right, qualifier);
    (left, right)
}

pub(crate) fn join(bed: &RoceBed, left: &mut Node, right: &mut Node, qualifier: u64) {
    right.device.listen(1, Some(qualifier)).unwrap();
    left.connect(right.address(), qualifier, b"hello");
    let (request, data) = right.request(bed);
    assert_eq!(data, b"hello");
    accept(bed, left, right, request);
}

/// Accepts a request on the pair of the right node; both ends report the connection.
pub(crate) fn accept(bed: &RoceBed, left: &mut Node, right: &mut Node, request: RequestKey) {
    right.device.accept(request, right.pair.key, &[]).unwrap();
    left.established(bed);
    right.established(bed);
}

/// Sends a message and checks its bytes.
pub(crate) fn check_message(bed: &RoceBed, left: &mut Node, right: &mut Node) {
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
