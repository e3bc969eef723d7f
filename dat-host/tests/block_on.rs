//! A driver that runs a future on its thread.

mod common;

use std::pin::Pin;
use std::thread;
use std::time::{Duration, Instant};

use backend_mock::Fabric;
use common::SOON;
use common::silent::Silent;
use dat_core::backend::HostBackend as _;
use dat_core::event::ConnectionEventKind;
use dat_host::{Adapter, Driver, Endpoint, Error, Network, Options, Receive, Result, Zone};
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, StreamExt};

/// Zones of an adapter `near` whose driver the test runs, and of one `far` with a thread.
fn open() -> (Zone, Driver, Zone) {
    let network = common::network();
    let options = || Options::new().network(&network);
    let (near, driver) = options().open_driven("mock://near").unwrap();
    let far = options().open("mock://far").unwrap();
    (near.zone().unwrap(), driver, far.zone().unwrap())
}

/// Sends each message back, until the connection ends.
async fn echo(zone: Zone, endpoint: Endpoint) -> Error {
    let echo = async {
        loop {
            let message = endpoint.recv(zone.buffer(8)?).await?;
            endpoint.send(message.memory).await?;
        }
    };
    let ended: Result<()> = echo.await;
    ended.unwrap_err()
}

/// Sends numbers, and expects them back.
fn ping(zone: &Zone, endpoint: &Endpoint) {
    for number in 0..100_u64 {
        let answer = endpoint.recv(zone.buffer(8).unwrap());
        let sent = endpoint.send(zone.copy(&number.to_le_bytes()).unwrap());
        sent.wait_timeout(SOON).expect("in time").unwrap();
        let answer = answer.wait_timeout(SOON).expect("in time").unwrap();
        assert_eq!(answer.memory[..], number.to_le_bytes());
    }
}

/// Serves one client with a driver that `run` runs.
fn serve_one(run: impl FnOnce(Driver, &mut (dyn Future<Output = Error> + Unpin)) -> Error) {
    let (near, driver, far) = open();
    let listener = near.listen(5).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| ping(&far, &far.connect("near:5").wait().unwrap()));
        let mut served = Box::pin(async {
            let endpoint = listener.next().await.unwrap().accept().await.unwrap();
            echo(near.clone(), endpoint).await
        });
        let ended = run(driver, &mut served);
        assert!(ended.status().is_some(), "{ended:?}");
    });
    assert!(near.region(vec![0; 8]).is_err(), "the adapter is closed");
}

#[test]
fn a_future_gets_its_completions_on_the_thread_that_drives() {
    serve_one(|driver, served| driver.run_until(served));
}

/// The thread sleeps in the sleeper of the device; a thread that waited before is woken.
#[test]
#[cfg(feature = "roce")]
fn a_future_gets_its_completions_in_the_sleeper_of_its_device() {
    let (adapter, driver) = Options::new().open_driven("roce://127.0.0.37").unwrap();
    let zone = adapter.zone().unwrap();
    let client = Adapter::open("roce://127.0.0.38").unwrap().zone().unwrap();
    let qualifier = 20_000 + u64::from(std::process::id() % 10_000);
    let (first, second) = (zone.listen(qualifier), zone.listen(qualifier + 1));
    let (first, second) = (first.unwrap(), second.unwrap());
    let peer = |qualifier| (adapter.address().unwrap(), qualifier);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let request = second.next().wait_timeout(SOON).expect("in time");
            request.unwrap().reject(b"later").unwrap();
        });
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            let rejected = client.connect(peer(qualifier + 1)).wait_timeout(SOON);
            assert!(matches!(
                rejected.expect("in time"),
                Err(Error::Rejected(_))
            ));
            waits.join().unwrap();
            ping(&client, &client.connect(peer(qualifier)).wait().unwrap());
        });
        // Sleeps begin and end while nothing happens.
        let ended = driver.run_until(async {
            let endpoint = first.next().await.unwrap().accept().await.unwrap();
            echo(zone.clone(), endpoint).await
        });
        assert!(ended.status().is_some(), "{ended:?}");
    });
    assert!(zone.region(vec![0; 8]).is_err(), "the adapter is closed");
}

#[test]
fn a_future_gets_its_completions_on_a_thread_that_polls() {
    serve_one(|driver, served| driver.polling(thread::yield_now).run_until(served));
}

