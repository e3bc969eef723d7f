//! Statements of the documentation, on the networks of this process and on RoCE in software.

mod common;

use std::time::Duration;

use common::{Pair, SOON};
use dat_host::{
    Access, Adapter, Buffer, ConnectionEventKind, DtoStatus, Endpoint, Error, Events, Listener,
    Message, ReadWindow, Region, RemoteSlice, Request, SharedReceive, SharedRegion, Window, Zone,
    ZoneWindow,
};

/// Runs `check` with the zones of two adapters: in a network of this process, and over RoCE.
fn on_each(check: impl Fn(&Zone, &Zone)) {
    let pair = Pair::new();
    check(&pair.near, &pair.far);
    if cfg!(feature = "roce") {
        let open = |address| Adapter::open(address).unwrap().zone().unwrap();
        check(&open("roce://127.0.0.39"), &open("roce://127.0.0.40"));
    }
}

fn connect(near: &Zone, far: &Zone, queue: Option<&SharedReceive>) -> (Endpoint, Endpoint) {
    common::connect(near, far, queue).unwrap()
}

#[test]
fn objects_may_be_used_from_several_threads() {
    fn check<T: Send + Sync>() {}
    check::<(Adapter, Zone, Endpoint, Listener, Request, Events)>();
    check::<(SharedReceive, Message, RemoteSlice, Buffer)>();
    check::<(Region<Vec<u8>>, SharedRegion<Vec<u8>>)>();
    check::<(
        Window<Vec<u8>>,
        ReadWindow<&'static [u8]>,
        ZoneWindow<Vec<u8>>,
    )>();
}

#[test]
fn a_read_leaves_the_rest_of_a_longer_buffer() {
    on_each(|near, far| {
        let (reader, _server) = connect(near, far, None);
        let window = far.window(vec![7_u8; 4], Access::READ).unwrap();
        let memory = near.copy(&[1; 8]).unwrap();
        let read = reader.read(window.remote(), memory).wait().unwrap();
        assert_eq!(read[..], [7, 7, 7, 7, 1, 1, 1, 1]);
    });
}

#[test]
fn a_message_that_is_too_long_breaks_the_connection() {
    on_each(|near, far| {
        let (sender, receiver) = connect(near, far, None);
        let receive = receiver.recv(far.buffer(4).unwrap());
        let failed = sender.send(near.copy(b"longer").unwrap()).wait();
        let failed = failed.unwrap_err().error;
        assert_eq!(failed.status(), Some(DtoStatus::RemoteResponder));
        let failed = receive.wait().unwrap_err().error;
        assert_eq!(failed.status(), Some(DtoStatus::LocalLength));
    });
}

/// The receiver has no future of the buffer, and learns only of the connection.
#[test]
fn a_message_that_is_longer_than_shared_buffers_breaks_the_connection() {
    on_each(|near, far| {
        let queue = far.shared_receive(4, 4).unwrap();
        let (sender, receiver) = connect(near, far, Some(&queue));
        let (other, others) = connect(near, far, Some(&queue));
        let failed = sender.send(near.copy(b"longer").unwrap()).wait();
        let failed = failed.unwrap_err().error;
        assert_eq!(failed.status(), Some(DtoStatus::RemoteResponder));
        let ended = receiver.next_message().wait_timeout(SOON).expect("in time");
        let broken = Error::Connection(ConnectionEventKind::Broken).to_string();
        assert_eq!(ended.unwrap_err().to_string(), broken);
        // The queue serves others, and has its buffer back.
        for byte in 0..8 {
            other.send(near.copy(&[byte]).unwrap()).wait().unwrap();
            assert_eq!(others.next_message().wait().unwrap()[..], [byte]);
        }
    });
}

/// Endpoints of several zones share a queue, but not their windows.
#[test]
fn a_shared_queue_serves_endpoints_of_other_zones() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(4, 8).unwrap();
    let client_zone = pair.far_adapter.zone().unwrap();
    let (near, far) = connect(&pair.near, &client_zone, Some(&queue));
    near.send(pair.near.copy(b"call").unwrap()).wait().unwrap();
    assert_eq!(&far.next_message().wait().unwrap()[..], b"call");
}

/// A client that gives up while its request waits leaves one that cannot be accepted.
#[test]
fn a_request_of_a_client_that_gave_up_is_not_accepted() {
    on_each(|near, far| {
        let listener = far.listen_with(None, 4).unwrap();
        let peer = (far.address().unwrap(), listener.qualifier());
        let client = near.connect(peer).start();
        let kept = client.wait_timeout(Duration::from_millis(100));
        drop(kept.expect_err("nobody accepts"));
        std::thread::sleep(Duration::from_millis(100));
        let request = listener.next().wait_timeout(SOON).expect("in time");
        let accepted = request.unwrap().accept().wait_timeout(SOON);
        let refused = accepted.expect("in time").expect_err("nobody is there");
        let is_known = matches!(refused, Error::Connection(_) | Error::Refused(_));
        assert!(is_known, "{refused}");
    });
}
