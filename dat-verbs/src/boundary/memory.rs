//! Memory that programs register.

use core::ffi::c_int;
use core::ops::Range;

use dat_core::memory::Region;
use nix::errno::Errno;

use super::pointers::Address;
use crate::errors::Result;

/// Has the system provide the pages of memory, as for a device.
///
/// # Errors
/// `EFAULT`: some of it cannot be read, or written if `writes`.
pub(crate) fn provide(start: Address, length: usize, writes: bool) -> Result<()> {
    let advice = match writes {
        true => libc::MADV_POPULATE_WRITE,
        false => libc::MADV_POPULATE_READ,
    };
    match advise(start, length, advice) {
        Ok(()) => Ok(()),
        // Also what a system says that does not know the advice (before Linux 5.14).
        Err(Errno::EINVAL) if !knows_advice() => look_up(start, length, writes),
        Err(Errno::EAGAIN | Errno::EINTR) => Err(Errno::EAGAIN),
        Err(_) => Err(Errno::EFAULT),
    }
}

/// Advises the system about the pages of a range; that changes no contents.
fn advise(start: Address, length: usize, advice: c_int) -> Result<()> {
    let before = start.0.addr() % page_size();
    let whole = length.checked_add(before).ok_or(Errno::EFAULT)?;
    // SAFETY: the system checks the range; such advice changes no contents.
    let result = unsafe { libc::madvise(start.0.wrapping_byte_sub(before), whole, advice) };
    Errno::result(result).map(drop)
}

/// Returns true if the system knows the advice that provides pages.
fn knows_advice() -> bool {
    let here = 0_u8;
    let here = Address((&raw const here).cast_mut().cast());
    advise(here, 1, libc::MADV_POPULATE_READ) != Err(Errno::EINVAL)
}

/// Looks the memory up in what the system tells of the process; its pages may come later.
fn look_up(start: Address, length: usize, writes: bool) -> Result<()> {
    let maps = std::fs::read("/proc/self/maps").map_err(|_| Errno::EFAULT)?;
    let maps = String::from_utf8_lossy(&maps);
    let end = start.0.addr().checked_add(length).ok_or(Errno::EFAULT)?;
    let is_there = covers(&maps, start.0.addr()..end, writes);
    is_there.then_some(()).ok_or(Errno::EFAULT)
}

/// Returns true if the lines of `maps`, in the order of their addresses, allow access to a range.
fn covers(maps: &str, range: Range<usize>, writes: bool) -> bool {
    let mut at = range.start;
    for (from, to, rights) in maps.lines().filter_map(line) {
        if at >= range.end || from > at {
            break;
        }
        if to > at {
            if !rights.starts_with(if writes { "rw" } else { "r" }) {
                return false;
            }
            at = to;
        }
    }
    at >= range.end
}

/// Returns the range of a line, and the rights.
fn line(line: &str) -> Option<(usize, usize, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some((address(from)?, address(to)?, words.next()?))
}

/// Returns memory for its registration.
pub(crate) fn region(start: Address, length: usize) -> Region {
    // SAFETY: the program keeps the memory until it deregisters the region, as the library demands,
    // which cannot hold its pages as a device does, and expects changes by peers and by its own
    // requests.
    unsafe { Region::from_raw_parts(start.0.cast(), length) }
}

fn page_size() -> usize {
    // SAFETY: the call returns a number that the C library knows.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    size.ok().filter(|size| *size != 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_accessed_is_refused() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let at = |bytes: &[u8]| Address(bytes.as_ptr().cast_mut().cast());
        assert_eq!(provide(at(&local), 100, true), Ok(()));
        assert_eq!(provide(at(&CONSTANT), 64, false), Ok(()));
        assert_eq!(provide(at(&CONSTANT), 64, true), Err(Errno::EFAULT));
        for (address, length) in [(4096, 1), (0, 8192)] {
            let nowhere = Address(core::ptr::without_provenance_mut(address));
            assert_eq!(provide(nowhere, length, false), Err(Errno::EFAULT));
        }
    }

    /// As on a system without the advice.
    #[test]
    fn memory_is_looked_up() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let at = |bytes: &[u8]| Address(bytes.as_ptr().cast_mut().cast());
        assert_eq!(look_up(at(&local), 100, true), Ok(()));
        assert_eq!(look_up(at(&CONSTANT), 64, false), Ok(()));
        assert_eq!(look_up(at(&CONSTANT), 64, true), Err(Errno::EFAULT));
        for (address, length) in [(4096, 4096), (usize::MAX, 2)] {
            let nowhere = Address(core::ptr::without_provenance_mut(address));
            assert_eq!(look_up(nowhere, length, false), Err(Errno::EFAULT));
        }
        let maps =
            "1000-2000 r--p 0 0:0 0 /a b\n2000-3000 rw-p 0\n4000-5000 rw-p 0\n5000-6000 ---p 0";
        for (range, reads, writes) in [
            (0x1000..0x3000, true, false),
            (0x2000..0x3000, true, true),
            (0x2fff..0x4001, false, false),
            (0xfff..0x1001, false, false),
            (0x4fff..0x5001, false, false),
            (0x5fff..0x6001, false, false),
        ] {
            assert_eq!(covers(maps, range.clone(), false), reads, "{range:x?}");
            assert_eq!(covers(maps, range.clone(), true), writes, "{range:x?}");
        }
    }
}
