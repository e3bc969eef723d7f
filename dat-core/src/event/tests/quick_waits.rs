//! Waits for one event on the fast path, with the event ready at the device.

use core::task::Poll;
use std::vec::Vec;

use super::connected::*;
use super::drain;
use crate::adapter::EVENTS_PER_CALL;
use crate::attributes::EpAttributes;
use crate::backend::ControlEvent;
use crate::error::ErrorKind;
use crate::event::{Event, Waited};
use crate::flags::{CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges};
use crate::id::{EpId, Handle};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::testing::fixture::Bench;
use crate::testing::{ScriptedWait, TestStorage, WakeCount};
use crate::time::Instant;

/// Devices without `peek`, and with it.
const WAYS: [bool; 2] = [false, true];

fn bench(storage: &mut TestStorage, peeks: bool) -> Bench<'_> {
    let bench = Bench::new(storage);
    bench.device.set_peeks(peeks);
    bench
}

/// Connects an endpoint and completes `count` of its sends.
fn with_successes(bench: &Bench<'_>, count: u64) -> EpId {
    let ep = bench.connected();
    for cookie in 1..=count {
        bench.send(ep, cookie);
    }
    let pair = bench.pair(ep);
    for _ in 0..count {
        succeed(&bench.device, pair);
    }
    ep
}

fn cookie(waited: Option<Waited>) -> Option<(u64, u32)> {
    waited.map(|waited| (tag(waited.event), waited.more))
}

/// Spec: EVW-01, EVW-05
#[test]
fn wait_now_takes_a_completion_of_the_device() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let (ia, evd) = (&bench.ia, bench.data);
        assert_eq!(ia.evd_wait_now(evd, 1), None);
        with_successes(&bench, 2);
        if peeks {
            assert_eq!(cookie(ia.evd_wait_now(evd, 1)), Some((1, 0)));
            assert_eq!(cookie(ia.evd_wait_now(evd, 1)), Some((2, 0)));
            with_successes(&bench, 2);
        }
        // It did not begin a wait: others may begin.
        let (_, waker) = WakeCount::new();
        for cookie in [1, 2] {
            let mut wait = ia.evd_wait(evd, 1).unwrap();
            let (first, more) = ready(wait.poll(&waker));
            assert_eq!(first, cookie);
            assert!(more == 0 || more == 2 - cookie as u32, "{more}");
            // The wait has ended and takes nothing more.
            let again = with_successes(&bench, 1);
            assert!(matches!(wait.poll(&waker), Poll::Ready(Err(_))));
            ia.ep_free(again).unwrap();
        }
        assert_eq!(ia.evd_wait_now(evd, 1), None);
        assert!(ia.evd_dequeue(evd).is_err());
    }
}

/// Both dequeues take events in order, and then report an empty queue.
///
/// Spec: EVG-01, EVG-03
#[test]
fn dequeues_take_what_the_device_has_however_it_tells() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let (ia, evd) = (&bench.ia, bench.data);
        for _ in 0..2 {
            let ep = with_successes(&bench, 3);
            for cookie in [7, 8] {
                bench.receive(ep, cookie);
                bench
                    .device
                    .complete_receive(bench.pair(ep), DtoStatus::Success, 0, false);
            }
            let dequeue = || ia.evd_dequeue(evd);
            let taken: Vec<u64> = core::iter::from_fn(|| dequeue().ok()).map(tag).collect();
            assert_eq!(taken, [1, 2, 3, 7, 8], "{peeks}");
            assert_eq!(dequeue().unwrap_err().kind(), ErrorKind::QueueEmpty);
            ia.ep_free(ep).unwrap();
        }
    }
}

/// `evd_wait_now` takes nothing if only a wait can return the result.
///
/// Such cases are a stale handle, a threshold other than 1, a notification object and a waiter.
///
/// Spec: EVW-01, EVW-02, EVW-04, CNW-01
#[test]
fn nothing_is_taken_at_once_where_it_takes_a_wait_to_tell() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let ia = &bench.ia;
        let flags = EvdFlags::DTO;
        let earlier = ia.evd_create(8, None, flags).unwrap();
        ia.evd_free(earlier).unwrap();
        let evd = ia.evd_create(8, None, flags).unwrap();
        assert_eq!(earlier.index(), evd.index());
        let peer = connected(ia, &bench.device, None, Some(evd), &EpAttributes::DEFAULT);
        send(ia, peer.ep, 1);
        succeed(&bench.device, peer.key);
        for number in [i32::MIN, -1, 0, 2, i32::MAX] {
            assert_eq!(ia.evd_wait_now(evd, number), None);
        }
        let nowhere = crate::id::EvdId::from_handle(Handle::from_raw(u64::MAX));
        assert_eq!(ia.evd_wait_now(earlier, 1), None);
        assert_eq!(ia.evd_wait_now(nowhere, 1), None);
        let wait = ia.evd_wait(evd, 1).unwrap();
        assert_eq!(ia.evd_wait_now(evd, 1), None);
        drop(wait);
        let cno = ia.cno_create(None).unwrap();
        ia.evd_modify_cno(evd, Some(cno)).unwrap();
        assert_eq!(ia.evd_wait_now(evd, 1), None);
        assert_eq!(tags(ia, evd), [1]);
        send(ia, peer.ep, 2);
        succeed(&bench.device, peer.key);
        assert_eq!(ia.evd_wait_now(evd, 1), None);
        progress(ia);
        assert!(cno_fired(ia, cno));
        assert_eq!(tags(ia, evd), [2]);
    }
}

