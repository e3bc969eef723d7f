//! Children of `fork`, and values that each process has of its own.
//!
//! Threads of the parent are not in the child. A lock that one of them held at the fork stays held
//! there, and nobody ends what one of them had begun. So a child does not use the adapters of its
//! parent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Number of processes in a line of forks that have values of their own.
const GENERATIONS: usize = 64;

/// Returns the number of forks between the first process with this library and this one.
///
/// Forks before [`prepare`] do not count.
#[inline]
#[must_use]
pub fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Counts later forks; called before the first value is used.
///
/// Handlers of `pthread_atfork` that are registered later find the number of the child.
///
/// # Errors
/// No memory is left.
#[cfg(unix)]
pub fn prepare() -> std::io::Result<()> {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Ordering::Relaxed) {
        // Two threads may do so; the number then differs all the same.
        #[expect(unsafe_code)]
        // SAFETY: the handler only adds to an atomic number.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if refused != 0 {
            return Err(std::io::Error::from_raw_os_error(refused));
        }
        REGISTERED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Does nothing: there is no `fork`.
#[cfg(not(unix))]
pub fn prepare() -> std::io::Result<()> {
    Ok(())
}

/// Returns true if this process and its children have values of their own.
#[must_use]
pub fn have_own_values() -> bool {
    generation() < GENERATIONS - 1
}

/// A value for each process in a line of forks, made when it is first used.
///
/// A child does not use the value of its parent, whose locks other threads may have held.
#[derive(Debug)]
pub struct PerProcess<T>([OnceLock<T>; GENERATIONS]);

impl<T: Default> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> PerProcess<T> {
    /// Makes the value of no process yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { OnceLock::new() }; GENERATIONS])
    }

    /// Returns the value of this process. Processes past the last generation share its value.
    pub fn this(&self) -> &T {
        let [others @ .., last] = &self.0;
        others
            .get(generation())
            .unwrap_or(last)
            .get_or_init(T::default)
    }
}
