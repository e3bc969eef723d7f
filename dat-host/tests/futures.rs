//! Futures that are dropped and forgotten at every await point, on adapters driven by futures.

mod common;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use backend_mock::Fabric;
use dat_host::{
    Access, Activity, Adapter, BackendError, Driver, Endpoint, Error, HostDriver, Network, Options,
    Result, ThreadWait, Zone,
};

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::<Count>::default());
    future.poll(&mut Context::from_waker(&waker))
}

/// Two adapters without threads; nothing happens unless `drive` is called.
struct Stage {
    near_adapter: Adapter,
    far_adapter: Adapter,
    near: Zone,
    far: Zone,
    drivers: Vec<Driver>,
}

impl Stage {
    fn new() -> Self {
        let network = common::network();
        let open = |address| {
            let options = Options::new().network(&network);
            options.open_driven(address).unwrap()
        };
        let (near_adapter, near_driver) = open("mock://near");
        let (far_adapter, far_driver) = open("mock://far");
        Self {
            near: near_adapter.zone().unwrap(),
            far: far_adapter.zone().unwrap(),
            near_adapter,
            far_adapter,
            drivers: vec![near_driver, far_driver],
        }
    }

    /// Polls both drivers once.
    fn drive(&mut self) {
        for driver in &mut self.drivers {
            assert!(poll(Pin::new(driver)).is_pending());
        }
    }

    /// Runs a future to its end.
    fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = Box::pin(future);
        for _ in 0..10_000 {
            if let Poll::Ready(output) = poll(future.as_mut()) {
                return output;
            }
            self.drive();
        }
        panic!("the future never ends");
    }
}

async fn server(zone: Zone, qualifier: u64, log: Arc<Mutex<Vec<&'static str>>>) -> Result<Vec<u8>> {
    let note = |what| log.lock().unwrap().push(what);
    let listener = zone.listen(qualifier)?;
    let queue = zone.shared_receive(4, 64)?;
    let request = listener.next().await?;
    note("request");
    let endpoint = request.accept().receive(&queue).private_data(b"hi").await?;
    note("accepted");
    let region = zone.region(vec![0_u8; 128])?;
    let window = region.expose(.., Access::all()).to(&endpoint).await?;
    note("exposed");
    let remote = window.remote().to_bytes();
    endpoint.send(zone.copy(&remote)?).await?;
    note("sent");
    let message = endpoint.next_message().await?;
    assert_eq!(&message[..], b"done");
    note("message");
    let region = window.revoke().await;
    note("revoked");
    endpoint.ended().await;
    note("ended");
    Ok(region.into_inner())
}

async fn client(zone: Zone, qualifier: u64) -> Result<()> {
    let peer = format!("far:{qualifier}");
    let endpoint = zone.connect(peer).await?;
    let address = endpoint.recv(zone.buffer(64)?).await?;
    let remote = dat_host::RemoteSlice::from_bytes(&address.memory)?;
    let source = zone.region(b"written".to_vec())?;
    let source = endpoint.write(source, remote.slice(1..)?).await?;
    let copy = endpoint.read(remote.slice(1..8)?, zone.buffer(7)?).await?;
    assert_eq!(copy[..], source[..]);
    endpoint.send(zone.copy(b"done")?).await?;
    endpoint.disconnect().await
}

/// End of the future that is not polled further.
#[derive(Clone, Copy, Debug)]
enum End {
    Drop,
    Forget,
}

