//! The conformance suite on the driver of raw adapters, over model paravirtual adapters.
//!
//! The seed of the devices' fabric decides everything that the rules leave open. `DAT_SEED` sets
//! it; a failing test prints it. `tests/suite/backends.toml` lists the tests that the device cannot
//! pass, with reasons.

use backend_mmio::DeviceFault;
use backend_mmio::defs::pvrdma::{LOCAL, ROUTABLE, command};
use backend_mmio::pvrdma::OpenFailure;
use backend_mmio::ring::DeviceState;
use backend_mock::{FabricOptions, NodeOptions};
use bed::{Bed, network, seeded_options};
use core::sync::atomic::AtomicU8;
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Armed, Backend, BackendError, CompletionQueue, ConnectRequest, ControlEvent, DisconnectMode,
    QueuePair, QueuePairRequest, ReceiveRequest, Registration, SendFlags, SendOperation,
    SendRequest, WorkQueue,
};
use dat_core::event::{AsyncEventKind, Event};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, MemoryPrivileges, QualityOfService,
};
use dat_core::memory::Region;
use dat_core::time::Instant;
use dat_tests::fixture::{Net, Party, PartyOptions, Testbed};
use exceptions::exception;
use mmio_model::pvrdma::{Numbers, PvrdmaBadCqe, PvrdmaFabric, PvrdmaModel, PvrdmaQuirks, Refusal};

mod bed;
mod exceptions;
mod growth;
mod messages;

/// A bed with its own fabric, new for each test.
type PvrdmaBed = Bed<PvrdmaFabric>;

network!(PvrdmaFabric, PvrdmaModel, "pvrdma", device, |test| {
    exception("pvrdma", "", test)
});

impl PvrdmaBed {
    /// Opens a device with its own quirks.
    fn with_quirks(&self, quirks: PvrdmaQuirks) -> Result<PvrdmaModel, OpenFailure> {
        let (state, _) = Box::leak(Box::new(DeviceState::new())).lend();
        self.fabric
            .device_with_quirks(self.options(), state, quirks)
    }
}

dat_tests::conformance_suite!(base, PvrdmaBed::new());
dat_tests::conformance_suite!(non_coherent, PvrdmaBed::new());
dat_tests::conformance_suite!(windowless, PvrdmaBed::new());
dat_tests::conformance_suite!(faulty, PvrdmaBed::new());
dat_tests::conformance_suite!(rsm, PvrdmaBed::new());
dat_tests::conformance_suite!(rsm_faulty, PvrdmaBed::new());

/// A fenced write waits for earlier reads, which end as late as the fences allow.
///
/// Spec: EPW-09, DTO-04
#[test]
fn fences_hold_where_reads_end_late() {
    let late: PvrdmaBed = Bed::over(FabricOptions {
        read_latency: 10_000..=10_000,
        ..seeded_options()
    });
    dat_tests::suite::epw::fenced_write_forwards_what_a_read_fetches(&late);
}

/// A fabric whose devices complete no posts on a queue pair in error.
struct Keeping(PvrdmaFabric);

impl Keeping {
    fn inner(&self) -> &PvrdmaFabric {
        &self.0
    }
}

network!(
    Keeping,
    PvrdmaModel,
    "pvrdma",
    device_without_flush,
    |test| match test {
        "shared_buffers_outlive_their_endpoint" => {
            let reason = "nobody can tell which buffers a queue pair took that is not flushed: they are kept";
            Some(reason.to_owned())
        }
        _ => exception("pvrdma", "", test),
    },
    |options: FabricOptions| Self(PvrdmaFabric::new(options)),
    Self::inner
);

mod keeping {
    use super::*;

    dat_tests::conformance_suite!(base, Bed::<Keeping>::new());
}

