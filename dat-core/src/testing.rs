//! A backend for the core's own tests: queues in memory that complete on command, control events
//! from a script, and a log of what the core asked for.
//!
//! A test keeps a clone of the [`TestBackend`] that the adapter owns; both speak of one device.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::vec::Vec;

use crate::attributes::{EpAttributes, IaAddress, IaAttributes, ProviderAttributes};
use crate::backend::{
    Armed, Backend, BackendError, BindRequest, Completion, CompletionQueue, ConnectRequest,
    ControlEvent, DeviceFailure, DisconnectMode, DomainKey, ListenerKey, QueuePair, QueuePairKey,
    QueuePairRequest, ReceiveInfo, ReceiveRequest, RegionKeys, Registration, Rejected, RequestKey,
    Segment, SendOperation, SendQueue, SendRequest, SharedReceiveQueueKey, SyncDirection,
    WindowKey, WorkQueue, WorkSlot,
};
use crate::flags::{
    CompletionFlags, DtoStatus, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};
use crate::storage::IaStorage;
use crate::sync::NoLock;
use crate::time::Instant;

/// Storage that is enough for any test of the core: 8 endpoints, 8 dispatchers, 4 shared queues,
/// 8 regions, 64 events, 256 records.
pub(crate) type TestStorage = IaStorage<TestBackend, NoLock, 8, 8, 4, 8, 64, 256>;

/// What the adapter of the test device is.
pub(crate) const IA_ATTRIBUTES: IaAttributes = IaAttributes {
    adapter_name: "test0",
    vendor_name: "none",
    hardware_version_major: 1,
    hardware_version_minor: 0,
    firmware_version_major: 1,
    firmware_version_minor: 0,
    ia_address: IaAddress::Node(1),
    max_eps: 8,
    max_dto_per_ep: 64,
    max_rdma_read_per_ep_in: 4,
    max_rdma_read_per_ep_out: 4,
    max_evds: 8,
    max_evd_qlen: 48,
    max_iov_segments_per_dto: 4,
    max_lmrs: 8,
    max_lmr_block_size: 1 << 30,
    max_lmr_virtual_address: u64::MAX,
    max_pzs: 8,
    max_message_size: 1 << 30,
    max_rdma_size: 1 << 30,
    max_rmrs: 8,
    max_rmr_target_address: u64::MAX,
    max_srqs: 4,
    max_ep_per_srq: 8,
    max_recv_per_srq: 64,
    max_iov_segments_per_rdma_read: 4,
    max_iov_segments_per_rdma_write: 4,
    max_rdma_read_in: 32,
    max_rdma_read_out: 32,
    max_rdma_read_per_ep_in_guaranteed: true,
    max_rdma_read_per_ep_out_guaranteed: true,
    transport_attributes: &[],
    vendor_attributes: &[],
};

/// What the provider of the test device can do: everything.
pub(crate) const PROVIDER_ATTRIBUTES: ProviderAttributes = ProviderAttributes {
    provider_name: "test",
    provider_version_major: 0,
    provider_version_minor: 1,
    dapl_version_major: 1,
    dapl_version_minor: 2,
    lmr_mem_types_supported: MemoryTypes::all(),
    iov_ownership_on_return: IovOwnership::Consumer,
    qos_supported: QualityOfService::BEST_EFFORT,
    completion_flags_supported: CompletionFlags::MANDATORY,
    is_thread_safe: true,
    max_private_data_size: 64,
    supports_multipath: false,
    ep_creator: EpCreator::IfAsked,
    pz_support: PzSupport::Shareable,
    optimal_buffer_alignment: 64,
    evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
    srq_supported: true,
    srq_watermarks_supported: 1,
    srq_ep_pz_difference_supported: false,
    srq_info_supported: 1,
    ep_recv_info_supported: 0,
    lmr_sync_req: false,
    dto_async_return_guaranteed: true,
    rdma_write_for_rdma_read_req: false,
    provider_specific_attributes: &[],
};

/// What a work request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send(SendRequest),
    Bind(BindRequest),
    Receive(ReceiveRequest),
}

impl Work {
    pub(crate) fn token(&self) -> u64 {
        match self {
            Self::Send(request) => request.token,
            Self::Bind(request) => request.token,
            Self::Receive(request) => request.token,
        }
    }
}

