//! Posts of one segment: the fast path compared with the slow path.
//!
//! An empty second segment, which adds no bytes, selects the slow path.

use std::format;
use std::vec::Vec;

use crate::attributes::{IaAttributes, SrqAttributes};
use crate::backend::{BackendError, ReceiveRequest, Segment, SendRequest};
use crate::error::{Cause, Result, Subtype};
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, EndpointState, MemoryPrivileges, SrqFields};
use crate::id::{EpId, PzId};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::fixture::Bench;
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage, Work};

const NONE: CompletionFlags = CompletionFlags::empty();
const REMOTE: RmrTriplet = RmrTriplet {
    context: 1,
    address: 0x100,
    length: 16,
};
/// Address and length of all regions; the length exceeds the largest segment.
const BASE: u64 = 0x1000;
const LENGTH: u64 = 8 << 30;
const LARGE: IaAttributes = IaAttributes {
    max_lmr_block_size: LENGTH,
    ..IA_ATTRIBUTES
};

/// Arguments of a post.
struct PostArguments<'a> {
    ep: EpId,
    segments: &'a [LmrTriplet],
    remote: RmrTriplet,
    flags: CompletionFlags,
}

/// Effects of a post: its result, the device's work without tokens, and the events.
#[derive(Debug, PartialEq)]
struct Outcome<R> {
    answer: R,
    posted: Vec<(Work, Vec<Segment>)>,
    events: Vec<Event>,
}

/// Returns the work with its token cleared, and its segments.
fn compared(work: Work, segments: &[Segment]) -> (Work, Vec<Segment>) {
    let work = match work {
        Work::Send(request) => Work::Send(SendRequest {
            token: 0,
            ..request
        }),
        Work::Receive(_) => Work::Receive(ReceiveRequest { token: 0 }),
        other => other,
    };
    (work, segments.to_vec())
}

/// Posts, completes the endpoint's work and returns the effects.
fn outcome<R>(bench: &Bench<'_>, ep: EpId, post: impl FnOnce() -> R) -> Outcome<R> {
    let pair = bench.pair(ep);
    let answer = post();
    let (requests, receives) = bench.device.posted(pair);
    let posted = requests.iter().chain(&receives);
    let posted = posted.map(|it| compared(it.work, &it.segments)).collect();
    let device = &bench.device;
    while device.complete_request(pair, DtoStatus::Success)
        || device.complete_receive(pair, DtoStatus::Success, 3, true)
    {}
    let events = core::iter::from_fn(|| bench.ia.evd_dequeue(bench.data).ok());
    Outcome {
        answer,
        posted,
        events: events.collect(),
    }
}

/// Returns segments that are valid, or invalid in one way each.
///
/// Some are valid for some operations only.
fn segments(bench: &Bench<'_>, other_zone: PzId) -> Vec<LmrTriplet> {
    let region = |pz, privileges| {
        bench
            .ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(BASE as usize, LENGTH as usize)),
                pz,
                privileges,
            })
            .unwrap()
    };
    // The next region reuses its slot.
    let gone = region(bench.pz, MemoryPrivileges::ALL);
    bench.ia.lmr_free(gone.lmr).unwrap();
    let good = region(bench.pz, MemoryPrivileges::ALL);
    let segment = LmrTriplet {
        context: good.lmr_context,
        address: BASE + 8,
        length: 16,
    };
    let of = |context| LmrTriplet { context, ..segment };
    let long = |length| LmrTriplet { length, ..segment };
    Vec::from([
        segment,
        of(gone.lmr_context),
        of(0),
        of(0xFFFF_FFFF),
        of(region(bench.pz, MemoryPrivileges::LOCAL_READ).lmr_context),
        of(region(bench.pz, MemoryPrivileges::LOCAL_WRITE).lmr_context),
        of(region(other_zone, MemoryPrivileges::ALL).lmr_context),
        long(17),
        long(1 << 30),
        long((1 << 30) + 1),
        long(u64::from(u32::MAX)),
        long(1 << 32),
        long(5 << 30),
        long(LENGTH),
        LmrTriplet {
            address: BASE - 1,
            ..segment
        },
    ])
}

/// Adds an empty segment, which selects the slow path.
fn lengthened(segment: &LmrTriplet) -> [LmrTriplet; 2] {
    [
        *segment,
        LmrTriplet {
            length: 0,
            ..*segment
        },
    ]
}

/// Returns each flag, including those that a post refuses and undefined ones.
fn flags() -> impl Iterator<Item = CompletionFlags> {
    let single = (0..8).map(|bit| CompletionFlags::from_bits_retain(1 << bit));
    core::iter::once(NONE).chain(single)
}

