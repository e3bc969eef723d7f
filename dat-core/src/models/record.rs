//! In-flight records between posting threads, polling threads and a device with arbitrary
//! completions.

use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

use super::prove;
use crate::event::DtoOperation;
use crate::flags::DtoStatus;
use crate::id::EpId;
use crate::record::{
    NO_RECORD, Owner, Posting, RecordKind, RecordSlot, Records, Report, allocate, list,
};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::loom_sync::set_under_way;
use crate::sync::{HostLock, Mutex, Word64};

const COOKIES: [u64; 2] = [0x1111, 0x2222];

struct Bench {
    records: Records<'static>,
    /// Token of the last post, as the device sees it; orders no other access.
    doorbell: Word64,
    returned: AtomicU32,
}

impl Bench {
    fn new() -> Arc<Self> {
        let bench = Self {
            records: Vec::leak(Vec::from([RecordSlot::EMPTY; 2])).into(),
            doorbell: Word64::new(0),
            returned: AtomicU32::new(NO_RECORD),
        };
        let owner = Owner::Requests(EpId::new(1, 1, 0.into()));
        allocate(&bench.records, owner, 2).unwrap();
        for record in bench.records.made() {
            record.make_ready(DtoStatus::Success, 0, 0);
            record.release();
            assert_eq!(record.cookie(), 0);
        }
        bench.doorbell.store(0);
        bench.returned.store(NO_RECORD, Ordering::Relaxed);
        set_under_way(true);
        Arc::new(bench)
    }

    fn post(&self, turn: usize) -> Option<u64> {
        let free = self.records.made()[0].free(0)?;
        let kind = RecordKind::Dto(DtoOperation::Send);
        let length = turn as u32 + 1;
        Some(free.post(Posting::new(kind, Report::NOTIFY), COOKIES[turn], length))
    }
}

/// A completion has the cookie and length of the request that its token names.
///
/// It does so whenever it is polled, and a record that was given back can be posted again at once.
#[test]
fn a_completion_tells_of_its_own_post() {
    prove(None, || {
        let bench = Bench::new();
        let poster = bench.clone();
        let first = bench.post(0).unwrap();
        bench.doorbell.store(first);
        let thread = thread::spawn(move || {
            if let Some(second) = poster.post(1) {
                assert_ne!(second, first);
                poster.doorbell.store(second);
            }
        });
        for _ in 0..2 {
            let token = bench.doorbell.load();
            let record = &bench.records.made()[0];
            if let Some(plain) = record.plain(token) {
                let turn = usize::from(token != first);
                assert_eq!(record.cookie(), COOKIES[turn]);
                assert_eq!(record.length(), turn as u32 + 1);
                record.release_plain(plain);
            }
        }
        thread.join().unwrap();
        let record = &bench.records.made()[0];
        if let Some(plain) = record.plain(bench.doorbell.load()) {
            record.release_plain(plain);
        }
        assert!(record.is_free());
    });
}

/// The same for a completion that is kept as an event and dequeued later.
#[test]
fn an_event_tells_of_its_own_post() {
    prove(None, || {
        let bench = Bench::new();
        let poster = bench.clone();
        let first = bench.post(0).unwrap();
        bench.doorbell.store(first);
        let thread = thread::spawn(move || {
            if let Some(second) = poster.post(1) {
                poster.doorbell.store(second);
            }
        });
        for _ in 0..2 {
            let token = bench.doorbell.load();
            let record = &bench.records.made()[0];
            if record.claim(token) {
                let turn = usize::from(token != first);
                record.make_ready(DtoStatus::Flushed, 7, 9);
                let finished = record.finished();
                assert_eq!(finished.status, DtoStatus::Flushed);
                assert_eq!(finished.cookie, COOKIES[turn]);
                assert_eq!((finished.length, finished.extra), (7, 9));
                assert_eq!(finished.kind, RecordKind::Dto(DtoOperation::Send));
                record.release();
                assert!(record.is_free() || record.is_posted());
            }
        }
        thread.join().unwrap();
    });
}