/// A posted work request with its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) work: Work,
    pub(crate) segments: Vec<Segment>,
}

/// What the core asked the device for, besides posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Register {
        base: u64,
        length: usize,
    },
    Deregister(RegionKeys),
    Sync(SyncDirection, u64, u64),
    CreateCompletionQueue {
        number: u16,
        depth: u32,
    },
    ResizeCompletionQueue {
        number: u16,
        depth: u32,
    },
    DestroyCompletionQueue {
        number: u16,
    },
    ArmSharedLimit(SharedReceiveQueueKey, u32),
    CreateQueuePair(QueuePairKey),
    ModifyQueuePair(QueuePairKey),
    ResetQueuePair(QueuePairKey),
    DestroyQueuePair(QueuePairKey),
    HighWatermarks(QueuePairKey, Option<u32>, Option<u32>),
    Listen {
        token: u64,
        qualifier: u64,
    },
    StopListening(ListenerKey),
    Connect {
        key: QueuePairKey,
        qualifier: u64,
        private_data: Vec<u8>,
    },
    Accept {
        request: RequestKey,
        key: QueuePairKey,
        private_data: Vec<u8>,
    },
    Reject {
        request: RequestKey,
        by_consumer: bool,
        private_data: Vec<u8>,
    },
    Disconnect(QueuePairKey, DisconnectMode),
}

#[derive(Debug, Default)]
struct Completions {
    depth: u32,
    queued: VecDeque<Completion>,
    /// Armed, for solicited completions only if true inside.
    armed: Option<bool>,
    /// Completions that slip in while the queue is being armed.
    slipping: VecDeque<Completion>,
    failure: Option<DeviceFailure>,
}

#[derive(Debug)]
struct Pair {
    token: u64,
    attributes: EpAttributes,
    request_queue: Option<u16>,
    receive_queue: Option<u16>,
    requests: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    in_error: bool,
}

#[derive(Debug)]
struct SharedReceives {
    depth: u32,
    segments: u32,
    receives: VecDeque<Posted>,
}

#[derive(Debug)]
struct Device {
    ia: IaAttributes,
    provider: ProviderAttributes,
    next_key: usize,
    completions: BTreeMap<u16, Completions>,
    pairs: BTreeMap<usize, Pair>,
    shared: BTreeMap<usize, SharedReceives>,
    listeners: BTreeMap<usize, u64>,
    domains: usize,
    windows: usize,
    regions: usize,
    control: VecDeque<ControlEvent>,
    calls: Vec<Call>,
    refusals: VecDeque<BackendError>,
    deadline: Option<Instant>,
    before_destroy: Step,
}

/// Something that happens once in the middle of a call.
#[derive(Default)]
struct Step(Option<std::boxed::Box<dyn FnOnce() + Send>>);

impl core::fmt::Debug for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Step").field(&self.0.is_some()).finish()
    }
}

impl Device {
    fn key(&mut self) -> usize {
        self.next_key += 1;
        self.next_key
    }

