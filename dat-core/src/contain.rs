//! Functions of the consumer, whose panics end where they are called.

/// Runs a waker or another function of the consumer; with the feature `std`, a panic ends here.
///
/// The panic hook has printed the message. What else a call has to do goes on, such as to wake
/// other waiters.
#[inline]
pub fn contain_panic(f: impl FnOnce()) {
    #[cfg(feature = "std")]
    let _panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    #[cfg(not(feature = "std"))]
    f();
}
