//! Field masks of query and modify calls, with their 1.2 values (`Spec: GEN-08`).
//!
//! `all()` of each mask is the `..._FIELD_ALL` of its object; `from_bits` refuses all other bits.

use super::format_bits;
use crate::error::{Cause, Error, Parameter, Result};
use bitflags::{Flags, bitflags};

/// Refuses the mask of a query if it has undefined bits (`Spec: GEN-08`).
pub(crate) fn check_fields<F: Flags>(fields: F) -> Result<()> {
    check_mask(fields, Error::invalid_argument(2).about(Parameter::Fields))
}

/// Refuses a mask with undefined bits; `invalid` is the error of its argument (`Spec: GEN-08`).
pub(crate) fn check_mask<F: Flags>(mask: F, invalid: Error) -> Result<()> {
    if mask.contains_unknown_bits() {
        return Err(invalid.because(Cause::UnknownMask));
    }
    Ok(())
}

bitflags! {
    /// Fields of a local memory region.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LmrFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Memory type.
        const MEM_TYPE = 0x2;
        /// Region description.
        const REGION_DESC = 0x4;
        /// Length.
        const LENGTH = 0x8;
        /// Protection zone.
        const PZ = 0x10;
        /// Privileges.
        const MEM_PRIV = 0x20;
        /// Local context.
        const LMR_CONTEXT = 0x40;
        /// Remote context.
        const RMR_CONTEXT = 0x80;
        /// Registered size.
        const REGISTERED_SIZE = 0x100;
        /// Registered address.
        const REGISTERED_ADDRESS = 0x200;
    }
}

bitflags! {
    /// Fields of a remote memory region.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RmrFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Protection zone.
        const PZ = 0x2;
        /// Bound range.
        const LMR_TRIPLET = 0x4;
        /// Privileges.
        const MEM_PRIV = 0x8;
        /// Remote context.
        const RMR_CONTEXT = 0x10;
    }
}

bitflags! {
    /// Fields of an endpoint.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EpFields: u64 {
        /// Adapter.
        const IA = 0x1;
        /// State.
        const STATE = 0x2;
        /// Local adapter address.
        const LOCAL_IA_ADDRESS = 0x4;
        /// Local port qualifier.
        const LOCAL_PORT = 0x8;
        /// Remote adapter address.
        const REMOTE_IA_ADDRESS = 0x10;
        /// Remote port qualifier.
        const REMOTE_PORT = 0x20;
        /// Protection zone.
        const PZ = 0x40;
        /// Receive dispatcher.
        const RECV_EVD = 0x80;
        /// Request dispatcher.
        const REQUEST_EVD = 0x100;
        /// Connection dispatcher.
        const CONNECT_EVD = 0x200;
        /// Shared receive queue.
        const SRQ = 0x400;
        /// Service type.
        const SERVICE_TYPE = 0x1000;
        /// Longest message.
        const MAX_MESSAGE_SIZE = 0x2000;
        /// Longest RDMA transfer.
        const MAX_RDMA_SIZE = 0x4000;
        /// Quality of service.
        const QOS = 0x8000;
        /// Receive completion flags.
        const RECV_COMPLETION_FLAGS = 0x1_0000;
        /// Request completion flags.
        const REQUEST_COMPLETION_FLAGS = 0x2_0000;
        /// Receive queue length.
        const MAX_RECV_DTOS = 0x4_0000;
        /// Request queue length.
        const MAX_REQUEST_DTOS = 0x8_0000;
        /// Segments per receive.
        const MAX_RECV_IOV = 0x10_0000;
        /// Segments per request.
        const MAX_REQUEST_IOV = 0x20_0000;
        /// Simultaneous incoming RDMA Reads.
        const MAX_RDMA_READ_IN = 0x40_0000;
        /// Simultaneous outgoing RDMA Reads.
        const MAX_RDMA_READ_OUT = 0x80_0000;
        /// Soft high watermark on shared receive buffers.
        const SRQ_SOFT_HW = 0x100_0000;
        /// Segments per RDMA Read.
        const MAX_RDMA_READ_IOV = 0x200_0000;
        /// Segments per RDMA Write.
        const MAX_RDMA_WRITE_IOV = 0x400_0000;
        /// Number of transport attributes.
        const NUM_TRANSPORT_ATTR = 0x800_0000;
        /// Transport attributes.
        const TRANSPORT_SPECIFIC_ATTR = 0x1000_0000;
        /// Number of provider attributes.
        const NUM_PROVIDER_ATTR = 0x2000_0000;
        /// Provider attributes.
        const PROVIDER_SPECIFIC_ATTR = 0x4000_0000;
    }
}