    /// The error the test wants the next call to fail with.
    fn refuse(&mut self) -> Result<(), BackendError> {
        match self.refusals.pop_front() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn complete(&mut self, queue: Option<u16>, completion: Completion) {
        let Some(number) = queue else { return };
        let Some(completions) = self.completions.get_mut(&number) else {
            return;
        };
        if completions.queued.len() >= completions.depth as usize {
            completions.failure = Some(DeviceFailure::CompletionQueueOverrun);
            return;
        }
        completions.queued.push_back(completion);
        let heard = match completions.armed {
            None => false,
            Some(false) => true,
            Some(true) => completion.solicited || completion.status != DtoStatus::Success,
        };
        if heard {
            completions.armed = None;
            self.control
                .push_back(ControlEvent::Completions { queue: number });
        }
    }

    /// Everything posted to a queue pair in error completes flushed.
    fn flush(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(&key) else {
            return;
        };
        if !pair.in_error {
            return;
        }
        let (request_queue, receive_queue) = (pair.request_queue, pair.receive_queue);
        let token = pair.token;
        let requests: Vec<_> = pair.requests.drain(..).collect();
        let receives: Vec<_> = pair.receives.drain(..).collect();
        let flushed = |posted: &Posted| Completion {
            token: posted.work.token(),
            status: DtoStatus::Flushed,
            length: 0,
            queue_pair: token,
            solicited: false,
        };
        for posted in &requests {
            self.complete(request_queue, flushed(posted));
        }
        for posted in &receives {
            self.complete(receive_queue, flushed(posted));
        }
    }
}

/// The device under an adapter, and the test's hand on it.
#[derive(Clone, Debug)]
pub(crate) struct TestBackend(Arc<Mutex<Device>>);

impl Default for TestBackend {
    fn default() -> Self {
        Self::new(IA_ATTRIBUTES, PROVIDER_ATTRIBUTES)
    }
}

impl TestBackend {
    pub(crate) fn new(ia: IaAttributes, provider: ProviderAttributes) -> Self {
        Self(Arc::new(Mutex::new(Device {
            ia,
            provider,
            next_key: 0,
            completions: BTreeMap::new(),
            pairs: BTreeMap::new(),
            shared: BTreeMap::new(),
            listeners: BTreeMap::new(),
            domains: 0,
            windows: 0,
            regions: 0,
            control: VecDeque::new(),
            calls: Vec::new(),
            refusals: VecDeque::new(),
            deadline: None,
            before_destroy: Step::default(),
        })))
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call that can fail fails with this.
    pub(crate) fn refuse_next(&self, error: BackendError) {
        self.device().refusals.push_back(error);
    }

    /// What happens before the device destroys the next queue pair.
    #[cfg(feature = "std")]
    pub(crate) fn before_destroy(&self, step: impl FnOnce() + Send + 'static) {
        self.device().before_destroy = Step(Some(std::boxed::Box::new(step)));
    }

    /// A control event that `progress` will find.
    pub(crate) fn push_control(&self, event: ControlEvent) {
        self.device().control.push_back(event);
    }

    /// When the device wants to be asked again.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.device().deadline = deadline;
    }

    /// What the core asked for since the last look.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        core::mem::take(&mut self.device().calls)
    }

    /// Objects the device has now: domains, regions, windows, completion queues, queue pairs,
    /// shared receive queues, listeners.
    pub(crate) fn objects(&self) -> [usize; 7] {
        let device = self.device();
        [
            device.domains,
            device.regions,
            device.windows,
            device.completions.len(),
            device.pairs.len(),
            device.shared.len(),
            device.listeners.len(),
        ]
    }

    /// The queue pair with this token.
    pub(crate) fn pair(&self, token: u64) -> Option<QueuePairKey> {
        let device = self.device();
        let (key, _) = device.pairs.iter().find(|(_, pair)| pair.token == token)?;
        Some(QueuePairKey(*key))
    }

    /// The attributes a queue pair was made with, or last changed to.
    pub(crate) fn pair_attributes(&self, key: QueuePairKey) -> Option<EpAttributes> {
        self.device().pairs.get(&key.0).map(|pair| pair.attributes)
    }

    /// What is posted to a queue pair and not completed: requests, receives.
    pub(crate) fn posted(&self, key: QueuePairKey) -> (Vec<Posted>, Vec<Posted>) {
        let device = self.device();
        device
            .pairs
            .get(&key.0)
            .map_or_else(Default::default, |pair| {
                (
                    pair.requests.iter().cloned().collect(),
                    pair.receives.iter().cloned().collect(),
                )
            })
    }

    /// Buffers on a shared receive queue.
    pub(crate) fn shared_posted(&self, key: SharedReceiveQueueKey) -> Vec<Posted> {
        let device = self.device();
        device
            .shared
            .get(&key.0)
            .map_or_else(Vec::new, |shared| shared.receives.iter().cloned().collect())
    }

