//! Checks of numbers and sizes against the limits of an adapter.

use dat_core::attributes::EpAttributes;
use dat_core::backend::BackendError;

/// Limits of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct PairLimits {
    /// Requests, and receives.
    pub work_requests: u32,
    /// Segments of a request or a receive.
    pub segments: u32,
    /// RDMA Reads under way, in each direction.
    pub reads: u32,
}

impl PairLimits {
    /// Checks the sizes of a queue pair.
    ///
    /// # Errors
    /// `Resources` if one is above its limit.
    pub fn check(&self, attributes: &EpAttributes) -> Result<(), BackendError> {
        let sizes = [
            (attributes.max_request_dtos, self.work_requests),
            (attributes.max_recv_dtos, self.work_requests),
            (attributes.max_request_iov, self.segments),
            (attributes.max_recv_iov, self.segments),
            (attributes.max_rdma_read_in, self.reads),
            (attributes.max_rdma_read_out, self.reads),
        ];
        // The core has checked that none is negative.
        sizes
            .into_iter()
            .try_for_each(|(size, limit)| within(u32::try_from(size).unwrap_or(0), limit))
    }
}

/// Checks a size against its limit.
///
/// # Errors
/// `Resources` if it is above.
pub fn within(size: u32, limit: u32) -> Result<(), BackendError> {
    (size <= limit).then_some(()).ok_or(BackendError::Resources)
}

/// Checks that there may be one more object than `used`.
///
/// # Errors
/// `Resources` if the limit is reached.
pub fn room(used: usize, limit: u32) -> Result<(), BackendError> {
    (used < limit as usize)
        .then_some(())
        .ok_or(BackendError::Resources)
}
