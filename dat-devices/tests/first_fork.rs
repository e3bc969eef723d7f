//! A process that uses its network before it opens an adapter, and forks.
//!
//! It has one test: another one might open an adapter first.
#![cfg(target_os = "linux")]

use std::panic::catch_unwind;

use dat_devices::Network;

/// The child has a network of its own, with no names yet.
#[test]
#[expect(unsafe_code, reason = "the subject of this test")]
fn a_child_does_not_use_the_network_of_its_parent() {
    let first = Network::of_process().address("parent");
    // SAFETY: the C library keeps its heap usable in the child, and the closure takes no lock of
    // another thread.
    let child = match unsafe { libc::fork() } {
        0 => {
            let same = catch_unwind(|| Network::of_process().address("child") == first);
            // SAFETY: it ends the process, without the destructors of the parent.
            unsafe { libc::_exit(i32::from(!same.unwrap_or(false))) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: the status is a variable of the stack.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}
