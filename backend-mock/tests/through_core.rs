//! The whole way: the core's calls over the fabric.

use core::sync::atomic::{AtomicU8, Ordering};

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;

type MockIa<'s> = Ia<'s, MockBackend, HostLock>;

dat_core::define_storage! {
    struct Storage for MockBackend, HostLock {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: 4,
        notification_objects: 4,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 64,
    }
}

/// Room for three adapters would be large for a test's stack.
fn storage() -> Box<Storage> {
    Box::new(Storage::new())
}

fn open(storage: &mut Storage, backend: MockBackend) -> MockIa<'_> {
    match Ia::open(backend, storage.lend(), 8) {
        Ok(ia) => ia,
        Err(refused) => panic!("{:?}", refused.error),
    }
}

/// A protection zone, a dispatcher for everything, and an endpoint.
fn configure(ia: &MockIa<'_>) -> (PzId, EvdId, EpId) {
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(16, None, EvdFlags::DEFAULT).unwrap();
    let all = Some(evd);
    let ep = ia.ep_create(Some(pz), all, all, all, None).unwrap();
    (pz, evd, ep)
}

/// Lets everybody go on until this dispatcher has an event.
fn next(fabric: &Fabric, adapters: &[&MockIa<'_>], of: &MockIa<'_>, evd: EvdId) -> Event {
    loop {
        for ia in adapters {
            ia.progress(fabric.now());
        }
        if let Ok(event) = of.evd_dequeue(evd) {
            return event;
        }
        assert!(fabric.step(), "nothing more will happen");
    }
}

/// Spec: EPK-06, CRA-03, EPW-10, EPW-19, EPW-22, EPW-42
#[test]
fn an_rdma_write_through_the_core() {
    for seed in 0..8 {
        println!("seed {seed}");
        let fabric = Fabric::new(FabricOptions {
            seed,
            ..FabricOptions::default()
        });
        let (mut near_storage, mut far_storage) = (storage(), storage());
        let near = open(&mut near_storage, fabric.node(NodeOptions::new("near", 1)));
        let far = open(&mut far_storage, fabric.node(NodeOptions::new("far", 2)));
        let both = [&near, &far];
        let (near_pz, near_evd, near_ep) = configure(&near);
        let (far_pz, far_evd, far_ep) = configure(&far);

        far.psp_create(7, far_evd, PspFlags::Consumer).unwrap();
        let param = ConnectParam {
            address: IaAddress::Node(2),
            qualifier: 7,
            timeout: 1_000_000,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        near.ep_connect(near_ep, &param, fabric.now()).unwrap();
        let Event::ConnectionRequest { cr, .. } = next(&fabric, &both, &far, far_evd) else {
            panic!("no connection request");
        };
        far.cr_accept(cr, Some(far_ep), b"").unwrap();
        for (ia, evd) in [(&near, near_evd), (&far, far_evd)] {
            let event = next(&fabric, &both, ia, evd);
            let established = ConnectionEventKind::Established;
            assert!(matches!(event, Event::Connection { kind, .. } if kind == established));
        }

        let memory = |first: u8| -> &'static [AtomicU8] {
            Vec::leak((0..64).map(|byte| AtomicU8::new(first + byte)).collect())
        };
        let (source, target) = (memory(1), memory(100));
        let register = |ia: &MockIa<'_>, pz, memory| {
            let request = LmrRequest {
                memory: LmrMemory::Virtual(Region::from_static(memory)),
                pz,
                privileges: MemoryPrivileges::ALL,
            };
            ia.lmr_create(&request).unwrap()
        };
        let local = register(&near, near_pz, source);
        let remote = register(&far, far_pz, target);
        let segment = LmrTriplet {
            context: local.lmr_context,
            address: local.registered_address,
            length: 64,
        };
        let range = RmrTriplet {
            context: remote.rmr_context,
            address: remote.registered_address,
            length: 64,
        };
        let flags = CompletionFlags::empty();
        near.post_rdma_write(near_ep, &[segment], 0xC00C, &range, flags)
            .unwrap();
        let Event::Dto(completion) = next(&fabric, &both, &near, near_evd) else {
            panic!("no completion");
        };
        assert_eq!(
            (completion.ep, completion.cookie, completion.status),
            (near_ep, 0xC00C, DtoStatus::Success)
        );
        assert_eq!(completion.transferred_length, 64);
        for (from, to) in source.iter().zip(target) {
            assert_eq!(from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
        }

        // A key that is wrong: the peer finds out, and both lose the connection.
        let wrong = RmrTriplet {
            context: !remote.rmr_context,
            ..range
        };
        near.post_rdma_write(near_ep, &[segment], 2, &wrong, flags)
            .unwrap();
        let Event::Dto(completion) = next(&fabric, &both, &near, near_evd) else {
            panic!("no completion");
        };
        assert_eq!(completion.status, DtoStatus::RemoteAccess);
        for (ia, evd) in [(&near, near_evd), (&far, far_evd)] {
            let event = next(&fabric, &both, ia, evd);
            let broken = ConnectionEventKind::Broken;
            assert!(matches!(event, Event::Connection { kind, .. } if kind == broken));
        }
    }
}
