//! The memory that is shared, as this process has it.
#![expect(
    unsafe_code,
    reason = "memory of which the system says where it is; a room of its own"
)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::AtomicU8;

use backend_mmio::mailbox::defs;
use backend_mmio::{DeviceUnit, DmaView};
use dat_core::memory::Region;
use mmio_model::Regions;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::peers::LENGTH;

/// Maps the memory, for as long as this process lives: anywhere, or at an address where nothing is.
fn map(memory: &OwnedFd, at: Option<u64>) -> Result<*mut u8> {
    let place = at.unwrap_or(0) as usize;
    let flags = match at {
        Some(_) => MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
        None => MapFlags::SHARED,
    };
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let wanted = with_exposed_provenance_mut(place);
    // SAFETY: the kernel chooses a place, or refuses one at which something is.
    let got = unsafe { mmap(wanted, LENGTH, both, flags, memory, 0) }?;
    // Kernels that do not know of that refusal take the address as a wish.
    if at.is_some() && got.addr() != place {
        return Err(ErrorKind::AddrInUse.into());
    }
    Ok(got.cast())
}

/// The mailbox, wherever.
pub(crate) fn mailbox(memory: &OwnedFd) -> Result<&'static [DeviceUnit; defs::UNITS]> {
    let first = map(memory, None)?;
    // SAFETY: so many units are at the start, aligned, for as long as this process lives; all bits may be anything, and whoever else has them
    // uses them as memory that is shared.
    Ok(unsafe { &*first.cast() })
}

/// The memory where the driver has it: what device and driver share, and what its consumers may register.
pub(crate) fn window(memory: &OwnedFd, at: u64) -> Result<(DmaView<'static>, Regions)> {
    if at == 0 || !at.is_multiple_of(LENGTH as u64) {
        return Err(Error::other("the driver has the memory at no such address"));
    }
    let first = map(memory, Some(at))?;
    // SAFETY: as above. The device of this process is the one who reads and writes it, where the driver says; a driver that names the same
    // place twice hurts what is its own.
    let units: &'static [DeviceUnit] =
        unsafe { std::slice::from_raw_parts(first.cast(), LENGTH / size_of::<DeviceUnit>()) };
    let memory = DmaView::new(units, at);
    // SAFETY: as above, of which these are the bytes.
    let bytes: &'static [AtomicU8] = unsafe { std::slice::from_raw_parts(first.cast(), LENGTH) };
    let regions: Regions = Box::new(move |address, length| {
        let first = usize::try_from(address.checked_sub(at)?).ok()?;
        let end = first.checked_add(usize::try_from(length).ok()?)?;
        Some(Region::from_static(bytes.get(first..end)?))
    });
    Ok((memory, regions))
}
