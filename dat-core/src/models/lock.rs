//! The lock on which threads of a host sleep.

use loom::thread;
use std::sync::Arc;

use super::prove;
use crate::sync::loom_sync::set_under_way;
use crate::sync::{HostLock, Mutex};

/// Two holders exclude each other, see each other's writes and both finish.
#[test]
fn two_holders_exclude_each_other() {
    prove(None, || {
        let counted = Arc::new(Mutex::<HostLock, _>::new(0_u32));
        counted.with(|_| ());
        set_under_way(true);
        let other = counted.clone();
        let thread = thread::spawn(move || other.with(|counted| *counted += 1));
        counted.with(|counted| *counted += 1);
        thread.join().unwrap();
        assert_eq!(counted.with(|counted| *counted), 2);
    });
}

/// Of three threads none sleeps forever, in any order of going to sleep.
#[test]
fn no_thread_sleeps_forever() {
    prove(Some(3), || {
        let counted = Arc::new(Mutex::<HostLock, _>::new(0_u32));
        counted.with(|_| ());
        set_under_way(true);
        let threads = [(); 2].map(|()| {
            let other = counted.clone();
            thread::spawn(move || other.with(|counted| *counted += 1))
        });
        counted.with(|counted| *counted += 1);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(counted.with(|counted| *counted), 3);
    });
}