/// Both paths give the same result, device work and events.
///
/// This holds for any endpoint, segment, flags and remote range. An attempt on the fast path posts
/// nothing, or exactly the work of the slow path.
///
/// Spec: DTO-04..07, DTO-10, EPS-03, EPW-27, EPV-02, EPR-01
#[test]
fn one_segment_is_posted_as_a_list_is() {
    type Post<'a> = &'a dyn Fn(&PostArguments<'_>) -> Result<()>;
    let mut storage = TestStorage::new();
    let bench = Bench::with(&mut storage, LARGE, PROVIDER_ATTRIBUTES);
    let ia = &bench.ia;
    let gone = bench.endpoint();
    ia.ep_free(gone).unwrap();
    let ep = bench.connected();
    assert_eq!(ep.index(), gone.index());
    let (unconnected, _) = bench.in_state(EndpointState::Unconnected);
    let (over, _) = bench.in_state(EndpointState::Disconnected);
    let segments = segments(&bench, ia.pz_create().unwrap());
    let remotes = [0, 15, 16, 17, 1 << 32].map(|length| RmrTriplet { length, ..REMOTE });
    let ways: [(&str, Post<'_>); 4] = [
        ("send", &|it| ia.post_send(it.ep, it.segments, 5, it.flags)),
        ("write", &|it| {
            ia.post_rdma_write(it.ep, it.segments, 5, &it.remote, it.flags)
        }),
        ("read", &|it| {
            ia.post_rdma_read(it.ep, it.segments, 5, &it.remote, it.flags)
        }),
        ("receive", &|it| {
            ia.post_recv(it.ep, it.segments, 5, it.flags)
        }),
    ];
    for (name, post) in ways {
        let mut well = 0;
        let mut check = |endpoint, segment: &LmrTriplet, remote, flags, refused: bool| {
            let told = format!("{name} {endpoint:?} {segment:?} {remote:?} {flags:?} {refused}");
            // A freed endpoint has no queue pair to watch.
            let watched = if endpoint == gone { ep } else { endpoint };
            let list = lengthened(segment);
            let arguments = |segments| PostArguments {
                ep: endpoint,
                segments,
                remote,
                flags,
            };
            let prepare = || {
                if refused {
                    bench.device.refuse_next(BackendError::Resources);
                }
            };
            prepare();
            let long = outcome(&bench, watched, || post(&arguments(&list)));
            prepare();
            let short = outcome(&bench, watched, || post(&arguments(&list[..1])));
            assert_eq!(short, long, "{told}");
            assert!(!refused || short.answer.is_err(), "{told}");
            // On a disconnected endpoint, the work is flushed at once.
            let nothing = short.posted.is_empty() && short.events.is_empty();
            assert_eq!(nothing, short.answer.is_err(), "{told}");
            well += u32::from(short.answer.is_ok());
        };
        for endpoint in [ep, gone, unconnected, over] {
            for segment in &segments {
                check(endpoint, segment, REMOTE, NONE, false);
            }
            for flags in flags() {
                check(endpoint, &segments[0], REMOTE, flags, false);
            }
            for remote in remotes {
                check(endpoint, &segments[0], remote, NONE, false);
            }
        }
        check(ep, &segments[0], REMOTE, NONE, true);
        // The attempts posted the valid segment each time.
        assert!(well >= 3, "{name}: {well}");
        // With a full queue.
        let list = lengthened(&segments[0]);
        let arguments = |segments| PostArguments {
            ep,
            segments,
            remote: REMOTE,
            flags: NONE,
        };
        let mut posted = 0;
        while post(&arguments(&list[..1])).is_ok() {
            posted += 1;
        }
        assert_eq!(posted, 4);
        assert_eq!(
            post(&arguments(&list[..1])).unwrap_err().cause(),
            Cause::QueueFull
        );
        assert_eq!(
            post(&arguments(&list)).unwrap_err().cause(),
            Cause::QueueFull
        );
        assert_eq!(outcome(&bench, ep, || ()).events.len(), 4);
    }
}

/// Spec: SRQR-01, SRQR-07, SRQR-27..29, DTO-06, DTO-07
#[test]
fn one_segment_is_a_shared_buffer_as_a_list_is() {
    let mut storage = TestStorage::new();
    let bench = Bench::with(&mut storage, LARGE, PROVIDER_ATTRIBUTES);
    let ia = &bench.ia;
    let size = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 2,
        low_watermark: 0,
    };
    let gone = ia.srq_create(bench.pz, &size).unwrap();
    ia.srq_free(gone).unwrap();
    let segments = segments(&bench, ia.pz_create().unwrap());
    let mut well = 0;
    for segment in &segments {
        for (stale, refused) in [(false, false), (true, false), (false, true)] {
            // The device refuses only what the core accepts.
            let refused = refused && segment == &segments[0];
            // A new queue per path, so that the count shows this post only.
            let ways = [1, 2].map(|count| {
                let srq = ia.srq_create(bench.pz, &size).unwrap();
                assert_eq!(srq.index(), gone.index());
                if refused {
                    bench.device.refuse_next(BackendError::Resources);
                }
                let named = if stale { gone } else { srq };
                let answer = ia.srq_post_recv(named, &lengthened(segment)[..count], 5);
                let outstanding = ia.srq_query(srq, SrqFields::all()).unwrap();
                ia.srq_free(srq).unwrap();
                (answer, outstanding.outstanding)
            });
            let told = format!("{segment:?} {stale} {refused}");
            assert_eq!(ways[0], ways[1], "{told}");
            match ways[0].0 {
                Ok(()) => well += 1,
                Err(error) if stale => assert_eq!(error.subtype(), Subtype::InvalidHandleSrq),
                Err(_) => {}
            }
            assert!(!(stale || refused) || ways[0].0.is_err(), "{told}");
        }
    }
    assert!(well >= 3, "{well}");
}
