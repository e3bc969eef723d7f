//! A scripted device, which writes on a test's command, and the driver on it.

use core::ptr::NonNull;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec::Vec;

use crate::cm::ConnectionManager;
use crate::defs::mlx5::{Completion, CompletionKind, CompletionTail, Opcode, Syndrome, doorbell};
use crate::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, MmioBackend,
    MmioCompletionQueue, MmioReceiveQueue, MmioSendQueue, Parts, QueuePairSpec,
    SharedReceiveQueueSpec, Storage, WindowSlot,
};
use crate::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use crate::{DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal, RegisterIo};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend as _, BackendError, CompletionQueue as _, ConnectRequest, ControlEvent, DisconnectMode,
    DomainKey, ListenerKey, QueuePair, QueuePairKey, QueuePairRequest, ReceiveRequest, RegionKeys,
    Registration, Rejected, RequestKey, Segment, SendFlags, SendOperation, SendRequest,
    SyncDirection, WorkQueue,
};
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;

pub(crate) const PAIR: u32 = 0xAB_CDEF;
pub(crate) const ENTRIES: u32 = 16;
pub(crate) const BUS: u64 = 0x1000;

/// A step around a doorbell, with the value of the send record at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Barrier between memory and an uncached register.
    Ordered(u32),
    /// Barrier between memory and a write-combining register.
    Gathered(u32),
    Written(u32),
    /// Flush of register stores.
    Flushed(u32),
}

std::thread_local! {
    /// The send record that a test observes, and the steps since.
    static RECORD: Cell<Option<&'static DeviceWord>> = const { Cell::new(None) };
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
}

fn happens(step: fn(u32) -> Step) {
    if let Some(record) = RECORD.get() {
        STEPS.with_borrow_mut(|steps| steps.push(step(record.load())));
    }
}

/// Barriers for one thread without a device.
#[derive(Clone, Debug)]
pub(crate) struct NoHal {
    pub(crate) is_coherent: bool,
}

#[expect(unsafe_code, reason = "no device exists")]
// SAFETY: the scripted device runs on the driver's thread.
unsafe impl Hal for NoHal {
    const COHERENT: bool = true;

    fn is_coherent(&self) -> bool {
        self.is_coherent
    }

    fn to_device() {}

    fn from_device() {}

    fn to_register() {
        happens(Step::Ordered);
    }

    fn to_gathered_register() {
        happens(Step::Gathered);
    }

    fn flush_register() {
        happens(Step::Flushed);
    }

    fn store_before_load() {}

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {}
}

/// Counts register writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers(pub(crate) Rc<Cell<u32>>);

impl RegisterIo for Registers {
    fn write(&self, _offset: u32, _value: u64) {
        self.0.set(self.0.get() + 1);
        happens(Step::Written);
    }
}

/// State that a test shares with its device.
#[derive(Default)]
pub(crate) struct Shared {
    /// Bus address of the first completion queue; `written` counts its written entries.
    pub(crate) ring: Cell<u64>,
    pub(crate) written: Cell<u32>,
    /// User index for new completions; `generations` holds those of all queue pairs, oldest first.
    pub(crate) user_index: Cell<u32>,
    pub(crate) generations: RefCell<VecDeque<u32>>,
    pub(crate) halted: Cell<u32>,
    /// Bus address of the record of the newest queue pair; `receives` is its receive geometry.
    pub(crate) record: Cell<u64>,
    pub(crate) receives: Cell<[u32; 2]>,
    /// Most buffers of a shared receive queue.
    pub(crate) shared_buffers: Cell<u32>,
    /// Number of queue pairs that the connection manager forgot.
    pub(crate) forgotten: Cell<u32>,
    /// Called during the destruction of a queue pair.
    pub(crate) on_destroy: RefCell<Option<Box<dyn FnMut()>>>,
    pub(crate) events: RefCell<VecDeque<DeviceEvent>>,
    /// Set for endless events of unknown objects: of connections, of the device.
    pub(crate) endless: Cell<[bool; 2]>,
}

