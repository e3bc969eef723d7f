//! The configuration of both images, and the set-up that they share.

use core::sync::atomic::AtomicU8;

use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::endpoint::ConnectParam;
use dat_core::error::Cause;
use dat_core::event::Event;
use dat_core::flags::{ConnectFlags, MemoryPrivileges, QualityOfService, TIMEOUT_INFINITE};
use dat_core::id::{CrId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::{ContextLock, CriticalSectionLock, SplitLock};
use dat_core::{Error, Ia, Result};

use crate::still::{Backend, DISPATCHERS, PAIRS, POSTS, REGIONS, SEGMENTS, SHARED, WINDOWS, ZONES};

/// Data calls mask interrupts, control calls do not.
pub(crate) type Lock = SplitLock<CriticalSectionLock, ContextLock>;
pub(crate) type Adapter<'a> = Ia<'a, Backend, Lock>;

/// Service points of both kinds, connection requests, and notification objects.
pub(crate) const PUBLIC: usize = 2;
pub(crate) const RESERVED: usize = 1;
pub(crate) const REQUESTS: usize = 2;
pub(crate) const NOTIFICATIONS: usize = 1;
/// Record slots for posted requests and receives.
pub(crate) const RECORDS: usize = PAIRS * 2 * POSTS + SHARED * POSTS;

dat_core::define_storage! {
    /// Storage of the core.
    pub(crate) uninit struct Storage for Backend, Lock {
        endpoints: PAIRS,
        local_regions: REGIONS,
        remote_regions: WINDOWS,
        protection_zones: ZONES,
        event_dispatchers: DISPATCHERS,
        notification_objects: NOTIFICATIONS,
        shared_receive_queues: SHARED,
        public_service_points: PUBLIC,
        reserved_service_points: RESERVED,
        connection_requests: REQUESTS,
        events: crate::EVENTS,
        records: RECORDS,
    }
}

/// Memory of the region.
static BUFFER: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];

/// An endpoint with a queue for each direction.
pub(crate) const ENDPOINT: EpAttributes = EpAttributes {
    max_recv_dtos: POSTS as i32,
    max_request_dtos: POSTS as i32,
    max_recv_iov: SEGMENTS as i32,
    max_request_iov: SEGMENTS as i32,
    max_rdma_read_iov: SEGMENTS as i32,
    max_rdma_write_iov: SEGMENTS as i32,
    max_rdma_read_in: 1,
    max_rdma_read_out: 1,
    ..EpAttributes::DEFAULT
};

pub(crate) const SHARED_QUEUE: SrqAttributes = SrqAttributes {
    max_recv_dtos: POSTS as i32,
    max_recv_iov: 1,
    low_watermark: 0,
};

/// A region over `BUFFER`.
pub(crate) fn region(pz: PzId) -> LmrRequest {
    LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&BUFFER)),
        pz,
        privileges: MemoryPrivileges::ALL,
    }
}

/// The first 8 bytes of a region.
pub(crate) fn segment(lmr: &LmrCreated) -> LmrTriplet {
    LmrTriplet {
        context: lmr.lmr_context,
        address: lmr.registered_address,
        length: 8,
    }
}

/// A peer to connect to.
pub(crate) fn peer(private_data: &[u8]) -> ConnectParam<'_> {
    ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data,
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}

/// Takes the event of a connection request.
pub(crate) fn request(ia: &Adapter<'_>, connections: EvdId) -> Result<CrId> {
    match ia.evd_dequeue(connections)? {
        Event::ConnectionRequest { cr, .. } => Ok(cr),
        _ => Err(Error::internal(Cause::EndpointState)),
    }
}
