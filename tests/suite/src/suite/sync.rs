//! `dat_lmr_sync_rdma_write` and `dat_lmr_sync_rdma_read`.

use dat_core::backend::{Backend, SyncDirection};
use dat_core::flags::{CompletionFlags, MemoryPrivileges, ProviderFields};
use dat_core::memory::LmrTriplet;
use dat_core::sync::RawLock;
use dat_core::{Error, Ia, Result};

use crate::fixture::watched::{Call, WatchedBed};
use crate::fixture::{
    Adapter, Memory, Net, NonCoherentTestbed, Party, PartyOptions, Testbed, equal, granted,
    refused, same_bytes, srq_attributes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

type Sync<T> = fn(&Adapter<T>, &[LmrTriplet]) -> Result<()>;

/// Returns both calls, which check their arguments alike.
fn both<T: Testbed>() -> [Sync<T>; 2] {
    [
        |ia, segments| ia.lmr_sync_rdma_write(segments),
        |ia, segments| ia.lmr_sync_rdma_read(segments),
    ]
}

/// Connects a writer to a target on a non-coherent host.
#[track_caller]
fn incoherent_pair<'b, T: NonCoherentTestbed>(bed: &'b T) -> (Net<'b, T>, Party<T>, Party<T>) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter(), &options);
    let right = Party::new(&net.adapter_over(bed.non_coherent_device()), &options);
    net.connect(&left, &right);
    (net, left, right)
}

/// Writes a range to the same offset in the peer's block and awaits the completion.
#[track_caller]
fn write<T: Testbed>(net: &Net<'_, T>, left: &Party<T>, to: &Memory, offset: u64, length: u64) {
    left.write(
        &[left.memory.segment(offset, length)],
        1,
        &to.remote(offset, length),
        DEFAULT,
    );
    net.success(left, 1);
}

/// Returns true if the provider needs the calls.
#[track_caller]
fn required<B: Backend, L: RawLock>(ia: &Ia<'_, B, L>) -> bool {
    granted(ia.ia_query(Default::default(), ProviderFields::LMR_SYNC_REQ))
        .provider
        .lmr_sync_req
}

/// Data is visible and readable without the calls if the provider does not need them.
///
/// The calls are still allowed.
///
/// Spec: LSW-02, LSW-04, LSW-17, LSW-29, LSW-31, LSR-01, LSR-05, IAQ-10
pub fn coherent_memory_needs_no_call<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    assert!(!required(&right.ia));
    left.memory.fill(1);
    write(&net, &left, &right.memory, 0, 256);
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 256);
    for sync in both::<T>() {
        granted(sync(&right.ia, &[right.memory.segment(0, 256)]));
    }
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 256);
    right.memory.fill(2);
    let target = [left.memory.segment(1024, 256)];
    left.read(&target, 2, &right.memory.remote(0, 256), DEFAULT);
    net.success(&left, 2);
    same_bytes(
        "what was read",
        (&left.memory, 1024),
        (&right.memory, 0),
        256,
    );
}

/// Segments are checked for region and bounds, also if the provider needs no call.
///
/// One bad segment refuses the whole call. Zones and privileges do not matter.
///
/// Spec: LSW-01, LSW-07, LSW-10, LSW-11, LSW-17, LSW-19, LSW-20, LSW-28..30, LSR-03, LSR-05, DTO-06
pub fn sync_checks_its_segments<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let party = Party::new(&net.adapter(), &PartyOptions::default());
    check_segments(&net, &party);
}

/// Segments are checked alike on an adapter that needs the calls.
///
/// Spec: LSW-19, LSW-20, LSW-30, LSR-05
pub fn sync_checks_its_segments_where_it_matters<T: NonCoherentTestbed>(bed: &T) {
    let net = Net::new(bed);
    let ia = net.adapter_over(bed.non_coherent_device());
    let party = Party::new(&ia, &PartyOptions::default());
    assert!(required(&ia));
    check_segments(&net, &party);
}

