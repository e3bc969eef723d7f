//! RDMA devices of a Linux host, over libibverbs and librdmacm.
//!
//! Supports InfiniBand, RoCE (soft-RoCE included) and iWARP.
//!
//! # The feature `rdma-core`
//!
//! The feature enables the whole interface; without it the crate is empty and builds with Rust
//! only. Its build reads the headers of rdma-core by libclang, and links libibverbs and librdmacm.
//! Debian has them in `libibverbs-dev`, `librdmacm-dev`, `libclang-dev` and `pkg-config`. A program
//! enables it with
//!
//! ```toml
//! backend-verbs = { version = "0.1", features = ["rdma-core"] }
//! ```
//!
//! or by the feature `verbs` of `dat-host`, `dat-ffi` and `dat-cli`.
#![cfg(feature = "rdma-core")]
//!
//! # Interface
//!
//! [`devices`] finds every port of every device. [`VerbsBackend::open`] opens one port, and
//! `dat_core::Ia::open` makes an interface adapter of it.
//!
//! ```no_run
//! use backend_verbs::{VerbsBackend, VerbsOptions, devices};
//! use dat_core::sync::HostLock;
//!
//! dat_core::define_storage! {
//!     struct Slots for VerbsBackend, HostLock {
//!         protection_zones: 8,
//!         local_regions: 8,
//!         remote_regions: 8,
//!         event_dispatchers: 4,
//!         notification_objects: 4,
//!         endpoints: 4,
//!         shared_receive_queues: 1,
//!         public_service_points: 4,
//!         reserved_service_points: 4,
//!         connection_requests: 4,
//!         events: 64,
//!         records: 128,
//!     }
//! }
//!
//! let first = devices().into_iter().next().ok_or("no device")?;
//! let backend = VerbsBackend::open(&first.name, VerbsOptions::default())
//!     .map_err(|error| format!("{}: {error:?}", first.name))?;
//! let mut wait = backend.wait().map_err(|error| format!("{error:?}"))?;
//! let mut storage = Box::new(Slots::new());
//! let ia = dat_core::Ia::open(backend, storage.lend(), 8).map_err(|refused| refused.to_string())?;
//! // A thread that waits passes its `wait` to `evd_wait_until`.
//! # let _ = (&ia, &mut wait);
//! # Ok::<(), String>(())
//! ```
//!
//! ## Waiting
//!
//! A waiting thread sleeps in a [`VerbsWait`] on completions, connection events and device events.
//! Of several sleeping threads, the kernel wakes one for a connection event.
//!
//! The adapters of a device share one thread. It is woken for events of the device, and for
//! connection events while no other thread sleeps. It only delivers events and wakes the next
//! sleeper. Everything else happens in the caller's calls. [`VerbsBackend::on_event`] is for
//! callers that do not sleep in a [`VerbsWait`].
//!
//! ## Descriptors
//!
//! Adapters of one device share one open of it ([`OpenDevices`]), with four file descriptors. An
//! adapter makes the others when it first needs them: one for connections, and one for completion
//! queues. The first thread that sleeps takes three, and each further one two.
//!
//! ## Limits of verbs
//!
//! - The last byte of private data on the wire encodes its length, plus one. A connection request
//!   with more than 55 bytes of data takes two requests.
//! - A peer reports a broken connection only if its own queue pair failed too. Otherwise it reports
//!   a disconnect.
//! - Verbs does not tell which of several receives was solicited. The first one polled after the
//!   notification counts as solicited.
//! - Shared receive queues have the low watermark, and no high watermark for each endpoint.
//! - Short Sends and RDMA Writes carry their data inline only if the core posts them (see
//!   [`VerbsSendQueue`]).
//! - On devices that have only type 2 memory windows, a window serves only the endpoint on which it
//!   is bound.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attributes;
mod backend;
mod completion_queue;
mod completion_room;
mod connection;
mod device;
mod directory;
mod event_thread;
mod generational_map;
#[expect(unsafe_code, reason = "the only module that calls C libraries")]
mod hal;
mod host;
mod objects;
mod options;
mod private_data;
mod queue_pair;
mod receive_queue;
mod send_queue;
mod shared_device;
mod signal;
mod sources;
mod supply;
mod wait;

pub use backend::VerbsBackend;
pub use completion_queue::VerbsCompletionQueue;
pub use device::{VerbsDevice, device_of, devices, find_devices};
pub use options::{LongQualifiers, StartThread, VerbsOptions, WindowKind};
pub use receive_queue::{VerbsReceiveQueue, VerbsReceiveSlot, VerbsSharedReceiveQueue};
pub use send_queue::{VerbsSendQueue, VerbsSendSlot};
pub use shared_device::OpenDevices;
pub use wait::{VerbsWait, VerbsWaits};

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "rdma-core"))]
#[doc = include_str!("../README.md")]
struct Readme;
