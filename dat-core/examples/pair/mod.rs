// Two adapters on `backend-mock` with connected endpoints: what the examples in the documentation
// of `Ia` start from. They include this file.

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::endpoint::{ConnectParam, EpParam};
use dat_core::event::*;
use dat_core::flags::*;
use dat_core::id::*;
use dat_core::memory::*;
use dat_core::sync::{NoLock, load_bytes, store_bytes};
use dat_core::{Counts, Ia, Result};
use std::sync::atomic::AtomicU8;

dat_core::define_storage! {
    struct Slots for MockBackend, NoLock {
        protection_zones: 2,
        local_regions: 4,
        remote_regions: 2,
        event_dispatchers: 4,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        connection_requests: 2,
        events: 80,
        records: 128,
        ..Counts::NONE
    }
}

/// An adapter with one connected endpoint and 64 registered bytes.
struct Side<'s> {
    ia: Ia<'s, MockBackend, NoLock>,
    pz: PzId,
    evd: EvdId,
    ep: EpId,
    bytes: &'static [AtomicU8],
    region: LmrCreated,
}

impl<'s> Side<'s> {
    fn new(fabric: &Fabric, number: u64, slots: &'s mut Slots) -> Result<Self> {
        let backend = fabric.node(NodeOptions::new("side", number));
        let ia = Ia::open(backend, slots.lend(), 8).map_err(|refused| refused.error)?;
        let pz = ia.pz_create()?;
        let evd = ia.evd_create(16, None, EvdFlags::DEFAULT)?;
        let reads = EpAttributes {
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            ..EpAttributes::DEFAULT
        };
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&reads))?;
        let bytes: &[AtomicU8] = Box::leak(Box::new([const { AtomicU8::new(0) }; 64]));
        let region = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(bytes)),
            pz,
            privileges: MemoryPrivileges::ALL,
        })?;
        Ok(Self {
            ia,
            pz,
            evd,
            ep,
            bytes,
            region,
        })
    }

    /// The first `length` bytes, for requests of this side.
    fn local(&self, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.region.lmr_context,
            address: self.region.registered_address,
            length,
        }
    }

    /// The same bytes, for requests of the peer.
    fn remote(&self, length: u64) -> RmrTriplet {
        RmrTriplet {
            context: self.region.rmr_context,
            address: self.region.registered_address,
            length,
        }
    }

    /// Lets the fabric act, and returns the next event.
    fn next(&self, fabric: &Fabric) -> Result<Event> {
        fabric.run_until_idle(1000);
        self.ia.progress(fabric.now());
        self.ia.evd_dequeue(self.evd)
    }
}

/// Runs an example on two sides whose endpoints are connected.
fn connected(example: impl FnOnce(&Fabric, &Side<'_>, &Side<'_>) -> Result<()>) {
    apart(|fabric, a, b| {
        b.ia.psp_create(7, b.evd, PspFlags::Consumer)?;
        let request = ConnectParam {
            address: IaAddress::Node(2),
            qualifier: 7,
            timeout: TIMEOUT_INFINITE,
            private_data: b"",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        a.ia.ep_connect(a.ep, &request, fabric.now())?;
        let Event::ConnectionRequest { cr, .. } = b.next(fabric)? else {
            panic!("no request")
        };
        b.ia.cr_accept(cr, Some(b.ep), b"")?;
        assert!(matches!(a.next(fabric)?, Event::Connection { .. }));
        assert!(matches!(b.next(fabric)?, Event::Connection { .. }));
        example(fabric, a, b)
    });
}

/// Runs an example on two sides, which are not connected.
fn apart(example: impl FnOnce(&Fabric, &Side<'_>, &Side<'_>) -> Result<()>) {
    let fabric = Fabric::new(FabricOptions::default());
    let (mut slots_a, mut slots_b) = (Slots::new(), Slots::new());
    let run = || {
        let a = Side::new(&fabric, 1, &mut slots_a)?;
        let b = Side::new(&fabric, 2, &mut slots_b)?;
        example(&fabric, &a, &b)
    };
    let done: Result<()> = run();
    done.unwrap();
}
