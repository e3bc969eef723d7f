//! Reserved service points.

use dat_core::flags::{HandleKind, RspFields};
use dat_core::id::{EpId, EvdId, RspId};

use super::edition::Edition;
use super::result::{Code, adapter, adapter_of, check_mask, sheltered};
use crate::adapter::with_device;
use crate::boundary::{Out, RspParam};
use crate::handles::CHandle;

/// Spec: RSC-01..05
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    qualifier: u64,
    ep: CHandle,
    evd: CHandle,
    rsp: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = rsp.required(5)?;
        let cell = adapter.cells.reserve(HandleKind::Rsp)?;
        let ep = ep.named_or_none().map(EpId::from_handle);
        let evd = EvdId::from_handle(evd.named());
        let made = with_device!(adapter, opened => opened.ia.rsp_create(qualifier, ep, evd))?;
        adapter.note_connections();
        output.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })
}

/// Spec: RSQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    rsp: CHandle,
    mask: u32,
    param: Out<RspParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(rsp, HandleKind::Rsp)?;
        let id = RspId::from_handle(rsp.named());
        let queried = with_device!(adapter, opened => opened.ia.rsp_query(id, RspFields::empty()))?;
        check_mask(mask, 0xF)?;
        param.required(3)?.put(RspParam {
            ia: E::ia_of(&adapter),
            qualifier: queried.qualifier,
            evd: adapter.cells.of(queried.evd.into()),
            ep: adapter.cells.of_some(queried.ep),
        });
        Ok(())
    })
}

/// Spec: RSF-01
pub(crate) extern "C-unwind" fn free<E: Edition>(rsp: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(rsp, HandleKind::Rsp)?;
        let id = RspId::from_handle(rsp.named());
        with_device!(adapter, opened => opened.ia.rsp_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
