//! A device for benchmarks that connects to itself at once and moves no data.
//!
//! It has one queue pair and one completion queue in use. Its queues are those of the ring device
//! or of another backend.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dat_core::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, BindRequest, CompletionQueue, ConnectRequest, ControlEvent,
    DisconnectMode, DomainKey, ListenerKey, PrivateData, QueuePair, QueuePairKey, QueuePairRequest,
    ReceiveQueue, ReceiveRequest, RegionKeys, Registration, Rejected, RemoteRange, RequestKey,
    Segment, SendOperation, SendQueue, SendRequest, SharedReceiveQueueKey, SyncDirection,
    WindowKey, WorkQueue, WorkSlot,
};
use dat_core::flags::{DtoStatus, EpCreator};
use dat_core::time::Instant;

use crate::ring::{
    CompletionRing, Outcome, PROVIDER, Ring, RingCompletions, RingQueue, SEGMENTS, Slot,
};

/// The queues and the other objects of a device; see [`Backend`] for those without a description.
pub trait Queues: Send + 'static {
    /// The type of its completion queues.
    type CompletionQueue: CompletionQueue + Send;
    /// The type of its send queues.
    type SendQueue: SendQueue + Send;
    /// The type of its receive queues.
    type ReceiveQueue: ReceiveQueue + Send;
    /// The type of its shared receive queues.
    type SharedReceiveQueue: ReceiveQueue + Send;
    /// The device itself, which completes what was posted.
    type Device: Clone;

    /// See [`Backend::READS_AT_POST`].
    const READS_AT_POST: bool = false;

    /// Returns the device.
    fn device(&self) -> Self::Device;

    /// Completes all posted requests and receives.
    fn complete_all(device: &Self::Device);

    /// Creates a domain.
    fn domain(&mut self) -> Result<DomainKey, BackendError> {
        Ok(DomainKey(0))
    }

    /// Creates a completion queue.
    fn completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError>;

    /// Creates a queue pair.
    fn queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError>;

    /// Creates a shared receive queue of `depth` buffers with `segments` segments each.
    fn shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError>;

    /// Registers a region; `number` is that of no other one.
    fn region(
        &mut self,
        number: u32,
        registration: &Registration,
    ) -> Result<RegionKeys, BackendError>;

    /// Deregisters a region.
    fn free_region(&mut self, _region: RegionKeys) {}

    /// Creates a window.
    fn window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError>;

    /// See [`Backend::needs_renewal`].
    fn needs_renewal(&self, _window: WindowKey, _missed: bool) -> bool {
        false
    }

    /// Frees a window.
    fn free_window(&mut self, _window: WindowKey) {}
}

/// Rings of the device, all in use by one queue pair.
///
/// `READS`: see [`Backend::READS_AT_POST`]. The device reads nothing; the core does not know that.
pub struct Rings<const READS: bool = false>(AllRings);

/// The rings, whose code is the same for both kinds: a program has it once, and not inlined.
struct AllRings {
    send: Ring,
    receive: Ring,
    completions: Arc<CompletionRing>,
    queue_pair: AtomicU64,
    /// Set if the receives come from a shared receive queue.
    shared: AtomicBool,
}

impl<const READS: bool> Rings<READS> {
    /// Returns empty rings.
    pub fn new() -> Self {
        Self(AllRings {
            send: Ring::new(),
            receive: Ring::new(),
            completions: Arc::new(CompletionRing::new(0)),
            queue_pair: AtomicU64::new(0),
            shared: AtomicBool::new(false),
        })
    }

    /// Completes all posted requests and receives; each receive has 8 bytes.
    #[inline(always)]
    pub fn complete_all(&self) {
        self.0.complete_all();
    }
}

impl AllRings {
    fn complete_all(&self) {
        self.complete(&self.send, None);
        self.complete(&self.receive, Some(8));
    }

