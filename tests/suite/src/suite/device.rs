//! The core's requests to a device, and its checks of the device's answers.
//!
//! The requests are compared where the device gets them, since many faults show at no peer.

use core::array::from_fn;

use dat_core::backend::{
    BindRequest, DisconnectMode, ExtendedRequest, ExtendedSend, RemoteRange, SendFlags,
    SendOperation,
};
use dat_core::endpoint::Extended;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{
    CloseFlags, CompletionFlags, DtoStatus, EpFields, MemoryPrivileges, WATERMARK_INFINITE,
};
use dat_core::memory::{LmrTriplet, RmrTriplet};

use super::endpoint::modify;
use crate::fixture::watched::{Call, WatchedBed, Work};
use crate::fixture::{
    ExtendedTestbed, Memory, Net, Party, PartyOptions, Testbed, granted, srq_attributes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A segment of length 0 that names no memory.
const NOTHING: LmrTriplet = LmrTriplet {
    context: u32::MAX,
    address: u64::MAX,
    length: 0,
};

/// Returns all sets of the flags that every request takes.
fn flag_sets() -> [CompletionFlags; 8] {
    let each = [
        CompletionFlags::SUPPRESS,
        CompletionFlags::SOLICITED_WAIT,
        CompletionFlags::BARRIER_FENCE,
    ];
    from_fn(|set| {
        let chosen = (0..3).filter(|bit| set >> bit & 1 == 1);
        chosen.map(|bit| each[bit]).collect()
    })
}

/// Returns the flags that a device gets for a request.
fn device_flags(flags: CompletionFlags, has_solicited: bool) -> SendFlags {
    let mut expected = SendFlags::empty();
    let solicited = has_solicited && flags.contains(CompletionFlags::SOLICITED_WAIT);
    expected.set(SendFlags::SOLICITED, solicited);
    let fenced = flags.contains(CompletionFlags::BARRIER_FENCE);
    expected.set(SendFlags::FENCE, fenced);
    expected
}

fn range(remote: &RmrTriplet) -> RemoteRange {
    RemoteRange {
        address: remote.address,
        key: remote.context,
    }
}

/// Returns lists of segments, with and without empty ones.
fn lists(memory: &Memory) -> [Vec<LmrTriplet>; 7] {
    let [first, second] = [memory.segment(0, 8), memory.segment(100, 5)];
    let empty = memory.segment(50, 0);
    [
        vec![first],
        vec![first, second],
        vec![NOTHING, first, NOTHING],
        vec![first, empty, second],
        vec![NOTHING; 3],
        vec![empty],
        vec![],
    ]
}

/// Returns the segments that a device gets for the first `room` bytes of a list.
fn device_segments(list: &[LmrTriplet], mut room: u64) -> Vec<(u64, u64)> {
    let mut segments = Vec::new();
    for segment in list {
        let length = segment.length.min(room);
        room -= length;
        if length != 0 {
            segments.push((segment.address, length));
        }
    }
    segments
}

fn total(list: &[LmrTriplet]) -> u64 {
    list.iter().map(|segment| segment.length).sum()
}

/// A device gets the fence of each request, and the solicited flag of Sends only.
///
/// Spec: DTO-04, EPS-01, EPW-09, EPW-37, EPB-01
pub fn devices_get_the_flags_of_each_request<T: Testbed>(bed: &T) {
    let bed = &WatchedBed::new(bed);
    let (net, left, right) = Net::connected(bed);
    let (to, from) = (right.memory.remote(0, 64), right.memory.remote(0, 5));
    for flags in flag_sets() {
        for list in lists(&left.memory) {
            right.receive_into(&[right.memory.segment(0, 64)], 1);
            bed.calls();
            left.send(&list, 2, flags);
            left.write(&list, 3, &to, flags);
            let from = match total(&list) {
                0 => right.memory.remote(0, 0),
                _ => from,
            };
            left.read(&list, 4, &from, flags);
            let found = bed.posts().into_iter().map(|post| match post.work {
                Work::Request(request) => (request.operation, request.flags),
                other => panic!("{other:?}"),
            });
            let expected = [
                (SendOperation::Send, device_flags(flags, true)),
                (
                    SendOperation::RdmaWrite(range(&to)),
                    device_flags(flags, false),
                ),
                (
                    SendOperation::RdmaRead(range(&from)),
                    device_flags(flags, false),
                ),
            ];
            assert_eq!(found.collect::<Vec<_>>(), expected, "{flags:?} {list:?}");
            net.receive_ends(&right, 1, DtoStatus::Success);
            if !flags.contains(CompletionFlags::SUPPRESS) {
                for cookie in [2, 3, 4] {
                    net.success(&left, cookie);
                }
            }
            net.quiet(&left);
        }
    }
}

/// A device gets no empty segment, and no segment beyond what a Read fetches.
///
/// Spec: DTO-06, EPW-39, EPB-02, EPV-02, SRQR-06
pub fn devices_get_no_empty_segment<T: Testbed>(bed: &T) {
    let bed = &WatchedBed::new(bed);
    let (net, left, right) = Net::connected(bed);
    let srq = granted(right.ia.srq_create(right.zone, &srq_attributes(16, 3, 0)));
    let check = |what: &str, list: &[LmrTriplet], length: u64| {
        let posts = bed.posts();
        let [post] = &posts[..] else {
            panic!("{what}: {posts:?}");
        };
        let expected = device_segments(list, length);
        let found = (&post.segments, post.length);
        assert_eq!(found, (&expected, length), "{what} of {list:?}");
    };
    for list in lists(&left.memory) {
        let all = total(&list);
        bed.calls();
        right.receive_into(&[right.memory.segment(0, 64)], 1);
        check("receive", &[right.memory.segment(0, 64)], 64);
        left.send_from(&list, 2);
        check("send", &list, all);
        left.write(&list, 3, &right.memory.remote(0, 64), DEFAULT);
        check("write", &list, all);
        for cookie in [2, 3] {
            net.success(&left, cookie);
        }
        for length in [0, 1, 8, 9, 13] {
            if length <= all {
                left.read(&list, 4, &right.memory.remote(0, length), DEFAULT);
                check("read", &list, length);
                net.success(&left, 4);
            }
        }
        net.receive_ends(&right, 1, DtoStatus::Success);
    }
    for list in lists(&right.memory) {
        right.receive_into(&list, 1);
        check("receive", &list, total(&list));
        granted(right.ia.srq_post_recv(srq, &list, 1));
        check("shared receive", &list, total(&list));
    }
}

/// A bind reaches the device with its range, its remote privileges and no flag but the fence.
///
/// The device also learns that no other bind of the window is pending, or that one is.
///
/// Spec: RMB-11, RMB-27, RMB-43, DTO-04
pub fn devices_get_binds_as_posted<T: Testbed>(bed: &T) {
    const FAR: MemoryPrivileges =
        MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);
    let bed = &WatchedBed::new(bed);
    let (net, left, _right) = Net::connected(bed);
    let rmr = granted(left.ia.rmr_create(left.zone));
    let reads = MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::LOCAL_WRITE);
    for flags in flag_sets() {
        for (segment, privileges) in [
            (left.memory.segment(64, 100), reads),
            (left.memory.segment(1, 1), MemoryPrivileges::REMOTE_WRITE),
            (NOTHING, MemoryPrivileges::REMOTE_READ),
            (left.memory.segment(0, 4096), MemoryPrivileges::ALL),
        ] {
            bed.calls();
            for is_only in [true, false] {
                left.bind(rmr, &segment, privileges, 1, flags);
                let posts = bed.posts();
                let [post] = &posts[..] else {
                    panic!("{posts:?}");
                };
                let Work::Bind(found) = post.work else {
                    panic!("{post:?}");
                };
                let expected = BindRequest {
                    address: segment.address,
                    length: segment.length,
                    privileges: privileges.intersection(FAR),
                    flags: device_flags(flags, false),
                    is_only,
                    ..found
                };
                assert_eq!(found, expected, "{flags:?} {segment:?}");
            }
            if !flags.contains(CompletionFlags::SUPPRESS) {
                for _ in 0..2 {
                    assert_eq!(net.bound(&left).status, DtoStatus::Success);
                }
            }
            net.silent(&left.ia, left.request);
        }
    }
}

