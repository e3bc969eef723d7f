//! Posted requests and receives of an adapter.

use core::sync::atomic::Ordering;
use core::time::Duration;

use dat_core::flags::DtoStatus;
use dat_queues::{Owner, Receive, Request, State, Work};

use super::deadlines::Timer;
use super::timers::after;
use super::{Adapter, SendEntry};
use crate::proto::queue_pair::QueuePair;

/// Longest time that requests wait for a consumer with completions to take.
const GATHER: Duration = Duration::from_millis(1);

impl Adapter {
    /// Returns the number of receives that are not complete, if their owner exists.
    pub(crate) fn receives(&self, owner: Owner<usize>) -> Option<usize> {
        Some(match owner {
            Owner::Pair(key) => self.pairs.get(key)?.receives_outstanding(),
            Owner::Shared(key) => self.shared_receives.get(key)?.outstanding(),
        })
    }

    /// Takes the requests of a send queue; returns how many are not complete.
    ///
    /// `None` if its queue pair does not take any.
    pub(crate) fn post_requests(
        &mut self,
        key: usize,
        posted: impl Iterator<Item = Request>,
    ) -> Option<usize> {
        let is_behind = self.begin_posts(key)?;
        for request in posted {
            self.post_request(key, request.into());
        }
        self.end_posts(key, is_behind)
    }

    /// Prepares for posts; returns true if their consumer has completions to take.
    ///
    /// `None` if the queue pair takes none.
    #[inline]
    pub(crate) fn begin_posts(&mut self, key: usize) -> Option<bool> {
        let pair = self.pairs.get(key)?;
        if !pair.state.takes_requests() {
            return None;
        }
        // A consumer that takes completions one by one posts again for each.
        let is_behind = pair
            .setup
            .request_queue
            .and_then(|number| self.completion_queue(number))
            .is_some_and(|queue| queue.ring.is_being_taken());
        if let Some(transport) = self.transport(key) {
            transport.expect_more(is_behind);
        }
        Some(is_behind)
    }

    /// Lets posted requests leave; returns how many are not complete.
    #[inline]
    pub(crate) fn end_posts(&mut self, key: usize, is_behind: bool) -> Option<usize> {
        let pair = self.pairs.get(key)?;
        let count = pair.posted();
        if pair.state == State::Error {
            self.flush_requests(key);
            return Some(count);
        }
        if !pair.transport.as_ref().is_some_and(QueuePair::gathers) {
            self.set_ready(key);
        }
        if is_behind {
            // Even if all requests may leave: some may find no room, and later ones wait then.
            self.add_gathering(key);
        }
        Some(count)
    }

    pub(super) fn transport(&mut self, key: usize) -> Option<&mut QueuePair<'static>> {
        self.pairs.get_mut(key)?.transport.as_mut()
    }

    /// Notes that requests of a queue pair wait until the consumer has caught up (ROCE-185).
    fn add_gathering(&mut self, key: usize) {
        if let Some(pair) = self.pairs.get_mut(key)
            && !core::mem::replace(&mut pair.is_gathering, true)
        {
            self.gathering.push_back(key);
        }
        self.gathers.store(true, Ordering::Release);
        if !self.deadlines.is_set(Timer::Gathered) {
            let until = after(self.now, GATHER);
            self.deadlines.set(Timer::Gathered, Some(until));
        }
    }

    /// Ends the wait for the consumer, which looks for completions in vain, or has not looked for
    /// long.
    pub(crate) fn release_gathered(&mut self) {
        self.deadlines.set(Timer::Gathered, None);
        self.gathers.store(false, Ordering::Release);
        while let Some(key) = self.gathering.pop_front() {
            if let Some(pair) = self.pairs.get_mut(key) {
                pair.is_gathering = false;
            }
            if let Some(transport) = self.transport(key) {
                transport.expect_more(false);
            }
            self.set_ready(key);
        }
    }

    pub(super) fn post_request(&mut self, key: usize, entry: SendEntry) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let position = pair.first + pair.sends.len() as u64;
        let refused = match &mut pair.transport {
            Some(transport) => transport.post(entry.request(position)).is_err(),
            None => false,
        };
        if !refused {
            pair.sends.push_back(entry);
            return;
        }
        // The core does not know the limits of the peer: it may take no Reads, or packets so short
        // that the message has too many. Earlier requests end first.
        let was_open = pair.is_open();
        self.break_pair(key);
        self.finish_failure(key);
        self.flush_requests(key);
        let status = if was_open {
            DtoStatus::LocalEndpoint
        } else {
            DtoStatus::Flushed
        };
        self.complete_request(key, &entry, status);
    }

    /// Takes posted receives; returns how many are not complete, if their owner exists.
    pub(crate) fn post_receives(
        &mut self,
        owner: Owner<usize>,
        posted: impl Iterator<Item = Receive>,
    ) -> Option<usize> {
        match owner {
            Owner::Pair(key) => {
                let pair = self.pairs.get_mut(key)?;
                pair.receives.extend(posted);
                let count = pair.receives_outstanding();
                if pair.state == State::Error {
                    self.flush_receives(key);
                }
                Some(count)
            }
            Owner::Shared(key) => {
                let queue = self.shared_receives.get_mut(key)?;
                queue.post(posted);
                Some(queue.outstanding())
            }
        }
    }

    /// Carries out the binds and invalidations whose turn has come.
    #[inline]
    pub(super) fn run_binds(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get(key)
            && let Some(transport) = &pair.transport
            && let Some(position) = transport.next_local()
            && self.run_bind(key, position)
        {}
    }

    /// Carries out a bind or an invalidation; false if there is none.
    fn run_bind(&mut self, key: usize, position: u64) -> bool {
        let Some(pair) = self.pairs.get_mut(key) else {
            return false;
        };
        let index = position.checked_sub(pair.first).map(|index| index as usize);
        let entry = index.and_then(|index| pair.sends.get(index));
        let Some(entry) = entry else {
            return false;
        };
        let Work::Bind(request, window_key) = entry.request.work else {
            return false;
        };
        let user = pair.user();
        let opening = entry.opening();
        let outcome = self.memories.bind(&request, window_key, opening, user);
        if let Some(transport) = &mut pair.transport {
            transport.finish_local(outcome);
        }
        self.after_transport(key);
        true
    }
}