pub(crate) struct Played(pub(crate) Rc<Shared>);

#[expect(unsafe_code, reason = "no device exists")]
// SAFETY: the device accesses no consumer memory.
unsafe impl Control for Played {
    fn limits(&self) -> Limits {
        Limits {
            name: "played",
            domains: 1,
            regions: 1,
            windows: 1,
            completion_queues: 4,
            completions: 256,
            queue_pairs: 2,
            work_requests: 64,
            segments: 4,
            shared_receive_queues: 1,
            shared_buffers: self.0.shared_buffers.get(),
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
        Err(BackendError::NotSupported)
    }

    fn deregister(&mut self, _region: RegionKeys) {}

    fn create_window(&mut self, _domain: u32) -> Result<u32, BackendError> {
        Ok(0x100)
    }

    fn destroy_window(&mut self, _key: u32) {}

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        assert_eq!(spec.entries, ENTRIES);
        self.0.ring.set(spec.ring);
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
        Ok(9)
    }

    fn arm_shared_receive_limit(&mut self, _: u32, _: u32) -> Result<bool, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn destroy_shared_receive_queue(&mut self, _number: u32) {}

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        self.0.user_index.set(spec.user_index);
        self.0.generations.borrow_mut().push_back(spec.user_index);
        self.0.record.set(spec.record);
        let receives = [spec.receive_entries, spec.receive_units];
        self.0.receives.set(receives);
        Ok(CreatedQueuePair {
            number: PAIR,
            doorbell: 0x800,
            takes_blocks: false,
        })
    }

    fn destroy_queue_pair(&mut self, _number: u32) {
        let oldest = self.0.generations.borrow_mut().pop_front();
        let newest = self.0.user_index.replace(oldest.expect("a queue pair"));
        if let Some(happens) = &mut *self.0.on_destroy.borrow_mut() {
            happens();
        }
        self.0.user_index.set(newest);
    }

    fn poll(&mut self, _now: Instant) -> Option<DeviceEvent> {
        let event = self.0.events.borrow_mut().pop_front();
        let [_, endless] = self.0.endless.get();
        event.or_else(|| endless.then_some(DeviceEvent::Completions(0x99)))
    }

    fn halt(&mut self) {
        self.0.halted.set(self.0.halted.get() + 1);
    }
}

impl ConnectionManager for Played {
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
        Err(BackendError::NotSupported)
    }

    fn accept(&mut self, _: RequestKey, _: u32, _: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::NotSupported)
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, _private_data: &[u8]) {}

    fn disconnect(&mut self, _queue_pair: u32, _mode: DisconnectMode) {}

    fn forget(&mut self, queue_pair: u32) {
        assert_eq!(queue_pair, PAIR);
        self.0.forgotten.set(self.0.forgotten.get() + 1);
    }

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let [endless, _] = self.0.endless.get();
        endless.then_some(ControlEvent::Disconnected { queue_pair: 0x99 })
    }
}

pub(crate) fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(empty).take(count).collect())
}

pub(crate) type Backend = MmioBackend<'static, Played, Played, Registers, NoHal>;
pub(crate) type Completions = MmioCompletionQueue<'static, NoHal, Registers>;
pub(crate) type Sends = MmioSendQueue<'static, NoHal, Registers>;
pub(crate) type Receives = MmioReceiveQueue<'static, NoHal>;

/// Memory and storage that adapters use one after the other.
struct Lent {
    units: &'static [DeviceUnit],
    state: NonNull<DeviceState>,
    queue_pairs: NonNull<[QueuePairSlot]>,
    completion_queues: NonNull<[CompletionQueueSlot]>,
    shared_receive_queues: NonNull<[SharedReceiveSlot]>,
    requests: NonNull<[RequestSlot]>,
    windows: NonNull<[WindowSlot]>,
    /// Device limit of buffers per shared receive queue, and minimum capacity of each.
    shared_buffers: [u32; 2],
}