fn check_segments<T: Testbed>(net: &Net<'_, T>, party: &Party<T>) {
    let stranger = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let zone = granted(party.ia.pz_create());
    let elsewhere = Memory::register(&party.ia, zone, 64, MemoryPrivileges::REMOTE_WRITE);
    let freed = party.more_memory(64, MemoryPrivileges::ALL);
    granted(party.ia.lmr_free(freed.lmr));
    let good = party.memory.segment(0, 8);
    let size = party.memory.len() as u64;
    let anything = LmrTriplet {
        context: u32::MAX,
        address: u64::MAX,
        length: 0,
    };
    for sync in both::<T>() {
        for list in [
            &[][..],
            &[good],
            &[anything],
            &[party.memory.segment(0, size)],
            &[good, elsewhere.segment(0, 64), anything, good],
            &[party.memory.segment(size - 1, 1); 100],
        ] {
            granted(sync(&party.ia, list));
        }
        for bad in [
            party.memory.segment(0, size + 1),
            party.memory.segment(size, 1),
            party.memory.segment(u64::MAX, 1),
            party.memory.segment(u64::MAX, 2),
            party.memory.segment(1, u64::MAX),
            party.memory.segment(8, u64::MAX - party.memory.address - 7),
            freed.segment(0, 8),
            LmrTriplet { context: 0, ..good },
            LmrTriplet {
                context: u32::MAX,
                ..good
            },
            stranger.memory.segment(0, 8),
        ] {
            for list in [&[bad][..], &[good, bad], &[bad, good]] {
                net.no_effect(&[party], Error::invalid_argument(2), || {
                    sync(&party.ia, list)
                });
            }
        }
    }
}

/// A local read finds written data as soon as the call over its range returns.
///
/// Spec: LSW-02..08, LSW-17, LSW-24
pub fn sync_makes_writes_visible<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    assert!(required(&right.ia));
    for round in 0..4 {
        left.memory.fill(round);
        write(&net, &left, &right.memory, 100, 1000);
        let now = bed.now();
        granted(
            right
                .ia
                .lmr_sync_rdma_write(&[right.memory.segment(100, 1000)]),
        );
        assert_eq!(bed.now(), now);
        same_bytes("data", (&right.memory, 100), (&left.memory, 100), 1000);
    }
    equal("bytes before", &right.memory.load(0, 100), &[0; 100]);
    equal("bytes behind", &right.memory.load(1100, 2996), &[0; 2996]);
}

/// One call may list the ranges of several writes, in several regions and zones.
///
/// Spec: LSW-09..11, LSR-03
pub fn one_sync_covers_several_writes<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    let zone = granted(right.ia.pz_create());
    let far = Party::in_zone(&right.ia, zone, &PartyOptions::default());
    let near = Party::new(&left.ia, &PartyOptions::default());
    net.connect(&near, &far);
    let second = right.more_memory(4096, MemoryPrivileges::ALL);
    left.memory.fill(1);
    near.memory.fill(2);
    write(&net, &left, &right.memory, 0, 64);
    write(&net, &left, &right.memory, 1024, 64);
    write(&net, &left, &second, 512, 64);
    write(&net, &near, &far.memory, 2048, 64);
    granted(right.ia.lmr_sync_rdma_write(&[
        right.memory.segment(0, 64),
        right.memory.segment(1024, 64),
        second.segment(512, 64),
        LmrTriplet::default(),
        far.memory.segment(2048, 64),
    ]));
    for (block, from, offset) in [
        (&right.memory, &left.memory, 0),
        (&right.memory, &left.memory, 1024),
        (&second, &left.memory, 512),
        (&far.memory, &near.memory, 2048),
    ] {
        equal("data", &block.load(offset, 64), &from.load(offset, 64));
    }
}

/// A refused call synchronises none of its ranges; the next valid call does.
///
/// Spec: LSW-19, LSW-24, GEN-06
pub fn refused_sync_does_not_spoil_a_later_one<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    left.memory.fill(1);
    write(&net, &left, &right.memory, 0, 64);
    let before = right.memory.content();
    refused(
        right
            .ia
            .lmr_sync_rdma_write(&[right.memory.segment(0, 64), right.memory.segment(4096, 1)]),
        Error::invalid_argument(2),
    );
    equal("memory", &right.memory.content(), &before);
    granted(right.ia.lmr_sync_rdma_write(&[right.memory.segment(0, 64)]));
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 64);
}

