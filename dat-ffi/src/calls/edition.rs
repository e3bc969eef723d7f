//! Differences between the editions of the interface: DAT 1.2 and DAT 2.0.

use std::fmt::Debug;

use dat_core::flags::{EpFields, MemoryPrivileges, PzSupport, SrqState};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Abi, Error};

use crate::adapter::Adapter;
use crate::boundary::Plain;
use crate::handles::CHandle;

/// Types in the structures of an edition.
pub trait Form: Copy + Debug + 'static {
    /// The type of sizes of memory and messages.
    type Length: Length;
    /// A field that 2.0 has and 1.2 lacks.
    type Added<T: Plain + Debug>: Added<T>;
    /// `DAT_LMR_TRIPLET` and `DAT_RMR_TRIPLET`.
    type Triplet: Triplet;
}

/// An edition: its form, masks and numbers that differ.
pub(crate) trait Edition: Form {
    /// Edition of the return codes.
    const ABI: Abi;
    /// `DAT_IA_FIELD_ALL`.
    const IA_FIELDS: u64;
    /// `DAT_PROVIDER_FIELD_ALL`.
    const PROVIDER_FIELDS: u64;
    /// `DAT_LMR_FIELD_ALL`.
    const LMR_FIELDS: u32;
    /// `DAT_RMR_FIELD_ALL`.
    const RMR_FIELDS: u32;
    /// Bits that masks of notification objects may have.
    const CNO_FIELDS: u32;
    /// Fields of endpoints, not in 1.2, that can be queried but not changed.
    const FIXED_EP_FIELDS: u64;
    /// True if the edition has extended operations and their events.
    const EXTENDED: bool;
    /// Privileges that registered memory gets in addition to the requested ones.
    const GRANTED: MemoryPrivileges;

    /// Returns the handle of an adapter that the consumer has.
    fn ia_of(adapter: &Adapter) -> CHandle;
    /// Returns the endpoint fields that a mask selects; unknown bits stay unknown.
    fn ep_fields(mask: u64) -> EpFields;
    /// Returns the number of a state of shared receive queues.
    fn srq_state(state: SrqState) -> u32;
    /// Returns the number of a kind of support for zones.
    fn zone_support(support: PzSupport) -> u32;
    /// Returns the error for the registration of zero bytes.
    fn no_memory() -> Error;
}

/// A size in bytes.
pub trait Length: Plain + Debug + Into<u64> {
    /// Returns the size, or the largest value of the type if it is larger.
    fn of(length: u64) -> Self;
}

impl Length for u64 {
    #[inline]
    fn of(length: u64) -> Self {
        length
    }
}

impl Length for u32 {
    #[inline]
    fn of(length: u64) -> Self {
        Self::try_from(length).unwrap_or(Self::MAX)
    }
}

/// A field that holds a value, or has no bytes.
pub trait Added<T>: Plain + Debug {
    /// Makes the field; drops the value if it has no bytes.
    fn of(value: T) -> Self;
}

impl<T: Plain + Debug, const N: usize> Added<T> for [T; N] {
    #[inline]
    fn of(value: T) -> Self {
        [value; N]
    }
}

/// A segment of a region, local or remote.
pub trait Triplet: Plain + Debug {
    /// Returns context, address and length.
    fn parts(self) -> (u32, u64, u64);

    /// Makes the triplet of a segment.
    fn of(segment: &LmrTriplet) -> Self;

    /// Returns the segment of a local region.
    #[inline]
    fn local(self) -> LmrTriplet {
        let (context, address, length) = self.parts();
        LmrTriplet {
            context,
            address,
            length,
        }
    }

    /// Returns the segment of a remote region.
    #[inline]
    fn remote(self) -> RmrTriplet {
        let (context, address, length) = self.parts();
        RmrTriplet {
            context,
            address,
            length,
        }
    }
}

/// Names the structures of an edition.
macro_rules! types_of {
    ($edition:ty: $($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])* pub type $name = crate::boundary::$name<$edition>;)*
    };
    ($edition:ty) => {
        crate::calls::edition::types_of! { $edition:
            /// `DAT_EVENT`.
            Event
            /// `DAT_IA_ATTR`.
            IaAttributes
            /// `DAT_PROVIDER_ATTR`.
            ProviderAttributes
            /// `DAT_EP_ATTR`.
            EpAttributes
            /// `DAT_EP_PARAM`.
            EpParam
            /// `DAT_LMR_PARAM`.
            LmrParam
            /// `DAT_RMR_PARAM`.
            RmrParam
            /// `DAT_CNO_PARAM`.
            CnoParam
        }
    };
}
pub(crate) use types_of;
