//! Calls beyond the interface.

use dat_core::{Error, Result};

use super::arguments::{Any, First};
use super::calls::{Code, code};
use crate::boundary::VariableArguments;

/// Slot in a provider's table.
const EXTENSION: usize = 78;

#[doc = include_str!("../../manual/dat_extension_op.md")]
///
/// Here the further arguments come as a list, which the function that C calls makes.
pub extern "C" fn dat_extension_op(
    handle: Any,
    operation: u32,
    arguments: VariableArguments,
) -> Code {
    let called: Result<Code> = (|| {
        let (callee, own) = handle.callee()?;
        let called = callee.provider.call(EXTENSION, (own, operation, arguments));
        called.ok_or(Error::not_implemented())
    })();
    called.unwrap_or_else(code)
}
