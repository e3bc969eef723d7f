//! The device control interface that the driver requires.

use dat_core::backend::{BackendError, RegionKeys, Registration};
use dat_core::time::Instant;

use crate::attributes::Limits;

/// Parameters of a completion queue.
///
/// Its memory is ready: every entry has the initial tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueueSpec {
    /// Bus address of the entries.
    pub ring: u64,
    /// Number of entries, a power of two.
    pub entries: u32,
    /// Bus address of the doorbell record.
    pub record: u64,
}

/// Parameters of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueSpec {
    /// Protection domain.
    pub domain: u32,
    /// Bus address of the slots; each slot already names the next one.
    pub ring: u64,
    /// Number of slots, a power of two; one of them is never posted.
    pub entries: u32,
    /// Units per slot, a power of two.
    pub units: u32,
    /// Bus address of the doorbell record.
    pub record: u64,
}

/// Parameters of a queue pair that is to accept receives at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSpec {
    /// Protection domain.
    pub domain: u32,
    /// User index that the device writes into completions, 24 bits.
    pub user_index: u32,
    /// Number of the completion queue for requests, if any.
    pub request_queue: Option<u32>,
    /// Number of the completion queue for receives, if any.
    pub receive_queue: Option<u32>,
    /// Number of the shared receive queue, if any; it replaces the receive queue.
    pub shared_receive_queue: Option<u32>,
    /// Bus address of the receive ring; the send ring follows it.
    pub ring: u64,
    /// Number of slots of the receive queue, a power of two, or 0.
    pub receive_entries: u32,
    /// Units per receive slot, a power of two.
    pub receive_units: u32,
    /// Number of blocks of the send queue, a power of two.
    pub send_blocks: u32,
    /// Bus address of the doorbell record.
    pub record: u64,
    /// Most pending incoming RDMA Reads.
    pub reads_in: u32,
    /// Most pending outgoing RDMA Reads.
    pub reads_out: u32,
}

/// A queue pair that the device created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedQueuePair {
    /// Number of the queue pair, 24 bits.
    pub number: u32,
    /// Register offset of the send doorbell, the first of two.
    pub doorbell: u32,
    /// Set if each of the two doorbells accepts a whole block.
    ///
    /// The device then need not fetch the block. Such a window may be mapped write-combining: the
    /// driver puts each doorbell between two fences.
    pub takes_blocks: bool,
}

/// An event that the device reports.
///
/// Numbers name the objects. The driver ignores events of objects that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// An armed completion queue received the completion it was armed for.
    Completions(u32),
    /// A shared receive queue has fewer buffers than its limit.
    SharedReceiveLimit(u32),
    /// A shared receive queue failed.
    SharedReceiveFailed(u32),
    /// A completion queue was full when the next completion came.
    CompletionsLost(u32),
    /// A queue pair failed; no call of the driver caused it.
    QueuePairFailed(u32),
    /// The device failed.
    Failed,
}

/// Creates and destroys the objects of a device, and reports their events.
///
/// # Safety
/// The driver's [`Backend`](dat_core::backend::Backend) implementation relies on these obligations:
/// - The device and its peers access consumer memory only within registered regions, as far as the
///   privileges of the registration and of bound windows allow, whatever the queues contain.
/// - When `deregister` returns, neither accesses that memory any more. After `halt` the device
///   accesses nothing, except by a defect. An implementation that was dropped has deregistered
///   everything.
/// - The device writes only completions to the driver's memory.
///
/// In addition, when a call that destroys an object returns, no queued event of the object remains:
/// the next object may have its number.
#[expect(unsafe_code)]
// UNSAFETY: the compiler cannot check how a device accesses memory.
pub unsafe trait Control {
    /// Returns the limits of the device.
    fn limits(&self) -> Limits;

    /// Creates a protection domain and returns its number.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_domain(&mut self) -> Result<u32, BackendError>;

    /// Destroys a protection domain.
    fn destroy_domain(&mut self, domain: u32);

    /// Registers memory in a domain, whose key is the domain number.
    ///
    /// The device addresses the memory as the consumer does.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError>;

    /// Deregisters a region.
    fn deregister(&mut self, region: RegionKeys);

    /// Creates an unbound window and returns its key.
    ///
    /// Every bind changes the low 8 bits of the key.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn create_window(&mut self, domain: u32) -> Result<u32, BackendError>;

    /// Destroys a window, bound or not.
    fn destroy_window(&mut self, key: u32);

    /// Creates a completion queue and returns its number.
    ///
    /// Its entries are not compressed and hold no message data.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError>;

    /// Moves a completion queue to other memory.
    ///
    /// The device writes a last entry of kind `MOVED` to the old ring. It writes the next entry to
    /// the new ring, at the index of that entry's count.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn move_completion_queue(
        &mut self,
        number: u32,
        ring: u64,
        entries: u32,
    ) -> Result<(), BackendError>;

    /// Destroys a completion queue.
    fn destroy_completion_queue(&mut self, number: u32);

    /// Creates a shared receive queue and returns its number.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn create_shared_receive_queue(
        &mut self,
        spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError>;

    /// Arms the limit event of a shared receive queue.
    ///
    /// Follows
    /// [`Backend::arm_shared_receive_limit`](dat_core::backend::Backend::arm_shared_receive_limit).
    ///
    /// # Errors
    /// `NotSupported`, `Device`.
    fn arm_shared_receive_limit(&mut self, number: u32, limit: u32) -> Result<bool, BackendError>;

    /// Destroys a shared receive queue.
    fn destroy_shared_receive_queue(&mut self, number: u32);

    /// Creates a queue pair, which puts no message data into completions.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_queue_pair(&mut self, spec: &QueuePairSpec)
    -> Result<CreatedQueuePair, BackendError>;

    /// Destroys a queue pair and ends its connection.
    fn destroy_queue_pair(&mut self, number: u32);

    /// Returns the next event of the device.
    fn poll(&mut self, now: Instant) -> Option<DeviceEvent>;

    /// Disconnects a faulty device from the bus, or resets it; its connections break.
    fn halt(&mut self);
}
