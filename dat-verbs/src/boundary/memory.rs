//! Memory that programs register.

use core::ffi::c_int;

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
        Err(Errno::EINVAL) if !knows_advice() => Ok(()),
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

/// Returns memory for its registration.
pub(crate) fn region(start: Address, length: usize) -> Region {
    // SAFETY: the program keeps the memory until it deregisters the region, as the interface
    // demands, and expects changes by peers and by its own requests.
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
}
