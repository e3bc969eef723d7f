//! Device that does nothing on its own: completions and events are written on request.
#![expect(
    unsafe_code,
    reason = "the promises of a device to its driver are made only in this module"
)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use backend_mmio::cm::ConnectionManager;
use backend_mmio::defs::mlx5::{Completion, CompletionKind, CompletionTail, Opcode, Syndrome};
use backend_mmio::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, MmioBackend, Parts,
    QueuePairSpec, SharedReceiveQueueSpec, Storage, WindowSlot,
};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal, MappedRegisters};
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, Registration, RequestKey, SyncDirection,
};
use dat_core::sync::{SlotMemory, Word64};
use dat_core::time::Instant;

/// Driver of this device.
pub(crate) type Backend = MmioBackend<'static, Still, Channel, MappedRegisters, Barriers>;

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

/// State of the device; loads and stores suffice, with one processor and no interrupts.
struct DeviceObjects {
    objects: AtomicU32,
    /// Ring of the completion queue for transfers, and completions written to it.
    ring: AtomicU32,
    written: AtomicU32,
    /// User index and number of the last created queue pair.
    user_index: AtomicU32,
    number: AtomicU32,
    /// Next event of the channel.
    word: AtomicU32,
    /// Token of the listener.
    listener: Word64,
}

static DEVICE: DeviceObjects = DeviceObjects {
    objects: AtomicU32::new(0x40),
    ring: AtomicU32::new(0),
    written: AtomicU32::new(0),
    user_index: AtomicU32::new(0),
    number: AtomicU32::new(0),
    word: AtomicU32::new(NOTHING),
    listener: Word64::new(0),
};

const NOTHING: u32 = 0;
const REQUESTED: u32 = 1;
const ESTABLISHED: u32 = 2;
const DISCONNECTED: u32 = 3;

fn new_object() -> u32 {
    let number = DEVICE.objects.load(Ordering::Relaxed);
    DEVICE
        .objects
        .store(number.wrapping_add(0x100), Ordering::Relaxed);
    number
}

/// Control path.
pub(crate) struct Still;

// SAFETY: it accesses no memory.
unsafe impl Control for Still {
    fn limits(&self) -> Limits {
        Limits {
            name: "still",
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
            inline: 0,
        }
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        Ok(new_object())
    }

    fn destroy_domain(&mut self, _domain: u32) {}

    fn register(&mut self, _registration: &Registration) -> Result<RegionKeys, BackendError> {
        let key = new_object();
        Ok(RegionKeys {
            object: key as usize,
            local: key,
            remote: key,
        })
    }

    fn deregister(&mut self, _region: RegionKeys) {}

    fn create_window(&mut self, _domain: u32) -> Result<u32, BackendError> {
        Ok(new_object() << 8)
    }

    fn destroy_window(&mut self, _key: u32) {}

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        // The completion queue created last is the one for transfers.
        DEVICE.ring.store(spec.ring as u32, Ordering::Relaxed);
        DEVICE.written.store(0, Ordering::Relaxed);
        Ok(new_object())
    }

    fn move_completion_queue(&mut self, _: u32, _: u64, _: u32) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn destroy_completion_queue(&mut self, _number: u32) {}

    fn create_shared_receive_queue(
        &mut self,
        _spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        Ok(new_object())
    }

    fn arm_shared_receive_limit(&mut self, _: u32, _: u32) -> Result<bool, BackendError> {
        Ok(false)
    }

    fn destroy_shared_receive_queue(&mut self, _number: u32) {}

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        let number = new_object();
        DEVICE.user_index.store(spec.user_index, Ordering::Relaxed);
        DEVICE.number.store(number, Ordering::Relaxed);
        Ok(CreatedQueuePair {
            number,
            doorbell: 0x800,
            takes_blocks: false,
        })
    }

    fn destroy_queue_pair(&mut self, _number: u32) {}

    fn poll(&mut self, _now: Instant) -> Option<DeviceEvent> {
        None
    }

    fn halt(&mut self) {}
}

/// Connection channel.
pub(crate) struct Channel;

fn tell(word: u32) {
    DEVICE.word.store(word, Ordering::Relaxed);
}

impl ConnectionManager for Channel {
    fn address(&self) -> IaAddress {
        IaAddress::Node(1)
    }

    fn private_data_limit(&self) -> u32 {
        16
    }

    fn listen(
        &mut self,
        token: u64,
        wanted: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        DEVICE.listener.store(token);
        tell(REQUESTED);
        Ok((ListenerKey(1), wanted.unwrap_or(1)))
    }

    fn stop_listening(&mut self, _listener: ListenerKey) {}

    fn connect(&mut self, _: u32, _: &ConnectRequest<'_>) -> Result<u64, BackendError> {
        tell(ESTABLISHED);
        Ok(1)
    }

    fn accept(&mut self, _: RequestKey, _: u32, _: &[u8]) -> Result<(), BackendError> {
        tell(ESTABLISHED);
        Ok(())
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, _private_data: &[u8]) {}

    fn disconnect(&mut self, _queue_pair: u32, _mode: DisconnectMode) {
        tell(DISCONNECTED);
    }

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let word = DEVICE.word.load(Ordering::Relaxed);
        tell(NOTHING);
        let queue_pair = u64::from(DEVICE.number.load(Ordering::Relaxed));
        Some(match word {
            REQUESTED => ControlEvent::ConnectionRequest {
                listener: DEVICE.listener.load(),
                request: RequestKey(1),
                remote: IaAddress::Node(2),
                remote_port: 1,
                local: IaAddress::Node(1),
                private_data: PrivateData::new(),
            },
            ESTABLISHED => ControlEvent::Established {
                queue_pair,
                private_data: PrivateData::new(),
            },
            DISCONNECTED => ControlEvent::Disconnected { queue_pair },
            _ => return None,
        })
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
    // SAFETY: the device is `complete`, which writes words of completions; nothing else writes
    // there.
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
        control: Still,
        cm: Channel,
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

/// Writes a completion for the descriptor of an index.
pub(crate) fn complete(kind: CompletionKind, index: u16, length: u32) {
    let written = DEVICE.written.load(Ordering::Relaxed);
    let entry = Completion {
        user_index: DEVICE.user_index.load(Ordering::Relaxed),
        length,
        syndrome: Syndrome(0),
        queue_pair: DEVICE.number.load(Ordering::Relaxed),
        opcode: Opcode(0),
    };
    let entries = COMPLETIONS as u32;
    let address =
        u64::from(DEVICE.ring.load(Ordering::Relaxed)) + u64::from(written % entries) * 64;
    let tail = CompletionTail::new(index, kind, false).in_lap(written & entries != 0);
    let words = DmaView::new(&RINGS, BUS)
        .seen_at(address, 4)
        .unwrap_or_default();
    for (word, value) in words
        .iter()
        .flatten()
        .zip(entry.encode().into_iter().chain([tail.0]))
    {
        word.store(value);
    }
    DEVICE
        .written
        .store(written.wrapping_add(1), Ordering::Relaxed);
}
