//! Peers and links that fail: each operation ends with an error and returns its memory.

mod common;

use backend_mock::{FabricOptions, Fault};
use common::{Pair, SOON, connect};
use dat_core::event::ConnectionEventKind;
use dat_core::flags::DtoStatus;
use dat_host::{Access, Error, Network};

fn crash(pair: &Pair) {
    pair.network
        .fabric()
        .inject_from_now(Fault::Crash { adapter: 1, at: 0 });
}

/// Spec: EPK-09
#[test]
fn a_peer_that_vanished_is_not_reached() {
    let pair = Pair::new();
    let _listener = pair.far.listen(1).unwrap();
    crash(&pair);
    let deadline = std::time::Duration::from_millis(50);
    let attempt = pair.near.connect("far:1").deadline_in(deadline).start();
    let error = attempt.wait_timeout(SOON).unwrap().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error}");
}

/// Spec: DTO-12, EPD-10
#[test]
fn a_peer_that_vanishes_fails_every_operation() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 64]).unwrap();
    let window = region.expose(.., Access::all()).to(&far).wait().unwrap();
    let remote = window.remote();
    let mine = pair.near.region(vec![6_u8; 8]).unwrap();
    let mine = mine.expose(.., Access::READ).to(&near).wait().unwrap();
    let receive = near.recv(pair.near.buffer(8).unwrap());
    crash(&pair);
    let write = near.write(pair.near.copy(b"lost").unwrap(), remote);
    let read = near.read(remote.slice(..4).unwrap(), pair.near.buffer(4).unwrap());
    let send = near.send(pair.near.copy(b"lost").unwrap());
    let failed = write.wait_timeout(SOON).unwrap().unwrap_err();
    assert_eq!(failed.error.status(), Some(DtoStatus::Transport));
    assert_eq!(&failed.memory[..], b"lost");
    for failed in [
        read.wait_timeout(SOON).unwrap().unwrap_err().error,
        send.wait_timeout(SOON).unwrap().unwrap_err().error,
        receive.wait_timeout(SOON).unwrap().unwrap_err().error,
    ] {
        assert_eq!(failed.status(), Some(DtoStatus::Flushed));
    }
    let ended = near.ended().wait_timeout(SOON).unwrap();
    assert_eq!(ended, ConnectionEventKind::Broken);
    // The memory comes back, since the window is freed.
    assert_eq!(mine.revoke().wait().into_inner(), [6; 8]);
    near.disconnect().wait().unwrap();
}

#[test]
fn a_peer_that_vanishes_between_accept_and_establishment_is_an_error() {
    let pair = Pair::with(FabricOptions {
        handshake_timeout: 20_000,
        latency: 2000..=2000,
        ..Network::options()
    });
    let listener = pair.far.listen(1).unwrap();
    let attempt = pair.near.connect("far:1").start();
    let request = listener.next().wait_timeout(SOON).unwrap().unwrap();
    pair.network
        .fabric()
        .inject_from_now(Fault::Crash { adapter: 0, at: 0 });
    let error = request.accept().start().wait_timeout(SOON).unwrap();
    let error = error.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Connection(ConnectionEventKind::AcceptCompletionError)
        ),
        "{error}"
    );
    drop(attempt);
}

#[test]
fn a_shared_queue_survives_the_end_of_an_endpoint() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(4, 8).unwrap();
    for round in 0..20 {
        let (near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
        for byte in 0..4 {
            near.send(pair.near.copy(&[byte]).unwrap()).wait().unwrap();
        }
        // Some messages are taken, others are dropped with the endpoint.
        for byte in 0..round % 4 {
            assert_eq!(&far.next_message().wait().unwrap()[..], [byte]);
        }
    }
    let is_whole = || pair.far_adapter.in_flight() == 4;
    common::eventually("all buffers are posted again", is_whole);
}

#[test]
fn a_refused_post_returns_the_memory() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    pair.network
        .fabric()
        .inject_from_now(Fault::RefusePost { adapter: 0, nth: 0 });
    let failed = near.send(pair.near.copy(b"first").unwrap()).wait();
    let failed = failed.unwrap_err();
    let kind = failed.error.core().unwrap().kind();
    assert_eq!(kind, dat_core::ErrorKind::InsufficientResources);
    let receive = far.recv(pair.far.buffer(8).unwrap());
    near.send(failed.memory).wait().unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"first");
}

#[test]
fn a_completion_that_is_lost_ends_with_the_endpoint() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    for queue in 0..4 {
        pair.network
            .fabric()
            .inject_from_now(Fault::DropCompletion {
                adapter: 0,
                queue,
                nth: 0,
            });
    }
    let receive = far.recv(pair.far.buffer(8).unwrap());
    let send = near.send(pair.near.copy(b"lost").unwrap());
    receive.wait().unwrap();
    let short = std::time::Duration::from_millis(30);
    let send = send.wait_timeout(short).unwrap_err();
    drop(near);
    let failed = send.wait_timeout(SOON).unwrap().unwrap_err();
    assert_eq!(failed.error.status(), Some(DtoStatus::Flushed));
    assert_eq!(&failed.memory[..], b"lost");
}

#[test]
fn a_lost_event_closes_the_adapter() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    for queue in 0..4 {
        pair.network.fabric().inject_from_now(Fault::OverrunQueue {
            adapter: 0,
            queue,
            nth: 0,
        });
    }
    let _receive = far.recv(pair.far.buffer(8).unwrap());
    let send = near.send(pair.near.copy(b"lost").unwrap());
    let failed = send.wait_timeout(SOON).unwrap().unwrap_err();
    assert_eq!(&failed.memory[..], b"lost");
    common::eventually("the adapter is closed", || {
        pair.near_adapter.zone().is_err()
    });
}

/// Spec: SRQR-42
#[test]
fn a_shared_queue_that_fails_ends_its_connections() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(4, 8).unwrap();
    let (near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
    pair.network
        .fabric()
        .inject_from_now(Fault::FailSharedReceive { adapter: 1, nth: 0 });
    let send = near.send(pair.near.copy(b"lost").unwrap());
    let failed = send.wait_timeout(SOON).unwrap().unwrap_err();
    assert!(failed.error.status().is_some(), "{failed}");
    let end = far.next_message().wait_timeout(SOON).unwrap().unwrap_err();
    assert!(matches!(end, Error::Connection(_)), "{end}");
    drop((near, far, queue));
    common::eventually("the buffers are freed", || {
        pair.far_adapter.in_flight() == 0
    });
}
