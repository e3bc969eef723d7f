//! The control path: device objects, connections and asynchronous events.
//!
//! Calls exchange plain values. Outcomes that depend on a peer arrive later, through
//! [`Backend::poll_control`].

use super::{CompletionQueue, DirectAccess, Extensions, ReceiveQueue, SendQueue};
use crate::attributes::{EpAttributes, IaAddress, IaAttributes, ProviderAttributes};
use crate::flags::{MemoryPrivileges, QualityOfService};
use crate::region::Region;
use crate::time::Instant;

/// Largest private data that the core carries, in bytes; a provider may allow less.
pub const PRIVATE_DATA_MAX: usize = if cfg!(feature = "compact") { 64 } else { 256 };

/// Private data of a connection request or its answer.
pub type PrivateData = heapless::Vec<u8, PRIVATE_DATA_MAX>;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// The backend chooses the value; the core only stores it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub usize);
    )*};
}

keys! {
    /// Key of a protection domain, the device object of a protection zone.
    DomainKey;
    /// Key of a memory window.
    WindowKey;
    /// Key of a queue pair.
    QueuePairKey;
    /// Key of a shared receive queue.
    SharedReceiveQueueKey;
    /// Key of a listener.
    ListenerKey;
    /// Key of an incoming connection request.
    RequestKey;
}

/// Keys of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RegionKeys {
    /// The backend's own key of the region.
    pub object: usize,
    /// Key for local segments.
    pub local: u32,
    /// Key for peers (the RMR context); 0 if the region grants no remote privilege.
    pub remote: u32,
}

/// The reason a backend refused a call; the call changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BackendError {
    /// Memory or device objects are exhausted, or a size exceeds the device's limit.
    Resources,
    /// The process, or the host, has no file descriptor left.
    Descriptors,
    /// The system does not permit the call, by its permissions or by a filter.
    Prohibited,
    /// The device lacks the operation.
    NotSupported,
    /// Another listener holds the connection qualifier.
    QualifierInUse,
    /// No connection qualifier is free.
    QualifierUnavailable,
    /// The transport cannot use the address or the connection qualifier.
    Address,
    /// The device has no route to the address.
    Unreachable,
    /// The object's state forbids the call, as when a change would lose posted receives.
    State,
    /// The device failed.
    Device,
}

/// Memory to register.
///
/// Outside the core, only a [`Region`] yields one, so safe code cannot expose arbitrary addresses
/// to a device:
///
/// ```compile_fail,E0451
/// # use dat_core::{backend::{DomainKey, Registration}, flags::MemoryPrivileges};
/// let registration = Registration {
///     domain: DomainKey(0),
///     base: 0x1000 as *mut u8,
///     length: 4096,
///     privileges: MemoryPrivileges::ALL,
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    domain: DomainKey,
    base: *mut u8,
    length: usize,
    privileges: MemoryPrivileges,
}

impl Registration {
    /// Describes the registration of `region` in `domain`.
    pub fn new(domain: DomainKey, region: &Region, privileges: MemoryPrivileges) -> Self {
        Self::of(domain, region.base(), region.len(), privileges)
    }

    /// As [`new`](Self::new), for memory that a live region already covers.
    pub(crate) fn of(
        domain: DomainKey,
        base: *mut u8,
        length: usize,
        privileges: MemoryPrivileges,
    ) -> Self {
        Self {
            domain,
            base,
            length,
            privileges,
        }
    }

    /// Protection domain of the region.
    pub fn domain(&self) -> DomainKey {
        self.domain
    }

    /// Address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length in bytes; the core passes at least 1.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Privileges that the region grants.
    pub fn privileges(&self) -> MemoryPrivileges {
        self.privileges
    }
}

/// The operation that cache maintenance prepares or follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncDirection {
    /// Makes earlier local stores visible to later incoming RDMA Reads (LSR-01).
    RdmaRead,
    /// Makes completed incoming RDMA Writes visible to local loads (LSW-02).
    ///
    /// Also orders earlier local stores before later incoming RDMA Writes (LSW-23).
    RdmaWrite,
}

