//! Numbers and types of DAT 2.0.

use std::fmt::Debug;

use dat_core::flags::{EpFields, MemoryPrivileges, PzSupport, SrqState};
use dat_core::{Abi, Error};

use crate::adapter::Adapter;
use crate::boundary::{Plain, Registry, ShortTriplet};
use crate::calls::{Edition, Form};
use crate::handles::CHandle;

/// DAT 2.0.
#[derive(Clone, Copy, Debug)]
pub struct V2;

impl Form for V2 {
    type Length = u32;
    type Added<T: Plain + Debug> = [T; 1];
    type Triplet = ShortTriplet;
}

impl Edition for V2 {
    const ABI: Abi = Abi::V2_0;
    const IA_FIELDS: u64 = 0x3F_FFFF_FFFF;
    const PROVIDER_FIELDS: u64 = 0x7FFF_FFFF;
    const LMR_FIELDS: u32 = 0x7FF;
    const RMR_FIELDS: u32 = 0x7F;
    /// All values up to 7, because the numbers of the fields are no separate bits.
    ///
    /// The headers number them 1, 2 and 3, and all of them 4.
    const CNO_FIELDS: u32 = 0x7;
    const FIXED_EP_FIELDS: u64 = COMMUNICATION;
    const EXTENDED: bool = true;
    /// Programs for 2.0 send from memory that they registered for writing only.
    const GRANTED: MemoryPrivileges = MemoryPrivileges::LOCAL_READ;

    fn ia_of(adapter: &Adapter) -> CHandle {
        Registry::consumer_handle(adapter.handle)
    }

    fn ep_fields(mask: u64) -> EpFields {
        let stayed = mask & !(MOVED | COMMUNICATION);
        EpFields::from_bits_retain(stayed & BEFORE | (mask & MOVED) >> 1 | stayed & !BEFORE)
    }

    /// The numbers are swapped, compared with 1.2.
    fn srq_state(state: SrqState) -> u32 {
        match state {
            SrqState::Error => 0,
            SrqState::Operational => 1,
        }
    }

    /// 2.0 has no number for `Same`, which gets that of `Shareable`.
    fn zone_support(support: PzSupport) -> u32 {
        match support {
            PzSupport::Unique => 0,
            PzSupport::Same | PzSupport::Shareable => 1,
        }
    }

    /// Programs rely on this error.
    fn no_memory() -> Error {
        Error::length()
    }
}

/// `DAT_EP_FIELD_COMM`, which 1.2 lacks. In 2.0, the fields above it are one bit higher, as far as
/// there was room.
const COMMUNICATION: u64 = 0x4;
/// The fields below `COMMUNICATION`.
const BEFORE: u64 = COMMUNICATION - 1;
/// The fields that have moved, at their bits in 2.0.
const MOVED: u64 = 0xFF8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: GEN-08
    #[test]
    fn endpoint_masks_of_2_0_are_those_of_1_2_shifted() {
        for (mask, expected) in [
            (0x1, EpFields::IA),
            (0x2, EpFields::STATE),
            (0x8, EpFields::LOCAL_IA_ADDRESS),
            (0x10, EpFields::LOCAL_PORT),
            (0x20, EpFields::REMOTE_IA_ADDRESS),
            (0x40, EpFields::REMOTE_PORT),
            (0x80, EpFields::PZ),
            (0x100, EpFields::RECV_EVD),
            (0x200, EpFields::REQUEST_EVD),
            (0x400, EpFields::CONNECT_EVD),
            (0x800, EpFields::SRQ),
            (0x1000, EpFields::SERVICE_TYPE),
            (0x4000_0000, EpFields::PROVIDER_SPECIFIC_ATTR),
            (0x7FFF_FFFF, EpFields::all()),
        ] {
            assert_eq!(V2::ep_fields(mask), expected, "{mask:#x}");
        }
        for unknown in [0x8000_0000, 1 << 63] {
            let fields = V2::ep_fields(unknown);
            assert_eq!(EpFields::from_bits(fields.bits()), None);
        }
    }
}
