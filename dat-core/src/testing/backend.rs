//! The test device as a backend of the core.

use std::collections::VecDeque;

use super::TestBackend;
use super::device::{Call, Completions, Pair, SharedReceives};
use super::queues::{TestCompletionQueue, TestQueue, TestReceiveQueue, TestSendQueue};
use crate::attributes::{IaAttributes, ProviderAttributes};
use crate::backend::{
    Backend, BackendError, ConnectRequest, ControlEvent, DisconnectMode, DomainKey, Extensions,
    ListenerKey, QueuePair, QueuePairKey, QueuePairRequest, ReceiveInfo, RegionKeys, Registration,
    RequestKey, SharedReceiveQueueKey, SyncDirection, WindowKey,
};
use crate::time::Instant;

#[expect(unsafe_code)]
// SAFETY: it accesses no memory.
unsafe impl Backend for TestBackend {
    type CompletionQueue = TestCompletionQueue;
    type SendQueue = TestSendQueue;
    type ReceiveQueue = TestReceiveQueue;
    type SharedReceiveQueue = TestReceiveQueue;

    const EVENT_DRIVEN: bool = true;
    /// It reads no memory; this makes the core wait for posts as if it did.
    const READS_AT_POST: bool = true;

    fn extensions(&self) -> Extensions {
        self.device().extensions
    }

    fn ia_attributes(&self) -> IaAttributes {
        self.device().ia
    }

    fn provider_attributes(&self) -> ProviderAttributes {
        self.device().provider
    }

