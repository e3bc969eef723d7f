//! Posts whose memory the device reads, while other threads create and free regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::threads::connected;
use super::*;
use crate::sync::HostLock;
use crate::testing::Slots;

type Threaded<'s> = Ia<'s, TestBackend, HostLock>;

fn make(ia: &Threaded<'_>, pz: PzId) -> LmrCreated {
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(BASE, LENGTH)),
        pz,
        privileges: MemoryPrivileges::ALL,
    })
    .unwrap()
}

/// Longest time that another thread may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a call that must not overtake a post. A slower call passes unnoticed.
const CHANCE: Duration = Duration::from_millis(200);

/// Runs `call` on another thread during a post; returns true if it overtook the post.
///
/// The post gives the call the time `longest` to finish.
fn overtakes(longest: Duration, call: impl Fn(&Threaded<'_>, PzId, &LmrCreated) + Sync) -> bool {
    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = Ia::open(device.clone(), storage.lend(), 4).unwrap();
    let (pz, ep) = connected(&ia, &device);
    let made = make(&ia, pz);
    let segment = LmrTriplet {
        context: made.lmr_context,
        address: BASE as u64,
        length: 8,
    };
    let [begun, done, overtaken] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    device.during_post({
        let (begun, done, overtaken) = (begun.clone(), done.clone(), overtaken.clone());
        move || {
            begun.store(true, Ordering::SeqCst);
            let begin = Instant::now();
            while begin.elapsed() < longest && !overtaken.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
                overtaken.store(done.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            while !begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            call(&ia, pz, &made);
            done.store(true, Ordering::SeqCst);
        });
        ia.post_send(ep, &[segment], 1, CompletionFlags::empty())
            .unwrap();
    });
    assert!(done.load(Ordering::SeqCst));
    overtaken.load(Ordering::SeqCst)
}

/// A region is freed only after the posts that may read its memory.
///
/// Spec: LMF-02, EPS-03
#[test]
fn a_region_outlives_the_posts_that_saw_it() {
    assert!(!overtakes(CHANCE, |ia, _, made| {
        ia.lmr_free(made.lmr).unwrap();
    }));
}

/// A context becomes valid only after posts that may have read the slot's former fields.
///
/// Spec: DTO-06
#[test]
fn a_region_is_made_after_the_posts_that_may_have_guessed_it() {
    assert!(!overtakes(CHANCE, |ia, pz, _| {
        make(ia, pz);
    }));
}

/// Calls that do not concern memory do not wait for posts.
///
/// Spec: LMQ-01
#[test]
fn other_calls_wait_for_no_post() {
    assert!(overtakes(PATIENCE, |ia, _, made| {
        ia.lmr_query(made.lmr, crate::flags::LmrFields::all())
            .unwrap();
    }));
}

/// While regions are created and freed, a post of another thread reads live memory only.
///
/// On a busy machine, the other thread may start late, so the rounds continue until it has posted.
///
/// Spec: LMF-02, EPS-03
#[test]
fn no_post_reads_a_region_that_was_given_back() {
    const ROUNDS: u32 = 3_000;
    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = Ia::open(device.clone(), storage.lend(), 4).unwrap();
    let (pz, ep) = connected(&ia, &device);
    let key = device.pair(ep.handle().to_raw()).unwrap();
    let context = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    let posted = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let segment = LmrTriplet {
                    context: context.load(Ordering::Relaxed),
                    address: BASE as u64,
                    length: 8,
                };
                if ia
                    .post_send(ep, &[segment], 1, CompletionFlags::SUPPRESS)
                    .is_ok()
                {
                    posted.fetch_add(1, Ordering::Relaxed);
                    device.complete_request(key, DtoStatus::Success);
                }
            }
        });
        let end = Instant::now() + PATIENCE;
        let is_idle = || posted.load(Ordering::Relaxed) == 0 && Instant::now() < end;
        let mut rounds = 0;
        while rounds < ROUNDS || is_idle() {
            rounds += 1;
            let made = make(&ia, pz);
            context.store(made.lmr_context, Ordering::Relaxed);
            thread::yield_now();
            ia.lmr_free(made.lmr).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    // The test device checks that the memory it reads is registered.
    assert!(posted.into_inner() != 0);
}

/// Callers of a backend outside the core cannot permit reads at post.
///
/// They could name any address.
#[test]
fn only_the_core_vouches_for_segments() {
    let asked = QueuePairRequest::new(1, crate::backend::DomainKey(1), EpAttributes::DEFAULT);
    assert!(!asked.may_read_at_post());
}
