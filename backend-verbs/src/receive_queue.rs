//! Receive queues, shared ones and those of one queue pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use crate::hal::{QueuePair, ReceiveList, ReceivePlace};

/// Who has to hear of receives that were posted.
pub(crate) trait Attend {
    /// Receives are kept, so that they can go to another queue pair.
    const KEEPS: bool;

    /// Receives were posted, or refused.
    fn posted(&self);
}

/// A queue pair as its receive queue knows it.
#[derive(Debug)]
pub struct Failing {
    pub(crate) pair: Arc<QueuePair>,
    pub(crate) failure: Arc<Failure>,
}

/// Whether a queue pair is in error, or about to be, and how often receives were posted until then: below zero if it
/// is. One number, so that of one who posts and one who puts the queue pair in error one sees the other.
#[derive(Debug, Default)]
pub(crate) struct Failure(AtomicI64);

impl Failure {
    /// The queue pair is about to be put in error: receives posted before are flushed by that, later ones by whoever
    /// posts them.
    pub(crate) fn announce(&self) {
        self.0.fetch_or(i64::MIN, Ordering::SeqCst);
    }

    /// Receives were posted; whether that came behind the announcement.
    #[inline(always)]
    fn comes_behind(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) < 0
    }
}

impl Attend for Failing {
    const KEEPS: bool = true;

    #[inline(always)]
    fn posted(&self) {
        if self.failure.comes_behind() {
            self.flush();
        }
    }
}

/// Nobody: receives of a shared queue are flushed with the queue pair that takes them.
#[derive(Debug)]
pub struct Unattended;

impl Attend for Unattended {
    const KEEPS: bool = false;

    #[inline(always)]
    fn posted(&self) {}
}

/// A receive queue, of a queue pair.
#[derive(Debug)]
pub struct VerbsReceiveQueue<A = Failing> {
    pub(crate) list: ReceiveList,
    pub(crate) attendant: A,
}

/// A shared receive queue.
pub type VerbsSharedReceiveQueue = VerbsReceiveQueue<Unattended>;

/// A reserved place of a receive queue.
#[derive(Debug)]
pub struct VerbsReceiveSlot<'a>(ReceivePlace<'a>);

impl WorkSlot for VerbsReceiveSlot<'_> {
    type Request = ReceiveRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline(always)]
    fn commit(self, request: &ReceiveRequest) -> Result<(), Rejected> {
        self.0.commit(request.token);
        Ok(())
    }
}

impl<A: Attend> WorkQueue for VerbsReceiveQueue<A> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = VerbsReceiveSlot<'a>
    where
        A: 'a;

    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<VerbsReceiveSlot<'_>> {
        self.list.begin(segments).map(VerbsReceiveSlot)
    }

    #[inline(always)]
    fn post_one(&mut self, segment: Segment, request: &ReceiveRequest) -> Result<(), Rejected> {
        if A::KEEPS {
            if self.list.post_kept(segment, request.token) {
                self.attendant.posted();
                return Ok(());
            }
            return self.take_back();
        }
        let taken = self.list.post_one(segment, request.token);
        self.attendant.posted();
        if taken { Ok(()) } else { Err(Rejected) }
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        if self.list.hand_over() {
            self.attendant.posted();
            return Ok(());
        }
        self.attendant.posted();
        self.list.settle()
    }
}

#[expect(
    private_bounds,
    reason = "who attends to receives is the backend's own business"
)]
impl<A: Attend> VerbsReceiveQueue<A> {
    /// The device refused what was just posted.
    #[cold]
    #[inline(never)]
    fn take_back(&mut self) -> Result<(), Rejected> {
        self.list.retreat();
        self.attendant.posted();
        Err(Rejected)
    }
}