/// Posts three receives and three requests on a device whose first completion is false.
///
/// Returns the status of the first receive, and the fault of the device.
fn run_with_bad_cqe(bad_cqe: PvrdmaBadCqe) -> (DtoStatus, Option<DeviceFault>) {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
    let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    for cookie in 0..3 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
    }
    bed.fabric.forge_completion(0, bad_cqe);
    match bad_cqe {
        PvrdmaBadCqe::Length => right.send_from(&[right.memory.segment(0, 8)], 5),
        _ => {
            for cookie in 0..3 {
                left.send_from(&[left.memory.segment(0, 8)], cookie);
            }
        }
    }
    let requests = if bad_cqe == PvrdmaBadCqe::Length {
        0
    } else {
        3
    };
    for cookie in 0..requests {
        let flushed = net.request_completion(&left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed),
            "{bad_cqe:?}"
        );
    }
    let flushed = net.receive_completion(&left);
    for cookie in 1..3 {
        let flushed = net.receive_completion(&left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed),
            "{bad_cqe:?}"
        );
    }
    let param = net.event(&left.ia, left.ia.async_evd());
    let catastrophe = AsyncEventKind::IaCatastrophic;
    assert!(
        matches!(param, Event::Async { kind, .. } if kind == catastrophe),
        "{bad_cqe:?}: {param:?}"
    );
    net.connection(&left);
    assert_eq!(left.state(), EndpointState::Disconnected, "{bad_cqe:?}");
    net.connection(&right);
    assert_eq!(right.state(), EndpointState::Disconnected, "{bad_cqe:?}");
    (flushed.status, state.fault())
}

/// A device that reports false completions is given up, with the fault that they show.
///
/// Nothing hangs, all posts complete, and the peer's connection ends.
///
/// Spec: DTO-10, DTO-11, DTO-12
#[test]
fn a_paravirtual_device_with_a_bad_cqe_is_abandoned() {
    let cases = [
        (PvrdmaBadCqe::QueuePair, DeviceFault::UnknownQueuePair),
        (PvrdmaBadCqe::Length, DeviceFault::ImpossibleLength),
        (PvrdmaBadCqe::Index, DeviceFault::PhaseJump),
        (PvrdmaBadCqe::AllOnes, DeviceFault::AllOnes),
    ];
    for (bad_cqe, fault) in cases {
        assert_eq!(
            run_with_bad_cqe(bad_cqe),
            (DtoStatus::Flushed, Some(fault)),
            "{bad_cqe:?}"
        );
    }
}

/// A failure with an unknown status ends only its connection; the adapter still works.
///
/// Spec: DTO-10, DTO-12
#[test]
fn an_unknown_failure_ends_only_its_connection() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
    let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
    let options = PartyOptions::default();
    let adapters = [net.adapter_over(device), net.adapter()];
    let [left, right] = adapters.each_ref().map(|ia| Party::new(ia, &options));
    net.connect(&left, &right);
    let [other_left, other_right] = adapters.each_ref().map(|ia| Party::new(ia, &options));
    net.connect(&other_left, &other_right);
    right.receive_into(&[right.memory.segment(0, 8)], 0);
    bed.fabric.forge_completion(0, PvrdmaBadCqe::Status);
    left.send_from(&[left.memory.segment(0, 8)], 7);
    net.request_ends(&left, 7, DtoStatus::LocalEndpoint);
    net.connection(&left);
    assert_eq!(left.state(), EndpointState::Disconnected);
    net.silent(&left.ia, left.ia.async_evd());
    assert_eq!(state.fault(), None);
    net.check_transfer(&other_left, &other_right);
}

/// A flip of any bit of a completion's token is detected.
///
/// Spec: DTO-11
#[test]
fn every_bit_of_a_token_is_checked() {
    for bit in 0..64 {
        println!("bit {bit}");
        let (status, fault) = run_with_bad_cqe(PvrdmaBadCqe::Token(bit));
        assert_eq!(status, DtoStatus::Flushed);
        let found = [DeviceFault::WrongIndex, DeviceFault::UnknownQueuePair];
        assert!(
            fault.is_some_and(|fault| found.contains(&fault)),
            "{fault:?}"
        );
    }
}

