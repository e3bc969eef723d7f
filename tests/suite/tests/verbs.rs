//! The conformance suite on an RDMA device of this machine, in real time.
//!
//! Both ends of every connection are on the device. `DAT_DEVICE` names it; the default is the first
//! one with an active port. `DAT_WINDOWS=2` asks for windows of type 2 on a device with both types.
//! `cargo xtask test` runs them on `dat0` of `libdat_verbs.so`; guests have soft-RoCE.
//! The tests share the device's ports, so they must run one at a time (`--test-threads=1`).
//! `tests/suite/backends.toml` lists the tests that verbs cannot pass, with reasons.

use backend_verbs::{VerbsBackend, VerbsWait, devices};
use core::task::Waker;
use core::time::Duration;
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::error::Subtype;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait, Wait, WakeReason};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, IaFields, MemoryPrivileges, ProviderFields,
    PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::RmrId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::time::Instant;
use dat_core::{Error, Ia};
use dat_storage::{Limits, Reservation};
use dat_tests::fixture::{
    Adapter, Net, Party, PartyOptions, RsmTestbed, Testbed, granted, refused, report_skip,
};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::{env, thread};

use verbs_bed::VerbsBed;

mod exceptions;
mod verbs_bed;

impl RsmTestbed for VerbsBed {
    fn impatient_device_at(&self, _the_same: IaAddress) -> VerbsBackend {
        self.impatient_device()
    }
}

dat_tests::conformance_suite!(base, VerbsBed::new());
dat_tests::conformance_suite!(rsm, VerbsBed::new());

/// A wait of a device that counts its sleeps.
struct Counted {
    wait: VerbsWait,
    sleeps: usize,
}

impl Wait for Counted {
    fn now(&mut self) -> Instant {
        self.wait.now()
    }

    fn waker(&self) -> Waker {
        self.wait.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        self.sleeps += 1;
        self.wait.wait(until)
    }
}

/// Two adapters, each with a wait for every thread.
type Ends = [(Rc<Adapter<VerbsBed>>, Vec<Counted>); 2];

fn ends(net: &Net<'_, VerbsBed>, threads: usize) -> Ends {
    [(); 2].map(|()| {
        let device = net.bed.device();
        let waits = (0..threads).map(|_| Counted {
            wait: device.wait().expect("descriptors"),
            sleeps: 0,
        });
        let waits = waits.collect();
        (net.adapter_over(device), waits)
    })
}

fn soon(milliseconds: u64) -> Option<Instant> {
    let now = ThreadWait::clock().as_micros();
    Some(Instant::from_micros(now + milliseconds * 1000))
}

/// A waiting thread sleeps until the completion and does not poll in between.
///
/// Spec: EVW-01, EVW-06, EVW-08
#[test]
fn a_waiting_thread_sleeps_until_the_completion() {
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let [(near, _), (far, mut waits)] = ends(&net, 1);
    let options = PartyOptions::default();
    let (left, right) = (Party::new(&near, &options), Party::new(&far, &options));
    net.connect(&left, &right);
    right.receive_into(&[right.memory.segment(0, 8)], 5);
    let wait = &mut waits[0];
    let started = ThreadWait::clock().as_micros();
    refused(
        far.evd_wait_until(right.receive, 1, soon(300), wait)
            .map(drop),
        Error::timeout_expired(),
    );
    assert!(ThreadWait::clock().as_micros() - started >= 300_000);
    assert!(wait.sleeps < 10, "slept {} times", wait.sleeps);
    wait.sleeps = 0;
    let (ia, ep, evd) = (&*near, left.ep, right.receive);
    let segment = left.memory.segment(0, 8);
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(200));
            granted(ia.post_send(ep, &[segment], 6, CompletionFlags::empty()));
        });
        let waited = granted(far.evd_wait_until(evd, 1, soon(20_000), wait));
        assert!(matches!(waited.event, Event::Dto(done) if done.cookie == 5));
    });
    assert!(wait.sleeps < 10, "slept {} times", wait.sleeps);
}

/// A short Send or Write carries its data as of the post; its region may go at once.
///
/// Spec: EPS-01, EPW-01, LMF-03
#[test]
fn short_requests_carry_their_data() {
    let bed = VerbsBed::new();
    let (net, left, right) = Net::connected(&bed);
    let about = granted(left.ia.ia_query(IaFields::all(), ProviderFields::empty()));
    if about.ia.vendor_name != "soft-RoCE" {
        let reason = "requests of this device need not carry their data";
        report_skip("short_requests_carry_their_data", reason);
        return;
    }
    for round in 0..20 {
        let memory = left.more_memory(64, MemoryPrivileges::LOCAL_READ);
        memory.fill(round);
        let posted = memory.content();
        right.receive_into(&[right.memory.segment(0, 64)], 5);
        left.send_from(&[memory.segment(0, 64)], 6);
        let remote = right.memory.remote(64, 64);
        left.write(
            &[memory.segment(0, 64)],
            7,
            &remote,
            CompletionFlags::empty(),
        );
        granted(left.ia.lmr_free(memory.lmr));
        memory.fill(round + 1);
        net.success(&left, 6);
        net.success(&left, 7);
        net.receive_ends(&right, 5, DtoStatus::Success);
        for offset in [0, 64] {
            assert_eq!(right.memory.load(offset, 64), posted, "round {round}");
        }
    }
}

