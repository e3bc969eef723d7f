//! What the test device holds: queues, queue pairs, and the log of calls.

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

/// What a work request asked for.
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

/// What the core asked the device for, besides posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Register {
        base: u64,
        length: usize,
    },
    Deregister(RegionKeys),
    Sync(SyncDirection, u64, u64),
    CreateCompletionQueue {
        number: u16,
        depth: u32,
    },
    ResizeCompletionQueue {
        number: u16,
        depth: u32,
    },
    DestroyCompletionQueue {
        number: u16,
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
    /// Armed, for solicited completions only if true inside.
    pub(super) armed: Option<bool>,
    /// Completions that slip in while the queue is being armed.
    pub(super) slipping: VecDeque<Completion>,
    pub(super) failure: Option<DeviceFailure>,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) token: u64,
    pub(super) attributes: EpAttributes,
    pub(super) request_queue: Option<u16>,
    pub(super) receive_queue: Option<u16>,
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
    pub(super) completions: BTreeMap<u16, Completions>,
    pub(super) pairs: BTreeMap<usize, Pair>,
    pub(super) shared: BTreeMap<usize, SharedReceives>,
    pub(super) listeners: BTreeMap<usize, u64>,
    pub(super) domains: usize,
    /// Keys of the windows, and how many binds each has had.
    pub(super) windows: BTreeMap<usize, usize>,
    /// Binds that a window takes before it has to be replaced.
    pub(super) most_binds: Option<usize>,
    pub(super) regions: usize,
    /// Keys of the regions for local segments.
    pub(super) live: BTreeSet<u32>,
    pub(super) control: VecDeque<ControlEvent>,
    pub(super) calls: Vec<Call>,
    /// What the next calls that can fail come to.
    pub(super) refusals: VecDeque<Result<(), BackendError>>,
    /// The next doorbell finds the device unwilling.
    pub(super) doorbell_refuses: u32,
    /// Reservations that find no room.
    pub(super) without_room: u32,
    pub(super) doorbells: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) before_destroy: Step,
    /// `peek` sees plain successes.
    pub(super) peeks: bool,
    /// What looks tell of successes, by their tokens: bytes received, or `u32::MAX`.
    pub(super) plain: BTreeMap<u64, u32>,
    /// Numbers that come with completions, by their tokens.
    pub(super) immediates: BTreeMap<u64, u32>,
    pub(super) extensions: Extensions,
    /// It cannot tell how many buffers a shared queue has.
    pub(super) counts_no_shared: bool,
    /// What it tells of the receives of any queue pair.
    pub(super) receive_info: ReceiveInfo,
    pub(super) during_post: Step,
}

/// Something that happens once in the middle of a call.
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

    /// Whether a window does not take the next bind for want of keys.
    pub(super) fn is_spent(&self, window: WindowKey, is_only: bool) -> bool {
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        let had = self.windows.get(&window.0).copied().unwrap_or(0);
        self.most_binds.is_some_and(|most| had + needed > most)
    }

    /// The error the test wants the next call to fail with.
    pub(super) fn refuse(&mut self) -> Result<(), BackendError> {
        self.refusals.pop_front().unwrap_or(Ok(()))
    }

    pub(super) fn complete(&mut self, queue: Option<u16>, completion: Completion) {
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

    /// Everything posted to a queue pair in error completes flushed.
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