/// An active device is reset when opening fails later or its driver is dropped.
///
/// A device that is reset writes into no memory that was given back.
///
/// Spec: DTO-11
#[test]
fn no_device_is_left_active() {
    let bed = PvrdmaBed::new();
    let refused = [
        (Refusal::Context, command::CREATE_CONTEXT),
        (Refusal::Bind, command::CREATE_BIND),
        (Refusal::CompletionQueue, command::CREATE_COMPLETION_QUEUE),
    ];
    for (refuses, command) in refused {
        let quirks = PvrdmaQuirks {
            refuses,
            ..PvrdmaQuirks::default()
        };
        let opened = bed.with_quirks(quirks);
        assert_eq!(opened.err(), Some(OpenFailure::Command(command)));
        assert_eq!(bed.fabric.active(), 0, "{refuses:?}");
    }
    let device = bed.device();
    assert_eq!(bed.fabric.active(), 1);
    drop(device);
    assert_eq!(bed.fabric.active(), 0);
}

/// Devices of versions 17 to 19 open on Ethernet if the version knows their addresses.
///
/// The model refuses an address of another kind, an address in a virtual network, and another size
/// of packets.
///
/// Spec: IAO-01
#[test]
fn versions_and_address_kinds_are_checked() {
    // The capability word with the mode and the kinds of addresses.
    const NETWORK: u32 = 50;
    let kinds = |kinds: u32| Some((NETWORK, kinds << 24));
    let lacks = Some(OpenFailure::Capabilities);
    let version = |version| Some(OpenFailure::Version(version));
    let cases = [
        (16, kinds(LOCAL), version(16)),
        (17, kinds(LOCAL), None),
        (17, kinds(ROUTABLE), lacks),
        (17, kinds(LOCAL | ROUTABLE), None),
        (18, kinds(LOCAL), None),
        (18, kinds(ROUTABLE), None),
        (19, kinds(LOCAL | ROUTABLE), None),
        (19, kinds(0), lacks),
        (19, Some((NETWORK, ROUTABLE << 24 | 1)), lacks),
        (20, kinds(ROUTABLE), version(20)),
        (u32::MAX, kinds(ROUTABLE), version(u32::MAX)),
    ];
    for (version, claims, failure) in cases {
        let bed = PvrdmaBed::new();
        let opened = bed.with_quirks(PvrdmaQuirks {
            version: Some(version),
            fake_capability: claims,
            ..PvrdmaQuirks::default()
        });
        assert_eq!(
            opened.as_ref().err(),
            failure.as_ref(),
            "{version}, {claims:x?}"
        );
        drop(opened);
        assert_eq!(bed.fabric.active(), 0);
    }
}

/// An empty queue is polled at its device, which may write completions only then.
///
/// Spec: DTO-10, EVG-01
#[test]
fn an_empty_queue_is_polled_at_its_device() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let device = bed.with_quirks(PvrdmaQuirks {
        polled: true,
        ..PvrdmaQuirks::default()
    });
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device.expect("a device")), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    for cookie in 0..3 {
        net.check_transfer(&left, &right);
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
        right.send_from(&[right.memory.segment(0, 8)], cookie);
        net.success(&right, cookie);
        assert_eq!(net.receive_completion(&left).cookie, cookie);
    }
}

/// A device without a valid answer is waited for once, then halted.
///
/// No later call reads a register of it.
///
/// Spec: DTO-11, LMF-01
#[test]
fn a_silent_device_is_awaited_once() {
    // A message with wrong words, or an answer with a wrong key that leaves the driver waiting.
    for senseless in [true, false] {
        let fabric = PvrdmaFabric::new(seeded_options());
        let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
        let quirks = PvrdmaQuirks::default();
        let device = fabric.device_with_quirks(NodeOptions::new("pvrdma", 1), lent, quirks);
        let mut device = device.expect("a device");
        let domain = device.create_domain().expect("a domain");
        static MEMORY: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
        let memory = Region::from_static(&MEMORY);
        let rights = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        let registration = Registration::new(domain, &memory, rights);
        let regions = [(); 4].map(|()| device.register(&registration).expect("a region"));
        let queue = device.create_completion_queue(0, 8).expect("a queue");
        let mut request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
        request.request_queue = Some(0);
        let pair = device.create_queue_pair(&request).expect("a queue pair");
        if senseless {
            fabric.corrupt_message(0, 1);
        } else {
            fabric.corrupt_answer(0, 0, 1);
        }
        let [first, others @ ..] = regions;
        device.deregister(first);
        let fault = if senseless {
            DeviceFault::WrongMessage
        } else {
            DeviceFault::Silent
        };
        assert_eq!(state.fault(), Some(fault));
        assert_eq!(fabric.active(), 0, "it may still write");
        let reads = fabric.register_reads(0);
        for region in others {
            device.deregister(region);
        }
        device.disconnect(pair.key, DisconnectMode::Broken);
        device.destroy_queue_pair(pair.key, pair.send, pair.receive);
        device.destroy_completion_queue(queue);
        device.destroy_domain(domain);
        assert_eq!(device.create_domain(), Err(BackendError::Device));
        assert_eq!(fabric.register_reads(0), reads, "{senseless}");
        let param = device.poll_control(Instant::ZERO);
        assert_eq!(param, Some(ControlEvent::DeviceFailed));
        assert_eq!(fabric.register_reads(0), reads, "{senseless}");
    }
}