/// A receive is at most as long as its buffer, and a request as long as it was posted.
///
/// Programs take that many bytes of the buffer, so a broken device must not name more.
///
/// Spec: DTO-03, DTO-14
pub fn false_lengths_of_devices_are_bounded<T: Testbed>(bed: &T) {
    const LIES: [u32; 6] = [0, 3, 16, 17, u32::MAX - 1, u32::MAX];
    let bed = &WatchedBed::new(bed);
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let left: Party<WatchedBed<'_, T>> = Party::new(&net.adapter(), &options);
    let ia = net.adapter();
    let cno = granted(ia.cno_create(None));
    let zone = granted(ia.pz_create());
    let srq = granted(ia.srq_create(zone, &srq_attributes(16, 3, 0)));
    // A dequeue takes a completion from the device, or progress keeps it for a notification.
    for (notifies, shares) in [(false, false), (true, false), (false, true), (true, true)] {
        let cno = notifies.then_some(cno);
        let right = match (cno, shares) {
            (cno, true) => Party::sharing(&ia, zone, srq, cno, &options),
            (Some(cno), false) => Party::notifying(&ia, cno, &options),
            (None, false) => Party::new(&ia, &options),
        };
        let near = Party::new(&left.ia, &options);
        net.connect(&near, &right);
        for lie in LIES {
            let buffer = [right.memory.segment(0, 7), right.memory.segment(9, 9)];
            if shares {
                granted(ia.srq_post_recv(srq, &buffer, 1));
            } else {
                right.receive_into(&buffer, 1);
            }
            near.send_from(&[near.memory.segment(0, 8)], 2);
            bed.lie(Some(lie));
            let received = net.receive_ends(&right, 1, DtoStatus::Success);
            assert_eq!(received.transferred_length, u64::from(lie.min(16)), "{lie}");
            assert_eq!(net.success(&near, 2).transferred_length, 8, "{lie}");
            right.write(
                &[right.memory.segment(0, 30)],
                3,
                &near.memory.remote(0, 64),
                DEFAULT,
            );
            assert_eq!(net.success(&right, 3).transferred_length, 30, "{lie}");
            near.read(&buffer_of(&near), 4, &right.memory.remote(0, 11), DEFAULT);
            assert_eq!(net.success(&near, 4).transferred_length, 11, "{lie}");
            bed.lie(None);
        }
    }
}

