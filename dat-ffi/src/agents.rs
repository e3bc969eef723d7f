//! Functions of the consumer that notification objects call.
//!
//! The core decides under its locks that an agent is due, and calls it after it has released them.
//! In between, only this table has the state of the agent. An agent is called once, if its entry is
//! still there; one whose object is freed meanwhile is not called.
//!
//! Calls do not nest: what becomes due on a thread while it runs an agent waits for that agent. The
//! core sees to this for the agents of one adapter; here, it holds for those of several.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use dat_core::Result;
use dat_core::event::ProxyAgent;
use dat_core::id::EvdId;

use crate::adapter::Adapter;
use crate::boundary::{Agent, PerProcess, Thread, this_thread, uncancelled};
use crate::handles::CHandle;

/// An agent that was not called yet, or is being called.
struct Enlisted {
    agent: Agent,
    /// Its notification object.
    cno: CHandle,
    /// The adapter of the notification object.
    ia: CHandle,
    /// The thread that calls the agent, if one does.
    caller: Option<Thread>,
}

impl Enlisted {
    /// Returns true for an agent of this notification object, or of any in this adapter.
    fn is_of(&self, owner: CHandle) -> bool {
        self.cno == owner || self.ia == owner
    }
}

#[derive(Default)]
struct Agents {
    /// Number of the latest agent.
    last: u64,
    /// Agents by number; the core has the number.
    enlisted: BTreeMap<u64, Enlisted>,
    /// Threads that call agents for the core, with the calls that they make next, in order.
    due: BTreeMap<Thread, VecDeque<(u64, Option<EvdId>)>>,
    /// Threads that wait until calls of agents are over.
    waiters: BTreeMap<Thread, Waiter>,
}

/// The wait of a thread until calls of agents are over.
struct Waiter {
    /// The notification object or adapter whose agents are not to be called any more.
    owner: CHandle,
    /// Threads that call such agents and are not waited for: they waited for this one before.
    excused: Vec<Thread>,
}

impl Agents {
    /// Claims the call of an agent for this thread; returns the agent and its adapter.
    ///
    /// `None` if the agent is gone, or another thread calls it.
    fn begin(&mut self, number: u64) -> Option<(Agent, CHandle)> {
        let waiting = self.enlisted.get_mut(&number);
        let due = waiting.filter(|enlisted| enlisted.caller.is_none())?;
        due.caller = Some(this_thread());
        Some((due.agent, due.ia))
    }

    /// Returns the threads that a thread waits for.
    fn awaited_by(&self, waiter: Thread) -> impl Iterator<Item = Thread> {
        let waits = self.waiters.get(&waiter);
        let of_waiter = waits.into_iter().flat_map(|waits| {
            let calls = self.enlisted.values();
            calls
                .filter(|call| call.is_of(waits.owner))
                .filter_map(|call| call.caller)
                .filter(|caller| !waits.excused.contains(caller))
        });
        of_waiter.filter(move |caller| *caller != waiter)
    }

    /// Returns true if a thread waits for another one, directly or through others.
    fn waits_for(&self, waiter: Thread, awaited: Thread) -> bool {
        let mut reached = vec![waiter];
        let mut looked_at = 0;
        while let Some(&next) = reached.get(looked_at) {
            looked_at += 1;
            for thread in self.awaited_by(next) {
                if thread == awaited {
                    return true;
                }
                if !reached.contains(&thread) {
                    reached.push(thread);
                }
            }
        }
        false
    }

    /// Notes that a thread waits.
    ///
    /// If there was no circle of waiting threads before, there is none afterwards.
    fn begin_to_wait(&mut self, waiter: Thread, owner: CHandle) {
        let excused = Vec::new();
        self.waiters.insert(waiter, Waiter { owner, excused });
        let callers = self.awaited_by(waiter);
        let excused = callers
            .filter(|caller| self.waits_for(*caller, waiter))
            .collect();
        self.waiters.insert(waiter, Waiter { owner, excused });
    }
}

/// Notified when a call is over.
static OVER: Condvar = Condvar::new();

fn agents() -> MutexGuard<'static, Agents> {
    static AGENTS: PerProcess<Mutex<Agents>> = PerProcess::new();
    AGENTS.this().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an agent that of a notification object.
///
/// `give` hands it to the core and returns the former one.
///
/// # Errors
/// Those of `give`; the agent is not called then.
pub(crate) fn associate(
    agent: Agent,
    cno: CHandle,
    ia: CHandle,
    give: impl FnOnce(Option<ProxyAgent>) -> Result<Option<ProxyAgent>>,
) -> Result<()> {
    // Locked across `give`: a call that comes at once finds the agent, and a close finds only
    // agents that the core took.
    let mut agents = agents();
    let number = agents.last + 1;
    let proxy = agent.is_some().then_some(ProxyAgent {
        function: call,
        instance_data: number,
    });
    let former = give(proxy)?;
    agents.last = number;
    if let Some(former) = former {
        agents.enlisted.remove(&former.instance_data);
    }
    if agent.is_some() {
        let caller = None;
        let enlisted = Enlisted {
            agent,
            cno,
            ia,
            caller,
        };
        agents.enlisted.insert(number, enlisted);
    }
    Ok(())
}

