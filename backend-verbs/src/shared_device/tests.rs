use verbs_model::{SCRIPTED, opened};

use super::*;
use crate::VerbsOptions;
use crate::hal::AsyncEvent;
use crate::hal::bed_tests::report;

fn device() -> Result<SharedDevice, BackendError> {
    SharedDevice::new(
        Context::open(SCRIPTED)?,
        VerbsOptions::default().start_thread,
    )
}

/// Spec: IAO-01
#[test]
fn adapters_of_one_device_share_it_until_the_last_is_gone() {
    let devices = OpenDevices::new();
    let open = |identity| devices.share(identity, device).expect("a thread");
    let [first, second, other] = [open(1), open(1), open(2)];
    assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
    let known = Arc::downgrade(&first);
    drop(first);
    assert!(Arc::ptr_eq(&second, &open(1)));
    drop(second);
    assert!(known.upgrade().is_none(), "it was closed");
    let _again = open(1);
    assert_eq!(devices.devices.lock().expect("no panic").len(), 2);
}

/// Spec: IAO-01
#[test]
fn a_device_that_failed_is_opened_anew() {
    let devices = OpenDevices::new();
    let open = || devices.share(1, device).expect("a thread");
    let failed = open();
    report(&opened(), AsyncEvent::DeviceFailed);
    while !failed.watch().has_failed() {
        std::thread::yield_now();
    }
    let new = open();
    assert!(!Arc::ptr_eq(&failed, &new) && Arc::ptr_eq(&new, &open()));
}

/// Spec: IAO-01
#[test]
fn a_device_that_cannot_be_opened_is_tried_again() {
    let devices = OpenDevices::new();
    let refused = devices.share(1, || Err(BackendError::Resources));
    assert_eq!(refused.err(), Some(BackendError::Resources));
    assert!(devices.share(1, device).is_ok());
}

/// Spec: IAO-01
#[test]
fn an_adapter_leaves_its_device_when_it_is_dropped() {
    let device = Arc::new(device().expect("a thread"));
    let signal = Arc::new(Signal::new());
    let seat = device.enter(&signal).expect("a number");
    let sources = Arc::downgrade(&seat.sources);
    drop(seat);
    assert!(sources.upgrade().is_none());
    assert_eq!(
        (Arc::strong_count(&device), Arc::strong_count(&signal)),
        (1, 1)
    );
}
