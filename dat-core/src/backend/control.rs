//! The control path: values in, values out, answers by polling.

use super::{CompletionQueue, DirectAccess, Extensions, ReceiveQueue, SendQueue};
use crate::attributes::{EpAttributes, IaAddress, IaAttributes, ProviderAttributes};
use crate::flags::{MemoryPrivileges, QualityOfService};
use crate::memory::Region;
use crate::time::Instant;

/// Most private data that the core carries with a connection; a provider may allow less.
pub const PRIVATE_DATA_MAX: usize = if cfg!(feature = "compact") { 64 } else { 256 };

/// Private data of a connection request or an answer.
pub type PrivateData = heapless::Vec<u8, PRIVATE_DATA_MAX>;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Chosen by the backend; the core only keeps it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub usize);
    )*};
}

keys! {
    /// The backend's protection domain behind a protection zone.
    DomainKey;
    /// The backend's memory window.
    WindowKey;
    /// The backend's queue pair.
    QueuePairKey;
    /// The backend's shared receive queue.
    SharedReceiveQueueKey;
    /// The backend's listener.
    ListenerKey;
    /// The backend's incoming connection request.
    RequestKey;
}

/// The backend's registered region: its object and the device's two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RegionKeys {
    /// The backend's object.
    pub object: usize,
    /// Key for local segments.
    pub local: u32,
    /// Key for peers (the RMR context); 0 if no remote right was asked for.
    pub remote: u32,
}

/// The backend could not do it; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BackendError {
    /// Out of memory or device objects.
    Resources,
    /// The device cannot do that at all.
    NotSupported,
    /// The connection qualifier is taken.
    QualifierInUse,
    /// No connection qualifier is free.
    QualifierUnavailable,
    /// The address cannot be used.
    Address,
    /// Not in this state (for example: change a queue pair with posted requests).
    State,
    /// The device failed.
    Device,
}

/// Memory to register.
///
/// Only a [`Region`] becomes one, so that safe code cannot have a device reach memory that nobody
/// promised for it:
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
    /// Asks for a region to be registered in a domain, with rights to grant.
    pub fn new(domain: DomainKey, region: &Region, privileges: MemoryPrivileges) -> Self {
        Self::of(domain, region.base(), region.len(), privileges)
    }

    /// As `new`, for memory that a live region holds.
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

    /// The domain it belongs to.
    pub fn domain(&self) -> DomainKey {
        self.domain
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes, at least 1 from the core.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Rights to grant.
    pub fn privileges(&self) -> MemoryPrivileges {
        self.privileges
    }
}

/// Which cache maintenance is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncDirection {
    /// Local stores become visible to incoming RDMA Reads (LSR-01).
    RdmaRead,
    /// Incoming RDMA Writes become visible locally; local stores are ordered before later ones (LSW-02, LSW-23).
    RdmaWrite,
}

/// What a queue pair is made from.
///
/// Whoever is not the core makes one by [`new`](Self::new), and cannot vouch for segments:
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
    /// Domain for requests and remote access.
    pub domain: DomainKey,
    /// Number of the completion queue for requests (its `number` at creation), if wanted.
    pub request_queue: Option<u16>,
    /// Number of the completion queue for receives, if wanted.
    pub receive_queue: Option<u16>,
    /// The shared receive queue, if any.
    pub shared_receive_queue: Option<SharedReceiveQueueKey>,
    /// Sizes and depths; all counts were checked to be non-negative and within the adapter's limits.
    pub attributes: EpAttributes,
    pub(crate) vouched: bool,
}

impl QueuePairRequest {
    /// A queue pair without queues for its completions, to be driven by somebody other than the core.
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

    /// Whether the send queue may read the memory of a Send or an RDMA Write while it is posted, on the
    /// processor.
    ///
    /// Yes only from the core to a backend with [`Backend::READS_AT_POST`]: then segments lie in regions that
    /// stay until the request was posted. Whoever else drives a queue can name any address.
    pub const fn may_read_at_post(&self) -> bool {
        self.vouched
    }
}

/// A queue pair in its parts.
#[derive(Debug)]
pub struct QueuePair<S, R> {
    /// The backend's object.
    pub key: QueuePairKey,
    /// The send queue.
    pub send: S,
    /// The receive queue; `None` with a shared receive queue.
    pub receive: Option<R>,
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectMode {
    /// All requests have completed: end the connection in order, the peer sees a disconnect.
    Graceful,
    /// End it now; what has not completed is flushed; the peer sees a disconnect.
    Abrupt,
    /// The connection failed: end it now; the peer sees a broken connection.
    Broken,
}

/// A connection to set up.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// Where to.
    pub address: IaAddress,
    /// The connection qualifier the peer listens on.
    pub qualifier: u64,
    /// Private data for the peer.
    pub private_data: &'a [u8],
    /// Quality of service.
    pub quality: QualityOfService,
}

