//! An adapter on the ring device with a connected endpoint and registered memory.

use core::sync::atomic::AtomicU8;

use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::endpoint::ConnectParam;
use dat_core::event::Event;
use dat_core::flags::{
    CompletionFlags, ConnectFlags, EndpointState, EvdFlags, MemoryPrivileges, QualityOfService,
    TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, RmrId, SrqId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{RawLock, SpinLock};
use dat_core::time::Instant;
use dat_core::{Error, Ia, Result};

use crate::loopback::{LoopDevice, Queues, Rings};
use crate::ring::SEGMENTS;

dat_core::define_storage! {
    struct Slots<Q: Queues, L: RawLock> for LoopDevice<Q>, L {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 2,
        shared_receive_queues: 1,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 256,
        records: 512,
    }
}

/// The memory of a world, except its device; use a leaked box or a `static`.
pub struct WorldMemory<Q: Queues = &'static Rings, L: RawLock = SpinLock> {
    bytes: [AtomicU8; 65536],
    storage: Option<Slots<Q, L>>,
}

impl<Q: Queues, L: RawLock> WorldMemory<Q, L> {
    /// Returns memory for one world.
    pub const fn new() -> Self {
        Self {
            bytes: [const { AtomicU8::new(0) }; 65536],
            storage: Some(Slots::new()),
        }
    }
}

impl<Q: Queues, L: RawLock> Default for WorldMemory<Q, L> {
    fn default() -> Self {
        Self::new()
    }
}

/// A connected endpoint and the objects to post on it.
pub struct World<Q: Queues = &'static Rings, L: RawLock + 'static = SpinLock> {
    /// The adapter.
    pub ia: Ia<'static, LoopDevice<Q>, L>,
    /// The device.
    pub device: Q::Device,
    /// The connected endpoint.
    pub ep: EpId,
    /// The shared receive queue of the endpoint, if any.
    pub srq: Option<SrqId>,
    /// The dispatcher of the completions of requests and receives.
    pub evd: EvdId,
    /// The dispatcher of software events.
    pub software: EvdId,
    /// A window to bind.
    pub rmr: RmrId,
    /// Registered segments of 4 KiB each.
    pub segments: [LmrTriplet; SEGMENTS],
    /// The memory of the peer.
    pub remote: RmrTriplet,
    /// The first 4 KiB of `remote`.
    pub small_remote: RmrTriplet,
}

impl<Q: Queues, L: RawLock> World<Q, L> {
    /// Opens an adapter and connects an endpoint.
    ///
    /// # Errors
    /// The error of the call that failed; none fails on a fresh memory.
    pub fn new(queues: Q, memory: &'static mut WorldMemory<Q, L>, shared: bool) -> Result<Self> {
        let Some(storage) = &mut memory.storage else {
            return Err(Error::internal(dat_core::Cause::TableFull));
        };
        let device = queues.device();
        let ia = Ia::open(LoopDevice::new(queues), storage.lend(), 8)
            .map_err(|refused| refused.error)?;
        let pz = ia.pz_create()?;
        let region = Region::from_static(&memory.bytes);
        let base = region.address();
        let lmr = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz,
            privileges: MemoryPrivileges::ALL,
        })?;
        let evd = ia.evd_create(128, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        let connections = ia.evd_create(8, None, EvdFlags::CONNECTION)?;
        let software = ia.evd_create(8, None, EvdFlags::SOFTWARE)?;
        let attributes = EpAttributes {
            max_recv_dtos: 64,
            max_request_dtos: 64,
            max_recv_iov: SEGMENTS as i32,
            max_request_iov: SEGMENTS as i32,
            max_rdma_read_iov: SEGMENTS as i32,
            max_rdma_write_iov: SEGMENTS as i32,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            ..EpAttributes::DEFAULT
        };
        let (ep, srq) = if shared {
            let srq = ia.srq_create(
                pz,
                &SrqAttributes {
                    max_recv_dtos: 64,
                    max_recv_iov: SEGMENTS as i32,
                    low_watermark: 0,
                },
            )?;
            let ep = ia.ep_create_with_srq(
                Some(pz),
                Some(evd),
                Some(evd),
                Some(connections),
                srq,
                &attributes,
            )?;
            (ep, Some(srq))
        } else {
            let ep = ia.ep_create(
                Some(pz),
                Some(evd),
                Some(evd),
                Some(connections),
                Some(&attributes),
            )?;
            (ep, None)
        };
        ia.ep_connect(
            ep,
            &ConnectParam {
                address: IaAddress::Node(0),
                qualifier: 1,
                timeout: TIMEOUT_INFINITE,
                private_data: &[],
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            Instant::ZERO,
        )?;
        ia.progress(Instant::ZERO);
        ia.evd_dequeue(connections)?;
        if ia.ep_get_status(ep)?.state != EndpointState::Connected {
            return Err(Error::internal(dat_core::Cause::EndpointState));
        }
        let rmr = ia.rmr_create(pz)?;
        let mut segments = [LmrTriplet::default(); SEGMENTS];
        let mut address = base;
        for segment in &mut segments {
            *segment = LmrTriplet {
                context: lmr.lmr_context,
                address,
                length: 4096,
            };
            address = address.wrapping_add(4096);
        }
        let remote = RmrTriplet {
            context: lmr.rmr_context,
            address: base,
            length: 65536,
        };
        Ok(Self {
            ia,
            device,
            ep,
            srq,
            evd,
            software,
            rmr,
            segments,
            remote,
            small_remote: RmrTriplet {
                length: 4096,
                ..remote
            },
        })
    }

    /// Posts an RDMA Write of the first `count` segments.
    ///
    /// # Errors
    /// Those of [`Ia::post_rdma_write`].
    pub fn write(&self, count: usize) -> Result<()> {
        let segments = self.segments.get(..count).unwrap_or_default();
        let flags = CompletionFlags::empty();
        self.ia
            .post_rdma_write(self.ep, segments, 7, &self.remote, flags)
    }

    /// Completes all posted requests and receives.
    pub fn complete_all(&self) {
        Q::complete_all(&self.device);
    }

    /// Dequeues an event.
    ///
    /// # Errors
    /// Those of [`Ia::evd_dequeue`].
    pub fn dequeue(&self) -> Result<Event> {
        self.ia.evd_dequeue(self.evd)
    }
}