/// Local stores and a later write into part of their range are both kept.
///
/// The call follows each of them.
///
/// Spec: LSW-12, LSW-13, LSW-23, LSW-26, LSW-27
pub fn stores_before_a_write_survive_beside_it<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    let all = [right.memory.segment(0, 4096)];
    for round in 0..8 {
        left.memory.fill(round);
        right.memory.fill(100 + round);
        let mut expected = right.memory.content();
        granted(right.ia.lmr_sync_rdma_write(&all));
        write(&net, &left, &right.memory, 30, 100);
        granted(right.ia.lmr_sync_rdma_write(&all));
        expected[30..130].copy_from_slice(&left.memory.load(30, 100));
        equal("memory", &right.memory.content(), &expected);
    }
}

/// A write and later local stores into part of its range are both kept.
///
/// The call follows the write. A peer's RDMA Read sees both, too.
///
/// Spec: LSW-12, LSW-14, LSR-01, LSR-02
pub fn stores_after_a_write_survive_beside_it<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    let all = [right.memory.segment(0, 1024)];
    for round in 0..8 {
        left.memory.fill(round);
        write(&net, &left, &right.memory, 0, 1024);
        granted(right.ia.lmr_sync_rdma_write(&all));
        right.memory.store(500, &[0xEE; 9]);
        let mut expected = left.memory.load(0, 1024);
        expected[500..509].fill(0xEE);
        equal("memory", &right.memory.load(0, 1024), &expected);
        granted(right.ia.lmr_sync_rdma_read(&all));
        let target = [left.memory.segment(2048, 1024)];
        left.read(&target, 2, &right.memory.remote(0, 1024), DEFAULT);
        net.success(&left, 2);
        equal(
            "what a peer reads",
            &left.memory.load(2048, 1024),
            &expected,
        );
    }
}

/// A peer's RDMA Read sees local stores once the call over their range returned.
///
/// Spec: LSR-01..04, LSR-06
pub fn sync_makes_stores_readable<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    for round in 0..4 {
        right.memory.fill(round);
        granted(
            right.ia.lmr_sync_rdma_read(&[
                right.memory.segment(0, 512),
                right.memory.segment(512, 512),
            ]),
        );
        let target = [left.memory.segment(0, 1024)];
        left.read(&target, 1, &right.memory.remote(0, 1024), DEFAULT);
        net.success(&left, 1);
        same_bytes(
            "what a peer reads",
            (&left.memory, 0),
            (&right.memory, 0),
            1024,
        );
    }
}

/// A Send after a write announces it: the receiver then makes the call and reads.
///
/// Spec: LSW-06, LSW-21, LSW-22, EPW-43
pub fn send_after_a_write_announces_it<T: NonCoherentTestbed>(bed: &T) {
    let (net, left, right) = incoherent_pair(bed);
    for round in 0..16 {
        left.memory.fill(round);
        right.receive_into(&[right.memory.segment(4000, 8)], 1);
        left.write(
            &[left.memory.segment(0, 1024)],
            2,
            &right.memory.remote(0, 1024),
            DEFAULT,
        );
        left.send_from(&[left.memory.segment(4000, 8)], 3);
        net.receive_completion(&right);
        granted(
            right
                .ia
                .lmr_sync_rdma_write(&[right.memory.segment(0, 1024)]),
        );
        same_bytes("data", (&right.memory, 0), (&left.memory, 0), 1024);
        // A receive buffer needs no call: the provider keeps posted receives coherent.
        same_bytes(
            "the message",
            (&right.memory, 4000),
            (&left.memory, 4000),
            8,
        );
        net.success(&left, 2);
        net.success(&left, 3);
    }
}

