//! The driver: the methods of [`Backend`] on the ring device.

use alloc::sync::Arc;

use dat_core::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectFailure, ConnectRequest, ControlEvent, DisconnectMode, DomainKey,
    ListenerKey, PrivateData, QueuePair, QueuePairKey, QueuePairRequest, RegionKeys, Registration,
    RequestKey, SyncDirection,
};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};
use dat_core::time::Instant;

use super::device::Device;
use super::queues::{
    COMPLETIONS, CompletionRing, DESCRIPTORS, Ring, RingCompletions, RingQueue, RingReceives,
    RingSends, SEGMENTS,
};

/// Bytes of private data that a connection message carries.
const PRIVATE_DATA: usize = 64;
/// Bytes that a request moves at most.
const LARGEST_TRANSFER: u64 = 1 << 30;

/// The driver of a ring device.
pub struct RingBackend {
    pub(super) device: Device,
}

impl Drop for RingBackend {
    fn drop(&mut self) {
        self.device.close();
    }
}

/// Refuses a queue pair that exceeds the limits of the device.
fn check_limits(request: &QueuePairRequest) -> Result<(), BackendError> {
    let asked = &request.attributes;
    let fits = asked.max_recv_dtos.max(asked.max_request_dtos) <= DESCRIPTORS as i32
        && asked.max_recv_iov.max(asked.max_request_iov) <= SEGMENTS as i32;
    fits.then_some(()).ok_or(BackendError::Resources)
}

fn private_data(bytes: &[u8]) -> Result<PrivateData, BackendError> {
    let data = PrivateData::from_slice(bytes).ok();
    let data = data.filter(|data| data.len() <= PRIVATE_DATA);
    data.ok_or(BackendError::Resources)
}

/// Attributes of the provider of both devices.
pub(crate) const PROVIDER: ProviderAttributes = ProviderAttributes {
    provider_name: "ring",
    provider_version_major: 1,
    provider_version_minor: 0,
    dapl_version_major: 1,
    dapl_version_minor: 2,
    lmr_mem_types_supported: MemoryTypes::all(),
    iov_ownership_on_return: IovOwnership::Consumer,
    qos_supported: QualityOfService::BEST_EFFORT,
    completion_flags_supported: CompletionFlags::MANDATORY,
    is_thread_safe: true,
    max_private_data_size: PRIVATE_DATA as i32,
    supports_multipath: false,
    ep_creator: EpCreator::IfAsked,
    pz_support: PzSupport::Shareable,
    optimal_buffer_alignment: 64,
    evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
    srq_supported: false,
    srq_watermarks_supported: 0,
    srq_ep_pz_difference_supported: false,
    srq_info_supported: 0,
    ep_recv_info_supported: 0,
    lmr_sync_req: false,
    dto_async_return_guaranteed: true,
    rdma_write_for_rdma_read_req: false,
    provider_specific_attributes: &[],
};

#[expect(unsafe_code)]
// SAFETY: the device accesses memory only through its table of regions, which checks bounds, domain
// and privileges, and only while it holds the lock of the network. `deregister` and the drop of the
// backend remove regions under that lock.
unsafe impl Backend for RingBackend {
    type CompletionQueue = RingCompletions;
    type SendQueue = RingSends;
    type ReceiveQueue = RingReceives;
    type SharedReceiveQueue = RingReceives;

    fn ia_attributes(&self) -> IaAttributes {
        IaAttributes {
            adapter_name: "ring",
            vendor_name: "ring",
            hardware_version_major: 1,
            firmware_version_major: 1,
            ia_address: self.device.address(),
            max_eps: 1024,
            max_dto_per_ep: DESCRIPTORS as i32,
            max_rdma_read_per_ep_in: 16,
            max_rdma_read_per_ep_out: 16,
            max_evds: 1024,
            max_evd_qlen: COMPLETIONS as i32,
            max_iov_segments_per_dto: SEGMENTS as i32,
            max_lmrs: 1024,
            max_pzs: 1024,
            max_message_size: LARGEST_TRANSFER,
            max_rdma_size: LARGEST_TRANSFER,
            max_iov_segments_per_rdma_read: SEGMENTS as i32,
            max_iov_segments_per_rdma_write: SEGMENTS as i32,
            max_rdma_read_in: 1024,
            max_rdma_read_out: 1024,
            ..IaAttributes::DEFAULT
        }
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        PROVIDER
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        self.device.create_domain()
    }

    fn destroy_domain(&mut self, _domain: DomainKey) {}

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.device.register(registration)
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.device.deregister(region);
    }

    fn sync(&mut self, _direction: SyncDirection, _address: u64, _length: u64) {}

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<RingCompletions, BackendError> {
        if depth > COMPLETIONS {
            return Err(BackendError::Resources);
        }
        let ring = Arc::new(CompletionRing::new(number));
        self.device.add_completion_ring(&ring)?;
        Ok(RingCompletions::new(&ring))
    }

    // All rings have the largest depth.
    fn resize_completion_queue(
        &mut self,
        _queue: &mut RingCompletions,
        depth: u32,
    ) -> Result<(), BackendError> {
        let fits = depth <= COMPLETIONS;
        fits.then_some(()).ok_or(BackendError::Resources)
    }

    fn destroy_completion_queue(&mut self, queue: RingCompletions) {
        self.device.remove_completion_ring(queue.number());
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<RingSends, RingReceives>, BackendError> {
        check_limits(request)?;
        if request.shared_receive_queue.is_some() {
            return Err(BackendError::State);
        }
        let (send, receive) = (Arc::new(Ring::new()), Arc::new(Ring::new()));
        Ok(QueuePair {
            send: RingQueue::new(Arc::clone(&send)),
            receive: Some(RingQueue::new(Arc::clone(&receive))),
            key: QueuePairKey(self.device.create_pair(request, send, receive)?),
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut RingSends,
        _receive: Option<&mut RingReceives>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        check_limits(request)?;
        self.device.modify_pair(key.0, request)
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut RingSends,
        _receive: Option<&mut RingReceives>,
    ) -> Result<(), BackendError> {
        self.device.reset_pair(key.0)
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: RingSends,
        _receive: Option<RingReceives>,
    ) {
        self.device.destroy_pair(key.0);
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        usize::try_from(qualifier.unwrap_or(0)).map_err(|_| BackendError::Address)?;
        let qualifier = self.device.listen(token, qualifier)?;
        Ok((ListenerKey(qualifier as usize), qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.device.stop_listening(listener.0 as u64);
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let IaAddress::Node(address) = request.address else {
            return Err(BackendError::Address);
        };
        let data = private_data(request.private_data)?;
        self.device
            .connect(key.0, (address, request.qualifier), data)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.device.accept(request, key.0, private_data(bytes)?)
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, bytes: &[u8]) {
        let failure = match private_data(bytes) {
            Ok(data) if by_consumer => ConnectFailure::PeerRejected(data),
            _ => ConnectFailure::NonPeerRejected,
        };
        self.device.reject(request, failure);
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        self.device.disconnect(key.0, mode);
    }

    fn poll_control(&mut self, _now: Instant) -> Option<ControlEvent> {
        self.device.event()
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
