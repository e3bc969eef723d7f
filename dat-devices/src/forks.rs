//! Children of `fork`: they have no thread of their parent, and do not use its adapters.
//!
//! A child has the locks of the parent's adapters as they were at the fork, but no thread that
//! would release them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Number of processes in a line of forks that have values of their own.
const GENERATIONS: usize = 64;

/// Returns a number that differs in a child of `fork`.
#[inline]
pub fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Notices later forks; called before the first adapter is opened.
///
/// # Errors
/// No memory is left.
#[cfg(unix)]
pub fn prepare() -> std::io::Result<()> {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: OnceLock<()> = OnceLock::new();
    if REGISTERED.get().is_none() {
        // Two threads may do so; the number then differs all the same.
        #[expect(unsafe_code)]
        // SAFETY: the handler only adds to an atomic number.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if refused != 0 {
            return Err(std::io::Error::from_raw_os_error(refused));
        }
        let _ = REGISTERED.set(());
    }
    Ok(())
}

/// Does nothing: there is no `fork`.
#[cfg(not(unix))]
pub fn prepare() -> std::io::Result<()> {
    Ok(())
}

/// A value for each process in a line of forks, made when it is first used.
///
/// A child does not use the value of its parent, whose locks other threads may have held.
#[derive(Debug)]
pub struct PerProcess<T>([OnceLock<T>; GENERATIONS]);

impl<T: Default> PerProcess<T> {
    /// Makes the value of no process yet.
    #[expect(clippy::new_without_default, reason = "it is made in statics only")]
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
