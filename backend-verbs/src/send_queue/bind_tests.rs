//! Windows on a fake device: the requests of their binds, and the keys that are open afterwards.

use std::collections::HashSet;

use dat_core::backend::{Completion, CompletionQueue as _, RegionKeys, SendFlags, WindowKey};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use verbs_model::Posted;

use super::*;
use crate::completion_queue::{QueueMarks, VerbsCompletionQueue};
use crate::directory::{Directory, Leaves};
use crate::hal::Batch;
use crate::hal::bed_tests::BedDevice;
use crate::signal::Signal;
use crate::supply::AHEAD;

const CLOSE: u32 = 7;
const OPEN: u32 = 8;
const SIGNALLED: u32 = 2;

/// A device, a queue pair on it, a region and a window. The device is dropped last.
struct Bench {
    queue: VerbsSendQueue,
    completions: VerbsCompletionQueue,
    objects: Arc<Objects>,
    region: RegionKeys,
    window: WindowKey,
    /// Binds whose completions were not taken.
    under_way: usize,
    device: BedDevice,
}

impl Bench {
    fn new() -> Self {
        Self::with(WindowType::Two)
    }

    fn with(kind: WindowType) -> Self {
        let device = BedDevice::new();
        device.work(None);
        let objects = Arc::<Objects>::default();
        let window = window_of(&objects, &device, kind);
        let mut bench = Self {
            queue: queue(&device, &objects, 17),
            completions: VerbsCompletionQueue {
                device: device.completion_queue(),
                turn: None,
                batch: Batch::new(),
                marks: Arc::new(QueueMarks::default()),
                directory: Arc::new(Directory::new(Leaves::default())),
                signal: Arc::new(Signal::new()),
            },
            objects,
            region: RegionKeys::default(),
            window,
            under_way: 0,
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

    /// Binds the window to `length` bytes for reading; 0 unbinds it.
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
            is_only: self.under_way == 0,
        };
        let bound = self.queue.bind(&request);
        self.under_way += usize::from(bound.is_ok());
        bound
    }

    /// Binds another window in the place of one that needs renewal, as the core does.
    ///
    /// Then removes the old one.
    fn bind_renewed(
        &mut self,
        token: u64,
        length: u64,
        privileges: MemoryPrivileges,
        flags: SendFlags,
    ) -> Result<u32, Rejected> {
        let tables = self.objects.tables.lock();
        let kind = tables
            .windows
            .get(self.window.0)
            .map(|window| window.window.kind());
        drop(tables);
        let kind = kind.expect("a window");
        let fresh = window_of(&self.objects, &self.device, kind);
        let old = core::mem::replace(&mut self.window, fresh);
        let bound = self.bind_for(token, length, privileges, flags);
        let surplus = if bound.is_ok() {
            old
        } else {
            core::mem::replace(&mut self.window, old)
        };
        self.objects.remove_window(surplus.0);
        bound
    }

    /// Binds, by another window if the old one needs renewal.
    fn bind_on(&mut self, token: u64, length: u64) -> u32 {
        let (read, none) = (MemoryPrivileges::REMOTE_READ, SendFlags::empty());
        self.bind_on_for(token, length, read, none)
    }

    fn bind_on_for(
        &mut self,
        token: u64,
        length: u64,
        privileges: MemoryPrivileges,
        flags: SendFlags,
    ) -> u32 {
        self.bind_for(token, length, privileges, flags)
            .or_else(|Rejected| {
                assert!(self.under_way == 0 && self.needs_renewal(false));
                self.bind_renewed(token, length, privileges, flags)
            })
            .expect("taken")
    }

    fn needs_renewal(&self, missed: bool) -> bool {
        self.objects.needs_renewal(self.window.0, missed)
    }

    /// Binds, and takes the completion, which is a success.
    #[track_caller]
    fn bound(&mut self, token: u64, length: u64) -> u32 {
        let key = self.bind(token, length).expect("taken");
        assert_eq!(self.completed(), [(token, DtoStatus::Success)]);
        key
    }

    fn completed(&mut self) -> Vec<(u64, DtoStatus)> {
        self.under_way = 0;
        let poll = || self.completions.poll().expect("sound");
        core::iter::from_fn(poll)
            .map(|Completion { token, status, .. }| (token, status))
            .collect()
    }

