//! Each operation on the mock, and its effects.

mod common;

use common::{Pair, SOON, connect, eventually};
use dat_core::ErrorKind;
use dat_core::event::ConnectionEventKind;
use dat_host::{Access, Buffer, Error, Region};

/// Spec: EPS-01, EPV-01
#[test]
fn a_message_arrives_in_the_memory_of_its_receive() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let receive = far.recv(pair.far.buffer(64).unwrap());
    let sent = near.send(pair.near.copy(b"hello").unwrap()).wait().unwrap();
    assert_eq!(&sent[..], b"hello");
    let received = receive.wait().unwrap();
    assert_eq!(received.length, 5);
    assert_eq!(&received.memory[..], b"hello");

    let region = pair.far.region(vec![7_u8; 16]).unwrap();
    let receive = far.recv(region);
    near.send(pair.near.buffer(0).unwrap()).wait().unwrap();
    let received = receive.wait().unwrap();
    assert_eq!((received.length, received.memory.len()), (0, 16));
    assert_eq!(received.memory.into_inner(), [7; 16]);
}

/// Spec: EPW-01, EPB-01, RMB-01, RMB-45
#[test]
fn a_peer_writes_and_reads_through_a_window() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![1_u8; 256].into_boxed_slice()).unwrap();
    let all = Access::READ | Access::WRITE;
    let window = region.expose(64..192, all).to(&far).wait().unwrap();
    let remote = window.remote();
    assert_eq!((window.len(), remote.len()), (128, 128));

    let source = pair.near.region(b"0123456789".to_vec()).unwrap();
    let part = source.slice(2..6).unwrap();
    let part = near
        .write(part, remote.slice(10..).unwrap())
        .wait()
        .unwrap();
    assert_eq!(&part[..], b"2345");
    assert_eq!(part.into_region().into_inner(), b"0123456789");

    let mut copy = [0; 6];
    window.load(9, &mut copy).unwrap();
    assert_eq!(&copy, b"\x012345\x01");
    window.store(0, b"new").unwrap();
    let target = pair.near.buffer(8).unwrap();
    let read = near
        .read(remote.slice(..3).unwrap(), target)
        .wait()
        .unwrap();
    assert_eq!(&read[..3], b"new");

    let region = window.revoke().wait();
    assert_eq!(&region[64..67], b"new");
    assert_eq!(&region[74..78], b"2345");
    let bytes = region.into_inner();
    assert_eq!((bytes[63], bytes[192]), (1, 1));
}

/// Spec: RMB-42, RMF-02
#[test]
fn a_revoked_window_cannot_be_written() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 64]).unwrap();
    let window = region.expose(.., Access::WRITE).to(&far).wait().unwrap();
    let remote = window.remote();
    let region = window.revoke().wait();
    let failed = near
        .write(pair.near.copy(b"late").unwrap(), remote)
        .wait()
        .unwrap_err();
    assert_eq!(
        failed.error.status(),
        Some(dat_core::flags::DtoStatus::RemoteAccess)
    );
    assert_eq!(&failed.memory[..], b"late");
    assert_eq!(region.into_inner(), [0; 64]);
    assert_eq!(near.ended().wait(), ConnectionEventKind::Broken);
}

#[test]
fn a_window_ends_with_its_connection_or_its_drop() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let expose = |bytes: Vec<u8>| {
        let region = pair.far.region(bytes).unwrap();
        region.expose(.., Access::WRITE).to(&far).wait().unwrap()
    };
    let (one, two, three) = (
        expose(vec![1; 32]),
        expose(vec![2; 32]),
        expose(vec![3; 32]),
    );
    drop(three);
    near.disconnect().wait().unwrap();
    far.ended().wait();
    // The endpoint is DISCONNECTED: the unbind is flushed, and the window is freed.
    assert_eq!(one.revoke().wait().into_inner(), [1; 32]);
    drop(far);
    // The endpoint is freed: the unbind is refused, and the window is freed.
    assert_eq!(two.revoke().wait().into_inner(), [2; 32]);
}