/// Returns the agent for the one that the core has.
pub(crate) fn known(agent: Option<ProxyAgent>) -> Agent {
    let number = agent.map(|agent| agent.instance_data);
    number
        .and_then(|number| agents().enlisted.get(&number).map(|known| known.agent))
        .unwrap_or(Agent::NONE)
}

/// Ends the calls of agents for a notification object that is freed.
///
/// No agent of the object is called later, and when this returns, no other thread is calling one.
pub(crate) fn dismiss(cno: CHandle) {
    let mut agents = agents();
    let enlisted = &mut agents.enlisted;
    enlisted.retain(|_, agent| agent.cno != cno || agent.caller.is_some());
    drop(agents);
    wait(cno);
}

/// Ends the calls of agents for a closed adapter, whose notification objects are gone.
///
/// Agents that are not called yet are called without a dispatcher. When this returns, no other
/// thread is calling one.
/// Spec: IAC-02, CNW-05
pub(crate) fn release(ia: CHandle) {
    let next = || {
        let mut agents = agents();
        let mut enlisted = agents.enlisted.iter();
        let waiting = enlisted.find(|(_, agent)| agent.ia == ia && agent.caller.is_none());
        let number = waiting.map(|(number, _)| *number)?;
        let (agent, _) = agents.begin(number)?;
        Some((number, agent))
    };
    while let Some((number, agent)) = next() {
        finish(number, agent, CHandle::NULL);
    }
    wait(ia);
}

/// Waits until no other thread calls an agent of the notification object or adapter.
///
/// The consumer may free memory afterwards that the agents used. Agents that end each other's
/// objects would wait for ever, so the last one does not wait for those that wait for it.
fn wait(owner: CHandle) {
    let own = this_thread();
    let mut agents = agents();
    agents.begin_to_wait(own, owner);
    let is_called = |agents: &mut Agents| agents.awaited_by(own).next().is_some();
    let ended = OVER.wait_while(agents, is_called);
    let mut agents = ended.unwrap_or_else(PoisonError::into_inner);
    agents.waiters.remove(&own);
}

/// Calls an agent for the core, which holds no lock, or leaves it to the call that this thread is
/// in.
///
/// Spec: CNC-02, CNW-05
fn call(number: u64, evd: Option<EvdId>) {
    let own = this_thread();
    {
        let mut agents = agents();
        if let Some(due) = agents.due.get_mut(&own) {
            due.push_back((number, evd));
            return;
        }
        agents.due.insert(own, VecDeque::new());
    }
    let mut next = Some((number, evd));
    while let Some((number, evd)) = next {
        let begun = agents().begin(number);
        if let Some((agent, ia)) = begun {
            let of_evd = |adapter: &Adapter| adapter.cells.of_some(evd);
            let evd = Adapter::itself(ia).map_or(CHandle::NULL, |adapter| of_evd(&adapter));
            finish(number, agent, evd);
        }
        let mut agents = agents();
        // None in a child of fork, if the agent forked.
        next = agents.due.get_mut(&own).and_then(VecDeque::pop_front);
        if next.is_none() {
            agents.due.remove(&own);
        }
    }
}

