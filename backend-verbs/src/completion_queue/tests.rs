use super::*;
use crate::completion_room::append;
use crate::directory::Leaves;
use crate::hal::bed_tests::BedDevice;

const RECEIVE: u32 = 128;

fn queue(device: &BedDevice) -> VerbsCompletionQueue {
    VerbsCompletionQueue {
        device: device.completion_queue(),
        turn: None,
        batch: Batch::new(),
        marks: Arc::default(),
        directory: Arc::new(Directory::new(Leaves::default())),
        signal: Arc::new(Signal::new()),
    }
}

fn completion(token: u64, status: u32, opcode: u32) -> WorkCompletion {
    WorkCompletion {
        token,
        status,
        opcode,
        length: 12,
        queue_pair: 17,
    }
}

/// Spec: DTO-11
#[test]
fn completions_come_in_order_and_are_taken_sixteen_at_a_time() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    for token in 0..40 {
        device.complete(completion(token, 0, 0));
    }
    for token in 0..40 {
        let found = queue.poll().expect("sound").expect("there");
        assert_eq!((found.token, found.status), (token, DtoStatus::Success));
    }
    assert_eq!(device.polls(), 3);
    assert_eq!(queue.poll(), Ok(None));
}

/// Spec: DTO-03, DTO-11
#[test]
fn successes_are_seen_by_a_peek_in_order() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    for (round, first) in (1..).zip([0, RECEIVE]) {
        for token in 0..40 {
            let opcode = if token % 3 == 0 {
                first
            } else {
                RECEIVE - first
            };
            device.complete(completion(token, 0, opcode));
        }
        for token in 0..40 {
            let opcode = if token % 3 == 0 {
                first
            } else {
                RECEIVE - first
            };
            let length = if opcode == RECEIVE { 12 } else { u32::MAX };
            for _ in 0..2 {
                assert_eq!(queue.peek(), Peek::Success { token, length });
            }
            queue.skip();
        }
        assert_eq!(queue.peek(), Peek::Empty);
        // A skip without a success takes nothing.
        queue.skip();
        assert_eq!(queue.peek(), Peek::Empty);
        assert_eq!(device.polls(), 5 * round);
    }
}

/// Spec: DTO-12
#[test]
fn a_peek_leaves_failures_to_a_poll() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.directory.enter(17, 555);
    let left = |queue: &mut VerbsCompletionQueue, opcode, status| {
        device.complete(completion(8, status, opcode));
        assert_eq!(queue.peek(), Peek::Other);
        assert_eq!(queue.peek(), Peek::Other, "it stays");
        queue.poll().expect("sound").expect("there")
    };
    for opcode in [0, RECEIVE, u32::MAX] {
        assert_eq!(left(&mut queue, opcode, 5).status, DtoStatus::Flushed);
    }
    queue.marks.serves_shared.store(true, Ordering::Relaxed);
    assert_eq!(left(&mut queue, RECEIVE, 0).queue_pair, 555);
    queue.marks.serves_shared.store(false, Ordering::Relaxed);
    queue.directory.wait_for_data(17);
    left(&mut queue, RECEIVE, 0);
    assert!(queue.directory.noted(17).arrived);
}

/// Spec: DTO-12, DTO-13
#[test]
fn every_status_of_verbs_has_its_meaning() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    let meanings = [
        (0, DtoStatus::Success),
        (1, DtoStatus::LocalLength),
        (2, DtoStatus::LocalEndpoint),
        (3, DtoStatus::Transport),
        (4, DtoStatus::LocalProtection),
        (5, DtoStatus::Flushed),
        (6, DtoStatus::RmrOperationFailed),
        (7, DtoStatus::BadResponse),
        (8, DtoStatus::LocalProtection),
        (9, DtoStatus::RemoteResponder),
        (10, DtoStatus::RemoteAccess),
        (11, DtoStatus::RemoteResponder),
        (12, DtoStatus::Transport),
        (13, DtoStatus::ReceiverNotReady),
        (21, DtoStatus::Transport),
        (9999, DtoStatus::Transport),
        (u32::MAX, DtoStatus::Transport),
    ];
    for (code, meaning) in meanings {
        device.complete(completion(3, code, 0));
        let found = queue.poll().expect("sound").expect("there");
        assert_eq!(found.status, meaning, "{code}");
    }
}

