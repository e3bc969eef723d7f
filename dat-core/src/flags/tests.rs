//! Compares each number with the tables of the specification.

use super::*;
use crate::error::{Abi, Cause, Error};
use bitflags::Flags;

/// Checks single flags and their sum, and that all other bits are refused.
fn check<F>(single: &[(F, u64)], all: u64)
where
    F: Flags + Copy,
    F::Bits: Into<u64> + TryFrom<u64>,
{
    for &(flag, bits) in single {
        assert_eq!(flag.bits().into(), bits);
    }
    assert_eq!(F::all().bits().into(), all);
    for shift in 0..u64::BITS {
        let bit = 1 << shift;
        if let Ok(bits) = F::Bits::try_from(bit) {
            assert_eq!(F::from_bits(bits).is_some(), all & bit != 0, "{bit:#x}");
        }
    }
}

/// Checks that exactly these numbers are accepted, and convert back.
fn check_values<T>(expected: &[(T, u32)], all: &[T])
where
    T: TryFrom<u32, Error = UnknownValue> + Into<u32> + Copy + PartialEq + core::fmt::Debug,
{
    assert_eq!(expected.len(), all.len());
    for &(value, number) in expected {
        assert_eq!(value.into(), number);
        assert_eq!(T::try_from(number), Ok(value));
    }
    for number in (0..=40).chain([256, 0x8000_0000, u32::MAX]) {
        if !expected.iter().any(|&(_, known)| known == number) {
            assert_eq!(T::try_from(number), Err(UnknownValue(number)));
        }
    }
}

/// Spec: GEN-09, IAQ-07, SRC-02, LMC-03
#[test]
fn constants() {
    assert_eq!(TIMEOUT_INFINITE, 0xFFFF_FFFF);
    assert_eq!(WATERMARK_INFINITE, -1);
    assert_eq!(VALUE_UNKNOWN, -2);
    assert_eq!(OPTIMAL_ALIGNMENT, 256);
    assert_eq!(SRQ_LOW_WATERMARK_DEFAULT, 0);
    assert_eq!(NAME_MAX_LENGTH, 256);
    assert_eq!(LMR_COOKIE_SIZE, 40);
}

/// Spec: DTO-04, IAQ-06
#[test]
fn completion_flags() {
    check(
        &[
            (CompletionFlags::SUPPRESS, 1),
            (CompletionFlags::SOLICITED_WAIT, 2),
            (CompletionFlags::UNSIGNALLED, 4),
            (CompletionFlags::BARRIER_FENCE, 8),
            (CompletionFlags::EVD_THRESHOLD, 0x10),
            (CompletionFlags::MANDATORY, 0x0F),
        ],
        0x1F,
    );
    assert_eq!(CompletionFlags::default().bits(), 0);
}

/// Spec: LMC-07
#[test]
fn memory_privileges() {
    check(
        &[
            (MemoryPrivileges::LOCAL_READ, 1),
            (MemoryPrivileges::REMOTE_READ, 2),
            (MemoryPrivileges::LOCAL_WRITE, 0x10),
            (MemoryPrivileges::REMOTE_WRITE, 0x20),
            (MemoryPrivileges::READ, 3),
            (MemoryPrivileges::WRITE, 0x30),
            (MemoryPrivileges::ALL, 0x33),
        ],
        0x33,
    );
    assert_eq!(MemoryPrivileges::default().bits(), 0);
}

