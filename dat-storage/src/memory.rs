//! Address space of this process: reserved at once, made accessible in steps.

#[cfg(not(all(unix, not(miri))))]
use std::alloc::{Layout, alloc_zeroed, dealloc};
#[cfg(all(unix, not(miri)))]
use std::ptr;
use std::ptr::NonNull;

/// Set if address space costs no memory.
pub(crate) const RESERVES: bool = cfg!(all(unix, not(miri)));

/// Address space that is reserved for one owner.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
}

#[expect(unsafe_code)]
// SAFETY: it owns the address space, and its only access to it is to return it to the system.
unsafe impl Send for Memory {}
#[expect(unsafe_code)]
// SAFETY: a shared reference gives the first address, and no access.
unsafe impl Sync for Memory {}

#[cfg(test)]
std::thread_local! {
    /// Number of memories that this thread has reserved and not returned.
    pub(crate) static RESERVED: std::cell::Cell<isize> = const { std::cell::Cell::new(0) };
}

impl Memory {
    /// Reserves `length` bytes, at least one, in whole pages; `None` if the system refuses.
    ///
    /// No byte is accessible before `access` made it so.
    pub(crate) fn reserve(length: usize) -> Option<Self> {
        let length = length.max(1).checked_next_multiple_of(page_size())?;
        if isize::try_from(length).is_err() {
            return None;
        }
        let start = map(length)?;
        #[cfg(test)]
        RESERVED.set(RESERVED.get() + 1);
        Some(Self { start, length })
    }

    /// Returns the first address, which is the start of a page.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.start, self.length);
        #[cfg(test)]
        RESERVED.set(RESERVED.get() - 1);
    }
}

#[cfg(all(unix, not(miri)))]
fn map(length: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    #[expect(unsafe_code)]
    // SAFETY: the call reserves new address space, at an address that the system chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Large pages would be provided, and cleared, for a few slots each.
        #[expect(unsafe_code)]
        // SAFETY: the range was just mapped, and the call changes no contents. If it fails, only
        // speed and memory are lost.
        unsafe {
            libc::madvise(start, length, libc::MADV_NOHUGEPAGE);
        }
    }
    NonNull::new(start.cast())
}

#[cfg(all(unix, not(miri)))]
fn unmap(start: NonNull<u8>, length: usize) {
    #[expect(unsafe_code)]
    // SAFETY: `map` mapped the range for the `Memory` that is dropped. Whoever lent slots in it
    // promised that the loan is over.
    unsafe {
        libc::munmap(start.as_ptr().cast(), length);
    }
}

/// Makes the pages of a range accessible; returns false if the system refuses.
///
/// It has the type of a function that `Slots::reserved` takes. The range is part of a table in a
/// `Memory`, and each table starts with a page: no other owner has memory on these pages.
#[cfg(all(unix, not(miri)))]
pub(crate) fn access(start: *mut u8, bytes: usize) -> bool {
    let before = start.addr() % page_size();
    let Some(length) = bytes
        .checked_add(before)
        .and_then(|length| length.checked_next_multiple_of(page_size()))
    else {
        return false;
    };
    let first = start.wrapping_sub(before);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    #[expect(unsafe_code)]
    // SAFETY: the pages are those of a table, as said above. More access harms no reference.
    let outcome = unsafe { libc::mprotect(first.cast(), length, access) };
    outcome == 0
}

/// Returns the page size of this host.
#[cfg(all(unix, not(miri)))]
pub(crate) fn page_size() -> usize {
    #[expect(unsafe_code)]
    // SAFETY: the call returns a number that the C library knows.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let size = usize::try_from(size).ok();
    size.filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

#[cfg(not(all(unix, not(miri))))]
fn layout(length: usize) -> Option<Layout> {
    Layout::from_size_align(length, page_size()).ok()
}

#[cfg(not(all(unix, not(miri))))]
fn map(length: usize) -> Option<NonNull<u8>> {
    let layout = layout(length)?;
    #[expect(unsafe_code)]
    // SAFETY: the length is above 0.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

#[cfg(not(all(unix, not(miri))))]
fn unmap(start: NonNull<u8>, length: usize) {
    if let Some(layout) = layout(length) {
        #[expect(unsafe_code)]
        // SAFETY: `map` allocated the memory with this layout, for the `Memory` that is dropped.
        // Whoever lent slots in it promised that the loan is over.
        unsafe {
            dealloc(start.as_ptr(), layout);
        }
    }
}

/// Returns true: all memory is accessible.
#[cfg(not(all(unix, not(miri))))]
pub(crate) fn access(_start: *mut u8, _bytes: usize) -> bool {
    true
}

/// Returns the alignment of tables.
#[cfg(not(all(unix, not(miri))))]
pub(crate) fn page_size() -> usize {
    4096
}
