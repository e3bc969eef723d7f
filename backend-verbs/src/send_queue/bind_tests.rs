//! Windows on a device that is not there, most of type 2: what is posted, and what is open then.

use std::collections::HashSet;

use dat_core::backend::{Completion, CompletionQueue as _, RegionKeys, WindowKey};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use super::*;
use crate::completion_queue::{QueueMarks, VerbsCompletionQueue};
use crate::directory::Directory;
use crate::hal::Batch;
use crate::hal::fake::{Device, Posted};
use crate::objects::BoundWindow;
use crate::signal::Signal;

const WRITE: u32 = 0;
const CLOSE: u32 = 7;
const OPEN: u32 = 8;
const SIGNALLED: u32 = 2;

/// A device, a queue pair on it, and what else a bind takes. The device goes last.
struct Bench {
    queue: VerbsSendQueue,
    completions: VerbsCompletionQueue,
    objects: Arc<Objects>,
    region: RegionKeys,
    window: WindowKey,
    device: Device,
}

impl Bench {
    fn new() -> Self {
        Self::with(WindowType::Two)
    }

    fn with(kind: WindowType) -> Self {
        let device = Device::new();
        device.work(None);
        let objects = Arc::<Objects>::default();
        let window = BoundWindow::new(device.domain(), kind).expect("it makes windows");
        let window = WindowKey(objects.insert_window(window).expect("room"));
        let mut bench = Self {
            queue: queue(&device, &objects, 17),
            completions: VerbsCompletionQueue {
                device: device.completion_queue(),
                batch: Batch::new(),
                marks: Arc::new(QueueMarks::default()),
                directory: Arc::new(Directory::new()),
                objects: Arc::clone(&objects),
                signal: Arc::new(Signal::new().expect("descriptors")),
            },
            objects,
            region: RegionKeys::default(),
            window,
            device,
        };
        bench.region = bench.another_region();
        bench
    }

    fn another_region(&self) -> RegionKeys {
        let region = self.device.region();
        let object = self.objects.insert_region(region).expect("room");
        RegionKeys {
            object,
            local: 0,
            remote: 0,
        }
    }

    /// Binds the window to so many bytes for reading; none unbinds.
    fn bind(&mut self, token: u64, length: u64) -> Result<u32, Rejected> {
        let flags = SendFlags::empty();
        self.bind_for(token, length, MemoryPrivileges::REMOTE_READ, flags)
    }

    fn bind_for(
        &mut self,
        token: u64,
        length: u64,
        privileges: MemoryPrivileges,
        flags: SendFlags,
    ) -> Result<u32, Rejected> {
        let request = BindRequest {
            token,
            window: self.window,
            region: if length == 0 {
                RegionKeys::default()
            } else {
                self.region
            },
            address: 0x1000,
            length,
            privileges,
            flags,
        };
        // As the core does.
        match self.queue.bind_again(&request) {
            Some(bound) => bound,
            None => self.queue.bind(&request),
        }
    }

    /// Binds, which succeeds in every respect.
    #[track_caller]
    fn bound(&mut self, token: u64, length: u64) -> u32 {
        let key = self.bind(token, length).expect("taken");
        assert_eq!(self.completed(), [(token, DtoStatus::Success)]);
        key
    }

    fn completed(&mut self) -> Vec<(u64, DtoStatus)> {
        let poll = || self.completions.poll().expect("sound");
        core::iter::from_fn(poll)
            .map(|Completion { token, status, .. }| (token, status))
            .collect()
    }

    /// Operation code, whether it completes, and key of what was posted.
    fn posted(&self) -> Vec<(u32, bool, u32)> {
        let (_, posted) = self.device.take_requests();
        let brief = |one: &Posted| (one.opcode, one.flags & SIGNALLED != 0, one.remote.1);
        posted.iter().map(brief).collect()
    }
}

fn queue(device: &Device, objects: &Arc<Objects>, number: u32) -> VerbsSendQueue {
    VerbsSendQueue {
        list: device.send_list(8, 1),
        number,
        objects: Arc::clone(objects),
        places: Box::default(),
    }
}

