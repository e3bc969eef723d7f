//! Objects that are dropped in every order, on any thread.

mod common;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use backend_mock::{Fabric, MockBackend};
use common::{Pair, SOON, connect, eventually};
use dat_core::flags::SrqFields;
use dat_core::time::Instant;
use dat_host::{Access, Activity, Adapter, BackendError, HostDriver, Network, Options, ThreadWait};

/// A fabric of the test as a device; its token tells when its adapter is gone.
#[derive(Clone)]
struct Stepped {
    fabric: Fabric,
    wakers: Arc<Mutex<Vec<Waker>>>,
    /// Number of passes of the adapter's driver.
    passes: Arc<AtomicUsize>,
    _token: Arc<()>,
}

impl HostDriver for Stepped {
    type Wait = ThreadWait;

    fn wait(&self) -> Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        self.wakers.lock().unwrap().push(waker);
        true
    }

    fn act(&self, now: Instant) -> Activity {
        self.passes.fetch_add(1, Ordering::SeqCst);
        let acted = self.fabric.run_until(now) != 0;
        if acted {
            let wakers = self.wakers.lock().unwrap().clone();
            wakers.iter().for_each(Waker::wake_by_ref);
        }
        Activity {
            acted,
            next: self.fabric.next_due(),
        }
    }

    fn acts_after_posts(&self) -> bool {
        true
    }
}

/// Two adapters by `open_backend`, and what is left of them.
fn backends() -> ([Adapter; 2], [Weak<()>; 2]) {
    let fabric = Fabric::new(Network::options());
    let wakers = Arc::default();
    let open = |number| {
        let token = Arc::new(());
        let weak = Arc::downgrade(&token);
        let device = Stepped {
            fabric: fabric.clone(),
            wakers: Arc::clone(&wakers),
            passes: Arc::default(),
            _token: token,
        };
        let backend = fabric.node(common::host("test", number));
        (Options::new().open_backend(backend, device).unwrap(), weak)
    };
    let (near, near_token) = open(1);
    let (far, far_token) = open(2);
    ([near, far], [near_token, far_token])
}

type Objects = Vec<Box<dyn Any + Send>>;

/// The thread of an adapter looks for events only after it was woken.
#[test]
fn an_idle_adapter_sleeps() {
    let passes = Arc::<AtomicUsize>::default();
    let fabric = Fabric::new(Network::options());
    let device = Stepped {
        fabric: fabric.clone(),
        wakers: Arc::default(),
        passes: Arc::clone(&passes),
        _token: Arc::default(),
    };
    let backend = fabric.node(common::host("idle", 1));
    let adapter = Options::new().open_backend(backend, device).unwrap();
    let zone = adapter.zone().unwrap();
    let (_near, _far) = connect(&zone, &zone, None).unwrap();
    // A thread that polls does so once in a millisecond. One that waits for a processor may have
    // some passes left to make.
    eventually("the adapter sleeps", || {
        let before = passes.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(200));
        passes.load(Ordering::SeqCst) == before
    });
}

/// One object of each kind, with operations in flight.
fn all_objects(near_adapter: Adapter, far_adapter: Adapter) -> Objects {
    let (near, far) = (near_adapter.zone().unwrap(), far_adapter.zone().unwrap());
    let queue = far.shared_receive(4, 8).unwrap();
    let (near_end, far_end) = connect(&near, &far, Some(&queue)).unwrap();
    let (other_near, other_far) = connect(&near, &far, None).unwrap();
    let expose = |bytes| {
        let region = far.region(bytes).unwrap();
        region.expose(.., Access::all()).to(&far_end)
    };
    let window = expose(vec![0_u8; 64]).wait().unwrap();
    let revoke = expose(vec![0_u8; 64]).wait().unwrap().revoke();
    let expose = expose(vec![0_u8; 64]);
    near_end.send(near.copy(b"taken").unwrap()).wait().unwrap();
    let message = far_end.next_message().wait().unwrap();
    near_end.send(near.copy(b"queued").unwrap()).wait().unwrap();
    let listener = far.listen(77).unwrap();
    let attempt = near.connect((far.address().unwrap(), 77)).start();
    let request = listener.next().wait().unwrap();
    let waiting = near.connect((far.address().unwrap(), 77)).start();
    let write = near_end.write(near.copy(b"write").unwrap(), window.remote());
    let read = near_end.read(
        window.remote(),
        near.region(vec![0_u8; 64].into_boxed_slice()).unwrap(),
    );
    let receive = other_far.recv(far.buffer(8).unwrap());
    // There is no receive for it.
    let unreceived = other_far.send(far.copy(b"stuck").unwrap());
    vec![
        Box::new(near.buffer(100).unwrap()),
        Box::new(near.region(vec![1_u8; 100]).unwrap()),
        Box::new(near.region(vec![1_u8; 100]).unwrap().slice(3..7).unwrap()),
        Box::new(near_adapter),
        Box::new(far_adapter),
        Box::new(near),
        Box::new(far),
        Box::new(queue),
        Box::new(far_end.next_message()),
        Box::new(near_end.ended()),
        Box::new(near_end),
        Box::new(far_end),
        Box::new(other_near),
        Box::new(other_far),
        Box::new(window),
        Box::new(revoke),
        Box::new(expose),
        Box::new(message),
        Box::new(attempt),
        Box::new(waiting),
        Box::new(request),
        Box::new(listener),
        Box::new(write),
        Box::new(read),
        Box::new(receive),
        Box::new(unreceived),
    ]
}

