//! Locks, words and bytes shared between threads and with devices.
//!
//! All `unsafe` code of the crate is in this module.

pub(crate) mod atomic;
mod bytes;
#[cfg(loom)]
pub(crate) mod explored;
#[cfg(feature = "std")]
mod host;
mod lock;
mod mutex;
mod places;
#[cfg(all(feature = "scheduled", not(loom)))]
mod scheduled;
mod table;
mod word;

pub use bytes::{copy_from_shared, copy_shared, copy_to_shared, load_bytes, store_bytes};
#[cfg(feature = "std")]
pub use host::HostLock;
#[cfg(feature = "critical-section")]
pub use lock::CriticalSectionLock;
#[cfg(feature = "spin")]
pub use lock::SpinLock;
pub use lock::{NoLock, RawLock, SplitLock};
pub(crate) use mutex::Guard;
pub use mutex::Mutex;
pub use places::Places;
#[cfg(all(feature = "scheduled", not(loom)))]
pub use scheduled::{Access, on_access};
pub use table::Table;
pub use word::Word64;
