//! Two adapters with any number of objects, and one connection between them to count on.

use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, FabricOptions, Limits as MockLimits, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService,
    TIMEOUT_INFINITE,
};
use dat_core::id::{CnoId, CrId, EpId, EvdId, LmrId, PspId, PzId, RmrId, RspId, SrqId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{HostLock, RawLock};
use dat_core::time::Instant;
use dat_core::{Ia, Result};
use dat_storage::{Limits, OwnedIa};

/// Requests of each endpoint.
pub(crate) const REQUESTS: i32 = 4;
/// Receives of each endpoint.
pub(crate) const RECEIVES: i32 = 4;
/// Bytes of each region.
pub(crate) const BYTES: usize = 64;
/// Objects of each kind that are created and freed again before the counts.
///
/// The tables of both the core and the mock then have room for the objects of the counted calls.
const ROOM: usize = 64;
/// Qualifier of the service point that takes connections.
const QUALIFIER: u64 = 1;
/// First qualifier of the service points that only exist.
const IDLE_QUALIFIERS: u64 = 1000;

pub(crate) type Adapter = OwnedIa<MockBackend, HostLock>;

/// Registers memory that nobody else uses at the time.
pub(crate) fn register<B: Backend, L: RawLock>(
    ia: &Ia<'_, B, L>,
    pz: PzId,
    privileges: MemoryPrivileges,
) -> Result<LmrCreated> {
    static MEMORY: [AtomicU8; BYTES] = [const { AtomicU8::new(0) }; BYTES];
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&MEMORY)),
        pz,
        privileges,
    })
}

/// One adapter, and the objects that its connections share.
pub(crate) struct Side {
    pub(crate) ia: Adapter,
    pub(crate) pz: PzId,
    /// Dispatcher of the completions of all connections, idle ones included.
    pub(crate) data: EvdId,
    pub(crate) connections: EvdId,
    pub(crate) requests: EvdId,
    pub(crate) lmr: LmrCreated,
    qualifiers: std::cell::Cell<u64>,
}

impl Side {
    fn new(fabric: &Fabric, name: &'static str, node: u64, number: usize) -> Self {
        let most = u32::MAX >> 1;
        let limits = MockLimits {
            domains: most,
            completions: most,
            shared_receive_queues: most,
            ..MockLimits::default()
        };
        let options = NodeOptions::new(name, node);
        let backend = fabric.node(NodeOptions { limits, ..options });
        let ia = Adapter::open(backend, &Limits::default(), 8).expect("an adapter opens");
        let pz = ia.pz_create().expect("a zone");
        let evd = |length: usize, flags| {
            let made = ia.evd_create(length as i32, None, flags);
            made.expect("a dispatcher")
        };
        Self {
            pz,
            data: evd(8, EvdFlags::DTO | EvdFlags::RMR_BIND),
            connections: evd(number + 2 * ROOM, EvdFlags::CONNECTION),
            requests: evd(8, EvdFlags::CR),
            lmr: register(&ia, pz, MemoryPrivileges::ALL).expect("a region"),
            ia,
            qualifiers: IDLE_QUALIFIERS.into(),
        }
    }

    pub(crate) fn endpoint_on(&self, data: EvdId) -> Result<EpId> {
        let (data, connections) = (Some(data), Some(self.connections));
        let attributes = Some(&ATTRIBUTES);
        self.ia
            .ep_create(Some(self.pz), data, data, connections, attributes)
    }

    pub(crate) fn endpoint(&self) -> Result<EpId> {
        self.endpoint_on(self.data)
    }

    pub(crate) fn endpoint_with(&self, srq: SrqId) -> Result<EpId> {
        let (data, connections) = (Some(self.data), Some(self.connections));
        self.ia
            .ep_create_with_srq(Some(self.pz), data, data, connections, srq, &ATTRIBUTES)
    }

    pub(crate) fn dispatcher(&self) -> Result<EvdId> {
        self.ia.evd_create(4, None, EvdFlags::DTO)
    }