/// Polls client and server in turn; ends the task number `victim` after `polls` polls.
///
/// Returns true if that task was done before.
fn run_until(stage: &mut Stage, victim: usize, polls: usize, end: End, qualifier: u64) -> bool {
    let log = Arc::default();
    let client = Box::pin(client(stage.near.clone(), qualifier));
    let server = server(stage.far.clone(), qualifier, Arc::clone(&log));
    let server = Box::pin(async {
        server
            .await
            .map(|bytes| assert_eq!(&bytes[1..8], b"written"))
    });
    // The server first, so that it listens.
    type Task = Pin<Box<dyn Future<Output = Result<()>>>>;
    let mut tasks: [Option<Task>; 2] = [Some(server), Some(client)];
    let mut done = 0;
    let mut victim_ended = false;
    for turn in 0..1000 {
        for (number, slot) in tasks.iter_mut().enumerate() {
            if number == victim && turn == polls {
                match (slot.take(), end) {
                    (task, End::Drop) => drop(task),
                    (task, End::Forget) => std::mem::forget(task),
                }
            }
            if let Some(task) = slot
                && let Poll::Ready(result) = poll(task.as_mut())
            {
                *slot = None;
                done += 1;
                if number == victim {
                    victim_ended = true;
                    result.unwrap();
                } else if let Err(error) = result {
                    // The end of the peer is an error that names the connection.
                    let is_end = matches!(
                        error,
                        Error::Connection(_)
                            | Error::Rejected(_)
                            | Error::Failed(_)
                            | Error::Refused(_)
                    );
                    assert!(is_end, "{error}");
                }
            }
        }
        stage.drive();
        if done == 2 {
            break;
        }
    }
    victim_ended
}

#[test]
fn tasks_dropped_at_every_await_point_leave_nothing_behind() {
    let mut stage = Stage::new();
    for victim in 0..2 {
        let mut polls = 0;
        loop {
            let qualifier = (victim * 1000 + polls) as u64;
            let ended = run_until(&mut stage, victim, polls, End::Drop, qualifier);
            for _ in 0..4 {
                stage.drive();
            }
            let left = (
                stage.near_adapter.in_flight(),
                stage.far_adapter.in_flight(),
            );
            assert_eq!(left, (0, 0), "victim {victim} after {polls} polls");
            if ended {
                break;
            }
            polls += 1;
        }
        assert!(polls >= 5, "the task has await points");
    }
}

#[test]
fn forgotten_tasks_change_nothing_for_others() {
    for victim in 0..2 {
        let mut polls = 0;
        loop {
            // A task that is forgotten keeps its endpoints: a pair of adapters for each.
            let mut stage = Stage::new();
            let ended = run_until(&mut stage, victim, polls, End::Forget, 7);
            // The adapters still work, and close.
            assert!(run_until(&mut stage, 0, 1000, End::Drop, 8));
            stage.near_adapter.close();
            stage.far_adapter.close();
            assert!(stage.near.region(vec![0_u8; 8]).is_err());
            if ended {
                break;
            }
            polls += 1;
        }
    }
}

fn connected(stage: &mut Stage) -> (Endpoint, Endpoint) {
    let listener = stage.far.listen(1).unwrap();
    let near = stage.near.connect("far:1").start();
    let request = stage.run(listener.next()).unwrap();
    let far = stage.run(request.accept().into_future()).unwrap();
    (stage.run(near).unwrap(), far)
}

