//! Service points and connection requests.

/// Lets the service points of a table be found by their qualifiers.
macro_rules! keyed_by_qualifier {
    ($slot:ty) => {
        impl crate::storage::Keyed for $slot {
            fn key(&self) -> Option<u64> {
                (!self.id.is_null()).then_some(self.qualifier)
            }

            #[cfg(feature = "std")]
            fn links(&self) -> &crate::storage::KeyLinks {
                &self.links
            }

            #[cfg(feature = "std")]
            fn links_mut(&mut self) -> &mut crate::storage::KeyLinks {
                &mut self.links
            }
        }
    };
}

mod incoming;
#[cfg(test)]
mod tests;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod psp;

mod rsp;

mod cr;

pub use cr::{CrParam, CrSlot};
pub(crate) use incoming::Incoming;
pub use psp::{PspParam, PspSlot};
pub use rsp::{RspParam, RspSlot};
