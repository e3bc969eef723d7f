//! Functions of the consumer that notification objects call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

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
}

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

/// Called by the core, with no lock held.
///
/// Spec: CNC-02, CNW-05
fn call(number: u64, evd: Option<EvdId>) {
    let known = agents().waiting.remove(&number);
    if let Some((agent, ia)) = known {
        let evd = Adapter::itself(ia).map_or(CHandle::NULL, |adapter| adapter.cells.of_some(evd));
        agent.call(evd);
    }
}