    pub(crate) fn notification_object(&self) -> Result<CnoId> {
        self.ia.cno_create(None)
    }

    pub(crate) fn region(&self) -> Result<LmrId> {
        register(&self.ia, self.pz, MemoryPrivileges::ALL).map(|made| made.lmr)
    }

    pub(crate) fn window(&self) -> Result<RmrId> {
        self.ia.rmr_create(self.pz)
    }

    pub(crate) fn shared_queue(&self) -> Result<SrqId> {
        let attributes = SrqAttributes {
            max_recv_dtos: SHARED_RECEIVES,
            max_recv_iov: 1,
            low_watermark: 0,
        };
        self.ia.srq_create(self.pz, &attributes)
    }

    pub(crate) fn service_point(&self) -> Result<PspId> {
        let qualifier = self.qualifiers.get();
        self.qualifiers.set(qualifier + 1);
        self.ia
            .psp_create(qualifier, self.requests, PspFlags::Consumer)
    }

    /// Listens for one request, for which the provider makes an endpoint.
    pub(crate) fn reserved_service_point(&self) -> Result<RspId> {
        let qualifier = self.qualifiers.get();
        self.qualifiers.set(qualifier + 1);
        self.ia.rsp_create(qualifier, None, self.requests)
    }

    /// Returns the whole region as a local segment.
    pub(crate) fn segment(&self) -> LmrTriplet {
        LmrTriplet {
            context: self.lmr.lmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }
    }

    /// Returns the whole region as the target of the peer.
    pub(crate) fn target(&self) -> RmrTriplet {
        RmrTriplet {
            context: self.lmr.rmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }
    }

    /// Creates objects that stay idle; all kinds but endpoints.
    fn fill(&self, number: usize) {
        for index in 0..number {
            self.dispatcher().expect("a dispatcher");
            self.region().expect("a region");
            self.window().expect("a window");
            if index % HALF == 0 {
                self.service_point().expect("a service point");
                let reserved = self.reserved_service_point();
                reserved.expect("a reserved service point");
            }
            if index % TENTH == 0 {
                self.notification_object().expect("a notification object");
                self.ia.pz_create().expect("a zone");
                self.shared_queue().expect("a shared queue");
            }
        }
    }

    /// Makes room for the objects of the counted calls.
    fn make_room(&self) {
        let ia = &self.ia;
        let data = self.dispatcher().expect("a dispatcher");
        make_room(|| self.endpoint_on(data), |ep| ia.ep_free(ep));
        make_room(|| self.dispatcher(), |evd| ia.evd_free(evd));
        make_room(|| self.notification_object(), |cno| ia.cno_free(cno));
        make_room(|| ia.pz_create(), |pz| ia.pz_free(pz));
        make_room(|| self.region(), |lmr| ia.lmr_free(lmr));
        make_room(|| self.window(), |rmr| ia.rmr_free(rmr));
        make_room(|| self.shared_queue(), |srq| ia.srq_free(srq));
        make_room(|| self.service_point(), |psp| ia.psp_free(psp));
        make_room(|| self.reserved_service_point(), |rsp| ia.rsp_free(rsp));
        ia.evd_free(data).expect("nothing uses it");
    }
}

/// Number of idle objects of other kinds for one service point of either kind.
const HALF: usize = 2;
/// Number of idle objects of other kinds for one object of the rarer kinds.
const TENTH: usize = 10;
/// Receives of each shared queue.
pub(crate) const SHARED_RECEIVES: i32 = 8;

const ATTRIBUTES: EpAttributes = EpAttributes {
    max_recv_dtos: RECEIVES,
    max_request_dtos: REQUESTS,
    ..EpAttributes::DEFAULT
};

fn make_room<T>(create: impl Fn() -> Result<T>, free: impl Fn(T) -> Result<()>) {
    let made: Vec<T> = (0..ROOM).map(|_| create().expect("room for it")).collect();
    for object in made {
        free(object).expect("nothing uses it");
    }
}

