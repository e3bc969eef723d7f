//! Queues over an executor that notes what it is asked for.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue as _, DeviceFailure, ExtendedRequest,
    ExtendedSend, Peek, ReceiveRequest, RegionKeys, Rejected, RemoteRange, Segment, SendFlags,
    SendOperation, SendQueue as _, SendRequest, WindowKey, WorkQueue, WorkSlot,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_queues::{
    Arc, CompletionQueue, CompletionRing, Detail, Effect, Entry, Executor, Kind, Opcode,
    OvertakesBinds, Owner, Receive, ReceiveQueue, Request, SendQueue,
};

/// Posts that the executor has got, and its answers.
struct Notes {
    /// Requests and receives that are not complete; `None` if their owner is gone.
    outstanding: Option<usize>,
    requests: Vec<Request>,
    receives: Vec<Receive>,
    refuses: bool,
    /// Keys of binds that were taken back.
    cancelled: Vec<u32>,
    ring: CompletionRing<u32>,
    /// Set for a device of another process.
    is_gone: bool,
    advances: usize,
}

#[derive(Clone)]
struct Fake(Rc<RefCell<Notes>>);

impl Fake {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(Notes {
            outstanding: Some(0),
            requests: Vec::new(),
            receives: Vec::new(),
            refuses: false,
            cancelled: Vec::new(),
            ring: CompletionRing::new(8, Arc::new(AtomicUsize::new(0))),
            is_gone: false,
            advances: 0,
        })))
    }

    fn tokens(&self) -> Vec<u64> {
        let notes = self.0.borrow();
        notes.requests.iter().map(|request| request.token).collect()
    }

    fn take<T>(&self, posted: &mut Vec<T>, into: fn(&mut Notes) -> &mut Vec<T>) -> Option<usize> {
        let mut notes = self.0.borrow_mut();
        let outstanding = notes.outstanding.as_mut()?;
        *outstanding += posted.len();
        let count = *outstanding;
        into(&mut notes).append(posted);
        Some(count)
    }
}

impl Executor for Fake {
    type Key = u32;

    const SEGMENTS: usize = 3;
    const PEEKS: bool = true;

    fn requests(&self, _: u32) -> Option<usize> {
        self.0.borrow().outstanding
    }

    fn receives(&self, _: Owner<u32>) -> Option<usize> {
        self.0.borrow().outstanding
    }

    fn post_requests(&self, _: u32, posted: &mut Vec<Request>) -> Option<usize> {
        self.take(posted, |notes| &mut notes.requests)
    }

    fn post_receives(&self, _: Owner<u32>, posted: &mut Vec<Receive>) -> Option<usize> {
        self.take(posted, |notes| &mut notes.receives)
    }

    fn refuses_post(&self, _: Owner<u32>) -> bool {
        self.0.borrow().refuses
    }

    fn begin_bind(&self, window: WindowKey) -> Option<u32> {
        (window.0 == 1).then_some(77)
    }

    fn cancel_bind(&self, key: u32) {
        self.0.borrow_mut().cancelled.push(key);
    }

    fn with_ring<R>(
        &self,
        number: u32,
        act: impl FnOnce(&mut CompletionRing<u32>) -> R,
    ) -> Option<R> {
        (number == 5).then(|| act(&mut self.0.borrow_mut().ring))
    }

    fn advance(&self) {
        self.0.borrow_mut().advances += 1;
    }

    fn is_gone(&self) -> bool {
        self.0.borrow().is_gone
    }
}

impl OvertakesBinds for Fake {}

const SEGMENT: Segment = Segment {
    address: 64,
    length: 8,
    key: 1,
};

fn send(token: u64) -> SendRequest {
    SendRequest {
        token,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    }
}

/// Commits a request without the doorbell.
fn commit(queue: &mut SendQueue<Fake>, token: u64, segments: usize) -> Result<(), Rejected> {
    let mut slot = queue.reserve(&send(token), segments).ok_or(Rejected)?;
    for _ in 0..segments {
        slot.segment(SEGMENT);
    }
    slot.commit(8 * segments as u32)
}

fn bind(window: usize) -> BindRequest {
    BindRequest {
        token: 3,
        window: WindowKey(window),
        region: RegionKeys {
            object: 0,
            local: 1,
            remote: 1,
        },
        address: 64,
        length: 8,
        privileges: MemoryPrivileges::REMOTE_READ,
        flags: SendFlags::all(),
        is_only: true,
    }
}

#[test]
fn a_send_queue_takes_its_depth_and_as_many_segments_as_the_executor() {
    let fake = Fake::new();
    let mut queue = SendQueue::new(fake.clone(), 0, 3);
    assert!(queue.reserve(&send(9), 4).is_none());
    // A slot that is dropped leaves nothing.
    drop(queue.reserve(&send(9), 1));
    for token in 0..3 {
        commit(&mut queue, token, 3).expect("room");
    }
    assert_eq!(commit(&mut queue, 3, 0), Err(Rejected));
    assert_eq!(fake.tokens(), []);
    queue.ring().expect("taken");
    assert_eq!(fake.tokens(), [0, 1, 2]);
    assert_eq!(fake.0.borrow().requests[2].segments[..], [SEGMENT; 3]);
    assert_eq!(
        commit(&mut queue, 3, 0),
        Err(Rejected),
        "all are outstanding"
    );
    fake.0.borrow_mut().outstanding = Some(2);
    commit(&mut queue, 3, 0).expect("one is complete");
    queue.set_depth(4);
    commit(&mut queue, 4, 0).expect("deeper");
    assert_eq!(commit(&mut queue, 5, 0), Err(Rejected));
}