/// A bind is a posted request; the next one closes what is open ahead of it, and the earlier key is dead.
///
/// Spec: RMB-01, RMB-10, RMB-21
#[test]
fn a_rebind_closes_ahead_and_kills_the_old_key() {
    let mut bench = Bench::new();
    let first = bench.bound(1, 64);
    assert_eq!(bench.posted(), [(OPEN, true, first)]);
    assert!(bench.device.opens(first));
    let second = bench.bound(2, 32);
    assert_eq!(
        bench.posted(),
        [(CLOSE, false, first), (OPEN, true, second)]
    );
    assert!(!bench.device.opens(first) && bench.device.opens(second));
}

/// Eight bits of a key are counted, so that another window of the device takes over before one comes again. None that
/// was opened once opens anything later, whichever way binds and unbinds alternate and however many are under way.
///
/// Spec: RMB-10, RMB-21
#[test]
fn no_context_opens_a_window_again() {
    for (kind, under_way) in [WindowType::One, WindowType::Two]
        .into_iter()
        .flat_map(|kind| (1..=4).map(move |under_way| (kind, under_way)))
    {
        let mut bench = Bench::with(kind);
        let mut had = HashSet::new();
        let mut token = 0;
        while token < 2000 {
            let first = token;
            let mut last = None;
            for _ in 0..under_way {
                // Among binds of other lengths, one in eleven closes.
                let length = token % 11;
                let key = bench.bind(token, length).expect("taken");
                last = (length != 0).then_some(key);
                assert!(length == 0 || had.insert(key), "{key:#x} at {token}");
                token += 1;
            }
            let expected: Vec<_> = (first..token).map(|at| (at, DtoStatus::Success)).collect();
            assert_eq!(bench.completed(), expected, "{kind:?}");
            for key in &had {
                assert_eq!(bench.device.opens(*key), last == Some(*key), "{key:#x}");
            }
            assert_eq!(bench.device.windows(), 1, "the others were given back");
        }
        assert!(bench.objects.deregister(bench.region.object));
    }
}

/// The first key of a window of type 2 is drawn at random; that of type 1 is the device's.
///
/// Spec: RMB-10
#[test]
fn first_keys_are_drawn() {
    let firsts = |kind| -> HashSet<u32> {
        let first = |_| Bench::with(kind).bound(1, 64) & 0xFF;
        (0..64).map(first).collect()
    };
    // Of 64 drawn bytes ten or fewer differ once in 10^76.
    assert!(firsts(WindowType::Two).len() > 10);
    assert_eq!(firsts(WindowType::One), HashSet::from([1]));
}

/// A bench whose window has no keys left, and the context that it is open by.
fn out_of_keys(kind: WindowType) -> (Bench, u32) {
    let mut bench = Bench::with(kind);
    let mut open = 0;
    for token in 0..255 {
        open = bench.bound(token, 64);
    }
    bench.posted();
    (bench, open)
}

/// A window that gets another one of the device keeps its old binding until the bind has completed, and for good where
/// that is refused or flushed.
///
/// Spec: RMB-10, RMB-21, RMB-42, GEN-06
#[test]
fn a_renewed_window_keeps_its_binding_until_the_bind_completes() {
    for kind in [WindowType::One, WindowType::Two] {
        let (mut bench, old) = out_of_keys(kind);
        bench.device.refuse_after(0);
        assert_eq!(bench.bind(300, 64), Err(Rejected));
        bench.device.refuse_nothing();
        assert!(bench.device.opens(old) && !bench.objects.is_renewing());
        assert_eq!(bench.device.windows(), 1);

        bench.device.flush();
        bench.bind(301, 64).expect("taken");
        assert_eq!(bench.device.windows(), 2);
        let told = bench.completed();
        assert!(told.iter().all(|one| *one == (301, DtoStatus::Flushed)));
        assert!(!told.is_empty() && bench.device.opens(old));
        assert_eq!(bench.device.windows(), 1);

        bench.device.work(None);
        let new = bench.bind(302, 64).expect("taken");
        if kind == WindowType::One {
            assert!(bench.device.opens(old), "nobody was told that it is done");
        }
        assert_eq!(bench.completed(), [(302, DtoStatus::Success)]);
        assert!(bench.device.opens(new) && !bench.device.opens(old));
        assert_eq!(bench.device.windows(), 1);
        assert!(!bench.objects.is_renewing());
        bench.bound(303, 64);
    }
}

