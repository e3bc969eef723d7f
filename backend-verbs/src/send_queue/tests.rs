use core::sync::atomic::AtomicU8;

use dat_core::backend::{ExtendedSend, RemoteRange, SendFlags, SendOperation};
use verbs_model::Posted;

use super::*;
use crate::hal::bed_tests::BedDevice;

const SIGNALLED: u32 = 2;
const SEND: u32 = 2;

fn queue(device: &BedDevice, depth: u32, segments: u32) -> VerbsSendQueue {
    VerbsSendQueue {
        list: device.send_list(depth, segments),
        number: 17,
        objects: Arc::default(),
    }
}

fn segment(number: u64) -> Segment {
    Segment {
        address: 0x1000 * number,
        length: number as u32,
        key: 7,
    }
}

fn request(token: u64, operation: SendOperation) -> SendRequest {
    SendRequest {
        token,
        operation,
        flags: SendFlags::empty(),
    }
}

fn commit(queue: &mut VerbsSendQueue, token: u64, segments: u64) {
    let request = request(token, SendOperation::Send);
    let mut slot = queue.reserve(&request, segments as usize).expect("room");
    for number in 1..=segments {
        slot.segment(segment(number));
    }
    slot.commit(0).expect("taken");
}

fn tokens(posted: &[Posted]) -> Vec<u64> {
    posted.iter().map(|posted| posted.token).collect()
}

#[test]
fn extended_operations_are_posted_at_once() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 4, 2);
    let remote = RemoteRange {
        address: 0xABC8,
        key: 99,
    };
    for (operation, opcode) in [
        (
            ExtendedSend::WriteImmediate {
                remote,
                immediate: 7,
            },
            1,
        ),
        (
            ExtendedSend::CompareAndSwap {
                remote,
                compare: 8,
                swap: 9,
            },
            5,
        ),
        (ExtendedSend::FetchAndAdd { remote, add: 10 }, 6),
    ] {
        let request = ExtendedRequest {
            token: 5,
            operation,
            length: 3,
            flags: SendFlags::FENCE,
        };
        queue
            .post_extended(&request, &[segment(1), segment(2)])
            .expect("taken");
        let posted = Posted {
            token: 5,
            opcode,
            flags: SIGNALLED | 1,
            segments: vec![(0x1000, 1, 7), (0x2000, 2, 7)],
            remote: (0xABC8, 99),
            data: None,
        };
        assert_eq!(device.take_requests(), (1, vec![posted]));
        assert_eq!(
            queue.post_extended(&request, &[segment(1); 3]),
            Err(Rejected)
        );
        device.refuse_after(0);
        assert_eq!(queue.post_extended(&request, &[]), Err(Rejected));
        device.refuse_nothing();
        // A later request is not refused for it.
        commit(&mut queue, 6, 1);
        queue.ring().expect("taken");
        assert_eq!(tokens(&device.take_requests().1), [6]);
    }
}

/// Spec: DTO-05
#[test]
fn flags_are_those_of_verbs_and_every_request_is_signalled() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 4, 1);
    for (wanted, flags) in [
        (SendFlags::empty(), 2),
        (SendFlags::FENCE, 3),
        (SendFlags::SOLICITED, 6),
        (SendFlags::all(), 7),
    ] {
        let wanted = SendRequest {
            flags: wanted,
            ..request(1, SendOperation::Send)
        };
        let slot = queue.reserve(&wanted, 0).expect("room");
        slot.commit(0).expect("taken");
        queue.ring().expect("taken");
        assert_eq!(device.take_requests().1[0].flags, flags);
    }
}

/// Spec: GEN-06
#[test]
fn a_slot_that_is_dropped_leaves_no_trace() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 4, 2);
    let dropped = request(9, SendOperation::RdmaRead(TO_PEER));
    let mut slot = queue.reserve(&dropped, 2).expect("room");
    slot.segment(segment(9));
    let _ = slot;
    queue.ring().expect("nothing to refuse");
    commit(&mut queue, 1, 1);
    queue.ring().expect("taken");
    let (calls, posted) = device.take_requests();
    assert_eq!((calls, tokens(&posted)), (1, vec![1]));
    assert_eq!((posted[0].opcode, posted[0].flags), (SEND, SIGNALLED));
    assert_eq!(posted[0].segments, [(0x1000, 1, 7)]);
}

