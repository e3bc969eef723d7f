//! A backend for the core's own tests.
//!
//! Its queues are in memory and complete on command; its control events come from a script; it logs
//! the core's calls. A test keeps a clone of the [`TestBackend`] that the adapter owns; both refer
//! to one device.

mod backend;
mod command;
mod device;
pub(crate) mod fixture;
mod queues;
mod wait;

pub(crate) use command::TestBackend;
pub(crate) use device::{Call, Posted, Work};
pub(crate) use wait::{ScriptedWait, WakeCount};

use crate::attributes::{IaAddress, IaAttributes, ProviderAttributes};
use crate::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};
use crate::sync::NoLock;

std::thread_local! {
    /// Sections with interrupts masked that the current context is in.
    pub(crate) static MASKED: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

crate::define_storage! {
    /// Storage for any test of the core.
    pub(crate) struct TestStorage for TestBackend, NoLock {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 8,
        shared_receive_queues: 4,
        public_service_points: 8,
        reserved_service_points: 8,
        connection_requests: 8,
        events: 64,
        records: 256,
    }
}

#[cfg(feature = "std")]
crate::define_storage! {
    /// Storage for tests with threads.
    pub(crate) struct Slots<L: crate::sync::RawLock> for TestBackend, L {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 16,
    }
}

/// Attributes of the test adapter.
pub(crate) const IA_ATTRIBUTES: IaAttributes = IaAttributes {
    adapter_name: "test0",
    vendor_name: "none",
    hardware_version_major: 1,
    firmware_version_major: 1,
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
    max_pzs: 8,
    max_message_size: 1 << 30,
    max_rdma_size: 1 << 30,
    max_rmrs: 8,
    max_srqs: 4,
    max_ep_per_srq: 8,
    max_recv_per_srq: 64,
    max_iov_segments_per_rdma_read: 4,
    max_iov_segments_per_rdma_write: 4,
    max_rdma_read_in: 32,
    max_rdma_read_out: 32,
    ..IaAttributes::DEFAULT
};

/// Attributes of the test provider, which supports everything.
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

/// Opens an adapter on the test device, with an asynchronous dispatcher of 4 events.
pub(crate) fn open<'s>(
    storage: &'s mut TestStorage,
    device: &TestBackend,
) -> crate::adapter::Ia<'s, TestBackend, NoLock> {
    crate::adapter::Ia::open(device.clone(), storage.lend(), 4).expect("the test adapter opens")
}
