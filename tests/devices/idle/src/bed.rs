//! An adapter on an idle device, with a connected endpoint and registered memory.

use core::iter;
use core::sync::atomic::AtomicU8;
use std::boxed::Box;
use std::vec::Vec;

use backend_mmio::mlx5::{MmioBackend, Parts, Storage, WindowSlot};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{CoherentHal, DeviceUnit, DmaMemory, DmaView, RegisterIo};
use dat_core::Ia;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::{Channel, Idle, Kind, Made};

/// The driver on an idle device.
pub type Driver<K, R> = MmioBackend<'static, Idle<K>, Channel, R, CoherentHal>;

/// Bus address of the memory that driver and device share.
const BUS: u64 = 0x1000;
/// Bytes of the registered memory.
const BYTES: usize = 65_536;
/// Completions that are asked of the dispatcher, and the entries of its queue.
const EVENTS: i32 = 127;
/// The entries of the completion queue.
pub const ENTRIES: u32 = 128;

/// Allocates slots that are never freed.
pub fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(iter::repeat_with(empty).take(count).collect())
}

/// Creates the driver, the shared memory and the state of a device that records there what it
/// creates.
pub fn driver<K: Kind, R: RegisterIo>(
    registers: R,
    made: &'static Made,
) -> (Driver<K, R>, DmaView<'static>, &'static DeviceState) {
    let units: &'static [DeviceUnit] = slots(1 << 14, DeviceUnit::new);
    // SAFETY: the device accesses no memory.
    let memory = unsafe { DmaMemory::new(units, BUS) };
    let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
    let storage = Storage {
        state: lent,
        queue_pairs: slots(4, || QueuePairSlot::EMPTY),
        completion_queues: slots(8, || CompletionQueueSlot::EMPTY),
        shared_receive_queues: slots(0, || SharedReceiveSlot::EMPTY),
        requests: slots(1024, || RequestSlot::EMPTY),
        requests_taken: slots(64, || false),
        windows: slots(1, || WindowSlot::EMPTY),
        memory_taken: slots(1024, || false),
    };
    let parts = Parts {
        control: Idle::new(made),
        cm: Channel { made },
        registers,
        hal: CoherentHal,
        shared_buffers: 0,
        memory,
    };
    let backend = MmioBackend::new(parts, storage);
    (backend, DmaView::new(units, BUS), state)
}

dat_core::define_storage! {
    struct Slots<K: Kind, R: RegisterIo, L: RawLock> for Driver<K, R>, L {
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

/// A connected endpoint, and what to post on it.
pub struct Bed<K: Kind + 'static, R: RegisterIo + 'static, L: RawLock + 'static> {
    /// The adapter.
    pub ia: Ia<'static, Driver<K, R>, L>,
    /// The endpoint.
    pub ep: EpId,
    /// Its dispatcher of requests and receives.
    pub evd: EvdId,
    /// The registered bytes.
    pub bytes: &'static [AtomicU8],
    /// Their first 4 KiB.
    pub segments: [LmrTriplet; 1],
    /// All of them, as a peer's.
    pub remote: RmrTriplet,
    /// The memory that driver and device share.
    pub memory: DmaView<'static>,
    /// Objects that the device created.
    pub made: &'static Made,
}

impl<K: Kind + 'static, R: RegisterIo + 'static, L: RawLock + 'static> Bed<K, R, L> {
    /// Opens an adapter, and connects an endpoint with these attributes.
    ///
    /// The first object of the device gets this number.
    ///
    /// # Panics
    /// A call fails, which a device with these limits does not cause.
    pub fn new(registers: R, first: u32, attributes: &EpAttributes) -> Self {
        let made: &'static Made = Box::leak(Box::new(Made::new(first)));
        let (backend, memory, _) = driver::<K, R>(registers, made);
        let lent = Box::leak(Box::new(Slots::<K, R, L>::new()));
        let ia = Ia::open(backend, lent.lend(), 8).expect("an adapter");
        let pz = ia.pz_create().expect("a zone");
        let bytes: &'static [AtomicU8] = slots(BYTES, || AtomicU8::new(0));
        let region = Region::from_static(bytes);
        let address = region.address();
        let request = LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz,
            privileges: MemoryPrivileges::ALL,
        };
        let lmr = ia.lmr_create(&request).expect("a region");
        let evd = ia.evd_create(EVENTS, None, EvdFlags::DTO).expect("events");
        let connections = ia
            .evd_create(8, None, EvdFlags::CONNECTION)
            .expect("events");
        let (data, events) = (Some(evd), Some(connections));
        let ep = ia
            .ep_create(Some(pz), data, data, events, Some(attributes))
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
            bytes,
            segments: [LmrTriplet {
                context: lmr.lmr_context,
                address,
                length: 4096,
            }],
            remote: RmrTriplet {
                context: lmr.rmr_context,
                address,
                length: BYTES as u64,
            },
            memory,
            made,
        }
    }
}
