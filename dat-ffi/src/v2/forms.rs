//! Calls that have another form in 2.0 than in 1.2.

use dat_core::backend::Extensions;
use dat_core::flags::{HandleKind, LmrFields, MemoryPrivileges};
use dat_core::id::LmrId;
use dat_core::{Cause, Error, ErrorKind, Result, Subtype};

use super::edition::V2;
use super::registry;
use crate::adapter::{Adapter, with_device};
use crate::boundary::{In, List, Out, RegionDescription, ShortTriplet, Text};
use crate::calls::cr::ROOM;
use crate::calls::edition::Triplet;
use crate::calls::lmr::{Arguments, Results};
use crate::calls::result::{Code, adapter, adapter_of, code, sheltered};
use crate::calls::rmr::Binding;
use crate::calls::{cr, ia, lmr, rmr};
use crate::handles::CHandle;

/// `dat_ia_open` of a provider that is registered as thread-safe.
pub(super) extern "C-unwind" fn open(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
) -> Code {
    sheltered::<V2>(|| open_as(name, async_evd_min_qlen, async_evd, ia, true))
}

/// `dat_ia_open` of a provider that is registered as not thread-safe.
///
/// It is thread-safe all the same.
pub(super) extern "C-unwind" fn open_for_one_thread(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
) -> Code {
    sheltered::<V2>(|| open_as(name, async_evd_min_qlen, async_evd, ia, false))
}

fn open_as(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
    is_thread_safe: bool,
) -> Result<()> {
    let unknown = Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered);
    ia::open(name, async_evd_min_qlen, async_evd, ia, |name| {
        let entry = registry::find(name, is_thread_safe).ok_or(unknown)?;
        let registered = entry.registered();
        Ok((entry.device, registered))
    })
}

/// Answers that no adapter takes over the connections of another one.
pub(super) extern "C-unwind" fn ha_related(ia: CHandle, _name: In<u8>, answer: Out<u32>) -> Code {
    sheltered::<V2>(|| {
        adapter(ia)?;
        answer.required(3)?.put(0);
        Ok(())
    })
}

/// Refuses zero-based addresses, which no backend has, and unknown address types.
fn check_address_type(address_type: u32, position: u8) -> Result<()> {
    match address_type {
        0 => Ok(()),
        1 => Err(Error::model_not_supported()),
        _ => Err(Error::invalid_argument(position).because(Cause::UnknownValue)),
    }
}

/// `DAT_IB_MEM_PRIV_REMOTE_ATOMIC`.
const ATOMIC: u32 = 0x40;

/// Returns the privileges without the one for atomic operations.
///
/// Peers that may both read and write may use atomics; without both, the privilege is refused.
/// Unchanged if the device has no atomics.
fn without_atomics(adapter: &Adapter, privileges: u32) -> Result<u32> {
    let known = with_device!(adapter, opened => opened.ia.extensions());
    if privileges & ATOMIC == 0 || !known.contains(Extensions::FETCH_AND_ADD) {
        return Ok(privileges);
    }
    let both = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
    if MemoryPrivileges::from_bits_retain(privileges).contains(both) {
        Ok(privileges & !ATOMIC)
    } else {
        Err(Error::model_not_supported())
    }
}

pub(super) extern "C-unwind" fn lmr_create(
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
    sheltered::<V2>(|| {
        let adapter = adapter(ia)?;
        check_address_type(address_type, 7)?;
        let privileges = without_atomics(&adapter, privileges)?;
        let arguments = Arguments {
            ia,
            memory_type,
            description,
            length,
            pz,
            privileges,
        };
        let results = Results {
            lmr,
            position: 8,
            lmr_context,
            rmr_context,
            registered_size,
            registered_address,
        };
        lmr::create::<V2>(arguments, results)
    })
}

/// Converts the argument position in an error from 1.2 to 2.0.
///
/// 2.0 has the region and the address type as additional arguments.
fn moved(error: Error) -> Error {
    let position = match (error.kind(), error.subtype()) {
        (ErrorKind::InvalidParameter, Subtype::InvalidArg2) => 3,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg3) => 4,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg4) => 6,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg5) => 7,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg6) => 8,
        (ErrorKind::InvalidParameter, Subtype::InvalidArg7) => 9,
        _ => return error,
    };
    Error::invalid_argument(position).because(error.cause())
}

/// Binds a window; the region's handle and the segment's context must name the same region.
///
/// To unbind, with a segment of length 0, no region need be named.
pub(super) extern "C" fn rmr_bind(
    rmr: CHandle,
    lmr: CHandle,
    segment: In<ShortTriplet>,
    privileges: u32,
    address_type: u32,
    ep: CHandle,
    cookie: u64,
    flags: u32,
    context: Out<u32>,
) -> Code {
    code::<V2>((|| {
        let adapter = adapter_of(rmr, HandleKind::Rmr)?;
        check_address_type(address_type, 5)?;
        if let Some(segment) = segment.get().map(Triplet::local)
            && segment.length != 0
        {
            let region = LmrId::from_handle(lmr.named());
            let known = with_device!(adapter, opened => {
                opened.ia.lmr_query(region, LmrFields::empty())
            })?;
            if known.lmr_context != segment.context {
                return Err(Error::invalid_argument(3));
            }
        }
        let arguments = Binding::<V2> {
            rmr,
            segment,
            privileges,
            ep,
            cookie,
            flags,
            context,
        };
        rmr::bind(arguments).map_err(moved)
    })())
}

/// Rejects a request, with private data for the peer.
pub(super) extern "C-unwind" fn cr_reject(
    cr: CHandle,
    private_data_size: i32,
    private_data: List<u8>,
) -> Code {
    sheltered::<V2>(|| {
        adapter_of(cr, HandleKind::Cr)?;
        let mut data = [0; ROOM];
        let size = private_data.copy(private_data_size, 2, &mut data)?;
        cr::reject(cr, data.get(..size).unwrap_or_default())
    })
}
