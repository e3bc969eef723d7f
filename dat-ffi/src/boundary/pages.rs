//! Access to several ranges of memory at a time.

use std::sync::atomic::{AtomicU8, Ordering};

use super::consumer::{Access, advice_for, advise, page_size, system_tells};

/// The pages of a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    first: usize,
    /// The first byte after them.
    end: usize,
}

impl Pages {
    /// No pages.
    pub(crate) const NONE: Self = Self { first: 0, end: 0 };

    /// Returns the pages of a range; `None` if it does not fit in the address space.
    pub(crate) fn of(address: usize, length: usize) -> Option<Self> {
        let end = address.checked_add(length)?;
        if length == 0 {
            return Some(Self::NONE);
        }
        let size = page_size();
        Some(Self {
            first: address - address % size,
            end: end.checked_next_multiple_of(size).unwrap_or(usize::MAX),
        })
    }

    const fn length(self) -> usize {
        self.end - self.first
    }

    fn is_within(self, other: Self) -> bool {
        self == Self::NONE || (other.first <= self.first && self.end <= other.end)
    }

    /// Returns true if the pages allow an access, or if the system cannot tell.
    pub(crate) fn allow(self, needed: Access) -> bool {
        all_allow(&mut [self], Self::NONE, needed)
    }
}

/// Returns true if all pages allow an access, or if the system cannot tell.
///
/// Has the system provide the pages, as for a device. Takes one system call if the pages are next
/// to each other or the system takes a list, and none for `known` pages, which allow the access.
/// Changes the order of `ranges`.
pub(crate) fn all_allow(ranges: &mut [Pages], known: Pages, needed: Access) -> bool {
    ranges.sort_unstable_by_key(|range| range.first);
    let mut runs = 0_usize;
    for next in 0..ranges.len() {
        let Some(range) = ranges.get(next).copied() else {
            break;
        };
        if range.is_within(known) {
            continue;
        }
        match runs.checked_sub(1).and_then(|last| ranges.get_mut(last)) {
            Some(run) if range.first <= run.end => run.end = run.end.max(range.end),
            _ => {
                // Runs take the places of ranges that were looked at.
                if let Some(run) = ranges.get_mut(runs) {
                    *run = range;
                }
                runs += 1;
            }
        }
    }
    let runs = ranges.get(..runs).unwrap_or_default();
    let advice = advice_for(needed);
    runs.is_empty()
        || !system_tells()
        || (runs.len() > 1 && takes_lists() && advise_all(runs, advice))
        || runs
            .iter()
            .all(|run| advise(run.first, run.length(), advice) == 0)
}

/// Maximum number of runs in one call.
const MOST: usize = 16;

/// Returns true if the system knows the call that `advise_all` uses: Linux 6.14 and later.
fn takes_lists() -> bool {
    const UNKNOWN: u8 = 2;
    static TAKES: AtomicU8 = AtomicU8::new(UNKNOWN);
    match TAKES.load(Ordering::Relaxed) {
        UNKNOWN => {
            let here = 0_u8;
            let pages = Pages::of(std::ptr::from_ref(&here).expose_provenance(), 1);
            let takes = pages.is_some_and(|pages| advise_all(&[pages], libc::MADV_POPULATE_READ));
            TAKES.store(takes.into(), Ordering::Relaxed);
            takes
        }
        known => known != 0,
    }
}

/// Advises the system about several runs of pages; returns true if it took all of them.
///
/// The advice changes no contents.
fn advise_all(runs: &[Pages], advice: i32) -> bool {
    /// This thread, and so the memory of this process.
    const PIDFD_SELF_THREAD: i32 = -10000;
    let mut list = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; MOST];
    if runs.len() > MOST {
        return false;
    }
    let mut length = 0_usize;
    for (entry, run) in list.iter_mut().zip(runs) {
        entry.iov_base = std::ptr::without_provenance_mut(run.first);
        entry.iov_len = run.length();
        length = length.saturating_add(run.length());
    }
    // SAFETY: the list has as many entries. The system checks the ranges; such advice changes no
    // contents.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF_THREAD,
            list.as_ptr(),
            runs.len(),
            advice,
            0_u32,
        )
    };
    #[cfg(test)]
    super::consumer::count_call();
    usize::try_from(advised) == Ok(length)
}

