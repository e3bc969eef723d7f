//! Attributes of the adapter and the provider.

use dat_core::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};

use super::control::Limits;
use super::defs::{KeyUpdate, LONGEST_PIECE, QUEUE_ENTRIES};
use super::send_queue::{blocks_for, blocks_of};
use super::storage::Tables;

/// Returns the lesser of a limit and a slot count, as an attribute.
fn count(least: u32, places: usize) -> i32 {
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    i32::try_from(least.min(places)).unwrap_or(i32::MAX)
}

/// The attributes of the adapter (`Spec: IAQ-03, IAQ-04`).
pub(crate) fn adapter(limits: &Limits, tables: &Tables<'_>, address: IaAddress) -> IaAttributes {
    let any = usize::MAX;
    let segments = count(limits.segments, any);
    let pairs = count(limits.queue_pairs, tables.lives.len() / 2);
    let reads = count(limits.rdma_reads, any);
    // `blocks` is the smallest reservation of a request, which may be a bind. One slot of a shared
    // receive queue is never posted, and one completion entry is reserved for a move.
    let blocks = if limits.windows == 0 {
        blocks_for(1)
    } else {
        blocks_of(u32::from(KeyUpdate::BIND_UNITS))
    };
    let requests = limits.work_requests.min(QUEUE_ENTRIES / blocks.max(1));
    let entries = QUEUE_ENTRIES - 1;
    // One window is left for the renewal of another.
    let windows = count(limits.windows, tables.windows.len());
    // A transfer may consist of one segment.
    let transfer = limits.transfer.min(u64::from(LONGEST_PIECE));
    IaAttributes {
        adapter_name: limits.name,
        vendor_name: "mlx5 data path",
        hardware_version_major: 0,
        hardware_version_minor: 0,
        firmware_version_major: 0,
        firmware_version_minor: 0,
        ia_address: address,
        max_eps: pairs,
        max_dto_per_ep: count(requests, any),
        max_rdma_read_per_ep_in: reads,
        max_rdma_read_per_ep_out: reads,
        max_evds: count(limits.completion_queues, tables.completion_queues.len()),
        max_evd_qlen: count(limits.completions.min(entries), any),
        max_iov_segments_per_dto: segments,
        max_lmrs: count(limits.regions, any),
        max_lmr_block_size: u64::MAX,
        max_lmr_virtual_address: u64::MAX,
        max_pzs: count(limits.domains, any),
        max_message_size: transfer,
        max_rdma_size: transfer,
        max_rmrs: if windows > 1 { windows - 1 } else { windows },
        max_rmr_target_address: u64::MAX,
        max_srqs: count(
            limits.shared_receive_queues,
            tables.shared_receive_queues.len(),
        ),
        max_ep_per_srq: pairs,
        max_recv_per_srq: count(limits.shared_buffers.min(entries), any),
        max_iov_segments_per_rdma_read: segments,
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: reads.saturating_mul(pairs),
        max_rdma_read_out: reads.saturating_mul(pairs),
        max_rdma_read_per_ep_in_guaranteed: true,
        max_rdma_read_per_ep_out_guaranteed: true,
        transport_attributes: &[],
        vendor_attributes: &[],
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
