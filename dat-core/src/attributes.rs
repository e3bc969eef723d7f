//! Attributes of adapters, providers, endpoints and shared receive queues, as 1.2 defines them.
//!
//! Counts are signed as in the interface, so that the core can refuse a negative one (`Spec:
//! GEN-07`). Sizes and addresses are in bytes.

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

/// Address of an interface adapter, with the port where the family has one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum IaAddress {
    /// IPv4: address in network order, port.
    V4([u8; 4], u16),
    /// IPv6: address in network order, port, scope.
    V6([u8; 16], u16, u32),
    /// Node number, on a fabric without sockets.
    Node(u64),
}

impl IaAddress {
    /// Returns the socket address; `None` for a node number.
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
    /// Takes address, port and scope; drops the flow information of IPv6.
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

/// A name and value that the provider defines (`Spec: IAQ-11`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct NamedAttribute {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: &'static str,
}

/// Attributes of an interface adapter, for all its users together (`Spec: IAQ-03, IAQ-04`).
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
    /// Address at which peers reach the adapter.
    pub ia_address: IaAddress,
    /// Maximum number of endpoints, in any state.
    pub max_eps: i32,
    /// Maximum data transfers outstanding per endpoint and direction.
    pub max_dto_per_ep: i32,
    /// Maximum simultaneous incoming RDMA Reads per endpoint.
    pub max_rdma_read_per_ep_in: i32,
    /// Maximum simultaneous outgoing RDMA Reads per endpoint.
    pub max_rdma_read_per_ep_out: i32,
    /// Maximum number of event dispatchers.
    pub max_evds: i32,
    /// Maximum events per dispatcher.
    pub max_evd_qlen: i32,
    /// Maximum segments per data transfer.
    pub max_iov_segments_per_dto: i32,
    /// Maximum number of local memory regions.
    pub max_lmrs: i32,
    /// Maximum bytes per local memory region.
    pub max_lmr_block_size: u64,
    /// Highest address that a local memory region may hold.
    pub max_lmr_virtual_address: u64,
    /// Maximum number of protection zones.
    pub max_pzs: i32,
    /// Maximum bytes per message.
    pub max_message_size: u64,
    /// Maximum bytes per RDMA transfer.
    pub max_rdma_size: u64,
    /// Maximum number of remote memory regions.
    pub max_rmrs: i32,
    /// Highest address that a remote memory region may hold.
    pub max_rmr_target_address: u64,
    /// Maximum number of shared receive queues.
    pub max_srqs: i32,
    /// Maximum endpoints per shared receive queue.
    pub max_ep_per_srq: i32,
    /// Maximum buffers per shared receive queue.
    pub max_recv_per_srq: i32,
    /// Maximum segments per RDMA Read.
    pub max_iov_segments_per_rdma_read: i32,
    /// Maximum segments per RDMA Write.
    pub max_iov_segments_per_rdma_write: i32,
    /// Maximum simultaneous incoming RDMA Reads, over all endpoints.
    pub max_rdma_read_in: i32,
    /// Maximum simultaneous outgoing RDMA Reads, over all endpoints.
    pub max_rdma_read_out: i32,
    /// Set if every endpoint can have its full incoming depth at the same time.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// Set if every endpoint can have its full outgoing depth at the same time.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// Attributes that the transport adds.
    pub transport_attributes: &'static [NamedAttribute],
    /// Attributes that the vendor adds.
    pub vendor_attributes: &'static [NamedAttribute],
}

impl IaAttributes {
    /// An adapter without objects, which limits neither regions nor addresses.
    ///
    /// A backend names what it has and takes the rest from here, so that it builds when attributes
    /// are added.
    pub const DEFAULT: Self = Self {
        adapter_name: "",
        vendor_name: "",
        hardware_version_major: 0,
        hardware_version_minor: 0,
        firmware_version_major: 0,
        firmware_version_minor: 0,
        ia_address: IaAddress::Node(0),
        max_eps: 0,
        max_dto_per_ep: 0,
        max_rdma_read_per_ep_in: 0,
        max_rdma_read_per_ep_out: 0,
        max_evds: 0,
        max_evd_qlen: 0,
        max_iov_segments_per_dto: 0,
        max_lmrs: 0,
        max_lmr_block_size: u64::MAX,
        max_lmr_virtual_address: u64::MAX,
        max_pzs: 0,
        max_message_size: 0,
        max_rdma_size: 0,
        max_rmrs: 0,
        max_rmr_target_address: u64::MAX,
        max_srqs: 0,
        max_ep_per_srq: 0,
        max_recv_per_srq: 0,
        max_iov_segments_per_rdma_read: 0,
        max_iov_segments_per_rdma_write: 0,
        max_rdma_read_in: 0,
        max_rdma_read_out: 0,
        max_rdma_read_per_ep_in_guaranteed: true,
        max_rdma_read_per_ep_out_guaranteed: true,
        transport_attributes: &[],
        vendor_attributes: &[],
    };
}

