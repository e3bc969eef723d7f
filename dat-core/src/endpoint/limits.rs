//! Limits of endpoint attributes.

use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes};
use crate::error::{Cause, Error, Result};
use crate::flags::{CompletionFlags, QualityOfService, WATERMARK_INFINITE};

/// Causes for the counts in `check_attributes`, in the same order. A static, to save stack.
static COUNTS: [Cause; 8] = [
    Cause::MaxRecvDtos,
    Cause::MaxRequestDtos,
    Cause::MaxRecvIov,
    Cause::MaxRequestIov,
    Cause::MaxRdmaReadIn,
    Cause::MaxRdmaReadOut,
    Cause::MaxRdmaReadIov,
    Cause::MaxRdmaWriteIov,
];

/// Checks attributes against the adapter; `argument` is their position in the consumer's call.
///
/// The segment limit of receives is ignored for endpoints on a shared receive queue (EPX-05).
///
/// # Errors
/// - INVALID_PARAMETER: a count is negative, a value exceeds the adapter's limit, or a flag is
///   undefined or illegal. The cause names the attribute, except for the quality of service.
/// - MODEL_NOT_SUPPORTED: the provider lacks the quality of service.
///
/// Spec: EPC-08, EPM-04, EPX-05, EPX-09, GEN-07
pub(super) fn check_attributes(
    asked: &EpAttributes,
    adapter: &IaAttributes,
    provider: &ProviderAttributes,
    shared: bool,
    invalid: Error,
) -> Result<()> {
    let refused = |cause| Err(invalid.because(cause));
    let receive_segments = if shared { 0 } else { asked.max_recv_iov };
    let transfers = adapter.max_dto_per_ep;
    let segments = adapter.max_iov_segments_per_dto;
    let counts: [(i32, i32); COUNTS.len()] = [
        (asked.max_recv_dtos, transfers),
        (asked.max_request_dtos, transfers),
        (receive_segments, segments),
        (asked.max_request_iov, segments),
        (asked.max_rdma_read_in, adapter.max_rdma_read_per_ep_in),
        (asked.max_rdma_read_out, adapter.max_rdma_read_per_ep_out),
        (
            asked.max_rdma_read_iov,
            adapter.max_iov_segments_per_rdma_read,
        ),
        (
            asked.max_rdma_write_iov,
            adapter.max_iov_segments_per_rdma_write,
        ),
    ];
    for (&(count, limit), cause) in counts.iter().zip(&COUNTS) {
        if count < 0 || count > limit {
            return refused(*cause);
        }
    }
    if asked.max_message_size > adapter.max_message_size {
        return refused(Cause::MaxMessageSize);
    }
    if asked.max_rdma_size > adapter.max_rdma_size {
        return refused(Cause::MaxRdmaSize);
    }
    if asked.srq_soft_hw < WATERMARK_INFINITE {
        return refused(Cause::SrqSoftHw);
    }
    let common = [
        CompletionFlags::empty(),
        CompletionFlags::UNSIGNALLED,
        CompletionFlags::EVD_THRESHOLD,
    ];
    let solicited = asked.recv_completion_flags == CompletionFlags::SOLICITED_WAIT;
    if !solicited && !common.contains(&asked.recv_completion_flags) {
        return refused(Cause::RecvCompletionFlags);
    }
    if !common.contains(&asked.request_completion_flags) {
        return refused(Cause::RequestCompletionFlags);
    }
    check_quality(asked.qos, provider, invalid)
}

/// Checks a quality of service.
///
/// # Errors
/// - INVALID_PARAMETER: `asked` has undefined bits or more than one quality.
/// - MODEL_NOT_SUPPORTED: the provider lacks the quality.
///
/// Spec: EPK-04
pub(super) fn check_quality(
    asked: QualityOfService,
    provider: &ProviderAttributes,
    invalid: Error,
) -> Result<()> {
    if QualityOfService::from_bits(asked.bits()).is_none() {
        return Err(invalid.because(Cause::UnknownFlags));
    }
    if !asked.is_single() {
        return Err(invalid.because(Cause::FlagCombination));
    }
    if !provider.qos_supported.contains(asked) {
        return Err(Error::model_not_supported().because(Cause::Unsupported));
    }
    Ok(())
}

/// Returns the flags that a request post on such an endpoint must not carry (DTO-05, EPW-37).
pub(super) fn refused_request_flags(attributes: &EpAttributes) -> CompletionFlags {
    let allowed = if attributes.request_completion_flags == CompletionFlags::UNSIGNALLED {
        CompletionFlags::MANDATORY
    } else {
        CompletionFlags::MANDATORY.difference(CompletionFlags::UNSIGNALLED)
    };
    CompletionFlags::from_bits_retain(!allowed.bits())
}

/// Returns the flags that a receive post on such an endpoint must not carry (EPV-01).
pub(super) fn refused_receive_flags(attributes: &EpAttributes) -> CompletionFlags {
    let allowed = if attributes.recv_completion_flags == CompletionFlags::UNSIGNALLED {
        CompletionFlags::UNSIGNALLED
    } else {
        CompletionFlags::empty()
    };
    CompletionFlags::from_bits_retain(!allowed.bits())
}

/// Converts a checked count, which is not negative.
pub(super) fn count(checked: i32) -> u32 {
    u32::try_from(checked).unwrap_or(0)
}

/// Converts a size, capped at the largest that one work request can carry.
pub(super) fn size(asked: u64) -> u32 {
    u32::try_from(asked).unwrap_or(u32::MAX)
}
