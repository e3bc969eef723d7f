//! Objects that exist before a connection: endpoints with receives, windows of a zone, blocks.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Pair, SOON, eventually};
use dat_core::attributes::EpAttributes;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::DtoStatus;
use dat_core::{Cause, ErrorKind};
use dat_host::{Access, Endpoint, Error, Options, RemoteSlice, Result, Zone};

/// Connects an endpoint of each zone, both made before; the far one may be of `zone`.
fn join(pair: &Pair, near: Endpoint, far: Endpoint, data: &[u8]) -> Result<(Endpoint, Endpoint)> {
    let listener = pair.far.listen_with(None, 4)?;
    let peer = (pair.far.address()?, listener.qualifier());
    let connecting = pair.near.connect(peer).start_on(near);
    let accepting = listener.next().wait()?.accept();
    let accepting = accepting.private_data(data).start_on(far);
    Ok((connecting.wait()?, accepting.wait()?))
}

fn endpoint(zone: &Zone) -> Endpoint {
    zone.endpoint(None).unwrap()
}

#[test]
fn receives_are_posted_before_the_connection() {
    let pair = Pair::new();
    let (near, far) = (endpoint(&pair.near), endpoint(&pair.far));
    let to_near = near.recv(pair.near.buffer(16).unwrap());
    let to_far = far.recv(pair.far.buffer(16).unwrap());
    // Without a connection nothing can be sent.
    let early = far.send(pair.far.copy(b"early").unwrap()).wait();
    let early = early.unwrap_err().error.core().unwrap();
    assert_eq!(early.kind(), ErrorKind::InvalidState);
    let (near, far) = join(&pair, near, far, &[]).unwrap();
    let ping = near.send(pair.near.copy(b"ping").unwrap());
    let pong = far.send(pair.far.copy(b"pong").unwrap());
    assert_eq!(&to_far.wait().unwrap().memory[..], b"ping");
    assert_eq!(&to_near.wait().unwrap().memory[..], b"pong");
    ping.wait().unwrap();
    pong.wait().unwrap();
    // Dropped without a connection, an endpoint gives the memory of its receives back.
    let unused = endpoint(&pair.near);
    let receive = unused.recv(pair.near.buffer(16).unwrap());
    drop(unused);
    let flushed = receive.wait_timeout(SOON).expect("in time").unwrap_err();
    assert_eq!(flushed.error.status(), Some(DtoStatus::Flushed));
}

/// Options of a new endpoint are refused for one that exists; nothing is sent.
#[test]
fn options_of_a_new_endpoint_are_refused_for_another() {
    let pair = Pair::new();
    let listener = pair.far.listen(1).unwrap();
    let (queue, events) = (
        pair.near.shared_receive(4, 8).unwrap(),
        pair.near.events().unwrap(),
    );
    let refused = |error: Error, option: &str| {
        assert!(matches!(error, Error::NotApplicable(named) if named == option));
        assert!(error.to_string().contains(option), "{error}");
    };
    let connecting = || pair.near.connect("far:1");
    for (connecting, option) in [
        (connecting().attributes(EpAttributes::DEFAULT), "attributes"),
        (connecting().receive(&queue), "receive"),
        (connecting().events(&events), "events"),
    ] {
        let wrong = connecting.start_on(endpoint(&pair.near)).wait();
        refused(wrong.unwrap_err(), option);
    }
    let none = listener.next().wait_timeout(Duration::from_millis(20));
    let _next = none.expect_err("nothing was sent");
    let queue = pair.far.shared_receive(4, 8).unwrap();
    let events = pair.far.events().unwrap();
    for option in ["attributes", "receive", "events"] {
        let client = connecting().start();
        let accepting = listener.next().wait().unwrap().accept();
        let accepting = match option {
            "attributes" => accepting.attributes(EpAttributes::DEFAULT),
            "receive" => accepting.receive(&queue),
            _ => accepting.events(&events),
        };
        let wrong = accepting.start_on(endpoint(&pair.far)).wait();
        refused(wrong.unwrap_err(), option);
        let rejected = client.wait_timeout(SOON).expect("in time");
        assert!(matches!(rejected, Err(Error::Rejected(_))), "{rejected:?}");
    }
}

#[test]
fn endpoints_of_other_adapters_are_refused() {
    let pair = Pair::new();
    let listener = pair.far.listen(1).unwrap();
    let foreign = |error: Error| {
        let error = error.core().expect("an error of the core");
        assert_eq!(error.kind(), ErrorKind::InvalidHandle);
        assert_eq!(error.cause(), Cause::Foreign);
    };
    let wrong = pair.near.connect("far:1").start_on(endpoint(&pair.far));
    foreign(wrong.wait().unwrap_err());
    let client = pair.near.connect("far:1").start();
    let request = listener.next().wait().unwrap();
    let wrong = request.accept().start_on(endpoint(&pair.near));
    foreign(wrong.wait().unwrap_err());
    // The request is rejected, so that its peer does not wait.
    let rejected = client.wait_timeout(SOON).expect("in time").unwrap_err();
    assert!(matches!(rejected, Error::Rejected(_)), "{rejected}");
    let attributes = EpAttributes {
        max_recv_dtos: -1,
        ..EpAttributes::DEFAULT
    };
    let refused = pair.near.endpoint(Some(attributes)).unwrap_err();
    assert_eq!(refused.core().unwrap().cause(), Cause::MaxRecvDtos);
    // An endpoint that has a connection.
    let (near, far) = pair.connect();
    let twice = pair.near.connect("far:1").start_on(near).wait();
    assert_eq!(
        twice.unwrap_err().core().unwrap().kind(),
        ErrorKind::InvalidState
    );
    assert_eq!(far.ended().wait(), ConnectionEventKind::Disconnected);
}

