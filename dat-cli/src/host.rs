//! Adapters on this host: storage, memory to register, connected endpoints.

use std::sync::atomic::{AtomicU8, Ordering};

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::HostBackend;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId, SrqId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{HostLock, RawLock, load_bytes, store_bytes};
use dat_core::time::Instant;
use dat_core::{ErrorKind, Ia};
use dat_storage::{Limits, OwnedIa};

use crate::failure::{During, Failure, FailureKind, Result, of_call};
use crate::size::size;

/// Maximum total bytes of the buffers of one side.
pub(crate) const MOST_MEMORY: u64 = 1 << 30;

/// The medium between two adapters of this process that one thread drives.
pub(crate) trait Ground {
    /// The backend of the adapters.
    type Backend: HostBackend;

    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Lets one thing happen on the network; returns false if nothing is left to happen.
    fn step(&self) -> bool;

    /// Called after each poll for completions; `found` tells if one came.
    ///
    /// # Errors
    /// - Operation: no event has come for too long.
    fn looked(&self, _found: bool) -> Result<()> {
        Ok(())
    }

    /// Returns true if `looked` fails when no event comes for too long.
    fn gives_up(&self) -> bool {
        false
    }
}

/// The network of commands without a device, in this process.
pub(crate) type InProcess = Fabric;

/// The backend of its adapters.
pub(crate) type InProcessBackend = MockBackend;

/// The name of the in-process network in reports.
pub(crate) const MOCK: &str = "mock";

/// Creates an in-process network on which a poll finds its operation complete.
pub(crate) fn at_once() -> Fabric {
    Fabric::new(FabricOptions {
        poll_steps: true,
        ..FabricOptions::immediate()
    })
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

/// An open adapter with its storage.
pub(crate) type Adapter<B = MockBackend> = OwnedIa<B, HostLock>;

/// Sizes that the tables of a small adapter start with.
pub(crate) const LIMITS: Limits = Limits {
    endpoints: 4,
    dispatchers: 8,
    notification_objects: 1,
    shared_receive_queues: 1,
    service_points: 1,
    connection_requests: 4,
    // A server has one zone for each client.
    zones: 6,
    local_regions: 16,
    remote_regions: 16,
    events: EVENTS,
    records: 512,
};

/// Event slots for the dispatchers of a node.
const EVENTS: usize = 256;
/// Minimum length of an adapter's queue of asynchronous events.
const ASYNC_EVENTS: i32 = 16;
/// Alignment of memory to register, and the interval at which its pages are touched.
pub(crate) const PAGE: usize = 4096;

/// Length in bytes of the number that marks the data of an operation.
pub(crate) const STAMP: usize = 4;

/// Checks that buffers of `bytes` bytes in total can be allocated.
///
/// The check comes before the first buffer, because registered memory is never freed. `remedy` gets
/// the number of bytes that would fit. A system that overcommits memory only refuses sizes above a
/// limit.
///
/// # Errors
/// - Memory: the system refuses the allocation.
pub(crate) fn room(bytes: u64, remedy: impl FnOnce(u64) -> String) -> Result<()> {
    // Reserve for all memory that is not a buffer.
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
            "the system refused to allocate {} for the buffers",
            size(bytes)
        ),
        remedy: remedy(fitting),
    })
}

/// Opens an adapter on a backend.
pub(crate) fn open<B: HostBackend>(backend: B, limits: &Limits) -> Result<Adapter<B>> {
    OwnedIa::open(backend, limits, ASYNC_EVENTS).map_err(|refused| not_opened(refused.error))
}

pub(crate) fn not_opened(error: dat_core::Error) -> Failure {
    of_call("dat_ia_open", error)
}

/// An open adapter with a protection zone and one event dispatcher per purpose.
pub(crate) struct Node<B: HostBackend = MockBackend> {
    pub(crate) ia: Adapter<B>,
    pub(crate) address: IaAddress,
    pub(crate) zone: PzId,
    /// Completions of requests and binds.
    pub(crate) requests: EvdId,
    /// Completions of receives.
    pub(crate) receives: EvdId,
    /// Connection events.
    pub(crate) connections: EvdId,
    /// Connection requests.
    pub(crate) arrivals: EvdId,
}

impl Node {
    /// Opens an adapter on an in-process network.
    pub(crate) fn open(
        network: &InProcess,
        name: &'static str,
        number: u64,
        limits: &Limits,
    ) -> Result<Self> {
        let options = NodeOptions::new(name, number);
        Self::over(network.node(options), options.address, limits)
    }
}

impl<B: HostBackend> Node<B> {
    /// Opens an adapter on a backend that peers reach at `address`.
    pub(crate) fn over(backend: B, address: IaAddress, limits: &Limits) -> Result<Self> {
        let ia = open(backend, limits)?;
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

    /// Registers memory in a zone.
    pub(crate) fn register_in(
        &self,
        zone: PzId,
        memory: Memory,
        privileges: MemoryPrivileges,
    ) -> Result<Registered> {
        register(&self.ia, zone, memory, privileges).during("dat_lmr_create")
    }

    /// Creates an endpoint on the node's dispatchers, with the given shared receive queue if any.
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
    ia: &Ia<'_, B, HostLock>,
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
        context: created.lmr_context,
        remote_context: created.rmr_context,
    })
}