    fn complete(&self, ring: &Ring, received: Option<u32>) {
        while let Some(work) = ring.fetch() {
            let _number = self.completions.write(&Outcome {
                token: work.token,
                queue_pair: self.queue_pair.load(Ordering::Relaxed),
                status: DtoStatus::Success,
                received,
                shared: received.is_some() && self.shared.load(Ordering::Relaxed),
                solicited: false,
            });
        }
    }
}

impl<const READS: bool> Default for Rings<READS> {
    fn default() -> Self {
        Self::new()
    }
}

/// A receive queue of the device.
type LoopReceives = RingQueue<ReceiveRequest, &'static Ring>;

/// A send queue that binds windows with requests.
pub struct BindingSends(RingQueue<SendRequest, &'static Ring>);

impl WorkQueue for BindingSends {
    type Request = SendRequest;
    type Slot<'a> = Slot<'a>;

    #[inline]
    fn reserve(&mut self, request: &SendRequest, segments: usize) -> Option<Slot<'_>> {
        self.0.reserve(request, segments)
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.0.ring()
    }
}

impl SendQueue for BindingSends {
    #[inline]
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let key = request.token as u32 | 1 << 31;
        let window = RemoteRange {
            address: request.window.0 as u64,
            key,
        };
        let descriptor = SendRequest {
            token: request.token,
            operation: SendOperation::RdmaWrite(window),
            flags: request.flags,
        };
        let mut slot = self.0.reserve(&descriptor, 1).ok_or(Rejected)?;
        slot.segment(Segment {
            address: request.address,
            length: request.length as u32,
            key: request.region.local,
        });
        slot.commit(0)?;
        self.0.ring().map_err(|_| Rejected)?;
        Ok(key)
    }
}

impl<const READS: bool> Queues for &'static Rings<READS> {
    type CompletionQueue = RingCompletions;
    type SendQueue = BindingSends;
    type ReceiveQueue = LoopReceives;
    type SharedReceiveQueue = LoopReceives;
    type Device = Self;

    const READS_AT_POST: bool = READS;

    fn device(&self) -> Self {
        self
    }

    fn complete_all(device: &Self) {
        Rings::complete_all(device);
    }

    fn completion_queue(
        &mut self,
        _number: u32,
        _depth: u32,
    ) -> Result<RingCompletions, BackendError> {
        Ok(RingCompletions::new(&self.0.completions))
    }

    fn queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<BindingSends, LoopReceives>, BackendError> {
        self.0.queue_pair.store(request.token, Ordering::Relaxed);
        let own = request.shared_receive_queue.is_none();
        Ok(QueuePair {
            key: QueuePairKey(0),
            send: BindingSends(RingQueue::new(&self.0.send)),
            receive: own.then(|| RingQueue::new(&self.0.receive)),
        })
    }

    fn shared_receive_queue(
        &mut self,
        _token: u64,
        _domain: DomainKey,
        _depth: u32,
        _segments: u32,
    ) -> Result<(SharedReceiveQueueKey, LoopReceives), BackendError> {
        self.0.shared.store(true, Ordering::Relaxed);
        Ok((SharedReceiveQueueKey(0), RingQueue::new(&self.0.receive)))
    }

    fn region(
        &mut self,
        number: u32,
        _registration: &Registration,
    ) -> Result<RegionKeys, BackendError> {
        Ok(RegionKeys {
            object: 0,
            local: number,
            remote: number,
        })
    }

    fn window(&mut self, _domain: DomainKey) -> Result<WindowKey, BackendError> {
        Ok(WindowKey(1))
    }
}

/// A device that connects to itself at once.
pub struct LoopDevice<Q> {
    queues: Q,
    regions: u32,
    established: Option<u64>,
}

/// The device with the queues of the ring device.
pub type RingDevice = LoopDevice<&'static Rings>;

impl<Q> LoopDevice<Q> {
    /// Returns a device on its queues.
    pub const fn new(queues: Q) -> Self {
        Self {
            queues,
            regions: 0,
            established: None,
        }
    }
}