bitflags! {
    /// Fields of a shared receive queue.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SrqFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// State.
        const STATE = 0x2;
        /// Protection zone.
        const PZ = 0x4;
        /// Queue length.
        const MAX_RECV_DTO = 0x8;
        /// Segments per receive.
        const MAX_RECV_IOV = 0x10;
        /// Low watermark.
        const LOW_WATERMARK = 0x20;
        /// Buffers not yet taken.
        const AVAILABLE = 0x40;
        /// Buffers not yet completed.
        const OUTSTANDING = 0x80;
    }
}

bitflags! {
    /// Fields of an event dispatcher.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Queue length.
        const QLEN = 0x2;
        /// State.
        const STATE = 0x4;
        /// Notification object.
        const CNO = 0x8;
        /// Event streams.
        const FLAGS = 0x10;
    }
}

bitflags! {
    /// Fields of a consumer notification object.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CnoFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Wait proxy agent.
        const AGENT = 0x2;
    }
}

bitflags! {
    /// Fields of a protection zone.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PzFields: u32 {
        /// Adapter.
        const IA = 0x1;
    }
}

bitflags! {
    /// Fields of a public service point.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PspFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Connection qualifier.
        const CONN_QUAL = 0x2;
        /// Connection request dispatcher.
        const EVD = 0x4;
        /// Creator of the endpoint.
        const FLAGS = 0x8;
    }
}

bitflags! {
    /// Fields of a reserved service point.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RspFields: u32 {
        /// Adapter.
        const IA = 0x1;
        /// Connection qualifier.
        const CONN_QUAL = 0x2;
        /// Connection request dispatcher.
        const EVD = 0x4;
        /// Reserved endpoint.
        const EP = 0x8;
    }
}

bitflags! {
    /// Fields of a connection request.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CrFields: u32 {
        /// Remote adapter address.
        const REMOTE_IA_ADDRESS = 0x1;
        /// Remote port qualifier.
        const REMOTE_PORT = 0x2;
        /// Length of the private data.
        const PRIVATE_DATA_SIZE = 0x4;
        /// Private data.
        const PRIVATE_DATA = 0x8;
        /// Endpoint made by the provider.
        const LOCAL_EP = 0x10;
    }
}

bitflags! {
    /// Fields of an interface adapter.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct IaFields: u64 {
        /// Adapter name.
        const ADAPTER_NAME = 0x1;
        /// Vendor name.
        const VENDOR_NAME = 0x2;
        /// Major hardware version.
        const HARDWARE_VERSION_MAJOR = 0x4;
        /// Minor hardware version.
        const HARDWARE_VERSION_MINOR = 0x8;
        /// Major firmware version.
        const FIRMWARE_VERSION_MAJOR = 0x10;
        /// Minor firmware version.
        const FIRMWARE_VERSION_MINOR = 0x20;
        /// Address.
        const IA_ADDRESS = 0x40;
        /// Endpoints.
        const MAX_EPS = 0x80;
        /// Transfers per endpoint and direction.
        const MAX_DTO_PER_EP = 0x100;
        /// Incoming RDMA Reads per endpoint.
        const MAX_RDMA_READ_PER_EP_IN = 0x200;
        /// Outgoing RDMA Reads per endpoint.
        const MAX_RDMA_READ_PER_EP_OUT = 0x400;
        /// Event dispatchers.
        const MAX_EVDS = 0x800;
        /// Events per dispatcher.
        const MAX_EVD_QLEN = 0x1000;
        /// Segments per transfer.
        const MAX_IOV_SEGMENTS_PER_DTO = 0x2000;
        /// Local regions.
        const MAX_LMRS = 0x4000;
        /// Longest local region.
        const MAX_LMR_BLOCK_SIZE = 0x8000;
        /// Highest address of a local region.
        const MAX_LMR_VIRTUAL_ADDRESS = 0x1_0000;
        /// Protection zones.
        const MAX_PZS = 0x2_0000;
        /// Longest message.
        const MAX_MESSAGE_SIZE = 0x4_0000;
        /// Longest RDMA transfer.
        const MAX_RDMA_SIZE = 0x8_0000;
        /// Remote regions.
        const MAX_RMRS = 0x10_0000;
        /// Highest address of a remote region.
        const MAX_RMR_TARGET_ADDRESS = 0x20_0000;
        /// Shared receive queues.
        const MAX_SRQS = 0x40_0000;
        /// Endpoints per shared receive queue.
        const MAX_EP_PER_SRQ = 0x80_0000;
        /// Buffers per shared receive queue.
        const MAX_RECV_PER_SRQ = 0x100_0000;
        /// Segments per RDMA Read.
        const MAX_IOV_SEGMENTS_PER_RDMA_READ = 0x200_0000;
        /// Segments per RDMA Write.
        const MAX_IOV_SEGMENTS_PER_RDMA_WRITE = 0x400_0000;
        /// Incoming RDMA Reads of the adapter.
        const MAX_RDMA_READ_IN = 0x800_0000;
        /// Outgoing RDMA Reads of the adapter.
        const MAX_RDMA_READ_OUT = 0x1000_0000;
        /// Guarantee of the incoming depth.
        const MAX_RDMA_READ_PER_EP_IN_GUARANTEED = 0x2000_0000;
        /// Guarantee of the outgoing depth.
        const MAX_RDMA_READ_PER_EP_OUT_GUARANTEED = 0x4000_0000;
        /// Number of transport attributes.
        const NUM_TRANSPORT_ATTR = 0x8000_0000;
        /// Transport attributes.
        const TRANSPORT_ATTR = 0x1_0000_0000;
        /// Number of vendor attributes.
        const NUM_VENDOR_ATTR = 0x2_0000_0000;
        /// Vendor attributes.
        const VENDOR_ATTR = 0x4_0000_0000;
    }
}

