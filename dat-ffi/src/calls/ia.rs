//! Interface adapters.

use std::ffi::CStr;

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::flags::{CloseFlags, HandleKind, IaFields, ProviderFields};
use dat_core::{Error, Result, Subtype};

use super::edition::{Added, Edition, Length};
use super::result::{Code, adapter, sheltered};
use super::rmr::SCOPE_ZONE;
use crate::adapter::{Adapter, Opening, Registered, with_device};
use crate::boundary::{self, Out, Text, lent, name_of};
use crate::handles::CHandle;

/// Opens the device that `find` returns for a name.
///
/// Spec: IAO-01, IAO-02, IAO-04, IAO-06
pub(crate) fn open<O: Opening>(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
    find: impl FnOnce(&CStr) -> Result<(O, Registered)>,
) -> Result<()> {
    let name = name.get().ok_or(Error::invalid_argument(1))?;
    let wanted = async_evd.get().ok_or(Error::invalid_argument(3))?;
    let output = ia.required(4)?;
    let keeps_async_evd = match wanted {
        CHandle::NULL => false,
        CHandle::ASYNC_EXISTS | CHandle::OUT_OF_SCOPE => true,
        // Events of one adapter cannot go to a dispatcher of another one.
        other if is_dispatcher(other) => return Err(Error::model_not_supported()),
        _ => {
            let subtype = Subtype::InvalidHandleEvdAsync;
            return Err(Error::invalid_handle(subtype));
        }
    };
    let (device, registered) = find(&name)?;
    let adapter = Adapter::open(
        &device,
        &name,
        registered,
        keeps_async_evd,
        async_evd_min_qlen,
    )?;
    async_evd.offer(seen_async_evd(&adapter));
    output.put(adapter.handle);
    Ok(())
}

fn is_dispatcher(handle: CHandle) -> bool {
    Adapter::of(handle).is_some_and(|adapter| {
        let named = handle.named();
        let kind = with_device!(adapter, opened => opened.ia.get_handle_type(named));
        kind == Ok(HandleKind::Evd)
    })
}

/// Returns the handle of the asynchronous event dispatcher that the consumer has.
fn seen_async_evd(adapter: &Adapter) -> CHandle {
    if adapter.keeps_async_evd {
        return CHandle::OUT_OF_SCOPE;
    }
    let evd = with_device!(adapter, opened => opened.ia.async_evd());
    adapter.cells.of(evd.into())
}

/// Spec: IAC-01..06
pub(crate) extern "C-unwind" fn close<E: Edition>(ia: CHandle, flags: u32) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let flags = CloseFlags::try_from(flags).map_err(|unknown| unknown.in_argument(2))?;
        Adapter::close(&adapter, flags)
    })
}

/// Queries attributes; the pointer of an empty mask may be null, as in calls of the registry.
///
/// Spec: IAQ-01..12, GEN-08
pub(crate) extern "C-unwind" fn query<E: Edition>(
    ia: CHandle,
    async_evd: Out<CHandle>,
    ia_mask: u64,
    ia_attributes: Out<boundary::IaAttributes<E>>,
    provider_mask: u64,
    provider_attributes: Out<boundary::ProviderAttributes<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        if ia_mask & !E::IA_FIELDS != 0 {
            return Err(Error::invalid_argument(3));
        }
        if provider_mask & !E::PROVIDER_FIELDS != 0 {
            return Err(Error::invalid_argument(5));
        }
        let ia_output = match ia_mask {
            0 => None,
            _ => Some(ia_attributes.required(4)?),
        };
        let provider_output = match provider_mask {
            0 => None,
            _ => Some(provider_attributes.required(6)?),
        };
        let queried = with_device!(adapter, opened => {
            opened.ia.ia_query(IaFields::empty(), ProviderFields::empty())
        })?;
        async_evd.offer(seen_async_evd(&adapter));
        if let Some(output) = ia_output {
            output.put(attributes_of(&queried.ia, &adapter));
        }
        if let Some(output) = provider_output {
            output.put(provider_of(&queried.provider, &adapter));
        }
        Ok(())
    })
}

/// `DAT_EXTENSION_IB`.
const INFINIBAND: u32 = 1;
/// The first version, with RDMA Writes with immediate data and atomic operations.
const EXTENSION_VERSION: i32 = 201;

