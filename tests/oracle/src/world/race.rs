//! Transfers whose order matters but is not determined.

use super::{Key, World};
use crate::op::Side;

/// Access of a transfer, recorded to find pairs whose order matters.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) actor: Actor,
    pub(crate) location: Location,
    pub(crate) write: bool,
}

/// Origin of an access; accesses of one actor happen in posting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// Requests of an endpoint, when they act at their target.
    Requests(Key),
    /// Data of an endpoint's messages, on its way into receive buffers.
    ///
    /// It arrives later than the message acts, so a later RDMA Write may precede it. It never
    /// precedes earlier posts (EPW-43).
    Messages(Key),
    /// Answer to an RDMA Read, by its post.
    ///
    /// Its reads and its placement happen at a time of their own. Later requests may be carried out
    /// before the data is placed, unless they are fenced.
    Answer(Key, u64),
}

impl Actor {
    /// Returns true if this actor's accesses end before `later` acts on a later post.
    fn precedes(self, later: Actor) -> bool {
        match (self, later) {
            (Self::Requests(a), Self::Messages(b) | Self::Answer(b, _)) => a == b,
            _ => self == later,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Byte of a side.
    Byte(Side, u64),
    /// Remote context of a side, by number.
    Context(Side, u32),
    /// Buffer order of a shared receive queue.
    Shared(Key),
    /// Remote memory region.
    Window(Key),
}

impl World {
    pub(super) fn note(&mut self, actor: Actor, location: Location, write: bool) {
        self.accesses.push(Access {
            actor,
            location,
            write,
        });
    }

    /// Returns true if the order of requests of different endpoints matters.
    pub(crate) fn has_race(&self) -> bool {
        self.races().next().is_some()
    }

    fn races(&self) -> impl Iterator<Item = (&Access, &Access)> {
        let all = &self.accesses;
        all.iter().enumerate().flat_map(move |(index, a)| {
            all[index + 1..]
                .iter()
                .filter(move |b| {
                    a.location == b.location && (a.write || b.write) && !a.actor.precedes(b.actor)
                })
                .map(move |b| (a, b))
        })
    }

    /// Marks bytes as unknown that actors wrote in an order that matters.
    pub(super) fn forget_racing_bytes(&mut self) {
        let actors: Vec<Actor> = self.races().flat_map(|(a, b)| [a.actor, b.actor]).collect();
        let accesses = std::mem::take(&mut self.accesses);
        for access in accesses {
            if let Location::Byte(side, at) = access.location
                && access.write
                && actors.contains(&access.actor)
            {
                self.arena(side).forget(at);
            }
        }
    }
}
