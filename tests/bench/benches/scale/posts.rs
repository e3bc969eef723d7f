//! Regions of an adapter whose device reads segments at post, beside endpoints that have posted.

use dat_bench::{LoopDevice, Rings};
use dat_core::attributes::IaAddress;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::EpId;
use dat_core::time::Instant;

use crate::bed::Bed;
use crate::count::Counter;
use crate::world::register;

/// The queues of the ring device, declared to read segments at post.
type Reading = &'static Rings<true>;

/// An adapter on the ring device.
struct Posters {
    bed: Bed<LoopDevice<Reading>>,
    rings: Reading,
}

impl Posters {
    fn new() -> Self {
        let rings: Reading = Box::leak(Box::new(Rings::new()));
        let bed = Bed::open(LoopDevice::new(rings));
        Self { bed, rings }
    }

    /// Returns a connected endpoint, to which the device completes until there is a later one.
    fn connected(&self) -> EpId {
        let Bed {
            ia, connections, ..
        } = &self.bed;
        let ep = self.bed.endpoint();
        self.bed.connect(ep, IaAddress::Node(0), 1);
        ia.progress(Instant::ZERO);
        ia.evd_dequeue(*connections).expect("connected");
        ep
    }

    /// Posts a write, and dequeues its completion.
    fn write(&self, ep: EpId) {
        let Bed { ia, data, .. } = &self.bed;
        let (segment, target) = (self.bed.segment(), self.bed.target());
        ia.post_rdma_write(ep, &segment, 7, &target, CompletionFlags::empty())
            .expect("there is room");
        self.rings.complete_all();
        ia.evd_dequeue(*data).expect("the write completed");
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
    let Bed { ia, pz, .. } = &posters.bed;
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