fn attributes_of<E: Edition>(
    queried: &IaAttributes,
    adapter: &Adapter,
) -> boundary::IaAttributes<E> {
    let extensions = with_device!(adapter, opened => opened.ia.extensions());
    boundary::IaAttributes {
        adapter_name: name_of(adapter.name.to_bytes()),
        vendor_name: name_of(queried.vendor_name.as_bytes()),
        hardware_version_major: queried.hardware_version_major,
        hardware_version_minor: queried.hardware_version_minor,
        firmware_version_major: queried.firmware_version_major,
        firmware_version_minor: queried.firmware_version_minor,
        ia_address: lent(Some(&adapter.address)),
        max_eps: queried.max_eps,
        max_dto_per_ep: queried.max_dto_per_ep,
        max_rdma_read_per_ep_in: queried.max_rdma_read_per_ep_in,
        max_rdma_read_per_ep_out: queried.max_rdma_read_per_ep_out,
        max_evds: queried.max_evds,
        max_evd_qlen: queried.max_evd_qlen,
        max_iov_segments_per_dto: queried.max_iov_segments_per_dto,
        max_lmrs: queried.max_lmrs,
        max_lmr_block_size: E::Length::of(queried.max_lmr_block_size),
        max_lmr_virtual_address: queried.max_lmr_virtual_address,
        max_pzs: queried.max_pzs,
        max_message_size: E::Length::of(queried.max_message_size),
        max_rdma_size: E::Length::of(queried.max_rdma_size),
        max_rmrs: queried.max_rmrs,
        max_rmr_target_address: queried.max_rmr_target_address,
        max_srqs: queried.max_srqs,
        max_ep_per_srq: queried.max_ep_per_srq,
        max_recv_per_srq: queried.max_recv_per_srq,
        max_iov_segments_per_rdma_read: queried.max_iov_segments_per_rdma_read,
        max_iov_segments_per_rdma_write: queried.max_iov_segments_per_rdma_write,
        max_rdma_read_in: queried.max_rdma_read_in,
        max_rdma_read_out: queried.max_rdma_read_out,
        max_rdma_read_per_ep_in_guaranteed: queried.max_rdma_read_per_ep_in_guaranteed.into(),
        max_rdma_read_per_ep_out_guaranteed: queried.max_rdma_read_per_ep_out_guaranteed.into(),
        transport_attributes_count: adapter.named.transport.count(),
        transport_attributes: adapter.named.transport.first(),
        vendor_attributes_count: adapter.named.vendor.count(),
        vendor_attributes: adapter.named.vendor.first(),
        extension_supported: Added::of(if extensions.is_empty() { 0 } else { INFINIBAND }),
        extension_version: Added::of(if extensions.is_empty() {
            0
        } else {
            EXTENSION_VERSION
        }),
        // Zero-based addresses are not supported.
        ..boundary::IaAttributes::zeroed()
    }
}

fn provider_of<E: Edition>(
    queried: &ProviderAttributes,
    adapter: &Adapter,
) -> boundary::ProviderAttributes<E> {
    let registered = &adapter.registered;
    boundary::ProviderAttributes {
        provider_name: name_of(queried.provider_name.as_bytes()),
        provider_version_major: queried.provider_version_major,
        provider_version_minor: queried.provider_version_minor,
        dapl_version_major: registered.major,
        dapl_version_minor: registered.minor,
        lmr_mem_types_supported: queried.lmr_mem_types_supported.bits(),
        iov_ownership_on_return: queried.iov_ownership_on_return.value(),
        qos_supported: queried.qos_supported.bits(),
        completion_flags_supported: queried.completion_flags_supported.bits(),
        is_thread_safe: registered.is_thread_safe.into(),
        max_private_data_size: queried.max_private_data_size,
        supports_multipath: queried.supports_multipath.into(),
        ep_creator: queried.ep_creator.value(),
        pz_support: E::zone_support(queried.pz_support),
        optimal_buffer_alignment: queried.optimal_buffer_alignment,
        evd_stream_merging_supported: queried
            .evd_stream_merging_supported
            .map(|row| row.map(u32::from)),
        srq_supported: queried.srq_supported.into(),
        srq_watermarks_supported: queried.srq_watermarks_supported,
        srq_ep_pz_difference_supported: queried.srq_ep_pz_difference_supported.into(),
        srq_info_supported: queried.srq_info_supported,
        ep_recv_info_supported: queried.ep_recv_info_supported,
        lmr_sync_req: queried.lmr_sync_req.into(),
        dto_async_return_guaranteed: queried.dto_async_return_guaranteed.into(),
        rdma_write_for_rdma_read_req: queried.rdma_write_for_rdma_read_req.into(),
        rmr_scope_supported: Added::of(SCOPE_ZONE),
        provider_attributes_count: adapter.named.provider.count(),
        provider_attributes: adapter.named.provider.first(),
        // Reads expose no contexts of regions, signal handlers may not call, and connections do not
        // fail over.
        ..boundary::ProviderAttributes::zeroed()
    }
}
