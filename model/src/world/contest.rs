//! Transfers whose order matters, and nobody knows it.

use super::{Key, World};
use crate::op::Side;

/// What a transfer touched, to find out whether the order of two of them matters.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) agent: Agent,
    pub(crate) place: Place,
    pub(crate) write: bool,
}

/// Whose doing an access is. What one agent does happens in the order in which it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// Requests of an endpoint as they act at their target.
    Requests(Key),
    /// The messages an endpoint sent, on their way into buffers: later than they act, unlike an RDMA Write
    /// after them, and never before what was posted earlier (EPW-43).
    Messages(Key),
    /// The answer to an RDMA Read, by its post: what it reads and where it puts it are looked at in a time of its own. Unless later
    /// requests are fenced, they may be carried out before it is placed.
    Answer(Key, u64),
}

impl Agent {
    /// Whether what this one did is over before another one does what was posted later.
    fn precedes(self, later: Agent) -> bool {
        match (self, later) {
            (Self::Requests(a), Self::Messages(b) | Self::Answer(b, _)) => a == b,
            _ => self == later,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A byte of a side.
    Byte(Side, u64),
    /// A remote context of a side, by number.
    Context(Side, u32),
    /// The order of buffers of a shared receive queue.
    Shared(Key),
    /// A remote memory region.
    Window(Key),
}

impl World {
    pub(super) fn note(&mut self, agent: Agent, place: Place, write: bool) {
        self.accesses.push(Access {
            agent,
            place,
            write,
        });
    }

    /// Whether the order in which requests of different endpoints are carried out matters.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested().next().is_some()
    }

    fn contested(&self) -> impl Iterator<Item = (&Access, &Access)> {
        let all = &self.accesses;
        all.iter().enumerate().flat_map(move |(index, a)| {
            all[index + 1..]
                .iter()
                .filter(move |b| {
                    a.place == b.place && (a.write || b.write) && !a.agent.precedes(b.agent)
                })
                .map(move |b| (a, b))
        })
    }

    /// Bytes that endpoints wrote whose order mattered hold nobody knows what.
    pub(super) fn forget_contested_bytes(&mut self) {
        let agents: Vec<Agent> = self
            .contested()
            .flat_map(|(a, b)| [a.agent, b.agent])
            .collect();
        let accesses = std::mem::take(&mut self.accesses);
        for access in accesses {
            if let Place::Byte(side, at) = access.place
                && access.write
                && agents.contains(&access.agent)
            {
                self.arena(side).forget(at);
            }
        }
    }
}
