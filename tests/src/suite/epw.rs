//! `dat_ep_post_rdma_write`.

use dat_core::event::{DtoCompletion, DtoOperation, Event};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, IovOwnership, MemoryPrivileges, OPTIMAL_ALIGNMENT,
    ProviderFields,
};
use dat_core::id::EpId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, ErrorKind, Subtype};

use crate::fixture::{
    MakeTarget, Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Posts an RDMA Write of a party.
fn write<T: Testbed>(
    party: &Party<T>,
    pieces: &[LmrTriplet],
    cookie: u64,
    remote: &RmrTriplet,
    flags: CompletionFlags,
) -> dat_core::Result<()> {
    party
        .ia
        .post_rdma_write(party.ep, pieces, cookie, remote, flags)
}

/// All data of all segments, in list order, lands contiguously from the start of the remote range; what lies behind it in a
/// longer range stays. One completion, on the request dispatcher, with cookie and length; the peer notices nothing.
///
/// Spec: EPW-01..06, EPW-10, EPW-11, EPW-17, EPW-19, EPW-22, EPW-25, EPW-42, EPW-43, DTO-01, DTO-03, DTO-06
pub fn write_gathers_segments_in_list_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
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
    let pieces = [
        left.memory.piece(2000, 10),
        nothing,
        left.memory.piece(0, 1),
        left.memory.piece(1000, 33),
    ];
    granted(write(
        &left,
        &pieces,
        0x1234_5678_9ABC_DEF0,
        &right.memory.remote(100, 500),
        DEFAULT,
    ));
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

/// A suppressed success is no event; a suppressed failure is one.
///
/// Spec: EPW-07, DTO-04
pub fn suppressed_write_reports_failure_only<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    left.memory.fill(1);
    let suppress = CompletionFlags::SUPPRESS;
    let piece = [left.memory.piece(0, 8)];
    granted(write(
        &left,
        &piece,
        1,
        &right.memory.remote(0, 8),
        suppress,
    ));
    net.quiet(&left);
    equal("data", &right.memory.load(0, 8), &left.memory.load(0, 8));
    assert!(left.status().request_idle);
    // The order of completions shows that nothing of the suppressed one is left behind.
    granted(write(&left, &piece, 2, &right.memory.remote(0, 8), DEFAULT));
    net.success(&left, 2);
    let outside = right.memory.remote(4092, 8);
    granted(write(&left, &piece, 3, &outside, suppress));
    let completion = net.request_completion(&left);
    assert_eq!(
        (completion.cookie, completion.status),
        (3, DtoStatus::RemoteAccess)
    );
    net.broken(&left, &right);
}

/// UNSIGNALLED is refused unless the endpoint's requests are configured so; then the event comes without a notification.
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
                &[left.memory.piece(0, 8)],
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
    let piece = [left.memory.piece(0, 8)];
    let remote = right.memory.remote(0, 8);
    granted(write(
        &left,
        &piece,
        1,
        &remote,
        CompletionFlags::UNSIGNALLED,
    ));
    net.settle();
    assert_eq!(net.triggered(&ia, cno), None);
    granted(write(&left, &piece, 2, &remote, DEFAULT));
    net.settle();
    assert_eq!(net.triggered(&ia, cno), Some(left.request));
    net.success(&left, 1);
    net.success(&left, 2);
}

/// A fenced write starts after the reads before it have completed, so it may send on what they fetch.
///
/// Spec: EPW-09, DTO-04
pub fn fenced_write_forwards_what_a_read_fetches<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    for round in 0..16 {
        right.memory.fill(round);
        left.memory.fill(100 + round);
        let window = [left.memory.piece(0, 1024)];
        granted(left.ia.post_rdma_read(
            left.ep,
            &window,
            1,
            &right.memory.remote(0, 1024),
            DEFAULT,
        ));
        granted(write(
            &left,
            &window,
            2,
            &right.memory.remote(2048, 1024),
            CompletionFlags::BARRIER_FENCE,
        ));
        net.success(&left, 1);
        net.success(&left, 2);
        equal(
            "the copy",
            &right.memory.load(2048, 1024),
            &right.memory.load(0, 1024),
        );
    }
}

