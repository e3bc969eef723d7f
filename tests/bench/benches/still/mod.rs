//! An adapter on the mlx5 layout with an idle device; benchmarks write its completions.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use backend_mmio::cm::ConnectionManager;
use backend_mmio::defs::mlx5::{Completion, CompletionKind, CompletionTail, Opcode, Syndrome};
use backend_mmio::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, MmioBackend, Parts,
    QueuePairSpec, SharedReceiveQueueSpec, Storage, WindowSlot,
};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{CoherentHal, DeviceUnit, DmaMemory, DmaView, MappedRegisters};
use dat_core::Ia;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, Registration, RequestKey,
};
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;

const PAIR: u32 = 0xAB_CDEF;
/// The entries of the completion queue: the requested `EVENTS` plus one, a power of two.
const ENTRIES: u32 = 128;
const EVENTS: i32 = 127;

type Backend = MmioBackend<'static, Still, Still, MappedRegisters, CoherentHal>;

/// An idle device: it records the created objects, and connects at once.
pub(crate) struct Still {
    made: &'static Made,
    connected: bool,
}

/// The index of the last queue pair, and the address of the first completion queue.
#[derive(Default)]
pub(crate) struct Made {
    user_index: AtomicU32,
    completions: AtomicU64,
}

#[expect(unsafe_code, reason = "the device does nothing")]
// SAFETY: the device touches no memory.
unsafe impl Control for Still {
    fn limits(&self) -> Limits {
        Limits {
            name: "still",
            domains: 1,
            regions: 1,
            windows: 1,
            completion_queues: 8,
            completions: 256,
            queue_pairs: 1,
            work_requests: 64,
            segments: 4,
            shared_receive_queues: 0,
            shared_buffers: 0,
            rdma_reads: 4,
            transfer: u64::MAX,
            inline: 0,
        }
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        Ok(1)
    }

    fn destroy_domain(&mut self, _domain: u32) {}

    fn register(&mut self, _registration: &Registration) -> Result<RegionKeys, BackendError> {
        Ok(RegionKeys {
            object: 1,
            local: 0x100,
            remote: 0x200,
        })
    }

    fn deregister(&mut self, _region: RegionKeys) {}

    fn create_window(&mut self, _domain: u32) -> Result<u32, BackendError> {
        Ok(0x100)
    }

    fn destroy_window(&mut self, _key: u32) {}

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        // The first completion queue is that of the transfers.
        let made = &self.made.completions;
        let _first = made.compare_exchange(0, spec.ring, Ordering::Relaxed, Ordering::Relaxed);
        Ok(7)
    }

    fn move_completion_queue(&mut self, _: u32, _: u64, _: u32) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn destroy_completion_queue(&mut self, _number: u32) {}

    fn create_shared_receive_queue(
        &mut self,
        _spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn arm_shared_receive_limit(&mut self, _: u32, _: u32) -> Result<bool, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn destroy_shared_receive_queue(&mut self, _number: u32) {}

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        self.made
            .user_index
            .store(spec.user_index, Ordering::Relaxed);
        Ok(CreatedQueuePair {
            number: PAIR,
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

impl ConnectionManager for Still {
    fn address(&self) -> IaAddress {
        IaAddress::Node(1)
    }

    fn private_data_limit(&self) -> u32 {
        0
    }

    fn listen(&mut self, _: u64, _: Option<u64>) -> Result<(ListenerKey, u64), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn stop_listening(&mut self, _listener: ListenerKey) {}

    fn connect(&mut self, _: u32, _: &ConnectRequest<'_>) -> Result<u64, BackendError> {
        self.connected = true;
        Ok(1)
    }

    fn accept(&mut self, _: RequestKey, _: u32, _: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, _private_data: &[u8]) {}

    fn disconnect(&mut self, _queue_pair: u32, _mode: DisconnectMode) {}

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        core::mem::take(&mut self.connected).then(|| ControlEvent::Established {
            queue_pair: u64::from(PAIR),
            private_data: PrivateData::new(),
        })
    }
}

fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(empty).take(count).collect())
}

/// A connected endpoint, and the objects to post on it.
pub(crate) struct World {
    pub(crate) ia: Ia<'static, Backend, SpinLock>,
    pub(crate) ep: EpId,
    pub(crate) evd: EvdId,
    pub(crate) segments: [LmrTriplet; 1],
    pub(crate) remote: RmrTriplet,
    memory: DmaView<'static>,
    made: &'static Made,
    completed: Cell<u32>,
    requests: Cell<u16>,
    receives: Cell<u16>,
}

/// The blocks of a request with one segment.
const REQUEST_BLOCKS: u16 = 1;

