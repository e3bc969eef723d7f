//! Tests with adapters on the mock: growth, address space, limits of the process.

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::AtomicU8;
use std::{env, fs, thread};

use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::endpoint::ConnectParam;
use dat_core::event::Event;
use dat_core::flags::{
    CompletionFlags, ConnectFlags, EvdFlags, MemoryPrivileges, PspFlags, QualityOfService,
    TIMEOUT_INFINITE,
};
use dat_core::id::PzId;
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::{HostLock, NoLock};
use dat_core::{Cause, ErrorKind, OpenError, Subtype};
use dat_rsm::{ControllerConfig, Options, Rsm, RsmError};

use crate::memory::RESERVED;
use crate::{Limits, OwnedIa, Reservation};

type TestReservation = Reservation<MockBackend, HostLock>;
type MockIa = OwnedIa<MockBackend, HostLock>;

/// Environment variable that has a test do its work in a child process.
const CHILD: &str = "DAT_STORAGE_CHILD";

fn backend() -> MockBackend {
    let mut options = NodeOptions::new("node", 1);
    options.limits.completion_queues = 1 << 20;
    options.limits.regions = 1 << 16;
    Fabric::new(FabricOptions::default()).node(options)
}

fn open(limits: &Limits) -> Result<MockIa, Box<OpenError<MockBackend>>> {
    MockIa::open(backend(), limits, 16).map_err(Box::new)
}

fn register(ia: &MockIa, zone: PzId) -> LmrCreated {
    static BYTES: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&BYTES)),
        pz: zone,
        privileges: MemoryPrivileges::LOCAL_READ,
    })
    .unwrap()
}

impl TestReservation {
    /// Returns the number of accessible bytes.
    fn accessible(&self) -> usize {
        let start = self.start();
        let end = start + self.length();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let accessible = maps.lines().filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let address = |digits| usize::from_str_radix(digits, 16).ok();
            let (from, to) = (address(from)?.max(start), address(to)?.min(end));
            rest.starts_with("rw").then(|| to.saturating_sub(from))
        });
        accessible.sum()
    }
}

/// Runs a test again, in a process of its own where `CHILD` is set.
fn in_child(test: &str) {
    let test = format!("tests::{test}");
    let output = Command::new(env::current_exe().unwrap())
        .args([test.as_str(), "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    let erred = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{output_text}\n{erred}",
        output.status
    );
    assert!(output_text.contains("1 passed"), "{output_text}");
    println!("{output_text}");
}

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Returns a number of kilobytes in this process's status, in bytes.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let number = line.split_whitespace().nth(1).unwrap();
    number.parse::<usize>().unwrap() * 1024
}

#[test]
fn tables_grow_in_steps() {
    let ia = open(&Limits::default()).unwrap();
    let zone = ia.pz_create().unwrap();
    let mut sizes = vec![ia.reservation.accessible()];
    for _ in 0..20_000 {
        let freed = register(&ia, zone);
        ia.lmr_free(freed.lmr).unwrap();
        if freed.lmr.handle().index().is_multiple_of(64) {
            sizes.push(ia.reservation.accessible());
        }
    }
    assert!(sizes.is_sorted());
    sizes.dedup();
    assert!((5..40).contains(&sizes.len()), "{sizes:?}");
}

/// An open takes memory for the slots in use, not for all.
#[test]
fn an_adapter_starts_with_little_memory() {
    let ia = open(&Limits::default()).unwrap();
    assert_eq!(MockIa::limits(&ia), &Limits::MAXIMA);
    let accessible = ia.reservation.accessible();
    assert!((4096..=4 << 20).contains(&accessible), "{accessible} bytes");
    assert!(ia.reservation.length() > 1 << 30);
}

/// A process that locks its memory gets all accessible pages at once.
#[test]
fn an_adapter_starts_with_little_locked_memory() {
    if !is_child() {
        return in_child("an_adapter_starts_with_little_locked_memory");
    }
    let backend = backend();
    #[expect(unsafe_code)]
    // SAFETY: the call changes no contents of memory.
    let locks = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0;
    if !locks {
        // Not allowed here; the test above has counted the accessible bytes.
        return;
    }
    let before = status("VmRSS:");
    let ia = MockIa::open(backend, &Limits::default(), 16).unwrap();
    let taken = status("VmRSS:").saturating_sub(before);
    println!("{taken} bytes of {} reserved", ia.reservation.length());
    assert!(taken <= 4 << 20, "{taken} bytes");
    // Growth works under the lock too.
    ia.pz_create().unwrap();
}