/// A window whose bind was flushed keeps its old binding, and is bound or unbound like any other then.
///
/// Spec: RMB-11, RMB-21, RMB-42
#[test]
fn a_window_goes_on_after_a_flushed_bind() {
    for length in [64, 0] {
        let mut bench = Bench::with(WindowType::One);
        let old = bench.bound(1, 64);
        bench.device.flush();
        bench.bind(2, 64).expect("taken");
        assert_eq!(bench.completed(), [(2, DtoStatus::Flushed)]);
        bench.device.work(None);
        assert!(bench.device.opens(old));
        let new = bench.bind(3, length).expect("taken");
        if length == 0 {
            // It goes when the write of no bytes completes, which keeps the place in the order.
            assert!(bench.device.opens(old));
        }
        assert_eq!(bench.completed(), [(3, DtoStatus::Success)]);
        assert!(!bench.device.opens(old) && bench.device.opens(new) == (length != 0));
        assert_eq!(bench.device.windows(), 1);
        let next = bench.bound(4, 64);
        assert!(bench.device.opens(next) && next != old && next != new);
        // Not once more for the same flush.
        assert!(!bench.objects.is_renewing());
    }
}

/// A bind of a renewed window that fails late leaves no binding; one that is refused half way leaves the window closed.
///
/// Spec: RMB-22, GEN-06
#[test]
fn a_renewed_window_that_is_not_bound_is_closed_or_as_before() {
    for half in 0..2 {
        let (mut bench, old) = out_of_keys(WindowType::Two);
        bench.device.work(Some(half));
        let new = bench.bind(300, 64).expect("taken");
        assert_eq!(bench.completed()[0], (300, DtoStatus::RmrOperationFailed));
        assert!(!bench.device.opens(old) && !bench.device.opens(new));
        assert_eq!(bench.device.windows(), 1);

        let (mut bench, old) = out_of_keys(WindowType::Two);
        bench.device.refuse_after(half);
        assert_eq!(bench.bind(300, 64), Err(Rejected));
        bench.device.refuse_nothing();
        assert_eq!(bench.device.opens(old), half == 0);
        bench.posted();
        let new = bench.bound(301, 64);
        let mut expected = vec![(CLOSE, false, old), (OPEN, true, new)];
        expected.drain(..half);
        assert_eq!(bench.posted(), expected);
        assert_eq!(bench.device.windows(), 1);
    }
}

/// Whatever goes while a window is being renewed takes both windows of the device with it.
///
/// Spec: RMF-01, RMF-02, LMF-02
#[test]
fn what_goes_takes_a_replaced_window_along() {
    for kind in [WindowType::One, WindowType::Two] {
        let (mut bench, old) = out_of_keys(kind);
        bench.bind(300, 64).expect("taken");
        bench.objects.remove_window(bench.window.0);
        assert_eq!(bench.device.windows(), 0);
        assert!(!bench.objects.is_renewing() && !bench.device.opens(old));
        assert_eq!(bench.completed(), [(300, DtoStatus::Success)]);

        let (mut bench, old) = out_of_keys(kind);
        let region = bench.region;
        bench.region = bench.another_region();
        let new = bench.bind(300, 64).expect("taken");
        assert!(bench.objects.deregister(region.object));
        assert!(!bench.device.opens(old));
        bench.completed();
        bench.bound(301, 64);
        assert!(!bench.device.opens(new));
        assert_eq!(bench.device.windows(), 1);

        let (mut bench, old) = out_of_keys(WindowType::Two);
        bench.device.flush();
        bench.bind(300, 64).expect("taken");
        bench.objects.forget_queue_pair(17);
        assert!(!bench.device.opens(old));
        bench.completed();
        bench.device.work(None);
        bench.bound(301, 64);
        assert_eq!(bench.device.windows(), 1);
    }
}

