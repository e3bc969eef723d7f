//! The control path, as small as the driver needs it.

use dat_core::backend::{BackendError, RegionKeys, Registration};
use dat_core::time::Instant;

/// How much of everything a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its name.
    pub name: &'static str,
    /// Protection domains.
    pub domains: u32,
    /// Regions.
    pub regions: u32,
    /// Windows; 0 if it has none.
    pub windows: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Completions per queue.
    pub completions: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Requests per send queue, and buffers per receive queue.
    pub work_requests: u32,
    /// Segments per request.
    pub segments: u32,
    /// Shared receive queues; 0 if it has none.
    pub shared_receive_queues: u32,
    /// Buffers per shared receive queue.
    pub shared_buffers: u32,
    /// RDMA Reads at once, per queue pair and direction.
    pub rdma_reads: u32,
    /// Bytes per message and RDMA transfer.
    pub transfer: u64,
    /// Bytes of a Send or an RDMA Write that may lie in its descriptor; 0 if none.
    pub inline: u32,
}

/// A completion queue to make: memory that is ready, every entry set to its initial tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueueSpec {
    /// Where the device sees its entries.
    pub ring: u64,
    /// How many entries it has, a power of two.
    pub entries: u32,
    /// Where the device sees its doorbell record.
    pub record: u64,
}

/// A shared receive queue to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueSpec {
    /// Its domain.
    pub domain: u32,
    /// Where the device sees its places, each of which names the next one already.
    pub ring: u64,
    /// How many places it has, a power of two; one of them is never posted.
    pub entries: u32,
    /// Units of a place, a power of two.
    pub units: u32,
    /// Where the device sees its doorbell record.
    pub record: u64,
}

/// A queue pair to make, ready to take receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSpec {
    /// Its domain.
    pub domain: u32,
    /// What the device is to write into its completions, 24 bits.
    pub user_index: u32,
    /// The number of the completion queue for requests, if any.
    pub request_queue: Option<u32>,
    /// The number of the completion queue for receives, if any.
    pub receive_queue: Option<u32>,
    /// The number of its shared receive queue, if any; then it has no receive queue.
    pub shared_receive_queue: Option<u32>,
    /// Where the device sees the receive queue, behind which the send queue begins.
    pub ring: u64,
    /// How many places the receive queue has, a power of two, or 0.
    pub receive_entries: u32,
    /// Units of such a place, a power of two.
    pub receive_units: u32,
    /// How many blocks the send queue has, a power of two.
    pub send_blocks: u32,
    /// Where the device sees the doorbell record.
    pub record: u64,
    /// RDMA Reads coming in at once.
    pub reads_in: u32,
    /// RDMA Reads going out at once.
    pub reads_out: u32,
}

/// A queue pair that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeQueuePair {
    /// Its number, 24 bits.
    pub number: u32,
    /// Where its send doorbell is in the register window: the first of two places.
    pub doorbell: u32,
    /// Whether each of these takes a whole block, so that the device need not fetch it. Such a window may be mapped
    /// write-combining: each doorbell is between two fences then.
    pub takes_blocks: bool,
}

/// What a device reports. Objects are named by their numbers; of those that are gone nothing is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A completion queue that was armed has what it was armed for.
    Completions(u32),
    /// A shared receive queue has fewer buffers than its limit.
    SharedReceiveLimit(u32),
    /// A shared receive queue failed.
    SharedReceiveFailed(u32),
    /// A completion queue was full when the next completion came.
    CompletionsLost(u32),
    /// A queue pair failed on its own.
    QueuePairFailed(u32),
    /// The device failed.
    Failed,
}

/// Makes and destroys the objects of a device, and reports their events.
///
/// # Safety
/// [`Backend`](dat_core::backend::Backend) asks it of the driver, which has it from here:
/// - The device and its peers touch consumer memory only inside of what was registered, as far as the privileges of the
///   registration and those of windows that were bound allow, whatever the queues say.
/// - When `deregister` returns neither touches that memory any more; after `halt` the device touches nothing but by
///   an error of its own, and what implements this was dropped when all is deregistered.
/// - The device writes to memory of the driver only what completions are.
///
/// Beside that: an event that the device had queued for an object is gone when the call that destroys the object returns, since the next
/// object may have its number.
#[expect(unsafe_code)]
// UNSAFETY: what a device does to memory is beyond the compiler.
pub unsafe trait Control {
    /// What the device has.
    fn limits(&self) -> Limits;

    /// Makes a protection domain; its number.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_domain(&mut self) -> Result<u32, BackendError>;

    /// Gives a protection domain back.
    fn destroy_domain(&mut self, domain: u32);

    /// Registers memory in a domain (the number as the key), addressed by the device as the consumer does.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError>;

    /// Takes a region away.
    fn deregister(&mut self, region: RegionKeys);

    /// Makes a window that opens nothing; its key, the low 8 bits of which change with every bind.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn create_window(&mut self, domain: u32) -> Result<u32, BackendError>;

    /// Gives a window back, bound or not.
    fn destroy_window(&mut self, key: u32);

    /// Makes a completion queue; its number. Its entries are neither compressed nor do they hold data of messages.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError>;

    /// Has a completion queue go on in other memory: the device writes a last entry, of the kind that says so, where it is,
    /// and the next one where an entry of that count belongs in the new ring.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn move_completion_queue(
        &mut self,
        number: u32,
        ring: u64,
        entries: u32,
    ) -> Result<(), BackendError>;

    /// Gives a completion queue back.
    fn destroy_completion_queue(&mut self, number: u32);

    /// Makes a shared receive queue; its number.
    ///
    /// # Errors
    /// `Resources`, `NotSupported`, `Device`.
    fn create_shared_receive_queue(
        &mut self,
        spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError>;

    /// Arms the limit event of a shared receive queue, as
    /// [`Backend::arm_shared_receive_limit`](dat_core::backend::Backend::arm_shared_receive_limit) says.
    ///
    /// # Errors
    /// `NotSupported`, `Device`.
    fn arm_shared_receive_limit(&mut self, number: u32, limit: u32) -> Result<bool, BackendError>;

    /// Gives a shared receive queue back.
    fn destroy_shared_receive_queue(&mut self, number: u32);

    /// Makes a queue pair. No data of its messages goes to completion queues.
    ///
    /// # Errors
    /// `Resources`, `Device`.
    fn create_queue_pair(&mut self, spec: &QueuePairSpec) -> Result<MadeQueuePair, BackendError>;

    /// Destroys a queue pair, ending a connection.
    fn destroy_queue_pair(&mut self, number: u32);

    /// The next thing that the device reports.
    fn poll(&mut self, now: Instant) -> Option<DeviceEvent>;

    /// The device lied: cuts it off from the bus, or resets it. Its connections break.
    fn halt(&mut self);
}
