//! Regions of an adapter whose device reads segments at post, beside endpoints that have posted.

use dat_bench::{LoopDevice, Rings};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    CompletionFlags, ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_storage::{Limits, OwnedIa};

use crate::count::Counter;
use crate::world::{BYTES, register};

/// The queues of the ring device, declared to read segments at post.
type Reading = &'static Rings<true>;

/// An adapter with the handles that its endpoints share.
struct Posters {
    ia: OwnedIa<LoopDevice<Reading>, HostLock>,
    rings: Reading,
    pz: PzId,
    data: EvdId,
    connections: EvdId,
    segment: LmrTriplet,
    remote: RmrTriplet,
}

impl Posters {
    fn new() -> Self {
        let rings: Reading = Box::leak(Box::new(Rings::new()));
        let device = LoopDevice::new(rings);
        let ia = OwnedIa::<_, HostLock>::open(device, &Limits::default(), 8).expect("opens");
        let pz = ia.pz_create().expect("a zone");
        let data = ia.evd_create(8, None, EvdFlags::DTO).expect("a dispatcher");
        let connections = ia
            .evd_create(8, None, EvdFlags::CONNECTION)
            .expect("a dispatcher");
        let lmr = register(&ia, pz, MemoryPrivileges::ALL).expect("a region");
        let (address, length) = (lmr.registered_address, BYTES as u64);
        Self {
            ia,
            rings,
            pz,
            data,
            connections,
            segment: LmrTriplet {
                context: lmr.lmr_context,
                address,
                length,
            },
            remote: RmrTriplet {
                context: lmr.rmr_context,
                address,
                length,
            },
        }
    }

    /// Returns a connected endpoint, to which the device completes until there is a later one.
    fn connected(&self) -> EpId {
        let attributes = EpAttributes {
            max_recv_dtos: 1,
            max_request_dtos: 1,
            ..EpAttributes::DEFAULT
        };
        let (data, connections) = (Some(self.data), Some(self.connections));
        let ep = self
            .ia
            .ep_create(Some(self.pz), data, data, connections, Some(&attributes))
            .expect("an endpoint");
        let param = ConnectParam {
            address: IaAddress::Node(0),
            qualifier: 1,
            timeout: TIMEOUT_INFINITE,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        let connecting = self.ia.ep_connect(ep, &param, Instant::ZERO);
        connecting.expect("the endpoint can connect");
        self.ia.progress(Instant::ZERO);
        self.ia.evd_dequeue(self.connections).expect("connected");
        ep
    }

    /// Posts a write, and dequeues its completion.
    fn write(&self, ep: EpId) {
        let flags = CompletionFlags::empty();
        self.ia
            .post_rdma_write(ep, &[self.segment], 7, &self.remote, flags)
            .expect("there is room");
        self.rings.complete_all();
        self.ia.evd_dequeue(self.data).expect("the write completed");
    }
}

/// Counts the calls of regions beside `number` endpoints, each of which has posted.
pub(crate) fn count(number: usize, counter: &Counter) {
    let posters = Posters::new();
    let mut last = EpId::NULL;
    for _ in 0..number {
        last = posters.connected();
        posters.write(last);
    }
    counter.start("READS_AT_POST");
    let Posters { ia, pz, .. } = &posters;
    let mut made = Vec::new();
    let create = |()| register(ia, *pz, MemoryPrivileges::ALL).expect("a region");
    let free = |lmr| ia.lmr_free(lmr).expect("a region to free");
    counter.row(
        "lmr_create, READS_AT_POST",
        || {},
        create,
        |lmr| made.push(lmr.lmr),
    );
    counter.row(
        "lmr_free, READS_AT_POST",
        || made.pop().expect("one for each call"),
        free,
        drop,
    );
    counter.row(
        "lmr_create after a post, READS_AT_POST",
        || posters.write(last),
        create,
        |lmr| made.push(lmr.lmr),
    );
    counter.row(
        "lmr_free after a post, READS_AT_POST",
        || {
            posters.write(last);
            made.pop().expect("one for each call")
        },
        free,
        drop,
    );
    counter.stop("READS_AT_POST");
}
