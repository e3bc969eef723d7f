//! Completions that a dequeue has polled, and whose event it has not made yet.

use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;

use super::bed::{Bed, CHOSEN, HANDLER, NOTHING, RELEASES};
use crate::error::{Cause, ErrorKind, Result};
use crate::event::Event;
use crate::flags::{DtoStatus, MemoryPrivileges, RmrFields};
use crate::id::EpId;
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::testing::fixture::SMALL;
use crate::time::Instant;

/// Dequeues while `handler` runs at the release `chosen`; returns true if it ran.
fn dequeue(
    bed: &Rc<Bed>,
    chosen: u32,
    handler: impl FnOnce(&Bed) + 'static,
) -> (bool, Result<Event>) {
    let (inner, mut handler) = (bed.clone(), Some(handler));
    HANDLER.set(Some(Box::new(move || {
        handler.take().expect("it runs once")(&inner);
    })));
    RELEASES.set(0);
    CHOSEN.set(chosen);
    let outcome = bed.ia.evd_dequeue(bed.data);
    CHOSEN.set(0);
    (HANDLER.take().is_none(), outcome)
}

/// An endpoint whose records are those of a freed one works: none of them is lost or freed twice.
fn check_records(bed: &Bed) {
    let (data, connections) = (Some(bed.data), Some(bed.connections));
    let ep: EpId = bed
        .ia
        .ep_create(Some(bed.pz), data, data, connections, Some(&SMALL))
        .unwrap();
    for cookie in 0..4 {
        bed.ia.post_recv(ep, &[], cookie, NOTHING).unwrap();
    }
    let full = bed.ia.post_recv(ep, &[], 4, NOTHING);
    assert_eq!(full.unwrap_err().cause(), Cause::QueueFull);
    bed.ia.ep_free(ep).unwrap();
}

/// Frees an endpoint during the dequeue of the completion of its request, at each release in turn.
///
/// `check` takes the outcome of each dequeue. Returns how many were interrupted.
fn free_during_dequeues(
    post: impl Fn(&Bed),
    status: DtoStatus,
    check: impl Fn(&Bed, Result<Event>),
) -> u32 {
    let mut interrupted = 0;
    loop {
        let bed = Rc::new(Bed::new());
        post(&bed);
        let pair = bed.pair(bed.ep).unwrap();
        assert!(bed.device.complete_request(pair, status));
        let (has_run, outcome) = dequeue(&bed, interrupted + 1, |bed| {
            bed.ia.ep_free(bed.ep).unwrap();
            check_records(bed);
        });
        if !has_run {
            return interrupted;
        }
        interrupted += 1;
        check(&bed, outcome);
        check_records(&bed);
    }
}

/// A bind has its effect although its endpoint is freed before its event is made.
///
/// Spec: GEN-16, RMB-42
#[test]
fn a_polled_bind_is_not_flushed() {
    let bind = |bed: &Bed| {
        let opens = MemoryPrivileges::REMOTE_WRITE;
        bed.ia
            .rmr_bind(bed.rmr, &bed.segment, opens, bed.ep, 9, NOTHING)
            .unwrap();
    };
    let interrupted = free_during_dequeues(bind, DtoStatus::Success, |bed, outcome| {
        if let Ok(event) = outcome {
            assert!(matches!(event, Event::RmrBind(done) if done.cookie == 9));
        }
        let bound = bed.ia.rmr_query(bed.rmr, RmrFields::all()).unwrap();
        assert!(bound.binding.is_some(), "flushed");
        assert!(bed.ia.lmr_free(bed.lmr).is_err(), "exposed");
        bed.ia.rmr_free(bed.rmr).unwrap();
        bed.ia.lmr_free(bed.lmr).unwrap();
    });
    assert!(interrupted > 2, "{interrupted}");
}

/// The bind that a handler posts during the dequeue of another one is the last one.
///
/// One at a time is under way, so that the dequeue of a handler overtakes none.
///
/// Spec: GEN-16, RMB-42
#[test]
fn a_bind_during_the_dequeue_of_another_is_the_last() {
    let (mut refused, mut accepted) = (0, 0);
    for chosen in 1.. {
        let bed = Rc::new(Bed::new());
        let second = bed.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x2000, 64)),
            pz: bed.pz,
            privileges: MemoryPrivileges::ALL,
        });
        let second = second.unwrap();
        let segment = LmrTriplet {
            context: second.lmr_context,
            address: second.registered_address,
            length: 8,
        };
        let opens = MemoryPrivileges::REMOTE_WRITE;
        let bind = move |bed: &Bed, segment: &LmrTriplet, cookie| {
            bed.ia
                .rmr_bind(bed.rmr, segment, opens, bed.ep, cookie, NOTHING)
        };
        bind(&bed, &bed.segment, 9).unwrap();
        let also = bind(&bed, &segment, 10);
        assert_eq!(also.unwrap_err().kind(), ErrorKind::InsufficientResources);
        let pair = bed.pair(bed.ep).unwrap();
        assert!(bed.device.complete_request(pair, DtoStatus::Success));
        let is_bound = Rc::new(Cell::new(false));
        let told = is_bound.clone();
        let (has_run, _outcome) = dequeue(&bed, chosen, move |bed| {
            told.set(bind(bed, &segment, 10).is_ok());
            if told.get() {
                assert!(bed.device.complete_request(pair, DtoStatus::Success));
            }
            while bed.ia.evd_dequeue(bed.data).is_ok() {}
        });
        if !has_run {
            break;
        }
        while bed.ia.evd_dequeue(bed.data).is_ok() {}
        let (exposed, other) = match is_bound.get() {
            true => (second.lmr, bed.lmr),
            false => (bed.lmr, second.lmr),
        };
        assert!(bed.ia.lmr_free(exposed).is_err(), "exposed at {chosen}");
        bed.ia.lmr_free(other).unwrap();
        let counted = if is_bound.get() {
            &mut accepted
        } else {
            &mut refused
        };
        *counted += 1;
    }
    assert!(refused > 0 && accepted > 0, "{refused}, {accepted}");
}

/// A failure whose endpoint is freed before its event is made has an event or is stale.
///
/// Spec: GEN-16, EPF-02
#[test]
fn a_polled_failure_is_reported_or_stale() {
    let send = |bed: &Bed| bed.ia.post_send(bed.ep, &[], 9, NOTHING).unwrap();
    let interrupted = free_during_dequeues(send, DtoStatus::RemoteAccess, |_, outcome| {
        if let Ok(event) = outcome {
            assert!(matches!(event, Event::Dto(done) if done.cookie == 9));
        }
    });
    assert!(interrupted > 1, "{interrupted}");
}

/// A dequeue that the device refuses, because it would wait, is told when to look again.
///
/// Spec: GEN-16, EVG-01
#[test]
fn a_refused_poll_is_told() {
    let bed = Bed::new();
    bed.ia.post_send(bed.ep, &[], 9, NOTHING).unwrap();
    let pair = bed.pair(bed.ep).unwrap();
    assert!(bed.device.complete_request(pair, DtoStatus::Success));
    bed.device.set_refuses_polls(true);
    let nothing = bed.ia.evd_dequeue(bed.data).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::QueueEmpty);
    bed.device.set_refuses_polls(false);
    bed.ia.progress(Instant::ZERO);
    assert_ne!(bed.ia.take_interrupts(), 0);
    assert!(bed.ia.evd_dequeue(bed.data).is_ok());
}
