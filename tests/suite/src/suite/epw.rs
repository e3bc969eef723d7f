//! RDMA Writes: `dat_ep_post_rdma_write`.

use dat_core::Error;
use dat_core::event::{DtoCompletion, DtoOperation, Event};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, IovOwnership, MemoryPrivileges, OPTIMAL_ALIGNMENT,
    ProviderFields,
};
use dat_core::memory::{LmrTriplet, RmrTriplet};

use crate::fixture::errors::{EP_FULL, EP_UNCONNECTED};
use crate::fixture::{
    MakeTarget, Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused, same_bytes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Posts an RDMA Write of a party.
pub(super) fn write<T: Testbed>(
    party: &Party<T>,
    segments: &[LmrTriplet],
    cookie: u64,
    remote: &RmrTriplet,
    flags: CompletionFlags,
) -> dat_core::Result<()> {
    party
        .ia
        .post_rdma_write(party.ep, segments, cookie, remote, flags)
}

/// A write gathers its segments in list order at the start of the remote range.
///
/// The rest of a longer range stays. One completion with cookie and length arrives at the request
/// dispatcher. The peer gets no event.
///
/// Spec: EPW-01..06, EPW-10, EPW-11, EPW-17, EPW-19, EPW-22, EPW-25, EPW-42, EPW-43, DTO-01,
/// DTO-03, DTO-06
pub fn write_gathers_segments_in_list_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let source = left.memory.content();
    let mut expected = right.memory.content();
    expected[100..110].copy_from_slice(&source[2000..2010]);
    expected[110..111].copy_from_slice(&source[0..1]);
    expected[111..144].copy_from_slice(&source[1000..1033]);
    let nothing = LmrTriplet {
        context: 0xFFFF_FFFF,
        address: u64::MAX,
        length: 0,
    };
    let segments = [
        left.memory.segment(2000, 10),
        nothing,
        left.memory.segment(0, 1),
        left.memory.segment(1000, 33),
    ];
    left.write(
        &segments,
        0x1234_5678_9ABC_DEF0,
        &right.memory.remote(100, 500),
        DEFAULT,
    );
    let event = net.event(&left.ia, left.request);
    assert_eq!(event.number(), 1);
    assert_eq!(
        event,
        Event::Dto(DtoCompletion {
            ep: left.ep,
            cookie: 0x1234_5678_9ABC_DEF0,
            status: DtoStatus::Success,
            transferred_length: 44,
            operation: DtoOperation::RdmaWrite,
        })
    );
    equal("the peer's memory", &right.memory.content(), &expected);
    equal("the local memory", &left.memory.content(), &source);
    net.quiet(&left);
    net.quiet(&right);
}

/// Segment lists of every length are written, read and checked to their end.
///
/// A bad segment anywhere refuses the post without effect. An empty one anywhere changes nothing
/// for the others.
///
/// Spec: EPW-03, EPW-27, EPW-42, EPB-02, EPB-04, DTO-07, GEN-03
pub fn lists_of_every_length_are_checked_to_their_end<T: Testbed>(bed: &T) {
    const LONGEST: usize = 12;
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        let most = LONGEST as i32;
        attributes.max_request_iov = most;
        attributes.max_rdma_write_iov = most;
        attributes.max_rdma_read_iov = most;
    }));
    let size = left.memory.len() as u64;
    let bad = left.memory.segment(size - 4, 5);
    let empty = LmrTriplet::default();
    // List neighbours are apart in memory, and no two segments have the same length.
    let segments: Vec<_> = (0..LONGEST as u64)
        .map(|index| {
            left.memory
                .segment((LONGEST as u64 - index) * 64, index + 1)
        })
        .collect();
    let target = right.memory.remote(0, size);
    for count in 1..=LONGEST {
        let good = &segments[..count];
        let total: u64 = good.iter().map(|segment| segment.length).sum();
        let exact = right.memory.remote(0, total);
        for position in 0..count {
            let mut list = good.to_vec();
            list[position] = bad;
            net.no_effect(&[&left, &right], Error::invalid_argument(3), || {
                write(&left, &list, 1, &target, DEFAULT)
            });
            net.no_effect(&[&left, &right], Error::invalid_argument(3), || {
                left.ia.post_rdma_read(left.ep, &list, 1, &exact, DEFAULT)
            });
        }
        for without in (0..count).map(Some).chain([None]) {
            let mut list = good.to_vec();
            if let Some(position) = without {
                list[position] = empty;
            }
            let total: u64 = list.iter().map(|segment| segment.length).sum();
            left.memory.fill(3);
            right.memory.fill(4);
            let bytes = |memory: &[u8]| -> Vec<u8> {
                let segment = |segment: &LmrTriplet| {
                    let offset = segment
                        .address
                        .wrapping_sub(left.memory.segment(0, 0).address);
                    memory[offset as usize..][..segment.length as usize].to_vec()
                };
                let filled = list.iter().filter(|segment| segment.length != 0);
                filled.flat_map(segment).collect()
            };
            let gathered = bytes(&left.memory.content());
            let mut expected = right.memory.content();
            expected[..gathered.len()].copy_from_slice(&gathered);
            left.write(&list, 2, &target, DEFAULT);
            assert_eq!(net.success(&left, 2).transferred_length, total);
            equal("what was written", &right.memory.content(), &expected);
            right.memory.fill(5);
            let remote = right.memory.remote(0, total);
            left.read(&list, 3, &remote, DEFAULT);
            assert_eq!(net.success(&left, 3).transferred_length, total);
            let fetched = bytes(&left.memory.content());
            let source = &right.memory.content()[..fetched.len()];
            equal("what was read", &fetched, source);
        }
    }
}

