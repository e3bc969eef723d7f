//! Second mappings of memory of this process.

use std::ffi::c_void;
use std::{fs, ptr};

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE,
    PROT_READ, PROT_WRITE,
};

/// Pages at a second address, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Window {
    address: usize,
    length: usize,
    protection: i32,
}

impl Window {
    /// Maps shared memory a second time, at a chosen address if one is given.
    ///
    /// `None` if the system refuses, as for memory that is not shared or that belongs to several
    /// objects.
    pub(crate) fn new(
        memory: usize,
        length: usize,
        at: Option<usize>,
        (reads, writes): (bool, bool),
    ) -> Option<Self> {
        let protection =
            if reads { PROT_READ } else { PROT_NONE } | if writes { PROT_WRITE } else { PROT_NONE };
        let address = show(memory, length, at)?;
        let window = Self {
            address,
            length,
            protection,
        };
        // SAFETY: the pages are the window's, and are not used yet.
        let done = unsafe { libc::mprotect(pointer(address), length, protection) };
        (done == 0).then_some(window)
    }

    /// Returns the first address.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Maps other memory from now on; returns false and changes nothing if the system refuses.
    pub(crate) fn turn_to(&mut self, memory: usize) -> bool {
        if show(memory, self.length, Some(self.address)).is_none() {
            return false;
        }
        // SAFETY: the pages are the window's, and get the protection that they had.
        unsafe { libc::mprotect(pointer(self.address), self.length, self.protection) };
        true
    }

    /// Maps private zeros from now on: stores have no effect on the memory, loads find zeros.
    pub(crate) fn blind(&mut self) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: the pages are the window's; by the interface, their users find other pages there.
        unsafe {
            libc::mmap(
                pointer(self.address),
                self.length,
                self.protection,
                flags,
                -1,
                0,
            );
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the pages are the window's, and the program has said that it no longer uses them.
        unsafe { libc::munmap(pointer(self.address), self.length) };
    }
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// Returns true if a range consists of consecutive shared pages of one object.
///
/// To map pages a second time, the system looks at the first page only and continues in its object.
/// Returns false if the mappings cannot be read.
fn is_of_one_object(memory: usize, length: usize) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return false;
    };
    lies_in_one_object(&maps, memory, length)
}

fn lies_in_one_object(maps: &str, memory: usize, length: usize) -> bool {
    let Some(end) = memory.checked_add(length) else {
        return false;
    };
    let mut next = memory;
    let mut first = None;
    for mapping in maps.lines().filter_map(Mapping::parse) {
        if mapping.end <= next {
            continue;
        }
        if next >= end || mapping.begin > next || !mapping.is_shared {
            break;
        }
        // Offset in the object less the address is the same for all of them.
        let found = (mapping.object, mapping.shift);
        if *first.get_or_insert(found) != found {
            break;
        }
        next = mapping.end;
    }
    next >= end
}

/// A line of `/proc/self/maps`.
struct Mapping<'m> {
    begin: usize,
    end: usize,
    is_shared: bool,
    /// Device and inode number of the mapped object.
    object: (&'m str, &'m str),
    /// Offset in the object less the address.
    shift: u64,
}

impl<'m> Mapping<'m> {
    fn parse(line: &'m str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let begin = usize::from_str_radix(begin, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let is_shared = fields.next()?.ends_with('s');
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some(Self {
            begin,
            end,
            is_shared,
            object: (fields.next()?, fields.next()?),
            shift: offset.wrapping_sub(begin as u64),
        })
    }
}

/// Maps shared pages a second time.
fn show(memory: usize, length: usize, at: Option<usize>) -> Option<usize> {
    if !is_of_one_object(memory, length) {
        return None;
    }
    // SAFETY: with an old length of 0 nothing is moved or unmapped at `memory`: shared pages are
    // mapped a second time, others are refused. The system chooses the new address; or the program
    // does, and says so which pages may be replaced.
    let shown = unsafe {
        match at {
            None => libc::mremap(pointer(memory), 0, length, MREMAP_MAYMOVE),
            Some(at) => {
                let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
                libc::mremap(pointer(memory), 0, length, flags, pointer(at))
            }
        }
    };
    (shown != MAP_FAILED).then(|| shown.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMMP-01
    #[test]
    fn only_memory_of_one_object_is_mapped_again() {
        let maps = "\
1000-3000 rw-s 00000000 00:01 7 /dev/zero (deleted)
3000-4000 r--s 00002000 00:01 7 /dev/zero (deleted)
4000-5000 rw-s 00004000 00:01 7 /dev/zero (deleted)
5000-6000 rw-s 00005000 00:01 8 /dev/zero (deleted)
6000-7000 rw-p 00000000 00:00 0
8000-9000 rw-s 00000000 00:01 9
";
        for (memory, length, expected) in [
            (0x1000, 0x1000, true),
            (0x1000, 0x2000, true),
            (0x2000, 0x2000, true),
            // A part of the object is left out; another object; not shared; not mapped.
            (0x3000, 0x2000, false),
            (0x4000, 0x2000, false),
            (0x5000, 0x2000, false),
            (0x6000, 0x1000, false),
            (0x7000, 0x1000, false),
            (0x8000, 0x1000, true),
            (0x8000, 0x2000, false),
            (usize::MAX, 2, false),
        ] {
            let outcome = lies_in_one_object(maps, memory, length);
            assert_eq!(outcome, expected, "{memory:x}, {length:x}");
        }
    }
}
