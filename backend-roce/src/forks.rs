//! Children of `fork`: they keep no socket of their parent, and do not use its adapters.
//!
//! A child has copies of the parent's sockets, which would keep the ports claimed after the
//! parent's end. It has the locks of the adapters as they were, but no thread that would release
//! them.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

/// Sockets of a process that a child gives up; those beyond stay open there.
const SOCKETS: usize = 4096;

/// Number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Descriptors of open sockets, plus one; 0 for none.
static OPEN: [AtomicI32; SOCKETS] = [const { AtomicI32::new(0) }; SOCKETS];

/// A socket without an address, which takes the place of the parent's.
static SUBSTITUTE: OnceLock<UnixDatagram> = OnceLock::new();

/// Set once the handler is registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Returns a number that differs in a child of `fork`, once forks are counted.
///
/// Handlers of signals may call it.
#[must_use]
pub fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// As `generation`, for what a process has without an adapter; counts later forks.
///
/// State with a lock belongs to one generation: a thread of the parent may have held the lock, and
/// the child has no thread that would release it.
#[must_use]
pub fn process_generation() -> usize {
    if !REGISTERED.load(Ordering::Acquire) && register().is_ok() {
        REGISTERED.store(true, Ordering::Release);
    }
    generation()
}

/// Prepares later forks; called before the first socket is opened.
///
/// # Errors
/// No descriptor or no memory is left.
pub(crate) fn prepare() -> io::Result<()> {
    if SUBSTITUTE.get().is_none() {
        let _ = SUBSTITUTE.set(UnixDatagram::unbound()?);
    }
    if !REGISTERED.load(Ordering::Acquire) {
        // Two threads may do so. The handler has the same effect twice.
        register()?;
        REGISTERED.store(true, Ordering::Release);
    }
    Ok(())
}

#[expect(unsafe_code, reason = "a handler of the C library")]
fn register() -> io::Result<()> {
    // SAFETY: `in_child` makes only calls that are allowed between fork and exec.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Adds a socket that children give up.
pub(crate) fn add(socket: RawFd) {
    for slot in &OPEN {
        let free = slot.compare_exchange(0, socket + 1, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            return;
        }
    }
}

/// Removes a socket, before it is closed.
pub(crate) fn remove(socket: RawFd) {
    for slot in &OPEN {
        let removed = slot.compare_exchange(socket + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        if removed.is_ok() {
            return;
        }
    }
}

/// Replaces the sockets of the parent.
///
/// Their numbers stay in use. A close of one of them in the child then closes no other file.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for slot in &OPEN {
        let socket = slot.swap(0, Ordering::Relaxed);
        if socket > 0 {
            replace(socket - 1);
        }
    }
}

#[expect(unsafe_code, reason = "called between fork and exec")]
fn replace(socket: RawFd) {
    let Some(substitute) = SUBSTITUTE.get() else {
        return;
    };
    // SAFETY: both descriptors are open, and the calls are allowed between fork and exec.
    unsafe {
        libc::dup2(substitute.as_raw_fd(), socket);
        libc::fcntl(socket, libc::F_SETFD, libc::FD_CLOEXEC);
    }
}