/// Parameters of a queue pair.
///
/// Outside the core, only [`new`](Self::new) makes one, and it never permits reads at post:
///
/// ```compile_fail,E0451
/// # use dat_core::{attributes::EpAttributes, backend::{DomainKey, QueuePairRequest}};
/// let request = QueuePairRequest {
///     vouched: true,
///     ..QueuePairRequest::new(1, DomainKey(1), EpAttributes::DEFAULT)
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QueuePairRequest {
    /// Names the queue pair in completions and control events.
    pub token: u64,
    /// Protection domain of local segments and of remote access.
    pub domain: DomainKey,
    /// Number of the completion queue for requests, if any.
    pub request_queue: Option<u32>,
    /// Number of the completion queue for receives, if any.
    pub receive_queue: Option<u32>,
    /// Key of the shared receive queue, if any.
    pub shared_receive_queue: Option<SharedReceiveQueueKey>,
    /// Queue sizes; the core passes non-negative counts within the adapter's limits.
    pub attributes: EpAttributes,
    pub(crate) vouched: bool,
}

impl QueuePairRequest {
    /// Creates a request without completion queues, for callers other than the core.
    pub const fn new(token: u64, domain: DomainKey, attributes: EpAttributes) -> Self {
        Self {
            token,
            domain,
            request_queue: None,
            receive_queue: None,
            shared_receive_queue: None,
            attributes,
            vouched: false,
        }
    }

    /// Returns true if the send queue may read the data of a request at post.
    ///
    /// Applies to Sends and RDMA Writes. True only if the core made the request for a backend with
    /// [`Backend::READS_AT_POST`]: the core then keeps the regions of all segments registered until
    /// the post returns. Other callers can put any address into a segment.
    pub const fn may_read_at_post(&self) -> bool {
        self.vouched
    }
}

/// A new queue pair: its key and its queues.
#[derive(Debug)]
pub struct QueuePair<S, R> {
    /// Key of the queue pair.
    pub key: QueuePairKey,
    /// The send queue.
    pub send: S,
    /// The receive queue; `None` with a shared receive queue.
    pub receive: Option<R>,
}

/// Mode of ending a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectMode {
    /// For use once all requests have completed; the peer sees a disconnect.
    Graceful,
    /// Flushes pending requests; the peer sees a disconnect.
    Abrupt,
    /// Flushes pending requests; the peer sees a broken connection if the transport can say so.
    Broken,
}

/// Parameters of an outgoing connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// Address of the peer.
    pub address: IaAddress,
    /// Connection qualifier that the peer listens on.
    pub qualifier: u64,
    /// Private data for the peer.
    pub private_data: &'a [u8],
    /// Quality of service.
    pub quality: QualityOfService,
}

/// The reason a connection attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "compact"),
    expect(
        clippy::large_enum_variant,
        reason = "no allocator to box the data; other control events are as large"
    )
)]
pub enum ConnectFailure {
    /// The peer's consumer rejected the request, with this private data.
    PeerRejected(PrivateData),
    /// The peer has no listener or a full backlog, or the transport refused.
    NonPeerRejected,
    /// The peer's host cannot be reached.
    Unreachable,
    /// The transport gave up before the attempt was complete.
    TimedOut,
}

