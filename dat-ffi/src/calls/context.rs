//! Calls for a handle of any kind.

use super::edition::Edition;
use super::result::{Code, adapter_of_any, sheltered};
use crate::adapter::with_device;
use crate::boundary::Out;
use crate::handles::CHandle;

/// Spec: CTX-01..03
pub(crate) extern "C-unwind" fn set<E: Edition>(handle: CHandle, context: u64) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of_any(handle)?;
        let named = handle.named();
        with_device!(adapter, opened => opened.ia.set_consumer_context(named, context))
    })
}

/// Spec: CTX-02, CTX-04
pub(crate) extern "C-unwind" fn get<E: Edition>(handle: CHandle, context: Out<u64>) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of_any(handle)?;
        let output = context.required(2)?;
        let named = handle.named();
        let known = with_device!(adapter, opened => opened.ia.get_consumer_context(named))?;
        output.put(known);
        Ok(())
    })
}

/// Spec: HTY-01
pub(crate) extern "C-unwind" fn kind<E: Edition>(handle: CHandle, kind: Out<u32>) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of_any(handle)?;
        let output = kind.required(2)?;
        let named = handle.named();
        let known = with_device!(adapter, opened => opened.ia.get_handle_type(named))?;
        output.put(known.value());
        Ok(())
    })
}
