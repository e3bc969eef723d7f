//! Memory of the caller that bytes move from and to.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::{EINVAL, MADV_POPULATE_READ, MADV_POPULATE_WRITE};

use super::Plain;

/// Where memory of the caller begins, or null; C says how much of it there is.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Consumer(*mut c_void);

// SAFETY: an address.
unsafe impl Plain for Consumer {}

impl Consumer {
    /// Where it begins.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `length` bytes from `offset` on, which others may change meanwhile; `None` if there can be no such memory.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Option<&[AtomicU8]> {
        if length == 0 {
            return Some(&[]);
        }
        let start = self.address().checked_add(offset)?;
        start.checked_add(length)?;
        if self.is_null() || isize::try_from(length).is_err() {
            return None;
        }
        let first = self.0.wrapping_byte_add(offset).cast::<AtomicU8>();
        // SAFETY: by the promise of the C caller so much memory is there as long as the call lasts; that others may change it
        // meanwhile is what atomics are for.
        Some(unsafe { std::slice::from_raw_parts(first, length) })
    }
}

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Some of it is not there.
    None,
    /// It can be read.
    Read,
    /// It can be read and written.
    Write,
}

/// Looks what may be done with memory, and has the system provide it, as for a device. Where the system cannot tell, it may be written.
pub(crate) fn access_to(address: usize, length: usize) -> Access {
    if !system_tells() || populate(address, length, MADV_POPULATE_WRITE) == 0 {
        return Access::Write;
    }
    match populate(address, length, MADV_POPULATE_READ) {
        0 => Access::Read,
        _ => Access::None,
    }
}

/// Whether the system can be asked what may be done with memory.
fn system_tells() -> bool {
    const UNKNOWN: u8 = 2;
    static TELLS: AtomicU8 = AtomicU8::new(UNKNOWN);
    match TELLS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let here = 0_u8;
            let address = ptr::from_ref(&here).expose_provenance();
            let tells = populate(address, 1, MADV_POPULATE_READ) != EINVAL;
            TELLS.store(tells.into(), Ordering::Relaxed);
            tells
        }
        known => known != 0,
    }
}

/// Where the system tells which memory a process has.
const MEMORY: &str = "/proc/self/maps";

/// Most memory that the system is asked to provide, in bytes, so that it says what may be done with it.
const PROVIDED: usize = 4 << 20;

/// Whether memory may be used as `needed`; true where the system does not say.
///
/// Small memory is provided, as for a device that pins it: the cost does not grow with the mappings of the process. The list of
/// mappings is read for large memory, and before memory is refused: the list knows how far the stack may grow.
pub(crate) fn allows(address: usize, length: usize, needed: Access) -> bool {
    let advice = match needed {
        Access::Write => MADV_POPULATE_WRITE,
        Access::Read | Access::None => MADV_POPULATE_READ,
    };
    (length <= PROVIDED && populate(address, length, advice) == 0)
        || told_access(address, length) >= needed
}

#[cfg(test)]
std::thread_local! {
    /// How often this thread has read the list of mappings.
    static LISTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// What the list of mappings says that may be done with memory. Where there is no list, it may be written.
fn told_access(address: usize, length: usize) -> Access {
    #[cfg(test)]
    LISTED.set(LISTED.get() + 1);
    match std::fs::read_to_string(MEMORY) {
        Ok(memory) => access_by(&memory, stack_limit(), address, length),
        Err(_) => Access::Write,
    }
}

/// How large the stack of the first thread may become.
fn stack_limit() -> usize {
    /// Nobody has more, and what lies further below is something else.
    const MOST: usize = 1 << 30;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: there is room for the answer.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    match usize::try_from(limit.rlim_cur) {
        Ok(limit) if answer == 0 => limit.min(MOST),
        _ => MOST,
    }
}

/// The same by the list of a process's memory, which is in order: `first-behind rwxp ...`, in hexadecimal digits. The stack of the first thread
/// is as long as it may become: what was never touched of it is not in the list.
fn access_by(memory: &str, stack_limit: usize, address: usize, length: usize) -> Access {
    let Some(end) = address.checked_add(length) else {
        return Access::None;
    };
    let mut access = Access::Write;
    let mut next = address;
    for line in memory.lines() {
        let mut words = line.split([' ', '-']);
        let mut number = || usize::from_str_radix(words.next()?, 16).ok();
        let (Some(mut first), Some(behind)) = (number(), number()) else {
            continue;
        };
        if line.ends_with("[stack]") {
            first = first.min(behind.saturating_sub(stack_limit));
        }
        if next >= end || first > next {
            break;
        }
        if next < behind {
            let rights = words.next().unwrap_or_default();
            access = access.min(match (rights.starts_with('r'), rights.contains('w')) {
                (true, true) => Access::Write,
                (true, false) => Access::Read,
                (false, _) => Access::None,
            });
            next = behind;
        }
    }
    if next >= end { access } else { Access::None }
}

fn populate(address: usize, length: usize, advice: i32) -> i32 {
    let before = address % page_size();
    let Some(length) = length.checked_add(before) else {
        return EINVAL;
    };
    let first = ptr::without_provenance_mut(address.wrapping_sub(before));
    // SAFETY: the system looks at the range, provides pages for it, and changes nothing that is in it.
    match unsafe { libc::madvise(first, length, advice) } {
        0 => 0,
        _ => last_error(),
    }
}

/// What the system said of its last call on this thread.
pub(crate) fn last_error() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(EINVAL)
}

