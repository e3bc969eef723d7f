//! The memory that the program's buffers may have.

use crate::failure::{Failure, FailureKind, Result};
use crate::size::size;

/// Maximum total bytes of the buffers of one side.
pub(crate) const MOST_MEMORY: u64 = 1 << 30;
/// Alignment of memory to register.
pub(crate) const PAGE: usize = 4096;

/// Checks that buffers of `bytes` bytes in total can be allocated.
///
/// The check comes before the first buffer, because registered memory is never freed. `remedy` gets
/// the number of bytes that would fit. A system that overcommits memory only refuses sizes above a
/// limit.
///
/// # Errors
/// - Memory: the system refuses the allocation.
pub(crate) fn room(bytes: u64, remedy: impl FnOnce(u64) -> String) -> Result<()> {
    // Reserve for all memory that is not a buffer.
    const REST: u64 = 16 << 20;
    let fits = |bytes: u64| {
        usize::try_from(bytes.saturating_add(REST))
            .is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok())
    };
    if fits(bytes) {
        return Ok(());
    }
    let fitting = std::iter::successors(Some(bytes / 2), |bytes| Some(bytes / 2))
        .find(|bytes| *bytes == 0 || fits(*bytes))
        .unwrap_or(0);
    Err(Failure {
        kind: FailureKind::Memory,
        what: "there is not enough memory".into(),
        why: format!(
            "the system refused to allocate {} for the buffers",
            size(bytes)
        ),
        remedy: remedy(fitting),
    })
}
