//! Queues of the test device.

use std::vec::Vec;

use super::TestBackend;
use super::device::{Posted, Work};
use crate::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, ExtendedRequest, Peek,
    QueuePairKey, ReceiveRequest, Rejected, Segment, SendOperation, SendQueue, SendRequest,
    SharedReceiveQueueKey, WorkQueue, WorkSlot,
};

/// A completion queue of the test device.
#[derive(Debug)]
pub(crate) struct TestCompletionQueue {
    pub(super) backend: TestBackend,
    pub(super) number: u32,
    /// Token of the completion polled last.
    pub(super) last: u64,
}

impl CompletionQueue for TestCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        let mut device = self.backend.device();
        let device = &mut *device;
        if device.refuses_polls {
            return Ok(None);
        }
        let Some(completions) = device.completions.get_mut(&self.number) else {
            return Err(DeviceFailure::Broken);
        };
        match (completions.queued.pop_front(), completions.failure) {
            (Some(completion), _) => {
                self.last = completion.token;
                device.plain.remove(&completion.token);
                Ok(Some(completion))
            }
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }

    fn was_refused(&self) -> bool {
        self.backend.device().refuses_polls
    }

    fn peek(&mut self) -> Peek {
        let device = self.backend.device();
        if device.refuses_polls {
            return Peek::Other;
        }
        let Some(completions) = device.completions.get(&self.number) else {
            return Peek::Other;
        };
        let Some(first) = completions.queued.front() else {
            return match completions.failure {
                Some(_) => Peek::Other,
                None if device.peeks => Peek::Empty,
                None => Peek::Other,
            };
        };
        match device.plain.get(&first.token) {
            Some(&length) if device.peeks => Peek::Success {
                token: first.token,
                length,
            },
            _ => Peek::Other,
        }
    }

    fn skip(&mut self) {
        let mut device = self.backend.device();
        let device = &mut *device;
        if let Some(completions) = device.completions.get_mut(&self.number)
            && let Some(first) = completions.queued.pop_front()
        {
            device.plain.remove(&first.token);
        }
    }

    fn immediate(&mut self) -> Option<u32> {
        self.backend.device().immediates.remove(&self.last)
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        let mut device = self.backend.device();
        let device = &mut *device;
        let Some(completions) = device.completions.get_mut(&self.number) else {
            return Armed::Armed;
        };
        if let Some((completion, event)) = completions.slipping.pop_front() {
            completions.queued.push_back(completion);
            device.control.extend(event);
        }
        if completions.queued.is_empty() && completions.failure.is_none() {
            completions.armed = Some(solicited_only);
            Armed::Armed
        } else {
            Armed::Missed
        }
    }
}

/// Queue of the device that a post goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum TestQueue {
    Requests(QueuePairKey),
    Receives(QueuePairKey),
    Shared(SharedReceiveQueueKey),
}

/// A send queue of the test device.
#[derive(Debug)]
pub(crate) struct TestSendQueue {
    pub(super) backend: TestBackend,
    pub(super) key: QueuePairKey,
}

/// A receive queue of the test device, shared or not.
#[derive(Debug)]
pub(crate) struct TestReceiveQueue {
    pub(super) backend: TestBackend,
    pub(super) queue: TestQueue,
}

/// A reserved slot in a queue of the test device.
#[derive(Debug)]
pub(crate) struct TestSlot<'a> {
    backend: &'a TestBackend,
    queue: TestQueue,
    room: usize,
    segments: Vec<Segment>,
}

impl<'a> TestSlot<'a> {
    fn reserve(backend: &'a TestBackend, queue: TestQueue, segments: usize) -> Option<Self> {
        let mut device = backend.device();
        if let Some(left) = device.without_room.checked_sub(1) {
            device.without_room = left;
            return None;
        }
        let (length, limit) = match queue {
            TestQueue::Requests(key) => {
                let pair = device.pairs.get(&key.0)?;
                (pair.requests.len(), pair.attributes.max_request_dtos)
            }
            TestQueue::Receives(key) => {
                let pair = device.pairs.get(&key.0)?;
                (pair.receives.len(), pair.attributes.max_recv_dtos)
            }
            TestQueue::Shared(key) => {
                let shared = device.shared.get(&key.0)?;
                assert!(
                    segments <= shared.segments as usize,
                    "more segments than the shared queue was made for"
                );
                (shared.receives.len(), shared.depth as i32)
            }
        };
        ((length as i64) < i64::from(limit)).then(|| Self {
            backend,
            queue,
            room: segments,
            segments: Vec::new(),
        })
    }

    fn add(&mut self, segment: Segment) {
        assert!(
            self.segments.len() < self.room,
            "more segments than reserved"
        );
        self.segments.push(segment);
    }

