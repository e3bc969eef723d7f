//! RDMA devices of a Linux host, over libibverbs and librdmacm.
//!
//! Supports InfiniBand, RoCE (soft-RoCE included) and iWARP.
//!
//! # The feature `rdma-core`
//!
//! The feature enables the whole interface; without it the crate is empty and builds with Rust only.
//! Its build reads the headers of rdma-core by libclang, and links libibverbs and librdmacm. Debian
//! has them in `libibverbs-dev`, `librdmacm-dev`, `libclang-dev` and `pkg-config`. A program enables
//! it with
//!
//! ```toml
//! backend-verbs = { version = "0.1", features = ["rdma-core"] }
//! ```
//!
//! or by the feature `verbs` of `dat-host`, `dat-ffi` and `dat-cli`.
#![cfg_attr(feature = "rdma-core", doc = include_str!("interface.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "rdma-core")]
mod attributes;
#[cfg(feature = "rdma-core")]
mod backend;
#[cfg(feature = "rdma-core")]
mod completion_queue;
#[cfg(feature = "rdma-core")]
mod completion_room;
#[cfg(feature = "rdma-core")]
mod connection;
#[cfg(feature = "rdma-core")]
mod device;
#[cfg(feature = "rdma-core")]
mod directory;
#[cfg(feature = "rdma-core")]
mod event_thread;
#[cfg(feature = "rdma-core")]
mod generational_map;
#[cfg(feature = "rdma-core")]
#[expect(unsafe_code, reason = "the only module that calls C libraries")]
mod hal;
#[cfg(feature = "rdma-core")]
mod objects;
#[cfg(feature = "rdma-core")]
mod options;
#[cfg(feature = "rdma-core")]
mod private_data;
#[cfg(feature = "rdma-core")]
mod queue_pair;
#[cfg(feature = "rdma-core")]
mod receive_queue;
#[cfg(feature = "rdma-core")]
mod send_queue;
#[cfg(feature = "rdma-core")]
mod shared_device;
#[cfg(feature = "rdma-core")]
mod signal;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod sink;
#[cfg(feature = "rdma-core")]
mod sources;
#[cfg(feature = "rdma-core")]
mod supply;
#[cfg(feature = "rdma-core")]
mod wait;

#[cfg(feature = "rdma-core")]
pub use backend::VerbsBackend;
#[cfg(feature = "rdma-core")]
pub use completion_queue::VerbsCompletionQueue;
#[cfg(feature = "rdma-core")]
pub use device::{VerbsDevice, device_of, devices, find_devices};
#[cfg(feature = "rdma-core")]
pub use options::{LongQualifiers, StartThread, VerbsOptions, WindowKind};
#[cfg(feature = "rdma-core")]
pub use receive_queue::{VerbsReceiveQueue, VerbsReceiveSlot, VerbsSharedReceiveQueue};
#[cfg(feature = "rdma-core")]
pub use send_queue::{VerbsSendQueue, VerbsSendSlot};
#[cfg(feature = "rdma-core")]
pub use shared_device::OpenDevices;
#[cfg(feature = "rdma-core")]
pub use wait::{VerbsWait, VerbsWaits};

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "rdma-core"))]
#[doc = include_str!("../README.md")]
struct Readme;
