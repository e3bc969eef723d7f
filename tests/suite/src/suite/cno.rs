//! Consumer notification objects.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Poll, Waker};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use dat_core::Error;
use dat_core::event::ProxyAgent;
use dat_core::flags::{CnoFields, EvdFlags};
use dat_core::id::{CnoId, EvdId};

use crate::fixture::errors::{BAD_CNO, CNO_IN_USE};
use crate::fixture::{Net, Testbed, granted, refused};

/// A waker that counts its calls.
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns an agent that stores the dispatcher's handle in the returned cell (1 for none).
fn agent() -> (ProxyAgent, &'static AtomicU64) {
    static CELLS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    static NEXT: AtomicU64 = AtomicU64::new(0);
    fn called(data: u64, evd: Option<EvdId>) {
        let raw = evd.map_or(1, |evd| evd.handle().to_raw());
        CELLS[data as usize].store(raw, Ordering::Relaxed);
    }
    let index = NEXT.fetch_add(1, Ordering::Relaxed);
    let agent = ProxyAgent {
        function: called,
        instance_data: index,
    };
    (agent, &CELLS[index as usize])
}

/// Function that [`hooked`] calls, with the agent's number and dispatcher.
type Hook = dyn Fn(u64, Option<EvdId>);

thread_local! {
    static HOOK: RefCell<Option<Rc<Hook>>> = const { RefCell::new(None) };
}

/// Returns an agent that calls the hook of its thread with this number.
fn hooked(number: u64) -> Option<ProxyAgent> {
    fn called(number: u64, evd: Option<EvdId>) {
        // A test is over when its adapters release their agents.
        let hook = HOOK.try_with(|hook| hook.borrow().clone());
        if let Ok(Some(hook)) = hook {
            hook(number, evd);
        }
    }
    Some(ProxyAgent {
        function: called,
        instance_data: number,
    })
}

/// Sets the hook of this thread.
fn hook(hook: impl Fn(u64, Option<EvdId>) + 'static) {
    HOOK.set(Some(Rc::new(hook)));
}

/// A new object has no dispatcher, no trigger and at most one agent; a query returns it.
///
/// Spec: CNC-01, CNC-03, CNQ-01, GEN-03, GEN-08, GEN-11
pub fn query_describes_a_new_notification_object<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let (agent, _) = agent();
    for wanted in [None, Some(agent)] {
        let cno = granted(ia.cno_create(wanted));
        let param = granted(ia.cno_query(cno, CnoFields::all()));
        assert_eq!(param.ia, ia.handle());
        assert_eq!(
            param.agent.map(|agent| agent.instance_data),
            wanted.map(|agent| agent.instance_data)
        );
        assert_eq!(net.triggered(&ia, cno), None);
        for bit in 2..32 {
            refused(
                ia.cno_query(cno, CnoFields::from_bits_retain(1 << bit)),
                Error::invalid_argument(2),
            );
        }
        granted(ia.cno_free(cno));
        for bad in [
            CnoId::NULL,
            cno,
            granted(net.adapter().cno_create(None)),
            CnoId::from_handle(ia.handle()),
        ] {
            refused(ia.cno_query(bad, CnoFields::all()), BAD_CNO);
            refused(ia.cno_modify_agent(bad, None), BAD_CNO);
            refused(ia.cno_wait(bad).map(drop), BAD_CNO);
            refused(ia.cno_free(bad), BAD_CNO);
        }
    }
}

/// The agent is called once per association, in addition to waiters.
///
/// It gets its data and the dispatcher that fired.
///
/// Spec: CNC-02, CNM-01
pub fn agent_is_called_once_per_association<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let (agent, seen) = agent();
    let cno = granted(ia.cno_create(Some(agent)));
    let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    granted(ia.evd_post_se(evd, 1));
    assert_eq!(seen.swap(0, Ordering::Relaxed), evd.handle().to_raw());
    assert_eq!(net.triggered(&ia, cno), Some(evd));
    assert!(granted(ia.cno_query(cno, CnoFields::AGENT)).agent.is_none());
    granted(ia.evd_post_se(evd, 2));
    assert_eq!(seen.load(Ordering::Relaxed), 0);
    assert_eq!(net.triggered(&ia, cno), Some(evd));
    granted(ia.cno_modify_agent(cno, Some(agent)));
    granted(ia.evd_post_se(evd, 3));
    assert_eq!(seen.swap(0, Ordering::Relaxed), evd.handle().to_raw());
    granted(ia.cno_modify_agent(cno, Some(agent)));
    granted(ia.cno_modify_agent(cno, None));
    granted(ia.evd_post_se(evd, 4));
    assert_eq!(seen.load(Ordering::Relaxed), 0);
}