/// A suppressed success raises no event; a suppressed failure raises one.
///
/// Spec: EPW-07, DTO-04
pub fn suppressed_write_reports_failure_only<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    let suppress = CompletionFlags::SUPPRESS;
    let segment = [left.memory.segment(0, 8)];
    left.write(&segment, 1, &right.memory.remote(0, 8), suppress);
    net.quiet(&left);
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 8);
    assert!(left.status().request_idle);
    // The order of completions shows that no record of the suppressed write is left.
    left.write(&segment, 2, &right.memory.remote(0, 8), DEFAULT);
    net.success(&left, 2);
    let outside = right.memory.remote(4092, 8);
    left.write(&segment, 3, &outside, suppress);
    net.request_ends(&left, 3, DtoStatus::RemoteAccess);
    net.broken(&left, &right);
}

/// UNSIGNALLED is refused unless the endpoint's requests are configured for it.
///
/// Then its event comes without a notification.
///
/// Spec: EPW-08, EPW-20, DTO-04, DTO-05
pub fn unsignalled_write_needs_configuration<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for flags in [CompletionFlags::empty(), CompletionFlags::EVD_THRESHOLD] {
        let (left, right) = net.pair(&PartyOptions::with(|attributes| {
            attributes.request_completion_flags = flags;
        }));
        net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
            write(
                &left,
                &[left.memory.segment(0, 8)],
                1,
                &right.memory.remote(0, 8),
                CompletionFlags::UNSIGNALLED,
            )
        });
    }
    let options = PartyOptions::with(|attributes| {
        attributes.request_completion_flags = CompletionFlags::UNSIGNALLED;
    });
    let ia = net.adapter();
    let cno = granted(ia.cno_create(None));
    let left = Party::notifying(&ia, cno, &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    left.write(&segment, 1, &remote, CompletionFlags::UNSIGNALLED);
    net.run_to_idle();
    assert_eq!(net.triggered(&ia, cno), None);
    left.write(&segment, 2, &remote, DEFAULT);
    net.run_to_idle();
    assert_eq!(net.triggered(&ia, cno), Some(left.request));
    net.success(&left, 1);
    net.success(&left, 2);
}

/// A fenced write starts after earlier reads completed, so it can forward their data.
///
/// Spec: EPW-09, DTO-04
pub fn fenced_write_forwards_what_a_read_fetches<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for round in 0..16 {
        right.memory.fill(round);
        left.memory.fill(100 + round);
        let window = [left.memory.segment(0, 1024)];
        left.read(&window, 1, &right.memory.remote(0, 1024), DEFAULT);
        left.write(
            &window,
            2,
            &right.memory.remote(2048, 1024),
            CompletionFlags::BARRIER_FENCE,
        );
        net.success(&left, 1);
        net.success(&left, 2);
        same_bytes("the copy", (&right.memory, 2048), (&right.memory, 0), 1024);
    }
}

/// The consumer owns the segment list again when the post returns.
///
/// The provider's attribute says so.
///
/// Spec: EPW-14, EPW-15, DTO-09
pub fn segment_list_may_change_after_the_post<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let provider = granted(
        left.ia
            .ia_query(Default::default(), ProviderFields::IOV_OWNERSHIP),
    )
    .provider;
    assert_eq!(provider.iov_ownership_on_return, IovOwnership::Consumer);
    left.memory.fill(1);
    let mut list = [left.memory.segment(0, 64)];
    let mut remote = right.memory.remote(0, 64);
    left.write(&list, 1, &remote, DEFAULT);
    list[0] = left.memory.segment(512, 64);
    remote = right.memory.remote(512, 64);
    left.write(&list, 2, &remote, DEFAULT);
    net.success(&left, 1);
    net.success(&left, 2);
    for offset in [0, 512] {
        same_bytes("data", (&right.memory, offset), (&left.memory, offset), 64);
    }
}

