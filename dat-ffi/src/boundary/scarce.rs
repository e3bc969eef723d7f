//! A process without memory, for tests.

use std::alloc::{GlobalAlloc as _, Layout, System};

use dat_storage::heap::system_has_memory;

const PROBE: Layout = Layout::new::<[u64; 4096]>();

/// Calls `act` while the heap of the process is exhausted.
pub(crate) fn without_memory<R>(act: impl FnOnce() -> R) -> R {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is a variable of the stack.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut before) };
    let limited = |rlim_cur| {
        let limit = libc::rlimit { rlim_cur, ..before };
        // SAFETY: the structure outlives the call.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }
    };
    assert_eq!((read, limited(0)), (0, 0));
    // Each block has the address of the one before.
    let mut last = std::ptr::null_mut::<u8>();
    loop {
        // SAFETY: the size of the layout is not 0.
        let block = unsafe { System.alloc(PROBE) };
        if block.is_null() {
            break;
        }
        // SAFETY: the block has room for an address, and its alignment.
        unsafe { block.cast::<*mut u8>().write(last) };
        last = block;
    }
    assert!(!system_has_memory());
    let returned = act();
    while !last.is_null() {
        // SAFETY: written above.
        let before = unsafe { last.cast::<*mut u8>().read() };
        // SAFETY: allocated above with this layout, and freed once.
        unsafe { System.dealloc(last, PROBE) };
        last = before;
    }
    assert_eq!(limited(before.rlim_cur), 0);
    returned
}