    /// Completes the oldest request of a queue pair; false if there is none.
    pub(crate) fn complete_request(&self, key: QueuePairKey, status: DtoStatus) -> bool {
        let mut device = self.device();
        let Some(pair) = device.pairs.get_mut(&key.0) else {
            return false;
        };
        let Some(posted) = pair.requests.pop_front() else {
            return false;
        };
        let queue = pair.request_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length: 0,
            queue_pair: pair.token,
            solicited: false,
        };
        device.complete(queue, completion);
        true
    }

    /// Completes the oldest receive of a queue pair; false if there is none.
    pub(crate) fn complete_receive(
        &self,
        key: QueuePairKey,
        status: DtoStatus,
        length: u32,
        solicited: bool,
    ) -> bool {
        let mut device = self.device();
        let Some(pair) = device.pairs.get_mut(&key.0) else {
            return false;
        };
        let Some(posted) = pair.receives.pop_front() else {
            return false;
        };
        let queue = pair.receive_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length,
            queue_pair: pair.token,
            solicited,
        };
        device.complete(queue, completion);
        true
    }

    /// A queue pair takes the buffer at `position` of a shared receive queue and completes it.
    pub(crate) fn complete_shared(
        &self,
        shared: SharedReceiveQueueKey,
        position: usize,
        taker: QueuePairKey,
        status: DtoStatus,
        length: u32,
    ) -> bool {
        let mut device = self.device();
        let posted = device
            .shared
            .get_mut(&shared.0)
            .and_then(|shared| shared.receives.remove(position));
        let (Some(posted), Some(pair)) = (posted, device.pairs.get(&taker.0)) else {
            return false;
        };
        let queue = pair.receive_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length,
            queue_pair: pair.token,
            solicited: false,
        };
        device.complete(queue, completion);
        true
    }

    /// Puts any completion into a completion queue, also one no real device would make.
    pub(crate) fn inject(&self, queue: u16, completion: Completion) {
        self.device().complete(Some(queue), completion);
    }

    /// A completion that shows up between a poll that found nothing and the arming.
    pub(crate) fn slip_in(&self, queue: u16, completion: Completion) {
        if let Some(completions) = self.device().completions.get_mut(&queue) {
            completions.slipping.push_back(completion);
        }
    }

    /// A completion queue fails for good.
    pub(crate) fn fail_queue(&self, queue: u16, failure: DeviceFailure) {
        let mut device = self.device();
        if let Some(completions) = device.completions.get_mut(&queue) {
            completions.failure = Some(failure);
            if completions.armed.take().is_some() {
                device
                    .control
                    .push_back(ControlEvent::Completions { queue });
            }
        }
    }

    /// Whether a completion queue is armed, and if so for solicited completions only.
    pub(crate) fn armed(&self, queue: u16) -> Option<bool> {
        self.device()
            .completions
            .get(&queue)
            .and_then(|completions| completions.armed)
    }

    /// The connection ended: what is posted is flushed.
    pub(crate) fn break_pair(&self, key: QueuePairKey) {
        let mut device = self.device();
        if let Some(pair) = device.pairs.get_mut(&key.0) {
            pair.in_error = true;
        }
        device.flush(key.0);
    }
}

/// A completion queue of the test device.
#[derive(Debug)]
pub(crate) struct TestCompletionQueue {
    backend: TestBackend,
    number: u16,
}

impl CompletionQueue for TestCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        let mut device = self.backend.device();
        let Some(completions) = device.completions.get_mut(&self.number) else {
            return Err(DeviceFailure::Broken);
        };
        match (completions.queued.pop_front(), completions.failure) {
            (Some(completion), _) => Ok(Some(completion)),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        let mut device = self.backend.device();
        let Some(completions) = device.completions.get_mut(&self.number) else {
            return Armed::Armed;
        };
        completions.queued.extend(completions.slipping.pop_front());
        if completions.queued.is_empty() && completions.failure.is_none() {
            completions.armed = Some(solicited_only);
            Armed::Armed
        } else {
            Armed::Missed
        }
    }
}

/// Where a work queue's requests go.
#[derive(Clone, Copy, Debug)]
enum Place {
    Requests(QueuePairKey),
    Receives(QueuePairKey),
    Shared(SharedReceiveQueueKey),
}

/// A send queue of the test device.
#[derive(Debug)]
pub(crate) struct TestSendQueue {
    backend: TestBackend,
    key: QueuePairKey,
}

/// A receive queue of the test device, shared or not.
#[derive(Debug)]
pub(crate) struct TestReceiveQueue {
    backend: TestBackend,
    place: Place,
}

/// A reserved place in a queue of the test device.
#[derive(Debug)]
pub(crate) struct TestSlot<'a> {
    backend: &'a TestBackend,
    place: Place,
    room: usize,
    segments: Vec<Segment>,
}