/// Two adapters on one fabric.
pub(crate) struct World {
    pub(crate) fabric: Fabric,
    pub(crate) near: Side,
    pub(crate) far: Side,
    /// Connected endpoints of either side.
    pub(crate) active: (EpId, EpId),
    /// Unconnected endpoints of either side.
    pub(crate) spare: (EpId, EpId),
}

impl World {
    /// Creates `number` objects of each kind on either side; the endpoints are connected.
    pub(crate) fn new(number: usize) -> Self {
        let fabric = Fabric::new(FabricOptions::immediate());
        let near = Side::new(&fabric, "near", 1, number);
        let far = Side::new(&fabric, "far", 2, number);
        let listening = far
            .ia
            .psp_create(QUALIFIER, far.requests, PspFlags::Consumer);
        listening.expect("a service point");
        let pair = || {
            (
                near.endpoint().expect("an endpoint"),
                far.endpoint().expect("an endpoint"),
            )
        };
        let (active, spare) = (pair(), pair());
        let idle: Vec<_> = (0..number).map(|_| pair()).collect();
        let world = Self {
            fabric,
            near,
            far,
            active,
            spare,
        };
        for pair in idle {
            world.connect(pair);
        }
        for side in [&world.near, &world.far] {
            side.fill(number);
            side.make_room();
        }
        world.connect(active);
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.fabric.now()
    }

    /// Lets the network carry all that is posted.
    pub(crate) fn carry(&self) {
        while self.fabric.step() {}
    }

    /// Lets both sides and the network go on until nothing is left to do.
    pub(crate) fn settle(&self) {
        loop {
            let now = self.now();
            let handled = self.near.ia.progress(now) + self.far.ia.progress(now);
            if handled == 0 && !self.fabric.step() {
                return;
            }
        }
    }

    /// Asks for a connection.
    pub(crate) fn ask(&self, near: EpId) -> Result<()> {
        let param = ConnectParam {
            address: IaAddress::Node(2),
            qualifier: QUALIFIER,
            timeout: TIMEOUT_INFINITE,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        self.near.ia.ep_connect(near, &param, self.now())
    }

    /// Returns the connection request that the far side has.
    pub(crate) fn request(&self) -> CrId {
        let event = self.far.ia.evd_dequeue(self.far.requests);
        match event {
            Ok(Event::ConnectionRequest { cr, .. }) => cr,
            other => panic!("no connection request but {other:?}"),
        }
    }

    /// Takes a connection event of this kind from either side.
    pub(crate) fn expect(&self, expected: ConnectionEventKind) {
        for side in [&self.near, &self.far] {
            match side.ia.evd_dequeue(side.connections) {
                Ok(Event::Connection { kind, .. }) if kind == expected => {}
                other => panic!("not {expected:?} but {other:?}"),
            }
        }
    }

    /// Connects a pair of endpoints.
    pub(crate) fn connect(&self, (near, far): (EpId, EpId)) {
        self.ask(near).expect("the endpoint can connect");
        self.settle();
        let accepted = self.far.ia.cr_accept(self.request(), Some(far), b"");
        accepted.expect("the request can be accepted");
        self.settle();
        self.expect(ConnectionEventKind::Established);
    }

    /// Writes on the active connection.
    pub(crate) fn write(&self) -> Result<()> {
        self.near.ia.post_rdma_write(
            self.active.0,
            &[self.near.segment()],
            7,
            &self.far.target(),
            CompletionFlags::empty(),
        )
    }

    /// Posts a receive to the far end of the active connection.
    pub(crate) fn receive(&self) -> Result<()> {
        let segments = [self.far.segment()];
        let flags = CompletionFlags::empty();
        self.far.ia.post_recv(self.active.1, &segments, 7, flags)
    }

    /// Sends on the active connection.
    pub(crate) fn send(&self) -> Result<()> {
        let segments = [self.near.segment()];
        let flags = CompletionFlags::empty();
        self.near.ia.post_send(self.active.0, &segments, 7, flags)
    }

    /// Takes a completion from a side.
    pub(crate) fn completed(&self, side: &Side) -> Event {
        side.ia.evd_dequeue(side.data).expect("a completion")
    }
}