/// All of a bind waits behind reads if it is fenced, and does not if it is not, whichever way it goes to the device.
///
/// Spec: RMB-09
#[test]
fn a_bind_is_fenced_as_it_was_asked_for() {
    const FENCE: u32 = 1;
    for kind in [WindowType::One, WindowType::Two] {
        for (asked, fence) in [
            (SendFlags::empty(), 0),
            (SendFlags::FENCE, FENCE),
            (SendFlags::SOLICITED, 0),
            (SendFlags::all(), FENCE),
        ] {
            let mut bench = Bench::with(kind);
            let both = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
            // The first one, twice the short way, until another window takes over, with that, and closed.
            for token in 0..300 {
                let length = if token == 299 { 0 } else { 64 };
                bench
                    .bind_for(token, length, both, asked)
                    .expect("the device has room");
                assert_eq!(bench.completed(), [(token, DtoStatus::Success)]);
                let posted = bench.device.take_binds();
                let (&(last, _), before) = posted.split_last().expect("it was posted");
                assert_eq!(last, SIGNALLED | fence, "{kind:?} {asked:?} {token}");
                assert!(
                    before.iter().all(|&(flags, _)| flags == fence),
                    "{posted:?}"
                );
            }
            // Where nothing is open it keeps its place in the order alone, and waits as well.
            bench.posted();
            if kind == WindowType::Two {
                bench.bind_for(300, 0, both, asked).expect("room");
                let (_, posted) = bench.device.take_requests();
                assert_eq!(posted[0].flags, SIGNALLED | fence);
            }
        }
    }
}

/// A window opens for what was asked for: local privileges open nothing, and no remote one brings another.
///
/// Spec: RMB-03, RMB-04, RMB-24
#[test]
fn a_window_opens_for_the_rights_asked_for() {
    const OPENS: [(MemoryPrivileges, u32); 2] = [
        (MemoryPrivileges::REMOTE_WRITE, 1 << 1),
        (MemoryPrivileges::REMOTE_READ, 1 << 2),
    ];
    for kind in [WindowType::One, WindowType::Two] {
        let mut bench = Bench::with(kind);
        let all = (0..64).map(MemoryPrivileges::from_bits_retain);
        let all = all.filter(|privileges| MemoryPrivileges::ALL.contains(*privileges));
        // Often enough for a window to be renewed on the way.
        for (token, privileges) in (0..).zip(all.cycle().take(300)) {
            let has = |&(privilege, _): &(MemoryPrivileges, u32)| privileges.contains(privilege);
            let expected: u32 = OPENS
                .iter()
                .filter(|one| has(one))
                .map(|(_, flag)| flag)
                .sum();
            bench
                .bind_for(token, 64, privileges, SendFlags::empty())
                .expect("the device has room");
            assert_eq!(bench.completed(), [(token, DtoStatus::Success)]);
            let posted = bench.device.take_binds();
            let &(_, rights) = posted.last().expect("it was posted");
            assert_eq!(rights, expected, "{kind:?} {privileges:?}");
        }
    }
}

/// A bind of no bytes closes; where nothing is open it still takes its place in the order.
///
/// Spec: RMB-11, RMB-18
#[test]
fn a_bind_of_no_bytes_closes() {
    let mut bench = Bench::new();
    bench.bound(1, 0);
    assert_eq!(bench.posted(), [(WRITE, true, 0)]);
    let key = bench.bound(2, 64);
    bench.posted();
    bench.bound(3, 0);
    assert_eq!(bench.posted(), [(CLOSE, true, key)]);
    assert!(!bench.device.opens(key));
    bench.bound(4, 0);
    assert_eq!(bench.posted(), [(WRITE, true, 0)]);
    let again = bench.bound(5, 64);
    assert_eq!(bench.posted(), [(OPEN, true, again)]);
    assert!(bench.device.opens(again) && again != key);
}

