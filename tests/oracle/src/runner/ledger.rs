//! Invariants that hold after faults, when the oracle cannot predict outcomes.
//!
//! - Each completion belongs to an accepted post, and comes once.
//! - Each post completes: an endpoint in DISCONNECTED has completed all its posts, unless
//!   completions of its adapter were lost or its host crashed.
//! - A connected endpoint does not return to a state that precedes a connection, except by a reset.
//! - Memory outside of live registrations keeps its content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};

use backend_mock::{Fault, Happened};
use dat_core::flags::EndpointState;

use super::{Outcome, Runner, is_after_connected};
use crate::op::Side;
use crate::world::{ARENA, Key, Seen};

/// Accepted post that has not completed.
#[derive(Clone, Copy, Debug)]
struct Post {
    owner: Key,
    suppressed: bool,
}

/// Posts, completions, endpoint states and memory content.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    posts: BTreeMap<u64, Post>,
    /// Posts of reset or freed endpoints and queues: they may complete or not.
    excused: BTreeSet<u64>,
    states: BTreeMap<Key, EndpointState>,
    memory: [Vec<u8>; 2],
    /// Bytes that were registered at the last check.
    registered: [Vec<bool>; 2],
}

/// Returns true if a fault removed completions of an adapter.
///
/// Late, reordered and duplicated completions do not count.
fn loses(happened: &[Happened], side: Side) -> bool {
    happened.iter().any(|one| match one.fault {
        Fault::DropCompletion { adapter, .. }
        | Fault::OverrunQueue { adapter, .. }
        | Fault::Crash { adapter, .. } => usize::from(adapter) == side.index(),
        _ => false,
    })
}

fn content(bytes: &[AtomicU8]) -> Vec<u8> {
    let bytes = bytes.iter();
    bytes.map(|byte| byte.load(Ordering::Relaxed)).collect()
}

impl Ledger {
    pub(super) fn new(runner: &Runner) -> Self {
        let memory = runner.memory.map(content);
        let eps = runner.world.eps.iter().map(|(key, ep)| (key, &ep.receives));
        let srqs = runner.world.srqs.iter();
        let queues = eps.chain(srqs.map(|(key, srq)| (key, &srq.buffers)));
        let mut posts = BTreeMap::new();
        for (&owner, receives) in queues {
            for receive in receives {
                let suppressed = false;
                posts.insert(receive.cookie, Post { owner, suppressed });
            }
        }
        Self {
            posts,
            excused: BTreeSet::new(),
            states: BTreeMap::new(),
            memory,
            registered: [vec![true; ARENA], vec![true; ARENA]],
        }
    }

    fn post(&mut self, owner: Key, cookie: u64, suppressed: bool) {
        self.posts.insert(cookie, Post { owner, suppressed });
    }

    /// Excuses the posts of an endpoint or queue from completing.
    pub(super) fn reset(&mut self, owner: Key) {
        let lost: Vec<u64> = self
            .posts
            .iter()
            .filter(|(_, post)| post.owner == owner)
            .map(|(&cookie, _)| cookie)
            .collect();
        for cookie in lost {
            self.posts.remove(&cookie);
            self.excused.insert(cookie);
        }
        self.states.remove(&owner);
    }

    pub(super) fn store(&mut self, side: Side, offset: usize, value: u8) {
        self.memory[side.index()][offset] = value;
    }

    pub(super) fn check_state_change(
        &mut self,
        key: Key,
        state: EndpointState,
    ) -> Result<(), String> {
        let before = self.states.insert(key, state);
        match before {
            Some(before) if is_after_connected(before) && !is_after_connected(state) => {
                Err(format!("no way back from {before:?} without a reset"))
            }
            Some(EndpointState::Disconnected) if state != EndpointState::Disconnected => {
                Err("DISCONNECTED until there is a reset".into())
            }
            _ => Ok(()),
        }
    }

    fn complete(&mut self, cookie: u64) -> bool {
        self.posts.remove(&cookie).is_some() || self.excused.remove(&cookie)
    }

    /// Checks that all posts of disconnected endpoints have completed.
    pub(super) fn finish(&self, runner: &Runner) -> Outcome {
        let happened = runner.happened();
        for (cookie, post) in &self.posts {
            let over = self.states.get(&post.owner) == Some(&EndpointState::Disconnected);
            let Some(ep) = runner.world.eps.get(&post.owner) else {
                continue;
            };
            if over && !post.suppressed && !loses(&happened, ep.side) {
                return runner.mismatch(
                    format!("a completion for post {cookie} on object {}", post.owner),
                    "none came",
                );
            }
        }
        Ok(())
    }
}

impl Runner {
    /// Records a post.
    pub(super) fn record_post(&mut self, owner: Key, cookie: u64, suppressed: bool) {
        if let Some(ledger) = &mut self.ledger {
            ledger.post(owner, cookie, suppressed);
        }
    }

    /// Records a completion, and checks that it was pending.
    pub(super) fn record_completion(&mut self, seen: &Seen) -> Outcome {
        let (Seen::Completion { cookie, .. } | Seen::Bind { cookie, .. }) = seen else {
            return Ok(());
        };
        let pending = self
            .ledger
            .as_mut()
            .is_none_or(|ledger| ledger.complete(*cookie));
        if pending {
            Ok(())
        } else {
            self.mismatch("a completion of a pending post, once", seen)
        }
    }

    /// Takes the current memory content as the one to keep outside of registrations.
    pub(super) fn snapshot_memory(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.memory = self.memory.map(content);
            ledger.registered = [vec![true; ARENA], vec![true; ARENA]];
        }
    }

    /// Checks that memory outside of live registrations keeps its content.
    pub(super) fn check_ledger(&mut self) -> Outcome {
        let Some(mut ledger) = self.ledger.take() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for side in [Side::A, Side::B] {
            let base = self.world.arena(side).base;
            for offset in 0..ARENA {
                let actual = self.memory[side.index()][offset].load(Ordering::Relaxed);
                let kept = &mut ledger.memory[side.index()][offset];
                let registered = self.world.is_registered(side, base + offset as u64);
                let was =
                    std::mem::replace(&mut ledger.registered[side.index()][offset], registered);
                if actual != *kept && !registered && !was {
                    outcome = self.mismatch(
                        format!("byte {offset} of side {side:?} still {kept}"),
                        actual,
                    );
                }
                *kept = actual;
            }
        }
        self.ledger = Some(ledger);
        outcome
    }
}