impl Failing {
    /// Some devices look for receives to flush only when their queue pair is put in error (soft-RoCE takes a
    /// receive without a word to the kernel), so it is put there once more.
    #[cold]
    fn flush(&self) {
        self.pair.fail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::fake::Device;

    fn commit(queue: &mut VerbsSharedReceiveQueue, token: u64, segments: u64) {
        let mut slot = queue.reserve(segments as usize).expect("room");
        for number in 0..segments {
            slot.segment(Segment {
                address: token * 100 + number,
                length: 10,
                key: 3,
            });
        }
        slot.commit(&ReceiveRequest { token }).expect("taken");
    }

    /// Nobody, of a queue whose receives are kept.
    struct Keeping;

    impl Attend for Keeping {
        const KEEPS: bool = true;

        fn posted(&self) {}
    }

    /// Spec: EPV-01, EPM-03, GEN-06
    #[test]
    fn receives_posted_one_by_one_are_kept() {
        let device = Device::new();
        let mut old = VerbsReceiveQueue {
            list: device.receive_list(4, 2),
            attendant: Keeping,
        };
        let segment = |token| Segment {
            address: token * 100,
            length: 10,
            key: 3,
        };
        let mut expected = Vec::new();
        // Round the places more than once, with refused ones everywhere, among them lists and longer receives.
        for token in 0..24 {
            device.refuse_after(0);
            let refused = old.post_one(segment(9), &ReceiveRequest { token: 9 });
            assert_eq!(refused, Err(Rejected));
            let mut slot = old.reserve(2).expect("room");
            slot.segment(segment(8));
            slot.segment(segment(8));
            slot.commit(&ReceiveRequest { token: 8 }).expect("taken");
            assert_eq!(old.ring(), Err(1));
            device.refuse_nothing();
            if token % 4 == 1 {
                for token in [100 + token, 200 + token] {
                    let mut slot = old.reserve(2).expect("room");
                    slot.segment(segment(token));
                    slot.segment(segment(token));
                    slot.commit(&ReceiveRequest { token }).expect("taken");
                }
                old.ring().expect("taken");
            } else {
                let posted = old.post_one(segment(token), &ReceiveRequest { token });
                assert_eq!(posted, Ok(()));
            }
            let posted = device.take_receives().1;
            let segments = if token % 4 == 1 { 2 } else { 1 };
            assert_eq!(posted.len(), segments);
            assert!(posted.iter().all(|one| one.segments.len() == segments));
            expected.extend(posted);
            if expected.len() <= 4 {
                let mut new = queue(&device, 4, 2);
                old.list.repeat_on(&mut new.list).expect("it fits");
                assert_eq!(device.take_receives().1, expected);
            }
        }
    }

    fn queue(device: &Device, depth: u32, segments: u32) -> VerbsSharedReceiveQueue {
        VerbsReceiveQueue {
            list: device.receive_list(depth, segments),
            attendant: Unattended,
        }
    }

    fn tokens(device: &Device) -> Vec<u64> {
        let (_, posted) = device.take_receives();
        posted.iter().map(|posted| posted.token).collect()
    }

    /// Spec: DTO-11
    #[test]
    fn every_post_behind_a_failure_sees_it_and_none_before() {
        let failure = Failure::default();
        for _ in 0..1000 {
            assert!(!failure.comes_behind());
        }
        for _ in 0..2 {
            failure.announce();
            for _ in 0..1000 {
                assert!(failure.comes_behind());
            }
        }
    }

    /// Spec: EPV-01, SRQR-01
    #[test]
    fn a_receive_reaches_the_device_as_it_was_filled() {
        let device = Device::new();
        let mut queue = queue(&device, 4, 2);
        commit(&mut queue, 5, 2);
        commit(&mut queue, 6, 0);
        queue.ring().expect("taken");
        let (calls, posted) = device.take_receives();
        assert_eq!((calls, posted.len()), (1, 2));
        assert_eq!(posted[0].segments, [(500, 10, 3), (501, 10, 3)]);
        assert_eq!(posted[1].segments, []);
        assert!(queue.reserve(3).is_none());
    }

    /// Spec: SRQR-01, GEN-06
    #[test]
    fn receives_are_posted_one_by_one_or_refused() {
        let device = Device::new();
        let mut queue = queue(&device, 2, 1);
        let segment = |token| Segment {
            address: token * 100,
            length: 10,
            key: 3,
        };
        for token in 0..5 {
            device.refuse_after(0);
            let refused = queue.post_one(segment(9), &ReceiveRequest { token: 9 });
            assert_eq!(refused, Err(Rejected));
            device.refuse_nothing();
            let posted = queue.post_one(segment(token), &ReceiveRequest { token });
            assert_eq!(posted, Ok(()));
            let (_, posted) = device.take_receives();
            let found: Vec<_> = posted
                .iter()
                .map(|one| (one.token, one.segments.clone()))
                .collect();
            assert_eq!(found, [(token, vec![(token * 100, 10, 3)])]);
        }
        commit(&mut queue, 7, 1);
        queue.ring().expect("taken");
        assert_eq!(tokens(&device), [7]);
    }

    /// Spec: GEN-06
    #[test]
    fn refused_receives_are_counted_and_forgotten() {
        let device = Device::new();
        let mut queue = queue(&device, 8, 1);
        device.refuse_after(2);
        for token in 0..5 {
            commit(&mut queue, token, 1);
        }
        assert_eq!(queue.ring(), Err(3));
        assert_eq!(tokens(&device), [0, 1]);
        device.refuse_nothing();
        commit(&mut queue, 9, 1);
        queue.ring().expect("taken");
        assert_eq!(tokens(&device), [9]);
    }

    /// Spec: EPV-01, GEN-06
    #[test]
    fn receives_beyond_the_last_place_go_on_with_the_first() {
        let device = Device::new();
        let mut queue = queue(&device, 2, 2);
        for token in 0..8 {
            commit(&mut queue, token, token % 3);
        }
        queue.ring().expect("taken");
        let (calls, posted) = device.take_receives();
        assert_eq!(calls, 3);
        let found: Vec<_> = posted
            .iter()
            .map(|posted| (posted.token, posted.segments.len() as u64))
            .collect();
        assert_eq!(
            found,
            (0..8).map(|token| (token, token % 3)).collect::<Vec<_>>()
        );
        // Nothing goes behind a refused one, wherever it was.
        device.refuse_after(2);
        for token in 0..8 {
            if token == 7 {
                device.refuse_nothing();
            }
            commit(&mut queue, token, 1);
        }
        assert_eq!(queue.ring(), Err(6));
        assert_eq!(tokens(&device), [0, 1]);
        commit(&mut queue, 9, 1);
        queue.ring().expect("taken");
        assert_eq!(tokens(&device), [9]);
    }

    /// A receive for which there is no room touches no buffer that is kept.
    ///
    /// Spec: EPM-03, EPV-01, GEN-06
    #[test]
    fn a_slot_that_is_dropped_leaves_kept_receives_alone() {
        for depth in 1..4 {
            let device = Device::new();
            let mut old = queue(&device, depth, 1);
            for token in 0..u64::from(depth) {
                commit(&mut old, token, 1);
                old.ring().expect("taken");
            }
            let (_, before) = device.take_receives();
            let mut slot = old.reserve(1).expect("a place to fill");
            slot.segment(Segment {
                address: 0xBAD,
                length: 1,
                key: 0,
            });
            let _ = slot;
            let mut new = queue(&device, depth, 1);
            old.list.repeat_on(&mut new.list).expect("it fits");
            assert_eq!(device.take_receives().1, before);
        }
    }

    /// Spec: EPM-03
    #[test]
    fn unused_receives_move_to_another_queue_pair_in_order() {
        let device = Device::new();
        let mut old = queue(&device, 4, 2);
        device.refuse_after(2);
        for token in 0..3 {
            commit(&mut old, token, token % 3);
        }
        assert_eq!(old.ring(), Err(1));
        device.refuse_nothing();
        commit(&mut old, 7, 2);
        old.ring().expect("taken");
        let (_, before) = device.take_receives();
        let mut longer = queue(&device, 5, 4);
        old.list.repeat_on(&mut longer.list).expect("it fits");
        assert_eq!(device.take_receives().1, before);
        let mut too_short = queue(&device, 1, 2);
        assert!(old.list.repeat_on(&mut too_short.list).is_err());
        assert_eq!(device.take_receives().0, 0);
        let mut too_narrow = queue(&device, 8, 1);
        assert!(old.list.repeat_on(&mut too_narrow.list).is_err());
        // And they can go on from there.
        let mut third = queue(&device, 3, 2);
        longer.list.repeat_on(&mut third.list).expect("it fits");
        assert_eq!(device.take_receives().1, before);
    }
}
