//! Remote memory regions.

use dat_core::flags::{CompletionFlags, HandleKind, MemoryPrivileges, RmrFields};
use dat_core::id::{EpId, PzId, RmrId};
use dat_core::{Error, Result};

use super::edition::{Added, Edition, Triplet};
use super::result::{Code, adapter_of, check_mask, sheltered};
use crate::adapter::with_device;
use crate::boundary::{In, Out, RmrParam};
use crate::handles::CHandle;

/// `DAT_RMR_SCOPE` of windows that are open to a zone.
pub(crate) const SCOPE_ZONE: u32 = 1;

/// Spec: RMC-01
pub(crate) extern "C-unwind" fn create<E: Edition>(pz: CHandle, rmr: Out<CHandle>) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let output = rmr.required(2)?;
        let cell = adapter.cells.reserve(HandleKind::Rmr)?;
        let pz = PzId::from_handle(pz.named());
        let made = with_device!(adapter, opened => opened.ia.rmr_create(pz))?;
        output.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })
}

/// Spec: RMQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    rmr: CHandle,
    mask: u32,
    param: Out<RmrParam<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        let id = RmrId::from_handle(rmr.named());
        let queried = with_device!(adapter, opened => opened.ia.rmr_query(id, RmrFields::empty()))?;
        check_mask(mask, E::RMR_FIELDS)?;
        let output = param.required(3)?;
        let segment = queried.binding.map(|binding| binding.lmr_triplet);
        let segment = segment.unwrap_or_default();
        output.put(RmrParam {
            ia: E::ia_of(&adapter),
            pz: adapter.cells.of(queried.pz.into()),
            segment: E::Triplet::of(&segment),
            privileges: queried
                .binding
                .map_or(0, |binding| binding.privileges.bits()),
            rmr_context: queried.binding.map_or(0, |binding| binding.rmr_context),
            scope: Added::of(SCOPE_ZONE),
            address_type: Added::of(0),
        });
        Ok(())
    })
}

/// The arguments of a bind.
pub(crate) struct Binding<E: Edition> {
    pub(crate) rmr: CHandle,
    pub(crate) segment: In<E::Triplet>,
    pub(crate) privileges: u32,
    pub(crate) ep: CHandle,
    pub(crate) cookie: u64,
    pub(crate) flags: u32,
    pub(crate) context: Out<u32>,
}

/// Binds a window; positions in errors are those of 1.2.
///
/// Spec: RMB-01..45
pub(crate) fn bind<E: Edition>(arguments: Binding<E>) -> Result<()> {
    let adapter = adapter_of(arguments.rmr, HandleKind::Rmr)?;
    let id = RmrId::from_handle(arguments.rmr.named());
    let segment = arguments.segment.get().ok_or(Error::invalid_argument(2))?;
    let segment = segment.local();
    if segment.length != 0 {
        arguments.context.required(7)?;
    }
    let privileges = MemoryPrivileges::from_bits_retain(arguments.privileges);
    let ep = EpId::from_handle(arguments.ep.named());
    let flags = CompletionFlags::from_bits_retain(arguments.flags);
    let bound = with_device!(adapter, opened => {
        opened.posting(|| {
            opened.ia.rmr_bind(id, &segment, privileges, ep, arguments.cookie, flags)
        })
    });
    arguments.context.offer(bound?);
    Ok(())
}

/// Spec: RMF-01, RMF-02
pub(crate) extern "C-unwind" fn free<E: Edition>(rmr: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        let id = RmrId::from_handle(rmr.named());
        with_device!(adapter, opened => opened.ia.rmr_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