/// Other threads wait for their own operations, and give tasks to the thread that drives.
#[test]
fn tasks_of_other_threads_run_on_the_thread_that_drives() {
    const CLIENTS: usize = 4;
    let (near, driver, far) = open();
    let listener = near.listen(5).unwrap();
    let (tasks, begun) = mpsc::unbounded();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let endpoint = far.connect("near:5").wait().unwrap();
                ping(&far, &endpoint);
                endpoint.disconnect().wait().unwrap();
            });
        }
        let (near, driving) = (&near, thread::current().id());
        scope.spawn(move || {
            for _ in 0..CLIENTS {
                let endpoint = listener.next().wait().unwrap().accept().wait().unwrap();
                let ended = endpoint.ended();
                let (over, is_over) = oneshot::channel();
                let task = echo(near.clone(), endpoint).map(move |error| {
                    assert!(error.status().is_some(), "{error:?}");
                    over.send(thread::current().id()).unwrap();
                });
                tasks.unbounded_send(task).unwrap();
                scope.spawn(move || {
                    let kind = ended.wait_timeout(SOON).expect("in time");
                    assert_eq!(kind, ConnectionEventKind::Disconnected);
                    let by = futures::executor::block_on(is_over).unwrap();
                    assert_eq!(by, driving);
                });
            }
        });
        driver.run_until(begun.for_each_concurrent(None, |task| task));
    });
}

/// Waits one time after the other; in between the adapter stays open.
fn connect_in_turns(configure: impl FnOnce(Driver) -> Driver) {
    let (near, driver, far) = open();
    let mut driver = configure(driver);
    let mut timeouts = 0;
    let mut waits = |mut future: Pin<Box<dyn Future<Output = bool> + '_>>, timeout| {
        let output = driver.run_for(timeout, &mut future).ok();
        timeouts += u32::from(output.is_none());
        output
    };
    let listener = near.listen(5).unwrap();
    let begin = Instant::now();
    let never = Duration::from_millis(20);
    let arrives = async { listener.next().await.is_ok() };
    assert_eq!(waits(Box::pin(arrives), never), None);
    assert!(begin.elapsed() >= never);
    let client = far.connect("near:5").start();
    let mut endpoint = None;
    let accepts = async {
        let request = listener.next().await.unwrap();
        endpoint = Some(request.accept().await.unwrap());
        true
    };
    assert_eq!(waits(Box::pin(accepts), SOON), Some(true));
    let (endpoint, client) = (endpoint.unwrap(), client.wait().unwrap());
    let receive = endpoint.recv(near.buffer(8).unwrap());
    client.send(far.copy(b"message").unwrap()).wait().unwrap();
    // One look is enough for a message that has come.
    let arrives = receive.map(|received| received.is_ok());
    assert_eq!(waits(Box::pin(arrives), Duration::ZERO), Some(true));
    assert_eq!(timeouts, 1);
    drop(driver);
    assert!(near.region(vec![0; 8]).is_err(), "the adapter is closed");
}

#[test]
fn a_driver_sleeps_for_a_time() {
    connect_in_turns(|driver| driver);
}

#[test]
fn a_driver_polls_for_a_time() {
    connect_in_turns(|driver| driver.polling(thread::yield_now));
}

/// Time that passes wakes no future, and ends no sleep for good.
#[test]
fn a_driver_that_sleeps_is_woken_by_other_threads() {
    let (near, driver, _far) = open();
    let (ready, is_ready) = oneshot::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            ready.send(7).unwrap();
        });
        let number = driver.run_until(is_ready);
        assert_eq!(number, Ok(7));
    });
    assert!(near.region(vec![0; 8]).is_err(), "the adapter is closed");
}

/// A future runs again before the driver has taken all of many completions.
#[test]
fn a_flood_of_completions_does_not_keep_the_driver() {
    const EACH: u64 = 64;
    let (near, driver, far) = open();
    let listener = near.listen(5).unwrap();
    let ends: Vec<_> = (0..16)
        .map(|_| {
            let connecting = far.connect("near:5").start();
            let accepted = listener.next().wait().unwrap().accept().wait().unwrap();
            (connecting.wait().unwrap(), accepted)
        })
        .collect();
    let mut receives = Vec::new();
    for (sender, receiver) in &ends {
        for number in 0..EACH {
            receives.push(receiver.recv(near.buffer(8).unwrap()));
            let sent = sender.send(far.copy(&number.to_le_bytes()).unwrap());
            sent.wait_timeout(SOON).expect("in time").unwrap();
        }
    }
    let left = driver.run_until(async {
        receives.remove(0).await.unwrap();
        let is_ready = |receive: &mut Receive<_>| receive.now_or_never().is_some();
        receives
            .iter_mut()
            .map(is_ready)
            .filter(|&ready| !ready)
            .count()
    });
    assert!(left > 0, "the driver took all completions at once");
}

/// An adapter whose driver the test runs and one with a thread, both on devices that do not ring.
fn open_silent() -> (Zone, Driver, Zone) {
    let fabric = Fabric::new(Network::options());
    let backend = |number| fabric.node(common::host("silent", number));
    let device = || Silent::on(&fabric);
    let opened = Options::new().open_backend_driven(backend(1), device());
    let (near, driver) = opened.unwrap();
    let far = Options::new().open_backend(backend(2), device()).unwrap();
    (near.zone().unwrap(), driver, far.zone().unwrap())
}

