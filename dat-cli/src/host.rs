//! Adapters on this host: their storage, memory to register, and endpoints that are connected.

use std::sync::atomic::{AtomicU8, Ordering};

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, LmrId, PzId, SrqId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{SpinLock, Table, load_bytes, store_bytes};
use dat_core::time::Instant;
use dat_core::{ErrorKind, Ia, Storage};

use crate::failure::{During, Failure, FailureKind, Result};
use crate::size::size;

/// Bytes that the buffers of one side may have.
pub(crate) const MOST_MEMORY: u64 = 1 << 30;

/// A backend whose adapters may live as long as the program.
pub(crate) trait HostBackend:
    Backend<
        CompletionQueue: 'static,
        SendQueue: 'static,
        ReceiveQueue: 'static,
        SharedReceiveQueue: 'static,
    > + 'static
{
}

impl<B> HostBackend for B where
    B: Backend<
            CompletionQueue: 'static,
            SendQueue: 'static,
            ReceiveQueue: 'static,
            SharedReceiveQueue: 'static,
        > + 'static
{
}

/// What lies between two adapters of this process, both driven by one thread.
pub(crate) trait Ground {
    /// Their backend.
    type Backend: HostBackend;

    /// The time now.
    fn now(&self) -> Instant;

    /// Lets something happen; false if there is nothing to happen.
    fn step(&self) -> bool;

    /// Somebody looked for something that completes, and found it or not.
    ///
    /// # Errors
    /// Operation: nothing has come for too long.
    fn looked(&self, _found: bool) -> Result<()> {
        Ok(())
    }

    /// Whether `looked` fails when nothing comes for too long.
    fn gives_up(&self) -> bool {
        false
    }
}

/// A network inside this process, of devices that it makes.
pub(crate) trait Network: Ground + Sized {
    /// What it is called in reports.
    const NAME: &'static str;
    /// The most that `--depth` may be on its devices.
    const MOST_DEPTH: u16 = u16::MAX;

    /// The most that `--segments` may be on its devices.
    const MOST_SEGMENTS: u8 = u8::MAX;

    /// Looks whether so many operations may be under way at once, of so many segments each.
    ///
    /// # Errors
    /// Usage: its devices have no room for them.
    fn admit(depth: u16, segments: u8) -> Result<()> {
        if depth > Self::MOST_DEPTH {
            return Err(Failure::usage(
                format!("{depth} cannot be under way at once"),
                format!("{} has room for {}", Self::NAME, Self::MOST_DEPTH),
                format!("choose a --depth of at most {}", Self::MOST_DEPTH),
            ));
        }
        if segments > Self::MOST_SEGMENTS {
            return Err(Failure::usage(
                format!("an operation cannot have {segments} segments"),
                format!("{} has room for {}", Self::NAME, Self::MOST_SEGMENTS),
                format!("choose --segments of at most {}", Self::MOST_SEGMENTS),
            ));
        }
        Ok(())
    }

    /// A network in which things take their time, and happen in steps.
    fn in_steps() -> Self;

    /// A network in which whoever looks for something finds it done.
    fn at_once() -> Self;

    /// A device.
    fn device(&self, options: NodeOptions) -> Self::Backend;
}

impl Network for Fabric {
    const NAME: &'static str = "mock";

    fn in_steps() -> Self {
        Self::new(FabricOptions::default())
    }

    fn at_once() -> Self {
        Self::new(FabricOptions {
            poll_steps: true,
            ..FabricOptions::immediate()
        })
    }

    fn device(&self, options: NodeOptions) -> MockBackend {
        self.node(options)
    }
}

impl Ground for Fabric {
    type Backend = MockBackend;

    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn step(&self) -> bool {
        Self::step(self)
    }
}

/// An open adapter. Its storage is from the heap and given up for good: a run of the program opens two or three.
pub(crate) type Adapter<B = MockBackend> = Ia<'static, B, SpinLock>;

/// How much of everything an adapter gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) endpoints: usize,
    pub(crate) regions: usize,
    /// Requests and receives of all queues together.
    pub(crate) records: usize,
    /// Events of all dispatchers together.
    pub(crate) events: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            endpoints: 4,
            regions: 16,
            records: 512,
            events: EVENTS,
        }
    }
}

const DISPATCHERS: usize = 8;
/// Events that the dispatchers of a node need.
pub(crate) const EVENTS: usize = 256;
/// Memory to register starts at a multiple of this, and is touched every so many bytes to be there.
pub(crate) const PAGE: usize = 4096;

