//! Raw completions that the program takes by itself.

mod common;

use std::time::{Duration, Instant};

use backend_mock::MockBackend;
use common::{Pair, SOON};
use dat_core::ErrorKind;
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus, LmrFields};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_host::{Access, Endpoint, Error, Events, Zone};

/// Connects an endpoint with events to one without.
fn connect(near: &Zone, far: &Zone, events: &Events) -> (Endpoint, Endpoint) {
    let listener = far.listen_with(None, 4).unwrap();
    let peer = (far.address().unwrap(), listener.qualifier());
    let connecting = near.connect(peer).events(events).start();
    let far = listener.next().wait().unwrap().accept().wait().unwrap();
    (connecting.wait().unwrap(), far)
}

/// Takes the next event without the driver.
fn take(events: &Events) -> Event {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(event) = events.try_next() {
            return event;
        }
        assert!(Instant::now() < deadline, "an event comes");
        std::thread::yield_now();
    }
}

fn completion(event: Event) -> (u64, DtoStatus, u64) {
    match event {
        Event::Dto(done) => (done.cookie, done.status, done.transferred_length),
        other => panic!("{other:?}"),
    }
}

#[test]
fn operations_end_when_their_events_are_taken() {
    let pair = Pair::new();
    let events = pair.near.events().unwrap();
    let (near, far) = connect(&pair.near, &pair.far, &events);
    let receive = far.recv(pair.far.buffer(8).unwrap());
    let sent = near.send(pair.near.copy(b"hello").unwrap());
    receive.wait().unwrap();
    // The driver leaves the completion to the program.
    let sent = sent.wait_timeout(Duration::from_millis(50)).unwrap_err();
    assert_eq!(pair.near_adapter.in_flight(), 1);
    let expected = (sent.cookie().unwrap(), DtoStatus::Success, 5);
    assert_eq!(completion(take(&events)), expected);
    assert!(events.try_next().is_none());
    let memory = sent.wait_timeout(Duration::ZERO).unwrap().unwrap();
    assert_eq!(
        (&memory[..], pair.near_adapter.in_flight()),
        (&b"hello"[..], 0)
    );

    let receive = near.recv(pair.near.buffer(8).unwrap());
    far.send(pair.far.copy(b"answer").unwrap()).wait().unwrap();
    assert_eq!(completion(take(&events)).0, receive.cookie().unwrap());
    assert_eq!(&receive.wait().unwrap().memory[..], b"answer");
    // An operation without a future gives its memory back to the pool.
    drop(far.recv(pair.far.buffer(8).unwrap()));
    drop(near.send(pair.near.copy(b"dropped").unwrap()));
    assert_eq!(completion(take(&events)).2, 7);
    assert_eq!(pair.near_adapter.in_flight(), 0);
}

#[test]
fn events_wake_their_futures_one_by_one() {
    let pair = Pair::new();
    let events = pair.near.events().unwrap();
    let (near, far) = connect(&pair.near, &pair.far, &events);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            (0..200)
                .map(|_| completion(events.next().wait().unwrap()).0)
                .collect::<Vec<u64>>()
        });
        let mut cookies = Vec::new();
        for number in 0..200_u32 {
            let receive = far.recv(pair.far.buffer(4).unwrap());
            let sent = near.send(pair.near.copy(&number.to_le_bytes()).unwrap());
            cookies.push(sent.cookie().unwrap());
            receive.wait().unwrap();
            // Another thread takes the event.
            sent.wait_timeout(SOON).expect("in time").unwrap();
        }
        assert_eq!(taking.join().unwrap(), cookies);
    });
}

