//! Connections of RoCEv2 through queues in memory: data on one beside many idle ones.

use std::net::Ipv4Addr;

use backend_roce::{PathChoice, RoceBackend, RoceOptions};
use dat_core::Result;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::Event;
use dat_core::flags::{
    CompletionFlags, ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_storage::{Limits, OwnedIa};

use crate::count::Counter;
use crate::world::{BYTES, register};

/// Most connections of the measurement; an adapter has room for twice as many.
const MOST: usize = 10_000;

const QUALIFIER: u64 = 20_184;

/// An adapter without a thread, and the handles that its endpoints share.
struct Side {
    ia: OwnedIa<RoceBackend, HostLock>,
    address: IaAddress,
    pz: PzId,
    data: EvdId,
    connections: EvdId,
    lmr: LmrCreated,
}

impl Side {
    fn new(last: u8) -> Self {
        let mut options = RoceOptions::random().expect("random bytes");
        options.polled = true;
        options.path = PathChoice::Local;
        options.connections = 2 * MOST;
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, last, high, low);
        let backend = RoceBackend::open((ip, 0).into(), options).expect("an adapter");
        let address = backend.ia_attributes().ia_address;
        let ia = OwnedIa::<_, HostLock>::open(backend, &Limits::default(), 8).expect("opens");
        let pz = ia.pz_create().expect("a zone");
        let data = ia
            .evd_create(64, None, EvdFlags::DTO)
            .expect("a dispatcher");
        let kinds = EvdFlags::CONNECTION | EvdFlags::CR;
        let connections = ia.evd_create(64, None, kinds).expect("a dispatcher");
        let lmr = register(&ia, pz, MemoryPrivileges::ALL).expect("a region");
        Self {
            ia,
            address,
            pz,
            data,
            connections,
            lmr,
        }
    }

    fn endpoint(&self) -> EpId {
        let attributes = EpAttributes {
            max_recv_dtos: 1,
            max_request_dtos: 1,
            ..EpAttributes::DEFAULT
        };
        let (data, connections) = (Some(self.data), Some(self.connections));
        let ep = self
            .ia
            .ep_create(Some(self.pz), data, data, connections, Some(&attributes));
        ep.expect("an endpoint")
    }

    fn segment(&self) -> [LmrTriplet; 1] {
        [LmrTriplet {
            context: self.lmr.lmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }]
    }

    fn target(&self) -> RmrTriplet {
        RmrTriplet {
            context: self.lmr.rmr_context,
            address: self.lmr.registered_address,
            length: BYTES as u64,
        }
    }

    /// Polls for an event of a connection.
    fn connected(&self) -> Result<Event> {
        self.ia.progress(Instant::ZERO);
        self.ia.evd_dequeue(self.connections)
    }
}

/// Connects an endpoint of either side.
fn connect(near: &Side, far: &Side) -> [EpId; 2] {
    let ends = [near, far].map(Side::endpoint);
    let param = ConnectParam {
        address: far.address,
        qualifier: QUALIFIER,
        timeout: 60_000_000,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    let begun = near.ia.ep_connect(ends[0], &param, Instant::ZERO);
    begun.expect("the endpoint can connect");
    let mut made = 0;
    while made < 2 {
        made += usize::from(near.connected().is_ok());
        match far.connected() {
            Ok(Event::ConnectionRequest { cr, .. }) => {
                let accepted = far.ia.cr_accept(cr, Some(ends[1]), &[]);
                accepted.expect("an acceptance");
            }
            other => made += usize::from(other.is_ok()),
        }
    }
    ends
}

/// Polls both sides until one has a completion.
fn complete(from: &Side, other: &Side) {
    while from.ia.evd_dequeue(from.data).is_err() {
        let _ = other.ia.evd_dequeue(other.data);
    }
}

/// Counts data on one connection beside `number` idle ones.
pub(crate) fn count(number: usize, counter: &Counter) {
    let (near, far) = (Side::new(77), Side::new(78));
    let listened = far
        .ia
        .psp_create(QUALIFIER, far.connections, PspFlags::Consumer);
    listened.expect("a service point");
    for _ in 0..number.min(MOST) {
        connect(&near, &far);
    }
    let [from, to] = connect(&near, &far);
    let none = CompletionFlags::empty();
    counter.start("local way");
    counter.row(
        "write by the local way, both sides",
        || {},
        |()| {
            let (local, remote) = (near.segment(), far.target());
            let posted = near.ia.post_rdma_write(from, &local, 1, &remote, none);
            posted.expect("there is room");
            complete(&near, &far);
        },
        drop,
    );
    counter.row(
        "message by the local way, both sides",
        || {
            let received = far.ia.post_recv(to, &far.segment(), 2, none);
            received.expect("there is room");
        },
        |()| {
            let posted = near.ia.post_send(from, &near.segment(), 3, none);
            posted.expect("there is room");
            complete(&far, &near);
        },
        // Its acknowledgement, or that of the call before.
        |()| complete(&near, &far),
    );
    counter.stop("local way");
}