/// Why a connection attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "compact"),
    expect(
        clippy::large_enum_variant,
        reason = "there is no allocator to box the data with, and the event around it carries as much elsewhere"
    )
)]
pub enum ConnectFailure {
    /// The peer's consumer said no.
    PeerRejected(PrivateData),
    /// Nobody listens, backlog full, or a transport reason.
    NonPeerRejected,
    /// The host cannot be reached.
    Unreachable,
    /// The transport gave up in the middle.
    TimedOut,
}

/// Something happened at the device. Queue pairs, listeners and queues are named by the tokens the core gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// A connection request came in.
    ConnectionRequest {
        /// The token of the listener.
        listener: u64,
        /// For `accept` or `reject`.
        request: RequestKey,
        /// Who asks.
        remote: IaAddress,
        /// The peer's port qualifier.
        remote_port: u64,
        /// The local address it came to.
        local: IaAddress,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The peer gave a sign of life; the connection is not there yet.
    Answered {
        /// The token of the queue pair.
        queue_pair: u64,
    },
    /// The connection stands (both sides). It must be there to be polled before the first completion
    /// of a receive that it brought: a transport that delivers data first has to report this on that
    /// completion.
    Established {
        /// The token of the queue pair.
        queue_pair: u64,
        /// The accept's private data, on the active side.
        private_data: PrivateData,
    },
    /// The attempt, active or passive, failed; the queue pair is in error.
    ConnectFailed {
        /// The token of the queue pair.
        queue_pair: u64,
        /// Why.
        failure: ConnectFailure,
    },
    /// The peer ended the connection, or a local graceful or abrupt disconnect is done; the queue pair is in error.
    Disconnected {
        /// The token of the queue pair.
        queue_pair: u64,
    },
    /// The connection broke; the queue pair is in error.
    Broken {
        /// The token of the queue pair.
        queue_pair: u64,
    },
    /// An armed completion queue has completions.
    Completions {
        /// The number of the completion queue.
        queue: u16,
    },
    /// As `Completions`, of a queue that was armed for solicited completions: one of them was taken already, and its
    /// [`solicited`](super::Completion::solicited) did not say so. From devices that tell only so much.
    SolicitedCompletions {
        /// The number of the completion queue.
        queue: u16,
    },
    /// An armed shared receive queue fell below its limit.
    SharedReceiveLimit {
        /// The token of the shared receive queue.
        queue: u64,
    },
    /// A shared receive queue failed: it goes on taking buffers, and gives none to queue pairs any more.
    SharedReceiveFailed {
        /// The token of the shared receive queue.
        queue: u64,
    },
    /// A queue pair holds more receive buffers than its soft high watermark.
    SoftHighWatermark {
        /// The token of the queue pair.
        queue_pair: u64,
    },
    /// The device failed for good.
    DeviceFailed,
}

/// Receive buffers a queue pair holds for arriving messages (EPY-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReceiveInfo {
    /// Buffers held, if the device can tell.
    pub allocated: Option<u32>,
    /// Span of message numbers, if the device can tell.
    pub span: Option<u32>,
}

/// A device and its connection management, called under the adapter's control lock.
///
/// Nothing here is on the data path; calls may be slow but never wait for a peer.
///
/// A refused call changes nothing. Each call that can be refused may return [`BackendError::Device`]
/// when the device has failed, and [`BackendError::State`] for an object that the backend does not
/// know, which the core never names. `# Errors` lists the others.
///
/// # Safety
/// Whoever registers memory may reuse it once its registration is undone, and relies on the backend:
/// - The device and its peers touch registered memory only inside of [`Registration`]s and as far as their
///   privileges and those of bound windows allow, whatever the queues of this backend are asked for.
/// - When `deregister` returns neither touches that memory any more. A backend that is dropped has
///   deregistered everything.
/// - The processor reads none of it on their behalf, but for what
///   [`may_read_at_post`](QueuePairRequest::may_read_at_post) allows. A backend that hands requests on to another
///   one keeps none of their segments longer than the call.
#[expect(unsafe_code)]
// UNSAFETY: what a device does to memory is beyond the compiler.
pub unsafe trait Backend {
    /// Its completion queues.
    type CompletionQueue: CompletionQueue;
    /// Its send queues.
    type SendQueue: SendQueue;
    /// Its receive queues.
    type ReceiveQueue: ReceiveQueue;
    /// Its shared receive queues.
    type SharedReceiveQueue: ReceiveQueue;