#[test]
fn requests_of_one_doorbell_are_one_list_in_order() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 5, 3);
    let mut next = 0;
    // Lists of all lengths, so that they wrap around the end of the places at every offset.
    for length in (1..=5).cycle().take(40) {
        let first = next;
        for _ in 0..length {
            commit(&mut queue, next, next % 4);
            next += 1;
        }
        queue.ring().expect("taken");
        let (calls, posted) = device.take_requests();
        assert_eq!(calls, 1);
        assert_eq!(tokens(&posted), (first..next).collect::<Vec<_>>());
        for request in posted {
            assert_eq!(request.segments.len() as u64, request.token % 4);
        }
    }
}

#[test]
fn more_segments_than_the_queue_has_are_refused() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 1, 2);
    let request = request(1, SendOperation::Send);
    assert!(queue.reserve(&request, 3).is_none());
    let mut slot = queue.reserve(&request, 2).expect("room");
    for number in 1..10 {
        slot.segment(segment(number));
    }
    slot.commit(0).expect("taken");
    queue.ring().expect("taken");
    assert_eq!(device.take_requests().1[0].segments.len(), 2);
}

/// Spec: GEN-06, DTO-07
#[test]
fn the_newest_requests_are_the_refused_ones() {
    for taken in 0..4 {
        let device = BedDevice::new();
        let mut queue = queue(&device, 4, 1);
        device.refuse_after(taken);
        for token in 0..4 {
            commit(&mut queue, token, 1);
        }
        assert_eq!(queue.ring(), Err(4 - taken as u32));
        let expected: Vec<u64> = (0..taken as u64).collect();
        assert_eq!(tokens(&device.take_requests().1), expected);
        // They are forgotten, and the queue goes on.
        device.refuse_nothing();
        queue.ring().expect("nothing is left");
        commit(&mut queue, 9, 1);
        queue.ring().expect("taken");
        assert_eq!(tokens(&device.take_requests().1), [9]);
    }
}

#[test]
fn a_device_that_names_no_request_refused_all() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 4, 1);
    device.refuse_after(0);
    device.forge_refused();
    for token in 0..3 {
        commit(&mut queue, token, 1);
    }
    assert_eq!(queue.ring(), Err(3));
}

#[test]
fn a_batch_longer_than_the_queue_takes_several_lists() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 1000, 1);
    for token in 0..200 {
        commit(&mut queue, token, 1);
    }
    queue.ring().expect("taken");
    let (calls, posted) = device.take_requests();
    assert_eq!(calls, 4);
    assert_eq!(tokens(&posted), (0..200).collect::<Vec<_>>());
}

#[test]
fn nothing_is_posted_after_a_refused_request() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 1000, 1);
    device.refuse_after(70);
    for token in 0..200 {
        if token == 150 {
            device.refuse_nothing();
        }
        commit(&mut queue, token, 1);
    }
    assert_eq!(queue.ring(), Err(130));
    assert_eq!(
        tokens(&device.take_requests().1),
        (0..70).collect::<Vec<_>>()
    );
}

/// A queue whose requests carry so many bytes.
fn carrying(device: &BedDevice, inline: u32) -> VerbsSendQueue {
    VerbsSendQueue {
        list: device.carrying_list(64, 3, inline),
        number: 17,
        objects: Arc::default(),
    }
}

/// Commits a request with these segments.
fn commit_segments(
    queue: &mut VerbsSendQueue,
    token: u64,
    operation: SendOperation,
    segments: &[&[AtomicU8]],
) {
    let request = request(token, operation);
    let mut slot = queue.reserve(&request, segments.len()).expect("room");
    let mut length = 0;
    for memory in segments {
        slot.segment(Segment {
            address: memory.as_ptr().expose_provenance() as u64,
            length: memory.len() as u32,
            key: 7,
        });
        length += memory.len() as u32;
    }
    slot.commit(length).expect("taken");
}

fn memory(length: usize) -> Vec<AtomicU8> {
    (0..length).map(|at| AtomicU8::new(at as u8)).collect()
}

const TO_PEER: RemoteRange = RemoteRange {
    address: 0xABCD,
    key: 99,
};

/// Inline data is that of the moment of the post; the memory is free afterwards.
///
/// Spec: EPS-01, EPW-01, EPW-02
#[test]
fn short_requests_carry_their_data() {
    let device = BedDevice::new();
    let mut queue = carrying(&device, 16);
    for operation in [SendOperation::Send, SendOperation::RdmaWrite(TO_PEER)] {
        for (lengths, carries) in [
            ([0, 0, 0], true),
            ([1, 0, 0], true),
            ([16, 0, 0], true),
            ([4, 5, 7], true),
            ([17, 0, 0], false),
            ([16, 1, 0], false),
        ] {
            let segments = lengths.map(memory);
            let used: Vec<&[AtomicU8]> = segments
                .iter()
                .filter(|memory| !memory.is_empty())
                .map(Vec::as_slice)
                .collect();
            commit_segments(&mut queue, 1, operation, &used);
            queue.ring().expect("taken");
            drop(segments);
            let (_, posted) = device.take_requests();
            let expected = lengths.iter().flat_map(|&length| 0..length as u8);
            let expected: Option<Vec<u8>> = carries.then(|| expected.collect());
            assert_eq!(posted[0].data, expected, "{operation:?} {lengths:?}");
            assert_eq!(posted[0].flags & !8, SIGNALLED);
        }
    }
}