impl<'a> TestSlot<'a> {
    fn reserve(backend: &'a TestBackend, place: Place, segments: usize) -> Option<Self> {
        let device = backend.device();
        let (length, limit) = match place {
            Place::Requests(key) => {
                let pair = device.pairs.get(&key.0)?;
                (pair.requests.len(), pair.attributes.max_request_dtos)
            }
            Place::Receives(key) => {
                let pair = device.pairs.get(&key.0)?;
                (pair.receives.len(), pair.attributes.max_recv_dtos)
            }
            Place::Shared(key) => {
                let shared = device.shared.get(&key.0)?;
                assert!(
                    segments <= shared.segments as usize,
                    "more segments than the shared queue was made for"
                );
                (shared.receives.len(), shared.depth as i32)
            }
        };
        ((length as i64) < i64::from(limit)).then(|| Self {
            backend,
            place,
            room: segments,
            segments: Vec::new(),
        })
    }

    fn add(&mut self, segment: Segment) {
        assert_ne!(segment.length, 0, "a backend gets no empty segments");
        assert!(
            self.segments.len() < self.room,
            "more segments than reserved"
        );
        self.segments.push(segment);
    }

    fn publish(self, work: Work) -> Result<(), Rejected> {
        let mut device = self.backend.device();
        if device.refuse().is_err() {
            return Err(Rejected);
        }
        let posted = Posted {
            work,
            segments: self.segments,
        };
        match self.place {
            Place::Requests(key) => {
                let pair = device.pairs.get_mut(&key.0).ok_or(Rejected)?;
                pair.requests.push_back(posted);
                device.flush(key.0);
            }
            Place::Receives(key) => {
                let pair = device.pairs.get_mut(&key.0).ok_or(Rejected)?;
                pair.receives.push_back(posted);
                device.flush(key.0);
            }
            Place::Shared(key) => {
                let shared = device.shared.get_mut(&key.0).ok_or(Rejected)?;
                shared.receives.push_back(posted);
            }
        }
        Ok(())
    }
}

/// A reserved place of a send queue.
#[derive(Debug)]
pub(crate) struct TestSendSlot<'a>(TestSlot<'a>);

impl WorkSlot for TestSendSlot<'_> {
    type Request = SendRequest;

    fn segment(&mut self, segment: Segment) {
        self.0.add(segment);
    }

    fn commit(self, request: &SendRequest) -> Result<(), Rejected> {
        let local: u64 = self
            .0
            .segments
            .iter()
            .map(|piece| u64::from(piece.length))
            .sum();
        // The room for an RDMA Read may be longer than what is read.
        if !matches!(request.operation, SendOperation::RdmaRead(_)) {
            assert_eq!(
                local,
                u64::from(request.length),
                "the length is the sum of the segments"
            );
        }
        self.0.publish(Work::Send(*request))
    }
}

/// A reserved place of a receive queue.
#[derive(Debug)]
pub(crate) struct TestReceiveSlot<'a>(TestSlot<'a>);

impl WorkSlot for TestReceiveSlot<'_> {
    type Request = ReceiveRequest;

    fn segment(&mut self, segment: Segment) {
        self.0.add(segment);
    }

    fn commit(self, request: &ReceiveRequest) -> Result<(), Rejected> {
        self.0.publish(Work::Receive(*request))
    }
}

impl WorkQueue for TestSendQueue {
    type Request = SendRequest;
    type Slot<'a> = TestSendSlot<'a>;

    fn reserve(&mut self, segments: usize) -> Option<TestSendSlot<'_>> {
        TestSlot::reserve(&self.backend, Place::Requests(self.key), segments).map(TestSendSlot)
    }
}

impl SendQueue for TestSendQueue {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let place = Place::Requests(self.key);
        let slot = TestSlot::reserve(&self.backend, place, 0).ok_or(Rejected)?;
        slot.publish(Work::Bind(*request))?;
        Ok(self.backend.device().key() as u32)
    }
}

impl WorkQueue for TestReceiveQueue {
    type Request = ReceiveRequest;
    type Slot<'a> = TestReceiveSlot<'a>;

    fn reserve(&mut self, segments: usize) -> Option<TestReceiveSlot<'_>> {
        TestSlot::reserve(&self.backend, self.place, segments).map(TestReceiveSlot)
    }
}

#[expect(unsafe_code)]
// SAFETY: it touches no memory.
unsafe impl Backend for TestBackend {
    type CompletionQueue = TestCompletionQueue;
    type SendQueue = TestSendQueue;
    type ReceiveQueue = TestReceiveQueue;
    type SharedReceiveQueue = TestReceiveQueue;

