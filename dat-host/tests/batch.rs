//! Batches: operations in order, and the first refusal.

mod common;

use common::Pair;
use dat_core::ErrorKind;
use dat_host::{Access, Buffer};

fn kind(error: &dat_host::Error) -> Option<ErrorKind> {
    error.core().map(|error| error.kind())
}

/// Spec: EPS-01, EPW-01, EPB-01
#[test]
fn a_batch_is_posted_in_order() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 64]).unwrap();
    let window = region.expose(.., Access::all()).to(&far).wait().unwrap();
    let remote = window.remote();
    let receive = far.recv(pair.far.buffer(8).unwrap());
    let mut batch = near.batch();
    assert!(batch.is_empty());
    batch
        .write(pair.near.copy(b"first").unwrap(), remote)
        .unwrap();
    batch
        .read(remote.slice(..5).unwrap(), pair.near.buffer(5).unwrap())
        .unwrap();
    batch
        .write(pair.near.copy(b"after").unwrap(), remote)
        .unwrap();
    batch.send(pair.near.copy(b"done").unwrap());
    assert_eq!(batch.len(), 4);
    let done: Vec<_> = batch
        .post()
        .into_iter()
        .map(|transfer| transfer.wait().unwrap())
        .collect();
    // The mock reads in order.
    assert_eq!(&done[1][..], b"first");
    assert_eq!(&done[3][..], b"done");
    assert_eq!(&receive.wait().unwrap().memory[..], b"done");
    assert_eq!(&window.revoke().wait()[..5], b"after");
    assert!(near.batch::<Buffer>().post().is_empty());
}

#[test]
fn the_first_refusal_ends_a_batch_and_returns_the_memory() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 8]).unwrap();
    let window = region.expose(.., Access::WRITE).to(&far).wait().unwrap();
    let remote = window.remote();
    let bytes = |text: &[u8]| pair.near.copy(text).unwrap();
    let mut batch = near.batch();
    batch.write(bytes(b"fits"), remote).unwrap();
    batch.write(bytes(b"too long for it"), remote).unwrap();
    batch.write(bytes(b"never"), remote).unwrap();
    // Refused when it is added: there is no right to read.
    let failed = batch.read(remote, bytes(b"12345678")).unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::PrivilegesViolation));
    let mut outcomes = batch.post().into_iter().map(|transfer| transfer.wait());
    assert_eq!(&outcomes.next().unwrap().unwrap()[..], b"fits");
    for memory in [&b"too long for it"[..], b"never"] {
        let failed = outcomes.next().unwrap().unwrap_err();
        assert_eq!(kind(&failed.error), Some(ErrorKind::LengthError));
        assert_eq!(&failed.memory[..], memory);
    }
    assert!(outcomes.next().is_none());

    // Memory of another adapter in between.
    let mut batch = near.batch();
    batch.write(bytes(b"again"), remote).unwrap();
    batch
        .write(pair.far.copy(b"other").unwrap(), remote)
        .unwrap();
    batch.write(bytes(b"never"), remote).unwrap();
    let mut outcomes = batch.post().into_iter().map(|transfer| transfer.wait());
    outcomes.next().unwrap().unwrap();
    for memory in [b"other", b"never"] {
        let failed = outcomes.next().unwrap().unwrap_err();
        assert_eq!(kind(&failed.error), Some(ErrorKind::InvalidHandle));
        assert_eq!(&failed.memory[..], memory);
    }
    assert_eq!(pair.near_adapter.in_flight(), 0);
    assert_eq!(&window.revoke().wait()[..5], b"again");
}
