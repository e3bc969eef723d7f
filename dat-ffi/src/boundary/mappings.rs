//! The mappings of this process, and the access to memory that they allow.

use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result};
use std::os::fd::AsRawFd;
use std::ptr;

use libc::{MADV_POPULATE_READ, MADV_POPULATE_WRITE};

use super::consumer::{Access, advise};

/// The file that lists the mappings.
const MAPPINGS: &str = "/proc/self/maps";

/// Maximum size of memory, in bytes, that is provided to learn its access.
const PROVIDED: usize = 4 << 20;

/// Returns true if memory allows the access, or if the system does not tell.
///
/// Linux 6.11 and later answers queries about the mappings of a range. The cost does not grow with
/// other mappings, and the memory stays untouched. Earlier systems are asked to provide small
/// memory, as for a device that pins it. For large memory, and before small memory is refused, the
/// list of all mappings is read.
pub(crate) fn allows(address: usize, length: usize, needed: Access) -> bool {
    let Ok(file) = File::open(MAPPINGS) else {
        return true;
    };
    let limit = stack_limit();
    if let Ok(access) = access_by(|from| query(&file, from), limit, address, length) {
        return access >= needed;
    }
    let advice = match needed {
        Access::Write => MADV_POPULATE_WRITE,
        Access::Read | Access::None => MADV_POPULATE_READ,
    };
    if length <= PROVIDED && advise(address, length, advice) == 0 {
        return true;
    }
    listed_access(file, limit, address, length).map_or(true, |access| access >= needed)
}

/// A range of memory with the same access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    first: usize,
    /// The first byte after it.
    end: usize,
    access: Access,
    /// True for the stack of the first thread, which grows downwards.
    is_stack: bool,
}

/// Returns the access to a range; `find` returns the mapping at an address, or else the next one.
///
/// The stack counts as long as it may become, because its untouched part is not mapped yet.
fn access_by(
    mut find: impl FnMut(usize) -> Result<Option<Mapping>>,
    stack_limit: usize,
    address: usize,
    length: usize,
) -> Result<Access> {
    let Some(end) = address.checked_add(length) else {
        return Ok(Access::None);
    };
    let mut access = Access::Write;
    let mut next = address;
    while next < end && access > Access::None {
        let Some(mapping) = find(next)? else {
            return Ok(Access::None);
        };
        let first = match mapping.is_stack {
            true => mapping.first.min(mapping.end.saturating_sub(stack_limit)),
            false => mapping.first,
        };
        if first > next {
            return Ok(Access::None);
        }
        access = access.min(mapping.access);
        next = mapping.end;
    }
    Ok(access)
}

