//! The driver on a device that writes what a test tells it to, when a test tells it to.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use backend_mmio::mlx5::defs::{
    Completion, CompletionKind, CompletionTail, LONGEST_PIECE, LONGEST_WINDOW, Opcode, Syndrome,
};
use backend_mmio::mlx5::{
    CompletionQueueSlot, CompletionQueueSpec, Control, DeviceEvent, Limits, MadeQueuePair,
    MmioBackend, MmioCompletionQueue, MmioReceiveQueue, MmioSendQueue, Parts, QueuePairSlot,
    QueuePairSpec, RequestSlot, SharedReceiveQueueSpec, SharedReceiveSlot, State, Storage,
    WindowSlot,
};
use backend_mmio::{DeviceFault, DeviceWord, DmaMemory, Hal, RegisterIo, Sideband};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Armed, Backend as _, BackendError, BindRequest, CompletionQueue as _, ConnectRequest,
    ControlEvent, DisconnectMode, DomainKey, Glance, ListenerKey, QueuePair, QueuePairKey,
    QueuePairRequest, ReceiveRequest, RegionKeys, Registration, Rejected, RequestKey, Segment,
    SendFlags, SendOperation, SendQueue as _, SendRequest, SyncDirection, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::time::Instant;

const PAIR: u32 = 0xAB_CDEF;
const ENTRIES: u32 = 16;
const BUS: u64 = 0x1000;

/// There is one thread, and no device.
#[derive(Clone, Debug)]
struct NoHal;

#[expect(unsafe_code, reason = "there is no device")]
// SAFETY: whoever plays the device does so on the thread of the driver.
unsafe impl Hal for NoHal {
    const COHERENT: bool = true;

    fn to_device() {}

    fn from_device() {}

    fn to_register() {}

    fn store_before_load() {}

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {}
}

/// Counts what is written to registers.
#[derive(Clone, Debug, Default)]
struct Registers(Rc<Cell<u32>>);

impl RegisterIo for Registers {
    fn write(&self, _offset: u32, _value: u64) {
        self.0.set(self.0.get() + 1);
    }
}

/// What a test and its device share.
#[derive(Default)]
struct Shared {
    /// The first completion queue, and the entries that were written to it.
    ring: Cell<u64>,
    written: Cell<u32>,
    /// What the queue pair is called in completions that are written now; and all that are there are called, the oldest first.
    user_index: Cell<u32>,
    lives: RefCell<VecDeque<u32>>,
    halted: Cell<u32>,
    /// What happens while a queue pair is destroyed.
    on_destroy: RefCell<Option<Box<dyn FnMut()>>>,
    events: RefCell<VecDeque<DeviceEvent>>,
    /// Events of nothing go on for ever.
    endless: Cell<[bool; 2]>,
}

struct Played(Rc<Shared>);

#[expect(unsafe_code, reason = "there is no device")]
// SAFETY: nothing touches consumer memory.
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
            shared_buffers: 16,
            rdma_reads: 4,
            transfer: u64::MAX,
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

    fn create_queue_pair(&mut self, spec: &QueuePairSpec) -> Result<MadeQueuePair, BackendError> {
        self.0.user_index.set(spec.user_index);
        self.0.lives.borrow_mut().push_back(spec.user_index);
        Ok(MadeQueuePair {
            number: PAIR,
            doorbell: 0x800,
        })
    }

    fn destroy_queue_pair(&mut self, _number: u32) {
        let oldest = self.0.lives.borrow_mut().pop_front();
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

impl Sideband for Played {
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

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let [endless, _] = self.0.endless.get();
        endless.then_some(ControlEvent::Disconnected { queue_pair: 0x99 })
    }
}

fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(empty).take(count).collect())
}

type Backend = MmioBackend<'static, Played, Played, Registers, NoHal>;
type Completions = MmioCompletionQueue<'static, NoHal, Registers>;
type Sends = MmioSendQueue<'static, NoHal, Registers>;
type Receives = MmioReceiveQueue<'static, NoHal>;

/// A queue pair all of which completes on one queue.
struct Bench {
    backend: Backend,
    shared: Rc<Shared>,
    registers: Registers,
    memory: DmaMemory<'static>,
    state: &'static State,
    completions: Rc<RefCell<Completions>>,
    key: QueuePairKey,
    send: Sends,
    receive: Receives,
}

