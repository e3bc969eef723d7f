//! Values of DAT 1.2: numbers of the core compared with those that a C compiler makes of our
//! headers.

use std::fmt::Debug;

use dat_core::flags::*;
use dat_core::{Abi, Error, ErrorKind, Subtype};

use super::layout_tests::Both;
use crate::calls::names::{self, in_capitals};

/// Adds values by their names in Rust.
fn named<T: Copy + Debug>(
    both: &mut Both,
    prefix: &str,
    suffix: &str,
    values: &[T],
    number: impl Fn(T) -> u32,
) {
    for value in values {
        let name = format!("{prefix}{}{suffix}", in_capitals(value));
        both.same(&name, number(*value).into(), &name);
    }
}

/// Adds values in the order of their names in C; a mask has its `ALL` last.
fn listed(both: &mut Both, prefix: &str, names: &str, values: impl IntoIterator<Item = u64>) {
    let mut values = values.into_iter();
    for name in names.split_whitespace() {
        let name = format!("{prefix}{name}");
        both.same(&name, values.next().expect("a value"), &name);
    }
    assert_eq!(values.next(), None, "{prefix}");
}

/// Adds the bits of a mask one after the other, and then the mask.
macro_rules! mask {
    ($both:ident, $mask:ty, $prefix:literal, $names:literal) => {
        let bits = <$mask>::all().iter().chain([<$mask>::all()]);
        listed(
            &mut $both,
            $prefix,
            concat!($names, " ALL"),
            bits.map(|bit| bit.bits().into()),
        );
    };
}

/// Adds flags by their names in Rust.
macro_rules! flags {
    ($both:ident, $flags:ty, $prefix:literal, $suffix:literal) => {
        for (name, flag) in <$flags>::all().iter_names() {
            let name = format!("{}{name}{}", $prefix, $suffix);
            $both.same(&name, flag.bits().into(), &name);
        }
    };
}

/// Spec: GEN-01
#[test]
fn return_codes_are_those_of_our_headers() {
    let mut both = Both::default();
    let code = |kind, subtype| Error::new(kind, subtype).code(Abi::V1_2);
    let in_1_2 = |kind: &ErrorKind| {
        Error::from_code(code(*kind, Subtype::NoSubtype), Abi::V1_2)
            == Some(Err(Error::new(*kind, Subtype::NoSubtype)))
    };
    for kind in ErrorKind::ALL.iter().filter(|kind| in_1_2(kind)) {
        let name = names::of_kind(*kind);
        let rust = code(*kind, Subtype::NoSubtype) & 0x3FFF_FFFF;
        both.same(&name, rust.into(), &name);
    }
    let mut subtypes = 0;
    for subtype in Subtype::ALL {
        let rust = code(ErrorKind::InvalidState, *subtype);
        let known = Error::from_code(rust, Abi::V1_2);
        if known != Some(Err(Error::new(ErrorKind::InvalidState, *subtype))) {
            continue;
        }
        let name = names::of_subtype(*subtype);
        both.same(&name, u64::from(rust & 0xFFFF), &name);
        let full_name = format!("DAT_ERROR(DAT_INVALID_STATE, {name})");
        both.same(&format!("full_name {name}"), rust.into(), &full_name);
        subtypes += 1;
    }
    assert_eq!(subtypes, 102);
    both.check(&["dat/udat.h"]);
}

