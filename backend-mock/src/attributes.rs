//! Attributes of the adapters and their provider.

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};

use crate::options::NodeOptions;

/// Most bytes of a message or RDMA transfer.
const LARGEST_TRANSFER: u64 = 1 << 31;

fn count(limit: u32) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// Returns the attributes of the adapter (`Spec: IAQ-03, IAQ-04`).
pub(crate) fn adapter(options: &NodeOptions) -> IaAttributes {
    let limits = &options.limits;
    let segments = count(limits.segments);
    let reads = count(limits.rdma_reads);
    let windows = if options.memory_windows {
        count(limits.windows)
    } else {
        0
    };
    IaAttributes {
        adapter_name: options.name,
        vendor_name: "in-process fabric",
        ia_address: options.address,
        max_eps: count(limits.queue_pairs),
        max_dto_per_ep: count(limits.work_requests),
        max_rdma_read_per_ep_in: reads,
        max_rdma_read_per_ep_out: reads,
        max_evds: count(limits.completion_queues),
        max_evd_qlen: count(limits.completions),
        max_iov_segments_per_dto: segments,
        max_lmrs: count(limits.regions),
        max_pzs: count(limits.domains),
        max_message_size: LARGEST_TRANSFER,
        max_rdma_size: LARGEST_TRANSFER,
        max_rmrs: windows,
        max_srqs: count(limits.shared_receive_queues),
        max_ep_per_srq: count(limits.queue_pairs),
        max_recv_per_srq: count(limits.shared_buffers),
        max_iov_segments_per_rdma_read: segments,
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: reads.saturating_mul(count(limits.queue_pairs)),
        max_rdma_read_out: reads.saturating_mul(count(limits.queue_pairs)),
        ..IaAttributes::DEFAULT
    }
}

/// Returns the attributes of the provider (`Spec: IAQ-05` to `IAQ-10`).
pub(crate) fn provider(options: &NodeOptions, coherent: bool) -> ProviderAttributes {
    ProviderAttributes {
        provider_name: "mock",
        provider_version_major: 0,
        provider_version_minor: 1,
        dapl_version_major: 1,
        dapl_version_minor: 2,
        lmr_mem_types_supported: MemoryTypes::all(),
        iov_ownership_on_return: IovOwnership::Consumer,
        qos_supported: QualityOfService::BEST_EFFORT,
        completion_flags_supported: CompletionFlags::MANDATORY,
        is_thread_safe: true,
        max_private_data_size: count(options.limits.private_data),
        supports_multipath: false,
        ep_creator: EpCreator::IfAsked,
        pz_support: PzSupport::Shareable,
        optimal_buffer_alignment: 64,
        evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
        srq_supported: true,
        srq_watermarks_supported: 2,
        srq_ep_pz_difference_supported: true,
        srq_info_supported: i32::from(options.shared_receive_information),
        ep_recv_info_supported: i32::from(options.receive_information),
        lmr_sync_req: !coherent,
        dto_async_return_guaranteed: true,
        rdma_write_for_rdma_read_req: false,
        provider_specific_attributes: &[],
    }
}