/// The page size of this host.
pub(crate) fn page_size() -> usize {
    // SAFETY: asks for a number, which the C library knows.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    size.ok().filter(|size| *size != 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMPV-E04, RSMPV-15
    #[test]
    fn memory_is_told_by_what_may_be_done_with_it() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let of = |bytes: &[u8]| access_to(bytes.as_ptr().addr(), bytes.len());
        assert_eq!(of(&local), Access::Write);
        assert_eq!(of(&CONSTANT), Access::Read);
        for (address, length) in [(0, 1), (8, 4096), (usize::MAX - 10, 5), (4096, usize::MAX)] {
            assert_eq!(access_to(address, length), Access::None);
        }
    }

    /// Spec: LMC-01
    #[test]
    fn the_system_tells_what_may_be_done_with_memory() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let of = |bytes: &[u8]| told_access(bytes.as_ptr().addr(), bytes.len());
        assert_eq!(of(&local), Access::Write);
        assert_eq!(of(&CONSTANT), Access::Read);
        for (address, length) in [(0, 1), (8, 4096), (usize::MAX - 10, 5), (4096, usize::MAX)] {
            assert_eq!(told_access(address, length), Access::None);
        }
    }

    /// Spec: LMC-01
    #[test]
    fn ordinary_memory_is_asked_about_without_the_list_of_mappings() {
        static CONSTANT: [u8; 64] = [7; 64];
        let bytes = vec![1_u8; 1 << 20];
        let (address, constant) = (bytes.as_ptr().addr(), CONSTANT.as_ptr().addr());
        assert!(allows(address, bytes.len(), Access::Write));
        assert!(allows(address + 1, 1, Access::Read));
        assert!(allows(constant, 64, Access::Read));
        assert_eq!(LISTED.get(), 0);
        assert!(!allows(constant, 64, Access::Write));
        assert!(!allows(8, 4096, Access::Read));
        assert_eq!(LISTED.get(), 2, "before memory is refused");
    }

    /// Spec: LMC-01
    #[test]
    fn memory_of_several_pieces_may_be_used_as_each_of_them_may() {
        let memory = "1000-3000 rw-p 0 00:00 0\n3000-4000 r--p 0 00:00 0 file\n4000-5000 rw-p 0 00:00 0\n\
                      6000-7000 rw-p 0 00:00 0\n7000-8000 ---p 0 00:00 0\nc000-d000 rw-p 0 00:00 0 [stack]\n";
        for (address, length, access) in [
            (0x1000, 0x2000, Access::Write),
            (0x1fff, 2, Access::Write),
            (0x2fff, 2, Access::Read),
            (0x1000, 0x4000, Access::Read),
            (0x4000, 0x1000, Access::Write),
            (0x4000, 0x1001, Access::None),
            (0x5fff, 2, Access::None),
            (0x6000, 0x1001, Access::None),
            (0xfff, 2, Access::None),
            (0x9000, 1, Access::None),
            (0xa000, 0x3000, Access::Write),
            (0x9fff, 1, Access::None),
            (0xcfff, 2, Access::None),
        ] {
            let found = access_by(memory, 0x3000, address, length);
            assert_eq!(found, access, "{length:#x} from {address:#x}");
        }
    }
}