/// Spec: EVC-02
#[test]
fn dispatcher_flags_and_states() {
    check(
        &[
            (EvdFlags::SOFTWARE, 1),
            (EvdFlags::CR, 0x10),
            (EvdFlags::DTO, 0x20),
            (EvdFlags::CONNECTION, 0x40),
            (EvdFlags::RMR_BIND, 0x80),
            (EvdFlags::ASYNC, 0x100),
            (EvdFlags::DEFAULT, 0x1F0),
        ],
        0x1F1,
    );
    check(
        &[
            (EvdState::ENABLED, 1),
            (EvdState::DISABLED, 2),
            (EvdState::WAITABLE, 4),
            (EvdState::UNWAITABLE, 8),
            (EvdState::CONFIG_NOTIFY, 0x10),
            (EvdState::CONFIG_SOLICITED, 0x20),
            (EvdState::CONFIG_THRESHOLD, 0x30),
        ],
        0x3F,
    );
    let threshold = EvdState::ENABLED | EvdState::WAITABLE | EvdState::CONFIG_THRESHOLD;
    assert_eq!(threshold.configuration(), EvdState::CONFIG_THRESHOLD);
    assert_ne!(threshold.configuration(), EvdState::CONFIG_NOTIFY);
    assert_eq!(EvdState::ENABLED.configuration(), EvdState::empty());
}

/// Spec: IAQ-05
#[test]
fn qualities_paths_and_memory_types() {
    check(
        &[
            (QualityOfService::BEST_EFFORT, 0),
            (QualityOfService::HIGH_THROUGHPUT, 1),
            (QualityOfService::LOW_LATENCY, 2),
            (QualityOfService::ECONOMY, 4),
            (QualityOfService::PREMIUM, 8),
        ],
        0xF,
    );
    assert!(QualityOfService::BEST_EFFORT.is_single() && QualityOfService::PREMIUM.is_single());
    assert!(!(QualityOfService::PREMIUM | QualityOfService::LOW_LATENCY).is_single());
    check(
        &[(ConnectFlags::MULTIPATH, 1), (ConnectFlags::default(), 0)],
        1,
    );
    check(
        &[(MemoryTypes::LMR, 1), (MemoryTypes::SHARED_VIRTUAL, 2)],
        3,
    );
    for &kind in MemoryType::ALL {
        assert!(MemoryTypes::from_bits(kind.value()).is_some());
    }
}

/// Spec: GEN-08
#[test]
fn object_fields() {
    check(
        &[
            (LmrFields::IA, 1),
            (LmrFields::MEM_TYPE, 2),
            (LmrFields::REGION_DESC, 4),
            (LmrFields::LENGTH, 8),
            (LmrFields::PZ, 0x10),
            (LmrFields::MEM_PRIV, 0x20),
            (LmrFields::LMR_CONTEXT, 0x40),
            (LmrFields::RMR_CONTEXT, 0x80),
            (LmrFields::REGISTERED_SIZE, 0x100),
            (LmrFields::REGISTERED_ADDRESS, 0x200),
        ],
        0x3FF,
    );
    check(
        &[
            (RmrFields::IA, 1),
            (RmrFields::PZ, 2),
            (RmrFields::LMR_TRIPLET, 4),
            (RmrFields::MEM_PRIV, 8),
            (RmrFields::RMR_CONTEXT, 0x10),
        ],
        0x1F,
    );
    check(
        &[
            (SrqFields::IA, 1),
            (SrqFields::STATE, 2),
            (SrqFields::PZ, 4),
            (SrqFields::MAX_RECV_DTO, 8),
            (SrqFields::MAX_RECV_IOV, 0x10),
            (SrqFields::LOW_WATERMARK, 0x20),
            (SrqFields::AVAILABLE, 0x40),
            (SrqFields::OUTSTANDING, 0x80),
        ],
        0xFF,
    );
    check(
        &[
            (EvdFields::IA, 1),
            (EvdFields::QLEN, 2),
            (EvdFields::STATE, 4),
            (EvdFields::CNO, 8),
            (EvdFields::FLAGS, 0x10),
        ],
        0x1F,
    );
    check(&[(CnoFields::IA, 1), (CnoFields::AGENT, 2)], 3);
    check(&[(PzFields::IA, 1)], 1);
    check(
        &[
            (PspFields::IA, 1),
            (PspFields::CONN_QUAL, 2),
            (PspFields::EVD, 4),
            (PspFields::FLAGS, 8),
        ],
        0xF,
    );
    check(
        &[
            (RspFields::IA, 1),
            (RspFields::CONN_QUAL, 2),
            (RspFields::EVD, 4),
            (RspFields::EP, 8),
        ],
        0xF,
    );
    check(
        &[
            (CrFields::REMOTE_IA_ADDRESS, 1),
            (CrFields::REMOTE_PORT, 2),
            (CrFields::PRIVATE_DATA_SIZE, 4),
            (CrFields::PRIVATE_DATA, 8),
            (CrFields::LOCAL_EP, 0x10),
        ],
        0x1F,
    );
}