#[test]
fn an_invalid_poll_result_breaks_the_device() {
    for nonsense in [-1, i32::MIN, 17, i32::MAX] {
        let device = BedDevice::new();
        let mut queue = queue(&device);
        queue.marks.attach(&queue.device, false);
        device.answer(nonsense);
        assert_eq!(queue.peek(), Peek::Other, "{nonsense}");
        assert!(!queue.directory.take_nonsense(), "{nonsense}");
        assert_eq!(queue.poll(), Err(DeviceFailure::Broken), "{nonsense}");
        assert_eq!(queue.poll(), Err(DeviceFailure::Broken), "{nonsense}");
        // Connections of the device do not stay.
        assert!(queue.directory.has_changes(), "{nonsense}");
        assert!(queue.directory.take_nonsense(), "{nonsense}");
        assert_eq!(queue.arm(false), Armed::Missed, "{nonsense}");
    }
}

/// Spec: DTO-13
#[test]
fn an_overrun_is_reported_after_the_remaining_completions() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.marks.attach(&queue.device, false);
    device.complete(completion(1, 0, 0));
    queue.marks.overrun.store(true, Ordering::Relaxed);
    assert!(queue.poll().expect("one is left").is_some());
    assert_eq!(queue.poll(), Err(DeviceFailure::CompletionQueueOverrun));
    assert_eq!(queue.arm(false), Armed::Missed);
}

#[test]
fn an_unknown_queue_pair_has_no_token() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.marks.serves_shared.store(true, Ordering::Relaxed);
    queue.directory.enter(17, 555);
    for (number, token) in [(17, 555), (18, 0), (0xFF_FFFF, 0), (u32::MAX, 0)] {
        for status in [0, 5] {
            device.complete(WorkCompletion {
                queue_pair: number,
                ..completion(1, status, RECEIVE)
            });
            let found = queue.poll().expect("sound").expect("there");
            assert_eq!(found.queue_pair, token, "{number:#x}");
        }
    }
}

/// Queues of one dispatcher are polled in turn; a full one does not hold up the others.
///
/// Spec: DTO-11
#[test]
fn several_queues_are_polled_in_turn() {
    let devices = [BedDevice::new(), BedDevice::new(), BedDevice::new()];
    let mut queue = queue(&devices[0]);
    for added in &devices[1..] {
        append(&queue.device, &added.completion_queue());
    }
    let complete = |device: usize, tokens: core::ops::Range<u64>| {
        tokens.for_each(|token| devices[device].complete(completion(token, 0, 0)));
    };
    complete(0, 0..40);
    complete(2, 100..120);
    let mut peeked = false;
    let mut tokens = core::iter::from_fn(|| {
        peeked = !peeked;
        if peeked {
            match queue.peek() {
                Peek::Success { token, .. } => {
                    queue.skip();
                    return Some(token);
                }
                other => assert_eq!(other, Peek::Empty),
            }
        }
        Some(queue.poll().expect("sound")?.token)
    });
    let expected = (0..16).chain(100..116).chain(16..32).chain(116..120);
    assert!(tokens.by_ref().take(52).eq(expected));
    complete(1, 50..51);
    assert!(tokens.eq((32..40).chain(50..51)));
}

/// Spec: EVW-08
#[test]
fn several_queues_are_armed_together() {
    let devices = [BedDevice::new(), BedDevice::new(), BedDevice::new()];
    let mut queue = queue(&devices[0]);
    let add = |queue: &VerbsCompletionQueue, device: &BedDevice| {
        let added = device.completion_queue();
        append(&queue.device, &added);
        queue.marks.arm_added(&added);
    };
    add(&queue, &devices[1]);
    assert_eq!(queue.arm(false), Armed::Armed);
    add(&queue, &devices[2]);
    let notifications = || devices.each_ref().map(|device| device.notifications());
    assert_eq!(
        notifications(),
        [vec![], vec![], vec![]],
        "no queue pair yet"
    );
    queue.marks.attach(&queue.device, true);
    assert_eq!(notifications(), [vec![true], vec![true], vec![true]]);
    // The last one of four has a completion: nothing to wait for.
    let last = BedDevice::new();
    add(&queue, &last);
    assert_eq!(last.notifications(), [true], "armed as the others are");
    last.complete(completion(1, 0, 0));
    assert_eq!(queue.arm(false), Armed::Missed);
    assert_eq!(last.notifications(), [true, false]);
    assert_eq!(take(&mut queue), [false]);
    assert_eq!(queue.arm(false), Armed::Armed);
}

/// Spec: DTO-12
#[test]
fn a_failure_is_noted_once_and_alerts() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.directory.enter(17, 555);
    for _ in 0..3 {
        device.complete(completion(1, 5, 0));
        queue.poll().expect("sound").expect("there");
    }
    assert!(queue.directory.take_changes());
    assert!(queue.directory.noted(17).failed);
    assert!(!queue.directory.take_changes());
}