/// Spec: EPK-06, CRA-01, GEN-10
#[test]
fn private_data_goes_both_ways() {
    let pair = Pair::new();
    let listener = pair.far.listen(7174).unwrap();
    assert_eq!(listener.qualifier(), 7174);
    let connecting = pair
        .near
        .connect("far:7174")
        .private_data(b"question")
        .start();
    let request = listener.next().wait().unwrap();
    assert_eq!(request.private_data(), b"question");
    assert_eq!(
        request.remote_address(),
        Some(pair.near_adapter.address().unwrap())
    );
    let far = request.accept().private_data(b"answer").wait().unwrap();
    let near = connecting.wait().unwrap();
    assert_eq!(near.private_data(), b"answer");
    drop(far);
    assert_eq!(near.ended().wait(), ConnectionEventKind::Disconnected);
}

/// Spec: CRR-01, EPK-07
#[test]
fn a_rejection_carries_private_data() {
    let pair = Pair::new();
    let listener = pair.far.listen(1).unwrap();
    let connecting = pair.near.connect("far:1").start();
    listener.next().wait().unwrap().reject(b"full").unwrap();
    match connecting.wait() {
        Err(Error::Rejected(data)) => assert_eq!(data, b"full"),
        other => panic!("{other:?}"),
    }
    // A request that is dropped is rejected, too.
    let connecting = pair.near.connect("far:1").start();
    drop(listener.next().wait().unwrap());
    assert!(matches!(connecting.wait(), Err(Error::Rejected(_))));
}

/// Spec: EPK-08, PSF-01
#[test]
fn connect_without_a_listener_is_refused() {
    let pair = Pair::new();
    let refused = pair.near.connect("far:9").wait().unwrap_err();
    assert!(matches!(
        refused,
        Error::Connection(ConnectionEventKind::NonPeerRejected)
    ));
    let listener = pair.far.listen(9).unwrap();
    let connecting = pair.near.connect("far:9").start();
    drop(listener);
    assert!(connecting.wait().is_err());
}

/// Spec: EPK-09, EPK-10
#[test]
fn a_connection_attempt_has_a_deadline() {
    let pair = Pair::new();
    let listener = pair.far.listen(9).unwrap();
    let short = std::time::Duration::from_millis(20);
    let connecting = pair.near.connect("far:9").deadline_in(short).start();
    let error = connecting.wait().unwrap_err();
    assert!(
        matches!(
            error,
            Error::Connection(ConnectionEventKind::TimedOut | ConnectionEventKind::Unreachable)
        ),
        "{error}"
    );
    drop(listener);
}

/// Spec: SRQR-01, EPX-01
#[test]
fn messages_of_many_endpoints_share_a_queue_and_give_buffers_back() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(3, 32).unwrap();
    let pairs: Vec<_> = (0..2)
        .map(|_| connect(&pair.near, &pair.far, Some(&queue)).unwrap())
        .collect();
    for round in 0_u8..50 {
        for (number, (near, far)) in pairs.iter().enumerate() {
            let text = [round, number as u8];
            near.send(pair.near.copy(&text).unwrap()).wait().unwrap();
            let message = far.next_message().wait().unwrap();
            assert_eq!(&message[..], text);
        }
    }
    assert_eq!(pair.far_adapter.in_flight(), 3);
    drop(queue);
    drop(pairs);
    eventually("the queue is freed", || pair.far_adapter.in_flight() == 0);
}

/// Spec: SRC-04
#[test]
fn messages_that_are_kept_hold_buffers() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(2, 8).unwrap();
    let (near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
    let send = |byte| near.send(pair.near.copy(&[byte]).unwrap());
    let sent: Vec<_> = (0..3).map(send).collect();
    let first = far.next_message().wait().unwrap();
    let second = far.next_message().wait().unwrap();
    assert_eq!((&first[..], &second[..]), (&[0][..], &[1][..]));
    let short = std::time::Duration::from_millis(30);
    let third = far.next_message().wait_timeout(short).unwrap_err();
    drop(first);
    assert_eq!(&third.wait().unwrap()[..], [2]);
    for sent in sent {
        sent.wait().unwrap();
    }
}

/// Spec: EPD-02, EPD-05
#[test]
fn messages_precede_the_end_of_the_connection() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(8, 8).unwrap();
    let (near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
    for byte in 0..5 {
        drop(near.send(pair.near.copy(&[byte]).unwrap()));
    }
    near.disconnect().wait().unwrap();
    for byte in 0..5 {
        assert_eq!(&far.next_message().wait().unwrap()[..], [byte]);
    }
    let end = far.next_message().wait().unwrap_err();
    assert!(matches!(
        end,
        Error::Connection(ConnectionEventKind::Disconnected)
    ));
    // Disconnecting once more changes nothing.
    far.disconnect().wait().unwrap();
}

