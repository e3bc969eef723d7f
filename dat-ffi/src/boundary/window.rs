//! Other addresses of memory of this process.

use std::ffi::c_void;
use std::{fs, ptr};

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE,
    PROT_READ, PROT_WRITE,
};

/// Pages at another address; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Window {
    address: usize,
    length: usize,
    protection: i32,
}

impl Window {
    /// Shows shared memory at another address, a chosen one if one is given, for reading or writing or both. `None` if the system
    /// refuses, as for memory that is not shared, or that is of several objects.
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
        // SAFETY: these pages are the window's, which nobody uses yet.
        let done = unsafe { libc::mprotect(pointer(address), length, protection) };
        (done == 0).then_some(window)
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Shows other memory from now on; false if the system refuses, then it is as it was.
    pub(crate) fn turn_to(&mut self, memory: usize) -> bool {
        if show(memory, self.length, Some(self.address)).is_none() {
            return false;
        }
        // SAFETY: these pages are the window's, and keep the protection that they had.
        unsafe { libc::mprotect(pointer(self.address), self.length, self.protection) };
        true
    }

    /// Shows nothing from now on: stores vanish, loads find zeros.
    pub(crate) fn blind(&mut self) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: these pages are the window's; who uses them finds others there, as the interface says.
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
        // SAFETY: these pages are the window's, and the program has said that it does not use them any more.
        unsafe { libc::munmap(pointer(self.address), self.length) };
    }
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// Whether all pages of a range are shared ones of the same object, one behind the other there as well: to show pages a second time,
/// the system looks at the first one only and goes on behind it in the object. What it cannot be asked about is not.
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
        // Where the page is in the object, less where it is in memory, is the same for all of them.
        let place = (mapping.object, mapping.shift);
        if *first.get_or_insert(place) != place {
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
    /// Device and number of what is mapped.
    object: (&'m str, &'m str),
    /// The offset there, less the address.
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

/// Shows shared pages a second time.
fn show(memory: usize, length: usize, at: Option<usize>) -> Option<usize> {
    if !is_of_one_object(memory, length) {
        return None;
    }
    // SAFETY: with an old length of zero nothing is moved or unmapped there: shared pages are shown a second time, others are refused.
    // Where they go is chosen by the system, or by the program, which says so what may be replaced.
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
    fn only_what_lies_together_in_one_object_is_shown_again() {
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
            // A part of the object is left out; another object; not shared; not there.
            (0x3000, 0x2000, false),
            (0x4000, 0x2000, false),
            (0x5000, 0x2000, false),
            (0x6000, 0x1000, false),
            (0x7000, 0x1000, false),
            (0x8000, 0x1000, true),
            (0x8000, 0x2000, false),
            (usize::MAX, 2, false),
        ] {
            let told = lies_in_one_object(maps, memory, length);
            assert_eq!(told, expected, "{memory:x}, {length:x}");
        }
    }
}
