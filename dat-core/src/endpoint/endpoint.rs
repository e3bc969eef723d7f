//! Endpoint object; the fields that a post needs come first.

use super::srq::SharingLinks;
use super::state::{Call, Legal, Trigger, legal, next};
use crate::attributes::{EpAttributes, IaAddress};
use crate::backend::{PrivateData, QueuePairKey};
use crate::event::DtoOperation;
use crate::event::EvdConfig;
use crate::flags::{CompletionFlags, EndpointState};
use crate::id::{EpId, Index};
use crate::memory::RmrTriplet;
use crate::record::{
    FreeRecord, NO_RECORD, Posting, Reach, RecordKind, RecordSlot, Records, Report,
};
use crate::storage::{SlotLink, VisitLink};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, RawLock, Word64};
use crate::time::Instant;

/// Slot for one endpoint.
///
/// On hosts its address has four spare bits, in which the C libraries name kind and backend.
#[repr(C)]
#[cfg_attr(any(feature = "std", target_pointer_width = "64"), repr(align(16)))]
pub struct EndpointSlot<S, R, L> {
    pub(crate) main: Mutex<L, Endpoint<S>>,
    /// Handle of the endpoint, or 0; for completions, which take no endpoint lock.
    pub(crate) handle: Word64,
    /// Report mode of completions of a shared queue's buffers, and `FAILED`.
    shared_report: AtomicU32,
    /// Shared queue whose buffers the endpoint may take, plus 1; 0 if none.
    takes_from: AtomicU32,
    /// Link in the list of watched endpoints.
    pub(crate) watch: SlotLink,
    /// Links in the list of the endpoints of its shared queue.
    pub(crate) sharing: SharingLinks,
    /// Link in the list of endpoints that may be posting.
    pub(crate) posting: VisitLink,
    pub(crate) receive: Mutex<L, ReceiveSide<R>>,
}

/// Bit beside a report mode: a completion reported the failure of the connection.
const FAILED: u32 = 1 << 31;

impl<S, R, L: RawLock> EndpointSlot<S, R, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        handle: Word64::new(0),
        shared_report: AtomicU32::new(0),
        takes_from: AtomicU32::new(0),
        watch: SlotLink::NONE,
        sharing: SharingLinks::NONE,
        posting: VisitLink::NONE,
        main: Mutex::new(Endpoint::EMPTY),
        receive: Mutex::new(ReceiveSide::EMPTY),
    };

    /// Returns true if the slot holds an endpoint.
    pub(crate) fn is_live(&self) -> bool {
        self.main.with(|endpoint| !endpoint.id.is_null())
    }
}

impl<S, R, L: RawLock> EndpointSlot<S, R, L> {
    /// Returns true if the endpoint uses this shared receive queue.
    pub(super) fn uses_srq(&self, srq: Index) -> bool {
        self.main.with(|endpoint| endpoint.srq == Some(srq))
    }

    /// Returns the receive dispatcher if the endpoint uses this shared receive queue.
    pub(crate) fn receive_evd_on(&self, srq: Index) -> Option<Index> {
        let endpoint = self.main.lock_unparked()?;
        if endpoint.srq == Some(srq) {
            endpoint.receive_evd
        } else {
            None
        }
    }
}

impl<S, R, L> EndpointSlot<S, R, L> {
    /// Returns true if the endpoint of this handle may consume buffers of this shared queue.
    pub(crate) fn is_consuming(&self, handle: u64, srq: Index) -> bool {
        self.handle.load() == handle
            && self.takes_from.load(Ordering::Relaxed) == srq.get().wrapping_add(1)
    }

    /// Sets the shared queue of the slot's endpoint, or none.
    pub(crate) fn set_taken_queue(&self, srq: Option<Index>) {
        let word = srq.map_or(0, |srq| srq.get().wrapping_add(1));
        self.takes_from.store(word, Ordering::Relaxed);
    }

    pub(crate) fn shared_receive_report(&self) -> Report {
        Report::from_word(self.shared_report.load(Ordering::Relaxed))
    }

    /// Notes that a completion reported the failure of the connection.
    pub(crate) fn note_failure(&self) {
        self.shared_report.fetch_or(FAILED, Ordering::Relaxed);
    }

    /// Takes the note of a failed connection; returns false if there is none.
    pub(crate) fn take_failure(&self) -> bool {
        let noted = |word: u32| word & FAILED != 0;
        noted(self.shared_report.load(Ordering::Relaxed))
            && noted(self.shared_report.fetch_and(!FAILED, Ordering::Relaxed))
    }

    pub(crate) fn set_shared_receive_report(&self, report: Report) {
        self.shared_report
            .store(report.to_word(), Ordering::Relaxed);
    }
}

/// A run of records used as a ring.
///
/// If the next record is not free, the queue is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRing {
    pub(crate) base: u32,
    pub(crate) capacity: u32,
    /// Index past the last record.
    end: u32,
    /// Number of posts until the ring wraps; the next record is `end - left`.
    left: u32,
}

impl WorkRing {
    pub(crate) const EMPTY: Self = Self::new(0, 0);