/// The list belongs to the consumer again as soon as the post returned, since the provider announces that.
///
/// Spec: EPW-14, EPW-15, DTO-09
pub fn segment_list_may_change_after_the_post<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let provider = granted(
        left.ia
            .ia_query(Default::default(), ProviderFields::IOV_OWNERSHIP),
    )
    .provider;
    assert_eq!(provider.iov_ownership_on_return, IovOwnership::Consumer);
    left.memory.fill(1);
    let mut list = [left.memory.piece(0, 64)];
    let mut remote = right.memory.remote(0, 64);
    granted(write(&left, &list, 1, &remote, DEFAULT));
    list[0] = left.memory.piece(512, 64);
    remote = right.memory.remote(512, 64);
    granted(write(&left, &list, 2, &remote, DEFAULT));
    net.success(&left, 1);
    net.success(&left, 2);
    for offset in [0, 512] {
        equal(
            "data",
            &right.memory.load(offset, 64),
            &left.memory.load(offset, 64),
        );
    }
}

/// The post returns before anything has moved, however full the way is: neither time nor the peer goes on inside it.
///
/// Spec: EPW-18, GEN-13
pub fn write_post_does_not_wait<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    net.settle();
    let before = bed.now();
    for cookie in 0..16 {
        granted(write(
            &left,
            &[left.memory.piece(0, 4096)],
            cookie,
            &right.memory.remote(0, 4096),
            DEFAULT,
        ));
    }
    assert!(!left.status().request_idle);
    assert_eq!(bed.now(), before);
    for cookie in 0..16 {
        net.success(&left, cookie);
    }
    assert!(left.status().request_idle);
}

/// Cookies come back as they are; they need not be unique, and 0 is as good as any.
///
/// Spec: EPW-04, EPW-21, EPW-22
pub fn write_cookies_come_back_untouched<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let cookies = [7, 7, 0, u64::MAX, 7, 1 << 63];
    for cookie in cookies {
        granted(write(
            &left,
            &[left.memory.piece(0, 1)],
            cookie,
            &right.memory.remote(0, 1),
            DEFAULT,
        ));
    }
    for cookie in cookies {
        net.success(&left, cookie);
    }
    net.quiet(&left);
}

/// Legal in CONNECTED; in DISCONNECTED accepted and flushed at once, suppressed or not; refused in UNCONNECTED.
///
/// Spec: EPW-23, EPW-24, EPW-29, DTO-10, GEN-06
pub fn write_follows_the_endpoint_state<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.strangers(&PartyOptions::default());
    right.memory.fill(9);
    let piece = [left.memory.piece(0, 8)];
    let remote = right.memory.remote(0, 8);
    net.no_effect(
        &[&left, &right],
        Error::invalid_state(Subtype::InvalidStateEpUnconnected),
        || write(&left, &piece, 1, &remote, DEFAULT),
    );
    net.connect(&left, &right);
    granted(write(&left, &piece, 2, &remote, DEFAULT));
    net.success(&left, 2);
    net.disconnect(&left, &right);
    right.memory.fill(10);
    let before = right.memory.content();
    for (cookie, flags) in [(3, DEFAULT), (4, CompletionFlags::SUPPRESS)] {
        granted(write(&left, &piece, cookie, &remote, flags));
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

/// The queue takes exactly as many requests as the endpoint was made for; each dequeued completion makes room for one.
///
/// Spec: EPW-26, DTO-07
pub fn write_queue_has_its_exact_size<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 5;
    }));
    let full = Error::insufficient_resources(Subtype::ResourceTep);
    let piece = [left.memory.piece(0, 8)];
    let remote = right.memory.remote(0, 8);
    for cookie in 0..5 {
        granted(write(&left, &piece, cookie, &remote, DEFAULT));
    }
    refused(write(&left, &piece, 99, &remote, DEFAULT), full);
    net.success(&left, 0);
    granted(write(&left, &piece, 5, &remote, DEFAULT));
    refused(write(&left, &piece, 99, &remote, DEFAULT), full);
    for cookie in 1..6 {
        net.success(&left, cookie);
    }
    net.quiet(&left);
    // Suppressed requests give their room back without any event to dequeue.
    for _ in 0..3 {
        assert_eq!(net.request_room(&left), 5);
    }
}