    /// `is_quiet` tells whether anything has happened, and `poll_control` says what there is whatever the time: a blocking wait asks the one before it calls
    /// the other, and reads no clock for it.
    const EVENT_DRIVEN: bool = false;

    /// Its send queues may read the memory of Sends and RDMA Writes on the processor while they are posted
    /// (between `commit` and the return of `ring`, never before), where [`QueuePairRequest::may_read_at_post`] says so.
    ///
    /// The processor asks no key, so the core sees to it that such a post reaches live regions alone: making and
    /// freeing a region passes through the lock of every endpoint once, which takes as long as the posts that are
    /// under way there. Others do not pay for that.
    const READS_AT_POST: bool = false;

    /// What the adapter is and how much of everything it has.
    fn ia_attributes(&self) -> IaAttributes;

    /// What this provider can do.
    fn provider_attributes(&self) -> ProviderAttributes;

    /// The operations beyond the interface that its send queues take.
    fn extensions(&self) -> Extensions {
        Extensions::empty()
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn create_domain(&mut self) -> Result<DomainKey, BackendError>;

    /// Gives a protection domain back; nothing uses it any more.
    fn destroy_domain(&mut self, domain: DomainKey);

    /// Registers memory. Its owner promised that it stays accessible until `deregister` returns.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects.
    /// - [`BackendError::NotSupported`]: the device cannot reach such memory, or grant such rights.
    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError>;

    /// Takes a region away from the device: when this returns neither the device nor a peer touches it.
    fn deregister(&mut self, region: RegionKeys);

    /// Does the cache maintenance that `direction` asks for; complete on return.
    ///
    /// The core asks for ranges inside of live regions; maintenance that could harm what lies
    /// elsewhere must not be done for other ranges.
    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64);

    /// Makes an unbound memory window.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no windows.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError>;

    /// Gives a memory window back; if it is bound, the remote key dies at once.
    fn destroy_window(&mut self, window: WindowKey);

    /// Returns true if a window must be replaced by another one before its next bind.
    ///
    /// A device counts the keys of a window in a few bits, and none may come again. `missed`: the last bind of the window
    /// was posted and not carried out, so that the device may have another key than the driver. The core asks when a bind
    /// was refused or missed, while none of the window is under way. It makes another window, binds that, and destroys
    /// this one once the queue has the bind.
    fn needs_renewal(&self, _window: WindowKey, _missed: bool) -> bool {
        false
    }

    /// Makes a completion queue for at least `depth` completions, named `number`.
    ///
    /// The core calls this while it holds the lock of the dispatcher that gets the queue: it must not call back into the core.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects, or `depth` is above the limit.
    /// - [`BackendError::State`]: a queue of this number exists.
    fn create_completion_queue(
        &mut self,
        number: u16,
        depth: u32,
    ) -> Result<Self::CompletionQueue, BackendError>;

    /// Makes room for at least `depth` completions; loses nothing. A smaller depth than before may
    /// leave the queue as it is, and is never refused for the completions that are in it.
    ///
    /// # Errors
    /// A refusal leaves the queue as it was.
    /// - [`BackendError::Resources`]: out of memory or device objects, `depth` is above the limit, or the
    ///   device cannot enlarge the queue.
    fn resize_completion_queue(
        &mut self,
        queue: &mut Self::CompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError>;

    /// Gives a completion queue back; no queue pair uses it any more.
    fn destroy_completion_queue(&mut self, queue: Self::CompletionQueue);

    /// Makes a shared receive queue named `token`.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no shared receive queues.
    /// - [`BackendError::Resources`]: out of memory or device objects, or a size is above the limit.
    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, Self::SharedReceiveQueue), BackendError>;

    /// Changes the depth of a shared receive queue; loses nothing.
    ///
    /// # Errors
    /// A refusal leaves the queue as it was.
    /// - [`BackendError::State`]: more buffers are posted than `depth`.
    /// - [`BackendError::NotSupported`]: the device cannot resize shared receive queues.
    /// - [`BackendError::Resources`]: out of memory or device objects, `depth` is above the limit, or the
    ///   device cannot enlarge this one as far.
    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: &mut Self::SharedReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError>;

    /// Arms one [`ControlEvent::SharedReceiveLimit`] for when fewer than `limit` buffers are left; 0 disarms.
    ///
    /// An arming ends the one before: if that one's event is there and was not polled yet, it is withdrawn
    /// and the answer is true. So an event that is polled later belongs to this arming. A refused call
    /// changes nothing.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device has no such limit.
    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError>;

