//! Posted requests and receives of an adapter.

use dat_core::flags::DtoStatus;

use super::{Adapter, Pair, ReceiveEntry, SendEntry, State, Work};
use crate::proto::queue_pair::QueuePair;

impl Adapter {
    /// Takes the requests of a send queue; false if its queue pair does not take any.
    pub(crate) fn post_requests(
        &mut self,
        key: usize,
        entries: impl Iterator<Item = SendEntry>,
    ) -> bool {
        let takes = |pair: &Pair| matches!(pair.state, State::Connected | State::Error);
        if !self.pairs.get(key).is_some_and(takes) {
            return false;
        }
        for entry in entries {
            self.post_request(key, entry);
        }
        if self.pairs.get(key).map(|pair| pair.state) == Some(State::Error) {
            self.flush_requests(key);
        } else if !self.gathers(key) {
            self.set_ready(key);
        }
        true
    }

    /// Returns true if the requests of a queue pair wait for more of them (ROCE-184).
    fn gathers(&self, key: usize) -> bool {
        let pair = self.pairs.get(key);
        let transport = pair.and_then(|pair| pair.transport.as_ref());
        transport.is_some_and(QueuePair::gathers)
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

    /// Takes the receives of a queue pair; false if there is no such queue pair.
    pub(crate) fn post_receives(
        &mut self,
        key: usize,
        entries: impl Iterator<Item = ReceiveEntry>,
    ) -> bool {
        let Some(pair) = self.pairs.get_mut(key) else {
            return false;
        };
        pair.receives.extend(entries);
        if pair.state == State::Error {
            self.flush_receives(key);
        }
        true
    }

    /// Carries out the binds whose turn has come.
    pub(super) fn run_binds(&mut self, key: usize) {
        while let Some(pair) = self.pairs.get_mut(key) {
            let Some(position) = pair.transport.as_ref().and_then(QueuePair::next_local) else {
                return;
            };
            let index = position.checked_sub(pair.first).map(|index| index as usize);
            let work = index
                .and_then(|index| pair.sends.get(index))
                .map(|entry| entry.work);
            let Some(Work::Bind(request, window_key)) = work else {
                return;
            };
            let outcome = self.memories.bind(&request, window_key, pair.domain);
            if let Some(transport) = &mut pair.transport {
                transport.finish_local(outcome);
            }
            self.after_transport(key);
        }
    }
}