/// Shared mutable memory that lives as long as the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    bytes: &'static [AtomicU8],
}

impl Memory {
    /// Allocates `length` zero bytes that start at a page boundary.
    pub(crate) fn new(length: usize) -> Self {
        let all: Box<[_]> = std::iter::repeat_with(|| AtomicU8::new(0))
            .take(length + PAGE - 1)
            .collect();
        let all: &'static [AtomicU8] = Box::leak(all);
        let start = all.as_ptr().align_offset(PAGE).min(PAGE - 1);
        let bytes = all.get(start..start + length).unwrap_or_default();
        // The first store to a page maps it; touching it here keeps that time out of the transfers.
        for byte in bytes.iter().step_by(PAGE) {
            byte.store(0, Ordering::Relaxed);
        }
        Self { bytes }
    }

    /// Returns the first `length` bytes, or all bytes if there are fewer.
    pub(crate) fn start(self, length: usize) -> Self {
        Self {
            bytes: self.bytes.get(..length).unwrap_or(self.bytes),
        }
    }
    /// Returns the whole memory as a region to register.
    pub(crate) fn region(self) -> Region {
        Region::from_static(self.bytes)
    }

    /// Stores bytes at `offset`; drops those that do not fit.
    pub(crate) fn store(self, offset: usize, from: &[u8]) {
        store_bytes(self.bytes.get(offset..).unwrap_or_default(), from);
    }

    /// Stores the lowest [`STAMP`] bytes of a number at `offset`, cut off at `end`.
    #[inline]
    pub(crate) fn stamp(self, offset: usize, end: usize, number: u64) {
        stamp(self.bytes.get(offset..end).unwrap_or_default(), number);
    }

    /// Loads bytes from `offset` up to the end of the memory or of `into`.
    pub(crate) fn load(self, offset: usize, into: &mut [u8]) {
        load_bytes(self.bytes.get(offset..).unwrap_or_default(), into);
    }
}

/// Stores the lowest [`STAMP`] bytes of a number at the start of memory, as far as they fit.
#[inline]
pub(crate) fn stamp(memory: &[AtomicU8], number: u64) {
    let bytes = number.to_le_bytes();
    // With enough room the length is a constant, and the loop is unrolled.
    if let Some(stamp) = memory.first_chunk::<STAMP>() {
        for (to, byte) in stamp.iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
    } else {
        for (to, byte) in memory.iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
    }
}

/// Registered memory with its contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) memory: Memory,
    pub(crate) context: u32,
    pub(crate) remote_context: u32,
}

impl Registered {
    fn address(&self, offset: usize) -> u64 {
        self.memory.region().address().wrapping_add(offset as u64)
    }

    /// Returns a segment for the consumer that registered the memory; does not check its bounds.
    pub(crate) fn segment(&self, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.context,
            address: self.address(offset),
            length: length as u64,
        }
    }

    /// Returns a segment for the peer; does not check its bounds.
    pub(crate) fn remote(&self, offset: usize, length: usize) -> RmrTriplet {
        self.remote_through(self.remote_context, offset, length)
    }

    /// Returns a segment for the peer under another context.
    pub(crate) fn remote_through(&self, context: u32, offset: usize, length: usize) -> RmrTriplet {
        RmrTriplet {
            context,
            address: self.address(offset),
            length: length as u64,
        }
    }
}

/// Takes the next event of a dispatcher, if one is queued.
pub(crate) fn dequeue<B: HostBackend, L: RawLock>(
    ia: &Ia<'_, B, L>,
    evd: EvdId,
) -> Result<Option<Event>> {
    match ia.evd_dequeue(evd) {
        Ok(event) => Ok(Some(event)),
        Err(error) => nothing(error),
    }
}

/// Maps QUEUE_EMPTY to `None`, and any other error of a dequeue to a failure.
#[inline]
pub(crate) fn nothing<T>(error: dat_core::Error) -> Result<Option<T>> {
    if error.kind() == ErrorKind::QueueEmpty {
        return Ok(None);
    }
    Err(Failure::operation("dat_evd_dequeue failed", error))
}

/// Waits for the next event of a dispatcher of `node`, and drives `others` meanwhile.
pub(crate) fn wait<G: Ground>(
    ground: &G,
    node: &Node<G::Backend>,
    others: &[&Node<G::Backend>],
    evd: EvdId,
) -> Result<Event> {
    // Maximum steps without an event on this dispatcher; connecting takes about ten.
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
        "no event arrived, and no operation is pending",
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
            format!("expected a connection request, received {request:?}"),
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
