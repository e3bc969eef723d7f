//! What a backend supplies: queues and doorbells for the data path, values in and out for control.
//!
//! The core validates; a backend only carries. It never sees an invalid work request, never calls
//! back into the core, and an error it returns means that nothing was consumed. How the three
//! backends fit these traits is sketched in `docs/backends.md`.

mod completion;
mod control;
mod direct;
mod extended;
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
pub use work::{
    BINDS_UNDER_WAY, BindRequest, ReceiveQueue, ReceiveRequest, Rejected, RemoteRange, Segment,
    SendFlags, SendOperation, SendQueue, SendRequest, WorkQueue, WorkSlot,
};