/// Makes the call that `begin` claimed.
fn finish(number: u64, agent: Agent, evd: CHandle) {
    // A thread that were cancelled in the agent would also unwind through frames of this library.
    uncancelled(|| agent.call(evd));
    agents().enlisted.remove(&number);
    OVER.notify_all();
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use dat_core::Error;

    use super::*;

    /// Returns handles that name no object.
    const fn owners(first: usize) -> (CHandle, CHandle) {
        (
            CHandle::from_address(first),
            CHandle::from_address(first + 2),
        )
    }

    /// Defines an agent that counts its calls and expects a null dispatcher.
    macro_rules! counting {
        ($agent:ident, $calls:ident) => {
            static $calls: AtomicUsize = AtomicUsize::new(0);
            extern "C" fn $agent(_: *mut c_void, evd: CHandle) {
                assert!(evd.is_null());
                $calls.fetch_add(1, Ordering::Relaxed);
            }
        };
    }

    /// Makes an agent that of an object in place of `former`; returns the core's agent.
    fn given(
        agent: Agent,
        (cno, ia): (CHandle, CHandle),
        former: Option<ProxyAgent>,
    ) -> Option<ProxyAgent> {
        let mut core = None;
        let give = |proxy| {
            core = proxy;
            Ok(former)
        };
        associate(agent, cno, ia, give).expect("is taken");
        core
    }

    /// Makes a call that the core decided on earlier.
    fn do_call(agent: Option<ProxyAgent>) {
        let agent = agent.expect("an agent");
        (agent.function)(agent.instance_data, None);
    }

    /// Spec: CNF-01, CNC-02
    #[test]
    fn an_agent_is_not_called_after_its_object_is_freed() {
        counting!(agent, CALLS);
        let (freed, ia) = owners(3);
        let (kept, _) = owners(7);
        let due = given(Agent::of(agent), (freed, ia), None);
        let other = given(Agent::of(agent), (kept, ia), None);
        dismiss(freed);
        do_call(due);
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        do_call(other);
        do_call(other);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    /// Spec: IAC-02, CNW-05
    #[test]
    fn a_due_agent_is_called_once_when_its_adapter_closes() {
        counting!(agent, CALLS);
        let (cno, ia) = owners(11);
        let due = given(Agent::of(agent), (cno, ia), None);
        let refused = associate(Agent::of(agent), cno, ia, |_| Err(Error::abort()));
        assert!(refused.is_err());
        release(ia);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        do_call(due);
        release(ia);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    /// Spec: CNC-02
    #[test]
    fn a_call_from_an_agent_waits_for_it_and_blocks_no_other_thread() {
        static ORDER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        static DUE: Mutex<Vec<Option<ProxyAgent>>> = Mutex::new(Vec::new());
        fn note(step: u8) {
            ORDER.lock().expect("no panic").push(step);
        }
        extern "C" fn second(_: *mut c_void, _: CHandle) {
            note(3);
        }
        extern "C" fn third(_: *mut c_void, _: CHandle) {
            note(4);
        }
        extern "C" fn elsewhere(_: *mut c_void, _: CHandle) {
            note(1);
        }
        extern "C" fn first(_: *mut c_void, _: CHandle) {
            let [second, freed, third, elsewhere] = DUE.lock().expect("no panic")[..] else {
                unreachable!();
            };
            do_call(second);
            do_call(freed);
            do_call(third);
            dismiss(owners(43).0);
            thread::scope(|scope| scope.spawn(|| do_call(elsewhere)).join()).expect("is called");
            note(2);
        }
        let agents = [second, second, third, elsewhere] as [extern "C" fn(_, _); 4];
        let due = (39..).step_by(4).zip(agents);
        *DUE.lock().expect("no panic") = due
            .map(|(owner, agent)| given(Agent::of(agent), owners(owner), None))
            .collect();
        do_call(given(Agent::of(first), owners(35), None));
        assert_eq!(*ORDER.lock().expect("no panic"), [1, 2, 3, 4]);
    }

    /// Spec: CNM-01, CNC-02
    #[test]
    fn a_replaced_agent_is_called_only_if_it_was_due() {
        counting!(first, FIRST);
        counting!(second, SECOND);
        let owners = owners(15);
        let replaced = given(Agent::of(first), owners, None);
        let due = given(Agent::of(first), owners, replaced);
        do_call(replaced);
        assert_eq!(FIRST.load(Ordering::Relaxed), 0);
        // The core has decided on the call, so it returns no former agent.
        let latest = given(Agent::of(second), owners, None);
        do_call(due);
        let none = given(Agent::NONE, owners, latest);
        assert!(none.is_none());
        release(owners.1);
        assert_eq!(FIRST.load(Ordering::Relaxed), 1);
        assert_eq!(SECOND.load(Ordering::Relaxed), 0);
    }

    /// Spec: CNF-01, CNC-02
    #[test]
    fn an_agent_in_a_cycle_waits_only_for_calls_outside_it() {
        const ROUNDS: u32 = 100_000;
        const INNER: CHandle = owners(19).0;
        const OUTER: CHandle = owners(23).0;
        static OUTSIDE_IS_OVER: AtomicBool = AtomicBool::new(false);
        static BEGUN: AtomicUsize = AtomicUsize::new(0);

        fn waiting() -> usize {
            let agents = agents();
            let waiters = agents.waiters.values();
            waiters
                .filter(|waiter| [INNER, OUTER].contains(&waiter.owner))
                .count()
        }
        fn until(holds: impl Fn() -> bool) {
            let mut rounds = 0..ROUNDS;
            while rounds.next().is_some() && !holds() {
                thread::yield_now();
            }
        }
        fn begin() {
            BEGUN.fetch_add(1, Ordering::AcqRel);
            while BEGUN.load(Ordering::Acquire) < 3 {
                thread::yield_now();
            }
        }
        extern "C" fn inner(_: *mut c_void, _: CHandle) {
            begin();
            until(|| waiting() == 1);
            dismiss(OUTER);
            assert!(OUTSIDE_IS_OVER.load(Ordering::Acquire));
        }
        extern "C" fn outer(_: *mut c_void, _: CHandle) {
            begin();
            dismiss(INNER);
        }
        extern "C" fn outside(_: *mut c_void, _: CHandle) {
            begin();
            until(|| waiting() == 2);
            OUTSIDE_IS_OVER.store(true, Ordering::Release);
        }
        let ia = owners(19).1;
        let calls = [
            (inner as _, INNER),
            (outer as _, OUTER),
            (outside as _, OUTER),
        ]
        .map(|(agent, cno)| given(Agent::of(agent), (cno, ia), None));
        thread::scope(|scope| {
            for call in calls {
                scope.spawn(move || do_call(call));
            }
        });
        assert_eq!(BEGUN.load(Ordering::Acquire), 3);
    }
}