fn buffer_of<T: Testbed>(party: &Party<T>) -> [LmrTriplet; 1] {
    [party.memory.segment(0, 20)]
}

/// The device gets both high watermarks of an endpoint, each in its place, or no limit.
///
/// A change of one of them, or a later queue pair, keeps the other one.
///
/// Spec: EPH-01, EPH-03, EPM-02, EPM-06
pub fn devices_get_both_high_watermarks<T: Testbed>(bed: &T) {
    let off = WATERMARK_INFINITE;
    let settings = [
        ((3, 5), (Some(3), Some(5))),
        ((off, 2), (None, Some(2))),
        ((7, off), (Some(7), None)),
        ((0, 0), (Some(0), Some(0))),
        ((i32::MAX, 1), (Some(i32::MAX as u32), Some(1))),
        ((off, off), (None, None)),
    ];
    let bed = &WatchedBed::new(bed);
    let (_net, _left, right) = Net::unconnected(bed);
    for ((soft, hard), expected) in settings {
        bed.calls();
        granted(right.ia.ep_set_watermark(right.ep, soft, hard));
        let (soft, hard) = expected;
        assert_eq!(bed.calls(), [Call::HighWatermarks(soft, hard)]);
    }
    // An attribute sets the soft one of a new endpoint on a shared queue.
    let srq = granted(right.ia.srq_create(right.zone, &srq_attributes(4, 1, 0)));
    let options = PartyOptions::with(|attributes| attributes.srq_soft_hw = 3);
    bed.calls();
    let sharing: Party<WatchedBed<'_, T>> =
        Party::sharing(&right.ia, right.zone, srq, None, &options);
    assert_eq!(bed.calls(), [Call::HighWatermarks(Some(3), None)]);
    granted(right.ia.ep_set_watermark(sharing.ep, 3, 6));
    bed.calls();
    granted(modify(&sharing, EpFields::SRQ_SOFT_HW, |wanted| {
        wanted.attributes.srq_soft_hw = 4;
    }));
    assert_eq!(bed.calls(), [Call::HighWatermarks(Some(4), Some(6))]);
    // An endpoint without a zone has no queue pair yet.
    let [receive, request, connect] = [right.receive, right.request, right.connect].map(Some);
    let attributes = PartyOptions::default().attributes;
    let ia = &right.ia;
    let bare = granted(ia.ep_create(None, receive, request, connect, Some(&attributes)));
    granted(ia.ep_set_watermark(bare, 3, 5));
    assert_eq!(bed.calls(), []);
    let bare = Party {
        ep: bare,
        ..right.clone()
    };
    granted(modify(&bare, EpFields::PZ, |wanted| {
        wanted.pz = Some(right.zone);
    }));
    assert_eq!(bed.calls(), [Call::HighWatermarks(Some(3), Some(5))]);
}