#[test]
fn what_the_executor_does_not_take_is_counted_and_gone() {
    let fake = Fake::new();
    let mut queue = SendQueue::new(fake.clone(), 0, 4);
    fake.0.borrow_mut().outstanding = None;
    commit(&mut queue, 1, 0).expect("room");
    commit(&mut queue, 2, 0).expect("room");
    assert_eq!(queue.ring(), Err(2));
    assert_eq!(queue.ring(), Ok(()));
    assert_eq!(queue.bind(&bind(1)), Err(Rejected));
    assert_eq!(fake.0.borrow().cancelled, [77]);
    fake.0.borrow_mut().outstanding = Some(0);
    commit(&mut queue, 3, 0).expect("room");
    queue.clear();
    queue.ring().expect("nothing");
    assert_eq!(fake.tokens(), []);
}

#[test]
fn binds_and_extended_requests_are_posted_at_once() {
    let fake = Fake::new();
    let mut queue = SendQueue::new(fake.clone(), 0, 8);
    assert_eq!(queue.bind(&bind(2)), Err(Rejected), "no such window");
    assert_eq!(queue.bind(&bind(1)), Ok(77));
    let remote = RemoteRange { address: 0, key: 2 };
    let atomic = ExtendedRequest {
        token: 4,
        operation: ExtendedSend::FetchAndAdd { remote, add: 1 },
        length: 8,
        flags: SendFlags::empty(),
    };
    assert_eq!(queue.post_extended(&atomic, &[SEGMENT; 4]), Err(Rejected));
    queue.post_extended(&atomic, &[SEGMENT]).expect("room");
    let notes = fake.0.borrow();
    assert_eq!(notes.requests[0].flags, SendFlags::FENCE);
    assert_eq!((notes.requests[1].token, notes.requests[1].length), (4, 8));
    assert!(notes.cancelled.is_empty());
}

#[test]
fn the_mark_to_overtake_binds_is_for_one_request() {
    let fake = Fake::new();
    let mut queue = SendQueue::new(fake.clone(), 0, 8);
    queue.overtake_binds();
    drop(queue.reserve(&send(9), 0));
    fake.0.borrow_mut().refuses = true;
    assert_eq!(commit(&mut queue, 9, 0), Err(Rejected));
    assert_eq!(queue.bind(&bind(1)), Err(Rejected));
    fake.0.borrow_mut().refuses = false;
    commit(&mut queue, 1, 0).expect("room");
    commit(&mut queue, 2, 0).expect("room");
    queue.ring().expect("taken");
    let notes = fake.0.borrow();
    let marks = [0, 1].map(|at: usize| notes.requests[at].overtakes_binds);
    assert_eq!(marks, [true, false]);
}

#[test]
fn a_receive_queue_takes_its_depth() {
    let fake = Fake::new();
    let mut queue = ReceiveQueue::new(fake.clone(), Owner::Shared(3), 2);
    for token in 0..2 {
        let slot = queue.reserve(&ReceiveRequest { token }, 1);
        let mut slot = slot.expect("room");
        slot.segment(SEGMENT);
        slot.commit(8).expect("room");
    }
    assert_eq!(queue.committed(), 2);
    assert!(queue.reserve(&ReceiveRequest { token: 2 }, 1).is_none());
    queue.ring().expect("taken");
    assert_eq!((queue.committed(), fake.0.borrow().receives.len()), (0, 2));
    assert!(queue.reserve(&ReceiveRequest { token: 2 }, 1).is_none());
    fake.0.borrow_mut().outstanding = None;
    assert!(queue.reserve(&ReceiveRequest { token: 2 }, 1).is_none());
}

#[test]
fn a_completion_queue_advances_its_executor_until_it_has_something() {
    let fake = Fake::new();
    let ready = Arc::new(AtomicUsize::new(0));
    fake.0.borrow_mut().ring = CompletionRing::new(8, Arc::clone(&ready));
    let mut queue = CompletionQueue::new(fake.clone(), 5, Arc::clone(&ready));
    assert_eq!((queue.poll(), queue.peek()), (Ok(None), Peek::Empty));
    assert_eq!(fake.0.borrow().advances, 2);
    let completion = Completion {
        token: 6,
        status: DtoStatus::Success,
        length: 8,
        queue_pair: 1,
        solicited: false,
    };
    let entry = Entry {
        owner: 0,
        completion,
        immediate: Some(42),
        kind: Kind::Receive,
        opcode: Opcode::Receive,
        source: 0,
        detail: Detail::None,
        extra: false,
    };
    let push = |entry| assert_eq!(fake.0.borrow_mut().ring.push(entry), Effect::None);
    push(entry);
    push(Entry {
        kind: Kind::Request,
        ..entry
    });
    assert_eq!(
        (ready.load(Ordering::Relaxed), queue.peek()),
        (2, Peek::Other)
    );
    queue.skip();
    assert_eq!(queue.poll(), Ok(Some(completion)));
    assert_eq!(queue.immediate(), Some(42));
    assert!(matches!(queue.peek(), Peek::Success { token: 6, .. }));
    assert_eq!(queue.arm(false), Armed::Missed);
    queue.skip();
    assert_eq!(
        (queue.arm(false), fake.0.borrow().advances),
        (Armed::Armed, 2)
    );
    fake.0.borrow_mut().is_gone = true;
    assert_eq!(queue.poll(), Err(DeviceFailure::Broken));
    assert_eq!(
        (queue.peek(), queue.arm(false)),
        (Peek::Other, Armed::Missed)
    );
}
