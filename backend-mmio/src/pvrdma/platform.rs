//! Parts that a platform supplies.

use super::interrupts::LentMessages;
use super::pages::PageRun;
use crate::platform::DmaMemory;
use crate::ring::{CompletionQueueSlot, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot};

/// The device's view of consumer memory.
///
/// # Safety
/// The driver's [`Backend`](dat_core::backend::Backend) implementation relies on these obligations:
/// - The device accesses consumer memory only within regions that were created and not destroyed,
///   as far as their rights allow. It accesses other memory only where the driver's descriptors
///   direct it.
/// - At the bus address of a page, the device accesses exactly the bytes that the processor
///   accesses at the given address.
#[expect(unsafe_code)]
// UNSAFETY: the compiler cannot check how a device accesses memory.
pub unsafe trait Mapping {
    /// Returns the bus address of the 4 KiB page that contains an address, if any.
    ///
    /// The driver asks once, when it creates a region of the page. The result must be valid until
    /// the region is destroyed.
    fn page(&self, address: *const u8) -> Option<u64>;
}

/// Parts of a device that a platform supplies.
#[derive(Debug)]
pub struct Parts<'s, W, M, S, H> {
    /// Name of the adapter.
    pub name: &'static str,
    /// The registers.
    pub registers: W,
    /// The page of doorbells.
    pub doorbells: W,
    /// Page number of the doorbell page on the bus.
    pub doorbell_page: u64,
    /// The device's view of consumer memory.
    pub mapping: M,
    /// The connection manager.
    pub cm: S,
    /// The platform's barriers.
    pub hal: H,
    /// Address of the port.
    pub address: [u32; 4],
    /// Most segments of a request, if the device supports as many.
    pub segments: u32,
    /// Minimum capacity of each completion queue; the device cannot enlarge one.
    pub completions: u32,
    /// Minimum capacity of each shared receive queue, in buffers.
    ///
    /// The device cannot enlarge a queue, so a queue grows only within its capacity. Every shared
    /// receive queue takes this capacity from `memory` and from [`Storage::requests`]. If less is
    /// left, a queue gets room for the requested size only and does not grow.
    pub shared_buffers: u32,
    /// Set if the device completes requests of a queue pair in the error state.
    ///
    /// QEMU's does not. The driver then destroys the device's queue pair and completes its
    /// requests.
    pub flushes: bool,
    /// The words that interrupts write, if the platform uses them.
    ///
    /// The driver then polls the event rings after a message, and otherwise only at intervals.
    /// [`MessageWords`](super::MessageWords) states the requirements for their memory.
    pub messages: Option<LentMessages<'s>>,
    /// Memory shared with the device; the driver uses whole pages.
    pub memory: DmaMemory<'s>,
}

/// Slot for one region.
#[derive(Debug, Default)]
pub struct RegionSlot {
    /// Handle of the region and pages of its directory.
    pub(crate) region: Option<(u32, PageRun)>,
}

impl RegionSlot {
    /// A slot without region.
    pub const EMPTY: Self = Self { region: None };
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairState {
    /// Accepts receives.
    #[default]
    Initialised,
    /// Carries data.
    Ready,
    /// Flushes requests.
    Failed,
    /// Destroyed on the device, where its number may name another; the driver flushes.
    Forgotten,
}

/// Storage for a device; the slice lengths limit its objects.
///
/// A new driver discards the contents.
#[derive(Debug)]
pub struct Storage<'s> {
    /// State of the device.
    pub state: LentState<'s>,
    /// Two slots per queue pair; at most 8192.
    pub queue_pairs: &'s mut [QueuePairSlot],
    /// One state per queue pair.
    pub pair_states: &'s mut [PairState],
    /// One slot per event dispatcher, indexed by its number.
    pub completion_queues: &'s mut [CompletionQueueSlot],
    /// One slot per shared receive queue.
    pub shared_receive_queues: &'s mut [SharedReceiveSlot],
    /// One slot per region.
    pub regions: &'s mut [RegionSlot],
    /// One slot per descriptor of each send and receive queue.
    ///
    /// A shared receive queue takes at least [`Parts::shared_buffers`] slots.
    pub requests: &'s mut [RequestSlot],
    /// One flag per 16 of `requests`.
    pub requests_taken: &'s mut [bool],
    /// One flag per page of memory shared with the device.
    pub pages_taken: &'s mut [bool],
}
