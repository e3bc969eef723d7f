//! The endpoint object: what a post needs first, then the rest.

use portable_atomic::{AtomicU32, Ordering};

use super::state::{Call, Legal, Trigger, legal, next};
use crate::attributes::{EpAttributes, IaAddress};
use crate::backend::{PrivateData, QueuePairKey};
use crate::event::EvdConfig;
use crate::flags::{CompletionFlags, EndpointState};
use crate::id::EpId;
use crate::record::{self, NO_RECORD, RecordSlot, Report};
use crate::sync::{Mutex, RawLock, Word64};
use crate::time::Instant;

/// Place for one endpoint.
pub struct EndpointSlot<S, R, L> {
    /// The handle of the endpoint that lives here, or 0; for completions, which take no endpoint lock.
    pub(crate) handle: Word64,
    requests_completed: AtomicU32,
    receives_completed: AtomicU32,
    /// How completions of buffers taken from a shared queue are reported.
    shared_report: AtomicU32,
    /// The shared queue whose buffers may be taken by whoever lives here, plus one; 0 = none.
    takes_from: AtomicU32,
    pub(crate) main: Mutex<L, Endpoint<S>>,
    pub(crate) receive: Mutex<L, ReceiveSide<R>>,
}

impl<S, R, L: RawLock> EndpointSlot<S, R, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        handle: Word64::new(0),
        requests_completed: AtomicU32::new(0),
        receives_completed: AtomicU32::new(0),
        shared_report: AtomicU32::new(0),
        takes_from: AtomicU32::new(0),
        main: Mutex::new(Endpoint::EMPTY),
        receive: Mutex::new(ReceiveSide::EMPTY),
    };
}

impl<S, R, L: RawLock> EndpointSlot<S, R, L> {
    /// The receive dispatcher if the endpoint here takes from this shared receive queue.
    pub(crate) fn receive_evd_on(&self, srq: u16) -> Option<u16> {
        self.main.with(|endpoint| {
            if endpoint.srq == Some(srq) {
                endpoint.receive_evd
            } else {
                None
            }
        })
    }
}

impl<S, R, L> EndpointSlot<S, R, L> {
    /// Books one completed request, or receive of the endpoint's own queue; called under the lock of
    /// the one dispatcher that gets them.
    #[inline(always)]
    pub(crate) fn count_completion(&self, received: bool) {
        let counter = if received {
            &self.receives_completed
        } else {
            &self.requests_completed
        };
        let count = counter.load(Ordering::Relaxed);
        counter.store(count.wrapping_add(1), Ordering::Release);
    }

    /// Requests that ever completed; compare with `Endpoint::ring.posted`.
    pub(crate) fn requests_completed(&self) -> u32 {
        self.requests_completed.load(Ordering::Acquire)
    }

    /// Receives that ever completed; compare with `ReceiveSide::ring.posted`.
    pub(crate) fn receives_completed(&self) -> u32 {
        self.receives_completed.load(Ordering::Acquire)
    }

    /// Starts counting anew, with nothing posted.
    pub(crate) fn reset_counts(&self) {
        self.requests_completed.store(0, Ordering::Relaxed);
        self.receives_completed.store(0, Ordering::Relaxed);
    }

    /// Whether a completion may say that the endpoint of this handle took a buffer of this shared queue.
    pub(crate) fn is_taker(&self, handle: u64, srq: u16) -> bool {
        self.handle.load() == handle
            && self.takes_from.load(Ordering::Relaxed) == u32::from(srq).wrapping_add(1)
    }

    /// Ties whoever moves in here to a shared queue, or to none.
    pub(crate) fn set_taken_queue(&self, srq: Option<u16>) {
        let word = srq.map_or(0, |srq| u32::from(srq).wrapping_add(1));
        self.takes_from.store(word, Ordering::Relaxed);
    }

