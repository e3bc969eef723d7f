//! The part of the mock for hosts: who acts, and who is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use backend_mock::{Fabric, FabricOptions, MockDriver, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend as _, BackendError, ConnectRequest, HostBackend as _, HostDriver as _, QueuePairRequest,
};
use dat_core::flags::QualityOfService;
use dat_core::time::Instant;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a driver, with the count of its wake-ups.
fn member(driver: MockDriver) -> (MockDriver, Arc<Count>) {
    let count = Arc::<Count>::default();
    assert!(driver.wake_on_events(Waker::from(Arc::clone(&count))));
    (driver, count)
}

#[test]
fn the_adapter_that_acts_wakes_the_others() {
    let fabric = Fabric::new(FabricOptions::immediate());
    let mut backend = fabric.node(NodeOptions::new("near", 1));
    let (near, own) = member(backend.driver());
    let (far, other) = member(fabric.node(NodeOptions::new("far", 2)).driver());
    let (gone, last) = member(fabric.node(NodeOptions::new("gone", 3)).driver());
    drop(gone);
    assert!(near.acts_after_posts() && far.acts_after_posts());
    let idle = near.act(Instant::from_micros(1));
    assert_eq!((idle.acted, idle.next), (false, None));
    let woken = |count: &Count| count.0.load(Ordering::SeqCst);
    assert_eq!((woken(&own), woken(&other)), (0, 0), "nothing happened");
    let domain = backend.create_domain().unwrap();
    let request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
    let pair = backend.create_queue_pair(&request).unwrap();
    let connect = ConnectRequest {
        address: IaAddress::Node(2),
        qualifier: 1,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
    };
    backend.connect(pair.key, &connect).unwrap();
    assert!(near.act(Instant::from_micros(1_000)).acted);
    assert_eq!((woken(&own), woken(&other), woken(&last)), (0, 1, 0));
    backend.destroy_queue_pair(pair.key, pair.send, pair.receive);
}

#[test]
fn threads_sleep_only_on_a_fabric_with_a_thread() {
    let fabric = Fabric::new(FabricOptions::default());
    let driver = fabric.node(NodeOptions::new("one", 1)).driver();
    assert_eq!(driver.wait().err(), Some(BackendError::NotSupported));
    let thread = fabric.spawn_thread().unwrap();
    assert!(driver.wait().is_ok());
    assert!(!driver.acts_after_posts());
    assert!(!driver.wake_on_events(Waker::noop().clone()));
    drop(thread);
}
