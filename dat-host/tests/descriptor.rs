//! Adapters that are driven by file descriptors: by hand, by tokio and by async-io.

mod common;

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use dat_host::{Adapter, DescriptorDriver, Error, Options, Result, Zone};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Adapters of one network and an event loop with `poll` around their descriptors.
struct Loop {
    drivers: Vec<DescriptorDriver>,
    adapters: Vec<Adapter>,
    turns: usize,
}

impl Loop {
    fn new() -> Self {
        let network = common::network();
        let open = |address| {
            let options = Options::new().network(&network);
            options.open_descriptor(address).unwrap()
        };
        let (adapters, drivers) = [open("mock://near"), open("mock://far")]
            .into_iter()
            .unzip();
        Self {
            drivers,
            adapters,
            turns: 0,
        }
    }

    fn zones(&self) -> [Zone; 2] {
        [0, 1].map(|index| self.adapters[index].zone().unwrap())
    }

    /// Drives what is readable; waits for at most `timeout` for it. Returns the number of drivers.
    fn turn(&mut self, timeout: u16) -> usize {
        self.turns += 1;
        let mut watched: Vec<PollFd<'_>> = self
            .drivers
            .iter()
            .map(|driver| PollFd::new(driver.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut watched, PollTimeout::from(timeout)).unwrap();
        let readable: Vec<bool> = watched.iter().map(|it| it.any() == Some(true)).collect();
        let mut driven = 0;
        for (driver, _) in self.drivers.iter().zip(readable).filter(|(_, is)| *is) {
            driver.drive();
            driven += 1;
        }
        driven
    }

    /// Polls a future only when it was woken, as an executor does.
    fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let deadline = Instant::now() + common::SOON;
        let mut seen = usize::MAX;
        loop {
            let woken = count.0.load(Ordering::SeqCst);
            if woken != seen {
                seen = woken;
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
            }
            assert!(Instant::now() < deadline, "the future ends");
            if count.0.load(Ordering::SeqCst) == seen {
                self.turn(1000);
            }
        }
    }
}

/// A connection, messages in both directions, and its end.
async fn exchange(near: Zone, far: Zone, peer: &str, qualifier: u64) -> Result<()> {
    let listener = far.listen(qualifier)?;
    let connecting = near.connect(peer).start();
    let server = listener.next().await?.accept().await?;
    let client = connecting.await?;
    for number in 0..100_u32 {
        let bytes = number.to_le_bytes();
        let receive = server.recv(far.buffer(4)?);
        let sent = client.send(near.copy(&bytes)?);
        let received = receive.await?;
        assert_eq!(received.memory[..], bytes);
        let answer = client.recv(near.buffer(4)?);
        server.send(received.memory).await?;
        assert_eq!(answer.await?.memory[..], bytes);
        sent.await?;
    }
    client.disconnect().await?;
    server.ended().await;
    Ok(())
}

#[test]
fn an_event_loop_drives_adapters() {
    let mut events = Loop::new();
    let [near, far] = events.zones();
    events.run(exchange(near, far, "far:7", 7)).unwrap();
    // The loop slept: it had a turn or a few for each message.
    assert!(events.turns < 2000, "{} turns", events.turns);
    while events.turn(0) != 0 {}
    assert_eq!(events.turn(50), 0, "nothing is readable without events");
}

#[test]
fn the_descriptor_is_readable_at_a_deadline() {
    let mut events = Loop::new();
    let [near, far] = events.zones();
    let _listener = far.listen(1).unwrap();
    let start = Instant::now();
    let connecting = near.connect("far:1").deadline_in(Duration::from_millis(30));
    let failed = events.run(connecting.start()).unwrap_err();
    assert!(matches!(failed, Error::Connection(_)), "{failed}");
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_close_makes_the_descriptor_readable() {
    let mut events = Loop::new();
    while events.turn(0) != 0 {}
    events.adapters.clear();
    assert_eq!(events.turn(60_000), 2);
    assert!(events.drivers.iter().all(|driver| !driver.drive()));
}

#[test]
fn dropping_the_driver_ends_operations() {
    let mut events = Loop::new();
    let [near, far] = events.zones();
    let listener = far.listen(1).unwrap();
    let mut next = pin!(listener.next());
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    events.drivers.clear();
    let ended = next.as_mut().poll(&mut context);
    assert!(matches!(ended, Poll::Ready(Err(Error::Closed))));
    assert!(near.region(vec![0_u8; 1]).is_err());
}

#[test]
fn blocking_waits_need_no_event_loop() {
    let events = Loop::new();
    let [near, far] = events.zones();
    let (near_end, far_end) = std::thread::scope(|scope| {
        let listener = far.listen(3).unwrap();
        let accepted = scope.spawn(move || listener.next().wait().unwrap().accept().wait());
        let near = near.connect("far:3").wait().unwrap();
        (near, accepted.join().unwrap().unwrap())
    });
    let receive = far_end.recv(far.buffer(8).unwrap());
    near_end.send(near.copy(b"hello").unwrap()).wait().unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"hello");
}