    fn ia_attributes(&self) -> IaAttributes {
        self.device().ia
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        self.device().provider
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.domains += 1;
        Ok(DomainKey(device.key()))
    }

    fn destroy_domain(&mut self, _domain: DomainKey) {
        self.device().domains -= 1;
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.regions += 1;
        device.calls.push(Call::Register {
            base: registration.base().addr() as u64,
            length: registration.length(),
        });
        let object = device.key();
        let remote = registration.privileges().intersects(
            crate::flags::MemoryPrivileges::REMOTE_READ
                | crate::flags::MemoryPrivileges::REMOTE_WRITE,
        );
        Ok(RegionKeys {
            object,
            local: 0x1000 + object as u32,
            remote: if remote { 0x2000 + object as u32 } else { 0 },
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        let mut device = self.device();
        device.regions -= 1;
        device.calls.push(Call::Deregister(region));
    }

    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64) {
        self.device()
            .calls
            .push(Call::Sync(direction, address, length));
    }

    fn create_window(&mut self, _domain: DomainKey) -> Result<WindowKey, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.windows += 1;
        Ok(WindowKey(device.key()))
    }

    fn destroy_window(&mut self, _window: WindowKey) {
        self.device().windows -= 1;
    }

    fn create_completion_queue(
        &mut self,
        number: u16,
        depth: u32,
    ) -> Result<TestCompletionQueue, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device
            .calls
            .push(Call::CreateCompletionQueue { number, depth });
        let fresh = Completions {
            depth,
            ..Completions::default()
        };
        assert!(device.completions.insert(number, fresh).is_none());
        Ok(TestCompletionQueue {
            backend: self.clone(),
            number,
        })
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut TestCompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::ResizeCompletionQueue {
            number: queue.number,
            depth,
        });
        let completions = device
            .completions
            .get_mut(&queue.number)
            .ok_or(BackendError::Device)?;
        completions.depth = depth;
        Ok(())
    }

    fn destroy_completion_queue(&mut self, queue: TestCompletionQueue) {
        let mut device = self.device();
        let number = queue.number;
        let used =
            |pair: &Pair| pair.request_queue == Some(number) || pair.receive_queue == Some(number);
        assert!(!device.pairs.values().any(used), "queue pairs go first");
        device.calls.push(Call::DestroyCompletionQueue { number });
        device.completions.remove(&number);
    }

    fn create_shared_receive_queue(
        &mut self,
        _token: u64,
        _domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, TestReceiveQueue), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        let key = device.key();
        device.shared.insert(
            key,
            SharedReceives {
                depth,
                segments,
                receives: VecDeque::new(),
            },
        );
        let key = SharedReceiveQueueKey(key);
        let queue = TestReceiveQueue {
            backend: self.clone(),
            place: Place::Shared(key),
        };
        Ok((key, queue))
    }

    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: &mut TestReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        let shared = device.shared.get_mut(&key.0).ok_or(BackendError::Device)?;
        shared.depth = depth;
        Ok(())
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::ArmSharedLimit(key, limit));
        Ok(())
    }

    fn shared_receive_available(&self, key: SharedReceiveQueueKey) -> Option<u32> {
        let device = self.device();
        device
            .shared
            .get(&key.0)
            .map(|shared| shared.receives.len() as u32)
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: TestReceiveQueue,
    ) {
        self.device().shared.remove(&key.0);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<TestSendQueue, TestReceiveQueue>, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        let key = QueuePairKey(device.key());
        device.calls.push(Call::CreateQueuePair(key));
        device.pairs.insert(
            key.0,
            Pair {
                token: request.token,
                attributes: request.attributes,
                request_queue: request.request_queue,
                receive_queue: request.receive_queue,
                requests: VecDeque::new(),
                receives: VecDeque::new(),
                in_error: false,
            },
        );
        Ok(QueuePair {
            key,
            send: TestSendQueue {
                backend: self.clone(),
                key,
            },
            receive: request
                .shared_receive_queue
                .is_none()
                .then(|| TestReceiveQueue {
                    backend: self.clone(),
                    place: Place::Receives(key),
                }),
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut TestSendQueue,
        _receive: Option<&mut TestReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::ModifyQueuePair(key));
        let pair = device.pairs.get_mut(&key.0).ok_or(BackendError::Device)?;
        pair.attributes = request.attributes;
        pair.request_queue = request.request_queue;
        pair.receive_queue = request.receive_queue;
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut TestSendQueue,
        _receive: Option<&mut TestReceiveQueue>,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::ResetQueuePair(key));
        let pair = device.pairs.get_mut(&key.0).ok_or(BackendError::Device)?;
        pair.in_error = false;
        pair.requests.clear();
        pair.receives.clear();
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: TestSendQueue,
        _receive: Option<TestReceiveQueue>,
    ) {
        let step = core::mem::take(&mut self.device().before_destroy);
        if let Some(step) = step.0 {
            step();
        }
        let mut device = self.device();
        device.calls.push(Call::DestroyQueuePair(key));
        device.pairs.remove(&key.0);
    }

    fn set_high_watermarks(
        &mut self,
        key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::HighWatermarks(key, soft, hard));
        Ok(())
    }

    fn receive_info(&self, _key: QueuePairKey) -> ReceiveInfo {
        ReceiveInfo::default()
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        let key = device.key();
        let qualifier = qualifier.unwrap_or(0x1_0000 + key as u64);
        if device.listeners.values().any(|taken| *taken == qualifier) {
            return Err(BackendError::QualifierInUse);
        }
        device.listeners.insert(key, qualifier);
        device.calls.push(Call::Listen { token, qualifier });
        Ok((ListenerKey(key), qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        let mut device = self.device();
        device.listeners.remove(&listener.0);
        device.calls.push(Call::StopListening(listener));
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::Connect {
            key,
            qualifier: request.qualifier,
            private_data: request.private_data.to_vec(),
        });
        Ok(0x8000 + key.0 as u64)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let mut device = self.device();
        device.refuse()?;
        device.calls.push(Call::Accept {
            request,
            key,
            private_data: private_data.to_vec(),
        });
        Ok(())
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        self.device().calls.push(Call::Reject {
            request,
            by_consumer,
            private_data: private_data.to_vec(),
        });
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        self.device().calls.push(Call::Disconnect(key, mode));
        self.break_pair(key);
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        let mut device = self.device();
        if device.deadline.is_some_and(|deadline| deadline <= now) {
            device.deadline = None;
        }
        device.control.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.device().deadline
    }
}

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct WakeCount(AtomicUsize);

