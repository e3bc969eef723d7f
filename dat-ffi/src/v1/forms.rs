//! Calls that have another form in 1.2 than in 2.0.

use super::edition::V1;
use crate::boundary::{In, LongTriplet, Out, RegionDescription};
use crate::calls::lmr::{Arguments, Results};
use crate::calls::result::{Code, code, sheltered};
use crate::calls::rmr::Binding;
use crate::calls::{cr, lmr, rmr};
use crate::handles::CHandle;

pub(super) extern "C-unwind" fn lmr_create(
    ia: CHandle,
    memory_type: u32,
    description: RegionDescription,
    length: u64,
    pz: CHandle,
    privileges: u32,
    lmr: Out<CHandle>,
    lmr_context: Out<u32>,
    rmr_context: Out<u32>,
    registered_size: Out<u64>,
    registered_address: Out<u64>,
) -> Code {
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
        position: 7,
        lmr_context,
        rmr_context,
        registered_size,
        registered_address,
    };
    sheltered::<V1>(|| lmr::create::<V1>(arguments, results))
}

pub(super) extern "C" fn rmr_bind(
    rmr: CHandle,
    segment: In<LongTriplet>,
    privileges: u32,
    ep: CHandle,
    cookie: u64,
    flags: u32,
    context: Out<u32>,
) -> Code {
    let arguments = Binding::<V1> {
        rmr,
        segment,
        privileges,
        ep,
        cookie,
        flags,
        context,
    };
    code::<V1>(rmr::bind(arguments))
}

/// Rejects a request, without data for the peer.
pub(super) extern "C-unwind" fn cr_reject(cr: CHandle) -> Code {
    sheltered::<V1>(|| cr::reject(cr, &[]))
}