#[cfg(feature = "tokio")]
mod tokio_runtime {
    use super::*;
    use tokio::runtime::Builder;

    fn exchange_on(runtime: &tokio::runtime::Runtime) {
        let network = super::common::network();
        runtime.block_on(async {
            let open = |address| {
                let options = Options::new().network(&network);
                options.open_tokio(address).unwrap().zone().unwrap()
            };
            let (near, far) = (open("mock://near"), open("mock://far"));
            let exchange = exchange(near, far, "far:7", 7);
            let ended = tokio::time::timeout(common::SOON, exchange).await;
            ended.expect("in time").unwrap();
        });
    }

    #[test]
    fn tokio_drives_adapters_on_one_thread_and_on_several() {
        exchange_on(&Builder::new_current_thread().enable_all().build().unwrap());
        let mut several = Builder::new_multi_thread();
        exchange_on(&several.worker_threads(2).enable_all().build().unwrap());
    }

    #[test]
    fn deadlines_pass_without_a_timer_of_tokio() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let network = super::common::network();
        let failed = runtime.block_on(async {
            let open = |address| {
                let options = Options::new().network(&network);
                options.open_tokio(address).unwrap().zone().unwrap()
            };
            let (near, far) = (open("mock://near"), open("mock://far"));
            let _listener = far.listen(1).unwrap();
            let connecting = near.connect("far:1").deadline_in(Duration::from_millis(30));
            connecting.await.unwrap_err()
        });
        assert!(matches!(failed, Error::Connection(_)), "{failed}");
    }

    #[test]
    fn the_end_of_the_runtime_closes_the_adapter() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let zone = runtime.block_on(async {
            let options = Options::new().network(&super::common::network());
            options.open_tokio("mock://a").unwrap().zone().unwrap()
        });
        drop(runtime);
        assert!(zone.region(vec![0_u8; 1]).is_err());
    }

    #[test]
    fn an_open_outside_of_a_runtime_is_refused() {
        let refused = Options::new().open_tokio("mock://outside").unwrap_err();
        assert!(matches!(refused, Error::System(_)), "{refused}");
    }

    #[cfg(feature = "roce")]
    #[test]
    fn tokio_drives_adapters_over_udp() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let open = |address| Options::new().open_tokio(address).unwrap().zone().unwrap();
            let (near, far) = (open("roce://127.0.0.31"), open("roce://127.0.0.32"));
            let exchange = exchange(near, far, "127.0.0.32:7", 7);
            let ended = tokio::time::timeout(common::SOON, exchange).await;
            ended.expect("in time").unwrap();
        });
    }
}

#[cfg(feature = "async-io")]
#[test]
fn async_io_drives_adapters() {
    let network = common::network();
    let open = |address| {
        let options = Options::new().network(&network);
        options.open_descriptor(address).unwrap()
    };
    let (near_adapter, near_driver) = open("mock://near");
    let (far_adapter, far_driver) = open("mock://far");
    let (near, far) = (near_adapter.zone().unwrap(), far_adapter.zone().unwrap());
    drop((near_adapter, far_adapter));
    let driving = futures::future::join(near_driver.run_async_io(), far_driver.run_async_io());
    // The last zone is dropped in `exchange`, which ends the drivers.
    type Ended = (Result<()>, (Result<()>, Result<()>));
    let both = futures::future::join(exchange(near, far, "far:7", 7), driving);
    let both: std::pin::Pin<Box<dyn Future<Output = Ended>>> = Box::pin(both);
    let (exchanged, (near, far)) = futures::executor::block_on(both);
    exchanged.unwrap();
    near.unwrap();
    far.unwrap();
}