/// A post returns before any data moves, also if the queue is full of requests.
///
/// Neither the time nor the peer advances during the call.
///
/// Spec: EPW-18, GEN-13
pub fn write_post_does_not_wait<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    net.run_to_idle();
    let before = bed.now();
    for cookie in 0..16 {
        left.write(
            &[left.memory.segment(0, 4096)],
            cookie,
            &right.memory.remote(0, 4096),
            DEFAULT,
        );
    }
    assert!(!left.status().request_idle);
    assert_eq!(bed.now(), before);
    for cookie in 0..16 {
        net.success(&left, cookie);
    }
    assert!(left.status().request_idle);
}

/// Cookies come back unchanged; they need not be unique and may be 0.
///
/// Spec: EPW-04, EPW-21, EPW-22
pub fn write_cookies_come_back_untouched<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let cookies = [7, 7, 0, u64::MAX, 7, 1 << 63];
    for cookie in cookies {
        left.write(
            &[left.memory.segment(0, 1)],
            cookie,
            &right.memory.remote(0, 1),
            DEFAULT,
        );
    }
    for cookie in cookies {
        net.success(&left, cookie);
    }
    net.quiet(&left);
}

/// A write is allowed in CONNECTED, flushed in DISCONNECTED, refused in UNCONNECTED.
///
/// A suppressed one is flushed, too.
///
/// Spec: EPW-23, EPW-24, EPW-29, DTO-10, GEN-06
pub fn write_follows_the_endpoint_state<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    right.memory.fill(9);
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    net.no_effect(&[&left, &right], EP_UNCONNECTED, || {
        write(&left, &segment, 1, &remote, DEFAULT)
    });
    net.connect(&left, &right);
    left.write(&segment, 2, &remote, DEFAULT);
    net.success(&left, 2);
    net.disconnect(&left, &right);
    right.memory.fill(10);
    let before = right.memory.content();
    for (cookie, flags) in [(3, DEFAULT), (4, CompletionFlags::SUPPRESS)] {
        left.write(&segment, cookie, &remote, flags);
        let completion = net.request_completion(&left);
        assert_eq!(completion.ep, left.ep);
        assert_eq!(completion.operation, DtoOperation::RdmaWrite);
        assert_eq!(
            (completion.cookie, completion.status),
            (cookie, DtoStatus::Flushed)
        );
    }
    net.quiet(&left);
    equal("the peer's memory", &right.memory.content(), &before);
    assert_eq!(left.state(), EndpointState::Disconnected);
    assert!(left.status().request_idle);
}

/// The queue takes exactly as many requests as the endpoint was made for.
///
/// Each dequeued completion makes room for one.
///
/// Spec: EPW-26, DTO-07
pub fn write_queue_has_its_exact_size<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 5;
    }));
    let full = EP_FULL;
    let segment = [left.memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    for cookie in 0..5 {
        left.write(&segment, cookie, &remote, DEFAULT);
    }
    refused(write(&left, &segment, 99, &remote, DEFAULT), full);
    net.success(&left, 0);
    left.write(&segment, 5, &remote, DEFAULT);
    refused(write(&left, &segment, 99, &remote, DEFAULT), full);
    for cookie in 1..6 {
        net.success(&left, cookie);
    }
    net.quiet(&left);
    // Suppressed requests return their room without an event to dequeue.
    for _ in 0..3 {
        assert_eq!(net.request_room(&left), 5);
    }
}

