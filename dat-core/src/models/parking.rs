//! Values that are parked in place of being locked.
//!
//! Without its read of the mark, `lock` or `lock_unparked` must make a test here fail.

use loom::thread;
use std::sync::Arc;

use super::prove;
use crate::sync::loom_sync::set_under_way;
use crate::sync::{HostLock, Mutex, SplitLock};

type Counted = Mutex<SplitLock<HostLock, HostLock>, u32>;

fn counted() -> Arc<Counted> {
    let counted = Arc::new(Counted::new(0));
    counted.with(|_| ());
    set_under_way(true);
    counted
}

/// A parked value belongs to one thread, and the end of the parking tells whether it was refused.
#[test]
fn a_parked_value_has_one_user() {
    prove(None, || {
        let counted = counted();
        let other = counted.clone();
        let thread = thread::spawn(move || match other.lock_unparked() {
            Some(mut counted) => {
                *counted += 1;
                true
            }
            None => false,
        });
        let mut parked = counted.park();
        *parked += 1;
        let is_missed = parked.end();
        let is_done = thread.join().unwrap();
        assert_eq!(is_missed, !is_done);
        assert_eq!(counted.with(|counted| *counted), 1 + u32::from(is_done));
    });
}

/// Whoever waits for a parked value gets it after the parking, with all that was written.
#[test]
fn a_parked_value_is_waited_for() {
    prove(Some(3), || {
        let counted = counted();
        let other = counted.clone();
        let thread = thread::spawn(move || other.with(|counted| *counted += 1));
        let mut parked = counted.park();
        *parked += 1;
        drop(parked);
        thread.join().unwrap();
        assert_eq!(counted.with(|counted| *counted), 2);
    });
}

/// Two threads that park the same value exclude each other.
#[test]
fn parkings_exclude_each_other() {
    prove(Some(3), || {
        let counted = counted();
        let other = counted.clone();
        let thread = thread::spawn(move || *other.park() += 1);
        *counted.park() += 1;
        thread.join().unwrap();
        assert_eq!(counted.with(|counted| *counted), 2);
    });
}