/// A segment may touch the ends of its region and not go past them, whatever the arithmetic.
///
/// Spec: EPW-27, DTO-07, GEN-06
pub fn write_segments_stay_inside_their_region<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    left.memory.fill(1);
    let size = left.memory.len() as u64;
    let to_the_end = u64::MAX - left.memory.address;
    for (offset, length) in [
        (0, size + 1),
        (1, size),
        (size, 1),
        (size + 1, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (0, u64::MAX),
        (1, u64::MAX),
        (8, to_the_end - 7),
        (8, to_the_end - 6),
        (to_the_end, 1),
        (to_the_end, 2),
    ] {
        let good = left.memory.piece(0, 4);
        let bad = left.memory.piece(offset, length);
        for list in [&[bad][..], &[good, bad], &[bad, good]] {
            net.no_effect(&[&left, &right], Error::invalid_argument(3), || {
                write(&left, list, 1, &right.memory.remote(0, 4096), DEFAULT)
            });
        }
    }
    for (cookie, (offset, length)) in [(0, size), (size - 1, 1), (size, 0), (1, size - 1)]
        .into_iter()
        .enumerate()
    {
        let cookie = cookie as u64;
        granted(write(
            &left,
            &[left.memory.piece(offset, length)],
            cookie,
            &right.memory.remote(0, 4096),
            DEFAULT,
        ));
        assert_eq!(net.success(&left, cookie).transferred_length, length);
    }
}

/// Null, stale, foreign and wrong-kind endpoints are told by INVALID_HANDLE/EP, before anything else is looked at.
///
/// Spec: EPW-28, GEN-03, GEN-11, DTO-07
pub fn write_refuses_bad_endpoints<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let gone = granted(left.ia.ep_create(
        Some(left.zone),
        Some(left.receive),
        Some(left.request),
        Some(left.connect),
        None,
    ));
    granted(left.ia.ep_free(gone));
    let expected = Error::invalid_handle(Subtype::InvalidHandleEp);
    for ep in [
        EpId::NULL,
        gone,
        right.ep,
        EpId::from_handle(left.zone.handle()),
        EpId::from_handle(left.request.handle()),
        EpId::from_handle(left.ia.handle()),
        EpId::from_handle(dat_core::id::Handle::from_raw(u64::MAX)),
    ] {
        net.no_effect(&[&left, &right], expected, || {
            left.ia.post_rdma_write(
                ep,
                &[left.memory.piece(0, u64::MAX)],
                1,
                &right.memory.remote(0, 8),
                CompletionFlags::from_bits_retain(u32::MAX),
            )
        });
    }
}

/// LENGTH_ERROR exactly when the remote range is shorter than the data.
///
/// Spec: EPW-30, GEN-06
pub fn write_needs_a_long_enough_remote_range<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    left.memory.fill(1);
    right.memory.fill(2);
    let pieces = [left.memory.piece(0, 10), left.memory.piece(20, 6)];
    for length in [15, 1, 0] {
        net.no_effect(&[&left, &right], Error::length(), || {
            write(&left, &pieces, 1, &right.memory.remote(0, length), DEFAULT)
        });
    }
    for length in [16, 17, 4096] {
        granted(write(
            &left,
            &pieces,
            length,
            &right.memory.remote(0, length),
            DEFAULT,
        ));
        assert_eq!(net.success(&left, length).transferred_length, 16);
    }
}