/// Spec: EPB-01
#[test]
fn reads_and_queues_without_room_use_no_inline_data() {
    let device = BedDevice::new();
    let bytes = memory(4);
    let mut queue = carrying(&device, 16);
    commit_segments(&mut queue, 1, SendOperation::RdmaRead(TO_PEER), &[&bytes]);
    queue.ring().expect("taken");
    let mut queue = carrying(&device, 0);
    commit_segments(&mut queue, 2, SendOperation::Send, &[&bytes]);
    commit_segments(&mut queue, 3, SendOperation::Send, &[]);
    queue.ring().expect("taken");
    let (_, posted) = device.take_requests();
    assert_eq!(tokens(&posted), [1, 2, 3]);
    assert!(posted.iter().all(|posted| posted.data.is_none()));
}

/// A device that takes less data in a request than it granted gets that request without its data,
/// and no later request with data.
///
/// Spec: GEN-06, DTO-11
#[test]
fn a_request_with_refused_inline_data_is_posted_without_it() {
    let device = BedDevice::new();
    let mut queue = carrying(&device, 64);
    device.take_inline(8);
    let segments = [8, 4, 9, 1, 64, 65].map(memory);
    for (token, memory) in (1..).zip(&segments) {
        commit_segments(&mut queue, token, SendOperation::Send, &[memory]);
    }
    assert_eq!(queue.ring(), Ok(()));
    let (calls, posted) = device.take_requests();
    assert_eq!(calls, 2);
    assert_eq!(tokens(&posted), [1, 2, 3, 4, 5, 6]);
    let carries: Vec<bool> = posted.iter().map(|posted| posted.data.is_some()).collect();
    assert_eq!(carries, [true, true, false, false, false, false]);
    commit_segments(&mut queue, 7, SendOperation::Send, &[&segments[3]]);
    queue.ring().expect("taken");
    let (calls, posted) = device.take_requests();
    assert_eq!((calls, posted[0].data.as_deref()), (1, None));
}

/// Spec: GEN-06, DTO-07
#[test]
fn a_full_device_does_not_disable_inline_data() {
    for taken in 0..4 {
        let device = BedDevice::new();
        let mut queue = carrying(&device, 64);
        device.refuse_after(taken);
        let bytes = memory(8);
        for token in 0..4 {
            commit_segments(&mut queue, token, SendOperation::Send, &[&bytes]);
        }
        assert_eq!(queue.ring(), Err(4 - taken as u32));
        let expected: Vec<u64> = (0..taken as u64).collect();
        assert_eq!(tokens(&device.take_requests().1), expected);
        device.refuse_nothing();
        queue.ring().expect("nothing is left");
        commit_segments(&mut queue, 9, SendOperation::Send, &[&bytes]);
        queue.ring().expect("taken");
        assert!(device.take_requests().1[0].data.is_some());
    }
}

/// Spec: GEN-06
#[test]
fn a_wrong_refused_request_causes_no_second_post() {
    let device = BedDevice::new();
    let mut queue = carrying(&device, 64);
    device.refuse_after(1);
    device.forge_refused();
    let bytes = memory(8);
    for token in 0..3 {
        commit_segments(&mut queue, token, SendOperation::Send, &[&bytes]);
    }
    assert_eq!(queue.ring(), Err(3));
    let (calls, posted) = device.take_requests();
    assert_eq!((calls, tokens(&posted)), (1, vec![0]));
}

/// Spec: RMB-03
#[test]
fn a_bind_of_an_unknown_region_is_rejected() {
    let device = BedDevice::new();
    let mut queue = queue(&device, 4, 1);
    let bind = BindRequest {
        token: 1,
        window: dat_core::backend::WindowKey(0x0100_0000),
        region: Default::default(),
        address: 0,
        length: 16,
        privileges: dat_core::flags::MemoryPrivileges::REMOTE_READ,
        flags: SendFlags::empty(),
        is_only: true,
    };
    assert_eq!(queue.bind(&bind), Err(Rejected));
    assert_eq!(device.take_requests().0, 0);
}
