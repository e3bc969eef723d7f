use super::*;
use crate::hal::bed_tests::BedDevice;

fn commit(queue: &mut VerbsReceiveQueue, token: u64, segments: u64) {
    let mut slot = reserve(queue, token, segments as usize).expect("room");
    for number in 0..segments {
        slot.segment(Segment {
            address: token * 100 + number,
            length: 10,
            key: 3,
        });
    }
    slot.commit(10 * segments as u32).expect("taken");
}

fn reserve(
    queue: &mut VerbsReceiveQueue,
    token: u64,
    segments: usize,
) -> Option<VerbsReceiveSlot<'_>> {
    queue.reserve(&ReceiveRequest { token }, segments)
}

/// Spec: EPV-01, EPM-03, GEN-06
#[test]
fn receives_posted_one_by_one_are_kept() {
    let device = BedDevice::new();
    let mut old = queue(&device, 4, 2);
    let mut expected = Vec::new();
    // Goes round the slots more than once, with lists, longer receives and refusals.
    for token in 0..24 {
        device.refuse_after(0);
        for segments in 1..=2 {
            commit(&mut old, 9, segments);
            assert_eq!(old.ring(), Err(1));
        }
        device.refuse_nothing();
        let segments = if token % 4 == 1 {
            commit(&mut old, 100 + token, 2);
            commit(&mut old, 200 + token, 2);
            2
        } else {
            commit(&mut old, token, 1);
            1
        };
        old.ring().expect("taken");
        let posted = device.take_receives().1;
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

fn queue(device: &BedDevice, depth: u32, segments: u32) -> VerbsReceiveQueue {
    VerbsReceiveQueue {
        list: device.receive_list(depth, segments),
        owner: None,
    }
}

fn tokens(device: &BedDevice) -> Vec<u64> {
    let (_, posted) = device.take_receives();
    posted.iter().map(|posted| posted.token).collect()
}

/// Spec: DTO-11
#[test]
fn only_posts_after_a_failure_see_it() {
    let failure = Failure::default();
    for _ in 0..1000 {
        assert!(!failure.is_later());
    }
    for _ in 0..2 {
        failure.announce();
        for _ in 0..1000 {
            assert!(failure.is_later());
        }
    }
}

/// Spec: SRQR-01, GEN-06
#[test]
fn receives_are_posted_one_by_one_or_refused() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 2, 1);
    for token in 0..5 {
        device.refuse_after(0);
        commit(&mut queue, 9, 1);
        assert_eq!(queue.ring(), Err(1));
        device.refuse_nothing();
        commit(&mut queue, token, 1);
        assert_eq!(queue.ring(), Ok(()));
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
    let device = BedDevice::new();
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
fn receives_after_the_last_slot_use_the_first() {
    let device = BedDevice::new();
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
    // No receive is posted after a refused one, also across lists.
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

/// A dropped slot changes no kept receive.
///
/// Spec: EPM-03, EPV-01, GEN-06
#[test]
fn a_dropped_slot_does_not_change_kept_receives() {
    for depth in 1..4 {
        let device = BedDevice::new();
        let mut old = queue(&device, depth, 1);
        for token in 0..u64::from(depth) {
            commit(&mut old, token, 1);
            old.ring().expect("taken");
        }
        let (_, before) = device.take_receives();
        let mut slot = reserve(&mut old, 0xBAD, 1).expect("a slot to fill");
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
    let device = BedDevice::new();
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
    // They can be moved again from there.
    let mut third = queue(&device, 3, 2);
    longer.list.repeat_on(&mut third.list).expect("it fits");
    assert_eq!(device.take_receives().1, before);
}
