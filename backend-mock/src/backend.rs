//! An adapter of the fabric: the implementation of the core's backend.

mod direct;
mod join;

use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::attributes::{IaAttributes, ProviderAttributes};
use dat_core::backend::{
    Backend, BackendError, ConnectFailure, ConnectRequest, ControlEvent, DirectAccess,
    DisconnectMode, DomainKey, Extensions, ListenerKey, PrivateData, QueuePair, QueuePairKey,
    QueuePairRequest, ReceiveInfo, RegionKeys, Registration, RequestKey, SharedReceiveQueueKey,
    SyncDirection, WindowKey,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::RegisteredMemory;
use dat_core::time::Instant;
use dat_queues::{Arc, Owner, PairSetup, SharedReceives, State, Watermarks, room, within};

use crate::attributes;
use crate::fabric::Fabric;
use crate::objects::adapter::Listener;
use crate::objects::completions::Completions;
use crate::objects::control::Subject;
use crate::objects::memories::RemoteKey;
use crate::objects::node::usable;
use crate::objects::queue_pair::{Ending, QueuePair as Pair};
use crate::objects::region::Region;
use crate::objects::window::Window;
use crate::options::{Limits, NodeOptions};
use crate::queues::{MockCompletionQueue, MockExecutor, MockReceiveQueue, MockSendQueue};
use crate::shared::Shared;
use crate::world::World;

/// An adapter of a [`Fabric`].
///
/// Dropping it closes the adapter, as the end of a process does: its connections end, and its
/// regions and listeners are removed.
#[derive(Debug)]
pub struct MockBackend {
    shared: Arc<Shared>,
    adapter: usize,
    control_ready: Arc<AtomicUsize>,
    options: NodeOptions,
}

impl Fabric {
    /// Adds an adapter; it joins the host of its address, if there is one.
    pub fn node(&self, options: NodeOptions) -> MockBackend {
        let control_ready = Arc::new(AtomicUsize::new(0));
        MockBackend {
            shared: Arc::clone(&self.shared),
            adapter: self.add(options, Arc::clone(&control_ready)),
            control_ready,
            options,
        }
    }
}

impl MockBackend {
    /// Returns the fabric of the adapter.
    #[must_use]
    pub fn fabric(&self) -> Fabric {
        Fabric {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns the number of the adapter in fault plans.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.adapter as u16
    }

    /// Returns a handle for a queue.
    fn executor(&self) -> MockExecutor {
        MockExecutor {
            shared: Arc::clone(&self.shared),
            adapter: self.adapter,
        }
    }

    fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut World, usize) -> R) -> R {
        self.shared.enter(|world| act(world, self.adapter))
    }

    /// Runs and counts a control call that can fail.
    ///
    /// The call fails if the host is dead or the fault plan says so.
    fn call<R>(
        &self,
        act: impl FnOnce(&mut World, usize) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.enter(|world, adapter| {
            let count = world.adapters[adapter].control_calls;
            world.adapters[adapter].control_calls = count.wrapping_add(1);
            if world.nodes[world.adapters[adapter].node].crashed {
                return Err(BackendError::Device);
            }
            if world.faults.fails_allocation(adapter as u16, count) {
                return Err(BackendError::Resources);
            }
            act(world, adapter)
        })
    }
}

#[expect(unsafe_code, reason = "the device of this backend is its own code")]
fn registered(registration: &Registration) -> RegisteredMemory {
    // SAFETY: `deregister` and the drop of the backend remove the region with its memory, under the
    // lock that every copy holds.
    unsafe { RegisteredMemory::new(registration) }
}

fn private_data(bytes: &[u8], limits: &Limits) -> Result<PrivateData, BackendError> {
    if bytes.len() > limits.private_data as usize {
        return Err(BackendError::Resources);
    }
    PrivateData::from_slice(bytes).map_err(|_| BackendError::Resources)
}

#[expect(unsafe_code, reason = "the device of this backend is its own code")]
// SAFETY: registered memory is touched only through spans of a `RegisteredMemory`. Each span was
// found by key, privilege and range (see `region`). `deregister` and the drop of the backend remove
// the `RegisteredMemory` under the lock that every copy holds.
unsafe impl Backend for MockBackend {
    type CompletionQueue = MockCompletionQueue;
    type SendQueue = MockSendQueue;
    type ReceiveQueue = MockReceiveQueue;
    type SharedReceiveQueue = MockReceiveQueue;