    fn publish(self, work: Work) -> Result<(), Rejected> {
        let empty = self.segments.iter().any(|segment| segment.length == 0);
        assert!(!empty, "a backend commits no empty segments");
        let step = core::mem::take(&mut self.backend.device().during_post);
        if let Some(step) = step.0 {
            step();
        }
        let mut device = self.backend.device();
        for segment in &self.segments {
            assert!(
                device.live.contains(&segment.key),
                "a post reads memory of a freed region"
            );
        }
        if device.refuse().is_err() {
            return Err(Rejected);
        }
        let posted = Posted {
            work,
            segments: self.segments,
        };
        match self.queue {
            TestQueue::Requests(key) => {
                let pair = device.pairs.get_mut(&key.0).ok_or(Rejected)?;
                pair.requests.push_back(posted);
                device.flush(key.0);
            }
            TestQueue::Receives(key) => {
                let pair = device.pairs.get_mut(&key.0).ok_or(Rejected)?;
                pair.receives.push_back(posted);
                device.flush(key.0);
            }
            TestQueue::Shared(key) => {
                let shared = device.shared.get_mut(&key.0).ok_or(Rejected)?;
                shared.receives.push_back(posted);
            }
        }
        Ok(())
    }
}

/// Rings the doorbell of a queue, which may refuse and drop the newest requests.
fn ring(backend: &TestBackend, queue: TestQueue) -> Result<(), u32> {
    let mut device = backend.device();
    device.doorbells = device.doorbells.wrapping_add(1);
    let refused = core::mem::take(&mut device.doorbell_refuses);
    if refused == 0 {
        return Ok(());
    }
    let posted = match queue {
        TestQueue::Requests(key) => device.pairs.get_mut(&key.0).map(|pair| &mut pair.requests),
        TestQueue::Receives(key) => device.pairs.get_mut(&key.0).map(|pair| &mut pair.receives),
        TestQueue::Shared(key) => device
            .shared
            .get_mut(&key.0)
            .map(|shared| &mut shared.receives),
    };
    let posted = posted.expect("a queue");
    for _ in 0..refused {
        posted.pop_back().expect("so many were committed");
    }
    Err(refused)
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub(crate) struct TestSendSlot<'a>(TestSlot<'a>, SendRequest);

impl WorkSlot for TestSendSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.0.add(segment);
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        let request = self.1;
        let local: u64 = self
            .0
            .segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum();
        // The segments of an RDMA Read may be longer than the data.
        if !matches!(request.operation, SendOperation::RdmaRead(_)) {
            assert_eq!(
                local,
                u64::from(length),
                "the length is the sum of the segments"
            );
        }
        self.0.publish(Work::Send(request))
    }
}

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub(crate) struct TestReceiveSlot<'a>(TestSlot<'a>, ReceiveRequest);

impl WorkSlot for TestReceiveSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.0.add(segment);
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        let segments = self.0.segments.iter();
        let sum: u64 = segments.map(|segment| u64::from(segment.length)).sum();
        assert_eq!(
            sum,
            u64::from(length),
            "the length is the sum of the segments"
        );
        self.0.publish(Work::Receive(self.1))
    }
}

impl WorkQueue for TestSendQueue {
    type Request = SendRequest;
    type Slot<'a> = TestSendSlot<'a>;

    fn reserve(&mut self, request: &SendRequest, segments: usize) -> Option<TestSendSlot<'_>> {
        TestSlot::reserve(&self.backend, TestQueue::Requests(self.key), segments)
            .map(|slot| TestSendSlot(slot, *request))
    }

    fn ring(&mut self) -> Result<(), u32> {
        ring(&self.backend, TestQueue::Requests(self.key))
    }
}

impl SendQueue for TestSendQueue {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let queue = TestQueue::Requests(self.key);
        if self
            .backend
            .device()
            .is_spent(request.window, request.is_only)
        {
            return Err(Rejected);
        }
        let slot = TestSlot::reserve(&self.backend, queue, 0).ok_or(Rejected)?;
        slot.publish(Work::Bind(*request))?;
        ring(&self.backend, queue).map_err(|_| Rejected)?;
        let mut device = self.backend.device();
        let binds = device.windows.get_mut(&request.window.0);
        *binds.expect("a window of the device") += 1;
        Ok(device.key() as u32)
    }

    fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        let queue = TestQueue::Requests(self.key);
        let slot = TestSlot::reserve(&self.backend, queue, segments.len());
        let mut slot = slot.ok_or(Rejected)?;
        let mut sum = 0;
        for segment in segments {
            sum += segment.length;
            slot.add(*segment);
        }
        assert_eq!(sum, request.length, "the length is the sum of the segments");
        slot.publish(Work::Extended(*request))?;
        ring(&self.backend, queue).map_err(|_| Rejected)
    }
}

impl WorkQueue for TestReceiveQueue {
    type Request = ReceiveRequest;
    type Slot<'a> = TestReceiveSlot<'a>;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<TestReceiveSlot<'_>> {
        TestSlot::reserve(&self.backend, self.queue, segments)
            .map(|slot| TestReceiveSlot(slot, *request))
    }

    fn ring(&mut self) -> Result<(), u32> {
        ring(&self.backend, self.queue)
    }
}