/// Bytes of the number that marks what an operation moves.
pub(crate) const STAMP: usize = 4;

/// Looks whether there is room for buffers of so many bytes together; `remedy` is told how many there are room for.
///
/// That is better known before the first of them is made: what is registered cannot be given back. Systems that promise more
/// memory than they have only refuse what is beyond a limit.
///
/// # Errors
/// Memory: there is not.
pub(crate) fn room(bytes: u64, remedy: impl FnOnce(u64) -> String) -> Result<()> {
    // For all that is not buffers.
    const REST: u64 = 16 << 20;
    let fits = |bytes: u64| {
        usize::try_from(bytes.saturating_add(REST))
            .is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok())
    };
    if fits(bytes) {
        return Ok(());
    }
    let fitting = std::iter::successors(Some(bytes / 2), |bytes| Some(bytes / 2))
        .find(|bytes| *bytes == 0 || fits(*bytes))
        .unwrap_or(0);
    Err(Failure {
        kind: FailureKind::Memory,
        what: "there is not enough memory".into(),
        why: format!(
            "the buffers need {}, and the system refuses that",
            size(bytes)
        ),
        remedy: remedy(fitting),
    })
}

/// Slots that live as long as the program.
fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Box::leak(std::iter::repeat_with(empty).take(count).collect())
}

/// A table of them, made before: all that there can be will be used.
fn table<T>(count: usize, empty: impl FnMut() -> T) -> Table<'static, T> {
    slots(count, empty).into()
}

/// Opens the adapter of a backend.
pub(crate) fn open<B: HostBackend>(backend: B, capacity: Capacity) -> Result<Adapter<B>> {
    use dat_core::connection::{CrSlot, PspSlot, RspSlot};
    use dat_core::endpoint::{EndpointSlot, SrqSlot};
    use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
    use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
    let Capacity {
        endpoints,
        regions,
        records,
        events,
    } = capacity;
    let storage = Storage {
        // A server has one for each of its clients.
        protection_zones: table(endpoints + 2, || PzSlot::EMPTY),
        local_regions: slots(regions, || LmrSlot::EMPTY),
        remote_regions: table(regions, || RmrSlot::EMPTY),
        event_dispatchers: table(DISPATCHERS, || EvdSlot::EMPTY),
        notification_objects: table(1, || CnoSlot::EMPTY),
        endpoints: table(endpoints, || EndpointSlot::EMPTY),
        shared_receive_queues: table(1, || SrqSlot::EMPTY),
        public_service_points: table(1, || PspSlot::EMPTY),
        reserved_service_points: table(1, || RspSlot::EMPTY),
        connection_requests: table(endpoints, || CrSlot::EMPTY),
        events: table(events, || EventSlot::EMPTY),
        records: table(records, || dat_core::RecordSlot::EMPTY),
        fresh: true,
    };
    Ia::open(backend, storage, 16)
        .map_err(|refused| Failure::operation("dat_ia_open failed", refused.error))
}

/// An open adapter with a protection zone and one event dispatcher for each purpose.
pub(crate) struct Node<B: HostBackend = MockBackend> {
    pub(crate) ia: Adapter<B>,
    pub(crate) address: IaAddress,
    pub(crate) zone: PzId,
    /// Completions of requests and binds.
    pub(crate) requests: EvdId,
    /// Completions of receives.
    pub(crate) receives: EvdId,
    /// What becomes of connections.
    pub(crate) connections: EvdId,
    /// Connection requests.
    pub(crate) arrivals: EvdId,
}

impl<B: HostBackend> Node<B> {
    /// Opens an adapter on a network.
    pub(crate) fn open<N: Network<Backend = B>>(
        network: &N,
        options: NodeOptions,
        capacity: Capacity,
    ) -> Result<Self> {
        Self::over(network.device(options), options.address, capacity)
    }

    /// Opens the adapter of a backend, which is reached at an address.
    pub(crate) fn over(backend: B, address: IaAddress, capacity: Capacity) -> Result<Self> {
        let ia = open(backend, capacity)?;
        let zone = ia.pz_create().during("dat_pz_create")?;
        let dispatcher = |flags| ia.evd_create(16, None, flags).during("dat_evd_create");
        Ok(Self {
            address,
            zone,
            requests: dispatcher(EvdFlags::DTO | EvdFlags::RMR_BIND)?,
            receives: dispatcher(EvdFlags::DTO)?,
            connections: dispatcher(EvdFlags::CONNECTION)?,
            arrivals: dispatcher(EvdFlags::CR)?,
            ia,
        })
    }

