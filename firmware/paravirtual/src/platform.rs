//! Platform of the driver: memory, bus addresses, registers, connections.
#![expect(
    unsafe_code,
    reason = "the promises of this machine to the driver are made only in this module"
)]

use backend_mmio::cm::{ConnectionManager, Peer, PeerResolver};
use backend_mmio::pvrdma::{
    Mapping, MessageWords, OpenFailure, PairState, Parts, PvrdmaBackend, RegionSlot, Storage,
};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceUnit, DmaMemory, MappedWords};
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey,
    PrivateData, RequestKey,
};
use dat_core::time::Instant;
use machine::{Barriers, Function};
use static_cell::{ConstStaticCell, StaticCell};

/// Driver of QEMU's device.
pub(crate) type Backend =
    PvrdmaBackend<'static, &'static MappedWords, Identity, LoopbackManager, Barriers>;

/// Identity mapping: bus addresses are the processor's addresses.
pub(crate) struct Identity;

// SAFETY: an image maps memory to its own address or not at all, and there is no IOMMU between
// device and bus. QEMU's device stays within the regions that it was given.
unsafe impl Mapping for Identity {
    fn page(&self, address: *const u8) -> Option<u64> {
        Some(address.expose_provenance() as u64)
    }
}

/// Pages that driver and device share.
const PAGES: usize = 128;
const PAGE: usize = 4096;
const UNITS: usize = PAGES * PAGE / size_of::<DeviceUnit>();

#[repr(align(4096))]
struct Arena([DeviceUnit; UNITS]);

static ARENA: Arena = Arena([const { DeviceUnit::new() }; UNITS]);

/// Number of endpoints.
pub(crate) const PAIRS: usize = 2;
/// Number of event dispatchers.
pub(crate) const DISPATCHERS: usize = 8;
const REQUESTS: usize = 256;

static STATE: ConstStaticCell<DeviceState> = ConstStaticCell::new(DeviceState::new());
static QUEUE_PAIRS: ConstStaticCell<[QueuePairSlot; 2 * PAIRS]> =
    ConstStaticCell::new([const { QueuePairSlot::EMPTY }; 2 * PAIRS]);
static COMPLETION_QUEUES: ConstStaticCell<[CompletionQueueSlot; DISPATCHERS]> =
    ConstStaticCell::new([const { CompletionQueueSlot::EMPTY }; DISPATCHERS]);
static SHARED: ConstStaticCell<[SharedReceiveSlot; 1]> =
    ConstStaticCell::new([const { SharedReceiveSlot::EMPTY }; 1]);
static SLOTS: ConstStaticCell<[RequestSlot; REQUESTS]> =
    ConstStaticCell::new([const { RequestSlot::EMPTY }; REQUESTS]);
static REGISTER_WINDOW: StaticCell<MappedWords> = StaticCell::new();
static DOORBELL_WINDOW: StaticCell<MappedWords> = StaticCell::new();
static PAIR_STATES: ConstStaticCell<[PairState; PAIRS]> =
    ConstStaticCell::new([PairState::Initialised; PAIRS]);
static REGIONS: ConstStaticCell<[RegionSlot; 4]> =
    ConstStaticCell::new([const { RegionSlot::EMPTY }; 4]);
static SLOTS_TAKEN: ConstStaticCell<[bool; REQUESTS / 16]> =
    ConstStaticCell::new([false; REQUESTS / 16]);
static PAGES_TAKEN: ConstStaticCell<[bool; PAGES]> = ConstStaticCell::new([false; PAGES]);

/// Lengths of the register window and of the doorbell page, in bytes.
const REGISTERS: u32 = 0x20;
const DOORBELLS: u32 = PAGE as u32;
/// GID `::ffff:10.9.0.1` in words as they lie in memory; the host's device has this address.
const ADDRESS: [u32; 4] = [0, 0, 0xFFFF_0000, 0x0100_090A];

/// Words that interrupts write to; there is no interrupt controller and no handler.
static MESSAGES: ConstStaticCell<MessageWords> = ConstStaticCell::new(MessageWords::new());