/// A device that is given up leaves another device as it is.
///
/// A region of the other device is freed there. A peer that writes to the region afterwards breaks
/// its connection, and the memory is not written.
///
/// Spec: LMF-01, DTO-11
#[test]
fn an_abandoned_device_does_not_affect_others() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let options = PartyOptions::default();
    let kept = Party::new(&net.adapter(), &options);
    let mut given_up = bed.with_quirks(PvrdmaQuirks::default()).expect("a device");
    let peer = Party::new(&net.adapter(), &options);
    net.connect(&kept, &peer);
    let domain = given_up.create_domain().expect("a domain");
    bed.fabric.corrupt_message(1, 1);
    given_up.destroy_domain(domain);
    let param = given_up.poll_control(bed.now());
    assert_eq!(param, Some(ControlEvent::DeviceFailed));
    assert_eq!(bed.fabric.active(), 2);
    let before = bed.fabric.regions(0);
    let remote = kept.memory.remote(0, 8);
    kept.ia.lmr_free(kept.memory.lmr).expect("a region");
    assert_eq!(bed.fabric.regions(0), before - 1);
    peer.memory.fill(1);
    let segment = [peer.memory.segment(0, 8)];
    let none = CompletionFlags::empty();
    let posted = peer.ia.post_rdma_write(peer.ep, &segment, 1, &remote, none);
    posted.expect("a post");
    let refused = net.request_completion(&peer).status;
    assert_eq!(refused, DtoStatus::RemoteAccess);
    assert_eq!(kept.memory.load(0, 8), [0; 8]);
}

/// A reused queue pair number names the new queue pair, not the forgotten one.
///
/// The new queue pair connects, carries data and outlives a reset of the old one. The receives of
/// the old one complete.
///
/// Spec: DTO-10, DTO-11
#[test]
fn a_reused_number_names_the_new_queue_pair() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let device = bed.with_quirks(PvrdmaQuirks {
        drops_flushed: true,
        ..PvrdmaQuirks::default()
    });
    let (near, far) = (net.adapter_over(device.expect("a device")), net.adapter());
    let options = PartyOptions::default();
    let (old, peer) = (Party::new(&near, &options), Party::new(&far, &options));
    net.connect(&old, &peer);
    old.receive_into(&[old.memory.segment(0, 8)], 1);
    net.disconnect(&old, &peer);
    net.receive_ends(&old, 1, DtoStatus::Flushed);
    let (new, other) = (Party::new(&near, &options), Party::new(&far, &options));
    net.connect(&new, &other);
    net.check_transfer(&new, &other);
    old.ia.ep_reset(old.ep).expect("a reset");
    net.check_transfer(&new, &other);
    net.disconnect(&new, &other);
}

/// A queue pair that does not enter the error state is destroyed; its posts complete.
///
/// Spec: DTO-10
#[test]
fn a_queue_pair_that_does_not_fail_is_flushed_by_the_driver() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let device = bed.with_quirks(PvrdmaQuirks {
        refuses: Refusal::Error,
        ..PvrdmaQuirks::default()
    });
    let (near, far) = (net.adapter_over(device.expect("a device")), net.adapter());
    let options = PartyOptions::default();
    let (left, right) = (Party::new(&near, &options), Party::new(&far, &options));
    net.connect(&left, &right);
    for cookie in 0..3 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
    }
    net.disconnect(&left, &right);
    for cookie in 0..3 {
        net.receive_ends(&left, cookie, DtoStatus::Flushed);
    }
}

