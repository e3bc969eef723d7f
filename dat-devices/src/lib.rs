//! From an address to a backend of the Direct Access Transport, for programs of a host.
//!
//! | address | feature | device |
//! |---|---|---|
//! | `mock://NAME` | `mock` | an adapter in this process, of a [`Network`] or of the numbered fabric |
//! | `roce://ADDRESS` | `roce` | RoCEv2 in software, at an address or interface of this host |
//! | `verbs://NAME` | `verbs` | a port of an RDMA device, by its name, interface or address |
//!
//! [`DeviceAddress`] parses addresses, lines of `dat.conf` and arguments `--device`. [`open`]
//! opens one, and calls a [`Visitor`] that is generic over the backend: no call goes through a
//! table. [`devices`] lists what there is. A failure has its cause, with the number of the system.
//!
//! # A further backend
//! It implements [`HostBackend`](dat_core::backend::HostBackend) in its crate. Here it gets a
//! feature, a file with its [`ByAddress`], and an entry in `list.rs`. The C libraries and `dat`
//! build the default features; `dat-host` has a feature for each backend.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod by_address;
mod error;
mod list;
#[cfg(feature = "mock")]
mod mock;
#[cfg(feature = "mock")]
mod network;
mod numbered;
mod options;
#[cfg(feature = "roce")]
mod roce;
#[cfg(feature = "verbs")]
mod verbs;

#[cfg(feature = "mock")]
pub use ::backend_mock::{FabricOptions, MockBackend};
#[cfg(feature = "roce")]
pub use ::backend_roce::{RoceBackend, parse_ip};
#[cfg(feature = "verbs")]
pub use ::backend_verbs::VerbsBackend;

pub use address::DeviceAddress;
pub use by_address::{ByAddress, Found, Listed, Visitor, devices, is_built_in, missing, open};
pub use error::{Cause, OpenError, OpenErrorKind};
pub use list::SCHEMES;
#[cfg(feature = "mock")]
pub use network::Network;
pub use options::{Options, StartThread};