/// An event of the device.
///
/// Events name queue pairs, listeners and shared receive queues by the core's tokens, and
/// completion queues by number. The core ignores an event whose token is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// A connection request arrived.
    ConnectionRequest {
        /// Token of the listener.
        listener: u64,
        /// Key for [`Backend::accept`] or [`Backend::reject`].
        request: RequestKey,
        /// Address of the peer.
        remote: IaAddress,
        /// Port qualifier of the peer.
        remote_port: u64,
        /// Local address that received the request.
        local: IaAddress,
        /// Private data of the peer.
        private_data: PrivateData,
    },
    /// The peer's host answered; the connection attempt is still pending.
    ///
    /// Makes the core report TIMED_OUT, not UNREACHABLE, if the attempt's deadline passes.
    Answered {
        /// Token of the queue pair.
        queue_pair: u64,
    },
    /// A connection is established; each side reports its own.
    ///
    /// [`Backend::poll_control`] must be able to return this before the core polls the connection's
    /// first receive completion. A transport whose data can overtake the handshake raises the event
    /// when that completion is polled.
    Established {
        /// Token of the queue pair.
        queue_pair: u64,
        /// Private data of the accept; only the active side uses it.
        private_data: PrivateData,
    },
    /// An active or passive connection attempt failed; the queue pair is in error.
    ConnectFailed {
        /// Token of the queue pair.
        queue_pair: u64,
        /// Reason of the failure.
        failure: ConnectFailure,
    },
    /// The peer ended the connection; the queue pair is in error.
    Disconnected {
        /// Token of the queue pair.
        queue_pair: u64,
    },
    /// The connection broke; the queue pair is in error.
    Broken {
        /// Token of the queue pair.
        queue_pair: u64,
    },
    /// An armed completion queue has completions.
    Completions {
        /// Number of the completion queue.
        queue: u32,
    },
    /// As `Completions`; a solicited completion may already have been polled as unsolicited.
    ///
    /// For devices that notify of solicited completions but do not mark them (see
    /// [`Completion::solicited`](super::Completion::solicited)).
    SolicitedCompletions {
        /// Number of the completion queue.
        queue: u32,
    },
    /// An armed shared receive queue fell below its limit.
    SharedReceiveLimit {
        /// Token of the shared receive queue.
        queue: u64,
    },
    /// A shared receive queue failed; it still accepts buffers but hands none to queue pairs.
    SharedReceiveFailed {
        /// Token of the shared receive queue.
        queue: u64,
    },
    /// A queue pair holds more receive buffers than its soft high watermark.
    SoftHighWatermark {
        /// Token of the queue pair.
        queue_pair: u64,
    },
    /// The device failed permanently.
    DeviceFailed,
}

/// Receive buffers that a queue pair holds for arriving messages (EPY-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReceiveInfo {
    /// Number of buffers; `None` if the device cannot tell.
    pub allocated: Option<u32>,
    /// Span of their message numbers; `None` if the device cannot tell.
    pub span: Option<u32>,
}

/// A device and its connection management, called under the adapter's control lock.
///
/// No call is on the data path. A call may wait for the device but never for a peer.
///
/// Calls with a default belong to parts that a device may lack: memory windows, shared receive
/// queues, resizing, watermarks, extended operations. The default reports the part as missing, and
/// the attributes must do so too. Other defaults (`is_quiet`, `is_proven`, `create_queue_pair_at`,
/// [`EVENT_DRIVEN`](Self::EVENT_DRIVEN)) are right for every backend and cost time only.
///
/// A refused call changes nothing. Each call that can be refused returns [`BackendError::Device`]
/// if the device has failed. It returns [`BackendError::State`] for an object that the backend does
/// not know, which the core never names. `# Errors` lists the others.
///
/// # Safety
/// A consumer reuses its memory after deregistration and relies on the backend for the following:
///
/// 1. The device and its peers access memory only through a live [`Registration`] or a window bound
///    to it, and only as its privileges permit. This holds for every request that safe code can
///    post to this backend's queues.
/// 2. After [`deregister`](Self::deregister) returns, neither the device nor a peer accesses the
///    region. Dropping the backend deregisters all regions.
/// 3. Without a check of keys, the backend reads consumer memory only at post, and only on queue
///    pairs with [`may_read_at_post`](QueuePairRequest::may_read_at_post). A backend that forwards
///    requests to another backend keeps no segment after the call.
/// 4. For this side, the device accesses memory only by a request that names it, and only until the
///    request is complete. It begins with the post. It ends when [`poll`](CompletionQueue::poll) or
///    [`skip`](CompletionQueue::skip) takes the completion of the request, or of a later request of
///    the queue if the request reports none. It also ends when
///    [`destroy_queue_pair`](Self::destroy_queue_pair),
///    [`reset_queue_pair`](Self::reset_queue_pair) or
///    [`destroy_shared_receive_queue`](Self::destroy_shared_receive_queue) returns. A request is
///    reported as complete only when the device no longer accesses its memory.
#[expect(unsafe_code)]
// UNSAFETY: the compiler cannot check a device's memory accesses.
pub unsafe trait Backend {
    /// The completion queue type.
    type CompletionQueue: CompletionQueue;
    /// The send queue type.
    type SendQueue: SendQueue;
    /// The receive queue type.
    type ReceiveQueue: ReceiveQueue;
    /// The shared receive queue type.
    type SharedReceiveQueue: ReceiveQueue;

