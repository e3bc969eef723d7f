//! Messages whose completions come late or never, and receives that the device does not take.

#[path = "fixture/engine.rs"]
mod engine;

use core::sync::atomic::{AtomicU8, Ordering};
use core::task::Waker;

use backend_mock::{Fabric, FabricOptions, Fault, MockWait, NodeOptions};
use dat_core::Ia;
use dat_core::attributes::EpAttributes;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event, Wait, WakeReason};
use dat_core::flags::{CompletionFlags, EvdFlags, MemoryPrivileges, PspFlags};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_rsm::wire::{Body, Greeting, MESSAGE_SIZE, Message};
use dat_rsm::{
    AccessEntry, ControllerId, ExportFlags, ExportId, ImportId, ImportState, Options, Permission,
    RsmError, SignalFlags,
};

use engine::storage::storage;
use engine::{Engine, engine, engine_with};

const SEGMENT: u32 = 0x40_0000;
const PAGE: usize = 4096;
/// The importer's adapter, and its queue of messages.
const ADAPTER: u16 = 0;
const MESSAGES: u32 = 3;
/// Microseconds.
const MILLISECOND: u32 = 1_000;

/// Publishes a segment to nodes 1 and 3.
fn publish(exporter: &Engine, controller: ControllerId) -> ExportId {
    let bytes: &'static [AtomicU8] = Vec::leak((0..2 * PAGE).map(|_| AtomicU8::new(0)).collect());
    let memory = &bytes[bytes.as_ptr().align_offset(PAGE)..][..PAGE];
    let memory = Region::from_static(memory);
    let export = exporter.export_create(controller, memory, ExportFlags::empty());
    let export = export.expect("a segment");
    let everybody = [1, 3].map(|node| AccessEntry {
        node,
        permission: 0o666,
    });
    exporter
        .export_publish(export, SEGMENT, &everybody)
        .expect("published");
    export
}

/// Somebody who waits, while the other engine goes on.
struct Together<'e> {
    own: MockWait,
    other: &'e Engine,
}

impl Wait for Together<'_> {
    fn now(&mut self) -> Instant {
        self.own.now()
    }

    fn waker(&self) -> Waker {
        self.own.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if self.other.progress(self.own.now()) != 0 {
            return WakeReason::Woken;
        }
        let soon = self.own.now().after(10);
        self.own.wait(until.min(soon).or(soon))
    }
}

/// Somebody who serves in place of each sleep.
struct Eager<F> {
    own: MockWait,
    serve: F,
}

impl<F: FnMut()> Wait for Eager<F> {
    fn now(&mut self) -> Instant {
        self.own.now()
    }

    fn waker(&self) -> Waker {
        self.own.waker()
    }

    fn wait(&mut self, _: Option<Instant>) -> WakeReason {
        (self.serve)();
        WakeReason::Woken
    }
}

