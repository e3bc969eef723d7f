//! Return values of calls, and checks that many calls share.

use dat_core::flags::HandleKind;
use dat_core::id::Handle;
use dat_core::{Cause, Error, Result, Subtype};

use super::Edition;
use crate::adapter::Adapter;
use crate::boundary::{Entered, has_memory, uncancelled};
use crate::handles::CHandle;

/// `DAT_RETURN`.
pub(crate) type Code = u32;

/// Returns the `DAT_RETURN` of a result.
#[inline]
pub(crate) fn code<E: Edition>(result: Result<()>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => error.code(E::ABI),
    }
}

/// Runs a call whose thread is not cancelled before it is over; returns its `DAT_RETURN`.
///
/// For all calls but posts, binds, dequeues, waits and synchronising calls. Those protect their
/// system calls themselves, or `Opened::posting` does.
pub(crate) fn sheltered<E: Edition>(call: impl FnOnce() -> Result<()>) -> Code {
    uncancelled(|| code::<E>(call()))
}

/// Returns the adapter of an object of a kind.
///
/// # Errors
/// INVALID_HANDLE with the subtype of the kind: the handle names no such object, or its adapter is
/// closed.
#[inline]
pub(crate) fn adapter_of(handle: CHandle, kind: HandleKind) -> Result<Entered<'static, Adapter>> {
    named_of(handle, kind).map(|(adapter, _)| adapter)
}

/// Returns the adapter and the core's handle of an object of a kind.
///
/// # Errors
/// As `adapter_of`.
#[inline]
pub(crate) fn named_of(
    handle: CHandle,
    kind: HandleKind,
) -> Result<(Entered<'static, Adapter>, Handle)> {
    // Other arguments are checked after this, and before the core checks the handle.
    handle
        .object(kind)
        .and_then(|(object, slot)| Some((Adapter::at(slot)?, object)))
        .ok_or(Error::invalid_handle(kind.subtype()))
}

/// Returns the adapter of an object of any kind.
///
/// # Errors
/// INVALID_HANDLE (HANDLE1): the handle was never one of an object, or its adapter is closed.
pub(crate) fn adapter_of_any(handle: CHandle) -> Result<Entered<'static, Adapter>> {
    Adapter::of(handle).ok_or(Error::invalid_handle(Subtype::InvalidHandle1))
}

/// Returns the adapter that a handle names.
///
/// # Errors
/// INVALID_HANDLE (IA): the handle names no open adapter.
pub(crate) fn adapter(ia: CHandle) -> Result<Entered<'static, Adapter>> {
    Adapter::itself(ia).ok_or(Error::invalid_handle(HandleKind::Ia.subtype()))
}

/// Checks that there is memory, for a call that makes an object.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): the heap is exhausted.
pub(crate) fn check_memory() -> Result<()> {
    has_memory()
        .then_some(())
        .ok_or(Error::insufficient_resources(Subtype::ResourceMemory))
}

/// Checks that a mask has no unknown bits; it is the second argument of all queries.
pub(crate) fn check_mask(mask: u32, all: u32) -> Result<()> {
    if mask & !all == 0 {
        Ok(())
    } else {
        Err(Error::invalid_argument(2).because(Cause::UnknownMask))
    }
}