#[test]
fn a_zone_window_is_open_to_the_peers_of_its_zone_only() {
    let pair = Pair::new();
    let clients = pair.far_adapter.zone().unwrap();
    let window = clients.window(vec![0_u8; 64], Access::WRITE).unwrap();
    let access = window.remote().to_bytes();
    let near = |zone: &Zone| {
        let (near, far) = (endpoint(&pair.near), endpoint(zone));
        join(&pair, near, far, &access).unwrap()
    };
    let (client, _server) = near(&clients);
    let remote = RemoteSlice::from_bytes(&client.private_data()[..RemoteSlice::ENCODED]).unwrap();
    assert_eq!((remote, remote.len()), (window.remote(), 64));
    let write = |client: &Endpoint, remote, bytes: &[u8]| {
        let written = client.write(pair.near.copy(bytes).unwrap(), remote).wait();
        written.map(drop).map_err(|failed| failed.error.status())
    };
    assert_eq!(write(&client, remote.slice(4..).unwrap(), b"data"), Ok(()));
    let mut bytes = [0; 6];
    window.load(3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0data\0");
    window.store(63, b"!").unwrap();
    let outside = Error::OutOfRange {
        start: 63,
        end: 65,
        length: 64,
    };
    let refused = window.store(63, b"!!").unwrap_err();
    assert_eq!(refused.to_string(), outside.to_string());
    // Neither reads, nor bytes behind the end, nor peers of other zones.
    let refused = Err(Some(DtoStatus::RemoteAccess));
    let forged = |length, access| {
        RemoteSlice::new(remote.context(), remote.address(), length, access).unwrap()
    };
    let read = client.read(forged(64, Access::READ), pair.near.buffer(64).unwrap());
    let read = read
        .wait()
        .map(drop)
        .map_err(|failed| failed.error.status());
    assert_eq!(read, refused);
    let (client, _server) = near(&clients);
    assert_eq!(write(&client, forged(65, Access::WRITE), &[1; 65]), refused);
    let (stranger, _server) = near(&pair.far);
    assert_eq!(write(&stranger, remote, b"bad"), refused);
    // After its end, nobody.
    let (client, _server) = near(&clients);
    let bytes = window.into_inner();
    assert_eq!((&bytes[4..8], bytes[63]), (&b"data"[..], b'!'));
    assert_eq!(write(&client, remote, b"late"), refused);
    assert_eq!(&bytes[..4], &[0; 4]);

    let unknown = Access::from_bits_retain(8);
    let failed = clients.window(vec![1_u8; 4], unknown).unwrap_err();
    assert_eq!(failed.error.core().unwrap().cause(), Cause::UnknownFlags);
    assert_eq!(failed.memory, [1; 4]);
    let empty = clients.window(Vec::new(), Access::READ).unwrap_err();
    assert_eq!(
        empty.error.core().unwrap().kind(),
        ErrorKind::InvalidParameter
    );
}

#[test]
fn a_block_of_buffers_is_registered_once() {
    let pair = Pair::new();
    let buffers = pair.near.buffers(3, 100).unwrap();
    assert_eq!(buffers.len(), 3);
    for buffer in &buffers {
        assert_eq!((&buffer[..], buffer.capacity()), (&[0; 100][..], 100));
        assert_eq!(buffer.id(), buffers[0].id());
    }
    let (near, far) = pair.connect();
    let receives: Vec<_> = pair.far.buffers(3, 4).unwrap();
    let receives: Vec<_> = receives
        .into_iter()
        .map(|buffer| far.recv(buffer))
        .collect();
    for (number, mut buffer) in buffers.into_iter().enumerate() {
        assert!(buffer.resize(1 + number) && !buffer.resize(101));
        buffer.fill(number as u8);
        near.send(buffer).wait().unwrap();
    }
    for (number, receive) in receives.into_iter().enumerate() {
        let received = receive.wait().unwrap();
        assert_eq!(&received.memory[..], vec![number as u8; 1 + number]);
    }
    for (count, size) in [(usize::MAX, 2), (1, usize::MAX)] {
        let refused = pair.near.buffers(count, size).unwrap_err();
        assert_eq!(
            refused.core().unwrap().kind(),
            ErrorKind::InsufficientResources
        );
    }
    assert!(pair.near.buffers(0, 8).is_err());
}

/// A thread that polls runs wakers of others, and ends with the adapter.
#[test]
fn a_thread_drives_by_polling() {
    let network = common::network();
    let open = |address| Options::new().network(&network).open_driven(address);
    let (adapter, driver) = open("mock://polls").unwrap();
    static EMPTY: AtomicUsize = AtomicUsize::new(0);
    let polls = std::thread::spawn(|| {
        let idle = || {
            EMPTY.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
        };
        driver.polling(idle).run();
    });
    let zone = adapter.zone().unwrap();
    let listener = zone.listen(1).unwrap();
    let waited = listener.next().wait_timeout(Duration::from_millis(10));
    assert!(waited.is_err(), "nobody connects");
    let client = zone.connect("polls:1").start();
    let server = listener.next().wait().unwrap().accept().wait().unwrap();
    let client = client.wait().unwrap();
    let receive = server.recv(zone.buffer(8).unwrap());
    client.send(zone.copy(b"polled").unwrap()).wait().unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"polled");
    let before = EMPTY.load(Ordering::Relaxed);
    eventually("it polls", || EMPTY.load(Ordering::Relaxed) > before + 1000);
    adapter.close();
    polls.join().unwrap();
}