/// An importer, connected to a segment.
struct Pair {
    fabric: Fabric,
    importer: Engine,
    exporter: Engine,
    import: ImportId,
    export: ExportId,
}

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(FabricOptions::default());
        let (importer, near) = engine(&fabric, 1);
        let (exporter, far) = engine(&fabric, 2);
        let export = publish(&exporter, far);
        let mut wait = Together {
            own: MockWait::new(&fabric),
            other: &exporter,
        };
        let all = Permission::all();
        let import = importer.import_connect(near, 2, SEGMENT, all, &mut wait);
        let import = import.expect("connected");
        let pair = Self {
            fabric,
            importer,
            exporter,
            import,
            export,
        };
        pair.run(MILLISECOND);
        pair
    }

    /// Lets so many microseconds go by.
    fn run(&self, time: u32) {
        let end = self.fabric.now().after(time).expect("a time");
        loop {
            let now = self.fabric.now();
            if self.importer.progress(now) + self.exporter.progress(now) != 0 {
                continue;
            }
            if now >= end {
                return;
            }
            let due = [
                self.fabric.next_due(),
                self.importer.next_deadline(),
                self.exporter.next_deadline(),
            ];
            let next = due.into_iter().flatten().min().unwrap_or(end);
            let next = next.max(now.after(1).expect("a time"));
            self.fabric.run_until(next.min(end));
        }
    }

    /// The exporter signals all importers.
    fn signal(&self) {
        let mut wait = MockWait::new(&self.fabric);
        let posted = self
            .exporter
            .signal_post(self.export, SignalFlags::empty(), &mut wait);
        posted.expect("posted");
    }

    /// Takes all signals that have come.
    fn taken(&self) -> usize {
        let take = || self.importer.signal_take(self.import);
        core::iter::repeat_with(take)
            .take_while(|taken| *taken == Ok(true))
            .count()
    }

    fn is_connected(&self) -> bool {
        self.importer.import_state(self.import) == Ok(ImportState::Connected)
    }

    /// The device of the importer refuses the next posts.
    fn refuse(&self, posts: u32) {
        for nth in 0..posts {
            let adapter = ADAPTER;
            let refused = Fault::RefusePost { adapter, nth };
            self.fabric.inject_from_now(refused);
        }
    }
}

/// A message that the device never completes delays later ones by 50 milliseconds. Then its link is
/// made anew.
///
/// Spec: RSMBR-09, RSMSG-05
#[test]
fn a_link_that_misses_a_message_reconnects() {
    let pair = Pair::new();
    pair.fabric.inject_from_now(Fault::DropCompletion {
        adapter: ADAPTER,
        queue: MESSAGES,
        nth: 0,
    });
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.fabric.happened().len(), 1);
    assert_eq!(pair.taken(), 0);
    // Nobody knows of it before another one comes.
    pair.run(100 * MILLISECOND);
    pair.signal();
    pair.run(MILLISECOND);
    for _ in 0..3 {
        pair.run(16 * MILLISECOND);
        assert_eq!(pair.taken(), 0, "the second signal before the first");
    }
    pair.signal();
    pair.run(MILLISECOND / 2);
    assert_eq!(pair.taken(), 0, "the link is over too early");
    pair.run(10 * MILLISECOND);
    assert!(pair.is_connected());
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}

/// A late message is taken in its order, and its link stays.
///
/// Spec: RSMSG-05
#[test]
fn a_late_message_is_awaited() {
    let pair = Pair::new();
    pair.fabric.inject_from_now(Fault::DelayCompletion {
        adapter: ADAPTER,
        queue: MESSAGES,
        nth: 0,
        by: 40 * MILLISECOND,
    });
    for _ in 0..5 {
        pair.signal();
    }
    pair.run(30 * MILLISECOND);
    assert_eq!(pair.taken(), 0);
    pair.run(20 * MILLISECOND);
    assert_eq!(pair.taken(), 5);
    pair.run(100 * MILLISECOND);
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}

/// More messages than there are places, while the device takes few of these back: none is lost.
///
/// Spec: RSMSG-05
#[test]
fn refused_receives_are_posted_again() {
    for refused in [1, 3, 20] {
        let pair = Pair::new();
        pair.refuse(refused);
        let mut taken = 0;
        for _ in 0..40 {
            pair.signal();
            pair.run(20);
            let due = pair.importer.next_deadline();
            let soon = pair.fabric.now().after(MILLISECOND);
            let all = pair.fabric.happened().len() == refused as usize;
            assert!(
                all || (due.is_some() && due <= soon),
                "nobody looks: {due:?}"
            );
            taken += pair.taken();
        }
        pair.run(30 * MILLISECOND);
        taken += pair.taken();
        assert_eq!(taken, 40, "{refused}");
        assert_eq!(pair.fabric.happened().len(), refused as usize);
    }
}

