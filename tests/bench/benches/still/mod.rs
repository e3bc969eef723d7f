//! An adapter on the mlx5 layout with an idle device; benchmarks write its completions.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use backend_mmio::defs::mlx5::CompletionKind;
use backend_mmio::mlx5::{MmioBackend, Parts, Storage, WindowSlot};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{CoherentHal, DeviceUnit, DmaMemory, DmaView, MappedRegisters};
use dat_core::Ia;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use mlx5_idle::{Channel, Idle, Made, One};

/// The entries of the completion queue: the requested `EVENTS` plus one, a power of two.
const ENTRIES: u32 = 128;
const EVENTS: i32 = 127;

type Backend = MmioBackend<'static, Idle<One>, Channel, MappedRegisters, CoherentHal>;

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
        let made: &'static Made = Box::leak(Box::new(Made::new(1)));
        let parts = Parts {
            control: Idle::new(made),
            cm: Channel { made },
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
            requests: Cell::new(0),
            receives: Cell::new(0),
        }
    }

    fn complete(&self, kind: CompletionKind, index: u16) {
        self.made.complete(&self.memory, ENTRIES, kind, index, 8);
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