/// Spec: GEN-08, IAQ-05, EPM-01
#[test]
fn masks_and_flags_are_those_of_our_headers() {
    let mut both = Both::default();
    mask!(
        both,
        LmrFields,
        "DAT_LMR_FIELD_",
        "IA_HANDLE MEM_TYPE REGION_DESC LENGTH PZ_HANDLE MEM_PRIV LMR_CONTEXT RMR_CONTEXT REGISTERED_SIZE REGISTERED_ADDRESS"
    );
    mask!(
        both,
        RmrFields,
        "DAT_RMR_FIELD_",
        "IA_HANDLE PZ_HANDLE LMR_TRIPLET MEM_PRIV RMR_CONTEXT"
    );
    mask!(
        both,
        EpFields,
        "DAT_EP_FIELD_",
        "IA_HANDLE EP_STATE LOCAL_IA_ADDRESS_PTR LOCAL_PORT_QUAL REMOTE_IA_ADDRESS_PTR REMOTE_PORT_QUAL PZ_HANDLE RECV_EVD_HANDLE
         REQUEST_EVD_HANDLE CONNECT_EVD_HANDLE SRQ_HANDLE EP_ATTR_SERVICE_TYPE EP_ATTR_MAX_MESSAGE_SIZE EP_ATTR_MAX_RDMA_SIZE
         EP_ATTR_QOS EP_ATTR_RECV_COMPLETION_FLAGS EP_ATTR_REQUEST_COMPLETION_FLAGS EP_ATTR_MAX_RECV_DTOS EP_ATTR_MAX_REQUEST_DTOS
         EP_ATTR_MAX_RECV_IOV EP_ATTR_MAX_REQUEST_IOV EP_ATTR_MAX_RDMA_READ_IN EP_ATTR_MAX_RDMA_READ_OUT EP_ATTR_SRQ_SOFT_HW
         EP_ATTR_MAX_RDMA_READ_IOV EP_ATTR_MAX_RDMA_WRITE_IOV EP_ATTR_NUM_TRANSPORT_ATTR EP_ATTR_TRANSPORT_SPECIFIC_ATTR
         EP_ATTR_NUM_PROVIDER_ATTR EP_ATTR_PROVIDER_SPECIFIC_ATTR"
    );
    mask!(
        both,
        SrqFields,
        "DAT_SRQ_FIELD_",
        "IA_HANDLE SRQ_STATE PZ_HANDLE MAX_RECV_DTO MAX_RECV_IOV LOW_WATERMARK AVAILABLE_DTO_COUNT OUTSTANDING_DTO_COUNT"
    );
    mask!(
        both,
        EvdFields,
        "DAT_EVD_FIELD_",
        "IA_HANDLE EVD_QLEN EVD_STATE CNO EVD_FLAGS"
    );
    mask!(both, CnoFields, "DAT_CNO_FIELD_", "IA_HANDLE AGENT");
    mask!(both, PzFields, "DAT_PZ_FIELD_", "IA_HANDLE");
    mask!(
        both,
        PspFields,
        "DAT_PSP_FIELD_",
        "IA_HANDLE CONN_QUAL EVD_HANDLE PSP_FLAGS"
    );
    mask!(
        both,
        RspFields,
        "DAT_RSP_FIELD_",
        "IA_HANDLE CONN_QUAL EVD_HANDLE EP_HANDLE"
    );
    mask!(
        both,
        CrFields,
        "DAT_CR_FIELD_",
        "REMOTE_IA_ADDRESS_PTR REMOTE_PORT_QUAL PRIVATE_DATA_SIZE PRIVATE_DATA LOCAL_EP_HANDLE"
    );
    mask!(
        both,
        IaFields,
        "DAT_IA_FIELD_",
        "IA_ADAPTER_NAME IA_VENDOR_NAME IA_HARDWARE_MAJOR_VERSION IA_HARDWARE_MINOR_VERSION IA_FIRMWARE_MAJOR_VERSION
         IA_FIRMWARE_MINOR_VERSION IA_ADDRESS_PTR IA_MAX_EPS IA_MAX_DTO_PER_EP IA_MAX_RDMA_READ_PER_EP_IN
         IA_MAX_RDMA_READ_PER_EP_OUT IA_MAX_EVDS IA_MAX_EVD_QLEN IA_MAX_IOV_SEGMENTS_PER_DTO IA_MAX_LMRS IA_MAX_LMR_BLOCK_SIZE
         IA_MAX_LMR_VIRTUAL_ADDRESS IA_MAX_PZS IA_MAX_MESSAGE_SIZE IA_MAX_RDMA_SIZE IA_MAX_RMRS IA_MAX_RMR_TARGET_ADDRESS
         IA_MAX_SRQS IA_MAX_EP_PER_SRQ IA_MAX_RECV_PER_SRQ IA_MAX_IOV_SEGMENTS_PER_RDMA_READ IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE
         IA_MAX_RDMA_READ_IN IA_MAX_RDMA_READ_OUT IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED
         IA_NUM_TRANSPORT_ATTR IA_TRANSPORT_ATTR IA_NUM_VENDOR_ATTR IA_VENDOR_ATTR"
    );
    mask!(
        both,
        ProviderFields,
        "DAT_PROVIDER_FIELD_",
        "PROVIDER_NAME PROVIDER_VERSION_MAJOR PROVIDER_VERSION_MINOR DAPL_VERSION_MAJOR DAPL_VERSION_MINOR LMR_MEM_TYPE_SUPPORTED
         IOV_OWNERSHIP DAT_QOS_SUPPORTED COMPLETION_FLAGS_SUPPORTED IS_THREAD_SAFE MAX_PRIVATE_DATA_SIZE SUPPORTS_MULTIPATH
         EP_CREATOR PZ_SUPPORT OPTIMAL_BUFFER_ALIGNMENT EVD_STREAM_MERGING_SUPPORTED SRQ_SUPPORTED SRQ_WATERMARKS_SUPPORTED
         SRQ_EP_PZ_DIFFERENCE_SUPPORTED SRQ_INFO_SUPPORTED EP_RECV_INFO_SUPPORTED LMR_SYNC_REQ DTO_ASYNC_RETURN_GUARANTEED
         RDMA_WRITE_FOR_RDMA_READ_REQ NUM_PROVIDER_SPECIFIC_ATTR PROVIDER_SPECIFIC_ATTR"
    );
    flags!(both, CompletionFlags, "DAT_COMPLETION_", "_FLAG");
    flags!(both, QualityOfService, "DAT_QOS_", "");
    flags!(both, EvdFlags, "DAT_EVD_", "_FLAG");
    flags!(both, MemoryPrivileges, "DAT_MEM_PRIV_", "_FLAG");
    flags!(both, ConnectFlags, "DAT_CONNECT_", "_FLAG");
    both.check(&["dat/udat.h"]);
}