/// Every region of the list must be in the zone of the endpoint.
///
/// Spec: EPW-31, DTO-07, EPC-01, LMC-08
pub fn write_refuses_regions_of_other_zones<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let zone = granted(left.ia.pz_create());
    let other = Memory::register(&left.ia, zone, 64, MemoryPrivileges::ALL);
    let good = left.memory.piece(0, 4);
    let remote = right.memory.remote(0, 64);
    let expected = Error::protection_violation(Subtype::ProtectionRead);
    for list in [
        &[other.piece(0, 4)][..],
        &[good, other.piece(0, 4)],
        &[other.piece(0, 4), good],
    ] {
        net.no_effect(&[&left, &right], expected, || {
            write(&left, list, 1, &remote, DEFAULT)
        });
    }
    granted(write(
        &left,
        &[other.piece(0, 0), good],
        2,
        &remote,
        DEFAULT,
    ));
    net.success(&left, 2);
}

/// Every region of the list must live and allow local reads.
///
/// Spec: EPW-33, DTO-07, LMF-02
pub fn write_refuses_dead_and_unreadable_regions<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let gone = left.more_memory(64, MemoryPrivileges::ALL);
    granted(left.ia.lmr_free(gone.lmr));
    let unreadable = left.more_memory(
        64,
        MemoryPrivileges::LOCAL_WRITE | MemoryPrivileges::REMOTE_READ,
    );
    let readable = left.more_memory(64, MemoryPrivileges::LOCAL_READ);
    let unknown = |context| LmrTriplet {
        context,
        ..left.memory.piece(0, 4)
    };
    let expected = Error::privileges_violation(Subtype::PrivilegesRead);
    for bad in [
        gone.piece(0, 4),
        unreadable.piece(0, 4),
        unknown(0),
        unknown(u32::MAX),
        unknown(left.memory.context ^ 0x0001_0000),
        unknown(left.memory.context ^ 0x8000_0000),
    ] {
        for list in [&[bad][..], &[left.memory.piece(0, 4), bad]] {
            net.no_effect(&[&left, &right], expected, || {
                write(&left, list, 1, &right.memory.remote(0, 64), DEFAULT)
            });
        }
    }
    let list = [readable.piece(0, 4)];
    granted(write(&left, &list, 2, &right.memory.remote(0, 64), DEFAULT));
    net.success(&left, 2);
}

/// What only the peer can see comes as the status REMOTE_ACCESS and a broken connection, and no byte is changed.
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
            let gone = right.more_memory(64, MemoryPrivileges::ALL);
            granted(right.ia.lmr_free(gone.lmr));
            gone.remote(0, 64)
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
        let net = Net::new(bed);
        let (left, right) = net.pair(&PartyOptions::default());
        left.memory.fill(1);
        right.memory.fill(2);
        let before = right.memory.content();
        let remote = remote(&right);
        granted(write(
            &left,
            &[left.memory.piece(0, 64)],
            1,
            &remote,
            DEFAULT,
        ));
        granted(write(
            &left,
            &[left.memory.piece(0, 8)],
            2,
            &right.memory.remote(0, 8),
            DEFAULT,
        ));
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

/// Any alignment works; the optimal one divides the portable one.
///
/// Spec: EPW-35, EPW-36, IAQ-07
pub fn write_takes_any_alignment<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let provider = granted(
        left.ia
            .ia_query(Default::default(), ProviderFields::OPTIMAL_BUFFER_ALIGNMENT),
    )
    .provider;
    assert_ne!(provider.optimal_buffer_alignment, 0);
    assert_eq!(OPTIMAL_ALIGNMENT % provider.optimal_buffer_alignment, 0);
    left.memory.fill(3);
    for (from, to) in [(1, 0), (0, 3), (7, 9), (255, 257), (63, 64), (4, 12)] {
        granted(write(
            &left,
            &[left.memory.piece(from, 131)],
            from,
            &right.memory.remote(to, 131),
            DEFAULT,
        ));
        net.success(&left, from);
        equal(
            "data",
            &right.memory.load(to as usize, 131),
            &left.memory.load(from as usize, 131),
        );
    }
}