/// A generator of orders (xorshift).
struct Orders(u64);

impl Orders {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }
}

fn assert_gone(tokens: [Weak<()>; 2]) {
    eventually("both adapters are freed", || {
        tokens.iter().all(|token| token.strong_count() == 0)
    });
}

#[test]
fn objects_are_dropped_in_every_order() {
    for seed in 1..=60 {
        let mut orders = Orders(seed);
        let ([near, far], tokens) = backends();
        let mut objects = all_objects(near, far);
        while !objects.is_empty() {
            let object = objects.swap_remove(orders.below(objects.len()));
            drop(object);
        }
        assert_gone(tokens);
    }
}

#[test]
fn each_object_is_dropped_first_and_last() {
    let count = {
        let ([near, far], tokens) = backends();
        let objects = all_objects(near, far);
        let count = objects.len();
        drop(objects);
        assert_gone(tokens);
        count
    };
    for number in 0..count {
        let ([near, far], tokens) = backends();
        let mut objects = all_objects(near, far);
        drop(objects.remove(number));
        drop(objects);
        assert_gone(tokens);
        let ([near, far], tokens) = backends();
        let mut objects = all_objects(near, far);
        let last = objects.remove(number);
        drop(objects);
        drop(last);
        assert_gone(tokens);
    }
}

#[test]
fn objects_are_dropped_by_several_threads_at_once() {
    for seed in 1..=20 {
        let mut orders = Orders(seed);
        let ([near, far], tokens) = backends();
        let mut parts: [Objects; 3] = Default::default();
        for object in all_objects(near, far) {
            parts[orders.below(3)].push(object);
        }
        std::thread::scope(|scope| {
            for part in parts {
                scope.spawn(move || drop(part));
            }
        });
        assert_gone(tokens);
    }
}

#[test]
fn objects_are_dropped_by_a_panic() {
    let ([near, far], tokens) = backends();
    let panicked = std::thread::spawn(move || {
        let _objects = all_objects(near, far);
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .join();
    assert!(panicked.is_err());
    assert_gone(tokens);
}

/// A waker that drops what it holds, on the thread of the adapter.
struct Dropping {
    objects: Mutex<Objects>,
    woken: AtomicBool,
}

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(std::mem::take(&mut *self.objects.lock().unwrap()));
        self.woken.store(true, Ordering::SeqCst);
    }
}

/// The last handle is dropped by a waker, on the thread that drives the adapter.
#[test]
fn a_waker_may_drop_the_last_handle() {
    for _ in 0..20 {
        let ([near_adapter, far_adapter], tokens) = backends();
        let (near, far) = (near_adapter.zone().unwrap(), far_adapter.zone().unwrap());
        let (near_end, far_end) = connect(&near, &far, None).unwrap();
        let mut receive = Box::pin(far_end.recv(far.buffer(8).unwrap()));
        let message = near.copy(b"wake").unwrap();
        let objects: Objects = vec![
            Box::new(far_end),
            Box::new(far_adapter),
            Box::new(far),
            Box::new(near),
            Box::new(near_adapter),
        ];
        let dropping = Arc::new(Dropping {
            objects: Mutex::new(objects),
            woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&dropping));
        let mut context = Context::from_waker(&waker);
        assert!(std::future::Future::poll(receive.as_mut(), &mut context).is_pending());
        // The waker waits for the lock, and then drops the last object, too.
        let mut objects = dropping.objects.lock().unwrap();
        let send = near_end.send(message);
        objects.push(Box::new(near_end));
        drop(objects);
        eventually("the receive completes", || {
            dropping.woken.load(Ordering::SeqCst)
        });
        drop((receive, send));
        assert_gone(tokens);
    }
}

