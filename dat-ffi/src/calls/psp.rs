//! Public service points.

use dat_core::flags::{HandleKind, PspFields, PspFlags};
use dat_core::id::{EvdId, PspId};

use super::edition::Edition;
use super::result::{Code, adapter, adapter_of, check_mask, sheltered};
use crate::adapter::with_device;
use crate::boundary::{Out, PspParam};
use crate::handles::CHandle;

/// Spec: PSC-01..05
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    qualifier: u64,
    evd: CHandle,
    flags: u32,
    psp: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let flags = PspFlags::try_from(flags).map_err(|unknown| unknown.in_argument(4))?;
        let output = psp.required(5)?;
        let cell = adapter.cells.reserve(HandleKind::Psp)?;
        let evd = EvdId::from_handle(evd.named());
        let made = with_device!(adapter, opened => opened.ia.psp_create(qualifier, evd, flags))?;
        adapter.note_connections();
        output.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })
}

/// Spec: PSA-01
pub(crate) extern "C-unwind" fn create_any<E: Edition>(
    ia: CHandle,
    qualifier: Out<u64>,
    evd: CHandle,
    flags: u32,
    psp: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let chosen = qualifier.required(2)?;
        let flags = PspFlags::try_from(flags).map_err(|unknown| unknown.in_argument(4))?;
        let output = psp.required(5)?;
        let cell = adapter.cells.reserve(HandleKind::Psp)?;
        let evd = EvdId::from_handle(evd.named());
        let (made, qualifier) =
            with_device!(adapter, opened => opened.ia.psp_create_any(evd, flags))?;
        chosen.put(qualifier);
        adapter.note_connections();
        output.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })
}

/// Spec: PSQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    psp: CHandle,
    mask: u32,
    param: Out<PspParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(psp, HandleKind::Psp)?;
        let id = PspId::from_handle(psp.named());
        let queried = with_device!(adapter, opened => opened.ia.psp_query(id, PspFields::empty()))?;
        check_mask(mask, 0xF)?;
        param.required(3)?.put(PspParam {
            ia: E::ia_of(&adapter),
            qualifier: queried.qualifier,
            evd: adapter.cells.of(queried.evd.into()),
            flags: queried.flags.value(),
        });
        Ok(())
    })
}

/// Spec: PSF-01
pub(crate) extern "C-unwind" fn free<E: Edition>(psp: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(psp, HandleKind::Psp)?;
        let id = PspId::from_handle(psp.named());
        with_device!(adapter, opened => opened.ia.psp_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