    /// Returns operation code, signalling and key of each posted request.
    fn posted(&self) -> Vec<(u32, bool, u32)> {
        let (_, posted) = self.device.take_requests();
        let brief = |one: &Posted| (one.opcode, one.flags & SIGNALLED != 0, one.remote.1);
        posted.iter().map(brief).collect()
    }
}

fn window_of(objects: &Objects, device: &BedDevice, kind: WindowType) -> WindowKey {
    let window = objects.make_window(device.domain(), kind);
    let window = window.expect("it makes windows");
    WindowKey(objects.insert_window(window).expect("room"))
}

fn queue(device: &BedDevice, objects: &Arc<Objects>, number: u32) -> VerbsSendQueue {
    VerbsSendQueue {
        list: device.send_list(8, 1),
        number,
        objects: Arc::clone(objects),
    }
}

/// No key that was open once opens a window again, with up to four binds of two windows under way.
///
/// Only eight bits of a key are counted, and the device reuses an index as soon as it is free.
///
/// Spec: RMB-10, RMB-21
#[test]
fn no_context_opens_a_window_again() {
    for (kind, under_way) in [WindowType::One, WindowType::Two]
        .into_iter()
        .flat_map(|kind| (1..=4).map(move |under_way| (kind, under_way)))
    {
        let mut bench = Bench::with(kind);
        let mut other = window_of(&bench.objects, &bench.device, kind);
        let mut had = HashSet::new();
        let mut last = [None; 2];
        let mut token = 0;
        while token < 4000 {
            let first = token;
            for _ in 0..under_way {
                // One bind in eleven closes. It needs no key, so if it came first of several, the
                // keys might not suffice for the others.
                let closes = token % 11 == 0 && (token != first || under_way == 1);
                let length = if closes { 0 } else { 1 + token % 11 };
                let key = bench.bind_on(token, length);
                last[0] = (length != 0).then_some(key);
                assert!(length == 0 || had.insert(key), "{key:#x} at {token}");
                token += 1;
            }
            let expected: Vec<_> = (first..token).map(|at| (at, DtoStatus::Success)).collect();
            assert_eq!(bench.completed(), expected, "{kind:?}");
            if token % 101 < under_way {
                for key in &had {
                    assert_eq!(
                        bench.device.opens(*key),
                        last.contains(&Some(*key)),
                        "{key:#x}"
                    );
                }
            }
            core::mem::swap(&mut bench.window, &mut other);
            last.reverse();
        }
        assert_eq!(bench.device.windows(), 2 + AHEAD);
        assert!(bench.objects.deregister(bench.region.object));
        bench.objects.forget_domain(bench.device.domain());
        assert_eq!(bench.device.windows(), 2, "the others were given back");
    }
}

/// A new window has an index that the device did not give out lately.
///
/// Spec: RMB-10, RMF-02
#[test]
fn an_index_is_reused_late() {
    let mut bench = Bench::with(WindowType::One);
    let mut had = HashSet::new();
    for token in 0..AHEAD as u64 {
        assert!(had.insert(bench.bound(token, 64)));
        let next = window_of(&bench.objects, &bench.device, WindowType::One);
        bench.objects.remove_window(bench.window.0);
        bench.window = next;
    }
}

/// Windows made ahead in one domain are given back if another domain needs them.
///
/// Spec: RMC-01
#[test]
fn spare_windows_are_freed_for_another_domain() {
    let bench = Bench::with(WindowType::One);
    bench.objects.remove_window(bench.window.0);
    let window = window_of(&bench.objects, &bench.device, WindowType::One);
    assert_eq!(bench.device.windows(), 1 + AHEAD);
    bench.device.have_windows(1 + AHEAD + 1);
    let domain = bench.device.another_domain();
    for left in (0..AHEAD).rev() {
        let made = bench.objects.make_window(&domain, WindowType::One);
        let made = made.expect("there are windows");
        bench.objects.insert_window(made).expect("room");
        assert!(bench.device.windows() <= 1 + AHEAD + 1, "{left}");
    }
    bench.objects.remove_window(window.0);
}

/// The first key of a type 2 window is random; that of a type 1 window is the device's.
///
/// Spec: RMB-10
#[test]
fn first_keys_are_random() {
    let firsts = |kind| -> HashSet<u32> {
        let first = |_| Bench::with(kind).bound(1, 64) & 0xFF;
        (0..64).map(first).collect()
    };
    // The probability of ten or fewer different values among 64 random bytes is 10^-76.
    assert!(firsts(WindowType::Two).len() > 10);
    assert_eq!(firsts(WindowType::One), HashSet::from([1]));
}