#[test]
fn binds_and_flushed_receives_are_events() {
    let pair = Pair::new();
    let events = pair.near.events().unwrap();
    let (near, far) = connect(&pair.near, &pair.far, &events);
    let region = pair.near.region(vec![1_u8; 8]).unwrap();
    let exposing = region.expose(.., Access::READ).to(&near);
    assert!(matches!(take(&events), Event::RmrBind(done) if done.status == DtoStatus::Success));
    let window = exposing.wait().unwrap();
    let read = far.read(window.remote(), pair.far.buffer(8).unwrap());
    assert_eq!(read.wait().unwrap()[..], [1; 8]);
    let receive = near.recv(pair.near.buffer(8).unwrap());
    far.disconnect().wait().unwrap();
    let (cookie, status, _) = completion(take(&events));
    assert_eq!(
        (Some(cookie), status),
        (receive.cookie(), DtoStatus::Flushed)
    );
    assert!(receive.wait().is_err());
    drop(window);
}

#[test]
fn the_end_of_endpoint_or_adapter_ends_operations_without_events() {
    let pair = Pair::new();
    let events = pair.near.events().unwrap();
    let (near, far) = connect(&pair.near, &pair.far, &events);
    let receive = near.recv(pair.near.buffer(8).unwrap());
    drop(near);
    let failed = receive.wait_timeout(SOON).expect("in time").unwrap_err();
    assert_eq!(failed.error.status(), Some(DtoStatus::Flushed));
    drop(far);
    // A completion that its endpoint no longer waits for changes nothing.
    while events.try_next().is_some() {}
    let (near, _far) = connect(&pair.near, &pair.far, &events);
    let receive = near.recv(pair.near.buffer(8).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| events.next().wait());
        std::thread::sleep(Duration::from_millis(20));
        pair.near_adapter.close();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    });
    assert!(matches!(receive.wait().unwrap_err().error, Error::Closed));
    assert!(events.try_next().is_none());
}

#[test]
fn messages_of_a_shared_queue_need_no_events() {
    let pair = Pair::new();
    let events = pair.near.events().unwrap();
    let queue = pair.near.shared_receive(4, 16).unwrap();
    let listener = pair.near.listen(5).unwrap();
    let connecting = pair.far.connect("near:5").start();
    let accepting = listener.next().wait().unwrap().accept();
    let near = accepting.receive(&queue).events(&events).wait().unwrap();
    let far = connecting.wait().unwrap();
    for _ in 0..8 {
        far.send(pair.far.copy(b"call").unwrap()).wait().unwrap();
        assert_eq!(&near.next_message().wait().unwrap()[..], b"call");
    }
    let receive = far.recv(pair.far.buffer(8).unwrap());
    drop(near.send(pair.near.copy(b"reply").unwrap()));
    assert_eq!(completion(take(&events)).2, 5);
    receive.wait().unwrap();
}

#[test]
fn events_of_another_adapter_are_refused() {
    let pair = Pair::new();
    let events = pair.far.events().unwrap();
    let _listener = pair.far.listen(6).unwrap();
    let refused = pair.near.connect("far:6").events(&events).wait();
    let kind = refused.unwrap_err().core().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::InvalidHandle));
}

#[cfg(feature = "roce")]
#[test]
fn events_come_over_udp() {
    let open = |address| dat_host::Adapter::open(address).unwrap().zone().unwrap();
    let (near, far) = (open("roce://127.0.0.35"), open("roce://127.0.0.36"));
    let events = near.events().unwrap();
    let (client, server) = connect(&near, &far, &events);
    for number in 0..50_u32 {
        let receive = server.recv(far.buffer(4).unwrap());
        let sent = client.send(near.copy(&number.to_le_bytes()).unwrap());
        // The program sleeps, or takes the completion itself.
        let event = match number % 2 {
            0 => events.next().wait_timeout(SOON).expect("in time").unwrap(),
            _ => take(&events),
        };
        assert_eq!(Some(completion(event).0), sent.cookie());
        sent.wait().unwrap();
        receive.wait().unwrap();
    }
}

