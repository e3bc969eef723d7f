//! What calls return.

use dat_core::flags::HandleKind;
use dat_core::{Abi, Cause, Error, Result};

use crate::adapter::Adapter;
use crate::boundary::{Entered, Registry};
use crate::handles::CHandle;

/// `DAT_RETURN`.
pub(super) type Code = u32;

/// `DAT_RETURN` of a call.
#[inline(always)]
pub(super) fn code(result: Result<()>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => error.code(Abi::V2_0),
    }
}

/// The adapter of an object.
///
/// # Errors
/// INVALID_HANDLE with the subtype of the kind: the handle was never one of an object, or its adapter is closed.
#[inline(always)]
pub(super) fn adapter_of(handle: CHandle, kind: HandleKind) -> Result<Entered<'static, Adapter>> {
    Adapter::of(handle).ok_or(Error::invalid_handle(kind.subtype()))
}

/// The adapter that a handle names itself.
///
/// # Errors
/// INVALID_HANDLE (IA): it is no handle of an open adapter.
pub(super) fn adapter(ia: CHandle) -> Result<Entered<'static, Adapter>> {
    Adapter::itself(ia).ok_or(Error::invalid_handle(HandleKind::Ia.subtype()))
}

/// Refuses bits of a mask that no field has; the mask is the second argument of all queries.
pub(super) fn check_mask(mask: u32, all: u32) -> Result<()> {
    if mask & !all == 0 {
        Ok(())
    } else {
        Err(Error::invalid_argument(2).because(Cause::UnknownMask))
    }
}

/// The adapter as the consumer knows it.
pub(super) fn ia_of(adapter: &Adapter) -> CHandle {
    Registry::consumer_handle(adapter.handle)
}

/// Refuses addresses in regions that begin with zero, which no backend has, and unknown kinds of addresses.
pub(super) fn check_address_type(address_type: u32, position: u8) -> Result<()> {
    match address_type {
        0 => Ok(()),
        1 => Err(Error::model_not_supported()),
        _ => Err(Error::invalid_argument(position).because(Cause::UnknownValue)),
    }
}
