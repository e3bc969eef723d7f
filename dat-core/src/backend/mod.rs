//! The contract of a backend: queues for the data path, plain values for control.
//!
//! The core validates each call; a backend only executes it. A backend never sees an invalid work
//! request and never calls back into the core. An error that it returns means that it consumed
//! nothing. `docs/backends.md` describes how backends implement these traits.

mod completion;
mod control;
mod direct;
mod extended;
#[cfg(feature = "std")]
mod host;
mod not_local;
mod refused;
mod work;

pub use completion::{Armed, Completion, CompletionQueue, DeviceFailure, Peek};
pub use control::{
    Backend, BackendError, ConnectFailure, ConnectRequest, ControlEvent, DisconnectMode, DomainKey,
    ListenerKey, PRIVATE_DATA_MAX, PrivateData, QueuePair, QueuePairKey, QueuePairRequest,
    ReceiveInfo, RegionKeys, Registration, RequestKey, SharedReceiveQueueKey, SyncDirection,
    WindowKey,
};
pub use direct::DirectAccess;
pub use extended::{ExtendedRequest, ExtendedSend, Extensions};
#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
pub use host::{Activity, Count, HostBackend, HostDriver};
pub use not_local::NotLocal;
pub(crate) use refused::backend_refused;
pub use work::{
    BINDS_UNDER_WAY, BindRequest, ReceiveQueue, ReceiveRequest, Rejected, RemoteRange, Segment,
    SendFlags, SendOperation, SendQueue, SendRequest, WorkQueue, WorkSlot,
};
