//! Random numbers from the operating system.

use super::cancel::uncancelled;

/// Returns a random byte, or 0 if the system has none.
///
/// The standard library's generator is thread-local. In a library that was loaded late, its first
/// use in a thread ends the process if the heap is exhausted.
pub(crate) fn random_byte() -> u8 {
    let mut byte = 0_u8;
    // SAFETY: the buffer has room for one byte.
    uncancelled(|| unsafe { libc::getrandom((&raw mut byte).cast(), 1, 0) });
    byte
}