/// The device ends a connection in the way that the consumer chose, or as a broken one.
///
/// Spec: EPD-01, EPD-02, DTO-12
pub fn devices_end_connections_as_asked<T: Testbed>(bed: &T) {
    let bed = &WatchedBed::new(bed);
    let net = Net::new(bed);
    for (flags, mode) in [
        (CloseFlags::Abrupt, DisconnectMode::Abrupt),
        (CloseFlags::Graceful, DisconnectMode::Graceful),
    ] {
        let (left, right) = net.pair(&PartyOptions::default());
        bed.calls();
        granted(left.ia.ep_disconnect(left.ep, flags));
        for party in [&left, &right] {
            assert_eq!(net.connection(party), ConnectionEventKind::Disconnected);
        }
        assert_eq!(bed.calls(), [Call::Disconnect(mode)]);
    }
    let (left, right) = net.pair(&PartyOptions::default());
    let mut nowhere = right.memory.remote(0, 8);
    nowhere.context = !nowhere.context;
    left.write(&[left.memory.segment(0, 8)], 1, &nowhere, DEFAULT);
    net.request_ends(&left, 1, DtoStatus::RemoteAccess);
    net.broken(&left, &right);
    let calls = bed.calls();
    let modes = calls
        .iter()
        .filter(|call| matches!(call, Call::Disconnect(_)));
    for call in modes {
        assert_eq!(*call, Call::Disconnect(DisconnectMode::Broken));
    }
}

/// Extended operations reach the device as posted.
///
/// That is: with their operands, the fence, the solicited flag of writes only, without empty
/// segments, and with 8 bytes for a number.
///
/// Spec: DTO-04, DTO-06, EPW-37
pub fn devices_get_extended_operations_as_posted<T: ExtendedTestbed>(bed: &T) {
    let bed = &WatchedBed::new(bed);
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let [left, right] =
        [(); 2].map(|()| Party::new(&net.adapter_over(bed.extended_device()), &options));
    net.connect(&left, &right);
    let aligned = right.memory.address.next_multiple_of(8) - right.memory.address;
    let far = right.memory.remote(aligned, 64);
    let (remote, number) = (range(&far), [left.memory.segment(8, 20)]);
    let post = |operation, list: &[LmrTriplet], flags| {
        bed.calls();
        granted(
            left.ia
                .post_extended(left.ep, operation, list, 1, &far, flags),
        );
        let posts = bed.posts();
        let [post] = &posts[..] else {
            panic!("{posts:?}");
        };
        let Work::Extended(request) = post.work else {
            panic!("{post:?}");
        };
        net.until("a completion", || {
            let is_silent = flags.contains(CompletionFlags::SUPPRESS);
            (is_silent || left.ia.evd_dequeue(left.request).is_ok()).then_some(())
        });
        net.silent(&left.ia, left.request);
        (request, post.segments.clone())
    };
    for flags in flag_sets() {
        for list in lists(&left.memory) {
            right.receive_into(&[], 2);
            let immediate = 0x1234_5678;
            let found = post(Extended::WriteImmediate { immediate }, &list, flags);
            net.event(&right.ia, right.receive);
            let all = total(&list);
            let expected = ExtendedRequest {
                operation: ExtendedSend::WriteImmediate { remote, immediate },
                length: all as u32,
                flags: device_flags(flags, true),
                ..found.0
            };
            assert_eq!(found, (expected, device_segments(&list, all)), "{flags:?}");
        }
        for (operation, expected) in [
            (
                Extended::FetchAndAdd { add: 3 },
                ExtendedSend::FetchAndAdd { remote, add: 3 },
            ),
            (
                Extended::CompareAndSwap {
                    compare: 4,
                    swap: 5,
                },
                ExtendedSend::CompareAndSwap {
                    remote,
                    compare: 4,
                    swap: 5,
                },
            ),
        ] {
            let found = post(operation, &number, flags);
            let expected = ExtendedRequest {
                operation: expected,
                length: 8,
                flags: device_flags(flags, false),
                ..found.0
            };
            assert_eq!(found, (expected, device_segments(&number, 8)), "{flags:?}");
        }
    }
}