impl Lent {
    fn new(state: DeviceState) -> Self {
        Self::sized(state, 1 << 13, 1 << 10, [16, 0])
    }

    /// Allocates memory of `units` units and slots for `requests` requests.
    fn sized(state: DeviceState, units: usize, requests: usize, shared_buffers: [u32; 2]) -> Self {
        Self {
            units: slots(units, DeviceUnit::new),
            state: Box::leak(Box::new(state)).into(),
            queue_pairs: slots(4, || QueuePairSlot::EMPTY).into(),
            completion_queues: slots(4, || CompletionQueueSlot::EMPTY).into(),
            shared_receive_queues: slots(1, || SharedReceiveSlot::EMPTY).into(),
            requests: slots(requests, || RequestSlot::EMPTY).into(),
            windows: slots(1, || WindowSlot::EMPTY).into(),
            shared_buffers,
        }
    }

    #[expect(unsafe_code, reason = "no device accesses the memory")]
    fn memory(&self, bus: u64) -> DmaMemory<'static> {
        // SAFETY: no device exists.
        unsafe { DmaMemory::new(self.units, bus) }
    }

    #[expect(unsafe_code, reason = "leaked storage is lent again")]
    fn adapter(&mut self, bus: u64) -> (Backend, Rc<Shared>, Registers, &'static DeviceState) {
        let [most, room] = self.shared_buffers;
        let shared = Rc::new(Shared::default());
        shared.shared_buffers.set(most);
        let registers = Registers::default();
        let parts = Parts {
            control: Played(Rc::clone(&shared)),
            cm: Played(Rc::clone(&shared)),
            registers: registers.clone(),
            hal: NoHal { is_coherent: true },
            shared_buffers: room,
            memory: self.memory(bus),
        };
        // SAFETY: everything is leaked. A caller that calls again has dropped the earlier adapter
        // and its queues.
        let (storage, state) = unsafe {
            let (lent, state) = self.state.as_mut().lend();
            let storage = Storage {
                state: lent,
                queue_pairs: self.queue_pairs.as_mut(),
                completion_queues: self.completion_queues.as_mut(),
                shared_receive_queues: self.shared_receive_queues.as_mut(),
                requests: self.requests.as_mut(),
                requests_taken: slots(self.requests.len() / 16, || false),
                windows: self.windows.as_mut(),
                memory_taken: slots(self.units.len() / 16, || false),
            };
            (storage, state)
        };
        (MmioBackend::new(parts, storage), shared, registers, state)
    }
}