/// SOLICITED_WAIT means nothing here and is taken; every bit without a meaning is refused as argument 6.
///
/// Spec: EPW-37, DTO-04, DTO-05
pub fn write_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    let piece = [left.memory.piece(0, 8)];
    let remote = right.memory.remote(0, 8);
    for bit in (0..32).filter(|bit| !matches!(bit, 0 | 1 | 3)) {
        let flags = CompletionFlags::from_bits_retain(1 << bit);
        net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
            write(&left, &piece, 1, &remote, flags)
        });
    }
    let all = CompletionFlags::SUPPRESS
        | CompletionFlags::SOLICITED_WAIT
        | CompletionFlags::BARRIER_FENCE;
    granted(write(
        &left,
        &piece,
        2,
        &remote,
        CompletionFlags::SOLICITED_WAIT,
    ));
    granted(write(&left, &piece, 3, &remote, all));
    granted(write(
        &left,
        &piece,
        4,
        &remote,
        CompletionFlags::BARRIER_FENCE,
    ));
    net.success(&left, 2);
    net.success(&left, 4);
    net.quiet(&left);
    net.quiet(&right);
}

/// The number of segments is limited by the smaller of two attributes, empty segments included.
///
/// Spec: EPW-38, DTO-07
pub fn write_segment_count_is_limited<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for (write_iov, request_iov) in [(3, 4), (4, 3)] {
        let (left, right) = net.pair(&PartyOptions::with(|attributes| {
            attributes.max_rdma_write_iov = write_iov;
            attributes.max_request_iov = request_iov;
        }));
        let piece = left.memory.piece(0, 2);
        let remote = right.memory.remote(0, 64);
        let too_many = [&[piece; 4][..], &[LmrTriplet::default(); 4], &[piece; 5]];
        for list in too_many {
            net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
                write(&left, list, 1, &remote, DEFAULT)
            });
        }
        granted(write(&left, &[piece; 3], 2, &remote, DEFAULT));
        assert_eq!(net.success(&left, 2).transferred_length, 6);
    }
}

/// No segments, or only empty ones, make a write of length 0 that completes normally and checks nothing remote.
///
/// Spec: EPW-39, DTO-06
pub fn empty_write_checks_nothing_remote<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    right.memory.fill(5);
    let before = right.memory.content();
    let nowhere = RmrTriplet {
        context: 0xBAD0_BAD0,
        address: u64::MAX,
        length: 0,
    };
    let lists = [
        &[][..],
        &[left.memory.piece(0, 0)],
        &[LmrTriplet::default(); 2],
    ];
    for (cookie, list) in lists.into_iter().enumerate() {
        let cookie = cookie as u64;
        granted(write(&left, list, cookie, &nowhere, DEFAULT));
        assert_eq!(net.success(&left, cookie).transferred_length, 0);
    }
    equal("the peer's memory", &right.memory.content(), &before);
    net.alive(&left, &right);
}

/// The total of a write is limited by the endpoint's `max_rdma_size`, summed without overflow.
///
/// Spec: EPW-40, DTO-07
pub fn write_total_is_limited<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_rdma_size = 64;
    }));
    let remote = right.memory.remote(0, 4096);
    for list in [
        &[left.memory.piece(0, 65)][..],
        &[left.memory.piece(0, 64), left.memory.piece(0, 1)],
        &[left.memory.piece(0, 4096); 4],
    ] {
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            write(&left, list, 1, &remote, DEFAULT)
        });
    }
    let list = [left.memory.piece(0, 63), left.memory.piece(9, 1)];
    granted(write(&left, &list, 2, &remote, DEFAULT));
    assert_eq!(net.success(&left, 2).transferred_length, 64);
}

