//! State of the test device: queues, queue pairs and the log of calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes};
use crate::backend::{
    BINDS_UNDER_WAY, BackendError, BindRequest, Completion, ControlEvent, DeviceFailure,
    DisconnectMode, ExtendedRequest, Extensions, ListenerKey, QueuePairKey, ReceiveInfo,
    ReceiveRequest, RegionKeys, RequestKey, Segment, SendRequest, SharedReceiveQueueKey,
    SyncDirection, WindowKey,
};
use crate::flags::DtoStatus;
use crate::time::Instant;

/// A work request of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send(SendRequest),
    Bind(BindRequest),
    Extended(ExtendedRequest),
    Receive(ReceiveRequest),
}

impl Work {
    pub(crate) fn token(&self) -> u64 {
        match self {
            Self::Send(request) => request.token,
            Self::Bind(request) => request.token,
            Self::Extended(request) => request.token,
            Self::Receive(request) => request.token,
        }
    }
}

/// A posted work request with its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) work: Work,
    pub(crate) segments: Vec<Segment>,
}

/// A call of the core other than posts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Register {
        base: u64,
        length: usize,
    },
    Deregister(RegionKeys),
    Sync(SyncDirection, u64, u64),
    CreateCompletionQueue {
        number: u32,
        depth: u32,
    },
    ResizeCompletionQueue {
        number: u32,
        depth: u32,
    },
    DestroyCompletionQueue {
        number: u32,
    },
    ArmSharedLimit(SharedReceiveQueueKey, u32),
    CreateQueuePair(QueuePairKey),
    ModifyQueuePair(QueuePairKey),
    ResetQueuePair(QueuePairKey),
    DestroyQueuePair(QueuePairKey),
    HighWatermarks(QueuePairKey, Option<u32>, Option<u32>),
    Listen {
        token: u64,
        qualifier: u64,
    },
    StopListening(ListenerKey),
    Connect {
        key: QueuePairKey,
        qualifier: u64,
        private_data: Vec<u8>,
    },
    Accept {
        request: RequestKey,
        key: QueuePairKey,
        private_data: Vec<u8>,
    },
    Reject {
        request: RequestKey,
        by_consumer: bool,
        private_data: Vec<u8>,
    },
    Disconnect(QueuePairKey, DisconnectMode),
}

#[derive(Debug, Default)]
pub(super) struct Completions {
    pub(super) depth: u32,
    pub(super) queued: VecDeque<Completion>,
    /// Set if armed; true inside for solicited completions only.
    pub(super) armed: Option<bool>,
    /// Completions that arrive during attempts to arm, one each, and control events with them.
    pub(super) slipping: VecDeque<(Completion, Option<ControlEvent>)>,
    pub(super) failure: Option<DeviceFailure>,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) token: u64,
    pub(super) attributes: EpAttributes,
    pub(super) request_queue: Option<u32>,
    pub(super) receive_queue: Option<u32>,
    pub(super) requests: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    pub(super) in_error: bool,
}

#[derive(Debug)]
pub(super) struct SharedReceives {
    pub(super) token: u64,
    pub(super) depth: u32,
    pub(super) segments: u32,
    pub(super) receives: VecDeque<Posted>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) ia: IaAttributes,
    pub(super) provider: ProviderAttributes,
    pub(super) next_key: usize,
    pub(super) completions: BTreeMap<u32, Completions>,
    pub(super) pairs: BTreeMap<usize, Pair>,
    pub(super) shared: BTreeMap<usize, SharedReceives>,
    pub(super) listeners: BTreeMap<usize, u64>,
    pub(super) domains: usize,
    /// Number of binds of each window, by key.
    pub(super) windows: BTreeMap<usize, usize>,
    /// Maximum number of binds before a window needs renewal.
    pub(super) most_binds: Option<usize>,
    pub(super) regions: usize,
    /// Keys for local segments of all regions.
    pub(super) live: BTreeSet<u32>,
    pub(super) control: VecDeque<ControlEvent>,
    pub(super) calls: Vec<Call>,
    /// Results of the next calls that can fail.
    pub(super) refusals: VecDeque<Result<(), BackendError>>,
    /// Number of requests that the next doorbell refuses.
    pub(super) doorbell_refuses: u32,
    /// Number of next reservations that fail.
    pub(super) without_room: u32,
    pub(super) doorbells: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) before_destroy: Step,
    /// Set if `peek` returns plain successes.
    pub(super) peeks: bool,
    pub(super) refuses_polls: bool,
    /// Lengths of plain successes, by token: bytes received, or `u32::MAX` for requests.
    pub(super) plain: BTreeMap<u64, u32>,
    /// Immediate values of completions, by token.
    pub(super) immediates: BTreeMap<u64, u32>,
    pub(super) extensions: Extensions,
    /// Set if the device cannot count the buffers of shared queues.
    pub(super) counts_no_shared: bool,
    /// Receive information of all queue pairs.
    pub(super) receive_info: ReceiveInfo,
    pub(super) during_post: Step,
}

/// A step to run once during a call.
#[derive(Default)]
pub(super) struct Step(pub(super) Option<std::boxed::Box<dyn FnOnce() + Send>>);

impl core::fmt::Debug for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Step").field(&self.0.is_some()).finish()
    }
}

impl Device {
    pub(super) fn key(&mut self) -> usize {
        self.next_key += 1;
        self.next_key
    }

    /// Returns true if a window lacks keys for the next bind.
    pub(super) fn is_spent(&self, window: WindowKey, is_only: bool) -> bool {
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        let had = self.windows.get(&window.0).copied().unwrap_or(0);
        self.most_binds.is_some_and(|most| had + needed > most)
    }

    /// Takes the result for a call that can fail.
    pub(super) fn refuse(&mut self) -> Result<(), BackendError> {
        self.refusals.pop_front().unwrap_or(Ok(()))
    }

    pub(super) fn complete(&mut self, queue: Option<u32>, completion: Completion) {
        let Some(number) = queue else { return };
        let Some(completions) = self.completions.get_mut(&number) else {
            return;
        };
        if completions.queued.len() >= completions.depth as usize {
            completions.failure = Some(DeviceFailure::CompletionQueueOverrun);
            self.plain.remove(&completion.token);
            return;
        }
        completions.queued.push_back(completion);
        let heard = match completions.armed {
            None => false,
            Some(false) => true,
            Some(true) => completion.solicited || completion.status != DtoStatus::Success,
        };
        if heard {
            completions.armed = None;
            self.control
                .push_back(ControlEvent::Completions { queue: number });
        }
    }

    /// Completes all posted work of a queue pair in error as flushed.
    pub(super) fn flush(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(&key) else {
            return;
        };
        if !pair.in_error {
            return;
        }
        let (request_queue, receive_queue) = (pair.request_queue, pair.receive_queue);
        let token = pair.token;
        let requests: Vec<_> = pair.requests.drain(..).collect();
        let receives: Vec<_> = pair.receives.drain(..).collect();
        let flushed = |posted: &Posted| Completion {
            token: posted.work.token(),
            status: DtoStatus::Flushed,
            length: 0,
            queue_pair: token,
            solicited: false,
        };
        for posted in &requests {
            self.complete(request_queue, flushed(posted));
        }
        for posted in &receives {
            self.complete(receive_queue, flushed(posted));
        }
    }
}
