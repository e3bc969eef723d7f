//! Control of the test device by a test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::device::{Call, Device, Posted, Step};
use super::{IA_ATTRIBUTES, MASKED, PROVIDER_ATTRIBUTES};
use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes};
use crate::backend::{
    BackendError, Completion, ControlEvent, DeviceFailure, Extensions, QueuePairKey, ReceiveInfo,
    SharedReceiveQueueKey, WindowKey,
};
use crate::flags::DtoStatus;
use crate::time::Instant;

/// The device of an adapter, shared with the test.
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
            refuses_polls: false,
            plain: BTreeMap::new(),
            immediates: BTreeMap::new(),
            extensions: Extensions::empty(),
            counts_no_shared: false,
            receive_info: ReceiveInfo::default(),
            during_post: Step::default(),
        })))
    }

    /// Locks the device for a command, which takes its time.
    pub(super) fn command(&self) -> MutexGuard<'_, Device> {
        assert_eq!(MASKED.get(), 0, "a command with interrupts masked");
        self.device()
    }

    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next call that can fail return this error.
    pub(crate) fn refuse_next(&self, error: BackendError) {
        self.device().refusals.push_back(Err(error));
    }

    /// Makes the next call that can fail succeed, after the results set before.
    pub(crate) fn pass_next(&self) {
        self.device().refusals.push_back(Ok(()));
    }

    /// Forgets the results of the next calls that `refuse_next` and `pass_next` set.
    pub(crate) fn refuse_no_more(&self) {
        self.device().refusals.clear();
    }

    /// Makes the next doorbell refuse the `newest` requests.
    pub(crate) fn refuse_doorbell(&self, newest: u32) {
        self.device().doorbell_refuses = newest;
    }

    /// Makes the next `count` reservations fail, whatever the depth of the queue.
    pub(crate) fn withhold_room(&self, count: u32) {
        self.device().without_room = count;
    }

    /// Returns the number of doorbells since the last call.
    pub(crate) fn take_doorbells(&self) -> usize {
        core::mem::take(&mut self.device().doorbells)
    }

    /// Sets a step to run before the device destroys the next queue pair.
    #[cfg(feature = "std")]
    pub(crate) fn before_destroy(&self, step: impl FnOnce() + Send + 'static) {
        self.device().before_destroy = Step(Some(std::boxed::Box::new(step)));
    }

    /// Sets a step to run during the next post, between the core's checks and the device.
    #[cfg(feature = "std")]
    pub(crate) fn during_post(&self, step: impl FnOnce() + Send + 'static) {
        self.device().during_post = Step(Some(std::boxed::Box::new(step)));
    }

    /// Adds a control event for `progress`.
    pub(crate) fn push_control(&self, event: ControlEvent) {
        self.device().control.push_back(event);
    }

    /// Returns the number of completions that `inject_before_arming` has not delivered yet.
    pub(crate) fn slipping(&self, queue: u32) -> usize {
        let device = self.device();
        device
            .completions
            .get(&queue)
            .map_or(0, |completions| completions.slipping.len())
    }

    /// Sets the device's next deadline.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.device().deadline = deadline;
    }

    /// Limits the binds per window before it needs renewal; a missed bind needs it too.
    pub(crate) fn limit_binds(&self, most: usize) {
        self.device().most_binds = Some(most);
    }

    /// Returns true if the device has this window.
    pub(crate) fn has_window(&self, window: WindowKey) -> bool {
        self.device().windows.contains_key(&window.0)
    }

    /// Returns the core's calls since the last call of this function.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        core::mem::take(&mut self.device().calls)
    }

    /// Returns the numbers of objects.
    ///
    /// In order: domains, regions, windows, completion queues, queue pairs, shared receive queues,
    /// listeners.
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

    /// Returns the queue pair with this token.
    pub(crate) fn pair(&self, token: u64) -> Option<QueuePairKey> {
        let device = self.device();
        let (key, _) = device.pairs.iter().find(|(_, pair)| pair.token == token)?;
        Some(QueuePairKey(*key))
    }

    /// Returns the attributes that a queue pair was created with, or last changed to.
    pub(crate) fn pair_attributes(&self, key: QueuePairKey) -> Option<EpAttributes> {
        self.device().pairs.get(&key.0).map(|pair| pair.attributes)
    }

    /// Returns the posted and not completed requests and receives of a queue pair.
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

    /// Returns the buffers on a shared receive queue.
    pub(crate) fn shared_posted(&self, key: SharedReceiveQueueKey) -> Vec<Posted> {
        let device = self.device();
        device
            .shared
            .get(&key.0)
            .map_or_else(Vec::new, |shared| shared.receives.iter().cloned().collect())
    }

    /// Drops the buffers of a shared receive queue.
    #[cfg(feature = "std")]
    pub(crate) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        if let Some(shared) = self.device().shared.get_mut(&key.0) {
            shared.receives.clear();
        }
    }

    /// Completes the oldest request of a queue pair; returns false without one.
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

    /// Completes the oldest receive of a queue pair; returns false without one.
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

    /// Completes the oldest receive of a queue pair with an immediate value, for `length` bytes
    /// written.
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

    /// Adds an immediate value to the completion of the buffer at `position` of a shared queue.
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

    /// Sets the extended operations of the device; call it before the adapter is opened.
    pub(crate) fn set_extensions(&self, extensions: Extensions) {
        self.device().extensions = extensions;
    }

    /// Enables or disables `peek` of plain successes.
    pub(crate) fn set_peeks(&self, peeks: bool) {
        self.device().peeks = peeks;
    }

    /// Sets whether polls find nothing because they would wait.
    pub(crate) fn set_refuses_polls(&self, refuses: bool) {
        self.device().refuses_polls = refuses;
    }

    /// Makes the device unable to count the buffers of shared receive queues.
    pub(crate) fn count_no_shared(&self) {
        self.device().counts_no_shared = true;
    }

    /// Sets the receive information of all queue pairs.
    pub(crate) fn report_receives(&self, info: ReceiveInfo) {
        self.device().receive_info = info;
    }

    /// Completes the buffer at `position` of a shared receive queue on a queue pair.
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

    /// Adds any completion to a completion queue, even one that no real device makes.
    pub(crate) fn inject(&self, queue: u32, completion: Completion) {
        self.device().complete(Some(queue), completion);
    }

    /// Adds a completion that arrives between a poll without result and the arming.
    pub(crate) fn inject_before_arming(&self, queue: u32, completion: Completion) {
        self.inject_with_event(queue, completion, None);
    }

    /// Adds a completion as `inject_before_arming`, and a control event that arrives with it.
    pub(crate) fn inject_with_event(
        &self,
        queue: u32,
        completion: Completion,
        event: Option<ControlEvent>,
    ) {
        if let Some(completions) = self.device().completions.get_mut(&queue) {
            completions.slipping.push_back((completion, event));
        }
    }

    /// Makes a completion queue fail permanently.
    pub(crate) fn fail_queue(&self, queue: u32, failure: DeviceFailure) {
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

    /// Returns the arming of a completion queue: true inside for solicited completions only.
    pub(crate) fn armed(&self, queue: u32) -> Option<bool> {
        self.device()
            .completions
            .get(&queue)
            .and_then(|completions| completions.armed)
    }

    /// Breaks a connection: flushes all posted work of the queue pair.
    pub(crate) fn break_pair(&self, key: QueuePairKey) {
        let mut device = self.device();
        if let Some(pair) = device.pairs.get_mut(&key.0) {
            pair.in_error = true;
        }
        device.flush(key.0);
    }
}
