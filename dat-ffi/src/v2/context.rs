//! What can be asked of any handle.

use dat_core::flags::HandleKind;

use super::result::{Code, adapter_of, code};
use crate::adapter::with_device;
use crate::boundary::Out;
use crate::handles::CHandle;

/// The kind whose subtype says no more than that the first argument is bad.
const ANY: HandleKind = HandleKind::Evd;

/// Spec: CTX-01..03
pub(super) extern "C" fn set(handle: CHandle, context: u64) -> Code {
    code((|| {
        let adapter = adapter_of(handle, ANY)?;
        let named = handle.named();
        with_device!(adapter, opened => opened.ia.set_consumer_context(named, context))
    })())
}

/// Spec: CTX-02, CTX-04
pub(super) extern "C" fn get(handle: CHandle, context: Out<u64>) -> Code {
    code((|| {
        let adapter = adapter_of(handle, ANY)?;
        let place = context.required(2)?;
        let named = handle.named();
        let known = with_device!(adapter, opened => opened.ia.get_consumer_context(named))?;
        place.put(known);
        Ok(())
    })())
}

/// Spec: HTY-01
pub(super) extern "C" fn kind(handle: CHandle, kind: Out<u32>) -> Code {
    code((|| {
        let adapter = adapter_of(handle, ANY)?;
        let place = kind.required(2)?;
        let named = handle.named();
        let known = with_device!(adapter, opened => opened.ia.get_handle_type(named))?;
        place.put(known.value());
        Ok(())
    })())
}
