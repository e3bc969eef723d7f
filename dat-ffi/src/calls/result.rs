//! What calls return.

use dat_core::flags::HandleKind;
use dat_core::id::Handle;
use dat_core::{Cause, Error, Result, Subtype};

use super::Edition;
use crate::adapter::Adapter;
use crate::boundary::{Entered, has_memory, uncancelled};
use crate::handles::{CHandle, Cell};

/// `DAT_RETURN`.
pub(crate) type Code = u32;

/// `DAT_RETURN` of a call.
#[inline(always)]
pub(crate) fn code<E: Edition>(result: Result<()>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => error.code(E::ABI),
    }
}

/// `DAT_RETURN` of a call whose thread is not cancelled before the call is over.
///
/// For every call but posts, dequeues and waits. They see to it where they call the system.
pub(crate) fn sheltered<E: Edition>(call: impl FnOnce() -> Result<()>) -> Code {
    uncancelled(|| code::<E>(call()))
}

/// The adapter of an object of a kind.
///
/// # Errors
/// INVALID_HANDLE with the subtype of the kind: the handle is not that of such an object, or its adapter is closed.
#[inline(always)]
pub(crate) fn adapter_of(handle: CHandle, kind: HandleKind) -> Result<Entered<'static, Adapter>> {
    named_of(handle, kind).map(|(adapter, _)| adapter)
}

/// The adapter of an object of a kind, and what the core calls the object.
///
/// # Errors
/// As `adapter_of`.
#[inline(always)]
pub(crate) fn named_of(
    handle: CHandle,
    kind: HandleKind,
) -> Result<(Entered<'static, Adapter>, Handle)> {
    // Other arguments are looked at after this, and before the core sees the handle.
    handle
        .object(kind)
        .and_then(|(object, slot)| Some((Adapter::at(slot)?, object)))
        .ok_or(Error::invalid_handle(kind.subtype()))
}

/// The adapter of whatever object a handle names, what the core calls the object, and the cell; `None` if the handle is none or the adapter is closed.
///
/// For the way of most posts and dequeues, which compare what the core calls the object with what they look for, so that the kind need not
/// be looked at here. What they find to be another way is begun anew by `named_of`.
#[inline(always)]
pub(crate) fn found(handle: CHandle) -> Option<(Entered<'static, Adapter>, Handle, &'static Cell)> {
    let cell = handle.cell()?;
    let object = cell.object();
    Some((Adapter::at(cell.slot())?, object, cell))
}

/// The adapter of an object of any kind.
///
/// # Errors
/// INVALID_HANDLE (HANDLE1): the handle was never one of an object, or its adapter is closed.
pub(crate) fn adapter_of_any(handle: CHandle) -> Result<Entered<'static, Adapter>> {
    Adapter::of(handle).ok_or(Error::invalid_handle(Subtype::InvalidHandle1))
}

/// The adapter that a handle names itself.
///
/// # Errors
/// INVALID_HANDLE (IA): it is no handle of an open adapter.
pub(crate) fn adapter(ia: CHandle) -> Result<Entered<'static, Adapter>> {
    Adapter::itself(ia).ok_or(Error::invalid_handle(HandleKind::Ia.subtype()))
}

/// Refuses what makes something while the heap is exhausted.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): it is.
pub(crate) fn check_memory() -> Result<()> {
    has_memory()
        .then_some(())
        .ok_or(Error::insufficient_resources(Subtype::ResourceMemory))
}

/// Refuses bits of a mask that no field has; the mask is the second argument of all queries.
pub(crate) fn check_mask(mask: u32, all: u32) -> Result<()> {
    if mask & !all == 0 {
        Ok(())
    } else {
        Err(Error::invalid_argument(2).because(Cause::UnknownMask))
    }
}