/// Endpoints of one dispatcher may have more completions than a completion queue of the device.
///
/// Each is reported once, to polls and to a waiting thread.
///
/// Spec: DTO-11, DTO-13, EVW-01, EVW-08
#[test]
fn a_dispatcher_takes_more_endpoints_than_one_completion_queue() {
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let limits = Limits {
        records: 1 << 17,
        ..Limits::default()
    };
    let [(near, _), (far, mut wait)] = [(); 2].map(|()| {
        let device = bed.device();
        let wait = device.wait().expect("descriptors");
        let storage = Reservation::new(&limits).expect("address space");
        let ia = Ia::open(device, storage.leak(), 64).expect("the adapter opens");
        (net.keep(ia), wait)
    });
    let wait = &mut wait;
    let about = granted(near.ia_query(IaFields::all(), ProviderFields::empty()));
    if about.ia.vendor_name != "soft-RoCE" {
        report_skip(
            "a_dispatcher_takes_more_endpoints_than_one_completion_queue",
            "this device has room for more than is worth a test",
        );
        return;
    }
    let each = about.ia.max_dto_per_ep.min(4000);
    let pairs = usize::try_from(2 * about.ia.max_evd_qlen / each).expect("a count") + 2;
    let options = PartyOptions::with(|attributes| {
        attributes.max_request_dtos = each;
        attributes.max_recv_dtos = each;
    });
    let firsts = [&near, &far].map(|ia| Party::new(ia, &options));
    let parties: Vec<[Party<VerbsBed>; 2]> = (1..pairs)
        .map(|_| {
            firsts.each_ref().map(|first| Party {
                ep: granted(first.ia.ep_create(
                    Some(first.zone),
                    Some(first.receive),
                    Some(first.request),
                    Some(first.connect),
                    Some(&options.attributes),
                )),
                ..first.clone()
            })
        })
        .chain([firsts.clone()])
        .collect();
    for [left, right] in &parties {
        net.connect(left, right);
    }
    // All at once, so that completions wait in every queue.
    for (cookie, [left, right]) in (0..).zip(&parties) {
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
        left.send_from(&[left.memory.segment(0, 8)], cookie);
    }
    let [left, right] = &firsts;
    let mut seen = vec![(0, 0); pairs];
    for _ in 0..pairs {
        let sent = net.request_completion(left);
        assert_eq!(sent.status, DtoStatus::Success);
        assert_eq!(sent.ep, parties[sent.cookie as usize][0].ep);
        seen[sent.cookie as usize].0 += 1;
        let waited = granted(far.evd_wait_until(right.receive, 1, soon(20_000), wait));
        let Event::Dto(received) = waited.event else {
            panic!("{waited:?}");
        };
        assert_eq!(received.status, DtoStatus::Success);
        assert_eq!(received.ep, parties[received.cookie as usize][1].ep);
        seen[received.cookie as usize].1 += 1;
    }
    assert_eq!(seen, vec![(1, 1); pairs]);
    // Each alone wakes a thread that sleeps.
    let evd = right.receive;
    for (cookie, [left, right]) in (0..).zip(&parties) {
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
        let (ia, ep, segment) = (&*near, left.ep, left.memory.segment(0, 8));
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                granted(ia.post_send(ep, &[segment], cookie, CompletionFlags::empty()));
            });
            let waited = granted(far.evd_wait_until(evd, 1, soon(20_000), wait));
            assert!(matches!(waited.event, Event::Dto(done) if done.cookie == cookie));
        });
        net.success(left, cookie);
    }
}

/// A completion always has room: endpoints add it to a dispatcher that was made for fewer.
///
/// Spec: DTO-01, DTO-13
#[test]
fn a_small_dispatcher_is_not_overrun() {
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let options = PartyOptions {
        queue_length: 8,
        ..PartyOptions::default()
    };
    let (left, right) = net.pair(&options);
    let most = left.max_request_dtos() as u64;
    assert!(most > 8, "the queue has as many places as the endpoint");
    let (segment, remote) = ([left.memory.segment(0, 8)], right.memory.remote(0, 8));
    let none = CompletionFlags::empty();
    for _ in 0..20 {
        for cookie in 0..most {
            left.write(&segment, cookie, &remote, none);
        }
        let more = left
            .ia
            .post_rdma_write(left.ep, &segment, 99, &remote, none);
        let full = Error::insufficient_resources(Subtype::ResourceTep);
        refused(more.map(drop), full);
        for cookie in 0..most {
            net.success(&left, cookie);
        }
        net.quiet(&left);
    }
}

