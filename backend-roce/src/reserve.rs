//! Memory that is reserved before it is used, so that a call without memory is refused.

use alloc::vec::Vec;

/// Returns an empty vector with room for `count` values; `None` if there is no memory.
pub(crate) fn reserved<T>(count: usize) -> Option<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    Some(values)
}

/// Returns `count` zeros; `None` if there is no memory.
pub(crate) fn zeros(count: usize) -> Option<Vec<u8>> {
    let mut zeros = reserved(count)?;
    zeros.resize(count, 0);
    Some(zeros)
}
