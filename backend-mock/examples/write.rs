//! Two endpoints in one process: they connect, and one writes to the other's memory.
//!
//! `cargo run -p backend-mock --example write`

use std::error::Error;
use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{HostLock, load_bytes, store_bytes};

dat_core::define_storage! {
    /// Storage of an adapter; `events` is the lengths of both dispatchers together.
    struct Storage for MockBackend, HostLock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 2,
        notification_objects: 2,
        endpoints: 1,
        shared_receive_queues: 0,
        public_service_points: 1,
        reserved_service_points: 1,
        connection_requests: 1,
        events: 20,
        records: 32,
    }
}

static SOURCE: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
static TARGET: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];

fn main() -> Result<(), Box<dyn Error>> {
    // A fabric with two adapters, A and B. This program lends them all their memory.
    let fabric = Fabric::new(FabricOptions::default());
    let mut wait = MockWait::new(&fabric);
    let (mut storage_a, mut storage_b) = (Storage::new(), Storage::new());
    let a = Ia::open(fabric.node(NodeOptions::new("a", 1)), storage_a.lend(), 4)?;
    let b = Ia::open(fabric.node(NodeOptions::new("b", 2)), storage_b.lend(), 4)?;

    // Each has a protection zone, a dispatcher for events of all kinds, and an endpoint.
    let (zone_a, zone_b) = (a.pz_create()?, b.pz_create()?);
    let evd_a = a.evd_create(16, None, EvdFlags::DEFAULT)?;
    let evd_b = b.evd_create(16, None, EvdFlags::DEFAULT)?;
    let (to_a, to_b) = (Some(evd_a), Some(evd_b));
    let ep_a = a.ep_create(Some(zone_a), to_a, to_a, to_a, None)?;
    let ep_b = b.ep_create(Some(zone_b), to_b, to_b, to_b, None)?;

    // B listens at qualifier 7, A requests a connection, B accepts, and both get an event.
    b.psp_create(7, evd_b, PspFlags::Consumer)?;
    let request = ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data: b"it is A",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    a.ep_connect(ep_a, &request, fabric.now())?;
    match b.evd_wait_until(evd_b, 1, None, &mut wait)?.event {
        Event::ConnectionRequest { cr, .. } => b.cr_accept(cr, Some(ep_b), &[])?,
        other => return Err(format!("{other:?} instead of a connection request").into()),
    }
    for (ia, evd) in [(&a, evd_a), (&b, evd_b)] {
        let Event::Connection { kind, .. } = ia.evd_wait_until(evd, 1, None, &mut wait)?.event
        else {
            return Err("something else than the connection".into());
        };
        assert_eq!(kind, ConnectionEventKind::Established);
    }

    // Only A may read its memory. Peers may write B's memory; they need its context and address.
    let source = a.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&SOURCE)),
        pz: zone_a,
        privileges: MemoryPrivileges::LOCAL_READ,
    })?;
    let target = b.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&TARGET)),
        pz: zone_b,
        privileges: MemoryPrivileges::REMOTE_WRITE,
    })?;
    let segment = |offset, length| LmrTriplet {
        context: source.lmr_context,
        address: source.registered_address + offset,
        length,
    };
    let remote = RmrTriplet {
        context: target.rmr_context,
        address: target.registered_address,
        length: target.registered_size,
    };

    // Three segments of A's memory arrive as one range. B does nothing for it and gets no event.
    store_bytes(&SOURCE, b"bytes real move.");
    let segments = [segment(6, 5), segment(0, 5), segment(10, 6)];
    a.post_rdma_write(ep_a, &segments, 42, &remote, CompletionFlags::empty())?;
    let Event::Dto(done) = a.evd_wait_until(evd_a, 1, None, &mut wait)?.event else {
        return Err("something else than the completion".into());
    };
    assert_eq!((done.cookie, done.status), (42, DtoStatus::Success));
    let mut arrived = [0; 16];
    load_bytes(&TARGET, &mut arrived);
    println!("B reads: {}", String::from_utf8_lossy(&arrived));
    assert_eq!(&arrived, b"real bytes move.");

    // The call refuses a segment that leaves its region; nothing is posted.
    let refused = a.post_rdma_write(
        ep_a,
        &[segment(60, 5)],
        43,
        &remote,
        CompletionFlags::empty(),
    );
    println!("one byte too far: {}", refused.unwrap_err());
    Ok(())
}
