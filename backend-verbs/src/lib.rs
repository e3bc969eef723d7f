//! RDMA devices of a Linux host, over libibverbs and librdmacm: InfiniBand, RoCE (soft-RoCE included) and iWARP.
//!
//! [`devices`] finds every port of every device; [`VerbsBackend::open`] opens one, and `dat_core::Ia::open` makes an
//! interface adapter of it.
//!
//! ```no_run
//! use backend_verbs::{VerbsBackend, VerbsOptions, devices};
//! use dat_core::IaStorage;
//! use dat_core::sync::HostLock;
//!
//! let first = devices().into_iter().next().ok_or("no device")?;
//! let backend = VerbsBackend::open(&first.name, VerbsOptions::default())
//!     .map_err(|error| format!("{}: {error:?}", first.name))?;
//! let mut wait = backend.wait().map_err(|error| format!("{error:?}"))?;
//! let mut storage = Box::new(IaStorage::<VerbsBackend, HostLock, 4, 4, 1, 8, 64, 128>::new());
//! let ia = dat_core::Ia::open(backend, storage.lend(), 8).map_err(|refused| refused.to_string())?;
//! // Whoever waits gives its `wait` to `evd_wait_until`.
//! # let _ = (&ia, &mut wait);
//! # Ok::<(), String>(())
//! ```
//!
//! # Who waits where
//!
//! A thread that waits (with a [`VerbsWait`]) sleeps on completions and on the events of connections and of the device
//! itself; of several one alone is told of such an event. One more thread is told while nobody sleeps, and does nothing
//! but say so to whoever will; nothing else happens outside of the caller's calls. [`VerbsBackend::on_event`] is for
//! callers that do not sleep in a [`VerbsWait`].
//!
//! # What verbs does not carry
//!
//! - The last byte of private data on the wire is its length; data of more than 55 bytes takes two requests.
//! - A peer hears that a connection broke only if its own end broke with it, else that it was disconnected.
//! - Which of several receives was solicited is not told; the first that is seen after the notification counts as it.
//! - Shared receive queues have the watermark from below, not those of buffers taken by one endpoint.
//! - Requests never carry their data inside (see [`VerbsSendQueue`]).
//! - On devices that have memory windows of type 2 alone, a window serves the endpoint that it was bound on.

mod attributes;
mod backend;
mod completion_queue;
mod connection;
mod device;
mod directory;
#[expect(unsafe_code, reason = "C libraries are called here, and only here")]
mod hal;
mod objects;
mod options;
mod private_data;
mod queue_pair;
mod receive_queue;
mod send_queue;
mod signal;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod sink;
mod supply;
mod table;
mod wait;

pub use backend::VerbsBackend;
pub use completion_queue::VerbsCompletionQueue;
pub use device::{VerbsDevice, device_of, devices, find_devices};
pub use options::{LongQualifiers, StartThread, VerbsOptions, WindowKind};
pub use receive_queue::{VerbsReceiveQueue, VerbsReceiveSlot, VerbsSharedReceiveQueue};
pub use send_queue::{VerbsSendQueue, VerbsSendSlot};
pub use wait::{VerbsWait, VerbsWaits};
