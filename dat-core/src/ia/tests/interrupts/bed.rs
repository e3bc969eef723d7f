//! An adapter whose lock interrupts, with objects of each kind.

use core::cell::{Cell, RefCell};
use std::boxed::Box;

use crate::adapter::Ia;
use crate::attributes::{ProviderAttributes, SrqAttributes};
use crate::backend::{ControlEvent, Extensions, PrivateData, QueuePairKey, RequestKey};
use crate::endpoint::{ConnectParam, EpParam};
use crate::event::Event;
use crate::flags::{
    CompletionFlags, ConnectFlags, EpFields, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use crate::id::{CnoId, CrId, EpId, EvdId, LmrId, PspId, PzId, RmrId, SrqId};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::sync::{ContextLock, NoLock, RawLock, SplitLock};
use crate::testing::fixture::{PEER, SMALL};
use crate::testing::{IA_ATTRIBUTES, MASKED, PROVIDER_ATTRIBUTES, TestBackend};
use crate::time::Instant;

type Handler = Box<dyn FnMut()>;

std::thread_local! {
    pub(super) static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
    /// Releases since the call began, and the one that the handler interrupts.
    pub(super) static RELEASES: Cell<u32> = const { Cell::new(0) };
    pub(super) static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// Runs the handler if the release that just ended is the chosen one.
fn released() {
    if MASKED.get() != 0 {
        return;
    }
    RELEASES.set(RELEASES.get() + 1);
    if RELEASES.get() == CHOSEN.get() {
        // Taken: nothing interrupts the handler.
        let handler = HANDLER.take();
        if let Some(mut handler) = handler {
            handler();
        }
    }
}

/// A lock whose release runs the handler. `MASKS`: not while an outer section lasts.
pub(super) struct Interrupting<L, const MASKS: bool>(L);

#[expect(unsafe_code)]
// SAFETY: every call goes to the lock inside.
unsafe impl<L: RawLock, const MASKS: bool> RawLock for Interrupting<L, MASKS> {
    const INIT: Self = Self(L::INIT);

    type Control = Self;

    type State<'a>
        = L::State<'a>
    where
        Self: 'a;

    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: promised by the caller.
        let state = unsafe { self.0.acquire() };
        MASKED.set(MASKED.get() + u32::from(MASKS));
        state
    }

    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        // SAFETY: promised by the caller.
        let state = unsafe { self.0.try_acquire() }?;
        MASKED.set(MASKED.get() + u32::from(MASKS));
        released();
        Some(state)
    }

    unsafe fn release(&self, state: Self::State<'_>) {
        // SAFETY: promised by the caller.
        unsafe { self.0.release(state) };
        MASKED.set(MASKED.get() - u32::from(MASKS));
        released();
    }
}

pub(super) type Lock = SplitLock<Interrupting<NoLock, true>, Interrupting<ContextLock, false>>;
pub(super) type TestIa = Ia<'static, TestBackend, Lock>;

crate::define_storage! {
    struct Slots for TestBackend, Lock {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: 8,
        notification_objects: 2,
        endpoints: 6,
        shared_receive_queues: 2,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 256,
    }
}

/// An adapter with two connected endpoints, one to connect, and objects of each kind.
pub(super) struct Bed {
    pub(super) ia: TestIa,
    pub(super) device: TestBackend,
    pub(super) pz: PzId,
    pub(super) cno: CnoId,
    /// Dispatcher of transfers, shared by all endpoints.
    pub(super) data: EvdId,
    pub(super) connections: EvdId,
    pub(super) software: EvdId,
    /// Endpoint of the calls, connected.
    pub(super) ep: EpId,
    /// Connected; no call touches it.
    pub(super) other: EpId,
    pub(super) fresh: EpId,
    pub(super) lmr: LmrId,
    pub(super) segment: LmrTriplet,
    pub(super) rmr: RmrId,
    /// Window of the handler.
    pub(super) own: RmrId,
    pub(super) srq: SrqId,
    /// Uses the shared queue.
    pub(super) sharing: EpId,
    pub(super) psp: PspId,
    pub(super) cr: CrId,
}