impl WakeCount {
    /// The count and a waker that steps it.
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    /// How often the waker was used since the last look.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sleeping without time passing: each sleep runs the next step of a script, and the clock jumps
/// to the deadline once the script is over.
pub(crate) struct ScriptedWait<'a> {
    pub(crate) now: Instant,
    pub(crate) steps: VecDeque<std::boxed::Box<dyn FnMut() + 'a>>,
    /// The sleep after the script is interrupted instead.
    pub(crate) interrupted: bool,
    /// What each sleep was asked to end at.
    pub(crate) asked: Vec<Option<Instant>>,
}

impl<'a> ScriptedWait<'a> {
    pub(crate) fn at(now: u64) -> Self {
        Self {
            now: Instant::from_micros(now),
            steps: VecDeque::new(),
            interrupted: false,
            asked: Vec::new(),
        }
    }

    pub(crate) fn then(mut self, step: impl FnMut() + 'a) -> Self {
        self.steps.push_back(std::boxed::Box::new(step));
        self
    }
}

impl crate::event::Wait for ScriptedWait<'_> {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> crate::event::WakeReason {
        use crate::event::WakeReason;
        self.asked.push(until);
        if let Some(mut step) = self.steps.pop_front() {
            step();
            return WakeReason::Woken;
        }
        if self.interrupted {
            return WakeReason::Interrupted;
        }
        let until = until.expect("a wait without end and without a script");
        self.now = self.now.max(until);
        WakeReason::TimedOut
    }
}

/// An adapter on the test device, with an asynchronous dispatcher of 4 events.
pub(crate) fn open<'s>(
    storage: &'s mut TestStorage,
    device: &TestBackend,
) -> crate::ia::Ia<'s, TestBackend, NoLock> {
    crate::ia::Ia::open(device.clone(), storage.lend(), 4).expect("the test adapter opens")
}