#[cfg(test)]
mod tests {
    use super::super::consumer::calls;
    use super::*;

    /// Maps pages of which every second one has no access; returns the first address.
    fn every_second(pages: usize, rights: i32) -> usize {
        // SAFETY: maps new memory at an address that the system chooses, and changes the access of
        // parts of it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(
                std::ptr::null_mut(),
                pages * page_size(),
                libc::PROT_NONE,
                flags,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            for page in (0..pages).step_by(2) {
                let page = start.byte_add(page * page_size());
                assert_eq!(libc::mprotect(page, page_size(), rights), 0);
            }
            start.expose_provenance()
        }
    }

    /// Returns the answer, and the number of system calls that it took.
    fn asked(ranges: &[(usize, usize)], known: Pages, needed: Access) -> (bool, u32) {
        takes_lists();
        system_tells();
        let before = calls();
        let mut pages: Vec<_> = ranges
            .iter()
            .map(|(address, length)| Pages::of(*address, *length).expect("a range"))
            .collect();
        let answer = all_allow(&mut pages, known, needed);
        (answer, calls() - before)
    }

    /// Spec: RSMPV-15
    #[test]
    fn neighbours_take_one_call_in_any_order_and_known_pages_none() {
        let bytes = vec![1_u8; 64 * page_size()];
        let start = bytes.as_ptr().expose_provenance();
        let ranges: Vec<_> = [5, 3, 4, 0, 7, 1, 2, 6]
            .map(|at| (start + at * page_size() + 8, page_size()))
            .into();
        assert_eq!(asked(&ranges, Pages::NONE, Access::Write), (true, 1));
        let known = Pages::of(start, 8 * page_size() + 8).expect("pages");
        assert_eq!(asked(&ranges, known, Access::Write), (true, 0));
        assert_eq!(
            asked(&[(8, 0), (0, 0)], Pages::NONE, Access::Write),
            (true, 0)
        );
        assert!(Pages::of(usize::MAX, 2).is_none());
        let last = [(usize::MAX - 9, 5), (start, 1)];
        assert!(!asked(&last, Pages::NONE, Access::Read).0);
    }

    /// Spec: RSMPV-15, RSMPV-E04
    #[test]
    fn scattered_pages_take_one_call_where_the_system_takes_lists() {
        let (size, start) = (
            page_size(),
            every_second(64, libc::PROT_READ | libc::PROT_WRITE),
        );
        let read_only = every_second(4, libc::PROT_READ);
        let mut ranges: Vec<_> = (0..16).map(|at| (start + 2 * at * size + 1, 9)).collect();
        let each = if takes_lists() { 1 } else { 16 };
        assert_eq!(asked(&ranges, Pages::NONE, Access::Write), (true, each));
        ranges.push((start + 32 * size, 1));
        // More than a list takes.
        assert_eq!(asked(&ranges, Pages::NONE, Access::Read), (true, 17));
        ranges.pop();
        for (wrong, needed) in [
            (start + size, Access::Read),
            (start + 64 * size, Access::Read),
            (start + 3 * size - 1, Access::Read),
            (read_only, Access::Write),
        ] {
            for at in [0, 7, 15] {
                let mut ranges = ranges.clone();
                ranges[at] = (wrong, 2);
                assert!(!asked(&ranges, Pages::NONE, needed).0, "{wrong:#x}");
            }
        }
        ranges[3] = (read_only, 2);
        assert!(asked(&ranges, Pages::NONE, Access::Read).0);
    }
}