    /// Creates a ring of `capacity` records.
    ///
    /// With capacity 0 it starts past all records, so it is always full.
    pub(crate) const fn new(base: u32, capacity: u32) -> Self {
        let base = if capacity == 0 { NO_RECORD } else { base };
        Self {
            base,
            capacity,
            end: base.wrapping_add(capacity),
            left: capacity,
        }
    }

    /// Returns the record for the next post; `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn next<'r>(&self, records: &'r Records<'_>) -> Option<FreeRecord<'r>> {
        let next = self.end.wrapping_sub(self.left);
        records.get(next as usize)?.free(next)
    }

    /// Advances past the record that was just posted.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.left = self.capacity;
        }
    }

    /// Undoes the newest `count` posts, which the device did not take.
    #[cold]
    pub(crate) fn rollback(&mut self, records: &Records<'_>, count: u32) {
        for _ in 0..count.min(self.capacity) {
            self.left = if self.left == self.capacity {
                1
            } else {
                self.left.wrapping_add(1)
            };
            let index = self.end.wrapping_sub(self.left);
            if let Some(record) = records.get(index as usize) {
                record.rollback();
            }
        }
    }

    /// Returns the records of the ring.
    pub(crate) fn records<'r>(&self, records: &'r Records<'_>) -> &'r [RecordSlot] {
        records.run(self.base, self.capacity)
    }

    /// Returns true if no request of the ring is pending at the device.
    pub(crate) fn is_idle(&self, records: &Records<'_>) -> bool {
        !self.records(records).iter().any(RecordSlot::is_posted)
    }
}

/// Kind of a receive's record.
pub(super) const RECEIVE: RecordKind = RecordKind::Dto(DtoOperation::Receive);

/// Maximum number of bytes, which fits in 32 bits.
///
/// It has the width of the lengths that it is compared with. With the feature `compact` it has 32
/// bits, to save memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(
    #[cfg(not(feature = "compact"))] u64,
    #[cfg(feature = "compact")] u32,
);

impl Limit {
    pub(crate) const NONE: Self = Self(0);

    #[cfg(not(feature = "compact"))]
    pub(crate) fn new(bytes: u32) -> Self {
        Self(bytes.into())
    }

    #[cfg(feature = "compact")]
    pub(crate) fn new(bytes: u32) -> Self {
        Self(bytes)
    }

    #[cfg(not(feature = "compact"))]
    #[inline(always)]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    #[cfg(feature = "compact")]
    #[inline(always)]
    pub(crate) const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    // The counts have the width of the values that they are compared with.
    pub(crate) send_segments: usize,
    pub(crate) write_segments: usize,
    pub(crate) read_segments: usize,
    // 0 if no segment is allowed.
    pub(crate) send_size: Limit,
    pub(crate) write_size: Limit,
    pub(crate) read_size: Limit,
}

impl RequestLimits {
    pub(crate) const NONE: Self = Self {
        send_segments: 0,
        write_segments: 0,
        read_segments: 0,
        send_size: Limit::NONE,
        write_size: Limit::NONE,
        read_size: Limit::NONE,
    };

    #[inline(always)]
    pub(super) const fn segments(&self, operation: DtoOperation) -> usize {
        match operation {
            DtoOperation::Send | DtoOperation::Receive => self.send_segments,
            DtoOperation::RdmaWrite => self.write_segments,
            DtoOperation::RdmaRead => self.read_segments,
        }
    }

    /// Returns the number of bytes to move for segments of `total` bytes.
    ///
    /// A read moves the whole remote range, other operations move all segments. `None` if that
    /// exceeds the endpoint's limit or the receiving range.
    #[inline(always)]
    pub(super) fn extent(
        &self,
        operation: DtoOperation,
        total: u64,
        remote: &RmrTriplet,
    ) -> Option<u32> {
        let (length, most) = match operation {
            DtoOperation::Send => (total, self.send_size),
            DtoOperation::RdmaWrite if total <= remote.length => (total, self.write_size),
            DtoOperation::RdmaRead if remote.length <= total => (remote.length, self.read_size),
            _ => return None,
        };
        (length <= most.get()).then_some(length as u32)
    }
}

/// Endpoint, protected by its main lock; a post of a request needs only the first fields.
#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    /// The handle if the common way may post, else a value that never matches it.
    ///
    /// One compare checks both state and identity. With `READS_AT_POST`, the endpoint is then in
    /// the list of those that may be posting.
    pub(crate) postable: EpId,
    /// The handle while binds may be posted, else a value that never matches it.
    pub(crate) bindable: EpId,
    /// Zone as in a region's seal; 0 without a zone.
    pub(crate) zone_seal: u64,
    /// Completion flags that a request post must not carry.
    pub(crate) refused_flags: CompletionFlags,
    pub(crate) limits: RequestLimits,
    pub(crate) ring: WorkRing,
    pub(crate) send: Option<S>,

    pub(crate) id: EpId,
    pub(crate) generation: u32,
    pub(crate) state: EndpointState,
    /// Set while requests may be posted. `postable` may be unset; the slow way sets it.
    pub(crate) may_post: bool,
    pub(crate) zone: Option<u16>,
    pub(crate) receive_evd: Option<Index>,
    pub(crate) request_evd: Option<Index>,
    /// Set if the request dispatcher lacks the bind stream (EVC-05).
    pub(crate) refuses_binds: bool,
    pub(crate) connect_evd: Option<Index>,
    pub(crate) srq: Option<Index>,
    /// Maximum number of outstanding completions at its receive dispatcher.
    pub(crate) receive_capacity: u32,
    /// Queue pair; `None` until the endpoint has a zone.
    pub(crate) queue_pair: Option<QueuePairKey>,
    pub(crate) attributes: EpAttributes,
    pub(crate) connection: ConnectionData,
    pub(crate) soft_high_watermark: i32,
    pub(crate) hard_high_watermark: i32,
    pub(crate) context: u64,
    pub(crate) reach: Reach,
}