    fn create_domain(&mut self) -> Result<DomainKey, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.domains += 1;
        Ok(DomainKey(device.key()))
    }

    fn destroy_domain(&mut self, _domain: DomainKey) {
        self.command().domains -= 1;
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.regions += 1;
        device.calls.push(Call::Register {
            base: registration.base().addr() as u64,
            length: registration.length(),
        });
        let object = device.key();
        let remote = registration.privileges().intersects(
            crate::flags::MemoryPrivileges::REMOTE_READ
                | crate::flags::MemoryPrivileges::REMOTE_WRITE,
        );
        let local = 0x1000 + object as u32;
        device.live.insert(local);
        Ok(RegionKeys {
            object,
            local,
            remote: if remote { 0x2000 + object as u32 } else { 0 },
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        let mut device = self.command();
        device.regions -= 1;
        device.live.remove(&region.local);
        device.calls.push(Call::Deregister(region));
    }

    fn sync(&mut self, direction: SyncDirection, address: u64, length: u64) {
        self.command()
            .calls
            .push(Call::Sync(direction, address, length));
    }

    fn create_window(&mut self, _domain: DomainKey) -> Result<WindowKey, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        let key = device.key();
        device.windows.insert(key, 0);
        Ok(WindowKey(key))
    }

    fn destroy_window(&mut self, window: WindowKey) {
        let gone = self.command().windows.remove(&window.0);
        assert!(gone.is_some(), "no such window");
    }

    fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        let device = self.device();
        missed && device.most_binds.is_some() || device.is_spent(window, true)
    }

    fn create_completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<TestCompletionQueue, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device
            .calls
            .push(Call::CreateCompletionQueue { number, depth });
        let fresh = Completions {
            depth,
            ..Completions::default()
        };
        assert!(device.completions.insert(number, fresh).is_none());
        Ok(TestCompletionQueue {
            backend: self.clone(),
            number,
            last: 0,
        })
    }

    fn resize_completion_queue(
        &mut self,
        queue: &mut TestCompletionQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::ResizeCompletionQueue {
            number: queue.number,
            depth,
        });
        let completions = device
            .completions
            .get_mut(&queue.number)
            .ok_or(BackendError::Device)?;
        completions.depth = depth;
        Ok(())
    }

    fn destroy_completion_queue(&mut self, queue: TestCompletionQueue) {
        let mut device = self.command();
        let number = queue.number;
        let used =
            |pair: &Pair| pair.request_queue == Some(number) || pair.receive_queue == Some(number);
        assert!(!device.pairs.values().any(used), "queue pairs go first");
        device.calls.push(Call::DestroyCompletionQueue { number });
        let left = device.completions.remove(&number);
        for completion in left.into_iter().flat_map(|left| left.queued) {
            device.plain.remove(&completion.token);
        }
    }

    fn create_shared_receive_queue(
        &mut self,
        token: u64,
        _domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, TestReceiveQueue), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        let key = device.key();
        device.shared.insert(
            key,
            SharedReceives {
                token,
                depth,
                segments,
                receives: VecDeque::new(),
            },
        );
        let key = SharedReceiveQueueKey(key);
        let queue = TestReceiveQueue {
            backend: self.clone(),
            queue: TestQueue::Shared(key),
        };
        Ok((key, queue))
    }

    fn resize_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: &mut TestReceiveQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        let shared = device.shared.get_mut(&key.0).ok_or(BackendError::Device)?;
        shared.depth = depth;
        Ok(())
    }

    fn arm_shared_receive_limit(
        &mut self,
        key: SharedReceiveQueueKey,
        limit: u32,
    ) -> Result<bool, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::ArmSharedLimit(key, limit));
        let queue = device.shared.get(&key.0).ok_or(BackendError::Device)?.token;
        let before = device.control.len();
        let earlier = ControlEvent::SharedReceiveLimit { queue };
        device.control.retain(|event| *event != earlier);
        Ok(device.control.len() != before)
    }

    fn shared_receive_available(&self, key: SharedReceiveQueueKey) -> Option<u32> {
        let device = self.device();
        device
            .shared
            .get(&key.0)
            .filter(|_| !device.counts_no_shared)
            .map(|shared| shared.receives.len() as u32)
    }

    fn destroy_shared_receive_queue(
        &mut self,
        key: SharedReceiveQueueKey,
        _queue: TestReceiveQueue,
    ) {
        self.command().shared.remove(&key.0);
    }

    fn create_queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<TestSendQueue, TestReceiveQueue>, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        let key = QueuePairKey(device.key());
        device.calls.push(Call::CreateQueuePair(key));
        device.pairs.insert(
            key.0,
            Pair {
                token: request.token,
                attributes: request.attributes,
                request_queue: request.request_queue,
                receive_queue: request.receive_queue,
                requests: VecDeque::new(),
                receives: VecDeque::new(),
                in_error: false,
            },
        );
        Ok(QueuePair {
            key,
            send: TestSendQueue {
                backend: self.clone(),
                key,
            },
            receive: request
                .shared_receive_queue
                .is_none()
                .then(|| TestReceiveQueue {
                    backend: self.clone(),
                    queue: TestQueue::Receives(key),
                }),
        })
    }

    fn modify_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut TestSendQueue,
        _receive: Option<&mut TestReceiveQueue>,
        request: &QueuePairRequest,
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::ModifyQueuePair(key));
        let pair = device.pairs.get_mut(&key.0).ok_or(BackendError::Device)?;
        pair.attributes = request.attributes;
        pair.request_queue = request.request_queue;
        pair.receive_queue = request.receive_queue;
        Ok(())
    }

    fn reset_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: &mut TestSendQueue,
        _receive: Option<&mut TestReceiveQueue>,
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::ResetQueuePair(key));
        let pair = device.pairs.get_mut(&key.0).ok_or(BackendError::Device)?;
        pair.in_error = false;
        pair.requests.clear();
        pair.receives.clear();
        Ok(())
    }

    fn destroy_queue_pair(
        &mut self,
        key: QueuePairKey,
        _send: TestSendQueue,
        _receive: Option<TestReceiveQueue>,
    ) {
        let step = core::mem::take(&mut self.command().before_destroy);
        if let Some(step) = step.0 {
            step();
        }
        let mut device = self.command();
        device.calls.push(Call::DestroyQueuePair(key));
        device.pairs.remove(&key.0);
    }

    fn set_high_watermarks(
        &mut self,
        key: QueuePairKey,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::HighWatermarks(key, soft, hard));
        Ok(())
    }

    fn receive_info(&self, _key: QueuePairKey) -> ReceiveInfo {
        self.device().receive_info
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        let key = device.key();
        let qualifier = qualifier.unwrap_or(0x1_0000 + key as u64);
        if device.listeners.values().any(|taken| *taken == qualifier) {
            return Err(BackendError::QualifierInUse);
        }
        device.listeners.insert(key, qualifier);
        device.calls.push(Call::Listen { token, qualifier });
        Ok((ListenerKey(key), qualifier))
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        let mut device = self.command();
        device.listeners.remove(&listener.0);
        device.calls.push(Call::StopListening(listener));
    }

    fn connect(
        &mut self,
        key: QueuePairKey,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::Connect {
            key,
            qualifier: request.qualifier,
            private_data: request.private_data.to_vec(),
        });
        Ok(0x8000 + key.0 as u64)
    }

    fn accept(
        &mut self,
        request: RequestKey,
        key: QueuePairKey,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let mut device = self.command();
        device.refuse()?;
        device.calls.push(Call::Accept {
            request,
            key,
            private_data: private_data.to_vec(),
        });
        Ok(())
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        self.command().calls.push(Call::Reject {
            request,
            by_consumer,
            private_data: private_data.to_vec(),
        });
    }

    fn disconnect(&mut self, key: QueuePairKey, mode: DisconnectMode) {
        self.command().calls.push(Call::Disconnect(key, mode));
        self.break_pair(key);
    }

    fn poll_control(&mut self, now: Instant) -> Option<ControlEvent> {
        let mut device = self.device();
        if device.deadline.is_some_and(|deadline| deadline <= now) {
            device.deadline = None;
        }
        device.control.pop_front()
    }

    fn is_quiet(&self) -> bool {
        self.device().control.is_empty()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.device().deadline
    }
}