bitflags! {
    /// Fields of a provider.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ProviderFields: u64 {
        /// Provider name.
        const PROVIDER_NAME = 0x1;
        /// Major provider version.
        const PROVIDER_VERSION_MAJOR = 0x2;
        /// Minor provider version.
        const PROVIDER_VERSION_MINOR = 0x4;
        /// Major interface version.
        const DAPL_VERSION_MAJOR = 0x8;
        /// Minor interface version.
        const DAPL_VERSION_MINOR = 0x10;
        /// Memory types.
        const LMR_MEM_TYPES_SUPPORTED = 0x20;
        /// Owner of the segment list after a post.
        const IOV_OWNERSHIP = 0x40;
        /// Qualities of service.
        const QOS_SUPPORTED = 0x80;
        /// Completion flags.
        const COMPLETION_FLAGS_SUPPORTED = 0x100;
        /// Thread safety.
        const IS_THREAD_SAFE = 0x200;
        /// Longest private data.
        const MAX_PRIVATE_DATA_SIZE = 0x400;
        /// Multipath.
        const SUPPORTS_MULTIPATH = 0x800;
        /// Creator of endpoints for service points.
        const EP_CREATOR = 0x1000;
        /// Rules for zones of endpoints.
        const PZ_SUPPORT = 0x2000;
        /// Buffer alignment.
        const OPTIMAL_BUFFER_ALIGNMENT = 0x4000;
        /// Streams that may share a dispatcher.
        const EVD_STREAM_MERGING_SUPPORTED = 0x8000;
        /// Shared receive queues.
        const SRQ_SUPPORTED = 0x1_0000;
        /// Watermarks.
        const SRQ_WATERMARKS_SUPPORTED = 0x2_0000;
        /// Queue and endpoint in different zones.
        const SRQ_EP_PZ_DIFFERENCE_SUPPORTED = 0x4_0000;
        /// Counts of shared receive queues.
        const SRQ_INFO_SUPPORTED = 0x8_0000;
        /// Receive counts of endpoints.
        const EP_RECV_INFO_SUPPORTED = 0x10_0000;
        /// Need to synchronise regions.
        const LMR_SYNC_REQ = 0x20_0000;
        /// Guarantee that events report remote faults.
        const DTO_ASYNC_RETURN_GUARANTEED = 0x40_0000;
        /// Need for remote write on the sink of an RDMA Read.
        const RDMA_WRITE_FOR_RDMA_READ_REQ = 0x80_0000;
        /// Number of provider attributes.
        const NUM_PROVIDER_SPECIFIC_ATTR = 0x100_0000;
        /// Provider attributes.
        const PROVIDER_SPECIFIC_ATTR = 0x200_0000;
    }
}

format_bits! {
    LmrFields RmrFields EpFields SrqFields EvdFields CnoFields PzFields PspFields RspFields CrFields IaFields ProviderFields
}

impl EpFields {
    /// The attribute fields: all fields of an [`EpAttributes`](crate::attributes::EpAttributes).
    pub const ATTRIBUTES: Self = Self::from_bits_truncate(0x7FFF_F000);
}