/// Sends, Writes and binds are events of the program; receives are not.
#[test]
fn the_driver_takes_receives_if_the_program_takes_requests() {
    let pair = Pair::new();
    let requests = pair.near.events().unwrap();
    let endpoint = pair.near.endpoint_with_events(None, &requests).unwrap();
    let question = endpoint.recv(pair.near.buffer(8).unwrap());
    let listener = pair.near.listen(5).unwrap();
    let connecting = pair.far.connect("near:5").start();
    let accepting = listener.next().wait().unwrap().accept();
    let near = accepting.start_on(endpoint).wait().unwrap();
    let far = connecting.wait().unwrap();
    let answer = far.recv(pair.far.buffer(8).unwrap());
    far.send(pair.far.copy(b"question").unwrap())
        .wait()
        .unwrap();
    let question = question.wait_timeout(SOON).expect("in time").unwrap();
    let sent = near.send(question.memory);
    assert_eq!(&answer.wait().unwrap().memory[..], b"question");
    // Nobody is notified of requests until a future waits for one.
    let sent = sent.wait_timeout(Duration::from_millis(50)).unwrap_err();
    assert_eq!(
        completion(requests.next().wait().unwrap()).0,
        sent.cookie().unwrap()
    );
    sent.wait_timeout(Duration::ZERO).unwrap().unwrap();
    let second = near.send(pair.near.copy(b"again").unwrap());
    let (cookie, status, _) = thread_next(&requests, || {
        far.recv(pair.far.buffer(8).unwrap()).wait().unwrap();
    });
    assert_eq!(
        (Some(cookie), status),
        (second.cookie(), DtoStatus::Success)
    );
    let refused = pair.far.endpoint_with_events(None, &requests).unwrap_err();
    let kind = refused.core().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::InvalidHandle));
}

/// Waits for the next event on another thread while `act` runs.
fn thread_next(events: &Events, act: impl FnOnce()) -> (u64, DtoStatus, u64) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| completion(events.next().wait().unwrap()));
        std::thread::sleep(Duration::from_millis(20));
        act();
        waiting.join().unwrap()
    })
}

/// Posts of the program by itself end no operation, whatever their cookies, if these are small.
#[test]
#[expect(unsafe_code, reason = "the posts keep to the rules")]
fn posts_in_the_core_end_no_operation() {
    let pair = Pair::new();
    let (near, far, near_adapter) = (&pair.near, &pair.far, &pair.near_adapter);
    let events = near.events().unwrap();
    let (client, server) = connect(near, far, &events);
    let from = near.window(vec![7; 8], Access::READ).unwrap();
    let to = far.window(vec![0; 8], Access::WRITE).unwrap();
    // SAFETY: the endpoint has `events`, the segment is of a window, and the cookie is small.
    let core = unsafe { near_adapter.ia::<MockBackend>() }.unwrap();
    let region = core.lmr_query(from.id(), LmrFields::all()).unwrap();
    let segment = LmrTriplet {
        context: region.lmr_context,
        address: from.remote().address(),
        length: 8,
    };
    let remote = RmrTriplet {
        context: to.remote().context(),
        address: to.remote().address(),
        length: 8,
    };
    // In flight until the server receives; it is the first of the adapter's operations.
    let message = client.send(near.copy(b"message").unwrap());
    let index = message.cookie().unwrap() & u64::from(u32::MAX);
    for cookie in [index, u64::from(u32::MAX)] {
        let none = CompletionFlags::empty();
        let (ep, segments) = (client.id(), [segment]);
        core.post_rdma_write(ep, &segments, cookie, &remote, none)
            .unwrap();
    }
    assert_eq!(near_adapter.in_flight(), 1);
    let receive = server.recv(far.buffer(8).unwrap());
    let sent = completion(take(&events));
    assert_eq!(Some(sent.0), message.cookie());
    assert_eq!(&message.wait().unwrap()[..], b"message");
    let message = client.send(near.copy(b"another").unwrap());
    assert_eq!(near_adapter.in_flight(), 1);
    assert_eq!(completion(take(&events)), (index, DtoStatus::Success, 8));
    let last = completion(take(&events));
    assert_eq!(last, (u64::from(u32::MAX), DtoStatus::Success, 8));
    assert_eq!(near_adapter.in_flight(), 1, "the second message");
    receive.wait().unwrap();
    assert_eq!(to.into_inner(), [7; 8]);
    drop(message);
}
