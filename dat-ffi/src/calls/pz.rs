//! Protection zones.

use dat_core::flags::{HandleKind, PzFields};
use dat_core::id::PzId;

use super::edition::Edition;
use super::result::{Code, adapter, adapter_of, check_mask, sheltered};
use crate::adapter::with_device;
use crate::boundary::{Out, PzParam};
use crate::handles::CHandle;

pub(crate) extern "C-unwind" fn create<E: Edition>(ia: CHandle, pz: Out<CHandle>) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = pz.required(2)?;
        let cell = adapter.cells.reserve(HandleKind::Pz)?;
        let made = with_device!(adapter, opened => opened.ia.pz_create())?;
        output.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })
}

pub(crate) extern "C-unwind" fn query<E: Edition>(
    pz: CHandle,
    mask: u32,
    param: Out<PzParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let id = PzId::from_handle(pz.named());
        with_device!(adapter, opened => opened.ia.pz_query(id, PzFields::empty()))?;
        check_mask(mask, 0x1)?;
        let ia = E::ia_of(&adapter);
        param.required(3)?.put(PzParam { ia });
        Ok(())
    })
}

pub(crate) extern "C-unwind" fn free<E: Edition>(pz: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let id = PzId::from_handle(pz.named());
        with_device!(adapter, opened => opened.ia.pz_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