/// Of two threads that poll one completion, one claims it and sees the whole post.
#[test]
fn a_completion_has_one_taker() {
    prove(None, || {
        let bench = Bench::new();
        let other = bench.clone();
        let third = bench.clone();
        let taken = |bench: &Bench| {
            let token = bench.doorbell.load();
            let record = &bench.records.made()[0];
            let taken = record.claim(token);
            if taken {
                assert_eq!(record.cookie(), COOKIES[0]);
                record.make_ready(DtoStatus::Success, 1, 0);
                assert!(!record.claim(token));
            }
            taken
        };
        let poster = thread::spawn(move || {
            let token = third.post(0).unwrap();
            third.doorbell.store(token);
        });
        let thread = thread::spawn(move || taken(&other));
        let own = taken(&bench);
        let others = thread.join().unwrap();
        poster.join().unwrap();
        assert!(!(own && others));
    });
}

/// Buffers that two threads return to a shared queue arrive there once, with their data.
#[test]
fn nothing_handed_back_is_lost() {
    prove(None, || {
        let bench = Bench::new();
        let hand_back = |bench: &Bench, index: u32| {
            let record = &bench.records.made()[index as usize];
            record.set_extra(index + 7);
            record.push_returned(index, &bench.returned);
        };
        let others = [0, 1].map(|index| {
            let bench = bench.clone();
            thread::spawn(move || hand_back(&bench, index))
        });
        let mut found = std::vec::Vec::new();
        let mut take = || {
            let first = bench.returned.swap(NO_RECORD, Ordering::Acquire);
            found.extend(list(&bench.records, first).map(RecordSlot::extra));
        };
        take();
        for other in others {
            other.join().unwrap();
        }
        take();
        found.sort_unstable();
        assert_eq!(found, [7, 8]);
    });
}

/// A completion that was polled before its queue was freed frees no record of the next owner.
///
/// Its record is claimed and returned under the dispatcher's lock, which the poll has released.
#[test]
fn a_polled_completion_is_stale_after_the_free() {
    prove(None, || {
        let dispatcher = Arc::new(Mutex::<HostLock, _>::new(()));
        dispatcher.with(|()| ());
        let bench = Bench::new();
        let token = bench.post(0).unwrap();
        let poller = {
            let (bench, dispatcher) = (bench.clone(), dispatcher.clone());
            thread::spawn(move || {
                dispatcher.while_locked(|| {
                    let record = &bench.records.made()[0];
                    if record.claim(token) {
                        assert_eq!(record.cookie(), COOKIES[0]);
                        record.release();
                        record.push_returned(0, &bench.returned);
                    }
                });
            })
        };
        // As `destroy_srq_at`: what is neither posted nor on the list is with a dispatcher.
        let record = &bench.records.made()[0];
        if !record.rollback() && bench.returned.swap(NO_RECORD, Ordering::Acquire) == NO_RECORD {
            dispatcher.with(|()| ());
        }
        record.clear_owner();
        bench.returned.store(NO_RECORD, Ordering::Relaxed);
        // The next queue posts it.
        let next = bench.post(1).unwrap();
        poller.join().unwrap();
        assert!(record.is_posted() && record.claim(next));
        assert_eq!(record.cookie(), COOKIES[1]);
        assert_eq!(bench.returned.load(Ordering::Relaxed), NO_RECORD);
    });
}

/// A claimed record that its queue takes back meanwhile is not freed again, when it is posted anew.
///
/// As a dequeue of a bind and `free_polled`.
#[test]
fn a_claimed_record_is_freed_once() {
    prove(None, || {
        let dispatcher = Arc::new(Mutex::<HostLock, _>::new(()));
        dispatcher.with(|()| ());
        let bench = Bench::new();
        let token = bench.post(0).unwrap();
        let record = &bench.records.made()[0];
        assert!(record.claim(token));
        let taker = {
            let (bench, dispatcher) = (bench.clone(), dispatcher.clone());
            thread::spawn(move || {
                dispatcher.while_locked(|| {
                    let record = &bench.records.made()[0];
                    let cookie = record.cookie();
                    if record.release_claimed(token) {
                        assert_eq!(cookie, COOKIES[0]);
                    }
                });
            })
        };
        record.release();
        dispatcher.with(|()| ());
        let next = bench.post(1).unwrap();
        taker.join().unwrap();
        assert!(record.claim(next));
        assert_eq!(record.cookie(), COOKIES[1]);
        assert!(record.release_claimed(next) && record.is_free());
    });
}
