//! Control calls and accesses of processors that change objects of several kinds.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, QueuePairRequest, RemoteRange, SyncDirection,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::RegisteredSpan;
use dat_queues::{PairLimits, State};

use crate::objects::control::Subject;
use crate::objects::queue_pair::Ending;
use crate::options::Limits;
use crate::world::World;

impl World {
    /// Checks the objects and sizes that a request for a queue pair names.
    pub(crate) fn check_queue_pair(
        &mut self,
        adapter: usize,
        request: &QueuePairRequest,
        limits: &Limits,
    ) -> Result<(), BackendError> {
        let adapter = &mut self.adapters[adapter];
        let queues = [request.request_queue, request.receive_queue];
        let queues_exist = queues
            .into_iter()
            .flatten()
            .all(|number| adapter.completion_queue(number).is_some());
        let shared_exists = request
            .shared_receive_queue
            .is_none_or(|key| adapter.shared_receives.get(key.0 as u32).is_some());
        if !queues_exist || !shared_exists {
            return Err(BackendError::State);
        }
        let limits = PairLimits {
            work_requests: limits.work_requests,
            segments: limits.segments,
            reads: limits.rdma_reads,
        };
        limits.check(&request.attributes)
    }

    /// Removes a region with its keys.
    pub(crate) fn deregister(&mut self, number: usize, local: u32) {
        let World {
            adapters, nodes, ..
        } = self;
        let adapter = &mut adapters[number];
        let Some(region) = adapter.memories.regions.remove(local) else {
            return;
        };
        adapter.memories.remote_keys.remove(region.remote);
        let (start, length) = (region.memory.address(), region.memory.length());
        if let (Some(coherence), Some(span)) = (
            &mut nodes[adapter.node].coherence,
            region.memory.span(start, length),
        ) {
            coherence.release((number, local), start, span);
        }
    }

    /// Performs cache maintenance over a range, as far as regions cover it.
    pub(crate) fn sync(
        &mut self,
        adapter: usize,
        direction: SyncDirection,
        address: u64,
        length: u64,
    ) {
        let World {
            adapters, nodes, ..
        } = self;
        let Some(coherence) = &mut nodes[adapters[adapter].node].coherence else {
            return;
        };
        let (mut address, mut left) = (address, length);
        while left > 0
            && let Some(((adapter, region), length)) = coherence.region_at(address, left)
        {
            let region = adapters[adapter].memories.regions.get(region);
            if let Some(span) = region.and_then(|region| region.memory.span(address, length)) {
                coherence.sync(direction, address, span);
            }
            address = address.wrapping_add(length);
            left -= length;
        }
    }

    /// Removes a listener and frees its qualifier.
    pub(crate) fn stop_listening(&mut self, adapter: usize, listener: u32) {
        let adapter = &mut self.adapters[adapter];
        if let Some(listener) = adapter.listeners.remove(listener) {
            self.nodes[adapter.node].qualifiers.free(listener.qualifier);
        }
    }

    /// Removes a queue pair and ends its connection.
    pub(crate) fn destroy_queue_pair(&mut self, key: u32) {
        let Some(pair) = self.queue_pairs.get(key) else {
            return;
        };
        let (adapter, token, state) = (pair.adapter, pair.setup.token, pair.state);
        if matches!(state, State::Connected | State::Accepting) {
            self.tell_peer_of_end(key, Ending::Disconnected);
        }
        self.clear_queues(key);
        self.use_completion_queues(key, false);
        self.leave_join(key);
        self.queue_pairs.remove(key);
        let adapter = &mut self.adapters[adapter];
        adapter.queue_pairs.remove(&key);
        adapter.control.forget(Subject::Connection(token));
        adapter.control.forget(Subject::Watermark(token));
    }

    /// Closes an adapter: removes its listeners, requests, queue pairs and regions.
    pub(crate) fn close(&mut self, adapter: usize) {
        for key in self.adapters[adapter].listeners.keys() {
            self.stop_listening(adapter, key);
        }
        for key in self.adapters[adapter].requests.keys() {
            if let Some(request) = self.adapters[adapter].take_request(key) {
                self.refuse_request(adapter, &request, ConnectFailure::NonPeerRejected);
            }
        }
        for key in self.adapters[adapter].queue_pairs.clone() {
            self.destroy_queue_pair(key);
        }
        for key in self.adapters[adapter].memories.regions.keys() {
            self.deregister(adapter, key);
        }
    }

    /// Returns memory of a peer, if the key permits the access.
    ///
    /// A host that is not coherent is not supported.
    pub(crate) fn seen(
        &self,
        adapter: usize,
        peer: IaAddress,
        range: RemoteRange,
        length: u64,
        right: MemoryPrivileges,
    ) -> Result<RegisteredSpan<'_>, BackendError> {
        let from = self.adapters[adapter].node;
        let to = self
            .node_at(peer)
            .filter(|to| self.passes(from, *to))
            .ok_or(BackendError::Address)?;
        if self.nodes[to].coherence.is_some() {
            return Err(BackendError::NotSupported);
        }
        let adapters = self.nodes[to].adapters.iter();
        adapters
            .map(|adapter| &self.adapters[*adapter].memories)
            .find_map(|memories| {
                let domain = memories.domain_of(range.key)?;
                memories.remote(range, length, domain, right)
            })
            .ok_or(BackendError::Address)
    }
}