/// Calls of an agent that causes its own next call do not nest, however many there are.
///
/// Neither do those of agents that cause each other's calls in one adapter. In two adapters, one
/// call of each runs at a time.
///
/// Spec: CNC-02
pub fn agents_that_call_themselves_do_not_nest<T: Testbed>(bed: &T) {
    const CALLS: u64 = 20_000;
    let net = Net::new(bed);
    for (adapters, most) in [
        (vec![0], 1),
        (vec![0; 2], 1),
        (vec![0; 8], 1),
        (vec![0, 1], 2),
        (vec![0, 1, 0, 1, 1, 0], 2),
    ] {
        let ias = [net.adapter(), net.adapter()];
        let objects: Vec<_> = adapters
            .iter()
            .zip(0..)
            .map(|(adapter, number)| {
                let ia = Rc::clone(&ias[*adapter]);
                let cno = granted(ia.cno_create(hooked(number)));
                let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
                (ia, cno, evd)
            })
            .collect();
        let first = (Rc::clone(&objects[0].0), objects[0].2);
        let calls = Rc::new(Cell::new(0));
        let (depth, counted) = (Cell::new(0), Rc::clone(&calls));
        hook(move |number, fired| {
            depth.set(depth.get() + 1);
            assert!(depth.get() <= most, "a call of an agent nests");
            let (ia, cno, evd) = &objects[number as usize];
            assert_eq!(fired, Some(*evd));
            granted(ia.evd_dequeue(*evd));
            granted(ia.cno_modify_agent(*cno, hooked(number)));
            calls.set(calls.get() + 1);
            if calls.get() < CALLS {
                let (ia, _, evd) = &objects[(number as usize + 1) % objects.len()];
                granted(ia.evd_post_se(*evd, 1));
            }
            depth.set(depth.get() - 1);
        });
        granted(first.0.evd_post_se(first.1, 1));
        assert_eq!(counted.get(), CALLS);
    }
    HOOK.set(None);
}

/// Each agent of a chain of 5,000 objects, or as many as there can be, is called once, in order.
///
/// Each one causes the next two calls, of which the second waits already.
///
/// Spec: CNC-02
pub fn agents_of_a_long_chain_do_not_nest<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let ia = net.adapter_with_objects(5_000);
    let objects: Rc<Vec<_>> = Rc::new(
        (0..5_000)
            .map_while(|number| {
                let cno = ia.cno_create(hooked(number)).ok()?;
                let evd = ia.evd_create(1, Some(cno), EvdFlags::SOFTWARE).ok()?;
                Some((cno, evd))
            })
            .collect(),
    );
    assert!(objects.len() > 64, "{}", objects.len());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (calls, inner) = (Rc::clone(&seen), Rc::clone(&ia));
    let chain = Rc::clone(&objects);
    let depth = Cell::new(0);
    hook(move |number, fired| {
        assert_eq!(depth.replace(1), 0, "a call of an agent nests");
        calls.borrow_mut().push((number, fired));
        for (_, evd) in chain.iter().skip(number as usize + 1).take(2) {
            // The queue may be full: it has an event that caused the call already.
            let _posted = inner.evd_post_se(*evd, 1);
        }
        depth.set(0);
    });
    granted(ia.evd_post_se(objects[0].1, 1));
    let expected = (0..).zip(objects.iter().map(|(_, evd)| Some(*evd)));
    assert!(seen.borrow().iter().copied().eq(expected));

    // An object that is freed meanwhile is not called, but its successor in the slot is.
    let (calls, inner, chain) = (Rc::clone(&seen), Rc::clone(&ia), Rc::clone(&objects));
    hook(move |number, _| {
        calls.borrow_mut().push((number, None));
        if number == 0 {
            for (cno, evd) in &chain[1..4] {
                granted(inner.evd_dequeue(*evd));
                granted(inner.cno_modify_agent(*cno, hooked(9)));
                granted(inner.evd_post_se(*evd, 1));
            }
            let (cno, evd) = chain[2];
            granted(inner.evd_modify_cno(evd, None));
            granted(inner.cno_free(cno));
            let next = granted(inner.cno_create(hooked(8)));
            granted(inner.evd_modify_cno(evd, Some(next)));
            granted(inner.evd_dequeue(evd));
            granted(inner.evd_post_se(evd, 1));
        }
    });
    seen.borrow_mut().clear();
    let (cno, evd) = objects[0];
    granted(ia.evd_dequeue(evd));
    granted(ia.cno_modify_agent(cno, hooked(0)));
    granted(ia.evd_post_se(evd, 1));
    let mut numbers: Vec<_> = seen.borrow().iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 8, 9, 9]);
    HOOK.set(None);
}

