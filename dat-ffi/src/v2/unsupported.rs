//! Calls that answer that they cannot be had.

use dat_core::Error;

use super::edition::V2;
use crate::calls::result::{Code, code};

/// A call of DAT 2.0 for something that no backend of ours has.
///
/// It takes no arguments, whatever its slot passes: C callers leave and remove them.
pub(super) extern "C" fn model_not_supported() -> Code {
    code::<V2>(Err(Error::model_not_supported()))
}

/// A call that is not there.
pub(super) extern "C" fn not_implemented() -> Code {
    code::<V2>(Err(Error::not_implemented()))
}