/// A window without enough keys for four binds refuses a first one, and stays open.
///
/// It has 255 keys. An unbind needs none.
///
/// Spec: RMB-10, RMB-21, GEN-06
#[test]
fn a_window_out_of_keys_refuses_binds() {
    for kind in [WindowType::One, WindowType::Two] {
        for burst in [1, 4] {
            let mut bench = Bench::with(kind);
            let (mut had, mut open) = (0, 0);
            while !bench.needs_renewal(false) {
                for _ in 0..burst {
                    open = bench.bind(had, 64).expect("there are keys");
                    had += 1;
                }
                bench.completed();
            }
            assert_eq!(had, 252);
            assert_eq!(bench.bind(300, 64), Err(Rejected));
            // With another bind under way, the last keys can be used.
            bench.under_way = 1;
            for token in 0..3 {
                open = bench.bind(token, 64).expect("there are keys");
            }
            assert_eq!(bench.bind(300, 64), Err(Rejected));
            bench.completed();
            assert_eq!(bench.bind(300, 64), Err(Rejected));
            assert!(bench.device.opens(open) && bench.needs_renewal(false));
            bench.bound(301, 0);
            assert!(!bench.device.opens(open));
        }
    }
}

/// All requests of a fenced bind are fenced, and none of another one.
///
/// Spec: RMB-09
#[test]
fn a_bind_has_the_requested_fence() {
    const FENCE: u32 = 1;
    for kind in [WindowType::One, WindowType::Two] {
        for (flags, fence) in [
            (SendFlags::empty(), 0),
            (SendFlags::FENCE, FENCE),
            (SendFlags::SOLICITED, 0),
            (SendFlags::all(), FENCE),
        ] {
            let mut bench = Bench::with(kind);
            let both = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
            // A first bind, later ones, one after renewal, and an unbind.
            for token in 0..300 {
                let length = if token == 299 { 0 } else { 64 };
                bench.bind_on_for(token, length, both, flags);
                assert_eq!(bench.completed(), [(token, DtoStatus::Success)]);
                let posted = bench.device.take_binds();
                let (&(last, _), before) = posted.split_last().expect("it was posted");
                assert_eq!(last, SIGNALLED | fence, "{kind:?} {flags:?} {token}");
                assert!(
                    before.iter().all(|&(flags, _)| flags == fence),
                    "{posted:?}"
                );
            }
            // The unbind of a closed window is an empty write, fenced as well.
            bench.posted();
            if kind == WindowType::Two {
                bench.bind_for(300, 0, both, flags).expect("room");
                let (_, posted) = bench.device.take_requests();
                assert_eq!(posted[0].flags, SIGNALLED | fence);
            }
        }
    }
}

/// A bind that fails at the device breaks the queue pair, and flushes later requests.
///
/// Either of its two requests may fail.
///
/// Spec: RMB-22, DTO-12
#[test]
fn a_late_bind_failure_is_reported() {
    for half in 0..2 {
        let mut bench = Bench::new();
        let old = bench.bound(1, 64);
        bench.device.work(Some(half));
        let new = bench.bind(2, 32).expect("taken");
        bench.bind(3, 0).expect("taken");
        let completed = bench.completed();
        assert_eq!(completed[0], (2, DtoStatus::RmrOperationFailed), "{half}");
        // The core ignores a second completion with the same token.
        let mut rest: Vec<_> = completed[1..].to_vec();
        rest.retain(|&(token, _)| token != 2);
        assert_eq!(rest, [(3, DtoStatus::Flushed)]);
        assert!(!bench.device.opens(new));
        assert_eq!(bench.device.opens(old), half == 0);
    }
}

/// If the device takes the close and refuses the open, the next bind does not close again.
///
/// Spec: GEN-06, RMB-22
#[test]
fn a_half_refused_bind_leaves_the_window_closed() {
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

/// A window is closed when it is removed, or when its region is deregistered.
///
/// Spec: RMF-01, RMF-02, LMF-02
#[test]
fn access_ends_with_the_window_and_with_the_region() {
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

/// An unbind closes the window, also after a refused bind whose region has gone since.
///
/// Spec: RMB-11, RMB-22, LMF-02
#[test]
fn an_unbind_closes_after_any_outcome_of_the_last_bind() {
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

/// A type 2 window serves the queue pair of its last bind, and another one once that is gone.
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