    pub(crate) fn shared_receive_report(&self) -> Report {
        Report::from_word(self.shared_report.load(Ordering::Relaxed))
    }

    pub(crate) fn set_shared_receive_report(&self, report: Report) {
        self.shared_report
            .store(report.to_word(), Ordering::Relaxed);
    }
}

/// A run of records used as a ring: the head is free, or the queue is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRing {
    pub(crate) base: u32,
    pub(crate) capacity: u32,
    head: u32,
    /// Requests ever posted.
    pub(crate) posted: u32,
}

impl WorkRing {
    pub(crate) const EMPTY: Self = Self::new(0, 0);

    /// A ring of `capacity` records; one without any starts behind all records, so that it is full.
    pub(crate) const fn new(base: u32, capacity: u32) -> Self {
        Self {
            base: if capacity == 0 { NO_RECORD } else { base },
            capacity,
            head: 0,
            posted: 0,
        }
    }

    /// The record for the next post; `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn next<'r>(&self, records: &'r [RecordSlot]) -> Option<(u32, &'r RecordSlot)> {
        let index = self.base.wrapping_add(self.head);
        let record = records.get(index as usize)?;
        record.is_free().then_some((index, record))
    }

    /// Moves past the record that was just posted.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        let next = self.head.wrapping_add(1);
        self.head = if next == self.capacity { 0 } else { next };
        self.posted = self.posted.wrapping_add(1);
    }

    /// Takes the newest posts back that the device did not take.
    #[cold]
    pub(crate) fn retreat(&mut self, records: &[RecordSlot], count: u32) {
        for _ in 0..count.min(self.capacity) {
            self.head = match self.head.checked_sub(1) {
                Some(previous) => previous,
                None => self.capacity.wrapping_sub(1),
            };
            self.posted = self.posted.wrapping_sub(1);
            if let Some(record) = records.get(self.base.wrapping_add(self.head) as usize) {
                record.withdraw();
            }
        }
    }

    /// The records of the ring.
    pub(crate) fn records<'r>(&self, records: &'r [RecordSlot]) -> &'r [RecordSlot] {
        record::run(records, self.base, self.capacity)
    }
}

/// An endpoint behind its main lock. Posting requests needs the first part only.
#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    /// The handle while requests may be posted, else one that nobody can ask for: state and identity
    /// in one compare.
    pub(crate) postable: EpId,
    /// The zone's tag as in a region's `meta` word.
    pub(crate) zone_tag: u32,
    /// Completion flags that a request post must not carry.
    pub(crate) refused_flags: CompletionFlags,
    pub(crate) max_send_segments: u32,
    pub(crate) max_write_segments: u32,
    pub(crate) max_read_segments: u32,
    pub(crate) max_message_size: u32,
    pub(crate) max_rdma_size: u32,
    pub(crate) ring: WorkRing,
    pub(crate) send: Option<S>,

    pub(crate) id: EpId,
    pub(crate) generation: u32,
    pub(crate) state: EndpointState,
    pub(crate) zone: Option<u16>,
    pub(crate) receive_evd: Option<u16>,
    pub(crate) request_evd: Option<u16>,
    /// The request dispatcher, if there is one, was not made for bind events (EVC-05).
    pub(crate) refuses_binds: bool,
    pub(crate) connect_evd: Option<u16>,
    pub(crate) srq: Option<u16>,
    /// Completions that the endpoint may have outstanding at its receive dispatcher.
    pub(crate) receive_places: u32,
    /// The queue pair, once zone and dispatchers allow one.
    pub(crate) queue_pair: Option<QueuePairKey>,
    pub(crate) attributes: EpAttributes,
    pub(crate) link: Link,
    pub(crate) soft_high_watermark: i32,
    pub(crate) hard_high_watermark: i32,
    pub(crate) context: u64,
}