    /// Buffers that queue pairs can still take, if the device can tell.
    fn shared_receive_available(&self, key: SharedReceiveQueueKey) -> Option<u32>;

    /// Gives a shared receive queue back, with the buffers still on it.
    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: Self::SharedReceiveQueue,
    );

    /// Makes an unconnected queue pair that takes receives.
    ///
    /// # Errors
    /// - [`BackendError::Resources`]: out of memory or device objects, or a depth or a number of segments
    ///   is above the limit.
    /// - [`BackendError::NotSupported`]: the device cannot do what an attribute asks for.
    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<Self::SendQueue, Self::ReceiveQueue>, BackendError>;

    /// As `create_queue_pair`, with the queues put where they are to stay.
    ///
    /// Both places are empty when it is called. Success fills `send`, and `receive` where `create_queue_pair` returns such a queue.
    /// A backend whose queues are long makes them there, so that no copy of them takes its stack.
    ///
    /// # Errors
    /// As `create_queue_pair`; a refusal leaves both places empty.
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

    /// Changes an unconnected queue pair in place, keeping posted receives.
    ///
    /// # Errors
    /// A refusal leaves the queue pair as it was.
    /// - [`BackendError::State`]: it is connected, or receives are posted that the device cannot keep.
    /// - Else as `create_queue_pair`.
    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError>;

    /// Brings a queue pair in error back to unconnected, both queues empty; what had not been
    /// polled of it need not be delivered.
    ///
    /// # Errors
    /// - [`BackendError::State`]: it is connected.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut Self::SendQueue,
        receive: Option<&mut Self::ReceiveQueue>,
    ) -> Result<(), BackendError>;

    /// Destroys a queue pair, ending a connection first (the peer sees a disconnect).
    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: Self::SendQueue,
        receive: Option<Self::ReceiveQueue>,
    );

    /// Limits on receive buffers a queue pair may hold; `None` = no limit (EPH-01). The soft one raises
    /// one [`ControlEvent::SoftHighWatermark`], the hard one breaks the connection.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: the device cannot count the buffers.
    fn set_high_watermarks(
        &mut self,
        key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError>;

    /// Receive buffers a queue pair holds now.
    fn receive_info(&self, key: QueuePairKey) -> ReceiveInfo;

    /// Listens on a connection qualifier, or on a free one; returns which.
    ///
    /// # Errors
    /// - [`BackendError::QualifierInUse`]: somebody listens on `qualifier`.
    /// - [`BackendError::QualifierUnavailable`]: no qualifier is free.
    /// - [`BackendError::Address`]: the transport has no such qualifier.
    /// - [`BackendError::Resources`]: out of memory or device objects.
    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError>;

    /// Stops listening; later requests are refused as if nobody listened.
    fn stop_listening(&mut self, listener: ListenerKey);

    /// Starts a connection; the answer is a control event.
    ///
    /// # Errors
    /// - [`BackendError::Address`]: the transport has no such address or qualifier.
    /// - [`BackendError::State`]: the queue pair is not unconnected.
    /// - [`BackendError::Resources`]: out of memory or device objects, or the private data is too long.
    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError>;

    /// Accepts a connection request; `Established` or `ConnectFailed` follows.
    ///
    /// # Errors
    /// - [`BackendError::State`]: the request is gone, or the queue pair is not unconnected.
    /// - [`BackendError::Resources`]: out of memory or device objects, or the private data is too long.
    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError>;

    /// Refuses a connection request: in the consumer's name, or as if nobody listened (`by_consumer` false).
    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]);

    /// Ends a connection or an attempt: the queue pair is in error on return and flushes; no control
    /// event follows for it.
    ///
    /// `mode` is what the peer is told, as far as the messages of the transport tell them apart. A
    /// transport that cannot reports every end as a disconnect to a peer whose queue pair did not fail.
    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode);

    /// The next control event, if there is one by `now`.
    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent>;

    /// Whether `poll_control` would say nothing now, but for notifications of completion queues that were armed: whoever sleeps
    /// until one comes calls it, and it is not quiet as long as there may be one of which whoever sleeps is not told any more. False where that takes as
    /// much as to call it.
    fn is_quiet(&self) -> bool {
        false
    }

    /// When `poll_control` should be called again even if nothing else happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Loads and stores on registered memory of peers, if the backend sees it: always or never.
    fn direct_access(&mut self) -> Option<&mut dyn DirectAccess> {
        None
    }
}