pub(super) const SIZES: SrqAttributes = SrqAttributes {
    max_recv_dtos: 4,
    max_recv_iov: 1,
    low_watermark: 0,
};
pub(super) const NOTHING: CompletionFlags = CompletionFlags::empty();
pub(super) const COOKIE: u64 = 1;

impl Bed {
    pub(super) fn new() -> Self {
        let provider = ProviderAttributes {
            lmr_sync_req: true,
            ..PROVIDER_ATTRIBUTES
        };
        let device = TestBackend::new(IA_ATTRIBUTES, provider);
        device.set_extensions(Extensions::all());
        let storage: &'static mut Slots = Box::leak(Box::new(Slots::new()));
        let ia: TestIa = Ia::open(device.clone(), storage.lend(), 4).unwrap();
        let pz = ia.pz_create().unwrap();
        let cno = ia.cno_create(None).unwrap();
        let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let data = ia.evd_create(16, Some(cno), transfers).unwrap();
        let both = EvdFlags::CONNECTION | EvdFlags::CR;
        let connections = ia.evd_create(16, None, both).unwrap();
        let software = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
        let endpoint = || {
            let (data, connections) = (Some(data), Some(connections));
            ia.ep_create(Some(pz), data, data, connections, Some(&SMALL))
                .unwrap()
        };
        let (ep, other, fresh) = (endpoint(), endpoint(), endpoint());
        let made = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
                pz,
                privileges: MemoryPrivileges::ALL,
            })
            .unwrap();
        let segment = LmrTriplet {
            context: made.lmr_context,
            address: made.registered_address,
            length: 8,
        };
        let rmr = ia.rmr_create(pz).unwrap();
        let own = ia.rmr_create(pz).unwrap();
        let srq = ia.srq_create(pz, &SIZES).unwrap();
        let (on, by) = (Some(data), Some(connections));
        let sharing = ia
            .ep_create_with_srq(Some(pz), on, on, by, srq, &SMALL)
            .unwrap();
        let psp = ia.psp_create(7, connections, PspFlags::Consumer).unwrap();
        let listener = psp.handle().to_raw();
        let request = |number| ControlEvent::ConnectionRequest {
            listener,
            request: RequestKey(number),
            remote: PEER,
            remote_port: 1,
            local: PEER,
            private_data: PrivateData::new(),
        };
        device.push_control(request(1));
        ia.progress(Instant::ZERO);
        let Ok(Event::ConnectionRequest { cr, .. }) = ia.evd_dequeue(connections) else {
            panic!("no request");
        };
        for ep in [ep, other] {
            ia.ep_connect(ep, &peer(), Instant::ZERO).unwrap();
            device.push_control(ControlEvent::Established {
                queue_pair: ep.handle().to_raw(),
                private_data: PrivateData::new(),
            });
            ia.progress(Instant::ZERO);
            ia.evd_dequeue(connections).unwrap();
        }
        ia.take_interrupts();
        Self {
            ia,
            device,
            pz,
            cno,
            data,
            connections,
            software,
            ep,
            other,
            fresh,
            lmr: made.lmr,
            segment,
            rmr,
            own,
            srq,
            sharing,
            psp,
            cr,
        }
    }

    pub(super) fn pair(&self, ep: EpId) -> Option<QueuePairKey> {
        self.device.pair(ep.handle().to_raw())
    }

    pub(super) fn wanted(&self, ep: EpId) -> EpParam {
        let mut wanted = self.ia.ep_query(ep, EpFields::all()).unwrap();
        wanted.attributes.max_request_dtos = 6;
        wanted
    }
}

pub(super) fn peer() -> ConnectParam<'static> {
    ConnectParam {
        address: PEER,
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data: b"",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}
