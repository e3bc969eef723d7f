//! What adapters, providers, endpoints and shared receive queues can do, in the meaning of 1.2.
//!
//! Counts are signed as in the interface, so that a negative one can be seen and refused (`Spec: GEN-07`). Sizes and
//! addresses are in bytes.

use crate::flags::{
    CompletionFlags, EpCreator, EvdFlags, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
    ServiceType, WATERMARK_INFINITE,
};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Streams in the order of [`ProviderAttributes::evd_stream_merging_supported`].
const STREAMS: [EvdFlags; 6] = [
    EvdFlags::SOFTWARE,
    EvdFlags::CR,
    EvdFlags::DTO,
    EvdFlags::CONNECTION,
    EvdFlags::RMR_BIND,
    EvdFlags::ASYNC,
];

/// The address of an interface adapter, with the port where the family has one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum IaAddress {
    /// IPv4: address in network order, port.
    V4([u8; 4], u16),
    /// IPv6: address in network order, port, scope.
    V6([u8; 16], u16, u32),
    /// A fabric without sockets: the number of the node.
    Node(u64),
}

impl IaAddress {
    /// The socket address, unless this is a node number.
    pub const fn socket_address(self) -> Option<SocketAddr> {
        match self {
            Self::V4([a, b, c, d], port) => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::new(a, b, c, d),
                port,
            ))),
            Self::V6(octets, port, scope) => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from_bits(u128::from_be_bytes(octets)),
                port,
                0,
                scope,
            ))),
            Self::Node(_) => None,
        }
    }
}

impl From<SocketAddr> for IaAddress {
    /// Takes address, port and scope; the flow information of IPv6 has no meaning here.
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address.ip().octets(), address.port()),
            SocketAddr::V6(address) => {
                Self::V6(address.ip().octets(), address.port(), address.scope_id())
            }
        }
    }
}

impl fmt::Display for IaAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Node(number) = self {
            return write!(formatter, "node {number}");
        }
        self.socket_address()
            .map_or(Ok(()), |address| address.fmt(formatter))
    }
}

/// A name and a value that only the provider can explain (`Spec: IAQ-11`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct NamedAttribute {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: &'static str,
}

/// What an interface adapter is and can do, for all its users together (`Spec: IAQ-03, IAQ-04`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct IaAttributes {
    /// The name of the adapter, at most 255 bytes.
    pub adapter_name: &'static str,
    /// The name of the vendor, at most 255 bytes.
    pub vendor_name: &'static str,
    /// Major version of the hardware.
    pub hardware_version_major: u32,
    /// Minor version of the hardware.
    pub hardware_version_minor: u32,
    /// Major version of the firmware.
    pub firmware_version_major: u32,
    /// Minor version of the firmware.
    pub firmware_version_minor: u32,
    /// Where peers reach the adapter.
    pub ia_address: IaAddress,
    /// Endpoints, in any state.
    pub max_eps: i32,
    /// Data transfers outstanding per endpoint and direction.
    pub max_dto_per_ep: i32,
    /// RDMA Reads coming in at once, per endpoint.
    pub max_rdma_read_per_ep_in: i32,
    /// RDMA Reads going out at once, per endpoint.
    pub max_rdma_read_per_ep_out: i32,
    /// Event dispatchers.
    pub max_evds: i32,
    /// Events per dispatcher.
    pub max_evd_qlen: i32,
    /// Segments per data transfer.
    pub max_iov_segments_per_dto: i32,
    /// Local memory regions.
    pub max_lmrs: i32,
    /// Bytes per local memory region.
    pub max_lmr_block_size: u64,
    /// Highest address that a local memory region may hold.
    pub max_lmr_virtual_address: u64,
    /// Protection zones.
    pub max_pzs: i32,
    /// Bytes per message.
    pub max_message_size: u64,
    /// Bytes per RDMA transfer.
    pub max_rdma_size: u64,
    /// Remote memory regions.
    pub max_rmrs: i32,
    /// Highest address that a remote memory region may hold.
    pub max_rmr_target_address: u64,
    /// Shared receive queues.
    pub max_srqs: i32,
    /// Endpoints per shared receive queue.
    pub max_ep_per_srq: i32,
    /// Buffers per shared receive queue.
    pub max_recv_per_srq: i32,
    /// Segments per RDMA Read.
    pub max_iov_segments_per_rdma_read: i32,
    /// Segments per RDMA Write.
    pub max_iov_segments_per_rdma_write: i32,
    /// RDMA Reads coming in at once, over all endpoints.
    pub max_rdma_read_in: i32,
    /// RDMA Reads going out at once, over all endpoints.
    pub max_rdma_read_out: i32,
    /// Whether every endpoint can have its full incoming depth at the same time.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// Whether every endpoint can have its full outgoing depth at the same time.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// What the transport adds.
    pub transport_attributes: &'static [NamedAttribute],
    /// What the vendor adds.
    pub vendor_attributes: &'static [NamedAttribute],
}