/// Spec: HTY-01, EPG-01, DTO-03, IAQ-06
#[test]
fn numbers_of_kinds_and_states_are_those_of_our_headers() {
    let mut both = Both::default();
    let b = &mut both;
    named(
        b,
        "DAT_HANDLE_TYPE_",
        "",
        HandleKind::ALL,
        HandleKind::value,
    );
    named(b, "DAT_CLOSE_", "_FLAG", CloseFlags::ALL, CloseFlags::value);
    named(b, "DAT_PSP_", "_FLAG", PspFlags::ALL, PspFlags::value);
    named(b, "DAT_MEM_TYPE_", "", MemoryType::ALL, MemoryType::value);
    named(
        b,
        "DAT_EP_STATE_",
        "",
        EndpointState::ALL,
        EndpointState::value,
    );
    named(b, "DAT_SRQ_STATE_", "", SrqState::ALL, SrqState::value);
    named(b, "DAT_PZ_", "", PzSupport::ALL, PzSupport::value);
    let numbers = |count| 0..count;
    listed(
        b,
        "DAT_IOV_",
        "CONSUMER PROVIDER_NOMOD PROVIDER_MOD",
        numbers(3),
    );
    listed(b, "DAT_PSP_CREATES_EP_", "NEVER IFASKED ALWAYS", numbers(3));
    listed(b, "DAT_SERVICE_TYPE_", "RC", numbers(1));
    // DAT 2.0 adds a last status, for the kernel.
    let statuses = DtoStatus::ALL.iter().take(12);
    let statuses = statuses.map(|status| status.value().into());
    listed(
        b,
        "DAT_",
        "DTO_SUCCESS DTO_ERR_FLUSHED DTO_ERR_LOCAL_LENGTH DTO_ERR_LOCAL_EP DTO_ERR_LOCAL_PROTECTION DTO_ERR_BAD_RESPONSE
         DTO_ERR_REMOTE_ACCESS DTO_ERR_REMOTE_RESPONDER DTO_ERR_TRANSPORT DTO_ERR_RECEIVER_NOT_READY DTO_ERR_PARTIAL_PACKET
         RMR_OPERATION_FAILED",
        statuses,
    );
    b.same("infinite", u32::MAX.into(), "DAT_TIMEOUT_INFINITE");
    b.same("watermark", u64::MAX, "DAT_WATERMARK_INFINITE");
    b.same("unknown", u64::MAX - 1, "DAT_VALUE_UNKNOWN");
    b.same(
        "cookie",
        LMR_COOKIE_SIZE as u64,
        "sizeof(*(DAT_LMR_COOKIE)0)",
    );
    b.same("exists", 1, "DAT_EVD_ASYNC_EXISTS");
    b.same("out of scope", 2, "DAT_EVD_OUT_OF_SCOPE");
    both.check(&["dat/udat.h"]);
}
