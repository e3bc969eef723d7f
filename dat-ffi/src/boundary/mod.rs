//! Pointers from C and values for C: the only unsafe code of this crate.
//!
//! Pointers from C have types of their own ([`In`], [`Out`], [`List`], [`Text`], [`Address`]) that
//! Rust code outside of this module cannot make. So a value of such a type came from a C caller.
//! The interface has the caller promise that it is null or points to the object that the call
//! names, as long as the call lasts. All code outside of this module is safe code that relies on
//! nothing else: numbers are checked where they are used, handles are compared with known ones and
//! never followed.

mod address;
mod cancel;
mod consumer;
mod descriptors;
mod engine;
mod foreign;
mod forks;
mod layout;
#[cfg(test)]
mod layout_tests;
mod library;
mod mappings;
mod memory;
mod named;
mod pages;
mod place;
mod pointers;
mod provider;
mod rsm_layout;
#[cfg(test)]
mod rsm_layout_tests;
#[cfg(test)]
mod scarce;
mod signals;
mod slots;
mod symbols;
#[cfg(test)]
mod value_tests;
mod variable;
mod window;

pub use address::Address;
pub use consumer::Consumer;
pub use layout::{
    CrParam, EvdParam, LongTriplet, Plain, ProviderInfo, PspParam, PzParam, RspParam, ShortTriplet,
    SrqAttributes, SrqParam,
};
pub use library::{Library, Symbol};
pub use memory::RegionDescription;
pub use pointers::{Agent, In, List, Out, StaticText, Text};
pub(crate) use provider::Provider;
pub use rsm_layout::{AccessEntry, BarrierStorage, ControllerAttributes, IoVector, ScatterGather};
pub use variable::VariableArguments;

pub use dat_storage::heap::Heap;

pub(crate) use dat_storage::forks::PerProcess;
pub(crate) use dat_storage::heap::{has_memory, system_has_memory};

pub(crate) use address::SocketAddress;
pub(crate) use cancel::{Uncancelled, guarded, in_steps, uncancelled};
pub(crate) use consumer::{Access, access_to, has_access, keep_small, page_size};
pub(crate) use descriptors::{Flag, say};
pub(crate) use engine::engine_of;
pub(crate) use foreign::{begin, close, end, explanation, first_word, open};
pub(crate) use forks::{Inherited, InheritedGuard, detects_forks};
#[cfg(test)]
pub(crate) use scarce::without_memory;

pub(crate) use dat_storage::threads::{
    STACK_FOR_AGENTS, Thread, start_thread, start_thread_with, this_thread,
};
pub(crate) use layout::{
    ArrivalData, AsyncData, BindData, CnoParam, ConnectionData, EpAttributes, EpParam, Event,
    EventData, FUNCTIONS, FUNCTIONS_1_2, FunctionTable, IaAttributes, LmrParam, ProviderAttributes,
    RmrParam, TransferData, cookie_address, lent, name_of,
};
pub(crate) use library::trusted_variable;
pub(crate) use mappings::allows;
pub(crate) use memory::region;
pub(crate) use named::NamedAttributes;
pub(crate) use pages::{Pages, all_allow};
pub(crate) use place::{Kept, Numbered, Place, Placed, Shut, ToCell};
pub(crate) use pointers::Output;
pub(crate) use provider::{AtomicProvider, Passed};
pub(crate) use rsm_layout::{ConnectionsHeader, NAME_BYTES, RemoteController, TopologyHeader};
pub(crate) use signals::{Blocked, WakeFd};
pub(crate) use slots::{Entered, Slot};
pub(crate) use symbols::Registry;
pub(crate) use window::Window;
