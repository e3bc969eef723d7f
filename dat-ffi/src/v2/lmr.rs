//! Local memory regions.

use dat_core::Error;
use dat_core::flags::{HandleKind, LmrFields, MemoryPrivileges, MemoryType};
use dat_core::id::{LmrId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrSource};

use super::result::{Code, adapter, adapter_of, check_address_type, check_mask, code, ia_of};
use crate::adapter::with_device;
use crate::boundary::{LmrParam, Out, RegionDescription, cookie_address, region};
use crate::handles::{CHandle, reserve};

/// No memory at all is a LENGTH_ERROR, and what is registered can be read locally, whether that was asked for or not: programs for
/// DAT 2.0 rely on both.
///
/// Contexts, address and length go where there is a place for them.
///
/// Spec: LMC-01..11
pub(super) extern "C" fn create(
    ia: CHandle,
    memory_type: u32,
    description: RegionDescription,
    length: u64,
    pz: CHandle,
    privileges: u32,
    address_type: u32,
    lmr: Out<CHandle>,
    lmr_context: Out<u32>,
    rmr_context: Out<u32>,
    registered_size: Out<u64>,
    registered_address: Out<u64>,
) -> Code {
    code((|| {
        let adapter = adapter(ia)?;
        let place = lmr.required(8)?;
        let memory_type =
            MemoryType::try_from(memory_type).map_err(|unknown| unknown.in_argument(2))?;
        check_address_type(address_type, 7)?;
        let memory = || {
            let length = usize::try_from(length).map_err(|_| Error::invalid_argument(4))?;
            match length {
                0 => Err(Error::length()),
                // No memory is longer, and none is at null: peers would be let in to memory that is not there.
                length if length > isize::MAX as usize => Err(Error::invalid_argument(4)),
                _ if description.address() == 0 => Err(Error::invalid_argument(3)),
                length => Ok(region(description.address(), length)),
            }
        };
        let request = LmrRequest {
            memory: match memory_type {
                MemoryType::Virtual => LmrMemory::Virtual(memory()?),
                MemoryType::Lmr => LmrMemory::Lmr(LmrId::from_handle(description.handle().named())),
                MemoryType::SharedVirtual => {
                    LmrMemory::SharedVirtual(memory()?, description.cookie()?)
                }
            },
            pz: PzId::from_handle(pz.named()),
            privileges: MemoryPrivileges::from_bits_retain(privileges)
                | MemoryPrivileges::LOCAL_READ,
        };
        let cell = reserve()?;
        let made = with_device!(adapter, opened => opened.ia.lmr_create(&request))?;
        lmr_context.offer(made.lmr_context);
        rmr_context.offer(made.rmr_context);
        registered_size.offer(made.registered_size);
        registered_address.offer(made.registered_address);
        place.put(adapter.cells.publish(cell, made.lmr.into()));
        Ok(())
    })())
}

/// A cookie stays where the answer points to until the region is freed.
///
/// Spec: LMQ-01
pub(super) extern "C" fn query(lmr: CHandle, mask: u32, param: Out<LmrParam>) -> Code {
    code((|| {
        let adapter = adapter_of(lmr, HandleKind::Lmr)?;
        let id = LmrId::from_handle(lmr.named());
        let told = with_device!(adapter, opened => opened.ia.lmr_query(id, LmrFields::empty()))?;
        check_mask(mask, 0x7FF)?;
        let place = param.required(3)?;
        let address = |address: u64| usize::try_from(address).unwrap_or(0);
        let region = match told.source {
            LmrSource::Virtual { address: first } => [address(first), 0],
            LmrSource::Lmr(source) => [adapter.cells.of(source.into()).address(), 0],
            LmrSource::SharedVirtual {
                address: first,
                cookie,
            } => adapter.attach(id, |attachment| {
                attachment.cookie = cookie;
                [address(first), cookie_address(&attachment.cookie)]
            }),
        };
        place.put(LmrParam {
            ia: ia_of(&adapter),
            memory_type: told.source.memory_type().value(),
            region,
            length: told.length,
            pz: adapter.cells.of(told.pz.into()),
            privileges: told.privileges.bits(),
            address_type: 0,
            lmr_context: told.lmr_context,
            rmr_context: told.rmr_context,
            registered_size: told.registered_size,
            registered_address: told.registered_address,
        });
        Ok(())
    })())
}

/// Spec: LMF-01..04
pub(super) extern "C" fn free(lmr: CHandle) -> Code {
    code((|| {
        let adapter = adapter_of(lmr, HandleKind::Lmr)?;
        let id = LmrId::from_handle(lmr.named());
        with_device!(adapter, opened => opened.ia.lmr_free(id))?;
        adapter.retire(id);
        Ok(())
    })())
}