/// A fault that only the peer can detect ends with REMOTE_ACCESS and a broken connection.
///
/// No byte changes.
///
/// Spec: EPW-32, EPW-34, EPW-41, DTO-08, DTO-12, GEN-06, E22
pub fn remote_faults_of_a_write_break_the_connection<T: Testbed>(bed: &T) {
    let cases: [(&str, MakeTarget<T>); 8] = [
        ("another zone", |right| {
            let zone = granted(right.ia.pz_create());
            Memory::register(&right.ia, zone, 64, MemoryPrivileges::ALL).remote(0, 64)
        }),
        ("no remote write", |right| {
            let privileges = MemoryPrivileges::ALL.difference(MemoryPrivileges::REMOTE_WRITE);
            right.more_memory(64, privileges).remote(0, 64)
        }),
        ("unknown context", |right| RmrTriplet {
            context: right.memory.remote_context ^ 0x5555_0000,
            ..right.memory.remote(0, 64)
        }),
        ("context 0", |right| RmrTriplet {
            context: 0,
            ..right.memory.remote(0, 64)
        }),
        ("a freed region", |right| {
            let freed = right.more_memory(64, MemoryPrivileges::ALL);
            granted(right.ia.lmr_free(freed.lmr));
            freed.remote(0, 64)
        }),
        ("past the end", |right| right.memory.remote(4096 - 63, 64)),
        ("before the start", |right| {
            right.memory.remote(0_u64.wrapping_sub(1), 64)
        }),
        ("around the address space", |right| {
            right.memory.remote(
                u64::MAX.wrapping_sub(right.memory.address).wrapping_sub(8),
                64,
            )
        }),
    ];
    for (case, remote) in cases {
        let (net, left, right) = Net::connected(bed);
        left.memory.fill(1);
        right.memory.fill(2);
        let before = right.memory.content();
        let remote = remote(&right);
        left.write(&[left.memory.segment(0, 64)], 1, &remote, DEFAULT);
        left.write(
            &[left.memory.segment(0, 8)],
            2,
            &right.memory.remote(0, 8),
            DEFAULT,
        );
        let completion = net.request_completion(&left);
        assert_eq!(
            (completion.cookie, completion.status),
            (1, DtoStatus::RemoteAccess),
            "{case}"
        );
        let later = net.request_completion(&left);
        assert_eq!(
            (later.cookie, later.status),
            (2, DtoStatus::Flushed),
            "{case}"
        );
        net.broken(&left, &right);
        equal(case, &right.memory.content(), &before);
        net.quiet(&left);
        net.quiet(&right);
    }
}

/// A write takes any alignment; the optimal alignment divides the portable one.
///
/// Spec: EPW-35, EPW-36, IAQ-07
pub fn write_takes_any_alignment<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let provider = granted(
        left.ia
            .ia_query(Default::default(), ProviderFields::OPTIMAL_BUFFER_ALIGNMENT),
    )
    .provider;
    assert_ne!(provider.optimal_buffer_alignment, 0);
    assert_eq!(OPTIMAL_ALIGNMENT % provider.optimal_buffer_alignment, 0);
    left.memory.fill(3);
    for (from, to) in [(1, 0), (0, 3), (7, 9), (255, 257), (63, 64), (4, 12)] {
        left.write(
            &[left.memory.segment(from, 131)],
            from,
            &right.memory.remote(to, 131),
            DEFAULT,
        );
        net.success(&left, from);
        same_bytes(
            "data",
            (&right.memory, to as usize),
            (&left.memory, from as usize),
            131,
        );
    }
}

/// A write without data completes with length 0 and checks nothing remote.
///
/// It has no segments, or only empty ones.
///
/// Spec: EPW-39, DTO-06
pub fn empty_write_checks_nothing_remote<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    right.memory.fill(5);
    let before = right.memory.content();
    let nowhere = RmrTriplet {
        context: 0xBAD0_BAD0,
        address: u64::MAX,
        length: 0,
    };
    let lists = [
        &[][..],
        &[left.memory.segment(0, 0)],
        &[LmrTriplet::default(); 2],
    ];
    for (cookie, list) in lists.into_iter().enumerate() {
        let cookie = cookie as u64;
        left.write(list, cookie, &nowhere, DEFAULT);
        assert_eq!(net.success(&left, cookie).transferred_length, 0);
    }
    equal("the peer's memory", &right.memory.content(), &before);
    net.check_transfer(&left, &right);
}

/// Writes of an endpoint are placed in posting order, before a later Send arrives.
///
/// Spec: EPW-43, LSW-22, DTO-11
pub fn writes_are_placed_before_a_later_send_arrives<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for round in 0..32_u8 {
        left.memory.fill(round);
        right.receive_into(&[], u64::from(round));
        // The second write covers part of the first, so their order shows.
        for (cookie, offset) in [(1, 0), (2, 256)] {
            left.write(
                &[left.memory.segment(offset, 256)],
                cookie,
                &right.memory.remote(offset / 2, 256),
                DEFAULT,
            );
        }
        left.send_from(&[], 3);
        net.receive_ends(&right, u64::from(round), DtoStatus::Success);
        same_bytes(
            "the first write",
            (&right.memory, 0),
            (&left.memory, 0),
            128,
        );
        same_bytes(
            "the second write",
            (&right.memory, 128),
            (&left.memory, 256),
            256,
        );
        for cookie in 1..=3 {
            net.success(&left, cookie);
        }
    }
}
