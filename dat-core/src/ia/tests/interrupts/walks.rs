//! Walks through the completions of a dispatcher, which give its lock back at each step.

use std::boxed::Box;
use std::rc::Rc;
use std::vec::Vec;

use core::cell::RefCell;

use super::bed::{Bed, CHOSEN, HANDLER, NOTHING, RELEASES};
use crate::error::{Cause, ErrorKind};
use crate::event::Event;
use crate::flags::DtoStatus;

/// Posts sends of both endpoints in turn, completes them and polls their completions.
///
/// The cookies count up; those of `bed.other` are odd.
fn polled(bed: &Bed) {
    for cookie in 10..16 {
        let ep = [bed.ep, bed.other][cookie as usize % 2];
        bed.ia.post_send(ep, &[], cookie, NOTHING).unwrap();
        let pair = bed.pair(ep).unwrap();
        assert!(bed.device.complete_request(pair, DtoStatus::Success));
    }
    bed.ia.poll_at(bed.data.slot());
}

fn cookies(bed: &Bed, most: usize) -> Vec<u64> {
    let events = core::iter::from_fn(|| bed.ia.evd_dequeue(bed.data).ok());
    let cookie = |event| match event {
        Event::Dto(completion) => completion.cookie,
        event => panic!("{event:?}"),
    };
    events.take(most).map(cookie).collect()
}

/// Dequeues during the free of an endpoint lose and repeat no completion of another endpoint.
///
/// Spec: GEN-16, EPF-02
#[test]
fn dequeues_during_a_free_keep_the_order() {
    let mut interrupted = 0;
    for chosen in 1.. {
        let bed = Rc::new(Bed::new());
        polled(&bed);
        let taken = Rc::new(RefCell::new(Vec::new()));
        let handler = {
            let (bed, taken) = (bed.clone(), taken.clone());
            move || *taken.borrow_mut() = cookies(&bed, chosen as usize % 3 + 1)
        };
        HANDLER.set(Some(Box::new(handler)));
        RELEASES.set(0);
        CHOSEN.set(chosen);
        bed.ia.ep_free(bed.ep).unwrap();
        CHOSEN.set(0);
        let is_over = HANDLER.take().is_some();
        let mut found = taken.take();
        interrupted += u32::from(!found.is_empty());
        found.extend(cookies(&bed, 10));
        let of_other: Vec<u64> = found.iter().copied().filter(|one| one % 2 == 1).collect();
        assert_eq!(of_other, [11, 13, 15], "{found:?} at {chosen}");
        assert!(found.is_sorted(), "{found:?} at {chosen}");
        if is_over {
            break;
        }
    }
    assert!(interrupted > 10, "{interrupted}");
}

/// A dispatcher with a waiter is not resized while that would move many events under its lock.
///
/// Spec: GEN-16, EVZ-01
#[test]
fn many_events_of_a_waiter_are_not_moved() {
    let bed = Bed::new();
    bed.ia.evd_resize(bed.software, 12).unwrap();
    for pointer in 0..8 {
        bed.ia.evd_post_se(bed.software, pointer).unwrap();
    }
    let wait = bed.ia.evd_wait(bed.software, 12).unwrap();
    bed.ia.evd_resize(bed.software, 13).unwrap();
    bed.ia.evd_post_se(bed.software, 8).unwrap();
    // A refusal gives back the slots that it took.
    for _ in 0..10 {
        let refused = bed.ia.evd_resize(bed.software, 14).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
        assert_eq!(refused.cause(), Cause::Busy);
    }
    drop(wait);
    bed.ia.evd_resize(bed.software, 14).unwrap();
    for pointer in 0..9 {
        let event = bed.ia.evd_dequeue(bed.software).unwrap();
        assert_eq!(event, Event::Software { pointer });
    }
}
