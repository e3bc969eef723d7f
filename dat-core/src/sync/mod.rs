//! Locks, words and bytes shared between threads and with devices.
//!
//! All `unsafe` code of the crate is in this module.

pub(crate) mod atomic;
mod bytes;
mod frames;
#[cfg(all(feature = "fuzz_sched", not(loom)))]
mod fuzz_sched;
#[cfg(feature = "std")]
mod host;
mod lock;
#[cfg(loom)]
pub(crate) mod loom_sync;
mod mark;
mod mutex;
mod registered;
mod slot_memory;
mod slots;
mod turns;
mod word;

pub use bytes::{copy_from_shared, copy_shared, copy_to_shared, load_bytes, store_bytes};
pub(crate) use frames::Frames;
#[cfg(all(feature = "fuzz_sched", not(loom)))]
pub use fuzz_sched::{Access, on_access};
#[cfg(feature = "std")]
pub use host::HostLock;
#[cfg(feature = "critical-section")]
pub use lock::CriticalSectionLock;
#[cfg(feature = "spin")]
pub use lock::SpinLock;
pub use lock::{ContextLock, NoLock, RawLock, SplitLock};
pub use mark::Mark;
pub use mutex::Mutex;
pub(crate) use mutex::{Guard, Parked};
pub use registered::{RegisteredMemory, RegisteredSpan};
pub use slot_memory::SlotMemory;
#[cfg(feature = "std")]
pub use slots::Access as MemoryAccess;
pub use slots::Slots;
pub use turns::{Turn, Turns};
pub use word::Word64;