    /// Set if `is_quiet` is implemented and `poll_control` ignores the time.
    ///
    /// Blocking waits then avoid the clock: before the first sleep they skip `poll_control` if
    /// `is_quiet` returns true, and after a sleep they pass an arbitrary time. `progress` skips it
    /// after an event if `is_quiet` returns true.
    const EVENT_DRIVEN: bool = false;

    /// Set if send queues read a request's data at post, to send it inline.
    ///
    /// A send queue may read the data of a Send or RDMA Write from `commit` to the return of
    /// `ring`, if its queue pair [may read at post](QueuePairRequest::may_read_at_post). The
    /// processor checks no key, so the core keeps regions alive across posts. Creating or freeing a
    /// region locks each endpoint that has posted since the last such call. So it waits for the
    /// posts in progress. Other backends do not pay for this.
    const READS_AT_POST: bool = false;

    /// Clear it if `extensions` is always empty: the program then has no code for such posts.
    const EXTENDS: bool = true;

    /// Returns the adapter's attributes and limits.
    fn ia_attributes(&self) -> IaAttributes;

    /// Returns the provider's capabilities.
    fn provider_attributes(&self) -> ProviderAttributes;

    /// Returns the extended operations that the send queues accept.
    fn extensions(&self) -> Extensions {
        Extensions::empty()
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn create_domain(&mut self) -> Result<DomainKey, BackendError>;

    /// Destroys a protection domain that no object uses.
    fn destroy_domain(&mut self, domain: DomainKey);

    /// Registers memory, which stays accessible until `deregister` returns.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects.
    /// - [`BackendError::NotSupported`]: the device cannot reach such memory, or grant such
    ///   privileges.
    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError>;

    /// Deregisters a region; on return neither the device nor a peer accesses it.
    fn deregister(&mut self, region: RegionKeys);

    /// Performs the cache maintenance for `direction`, complete on return.
    ///
    /// The core passes ranges inside live regions. For any other range, the backend must skip
    /// maintenance that could damage adjacent memory.
    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64);

    /// Creates an unbound memory window.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no windows.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn create_window(&mut self, _domain: DomainKey) -> Result<WindowKey, BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Destroys a memory window; on return its remote key is invalid.
    fn destroy_window(&mut self, _window: WindowKey) {}

    /// Returns true if a window must be replaced by another one before its next bind.
    ///
    /// A device counts the keys of a window in a few bits, and no key may come again. `missed` is
    /// true if the last bind of the window was posted and not carried out, so that the device and
    /// the driver may differ about the current key. The core asks when a bind was refused or
    /// missed, while no bind of the window is pending. If the answer is true, the core creates
    /// another window, binds it, and destroys this one once the queue has the bind.
    fn needs_renewal(&self, _window: WindowKey, _missed: bool) -> bool {
        false
    }

    /// Creates completion queue `number` for at least `depth` completions.
    ///
    /// The core holds the event dispatcher's lock: do not call back into the core.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects, or `depth` exceeds the
    ///   limit.
    /// - [`BackendError::State`]: a queue of this number exists.
    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError>;