/// Driver, and the words that end waits.
pub(crate) type Opened = (Backend, &'static MessageWords);

/// Finds and opens the adapter; `None` if there is none or it lacks such interrupts. Called once.
pub(crate) fn open() -> Option<Result<Opened, OpenFailure>> {
    let function = Function::find(0x15AD, 0x0820)?;
    function.enable();
    let (lent, messages) = MESSAGES.take().lend();
    if !function.send_messages(&messages.table()) {
        return None;
    }
    // SAFETY: both windows are longer, and the adapter accesses only memory that the driver gives
    // it.
    let (registers, doorbells) = unsafe {
        (
            function.registers(1, REGISTERS)?,
            function.registers(2, DOORBELLS)?,
        )
    };
    let (registers, doorbells) = (
        REGISTER_WINDOW.init(registers),
        DOORBELL_WINDOW.init(doorbells),
    );
    let bus = ARENA.0.as_ptr().expose_provenance() as u64;
    // SAFETY: bus addresses are the processor's addresses, and only this driver gets the memory.
    let memory = unsafe { DmaMemory::new(&ARENA.0, bus) };
    let parts = Parts {
        name: "pvrdma0",
        registers: &*registers,
        doorbells: &*doorbells,
        doorbell_page: (function.window(2) / PAGE) as u64,
        mapping: Identity,
        cm: LoopbackManager::new(),
        hal: Barriers,
        address: ADDRESS,
        // With more segments the device never finishes.
        segments: 4,
        completions: 64,
        shared_buffers: 0,
        flushes: false,
        messages: Some(lent),
        memory,
    };
    let storage = Storage {
        state: STATE.take().lend().0,
        queue_pairs: QUEUE_PAIRS.take(),
        pair_states: PAIR_STATES.take(),
        completion_queues: COMPLETION_QUEUES.take(),
        shared_receive_queues: SHARED.take(),
        regions: REGIONS.take(),
        requests: SLOTS.take(),
        requests_taken: SLOTS_TAKEN.take(),
        pages_taken: PAGES_TAKEN.take(),
    };
    Some(PvrdmaBackend::open(parts, storage).map(|backend| (backend, messages)))
}

/// Slots for pending events.
const EVENTS: usize = 8;

/// Connection manager for connections of the adapter to itself.
pub(crate) struct LoopbackManager {
    listener: Option<(u64, u64)>,
    /// Queue pair that requested the connection.
    requesting: Option<u32>,
    /// The two connected queue pairs.
    link: Option<[u32; 2]>,
    events: [Option<ControlEvent>; EVENTS],
}

impl LoopbackManager {
    const fn new() -> Self {
        Self {
            listener: None,
            requesting: None,
            link: None,
            events: [const { None }; EVENTS],
        }
    }

    fn queue_event(&mut self, event: ControlEvent) {
        if let Some(slot) = self.events.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(event);
        }
    }

    fn other(&self, queue_pair: u32) -> Option<u32> {
        match self.link? {
            [one, other] if one == queue_pair => Some(other),
            [one, other] if other == queue_pair => Some(one),
            _ => None,
        }
    }
}

fn peer(queue_pair: u32) -> Peer {
    Peer {
        queue_pair,
        address: ADDRESS,
    }
}

fn to_private_data(private_data: &[u8]) -> Result<PrivateData, BackendError> {
    PrivateData::from_slice(private_data).map_err(|_| BackendError::Resources)
}

impl PeerResolver for LoopbackManager {
    fn peer(&self, queue_pair: u32) -> Option<Peer> {
        self.other(queue_pair).map(peer)
    }

    fn requester(&self, _request: RequestKey) -> Option<Peer> {
        self.requesting.map(peer)
    }
}

impl ConnectionManager for LoopbackManager {
    fn address(&self) -> IaAddress {
        IaAddress::Node(1)
    }

    fn private_data_limit(&self) -> u32 {
        64
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let qualifier = qualifier.ok_or(BackendError::QualifierUnavailable)?;
        if self.listener.is_some() {
            return Err(BackendError::Resources);
        }
        self.listener = Some((token, qualifier));
        Ok((ListenerKey(1), qualifier))
    }

    fn stop_listening(&mut self, _listener: ListenerKey) {
        self.listener = None;
    }

    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let private_data = to_private_data(request.private_data)?;
        let listener = self
            .listener
            .filter(|(_, qualifier)| *qualifier == request.qualifier && self.requesting.is_none());
        self.queue_event(match listener {
            Some((listener, _)) => ControlEvent::ConnectionRequest {
                listener,
                request: RequestKey(1),
                remote: IaAddress::Node(1),
                remote_port: 1,
                local: IaAddress::Node(1),
                private_data,
            },
            None => ControlEvent::ConnectFailed {
                queue_pair: u64::from(queue_pair),
                failure: ConnectFailure::NonPeerRejected,
            },
        });
        self.requesting = listener.map(|_| queue_pair);
        Ok(1)
    }

    fn accept(
        &mut self,
        _request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let private_data = to_private_data(private_data)?;
        let requesting = self.requesting.take().ok_or(BackendError::State)?;
        self.link = Some([requesting, queue_pair]);
        // The requester becomes ready with this event, so it comes first.
        self.queue_event(ControlEvent::Established {
            queue_pair: u64::from(requesting),
            private_data,
        });
        self.queue_event(ControlEvent::Established {
            queue_pair: u64::from(queue_pair),
            private_data: PrivateData::new(),
        });
        Ok(())
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, private_data: &[u8]) {
        if let Some(requesting) = self.requesting.take() {
            let data = to_private_data(private_data).unwrap_or_default();
            self.queue_event(ControlEvent::ConnectFailed {
                queue_pair: u64::from(requesting),
                failure: ConnectFailure::PeerRejected(data),
            });
        }
    }

    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode) {
        let Some(other) = self.other(queue_pair) else {
            return;
        };
        self.link = None;
        let queue_pair = u64::from(other);
        self.queue_event(match mode {
            DisconnectMode::Broken => ControlEvent::Broken { queue_pair },
            _ => ControlEvent::Disconnected { queue_pair },
        });
    }

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let first = self.events.first_mut()?.take();
        self.events.rotate_left(1);
        first
    }

    /// Events are pending only here, so a poll is due at once.
    fn next_deadline(&self) -> Option<Instant> {
        let pending = self.events.iter().any(Option::is_some);
        pending.then_some(Instant::ZERO)
    }
}
