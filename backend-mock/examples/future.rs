//! Waits as futures: `EvdWait` and `CnoWait` in a small executor.
//!
//! A helper thread drives the adapter for them.
//!
//! `cargo run -p backend-mock --example future`

mod pair;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
use dat_core::Ia;
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, EvdFlags, MemoryPrivileges};
use dat_core::id::{CnoId, EvdId};
use dat_core::memory::LmrTriplet;
use dat_core::sync::{HostLock, load_bytes, store_bytes};
use pair::{Node, Result, Storage, connect};

static BUFFER: [AtomicU8; 32] = [const { AtomicU8::new(0) }; 32];
static TEXT: [AtomicU8; 32] = [const { AtomicU8::new(0) }; 32];

type MockIa<'s> = Ia<'s, MockBackend, HostLock>;

/// A thread that calls `progress` for the futures of an adapter.
///
/// It blocks on a notification object that only `end` notifies, and sleeps while the device has no
/// events. Futures cannot do without it: polling one arms the device, and a caller of `progress`
/// has to take the events.
struct Helper {
    object: CnoId,
    bell: EvdId,
}

impl Helper {
    fn new(ia: &MockIa<'_>) -> Result<Self> {
        let object = ia.cno_create(None)?;
        let bell = ia.evd_create(1, Some(object), EvdFlags::SOFTWARE)?;
        Ok(Self { object, bell })
    }

    /// Runs the thread. On other devices `wait` is `ThreadWait` or `VerbsWait`.
    fn run(&self, ia: &MockIa<'_>, mut wait: MockWait) {
        let ended = ia.cno_wait_until(self.object, None, &mut wait);
        assert_eq!(ended, Ok(Some(self.bell)));
    }

    fn end(&self, ia: &MockIa<'_>) -> Result<()> {
        Ok(ia.evd_post_se(self.bell, 0)?)
    }
}

/// A waker that unparks the executor's thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls one future to its end; parks the thread between two polls.
///
/// Calls `pending` before each park.
fn block_on<F: Future>(future: F, mut pending: impl FnMut()) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                pending();
                thread::park();
            }
        }
    }
}

/// Awaits a message on the dispatcher and another on its notification object.
///
/// Sets `expected` to the offset of each message in the text, and returns both texts.
async fn serve(
    server: &Node<'_>,
    object: CnoId,
    expected: &Cell<Option<u64>>,
) -> Result<Vec<String>> {
    expected.set(Some(0));
    let first = server.ia.evd_wait(server.evd, 1)?.await?.event;
    expected.set(Some(6));
    let fired = server.ia.cno_wait(object)?.await?;
    assert_eq!(fired, Some(server.evd));
    let second = server.ia.evd_dequeue(server.evd)?;
    let mut words = Vec::new();
    for event in [first, second] {
        let Event::Dto(done) = event else {
            return Err("something else than a message".into());
        };
        assert_eq!(done.operation, DtoOperation::Receive);
        let mut bytes = vec![0; done.transferred_length as usize];
        load_bytes(&BUFFER[done.cookie as usize..], &mut bytes);
        words.push(String::from_utf8(bytes)?);
    }
    Ok(words)
}

fn main() -> Result<()> {
    // The fabric has its own thread, so a wait sleeps instead of stepping the fabric.
    let fabric = Fabric::new(FabricOptions::default());
    let _network = fabric.spawn_thread()?;
    let (mut storage_a, mut storage_b) = (Storage::new(), Storage::new());
    let client = Node::open(&fabric, NodeOptions::new("client", 1), &mut storage_a)?;
    let server = Node::open(&fabric, NodeOptions::new("server", 2), &mut storage_b)?;
    let (from, to) = (client.endpoint()?, server.endpoint()?);
    connect((&client, from), (&server, to), 7)?;

    // Two receives; the cookie is the offset of each in the buffer.
    let memory = server.register(&BUFFER, MemoryPrivileges::LOCAL_WRITE)?;
    for offset in [0, 16] {
        let segment = LmrTriplet {
            context: memory.lmr_context,
            address: memory.registered_address + offset,
            length: 16,
        };
        let flags = CompletionFlags::empty();
        server.ia.post_recv(to, &[segment], offset, flags)?;
    }
    let object = server.ia.cno_create(None)?;
    server.ia.evd_modify_cno(server.evd, Some(object))?;

    store_bytes(&TEXT, b"woken.again.");
    let text = client.register(&TEXT, MemoryPrivileges::LOCAL_READ)?;
    let send = |offset| {
        let segment = LmrTriplet {
            context: text.lmr_context,
            address: text.registered_address + offset,
            length: 6,
        };
        let flags = CompletionFlags::SUPPRESS;
        client.ia.post_send(from, &[segment], 0, flags)
    };

    let helper = Helper::new(&server.ia)?;
    let words = thread::scope(|scope| {
        scope.spawn(|| helper.run(&server.ia, MockWait::new(&fabric)));
        // Each message is sent while its wait sleeps; without the helper nothing would wake it.
        let expected = Cell::new(None);
        let words = block_on(serve(&server, object, &expected), || {
            if let Some(offset) = expected.take() {
                send(offset).expect("the endpoint is connected");
            }
        });
        helper.end(&server.ia)?;
        words
    })?;
    println!("{}", words.join(" "));
    assert_eq!(words, ["woken.", "again."]);
    Ok(())
}
