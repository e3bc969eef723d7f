//! Memory of the system as owners of regions: anonymous pages, huge pages, mapped files.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use memmap2::{Mmap, MmapMut, MmapOptions};

use super::pinned::{Stable, StableRead};
use crate::error::{Error, Result};

/// Pages of the system, for a [`Region`](crate::Region): anonymous, huge, or of a file.
///
/// A device translates addresses page by page, so large regions need fewer of its resources in huge
/// pages. These are scarce: fall back as here.
///
/// ```
/// use dat_host::{Adapter, Pages};
///
/// # fn main() -> dat_host::Result<()> {
/// let length = 4 << 20;
/// let pages = Pages::huge(length, 2 << 20).or_else(|error| {
///     eprintln!("without huge pages: {error}");
///     Pages::transparent(length)
/// })?;
/// let zone = Adapter::open("mock://pages")?.zone()?;
/// let region = zone.region(pages)?;
/// assert_eq!(region.len(), length);
/// # Ok(())
/// # }
/// ```
pub struct Pages {
    map: MmapMut,
    length: usize,
}

impl Pages {
    /// Returns anonymous pages with `length` bytes, which are 0.
    ///
    /// # Errors
    /// [`Error::System`]: there is no memory or address space.
    pub fn anonymous(length: usize) -> Result<Self> {
        let map = MmapOptions::new().len(length).map_anon();
        let map = map.map_err(Error::System)?;
        Ok(Self { map, length })
    }

    /// Returns anonymous pages, of which the system makes huge ones if it has any free.
    ///
    /// They need no reservation, and may be split again. Elsewhere than on Linux this is
    /// [`anonymous`](Self::anonymous).
    ///
    /// # Errors
    /// [`Error::System`]: there is no memory or address space.
    pub fn transparent(length: usize) -> Result<Self> {
        let pages = Self::anonymous(length)?;
        // Advice only: a kernel without transparent huge pages refuses it.
        #[cfg(target_os = "linux")]
        let _ = pages.map.advise(memmap2::Advice::HugePage);
        Ok(pages)
    }

    /// Returns pages of `page` bytes each, from the reserve of the system (Linux).
    ///
    /// The mapping is rounded up to whole pages; the region has `length` bytes.
    ///
    /// # Errors
    /// - [`Error::Malformed`]: `page` is no power of two.
    /// - [`Error::System`]: the system has no pages of that size, or not enough in its reserve; the
    ///   text names the file that sets the reserve.
    #[cfg(target_os = "linux")]
    pub fn huge(length: usize, page: usize) -> Result<Self> {
        if !page.is_power_of_two() {
            return Err(Error::Malformed("a size of pages that is a power of two"));
        }
        let refused = |cause: io::Error| {
            let kib = page >> 10;
            let kind = cause.kind();
            Error::System(io::Error::new(
                kind,
                format!(
                    "no {length} bytes in huge pages of {kib} KiB: {cause}; \
                     /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages sets their number"
                ),
            ))
        };
        let Some(whole) = length.checked_next_multiple_of(page) else {
            return Err(refused(io::Error::from(io::ErrorKind::OutOfMemory)));
        };
        let bits = page.trailing_zeros() as u8;
        let map = MmapOptions::new().len(whole).huge(Some(bits)).map_anon();
        Ok(Self {
            map: map.map_err(refused)?,
            length,
        })
    }

    /// Maps a whole file for reads and writes, which change the file.
    ///
    /// # Errors
    /// [`Error::System`]: the file is not open for reads and writes, or cannot be mapped.
    ///
    /// # Safety
    /// Until the pages are dropped, nobody truncates the file, in any process: an access behind its
    /// end ends the process. Nor does anybody write it, except peers by a
    /// [`Window`](crate::Window) on these pages. If they are not dropped, this holds until the
    /// adapter is closed.
    #[expect(unsafe_code)]
    // UNSAFETY: what others do with a file cannot be checked.
    pub unsafe fn of_file(file: &File) -> Result<Self> {
        // SAFETY: promised by the caller.
        let map = unsafe { MmapMut::map_mut(file) }.map_err(Error::System)?;
        let length = map.len();
        Ok(Self { map, length })
    }

    /// Writes changes of the pages to their file; does nothing for anonymous ones.
    ///
    /// # Errors
    /// [`Error::System`]: the file system failed.
    pub fn flush(&self) -> Result<()> {
        self.map.flush().map_err(Error::System)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.map[..length]
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[expect(unsafe_code)]
// SAFETY: a mapping stays at its address until it is dropped, is initialised, and belongs to this
// value. A file behind it is not truncated or written, as promised to `of_file`.
unsafe impl Stable for Pages {
    fn memory(&mut self) -> (NonNull<u8>, usize) {
        (NonNull::from(&mut **self).cast(), self.length)
    }
}

/// A file that is mapped for reads, for a [`ReadRegion`](crate::ReadRegion).
///
/// ```
/// use dat_host::{Adapter, MappedFile};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(&file, b"content of the file")?;
/// let file = std::fs::File::open(file.path())?;
/// // SAFETY: nobody else has the file.
/// let mapped = unsafe { MappedFile::new(&file)? };
/// let zone = Adapter::open("mock://file")?.zone()?;
/// let region = zone.read_region(mapped)?;
/// assert_eq!(&region[..7], b"content");
/// # Ok(())
/// # }
/// ```
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a whole file.
    ///
    /// A device of libibverbs gives peers no windows on such memory, since it is not writable.
    ///
    /// # Errors
    /// [`Error::System`]: the file is not open for reads, or cannot be mapped.
    ///
    /// # Safety
    /// Until the value is dropped, nobody writes or truncates the file, in any process. If it is
    /// not dropped, this holds until the adapter is closed.
    #[expect(unsafe_code)]
    // UNSAFETY: what others do with a file cannot be checked.
    pub unsafe fn new(file: &File) -> Result<Self> {
        // SAFETY: promised by the caller.
        let map = unsafe { Mmap::map(file) }.map_err(Error::System)?;
        Ok(Self(map))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

#[expect(unsafe_code)]
// SAFETY: a mapping stays at its address until it is dropped, and is initialised. Nobody writes or
// truncates the file, as promised to `new`.
unsafe impl StableRead for MappedFile {
    fn bytes(&self) -> &[u8] {
        self
    }
}