    fn ia_attributes(&self) -> IaAttributes {
        attributes::adapter(&self.options)
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        let coherent = self.enter(|world, adapter| {
            let node = world.adapters[adapter].node;
            world.nodes[node].coherence.is_none()
        });
        attributes::provider(&self.options, coherent)
    }

    fn extensions(&self) -> Extensions {
        self.options.extensions
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        let limit = self.limits().domains;
        self.call(|world, adapter| {
            let domains = &mut world.adapters[adapter].domains;
            room(domains.len(), limit)?;
            Ok(DomainKey(domains.insert(()) as usize))
        })
    }

    fn destroy_domain(&mut self, domain: DomainKey) {
        self.enter(|world, adapter| world.adapters[adapter].domains.remove(domain.0 as u32));
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        let limit = self.limits().regions;
        self.call(|world, number| {
            let World {
                adapters, nodes, ..
            } = world;
            let adapter = &mut adapters[number];
            let memories = &mut adapter.memories;
            room(memories.regions.len(), limit)?;
            let remote_rights = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
            let opens = registration.privileges().intersects(remote_rights);
            let local = memories.regions.insert(Region {
                memory: registered(registration),
                domain: registration.domain(),
                privileges: registration.privileges(),
                remote: 0,
            });
            let mut remote = 0;
            if opens {
                remote = memories.remote_keys.insert(RemoteKey::Region(local));
            }
            if let Some(region) = memories.regions.get_mut(local) {
                region.remote = remote;
                let (start, length) = (region.memory.address(), region.memory.length());
                if let (Some(coherence), Some(span)) = (
                    &mut nodes[adapter.node].coherence,
                    region.memory.span(start, length),
                ) {
                    coherence.pin((number, local), start, span);
                }
            }
            Ok(RegionKeys {
                object: local as usize,
                local,
                remote,
            })
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.enter(|world, adapter| world.deregister(adapter, region.local));
    }

    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64) {
        self.enter(|world, adapter| world.sync(adapter, direction, address, length));
        // Orders earlier stores of other threads before this call, and their later loads after it
        // (LSW-31).
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    fn create_window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        if !self.options.memory_windows {
            return Err(BackendError::NotSupported);
        }
        let limit = self.limits().windows;
        self.call(|world, adapter| {
            let windows = &mut world.adapters[adapter].memories.windows;
            room(windows.len(), limit)?;
            let key = windows.insert(Window {
                domain,
                bound: None,
            });
            Ok(WindowKey(key as usize))
        })
    }

    fn destroy_window(&mut self, window: WindowKey) {
        self.enter(|world, adapter| {
            world.adapters[adapter]
                .memories
                .remove_window(window.0 as u32);
        });
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<MockCompletionQueue, BackendError> {
        let limits = *self.limits();
        let ready = Arc::new(AtomicUsize::new(0));
        let queue = Completions::new(depth, Arc::clone(&ready));
        self.call(|world, adapter| {
            let adapter = &mut world.adapters[adapter];
            room(adapter.completion_queues.count(), limits.completion_queues)?;
            within(depth, limits.completions)?;
            adapter.completion_queues.insert(number, queue)
        })?;
        Ok(MockCompletionQueue::new(self.executor(), number, ready))
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut MockCompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let limit = self.limits().completions;
        self.call(|world, adapter| {
            let queue = world.adapters[adapter].completion_queue(queue.number());
            let queue = queue.ok_or(BackendError::State)?;
            within(depth, limit)?;
            queue.ring.resize(depth);
            Ok(())
        })
    }

    fn destroy_completion_queue(&mut self, queue: MockCompletionQueue) {
        self.enter(|world, adapter| {
            let adapter = &mut world.adapters[adapter];
            adapter.completion_queues.remove(queue.number());
            let subject = Subject::Completions(queue.number());
            adapter.control.forget(subject);
        });
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, MockReceiveQueue), BackendError> {
        let limits = *self.limits();
        let key = self.call(|world, adapter| {
            let queues = &mut world.adapters[adapter].shared_receives;
            room(queues.len(), limits.shared_receive_queues)?;
            within(depth, limits.shared_buffers)?;
            within(segments, limits.segments)?;
            Ok(queues.insert(SharedReceives::new(token, domain)))
        })?;
        let owner = Owner::Shared(key);
        let queue = MockReceiveQueue::new(self.executor(), owner, depth as usize);
        Ok((SharedReceiveQueueKey(key as usize), queue))
    }

    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        queue: &mut MockReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let limit = self.limits().shared_buffers;
        self.call(|world, adapter| {
            let state = world.adapters[adapter]
                .shared_receives
                .get_mut(key.0 as u32);
            let state = state.ok_or(BackendError::State)?;
            within(depth, limit)?;
            if state.outstanding() + queue.committed() > depth as usize {
                return Err(BackendError::State);
            }
            Ok(())
        })?;
        queue.set_depth(depth as usize);
        Ok(())
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        self.call(|world, adapter| {
            let node = &mut world.adapters[adapter];
            let queue = node
                .shared_receives
                .get_mut(key.0 as u32)
                .ok_or(BackendError::State)?;
            queue.arm(limit);
            let earlier = Subject::Limit(queue.token);
            let withdrawn = node.control.forget(earlier);
            world.check_limit(adapter, key.0 as u32);
            Ok(withdrawn)
        })
    }

    fn shared_receive_available(&self, key: SharedReceiveQueueKey) -> Option<u32> {
        if !self.options.shared_receive_information {
            return None;
        }
        self.enter(|world, adapter| {
            let queue = world.adapters[adapter].shared_receives.get(key.0 as u32)?;
            Some(queue.available() as u32)
        })
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: MockReceiveQueue,
    ) {
        self.enter(|world, adapter| {
            let adapter = &mut world.adapters[adapter];
            if let Some(queue) = adapter.shared_receives.remove(key.0 as u32) {
                let queue = queue.token;
                adapter.control.forget(Subject::Limit(queue));
                adapter.control.forget(Subject::Failure(queue));
            }
        });
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<MockSendQueue, MockReceiveQueue>, BackendError> {
        let limits = *self.limits();
        let pair = Pair::new(self.adapter, request);
        let setup = pair.setup;
        let key = self.call(|world, adapter| {
            let used = world.adapters[adapter].queue_pairs.len();
            room(used, limits.queue_pairs)?;
            world.check_queue_pair(adapter, request, &limits)?;
            let key = world.queue_pairs.insert(pair);
            world.adapters[adapter].queue_pairs.insert(key);
            world.use_completion_queues(key, true);
            Ok(key)
        })?;
        let send = MockSendQueue::new(self.executor(), key, setup.request_depth);
        let receive = setup.shared.is_none().then(|| {
            let owner = Owner::Pair(key);
            MockReceiveQueue::new(self.executor(), owner, setup.receive_depth)
        });
        Ok(QueuePair {
            key: QueuePairKey(key as usize),
            send,
            receive,
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut MockSendQueue,
        receive: Option<&mut MockReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let limits = *self.limits();
        let setup = PairSetup::new(request);
        self.call(|world, adapter| {
            world.check_queue_pair(adapter, request, &limits)?;
            let key = key.0 as u32;
            let pair = world.queue_pairs.get(key).ok_or(BackendError::State)?;
            let receives = request.attributes.max_recv_dtos;
            let shrinks = i32::try_from(pair.receives.len()).is_ok_and(|posted| receives < posted);
            if pair.state != State::Unconnected || (shrinks && pair.setup.shared.is_none()) {
                return Err(BackendError::State);
            }
            if pair.setup.shared != setup.shared {
                return Err(BackendError::NotSupported);
            }
            world.use_completion_queues(key, false);
            let pair = world.queue_pairs.get_mut(key).ok_or(BackendError::State)?;
            pair.setup = setup;
            world.use_completion_queues(key, true);
            Ok(())
        })?;
        send.set_depth(setup.request_depth);
        if let Some(receive) = receive {
            receive.set_depth(setup.receive_depth);
        }
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        send: &mut MockSendQueue,
        receive: Option<&mut MockReceiveQueue>,
    ) -> Result<(), BackendError> {
        self.enter(|world, adapter| {
            let pair = world.queue_pairs.get_mut(key.0 as u32);
            let pair = pair.ok_or(BackendError::State)?;
            if pair.state != State::Error {
                return Err(BackendError::State);
            }
            pair.state = State::Unconnected;
            pair.peer = None;
            pair.connection = 0;
            pair.ticking = false;
            pair.halted = false;
            pair.retries = 0;
            pair.receiver_not_ready = 0;
            let subject = Subject::Connection(pair.setup.token);
            world.clear_queues(key.0 as u32);
            world.adapters[adapter].control.forget(subject);
            Ok(())
        })?;
        send.clear();
        if let Some(receive) = receive {
            receive.clear();
        }
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: MockSendQueue,
        _receive: Option<MockReceiveQueue>,
    ) {
        self.enter(|world, _| world.destroy_queue_pair(key.0 as u32));
    }

    fn set_high_watermarks(
        &mut self,
        key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        self.call(|world, _| {
            let pair = world.queue_pairs.get_mut(key.0 as u32);
            let pair = pair.ok_or(BackendError::State)?;
            pair.watermarks = Watermarks { soft, hard };
            world.check_watermarks(key.0 as u32);
            Ok(())
        })
    }

    fn receive_info(&self, key: QueuePairKey) -> ReceiveInfo {
        if !self.options.receive_information {
            return ReceiveInfo::default();
        }
        self.enter(|world, _| {
            let pair = world.queue_pairs.get(key.0 as u32);
            pair.map(Pair::receive_info).unwrap_or_default()
        })
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let dynamic = self.limits().dynamic_qualifiers;
        self.call(|world, adapter| {
            let qualifiers = &mut world.nodes[world.adapters[adapter].node].qualifiers;
            let is_chosen = qualifier.is_none();
            let qualifier = match qualifier {
                Some(qualifier) if qualifiers.get(qualifier).is_some() => {
                    return Err(BackendError::QualifierInUse);
                }
                Some(qualifier) => qualifier,
                None => qualifiers
                    .choose(dynamic)
                    .ok_or(BackendError::QualifierUnavailable)?,
            };
            let key = world.adapters[adapter].listeners.insert(Listener {
                qualifier,
                token,
                waiting: 0,
            });
            qualifiers.take(qualifier, is_chosen, (adapter, key));
            Ok((ListenerKey(key as usize), qualifier))
        })
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.enter(|world, adapter| world.stop_listening(adapter, listener.0 as u32));
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        if !usable(self.options.address, request.address) {
            return Err(BackendError::Address);
        }
        let data = private_data(request.private_data, self.limits())?;
        self.call(|world, _| {
            let pair = world.queue_pairs.get(key.0 as u32);
            if pair.is_none_or(|pair| pair.state != State::Unconnected) {
                return Err(BackendError::State);
            }
            let key = key.0 as u32;
            Ok(world.request_connection(key, request.address, request.qualifier, data))
        })
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let data = private_data(bytes, self.limits())?;
        self.call(|world, adapter| {
            let pair = world.queue_pairs.get(key.0 as u32);
            if pair.is_none_or(|pair| pair.state != State::Unconnected || pair.adapter != adapter) {
                return Err(BackendError::State);
            }
            let request = world.adapters[adapter].take_request(request.0 as u32);
            let request = request.ok_or(BackendError::State)?;
            world.accept_request(request, key.0 as u32, data);
            Ok(())
        })
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, bytes: &[u8]) {
        let kept = bytes.get(..self.limits().private_data as usize);
        let data = PrivateData::from_slice(kept.unwrap_or(bytes)).unwrap_or_default();
        self.enter(|world, adapter| {
            if let Some(request) = world.adapters[adapter].take_request(request.0 as u32) {
                let failure = if by_consumer {
                    ConnectFailure::PeerRejected(data)
                } else {
                    ConnectFailure::NonPeerRejected
                };
                world.refuse_request(adapter, &request, failure);
            }
        });
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        let there = match mode {
            DisconnectMode::Graceful | DisconnectMode::Abrupt => Ending::Disconnected,
            DisconnectMode::Broken => Ending::Broken,
        };
        self.enter(|world, adapter| {
            let key = key.0 as u32;
            if world
                .queue_pairs
                .get(key)
                .is_some_and(|pair| pair.state == State::Unconnected)
            {
                return;
            }
            world.end_connection(key, None, there);
            if let Some(pair) = world.queue_pairs.get(key) {
                let subject = Subject::Connection(pair.setup.token);
                world.adapters[adapter].control.forget(subject);
            }
        });
    }

    fn poll_control(&mut self, _now: Instant) -> Option<ControlEvent> {
        if self.control_ready.load(Ordering::Acquire) == 0 && self.shared.poll_steps() {
            self.shared.enter(World::step);
        }
        if self.control_ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.enter(|world, adapter| world.adapters[adapter].control.pop())
    }

    fn direct_access(&mut self) -> Option<&mut dyn DirectAccess> {
        Some(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        // The adapter has no timer of its own; everything happens in steps of the fabric.
        None
    }
}

impl Drop for MockBackend {
    fn drop(&mut self) {
        self.enter(World::close);
    }
}
