//! Two adapters connect over loop-back, and one writes to the memory of the other.
//!
//! `cargo run -p backend-roce --features udp --example write`

use std::sync::atomic::AtomicU8;

use backend_roce::{RoceBackend, RoceOptions, RoceWait};
use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{Event, ThreadWait};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{HostLock, load_bytes, store_bytes};
use dat_storage::{Limits, OwnedIa};

static SOURCE: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
static TARGET: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];

/// An adapter with a dispatcher, an endpoint and registered memory.
struct Side {
    ia: OwnedIa<RoceBackend, HostLock>,
    wait: RoceWait,
    address: IaAddress,
    evd: EvdId,
    ep: EpId,
    region: LmrCreated,
}

impl Side {
    fn open(memory: &'static [AtomicU8]) -> Result<Self, Box<dyn std::error::Error>> {
        // Sockets at a free port, and a thread that serves them.
        let backend = RoceBackend::open("127.0.0.1:0".parse()?, RoceOptions::random()?)?;
        let wait = backend.driver().wait();
        let address = backend.ia_attributes().ia_address;
        let ia = OwnedIa::open(backend, &Limits::default(), 16)?;
        let pz = ia.pz_create()?;
        let evd = ia.evd_create(16, None, EvdFlags::DEFAULT)?;
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
        let region = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(memory)),
            pz,
            privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::REMOTE_WRITE,
        })?;
        Ok(Self {
            ia,
            wait,
            address,
            evd,
            ep,
            region,
        })
    }

    fn next(&mut self) -> dat_core::Result<Event> {
        Ok(self
            .ia
            .evd_wait_until(self.evd, 1, None, &mut self.wait)?
            .event)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut near, mut far) = (Side::open(&SOURCE)?, Side::open(&TARGET)?);
    far.ia.psp_create(7, far.evd, PspFlags::Consumer)?;
    let request = ConnectParam {
        address: far.address,
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data: b"",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    near.ia.ep_connect(near.ep, &request, ThreadWait::clock())?;
    let Event::ConnectionRequest { cr, .. } = far.next()? else {
        panic!("no request");
    };
    far.ia.cr_accept(cr, Some(far.ep), b"")?;
    assert!(matches!(near.next()?, Event::Connection { .. }));

    store_bytes(&SOURCE, b"hello");
    let source = LmrTriplet {
        context: near.region.lmr_context,
        address: near.region.registered_address,
        length: 5,
    };
    let target = RmrTriplet {
        context: far.region.rmr_context,
        address: far.region.registered_address,
        length: 5,
    };
    near.ia
        .post_rdma_write(near.ep, &[source], 42, &target, CompletionFlags::empty())?;
    let Event::Dto(done) = near.next()? else {
        panic!("no completion");
    };
    assert_eq!((done.cookie, done.status), (42, DtoStatus::Success));
    let mut arrived = [0; 5];
    load_bytes(&TARGET, &mut arrived);
    assert_eq!(&arrived, b"hello");
    Ok(())
}
