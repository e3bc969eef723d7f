//! Limits of a device, and the attributes of its adapter and provider.

use dat_core::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};

use crate::ring::DeviceSlots;

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Name of the adapter.
    pub name: &'static str,
    /// Number of protection domains.
    pub domains: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of windows; 0 if the device has none.
    pub windows: u32,
    /// Number of completion queues.
    pub completion_queues: u32,
    /// Completions per queue.
    pub completions: u32,
    /// Number of queue pairs.
    pub queue_pairs: u32,
    /// Requests per send queue, and buffers per receive queue.
    pub work_requests: u32,
    /// Segments per request.
    pub segments: u32,
    /// Number of shared receive queues; 0 if the device has none.
    pub shared_receive_queues: u32,
    /// Buffers per shared receive queue.
    pub shared_buffers: u32,
    /// Pending RDMA Reads, per queue pair and direction.
    pub rdma_reads: u32,
    /// Bytes per message and RDMA transfer.
    pub transfer: u64,
    /// Most bytes of inline data of a Send or an RDMA Write, or 0.
    pub inline: u32,
}

/// Returns the lesser of a limit and a slot count, as an attribute.
fn count(limit: u32, slots: usize) -> i32 {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    i32::try_from(limit.min(slots)).unwrap_or(i32::MAX)
}

/// The attributes of the adapter (`Spec: IAQ-03, IAQ-04`).
pub(crate) fn adapter(
    vendor_name: &'static str,
    limits: &Limits,
    tables: &DeviceSlots<'_>,
    address: IaAddress,
) -> IaAttributes {
    let any = usize::MAX;
    let segments = count(limits.segments, any);
    let pairs = count(limits.queue_pairs, tables.generations.len() / 2);
    let reads = count(limits.rdma_reads, any);
    IaAttributes {
        adapter_name: limits.name,
        vendor_name,
        ia_address: address,
        max_eps: pairs,
        max_dto_per_ep: count(limits.work_requests, any),
        max_rdma_read_per_ep_in: reads,
        max_rdma_read_per_ep_out: reads,
        max_evds: count(limits.completion_queues, tables.completion_queues.len()),
        max_evd_qlen: count(limits.completions, any),
        max_iov_segments_per_dto: segments,
        max_lmrs: count(limits.regions, any),
        max_pzs: count(limits.domains, any),
        max_message_size: limits.transfer,
        max_rdma_size: limits.transfer,
        max_rmrs: count(limits.windows, any),
        max_srqs: count(
            limits.shared_receive_queues,
            tables.shared_receive_queues.len(),
        ),
        max_ep_per_srq: pairs,
        max_recv_per_srq: count(limits.shared_buffers, any),
        max_iov_segments_per_rdma_read: segments,
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: reads.saturating_mul(pairs),
        max_rdma_read_out: reads.saturating_mul(pairs),
        ..IaAttributes::DEFAULT
    }
}

/// The attributes of the provider (`Spec: IAQ-05` to `IAQ-10`).
pub(crate) fn provider(limits: &Limits, private_data: u32, coherent: bool) -> ProviderAttributes {
    ProviderAttributes {
        provider_name: "mmio",
        provider_version_major: 0,
        provider_version_minor: 1,
        dapl_version_major: 1,
        dapl_version_minor: 2,
        lmr_mem_types_supported: MemoryTypes::all(),
        iov_ownership_on_return: IovOwnership::Consumer,
        qos_supported: QualityOfService::BEST_EFFORT,
        completion_flags_supported: CompletionFlags::MANDATORY,
        is_thread_safe: true,
        max_private_data_size: count(private_data, usize::MAX),
        supports_multipath: false,
        ep_creator: EpCreator::IfAsked,
        pz_support: PzSupport::Shareable,
        optimal_buffer_alignment: 64,
        evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
        srq_supported: limits.shared_receive_queues != 0,
        // Only the low watermark.
        srq_watermarks_supported: 1,
        srq_ep_pz_difference_supported: true,
        // The core counts the buffers itself.
        srq_info_supported: 1,
        ep_recv_info_supported: 0,
        lmr_sync_req: !coherent,
        dto_async_return_guaranteed: true,
        rdma_write_for_rdma_read_req: false,
        provider_specific_attributes: &[],
    }
}
