//! Agents on several threads.

use std::boxed::Box;
use std::sync::{Barrier, Mutex};
use std::thread::{self, ThreadId};
use std::vec::Vec;

use crate::adapter::Ia;
use crate::event::ProxyAgent;
use crate::flags::EvdFlags;
use crate::id::EvdId;
use crate::sync::HostLock;
use crate::testing::{Slots, TestBackend};

/// An agent may wait for that of another thread. What it causes itself comes after it, on its
/// thread, whatever the other thread does.
///
/// Spec: CNC-02
#[test]
fn agents_of_two_threads_run_at_a_time_and_cause_further_ones() {
    static BOTH: [Barrier; 3] = [const { Barrier::new(2) }; 3];
    static CALLED: Mutex<Vec<(u64, ThreadId)>> = Mutex::new(Vec::new());
    type Trigger = Box<dyn Fn(u64) + Send>;
    static TRIGGER: Mutex<Option<Trigger>> = Mutex::new(None);

    fn waits(data: u64, _: Option<EvdId>) {
        BOTH[0].wait();
        TRIGGER.lock().unwrap().as_ref().unwrap()(data + 2);
        BOTH[1].wait();
        // Neither has been called yet.
        assert!(CALLED.lock().unwrap().is_empty());
        BOTH[2].wait();
    }
    fn notes(data: u64, _: Option<EvdId>) {
        CALLED.lock().unwrap().push((data, thread::current().id()));
    }
    let storage = Box::leak(Box::new(Slots::<HostLock>::new()));
    let ia = Ia::open(TestBackend::default(), storage.lend(), 1).unwrap();
    let ia = &*Box::leak(Box::new(ia));
    let agents = [(0, waits as fn(_, _)), (1, waits), (2, notes), (3, notes)];
    let evds = agents.map(|(instance_data, function)| {
        let agent = ProxyAgent {
            function,
            instance_data,
        };
        let cno = ia.cno_create(Some(agent)).unwrap();
        ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap()
    });
    let trigger = move |object| ia.evd_post_se(evds[object as usize], 1).unwrap();
    *TRIGGER.lock().unwrap() = Some(Box::new(trigger));
    let other = thread::spawn(move || ia.evd_post_se(evds[1], 1).unwrap());
    let threads = [thread::current().id(), other.thread().id()];
    ia.evd_post_se(evds[0], 1).unwrap();
    other.join().unwrap();
    let mut called = CALLED.lock().unwrap().clone();
    called.sort_unstable_by_key(|(object, _)| *object);
    assert_eq!(called, [(2, threads[0]), (3, threads[1])]);
}
