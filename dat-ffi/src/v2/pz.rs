//! Protection zones.

use dat_core::flags::{HandleKind, PzFields};
use dat_core::id::PzId;

use super::result::{Code, adapter, adapter_of, check_mask, code, ia_of};
use crate::adapter::with_device;
use crate::boundary::{Out, PzParam};
use crate::handles::{CHandle, reserve};

pub(super) extern "C" fn create(ia: CHandle, pz: Out<CHandle>) -> Code {
    code((|| {
        let adapter = adapter(ia)?;
        let place = pz.required(2)?;
        let cell = reserve()?;
        let made = with_device!(adapter, opened => opened.ia.pz_create())?;
        place.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })())
}

pub(super) extern "C" fn query(pz: CHandle, mask: u32, param: Out<PzParam>) -> Code {
    code((|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let id = PzId::from_handle(pz.named());
        with_device!(adapter, opened => opened.ia.pz_query(id, PzFields::empty()))?;
        check_mask(mask, 0x1)?;
        let ia = ia_of(&adapter);
        param.required(3)?.put(PzParam { ia });
        Ok(())
    })())
}

pub(super) extern "C" fn free(pz: CHandle) -> Code {
    code((|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let id = PzId::from_handle(pz.named());
        with_device!(adapter, opened => opened.ia.pz_free(id))?;
        adapter.retire(id);
        Ok(())
    })())
}