dat_core::define_storage! {
    struct Slots for Backend, SpinLock {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 256,
        records: 512,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let units: &'static [DeviceUnit] = slots(1 << 14, DeviceUnit::new);
        // SAFETY: no device accesses the memory.
        #[expect(unsafe_code, reason = "no device accesses the memory")]
        let memory = unsafe { DmaMemory::new(units, 0x1000) };
        let window = NonNull::from(slots(512, || 0_u64)).cast::<u8>();
        // SAFETY: 4 KiB that were leaked and have no other user.
        #[expect(unsafe_code, reason = "the registers are plain memory")]
        let registers = unsafe { MappedRegisters::new(window, 4096) };
        let made: &'static Made = Box::leak(Box::default());
        let still = || Still {
            made,
            connected: false,
        };
        let parts = Parts {
            control: still(),
            cm: still(),
            registers,
            hal: CoherentHal,
            shared_buffers: 0,
            memory,
        };
        let storage = Storage {
            state: Box::leak(Box::new(DeviceState::new())).lend().0,
            queue_pairs: slots(4, || QueuePairSlot::EMPTY),
            completion_queues: slots(8, || CompletionQueueSlot::EMPTY),
            shared_receive_queues: slots(0, || SharedReceiveSlot::EMPTY),
            requests: slots(1024, || RequestSlot::EMPTY),
            requests_taken: slots(64, || false),
            windows: slots(1, || WindowSlot::EMPTY),
            memory_taken: slots(1024, || false),
        };
        let backend = MmioBackend::new(parts, storage);
        let lent = Box::leak(Box::new(Slots::new()));
        let ia = Ia::open(backend, lent.lend(), 8).expect("an adapter");
        let pz = ia.pz_create().expect("a zone");
        let bytes: &'static [AtomicU8] = slots(65_536, || AtomicU8::new(0));
        let region = Region::from_static(bytes);
        let address = region.address();
        let request = LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz,
            privileges: MemoryPrivileges::ALL,
        };
        let lmr = ia.lmr_create(&request).expect("a region");
        // The asynchronous dispatcher has no completions.
        let evd = ia.evd_create(EVENTS, None, EvdFlags::DTO).expect("events");
        let connections = ia
            .evd_create(8, None, EvdFlags::CONNECTION)
            .expect("events");
        let (evds, attributes) = ((Some(evd), Some(connections)), EpAttributes::DEFAULT);
        let ep = ia
            .ep_create(Some(pz), evds.0, evds.0, evds.1, Some(&attributes))
            .expect("an endpoint");
        let connect = ConnectParam {
            address: IaAddress::Node(0),
            qualifier: 1,
            timeout: TIMEOUT_INFINITE,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        ia.ep_connect(ep, &connect, Instant::ZERO).expect("a start");
        ia.progress(Instant::ZERO);
        ia.evd_dequeue(connections).expect("a connection");
        Self {
            ia,
            ep,
            evd,
            segments: [LmrTriplet {
                context: lmr.lmr_context,
                address,
                length: 4096,
            }],
            remote: RmrTriplet {
                context: lmr.rmr_context,
                address,
                length: 65_536,
            },
            memory: DmaView::new(units, 0x1000),
            made,
            completed: Cell::new(0),
            requests: Cell::new(0),
            receives: Cell::new(0),
        }
    }

    fn complete(&self, kind: CompletionKind, index: u16) {
        let completed = self.completed.get();
        let entry = Completion {
            user_index: self.made.user_index.load(Ordering::Relaxed),
            length: 8,
            syndrome: Syndrome(0),
            queue_pair: PAIR,
            opcode: Opcode(0),
        };
        let ring = self.made.completions.load(Ordering::Relaxed);
        let place = ring + u64::from(completed % ENTRIES) * 64;
        let lap = completed & ENTRIES != 0;
        let tail = CompletionTail::new(index, kind, false).in_lap(lap);
        let words = self.memory.seen_at(place, 4).expect("an entry");
        for (word, value) in words
            .iter()
            .flatten()
            .zip(entry.encode().into_iter().chain([tail.0]))
        {
            word.store(value);
        }
        self.completed.set(completed + 1);
    }

    /// Completes the oldest request with success, as the device would.
    pub(crate) fn complete_request(&self) {
        let index = self.requests.get();
        self.complete(CompletionKind::REQUEST, index);
        self.requests.set(index.wrapping_add(REQUEST_BLOCKS));
    }

    /// Completes the oldest receive, as the device would.
    pub(crate) fn complete_receive(&self) {
        let index = self.receives.get();
        self.complete(CompletionKind::RECEIVE, index);
        self.receives.set(index.wrapping_add(1));
    }
}