impl Bench {
    fn new() -> Self {
        let units: &'static [[DeviceWord; 4]] = slots(1 << 13, || [const { DeviceWord::new() }; 4]);
        // SAFETY: there is no device.
        #[expect(unsafe_code, reason = "memory that no device sees")]
        let memory = unsafe { DmaMemory::new(units, BUS) };
        let shared = Rc::new(Shared::default());
        let registers = Registers::default();
        let state: &'static State = Box::leak(Box::new(State::new()));
        let parts = Parts {
            control: Played(Rc::clone(&shared)),
            sideband: Played(Rc::clone(&shared)),
            registers: registers.clone(),
            hal: NoHal,
            memory,
        };
        let storage = Storage {
            state,
            queue_pairs: slots(2, || QueuePairSlot::EMPTY),
            completion_queues: slots(4, || CompletionQueueSlot::EMPTY),
            shared_receive_queues: slots(1, || SharedReceiveSlot::EMPTY),
            requests: slots(1024, || RequestSlot::EMPTY),
            requests_taken: slots(64, || false),
            windows: slots(1, || WindowSlot::EMPTY),
            memory_taken: slots(512, || false),
        };
        let mut backend = MmioBackend::new(parts, storage);
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
        let made = backend.create_queue_pair(&request).expect("a queue pair");
        let QueuePair { key, send, receive } = made;
        Self {
            backend,
            shared,
            registers,
            memory,
            state,
            completions: Rc::new(RefCell::new(completions)),
            key,
            send,
            receive: receive.expect("its own receives"),
        }
    }

    /// The device's part.
    fn writer(&self) -> impl Fn(CompletionKind, u16, Syndrome) + 'static {
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
            let place = shared.ring.get() + u64::from(written % ENTRIES) * 64;
            let units = memory.seen_at(place, 4).expect("an entry");
            let words = entry.encode().into_iter().chain([tail.0]);
            for (word, value) in units.iter().flatten().zip(words) {
                word.store(value);
            }
            shared.written.set(written + 1);
        }
    }

    fn complete(&self, kind: CompletionKind, index: u16) {
        self.writer()(kind, index, Syndrome(0));
    }

    fn poll(&self) -> Option<(u64, DtoStatus, u32)> {
        let polled = self.completions.borrow_mut().poll().expect("no failure");
        polled.map(|done| (done.token, done.status, done.length))
    }

    fn post_send(&mut self, token: u64, length: u32) -> Result<(), Rejected> {
        let request = SendRequest {
            token,
            operation: SendOperation::Send,
            length,
            flags: SendFlags::empty(),
        };
        self.send.post_one(segment(length), &request)
    }

    fn post_receive(&mut self, token: u64, length: u32) -> Result<(), Rejected> {
        let request = ReceiveRequest { token };
        self.receive.post_one(segment(length), &request)
    }
}

fn segment(length: u32) -> Segment {
    Segment {
        address: 0x10_0000,
        length,
        key: 0x100,
    }
}

/// What is flushed while a queue pair is being destroyed is no lie, whoever polls it then.
#[test]
fn completions_may_be_polled_while_their_queue_pair_goes() {
    let mut bench = Bench::new();
    for token in 0..3 {
        bench.post_send(token, 8).expect("room");
        bench.post_receive(10 + token, 8).expect("room");
    }
    let write = bench.writer();
    let completions = Rc::clone(&bench.completions);
    let polls = Rc::new(Cell::new(0));
    let (counted, state) = (Rc::clone(&polls), bench.state);
    let mut index = 0;
    *bench.shared.on_destroy.borrow_mut() = Some(Box::new(move || {
        for kind in [
            CompletionKind::FAILED_REQUEST,
            CompletionKind::FAILED_RECEIVE,
        ] {
            write(kind, index, Syndrome::FLUSHED);
        }
        let polled = completions.borrow_mut().poll().expect("no failure");
        assert!(polled.is_none(), "{polled:?}");
        assert_eq!(state.fault(), None);
        index += 1;
        counted.set(counted.get() + 1);
    }));
    let (write, index) = (bench.writer(), bench.shared.user_index.get());
    let Bench {
        mut backend,
        completions,
        key,
        mut send,
        mut receive,
        state,
        shared,
        ..
    } = bench;
    backend
        .reset_queue_pair(key, &mut send, Some(&mut receive))
        .expect("a reset");
    assert_ne!(shared.user_index.get(), index, "a life of its own");
    backend.destroy_queue_pair(key, send, Some(receive));
    assert_eq!((polls.get(), state.fault()), (2, None));
    // Three requests and three receives were posted: two of each came, so there is room for two more, and no third.
    for _ in 0..2 {
        write(CompletionKind::FAILED_REQUEST, 2, Syndrome::FLUSHED);
        assert!(
            completions
                .borrow_mut()
                .poll()
                .expect("no failure")
                .is_none()
        );
        assert_eq!(state.fault(), None);
    }
    write(CompletionKind::FAILED_REQUEST, 2, Syndrome::FLUSHED);
    assert!(
        completions
            .borrow_mut()
            .poll()
            .expect("no failure")
            .is_none()
    );
    assert_eq!(state.fault(), Some(DeviceFault::UnknownQueuePair));
}