/// Attributes of a provider, for one open instance of an adapter (`Spec: IAQ-05` to `IAQ-10`).
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
    /// Kinds of memory that can be registered.
    pub lmr_mem_types_supported: MemoryTypes,
    /// Owner of the segment list of a post until its completion.
    pub iov_ownership_on_return: IovOwnership,
    /// Qualities of service that an endpoint may request.
    pub qos_supported: QualityOfService,
    /// Supported completion flags; at least [`CompletionFlags::MANDATORY`].
    pub completion_flags_supported: CompletionFlags,
    /// Set if several threads may make calls.
    pub is_thread_safe: bool,
    /// Bytes of private data carried by connection calls; at least 64.
    pub max_private_data_size: i32,
    /// Set if a connection may use several paths.
    pub supports_multipath: bool,
    /// Conditions under which the provider makes endpoints for public service points.
    pub ep_creator: EpCreator,
    /// Rules for the protection zones of endpoints.
    pub pz_support: PzSupport,
    /// Best alignment of buffers, in bytes; a divisor of 256.
    pub optimal_buffer_alignment: u32,
    /// Pairs of streams that may feed one dispatcher.
    ///
    /// Rows and columns are software, connection request, data transfer, connection, bind,
    /// asynchronous. The diagonal is true.
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    /// Set if the provider has shared receive queues.
    pub srq_supported: bool,
    /// Number of watermarks supported on shared receive queues.
    pub srq_watermarks_supported: i32,
    /// Set if an endpoint and its shared receive queue may be of different protection zones.
    pub srq_ep_pz_difference_supported: bool,
    /// Counts that a query of a shared receive queue can return.
    pub srq_info_supported: i32,
    /// Counts that a receive query of an endpoint can return.
    pub ep_recv_info_supported: i32,
    /// Set if regions must be synchronised around RDMA.
    pub lmr_sync_req: bool,
    /// Set if an event always reports a remote fault and the call never does.
    pub dto_async_return_guaranteed: bool,
    /// Set if the local buffer of an RDMA Read needs the remote write privilege.
    pub rdma_write_for_rdma_read_req: bool,
    /// Attributes that the provider adds.
    pub provider_specific_attributes: &'static [NamedAttribute],
}

impl ProviderAttributes {
    /// A merging matrix in which all streams may share a dispatcher.
    pub const MERGE_ALL: [[bool; 6]; 6] = [[true; 6]; 6];

    /// Returns true if one dispatcher may take all of these streams.
    ///
    /// That needs every pair of them to merge (`Spec: IAQ-09`).
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

/// Parameters of an endpoint.
///
/// The named transport and provider attributes of the interface are absent: none are defined. If
/// attributes are refused, the [cause](crate::error::Error::cause) names one of them, except for
/// the quality of service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EpAttributes {
    /// Service type.
    pub service_type: ServiceType,
    /// Maximum bytes per message.
    pub max_message_size: u64,
    /// Maximum bytes per RDMA transfer.
    pub max_rdma_size: u64,
    /// Quality of service.
    pub qos: QualityOfService,
    /// Completion of receives: empty, unsignalled, solicited wait or threshold (`Spec: EPM-04`).
    pub recv_completion_flags: CompletionFlags,
    /// Completion of requests: empty, unsignalled or threshold (`Spec: EPM-04`).
    pub request_completion_flags: CompletionFlags,
    /// Maximum receives outstanding.
    pub max_recv_dtos: i32,
    /// Maximum requests outstanding: sends, RDMA and binds together.
    pub max_request_dtos: i32,
    /// Maximum segments per receive.
    pub max_recv_iov: i32,
    /// Maximum segments per request.
    pub max_request_iov: i32,
    /// Maximum simultaneous RDMA Reads of the peer.
    ///
    /// With 0, a read of the peer breaks the connection (`Spec: EPB-05`).
    pub max_rdma_read_in: i32,
    /// Maximum simultaneous RDMA Reads to the peer; more of them wait.
    ///
    /// With 0, posts of reads are refused. Must not exceed the peer's `max_rdma_read_in`.
    pub max_rdma_read_out: i32,
    /// Soft high watermark on buffers taken from a shared receive queue.
    pub srq_soft_hw: i32,
    /// Maximum segments per RDMA Read.
    pub max_rdma_read_iov: i32,
    /// Maximum segments per RDMA Write.
    pub max_rdma_write_iov: i32,
}

impl EpAttributes {
    /// Attributes of an endpoint created without any, before the adapter's limits (`Spec: EPC-03`).
    ///
    /// Reliable, best effort, signalled. Messages and transfers have up to 1 GiB, which every RDMA
    /// transport carries. There are 16 receives and 16 requests of 4 segments each. No RDMA Reads,
    /// the recommended depth (`Spec: EPC-10`); watermark off.
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

    /// Returns [`EpAttributes::DEFAULT`], lowered to the adapter's limits.
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

/// Parameters of a shared receive queue (`Spec: SRC-01` to `SRC-03`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SrqAttributes {
    /// Maximum buffers outstanding.
    pub max_recv_dtos: i32,
    /// Maximum segments per buffer.
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
        firmware_version_major: 1,
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
        max_pzs: 2,
        max_message_size: 4096,
        max_rdma_size: 8192,
        max_rmrs: 2,
        max_srqs: 1,
        max_ep_per_srq: 2,
        max_recv_per_srq: 8,
        max_iov_segments_per_rdma_read: 1,
        max_iov_segments_per_rdma_write: 2,
        max_rdma_read_in: 2,
        max_rdma_read_out: 2,
        vendor_attributes: &[NamedAttribute {
            name: "colour",
            value: "grey",
        }],
        ..IaAttributes::DEFAULT
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
