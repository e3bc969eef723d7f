//! What a platform brings together.

use dat_core::backend::RequestKey;

use super::messages::LentMessages;
use super::pages::Held;
use crate::hal::DmaMemory;
use crate::mlx5::{CompletionQueueSlot, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot};
use crate::sideband::{Peer, Sideband};

/// Where the device finds consumer memory.
///
/// # Safety
/// [`Backend`](dat_core::backend::Backend) asks it of the driver, which has it from here:
/// - The device that is driven touches consumer memory only inside of regions that were made and not destroyed, as far as
///   their rights allow, and other memory only where the driver's descriptors say.
/// - It reaches the bytes of the page at a bus address exactly as the processor reaches those at the address that was asked for.
#[expect(unsafe_code)]
// UNSAFETY: what a device does to memory is beyond the compiler.
pub unsafe trait Mapping {
    /// Where the device sees the page of 4 KiB that an address of the consumer's memory is on, if it can; asked for once, when a region of it
    /// is made, and valid until the region is destroyed.
    fn page(&self, address: *const u8) -> Option<u64>;
}

/// A sideband that leaves the states of queue pairs to the driver, and tells who the peers are.
///
/// The driver makes a queue pair ready before it accepts, and, on the side that asked, before it passes `Established` on: what
/// implements this tells neither side's consumer that the connection stands before the other side is ready to receive. One that names nobody
/// who asks has the side that accepts made ready when `Established` is told there; what comes before is repeated by the device.
pub trait Rendezvous: Sideband {
    /// The peer of a queue pair that `Established` was just reported of.
    fn peer(&self, queue_pair: u32) -> Option<Peer>;

    /// The one who asks for a connection; none if it is named with `Established`.
    fn asking(&self, request: RequestKey) -> Option<Peer>;
}

/// What a platform brings together to make a device.
#[derive(Debug)]
pub struct Parts<'s, W, M, S, H> {
    /// What it is called.
    pub name: &'static str,
    /// Its registers.
    pub registers: W,
    /// Its page of doorbells.
    pub doorbells: W,
    /// The number of that page on the bus.
    pub doorbell_page: u64,
    /// Where it finds consumer memory.
    pub mapping: M,
    /// Its channel for connections.
    pub sideband: S,
    /// The platform.
    pub hal: H,
    /// The address of its port.
    pub address: [u32; 4],
    /// Segments of a request at most, whatever the device says that it has.
    pub segments: u32,
    /// Completions that every queue has room for at least: none of them can be made larger when more comes to complete on it.
    pub completions: u32,
    /// Buffers that every shared receive queue has room for at least: the device makes none larger, so that they grow within that room
    /// alone. It counts once for each of them in memory and in [`Storage::requests`]; one that there is not so much left for has room for
    /// what it was asked for, and does not grow.
    pub shared_buffers: u32,
    /// Whether it completes what is posted on a queue pair in error. QEMU's does not: then the driver destroys the queue pair of the
    /// device instead, and completes what is left.
    pub flushes: bool,
    /// The words that the platform has its interrupts write into, if it does. Then the rings of events are looked at when one was written, and
    /// otherwise now and then only. [`MessageWords`](super::MessageWords) says what memory they have to be in.
    pub messages: Option<LentMessages<'s>>,
    /// Memory that it shares; whole pages of it are used.
    pub memory: DmaMemory<'s>,
}

/// Place for one region.
#[derive(Debug, Default)]
pub struct RegionSlot {
    /// What the device calls it, and the pages of its directory.
    pub(crate) made: Option<(u32, Held)>,
}

impl RegionSlot {
    /// No region.
    pub const EMPTY: Self = Self { made: None };
}

/// How far a queue pair has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairState {
    /// It takes receives.
    #[default]
    Initialised,
    /// It carries data.
    Ready,
    /// It flushes.
    Failed,
    /// The device's is destroyed, and what it was called means another; the driver flushes.
    Forgotten,
}

/// Storage for a device, as much of everything as it is to have at most. What is in it is forgotten when a device begins.
#[derive(Debug)]
pub struct Storage<'s> {
    /// What is known of the device.
    pub state: LentState<'s>,
    /// Two for each queue pair; at most 8192.
    pub queue_pairs: &'s mut [QueuePairSlot],
    /// One for each queue pair.
    pub pair_states: &'s mut [PairState],
    /// By the numbers of event dispatchers: as many as those.
    pub completion_queues: &'s mut [CompletionQueueSlot],
    /// Shared receive queues.
    pub shared_receive_queues: &'s mut [SharedReceiveSlot],
    /// Regions.
    pub regions: &'s mut [RegionSlot],
    /// For the places of all send and receive queues; of each shared one as many as [`Parts::shared_buffers`], if it was asked for fewer.
    pub requests: &'s mut [RequestSlot],
    /// One flag for every 16 of `requests`.
    pub requests_taken: &'s mut [bool],
    /// One flag for every page of memory that the device shares.
    pub pages_taken: &'s mut [bool],
}