/// A device that gives a queue pair an impossible number is given up.
///
/// The number has too many bits, or belongs to another queue pair.
///
/// Spec: DTO-11
#[test]
fn no_queue_pair_gets_an_impossible_number() {
    // The third number is the first queue pair's own; the driver's completion queue has the one
    // before.
    for (number, good) in [(u32::MAX, 0), (1 << 24, 0), (0x12, 1)] {
        let fabric = PvrdmaFabric::new(seeded_options());
        let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
        let quirks = PvrdmaQuirks {
            numbers: Numbers::Always(number),
            ..PvrdmaQuirks::default()
        };
        let options = NodeOptions::new("pvrdma", 1);
        let device = fabric.device_with_quirks(options, lent, quirks);
        let mut device = device.expect("a device");
        let domain = device.create_domain().expect("a domain");
        let request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
        for _ in 0..good {
            assert!(device.create_queue_pair(&request).is_ok());
        }
        let refused = device.create_queue_pair(&request).map(|_| ());
        assert_eq!(refused, Err(BackendError::Device), "{number:#x}");
        assert_eq!(state.fault(), Some(DeviceFault::UnknownQueuePair));
        assert_eq!(fabric.active(), 0);
    }
}

/// A post on a forgotten queue pair wakes the driver while somebody waits for it.
///
/// Spec: DTO-10
#[test]
fn completions_flushed_by_the_driver_wake_waiters() {
    let bed = PvrdmaBed::new();
    let device = bed.with_quirks(PvrdmaQuirks {
        drops_flushed: true,
        ..PvrdmaQuirks::default()
    });
    let mut device = device.expect("a device");
    let domain = device.create_domain().expect("a domain");
    let mut completions = device.create_completion_queue(0, 8).expect("a queue");
    let mut request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
    request.receive_queue = Some(0);
    let pair = device.create_queue_pair(&request).expect("a queue pair");
    device.disconnect(pair.key, DisconnectMode::Broken);
    assert_eq!(completions.arm(false), Armed::Armed);
    // The message that a command took may have announced something else.
    assert_eq!(device.poll_control(Instant::ZERO), None);
    assert_eq!(device.next_deadline(), None);
    let mut receive = pair.receive.expect("a receive queue");
    let posted = receive.post(&ReceiveRequest { token: 7 }, &[]);
    posted.expect("a request");
    assert_eq!(device.next_deadline(), Some(Instant::ZERO));
    let param = device.poll_control(Instant::ZERO);
    assert_eq!(param, Some(ControlEvent::Completions { queue: 0 }));
    let flushed = completions.poll().expect("no failure");
    assert_eq!(flushed.map(|flushed| flushed.token), Some(7));
    assert_eq!(device.next_deadline(), None);
}

/// Returns the next event of a device.
fn next_control_event(bed: &PvrdmaBed, device: &mut PvrdmaModel) -> ControlEvent {
    for _ in 0..10_000 {
        if let Some(event) = device.poll_control(bed.now()) {
            return event;
        }
        bed.step();
    }
    panic!("nothing happens");
}