/// Every kind of operation: posted, polled some times, and its future dropped or forgotten.
#[test]
fn an_operation_goes_on_without_its_future() {
    for end in [End::Drop, End::Forget] {
        for polls in 0..3 {
            let mut stage = Stage::new();
            let (near, far) = connected(&mut stage);
            fn leave<F: Future + Unpin>(mut future: F, polls: usize, end: End, stage: &mut Stage) {
                for number in 0..polls {
                    // The second poll comes after the completion.
                    if number == 1 {
                        stage.drive();
                        stage.drive();
                        break;
                    }
                    let _ = poll(Pin::new(&mut future));
                }
                match end {
                    End::Drop => drop(future),
                    End::Forget => std::mem::forget(future),
                }
            }
            let region = stage.far.region(vec![0_u8; 64]).unwrap();
            let window = region.expose(.., Access::all()).to(&far);
            let window = stage.run(window).unwrap();
            let remote = window.remote();

            let write = near.write(stage.near.copy(b"write").unwrap(), remote);
            leave(write, polls, end, &mut stage);
            let read = near.read(
                remote.slice(..8).unwrap(),
                stage.near.region(vec![0_u8; 8]).unwrap(),
            );
            leave(read, polls, end, &mut stage);
            let receive = far.recv(stage.far.buffer(16).unwrap());
            leave(receive, polls, end, &mut stage);
            let second = far.recv(stage.far.buffer(16).unwrap());
            let send = near.send(stage.near.copy(b"first").unwrap());
            leave(send, polls, end, &mut stage);
            let sent = near.send(stage.near.copy(b"second").unwrap());
            // The dropped receive took the first message.
            assert_eq!(&stage.run(second).unwrap().memory[..], b"second");
            stage.run(sent).unwrap();
            let mut written = [0; 5];
            window.load(0, &mut written).unwrap();
            assert_eq!(&written, b"write");

            let region = stage.far.region(vec![0_u8; 32]).unwrap();
            let expose = region.expose(.., Access::READ).to(&far);
            leave(expose, polls, end, &mut stage);
            leave(window.revoke(), polls, end, &mut stage);
            leave(far.next_message(), polls, end, &mut stage);
            leave(near.ended(), polls, end, &mut stage);
            leave(near.disconnect(), polls, end, &mut stage);
            assert_eq!(
                stage.run(far.ended()),
                dat_core::event::ConnectionEventKind::Disconnected
            );
            drop((near, far));
            stage.drive();
            stage.drive();
            if matches!(end, End::Drop) {
                let left = (
                    stage.near_adapter.in_flight(),
                    stage.far_adapter.in_flight(),
                );
                assert_eq!(left, (0, 0), "after {polls} polls");
            }
        }
    }
}

#[test]
fn dropping_the_driver_ends_operations_with_an_error() {
    let mut stage = Stage::new();
    let (near, far) = connected(&mut stage);
    let receive = far.recv(stage.far.region(vec![3_u8; 8]).unwrap());
    let listener = stage.far.listen(2).unwrap();
    let window = stage.far.region(vec![4_u8; 8]).unwrap();
    let window = window.expose(.., Access::READ).to(&far);
    let window = stage.run(window).unwrap();
    let connecting = stage.far.connect("near:5").start();
    let bytes = stage.near.copy(b"x").unwrap();
    let mut next = Box::pin(listener.next());
    assert!(poll(next.as_mut()).is_pending());
    stage.drivers.clear();
    let failed = receive.wait().unwrap_err();
    assert!(matches!(failed.error, Error::Closed));
    assert_eq!(failed.memory.into_inner(), [3; 8]);
    assert!(matches!(
        poll(next.as_mut()),
        Poll::Ready(Err(Error::Closed))
    ));
    assert!(matches!(connecting.wait(), Err(Error::Closed)));
    assert_eq!(window.revoke().wait().into_inner(), [4; 8]);
    let failed = near.send(bytes).wait().unwrap_err();
    assert_eq!(
        failed.error.core().unwrap().kind(),
        dat_core::ErrorKind::InvalidHandle
    );
    assert_eq!(&failed.memory[..], b"x");
    assert!(stage.far.region(vec![0_u8; 1]).is_err());
    assert!(near.disconnect().wait().is_err());
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

type Awaited<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Polls futures, the first ones with a waker that panics; returns the wakers of the others.
fn polled_with_a_panic(futures: &mut [Awaited<'_>], panics: usize) -> Vec<Arc<Count>> {
    let wrong = Waker::from(Arc::new(Panics));
    let mut counts = Vec::new();
    for (number, future) in futures.iter_mut().enumerate() {
        let waker = match number < panics {
            true => wrong.clone(),
            false => {
                counts.push(Arc::default());
                Waker::from(Arc::clone(&counts[number - panics]))
            }
        };
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    counts
}

/// A waker that panics is the first of each list; all other futures are woken all the same, by the
/// end of a connection and by the close of the adapter.
#[test]
fn a_waker_that_panics_keeps_no_other_future_waiting() {
    let mut stage = Stage::new();
    let (broken, peer) = connected(&mut stage);
    let (whole, _peer) = connected(&mut stage);
    let listener = stage.near.listen(9).unwrap();
    let (mut ended, mut closed): (Vec<Awaited<'_>>, Vec<Awaited<'_>>) = Default::default();
    for _ in 0..3 {
        let [first, second] = [&broken, &whole].map(|end| {
            let receive = end.recv(stage.near.buffer(8).unwrap());
            async { receive.await.is_err() }
        });
        ended.push(Box::pin(first));
        closed.push(Box::pin(second));
        for (list, end) in [(&mut ended, &broken), (&mut closed, &whole)] {
            list.push(Box::pin(async {
                end.ended().await;
                true
            }));
        }
        closed.push(Box::pin(async { listener.next().await.is_err() }));
    }
    let of_ended = polled_with_a_panic(&mut ended, 2);
    let of_closed = polled_with_a_panic(&mut closed, 3);
    let woken = |counts: &[Arc<Count>]| {
        let is_woken = |count: &&Arc<Count>| count.0.load(Ordering::Relaxed) != 0;
        counts.iter().filter(is_woken).count()
    };
    drop(peer);
    for _ in 0..100 {
        stage.drive();
    }
    assert_eq!((woken(&of_ended), woken(&of_closed)), (of_ended.len(), 0));
    stage.near_adapter.close();
    assert_eq!(woken(&of_closed), of_closed.len());
    for mut future in ended.into_iter().chain(closed) {
        assert_eq!(poll(future.as_mut()), Poll::Ready(true));
    }
}

#[test]
fn a_driver_ends_when_its_adapter_is_closed() {
    let (adapter, mut driver) = Options::new()
        .network(&common::network())
        .open_driven("mock://a")
        .unwrap();
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut driver).poll(&mut context).is_pending());
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "nothing is under way");
    drop(adapter);
    assert_ne!(count.0.load(Ordering::Relaxed), 0);
    assert!(Pin::new(&mut driver).poll(&mut context).is_ready());
}