/// Spec: EPD-01
#[test]
fn a_disconnect_flushes_receives_and_gives_memory_back() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let receive = far.recv(pair.far.region(vec![9_u8; 8]).unwrap());
    drop(near);
    let failed = receive.wait().unwrap_err();
    assert_eq!(
        failed.error.status(),
        Some(dat_core::flags::DtoStatus::Flushed)
    );
    assert_eq!(failed.memory.into_inner(), [9; 8]);
}

#[test]
fn a_timeout_gives_the_future_back() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let receive = far.recv(pair.far.buffer(8).unwrap());
    let short = std::time::Duration::from_millis(10);
    let receive = receive.wait_timeout(short).unwrap_err();
    near.send(pair.near.copy(b"later").unwrap()).wait().unwrap();
    let received = receive.wait_timeout(SOON).unwrap().unwrap();
    assert_eq!(&received.memory[..], b"later");
}

#[test]
fn dropped_buffers_return_to_their_pool() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let ids = |buffers: &[Buffer]| -> Vec<_> {
        buffers
            .iter()
            .map(|buffer| (buffer.id(), buffer.as_ptr().addr()))
            .collect()
    };
    let most = (1 << 16) / (1 << 14);
    let take = || -> Vec<_> {
        (0..most)
            .map(|_| pair.near.buffer(1 << 14).unwrap())
            .collect()
    };
    let buffers = take();
    let mut before = ids(&buffers);
    // The futures are dropped; the buffers return when the operations complete.
    let receives: Vec<_> = (0..most)
        .map(|_| far.recv(pair.far.buffer(1 << 14).unwrap()))
        .collect();
    for buffer in buffers {
        drop(near.send(buffer));
    }
    for receive in receives {
        receive.wait().unwrap();
    }
    eventually("all is sent", || pair.near_adapter.in_flight() == 0);
    let mut after = ids(&take());
    before.sort();
    after.sort();
    assert_eq!(before, after);
}

/// Spec: GEN-03
#[test]
fn refusals_name_the_cause_and_return_the_memory() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 16]).unwrap();
    let window = region.expose(.., Access::READ).to(&far).wait().unwrap();
    let remote = window.remote();
    let bytes = || pair.near.copy(b"0123456789").unwrap();
    let kind = |error: &Error| error.core().map(|error| error.kind());

    // Without the right; the name of the parameter is in the text.
    let failed = near.write(bytes(), remote).wait().unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::PrivilegesViolation));
    assert!(failed.to_string().contains("`remote`"), "{failed}");
    assert_eq!(&failed.memory[..], b"0123456789");
    // Local memory that is too short for a read.
    let failed = near.read(remote, bytes()).wait().unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::LengthError));
    // Beyond the remote range: refused before anything is posted.
    assert!(matches!(
        remote.slice(8..17),
        Err(Error::OutOfRange {
            start: 8,
            end: 17,
            length: 16
        })
    ));
    // Memory of another zone of the adapter.
    let other = pair.near_adapter.zone().unwrap();
    let failed = near.send(other.copy(b"zone").unwrap()).wait().unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::ProtectionViolation));
    // Memory of another adapter.
    let failed = near
        .send(pair.far.copy(b"adapter").unwrap())
        .wait()
        .unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::InvalidHandle));
    assert_eq!(&failed.memory[..], b"adapter");
    let region = pair.near.region(vec![5_u8; 8]).unwrap();
    let failed = region.expose(.., Access::READ).to(&far).wait().unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::InvalidHandle));
    // A window of no bytes, or beyond the region.
    let region: Region<Vec<u8>> = failed.memory;
    let failed = region
        .expose(3..3, Access::READ)
        .to(&near)
        .wait()
        .unwrap_err();
    assert_eq!(kind(&failed.error), Some(ErrorKind::InvalidParameter));
    let failed = failed
        .memory
        .expose(3..9, Access::READ)
        .to(&near)
        .wait()
        .unwrap_err();
    assert!(matches!(failed.error, Error::OutOfRange { .. }));
    let failed = failed.memory.slice(9..).unwrap_err();
    assert_eq!(failed.memory.into_inner(), [5; 8]);
    // A receive on an endpoint without a shared queue.
    let error = near.next_message().wait().unwrap_err();
    assert_eq!(kind(&error), Some(ErrorKind::InvalidState));
    // The endpoint is still connected.
    let receive = far.recv(pair.far.buffer(8).unwrap());
    near.send(pair.near.copy(b"fine").unwrap()).wait().unwrap();
    receive.wait().unwrap();
    // Nothing is left of the refused operations.
    assert_eq!(pair.near_adapter.in_flight(), 0);
}