/// A buffer that a queue pair took comes back under its own shared receive queue.
///
/// It comes back also after the queue pair was destroyed, in any order, or reset.
///
/// Spec: DTO-10, DTO-11
#[test]
fn buffers_of_shared_queues_outlive_their_endpoint() {
    let bed = PvrdmaBed::new();
    let (mut near, mut far) = (bed.device(), bed.device());
    let (zone, far_zone) = (near.create_domain(), far.create_domain());
    let (zone, far_zone) = (zone.expect("a domain"), far_zone.expect("a domain"));
    let mut completions = near.create_completion_queue(0, 16).expect("a queue");
    let address = near.ia_attributes().ia_address;
    let mut takers = Vec::new();
    for token in 1..4 {
        let (key, mut buffers) = near
            .create_shared_receive_queue(token, zone, 8, 1)
            .expect("a shared queue");
        let buffer = ReceiveRequest { token: 100 * token };
        buffers.post(&buffer, &[]).expect("a buffer");
        let mut request = QueuePairRequest::new(token, zone, EpAttributes::DEFAULT);
        request.receive_queue = Some(0);
        request.shared_receive_queue = Some(key);
        let receiver = near.create_queue_pair(&request).expect("a queue pair");
        let request = QueuePairRequest::new(token, far_zone, EpAttributes::DEFAULT);
        let QueuePair { key, mut send, .. } =
            far.create_queue_pair(&request).expect("a queue pair");
        let (listener, qualifier) = near.listen(token, Some(token)).expect("a listener");
        let wanted = ConnectRequest {
            address,
            qualifier,
            private_data: &[],
            quality: QualityOfService::BEST_EFFORT,
        };
        far.connect(key, &wanted).expect("an attempt");
        let ControlEvent::ConnectionRequest { request, .. } = next_control_event(&bed, &mut near)
        else {
            panic!("no request");
        };
        near.accept(request, receiver.key, &[]).expect("accepted");
        while !matches!(
            next_control_event(&bed, &mut near),
            ControlEvent::Established { .. }
        ) {}
        while !matches!(
            next_control_event(&bed, &mut far),
            ControlEvent::Established { .. }
        ) {}
        near.stop_listening(listener);
        // The first queue pair takes no buffer.
        if token > 1 {
            let message = SendRequest {
                token,
                operation: SendOperation::Send,
                flags: SendFlags::empty(),
            };
            send.post(&message, &[]).expect("a request");
        }
        while bed.step() {}
        takers.push((receiver, buffers, send));
    }
    let [idle, freed, reset] = takers.try_into().expect("three");
    for (receiver, ..) in [&idle, &freed] {
        assert!(receiver.receive.is_none());
    }
    let (QueuePair { key, send, receive }, ..) = idle;
    near.destroy_queue_pair(key, send, receive);
    let (QueuePair { key, send, receive }, ..) = freed;
    near.destroy_queue_pair(key, send, receive);
    let (mut receiver, ..) = reset;
    near.reset_queue_pair(receiver.key, &mut receiver.send, receiver.receive.as_mut())
        .expect("a reset");
    for token in [200, 300] {
        let back = completions.poll().expect("no failure").expect("a buffer");
        assert_eq!((back.token, back.status), (token, DtoStatus::Flushed));
    }
    assert!(completions.poll().expect("no failure").is_none());
}

/// A shared receive queue grows up to its room.
///
/// Spec: SRZ-01, SRZ-04
#[test]
fn shared_queues_grow_within_their_room() {
    growth::shared_queues_grow_within_their_room(&PvrdmaBed::new(), 64);
}

/// If memory does not suffice for room to grow, shared queues get the requested size.
///
/// Creation fails once memory does not suffice for that size either.
///
/// Spec: SRC-01
#[test]
fn shared_queues_without_room_to_grow_are_made() {
    let bed = PvrdmaBed::new();
    let mut device = bed.with_quirks(PvrdmaQuirks::default()).expect("a device");
    // Takes the memory for everything longer.
    let longest = device.ia_attributes().max_evd_qlen as u32;
    let fills: Vec<_> = (0..)
        .map_while(|name| device.create_completion_queue(name, longest).ok())
        .collect();
    assert!(fills.len() > 1);
    let domain = device.create_domain().expect("a domain");
    let segments = device.ia_attributes().max_iov_segments_per_dto as u32;
    let mut grown = Vec::new();
    let refused = loop {
        match device.create_shared_receive_queue(0, domain, 1, segments) {
            Ok((key, mut queue)) => {
                grown.push(device.resize_shared_receive_queue(key, &mut queue, 64));
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refused, BackendError::Resources);
    let first = grown.iter().position(Result::is_err).expect("a small one");
    assert!(first > 0, "{grown:?}");
    assert!(
        grown[first..]
            .iter()
            .all(|grown| *grown == Err(BackendError::Resources))
    );
    assert!(grown.len() < device.ia_attributes().max_srqs as usize);
}