/// Blocking waits drive the adapters if nobody else does.
#[test]
fn waits_drive() {
    let stage = Stage::new();
    let listener = stage.far.listen(1).unwrap();
    let near = stage.near.connect("far:1").start();
    let far = std::thread::scope(|scope| {
        let far = scope.spawn(|| listener.next().wait().unwrap().accept().wait().unwrap());
        let near = near.wait().unwrap();
        let far = far.join().unwrap();
        let receive = far.recv(stage.far.buffer(8).unwrap());
        near.send(stage.near.copy(b"hello").unwrap())
            .wait()
            .unwrap();
        assert_eq!(&receive.wait().unwrap().memory[..], b"hello");
        far
    });
    drop(far);
}

/// The deadline of a connection passes although no thread drives the adapter.
#[test]
fn a_driver_future_has_a_timer() {
    let mut stage = Stage::new();
    let _listener = stage.far.listen(1).unwrap();
    let short = std::time::Duration::from_millis(30);
    let mut connecting = stage.near.connect("far:1").deadline_in(short).start();
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut seen = usize::MAX;
    common::eventually_with("the attempt ends", || {
        // Polled only when woken, as an executor does.
        let woken = count.0.load(Ordering::Relaxed);
        if woken != seen {
            seen = woken;
            for driver in &mut stage.drivers {
                assert!(Pin::new(driver).poll(&mut context).is_pending());
            }
        }
        Pin::new(&mut connecting).poll(&mut context).is_ready()
    });
}

/// A device that reports activity until the test gives up.
#[derive(Clone)]
struct Busy(Instant);

impl HostDriver for Busy {
    type Wait = ThreadWait;

    fn wait(&self) -> std::result::Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn act(&self, _now: dat_core::time::Instant) -> Activity {
        Activity {
            acted: self.0.elapsed() < common::SOON,
            next: None,
        }
    }
}

#[test]
fn a_timeout_ends_a_wait_although_the_device_is_busy() {
    let fabric = Fabric::new(Network::options());
    let backend = fabric.node(common::host("busy", 1));
    let start = Instant::now();
    let (adapter, _driver) = Options::new()
        .open_backend_driven(backend, Busy(start))
        .unwrap();
    let listener = adapter.zone().unwrap().listen(1).unwrap();
    let waited = listener.next().wait_timeout(Duration::from_millis(10));
    assert!(waited.is_err());
    assert!(start.elapsed() < common::SOON, "the device is idle");
}