/// Threads post and wait on both adapters at once; no completion is lost, doubled or mixed up.
///
/// Spec: EVW-01, DTO-11
#[test]
fn threads_post_and_wait_concurrently() {
    const PAIRS: usize = 3;
    const ROUNDS: u64 = 100;
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let [(near, mut senders), (far, mut receivers)] = ends(&net, PAIRS);
    let options = PartyOptions::default();
    let pairs: Vec<_> = (0..PAIRS)
        .map(|_| {
            let (left, right) = (Party::new(&near, &options), Party::new(&far, &options));
            net.connect(&left, &right);
            for cookie in 0..4 {
                right.receive_into(&[right.memory.segment(0, 64)], cookie);
            }
            let from = (left.ep, left.request, left.memory.segment(0, 64));
            (from, (right.ep, right.receive, right.memory.segment(0, 64)))
        })
        .collect();
    let (near, far) = (&*near, &*far);
    thread::scope(|scope| {
        let waits = senders.iter_mut().zip(&mut receivers);
        for (&(from, to), (sending, receiving)) in pairs.iter().zip(waits) {
            scope.spawn(move || {
                let (ep, evd, segment) = from;
                for cookie in 0..ROUNDS {
                    granted(near.post_send(ep, &[segment], cookie, CompletionFlags::empty()));
                    let waited = granted(near.evd_wait_until(evd, 1, soon(20_000), sending));
                    assert!(
                        matches!(waited.event, Event::Dto(done)
                            if (done.ep, done.cookie, done.status) == (ep, cookie, DtoStatus::Success)),
                        "{waited:?}"
                    );
                }
            });
            scope.spawn(move || {
                let (ep, evd, segment) = to;
                for cookie in 0..ROUNDS {
                    let waited = granted(far.evd_wait_until(evd, 1, soon(20_000), receiving));
                    assert!(
                        matches!(waited.event, Event::Dto(done)
                            if (done.ep, done.cookie, done.status) == (ep, cookie, DtoStatus::Success)
                                && done.transferred_length == 64),
                        "{waited:?}"
                    );
                    granted(far.post_recv(ep, &[segment], cookie + 4, CompletionFlags::empty()));
                }
            });
        }
    });
}