/// A bind that fails late says so once and breaks the queue pair, whichever half of it fails; what is posted behind it is
/// flushed.
///
/// Spec: RMB-22, DTO-12
#[test]
fn a_bind_that_fails_late_says_so() {
    for half in 0..2 {
        let mut bench = Bench::new();
        let old = bench.bound(1, 64);
        bench.device.work(Some(half));
        let new = bench.bind(2, 32).expect("taken");
        bench.bind(3, 0).expect("taken");
        let told = bench.completed();
        assert_eq!(told[0], (2, DtoStatus::RmrOperationFailed), "{half}");
        // The core takes what comes twice for none of its own.
        let mut rest: Vec<_> = told[1..].to_vec();
        rest.retain(|&(token, _)| token != 2);
        assert_eq!(rest, [(3, DtoStatus::Flushed)]);
        assert!(!bench.device.opens(new));
        assert_eq!(bench.device.opens(old), half == 0);
    }
}

/// A device that takes the close and refuses the rest has closed the window: the next bind does not close it again.
///
/// Spec: GEN-06, RMB-22
#[test]
fn a_bind_that_is_refused_half_way_leaves_the_window_closed() {
    for taken in 0..2 {
        let mut bench = Bench::new();
        let old = bench.bound(1, 64);
        bench.posted();
        bench.device.refuse_after(taken);
        assert_eq!(bench.bind(2, 32), Err(Rejected));
        bench.device.refuse_nothing();
        assert_eq!(bench.device.opens(old), taken == 0);
        bench.posted();
        let new = bench.bound(3, 16);
        let mut expected = vec![(CLOSE, false, old), (OPEN, true, new)];
        expected.drain(..taken);
        assert_eq!(bench.posted(), expected);
        assert!(bench.device.opens(new));
    }
}

/// A window that is given back closes; so does the one of a region that goes with it open.
///
/// Spec: RMF-01, RMF-02, LMF-02
#[test]
fn what_is_open_ends_with_window_and_region() {
    let mut bench = Bench::new();
    let key = bench.bound(1, 64);
    bench.objects.remove_window(bench.window.0);
    assert!(!bench.device.opens(key));
    assert_eq!(bench.device.windows(), 0);
    assert_eq!(bench.bind(2, 64), Err(Rejected));

    let mut bench = Bench::new();
    let key = bench.bound(1, 64);
    assert!(bench.objects.deregister(bench.region.object));
    assert!(!bench.device.opens(key));
    assert_eq!(bench.device.windows(), 1);
    assert!(!bench.objects.deregister(bench.region.object));
    // The window goes on with another region.
    assert_eq!(bench.bind(2, 64), Err(Rejected));
    bench.region = bench.another_region();
    bench.posted();
    let next = bench.bind(3, 64).expect("taken");
    assert!(bench.device.opens(next) || next == key);
}

/// A window that is unbound is closed, also where the last bind was refused and its region has gone since.
///
/// Spec: RMB-11, RMB-22, LMF-02
#[test]
fn an_unbind_closes_whatever_became_of_the_last_bind() {
    for refused in 0..3 {
        let mut bench = Bench::with(WindowType::One);
        let open = bench.region;
        let key = bench.bound(1, 64);
        assert!(bench.device.opens(key));
        bench.device.refuse_after(0);
        for _ in 0..refused {
            bench.region = bench.another_region();
            assert_eq!(bench.bind(2, 64), Err(Rejected));
            assert!(bench.objects.deregister(bench.region.object));
        }
        bench.device.refuse_nothing();
        assert!(bench.device.opens(key));
        bench.bound(3, 0);
        assert!(!bench.device.opens(key), "{refused}");
        assert!(bench.objects.deregister(open.object));
        assert_eq!(bench.device.windows(), 1);
        bench.region = bench.another_region();
        let next = bench.bound(4, 64);
        assert!(bench.device.opens(next));
    }
}

