//! Shared receive queues.

use std::collections::VecDeque;

use dat_core::error::{ErrorKind, Subtype};
use dat_core::event::{AsyncEventKind, REASON_LOW_WATERMARK};
use dat_core::flags::HandleKind;

use super::endpoint::MOST_SEGMENTS;
use super::event::{Expected, Stream};
use super::{Key, Receive, SHARED_QUEUES, Segment, World};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// Limit on buffers of a shared receive queue.
pub(crate) const MOST_BUFFERS: i32 = 16;

/// Shared receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Srq {
    pub(crate) side: Side,
    pub(crate) pz: Key,
    pub(crate) length: usize,
    pub(crate) segments: usize,
    pub(crate) low_watermark: i32,
    armed: bool,
    /// Buffers that an endpoint can take.
    pub(crate) buffers: VecDeque<Receive>,
    /// Posts whose completion was not dequeued.
    pub(crate) outstanding: Vec<u64>,
    /// Number of these that may have come back with the completions that an endpoint lost.
    pub(crate) perhaps_returned: usize,
}

impl World {
    /// Checks `srq_create` (SRC-02, SRC-03, SRC-06).
    pub(crate) fn check_srq_create(
        &self,
        side: Side,
        pz: Option<Key>,
        [length, segments, low_watermark]: [i32; 3],
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Pz, pz);
        checks.parameter(low_watermark != 0, 3);
        checks.parameter(!(1..=MOST_BUFFERS).contains(&length), 3);
        checks.parameter(!(1..=MOST_SEGMENTS).contains(&segments), 3);
        checks.resource(self.count(side, HandleKind::Srq) >= SHARED_QUEUES);
        checks.verdict()
    }

    pub(crate) fn srq_create(
        &mut self,
        side: Side,
        pz: Key,
        length: usize,
        segments: usize,
    ) -> Key {
        let key = self.add(side, HandleKind::Srq, true);
        let srq = Srq {
            side,
            pz,
            length,
            segments,
            low_watermark: 0,
            armed: false,
            buffers: VecDeque::new(),
            outstanding: Vec::new(),
            perhaps_returned: 0,
        };
        self.srqs.insert(key, srq);
        key
    }

    /// Checks `srq_post_recv` in the order of DTO-07 (SRQR-25 to SRQR-29, SRQR-41).
    pub(crate) fn check_srq_post(
        &self,
        side: Side,
        key: Option<Key>,
        segments: &[Segment],
    ) -> Verdict {
        let Some(srq) = key
            .filter(|_| self.is(side, HandleKind::Srq, key))
            .and_then(|key| self.srqs.get(&key))
        else {
            return Verdict::refused(ErrorKind::InvalidHandle, Subtype::InvalidHandleSrq);
        };
        if segments.len() > srq.segments {
            return Verdict::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2);
        }
        if let Some(bad) = self.check_segments(side, srq.pz, segments, false, 3) {
            return bad;
        }
        let mut checks = Checks::default();
        let surely = srq.outstanding.len() - srq.perhaps_returned.min(srq.outstanding.len());
        checks.resource(surely >= srq.length);
        if srq.outstanding.len() >= srq.length {
            checks.possible(ErrorKind::InsufficientResources);
        }
        checks.verdict()
    }

    pub(crate) fn srq_post(&mut self, key: Key, receive: Receive) {
        if let Some(srq) = self.srqs.get_mut(&key) {
            srq.outstanding.push(receive.post);
            srq.buffers.push_back(receive);
        }
    }

    /// Takes a buffer for an endpoint, in posting order.
    ///
    /// The fabric of these runs uses no other order (SRC-05).
    pub(super) fn take_shared(&mut self, key: Key) -> Option<Receive> {
        let srq = self.srqs.get_mut(&key)?;
        let receive = srq.buffers.pop_front();
        let low = srq.is_low();
        if receive.is_some() && srq.armed && low {
            srq.armed = false;
            self.raise_low_watermark(key);
        }
        receive
    }

    fn raise_low_watermark(&mut self, key: Key) {
        let Some(side) = self.srqs.get(&key).map(|srq| srq.side) else {
            return;
        };
        let event = Expected::Async {
            kind: AsyncEventKind::EpBroken,
            object: key,
            reason: REASON_LOW_WATERMARK,
        };
        self.raise(
            Some(self.async_evds[side.index()]),
            Stream::Async(key),
            event,
        );
    }

    /// Frees a shared buffer: its completion was dequeued.
    pub(super) fn free_shared(&mut self, post: u64) {
        for srq in self.srqs.values_mut() {
            srq.outstanding.retain(|&number| number != post);
        }
    }

    /// Checks `srq_resize` (SRZ-02, SRZ-04).
    pub(crate) fn check_srq_resize(&self, side: Side, key: Option<Key>, length: i32) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Srq, key);
        checks.parameter(length <= 0, 2);
        // Above the adapter's limit: a bad value or a lack of resources; SRZ-04 lists both.
        if length > MOST_BUFFERS {
            checks.parameter(true, 0);
            checks.possible(ErrorKind::InsufficientResources);
        }
        if let Some(srq) = key.and_then(|key| self.srqs.get(&key))
            && length > 0
        {
            let room = usize::try_from(length).unwrap_or(0);
            let surely = srq.outstanding.len() - srq.perhaps_returned.min(srq.outstanding.len());
            checks.state(surely > room || length < srq.low_watermark, None);
            if srq.outstanding.len() > room {
                checks.possible(ErrorKind::InvalidState);
            }
        }
        checks.verdict()
    }

    /// Checks `srq_set_low_watermark` (SRL-05).
    pub(crate) fn check_set_low_watermark(
        &self,
        side: Side,
        key: Option<Key>,
        mark: i32,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Srq, key);
        if let Some(srq) = key.and_then(|key| self.srqs.get(&key)) {
            let too_high = usize::try_from(mark).is_ok_and(|mark| mark > srq.length);
            checks.parameter(mark < 0 || too_high, 2);
        }
        checks.verdict()
    }

    /// Sets the low watermark (SRL-02, SRL-04).
    pub(crate) fn set_low_watermark(&mut self, key: Key, mark: i32) {
        let Some(srq) = self.srqs.get_mut(&key) else {
            return;
        };
        srq.low_watermark = mark;
        let low = srq.is_low();
        srq.armed = mark != 0 && !low;
        if low {
            self.raise_low_watermark(key);
        }
    }

    /// Checks `srq_free` (SRF-01).
    pub(crate) fn check_srq_free(&self, side: Side, key: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Srq, key);
        let used = self
            .eps
            .values()
            .any(|ep| ep.srq.is_some() && ep.srq == key);
        checks.state(used, Subtype::InvalidStateSrqInUse);
        checks.verdict()
    }

    pub(crate) fn srq_free(&mut self, key: Key) {
        self.srqs.remove(&key);
        self.mark_dead(key);
        for evd in self.evds.values_mut() {
            evd.may_lose(Stream::Async(key));
        }
    }
}

impl Srq {
    fn is_low(&self) -> bool {
        usize::try_from(self.low_watermark).is_ok_and(|mark| self.buffers.len() < mark)
    }

    /// Returns the bounds of the outstanding count that a query may report (SRY-02).
    pub(crate) fn outstanding_bounds(&self) -> (usize, usize) {
        let most = self.outstanding.len();
        (most.saturating_sub(self.perhaps_returned), most)
    }
}