/// The one pass of a wait without time completes the Send.
#[test]
fn a_wait_polls_after_its_last_pass() {
    let mut stage = Stage::new();
    let (near, far) = connected(&mut stage);
    let receive = far.recv(stage.far.buffer(8).unwrap());
    stage.drive();
    let sent = near.send(stage.near.copy(b"hello").unwrap());
    sent.wait_timeout(Duration::ZERO).unwrap().unwrap();
    receive.wait_timeout(Duration::ZERO).unwrap().unwrap();
}

/// A future with its waker, polled only when woken.
struct Waiter<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    count: Arc<Count>,
    seen: usize,
}

impl<'a> Waiter<'a> {
    fn new(future: impl Future<Output = ()> + 'a) -> Self {
        Self {
            future: Box::pin(future),
            count: Arc::default(),
            seen: usize::MAX,
        }
    }

    /// Polls the future if it was woken; `None` if it was not.
    fn poll_if_woken(&mut self) -> Option<Poll<()>> {
        let woken = self.count.0.load(Ordering::Relaxed);
        (woken != self.seen).then(|| {
            self.seen = woken;
            let waker = Waker::from(Arc::clone(&self.count));
            self.future.as_mut().poll(&mut Context::from_waker(&waker))
        })
    }
}

/// Polls the futures that are woken until none is, or 10,000 polls; returns the number of polls.
fn poll_woken(waiters: &mut Vec<Waiter<'_>>) -> usize {
    let mut polls = 0;
    loop {
        let before = polls;
        waiters.retain_mut(|waiter| match waiter.poll_if_woken() {
            Some(polled) => {
                polls += 1;
                polled.is_pending()
            }
            None => true,
        });
        if polls == before || polls >= 10_000 {
            return polls;
        }
    }
}

#[test]
fn many_futures_of_one_state_wait_without_polls() {
    let mut stage = Stage::new();
    let (near, far) = connected(&mut stage);
    let mut ends: Vec<_> = (0..200)
        .map(|_| {
            let ended = far.ended();
            Waiter::new(async {
                ended.await;
            })
        })
        .collect();
    let listener = stage.far.listen(2).unwrap();
    let mut requests: Vec<_> = (0..200)
        .map(|_| Waiter::new(async { drop(listener.next().await) }))
        .collect();
    // The futures of requests are made by their first polls.
    assert!(poll_woken(&mut ends) <= 400);
    assert!(poll_woken(&mut requests) <= 400);
    assert_eq!((poll_woken(&mut ends), poll_woken(&mut requests)), (0, 0));
    assert_eq!((ends.len(), requests.len()), (200, 200));
    // All of them are woken by the event that they wait for.
    drop(near);
    for _ in 0..4 {
        stage.drive();
    }
    poll_woken(&mut ends);
    assert!(ends.is_empty());
    stage.far_adapter.close();
    poll_woken(&mut requests);
    assert!(requests.is_empty());
}

/// Wakers of dropped futures are released, and seldom wake the others.
#[test]
fn dropped_futures_leave_few_wakers() {
    let mut stage = Stage::new();
    let (_near, far) = connected(&mut stage);
    let ended = far.ended();
    let mut waiters = vec![Waiter::new(async {
        ended.await;
    })];
    poll_woken(&mut waiters);
    let mut polls = 0;
    let dropped: Vec<_> = (0..10_000)
        .map(|_| {
            let mut waiter = Waiter::new(async {
                far.ended().await;
            });
            assert_eq!(waiter.poll_if_woken(), Some(Poll::Pending));
            polls += poll_woken(&mut waiters);
            waiter.count
        })
        .collect();
    assert!(polls <= 10_000 / 32, "{polls} polls");
    let kept = dropped.iter().filter(|count| Arc::strong_count(count) > 1);
    assert!(kept.count() <= 64);
}