/// A waker that notes its thread.
#[derive(Default)]
struct Thread(OnceLock<std::thread::ThreadId>);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        let _ = self.0.set(std::thread::current().id());
    }
}

#[test]
fn a_drop_runs_no_wakers_if_the_adapter_has_a_thread() {
    let pair = Pair::new();
    for _ in 0..50 {
        let (near, _far) = pair.connect();
        let mut receive = near.recv(pair.near.buffer(8).unwrap());
        let thread = Arc::<Thread>::default();
        let waker = Waker::from(Arc::clone(&thread));
        let mut context = Context::from_waker(&waker);
        let polled = std::future::Future::poll(std::pin::Pin::new(&mut receive), &mut context);
        assert!(polled.is_pending());
        drop(near);
        eventually("the receive is flushed", || thread.0.get().is_some());
        assert_ne!(thread.0.get(), Some(&std::thread::current().id()));
    }
}

#[test]
fn a_forgotten_window_keeps_its_memory() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 64]).unwrap();
    let window = region.expose(.., Access::all()).to(&far).wait().unwrap();
    let remote = window.remote();
    std::mem::forget(window);
    near.write(pair.near.copy(b"still").unwrap(), remote)
        .wait()
        .unwrap();
    let read = near
        .read(remote.slice(..5).unwrap(), pair.near.buffer(5).unwrap())
        .wait()
        .unwrap();
    assert_eq!(&read[..], b"still");
}

#[test]
fn a_closed_adapter_ends_all_waits() {
    let pair = Pair::new();
    let (_near, far) = pair.connect();
    let listener = pair.far.listen(5).unwrap();
    let receive = far.recv(pair.far.buffer(8).unwrap());
    std::thread::scope(|scope| {
        let receive = scope.spawn(|| receive.wait());
        let next = scope.spawn(|| listener.next().wait());
        let ended = scope.spawn(|| far.ended().wait());
        // Long enough for the threads to wait, usually; the outcome is the same.
        std::thread::sleep(Duration::from_millis(20));
        pair.far_adapter.close();
        assert!(receive.join().unwrap().is_err());
        assert!(matches!(next.join().unwrap(), Err(dat_host::Error::Closed)));
        ended.join().unwrap();
    });
    let refused = pair
        .near
        .connect("far:5")
        .deadline_in(SOON)
        .wait()
        .unwrap_err();
    assert!(matches!(refused, dat_host::Error::Connection(_)));
}

/// A shared queue stays until its last handle, endpoint and message is dropped; then it is freed.
///
/// Spec: SRF-01
#[test]
#[expect(unsafe_code, reason = "the core's adapter is only queried")]
fn a_dropped_shared_queue_is_freed() {
    let pair = Pair::new();
    // SAFETY: the calls below only query.
    let core = unsafe { pair.far_adapter.ia::<MockBackend>() }.unwrap();
    let queue = pair.far.shared_receive(4, 64).unwrap();
    let id = queue.id();
    let is_live = || core.srq_query(id, SrqFields::empty()).is_ok();
    let (client, server) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
    client
        .send(pair.near.copy(b"kept").unwrap())
        .wait()
        .unwrap();
    let message = server.next_message().wait().unwrap();
    drop(queue);
    assert!(is_live(), "the endpoint receives from it");
    drop((client, server));
    assert!(is_live(), "the message is to return its buffer");
    assert_eq!(&message[..], b"kept");
    drop(message);
    eventually("the queue is freed", || !is_live());
    eventually("its buffers are released", || {
        pair.far_adapter.in_flight() == 0
    });
    // Without a connection nothing is left to wait for.
    let unused = pair.far.shared_receive(1, 8).unwrap();
    let id = unused.id();
    drop(unused);
    assert!(core.srq_query(id, SrqFields::empty()).is_err());
}
