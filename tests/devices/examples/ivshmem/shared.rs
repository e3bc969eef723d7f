//! The shared memory as this process maps it.
#![expect(
    unsafe_code,
    reason = "maps memory at an address that the system chooses; only this module does"
)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::AtomicU8;

use backend_mmio::defs::mailbox;
use backend_mmio::{DeviceUnit, DmaView};
use dat_core::memory::Region;
use mmio_model::Regions;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::peers::LENGTH;

/// Maps the memory for the life of the process, at a free address.
///
/// The kernel chooses the address, or it is given.
fn map(memory: &OwnedFd, at: Option<u64>) -> Result<*mut u8> {
    let address = at.unwrap_or(0) as usize;
    let flags = match at {
        Some(_) => MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
        None => MapFlags::SHARED,
    };
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let hint = with_exposed_provenance_mut(address);
    // SAFETY: the kernel chooses a free range, or refuses the address if something is mapped there.
    let mapped = unsafe { mmap(hint, LENGTH, both, flags, memory, 0) }?;
    // Kernels without that flag treat the address as a hint.
    if at.is_some() && mapped.addr() != address {
        return Err(ErrorKind::AddrInUse.into());
    }
    Ok(mapped.cast())
}

/// Maps the mailbox at any address.
pub(crate) fn mailbox(memory: &OwnedFd) -> Result<&'static [DeviceUnit; mailbox::UNITS]> {
    let first = map(memory, None)?;
    // SAFETY: the mapping starts with `UNITS` units. It is page aligned and lives as long as this
    // process. All bit patterns are valid, and every other user treats it as shared memory.
    Ok(unsafe { &*first.cast() })
}

/// Maps the memory at the driver's address; returns it with a lookup of consumer memory.
///
/// Device and driver share it, and the driver's consumers register ranges of it.
pub(crate) fn window(memory: &OwnedFd, at: u64) -> Result<(DmaView<'static>, Regions)> {
    if at == 0 || !at.is_multiple_of(LENGTH as u64) {
        return Err(Error::other(
            "the driver's address of the memory is not a multiple of its length",
        ));
    }
    let first = map(memory, Some(at))?;
    // SAFETY: as above. Only the device of this process reads and writes it, at addresses that the
    // driver gives. A driver that uses a range twice corrupts only its own data.
    let units: &'static [DeviceUnit] =
        unsafe { std::slice::from_raw_parts(first.cast(), LENGTH / size_of::<DeviceUnit>()) };
    let memory = DmaView::new(units, at);
    // SAFETY: as above; these are the bytes of the same mapping.
    let bytes: &'static [AtomicU8] = unsafe { std::slice::from_raw_parts(first.cast(), LENGTH) };
    let regions: Regions = Box::new(move |address, length| {
        let first = usize::try_from(address.checked_sub(at)?).ok()?;
        let end = first.checked_add(usize::try_from(length).ok()?)?;
        Some(Region::from_static(bytes.get(first..end)?))
    });
    Ok((memory, regions))
}