/// Spec: GEN-08
#[test]
fn endpoint_fields() {
    check(
        &[
            (EpFields::IA, 1),
            (EpFields::STATE, 2),
            (EpFields::LOCAL_IA_ADDRESS, 4),
            (EpFields::LOCAL_PORT, 8),
            (EpFields::REMOTE_IA_ADDRESS, 0x10),
            (EpFields::REMOTE_PORT, 0x20),
            (EpFields::PZ, 0x40),
            (EpFields::RECV_EVD, 0x80),
            (EpFields::REQUEST_EVD, 0x100),
            (EpFields::CONNECT_EVD, 0x200),
            (EpFields::SRQ, 0x400),
            (EpFields::SERVICE_TYPE, 0x1000),
            (EpFields::MAX_MESSAGE_SIZE, 0x2000),
            (EpFields::MAX_RDMA_SIZE, 0x4000),
            (EpFields::QOS, 0x8000),
            (EpFields::RECV_COMPLETION_FLAGS, 0x1_0000),
            (EpFields::REQUEST_COMPLETION_FLAGS, 0x2_0000),
            (EpFields::MAX_RECV_DTOS, 0x4_0000),
            (EpFields::MAX_REQUEST_DTOS, 0x8_0000),
            (EpFields::MAX_RECV_IOV, 0x10_0000),
            (EpFields::MAX_REQUEST_IOV, 0x20_0000),
            (EpFields::MAX_RDMA_READ_IN, 0x40_0000),
            (EpFields::MAX_RDMA_READ_OUT, 0x80_0000),
            (EpFields::SRQ_SOFT_HW, 0x100_0000),
            (EpFields::MAX_RDMA_READ_IOV, 0x200_0000),
            (EpFields::MAX_RDMA_WRITE_IOV, 0x400_0000),
            (EpFields::NUM_TRANSPORT_ATTR, 0x800_0000),
            (EpFields::TRANSPORT_SPECIFIC_ATTR, 0x1000_0000),
            (EpFields::NUM_PROVIDER_ATTR, 0x2000_0000),
            (EpFields::PROVIDER_SPECIFIC_ATTR, 0x4000_0000),
            (EpFields::ATTRIBUTES, 0x7FFF_F000),
        ],
        0x7FFF_F7FF,
    );
}