/// Spec: EVW-01, EVW-05, RMB-30
#[test]
fn bind_completions_go_through_the_queue() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let ia = &bench.ia;
        let ep = bench.connected();
        let region = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
                pz: bench.pz,
                privileges: MemoryPrivileges::ALL,
            })
            .unwrap();
        let segment = LmrTriplet {
            context: region.lmr_context,
            address: 0x1000,
            length: 8,
        };
        let rmr = ia.rmr_create(bench.pz).unwrap();
        let bind = || {
            let rights = MemoryPrivileges::REMOTE_READ;
            ia.rmr_bind(rmr, &segment, rights, ep, 5, CompletionFlags::empty())
                .unwrap();
            assert!(
                bench
                    .device
                    .complete_request(bench.pair(ep), DtoStatus::Success)
            );
        };
        bind();
        assert_eq!(ia.evd_wait_now(bench.data, 1), None);
        let told = ia.evd_dequeue(bench.data);
        assert!(
            matches!(told, Ok(Event::RmrBind(bound)) if bound.cookie == 5),
            "{told:?}"
        );
        let (_, waker) = WakeCount::new();
        let mut wait = ia.evd_wait(bench.data, 1).unwrap();
        bind();
        let Poll::Ready(Ok(waited)) = wait.poll(&waker) else {
            panic!("the bind is done");
        };
        assert!(matches!(waited.event, Event::RmrBind(bound) if bound.cookie == 5));
    }
}

/// One event does not end a wait for two, even at its first poll.
///
/// Spec: EVW-01
#[test]
fn one_event_ends_no_wait_for_two() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let (_, waker) = WakeCount::new();
        let mut wait = bench.ia.evd_wait(bench.data, 2).unwrap();
        let ep = with_successes(&bench, 1);
        assert!(wait.poll(&waker).is_pending());
        bench.send(ep, 2);
        succeed(&bench.device, bench.pair(ep));
        assert_eq!(ready(wait.poll(&waker)), (1, 1));
    }
}

/// A stale wait takes no completion of the next dispatcher in its slot.
///
/// Each is the first wait on its dispatcher.
///
/// Spec: EVW-10, EVF-01, GEN-03
#[test]
fn a_wait_takes_nothing_of_the_next_life() {
    for peeks in WAYS {
        let mut storage = TestStorage::new();
        let bench = bench(&mut storage, peeks);
        let ia = &bench.ia;
        let (_, waker) = WakeCount::new();
        let life = || ia.evd_create(8, None, EvdFlags::DTO).unwrap();
        let earlier = life();
        let mut stale = ia.evd_wait(earlier, 1).unwrap();
        ia.evd_set_unwaitable(earlier).unwrap();
        ia.evd_free(earlier).unwrap();
        let evd = life();
        assert_eq!(earlier.index(), evd.index());
        let peer = connected(ia, &bench.device, None, Some(evd), &EpAttributes::DEFAULT);
        let mut wait = ia.evd_wait(evd, 1).unwrap();
        send(ia, peer.ep, 1);
        succeed(&bench.device, peer.key);
        assert!(matches!(stale.poll(&waker), Poll::Ready(Err(_))));
        assert_eq!(ready(wait.poll(&waker)), (1, 0));
    }
}

/// A wait that leaves after a full `progress` call wakes others.
///
/// They handle the remaining events.
///
/// Spec: EVW-01, EVW-06
#[test]
fn a_long_look_is_gone_on_with_by_others() {
    for (arrived, told) in [(0, 0), (1, 0), (EVENTS_PER_CALL, 1)] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let evd = bench.ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
        bench.ia.progress(Instant::ZERO);
        let (wakes, waker) = WakeCount::new();
        bench.ia.register_progress_waker(&waker);
        for _ in 0..arrived {
            bench.device.push_control(ControlEvent::Established {
                queue_pair: 0,
                private_data: crate::backend::PrivateData::new(),
            });
        }
        let mut wait = ScriptedWait::at(1);
        let past = Some(Instant::ZERO);
        assert!(bench.ia.evd_wait_until(evd, 1, past, &mut wait).is_err());
        assert_eq!(wakes.take(), told, "{arrived}");
        assert!(drain(&bench.ia, evd).is_empty());
    }
}