    /// Registers fresh memory, all zero, in the node's zone.
    pub(crate) fn register(
        &self,
        length: usize,
        privileges: MemoryPrivileges,
    ) -> Result<Registered> {
        self.register_in(self.zone, Memory::new(length), privileges)
    }

    /// Registers memory in a zone.
    pub(crate) fn register_in(
        &self,
        zone: PzId,
        memory: Memory,
        privileges: MemoryPrivileges,
    ) -> Result<Registered> {
        register(&self.ia, zone, memory, privileges).during("dat_lmr_create")
    }

    /// Makes an endpoint on the node's dispatchers, over a shared receive queue if one is given.
    pub(crate) fn endpoint(
        &self,
        attributes: &EpAttributes,
        shared: Option<SrqId>,
    ) -> Result<EpId> {
        let (receives, requests, connections) = (
            Some(self.receives),
            Some(self.requests),
            Some(self.connections),
        );
        match shared {
            None => self
                .ia
                .ep_create(
                    Some(self.zone),
                    receives,
                    requests,
                    connections,
                    Some(attributes),
                )
                .during("dat_ep_create"),
            Some(srq) => self
                .ia
                .ep_create_with_srq(
                    Some(self.zone),
                    receives,
                    requests,
                    connections,
                    srq,
                    attributes,
                )
                .during("dat_ep_create_with_srq"),
        }
    }
}

/// Registers memory in a zone of an adapter.
pub(crate) fn register<B: HostBackend>(
    ia: &Adapter<B>,
    zone: PzId,
    memory: Memory,
    privileges: MemoryPrivileges,
) -> dat_core::Result<Registered> {
    let created = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(memory.region()),
        pz: zone,
        privileges,
    })?;
    Ok(Registered {
        memory,
        lmr: created.lmr,
        context: created.lmr_context,
        remote_context: created.rmr_context,
    })
}

/// Memory that lives as long as the program and that everybody may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    bytes: &'static [AtomicU8],
}

impl Memory {
    /// This many zero bytes that start with a page.
    pub(crate) fn new(length: usize) -> Self {
        let all: &'static [AtomicU8] = slots(length + PAGE - 1, || AtomicU8::new(0));
        let start = all.as_ptr().align_offset(PAGE).min(PAGE - 1);
        let bytes = all.get(start..start + length).unwrap_or_default();
        // A page of fresh memory is only there once something is stored, and the time that takes is not that of a transfer.
        for byte in bytes.iter().step_by(PAGE) {
            byte.store(0, Ordering::Relaxed);
        }
        Self { bytes }
    }

    /// The start of it, at most this long.
    pub(crate) fn start(self, length: usize) -> Self {
        Self {
            bytes: self.bytes.get(..length).unwrap_or(self.bytes),
        }
    }

    /// A part of it, or none of it.
    #[cfg(any(feature = "verbs", test))]
    pub(crate) fn part(self, offset: usize, length: usize) -> Self {
        let bytes = self.bytes.get(offset..).and_then(|rest| rest.get(..length));
        Self {
            bytes: bytes.unwrap_or_default(),
        }
    }

    /// Bytes of it.
    pub(crate) fn length(self) -> usize {
        self.bytes.len()
    }

    /// Where in other memory it starts.
    #[cfg(any(feature = "verbs", test))]
    pub(crate) fn offset_in(self, other: Self) -> Option<usize> {
        let start = self.bytes.as_ptr().addr();
        start.checked_sub(other.bytes.as_ptr().addr())
    }

    /// All of it, to be registered.
    pub(crate) fn region(self) -> Region {
        Region::from_static(self.bytes)
    }

    /// Stores as many bytes as there is room for behind `offset`.
    pub(crate) fn store(self, offset: usize, from: &[u8]) {
        store_bytes(self.bytes.get(offset..).unwrap_or_default(), from);
    }

    /// Stores the lowest [`STAMP`] bytes of a number, as many of them as there are before `end`.
    #[inline]
    pub(crate) fn stamp(self, offset: usize, end: usize, number: u64) {
        let bytes = number.to_le_bytes();
        let place = self.bytes.get(offset..end).unwrap_or_default();
        // Of a length that is known, and unrolled, where there is room.
        if let Some(place) = place.first_chunk::<STAMP>() {
            for (to, byte) in place.iter().zip(bytes) {
                to.store(byte, Ordering::Relaxed);
            }
        } else {
            for (to, byte) in place.iter().zip(bytes) {
                to.store(byte, Ordering::Relaxed);
            }
        }
    }

