//! Functions of the consumer that notification objects call.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use dat_core::event::ProxyAgent;
use dat_core::id::EvdId;

use crate::adapter::Adapter;
use crate::boundary::Agent;
use crate::handles::CHandle;

/// Agents that were not called yet.
#[derive(Default)]
struct Agents {
    /// The number of the one that came last.
    last: u64,
    /// By number: the agent, and the adapter of its notification object.
    waiting: HashMap<u64, (Agent, CHandle)>,
    /// Those that are being called: the adapter, and the thread that does it.
    under_way: Vec<(CHandle, ThreadId)>,
}

/// Told when a call is over.
static OVER: Condvar = Condvar::new();

fn agents() -> MutexGuard<'static, Agents> {
    static AGENTS: OnceLock<Mutex<Agents>> = OnceLock::new();
    let agents = AGENTS.get_or_init(Mutex::default);
    agents.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to give to the core, so that it calls the agent once. None for no agent.
pub(crate) fn enlist(agent: Agent, ia: CHandle) -> Option<ProxyAgent> {
    if !agent.is_some() {
        return None;
    }
    let mut agents = agents();
    agents.last += 1;
    let number = agents.last;
    agents.waiting.insert(number, (agent, ia));
    Some(ProxyAgent {
        function: call,
        instance_data: number,
    })
}

/// The agent that the core has.
pub(crate) fn known(agent: Option<ProxyAgent>) -> Agent {
    let number = agent.map(|agent| agent.instance_data);
    number
        .and_then(|number| agents().waiting.get(&number).map(|(agent, _)| *agent))
        .unwrap_or(Agent::NONE)
}

/// The core will not call the agent any more.
pub(crate) fn dismiss(agent: Option<ProxyAgent>) {
    if let Some(agent) = agent {
        agents().waiting.remove(&agent.instance_data);
    }
}

/// Waits until no other thread calls an agent of the adapter: what a consumer frees then is not used any more.
pub(crate) fn wait(ia: CHandle) {
    let own = thread::current().id();
    let is_busy = |agents: &mut Agents| {
        let mut calls = agents.under_way.iter();
        calls.any(|(of, thread)| *of == ia && *thread != own)
    };
    let ended = OVER.wait_while(agents(), is_busy);
    drop(ended.unwrap_or_else(PoisonError::into_inner));
}

/// The adapter is closed: agents that were not called are not any more, and no call is under way on another thread when this returns.
///
/// Spec: IAC-01, IAC-02
pub(crate) fn end(ia: CHandle) {
    agents().waiting.retain(|_, (_, of)| *of != ia);
    wait(ia);
}

/// Called by the core, with no lock held.
///
/// Spec: CNC-02, CNW-05
fn call(number: u64, evd: Option<EvdId>) {
    let mine = thread::current().id();
    let known = {
        let mut agents = agents();
        let known = agents.waiting.remove(&number);
        let calls = known.map(|(_, ia)| (ia, mine));
        agents.under_way.extend(calls);
        known
    };
    if let Some((agent, ia)) = known {
        let evd = Adapter::itself(ia).map_or(CHandle::NULL, |adapter| adapter.cells.of_some(evd));
        agent.call(evd);
        let mut agents = agents();
        let mut calls = agents.under_way.iter();
        if let Some(index) = calls.position(|call| *call == (ia, mine)) {
            agents.under_way.swap_remove(index);
        }
        drop(agents);
        OVER.notify_all();
    }
}