/// A window serves the queue pair that it was bound on, and another one once that is gone.
///
/// Spec: RMB-03
#[test]
fn a_window_serves_one_queue_pair() {
    let mut bench = Bench::new();
    let key = bench.bound(1, 64);
    let mut other = queue(&bench.device, &bench.objects, 18);
    core::mem::swap(&mut bench.queue, &mut other);
    assert_eq!(bench.bind(2, 64), Err(Rejected));
    assert!(bench.device.opens(key));
    bench.objects.forget_queue_pair(17);
    assert!(!bench.device.opens(key));
    let next = bench.bound(3, 64);
    assert!(bench.device.opens(next));
    bench.objects.forget_queue_pair(17);
    assert!(bench.device.opens(next), "it is bound on another by now");
}

/// A window that is bound to one region again is not looked up, with another key each time; for another region it is,
/// and for another queue pair.
///
/// Spec: RMB-01, RMB-10, RMB-21
#[test]
fn a_window_is_bound_again_without_a_look_at_the_tables() {
    for kind in [WindowType::One, WindowType::Two] {
        let mut bench = Bench::with(kind);
        let (first, second) = (bench.region, bench.another_region());
        let mut open = None;
        let steps = [first, first, first, second, second, first, first];
        let mut last = None;
        for (token, region) in steps.into_iter().enumerate() {
            let request = BindRequest {
                token: token as u64,
                window: bench.window,
                region,
                address: 0x1000,
                length: 64,
                privileges: MemoryPrivileges::REMOTE_READ,
                flags: SendFlags::empty(),
            };
            let key = match bench.queue.bind_again(&request) {
                Some(bound) => {
                    assert_eq!(last, Some(region));
                    bound.expect("taken")
                }
                None => {
                    assert_ne!(last, Some(region));
                    bench.queue.bind(&request).expect("taken")
                }
            };
            last = Some(region);
            assert_eq!(bench.completed(), [(token as u64, DtoStatus::Success)]);
            assert!(bench.device.opens(key));
            let before = open.replace(key);
            assert!(before.is_none_or(|before| before != key && !bench.device.opens(before)));
            // A key of another window, no bytes, or one who holds the place: not this way.
            let other = BindRequest {
                window: WindowKey(bench.window.0 + (1 << 16)),
                ..request
            };
            assert_eq!(bench.queue.bind_again(&other), None);
            assert_eq!(bench.queue.bind(&other), Err(Rejected));
            let none = BindRequest {
                length: 0,
                ..request
            };
            assert_eq!(bench.queue.bind_again(&none), None);
            let place = bench.objects.places()[0].clone();
            let held = place.lock();
            assert_eq!(bench.queue.bind_again(&request), None);
            drop(held);
        }
        // The regions go, wherever they are kept.
        assert!(bench.objects.deregister(second.object));
        assert!(bench.objects.deregister(first.object));
        assert_eq!(bench.bind(9, 64), Err(Rejected));
        assert_eq!(bench.device.windows(), 1);
    }
}

/// A place is given to another window once its window is gone, under another key.
///
/// Spec: RMF-01
#[test]
fn the_key_of_a_window_dies_with_it() {
    let mut bench = Bench::new();
    let old = bench.window;
    bench.bound(1, 64);
    bench.objects.remove_window(old.0);
    bench.objects.remove_window(old.0);
    let window =
        BoundWindow::new(bench.device.domain(), WindowType::Two).expect("it makes windows");
    bench.window = WindowKey(bench.objects.insert_window(window).expect("room"));
    assert_ne!(bench.window, old);
    bench.bound(2, 64);
    let new = bench.window;
    bench.window = old;
    assert_eq!(bench.bind(3, 64), Err(Rejected));
    bench.objects.remove_window(old.0);
    bench.window = new;
    bench.bound(4, 64);
}