/// A queue pair whose requests and receives complete on one queue.
pub(crate) struct Bench {
    pub(crate) backend: Backend,
    pub(crate) shared: Rc<Shared>,
    pub(crate) registers: Registers,
    pub(crate) memory: DmaView<'static>,
    /// Parameters of the queue pair.
    pub(crate) request: QueuePairRequest,
    lent: Lent,
    pub(crate) state: &'static DeviceState,
    pub(crate) completions: Rc<RefCell<Completions>>,
    pub(crate) key: QueuePairKey,
    pub(crate) send: Sends,
    pub(crate) receive: Receives,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(DeviceState::new())
    }

    /// As `new`, with the given state.
    pub(crate) fn with(state: DeviceState) -> Self {
        Self::over(Lent::new(state))
    }

    /// Creates another adapter on the memory and storage of this one.
    pub(crate) fn again(self) -> Self {
        let Self { lent, .. } = self;
        Self::over(lent)
    }

    /// Returns the bus address of the first completion queue, if the memory suffices.
    ///
    /// The memory starts at `bus`.
    pub(crate) fn try_at(bus: u64) -> Option<u64> {
        let mut lent = Lent::new(DeviceState::new());
        let (mut backend, shared, ..) = lent.adapter(bus);
        backend.create_completion_queue(0, ENTRIES - 1).ok()?;
        Some(shared.ring.get())
    }

    /// Creates an adapter with `units` units of memory and `requests` request slots.
    ///
    /// `shared_buffers` is the device limit of buffers per shared receive queue, and the minimum
    /// capacity of each.
    pub(crate) fn adapter(units: usize, requests: usize, shared_buffers: [u32; 2]) -> Backend {
        let (backend, ..) =
            Lent::sized(DeviceState::new(), units, requests, shared_buffers).adapter(BUS);
        backend
    }

    fn over(mut lent: Lent) -> Self {
        let (mut backend, shared, registers, state) = lent.adapter(BUS);
        let completions = backend
            .create_completion_queue(0, ENTRIES - 1)
            .expect("a completion queue");
        let attributes = EpAttributes {
            max_request_dtos: 8,
            max_recv_dtos: 8,
            ..EpAttributes::DEFAULT
        };
        let mut request = QueuePairRequest::new(55, DomainKey(1), attributes);
        request.request_queue = Some(0);
        request.receive_queue = Some(0);
        let created = backend.create_queue_pair(&request).expect("a queue pair");
        let QueuePair { key, send, receive } = created;
        Self {
            backend,
            shared,
            registers,
            memory: DmaView::new(lent.units, BUS),
            request,
            lent,
            state,
            completions: Rc::new(RefCell::new(completions)),
            key,
            send,
            receive: receive.expect("its own receives"),
        }
    }

    /// Returns a function that writes a completion as the device.
    pub(crate) fn writer(&self) -> impl Fn(CompletionKind, u16, Syndrome) + 'static {
        let (shared, memory) = (Rc::clone(&self.shared), self.memory);
        move |kind, index, syndrome| {
            let written = shared.written.get();
            let entry = Completion {
                user_index: shared.user_index.get(),
                length: 8,
                syndrome,
                queue_pair: PAIR,
                opcode: Opcode(0),
            };
            let lap = written & ENTRIES != 0;
            let tail = CompletionTail::new(index, kind, false).in_lap(lap);
            let entry_address = shared.ring.get() + u64::from(written % ENTRIES) * 64;
            let units = memory.seen_at(entry_address, 4).expect("an entry");
            let words = entry.encode().into_iter().chain([tail.0]);
            for (word, value) in units.iter().flatten().zip(words) {
                word.store(value);
            }
            shared.written.set(written + 1);
        }
    }

    pub(crate) fn complete(&self, kind: CompletionKind, index: u16) {
        self.writer()(kind, index, Syndrome(0));
    }

    /// Returns the steps around the doorbells that `rings` rings.
    pub(crate) fn steps(&mut self, rings: impl FnOnce(&mut Self)) -> Vec<Step> {
        let record = self.memory.seen_at(self.shared.record.get(), 1);
        let record = record.and_then(|units| units.first()?.get(doorbell::SEND));
        RECORD.set(record);
        rings(self);
        RECORD.set(None);
        STEPS.take()
    }

    pub(crate) fn poll(&self) -> Option<(u64, DtoStatus, u32)> {
        let polled = self.completions.borrow_mut().poll().expect("no failure");
        polled.map(|done| (done.token, done.status, done.length))
    }

    pub(crate) fn post_send(&mut self, token: u64, length: u32) -> Result<(), Rejected> {
        let request = SendRequest {
            token,
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        self.send.post(&request, &[segment(length)])
    }

    pub(crate) fn post_receive(&mut self, token: u64, length: u32) -> Result<(), Rejected> {
        let request = ReceiveRequest { token };
        self.receive.post(&request, &[segment(length)])
    }
}

pub(crate) fn segment(length: u32) -> Segment {
    Segment {
        address: 0x10_0000,
        length,
        key: 0x100,
    }
}