/// Spec: GEN-08, IAQ-04
#[test]
fn adapter_fields_are_in_structure_order() {
    let order = [
        IaFields::ADAPTER_NAME,
        IaFields::VENDOR_NAME,
        IaFields::HARDWARE_VERSION_MAJOR,
        IaFields::HARDWARE_VERSION_MINOR,
        IaFields::FIRMWARE_VERSION_MAJOR,
        IaFields::FIRMWARE_VERSION_MINOR,
        IaFields::IA_ADDRESS,
        IaFields::MAX_EPS,
        IaFields::MAX_DTO_PER_EP,
        IaFields::MAX_RDMA_READ_PER_EP_IN,
        IaFields::MAX_RDMA_READ_PER_EP_OUT,
        IaFields::MAX_EVDS,
        IaFields::MAX_EVD_QLEN,
        IaFields::MAX_IOV_SEGMENTS_PER_DTO,
        IaFields::MAX_LMRS,
        IaFields::MAX_LMR_BLOCK_SIZE,
        IaFields::MAX_LMR_VIRTUAL_ADDRESS,
        IaFields::MAX_PZS,
        IaFields::MAX_MESSAGE_SIZE,
        IaFields::MAX_RDMA_SIZE,
        IaFields::MAX_RMRS,
        IaFields::MAX_RMR_TARGET_ADDRESS,
        IaFields::MAX_SRQS,
        IaFields::MAX_EP_PER_SRQ,
        IaFields::MAX_RECV_PER_SRQ,
        IaFields::MAX_IOV_SEGMENTS_PER_RDMA_READ,
        IaFields::MAX_IOV_SEGMENTS_PER_RDMA_WRITE,
        IaFields::MAX_RDMA_READ_IN,
        IaFields::MAX_RDMA_READ_OUT,
        IaFields::MAX_RDMA_READ_PER_EP_IN_GUARANTEED,
        IaFields::MAX_RDMA_READ_PER_EP_OUT_GUARANTEED,
        IaFields::NUM_TRANSPORT_ATTR,
        IaFields::TRANSPORT_ATTR,
        IaFields::NUM_VENDOR_ATTR,
        IaFields::VENDOR_ATTR,
    ];
    assert_eq!(order.len(), 35);
    for (shift, field) in order.into_iter().enumerate() {
        check(&[(field, 1 << shift)], 0x7_FFFF_FFFF);
    }
}

/// Spec: GEN-08, IAQ-10
#[test]
fn provider_fields_are_in_structure_order() {
    let order = [
        ProviderFields::PROVIDER_NAME,
        ProviderFields::PROVIDER_VERSION_MAJOR,
        ProviderFields::PROVIDER_VERSION_MINOR,
        ProviderFields::DAPL_VERSION_MAJOR,
        ProviderFields::DAPL_VERSION_MINOR,
        ProviderFields::LMR_MEM_TYPES_SUPPORTED,
        ProviderFields::IOV_OWNERSHIP,
        ProviderFields::QOS_SUPPORTED,
        ProviderFields::COMPLETION_FLAGS_SUPPORTED,
        ProviderFields::IS_THREAD_SAFE,
        ProviderFields::MAX_PRIVATE_DATA_SIZE,
        ProviderFields::SUPPORTS_MULTIPATH,
        ProviderFields::EP_CREATOR,
        ProviderFields::PZ_SUPPORT,
        ProviderFields::OPTIMAL_BUFFER_ALIGNMENT,
        ProviderFields::EVD_STREAM_MERGING_SUPPORTED,
        ProviderFields::SRQ_SUPPORTED,
        ProviderFields::SRQ_WATERMARKS_SUPPORTED,
        ProviderFields::SRQ_EP_PZ_DIFFERENCE_SUPPORTED,
        ProviderFields::SRQ_INFO_SUPPORTED,
        ProviderFields::EP_RECV_INFO_SUPPORTED,
        ProviderFields::LMR_SYNC_REQ,
        ProviderFields::DTO_ASYNC_RETURN_GUARANTEED,
        ProviderFields::RDMA_WRITE_FOR_RDMA_READ_REQ,
        ProviderFields::NUM_PROVIDER_SPECIFIC_ATTR,
        ProviderFields::PROVIDER_SPECIFIC_ATTR,
    ];
    assert_eq!(order.len(), 26);
    for (shift, field) in order.into_iter().enumerate() {
        check(&[(field, 1 << shift)], 0x3FF_FFFF);
    }
}