#[expect(unsafe_code)]
// SAFETY: the device touches no memory. Its queues read memory at most during a post, as
// `READS_AT_POST` declares.
unsafe impl<Q: Queues> Backend for LoopDevice<Q> {
    type CompletionQueue = Q::CompletionQueue;
    type SendQueue = Q::SendQueue;
    type ReceiveQueue = Q::ReceiveQueue;
    type SharedReceiveQueue = Q::SharedReceiveQueue;

    const READS_AT_POST: bool = Q::READS_AT_POST;

    fn ia_attributes(&self) -> IaAttributes {
        IaAttributes {
            adapter_name: "ring0",
            vendor_name: "ring",
            hardware_version_major: 1,
            firmware_version_major: 1,
            ia_address: IaAddress::Node(0),
            max_eps: 4,
            max_dto_per_ep: 64,
            max_rdma_read_per_ep_in: 16,
            max_rdma_read_per_ep_out: 16,
            max_evds: 4,
            max_evd_qlen: 256,
            max_iov_segments_per_dto: SEGMENTS as i32,
            max_lmrs: 16,
            max_pzs: 4,
            max_message_size: u64::from(u32::MAX),
            max_rdma_size: u64::from(u32::MAX),
            max_rmrs: 4,
            max_srqs: 1,
            max_ep_per_srq: 4,
            max_recv_per_srq: 64,
            max_iov_segments_per_rdma_read: SEGMENTS as i32,
            max_iov_segments_per_rdma_write: SEGMENTS as i32,
            max_rdma_read_in: 16,
            max_rdma_read_out: 16,
            ..IaAttributes::DEFAULT
        }
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        ProviderAttributes {
            ep_creator: EpCreator::Never,
            srq_supported: true,
            dto_async_return_guaranteed: false,
            ..PROVIDER
        }
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.queues.domain()
    }

    fn destroy_domain(&mut self, _domain: DomainKey) {}

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.regions = self.regions.wrapping_add(1);
        self.queues.region(self.regions, registration)
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.queues.free_region(region);
    }

    fn sync(&mut self, _direction: SyncDirection, _address: u64, _length: u64) {}

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.queues.window(domain)
    }

    fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        self.queues.needs_renewal(window, missed)
    }

    fn destroy_window(&mut self, window: WindowKey) {
        self.queues.free_window(window);
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<Q::CompletionQueue, BackendError> {
        self.queues.completion_queue(number, depth)
    }

    fn resize_completion_queue(
        &mut self,
        _queue: &mut Q::CompletionQueue,
        _depth: u32,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    fn destroy_completion_queue(&mut self, _queue: Q::CompletionQueue) {}

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Q::SharedReceiveQueue), BackendError> {
        self.queues
            .shared_receive_queue(token, domain, depth, segments)
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Q::SendQueue, Q::ReceiveQueue>, BackendError> {
        self.established = Some(request.token);
        self.queues.queue_pair(request)
    }

    fn modify_queue_pair(
        &mut self,
        _key: QueuePairKey,
        _send: &mut Q::SendQueue,
        _receive: Option<&mut Q::ReceiveQueue>,
        _request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        _key: QueuePairKey,
        _send: &mut Q::SendQueue,
        _receive: Option<&mut Q::ReceiveQueue>,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        _key: QueuePairKey,
        _send: Q::SendQueue,
        _receive: Option<Q::ReceiveQueue>,
    ) {
    }

    fn listen(
        &mut self,
        _token: u64,
        _qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn stop_listening(&mut self, _listener: ListenerKey) {}

    fn connect(
        &mut self,
        _key: QueuePairKey,
        _request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        Ok(1)
    }

    fn accept(
        &mut self,
        _request: RequestKey,
        _key: QueuePairKey,
        _private_data: &[u8],
    ) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, _private_data: &[u8]) {}

    fn disconnect(&mut self, _key: QueuePairKey, _mode: DisconnectMode) {}

    fn poll_control(&mut self, _now: Instant) -> Option<ControlEvent> {
        let queue_pair = self.established.take()?;
        Some(ControlEvent::Established {
            queue_pair,
            private_data: PrivateData::new(),
        })
    }

    fn is_quiet(&self) -> bool {
        self.established.is_none()
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