/// A device that takes no receive for longer than 50 milliseconds has its link made anew.
///
/// Spec: RSMBR-09
#[test]
fn a_link_without_receives_reconnects() {
    let pair = Pair::new();
    pair.refuse(80);
    pair.signal();
    pair.run(48 * MILLISECOND);
    assert_eq!(pair.taken(), 1);
    let refused = pair.fabric.happened().len();
    assert!((45..52).contains(&refused), "{refused} posts in 48 ms");
    pair.run(100 * MILLISECOND);
    assert!(pair.is_connected());
    assert_eq!(pair.fabric.happened().len(), 80);
    pair.signal();
    pair.run(MILLISECOND);
    assert_eq!(pair.taken(), 1);
}

/// More messages than the exporter takes at once, from importers that end their connections before
/// it takes any: each counts.
///
/// Spec: RSMSG-01, RSMSG-05
#[test]
fn messages_before_the_end_of_their_connection_count() {
    const SIGNALS: usize = 50;
    let fabric = Fabric::new(FabricOptions::default());
    let make = |number| {
        let options = Options {
            credits: 60,
            ..Options::new(number, u64::from(number))
        };
        engine_with(&fabric, options)
    };
    let (exporter, far) = make(2);
    let export = publish(&exporter, far);
    let importers = [1, 3].map(|number| {
        let (importer, near) = make(number);
        let mut wait = Together {
            own: MockWait::new(&fabric),
            other: &exporter,
        };
        let import = importer.import_connect(near, 2, SEGMENT, Permission::all(), &mut wait);
        let import = import.expect("connected");
        (importer, near, import)
    });
    let mut wait = MockWait::new(&fabric);
    for (importer, _, import) in &importers {
        for _ in 0..SIGNALS {
            let posted = importer.signal_post(*import, SignalFlags::empty(), &mut wait);
            posted.expect("posted");
        }
    }
    for (importer, near, _) in &importers {
        let released = importer.release_controller(*near, &mut wait);
        released.expect("released");
    }
    fabric.run_until(fabric.now().after(MILLISECOND).expect("a time"));
    while exporter.progress(fabric.now()) != 0 {}
    let take = || exporter.signal_take(export).expect("a segment");
    let taken = core::iter::repeat_with(take).take_while(|taken| *taken);
    assert_eq!(taken.count(), importers.len() * SIGNALS);
}

/// Messages that came before a request failed count, though its connection is over.
///
/// Spec: RSMSG-01, RSMSG-05
#[test]
fn messages_before_a_failed_request_count() {
    const SIGNALS: u32 = 5;
    let pair = Pair::new();
    // The messages come while the importer sleeps.
    for nth in 0..SIGNALS {
        pair.fabric.inject_from_now(Fault::DelayCompletion {
            adapter: ADAPTER,
            queue: MESSAGES,
            nth,
            by: 5 * MILLISECOND,
        });
        pair.signal();
    }
    pair.run(MILLISECOND);
    pair.fabric.inject_from_now(Fault::LinkDown {
        a: ADAPTER,
        b: ADAPTER + 1,
        at: 0,
        duration: None,
    });
    let mut wait = Eager {
        own: MockWait::new(&pair.fabric),
        serve: || {
            let later = pair.fabric.now().after(1_000 * MILLISECOND);
            pair.fabric.run_until(later.expect("a time"));
        },
    };
    let posted = pair
        .importer
        .signal_post(pair.import, SignalFlags::empty(), &mut wait);
    assert_eq!(posted, Err(RsmError::ConnectionAborted));
    assert_eq!(pair.taken(), SIGNALS as usize);
}

