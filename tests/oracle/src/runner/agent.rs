//! Agents of notification objects: called once when due (CNC-01 to CNC-03, CNM-01, CNW-05).

use std::cell::RefCell;

use dat_core::event::ProxyAgent;
use dat_core::flags::HandleKind;
use dat_core::id::EvdId;

use super::{Outcome, Runner};
use crate::expect::Checks;
use crate::op::{Pick, Side};
use crate::world::{Agent, Key};

thread_local! {
    /// Calls since they were last taken.
    static CALLS: RefCell<Vec<(u64, Option<EvdId>)>> = const { RefCell::new(Vec::new()) };
}

fn note(data: u64, evd: Option<EvdId>) {
    CALLS.with_borrow_mut(|calls| calls.push((data, evd)));
}

/// Takes the calls since the last time.
pub(super) fn take_calls() -> Vec<(u64, Option<EvdId>)> {
    CALLS.take()
}

impl Runner {
    fn agent(&mut self, wanted: bool) -> (Option<Agent>, Option<ProxyAgent>) {
        if !wanted {
            return (None, None);
        }
        let data = self.next_post();
        let agent = ProxyAgent {
            function: note,
            instance_data: data,
        };
        (Some(Agent::new(data)), Some(agent))
    }

    pub(super) fn cno_create(&mut self, side: Side, with_agent: bool) -> Outcome {
        let mut checks = Checks::default();
        let full = self.world.count(side, HandleKind::Cno) >= crate::world::DISPATCHERS;
        checks.resource(full);
        let (agent, given) = self.agent(with_agent);
        let outcome = self.with(side, |ia| ia.cno_create(given));
        if let Some(id) = self.judge(&checks.verdict(), outcome)? {
            let key = self.world.cno_create(side, agent);
            self.record_handle(key, id.handle());
        }
        Ok(())
    }

    pub(super) fn modify_agent(&mut self, side: Side, cno: Pick, wanted: bool) -> Outcome {
        let key = self.pick(side, HandleKind::Cno, cno);
        let id = self.cno_id(key);
        let verdict = self.check_query(side, HandleKind::Cno, key, false);
        let (agent, given) = self.agent(wanted);
        let outcome = self.with(side, |ia| ia.cno_modify_agent(id, given));
        if let Some(former) = self.judge(&verdict, outcome)? {
            self.compare_agent(key, former)?;
            if let Some(cno) = key.and_then(|key| self.world.cnos.get_mut(&key)) {
                cno.agent = agent;
            }
        }
        Ok(())
    }

    /// Checks that an object reports its agent that was not called yet.
    pub(super) fn compare_agent(
        &mut self,
        key: Option<Key>,
        reported: Option<ProxyAgent>,
    ) -> Outcome {
        self.compare_agents()?;
        let known = key
            .and_then(|key| self.world.cnos.get(&key))
            .and_then(|cno| cno.agent.as_ref())
            .map(|agent| agent.data);
        self.expect(
            reported.map(|agent| agent.instance_data) == known,
            format_args!("agent {known:?} (CNQ-01, CNM-01)"),
            reported,
        )
    }

    /// Checks that each call was due, and that each certainly due call came.
    pub(super) fn compare_agents(&mut self) -> Outcome {
        for (data, evd) in take_calls() {
            let evd = evd.and_then(|evd| self.key(evd));
            let exact = self.is_exact();
            let cno = self.world.cnos.values_mut().find(|cno| {
                let agent = cno.agent.as_ref();
                agent.is_some_and(|agent| agent.data == data && (agent.possible || !exact))
            });
            let called = cno.and_then(|cno| cno.agent.take());
            let kind = evd
                .and_then(|evd| self.world.objects.get(&evd))
                .map(|o| o.kind);
            if called.is_none() || kind.is_some_and(|kind| kind != HandleKind::Evd) {
                return self.mismatch(
                    "a call of an agent that is due, once (CNC-02)",
                    (data, kind),
                );
            }
        }
        let due = self
            .world
            .cnos
            .values()
            .filter_map(|cno| cno.agent.as_ref())
            .find(|agent| agent.sure)
            .map(|agent| agent.data);
        self.expect(due.is_none(), "a call of the agent (CNC-02)", due)
    }

    /// Checks that agents of destroyed objects are called, and no others (IAC-02).
    pub(super) fn compare_agents_of_closed(&mut self, side: Side) -> Outcome {
        let objects = &self.world.objects;
        let mut left: Vec<u64> = self
            .world
            .cnos
            .iter()
            .filter(|(key, _)| objects.get(key).is_some_and(|object| object.side == side))
            .filter_map(|(_, cno)| cno.agent.as_ref().map(|agent| agent.data))
            .collect();
        for (data, _) in take_calls() {
            let at = left.iter().position(|known| *known == data);
            let Some(at) = at else {
                return self.mismatch("a call of an agent that is left, once (IAC-02)", data);
            };
            left.swap_remove(at);
        }
        self.expect(
            left.is_empty(),
            "a call of each agent that is left (IAC-02)",
            left,
        )
    }
}
