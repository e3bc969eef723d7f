//! Numbers and types of DAT 1.2.

use std::fmt::Debug;

use dat_core::flags::{EpFields, MemoryPrivileges, PzSupport, SrqState};
use dat_core::{Abi, Error};

use crate::adapter::Adapter;
use crate::boundary::{LongTriplet, Plain};
use crate::calls::{Edition, Form};
use crate::handles::CHandle;

/// DAT 1.2.
#[derive(Clone, Copy, Debug)]
pub struct V1;

impl Form for V1 {
    type Length = u64;
    type Added<T: Plain + Debug> = [T; 0];
    type Triplet = LongTriplet;
}

impl Edition for V1 {
    const ABI: Abi = Abi::V1_2;
    const IA_FIELDS: u64 = 0x7_FFFF_FFFF;
    const PROVIDER_FIELDS: u64 = 0x3FF_FFFF;
    const LMR_FIELDS: u32 = 0x3FF;
    const RMR_FIELDS: u32 = 0x1F;
    const CNO_FIELDS: u32 = 0x3;
    const FIXED_EP_FIELDS: u64 = 0;
    const EXTENDED: bool = false;
    const GRANTED: MemoryPrivileges = MemoryPrivileges::empty();

    fn ia_of(adapter: &Adapter) -> CHandle {
        adapter.handle
    }

    fn ep_fields(mask: u64) -> EpFields {
        EpFields::from_bits_retain(mask)
    }

    fn srq_state(state: SrqState) -> u32 {
        state.value()
    }

    fn zone_support(support: PzSupport) -> u32 {
        support.value()
    }

    fn no_memory() -> Error {
        Error::invalid_argument(4)
    }
}
