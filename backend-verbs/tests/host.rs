//! The libraries of this host, which may know no device.
//!
//! Unit tests are linked with the model of the libraries; this test is not.
#![cfg(feature = "rdma-core")]

use backend_verbs::{VerbsBackend, VerbsOptions, devices, find_devices};

/// A failure for another reason than the limit of open files is not reported.
///
/// Spec: IAQ-03
#[test]
fn the_devices_of_this_host_are_listed() {
    assert_eq!(find_devices(), Ok(devices()));
}

/// Spec: IAO-01
#[test]
fn an_unknown_device_cannot_be_opened() {
    let opened = VerbsBackend::open("no such device", VerbsOptions::default());
    assert!(opened.is_err());
}