/// Buffers of the consumer's own operations need no call, although it stores to them in between.
///
/// Spec: LSW-32
pub fn posted_buffers_need_no_call<T: NonCoherentTestbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.max_recv_iov = 3;
        attributes.max_request_iov = 3;
        attributes.max_rdma_read_iov = 3;
        attributes.max_rdma_write_iov = 3;
    });
    let left = Party::new(&net.adapter(), &options);
    let right_ia = net.adapter_over(bed.non_coherent_device());
    let right = Party::new(&right_ia, &options);
    net.connect(&left, &right);
    // Pieces that begin and end inside of cache lines.
    let pieces = |memory: &Memory, start: u64| {
        [(0, 100), (130, 1), (200, 299)].map(|(at, length)| memory.segment(start + at, length))
    };
    for round in 0..6 {
        // The source of a Send.
        left.memory.fill(round);
        right.memory.fill(round + 100);
        left.receive_into(&pieces(&left.memory, 1000), 1);
        right.send_from(&pieces(&right.memory, 0), 2);
        net.receive_completion(&left);
        net.success(&right, 2);
        for (at, length) in [(0, 100), (130, 1), (200, 299)] {
            let (to, from) = ((&left.memory, 1000 + at), (&right.memory, at));
            same_bytes("a message", to, from, length);
        }
        // The source of an RDMA Write.
        right.memory.fill(round + 50);
        let target = left.memory.remote(2000, 400);
        right.write(&pieces(&right.memory, 0), 3, &target, DEFAULT);
        net.success(&right, 3);
        same_bytes("written", (&left.memory, 2000), (&right.memory, 0), 100);
        same_bytes("written", (&left.memory, 2101), (&right.memory, 200), 299);
        // The target of an RDMA Read, and of a receive.
        for read in [true, false] {
            left.memory.fill(round + 7);
            right.memory.fill(round + 90);
            let to = pieces(&right.memory, 3000);
            match read {
                true => right.read(&to, 4, &left.memory.remote(500, 400), DEFAULT),
                false => right.receive_into(&to, 4),
            }
            if read {
                net.success(&right, 4);
            } else {
                left.send_from(&[left.memory.segment(500, 400)], 5);
                net.success(&left, 5);
                net.receive_completion(&right);
            }
            same_bytes("placed", (&right.memory, 3000), (&left.memory, 500), 100);
            same_bytes("placed", (&right.memory, 3130), (&left.memory, 600), 1);
            same_bytes("placed", (&right.memory, 3200), (&left.memory, 601), 299);
        }
    }
}

/// As above, for the buffers of a shared receive queue.
///
/// Spec: LSW-32
pub fn shared_buffers_need_no_call<T: NonCoherentTestbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter(), &options);
    let right_ia = net.adapter_over(bed.non_coherent_device());
    let zone = granted(right_ia.pz_create());
    let srq = granted(right_ia.srq_create(zone, &srq_attributes(4, 2, 0)));
    let right = Party::sharing(&right_ia, zone, srq, None, &options);
    net.connect(&left, &right);
    for round in 0..12 {
        left.memory.fill(round);
        right.memory.fill(round + 60);
        let buffer = [right.memory.segment(70, 33), right.memory.segment(500, 200)];
        granted(right_ia.srq_post_recv(srq, &buffer, 1));
        left.send_from(&[left.memory.segment(0, 120)], 2);
        net.success(&left, 2);
        net.receive_completion(&right);
        same_bytes("first", (&right.memory, 70), (&left.memory, 0), 33);
        same_bytes("second", (&right.memory, 500), (&left.memory, 33), 87);
    }
}

/// Each call names its direction to the device, and its segments, but no empty or refused one.
///
/// Spec: LSR-01, LSW-02, LSW-07, LSW-11, LSW-19, LSW-23, LSW-30, GEN-06
pub fn devices_synchronise_what_is_named<T: NonCoherentTestbed>(bed: &T) {
    let bed = &WatchedBed::new(bed);
    let net = Net::new(bed);
    let ia = net.adapter_over(bed.non_coherent_device());
    let party: Party<WatchedBed<'_, T>> = Party::new(&ia, &PartyOptions::default());
    let other = party.more_memory(64, MemoryPrivileges::ALL);
    let nothing = LmrTriplet {
        context: u32::MAX,
        address: u64::MAX,
        length: 0,
    };
    let (first, second) = (party.memory.segment(3, 100), other.segment(0, 64));
    let beyond = other.segment(0, 65);
    let directions = [SyncDirection::RdmaWrite, SyncDirection::RdmaRead];
    for (sync, direction) in both::<WatchedBed<'_, T>>().into_iter().zip(directions) {
        bed.calls();
        let list = [nothing, first, party.memory.segment(8, 0), second, nothing];
        granted(sync(&ia, &list));
        let expected =
            [first, second].map(|segment| Call::Sync(direction, segment.address, segment.length));
        assert_eq!(bed.calls(), expected);
        granted(sync(&ia, &[nothing]));
        refused(sync(&ia, &[first, beyond]), Error::invalid_argument(2));
        assert_eq!(bed.calls(), []);
    }
}
