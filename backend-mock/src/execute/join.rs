//! Joins of queue pairs, without messages and without events.

use dat_queues::State;

use crate::objects::joining::{Joining, Name};
use crate::world::World;

impl World {
    pub(crate) fn join(&mut self, key: u32, own: Name, peer: Name) {
        self.leave_join(key);
        self.joining.remove(&own);
        let other = self.joining.get(&peer).filter(|other| other.peer == own);
        let other = other.map(|other| other.key).filter(|other| {
            let pair = self.queue_pairs.get(*other);
            pair.is_some_and(|pair| pair.state == State::Unconnected)
        });
        let Some(other) = other else {
            self.joining.insert(own, Joining { key, peer });
            if let Some(pair) = self.queue_pairs.get_mut(key) {
                pair.joining = Some(own);
            }
            return;
        };
        self.leave_join(other);
        self.connections += 1;
        for (key, peer) in [(key, other), (other, key)] {
            if let Some(pair) = self.queue_pairs.get_mut(key) {
                pair.state = State::Connected;
                pair.connection = self.connections;
                pair.peer = Some(peer);
                pair.last_arrival = self.now;
            }
        }
    }

    /// Ends the wait of a queue pair for its peer.
    pub(crate) fn leave_join(&mut self, key: u32) {
        let pair = self.queue_pairs.get_mut(key);
        let Some(own) = pair.and_then(|pair| pair.joining.take()) else {
            return;
        };
        // Another queue pair may have taken the name.
        if self
            .joining
            .get(&own)
            .is_some_and(|joining| joining.key == key)
        {
            self.joining.remove(&own);
        }
    }
}
