//! What C hands over and what it gets: the only unsafe code of this crate.
//!
//! Pointers from C have types of their own ([`In`], [`Out`], [`List`], [`Text`], [`Address`]) that Rust code cannot make. So a
//! value of such a type came from a C caller, who promises by the interface that it is null or points to what the call says, for
//! as long as the call lasts. Everything behind this room is safe code that relies on nothing else: numbers are checked where they
//! are used, handles are compared with what is known and never followed.

mod address;
mod layout;
#[cfg(test)]
mod layout_tests;
mod memory;
mod named;
mod pointers;
mod signals;
mod slots;
mod storage;
mod symbols;

pub use layout::{Plain, ProviderInfo};
pub use pointers::{In, Text};

pub(crate) use address::{Address, SocketAddress};
pub(crate) use layout::{
    ArrivalData, AsyncData, BindData, CnoParam, ConnectionData, CrParam, EpAttributes, EpParam,
    EvdParam, Event, EventData, FUNCTIONS, IaAttributes, LmrParam, LmrTriplet, Name,
    ProviderAttributes, PspParam, PzParam, RmrParam, RmrTriplet, RspParam, SrqAttributes, SrqParam,
    Table, TransferData, cookie_address, lent,
};
pub(crate) use memory::{RegionDescription, region};
pub(crate) use named::NamedAttributes;
pub(crate) use pointers::{Agent, List, Out};
pub(crate) use signals::without_signals;
pub(crate) use slots::{Entered, Slot};
pub(crate) use storage::OwnedIa;
pub(crate) use symbols::Registry;
