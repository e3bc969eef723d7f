//! Memory that is registered for no longer than it is borrowed. All of the crate's `unsafe` is in this module.
//!
//! Three things make it sound: whoever registers one of these regions undoes the registration before the borrow ends,
//! also while unwinding (`transfer::pins` for the memory of a call, `local` for that of a closure, `block` for the engine's own);
//! after `lmr_free` neither device nor peer touches the memory (promised by `dat_core::backend::Backend::deregister`); and
//! nobody but the engine has its adapters, so that nobody else frees or names these registrations: no public call may give
//! an adapter out.

use core::sync::atomic::AtomicU8;

use dat_core::memory::Region;

/// Memory that is read only: it is registered without the right to write.
pub(crate) fn readable(bytes: &[u8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: the module's rule keeps the borrow alive as long as the registration; the caller registers it for
    // reading alone, which nobody else's shared references contradict.
    unsafe {
        Region::from_raw_parts(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

/// Memory that nobody else uses meanwhile.
pub(crate) fn exclusive(bytes: &mut [u8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: the module's rule keeps the borrow alive as long as the registration, and the borrow is exclusive, so
    // that the device may write what it likes.
    unsafe {
        Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len())
    }
}

/// Memory that everybody may change.
pub(crate) fn shared(bytes: &[AtomicU8]) -> Region {
    #[expect(unsafe_code)]
    // SAFETY: the module's rule keeps the borrow alive as long as the registration; atomics may be written through
    // shared references.
    unsafe {
        Region::from_raw_parts(bytes.as_ptr().cast_mut().cast(), bytes.len())
    }
}