    /// Makes room for at least `depth` completions and keeps those in the queue.
    ///
    /// May ignore a smaller depth than before. Never refuses a depth because of the completions in
    /// the queue.
    ///
    /// # Errors
    /// A refusal leaves the queue as it was.
    /// - [`BackendError::Resources`]: out of memory or device objects, `depth` exceeds the limit,
    ///   or the device cannot enlarge the queue.
    fn resize_completion_queue(
        &mut self,
        _queue: &mut Self::CompletionQueue,
        _depth: u32,
    ) -> Result<(), BackendError> {
        Err(BackendError::Resources)
    }

    /// Makes room for the most completions that queue pairs can have outstanding here.
    ///
    /// Called before a queue pair is created or changed. A backend that makes this room with each
    /// queue pair need not do so here. The default resizes the queue.
    ///
    /// # Errors
    /// As [`resize_completion_queue`](Self::resize_completion_queue).
    fn reserve_completions(
        &mut self,
        queue: &mut Self::CompletionQueue,
        completions: u32,
    ) -> Result<(), BackendError> {
        self.resize_completion_queue(queue, completions)
    }

    /// Destroys a completion queue that no queue pair uses.
    fn destroy_completion_queue(&mut self, queue: Self::CompletionQueue);

    /// Creates a shared receive queue; `token` names it in control events.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no shared receive queues.
    /// - [`BackendError::Resources`]: out of memory or device objects, or a size exceeds the limit.
    fn create_shared_receive_queue(
        &mut self,
        _token: u64,
        _domain: DomainKey,
        _depth: u32,
        _segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Changes the depth of a shared receive queue; keeps its buffers.
    ///
    /// # Errors
    /// A refusal leaves the queue as it was.
    /// - [`BackendError::State`]: more buffers are posted than `depth`.
    /// - [`BackendError::NotSupported`]: the device cannot resize shared receive queues.
    /// - [`BackendError::Resources`]: out of memory or device objects, `depth` exceeds the limit,
    ///   or the device cannot enlarge this queue as far.
    fn resize_shared_receive_queue(
        &mut self,
        _key: SharedReceiveQueueKey,
        _queue: &mut Self::SharedReceiveQueue,
        _depth: u32,
    ) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Arms one [`ControlEvent::SharedReceiveLimit`] for fewer than `limit` buffers; 0 disarms.
    ///
    /// Replaces the previous arming. If its event is raised but not yet polled, removes the event
    /// and returns true. An event polled later belongs to this arming. A refused call leaves the
    /// previous arming in force.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no such limit.
    fn arm_shared_receive_limit(
        &mut self,
        _key: SharedReceiveQueueKey,
        _limit: u32,
    ) -> Result<bool, BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Returns the number of buffers left for queue pairs; `None` if the device cannot tell.
    fn shared_receive_available(&self, _key: SharedReceiveQueueKey) -> Option<u32> {
        None
    }

    /// Destroys a shared receive queue and drops its buffers.
    fn destroy_shared_receive_queue(
        &mut self,
        _key: SharedReceiveQueueKey,
        _queue: Self::SharedReceiveQueue,
    ) {
    }

    /// Creates an unconnected queue pair that accepts receives.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects, or a depth or a number of
    ///   segments exceeds the limit.
    /// - [`BackendError::NotSupported`]: the device cannot provide an attribute.
    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError>;

    /// As [`create_queue_pair`](Self::create_queue_pair), with the queues built in place.
    ///
    /// The core passes two `None`s. On success `send` is filled, and `receive` too unless the queue
    /// pair uses a shared receive queue. Override this if the queues are large: the default copies
    /// them over the stack.
    ///
    /// # Errors
    /// Those of `create_queue_pair`; `send` and `receive` stay `None`.
    fn create_queue_pair_at(
        &mut self,
        request: &QueuePairRequest,
        send: &mut Option<Self::SendQueue>,
        receive: &mut Option<Self::ReceiveQueue>,
    ) -> Result<QueuePairKey, BackendError> {
        let made = self.create_queue_pair(request)?;
        *send = Some(made.send);
        *receive = made.receive;
        Ok(made.key)
    }

    /// Changes an unconnected queue pair in place; keeps posted receives.
    ///
    /// # Errors
    /// A refusal leaves the queue pair as it was.
    /// - [`BackendError::State`]: the queue pair is connected, or receives are posted that the
    ///   device cannot keep.
    /// - Those of `create_queue_pair`.
    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError>;

    /// Returns a queue pair in error to unconnected, with both queues empty.
    ///
    /// The backend may drop completions of the queue pair that are not polled yet.
    ///
    /// # Errors
    /// - [`BackendError::State`]: the queue pair is connected.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError>;

    /// Destroys a queue pair; ends its connection first, which the peer sees as a disconnect.
    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: Self::SendQueue,
        receive: Option<Self::ReceiveQueue>,
    );

