//! Two adapters with connected endpoints, the start of the other examples.
//!
//! `write.rs` does the same step by step.

use std::error::Error;
use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, MockBackend, MockWait, NodeOptions};
use dat_core::Ia;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::HostLock;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

dat_core::define_storage! {
    /// Storage of an adapter.
    pub(crate) struct Storage for MockBackend, HostLock {
        protection_zones: 2,
        local_regions: 2,
        remote_regions: 2,
        event_dispatchers: 3,
        notification_objects: 3,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 21,
        records: 64,
    }
}

/// An adapter with a protection zone and a dispatcher for events of all kinds.
pub(crate) struct Node<'s> {
    pub(crate) ia: Ia<'s, MockBackend, HostLock>,
    pub(crate) zone: PzId,
    pub(crate) evd: EvdId,
    address: IaAddress,
    fabric: Fabric,
}

impl<'s> Node<'s> {
    pub(crate) fn open(
        fabric: &Fabric,
        options: NodeOptions,
        storage: &'s mut Storage,
    ) -> Result<Self> {
        let ia = Ia::open(fabric.node(options), storage.lend(), 4)?;
        Ok(Self {
            zone: ia.pz_create()?,
            evd: ia.evd_create(16, None, EvdFlags::DEFAULT)?,
            ia,
            address: options.address,
            fabric: fabric.clone(),
        })
    }

    /// Waits for the next event, and lets the fabric act meanwhile.
    pub(crate) fn next(&self) -> Result<Event> {
        let mut wait = MockWait::new(&self.fabric);
        Ok(self.ia.evd_wait_until(self.evd, 1, None, &mut wait)?.event)
    }

    /// Creates an endpoint that may have one pending RDMA Read in each direction.
    ///
    /// Without attributes it may have none.
    pub(crate) fn endpoint(&self) -> Result<EpId> {
        let attributes = EpAttributes {
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            ..EpAttributes::DEFAULT
        };
        let (zone, evd) = (Some(self.zone), Some(self.evd));
        let created = self.ia.ep_create(zone, evd, evd, evd, Some(&attributes));
        Ok(created?)
    }

    pub(crate) fn register(
        &self,
        memory: &'static [AtomicU8],
        privileges: MemoryPrivileges,
    ) -> Result<LmrCreated> {
        Ok(self.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(memory)),
            pz: self.zone,
            privileges,
        })?)
    }
}

/// Connects an endpoint of one node to one of another, which listens at the qualifier.
///
/// The listener is freed afterwards.
pub(crate) fn connect<'s>(
    (active, from): (&Node<'s>, EpId),
    (passive, to): (&Node<'s>, EpId),
    qualifier: u64,
) -> Result<()> {
    let service = passive
        .ia
        .psp_create(qualifier, passive.evd, PspFlags::Consumer)?;
    let request = ConnectParam {
        address: passive.address,
        qualifier,
        timeout: TIMEOUT_INFINITE,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    active.ia.ep_connect(from, &request, active.fabric.now())?;
    match passive.next()? {
        Event::ConnectionRequest { cr, .. } => passive.ia.cr_accept(cr, Some(to), &[])?,
        other => return Err(format!("{other:?} instead of a connection request").into()),
    }
    for node in [active, passive] {
        match node.next()? {
            Event::Connection {
                kind: ConnectionEventKind::Established,
                ..
            } => {}
            other => return Err(format!("{other:?} instead of a connection").into()),
        }
    }
    Ok(passive.ia.psp_free(service)?)
}