/// What a provider does, for one open instance of an adapter (`Spec: IAQ-05` to `IAQ-10`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ProviderAttributes {
    /// The name of the provider, at most 255 bytes.
    pub provider_name: &'static str,
    /// Major version of the provider.
    pub provider_version_major: u32,
    /// Minor version of the provider.
    pub provider_version_minor: u32,
    /// Major version of the interface.
    pub dapl_version_major: u32,
    /// Minor version of the interface.
    pub dapl_version_minor: u32,
    /// The kinds of memory that can be registered.
    pub lmr_mem_types_supported: MemoryTypes,
    /// Who owns the segment list of a post until its completion.
    pub iov_ownership_on_return: IovOwnership,
    /// Qualities of service an endpoint may ask for.
    pub qos_supported: QualityOfService,
    /// Completion flags; at least [`CompletionFlags::MANDATORY`].
    pub completion_flags_supported: CompletionFlags,
    /// Whether calls may be made from several threads.
    pub is_thread_safe: bool,
    /// Bytes of private data carried by connection calls; at least 64.
    pub max_private_data_size: i32,
    /// Whether a connection may use several paths.
    pub supports_multipath: bool,
    /// Who makes the endpoints for public service points.
    pub ep_creator: EpCreator,
    /// How endpoints may use protection zones.
    pub pz_support: PzSupport,
    /// Alignment of buffers, in bytes, that serves best; a divisor of 256.
    pub optimal_buffer_alignment: u32,
    /// Which two streams may feed one dispatcher; rows and columns are software, connection request, data transfer,
    /// connection, bind, asynchronous. The diagonal is true.
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    /// Whether there are shared receive queues.
    pub srq_supported: bool,
    /// Number of watermarks supported on shared receive queues.
    pub srq_watermarks_supported: i32,
    /// Whether an endpoint and its shared receive queue may be of different protection zones.
    pub srq_ep_pz_difference_supported: bool,
    /// Which counts a query of a shared receive queue can give.
    pub srq_info_supported: i32,
    /// Which counts a receive query of an endpoint can give.
    pub ep_recv_info_supported: i32,
    /// Whether regions must be synchronised around RDMA.
    pub lmr_sync_req: bool,
    /// Whether a remote fault is always reported by an event and never by the call.
    pub dto_async_return_guaranteed: bool,
    /// Whether the local buffer of an RDMA Read needs the remote write privilege.
    pub rdma_write_for_rdma_read_req: bool,
    /// What the provider adds.
    pub provider_specific_attributes: &'static [NamedAttribute],
}

impl ProviderAttributes {
    /// A merging matrix in which all streams may share a dispatcher.
    pub const MERGE_ALL: [[bool; 6]; 6] = [[true; 6]; 6];

    /// Whether one dispatcher may be fed by all of these streams: every pair of them can be merged (`Spec: IAQ-09`).
    pub fn may_merge(&self, streams: EvdFlags) -> bool {
        STREAMS
            .iter()
            .zip(&self.evd_stream_merging_supported)
            .filter(|&(&stream, _)| streams.contains(stream))
            .flat_map(|(_, row)| STREAMS.iter().zip(row))
            .filter(|&(&stream, _)| streams.contains(stream))
            .all(|(_, &merges)| merges)
    }
}

/// What an endpoint is made for.
///
/// The named transport and provider attributes of the interface are absent: none are defined. Of attributes that are refused the
/// [cause](crate::error::Error::cause) names one, but for the quality of service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EpAttributes {
    /// The service.
    pub service_type: ServiceType,
    /// Bytes per message.
    pub max_message_size: u64,
    /// Bytes per RDMA transfer.
    pub max_rdma_size: u64,
    /// The quality of service.
    pub qos: QualityOfService,
    /// How receives complete: empty, unsignalled, solicited wait or threshold (`Spec: EPM-04`).
    pub recv_completion_flags: CompletionFlags,
    /// How requests complete: empty, unsignalled or threshold (`Spec: EPM-04`).
    pub request_completion_flags: CompletionFlags,
    /// Receives outstanding.
    pub max_recv_dtos: i32,
    /// Requests outstanding: sends, RDMA and binds together.
    pub max_request_dtos: i32,
    /// Segments per receive.
    pub max_recv_iov: i32,
    /// Segments per request.
    pub max_request_iov: i32,
    /// RDMA Reads of the peer at once; with 0 a read of the peer breaks the connection (`Spec: EPB-05`).
    pub max_rdma_read_in: i32,
    /// RDMA Reads to the peer at once, others wait; with 0 posts of reads are refused. No more than the peer's `max_rdma_read_in`.
    pub max_rdma_read_out: i32,
    /// Soft high watermark on buffers taken from a shared receive queue.
    pub srq_soft_hw: i32,
    /// Segments per RDMA Read.
    pub max_rdma_read_iov: i32,
    /// Segments per RDMA Write.
    pub max_rdma_write_iov: i32,
}