#[test]
fn a_dropped_adapter_returns_its_address_space() {
    let before = RESERVED.get();
    for round in 0..300 {
        let ia = open(&Limits::default()).unwrap();
        ia.pz_create().unwrap();
        assert_eq!(RESERVED.get(), before + 1, "{round}");
    }
    let refused = MockIa::open(backend(), &Limits::default(), 0).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::InvalidParameter);
    assert_eq!(RESERVED.get(), before);
}

/// Both steps of a drop: the adapter's objects, and then every page.
#[test]
fn a_dropped_reservation_is_unmapped() {
    if !is_child() {
        return in_child("a_dropped_reservation_is_unmapped");
    }
    let lines = || {
        fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count()
    };
    let ia = open(&Limits::default()).unwrap();
    ia.pz_create().unwrap();
    let (mapped, length) = (status("VmSize:"), ia.reservation.length());
    let mappings = lines();
    drop(ia);
    assert!(status("VmSize:") <= mapped - length);
    assert!(lines() < mappings);
}

#[test]
fn a_kind_without_slots_has_no_objects() {
    let none = Limits {
        endpoints: 0,
        dispatchers: 1,
        notification_objects: 0,
        shared_receive_queues: 0,
        service_points: 0,
        connection_requests: 0,
        zones: 0,
        local_regions: 0,
        remote_regions: 0,
        events: 16,
        records: 0,
    };
    let ia = open(&none).unwrap();
    let refused = ia.pz_create().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    assert_eq!(refused.cause(), Cause::TableFull);
    for limits in [
        Limits {
            dispatchers: 0,
            ..none
        },
        Limits { events: 0, ..none },
    ] {
        let refused = open(&limits).unwrap_err().error;
        assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    }
    let nothing = Limits {
        dispatchers: 0,
        events: 0,
        ..none
    };
    assert_eq!(TestReservation::new(&nothing).unwrap().limits(), &nothing);
}

#[test]
fn more_objects_than_handles_tell_apart_are_refused() {
    let before = RESERVED.get();
    for limits in [
        Limits {
            endpoints: (1 << 20) + 1,
            ..Limits::default()
        },
        Limits {
            zones: (1 << 16) + 1,
            ..Limits::default()
        },
        Limits {
            records: usize::MAX,
            ..Limits::default()
        },
    ] {
        let refused = open(&limits).unwrap_err().error;
        assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
        assert_eq!(refused.subtype(), Subtype::ResourceMemory);
        assert_eq!(refused.cause(), Cause::AboveLimit);
    }
    assert_eq!(RESERVED.get(), before);
    let most = Limits {
        local_regions: 1 << 20,
        dispatchers: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(MockIa::limits(&open(&most).unwrap()).dispatchers, 1 << 20);
}

/// Each test of a limit of the process needs a process.
#[test]
fn maxima_shrink_with_the_address_space() {
    if !is_child() {
        return in_child("maxima_shrink_with_the_address_space");
    }
    let backends = [backend(), backend()];
    let limit = |bytes: usize| {
        let most = (status("VmSize:") + bytes) as libc::rlim_t;
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: libc::RLIM_INFINITY,
        };
        #[expect(unsafe_code)]
        // SAFETY: the call reads the structure.
        let outcome = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(outcome, 0);
    };
    let [first, second] = backends;
    limit(256 << 20);
    let least = Limits::default();
    let ia = MockIa::open(first, &least, 16).unwrap();
    let granted = *MockIa::limits(&ia);
    assert!(granted.endpoints < Limits::MAXIMA.endpoints && granted.endpoints > least.endpoints);
    assert!(ia.reservation.length() <= 256 << 20);
    ia.pz_create().unwrap();
    limit(64 << 10);
    let refused = MockIa::open(second, &least, 16).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::InsufficientResources);
    assert_eq!(refused.error.subtype(), Subtype::ResourceMemory);
    assert_eq!(refused.error.cause(), Cause::None);
    // The backend came back, and opens when there is room again.
    limit(64 << 20);
    MockIa::open(refused.backend, &least, 16).unwrap();
}