/// What a peer can cause of a receive is no lie of the device: messages with a number are messages, and a write with one fails the
/// receive that it took.
#[test]
fn a_peer_cannot_end_the_adapter() {
    let mut bench = Bench::new();
    let kinds = [
        (CompletionKind::RECEIVE, DtoStatus::Success, 8),
        (CompletionKind::RECEIVE_IMMEDIATE, DtoStatus::Success, 8),
        (CompletionKind::WRITE_IMMEDIATE, DtoStatus::BadResponse, 0),
        (CompletionKind::RECEIVE_INVALIDATE, DtoStatus::Success, 8),
    ];
    for (index, (kind, status, length)) in (0_u16..).zip(kinds) {
        let token = u64::from(index);
        bench.post_receive(token, 8).expect("room");
        bench.complete(kind, index);
        assert_eq!(bench.poll(), Some((token, status, length)), "{kind:?}");
    }
    assert_eq!(bench.state.fault(), None);
    // Longer than the buffer it is a lie still.
    bench.post_receive(9, 7).expect("room");
    bench.complete(CompletionKind::RECEIVE_IMMEDIATE, 4);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.state.fault(), Some(DeviceFault::ImpossibleLength));
}

/// A kind that neither a request nor a peer has is a lie.
#[test]
fn other_kinds_end_it() {
    for kind in [6, 7, 8, 9, 10, 11, 12] {
        let mut bench = Bench::new();
        bench.post_receive(1, 8).expect("room");
        bench.complete(CompletionKind(kind), 0);
        assert_eq!(bench.poll(), None);
        let fault = bench.state.fault();
        assert_eq!(fault, Some(DeviceFault::UnknownKind), "{kind}");
    }
}

/// Completions that hold data, or that are compressed, are not what was asked for.
#[test]
fn completions_of_other_formats_end_it() {
    for format in 1..4_u32 {
        let mut bench = Bench::new();
        bench.post_receive(1, 8).expect("room");
        bench.complete(CompletionKind::RECEIVE, 0);
        let ring = bench.memory.seen_at(bench.shared.ring.get(), 4);
        let words = ring.expect("an entry").iter().flatten();
        let tail = words.last().expect("a tail");
        tail.store(tail.load() | format << 2);
        let glance = bench.completions.borrow_mut().glance();
        assert!(matches!(glance, Glance::Unclear), "{format}");
        assert_eq!(bench.poll(), None);
        let fault = bench.state.fault();
        assert_eq!(fault, Some(DeviceFault::UnknownKind), "{format}");
    }
}

/// A piece whose count has the bit that means something else is refused, and leaves the queue as it was.
#[test]
fn pieces_are_no_longer_than_their_count() {
    let mut bench = Bench::new();
    let limits = bench.backend.ia_attributes();
    let longest = u64::from(LONGEST_PIECE);
    assert_eq!(
        (limits.max_message_size, limits.max_rdma_size),
        (longest, longest)
    );
    let (_, mut shared) = bench
        .backend
        .create_shared_receive_queue(1, DomainKey(1), 4, 2)
        .expect("a queue");
    for length in [1 << 31, (1 << 31) + 1, u32::MAX] {
        assert_eq!(bench.post_send(1, length), Err(Rejected), "{length}");
        assert_eq!(bench.post_receive(1, length), Err(Rejected), "{length}");
        let request = ReceiveRequest { token: 1 };
        let posted = shared.post_one(segment(length), &request);
        assert_eq!(posted, Err(Rejected), "{length}");
    }
    assert_eq!(bench.registers.0.get(), 0, "nothing was posted");
    bench.post_send(2, LONGEST_PIECE).expect("room");
    bench.post_receive(3, LONGEST_PIECE).expect("room");
    let request = ReceiveRequest { token: 4 };
    shared
        .post_one(segment(LONGEST_PIECE), &request)
        .expect("room");
    bench.complete(CompletionKind::REQUEST, 0);
    bench.complete(CompletionKind::RECEIVE, 0);
    let done = [bench.poll(), bench.poll()].map(|done| done.map(|(token, ..)| token));
    assert_eq!(done, [Some(2), Some(3)]);
}