/// Each agent that is set while another one runs is called or returned, in order.
///
/// Spec: CNC-02, CNM-01, CNF-01
pub fn agents_that_are_due_wait_for_the_running_one<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(hooked(0)));
    let evd = granted(ia.evd_create(32, Some(cno), EvdFlags::SOFTWARE));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (calls, inner) = (Rc::clone(&seen), Rc::clone(&ia));
    hook(move |number, _| {
        calls.borrow_mut().push(number);
        if number != 0 {
            return;
        }
        // Without an agent, a trigger calls nobody later.
        granted(inner.evd_post_se(evd, 1));
        for (number, replaced) in [(1, None), (2, None), (3, None), (4, Some(3)), (5, None)] {
            let former = granted(inner.cno_modify_agent(cno, hooked(number)));
            let former = former.map(|agent| agent.instance_data);
            assert_eq!(former, replaced.or((number == 5).then_some(4)));
            if number != 2 {
                granted(inner.evd_post_se(evd, 1));
            }
            if number == 2 {
                let former = granted(inner.cno_modify_agent(cno, None));
                assert_eq!(former.map(|agent| agent.instance_data), Some(2));
            }
        }
        assert_eq!(*calls.borrow(), [0]);
    });
    granted(ia.evd_post_se(evd, 1));
    // One call waits, and the trigger of further ones is kept for the last agent.
    assert_eq!(*seen.borrow(), [0, 1, 5]);
    granted(ia.evd_post_se(evd, 1));
    assert_eq!(*seen.borrow(), [0, 1, 5]);

    // An agent that frees its object is the last one.
    let (calls, inner) = (Rc::clone(&seen), Rc::clone(&ia));
    hook(move |number, fired| {
        calls.borrow_mut().push(number);
        granted(inner.cno_modify_agent(cno, hooked(7)));
        granted(inner.evd_post_se(fired.expect("a dispatcher"), 1));
        granted(inner.evd_modify_cno(evd, None));
        granted(inner.cno_free(cno));
    });
    granted(ia.cno_modify_agent(cno, hooked(6)));
    granted(ia.evd_post_se(evd, 1));
    assert_eq!(*seen.borrow(), [0, 1, 5, 6]);
    HOOK.set(None);
}

/// A notification without a waiter is remembered once.
///
/// Several dispatchers may notify one object.
///
/// Spec: CNW-01, CNW-03, CNW-06
pub fn notification_is_remembered_for_a_later_wait<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let first = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    let second = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    granted(ia.evd_post_se(first, 1));
    assert_eq!(net.triggered(&ia, cno), Some(first));
    assert_eq!(net.triggered(&ia, cno), None);
    granted(ia.evd_post_se(first, 1));
    granted(ia.evd_post_se(second, 1));
    let hint = net.triggered(&ia, cno);
    assert!(hint == Some(first) || hint == Some(second), "{hint:?}");
    assert_eq!(net.triggered(&ia, cno), None);
}