impl EpAttributes {
    /// The attributes of an endpoint made without any, whatever the adapter (`Spec: EPC-03`).
    ///
    /// Reliable, best effort, signalled; messages and transfers up to 1 GiB, which every RDMA transport carries; 16 receives
    /// and 16 requests of 4 segments each; no RDMA Reads, the recommended depth (`Spec: EPC-10`); watermark off.
    pub const DEFAULT: Self = Self {
        service_type: ServiceType::ReliableConnected,
        max_message_size: 1 << 30,
        max_rdma_size: 1 << 30,
        qos: QualityOfService::BEST_EFFORT,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: 16,
        max_request_dtos: 16,
        max_recv_iov: 4,
        max_request_iov: 4,
        max_rdma_read_in: 0,
        max_rdma_read_out: 0,
        srq_soft_hw: WATERMARK_INFINITE,
        max_rdma_read_iov: 4,
        max_rdma_write_iov: 4,
    };

    /// [`EpAttributes::DEFAULT`], lowered where the adapter cannot do as much.
    pub fn default_for(adapter: &IaAttributes) -> Self {
        let all = Self::DEFAULT;
        let transfers = adapter.max_dto_per_ep;
        let segments = adapter.max_iov_segments_per_dto;
        Self {
            max_message_size: all.max_message_size.min(adapter.max_message_size),
            max_rdma_size: all.max_rdma_size.min(adapter.max_rdma_size),
            max_recv_dtos: all.max_recv_dtos.min(transfers),
            max_request_dtos: all.max_request_dtos.min(transfers),
            max_recv_iov: all.max_recv_iov.min(segments),
            max_request_iov: all.max_request_iov.min(segments),
            max_rdma_read_iov: all
                .max_rdma_read_iov
                .min(adapter.max_iov_segments_per_rdma_read),
            max_rdma_write_iov: all
                .max_rdma_write_iov
                .min(adapter.max_iov_segments_per_rdma_write),
            ..all
        }
    }
}