/// Spec: HTY-01, DTO-03, IAQ-05, IAQ-06
#[test]
fn enumerations() {
    check_values(
        &[(CloseFlags::Abrupt, 0), (CloseFlags::Graceful, 1)],
        CloseFlags::ALL,
    );
    check_values(
        &[(PspFlags::Consumer, 0), (PspFlags::Provider, 1)],
        PspFlags::ALL,
    );
    check_values(
        &[
            (MemoryType::Virtual, 0),
            (MemoryType::Lmr, 1),
            (MemoryType::SharedVirtual, 2),
        ],
        MemoryType::ALL,
    );
    check_values(
        &[
            (HandleKind::Cr, 0),
            (HandleKind::Ep, 1),
            (HandleKind::Evd, 2),
            (HandleKind::Ia, 3),
            (HandleKind::Lmr, 4),
            (HandleKind::Psp, 5),
            (HandleKind::Pz, 6),
            (HandleKind::Rmr, 7),
            (HandleKind::Rsp, 8),
            (HandleKind::Cno, 9),
            (HandleKind::Srq, 10),
        ],
        HandleKind::ALL,
    );
    check_values(
        &[
            (EndpointState::Unconnected, 0),
            (EndpointState::Reserved, 2),
            (EndpointState::PassiveConnectionPending, 4),
            (EndpointState::ActiveConnectionPending, 6),
            (EndpointState::TentativeConnectionPending, 7),
            (EndpointState::Connected, 9),
            (EndpointState::DisconnectPending, 10),
            (EndpointState::Disconnected, 11),
            (EndpointState::CompletionPending, 12),
        ],
        EndpointState::ALL,
    );
    check_values(
        &[(SrqState::Operational, 0), (SrqState::Error, 1)],
        SrqState::ALL,
    );
    check_values(&[(ServiceType::ReliableConnected, 0)], ServiceType::ALL);
    check_values(
        &[
            (IovOwnership::Consumer, 0),
            (IovOwnership::ProviderNoModify, 1),
            (IovOwnership::ProviderModify, 2),
        ],
        IovOwnership::ALL,
    );
    check_values(
        &[
            (EpCreator::Never, 0),
            (EpCreator::IfAsked, 1),
            (EpCreator::Always, 2),
        ],
        EpCreator::ALL,
    );
    check_values(
        &[
            (PzSupport::Unique, 0),
            (PzSupport::Same, 1),
            (PzSupport::Shareable, 2),
        ],
        PzSupport::ALL,
    );
    check_values(
        &[
            (DtoStatus::Success, 0),
            (DtoStatus::Flushed, 1),
            (DtoStatus::LocalLength, 2),
            (DtoStatus::LocalEndpoint, 3),
            (DtoStatus::LocalProtection, 4),
            (DtoStatus::BadResponse, 5),
            (DtoStatus::RemoteAccess, 6),
            (DtoStatus::RemoteResponder, 7),
            (DtoStatus::Transport, 8),
            (DtoStatus::ReceiverNotReady, 9),
            (DtoStatus::PartialPacket, 10),
            (DtoStatus::RmrOperationFailed, 11),
            (DtoStatus::LocalMemoryManagement, 12),
        ],
        DtoStatus::ALL,
    );
}

/// Spec: GEN-03
#[test]
fn each_kind_and_state_has_its_subtype() {
    let expected = [18, 12, 26, 11, 13, 16, 15, 14, 17, 19, 25];
    assert_eq!(expected.len(), HandleKind::ALL.len());
    for (kind, subtype) in HandleKind::ALL.iter().zip(expected) {
        assert_eq!(kind.subtype() as u8, subtype, "{kind:?}");
    }
    let expected = [46, 52, 48, 47, 49, 50, 54, 51, 53];
    assert_eq!(expected.len(), EndpointState::ALL.len());
    for (state, subtype) in EndpointState::ALL.iter().zip(expected) {
        assert_eq!(
            state.forbids().code(Abi::V1_2),
            0x8007_0000 | subtype,
            "{state:?}"
        );
    }
}

/// Spec: GEN-04
#[test]
fn an_unknown_number_is_an_invalid_argument() {
    let refused = CloseFlags::try_from(2).map_err(|unknown| unknown.in_argument(2));
    let error = Error::invalid_argument(2).because(Cause::UnknownValue);
    assert_eq!(refused, Err(error));
}