struct Both {
    near: MockIa,
    far: MockIa,
}

#[test]
fn two_adapters_move_between_threads() {
    let both = Box::new(Both {
        near: open(&Limits::default()).unwrap(),
        far: open(&Limits::default()).unwrap(),
    });
    let (zone, other) = (
        both.near.pz_create().unwrap(),
        both.far.pz_create().unwrap(),
    );
    let moved = thread::spawn(move || {
        let Both { near, far } = *both;
        assert_eq!(near.pz_free(other).unwrap_err().cause(), Cause::Foreign);
        near.pz_free(zone).unwrap();
        // In another order, and elsewhere.
        (far, near)
    });
    let (far, near) = moved.join().unwrap();
    let shared = thread::scope(|scope| {
        let calls = [&near, &far].map(|ia| scope.spawn(|| ia.pz_create().unwrap()));
        calls.map(|call| call.join().unwrap())
    });
    near.pz_free(shared[0]).unwrap();
    drop(near);
    far.pz_free(shared[1]).unwrap();
    far.pz_free(other).unwrap();
}

/// Threads can share an adapter only if its lock allows it.
#[test]
fn only_a_shared_lock_makes_an_adapter_shared() {
    /// Ambiguous, and so an error of the compiler, if the type has the trait.
    macro_rules! lacks {
        ($type:ty, $trait:ident) => {{
            trait Lacks<A> {
                fn lacks() {}
            }
            impl<T: ?Sized> Lacks<()> for T {}
            struct Has;
            impl<T: ?Sized + $trait> Lacks<Has> for T {}
            <$type as Lacks<_>>::lacks();
        }};
    }
    fn has<T: Send + Sync>() {}
    has::<MockIa>();
    has::<TestReservation>();
    lacks!(OwnedIa<MockBackend, NoLock>, Sync);
    lacks!(dat_core::Storage<'static, MockBackend, NoLock>, Sync);
}

#[test]
fn a_reservation_is_lent_again() {
    let before = RESERVED.get();
    let mut tables = TestReservation::new(&Limits::default()).unwrap();
    let mut handles = Vec::new();
    for _ in 0..3 {
        let ia = dat_core::Ia::open(backend(), tables.lend(), 16).unwrap();
        for stale in &handles {
            assert!(ia.pz_free(*stale).is_err());
        }
        handles.push(ia.pz_create().unwrap());
    }
    let leaked = tables.leak();
    assert_eq!(RESERVED.get(), before + 1);
    dat_core::Ia::open(backend(), leaked, 16).unwrap();
}

#[test]
fn an_engine_that_cannot_be_made_keeps_no_storage() {
    let before = RESERVED.get();
    let engine_of = |name| {
        let tables = TestReservation::new(&Limits::default()).unwrap();
        assert_eq!(RESERVED.get(), before + 1);
        let absent = RsmError::ControllerNotPresent;
        let make = |storage| {
            let ia = dat_core::Ia::open(backend(), storage, 16).map_err(|_| absent)?;
            let config = ControllerConfig {
                name,
                ia,
                qualifier: 0,
                nodes: Vec::new(),
            };
            Rsm::new(Options::new(1, 1), vec![config])
        };
        #[expect(unsafe_code)]
        // SAFETY: an engine that cannot be made has dropped its adapters.
        unsafe {
            tables.leak_if_ok(make)
        }
    };
    // No controller has such a number.
    let refused = engine_of("node99999999999").err();
    assert_eq!(refused, Some(RsmError::ControllerNotPresent));
    assert_eq!(RESERVED.get(), before);
    assert!(engine_of("node1").is_ok());
    assert_eq!(RESERVED.get(), before + 1);
}

/// A context comes back only after 65,536 others were freed.
#[test]
fn contexts_of_many_regions_differ() {
    let ia = open(&Limits::default()).unwrap();
    let zone = ia.pz_create().unwrap();
    let mut contexts = HashSet::new();
    let mut slots = HashSet::new();
    for _ in 0..70_000 {
        let region = register(&ia, zone);
        assert!(contexts.insert(region.lmr_context));
        slots.insert(region.lmr.handle().index());
        ia.lmr_free(region.lmr).unwrap();
    }
    assert_eq!(slots.len(), (1 << 16) + 1);
}

#[test]
fn many_objects_are_created_at_once() {
    let ia = open(&Limits::default()).unwrap();
    let create = |_| ia.cno_create(None).unwrap();
    let objects: Vec<_> = (0..70_000).map(create).collect();
    assert!(objects.last().unwrap().handle().index() >= 69_999);
    for object in objects {
        ia.cno_free(object).unwrap();
    }
    assert!(ia.objects_left().is_empty());
    create(0);
}

#[test]
fn many_dispatchers_are_created_at_once() {
    let ia = open(&Limits::default()).unwrap();
    let create = |_| ia.evd_create(1, None, EvdFlags::SOFTWARE).unwrap();
    let dispatchers: Vec<_> = (0..70_000).map(create).collect();
    assert!(dispatchers.last().unwrap().handle().index() >= 70_000);
    for dispatcher in dispatchers {
        ia.evd_free(dispatcher).unwrap();
    }
    assert!(ia.objects_left().is_empty());
    create(0);
}

/// A message names its endpoint, also one whose index has more than 16 bits.
///
/// The completion stays in the device until the dispatcher is resized, and in the dispatcher until
/// its event is dequeued.
#[test]
fn message_names_an_endpoint_beyond_65536_others() {
    let fabric = Fabric::new(FabricOptions::default());
    let options = |name, address| {
        let mut options = NodeOptions::new(name, address);
        options.limits.queue_pairs = 1 << 17;
        options
    };
    let adapter = |options| MockIa::open(fabric.node(options), &Limits::default(), 16).unwrap();
    let (near, far) = (adapter(options("near", 1)), adapter(options("far", 2)));
    let address = options("far", 2).address;
    let none = EpAttributes {
        max_recv_dtos: 0,
        max_request_dtos: 0,
        ..EpAttributes::DEFAULT
    };
    for _ in 0..1 << 16 {
        far.ep_create(None, None, None, None, Some(&none)).unwrap();
    }
    let zone = far.pz_create().unwrap();
    let queue = SrqAttributes {
        max_recv_dtos: 1,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let queue = far.srq_create(zone, &queue).unwrap();
    let events = [&near, &far].map(|ia| ia.evd_create(16, None, EvdFlags::DEFAULT).unwrap());
    let [near_evd, far_evd] = events.map(Some);
    let messages = far.evd_create(4, None, EvdFlags::DTO).unwrap();
    let near_zone = near.pz_create().unwrap();
    let sender = near
        .ep_create(Some(near_zone), near_evd, near_evd, near_evd, None)
        .unwrap();
    let receiver = far
        .ep_create_with_srq(
            Some(zone),
            Some(messages),
            far_evd,
            far_evd,
            queue,
            &EpAttributes::DEFAULT,
        )
        .unwrap();
    assert!(receiver.handle().index() >= 1 << 16);
    far.srq_post_recv(queue, &[], 7).unwrap();
    let next = |ia: &MockIa, evd| {
        ia.evd_wait_until(evd, 1, None, &mut MockWait::new(&fabric))
            .unwrap()
            .event
    };
    far.psp_create(9, events[1], PspFlags::Consumer).unwrap();
    let request = ConnectParam {
        address,
        qualifier: 9,
        timeout: TIMEOUT_INFINITE,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    near.ep_connect(sender, &request, fabric.now()).unwrap();
    let Event::ConnectionRequest { cr, .. } = next(&far, events[1]) else {
        panic!("no request");
    };
    far.cr_accept(cr, Some(receiver), &[]).unwrap();
    for (ia, evd) in [(&near, events[0]), (&far, events[1])] {
        assert!(matches!(next(ia, evd), Event::Connection { .. }));
    }
    near.post_send(sender, &[], 0, CompletionFlags::empty())
        .unwrap();
    assert!(matches!(next(&near, events[0]), Event::Dto(_)));
    far.evd_resize(messages, 8).unwrap();
    let Ok(Event::Dto(message)) = far.evd_dequeue(messages) else {
        panic!("no message");
    };
    assert_eq!((message.ep, message.cookie), (receiver, 7));
}
