//! What a test makes the device do, and what it can ask of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::device::{Call, Device, Posted, Step};
use super::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES};
use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes};
use crate::backend::{
    BackendError, Completion, ControlEvent, DeviceFailure, Extensions, QueuePairKey, ReceiveInfo,
    SharedReceiveQueueKey, WindowKey,
};
use crate::flags::DtoStatus;
use crate::time::Instant;

/// The device under an adapter, and the test's hand on it.
#[derive(Clone, Debug)]
pub(crate) struct TestBackend(Arc<Mutex<Device>>);

impl Default for TestBackend {
    fn default() -> Self {
        Self::new(IA_ATTRIBUTES, PROVIDER_ATTRIBUTES)
    }
}

impl TestBackend {
    pub(crate) fn new(ia: IaAttributes, provider: ProviderAttributes) -> Self {
        Self(Arc::new(Mutex::new(Device {
            ia,
            provider,
            next_key: 0,
            completions: BTreeMap::new(),
            pairs: BTreeMap::new(),
            shared: BTreeMap::new(),
            listeners: BTreeMap::new(),
            domains: 0,
            windows: BTreeMap::new(),
            most_binds: None,
            regions: 0,
            live: BTreeSet::new(),
            control: VecDeque::new(),
            calls: Vec::new(),
            refusals: VecDeque::new(),
            doorbell_refuses: 0,
            without_room: 0,
            doorbells: 0,
            deadline: None,
            before_destroy: Step::default(),
            peeks: false,
            plain: BTreeMap::new(),
            immediates: BTreeMap::new(),
            extensions: Extensions::empty(),
            counts_no_shared: false,
            receive_info: ReceiveInfo::default(),
            during_post: Step::default(),
        })))
    }

    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call that can fail fails with this.
    pub(crate) fn refuse_next(&self, error: BackendError) {
        self.device().refusals.push_back(Err(error));
    }

    /// The next call that can fail, behind those that were spoken of, does not.
    pub(crate) fn pass_next(&self) {
        self.device().refusals.push_back(Ok(()));
    }

    /// The device does not take the newest requests that the next doorbell tells it of, so many.
    pub(crate) fn refuse_doorbell(&self, newest: u32) {
        self.device().doorbell_refuses = newest;
    }

    /// The next `count` reservations find no room, whatever the depth of the queue.
    pub(crate) fn withhold_room(&self, count: u32) {
        self.device().without_room = count;
    }

    /// Doorbells since this was asked last.
    pub(crate) fn take_doorbells(&self) -> usize {
        core::mem::take(&mut self.device().doorbells)
    }

    /// What happens before the device destroys the next queue pair.
    #[cfg(feature = "std")]
    pub(crate) fn before_destroy(&self, step: impl FnOnce() + Send + 'static) {
        self.device().before_destroy = Step(Some(std::boxed::Box::new(step)));
    }

    /// What happens while the next request is posted: the core has looked at it, the device has not taken it.
    #[cfg(feature = "std")]
    pub(crate) fn during_post(&self, step: impl FnOnce() + Send + 'static) {
        self.device().during_post = Step(Some(std::boxed::Box::new(step)));
    }

    /// A control event that `progress` will find.
    pub(crate) fn push_control(&self, event: ControlEvent) {
        self.device().control.push_back(event);
    }