/// What an endpoint knows of its connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) remote: Option<IaAddress>,
    pub(crate) qualifier: u64,
    pub(crate) remote_port: u64,
    pub(crate) local_port: u64,
    pub(crate) deadline: Option<Instant>,
    /// The peer showed a sign of life (EPK-10).
    pub(crate) answered: bool,
    /// Private data of ESTABLISHED, valid until the endpoint is freed or unconnected again (EVW-13).
    pub(crate) private_data: PrivateData,
}

impl Link {
    pub(crate) const NONE: Self = Self {
        remote: None,
        qualifier: 0,
        remote_port: 0,
        local_port: 0,
        deadline: None,
        answered: false,
        private_data: PrivateData::new(),
    };
}

impl<S> Endpoint<S> {
    pub(crate) const EMPTY: Self = Self {
        postable: EpId::NULL,
        zone_tag: 0,
        refused_flags: CompletionFlags::empty(),
        max_send_segments: 0,
        max_write_segments: 0,
        max_read_segments: 0,
        max_message_size: 0,
        max_rdma_size: 0,
        ring: WorkRing::EMPTY,
        send: None,
        id: EpId::NULL,
        generation: 0,
        state: EndpointState::Unconnected,
        zone: None,
        receive_evd: None,
        request_evd: None,
        refuses_binds: false,
        connect_evd: None,
        srq: None,
        receive_places: 0,
        queue_pair: None,
        attributes: EpAttributes::DEFAULT,
        link: Link::NONE,
        soft_high_watermark: crate::flags::WATERMARK_INFINITE,
        hard_high_watermark: crate::flags::WATERMARK_INFINITE,
        context: 0,
    };

    /// Goes where `trigger` leads; false if it means nothing in this state. The only place that
    /// changes the state of a living endpoint.
    pub(crate) fn step(&mut self, trigger: Trigger) -> bool {
        let Some(state) = next(self.state, trigger) else {
            return false;
        };
        self.state = state;
        self.refresh_postable();
        true
    }

    /// Brings `postable` up to date after a change of what it stands for.
    pub(crate) fn refresh_postable(&mut self) {
        let postable = legal(Call::PostRequest, self.state) != Legal::Invalid;
        self.postable = if postable && self.send.is_some() {
            self.id
        } else {
            self.id.unaskable()
        };
    }

    /// How completions of this endpoint shape the waits of a dispatcher that gets its requests.
    pub(crate) fn request_config(attributes: &EpAttributes) -> EvdConfig {
        if attributes.request_completion_flags == CompletionFlags::UNSIGNALLED {
            EvdConfig::Notify
        } else {
            EvdConfig::Threshold
        }
    }

    /// As `request_config`, for receives.
    pub(crate) fn receive_config(attributes: &EpAttributes) -> EvdConfig {
        if attributes.recv_completion_flags == CompletionFlags::UNSIGNALLED {
            EvdConfig::Notify
        } else if attributes.recv_completion_flags == CompletionFlags::SOLICITED_WAIT {
            EvdConfig::Solicited
        } else {
            EvdConfig::Threshold
        }
    }
}

/// The receiving side of an endpoint behind its own lock.
#[derive(Debug)]
pub(crate) struct ReceiveSide<R> {
    /// The handle while receives may be posted, else one that nobody can ask for.
    pub(crate) postable: EpId,
    pub(crate) zone_tag: u32,
    pub(crate) refused_flags: CompletionFlags,
    pub(crate) max_segments: u32,
    /// How its completions are reported, but for the flag of a post.
    pub(crate) report: Report,
    pub(crate) ring: WorkRing,
    pub(crate) queue: Option<R>,
}

impl<R> ReceiveSide<R> {
    pub(crate) const EMPTY: Self = Self {
        postable: EpId::NULL,
        zone_tag: 0,
        refused_flags: CompletionFlags::empty(),
        max_segments: 0,
        report: Report::NOTIFY,
        ring: WorkRing::EMPTY,
        queue: None,
    };
}
