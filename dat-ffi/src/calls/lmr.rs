//! Local memory regions.

use dat_core::flags::{HandleKind, LmrFields, MemoryPrivileges, MemoryType};
use dat_core::id::{LmrId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrSource};
use dat_core::{Error, ErrorKind, Result, Subtype};

use super::edition::{Added, Edition};
use super::result::{Code, adapter, adapter_of, check_mask, sheltered};
use crate::adapter::with_device;
use crate::boundary::{Access, LmrParam, Out, RegionDescription, allows, cookie_address, region};
use crate::handles::CHandle;

/// `DAT_MEM_TYPE_SO_VIRTUAL`, a type of one system that is not in this project's headers.
const SOLARIS_VIRTUAL: u32 = 3;

/// The arguments of a registration.
pub(crate) struct Arguments {
    pub(crate) ia: CHandle,
    pub(crate) memory_type: u32,
    pub(crate) description: RegionDescription,
    pub(crate) length: u64,
    pub(crate) pz: CHandle,
    pub(crate) privileges: u32,
}

/// Outputs for the results of a registration; all but the one for the handle may be null.
pub(crate) struct Results {
    pub(crate) lmr: Out<CHandle>,
    /// Argument position of the handle.
    pub(crate) position: u8,
    pub(crate) lmr_context: Out<u32>,
    pub(crate) rmr_context: Out<u32>,
    pub(crate) registered_size: Out<u64>,
    pub(crate) registered_address: Out<u64>,
}

/// Registers memory with the requested privileges and those that the edition grants.
///
/// Spec: LMC-01..11
pub(crate) fn create<E: Edition>(arguments: Arguments, results: Results) -> Result<()> {
    let adapter = adapter(arguments.ia)?;
    let output = results.lmr.required(results.position)?;
    if arguments.memory_type == SOLARIS_VIRTUAL {
        return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::NoSubtype));
    }
    let memory_type =
        MemoryType::try_from(arguments.memory_type).map_err(|unknown| unknown.in_argument(2))?;
    let description = arguments.description;
    let memory = || {
        let length = usize::try_from(arguments.length).map_err(|_| Error::invalid_argument(4))?;
        match length {
            0 => Err(E::no_memory()),
            // No memory is longer, and none is at null. Peers would get access to memory that does
            // not exist.
            length if length > isize::MAX as usize => Err(Error::invalid_argument(4)),
            _ if description.address() == 0 => Err(Error::invalid_argument(3)),
            length => Ok(region(description.address(), length)),
        }
    };
    let request = LmrRequest {
        memory: match memory_type {
            MemoryType::Virtual => LmrMemory::Virtual(memory()?),
            MemoryType::Lmr => LmrMemory::Lmr(LmrId::from_handle(description.handle().named())),
            MemoryType::SharedVirtual => LmrMemory::SharedVirtual(memory()?, description.cookie()?),
        },
        pz: PzId::from_handle(arguments.pz.named()),
        privileges: MemoryPrivileges::from_bits_retain(arguments.privileges) | E::GRANTED,
    };
    let cell = adapter.cells.reserve(HandleKind::Lmr)?;
    let checked = || match memory_type {
        MemoryType::Lmr => Ok(()),
        MemoryType::Virtual | MemoryType::SharedVirtual => check_memory(&arguments),
    };
    let made = with_device!(adapter, opened => opened.ia.lmr_create(&request)).map_err(
        |error| match error.subtype() {
            // The device only says that it failed; the mappings of the process may tell why.
            Subtype::ResourceMemoryRegion => checked().err().unwrap_or(error),
            _ => error,
        },
    )?;
    // A device of verbs checks this when it pins the memory, after all other errors.
    let pinned = match with_device!(adapter, opened => opened.pins_memory()) {
        true => Ok(()),
        // Other backends copy by instructions of this process.
        false => checked(),
    };
    if let Err(error) = pinned {
        with_device!(adapter, opened => opened.ia.lmr_free(made.lmr))?;
        return Err(error);
    }
    results.lmr_context.offer(made.lmr_context);
    results.rmr_context.offer(made.rmr_context);
    results.registered_size.offer(made.registered_size);
    results.registered_address.offer(made.registered_address);
    output.put(adapter.cells.publish(cell, made.lmr.into()));
    Ok(())
}

/// Checks that memory exists and allows the registered access, as far as the system tells.
fn check_memory(arguments: &Arguments) -> Result<()> {
    let privileges = MemoryPrivileges::from_bits_retain(arguments.privileges);
    let writes = MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_WRITE;
    let needed = if privileges.intersects(writes) {
        Access::Write
    } else {
        Access::Read
    };
    let length = usize::try_from(arguments.length).unwrap_or(usize::MAX);
    if !allows(arguments.description.address(), length, needed) {
        return Err(Error::invalid_argument(3));
    }
    Ok(())
}

/// Queries a region; a cookie keeps its address until the region is freed.
///
/// Spec: LMQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    lmr: CHandle,
    mask: u32,
    param: Out<LmrParam<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(lmr, HandleKind::Lmr)?;
        let id = LmrId::from_handle(lmr.named());
        let queried = with_device!(adapter, opened => opened.ia.lmr_query(id, LmrFields::empty()))?;
        check_mask(mask, E::LMR_FIELDS)?;
        let output = param.required(3)?;
        let address = |address: u64| usize::try_from(address).unwrap_or(0);
        let region = match queried.source {
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
        output.put(LmrParam {
            ia: E::ia_of(&adapter),
            memory_type: queried.source.memory_type().value(),
            region,
            length: queried.length,
            pz: adapter.cells.of(queried.pz.into()),
            privileges: queried.privileges.bits(),
            address_type: Added::of(0),
            lmr_context: queried.lmr_context,
            rmr_context: queried.rmr_context,
            registered_size: queried.registered_size,
            registered_address: queried.registered_address,
        });
        Ok(())
    })
}

/// Spec: LMF-01..04
pub(crate) extern "C-unwind" fn free<E: Edition>(lmr: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(lmr, HandleKind::Lmr)?;
        let id = LmrId::from_handle(lmr.named());
        with_device!(adapter, opened => opened.ia.lmr_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
