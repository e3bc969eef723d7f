//! Posted requests and receives.

use dat_queues::{Owner, Receive, Request, State};

use crate::objects::queue_pair::SendEntry;
use crate::world::World;

impl World {
    /// Returns the number of receives that are not complete, if their owner exists.
    pub(crate) fn receives(&self, adapter: usize, owner: Owner<u32>) -> Option<usize> {
        Some(match owner {
            Owner::Pair(key) => self.queue_pairs.get(key)?.receives_outstanding(),
            Owner::Shared(key) => self.adapters[adapter]
                .shared_receives
                .get(key)?
                .outstanding(),
        })
    }

    /// Takes the requests of a send queue; returns how many there are now.
    ///
    /// `None` if its queue pair does not take any.
    pub(crate) fn post_requests(
        &mut self,
        key: u32,
        posted: impl Iterator<Item = Request>,
    ) -> Option<usize> {
        let queue_pair = self.queue_pairs.get_mut(key)?;
        let state = queue_pair.state;
        if !state.takes_requests() {
            return None;
        }
        queue_pair.sends.extend(posted.map(SendEntry::new));
        let count = queue_pair.sends.len();
        if state == State::Error {
            self.flush_requests(key);
        } else {
            self.kick(key);
        }
        Some(count)
    }

    /// Takes posted receives; returns how many there are now, if their owner exists.
    pub(crate) fn post_receives(
        &mut self,
        adapter: usize,
        owner: Owner<u32>,
        posted: impl Iterator<Item = Receive>,
    ) -> Option<usize> {
        match owner {
            Owner::Pair(key) => {
                let queue_pair = self.queue_pairs.get_mut(key)?;
                queue_pair.receives.extend(posted);
                let count = queue_pair.receives_outstanding();
                if queue_pair.state == State::Error {
                    self.flush_receives(key);
                }
                Some(count)
            }
            Owner::Shared(key) => {
                let queue = self.adapters[adapter].shared_receives.get_mut(key)?;
                queue.post(posted);
                Some(queue.outstanding())
            }
        }
    }

    /// Counts a post; returns true if a fault refuses it.
    pub(crate) fn refuses_post(&mut self, adapter: usize, owner: Owner<u32>) -> bool {
        let count = self.adapters[adapter].posts;
        self.adapters[adapter].posts = count.wrapping_add(1);
        let refused = self.faults.refuses_post(adapter as u16, count);
        if refused {
            let end = match owner {
                Owner::Pair(key) => self.connection_end(key),
                Owner::Shared(_) => None,
            };
            self.faults.note_connection(end);
        }
        refused
    }
}
