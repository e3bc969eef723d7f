//! Calls about `fork`: memory of regions stays with the parent in any case.

use core::ffi::c_int;

use crate::boundary::Address;

/// `IBV_FORK_UNNEEDED`.
const UNNEEDED: c_int = 2;

pub(crate) const extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) const extern "C" fn ibv_is_fork_initialized() -> c_int {
    UNNEEDED
}

pub(crate) const extern "C" fn ibv_dontfork_range(_base: Address, _size: usize) -> c_int {
    0
}

pub(crate) const extern "C" fn ibv_dofork_range(_base: Address, _size: usize) -> c_int {
    0
}
