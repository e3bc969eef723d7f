//! Device that does nothing on its own: completions and events are written on request.
#![expect(
    unsafe_code,
    reason = "the promises of a device to its driver are made only in this module"
)]

use core::ops::Deref;
use core::ptr::NonNull;

use backend_mmio::defs::mlx5::CompletionKind;
use backend_mmio::mlx5::{Limits, MmioBackend, Parts, Storage, WindowSlot};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal, MappedRegisters};
use dat_core::backend::SyncDirection;
use dat_core::sync::SlotMemory;
use mlx5_idle::{Channel, Idle, Kind, LIMITS, Made, Numbers, Recorder};

use crate::masked;

/// Driver of this device.
pub(crate) type Backend =
    MmioBackend<'static, Idle<Small, Recorded>, Channel<Recorded>, MappedRegisters, Barriers>;

/// Numbers of endpoints, regions, windows, zones, dispatchers, and shared receive queues.
pub(crate) const PAIRS: usize = 4;
pub(crate) const REGIONS: usize = 16;
pub(crate) const WINDOWS: usize = 2;
pub(crate) const ZONES: usize = 4;
pub(crate) const DISPATCHERS: usize = 4;
pub(crate) const SHARED: usize = 2;
/// Requests and receives per queue, and segments of each.
pub(crate) const POSTS: usize = 4;
pub(crate) const SEGMENTS: usize = 2;
/// Completions per dispatcher.
pub(crate) const COMPLETIONS: usize = 32;

/// Request slots, each queue rounded up to a power of two.
///
/// A send queue has 3 blocks per request, a receive queue has one slot per receive, and a shared
/// receive queue has one more than its buffers.
const REQUESTS: usize = PAIRS * (16 + POSTS) + SHARED * 8;
/// Allocation unit of request slots.
const SLOTS_PER_FLAG: usize = 4;
const MEMORY_UNITS: usize = 768;

/// Limits of this device.
pub(crate) struct Small;

impl Kind for Small {
    const LIMITS: Limits = Limits {
        domains: ZONES as u32,
        regions: REGIONS as u32,
        windows: WINDOWS as u32,
        completion_queues: DISPATCHERS as u32,
        completions: COMPLETIONS as u32 - 1,
        queue_pairs: PAIRS as u32,
        work_requests: POSTS as u32,
        segments: SEGMENTS as u32,
        shared_receive_queues: SHARED as u32,
        shared_buffers: POSTS as u32,
        rdma_reads: 1,
        transfer: 1 << 30,
        ..LIMITS
    };
}

static MADE: Made = Made::new(0x40);

/// `MADE`, which takes no word of the driver.
pub(crate) struct Recorded;

impl Deref for Recorded {
    type Target = Made;

    fn deref(&self) -> &Made {
        &MADE
    }
}

impl Recorder for Recorded {
    fn on_command(&self) {
        masked::on_command();
    }
}

/// Barriers of one processor whose device is part of its program.
#[derive(Clone, Copy)]
pub(crate) struct Barriers;

// SAFETY: the device consists of calls of this program.
unsafe impl Hal for Barriers {
    const COHERENT: bool = true;

    fn to_device() {
        cortex_m::asm::dmb();
    }

    fn from_device() {
        cortex_m::asm::dmb();
    }

    fn to_register() {
        cortex_m::asm::dsb();
    }

    fn store_before_load() {
        cortex_m::asm::dmb();
    }

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {}
}

/// Storage of the driver.
pub(crate) struct Lent {
    state: DeviceState,
    queue_pairs: SlotMemory<QueuePairSlot, { 2 * PAIRS }>,
    completion_queues: SlotMemory<CompletionQueueSlot, DISPATCHERS>,
    shared_receive_queues: SlotMemory<SharedReceiveSlot, SHARED>,
    requests: SlotMemory<RequestSlot, REQUESTS>,
    windows: SlotMemory<WindowSlot, { WINDOWS + 1 }>,
}

impl Lent {
    /// Creates the storage, all slots empty.
    pub(crate) const fn new() -> Self {
        Self {
            state: DeviceState::new(),
            queue_pairs: SlotMemory::new(),
            completion_queues: SlotMemory::new(),
            shared_receive_queues: SlotMemory::new(),
            requests: SlotMemory::new(),
            windows: SlotMemory::new(),
        }
    }
}

/// Allocation maps of that storage.
pub(crate) struct Occupancy {
    requests: [bool; REQUESTS / SLOTS_PER_FLAG],
    memory: [bool; MEMORY_UNITS / 16],
}

impl Occupancy {
    /// Creates the maps, all units free.
    pub(crate) const fn new() -> Self {
        Self {
            requests: [false; REQUESTS / SLOTS_PER_FLAG],
            memory: [false; MEMORY_UNITS / 16],
        }
    }
}

/// Rings and doorbell records; not in the printed sizes.
static RINGS: [DeviceUnit; MEMORY_UNITS] = [const { DeviceUnit::new() }; MEMORY_UNITS];
/// Bus address of the rings.
const BUS: u64 = 0x1000;

/// Returns the memory that driver and device share.
fn rings() -> DmaMemory<'static> {
    // SAFETY: the device is `Made::complete`, which writes words of completions; nothing else
    // writes there.
    unsafe { DmaMemory::new(&RINGS, BUS) }
}

#[repr(align(8))]
struct Window {
    words: [DeviceWord; 1024],
}

/// Registers in ordinary memory; not in the printed sizes.
static WINDOW: Window = Window {
    words: [const { DeviceWord::new() }; 1024],
};

/// Creates the driver of this device.
pub(crate) fn backend(lent: &'static mut Lent, occupancy: &'static mut Occupancy) -> Backend {
    let window = NonNull::from(&WINDOW.words).cast::<u8>();
    // SAFETY: 4 KiB of atomics, which one thread writes and nothing reads.
    let registers = unsafe { MappedRegisters::new(window, 4096) };
    let parts = Parts {
        control: Idle::new(Recorded),
        cm: Channel { made: Recorded },
        registers,
        hal: Barriers,
        shared_buffers: 0,
        memory: rings(),
    };
    MmioBackend::new(
        parts,
        Storage {
            state: lent.state.lend().0,
            queue_pairs: lent.queue_pairs.fill(|| QueuePairSlot::EMPTY),
            completion_queues: lent.completion_queues.fill(|| CompletionQueueSlot::EMPTY),
            shared_receive_queues: lent.shared_receive_queues.fill(|| SharedReceiveSlot::EMPTY),
            requests: lent.requests.fill(|| RequestSlot::EMPTY),
            requests_taken: &mut occupancy.requests,
            windows: lent.windows.fill(|| WindowSlot::EMPTY),
            memory_taken: &mut occupancy.memory,
        },
    )
}

/// Returns the numbers of the newest queue pair.
pub(crate) fn newest() -> Numbers {
    MADE.newest()
}

/// Writes a completion of a queue pair for the descriptor of an index.
pub(crate) fn complete(of: Numbers, kind: CompletionKind, index: u16, length: u32) {
    let rings = DmaView::new(&RINGS, BUS);
    MADE.complete_of(of, &rings, COMPLETIONS as u32, kind, index, length);
}
