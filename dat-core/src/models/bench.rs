//! An adapter on the test device for loom tests: one connected endpoint, little storage.

use core::task::Waker;
use loom::sync::{Condvar, Mutex};
use std::boxed::Box;
use std::sync::Arc;
use std::task::Wake;

use crate::adapter::Ia;
use crate::attributes::EpAttributes;
use crate::backend::{ControlEvent, PrivateData};
use crate::endpoint::ConnectParam;
use crate::event::{Wait, WakeReason};
use crate::flags::{ConnectFlags, EvdFlags, QualityOfService, TIMEOUT_INFINITE};
use crate::id::{EpId, EvdId, PzId};
use crate::sync::loom_sync::ModelLock;
use crate::testing::TestBackend;
use crate::time::Instant;

crate::define_storage! {
    struct ModelStorage for TestBackend, ModelLock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 3,
        notification_objects: 3,
        endpoints: 2,
        shared_receive_queues: 0,
        public_service_points: 2,
        reserved_service_points: 2,
        connection_requests: 2,
        events: 6,
        records: 4,
    }
}

/// The adapter and its device, shared by the threads of a test.
pub(super) struct Bench {
    pub(super) ia: Ia<'static, TestBackend, ModelLock>,
    pub(super) device: TestBackend,
    pub(super) pz: PzId,
}

impl Bench {
    pub(super) fn new() -> Self {
        let device = TestBackend::default();
        // Leaked: the adapter needs it as long as the threads of the test run, which is at most as
        // long as the process.
        let storage = Box::leak(Box::new(ModelStorage::new()));
        let ia = Ia::open(device.clone(), storage.lend(), 2).unwrap();
        let pz = ia.pz_create().unwrap();
        // Creates the atomics that the test uses before any thread starts.
        ia.interrupt_handle().notify();
        assert_eq!(ia.take_interrupts(), 1);
        let past = Some(Instant::ZERO);
        ia.evd_wait_until(ia.async_evd(), 1, past, &mut Sleeper::default())
            .unwrap_err();
        Self { ia, device, pz }
    }

    /// Creates a dispatcher for completions of requests.
    pub(super) fn dispatcher(&self) -> EvdId {
        let flags = EvdFlags::DTO | EvdFlags::RMR_BIND;
        self.ia.evd_create(2, None, flags).unwrap()
    }

    /// Creates a connected endpoint for one request at a time.
    pub(super) fn connected(&self, evd: EvdId) -> EpId {
        let attributes = EpAttributes {
            max_recv_dtos: 0,
            max_request_dtos: 1,
            ..EpAttributes::DEFAULT
        };
        let ep = self
            .ia
            .ep_create(Some(self.pz), None, Some(evd), None, Some(&attributes))
            .unwrap();
        let peer = ConnectParam {
            address: crate::testing::fixture::PEER,
            qualifier: 1,
            timeout: TIMEOUT_INFINITE,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        self.ia.ep_connect(ep, &peer, Instant::ZERO).unwrap();
        self.device.push_control(ControlEvent::Established {
            queue_pair: ep.handle().to_raw(),
            private_data: PrivateData::new(),
        });
        self.ia.progress(Instant::ZERO);
        ep
    }
}

/// The sleep of a test thread until it is woken.
#[derive(Clone, Default)]
pub(super) struct Sleeper(Arc<Bed>);

#[derive(Default)]
struct Bed {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bed {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Sleeper {
    pub(super) fn sleep(&self) {
        let mut woken = self.0.woken.lock().unwrap();
        while !*woken {
            woken = self.0.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wait for Sleeper {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }

    fn wait(&mut self, _until: Option<Instant>) -> WakeReason {
        self.sleep();
        WakeReason::Woken
    }
}