#[test]
fn blocking_waits_poll_a_device_that_does_not_ring() {
    let (near, driver, far) = open_silent();
    let listener = near.listen(5).unwrap();
    let peer = (near.address().unwrap(), listener.qualifier());
    thread::scope(|scope| {
        scope.spawn(|| {
            let connected = far.connect(peer).wait_timeout(SOON).expect("in time");
            ping(&far, &connected.unwrap());
        });
        let request = listener.next().wait_timeout(SOON).expect("in time");
        let accepted = request.unwrap().accept().wait_timeout(SOON);
        let endpoint = accepted.expect("in time").unwrap();
        driver.run_until(async {
            // Blocks the thread that drives.
            for _ in 0..100 {
                let received = endpoint.recv(near.buffer(8).unwrap());
                let received = received.wait_timeout(SOON).expect("in time").unwrap();
                let sent = endpoint.send(received.memory);
                sent.wait_timeout(SOON).expect("in time").unwrap();
            }
        });
    });
}

#[test]
fn a_driver_that_runs_a_future_polls_a_device_that_does_not_ring() {
    let (near, driver, far) = open_silent();
    let listener = near.listen(5).unwrap();
    let peer = (near.address().unwrap(), listener.qualifier());
    thread::scope(|scope| {
        scope.spawn(|| ping(&far, &far.connect(peer).wait().unwrap()));
        let _ended = driver.run_until(async {
            let endpoint = listener.next().await.unwrap().accept().await.unwrap();
            echo(near.clone(), endpoint).await
        });
    });
}

#[test]
fn a_driver_may_move_to_another_thread() {
    let (near, mut driver, far) = open();
    let listener = near.listen(5).unwrap();
    let none = driver.run_for(Duration::ZERO, listener.next());
    assert!(none.is_err(), "nobody has connected");
    let peer = (near.address().unwrap(), listener.qualifier());
    thread::scope(|scope| {
        scope.spawn(|| {
            driver.run_until(async {
                let endpoint = listener.next().await.unwrap().accept().await.unwrap();
                // A wait on the thread that drives drives, too.
                let received = endpoint.recv(near.buffer(8).unwrap());
                received.wait_timeout(SOON).expect("in time").unwrap();
            })
        });
        let endpoint = far
            .connect(peer)
            .wait_timeout(SOON)
            .expect("in time")
            .unwrap();
        let sent = endpoint.send(far.copy(b"8 bytes.").unwrap());
        sent.wait_timeout(SOON).expect("in time").unwrap();
    });
}

#[test]
fn a_driver_polls_a_device_that_does_not_ring() {
    let (near, driver, far) = open_silent();
    let listener = near.listen(5).unwrap();
    let peer = (near.address().unwrap(), listener.qualifier());
    thread::scope(|scope| {
        scope.spawn(|| ping(&far, &far.connect(peer).wait().unwrap()));
        let served = async {
            let endpoint = listener.next().await.unwrap().accept().await.unwrap();
            echo(near.clone(), endpoint).await
        };
        let (ended, is_over) = oneshot::channel();
        scope.spawn(|| {
            let driving = Box::pin(served.map(|error| ended.send(error).unwrap()));
            futures::executor::block_on(futures::future::select(driving, driver));
        });
        let error = futures::executor::block_on(is_over).unwrap();
        assert!(error.status().is_some(), "{error:?}");
    });
}

/// A network with a thread of its own has a clock of its own, and a sleeper.
#[test]
fn an_adapter_follows_the_clock_of_its_device() {
    let fabric = Fabric::new(Network::options());
    thread::sleep(Duration::from_millis(20));
    let _thread = fabric.spawn_thread().unwrap();
    let near = Adapter::from_backend(fabric.node(common::host("near", 1))).unwrap();
    let backend = fabric.node(common::host("far", 2));
    let driver = backend.driver();
    let (far, driver) = Options::new().open_backend_driven(backend, driver).unwrap();
    let (near, zone) = (near.zone().unwrap(), far.zone().unwrap());
    let listener = zone.listen(5).unwrap();
    let peer = (far.address().unwrap(), 5);
    thread::scope(|scope| {
        scope.spawn(|| {
            let endpoint = near.connect(peer).wait_timeout(SOON).expect("in time");
            ping(&near, &endpoint.unwrap());
            // Nobody listens there: the attempt ends by the device or by its deadline.
            let short = Duration::from_millis(30);
            let attempt = near.connect((peer.0, 6)).deadline_in(short);
            assert!(attempt.wait_timeout(SOON).expect("in time").is_err());
        });
        driver.run_until(async {
            let endpoint = listener.next().await.unwrap().accept().await.unwrap();
            echo(zone.clone(), endpoint).await
        });
    });
}
