//! Random numbers of the system.

use super::cancel::uncancelled;

/// A random byte; 0 where the system has none.
///
/// The standard library's numbers are thread-local: a library that was loaded late ends the
/// process if a thread first uses them while the heap is exhausted.
pub(crate) fn random_byte() -> u8 {
    let mut byte = 0_u8;
    // SAFETY: there is room for one byte.
    uncancelled(|| unsafe { libc::getrandom((&raw mut byte).cast(), 1, 0) });
    byte
}
