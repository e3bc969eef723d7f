//! Attributes of adapters and their provider.

use dat_core::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};

use crate::adapter::{Adapter, SEGMENTS, private_size};

/// Most bytes of a message or RDMA transfer (ROCE-24).
const LARGEST_TRANSFER: u64 = 1 << 31;
/// Requests or receives of an endpoint.
pub(crate) const WORK_REQUESTS: u32 = 1 << 14;
/// Reads under way of an endpoint, in each direction.
pub(crate) const READS: u32 = 128;
/// Completion queues.
pub(crate) const COMPLETION_QUEUES: u32 = 1 << 17;
/// Completions of a queue.
pub(crate) const COMPLETIONS: u32 = 1 << 20;
/// Protection domains.
pub(crate) const DOMAINS: u32 = 1 << 10;
/// Shared receive queues.
pub(crate) const SHARED_QUEUES: u32 = 1 << 10;
/// Receives of a shared queue.
pub(crate) const SHARED_RECEIVES: u32 = 1 << 20;

fn count(limit: impl TryInto<i32>) -> i32 {
    limit.try_into().unwrap_or(i32::MAX)
}

/// Returns the attributes of an adapter (`Spec: IAQ-03, IAQ-04`).
pub(crate) fn adapter(adapter: &Adapter) -> IaAttributes {
    let connections = count(adapter.connection_capacity());
    let keys = count(adapter.memories.capacity());
    let segments = count(SEGMENTS);
    let reads = count(READS);
    IaAttributes {
        adapter_name: adapter.options.name,
        vendor_name: "RoCEv2 in software",
        ia_address: IaAddress::from(adapter.address),
        max_eps: connections,
        max_dto_per_ep: count(WORK_REQUESTS),
        max_rdma_read_per_ep_in: reads,
        max_rdma_read_per_ep_out: reads,
        max_evds: count(COMPLETION_QUEUES),
        max_evd_qlen: count(COMPLETIONS),
        max_iov_segments_per_dto: segments,
        max_lmrs: keys,
        max_pzs: count(DOMAINS),
        max_message_size: LARGEST_TRANSFER,
        max_rdma_size: LARGEST_TRANSFER,
        max_rmrs: keys,
        max_srqs: count(SHARED_QUEUES),
        max_ep_per_srq: connections,
        max_recv_per_srq: count(SHARED_RECEIVES),
        max_iov_segments_per_rdma_read: segments,
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: reads.saturating_mul(connections),
        max_rdma_read_out: reads.saturating_mul(connections),
        ..IaAttributes::DEFAULT
    }
}

/// Returns the attributes of the provider (`Spec: IAQ-05` to `IAQ-10`).
pub(crate) fn provider() -> ProviderAttributes {
    ProviderAttributes {
        provider_name: "roce",
        provider_version_major: 0,
        provider_version_minor: 1,
        dapl_version_major: 1,
        dapl_version_minor: 2,
        lmr_mem_types_supported: MemoryTypes::all(),
        iov_ownership_on_return: IovOwnership::Consumer,
        qos_supported: QualityOfService::BEST_EFFORT,
        completion_flags_supported: CompletionFlags::MANDATORY,
        is_thread_safe: true,
        max_private_data_size: count(private_size()),
        supports_multipath: false,
        ep_creator: EpCreator::IfAsked,
        pz_support: PzSupport::Shareable,
        optimal_buffer_alignment: 64,
        evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
        srq_supported: true,
        srq_watermarks_supported: 2,
        srq_ep_pz_difference_supported: true,
        srq_info_supported: 1,
        ep_recv_info_supported: 1,
        lmr_sync_req: false,
        dto_async_return_guaranteed: true,
        rdma_write_for_rdma_read_req: false,
        provider_specific_attributes: &[],
    }
}