/// What lies behind a window is one piece, which can only be so long; a bind that is refused leaves the key as it was.
#[test]
fn windows_are_no_longer_than_what_lies_behind_them() {
    let mut bench = Bench::new();
    let window = bench.backend.create_window(DomainKey(1)).expect("a window");
    let request = |length| BindRequest {
        token: 1,
        window,
        region: RegionKeys::default(),
        address: 0x10_0000,
        length,
        privileges: MemoryPrivileges::REMOTE_READ,
        flags: SendFlags::empty(),
    };
    for length in [LONGEST_WINDOW + 1, 1 << 32, (1 << 32) + 1, u64::MAX] {
        assert_eq!(bench.send.bind(&request(length)), Err(Rejected), "{length}");
    }
    assert_eq!(bench.registers.0.get(), 0, "nothing was posted");
    assert_eq!(bench.send.bind(&request(LONGEST_WINDOW - 1)), Ok(0x101));
    assert_eq!(bench.send.bind(&request(LONGEST_WINDOW)), Ok(0x102));
}

/// Before the device is halted nothing that is posted comes back, and no register is written from the first lie on.
#[test]
fn nothing_is_flushed_before_the_device_is_halted() {
    let mut bench = Bench::new();
    bench.post_send(1, 8).expect("room");
    bench.post_receive(2, 8).expect("room");
    bench.complete(CompletionKind::REQUEST, 5);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.state.fault(), Some(DeviceFault::WrongIndex));
    let written = bench.registers.0.get();
    bench.post_send(3, 8).expect("room");
    assert_eq!(bench.completions.borrow_mut().arm(false), Armed::Armed);
    assert!(matches!(
        bench.completions.borrow_mut().glance(),
        Glance::Unclear
    ));
    assert_eq!((bench.poll(), bench.shared.halted.get()), (None, 0));
    assert_eq!(bench.backend.next_deadline(), Some(Instant::ZERO));

    let now = Instant::ZERO;
    let told = bench.backend.poll_control(now);
    assert!(matches!(told, Some(ControlEvent::DeviceFailed)), "{told:?}");
    assert_eq!(bench.shared.halted.get(), 1);
    assert_eq!(bench.backend.next_deadline(), None);
    // Who armed is told.
    let told = bench.backend.poll_control(now);
    let armed = matches!(told, Some(ControlEvent::Completions { queue: 0 }));
    assert!(armed, "{told:?}");
    assert!(bench.backend.poll_control(now).is_none());
    for token in [1, 3, 2] {
        assert_eq!(bench.poll(), Some((token, DtoStatus::Flushed, 0)));
    }
    bench.post_send(4, 8).expect("room");
    assert_eq!(bench.completions.borrow_mut().arm(false), Armed::Missed);
    assert_eq!(bench.poll(), Some((4, DtoStatus::Flushed, 0)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.registers.0.get(), written);
    assert_eq!(bench.shared.halted.get(), 1);
}

/// Events of what is not there keep nobody for ever, and neither source keeps the other waiting.
#[test]
fn events_of_nothing_come_to_an_end() {
    for endless in [[true, false], [false, true], [true, true]] {
        let mut bench = Bench::new();
        bench.shared.endless.set(endless);
        let now = Instant::ZERO;
        assert!(bench.backend.poll_control(now).is_none());
        assert_eq!(bench.backend.next_deadline(), Some(now), "there is more");
        let event = DeviceEvent::Completions(7);
        bench.shared.events.borrow_mut().push_back(event);
        let told = bench.backend.poll_control(now);
        let known = matches!(told, Some(ControlEvent::Completions { queue: 0 }));
        assert!(known, "{told:?}");
        bench.shared.endless.set([false, false]);
        assert!(bench.backend.poll_control(now).is_none());
        assert_eq!(bench.backend.next_deadline(), None);
        assert_eq!(bench.state.fault(), None);
    }
}
