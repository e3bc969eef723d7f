//! Calls that only return that they are not supported.

use dat_core::Error;

use super::edition::V2;
use crate::calls::result::{Code, code};

/// Refuses a call of DAT 2.0 that no backend supports.
///
/// It takes no arguments, for any slot: C callers pass and remove them.
pub(super) extern "C" fn model_not_supported() -> Code {
    code::<V2>(Err(Error::model_not_supported()))
}

/// Refuses a call that this library does not implement.
pub(super) extern "C" fn not_implemented() -> Code {
    code::<V2>(Err(Error::not_implemented()))
}
