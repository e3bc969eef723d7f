//! Remote memory regions.

use dat_core::flags::{CompletionFlags, HandleKind, LmrFields, MemoryPrivileges, RmrFields};
use dat_core::id::{EpId, LmrId, PzId, RmrId};
use dat_core::memory::LmrTriplet;
use dat_core::{Error, ErrorKind, Subtype};

use super::result::{Code, adapter_of, check_address_type, check_mask, code, ia_of};
use crate::adapter::with_device;
use crate::boundary::{self, In, Out, RmrParam};
use crate::handles::{CHandle, reserve};

/// `DAT_RMR_SCOPE` of regions that open to a zone.
pub(super) const SCOPE_ZONE: u32 = 1;

/// Spec: RMC-01
pub(super) extern "C" fn create(pz: CHandle, rmr: Out<CHandle>) -> Code {
    code((|| {
        let adapter = adapter_of(pz, HandleKind::Pz)?;
        let place = rmr.required(2)?;
        let cell = reserve()?;
        let pz = PzId::from_handle(pz.named());
        let made = with_device!(adapter, opened => opened.ia.rmr_create(pz))?;
        place.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })())
}

/// Spec: RMQ-01
pub(super) extern "C" fn query(rmr: CHandle, mask: u32, param: Out<RmrParam>) -> Code {
    code((|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        let id = RmrId::from_handle(rmr.named());
        let told = with_device!(adapter, opened => opened.ia.rmr_query(id, RmrFields::empty()))?;
        check_mask(mask, 0x7F)?;
        let place = param.required(3)?;
        let piece = told.binding.map(|binding| binding.lmr_triplet);
        let piece = piece.unwrap_or_default();
        place.put(RmrParam {
            ia: ia_of(&adapter),
            pz: adapter.cells.of(told.pz.into()),
            piece: boundary::LmrTriplet {
                address: piece.address,
                // It was bound through a triplet of the same width.
                length: u32::try_from(piece.length).unwrap_or(u32::MAX),
                context: piece.context,
            },
            privileges: told.binding.map_or(0, |binding| binding.privileges.bits()),
            rmr_context: told.binding.map_or(0, |binding| binding.rmr_context),
            scope: SCOPE_ZONE,
            address_type: 0,
        });
        Ok(())
    })())
}

/// Positions of arguments are those of 1.2 in the core; 2.0 has the region and the kind of address in between.
fn moved(error: Error) -> Error {
    let position = match (error.kind(), error.subtype()) {
        (ErrorKind::InvalidParameter, Subtype::InvalidArg2) => 3,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg3) => 4,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg4) => 6,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg5) => 7,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg6) => 8,
        _ => return error,
    };
    Error::invalid_argument(position).because(error.cause())
}

/// The region is named twice, by handle and by the context of the piece; both have to name the same. To unbind, with a piece of no
/// length, it need not be named.
///
/// Spec: RMB-01..45
pub(super) extern "C" fn bind(
    rmr: CHandle,
    lmr: CHandle,
    piece: In<boundary::LmrTriplet>,
    privileges: u32,
    address_type: u32,
    ep: CHandle,
    cookie: u64,
    flags: u32,
    context: Out<u32>,
) -> Code {
    code((|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        let id = RmrId::from_handle(rmr.named());
        let given = piece.get().ok_or(Error::invalid_argument(3))?;
        let place = context.required(9)?;
        check_address_type(address_type, 5)?;
        let piece = LmrTriplet {
            context: given.context,
            address: given.address,
            length: given.length.into(),
        };
        if piece.length != 0 {
            let region = LmrId::from_handle(lmr.named());
            let known = with_device!(adapter, opened => {
                opened.ia.lmr_query(region, LmrFields::empty())
            })?;
            if known.lmr_context != piece.context {
                return Err(Error::invalid_argument(3));
            }
        }
        let privileges = MemoryPrivileges::from_bits_retain(privileges);
        let ep = EpId::from_handle(ep.named());
        let flags = CompletionFlags::from_bits_retain(flags);
        let bound = with_device!(adapter, opened => {
            opened.ia.rmr_bind(id, &piece, privileges, ep, cookie, flags)
        });
        place.put(bound.map_err(moved)?);
        Ok(())
    })())
}

/// Spec: RMF-01, RMF-02
pub(super) extern "C" fn free(rmr: CHandle) -> Code {
    code((|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        let id = RmrId::from_handle(rmr.named());
        with_device!(adapter, opened => opened.ia.rmr_free(id))?;
        adapter.retire(id);
        Ok(())
    })())
}