    /// When the device wants to be asked again.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.device().deadline = deadline;
    }

    /// Has each window take so many binds before it has to be replaced, as after one that was missed.
    pub(crate) fn limit_binds(&self, most: usize) {
        self.device().most_binds = Some(most);
    }

    /// Whether the device has this window.
    pub(crate) fn has_window(&self, window: WindowKey) -> bool {
        self.device().windows.contains_key(&window.0)
    }

    /// What the core asked for since the last look.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        core::mem::take(&mut self.device().calls)
    }

    /// Objects the device has now: domains, regions, windows, completion queues, queue pairs,
    /// shared receive queues, listeners.
    pub(crate) fn objects(&self) -> [usize; 7] {
        let device = self.device();
        [
            device.domains,
            device.regions,
            device.windows.len(),
            device.completions.len(),
            device.pairs.len(),
            device.shared.len(),
            device.listeners.len(),
        ]
    }

    /// The queue pair with this token.
    pub(crate) fn pair(&self, token: u64) -> Option<QueuePairKey> {
        let device = self.device();
        let (key, _) = device.pairs.iter().find(|(_, pair)| pair.token == token)?;
        Some(QueuePairKey(*key))
    }

    /// The attributes a queue pair was made with, or last changed to.
    pub(crate) fn pair_attributes(&self, key: QueuePairKey) -> Option<EpAttributes> {
        self.device().pairs.get(&key.0).map(|pair| pair.attributes)
    }

    /// What is posted to a queue pair and not completed: requests, receives.
    pub(crate) fn posted(&self, key: QueuePairKey) -> (Vec<Posted>, Vec<Posted>) {
        let device = self.device();
        device
            .pairs
            .get(&key.0)
            .map_or_else(Default::default, |pair| {
                (
                    pair.requests.iter().cloned().collect(),
                    pair.receives.iter().cloned().collect(),
                )
            })
    }

    /// Buffers on a shared receive queue.
    pub(crate) fn shared_posted(&self, key: SharedReceiveQueueKey) -> Vec<Posted> {
        let device = self.device();
        device
            .shared
            .get(&key.0)
            .map_or_else(Vec::new, |shared| shared.receives.iter().cloned().collect())
    }

    /// Loses the buffers of a shared receive queue.
    #[cfg(feature = "std")]
    pub(crate) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        if let Some(shared) = self.device().shared.get_mut(&key.0) {
            shared.receives.clear();
        }
    }

    /// Completes the oldest request of a queue pair; false if there is none.
    pub(crate) fn complete_request(&self, key: QueuePairKey, status: DtoStatus) -> bool {
        let mut device = self.device();
        let Some(pair) = device.pairs.get_mut(&key.0) else {
            return false;
        };
        let Some(posted) = pair.requests.pop_front() else {
            return false;
        };
        let queue = pair.request_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length: 0,
            queue_pair: pair.token,
            solicited: false,
        };
        if status == DtoStatus::Success {
            device.plain.insert(completion.token, u32::MAX);
        }
        device.complete(queue, completion);
        true
    }

    /// Completes the oldest receive of a queue pair; false if there is none.
    pub(crate) fn complete_receive(
        &self,
        key: QueuePairKey,
        status: DtoStatus,
        length: u32,
        solicited: bool,
    ) -> bool {
        let mut device = self.device();
        let Some(pair) = device.pairs.get_mut(&key.0) else {
            return false;
        };
        let Some(posted) = pair.receives.pop_front() else {
            return false;
        };
        let queue = pair.receive_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length,
            queue_pair: pair.token,
            solicited,
        };
        if status == DtoStatus::Success && !device.immediates.contains_key(&completion.token) {
            device.plain.insert(completion.token, length);
        }
        device.complete(queue, completion);
        true
    }

    /// The oldest receive of a queue pair completes with a number, for a write of so many bytes.
    pub(crate) fn complete_with_number(&self, key: QueuePairKey, length: u32, number: u32) -> bool {
        let token = self
            .device()
            .pairs
            .get(&key.0)
            .and_then(|pair| Some(pair.receives.front()?.work.token()));
        if let Some(token) = token {
            self.device().immediates.insert(token, number);
        }
        self.complete_receive(key, DtoStatus::Success, length, false)
    }

    /// A number comes with what will be in the buffer at `position` of a shared receive queue.
    pub(crate) fn number_shared(
        &self,
        shared: SharedReceiveQueueKey,
        position: usize,
        number: u32,
    ) {
        let mut device = self.device();
        let token = device
            .shared
            .get(&shared.0)
            .and_then(|shared| Some(shared.receives.get(position)?.work.token()));
        if let Some(token) = token {
            device.immediates.insert(token, number);
        }
    }

    /// What the device has beyond the interface; to be said before it is opened.
    pub(crate) fn set_extensions(&self, extensions: Extensions) {
        self.device().extensions = extensions;
    }

    /// Whether plain successes can be taken otherwise than by polls.
    pub(crate) fn set_peeks(&self, peeks: bool) {
        self.device().peeks = peeks;
    }

    /// The device cannot tell how many buffers a shared receive queue has.
    pub(crate) fn count_no_shared(&self) {
        self.device().counts_no_shared = true;
    }

    /// What the device tells of the receives of any queue pair.
    pub(crate) fn report_receives(&self, info: ReceiveInfo) {
        self.device().receive_info = info;
    }

    /// A queue pair takes the buffer at `position` of a shared receive queue and completes it.
    pub(crate) fn complete_shared(
        &self,
        shared: SharedReceiveQueueKey,
        position: usize,
        consuming_endpoint: QueuePairKey,
        status: DtoStatus,
        length: u32,
    ) -> bool {
        let mut device = self.device();
        let posted = device
            .shared
            .get_mut(&shared.0)
            .and_then(|shared| shared.receives.remove(position));
        let (Some(posted), Some(pair)) = (posted, device.pairs.get(&consuming_endpoint.0)) else {
            return false;
        };
        let queue = pair.receive_queue;
        let completion = Completion {
            token: posted.work.token(),
            status,
            length,
            queue_pair: pair.token,
            solicited: false,
        };
        device.complete(queue, completion);
        true
    }

    /// Puts any completion into a completion queue, also one no real device would make.
    pub(crate) fn inject(&self, queue: u16, completion: Completion) {
        self.device().complete(Some(queue), completion);
    }

    /// A completion that shows up between a poll that found nothing and the arming.
    pub(crate) fn inject_before_arming(&self, queue: u16, completion: Completion) {
        if let Some(completions) = self.device().completions.get_mut(&queue) {
            completions.slipping.push_back(completion);
        }
    }

    /// A completion queue fails for good.
    pub(crate) fn fail_queue(&self, queue: u16, failure: DeviceFailure) {
        let mut device = self.device();
        if let Some(completions) = device.completions.get_mut(&queue) {
            completions.failure = Some(failure);
            if completions.armed.take().is_some() {
                device
                    .control
                    .push_back(ControlEvent::Completions { queue });
            }
        }
    }

    /// Whether a completion queue is armed, and if so for solicited completions only.
    pub(crate) fn armed(&self, queue: u16) -> Option<bool> {
        self.device()
            .completions
            .get(&queue)
            .and_then(|completions| completions.armed)
    }

    /// The connection ended: what is posted is flushed.
    pub(crate) fn break_pair(&self, key: QueuePairKey) {
        let mut device = self.device();
        if let Some(pair) = device.pairs.get_mut(&key.0) {
            pair.in_error = true;
        }
        device.flush(key.0);
    }
}
