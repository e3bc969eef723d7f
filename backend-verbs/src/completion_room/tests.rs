use super::*;
use crate::hal::bed_tests::BedDevice;

const NONE: &Reservations = &Reservations {
    requests: None,
    receives: None,
};

fn reserved(queue: &CompletionQueue) -> u32 {
    queue.reserved.load(Ordering::Relaxed)
}

/// Spec: DTO-13
#[test]
fn room_is_found_in_the_first_queue_that_has_it_and_comes_back() {
    let devices = [
        BedDevice::with_completions(10),
        BedDevice::with_completions(6),
    ];
    let [first, second] = devices.each_ref().map(BedDevice::completion_queue);
    let six = Reservation::find(&first, 6, NONE).expect("room for ten");
    assert!(
        Reservation::find(&first, 5, NONE).is_none(),
        "four are left"
    );
    append(&first, &second);
    assert_eq!(each(&first).count(), 2);
    let five = Reservation::find(&first, 5, NONE).expect("room for six in the second");
    assert!(Arc::ptr_eq(five.queue(), &second));
    let four = Reservation::find(&first, 4, NONE).expect("room in the first");
    assert!(Arc::ptr_eq(four.queue(), &first));
    assert_eq!([reserved(&first), reserved(&second)], [10, 5]);
    assert!(Reservation::find(&first, 2, NONE).is_none());
    drop(six);
    assert_eq!([reserved(&first), reserved(&second)], [4, 5]);
    let again = Reservation::find(&first, 6, NONE).expect("the room is free again");
    assert!(Arc::ptr_eq(again.queue(), &first));
}

/// Spec: DTO-13
#[test]
fn a_replacement_may_take_the_room_that_it_frees() {
    let device = BedDevice::with_completions(10);
    let queue = device.completion_queue();
    let old = Reservations {
        requests: Reservation::find(&queue, 5, NONE),
        receives: Reservation::find(&queue, 4, NONE),
    };
    assert!(Reservation::find(&queue, 5, NONE).is_none());
    assert!(Reservation::find(&queue, 11, &old).is_none());
    // Requests and receives of the same queue, as large as before or larger.
    let new = Reservations {
        requests: Reservation::find(&queue, 5, &old),
        receives: Reservation::find(&queue, 5, &old),
    };
    assert!(new.requests.is_some() && new.receives.is_some());
    assert!(Reservation::find(&queue, 1, &old).is_none());
    drop(old);
    assert_eq!(reserved(&queue), 10);
    drop(new);
    assert_eq!(reserved(&queue), 0);
}

/// Spec: SRZ-01
#[test]
fn a_reservation_grows_with_its_queue_and_as_far_as_that_can() {
    let devices = [
        BedDevice::with_completions(6),
        BedDevice::with_completions(10),
    ];
    let [first, further] = devices.each_ref().map(BedDevice::completion_queue);
    append(&first, &further);
    let full = Reservation::find(&first, 6, NONE).expect("room");
    let mut shared = Reservation::find(&first, 4, NONE).expect("room in the further one");
    let other = Reservation::find(&first, 3, NONE).expect("room in the further one");
    let unneeded = |_: &CompletionQueue, _| panic!("there is room");
    let refused = |_: &CompletionQueue, _| Err(BackendError::Resources);
    assert_eq!(shared.resize(8, refused), Err(BackendError::Resources));
    assert_eq!([reserved(&first), reserved(&further)], [6, 7]);
    assert_eq!(shared.resize(7, unneeded), Ok(()));
    assert!(Reservation::find(&first, 1, NONE).is_none());
    // The further queue is full, and grows; the first one stays as it is.
    let mut enlarged = None;
    let enlarge = |queue: &CompletionQueue, depth| {
        enlarged = Some((std::ptr::eq(queue, &*further), depth));
        Ok(())
    };
    assert_eq!(shared.resize(9, enlarge), Ok(()));
    assert_eq!(enlarged, Some((true, 12)));
    assert_eq!([reserved(&first), reserved(&further)], [6, 12]);
    assert_eq!(shared.resize(2, unneeded), Ok(()));
    assert_eq!(reserved(&further), 5);
    drop((shared, other, full));
    assert_eq!([reserved(&first), reserved(&further)], [0, 0]);
}