impl Default for EpAttributes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a shared receive queue is made for (`Spec: SRC-01` to `SRC-03`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SrqAttributes {
    /// Buffers outstanding.
    pub max_recv_dtos: i32,
    /// Segments per buffer.
    pub max_recv_iov: i32,
    /// Number of buffers below which an event is raised; 0 is off.
    pub low_watermark: i32,
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;

    const SMALL: IaAttributes = IaAttributes {
        adapter_name: "small",
        vendor_name: "none",
        hardware_version_major: 1,
        hardware_version_minor: 0,
        firmware_version_major: 1,
        firmware_version_minor: 0,
        ia_address: IaAddress::Node(7),
        max_eps: 2,
        max_dto_per_ep: 8,
        max_rdma_read_per_ep_in: 1,
        max_rdma_read_per_ep_out: 1,
        max_evds: 4,
        max_evd_qlen: 16,
        max_iov_segments_per_dto: 3,
        max_lmrs: 4,
        max_lmr_block_size: 1 << 20,
        max_lmr_virtual_address: u64::MAX,
        max_pzs: 2,
        max_message_size: 4096,
        max_rdma_size: 8192,
        max_rmrs: 2,
        max_rmr_target_address: u64::MAX,
        max_srqs: 1,
        max_ep_per_srq: 2,
        max_recv_per_srq: 8,
        max_iov_segments_per_rdma_read: 1,
        max_iov_segments_per_rdma_write: 2,
        max_rdma_read_in: 2,
        max_rdma_read_out: 2,
        max_rdma_read_per_ep_in_guaranteed: true,
        max_rdma_read_per_ep_out_guaranteed: true,
        transport_attributes: &[],
        vendor_attributes: &[NamedAttribute {
            name: "colour",
            value: "grey",
        }],
    };

    fn provider(evd_stream_merging_supported: [[bool; 6]; 6]) -> ProviderAttributes {
        ProviderAttributes {
            evd_stream_merging_supported,
            ..crate::testing::PROVIDER_ATTRIBUTES
        }
    }

    /// Spec: EPC-03, EPC-10
    #[test]
    fn default_endpoint_attributes() {
        assert_eq!(EpAttributes::default(), EpAttributes::DEFAULT);
        let EpAttributes {
            service_type,
            max_message_size,
            max_rdma_size,
            qos,
            recv_completion_flags,
            request_completion_flags,
            max_recv_dtos,
            max_request_dtos,
            max_recv_iov,
            max_request_iov,
            max_rdma_read_in,
            max_rdma_read_out,
            srq_soft_hw,
            max_rdma_read_iov,
            max_rdma_write_iov,
        } = EpAttributes::default();
        assert_eq!(service_type.value(), 0);
        assert_eq!(
            (max_message_size, max_rdma_size),
            (0x4000_0000, 0x4000_0000)
        );
        assert_eq!(qos.bits(), 0);
        assert_eq!(
            (
                recv_completion_flags.bits(),
                request_completion_flags.bits()
            ),
            (0, 0)
        );
        assert_eq!((max_recv_dtos, max_request_dtos), (16, 16));
        assert_eq!((max_recv_iov, max_request_iov), (4, 4));
        assert_eq!((max_rdma_read_in, max_rdma_read_out), (0, 0));
        assert_eq!(srq_soft_hw, -1);
        assert_eq!((max_rdma_read_iov, max_rdma_write_iov), (4, 4));
    }

    /// Spec: EPC-03
    #[test]
    fn defaults_stay_within_the_adapter() {
        let expected = EpAttributes {
            max_message_size: 4096,
            max_rdma_size: 8192,
            max_recv_dtos: 8,
            max_request_dtos: 8,
            max_recv_iov: 3,
            max_request_iov: 3,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 2,
            ..EpAttributes::DEFAULT
        };
        assert_eq!(EpAttributes::default_for(&SMALL), expected);
        let large = IaAttributes {
            max_dto_per_ep: i32::MAX,
            max_iov_segments_per_dto: i32::MAX,
            max_iov_segments_per_rdma_read: i32::MAX,
            max_iov_segments_per_rdma_write: i32::MAX,
            max_message_size: u64::MAX,
            max_rdma_size: u64::MAX,
            ..SMALL
        };
        assert_eq!(EpAttributes::default_for(&large), EpAttributes::DEFAULT);
    }

    /// Spec: IAQ-09
    #[test]
    fn streams_merge_only_if_every_pair_does() {
        let all = provider(ProviderAttributes::MERGE_ALL);
        assert!(all.may_merge(EvdFlags::all()));

        let (t, f) = (true, false);
        let some = provider([
            [t, f, f, f, f, f],
            [f, t, f, t, f, f],
            [f, f, t, f, t, f],
            [f, t, f, t, f, f],
            [f, f, t, f, t, f],
            [f, f, f, f, f, t],
        ]);
        for stream in STREAMS {
            assert!(some.may_merge(stream), "{stream:?}");
        }
        assert!(some.may_merge(EvdFlags::CR | EvdFlags::CONNECTION));
        assert!(some.may_merge(EvdFlags::DTO | EvdFlags::RMR_BIND));
        assert!(!some.may_merge(EvdFlags::DTO | EvdFlags::CR));
        assert!(!some.may_merge(EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::ASYNC));
        assert!(!some.may_merge(EvdFlags::SOFTWARE | EvdFlags::ASYNC));
        assert!(!some.may_merge(EvdFlags::DEFAULT));
    }

    /// Spec: IAQ-03
    #[test]
    fn addresses_convert_and_print() {
        let v4 = IaAddress::V4([192, 0, 2, 1], 7471);
        assert_eq!(format!("{v4}"), "192.0.2.1:7471");
        let mut octets = [0; 16];
        octets[0] = 0xFE;
        octets[1] = 0x80;
        octets[15] = 1;
        let v6 = IaAddress::V6(octets, 7471, 2);
        assert_eq!(format!("{v6}"), "[fe80::1%2]:7471");
        for address in [v4, v6] {
            assert_eq!(address.socket_address().map(IaAddress::from), Some(address));
        }
        assert_eq!(format!("{}", SMALL.ia_address), "node 7");
        assert_eq!(SMALL.ia_address.socket_address(), None);
        for attribute in SMALL.vendor_attributes {
            assert_eq!((attribute.name, attribute.value), ("colour", "grey"));
        }
    }
}
