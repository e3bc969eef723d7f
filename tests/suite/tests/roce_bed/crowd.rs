//! Many connections between two adapters, which share one socket at each end.

use backend_roce::{RoceBackend, RoceCompletionQueue, RoceReceiveQueue, RoceSendQueue};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend as _, CompletionQueue as _, ConnectRequest, ControlEvent, DomainKey, QueuePair,
    QueuePairRequest, Registration, RemoteRange, Segment, SendFlags, SendOperation, SendRequest,
    WorkQueue as _,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, QualityOfService};
use dat_core::memory::Region;
use dat_tests::fixture::Testbed;

/// Steps without a completion that fail a run.
const PATIENCE: u32 = 50_000;

type Pair = QueuePair<RoceSendQueue, RoceReceiveQueue>;

/// An adapter with many queue pairs, which complete in one queue.
pub(crate) struct End {
    pub(crate) device: RoceBackend,
    queue: RoceCompletionQueue,
    domain: DomainKey,
    pub(crate) pairs: Vec<Option<Pair>>,
}

impl End {
    pub(crate) fn new(mut device: RoceBackend, count: usize) -> Self {
        let domain = device.create_domain().unwrap();
        let queue = device.create_completion_queue(0, 1 << 16).unwrap();
        let attributes = EpAttributes {
            max_request_dtos: 256,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            ..EpAttributes::DEFAULT
        };
        let pairs = (0..count).map(|number| {
            let mut request = QueuePairRequest::new(number as u64, domain, attributes);
            request.request_queue = Some(0);
            request.receive_queue = Some(0);
            Some(device.create_queue_pair(&request).unwrap())
        });
        let pairs = pairs.collect();
        Self {
            device,
            queue,
            domain,
            pairs,
        }
    }

    /// Registers memory that lives until the end of the process.
    pub(crate) fn memory(&mut self, bytes: Vec<u8>) -> (&'static [u8], Segment, RemoteRange) {
        let bytes = bytes.leak();
        #[expect(unsafe_code, reason = "memory of a test, which is leaked")]
        // SAFETY: the memory is never freed. The test looks at it only while nothing is under way.
        let region = unsafe { Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
        let registration = Registration::new(self.domain, &region, MemoryPrivileges::ALL);
        let keys = self.device.register(&registration).unwrap();
        let address = bytes.as_ptr().addr() as u64;
        let segment = Segment {
            address,
            length: bytes.len() as u32,
            key: keys.local,
        };
        let key = keys.remote;
        (bytes, segment, RemoteRange { address, key })
    }

    pub(crate) fn post(
        &mut self,
        pair: usize,
        token: u64,
        operation: SendOperation,
        segment: Segment,
    ) {
        let request = SendRequest {
            token,
            operation,
            flags: SendFlags::empty(),
        };
        let pair = self.pairs[pair].as_mut().expect("a queue pair");
        pair.send.post(&request, &[segment]).unwrap();
    }

    pub(crate) fn poll(&mut self) -> Option<(u64, DtoStatus)> {
        let completion = self.queue.poll().unwrap()?;
        Some((completion.token, completion.status))
    }
}

fn until<T: Testbed, R>(bed: &T, end: &mut End, wanted: impl Fn(&ControlEvent) -> Option<R>) -> R {
    for _ in 0..PATIENCE {
        while let Some(event) = end.device.poll_control(bed.now()) {
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
        bed.step();
    }
    panic!("an event never came");
}

/// Connects each queue pair of one adapter to the one of the other with the same number.
pub(crate) fn join<T: Testbed>(bed: &T, left: &mut End, right: &mut End, qualifier: u64) {
    right.device.listen(1, Some(qualifier)).unwrap();
    for number in 0..left.pairs.len() {
        connect(bed, (left, number), (right, number), qualifier);
    }
}

/// Connects a queue pair to one of another adapter, which listens.
pub(crate) fn connect<T: Testbed>(
    bed: &T,
    (left, near): (&mut End, usize),
    (right, far): (&mut End, usize),
    qualifier: u64,
) {
    let is_established =
        |event: &ControlEvent| matches!(event, ControlEvent::Established { .. }).then_some(());
    let request = ConnectRequest {
        address: right.device.ia_attributes().ia_address,
        qualifier,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
    };
    let key = left.pairs[near].as_ref().unwrap().key;
    left.device.connect(key, &request).unwrap();
    let request = until(bed, right, |event| match event {
        ControlEvent::ConnectionRequest { request, .. } => Some(*request),
        _ => None,
    });
    let key = right.pairs[far].as_ref().unwrap().key;
    right.device.accept(request, key, &[]).unwrap();
    until(bed, left, is_established);
    until(bed, right, is_established);
}

/// Transfers `count` messages of `length` bytes on each connection of `left`, all at once.
///
/// Returns the fewest completions of a connection at the time when the first one has all.
pub(crate) fn stream<T: Testbed>(
    bed: &T,
    left: &mut End,
    right: &mut End,
    (count, length): (usize, usize),
    reads: bool,
) -> usize {
    let pairs = left.pairs.len();
    let (mut buffers, mut posts) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let content: Vec<u8> = (0..length).map(|at| (at ^ (pair * 7)) as u8).collect();
        let (source, target) = if reads {
            (content.clone(), vec![0; length])
        } else {
            (vec![0; length], content.clone())
        };
        let (there, _, remote) = right.memory(source);
        let (here, segment, _) = left.memory(target);
        let operation = if reads {
            SendOperation::RdmaRead(remote)
        } else {
            SendOperation::RdmaWrite(remote)
        };
        buffers.push((content, there, here));
        posts.push((operation, segment));
    }
    for _ in 0..count {
        for (pair, (operation, segment)) in posts.iter().enumerate() {
            left.post(pair, pair as u64, *operation, *segment);
        }
    }
    let (mut done, mut idle, mut fewest) = (vec![0; pairs], 0, None);
    while done.iter().any(|done| *done < count) {
        bed.step();
        idle += 1;
        while let Some((pair, status)) = left.poll() {
            assert_eq!(status, DtoStatus::Success, "queue pair {pair}");
            idle = 0;
            done[pair as usize] += 1;
            if done[pair as usize] == count {
                fewest = fewest.or(done.iter().copied().min());
            }
        }
        assert!(idle < PATIENCE, "{done:?} of {count} each");
    }
    for (content, there, here) in buffers {
        assert!(there == content && here == content);
    }
    fewest.expect("completions")
}