/// Spec: EPX-04
#[test]
fn a_shared_endpoint_has_no_receives_of_its_own() {
    let pair = Pair::new();
    let queue = pair.far.shared_receive(2, 8).unwrap();
    let (_near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
    let failed = far.recv(pair.far.buffer(8).unwrap()).wait().unwrap_err();
    let kind = failed.error.core().unwrap().kind();
    assert_eq!(kind, ErrorKind::InvalidState);
}

#[test]
fn more_operations_than_fit_are_refused_with_their_memory() {
    let pair = Pair::new();
    let (near, _far) = pair.connect();
    // Without receives at the peer none of them completes.
    let mut sent = Vec::new();
    let refused = loop {
        let mut send = near.send(pair.near.copy(b"x").unwrap());
        let short = std::time::Duration::ZERO;
        match send.wait_timeout(short) {
            Err(pending) => send = pending,
            Ok(done) => break done.unwrap_err(),
        }
        sent.push(send);
        assert!(sent.len() <= 64);
    };
    assert_eq!(sent.len(), 64);
    let kind = refused.error.core().unwrap().kind();
    assert_eq!(kind, ErrorKind::InsufficientResources);
    drop(near);
    for send in sent {
        assert_eq!(&send.wait().unwrap_err().memory[..], b"x");
    }
}

/// Spec: DTO-10
#[test]
fn operations_after_the_end_of_the_connection_are_flushed() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    drop(far);
    assert_eq!(near.ended().wait(), ConnectionEventKind::Disconnected);
    let failed = near.send(pair.near.copy(b"late").unwrap()).wait();
    let failed = failed.unwrap_err();
    assert_eq!(
        failed.error.status(),
        Some(dat_core::flags::DtoStatus::Flushed)
    );
    assert_eq!(&failed.memory[..], b"late");
    let region = pair.near.region(vec![8_u8; 8]).unwrap();
    let failed = region.expose(.., Access::READ).to(&near).wait();
    assert_eq!(failed.unwrap_err().memory.into_inner(), [8; 8]);
}

#[test]
fn many_writes_read_one_region_at_the_same_time() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 1 << 16]).unwrap();
    let window = region.expose(.., Access::WRITE).to(&far).wait().unwrap();
    let remote = window.remote();
    let bytes: Vec<u8> = (0..1 << 16)
        .map(|number: u32| (number >> 3) as u8)
        .collect();
    let source = pair.near.region(bytes.clone()).unwrap().share();
    let piece = 1 << 12;
    let writes: Vec<_> = (0..16)
        .map(|number| number * piece..(number + 1) * piece)
        .map(|range| {
            let to = remote.slice(range.start as u64..range.end as u64).unwrap();
            near.write(source.slice(range).unwrap(), to)
        })
        .collect();
    // It is read here, too, while the writes are in flight.
    assert_eq!(source[..], bytes);
    let source = source.into_region().unwrap_err();
    assert!(source.slice(1..(1 << 16) + 1).is_err());
    for write in writes {
        assert_eq!(write.wait().unwrap().len(), piece);
    }
    assert_eq!(source.into_region().unwrap().into_inner(), bytes);
    assert_eq!(window.revoke().wait().into_inner(), bytes);
    // Its future is dropped: the operation keeps the memory.
    let source = pair.near.region(vec![1_u8; 8]).unwrap().share();
    drop(near.send(source.clone()));
    let source = source.into_region().unwrap_err();
    let receive = far.recv(pair.far.buffer(8).unwrap());
    receive.wait().unwrap();
    eventually("the send completes", || pair.near_adapter.in_flight() == 0);
    assert_eq!(source.into_region().unwrap().into_inner(), [1; 8]);
}