/// Returns the maximum size of the stack of the first thread.
fn stack_limit() -> usize {
    /// Upper bound of the result; memory further below is taken for other mappings.
    const MOST: usize = 1 << 30;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` has room for the answer.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    match usize::try_from(limit.rlim_cur) {
        Ok(limit) if answer == 0 => limit.min(MOST),
        _ => MOST,
    }
}

/// Name of the stack's mapping.
const STACK: &[u8] = b"[stack]";

/// A query about one mapping and its answer, for `ioctl` on the file.
///
/// Linux 6.11 and later has it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// Bytes of the buffer for the name; in the answer, length of the name with its zero byte.
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// Request code of the query: `_IOWR('f', 17, Query)`.
const ASK: libc::Ioctl = libc::_IOWR::<Query>(b'f' as u32, 17);
/// Flag: if no mapping contains the address, the answer is the next one.
const OR_NEXT: u64 = 0x10;
const READABLE: u64 = 0x01;
const WRITABLE: u64 = 0x02;

/// Returns the mapping at an address, or else the next one.
///
/// Only the next one is checked for the name of the stack.
///
/// # Errors
/// The system does not know the query.
fn query(file: &File, address: usize) -> Result<Option<Mapping>> {
    let Some(found) = ask(file, address, &mut [])? else {
        return Ok(None);
    };
    let access = match (found.rights & READABLE != 0, found.rights & WRITABLE != 0) {
        (true, true) => Access::Write,
        (true, false) => Access::Read,
        (false, _) => Access::None,
    };
    // Addresses of this process fit in `usize`.
    let (first, end) = (found.start as usize, found.end as usize);
    let mut name = [0; STACK.len() + 1];
    // A longer name is an error of the call.
    let is_stack = first > address
        && ask(file, first, &mut name).is_ok_and(|found| found.is_some())
        && name.starts_with(STACK);
    Ok(Some(Mapping {
        first,
        end,
        access,
        is_stack,
    }))
}

/// Queries the mapping at an address, or else the next one.
///
/// Gets its name as well if `name` has room.
fn ask(file: &File, address: usize, name: &mut [u8]) -> Result<Option<Query>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: OR_NEXT,
        address: address as u64,
        ..Query::default()
    };
    if !name.is_empty() {
        query.name_size = name.len() as u32;
        query.name = ptr::from_mut(name).cast::<u8>().expose_provenance() as u64;
    }
    // SAFETY: the system reads and writes as many bytes as `size` says, and writes at most as much
    // of the name as the buffer has room for.
    if unsafe { libc::ioctl(file.as_raw_fd(), ASK, &raw mut query) } == 0 {
        return Ok(Some(query));
    }
    let error = Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
std::thread_local! {
    /// Number of times that this thread has read the list of mappings.
    static LISTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Returns the access to a range by the list of all mappings.
///
/// # Errors
/// The list cannot be read.
fn listed_access(file: File, limit: usize, address: usize, length: usize) -> Result<Access> {
    #[cfg(test)]
    LISTED.set(LISTED.get() + 1);
    let mut list = List::new(BufReader::new(file));
    access_by(|from| list.find(from), limit, address, length)
}

/// The list of all mappings in the order of their addresses: `first-end rwxp ... name`, in
/// hexadecimal digits.
struct List<R> {
    lines: R,
    line: Vec<u8>,
}

impl<R: BufRead> List<R> {
    const fn new(lines: R) -> Self {
        let line = Vec::new();
        Self { lines, line }
    }

    /// Returns the mapping at an address, or else the next one; addresses grow with each call.
    fn find(&mut self, address: usize) -> Result<Option<Mapping>> {
        loop {
            self.line.clear();
            if self.lines.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            let mapping = parse(self.line.trim_ascii_end());
            if mapping.is_some_and(|mapping| mapping.end > address) {
                return Ok(mapping);
            }
        }
    }
}

/// Parses a line of the list.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'-'));
    let mut number = || usize::from_str_radix(str::from_utf8(words.next()?).ok()?, 16).ok();
    let (first, end) = (number()?, number()?);
    let access = match words.next()? {
        [b'r', b'w', ..] => Access::Write,
        [b'r', ..] => Access::Read,
        _ => Access::None,
    };
    Some(Mapping {
        first,
        end,
        access,
        is_stack: line.ends_with(STACK),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    static CONSTANT: [u8; 64] = [7; 64];

    /// Returns true if the release of the system has the query: 6.11 or later.
    fn has_query_ioctl() -> bool {
        let mut name = std::mem::MaybeUninit::<libc::utsname>::zeroed();
        // SAFETY: `name` has room for the answer, and all its bits may be zero; the release ends
        // with a zero byte.
        let release = unsafe {
            assert_eq!(libc::uname(name.as_mut_ptr()), 0);
            CStr::from_ptr(name.assume_init_ref().release.as_ptr()).to_owned()
        };
        let release = release.to_str().expect("a release");
        let mut numbers = release.split('.').map(|number| number.parse::<u32>().ok());
        let mut number = || numbers.next().flatten().expect("a number");
        (number(), number()) >= (6, 11)
    }

    /// Returns the access by both ways, which agree, where the system has both.
    fn memory_access(address: usize, length: usize) -> Access {
        let file = || File::open(MAPPINGS).expect("the mappings");
        let limit = stack_limit();
        let listed = listed_access(file(), limit, address, length).expect("the list");
        let opened = file();
        let queried = access_by(|from| query(&opened, from), limit, address, length);
        assert_eq!(queried.is_ok(), has_query_ioctl());
        assert_eq!(queried.unwrap_or(listed), listed);
        listed
    }

    /// Maps pages without access, with `rights` from the second page on.
    fn mapped(pages: usize, rights: i32) -> usize {
        // SAFETY: maps new memory at an address that the system chooses, and changes the access of
        // a part of it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let start = libc::mmap(ptr::null_mut(), pages << 12, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(start.byte_add(4096), (pages - 1) << 12, rights),
                0
            );
            start.expose_provenance()
        }
    }

    /// Spec: LMC-01
    #[test]
    fn the_system_reports_the_permissions_of_memory() {
        let local = [0_u8; 100];
        let of = |bytes: &[u8]| memory_access(bytes.as_ptr().addr(), bytes.len());
        assert_eq!(of(&local), Access::Write);
        assert_eq!(of(&CONSTANT), Access::Read);
        for (address, length) in [(0, 1), (8, 4096), (usize::MAX - 10, 5), (4096, usize::MAX)] {
            assert_eq!(memory_access(address, length), Access::None);
        }
        let start = mapped(8, libc::PROT_READ);
        let written = mapped(8, libc::PROT_READ | libc::PROT_WRITE);
        for (address, length, access) in [
            (start, 1, Access::None),
            (start + 4095, 2, Access::None),
            (start + 4096, 7 << 12, Access::Read),
            (written + 4096, 7 << 12, Access::Write),
            (written + 4095, 2, Access::None),
        ] {
            assert_eq!(memory_access(address, length), access);
        }
    }

    /// The stack of the first thread may be used as far as it may grow.
    ///
    /// Spec: LMC-01
    #[test]
    fn the_stack_has_its_maximum_length() {
        let list = std::fs::read(MAPPINGS).expect("the mappings");
        let mut lines = list.split(|byte| *byte == b'\n').filter_map(parse);
        let stack = lines.find(|mapping| mapping.is_stack).expect("the stack");
        let lowest = stack.end - stack_limit();
        assert!(
            lowest < stack.first,
            "the first thread has used little of it"
        );
        assert_eq!(memory_access(stack.first - 4096, 4097), Access::Write);
        assert_eq!(memory_access(lowest, 64), Access::Write);
        assert_eq!(memory_access(lowest - 1, 64), Access::None);
    }

    /// Spec: LMC-01
    #[test]
    fn memory_is_queried_without_the_list_of_mappings() {
        let before = LISTED.get();
        let large = mapped((64 << 8) + 1, libc::PROT_READ | libc::PROT_WRITE) + 4096;
        let constant = CONSTANT.as_ptr().addr();
        let small = vec![1_u8; 1 << 20];
        assert!(allows(small.as_ptr().addr(), small.len(), Access::Write));
        assert!(allows(constant, 64, Access::Read));
        assert_eq!(LISTED.get(), before);
        let lists = |is_allowed: bool, address, length, needed| {
            let before = LISTED.get();
            assert_eq!(allows(address, length, needed), is_allowed);
            LISTED.get() - before
        };
        // A system without the query reads the list.
        let expected = u32::from(!has_query_ioctl());
        assert_eq!(lists(true, large, 64 << 20, Access::Write), expected);
        assert_eq!(lists(false, large - 1, 64 << 20, Access::Write), expected);
        assert_eq!(lists(false, constant, 64, Access::Write), expected);
        assert_eq!(lists(false, 8, 4096, Access::Read), expected);
    }

    /// Spec: LMC-01
    #[test]
    fn memory_of_several_mappings_has_their_common_permissions() {
        let list = "1000-3000 rw-p 0 00:00 0\n3000-4000 r--p 0 00:00 0 file\n4000-5000 rw-p 0 00:00 0\n\
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
            let mut list = List::new(list.as_bytes());
            let found = access_by(|from| list.find(from), 0x3000, address, length);
            assert_eq!(found.ok(), Some(access), "{length:#x} from {address:#x}");
        }
    }
}