/// An exporter that speaks before it is asked: its message may be found before the event that
/// establishes the connection. Then the message waits for that event, and the link stays.
///
/// Spec: RSMBR-09
#[test]
fn a_message_before_its_connection_is_established_waits() {
    const IMPORTER: u64 = 7;
    let fabric = Fabric::new(FabricOptions::default());
    let (importer, near) = engine(&fabric, 1);
    let device = fabric.node(NodeOptions::new("mock", 2));
    let ia = Ia::open(device, storage::<HostLock>(), 8).expect("an adapter");
    let zone = ia.pz_create().expect("a zone");
    let kinds = EvdFlags::DTO | EvdFlags::CR | EvdFlags::CONNECTION;
    let evd = ia.evd_create(64, None, kinds).expect("a queue");
    ia.psp_create(7, evd, PspFlags::Consumer)
        .expect("a service point");
    let attributes = EpAttributes::DEFAULT;
    let ep = ia
        .ep_create(
            Some(zone),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&attributes),
        )
        .expect("an endpoint");
    let bytes: &'static [AtomicU8] = Vec::leak((0..PAGE).map(|_| AtomicU8::new(0)).collect());
    let memory = ia
        .lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(bytes)),
            pz: zone,
            privileges: MemoryPrivileges::ALL,
        })
        .expect("a region");
    let slot = |number: usize| LmrTriplet {
        context: memory.lmr_context,
        address: memory.registered_address + (number * MESSAGE_SIZE) as u64,
        length: MESSAGE_SIZE as u64,
    };
    let none = CompletionFlags::empty();
    for cookie in [0, 1] {
        ia.post_recv(ep, &[slot(cookie)], cookie as u64, none)
            .expect("a receive");
    }
    let send = |body| {
        let message = Message {
            incarnation: 5,
            credits: 0,
            body,
        };
        let at = bytes[2 * MESSAGE_SIZE..].iter();
        at.zip(message.encode())
            .for_each(|(byte, value)| byte.store(value, Ordering::Relaxed));
        ia.post_send(ep, &[slot(2)], 2, none).expect("sent");
    };
    let greeting = Greeting {
        node: 2,
        incarnation: 5,
        read_back_address: memory.registered_address,
        read_back_key: memory.rmr_context,
        credits: 16,
        big_endian: cfg!(target_endian = "big"),
        non_coherent: false,
    };
    let (mut asked, mut answered) = (None, false);
    let mut serve = || {
        fabric.run_until(fabric.now().after(MILLISECOND).expect("a time"));
        ia.progress(fabric.now());
        while let Ok(event) = ia.evd_dequeue(evd) {
            match event {
                Event::ConnectionRequest { cr, .. } => ia
                    .cr_accept(cr, Some(ep), &greeting.encode())
                    .expect("accepted"),
                Event::Connection {
                    kind: ConnectionEventKind::Established,
                    ..
                } => send(Body::Accept {
                    import: 1,
                    importer: IMPORTER,
                    length: 0,
                    address: 0,
                    key: 0,
                    publication: 1,
                }),
                Event::Dto(done) if done.operation == DtoOperation::Receive => {
                    let from = done.cookie as usize * MESSAGE_SIZE;
                    let byte = |at: usize| bytes[from + at].load(Ordering::Relaxed);
                    let message = Message::decode(&core::array::from_fn(byte));
                    match message.expect("a message").body {
                        Body::Connect { import, .. } => asked = Some(import),
                        // The answer to a grant that was not asked for.
                        Body::Disconnect { importer } => {
                            assert_eq!(importer, IMPORTER);
                            answered = true;
                        }
                        other => panic!("{other:?}"),
                    }
                    if answered && let Some(import) = asked {
                        let error = RsmError::SegmentNotPublished;
                        send(Body::Refuse { import, error });
                    }
                }
                Event::Dto(_) => {}
                other => panic!("{other:?}"),
            }
        }
        fabric.run_until(fabric.now().after(MILLISECOND).expect("a time"));
    };
    let mut wait = Eager {
        own: MockWait::new(&fabric),
        // The importer looks again only when the first message is there.
        serve: || (0..4).for_each(|_| serve()),
    };
    let refused = importer.import_connect(near, 2, SEGMENT, Permission::all(), &mut wait);
    assert_eq!(refused.err(), Some(RsmError::SegmentNotPublished));
}