/// Spec: EPK-06
#[test]
fn data_before_the_end_of_the_handshake_is_noted() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.directory.enter(17, 555);
    queue.directory.wait_for_data(17);
    device.complete(completion(1, 0, 0));
    queue.poll().expect("sound").expect("there");
    assert!(!queue.directory.take_changes(), "a request tells nothing");
    device.complete(completion(2, 0, RECEIVE));
    queue.poll().expect("sound").expect("there");
    assert!(queue.directory.take_changes());
    assert!(queue.directory.noted(17).arrived);
}

/// Spec: EVW-08
#[test]
fn a_completion_during_arming_is_reported_as_missed() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.marks.attach(&queue.device, false);
    assert_eq!(queue.arm(true), Armed::Armed);
    device.slip_in(completion(1, 0, 0));
    assert_eq!(queue.arm(false), Armed::Missed);
    assert_eq!(queue.arm(false), Armed::Missed, "it is still there");
    assert_eq!(device.notifications(), [true, false]);
    assert!(queue.poll().expect("sound").is_some());
    assert_eq!(queue.arm(false), Armed::Armed);
    assert!(queue.signal.expects_completions());
}

/// Spec: EVW-11, EPM-04
#[test]
fn the_first_queue_pair_decides_which_completions_count() {
    for solicited_only in [false, true] {
        let device = BedDevice::new();
        let mut queue = queue(&device);
        assert_eq!(queue.arm(false), Armed::Armed);
        assert_eq!(device.notifications(), []);
        queue.marks.attach(&queue.device, solicited_only);
        queue.marks.attach(&queue.device, false);
        assert_eq!(device.notifications(), [solicited_only]);
        queue.marks.detach();
        assert_eq!(queue.arm(true), Armed::Armed);
        queue.marks.detach();
        assert_eq!(queue.arm(true), Armed::Armed);
        assert_eq!(device.notifications(), [solicited_only, true]);
    }
}

/// Takes all completions; returns for each whether it counts as solicited.
fn take(queue: &mut VerbsCompletionQueue) -> Vec<bool> {
    core::iter::from_fn(|| queue.poll().expect("sound"))
        .map(|found| found.solicited)
        .collect()
}

/// Receives count as solicited unless the device was armed and has not notified.
///
/// The notification makes up for those that did not count.
///
/// Spec: EVW-11
#[test]
fn receives_are_solicited_unless_the_device_would_have_notified() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.marks.attach(&queue.device, true);
    let complete = |opcodes: &[u32]| {
        for &opcode in opcodes {
            device.complete(completion(1, 0, opcode));
        }
    };
    complete(&[RECEIVE, 0]);
    assert_eq!(take(&mut queue), [true, false]);
    // Taken before the notification is read.
    assert_eq!(queue.arm(true), Armed::Armed);
    complete(&[RECEIVE, 0, RECEIVE]);
    assert_eq!(take(&mut queue), [false, false, false]);
    assert!(queue.marks.notified());
    complete(&[RECEIVE]);
    assert_eq!(take(&mut queue), [true]);
    // Taken afterwards.
    assert_eq!(queue.arm(true), Armed::Armed);
    complete(&[RECEIVE, RECEIVE]);
    assert!(!queue.marks.notified());
    assert_eq!(take(&mut queue), [true, true]);
    // Armed for all completions in between: any notification makes up for it.
    assert_eq!(queue.arm(true), Armed::Armed);
    complete(&[RECEIVE]);
    assert_eq!(take(&mut queue), [false]);
    assert_eq!(queue.arm(false), Armed::Armed);
    assert!(queue.marks.notified());
    // Completed requests are never solicited.
    assert_eq!(queue.arm(true), Armed::Armed);
    complete(&[0]);
    assert_eq!(take(&mut queue), [false]);
    assert!(!queue.marks.notified());
}

/// A receive that came before the arming counts as solicited, as no notification reports it.
///
/// Spec: EVW-08, EVW-11
#[test]
fn a_completion_missed_by_arming_may_be_solicited() {
    let device = BedDevice::new();
    let mut queue = queue(&device);
    queue.marks.attach(&queue.device, true);
    device.slip_in(completion(1, 0, RECEIVE));
    assert_eq!(queue.arm(true), Armed::Missed);
    assert_eq!(take(&mut queue), [true]);
    assert_eq!(queue.arm(true), Armed::Armed);
}