/// Writes of one endpoint are placed in posting order, all before a later Send completes at the peer.
///
/// Spec: EPW-43, LSW-22, DTO-11
pub fn writes_are_placed_before_a_later_send_arrives<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::default());
    for round in 0..32_u8 {
        left.memory.fill(round);
        right.receive_into(&[], u64::from(round));
        // The second write covers part of the first, so their order shows.
        for (cookie, offset) in [(1, 0), (2, 256)] {
            granted(write(
                &left,
                &[left.memory.piece(offset, 256)],
                cookie,
                &right.memory.remote(offset / 2, 256),
                DEFAULT,
            ));
        }
        left.send_from(&[], 3);
        let arrived = net.receive_completion(&right);
        assert_eq!(
            (arrived.cookie, arrived.status),
            (u64::from(round), DtoStatus::Success)
        );
        equal(
            "the first write",
            &right.memory.load(0, 128),
            &left.memory.load(0, 128),
        );
        equal(
            "the second write",
            &right.memory.load(128, 256),
            &left.memory.load(256, 256),
        );
        for cookie in 1..=3 {
            net.success(&left, cookie);
        }
    }
}

/// With several things wrong, the code is that of the first check: handle, state, flags, count, then per segment region,
/// zone, privilege, bounds; then lengths; then room.
///
/// Spec: DTO-07, EPW-27..31, EPW-33, EPW-37, EPW-38, EPW-40
pub fn write_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 1;
        attributes.max_request_iov = 2;
        attributes.max_rdma_size = 1024;
    });
    let (left, right) = net.pair(&options);
    let idle = Party::<T>::new(&left.ia, &options);
    let zone = granted(left.ia.pz_create());
    let foreign = Memory::register(&left.ia, zone, 64, MemoryPrivileges::LOCAL_WRITE);
    let unreadable = left.more_memory(64, MemoryPrivileges::LOCAL_WRITE);
    let unknown = LmrTriplet {
        context: u32::MAX,
        address: 0,
        length: 1,
    };
    let short = RmrTriplet::default();
    let long = right.memory.remote(0, 4096);
    let bad_flags = CompletionFlags::EVD_THRESHOLD;
    // The queue is full from here on, so that "no room" would be the answer to any right request.
    granted(write(&left, &[], 0, &short, DEFAULT));
    let argument = Error::invalid_argument;
    let read = |kind| Error::new(kind, Subtype::PrivilegesRead);
    let three = [unknown; 3];
    let ladder: [(EpId, &[LmrTriplet], RmrTriplet, CompletionFlags, Error); 11] = [
        (
            EpId::NULL,
            &three,
            short,
            bad_flags,
            Error::invalid_handle(Subtype::InvalidHandleEp),
        ),
        (
            idle.ep,
            &three,
            short,
            bad_flags,
            Error::invalid_state(Subtype::InvalidStateEpUnconnected),
        ),
        (left.ep, &three, short, bad_flags, argument(6)),
        (left.ep, &three, short, DEFAULT, argument(2)),
        (
            left.ep,
            &[unknown, foreign.piece(0, 99)],
            short,
            DEFAULT,
            read(ErrorKind::PrivilegesViolation),
        ),
        (
            left.ep,
            &[foreign.piece(0, 99), unknown],
            short,
            DEFAULT,
            Error::protection_violation(Subtype::ProtectionRead),
        ),
        (
            left.ep,
            &[unreadable.piece(0, 99), unknown],
            short,
            DEFAULT,
            read(ErrorKind::PrivilegesViolation),
        ),
        (
            left.ep,
            &[left.memory.piece(0, 4097), unknown],
            short,
            DEFAULT,
            argument(3),
        ),
        (
            left.ep,
            &[left.memory.piece(0, 1025)],
            short,
            DEFAULT,
            argument(2),
        ),
        (
            left.ep,
            &[left.memory.piece(0, 8)],
            short,
            DEFAULT,
            Error::length(),
        ),
        (
            left.ep,
            &[left.memory.piece(0, 8)],
            long,
            DEFAULT,
            Error::insufficient_resources(Subtype::ResourceTep),
        ),
    ];
    for (ep, list, remote, flags, expected) in ladder {
        refused(
            left.ia.post_rdma_write(ep, list, 1, &remote, flags),
            expected,
        );
    }
    net.success(&left, 0);
    net.quiet(&left);
    net.alive(&left, &right);
}