/// Connections reach every address of the adapter, of both families.
///
/// Spec: EPK-01, EPK-05, EPK-06
#[test]
fn every_address_of_the_adapter_is_reached() {
    let bed = VerbsBed::new();
    let known = devices().into_iter().find(|one| one.name == bed.name());
    for address in known.expect("the device").addresses {
        let (net, left, right) = Net::unconnected(&bed);
        let requests = granted(right.ia.evd_create(8, None, EvdFlags::CR));
        let qualifier = net.qualifier();
        granted(right.ia.psp_create(qualifier, requests, PspFlags::Consumer));
        let wanted = ConnectParam {
            address,
            qualifier,
            timeout: TIMEOUT_INFINITE,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        granted(left.ia.ep_connect(left.ep, &wanted, bed.now()));
        let cr = net.request(&right.ia, requests);
        granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
        for party in [&left, &right] {
            assert_eq!(
                net.connection(party),
                ConnectionEventKind::Established,
                "{address}"
            );
        }
        net.check_transfer(&left, &right);
        println!("{address} is reached");
    }
}

/// Binds a window to a segment for remote writes and awaits the completion.
#[track_caller]
fn bound(
    net: &Net<'_, VerbsBed>,
    party: &Party<VerbsBed>,
    rmr: RmrId,
    segment: &LmrTriplet,
) -> u32 {
    let none = CompletionFlags::empty();
    let write = MemoryPrivileges::REMOTE_WRITE;
    let context = party.bind(rmr, segment, write, 1, none);
    assert_eq!(net.bound(party).status, DtoStatus::Success);
    context
}

/// Writes to a range of the peer's memory and returns the status.
fn written(
    net: &Net<'_, VerbsBed>,
    party: &Party<VerbsBed>,
    context: u32,
    segment: &LmrTriplet,
) -> DtoStatus {
    let local = [party.memory.segment(0, segment.length)];
    let remote = RmrTriplet {
        context,
        address: segment.address,
        length: segment.length,
    };
    let none = CompletionFlags::empty();
    let posted = party.ia.post_rdma_write(party.ep, &local, 2, &remote, none);
    granted(posted);
    net.request_completion(party).status
}

/// Binds of a window may outnumber the keys that the device counts in eight bits.
///
/// This holds also if a bind is flushed at any point, which keeps the old binding.
///
/// Spec: RMB-10, RMB-21, RMB-42
#[test]
fn a_window_outlives_its_keys() {
    // Number of binds before the flushed one: early, midway, and around the last key.
    for flushed in [1_u32, 100, 254, 255, 256] {
        let bed = VerbsBed::new();
        let (net, left, right) = Net::connected(&bed);
        let rmr = granted(right.ia.rmr_create(right.zone));
        let segment = right.memory.segment(0, 64);
        let mut had = Vec::new();
        for count in 0..600 {
            if count == flushed {
                let open = had.last().copied().expect("it was bound");
                net.disconnect(&left, &right);
                let none = CompletionFlags::empty();
                let write = MemoryPrivileges::REMOTE_WRITE;
                right.bind(rmr, &segment, write, 1, none);
                assert_eq!(net.bound(&right).status, DtoStatus::Flushed);
                granted(left.ia.ep_reset(left.ep));
                granted(right.ia.ep_reset(right.ep));
                net.connect(&left, &right);
                // A window of type 2 ends with the queue pair.
                if env::var("DAT_WINDOWS").as_deref() != Ok("2") {
                    assert_eq!(written(&net, &left, open, &segment), DtoStatus::Success);
                }
            }
            let context = bound(&net, &right, rmr, &segment);
            assert!(!had.contains(&context), "{context:#x} after {count} binds");
            had.push(context);
            if count % 50 == 0 || count.abs_diff(flushed) < 3 {
                assert_eq!(written(&net, &left, context, &segment), DtoStatus::Success);
            }
        }
        // An old context opens nothing.
        let before = right.memory.content();
        left.memory.fill(9);
        let old = had[had.len() - 257];
        assert_eq!(written(&net, &left, old, &segment), DtoStatus::RemoteAccess);
        assert_eq!(right.memory.content(), before);
    }
}

/// Set in the process to be killed: the qualifier that it connects to.
const VICTIM: &str = "DAT_VICTIM_CONNECTS_TO";

/// Runs as the process that `a_killed_peer_leaves_flushes_and_an_event` starts; no test by itself.
#[test]
fn victim() {
    let Some(qualifier) = env::var(VICTIM).ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let party = Party::new(&net.adapter(), &PartyOptions::default());
    for cookie in 0..4 {
        party.receive_into(&[party.memory.segment(0, 64)], cookie);
    }
    granted(net.try_connect(&party, &party.ia, qualifier, &[]));
    assert_eq!(net.connection(&party), ConnectionEventKind::Established);
    // Runs until it is killed, or for 60,000 steps.
    for _ in 0..60_000 {
        net.step();
    }
}

/// A killed peer leaves a flush of each request and receive, and one event.
///
/// The adapter still works.
///
/// Spec: EPD-10, DTO-12
#[test]
fn a_killed_peer_leaves_flushes_and_an_event() {
    let bed = VerbsBed::new();
    let net = Net::new(&bed);
    let party = Party::new(&net.adapter(), &PartyOptions::default());
    let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
    let qualifier = net.qualifier();
    granted(party.ia.psp_create(qualifier, requests, PspFlags::Consumer));
    for cookie in 0..4 {
        party.receive_into(&[party.memory.segment(0, 64)], cookie);
    }
    let mut victim = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "victim"])
        .env(VICTIM, qualifier.to_string())
        .env("DAT_DEVICE", bed.name())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let cr = net.request(&party.ia, requests);
    granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
    assert_eq!(net.connection(&party), ConnectionEventKind::Established);
    for cookie in 0..4 {
        party.send_from(&[party.memory.segment(0, 8)], cookie);
        net.success(&party, cookie);
    }
    // The peer has no receive for this one.
    party.send_from(&[party.memory.segment(0, 8)], 9);
    victim.kill().expect("it runs");
    victim.wait().expect("it ends");
    let killed = ThreadWait::clock().as_micros();
    let kind = net.connection(&party);
    assert!(
        matches!(
            kind,
            ConnectionEventKind::Disconnected | ConnectionEventKind::Broken
        ),
        "{kind:?}"
    );
    println!(
        "{kind:?} {} ms after the end",
        (ThreadWait::clock().as_micros() - killed) / 1000
    );
    let last = net.request_completion(&party);
    assert_eq!(last.cookie, 9);
    assert_ne!(last.status, DtoStatus::Success);
    for cookie in 0..4 {
        net.receive_ends(&party, cookie, DtoStatus::Flushed);
    }
    net.quiet(&party);
    granted(party.ia.ep_reset(party.ep));
    let other = Party::new(&net.adapter(), &PartyOptions::default());
    net.connect(&party, &other);
    net.check_transfer(&party, &other);
}
