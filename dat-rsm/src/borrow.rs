//! Regions of borrowed memory, registered at most as long as the borrow.
//!
//! This module has all `unsafe` code of the crate. Three rules make it sound:
//! - The code that registers a region ends the registration before the borrow ends, even while
//!   unwinding: `transfer::pins` for the memory of a call, `local` for that of a closure, `block`
//!   for the engine's own.
//! - After `lmr_free`, no device and no peer touches the memory;
//!   `dat_core::backend::Backend::deregister` promises it.
//! - Only the engine has its adapters, so no other code frees or names these registrations. No
//!   public call may give an adapter out.

use core::sync::atomic::AtomicU8;

use dat_core::memory::Region;

/// Returns a region to read only; it must be registered without the right to write.
pub(crate) fn readable(bytes: &[u8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: by the module's rules, the borrow outlives the registration. The caller registers the
    // region for reading only, so other shared references to the bytes stay valid.
    unsafe {
        Region::from_raw_parts(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

/// Returns a region that only the device uses while it is registered.
pub(crate) fn exclusive(bytes: &mut [u8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: by the module's rules, the borrow outlives the registration. The borrow is exclusive,
    // so the device may write any bytes.
    unsafe {
        Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len())
    }
}

/// Returns a region that any code may change while it is registered.
pub(crate) fn shared(bytes: &[AtomicU8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: by the module's rules, the borrow outlives the registration. Atomics may be written
    // through shared references.
    unsafe {
        Region::from_raw_parts(bytes.as_ptr().cast_mut().cast(), bytes.len())
    }
}
