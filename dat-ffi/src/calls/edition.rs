//! What differs between the editions of the interface: DAT 1.2 and DAT 2.0.

use std::fmt::Debug;

use dat_core::flags::{EpFields, MemoryPrivileges, PzSupport, SrqState};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Abi, Error};

use crate::adapter::Adapter;
use crate::boundary::Plain;
use crate::handles::CHandle;

/// How structures are laid out in an edition.
pub trait Form: Copy + Debug + 'static {
    /// Sizes of memory and messages.
    type Length: Length;
    /// A field that 2.0 has and 1.2 has not.
    type Added<T: Plain + Debug>: Added<T>;
    /// `DAT_LMR_TRIPLET` and `DAT_RMR_TRIPLET`.
    type Triplet: Triplet;
}

/// An edition: its form, masks and numbers that differ.
pub(crate) trait Edition: Form {
    /// Whose return codes calls give.
    const ABI: Abi;
    /// `DAT_IA_FIELD_ALL`.
    const IA_FIELDS: u64;
    /// `DAT_PROVIDER_FIELD_ALL`.
    const PROVIDER_FIELDS: u64;
    /// `DAT_LMR_FIELD_ALL`.
    const LMR_FIELDS: u32;
    /// `DAT_RMR_FIELD_ALL`.
    const RMR_FIELDS: u32;
    /// What masks of notification objects may have.
    const CNO_FIELDS: u32;
    /// Fields of endpoints that can be asked for and not changed, beside those of 1.2.
    const FIXED_EP_FIELDS: u64;
    /// Whether there are operations beyond the interface, and events of them.
    const EXTENDED: bool;
    /// What registered memory is good for, whether that was asked for or not.
    const GRANTED: MemoryPrivileges;

    /// The adapter as the consumer knows it.
    fn ia_of(adapter: &Adapter) -> CHandle;
    /// The fields of an endpoint that a mask selects; unknown bits stay unknown.
    fn ep_fields(mask: u64) -> EpFields;
    /// The number of a state of shared receive queues.
    fn srq_state(state: SrqState) -> u32;
    /// The number of how zones are supported.
    fn zone_support(support: PzSupport) -> u32;
    /// What the registration of no memory at all is.
    fn no_memory() -> Error;
}

/// A size in bytes.
pub trait Length: Plain + Debug + Into<u64> {
    /// The size, or the largest that there is room for.
    fn of(length: u64) -> Self;
}

impl Length for u64 {
    #[inline(always)]
    fn of(length: u64) -> Self {
        length
    }
}

impl Length for u32 {
    #[inline(always)]
    fn of(length: u64) -> Self {
        Self::try_from(length).unwrap_or(Self::MAX)
    }
}

/// A value, or nothing in its place.
pub trait Added<T>: Plain + Debug {
    /// The value, if there is a place.
    fn of(value: T) -> Self;
}

impl<T: Plain + Debug, const N: usize> Added<T> for [T; N] {
    #[inline(always)]
    fn of(value: T) -> Self {
        [value; N]
    }
}

/// A piece of a region, local or remote.
pub trait Triplet: Plain + Debug {
    /// Context, address and length.
    fn parts(self) -> (u32, u64, u64);

    /// The triplet of a piece.
    fn of(piece: &LmrTriplet) -> Self;

    /// The piece of a local region.
    #[inline(always)]
    fn local(self) -> LmrTriplet {
        let (context, address, length) = self.parts();
        LmrTriplet {
            context,
            address,
            length,
        }
    }

    /// The piece of a remote region.
    #[inline(always)]
    fn remote(self) -> RmrTriplet {
        let (context, address, length) = self.parts();
        RmrTriplet {
            context,
            address,
            length,
        }
    }
}