    /// Limits the receive buffers that a queue pair may hold; `None` means no limit (EPH-01).
    ///
    /// Exceeding `soft` raises one [`ControlEvent::SoftHighWatermark`]. Exceeding `hard` breaks the
    /// connection.
    ///
    /// The default suits a device that cannot count the buffers: it accepts only no limits.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device cannot count the buffers.
    fn set_high_watermarks(
        &mut self,
        _key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        match (soft, hard) {
            (None, None) => Ok(()),
            _ => Err(BackendError::NotSupported),
        }
    }

    /// Returns the receive buffers that a queue pair holds.
    fn receive_info(&self, _key: QueuePairKey) -> ReceiveInfo {
        ReceiveInfo::default()
    }

    /// Listens on `qualifier`, or on a free one if `None`; returns the qualifier in use.
    ///
    /// # Errors
    /// - [`BackendError::QualifierInUse`]: another listener holds `qualifier`.
    /// - [`BackendError::QualifierUnavailable`]: `qualifier` is `None` and none is free.
    /// - [`BackendError::Address`]: the transport cannot express `qualifier`.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError>;

    /// Stops listening; later requests are refused as without a listener.
    fn stop_listening(&mut self, listener: ListenerKey);

    /// Starts a connection and returns its local port qualifier.
    ///
    /// A control event reports the outcome.
    ///
    /// # Errors
    /// - [`BackendError::Address`]: the transport cannot express the address or the qualifier.
    /// - [`BackendError::Unreachable`]: the device has no route to the address.
    /// - [`BackendError::State`]: the queue pair is not unconnected.
    /// - [`BackendError::Resources`]: out of memory or device objects, or the private data is too
    ///   long.
    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError>;

    /// Accepts a connection request; `Established` or `ConnectFailed` follows.
    ///
    /// # Errors
    /// - [`BackendError::State`]: the request is gone, or the queue pair is not unconnected.
    /// - [`BackendError::Resources`]: out of memory or device objects, or the private data is too
    ///   long.
    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError>;

    /// Returns false if a connection request may come from another address than it names.
    ///
    /// Anybody may have sent it until its connection is established. A backend whose transport
    /// does not tell returns true.
    fn is_proven(&self, _request: RequestKey) -> bool {
        true
    }

    /// Rejects a connection request.
    ///
    /// The peer sees a rejection by the consumer if `by_consumer`, else a missing listener.
    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]);

    /// Ends a connection or an attempt.
    ///
    /// On return the queue pair is in error and flushes its requests. No control event follows.
    ///
    /// The peer sees the end that `mode` names, if the messages of the transport tell the modes
    /// apart. Otherwise a peer whose queue pair did not fail always sees a disconnect.
    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode);

    /// Returns the next control event that is due by `now`.
    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent>;

    /// Returns true if `poll_control` would return `None` at any time.
    ///
    /// Ignores notifications of armed completion queues, since they wake the sleeping caller by
    /// themselves. Returns false while one may be pending that no longer wakes it. A backend for
    /// which the test costs as much as `poll_control` always returns false.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Returns the time of the next `poll_control` if nothing else happens first.
    fn next_deadline(&self) -> Option<Instant>;

    /// Returns access by load and store to the registered memory of peers, if supported.
    ///
    /// The answer never changes between `Some` and `None`.
    fn direct_access(&mut self) -> Option<&mut dyn DirectAccess> {
        None
    }
}