/// Connection data of an endpoint.
#[derive(Debug)]
pub(crate) struct ConnectionData {
    pub(crate) remote: Option<IaAddress>,
    pub(crate) qualifier: u64,
    pub(crate) remote_port: u64,
    pub(crate) local_port: u64,
    pub(crate) deadline: Option<Instant>,
    /// Set if the peer has replied (EPK-10).
    pub(crate) answered: bool,
    /// Private data of ESTABLISHED, valid until the endpoint is freed or UNCONNECTED again
    /// (EVW-13).
    pub(crate) private_data: PrivateData,
}

impl ConnectionData {
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
        bindable: EpId::NULL,
        zone_seal: 0,
        refused_flags: CompletionFlags::empty(),
        limits: RequestLimits::NONE,
        ring: WorkRing::EMPTY,
        send: None,
        id: EpId::NULL,
        generation: 0,
        state: EndpointState::Unconnected,
        may_post: false,
        zone: None,
        receive_evd: None,
        request_evd: None,
        refuses_binds: false,
        connect_evd: None,
        srq: None,
        receive_capacity: 0,
        queue_pair: None,
        attributes: EpAttributes::DEFAULT,
        connection: ConnectionData::NONE,
        soft_high_watermark: crate::flags::WATERMARK_INFINITE,
        hard_high_watermark: crate::flags::WATERMARK_INFINITE,
        context: 0,
        reach: Reach::NONE,
    };

    /// Clears the slot; keeps the generation of the last endpoint.
    #[inline(never)]
    pub(crate) fn clear_slot(&mut self, generation: u32) {
        *self = Self {
            generation,
            ..Self::EMPTY
        };
    }

    /// Changes the state by `trigger`; returns false if it has no transition in this state.
    ///
    /// Nothing else changes the state of a live endpoint.
    pub(crate) fn step(&mut self, trigger: Trigger) -> bool {
        let Some(state) = next(self.state, trigger) else {
            return false;
        };
        self.state = state;
        self.refresh_postable();
        true
    }

    /// Returns true if the endpoint's limit of outstanding reads is 0, so none could start.
    ///
    /// The specification leaves the result of such a read open (EPB-05). The core refuses it, since
    /// the device would hold it forever or break the connection.
    pub(super) const fn reads_nothing(&self) -> bool {
        self.attributes.max_rdma_read_out == 0
    }

    /// Updates `may_post` and `bindable` after a change of state, send queue or dispatcher.
    ///
    /// Unsets `postable`: the next post takes the slow way, which sets it.
    pub(crate) fn refresh_postable(&mut self) {
        self.may_post =
            legal(Call::PostRequest, self.state) != Legal::Invalid && self.send.is_some();
        self.bindable = if self.may_post && !self.refuses_binds {
            self.id
        } else {
            self.id.never_matching()
        };
        self.suspend_posts();
    }

    /// Makes the next post take the slow way, which enters the list of endpoints that may post.
    pub(crate) fn suspend_posts(&mut self) {
        self.postable = self.id.never_matching();
    }

    /// Returns true if requests may be posted, but the next one takes the slow way.
    pub(super) fn is_suspended(&self) -> bool {
        self.may_post && self.postable != self.id
    }

    /// Returns the wait configuration that requests of this endpoint need on their dispatcher.
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

/// Receive side of an endpoint, protected by its own lock.
#[derive(Debug)]
pub(crate) struct ReceiveSide<R> {
    /// The handle while receives may be posted, else a value that never matches it.
    pub(crate) postable: EpId,
    pub(crate) zone_seal: u64,
    pub(crate) refused_flags: CompletionFlags,
    pub(crate) max_segments: usize,
    /// Number that a plain receive adds to the tag of its record.
    pub(crate) posting: Posting,
    pub(crate) ring: WorkRing,
    pub(crate) queue: Option<R>,
    pub(crate) reach: Reach,
}

impl<R> ReceiveSide<R> {
    pub(crate) const EMPTY: Self = Self {
        postable: EpId::NULL,
        zone_seal: 0,
        refused_flags: CompletionFlags::empty(),
        max_segments: 0,
        posting: Posting::new(RECEIVE, Report::NOTIFY),
        ring: WorkRing::EMPTY,
        queue: None,
        reach: Reach::NONE,
    };
}