    /// Loads as many bytes as there are behind `offset`.
    pub(crate) fn load(self, offset: usize, into: &mut [u8]) {
        load_bytes(self.bytes.get(offset..).unwrap_or_default(), into);
    }
}

/// Registered memory with its contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) memory: Memory,
    pub(crate) lmr: LmrId,
    pub(crate) context: u32,
    pub(crate) remote_context: u32,
}

impl Registered {
    fn address(&self, offset: usize) -> u64 {
        self.memory.region().address().wrapping_add(offset as u64)
    }

    /// A piece, for the consumer that registered it. The piece is not checked.
    pub(crate) fn piece(&self, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.context,
            address: self.address(offset),
            length: length as u64,
        }
    }

    /// A piece, for the peer. The piece is not checked.
    pub(crate) fn remote(&self, offset: usize, length: usize) -> RmrTriplet {
        self.remote_through(self.remote_context, offset, length)
    }

    /// A piece for the peer under another context.
    pub(crate) fn remote_through(&self, context: u32, offset: usize, length: usize) -> RmrTriplet {
        RmrTriplet {
            context,
            address: self.address(offset),
            length: length as u64,
        }
    }

    /// The start of it as text, up to the first zero byte.
    pub(crate) fn text(&self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.memory.load(0, &mut bytes);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(length);
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    }
}

/// The next event of a dispatcher if there is one now.
#[inline(always)]
pub(crate) fn dequeue<B: HostBackend>(ia: &Adapter<B>, evd: EvdId) -> Result<Option<Event>> {
    match ia.evd_dequeue(evd) {
        Ok(event) => Ok(Some(event)),
        Err(error) => nothing(error),
    }
}

/// What an error of a look into a dispatcher says: mostly that there was no event.
#[inline]
pub(crate) fn nothing<T>(error: dat_core::Error) -> Result<Option<T>> {
    if error.kind() == ErrorKind::QueueEmpty {
        return Ok(None);
    }
    Err(Failure::operation("dat_evd_dequeue failed", error))
}

/// Waits for the next event of a dispatcher of `node`, letting `others` go on meanwhile.
pub(crate) fn wait<G: Ground>(
    ground: &G,
    node: &Node<G::Backend>,
    others: &[&Node<G::Backend>],
    evd: EvdId,
) -> Result<Event> {
    // Steps that bring nothing new to this dispatcher; connecting takes about ten.
    const PATIENCE: usize = 10_000;
    for _ in 0..PATIENCE {
        let now = ground.now();
        for other in others {
            other.ia.progress(now);
        }
        node.ia.progress(now);
        if let Some(event) = dequeue(&node.ia, evd)? {
            return Ok(event);
        }
        ground.step();
    }
    Err(Failure::operation(
        "waiting for an event failed",
        "none came, and nothing is left to happen",
    ))
}

/// Connects an endpoint of one node with one of another.
pub(crate) fn connect<G: Ground>(
    ground: &G,
    (active, active_ep): (&Node<G::Backend>, EpId),
    (passive, passive_ep): (&Node<G::Backend>, EpId),
) -> Result<()> {
    let (service, qualifier) = passive
        .ia
        .psp_create_any(passive.arrivals, PspFlags::Consumer)
        .during("dat_psp_create_any")?;
    active
        .ia
        .ep_connect(
            active_ep,
            &ConnectParam {
                address: passive.address,
                qualifier,
                timeout: TIMEOUT_INFINITE,
                private_data: &[],
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            ground.now(),
        )
        .during("dat_ep_connect")?;
    let request = wait(ground, passive, &[active], passive.arrivals)?;
    let Event::ConnectionRequest { cr, .. } = request else {
        return Err(Failure::operation(
            "connecting failed",
            format!("{request:?} came instead of a request"),
        ));
    };
    passive
        .ia
        .cr_accept(cr, Some(passive_ep), &[])
        .during("dat_cr_accept")?;
    for (node, other) in [(active, passive), (passive, active)] {
        match wait(ground, node, &[other], node.connections)? {
            Event::Connection {
                kind: ConnectionEventKind::Established,
                ..
            } => {}
            event => {
                return Err(Failure::operation(
                    "connecting failed",
                    format!("{event:?}"),
                ));
            }
        }
    }
    passive.ia.psp_free(service).during("dat_psp_free")
}