/// One notification releases exactly one of several waiters, by its waker.
///
/// Spec: CNW-01, CNW-06, CNF-01
pub fn one_notification_releases_one_waiter<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    let counts = [(); 3].map(|()| Arc::new(Count(AtomicU64::new(0))));
    let wakers = counts.clone().map(Waker::from);
    let mut waits = [(); 3].map(|()| granted(ia.cno_wait(cno)));
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        assert!(wait.poll(waker).is_pending());
    }
    for released in 1..=3 {
        granted(ia.evd_post_se(evd, 1));
        let woken: u64 = counts
            .iter()
            .map(|count| count.0.load(Ordering::Relaxed))
            .sum();
        assert!(
            woken >= released,
            "{woken} woken by {released} notifications"
        );
        let mut ready = 0;
        for (index, count) in counts.iter().enumerate() {
            if count.0.load(Ordering::Relaxed) != 0
                && let Poll::Ready(outcome) = waits[index].poll(Waker::noop())
            {
                ready += u64::from(outcome == Ok(Some(evd)));
            }
        }
        assert_eq!(ready, 1, "after notification {released}");
    }
}

/// A wait that is dropped takes no notification; a later wait finds it, unless another one took it.
///
/// Spec: CNW-04, CNW-07
pub fn an_abandoned_wait_takes_nothing<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    let mut first = granted(ia.cno_wait(cno));
    assert!(first.poll(Waker::noop()).is_pending());
    granted(ia.evd_post_se(evd, 1));
    drop(first);
    assert_eq!(net.triggered(&ia, cno), Some(evd));

    // Two waits are due; the one that is left takes the notification, and no later wait the other.
    let mut waits = [(); 2].map(|()| granted(ia.cno_wait(cno)));
    for wait in &mut waits {
        assert!(wait.poll(Waker::noop()).is_pending());
    }
    for _ in 0..2 {
        granted(ia.evd_post_se(evd, 1));
    }
    let [first, mut second] = waits;
    drop(first);
    assert_eq!(second.poll(Waker::noop()), Poll::Ready(Ok(Some(evd))));
    drop(second);
    assert_eq!(net.triggered(&ia, cno), None);
}

/// The object is held by its dispatchers and its waiters.
///
/// Spec: CNF-01, CNF-02, GEN-15
pub fn notification_object_is_held_by_its_users<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    refused(ia.cno_free(cno), CNO_IN_USE);
    granted(ia.evd_free(evd));
    // Freeing the last dispatcher triggered the object without a dispatcher.
    let _trigger = net.triggered(&ia, cno);
    let mut wait = granted(ia.cno_wait(cno));
    assert!(wait.poll(Waker::noop()).is_pending());
    refused(ia.cno_free(cno), CNO_IN_USE);
    let temporary = granted(ia.evd_create(1, Some(cno), EvdFlags::SOFTWARE));
    granted(ia.evd_post_se(temporary, 1));
    assert_eq!(wait.poll(Waker::noop()), Poll::Ready(Ok(Some(temporary))));
    drop(wait);
    granted(ia.evd_free(temporary));
    granted(ia.cno_free(cno));
}

/// Freeing the last dispatcher of an object releases all waiters and calls the agent.
///
/// Neither gets a dispatcher.
///
/// Spec: CNW-05, EVF-04
pub fn freeing_the_last_dispatcher_releases_all_waiters<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let (agent, seen) = agent();
    let cno = granted(ia.cno_create(Some(agent)));
    let first = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    let second = granted(ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    let mut waits = [(); 2].map(|()| granted(ia.cno_wait(cno)));
    for wait in &mut waits {
        assert!(wait.poll(Waker::noop()).is_pending());
    }
    granted(ia.evd_free(first));
    for wait in &mut waits {
        assert!(wait.poll(Waker::noop()).is_pending());
    }
    assert_eq!(seen.load(Ordering::Relaxed), 0);
    granted(ia.evd_free(second));
    for wait in &mut waits {
        assert_eq!(wait.poll(Waker::noop()), Poll::Ready(Ok(None)));
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}
